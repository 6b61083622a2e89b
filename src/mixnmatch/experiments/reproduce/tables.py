"""The paper's tables as data: titles, rows, what is bold, and the numbers behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mixnmatch.experiments.reproduce.learning import Needed, needed
from mixnmatch.experiments.reproduce.manifest import Entry
from mixnmatch.experiments.reproduce.methods import LEARNING, PAPER, method
from mixnmatch.experiments.reproduce.published import PUBLISHED
from mixnmatch.experiments.reproduce.results import Mean, Results, best_of

__all__ = ["Cell", "Table", "efficiency_table", "expressivity_table", "metric_table", "published_table", "row_table"]

DIGITS: Final = {
    "ece": 2,
    "ece_floor": 2,
    "ece_printed": 2,
    "ece_residual": 2,
    "gain": 3,
    "accuracy": 2,
    "brier": 4,
    "nll": 4,
}
EXPRESSIVE: Final = ("ts", "ets")
EFFICIENT: Final = ("irm", "irova", "irova-ts")
# Behind errors that are not above what calibrated scores would have.
FLOOR_MARK: Final = "°"
PAPER_KEYS: Final = tuple(one.key for one in PAPER)


@dataclass(frozen=True)
class Cell:
    """A number as it is printed, whether it is bold, and the number itself."""

    text: str
    bold: bool = False
    value: float = math.nan
    error: float = math.nan
    n: int = 0


@dataclass(frozen=True)
class Line:
    """A row of a table, under a heading."""

    entry: Entry
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table in the paper's layout: data set, model, and a column for each method."""

    key: str
    title: str
    caption: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def titles(self) -> tuple[str, ...]:
        """Titles of the columns, the paper's own methods marked."""
        names = []
        for key in self.columns:
            one = method(key)
            names.append(f"{one.title} (ours)" if one.ours else one.title)
        return tuple(names)

    def records(self) -> list[dict[str, Any]]:
        """One record for each number, for CSV."""
        return [
            {
                "dataset": line.entry.dataset,
                "model": line.entry.model,
                "classes": line.entry.classes,
                "method": key,
                "value": cell.value,
                "standard_error": cell.error,
                "splits": cell.n,
                "bold": cell.bold,
                "text": cell.text,
            }
            for line in self.lines
            for key, cell in zip(self.columns, line.cells, strict=True)
            if cell.n
        ]


def metric_table(
    results: Results,
    metric: str,
    columns: Sequence[str],
    *,
    key: str,
    title: str,
    caption: str,
    against: Sequence[str] = (),
) -> Table:
    """Means of a metric in per cent, with standard errors; bold is what is best within noise.

    ``against`` are further methods that take part in the contest for the best. Errors that calibrated scores might have
    as well are marked.
    """
    lines = []
    for entry in results.rows():
        known = [name for name in dict.fromkeys((*columns, *against)) if (entry.name, name) in results.splits]
        best = results.best(entry.name, known, metric) if len(known) > 1 else set()
        cells = []
        for name in columns:
            apart = results.above_floor(entry.name, name) if metric == "ece" else None
            mark = FLOOR_MARK if apart is not None and (apart.value <= 0 or apart.is_noise) else ""
            cells.append(_cell(results.mean(entry.name, name, metric), metric, name in best, mark))
        lines.append(Line(entry, tuple(cells)))
    return Table(key, title, caption, tuple(columns), tuple(lines))


def _cell(mean: Mean | None, metric: str, bold: bool, mark: str = "") -> Cell:
    if mean is None:
        return Cell("–")
    digits = DIGITS[metric]
    text = _fixed(100 * mean.value, digits)
    if math.isfinite(mean.error):
        text += f" ±{_fixed(100 * mean.error, digits)}"
    return Cell(text + mark, bold, 100 * mean.value, 100 * mean.error, mean.n)


def published_table(results: Results, metric: str, columns: Sequence[str]) -> list[list[str]]:
    """Our numbers and the paper's, where a row is the same network on the same data: a head and lines of text."""
    lines = [["data set", "model", "whose", *(method(key).title for key in columns)]]
    for entry in results.rows():
        theirs = PUBLISHED[metric].get((entry.dataset, entry.model))
        if theirs is None:
            continue
        means = [results.mean(entry.name, key, metric) for key in columns]
        own = ["–" if mean is None else _fixed(100 * mean.value, DIGITS[metric]) for mean in means]
        lines.append([entry.dataset, entry.model, "ours", *own])
        lines.append(["", "", "paper", *(theirs.get(key, "–") for key in columns)])
    return lines


def _fixed(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def expressivity_table(results: Results, columns: Sequence[str] = EXPRESSIVE, *, key: str = "table3") -> Table:
    """Table 3: the error at the largest number of calibration rows."""
    lines = []
    for entry in results.rows("curve"):
        curves = {name: curve for name in columns if (curve := results.curve(entry.name, name, "ece")) is not None}
        last = {name: curve.means[-1] for name, curve in curves.items()}
        texts = {name: _fixed(100 * mean.value, 2) for name, mean in last.items()}
        best = best_of({name: mean.value for name, mean in last.items()}, "ece") if last else ""
        all_equal = len(set(texts.values())) < 2
        cells = []
        for name in columns:
            if name not in last:
                cells.append(Cell("–"))
                continue
            bold = not all_equal and texts[name] == texts[best]
            mean = last[name]
            cells.append(Cell(texts[name], bold, 100 * mean.value, 100 * mean.error, mean.n))
        lines.append(Line(entry, tuple(cells)))
    title = "Table 3: expressive power" if key == "table3" else "Table 3, all methods of the learning curves"
    caption = (
        "ECE¹ (%) at the largest n_c of the learning curves (10000 for CIFAR, 45000 for ImageNet, fewer where a file "
        "has fewer); lower values imply more expressive power. Bold: lowest as printed."
    )
    return Table(key, title, caption, tuple(columns), tuple(lines))


def efficiency_table(results: Results, columns: Sequence[str] = EFFICIENT, *, key: str = "table4") -> Table:
    """Table 4: calibration rows that are needed to reach IRM's error at 128 rows, divided by 128."""
    lines = []
    for entry in results.rows("curve"):
        needed_by: dict[str, Needed] = {}
        reference = results.curve(entry.name, "irm", "ece")
        for name in columns:
            curve = results.curve(entry.name, name, "ece")
            if reference is not None and curve is not None:
                needed_by[name] = needed(curve.sizes, curve.values, reference.values[0])
        least = min((one.rows for one in needed_by.values()), default=math.nan)
        cells = []
        for name in columns:
            if name not in needed_by:
                cells.append(Cell("–"))
                continue
            share, sign = needed_by[name].rows / curve_start(results, entry), needed_by[name].sign
            text = f"{sign}{share:.3g}" if share >= 10 else f"{sign}{share:.2f}"
            text = "1.0" if name == "irm" else text
            cells.append(Cell(text, needed_by[name].rows == least, share, math.nan, 1))
        lines.append(Line(entry, tuple(cells)))
    title = "Table 4: data efficiency" if key == "table4" else "Table 4, all isotonic methods"
    caption = (
        "Calibration rows that a method needs to reach the ECE¹ that IRM has with 128, divided by 128; lower means "
        "more data-efficient. Interpolated on the learning curve, in the logarithm of n_c. ≤: reached with the "
        "smallest set already; >: not reached with the largest."
    )
    return Table(key, title, caption, tuple(columns), tuple(lines))


def curve_start(results: Results, entry: Entry) -> int:
    """The smallest calibration size of a row's learning curve."""
    curve = results.curve(entry.name, "irm", "ece")
    assert curve is not None
    return curve.sizes[0]


def row_table(results: Results) -> list[list[str]]:
    """Which rows there are: classes, sizes, how sets were drawn, and how many splits were run."""
    how = {
        "random": "random",
        "given": "calibration and evaluation files kept apart (label shift)",
        "top-label": "largest probabilities only",
    }
    lines = [
        ["data set", "model", "classes", "n_c", "n_e", "splits", "largest n_c of the curve", "repetitions", "sets"]
    ]
    for entry in results.entries.values():
        one = next(iter(results.splits.get((entry.name, "uncalibrated"), {}).values()), None)
        curve = results.curve(entry.name, "ts", "ece")
        lines.append(
            [
                entry.dataset,
                entry.label,
                str(entry.classes),
                "" if one is None or entry.split == "top-label" else str(one["n_c"]),
                "" if one is None else str(one["n_e"]),
                str(len(results.splits.get((entry.name, "uncalibrated"), {}))),
                "" if curve is None else str(curve.sizes[-1]),
                "" if curve is None else str(max(mean.n for mean in curve.means)),
                how[entry.split],
            ]
        )
    return lines


ISOTONIC: Final = tuple(key for key in LEARNING if key.startswith("ir"))

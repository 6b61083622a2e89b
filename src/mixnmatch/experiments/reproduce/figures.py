"""The paper's figures on learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mixnmatch._files import atomic_write
from mixnmatch.experiments.reproduce.learning import needed
from mixnmatch.experiments.reproduce.manifest import Entry
from mixnmatch.experiments.reproduce.methods import method
from mixnmatch.experiments.reproduce.results import Results
from mixnmatch.experiments.synthetic_plots import _figure

__all__ = ["draw_learning_curves", "draw_measures", "draw_summary", "main_rows"]

# Colours that people with colour blindness tell apart (Okabe and Ito 2008), and a marker each.
STYLE: Final[dict[str, dict[str, Any]]] = {
    "uncalibrated": {"color": "#777777", "linestyle": ":", "marker": ""},
    "ts": {"color": "#0072B2", "linestyle": "--", "marker": "o", "fillstyle": "none", "markersize": 7, "zorder": 5},
    "ets": {"color": "#D55E00", "linestyle": "-", "marker": "s"},
    "irm": {"color": "#009E73", "linestyle": "-", "marker": "^"},
    "irova": {"color": "#000000", "linestyle": "--", "marker": "x"},
    "irova-ts": {"color": "#CC79A7", "linestyle": "-", "marker": "D"},
}
PAPER_LINES: Final = ("uncalibrated", "ts", "ets", "irm", "irova", "irova-ts")
COLUMNS: Final = 4
# From this ratio of the largest to the smallest error on, the scale is logarithmic.
WIDE: Final = 4


def _title(entry: Entry) -> str:
    return f"{entry.dataset}, {entry.label}"


def _plot(axis: Any, results: Results, entry: Entry, metric: str, keys: Sequence[str]) -> None:
    for key in keys:
        curve = results.curve(entry.name, key, metric)
        if curve is None:
            continue
        values = [100 * value for value in curve.values]
        spread = [100 * mean.error if mean.n > 1 else 0.0 for mean in curve.means]
        style = {"markersize": 4, "linewidth": 1.3, **STYLE[key]}
        axis.errorbar(curve.sizes, values, yerr=spread, label=method(key).title, capsize=0, **style)
    axis.set_xscale("log", base=2)
    axis.set_xlabel("calibration rows $n_c$")
    axis.set_ylabel("top-label ECE$^1$ (%)" if metric == "ece" else "accuracy (%)")
    low, high = axis.get_ylim()
    if metric == "ece" and (low <= 0 or high > WIDE * low):  # with few rows errors can be ten times those with many
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(_few_labels)
    axis.grid(alpha=0.25)


def _few_labels(value: float, _position: int | None = None) -> str:
    """Labels of the smaller ticks of a logarithmic axis: 2 and 5 of each decade."""
    return f"{value:g}" if f"{value:e}"[0] in "25" else ""


def _save(figure: Any, path: Path) -> Path:
    settings = {"format": path.suffix[1:], "dpi": 100, "metadata": {"Software": None}}
    atomic_write(path, lambda file: figure.savefig(file, **settings))
    return path


def _panels(path: Path, results: Results, entries: Sequence[Entry]) -> Path:
    """ECE above accuracy, one column for each classifier."""
    bands = -(-len(entries) // COLUMNS)
    figure, axes = _figure(2 * bands, min(COLUMNS, len(entries)))
    figure.set_size_inches(3.4 * len(axes[0]), 2.5 * 2 * bands)
    for axis in axes.ravel():
        axis.set_visible(False)
    for number, entry in enumerate(entries):
        column, band = number % COLUMNS, 2 * (number // COLUMNS)
        for axis, metric in ((axes[band][column], "ece"), (axes[band + 1][column], "accuracy")):
            axis.set_visible(True)
            _plot(axis, results, entry, metric, PAPER_LINES)
            if metric == "ece":
                axis.set_title(_title(entry), fontsize=9)
    axes[0][0].legend(fontsize=7)
    return _save(figure, path)


def main_rows(results: Results) -> list[Entry]:
    """For each data set of the paper the widest network, as in the paper's figure; otherwise its first row."""
    entries: dict[str, Entry] = {}
    for entry in results.rows("curve"):
        if entry.heading in ("CIFAR-10", "CIFAR-100", "ImageNet") and entry.dataset == entry.heading:
            wide = entry.model.startswith("WRN")
            if entry.heading not in entries or wide:
                entries[entry.heading] = entry
    return list(entries.values()) or results.rows("curve")[:3]


def draw_learning_curves(folder: Path, results: Results) -> dict[str, Path]:
    """The figure of the main text, and one for each heading."""
    rows = results.rows("curve")
    if not rows:
        return {}
    files = {"main": _panels(folder / "learning-curves.png", results, main_rows(results))}
    for heading in dict.fromkeys(entry.heading for entry in rows):
        chosen = [entry for entry in rows if entry.heading == heading]
        name = "".join(letter if letter.isalnum() else "-" for letter in heading.lower()).replace("--", "-")
        files[heading] = _panels(folder / f"learning-curves-{name}.png", results, chosen)
    return files


def draw_summary(path: Path, results: Results) -> Path | None:
    """Figure 1: TS against isotonic regression, the accuracy that it costs, and what ensembles and compositions do."""
    rows = main_rows(results)
    if not rows:
        return None
    small, large = rows[0], rows[-1]
    panels = (
        ("TS is efficient, IROvA expressive", small, "ece", ("ts", "irova")),
        ("IROvA costs accuracy", large, "accuracy", ("ts", "irova")),
        ("Data ensemble and composition", large, "ece", ("irova", "irm", "irova-ts")),
        ("Model ensemble", large, "ece", ("ts", "ets")),
    )
    figure, axes = _figure(2, 2)
    figure.set_size_inches(8.4, 6.4)
    for axis, (title, entry, metric, keys) in zip(axes.ravel(), panels, strict=True):
        _plot(axis, results, entry, metric, keys)
        axis.set_title(f"{title}\n{_title(entry)}", fontsize=9)
        axis.legend(fontsize=8)
    return _save(figure, path)


def draw_measures(path: Path, results: Results) -> Path | None:
    """The paper's illustration of the two measures, on the last of the main rows."""
    rows = main_rows(results)
    if not rows:
        return None
    entry = rows[-1]
    figure, axes = _figure(1, 2)
    figure.set_size_inches(9.0, 3.6)
    left, right = axes[0]
    _plot(left, results, entry, "ece", ("ts", "ets"))
    for key in ("ts", "ets"):
        curve = results.curve(entry.name, key, "ece")
        if curve is not None:
            left.plot(curve.sizes[-1], 100 * curve.values[-1], "o", markersize=11, fillstyle="none", color="black")
    left.set_title(f"Expressive power: ECE at the largest $n_c$\n{_title(entry)}", fontsize=9)
    left.legend(fontsize=8)
    _plot(right, results, entry, "ece", ("irm", "irova", "irova-ts"))
    reference = results.curve(entry.name, "irm", "ece")
    if reference is not None:
        level = reference.values[0]
        right.axhline(100 * level, color="#777777", linewidth=0.9)
        for number, key in enumerate(("irm", "irova", "irova-ts")):
            curve = results.curve(entry.name, key, "ece")
            enough = None if curve is None else needed(curve.sizes, curve.values, level)
            if enough is not None and not enough.sign:
                color = STYLE[key]["color"]
                right.axvline(enough.rows, color=color, linewidth=0.9, linestyle=":")
                place = {"xytext": (4, 4 + 13 * number), "textcoords": "offset points", "fontsize": 9, "color": color}
                right.annotate(f"{enough.rows / reference.sizes[0]:.3g}", (enough.rows, 100 * level), **place)
    right.set_title(
        f"Data efficiency: $n_c$ that reaches IRM's ECE at {reference.sizes[0] if reference else 128}", fontsize=9
    )
    right.legend(fontsize=8)
    return _save(figure, path)

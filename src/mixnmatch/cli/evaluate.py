"""``mixnmatch evaluate``: how good, how well calibrated, and how sure is that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mixnmatch.cli.command import Command, echo, print_json
from mixnmatch.cli.options import FILE, FILE_HELP, Reading, json_option, reading_options, seed_option

if TYPE_CHECKING:
    from mixnmatch.cli.inputs import Measured
    from mixnmatch.io import ScoreTable

NOTIONS = ("top-label", "class-wise", "canonical", "binary")
ESTIMATORS = (
    "kde-residual",
    "kde-residual-debiased",
    "kde",
    "histogram",
    "histogram-debiased",
    "sweep",
    "smooth",
    "dirichlet",
    "skce",
)
# Classes that are shown when each has an error of its own.
WORST = 5


def _choices(names: tuple[str, ...]) -> str:
    return f"{names[0]} [default], {', '.join(names[1:-1])} or {names[-1]}"


HELP = f"""How good and how well calibrated are the scores in a file?

    Prints accuracy, log loss, Brier score and the calibration error with intervals, and a test of "it is calibrated".
    With --map, the same after calibration by a saved map, the calibration gain, and a note if the samples do not look
    like the map's calibration set: evaluate on rows that the map was not fitted on.
    {FILE_HELP}"""


@click.command(
    "evaluate",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch evaluate test.npz",
        "mixnmatch evaluate test.npz --map cal.json",
        "mixnmatch evaluate test.csv --logits --notion class-wise --json",
        "mixnmatch evaluate test.npz --estimator histogram --bins 15 --no-interval",
    ),
)
@click.argument("scores", type=FILE)
@click.option("--map", "map_file", type=FILE, metavar="CAL.json", help="Evaluate after calibration, too.")
@click.option("--notion", type=click.Choice(NOTIONS), default="top-label", metavar="NAME", help=f"{_choices(NOTIONS)}.")
@click.option(
    "--estimator",
    type=click.Choice(ESTIMATORS),
    default="kde-residual",
    metavar="NAME",
    help=f"{_choices(ESTIMATORS)}.",
)
@click.option(
    "--norm", type=click.Choice(["1", "2", "max"]), help="Power of the error; max for histograms [default: 1]."
)
@click.option("--bins", type=click.IntRange(1), metavar="N", help="Number of bins, for histograms.")
@click.option("--interval/--no-interval", default=True, help="Interval and test of the error [default: yes].")
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    metavar="P",
    help="Confidence of intervals.",
)
@seed_option
@reading_options
@json_option
def command(
    scores: Path,
    map_file: Path | None,
    notion: str,
    estimator: str,
    norm: str | None,
    bins: int | None,
    interval: bool,
    confidence: float,
    seed: int,
    as_json: bool,
    reading: Reading,
) -> None:
    """Measure, before and after."""
    from mixnmatch.cli.display import progress
    from mixnmatch.cli.inputs import aligned, calibrated, load_map

    map_ = None if map_file is None else load_map(map_file)
    table = reading.read(scores, like=map_)
    asked: dict[str, Any] = {
        "notion": notion,
        "estimator": estimator,
        "norm": int(norm) if norm in ("1", "2") else norm,
        "bins": bins,
    }
    asked |= {"interval": interval, "confidence": confidence, "random_state": seed}
    with progress("Evaluating", 1 if map_ is None else 2) as step:
        if map_ is not None and map_file is not None:
            table = aligned(table, map_, map_file)
        sides = {"before": Side(table, table.scores, table.logits, reading.weighting, asked)}
        step()
        if map_ is not None:
            sides["after"] = Side(table, calibrated(map_, table.scores), False, reading.weighting, asked)
        step()
    gain = None if map_ is None else _gain(table, sides, map_, reading.weighting, confidence)
    drift = None if map_ is None else _drift(table, sides, map_, reading.weighting)
    if as_json:
        print_json(_as_dict(table, sides, gain, map_file) | ({} if drift is None else {"score_drift": drift.to_dict()}))
    else:
        echo(_as_text(table, sides, gain, map_file))
        if drift is not None and drift.different:
            echo(drift.message)


class Side:
    """All that is measured of one table of scores."""

    def __init__(self, table: ScoreTable, scores: Any, logits: bool, weighting: str, asked: dict[str, Any]):
        import numpy as np

        from mixnmatch._engine.scores import read_scores
        from mixnmatch.cli.inputs import measure, settings_of
        from mixnmatch.evaluation.error import calibration_error
        from mixnmatch.evaluation.notion import top_label

        self.scores = scores
        self.measured: Measured = measure(
            scores, table, logits=logits, weighting=weighting, confidence=asked["confidence"]
        )
        self.error = calibration_error(scores, table.labels, logits=logits, **settings_of(table, weighting), **asked)
        checked = read_scores(scores, logits=logits)
        confidence = top_label(checked, np.zeros(checked.n_rows, np.intp)).z
        self.mean_confidence = float(np.average(confidence, weights=table.weights))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {
            **self.measured.to_dict(),
            "mean_confidence": self.mean_confidence,
            "calibration_error": self.error.to_dict(),
        }


def _gain(table: ScoreTable, sides: dict[str, Side], map_: Any, weighting: str, confidence: float) -> Any:
    from mixnmatch.cli.inputs import settings_of
    from mixnmatch.evaluation.gain import calibration_gain

    return calibration_gain(
        table.scores,
        sides["after"].scores,
        table.labels,
        logits=table.logits,
        injective=bool(map_.injective),
        confidence=confidence,
        **settings_of(table, weighting),
    )


def _drift(table: ScoreTable, sides: dict[str, Side], map_: Any, weighting: str) -> Any:
    """Whether the samples look like the map's calibration set, if it remembers that."""
    from mixnmatch.cli.inputs import frequencies
    from mixnmatch.monitoring.drift import drift_of_probabilities

    weight = frequencies(table, weighting)
    return drift_of_probabilities(map_, sides["after"].scores, table.labels, sample_weight=weight)


def _as_dict(table: ScoreTable, sides: dict[str, Side], gain: Any, map_file: Path | None) -> dict[str, Any]:
    head = {"file": str(table.path), "rows": table.n_rows, "classes": table.n_classes, "logits": table.logits}
    if gain is None:
        return head | sides["before"].to_dict()
    both = {name: side.to_dict() for name, side in sides.items()}
    return head | {"map": str(map_file)} | both | {"calibration_gain": gain.to_dict()}


def _as_text(table: ScoreTable, sides: dict[str, Side], gain: Any, map_file: Path | None) -> str:
    from mixnmatch.cli import display
    from mixnmatch.cli.inputs import about

    first = sides["before"].error
    rows = [
        _row("accuracy", [side.measured.accuracy for side in sides.values()], display.percent),
        _row("log loss", [side.measured.log_loss for side in sides.values()], display.number),
        _row("Brier score (sum over classes)", [side.measured.brier_score for side in sides.values()], display.number),
        _row("calibration error", [side.error for side in sides.values()], _error_text(first)),
    ]
    if gain is not None:
        rows.insert(0, ["", "before", "", "after", ""])
    settings = f"{first.notion}, {first.estimator}, norm {first.norm}"
    lines = [
        about(table),
        "",
        display.table(rows),
        "",
        f"Calibration error: {settings}. Brackets: {100 * first.confidence:g}% intervals.",
    ]
    for name, side in sides.items():
        lines += _verdict(side, "" if gain is None else f"{name.capitalize()}: ", table)
    if gain is not None:
        ends = display.between(gain.interval, lambda value: f"{100 * value:+.3f}%")
        lines.append(f"Calibration gain of {map_file}: {100 * gain:+.3f}% {ends} ({gain.meaning}).")
    return "\n".join(lines)


def _row(name: str, values: list[Any], show: Callable[[float], str]) -> list[str]:
    from mixnmatch.cli import display

    cells = [(show(float(value)), display.between(value.interval, show)) for value in values]
    return [name, *(cell for pair in cells for cell in pair)]


def _error_text(error: Any) -> Callable[[float], str]:
    from mixnmatch.cli import display

    return display.percent if error.norm in (1, "max") else lambda value: f"{value:.3g}"


def _verdict(side: Side, start: str, table: ScoreTable) -> list[str]:
    """What the numbers say, in words, for one side."""
    from mixnmatch.cli import display
    from mixnmatch.evaluation.result import p_text

    error, right = side.error, float(side.measured.accuracy)
    gap = f"mean confidence {display.percent(side.mean_confidence)}, accuracy {display.percent(right)}"
    if error.p_value is None:
        text = gap
    elif error.p_value <= 1 - error.confidence:
        way = "over" if side.mean_confidence > right else "under"
        text = f"not calibrated ({p_text(error.p_value)}), {way}-confident on average ({gap})"
    else:
        text = f"no sign of miscalibration ({p_text(error.p_value)}; {gap})"
    text = text if start else f"{text[0].upper()}{text[1:]}"
    return [f"{start}{text}.", f"  {error.advice}", *_worst(side, table)]


def _worst(side: Side, table: ScoreTable) -> list[str]:
    """The classes with the largest errors, for the class-wise notion."""
    if side.error.per_class is None:
        return []
    show = _error_text(side.error)
    each = [float(value) for value in side.error.per_class]
    names = list(range(len(each))) if table.classes is None else table.classes.tolist()
    worst = sorted(range(len(each)), key=lambda index: -each[index])[:WORST]
    return ["  Worst classes: " + ", ".join(f"{names[index]} {show(each[index])}" for index in worst)]

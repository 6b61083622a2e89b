"""``mixnmatch evaluate``: accuracy, proper scores and calibration error of a file, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mixnmatch._engine.text import estimate_text, significant
from mixnmatch.cli.command import Command, print_json
from mixnmatch.cli.options import FILE, FILE_HELP, Choice, Reading, TextType, json_option, reading_options, seed_option
from mixnmatch.cli.terminal import echo

if TYPE_CHECKING:
    from mixnmatch.evaluation._evaluation import Evaluation
    from mixnmatch.io import ScoreTable

NOTIONS = ("top-label", "class-wise", "canonical", "binary")
# Classes that are shown when each has an error of its own.
WORST = 5


class EstimatorName(TextType):
    """Name of an estimator of calibration error, known to the registry."""

    name = "estimator"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check that there is such an estimator."""
        from mixnmatch.evaluation.estimators import estimator

        try:
            estimator(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return value


HELP = f"""Measure how good and how well calibrated the scores in a file are.

    Prints accuracy, log loss, Brier score and calibration error (ECE) with confidence intervals, and tests whether the
    scores are calibrated. With --map, prints the same after calibration and the calibration gain, and warns if the
    samples do not resemble the calibration set of the map. Use samples that the map was not fitted on.
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
@click.option(
    "--notion",
    type=Choice(NOTIONS),
    metavar="NAME",
    help=f"{', '.join(NOTIONS)} [default: binary for two classes, top-label for more].",
)
@click.option(
    "--estimator",
    type=EstimatorName(),
    default="kde-residual",
    show_default=True,
    metavar="NAME",
    help="kde-residual, kde-residual-debiased, kde, histogram, histogram-debiased, sweep, smooth, dirichlet, skce, or "
    "one of another package.",
)
@click.option("--norm", type=Choice(["1", "2", "max"]), help="Power of the error; max for histograms [default: 1].")
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
    notion: str | None,
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
    from mixnmatch._engine.steps import listening
    from mixnmatch.cli.display import reporting
    from mixnmatch.cli.inputs import load_map, order_for
    from mixnmatch.evaluation._evaluate import evaluate

    map_ = None if map_file is None else load_map(map_file)
    table = reading.read(scores, like=map_)
    if map_ is not None and map_file is not None:
        order_for(table, map_, map_file)  # or an error that names both files
    with reporting("Evaluating") as step, listening(step):
        evaluation = evaluate(
            table.checked,
            map=map_,
            notion=notion,
            estimator=estimator,
            norm=int(norm) if norm in ("1", "2") else norm,
            bins=bins,
            interval=interval,
            confidence=confidence,
            random_state=seed,
        )
    drift = None if map_ is None else _drift(table, map_)
    if as_json:
        print_json(_as_dict(table, evaluation, map_file) | ({} if drift is None else {"score_drift": drift.to_dict()}))
    else:
        echo(_as_text(table, evaluation, map_file))
        if drift is not None and drift.different:
            echo(drift.message)


def _drift(table: ScoreTable, map_: Any) -> Any:
    """Whether the samples look like the map's calibration set, if it remembers that."""
    from mixnmatch.monitoring.drift import score_drift

    return score_drift(map_, table.checked)


def _as_dict(table: ScoreTable, evaluation: Evaluation, map_file: Path | None) -> dict[str, Any]:
    head = {"file": str(table.path), "rows": table.n_rows, "classes": table.n_classes, "logits": table.logits}
    if evaluation.after is None or evaluation.gain is None:
        return head | _plain(evaluation)
    both = {"before": _plain(evaluation), "after": _plain(evaluation.after)}
    return head | {"map": str(map_file)} | both | {"calibration_gain": evaluation.gain.to_dict()}


def _plain(side: Evaluation) -> dict[str, Any]:
    numbers = {name: value.to_dict() for name, value in side.items()}
    return numbers | {"mean_confidence": float(side["mean_confidence"])}


def _as_text(table: ScoreTable, evaluation: Evaluation, map_file: Path | None) -> str:
    from mixnmatch.cli import display
    from mixnmatch.cli.inputs import about
    from mixnmatch.evaluation._evaluation import INFINITE_LOSS

    first = evaluation["calibration_error"]
    sides = [evaluation] if evaluation.after is None else [evaluation, evaluation.after]
    rows = [
        _row("accuracy", [side["accuracy"] for side in sides], display.percent),
        _row("log loss", [side["log_loss"] for side in sides], display.number),
        _row("Brier score", [side["brier_score"] for side in sides], display.number),
        _row("calibration error", [side["calibration_error"] for side in sides], _error_text(first)),
    ]
    if evaluation.after is not None:
        rows.insert(0, ["", "before", "", "after", ""])
    settings = f"{first.notion}, {first.estimator}, norm {first.norm}"
    explained = f"Calibration error: {settings}.\n"
    explained += f"Brackets: {100 * first.confidence:g}% confidence intervals. Brier score: sum over classes."
    if any(math.isinf(side["log_loss"]) for side in sides):
        explained += f"\n{INFINITE_LOSS}"
    lines = [about(table), "", display.table(rows), "", *_two_classes(sides, table), explained]
    starts = ("",) if evaluation.after is None else ("Before: ", "After: ")
    for start, side in zip(starts, sides, strict=True):
        lines += _verdict(side, start, table)
    if evaluation.gain is not None:
        gain = evaluation.gain
        text = estimate_text(gain, gain.interval, gain.confidence, show="{:+.5f}".format)
        lines.append(f"Calibration gain of {map_file}: {text} ({gain.meaning}).")
    return "\n".join(lines)


def _two_classes(sides: list[Evaluation], table: ScoreTable) -> list[str]:
    """What is reported of two classes only: how the probabilities of the positive one relate to what happened."""
    from mixnmatch.cli import display
    from mixnmatch.evaluation.result import p_text
    from mixnmatch.evaluation.two_classes import EXCESS, TITLES

    if "calibration_slope" not in sides[0]:
        return []
    rows = []
    for key, title in TITLES.items():
        measures = [side[key] for side in sides]
        if measures[0].interval is None:
            rows.append([title, *(cell for one in measures for cell in (p_text(one.p_value), ""))])
        else:
            rows.append(_row(title, measures, _thousandths))
    return [f"Probability of class {_positive(table)}:", display.table(rows), EXCESS, ""]


def _thousandths(value: float) -> str:
    from mixnmatch.cli import display

    return display.number(value, 3)


def _positive(table: ScoreTable) -> object:
    """Name of the positive class."""
    classes = table.checked.classes
    return 1 if classes is None else classes[1].item()


def _row(name: str, values: list[Any], show: Callable[[float], str]) -> list[str]:
    from mixnmatch.cli import display

    cells = [(show(float(value)), display.between(value.interval, show)) for value in values]
    return [name, *(cell for pair in cells for cell in pair)]


def _error_text(error: Any) -> Callable[[float], str]:
    from mixnmatch.cli import display

    return display.percent if error.norm in (1, "max") else lambda value: significant(value, 3)


def _verdict(side: Evaluation, start: str, table: ScoreTable) -> list[str]:
    """What the numbers say, in words, for one side."""
    from mixnmatch.evaluation.level import is_significant
    from mixnmatch.evaluation.result import p_text

    error = side["calibration_error"]
    gap, direction = _gap(side, table)
    if error.p_value is None:
        text = gap
    else:
        direction = f", {direction}" if is_significant(error) else ""
        text = f"{_in_a_word(side)} ({p_text(error.p_value)}){direction}: {gap}"
    text = f"{text[0].lower()}{text[1:]}" if start else f"{text[0].upper()}{text[1:]}"
    return [f"{start}{text}.", f"  {error.advice}", *_worst(side, table)]


def _in_a_word(side: Evaluation) -> str:
    """How well the scores are calibrated, as in the report; errors of other notions and powers have no such rule."""
    from mixnmatch.evaluation.level import SENTENCES, is_significant, level

    error = side["calibration_error"]
    if error.notion in ("binary", "top-label") and error.norm == 1:
        return SENTENCES[level(error, float(side["base_rate"]) if error.notion == "binary" else 0.5)]
    return SENTENCES["bad"] if is_significant(error) else "No sign of miscalibration"


def _gap(side: Evaluation, table: ScoreTable) -> tuple[str, str]:
    """What is said and what happened, on average, and which of the two is larger: of what the error is about."""
    from mixnmatch.cli import display
    from mixnmatch.evaluation.level import is_directed

    error = side["calibration_error"]
    if error.notion == "binary":
        said, happened = float(side["mean_probability"]), float(side["base_rate"])
        of_class = f"mean probability of class {_positive(table)}"
        sentence = f"{of_class} {display.percent(said)}, frequency {display.percent(happened)}"
        words = ("too high", "too low")
    else:
        said, happened = float(side["mean_confidence"]), float(side["accuracy"])
        sentence = f"mean confidence {display.percent(said)}, accuracy {display.percent(happened)}"
        words = ("overconfident", "underconfident")
    # The means say nothing of errors that are squares, or of all classes.
    if error.notion in ("binary", "top-label") and error.norm == 1 and not is_directed(error, said - happened):
        return sentence, f"{words[0]} for some samples and {words[1]} for others"
    return sentence, f"{words[said <= happened]} on average"


def _worst(side: Evaluation, table: ScoreTable) -> list[str]:
    """The classes with the largest errors, for the class-wise notion."""
    if side["calibration_error"].per_class is None:
        return []
    show = _error_text(side["calibration_error"])
    each = [float(value) for value in side["calibration_error"].per_class]
    names = list(range(len(each))) if table.classes is None else table.classes.tolist()
    worst = sorted(range(len(each)), key=lambda index: -each[index])[:WORST]
    return ["  Worst classes: " + ", ".join(f"{names[index]} {show(each[index])}" for index in worst)]

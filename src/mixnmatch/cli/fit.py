"""``mixnmatch fit``: learn a calibration map and save it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch._engine.text import significant
from mixnmatch.cli.command import Command, print_json
from mixnmatch.cli.options import (
    FILE,
    FILE_HELP,
    Choice,
    Method,
    Reading,
    force_option,
    json_option,
    list_methods_option,
    reading_options,
)
from mixnmatch.cli.terminal import echo

if TYPE_CHECKING:
    from mixnmatch.evaluation._evaluation import Evaluation
    from mixnmatch.io import ScoreTable

HELP = f"""Learn a calibration map from scores and labels, and save it as one JSON file.

    Use samples that the model was not trained on. The printed scores are those of the calibration set and are
    optimistic; `mixnmatch evaluate OTHER --map CAL.json` measures the map on held-out samples.
    {FILE_HELP}"""


@click.command(
    "fit",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch fit val.npz --method ets -o cal.json",
        "mixnmatch fit val.csv --logits --label-column truth --method irm -o cal.json",
        "mixnmatch fit logits.npy --labels labels.npy --logits -o cal.json",
        "mixnmatch fit val.npz --method auto --preserve-accuracy -o cal.json",
        "mixnmatch fit val.npz -o cal.json --metadata model=resnet50 --metadata data=val-2024",
        "mixnmatch fit --list-methods",
    ),
)
@click.argument("scores", type=FILE)
@click.option("--method", "-m", type=Method(), help="How to calibrate [default: auto for two classes, ets for more].")
@list_methods_option
@click.option(
    "--output", "-o", type=FILE, required=True, metavar="CAL.json", help="Where to save the map; - for stdout."
)
@click.option("--loss", type=Choice(["nll", "brier"]), help="Loss to minimise, for methods with a choice.")
@click.option("--preserve-accuracy", is_flag=True, help="Never change the predicted class.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Another setting of the method.")
@click.option(
    "--metadata",
    multiple=True,
    metavar="NAME=VALUE",
    help="Metadata to store in the map file, such as the hash of a model.",
)
@reading_options
@force_option
@json_option
def command(
    scores: Path,
    method: str | None,
    output: Path,
    loss: str | None,
    preserve_accuracy: bool,
    options: tuple[str, ...],
    metadata: tuple[str, ...],
    force: bool,
    as_json: bool,
    reading: Reading,
) -> None:
    """Fit, save, and say what was learned."""
    from time import perf_counter

    from mixnmatch.cli.display import reporting
    from mixnmatch.cli.streams import is_standard
    from mixnmatch.evaluation._evaluate import evaluate
    from mixnmatch.io import check_output
    from mixnmatch.maps.registry import default_method

    notes = _pairs(metadata, "--metadata")
    if not is_standard(output):
        check_output(output, [".json"], force=force)
    elif as_json:
        msg = "--json and -o - would both write to standard output."
        raise click.UsageError(msg)
    table = reading.read(scores)
    method = method or default_method(table.checked.n_classes)
    told = reading.classes is not None
    map_ = _build(method, table, reading.weighting, told, _settings(method, loss, options))
    if preserve_accuracy and not map_.accuracy_preserving:
        map_ = _held_to_winners(map_)
    start = perf_counter()
    with reporting("Fitting") as step:
        if hasattr(map_, "reporting_to"):
            map_.reporting_to(step)
        map_.fit(table.checked)
    seconds = perf_counter() - start
    with reporting("Evaluating"):
        before = evaluate(table.checked, map=map_, metrics=("accuracy", "log_loss", "brier_score"))
    assert before.after is not None
    after = before.after
    if table.columns:
        notes.setdefault("columns", list(table.columns))  # so that `apply` finds them again
    _save(map_, output, notes, force=force)
    if as_json:
        print_json(_as_dict(map_, method, table, before, after, seconds, output))
    else:
        text = _as_text(map_, method, table, before, after, seconds, output) + _price(map_, table, after)
        echo(text, err=is_standard(output))


def _price(map_: Any, table: ScoreTable, after: Evaluation) -> str:
    """What keeping the predicted classes costs, where a map that changes some of them is held back."""
    from mixnmatch.evaluation._evaluate import evaluate
    from mixnmatch.maps.keep_winner import KeepWinner

    if not isinstance(map_, KeepWinner):
        return ""
    free = evaluate(table.checked, map=map_.map_, metrics=("log_loss",)).after
    assert free is not None
    price = float(after["log_loss"]) - float(free["log_loss"])
    return f"\nNever changing the predicted class costs {price:.4f} in log loss on the calibration set."


def _save(map_: Any, output: Path, notes: dict[str, Any], *, force: bool) -> None:
    from mixnmatch.cli.streams import is_standard, not_overwriting, standard_output
    from mixnmatch.persistence import to_bytes

    if is_standard(output):
        with standard_output() as stream:
            stream.write(to_bytes(map_, metadata=notes))
        return
    with not_overwriting(output, force=force):
        map_.save(output, metadata=notes)


def _settings(method: str, loss: str | None, options: tuple[str, ...]) -> dict[str, Any]:
    given = {} if loss is None else {"loss": loss}
    if loss is not None and "loss" not in (known := _known(method)) and "scoring" in known:
        given = {"scoring": loss}  # what the weights of a stack minimise
    return given | _pairs(options, "--option")


def _known(method: str) -> set[str]:
    """Names of the settings of a method."""
    from mixnmatch.maps.registry import calibrator

    return {name.rpartition("__")[2] for name in calibrator(method).get_params(deep=True)}


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, Any]:
    """Names and values: JSON where a value is some, text otherwise."""
    pairs: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.isidentifier():
            msg = f"{text!r} is not of the form NAME=VALUE."
            raise click.BadParameter(msg, param_hint=f"'{option}'")
        try:
            pairs[name] = json.loads(value)
        except (ValueError, RecursionError):
            pairs[name] = value
    return pairs


def _build(method: str, table: ScoreTable, weighting: str, told: bool, settings: dict[str, Any]) -> Any:
    from mixnmatch.maps.registry import calibrator

    common: dict[str, Any] = {} if weighting == "frequency" else {"weights": weighting}
    if told or not table.columns:  # columns name their classes, but do not say which one a vector would be about
        common["classes"] = table.classes
    try:
        return calibrator(method, logits=table.logits, **common, **settings)
    except TypeError:
        known = _known(method)
        unknown = [name for name in settings if name not in known] or list(settings)
        meant = did_you_mean(unknown[0], known)
        msg = f"the method {method!r} has no setting {' or '.join(repr(name) for name in unknown)}{meant}"
        raise click.UsageError(msg) from None


def _held_to_winners(map_: Any) -> Any:
    from mixnmatch.maps.keep_winner import KeepWinner
    from mixnmatch.selection.auto import Auto

    return map_.set_params(accuracy_preserving=True) if isinstance(map_, Auto) else KeepWinner(map_)


def _as_dict(
    map_: Any, method: str, table: ScoreTable, before: Evaluation, after: Evaluation, seconds: float, output: Path
) -> dict[str, Any]:
    from mixnmatch.cli.describe import describe

    return {
        "file": str(table.path),
        "rows": table.n_rows,
        "classes": table.n_classes,
        "logits": table.logits,
        "method": method,
        "accuracy_preserving": bool(map_.accuracy_preserving),
        "map": " ".join(repr(map_).split()),
        "learned": dict(describe(map_)),
        "seconds": seconds,
        "calibration_set": {"before": _values(before), "after": _values(after)},
        "output": str(output),
    }


def _values(evaluation: Evaluation) -> dict[str, Any]:
    return {name: value.to_dict() for name, value in evaluation.items()}


def _as_text(
    map_: Any, method: str, table: ScoreTable, before: Evaluation, after: Evaluation, seconds: float, output: Path
) -> str:
    from mixnmatch.cli import display
    from mixnmatch.cli.describe import describe
    from mixnmatch.cli.inputs import about
    from mixnmatch.cli.streams import is_standard, shown
    from mixnmatch.maps.registry import METHODS

    target = "CAL.json" if is_standard(output) else output
    note = "the predicted class never changes" if map_.accuracy_preserving else "the predicted class may change"
    if map_.accuracy_preserving and not METHODS[method].accuracy_preserving:
        note = f"made accuracy-preserving: {note}"
    learned = [(f"  {name}", value) for name, value in describe(map_)]
    scores = [
        ("", "before", "after"),
        ("log loss", display.number(before["log_loss"]), display.number(after["log_loss"])),
        ("Brier score (sum over classes)", display.number(before["brier_score"]), display.number(after["brier_score"])),
        ("accuracy", display.percent(before["accuracy"]), display.percent(after["accuracy"])),
    ]
    return "\n".join(
        [
            about(table),
            f"{method}: {METHODS[method].summary}; fitted in {significant(seconds, 2)} s; {note}",
            "",
            "Learned",
            display.table(learned, left=2),
            "",
            "On the calibration set (optimistic: the map was fitted on these samples)",
            display.table(scores, indent=2),
            "",
            f"Saved to {shown(output, output=True)}. On other data: mixnmatch evaluate TEST --map {target}",
        ]
    )

"""``mixnmatch adapt``: a saved map for data with other class frequencies."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mixnmatch._engine.text import significant
from mixnmatch.cli.command import Command, print_json
from mixnmatch.cli.options import FILE, FILE_HELP, Reading, force_option, json_option, reading_options
from mixnmatch.cli.terminal import echo

if TYPE_CHECKING:
    from mixnmatch._engine.rows import Rows
    from mixnmatch.selection.shift import PriorEstimate

    NumbersType = click.ParamType[dict[str, float]]
else:  # older versions of click have no type parameter
    NumbersType = click.ParamType

HELP = f"""Adapt a saved map to new class frequencies.

    MAP is a file written by `mixnmatch fit`. Pass one of --priors (the new class frequencies), --sampling (the share of
    each class that was kept when the calibration set was sampled) and --unlabelled (scores of new samples, from which
    the class frequencies are estimated). Adaptation assumes that the scores within each class have not changed.
    Estimation needs a map with an intercept for each class: `bcts-auto`, `sms` or `bcts`.
    {FILE_HELP}"""


class Numbers(NumbersType):
    """Numbers by class, such as A=0.9,B=0.1."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, float]:
        """Split the list."""
        if isinstance(value, dict):
            return value
        frequencies: dict[str, float] = {}
        for item in str(value).split(","):
            name, sign, number = (part.strip() for part in item.rpartition("="))
            try:
                given = float(number)
            except ValueError:
                given = float("nan")
            if not sign or not name or given != given:
                self.fail(f"{item.strip()!r} is not of the form CLASS=NUMBER.", param, ctx)
            if name in frequencies:
                self.fail(f"class {name!r} is there twice.", param, ctx)
            frequencies[name] = given
        return frequencies


@click.command(
    "adapt",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch adapt cal.json --priors ill=0.02,well=0.98 -o clinic.json",
        "mixnmatch adapt cal.json --sampling neg=0.1 -o all.json",
        "mixnmatch adapt cal.json --unlabelled new.parquet -o today.json",
        "mixnmatch adapt old.json --unlabelled new.npz --calibration val.npz -o today.json",
    ),
)
@click.argument("map_file", metavar="MAP", type=FILE)
@click.option("--priors", type=Numbers(), metavar="A=P,B=P,...", help="Class frequencies in the new data.")
@click.option("--sampling", type=Numbers(), metavar="A=S,...", help="Share of each class that was kept [default: 1].")
@click.option("--unlabelled", type=FILE, metavar="SCORES", help="Scores of new samples; labels are not used.")
@click.option("--calibration", type=FILE, metavar="SCORES", help="The calibration set, for maps of older versions.")
@click.option("--output", "-o", type=FILE, required=True, metavar="NEW.json", help="Where to save the adapted map.")
@reading_options
@force_option
@json_option
def command(
    map_file: Path,
    priors: dict[str, float] | None,
    sampling: dict[str, float] | None,
    unlabelled: Path | None,
    calibration: Path | None,
    output: Path,
    force: bool,
    as_json: bool,
    reading: Reading,
) -> None:
    """Read, adapt, save, and say what has changed."""
    from mixnmatch.cli.display import reporting
    from mixnmatch.cli.inputs import load_map
    from mixnmatch.cli.streams import not_overwriting
    from mixnmatch.io import check_output
    from mixnmatch.selection.adaptation import with_estimate
    from mixnmatch.selection.shift import estimate_priors

    if sum(given is not None for given in (priors, sampling, unlabelled)) != 1:
        msg = "Pass exactly one of --priors, --sampling and --unlabelled."
        raise click.UsageError(msg)
    check_output(output, [".json"], force=force)
    map_ = load_map(map_file)
    known = None if calibration is None else _samples(calibration, map_, map_file, reading, labels=True)
    estimate: PriorEstimate | None = None
    if unlabelled is not None:
        new = _samples(unlabelled, map_, map_file, reading, labels=False)
        with reporting("Estimating"):
            estimate = estimate_priors(map_, new, calibration=known)
        for doubt in estimate.warnings:
            warnings.warn(doubt, UserWarning, stacklevel=1)
        adapted = with_estimate(map_, estimate)
    elif priors is not None:
        adapted = map_.adapt(priors=_by_class(priors, map_), calibration=known)
    else:
        adapted = map_.adapt(sampling=_by_class(sampling or {}, map_))
    with not_overwriting(output, force=force):
        adapted.save(output)
    if as_json:
        print_json(_as_dict(adapted, estimate, map_file, output))
    else:
        echo(_as_text(adapted, estimate, map_file, output))


def _samples(path: Path, map_: Any, map_file: Path, reading: Reading, *, labels: bool) -> Rows:
    """The samples of a file, as the map takes them."""
    from mixnmatch.cli.inputs import aligned

    return aligned(reading.read(path, need_labels=labels, like=map_), map_, map_file).checked


def _by_class(given: dict[str, float], map_: Any) -> dict[Any, float]:
    """Numbers by class as the map knows the classes; unknown names stay, for the library to refuse."""
    known = {str(name): name for name in map_.classes_.tolist()}
    return {known.get(name, name): number for name, number in given.items()}


def _frequencies(adapted: Any) -> dict[str, Any]:
    """Class frequencies that the map assumed before and assumes now, where it remembers its calibration set."""
    import numpy as np

    logs = adapted.second_.log_ratios_
    ratios = np.exp(logs - logs.max())
    summary = getattr(adapted.first_, "summary_", None)
    if summary is None:
        return {"relative_ratios": ratios}
    now = ratios * summary.mean_prediction
    return {"relative_ratios": ratios, "before": summary.mean_prediction, "now": now / now.sum()}


def _as_dict(adapted: Any, estimate: PriorEstimate | None, map_file: Path, output: Path) -> dict[str, Any]:
    names = adapted.classes_.tolist()
    return {
        "map": str(map_file),
        "classes": names,
        **_frequencies(adapted),
        "estimate": estimate,
        "output": str(output),
    }


def _as_text(adapted: Any, estimate: PriorEstimate | None, map_file: Path, output: Path) -> str:
    from mixnmatch.cli import display

    if estimate is None:
        columns = _frequencies(adapted)
        shown = ("before", "now") if "now" in columns else ("relative_ratios",)
        head = "Class frequencies" if "now" in columns else "Probabilities are multiplied in these proportions"
        show = significant if min(columns[name].min() for name in shown) < 0.001 else display.number
        numbers = [[show(number) for number in columns[name]] for name in shown]
        names = [str(name) for name in adapted.classes_.tolist()]
        title = ("class", *(name.replace("_", " ") for name in shown))
        body = display.table([title, *zip(names, *numbers, strict=True)])
    else:
        head = f"Class frequencies estimated from {display.plural(estimate.n_samples, 'sample')}"
        body = estimate.table()
    return "\n".join([head, body, "", f"Saved to {output}: {map_file} adapted. The predicted class may change."])

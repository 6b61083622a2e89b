"""``mixnmatch compare``: rank methods on the user's data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mixnmatch.cli.command import COMMAND_LINE, Command, print_json
from mixnmatch.cli.options import (
    FILE,
    FILE_HELP,
    Methods,
    Reading,
    json_option,
    list_methods_option,
    reading_options,
    seed_option,
)
from mixnmatch.cli.terminal import echo

HELP = f"""Rank calibration methods on your data by log loss, and say which one to use.

    Methods are compared by cross-validation, or, with --evaluation, fitted on SCORES and evaluated on the other file.
    With --learning-curve: how the result depends on the number of samples, and whether more would help.
    {FILE_HELP}"""


@click.command(
    "compare",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch compare val.npz",
        "mixnmatch compare val.npz --all",
        "mixnmatch compare val.npz --evaluation test.npz --methods ts,ets,irm",
        "mixnmatch compare val.npz --learning-curve --methods ts,irm --json",
    ),
)
@click.argument("scores", type=FILE)
@click.option("--methods", type=Methods(), metavar="A,B,...", help="Methods to compare [default: the main ones].")
@click.option("--all", "every", is_flag=True, help="Compare all methods; this may take long.")
@list_methods_option
@click.option("--evaluation", type=FILE, metavar="FILE", help="Held-out file, instead of cross-validation.")
@click.option("--cv", type=click.IntRange(2), default=5, show_default=True, metavar="K", help="Number of folds.")
@click.option("--learning-curve", "curve", is_flag=True, help="Results over the number of samples.")
@seed_option
@reading_options
@json_option
def command(
    scores: Path,
    methods: tuple[str, ...] | None,
    every: bool,
    evaluation: Path | None,
    cv: int,
    curve: bool,
    seed: int,
    as_json: bool,
    reading: Reading,
) -> None:
    """Compare."""
    from mixnmatch import selection
    from mixnmatch.cli.display import reporting
    from mixnmatch.cli.inputs import about, evaluation_rows

    if every and methods is not None:
        msg = "give --methods or --all, not both"
        raise click.UsageError(msg)
    chosen = None if methods is None else list(methods)
    table = reading.read(scores)
    settings: dict[str, Any] = {
        "methods": "all" if every else chosen,
        "evaluation": None if evaluation is None else evaluation_rows(evaluation, table, reading),
        "random_state": seed,
    }
    result: selection.Comparison | selection.LearningCurve
    with reporting("Comparing") as step:
        if curve:
            result = selection.learning_curve(table.checked, progress=step, **settings)
        else:
            result = selection.compare(table.checked, cv=cv, progress=step, **settings)
    if as_json:
        print_json({"file": str(scores), **result.to_dict()})
    else:
        text = result.text(COMMAND_LINE) if isinstance(result, selection.Comparison) else str(result)
        echo(f"{about(table)}\n\n{text}")

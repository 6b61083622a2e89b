"""``mixnmatch recommend``: which method to use, and why."""

from __future__ import annotations

from pathlib import Path

import click

from mixnmatch.cli.command import Command, print_json
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

HELP = f"""Recommend a calibration method for your data, with the reasons.

    Compares the default methods on your file by cross-validation or, with --evaluation, on another file. Also prints
    the guideline of the paper's Appendix G.
    {FILE_HELP}"""


@click.command(
    "recommend",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch recommend val.npz",
        "mixnmatch recommend val.npz --preserve-accuracy",
        "mixnmatch recommend val.npz --evaluation test.npz",
        "mixnmatch recommend val.csv --logits --model-size 11000000 --json",
    ),
)
@click.argument("scores", type=FILE)
@click.option("--methods", type=Methods(), metavar="A,B,...", help="Methods to choose from [default: the main ones].")
@list_methods_option
@click.option("--evaluation", type=FILE, metavar="FILE", help="Held-out file, instead of cross-validation.")
@click.option("--preserve-accuracy", is_flag=True, help="The predicted class must never change.")
@click.option("--model-size", type=click.IntRange(1), metavar="N", help="Number of parameters of the model.")
@seed_option
@reading_options
@json_option
def command(
    scores: Path,
    methods: tuple[str, ...] | None,
    evaluation: Path | None,
    preserve_accuracy: bool,
    model_size: int | None,
    seed: int,
    as_json: bool,
    reading: Reading,
) -> None:
    """Recommend."""
    from mixnmatch import selection
    from mixnmatch.cli.display import reporting
    from mixnmatch.cli.inputs import about, evaluation_rows

    table = reading.read(scores)
    with reporting("Comparing") as step:
        result = selection.recommend(
            table.checked,
            methods=None if methods is None else list(methods),
            evaluation=None if evaluation is None else evaluation_rows(evaluation, table, reading),
            preserve_accuracy=preserve_accuracy,
            model_size=model_size,
            random_state=seed,
            progress=step,
        )
    if as_json:
        print_json({"file": str(scores), **result.to_dict()})
    else:
        echo(f"{about(table)}\n\n{result}")

"""``mixnmatch recommend``: which method and metric suit the data, and why."""

from __future__ import annotations

from pathlib import Path

import click

from mixnmatch.cli.command import Command, echo, print_json
from mixnmatch.cli.options import FILE, FILE_HELP, Reading, json_option, reading_options, seed_option

HELP = f"""Which calibration method and which metric suit your data, and why.

    Follows the guidelines of the paper's Appendix G: number of classes, amount of data, how badly the model is
    calibrated, and whether accuracy must be preserved. The evidence is measured on your file.
    {FILE_HELP}"""


@click.command(
    "recommend",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch recommend val.npz",
        "mixnmatch recommend val.npz --preserve-accuracy",
        "mixnmatch recommend val.csv --logits --model-size 11000000 --json",
    ),
)
@click.argument("scores", type=FILE)
@click.option("--preserve-accuracy", is_flag=True, help="The predicted class must never change.")
@click.option("--model-size", type=click.IntRange(1), metavar="N", help="Number of parameters of the model.")
@seed_option
@reading_options
@json_option
def command(
    scores: Path, preserve_accuracy: bool, model_size: int | None, seed: int, as_json: bool, reading: Reading
) -> None:
    """Recommend."""
    from mixnmatch import selection
    from mixnmatch.cli.display import reporting
    from mixnmatch.cli.inputs import about, frequencies

    table = reading.read(scores)
    with reporting("Looking") as step:
        result = selection.recommend(
            table.scores,
            table.labels,
            logits=table.logits,
            preserve_accuracy=preserve_accuracy,
            model_size=model_size,
            sample_weight=frequencies(table, reading.weighting),
            classes=table.classes,
            random_state=seed,
            progress=step,
        )
    if as_json:
        print_json({"file": str(scores), **result.to_dict()})
    else:
        echo(f"{about(table)}\n\n{result}")

"""``mixnmatch apply``: calibrated probabilities from a saved map."""

from __future__ import annotations

from pathlib import Path

import click

from mixnmatch.cli.command import Command, print_json
from mixnmatch.cli.options import FILE, FILE_HELP, Reading, force_option, json_option, reading_options

HELP = f"""Turn scores into calibrated probabilities with a map that `fit` saved.

    MAP is a file written by `mixnmatch fit`. Labels are not needed; if the file has some, they are passed on. The map
    knows whether it takes logits. Classes with names are matched by name, others by position.
    {FILE_HELP}"""


@click.command(
    "apply",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch apply cal.json new.npz -o calibrated.npz",
        "mixnmatch apply cal.json new.csv -o calibrated.parquet",
        "mixnmatch apply cal.json logits.npy -o probs.npy --force",
    ),
)
@click.argument("map_file", metavar="MAP", type=FILE)
@click.argument("scores", type=FILE)
@click.option(
    "--output", "-o", type=FILE, required=True, metavar="FILE", help="File to write: .npz, .csv, .parquet or .npy."
)
@reading_options
@force_option
@json_option
def command(map_file: Path, scores: Path, output: Path, force: bool, as_json: bool, reading: Reading) -> None:
    """Read, apply, write."""
    from mixnmatch.cli.display import plural
    from mixnmatch.cli.inputs import aligned, load_map
    from mixnmatch.io import WRITABLE, check_output, write_table

    check_output(output, WRITABLE, force=force)
    map_ = load_map(map_file)
    table = aligned(reading.read(scores, need_labels=False, like=map_), map_, map_file)
    calibrated = map_.predict_proba(table.scores)
    numbered = map_.classes_.tolist() == list(range(map_.n_classes_))
    classes = table.classes if numbered else map_.classes_
    write_table(output, calibrated, labels=table.labels, weights=table.weights, classes=classes)
    if as_json:
        print_json({
            "map": str(map_file),
            "file": str(scores),
            "output": str(output),
            "rows": table.n_rows,
            "classes": table.n_classes,
            "accuracy_preserving": bool(map_.accuracy_preserving),
        })  # fmt: skip
    else:
        click.echo(
            f"Wrote {output}: probabilities of {plural(table.n_classes, 'class')} for {plural(table.n_rows, 'row')}."
        )

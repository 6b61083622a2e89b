"""``mixnmatch apply``: calibrated probabilities from a saved map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mixnmatch.cli.command import Command, print_json
from mixnmatch.cli.options import FILE, FILE_HELP, Reading, force_option, json_option, reading_options

HELP = f"""Turn scores into calibrated probabilities with a map that `fit` saved.

    MAP is a file written by `mixnmatch fit`. Labels are not needed; if the file has some, they are passed on. The map
    knows whether it takes logits. Classes with names are matched by name, others by position. Parquet becomes parquet
    batch by batch, however large it is: a file becomes a file, a folder a folder of the same files, and columns keep
    their names.
    {FILE_HELP}"""


@click.command(
    "apply",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch apply cal.json new.npz -o calibrated.npz",
        "mixnmatch apply cal.json new.csv -o calibrated.parquet",
        "mixnmatch apply cal.json logits.npy -o probs.npy --force",
        "mixnmatch apply cal.json scores/ -o calibrated/",
    ),
)
@click.argument("map_file", metavar="MAP", type=FILE)
@click.argument("scores", type=FILE)
@click.option(
    "--output",
    "-o",
    type=FILE,
    required=True,
    metavar="FILE",
    help="File to write: .npz, .csv, .parquet or .npy; or a folder.",
)
@reading_options
@force_option
@json_option
def command(map_file: Path, scores: Path, output: Path, force: bool, as_json: bool, reading: Reading) -> None:
    """Read, apply, write."""
    from mixnmatch.cli.display import reporting
    from mixnmatch.cli.inputs import aligned, load_map
    from mixnmatch.cli.stream import Application, check_dataset_output, is_dataset
    from mixnmatch.io import WRITABLE, check_output, write_table

    if is_dataset(scores, output):
        check_dataset_output(scores, output, force=force)
        map_ = load_map(map_file)
        with reporting("Calibrating") as progress:
            applied = Application(map_, map_file, scores, reading, progress)
            applied.to(output)
        _say(as_json, map_, map_file, scores, output, applied.done)
        return
    check_output(output, WRITABLE, force=force)
    map_ = load_map(map_file)
    table = aligned(reading.read(scores, need_labels=False, like=map_), map_, map_file)
    calibrated = map_.predict_proba(table.scores)
    numbered = map_.classes_.tolist() == list(range(map_.n_classes_))
    classes = table.classes if numbered else map_.classes_
    write_table(output, calibrated, labels=table.labels, weights=table.weights, classes=classes)
    _say(as_json, map_, map_file, scores, output, table.n_rows)


def _say(as_json: bool, map_: Any, map_file: Path, scores: Path, output: Path, n_rows: int) -> None:
    from mixnmatch.cli.display import plural

    if as_json:
        print_json({
            "map": str(map_file),
            "file": str(scores),
            "output": str(output),
            "rows": n_rows,
            "classes": map_.n_classes_,
            "accuracy_preserving": bool(map_.accuracy_preserving),
        })  # fmt: skip
    else:
        click.echo(f"Wrote {output}: probabilities of {plural(map_.n_classes_, 'class')} for {plural(n_rows, 'row')}.")

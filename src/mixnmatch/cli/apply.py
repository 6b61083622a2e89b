"""``mixnmatch apply``: calibrated probabilities from a saved map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mixnmatch.cli.command import Command, print_json
from mixnmatch.cli.options import FILE, FILE_HELP, Names, Reading, force_option, json_option, reading_options
from mixnmatch.cli.terminal import echo

HELP = f"""Turn scores into calibrated probabilities with a map that `fit` saved.

    MAP is a file written by `mixnmatch fit`. Labels are not needed. The map file says whether scores are logits.
    Classes are matched by name if they have names, otherwise by position.

    A table (.csv, .csv.gz, .tsv, .parquet) keeps all of its columns and gets a new column `calibrated_<class>` for each
    class. Tables are read and written in batches, so they may be larger than memory. A folder of parquet files becomes
    a folder with the same files. An .npz file gets the probabilities, and the labels and weights of the input, an .npy
    file the probabilities only. `-o -` writes .csv to standard output.
    {FILE_HELP}"""


@click.command(
    "apply",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch apply cal.json new.npz -o calibrated.npz",
        "mixnmatch apply cal.json new.csv -o calibrated.parquet",
        "mixnmatch apply cal.json new.csv -o calibrated.csv --names p_cat,p_dog",
        "zcat new.csv.gz | mixnmatch apply cal.json - -o - > calibrated.csv",
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
    help="File to write: .npz, .npy, .csv, .csv.gz, .tsv or .parquet; a folder; or - for standard output.",
)
@click.option(
    "--names",
    type=Names(),
    metavar="A,B,...",
    help="Names of the new columns of a table, in the order of the map's classes [default: calibrated_<class>].",
)
@reading_options
@force_option
@json_option
def command(
    map_file: Path,
    scores: Path,
    output: Path,
    names: tuple[str, ...] | None,
    force: bool,
    as_json: bool,
    reading: Reading,
) -> None:
    """Read, apply, write."""
    from mixnmatch.cli.applying import Application, calibrate_arrays, check_applied_output, is_table
    from mixnmatch.cli.display import reporting
    from mixnmatch.cli.inputs import load_map
    from mixnmatch.cli.streams import is_standard, not_overwriting, readable

    if is_standard(output) and as_json:
        msg = "--json and -o - would both write to standard output."
        raise click.UsageError(msg)
    check_applied_output(scores, output, force=force)
    map_ = load_map(map_file)
    with readable(scores) as path, not_overwriting(output, force=force):
        if is_table(path, output):
            with reporting("Calibrating") as progress:
                applied = Application(map_, map_file, path, reading, names, progress)
                n_rows = applied.to(output)
        elif names is not None:
            msg = "--names is for tables that are written to tables: .csv and .parquet."
            raise click.UsageError(msg)
        else:
            with reporting("Calibrating"):
                n_rows = calibrate_arrays(map_, map_file, path, reading, output)
    _say(as_json, map_, map_file, scores, output, n_rows)


def _say(as_json: bool, map_: Any, map_file: Path, scores: Path, output: Path, n_rows: int) -> None:
    from mixnmatch.cli.display import plural
    from mixnmatch.cli.streams import is_standard, shown

    if as_json:
        print_json({
            "map": str(map_file),
            "file": str(scores),
            "output": str(output),
            "rows": n_rows,
            "classes": map_.n_classes_,
            "accuracy_preserving": bool(map_.accuracy_preserving),
        })  # fmt: skip
        return
    what = f"probabilities of {plural(map_.n_classes_, 'class')} for {plural(n_rows, 'row')}"
    echo(f"Wrote {shown(output, output=True)}: {what}.", err=is_standard(output))

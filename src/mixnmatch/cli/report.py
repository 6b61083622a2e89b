"""``mixnmatch report``: one HTML page about a model's calibration."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mixnmatch.cli.command import Command, print_json, typed
from mixnmatch.cli.options import (
    FILE,
    FILE_HELP,
    Method,
    Methods,
    Reading,
    force_option,
    json_option,
    list_methods_option,
    reading_options,
    seed_option,
)
from mixnmatch.cli.terminal import echo

if TYPE_CHECKING:
    from mixnmatch._engine.rows import Rows

HELP = f"""Write one self-contained HTML page about your model's calibration.

    The page says whether the scores are calibrated and which method to use. It shows reliability diagrams before and
    after calibration, a table of methods with confidence intervals, a learning curve and next steps. It works offline.
    {FILE_HELP}"""


@click.command(
    "report",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch report val.npz -o report.html",
        "mixnmatch report val.npz --evaluation test.npz --methods ts,ets,irm -o report.html",
        "mixnmatch report val.npz --method irm --method ts -o report.html",
    ),
)
@click.argument("scores", type=FILE)
@click.option("--output", "-o", type=FILE, required=True, metavar="REPORT.html", help="File to write.")
@click.option("--evaluation", type=FILE, metavar="FILE", help="Held-out file, instead of cross-validation.")
@click.option(
    "--method",
    "-m",
    type=Method(),
    multiple=True,
    help="Method to show in detail [default: that of the verdict]. If given several times: the first; all of them are "
    "compared.",
)
@click.option("--methods", type=Methods(), metavar="A,B,...", help="Methods to compare [default: the main ones].")
@list_methods_option
@click.option("--title", help="Title of the page [default: the name of the file].")
@click.option("--open", "show", is_flag=True, help="Show the page in a browser.")
@seed_option
@reading_options
@force_option
@json_option
def command(
    scores: Path,
    output: Path,
    evaluation: Path | None,
    method: tuple[str, ...],
    methods: tuple[str, ...] | None,
    title: str | None,
    show: bool,
    seed: int,
    force: bool,
    as_json: bool,
    reading: Reading,
) -> None:
    """Read, compare, write."""
    from mixnmatch.cli.display import wrap
    from mixnmatch.cli.inputs import evaluation_rows
    from mixnmatch.cli.streams import is_standard, not_overwriting
    from mixnmatch.io import check_output

    check_output(output, [".html"], force=force)
    compared = list(dict.fromkeys((*(methods or ()), *(method if len(method) > 1 else ())))) or None
    table = reading.read(scores)
    with not_overwriting(output, force=force):
        data = write(
            output,
            table.checked,
            evaluation=None if evaluation is None else evaluation_rows(evaluation, table, reading),
            method=method[0] if method else None,
            methods=compared,
            title=title or ("Calibration" if is_standard(scores) else scores.name),
            random_state=seed,
        )
    if as_json:
        print_json({
            "file": str(scores),
            "output": str(output),
            "diagnosis": data.diagnosis.to_dict(),
            "verdict": data.verdict.to_dict(),
        })  # fmt: skip
    else:
        echo(f"{data.diagnosis.headline}\n{wrap(str(data.verdict))}\nWrote {output}.")
    if show and click.launch(str(output)):
        echo("No browser could be started; open the file by hand.")


def write(path: Path, calibration: Rows, **settings: Any) -> Any:
    """Write the page, with a bar on a terminal."""
    from mixnmatch.cli.display import reporting

    write_report = import_module("mixnmatch.report").write_report
    with reporting("Writing the report") as step:
        return write_report(path, calibration, progress=step, command=typed(), **settings)

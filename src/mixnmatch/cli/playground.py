"""``mixnmatch playground``: a page to try calibration in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from mixnmatch.cli.command import Command, print_json
from mixnmatch.cli.options import FILE, force_option, json_option
from mixnmatch.cli.terminal import echo

HELP = """Write one HTML page to try calibration in the browser.

    Drop a .csv, .tsv or .json file of scores and labels on the page, choose a method, and see the reliability before
    and after. Everything is computed in the browser, without network requests. You can download the map for
    `mixnmatch apply`.
    """


@click.command(
    "playground",
    cls=Command,
    help=HELP,
    examples=("mixnmatch playground -o playground.html",),
)
@click.option("--output", "-o", type=FILE, required=True, metavar="PAGE.html", help="File to write.")
@force_option
@json_option
def command(output: Path, force: bool, as_json: bool) -> None:
    """Write the page."""
    from mixnmatch.cli.streams import not_overwriting
    from mixnmatch.io import check_output
    from mixnmatch.playground import write_playground

    check_output(output, [".html"], force=force)
    with not_overwriting(output, force=force):
        write_playground(output)
    if as_json:
        print_json({"output": str(output)})
    else:
        echo(f"Wrote {output}. Open it in a browser.")

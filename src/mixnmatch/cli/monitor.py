"""``mixnmatch monitor``: is a map in production still calibrated?"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mixnmatch.cli.command import Command, print_json
from mixnmatch.cli.options import FILE, FILE_HELP, Reading, force_option, json_option, reading_options
from mixnmatch.cli.terminal import echo

if TYPE_CHECKING:
    from mixnmatch._engine.rows import Rows
    from mixnmatch.monitoring import Monitor, MonitorResult

# What a shell sees after an alarm; 1 and 2 are errors.
ALARM = 3
# So many distinct samples hardly come twice in the same order.
FEW = 20

HELP = f"""Check whether a map in production is still calibrated, as labels arrive.

    MAP is a file written by `mixnmatch fit`, each of BATCHES a file with the scores and labels of one time step, in
    order of time. The file given by --state stores the state; the first call creates it. Run the command again whenever
    there are new files; files whose samples were already counted are skipped. The probability of a false alarm is at
    most --alpha over the whole lifetime, however often you look.

    The exit code is 3 after an alarm, 0 without one, and 1 if a file cannot be used.
    {FILE_HELP}"""


@click.command(
    "monitor",
    cls=Command,
    help=HELP,
    examples=(
        "mixnmatch monitor cal.json january.parquet --state state.json",
        "mixnmatch monitor cal.json 2026-*.csv --state state.json --html page.html",
        "mixnmatch monitor cal.json late.csv --step january.parquet --state state.json",
    ),
)
@click.argument("map_file", metavar="MAP", type=FILE)
@click.argument("batches", metavar="BATCHES...", type=FILE, nargs=-1, required=True)
@click.option("--state", type=FILE, required=True, metavar="STATE.json", help="File with the state of the monitor.")
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="P",
    help="Largest probability of a false alarm [default: 0.05]; fixed by the first call.",
)
@click.option("--step", metavar="NAME", help="Time step of all the files [default: the name of each file].")
@click.option("--html", type=FILE, metavar="PAGE.html", help="Write a page about all steps.")
@reading_options
@force_option
@json_option
def command(
    map_file: Path,
    batches: tuple[Path, ...],
    state: Path,
    alpha: float | None,
    step: str | None,
    html: Path | None,
    force: bool,
    as_json: bool,
    reading: Reading,
) -> None:
    """Load the state, count the new files, save it."""
    from mixnmatch._engine.steps import listening, steps
    from mixnmatch.cli.display import reporting
    from mixnmatch.cli.inputs import load_map
    from mixnmatch.cli.streams import not_overwriting
    from mixnmatch.io import check_output
    from mixnmatch.monitoring.state import locked

    check_output(state, [".json"], force=True)
    if html is not None:
        check_output(html, [".html"], force=force)
    map_ = load_map(map_file)
    with locked(state):
        monitor = _load(state, map_, alpha)
        with reporting("Counting") as tell, listening(tell):
            each = steps(batches, "files")
            skipped = [path for path in each if not _count(monitor, path, map_, map_file, step, reading, state)]
            result = monitor.result()
    if html is not None:
        from mixnmatch.report.monitor import write_monitor_page

        with not_overwriting(html, force=force):
            write_monitor_page(html, monitor, title=map_file.name)
    _say(monitor, result, batches, skipped, state, html, as_json)
    if result.alarm:
        click.get_current_context().exit(ALARM)


def _load(state: Path, map_: Any, alpha: float | None) -> Monitor:
    from mixnmatch.cli.command import DataError
    from mixnmatch.monitoring import Monitor

    if not state.exists():
        return Monitor(map_, alpha=0.05 if alpha is None else alpha)
    monitor = Monitor.load(state, map_)
    if alpha is not None and alpha != monitor.alpha:
        msg = f"{state} was started with --alpha {monitor.alpha:g}, which cannot be changed; start a new file"
        raise DataError(msg)
    return monitor


def _count(
    monitor: Monitor, path: Path, map_: Any, map_file: Path, step: str | None, reading: Reading, state: Path
) -> bool:
    """Count a file and save the state; whether it was new."""
    from mixnmatch.cli.inputs import aligned
    from mixnmatch.io import FileError

    table = aligned(reading.read(path, like=map_), map_, map_file)
    if table.weights is not None:
        why = "has weights, which a monitor cannot use: repeat samples that occurred several times, drop the weights"
        raise FileError(path, why)
    source = _checksum(table.checked, path)
    if monitor.has_counted(source):
        return False
    try:
        monitor.update(table.checked, step=step or path.name, source=source)
    except (ValueError, TypeError) as error:
        raise FileError(path, str(error)) from None
    monitor.save(state)
    return True


def _checksum(rows: Rows, path: Path) -> str:
    """Checksum of samples, whatever their file is called and however it holds numbers and classes.

    A few alike may come again, day after day: such samples are known by the place of their file, too.
    """
    import numpy as np

    from mixnmatch._engine.along_rows import both_columns

    values = rows.scores.values.astype(np.float64)
    if rows.binary and rows.scores.logits:
        values = values if values.ndim == 1 else values[:, 1] - values[:, 0]
    elif values.ndim == 1:
        values = both_columns(values, logits=False)
    with np.errstate(over="ignore"):
        scores = values.reshape(len(rows), -1).astype("<f4")
    labels = rows.labels.astype("<i8")
    digest = hashlib.sha256(f"{scores.shape}".encode() + scores.tobytes() + labels.tobytes())
    # The first thousand nearly always suffice, and all of a large table take much memory.
    if all(len(np.unique(np.column_stack([scores[:n], labels[:n]]), axis=0)) < FEW for n in (1000, len(labels))):
        digest.update(str(path.resolve()).encode())
    return f"sha256:{digest.hexdigest()}"


def _say(
    monitor: Monitor,
    result: MonitorResult,
    batches: tuple[Path, ...],
    skipped: list[Path],
    state: Path,
    html: Path | None,
    as_json: bool,
) -> None:
    from mixnmatch.cli import display
    from mixnmatch.monitoring.advice import TEXTS
    from mixnmatch.monitoring.result import e_text

    if as_json:
        counted = [str(path) for path in batches if path not in skipped]
        print_json(
            result.to_dict()
            | {"advice_text": TEXTS[result.advice], "state": str(state), "counted": counted}
            | {"skipped": [str(path) for path in skipped], "html": None if html is None else str(html)}
        )
        return
    for path in skipped:
        echo(f"Warning: {path} was counted before and is skipped", err=True)
    rows = [["step", "samples", "log loss", "expected", "e-value"]]
    rows += [
        [
            str(record.step),
            str(record.n_samples),
            display.number(record.mean_log_loss),
            display.number(record.expected_log_loss),
            e_text(record.log_e_value),
        ]
        for record in monitor.history[-12:]
    ]
    echo(f"{display.table(rows)}\n\n{result}")
    if html is not None:
        echo(f"Wrote {html}.")

"""The tabular part of the benchmark: problems of KEEL, all methods on them, leagues and the page.

    make bench-tabular                                     # all of it; the first half of the data sets is for choosing
    make bench-tabular TABULAR_FLAGS="judge --half first"  # a part of it

Results are kept as they come: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
from fnmatch import fnmatch
from pathlib import Path

from peers.runner import note_run, run_facts
from tabular import judging, leagues, reach
from tabular.keel import HALVES, TASKS
from tabular.methods import methods
from tabular.page import write_page
from tabular.problems import problems

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("problems", "judge", "leagues", "page")


def parser() -> argparse.ArgumentParser:
    """Options of the tabular part."""
    made = argparse.ArgumentParser(
        prog="python -m tabular", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; all of them if nothing is named")
    made.add_argument("--half", nargs="+", choices=HALVES, default=list(HALVES), help="halves of the data sets")
    made.add_argument("--cache", type=Path, default=ROOT / ".bench", help="folder that keeps problems and results")
    made.add_argument("--output", type=Path, default=ROOT / "docs" / "results", help="where page and tables go")
    made.add_argument("--environment", type=Path, default=ROOT / ".venv-peers", help="where peers.json is")
    made.add_argument("--problems", default="*", help="pattern of the names of problems")
    made.add_argument("--libraries", nargs="+", default=[], help="libraries to judge; all by default")
    made.add_argument("--limit", type=float, default=60, help="seconds of processor time for a fit")
    made.add_argument("--forget", metavar="PATTERN", help='judge methods again, as in "mixnmatch: auto*"')
    return made


def main(arguments: list[str] | None = None) -> None:
    """Run the parts that are asked for."""
    options = parser().parse_args(arguments)
    parts = options.parts or list(PARTS)
    if not set(parts) <= set(PARTS):
        parser().error(f"parts are {', '.join(PARTS)}, not {' '.join(parts)}")
    folder, tables = options.cache / "tabular", options.output / "tabular"
    results = judging.Results(folder / "results")
    libraries = options.libraries or list(dict.fromkeys(m.library for task in TASKS for m in methods(task).values()))
    for half in options.half:
        if "problems" in parts:
            made = list(problems(folder / "problems", half, options.problems))
            print(f"{half} half: {len(made)} problems", flush=True)
        paths = sorted((folder / "problems").glob(f"{half}__*.npz"))
        paths = [path for path in paths if fnmatch(path.stem, options.problems)]
        if options.forget:
            results.forget(options.forget, half)
        if "judge" in parts:
            began = run_facts()
            judging.judge_all(paths, results, libraries=libraries, limit=options.limit)
            tables.mkdir(parents=True, exist_ok=True)
            note_run(tables / "about.json", half, began | {"processor time at most": f"{options.limit:g} s for a fit"})
        if "leagues" in parts:
            judging.write_table(paths, results, folder / f"{half}.csv")
            leagues.write(leagues.rows(paths, results), tables / f"{half}.csv")
            reach.write(reach.reached(leagues.games(paths, results)), tables / f"{half}_reach.csv")
    if "page" in parts:
        write_page(options.output, options.environment / "peers.json")


if __name__ == "__main__":
    main()

"""Speed, memory and quality beside the peers, and the page about them.

    make bench                                   # environment, speed, quality and page
    make bench BENCH_FLAGS="quality --logits F"  # a part of it, with options
    make bench-quick                             # a look of about ten minutes, into out/

Run speed on an idle machine. Results are kept in a cache as they come: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from peers import quality, speed
from peers.datasets import SIZES, network_problems, tabular_problems
from peers.page import write_page
from peers.runner import note_run, run_facts

ROOT = Path(__file__).resolve().parents[2]


def parser() -> argparse.ArgumentParser:
    """Options of the suite."""
    made = argparse.ArgumentParser(
        prog="python -m peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("parts", nargs="*", help="speed, quality or page; all of them if nothing is named")
    made.add_argument("--cache", type=Path, default=ROOT / ".bench", help="folder that keeps data and results")
    made.add_argument("--output", type=Path, default=ROOT / "docs" / "results", help="where page and tables go")
    made.add_argument("--environment", type=Path, default=ROOT / ".venv-peers", help="where peers.json is")
    made.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    made.add_argument("--repeats", type=int, default=3, help="rounds of the speed run")
    made.add_argument("--minutes", type=float, default=20, help="no new round of the speed run after that")
    made.add_argument("--limit", type=float, default=40, help="seconds of processor time for one job of the speed run")
    made.add_argument("--logits", type=Path, default=os.environ.get("BENCH_LOGITS"),
                      help="folder of .npz files with logits or probs, and labels (or BENCH_LOGITS)")  # fmt: skip
    made.add_argument("--rows", type=int, default=5000, help="calibration rows, at most")
    made.add_argument("--problems", default="*", help="pattern of the names of problems")
    made.add_argument("--libraries", nargs="+", default=[], help="libraries of the quality run; all by default")
    made.add_argument(
        "--quality-limit", type=float, default=120, help="seconds of processor time for a method; 0: take what is kept"
    )
    made.add_argument("--forget", metavar="LIBRARY", help="judge a library again whose version is the same")
    made.add_argument("--take", type=Path, metavar="TABLE",
                      help="keep what TABLE has, for problems that are the same here")  # fmt: skip
    made.add_argument("--again", default="mixnmatch: *", metavar="PATTERN",
                      help="methods that are judged in spite of --take")  # fmt: skip
    made.add_argument("--quick", action="store_true", help="small sizes, one round, four problems")
    return made


def problems(options: argparse.Namespace) -> Iterator[Path]:
    """Files of the problems of the quality run, with what other tables say of them."""
    for path in made_problems(options):
        if options.take and not quality.take_from(options.take, path, options.cache, options.again):
            print(f"{path.stem}: not the problem of {options.take}, judged anew")
        yield path


def made_problems(options: argparse.Namespace) -> Iterator[Path]:
    """Files of the problems of the quality run, made as they are asked for."""
    if options.quality_limit == 0:
        yield from sorted((options.cache / "problems").glob(f"{options.problems}-{options.rows}.npz"))
        return
    if options.logits is None or not Path(options.logits).is_dir():
        print("no folder of classifier outputs (--logits FOLDER): tabular problems only")
    else:
        for path in network_problems(Path(options.logits), options.cache, options.rows):
            if fnmatch(path.stem, f"{options.problems}-{options.rows}"):
                yield path
    for found in tabular_problems(options.cache, options.rows, options.problems):
        if isinstance(found, str):
            print(found)
        else:
            yield found


def main() -> None:
    """Run the parts that are asked for."""
    options = parser().parse_args()
    if options.quick:
        options.sizes, options.repeats, options.problems, options.logits = ["C10", "C100"], 1, "tab_[ps]*_l*", None
        options.output, options.quality_limit, options.limit = ROOT / "out" / "bench", 60, 20
    parts = options.parts or ["speed", "quality", "page"]
    tables = options.output / "peers"
    began = run_facts()
    if "speed" in parts:
        rows = speed.measure(options.cache, options.sizes, repeats=options.repeats, minutes=options.minutes,
                             limit=options.limit)  # fmt: skip
        speed.write(rows, tables / "speed.csv")
        note_run(tables / "about.json", "speed", began | {"rounds": speed.rounds(rows)})
    if "quality" in parts:
        if options.forget:
            quality.forget(options.cache, options.forget)
        judged = quality.judge_all(problems(options), options.cache, libraries=options.libraries,
                                   limit=options.quality_limit)  # fmt: skip
        quality.write(judged, tables / "quality.csv")
        if options.quality_limit:
            limit = {"processor time at most": f"{options.quality_limit:g} s for each"}
            if options.take:
                limit[f"all but {options.again}"] = "of the table before, where a problem came out the same"
            note_run(tables / "about.json", "quality", began | limit)
    if "page" in parts:
        write_page(options.output, options.environment / "peers.json")


if __name__ == "__main__":
    main()

"""How long the paper's tables take, against the time that they may take.

python benchmarks/reproduce_speed.py MANIFEST            one split of each network with 100 classes
python benchmarks/reproduce_speed.py MANIFEST --tables   Tables 1 and 2 over all rows as well, methods that are not slow
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from mixnmatch.experiments.reproduce.loading import load
from mixnmatch.experiments.reproduce.manifest import Entry, read_manifest
from mixnmatch.experiments.reproduce.methods import METHODS
from mixnmatch.experiments.reproduce.run import Plan, run
from mixnmatch.experiments.reproduce.units import run_unit, split_units, stored

MOST_FOR_A_SPLIT = 2.0
MOST_FOR_THE_TABLES = 30 * 60.0
SECONDS = ("fit_seconds", "predict_seconds", "metric_seconds")


def split_seconds(entry: Entry, keys: list[str], times: int) -> tuple[float, float]:
    """Least wall-clock and processor seconds of one split, all metrics and the storing of results included."""
    wall, processor = [], []
    for number in range(times + 1):  # the first one warms up
        with tempfile.TemporaryDirectory() as folder:
            unit = split_units(entry, load(entry, Path(folder)), [number], 0)[0]
            start = time.perf_counter(), time.process_time()
            run_unit(unit, keys, Path(folder))
            wall.append(time.perf_counter() - start[0])
            processor.append(time.process_time() - start[1])
            if number == times:
                for expression, found in stored(unit, Path(folder)).items():
                    parts = "  ".join(f"{found[name]:.3f}" for name in SECONDS)
                    print(f"    {parts}  {expression}")
    return min(wall[1:]), min(processor[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--times", type=int, default=3, help="repetitions, of which the fastest counts")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cache", type=Path, help="keep the results of the tables in this folder, which must be new")
    options = parser.parse_args()
    entries = [entry for entry in read_manifest(options.manifest) if not entry.simulated]
    preserving = [key for key, one in METHODS.items() if not one.slow and one.build(logits=True).accuracy_preserving]
    print(f"one split, all metrics, {', '.join(preserving)}; fit, predict and metric seconds of each:")
    for entry in entries:
        if entry.classes == 100:
            wall, processor = split_seconds(entry, preserving, options.times)
            print(f"{entry.name}: {wall:.2f} s, {processor:.2f} processor seconds (at most {MOST_FOR_A_SPLIT:.0f} s)")
    if options.tables:
        fast = tuple(key for key, one in METHODS.items() if not one.slow)
        plan = Plan(tuple(entries), splits=options.splits, methods=fast, parts=("table1", "table2"))
        with tempfile.TemporaryDirectory() as folder:
            cache = options.cache or Path(folder)
            cache.mkdir(parents=True, exist_ok=True)
            if any(cache.iterdir()):
                parser.error(f"{cache} has results: they would not be timed")
            start = time.perf_counter()
            units = run(plan, cache, jobs=options.jobs)
        seconds = time.perf_counter() - start
        print(f"Tables 1 and 2, {units} splits on {options.jobs} cores: {seconds / 60:.1f} minutes", end=" ")
        print(f"(at most {MOST_FOR_THE_TABLES / 60:.0f} for 100 splits of each row)")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

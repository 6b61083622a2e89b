"""The synthetic study of the paper's section 5.1 and more: tables to the screen, CSV, JSON and figures to a folder.

python benchmarks/synthetic_study.py docs/results/synthetic
"""

from __future__ import annotations

import argparse
import sys
import time

from mixnmatch._engine.text import table
from mixnmatch.experiments.synthetic import Row, run_synthetic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    start = time.perf_counter()

    def progress(message: str) -> None:
        print(f"{time.perf_counter() - start:8.0f} s  {message}", file=sys.stderr, flush=True)

    tables = run_synthetic(options.folder, repetitions=options.repetitions, n_jobs=options.jobs, progress=progress)
    for name, rows in tables.items():
        print(f"\n{name}\n{table([list(rows[0]), *map(cells, rows)], left=0) if rows else '(none)'}")
    print(f"\n{time.perf_counter() - start:.0f} s")


def cells(row: Row) -> list[str]:
    return [f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()]


if __name__ == "__main__":
    main()

"""Seconds to read a .csv file of scores: with pyarrow, without it, and pandas where it is installed.

``python benchmarks/csv_speed.py [ROWS] [CLASSES]``; each number is the best of three.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np

from mixnmatch.io import read_table, text_arrow


def write(path: Path, rows: int, classes: int, *, text: bool) -> None:
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.ones(classes), size=rows)
    labels = rng.integers(classes, size=rows)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([f"class_{k}" for k in range(classes)] + ["label"])
        for row, label in zip(scores, labels, strict=True):
            writer.writerow([f"{value:.8f}" for value in row] + [f"class_{label}" if text else str(label)])


def best(call: Callable[[], object], repeats: int = 3) -> float:
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    rows, classes = (int(text) for text in (*sys.argv[1:], *("600000", "10")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder:
        for text in (False, True):
            path = Path(folder) / f"{text}.csv"
            write(path, rows, classes, text=text)
            fast = read_table(path)
            seconds = {"pyarrow": best(lambda path=path: read_table(path))}
            with mock.patch.object(text_arrow, "read_fast", return_value=None):
                plain = read_table(path)
                seconds["plain"] = best(lambda path=path: read_table(path))
            np.testing.assert_array_equal(fast.scores, plain.scores)
            np.testing.assert_array_equal(fast.labels, plain.labels)
            try:
                import pandas
            except ImportError:
                pass
            else:
                seconds["pandas"] = best(lambda path=path: pandas.read_csv(path))
            size = path.stat().st_size / 2**20
            shown = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
            print(f"{rows} x {classes}, labels as {'text' if text else 'numbers'}, {size:.0f} MiB: {shown}")


if __name__ == "__main__":
    main()

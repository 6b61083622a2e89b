"""Reading a cost matrix from a .csv file: a line for each class, a column for each decision."""

from __future__ import annotations

import csv
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.class_names import ROW_NUMBERS
from mixnmatch._engine.frames import order_by_name
from mixnmatch.io.files import FileError, check_input, listed
from mixnmatch.io.text import read_header

# What the column with the classes is called where there is another one before it.
CLASS_COLUMNS = ("class", "classes", "label", "labels", "y", "target", "actual")
EXAMPLE = "such as 'class,accept,reject' followed by 'good,0,5' and 'bad,20,0'"


@dataclass(frozen=True, eq=False)
class CostFile:
    """Costs as a file has them: names of classes and decisions, and the cost of each decision for each class."""

    path: Path
    classes: tuple[str, ...]
    decisions: tuple[str, ...]
    values: NDArray[np.float64]

    def in_order(self, names: list[str], where: str) -> NDArray[np.float64]:
        """Costs with the classes in the order of ``names``; an error if a class is missing or unknown."""
        order = order_by_name(self.classes, names)
        if order is None:
            missing = [name for name in names if name not in self.classes]
            unknown = [name for name in self.classes if name not in names]
            parts = [f"has no line for class {listed(missing)}"] if missing else []
            parts += [f"has a line for {listed(unknown)}"] if unknown else []
            raise FileError(self.path, f"{' and '.join(parts)}; the classes of {where} are {listed(names)}")
        return np.asarray(self.values[order])


def read_costs(path: Path) -> CostFile:
    """Read a file with a header that names the decisions, and a line for each class.

    What separates columns and marks decimals may be that of spreadsheets anywhere, as in files with scores.

    Raises
    ------
    FileError
        If the file cannot be used; the message says why.
    """
    check_input(path)
    if path.suffix.lower() != ".csv":
        raise FileError(path, f"costs must be in a .csv file, {EXAMPLE}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            _, delimiter = read_header(path, file)
            file.seek(0)
            lines = csv.reader(file, delimiter=delimiter, strict=True)
            rows = [(lines.line_num, [cell.strip() for cell in row]) for row in lines if any(map(str.strip, row))]
    except UnicodeDecodeError:
        raise FileError(path, "is not text in UTF-8; save it in this encoding (Excel: CSV UTF-8)") from None
    except csv.Error as error:
        raise FileError(path, f"is not a valid .csv file ({error})") from None
    if len(rows) < 2 or len(rows[0][1]) < 2:
        raise FileError(path, f"needs a header that names the decisions and a line for each class, {EXAMPLE}")
    first, *decisions = rows[0][1]
    if delimiter != ",":  # with decimal commas
        rows[1:] = [(number, [cells[0], *(cell.replace(",", ".") for cell in cells[1:])]) for number, cells in rows[1:]]
    _check_header(path, decisions)
    if _has_row_numbers(first, decisions, [cells for _, cells in rows[1:]]):
        why = f"the first column looks like a row number, and {decisions[0]!r} like the classes; remove the first one"
        raise FileError(path, f"{why} (pandas: to_csv(..., index=False))")
    values = np.array([_numbers(path, number, cells, decisions) for number, cells in rows[1:]])
    classes = [cells[0] for _, cells in rows[1:]]
    twice = [name for name, count in Counter(classes).items() if count > 1]
    if twice or not all(classes):
        why = f"has more than one line for class {listed(twice)}" if twice else "has a line without a class"
        raise FileError(path, why)
    return CostFile(path, tuple(classes), tuple(decisions), values)


def _has_row_numbers(first: str, decisions: list[str], rows: list[list[str]]) -> bool:
    """Whether the first column counts the rows and the second one names the classes."""
    if decisions[0].lower() not in CLASS_COLUMNS or first.lower() not in ROW_NUMBERS:
        return False
    numbers = [str(k) for k in range(len(rows))]
    named = [cells[1] for cells in rows if len(cells) > 1]
    return [cells[0] for cells in rows] == numbers and (sorted(named) == numbers or not all(map(_is_number, named)))


def _check_header(path: Path, decisions: list[str]) -> None:
    if all(_is_number(name) for name in decisions) and len(set(decisions)) < len(decisions):
        raise FileError(path, f"the first line holds numbers; it should name the decisions, {EXAMPLE}")
    twice = [name for name, count in Counter(decisions).items() if count > 1]
    if twice or not all(decisions):
        why = f"names decision {listed(twice)} more than once" if twice else "has a column without a name"
        raise FileError(path, f"the first line {why}; it should name each decision once")


def _numbers(path: Path, number: int, cells: list[str], decisions: list[str]) -> list[float]:
    if len(cells) != len(decisions) + 1:
        why = f"line {number} has {len(cells)} values, the header has {len(decisions) + 1}"
        raise FileError(path, why)
    for name, cell in zip(decisions, cells[1:], strict=True):
        if not _is_number(cell):
            what = f"{cell!r:.40} is not a finite number" if cell else "the cell is empty"
            raise FileError(path, f"line {number}, decision {name!r}: {what}")
    return [float(cell) for cell in cells[1:]]


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False

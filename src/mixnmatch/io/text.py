"""Reading .csv: a header, then one row a sample, read as a stream."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.class_names import as_names
from mixnmatch.io.columns import Columns, choose_columns
from mixnmatch.io.files import FileError, check_input


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of a file: numbers of the scores, labels and weights as they stand there."""

    columns: Columns
    scores: NDArray[Any]
    labels: NDArray[Any] | None
    weights: NDArray[Any] | None


def read_csv(
    path: Path, *, label: str | None, weights: str | None, patterns: Sequence[str], need_labels: bool
) -> Table:
    """Read a comma-separated file with a header, in UTF-8."""
    check_input(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, strict=True)
            names = next(lines, [])
            if not any(name.strip() for name in names):
                raise FileError(path, "the first line is empty; it should name the columns")
            names = [name.strip() for name in names]
            if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
                raise FileError(path, f"has one column, {names[0]!r:.60}; columns must be separated by commas")
            columns = choose_columns(
                path, names, label=label, weights=weights, patterns=patterns, need_labels=need_labels
            )
            return _read_rows(path, names, columns, lines)
    except UnicodeDecodeError:
        raise FileError(path, "is not text in UTF-8; is it a .csv file?") from None
    except csv.Error as error:
        raise FileError(path, f"is not a valid .csv file ({error})") from None


def _read_rows(path: Path, names: list[str], columns: Columns, lines: Any) -> Table:
    position = {name: index for index, name in enumerate(names)}
    indices = [position[name] for name in columns.scores]
    numbers = [position[name] for name in (*columns.scores, *([columns.weights] if columns.weights else []))]
    pick = itemgetter(*numbers) if len(numbers) > 1 else lambda row: (row[numbers[0]],)
    label_at = None if columns.label is None else position[columns.label]
    values, labels = array("d"), []
    width = len(names)
    for row in _filled(lines):
        if len(row) != width:
            why = f"{_where(lines, values, numbers)} has {len(row)} values, the header has {width}"
            raise FileError(path, why)
        if label_at is not None:
            labels.append(row[label_at].strip())
            if not labels[-1]:
                raise FileError(path, f"{_where(lines, values, numbers)}, column {columns.label!r}: there is no label")
        try:
            values.extend(map(float, pick(row)))
        except ValueError:
            _complain(path, _where(lines, values, numbers), names, row, numbers)
    if not values:
        raise FileError(path, "has a header but no rows")
    table = np.frombuffer(values, dtype=np.float64).reshape(-1, len(numbers))
    scores = table[:, : len(indices)] if len(indices) > 1 else table[:, 0]
    return Table(
        columns,
        np.ascontiguousarray(scores),
        None if label_at is None else as_names(labels),
        table[:, -1].copy() if columns.weights else None,
    )


def _filled(lines: Iterator[list[str]]) -> Iterator[list[str]]:
    """Rows that are not blank lines."""
    return (row for row in lines if row)


def _where(lines: Any, values: array[float], numbers: list[int]) -> str:
    return f"line {lines.line_num} (row {len(values) // len(numbers)})"


def _complain(path: Path, where: str, names: list[str], row: list[str], numbers: list[int]) -> NoReturn:
    """Raise the error for the first cell that should be a number and is not."""
    for index in numbers:
        try:
            float(row[index])
        except ValueError:
            cell = row[index].strip()
            what = f"{cell!r:.40} is not a number" if cell else "the cell is empty"
            why = f"{where}, column {names[index]!r}: {what}"
            raise FileError(path, why) from None
    raise AssertionError  # one of them was not a number


__all__ = ["Table", "read_csv"]

"""Rows of a text file of columns with all of their cells, batch by batch."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.class_names import as_names, class_names, is_whole
from mixnmatch.io.batches import RowBatch
from mixnmatch.io.columns import choose_columns
from mixnmatch.io.formats import Request
from mixnmatch.io.text import Layout, RowReader, bounded_lines, decimal_mark, open_text, read_header

# The whole part of a number without zeros before it, the part after the point, and the exponent.
FLOAT = re.compile(r"-?(0|[1-9][0-9]*)?([.][0-9]*)?([eE][+-]?[0-9]+)?")
# Where a comma marks decimals, a point does not: 1.500 may be 1500.
DECIMAL_COMMA = str.maketrans({",": ".", ".": "'"})
# Cells of a batch, about.
BATCH_CELLS = 1 << 17


class CsvRows:
    """Rows of a file; it is read anew for each run through them."""

    lists = False
    n_rows = None

    def __init__(self, path: Path, request: Request):
        self.path = path
        with open_text(path) as text:
            self.names, self.delimiter = read_header(path, bounded_lines(path, text))
        self.columns = choose_columns(
            path,
            self.names,
            classes=request.classes,
            label=request.label_column,
            weights=request.weights,
            patterns=request.columns,
            need_labels=request.need_labels,
            find=request.find_columns,
        )
        # Only the scores are read as numbers; all else is handed on as it stands.
        self._layout = Layout(path, self.names, self.columns.scores_alone(), self.delimiter)
        self.decimal = "."
        self.class_names = class_names(self.columns.scores) if request.classes is None else as_names(request.classes)

    def batches(self) -> Iterator[RowBatch]:
        """The rows, some at a time."""
        start = 0
        for cells, numbers in self._runs():
            yield RowBatch(start, numbers, cells=cells)
            start += len(cells)

    def _runs(self) -> Iterator[tuple[list[list[str]], NDArray[Any]]]:
        most = max(64, BATCH_CELLS // len(self.names))
        with open_text(self.path) as text:
            lines = bounded_lines(self.path, text)
            read_header(self.path, lines)
            cells: list[list[str]] = []
            numbers: list[list[float]] = []
            reader = RowReader(self._layout, lines)
            for row, found in reader:
                self.decimal = reader.decimal
                cells.append(row)
                numbers.append(found)
                if len(cells) == most:
                    yield cells, self._table(numbers)
                    cells, numbers = [], []
            if cells:
                yield cells, self._table(numbers)

    def _table(self, numbers: list[list[float]]) -> NDArray[Any]:
        table = np.array(numbers)
        return table if table.shape[1] > 1 else table[:, 0]

    def arrow_fields(self, arrow: Any) -> list[Any]:
        """Columns of numbers where all cells but blank ones are numbers, and of text elsewhere.

        What would not be the same text again stays text: 07, 1e3, +49, and whole numbers that no number type can hold.
        """
        others = [(k, name) for k, name in enumerate(self.names) if name not in self.columns.scores]
        scores = [k for k, name in enumerate(self.names) if name in self.columns.scores]
        kinds: dict[str, set[str]] = {name: set() for _, name in others}
        mark = "." if self.delimiter == "," else ""
        with open_text(self.path) as text:
            lines = bounded_lines(self.path, text)
            read_header(self.path, lines)
            for row in filter(None, csv.reader(lines, delimiter=self.delimiter, strict=True)):
                mark = mark or decimal_mark([row[k] for k in scores if k < len(row)])
                for k, name in others:
                    if "text" not in kinds[name] and k < len(row):  # rows that are too short are refused later
                        kinds[name].add(_kind(row[k] if mark == "." else row[k].translate(DECIMAL_COMMA)))
        types = {"text": arrow.string(), "float": arrow.float64(), "whole": arrow.int64()}
        found = {name: types[_type_of(own)] for name, own in kinds.items()}
        return [arrow.field(name, found.get(name, arrow.float64())) for name in self.names]

    def row_name(self, batch: RowBatch, row: int) -> str:
        """Where a row of a batch is, for messages."""
        return f"row {batch.start + row}"


def _type_of(kinds: set[str]) -> str:
    """The type of a column with cells of these kinds: "whole", "float" or "text"."""
    numbers = kinds & {"whole", "long", "float"}
    if "text" in kinds or not numbers:
        return "text"
    if not kinds & {"float", "not finite"}:
        return "whole"
    return "text" if "long" in kinds else "float"


def _kind(cell: str) -> str:
    """What a cell is: "blank", "whole", "long" (a float may not hold it), "float", "not finite" or "text"."""
    if is_whole(cell) and len(cell) < 16:
        return "whole"
    if not cell.strip():
        return "blank"
    digits = cell.removeprefix("-")
    if digits.lower() in ("nan", "inf"):
        return "not finite"
    if digits.isascii() and digits.isdecimal() and digits[0] != "0":
        if len(digits) > 19 or not -(2**63) <= int(cell) < 2**63:
            return "text"
        return "whole" if abs(int(cell)) <= 2**53 else "long"
    return "float" if _is_float(cell) else "text"


def _is_float(cell: str) -> bool:
    """Whether this is how programs write a number that is not whole, or a whole one as a float."""
    match = FLOAT.fullmatch(cell)
    if match is None:
        return False
    whole, rest, exponent = match.groups("")
    if exponent[1:2].isdigit() and not rest:
        return False  # 12E4 is an identifier, 1e-05 and 1.2E4 are numbers
    try:
        kept = exponent or rest.strip(".0") or int(whole or "0") == int(float(whole or "0"))
        return bool(kept) and math.isfinite(float(cell))
    except (ValueError, OverflowError):
        return False

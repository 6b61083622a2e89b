"""Rows of a text file of columns with all of their cells, batch by batch."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.class_names import as_names, class_names, is_whole
from mixnmatch.io.batches import RowBatch
from mixnmatch.io.columns import choose_columns
from mixnmatch.io.files import FileError
from mixnmatch.io.formats import Request
from mixnmatch.io.text import Layout, RowReader, bounded_lines, open_text, read_header

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
        if not start:
            raise FileError(self.path, "has a header but no rows")

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
        """Columns of numbers where every cell is one as Python writes it (07 is text), and of text elsewhere.

        Whole numbers are never written as floats, which do not tell long ones apart: too long ones stay text.
        """
        others = [(k, name) for k, name in enumerate(self.names) if name not in self.columns.scores]
        kinds: dict[str, set[str]] = {name: set() for _, name in others}
        with open_text(self.path) as text:
            lines = bounded_lines(self.path, text)
            read_header(self.path, lines)
            for row in filter(None, csv.reader(lines, delimiter=self.delimiter, strict=True)):
                for k, name in others:
                    if "text" not in kinds[name] and k < len(row):  # rows that are too short are refused later
                        kinds[name].add(_kind(row[k]))

        def type_of(found: set[str]) -> Any:
            if "text" in found or found >= {"long", "float"}:
                return arrow.string()
            return arrow.float64() if "float" in found else arrow.int64()

        types = {name: type_of(found) for name, found in kinds.items()}
        return [arrow.field(name, types.get(name, arrow.float64())) for name in self.names]

    def row_name(self, batch: RowBatch, row: int) -> str:
        """Where a row of a batch is, for messages."""
        return f"row {batch.start + row}"


def _kind(cell: str) -> str:
    """What a cell is: a whole number, one that a float may not hold ("long"), another number, or text."""
    if is_whole(cell) and len(cell) < 16:
        return "whole"
    digits = cell.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and digits[0] != "0":
        if len(digits) > 19 or not -(2**63) <= int(cell) < 2**63:
            return "text"
        return "whole" if abs(int(cell)) <= 2**53 else "long"
    return "float" if _is_number(cell) else "text"


def _is_number(cell: str) -> bool:
    digits = cell.lstrip("-+")
    if (digits[:1] == "0" and digits[1:2].isdigit()) or "_" in cell or cell != cell.strip():
        return False  # such as 007, which would come back as 7
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False

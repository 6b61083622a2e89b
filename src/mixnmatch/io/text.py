"""Text files of columns (.csv, .csv.gz): a header, then one row a sample, read as a stream.

Columns are separated by commas, semicolons or tabs, whichever the header has most of. In files without commas between
columns numbers may have a decimal comma. With pyarrow installed, files without quotes are read by it, several times
faster; whatever it refuses is read here, where errors name the line.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.class_names import as_names
from mixnmatch.io.columns import Columns, choose_columns
from mixnmatch.io.files import FileError, ScoreTable, check_input, shared_text
from mixnmatch.io.formats import Format, Request
from mixnmatch.io.text_write import CsvSink, write_csv

DELIMITERS = ",;\t"
# Characters of a line, and of a label: longer ones are no tables of scores.
MOST_LINE = 1 << 24
MOST_LABEL = 1000


@dataclass(frozen=True)
class Layout:
    """How a file is written, and what its columns are for."""

    path: Path
    names: tuple[str, ...]
    columns: Columns
    delimiter: str

    @property
    def numbers(self) -> list[int]:
        """Positions of the columns of numbers: scores, then weights."""
        position = {name: index for index, name in enumerate(self.names)}
        weights = [] if self.columns.weights is None else [self.columns.weights]
        return [position[name] for name in (*self.columns.scores, *weights)]


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """The text of a file, unpacked if its name ends in .gz; errors name the file."""
    check_input(path)
    packed = path.name.lower().endswith(".gz")
    try:
        with (
            gzip.open(path, "rb") if packed else path.open("rb") as raw,
            io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text,
        ):
            yield text
    except UnicodeDecodeError:
        raise FileError(path, "is not text in UTF-8; save it in this encoding (Excel: CSV UTF-8)") from None
    except csv.Error as error:
        raise FileError(path, "is not a valid .csv file ({why})", why=str(error)) from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise FileError(path, "is corrupted or was cut short: it cannot be decompressed") from None


def bounded_lines(path: Path, text: IO[str]) -> Iterator[str]:
    """Yield the lines of a text; raise an error for a line that is too long."""
    while line := text.readline(MOST_LINE):
        if len(line) == MOST_LINE:
            raise FileError(path, "has a line of more than {most} characters; is it a .csv file?", most=MOST_LINE)
        yield line


def read_header(path: Path, lines: Iterator[str]) -> tuple[tuple[str, ...], str]:
    """Names of the columns, and what separates them."""
    first = next(lines, "")
    # A name in quotes may go over several lines.
    while first.count('"') % 2 and (more := next(lines, "")):
        first += more
    if not first.strip():
        raise FileError(path, "the first line is empty; it should name the columns")
    split = {mark: _cells(first, mark) for mark in DELIMITERS}
    delimiter = max(DELIMITERS, key=lambda mark: len(split[mark]))  # a comma among equals
    if not split[delimiter]:
        next(csv.reader([first], delimiter=",", strict=True))  # says what is wrong with it
    names = tuple(name.strip() for name in split[delimiter])
    if not any(names):
        raise FileError(path, "the first line is empty; it should name the columns")
    if len(names) == 1 and "|" in names[0]:
        why = "has one column, {name!r:.60}; columns must be separated by commas, semicolons or tabs"
        raise FileError(path, why, name=names[0])
    return names, delimiter


def _cells(line: str, delimiter: str) -> list[str]:
    """Split a line into cells; none if its quotes do not match the separator."""
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


def read_csv(path: Path, request: Request) -> ScoreTable:
    """Read the columns that are needed of a file with a header, in UTF-8."""
    from mixnmatch.io.text_arrow import read_fast

    with open_text(path) as text:
        lines = bounded_lines(path, text)
        names, delimiter = read_header(path, lines)
        columns = choose_columns(
            path,
            names,
            classes=request.classes,
            label=request.label_column,
            weights=request.weights,
            patterns=request.columns,
            need_labels=request.need_labels,
            find=request.find_columns,
        )
        layout = Layout(path, names, columns, delimiter)
        found = read_fast(layout) or _read_rows(layout, lines)
    numbers, uniques, codes = found
    if not len(numbers):
        raise FileError(path, "has a header but no rows")
    return ScoreTable(
        path,
        _scores(numbers, len(columns.scores)),
        bool(request.logits),
        labels=None if columns.label is None else labels_of(uniques, codes),
        weights=numbers[:, -1].copy() if columns.weights else None,
        columns=columns.scores,
    )


def labels_of(uniques: Sequence[str], codes: NDArray[Any]) -> NDArray[Any]:
    """Labels from the different ones and the position of each row's among them."""
    names = as_names(uniques)
    return shared_text(uniques, codes) if names.dtype.kind == "U" else np.asarray(names[codes])


def _scores(numbers: NDArray[Any], width: int) -> NDArray[Any]:
    return np.ascontiguousarray(numbers[:, :width] if width > 1 else numbers[:, 0])


def _read_rows(layout: Layout, lines: Iterator[str]) -> tuple[NDArray[Any], list[str], NDArray[Any]]:
    """Numbers of all rows, the different labels, and the position of each row's label among them."""
    values, codes = array("d"), array("q")
    known: dict[str, int] = {}
    label_at = None if layout.columns.label is None else layout.names.index(layout.columns.label)
    width = len(layout.numbers)
    rows = RowReader(layout, lines)
    for cells, numbers in rows:
        values.extend(numbers)
        if label_at is not None:
            label = cells[label_at].strip()
            code = known.get(label)
            if code is None:
                _check_label(layout, label, rows.where())
                code = known[label] = len(known)
            codes.append(code)
    return np.frombuffer(values).reshape(-1, width), list(known), np.frombuffer(codes, dtype=np.int64)


def _check_label(layout: Layout, label: str, where: str) -> None:
    fields = {"where": where, "column": layout.columns.label, "size": len(label), "most": MOST_LABEL}
    if not label:
        raise FileError(layout.path, "{where}, column {column!r}: there is no label", **fields)
    if len(label) > MOST_LABEL:
        why = "{where}, column {column!r}: a label of {size} characters; names of classes have at most {most}"
        raise FileError(layout.path, why, **fields)


class RowReader:
    """Runs through the rows of a file: the cells of each and its numbers. Errors say where they are."""

    def __init__(self, layout: Layout, lines: Iterator[str]):
        self.layout = layout
        self.decimal = "."
        self.row = 0
        self._cells = csv.reader(lines, delimiter=layout.delimiter, strict=True)

    def where(self) -> str:
        """The place of the row that was read last."""
        return f"line {self._cells.line_num + 1} (row {self.row})"

    def __iter__(self) -> Iterator[tuple[list[str], list[float]]]:
        at, width = self.layout.numbers, len(self.layout.names)
        pick = itemgetter(*at) if len(at) > 1 else lambda row: (row[at[0]],)
        for cells in self._cells:
            if not cells:
                continue
            if len(cells) != width:
                why = "{where} has {found} values, the header has {width}"
                raise FileError(self.layout.path, why, where=self.where(), found=len(cells), width=width)
            if self.row == 0 and self.layout.delimiter != ",":
                self.decimal = decimal_mark(pick(cells))
            picked = pick(cells)
            if self.decimal != ".":
                picked = [cell.replace(self.decimal, ".") for cell in picked]
            try:
                numbers = [float(cell) for cell in picked]
            except ValueError:
                self._complain(cells)
            yield cells, numbers
            self.row += 1

    def _complain(self, cells: list[str]) -> NoReturn:
        """Raise the error for the first cell that should be a number and is not."""
        for index in self.layout.numbers:
            try:
                float(cells[index].replace(self.decimal, "."))
            except ValueError:
                cell = cells[index].strip()
                what = f"{cell!r:.40} is not a number" if cell else "the cell is empty"
                why = "{where}, column {column!r}: {what}"
                name = self.layout.names[index]
                if cell and name in self.layout.columns.scores:
                    why += "; if it is no class, name the scores: {columns}"
                raise FileError(self.layout.path, why, where=self.where(), column=name, what=what) from None
        raise AssertionError  # one of them was not a number


def decimal_mark(cells: Sequence[str]) -> str:
    """The mark of decimals, by the first row."""
    return "," if any("," in cell for cell in cells) else "."


def _open_rows(path: Path, request: Request) -> Any:
    from mixnmatch.io.text_rows import CsvRows

    return CsvRows(path, request)


CSV = Format(
    endings=(".csv", ".csv.gz", ".tsv"),
    summary="a header; a column for each class, and `label`; separated by , ; or tabs",
    read=read_csv,
    write=write_csv,
    named_columns=True,
    open_rows=_open_rows,
    make_sink=CsvSink,
)

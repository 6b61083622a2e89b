"""Writing text files of columns: whole tables, and rows of another table with columns added."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from mixnmatch.io.batches import RowBatch
from mixnmatch.io.files import FileError
from mixnmatch.io.formats import Arrays


class TextOf:
    """An open binary file as text, packed if the name ends in .gz; the file itself stays open."""

    def __init__(self, file: IO[bytes], path: Path):
        packed = path.name.lower().endswith(".gz")
        self._packed: Any = gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) if packed else None
        self._text = io.TextIOWrapper(self._packed or file, encoding="utf-8", newline="")

    def __enter__(self) -> IO[str]:
        return self._text

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(OSError, ValueError) if kind is not None else nullcontext():
            self._text.detach()  # writes what is left
        if self._packed is not None:
            with suppress(OSError, ValueError) if kind is not None else nullcontext():
                self._packed.close()


def write_csv(file: IO[bytes], arrays: Arrays, path: Path) -> None:
    """Write scores, and labels and weights if there are any."""
    names, extra = named_columns(path, arrays)
    scores = next(iter(arrays.values()))
    cells = _number_cells(scores)
    with TextOf(file, path) as text:
        writer = csv.writer(text, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", lineterminator="\n")
        writer.writerow(names)
        others = [column.tolist() for column in extra]
        writer.writerows([*row, *more] for row, *more in zip(cells, *others, strict=True))


def _number_cells(scores: NDArray[Any]) -> Iterator[list[str]]:
    """Format numbers so that reading them gives the same values."""
    single = scores.dtype == np.float32
    show = (lambda value: f"{value:.9g}") if single else repr
    return ([show(value) for value in row] for row in map(np.ndarray.tolist, scores))


def named_columns(path: Path, arrays: Arrays) -> tuple[list[str], list[NDArray[Any]]]:
    """Names of all columns, and the columns beside the scores."""
    classes = arrays.get("classes")
    width = next(iter(arrays.values())).shape[1]
    names = [str(name) for name in (range(width) if classes is None else classes.tolist())]
    extra = {name: arrays[key] for key, name in (("labels", "label"), ("weights", "weight")) if key in arrays}
    clash = set(names) & set(extra)
    if clash:
        why = "a class is called {name!r}, like another column; write an .npz file instead"
        raise FileError(path, why, name=clash.pop())
    return [*names, *extra], list(extra.values())


class CsvSink:
    """Rows of a table and further columns, as text."""

    def __init__(self, file: IO[bytes], rows: Any, names: Sequence[str], path: Path):
        self._text = TextOf(file, path)
        text = self._text.__enter__()
        delimiter = "\t" if path.suffix.lower() == ".tsv" else getattr(rows, "delimiter", ",")
        self._rows = rows
        self._writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        self._writer.writerow([*rows.names, *names])

    def write(self, batch: RowBatch, added: NDArray[Any]) -> None:
        """Write rows with further columns."""
        cells = batch.cells
        if cells is None:
            columns = [column.to_pylist() for column in batch.record.columns]
            cells = [list(row) for row in zip(*columns, strict=True)]
        numbers = _number_cells(added)
        decimal = getattr(self._rows, "decimal", ".")  # known once rows have been read
        if decimal != ".":
            numbers = ([text.replace(".", decimal) for text in row] for row in numbers)
        self._writer.writerows([*row, *more] for row, more in zip(cells, numbers, strict=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._text.__exit__(kind, *rest)


__all__ = ["CsvSink", "TextOf", "named_columns", "write_csv"]

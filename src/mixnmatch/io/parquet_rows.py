"""Rows of parquet files with all of their columns, batch by batch, and files that such batches are written to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.class_names import as_names, class_names
from mixnmatch.io.batches import RowBatch
from mixnmatch.io.dataset import Dataset, Part, is_text_type, open_dataset, pyarrow
from mixnmatch.io.formats import Request
from mixnmatch.io.parquet import takes_logits

# Bytes of text that are unpacked at a time.
UNPACKED = 1 << 26


class ParquetRows:
    """Rows of all files of a dataset, or of one of them."""

    def __init__(self, path: Path, request: Request, dataset: Dataset | None = None):
        self.path = path
        self.dataset = open_dataset(path, replace(request, need_labels=False)) if dataset is None else dataset
        self.request = request
        self.columns = self.dataset.columns
        self.lists = self.dataset.width is not None
        self.logits = takes_logits(self.dataset, request.logits)
        self.n_rows: int | None = self.dataset.n_rows
        arrow = pyarrow(path)
        first = self.dataset.parts[0]
        self._schema = arrow.parquet.read_schema(first.path)
        self._keys = [] if not path.is_dir() else [key for key in first.keys if key not in self._schema.names]
        self.names = (*self._schema.names, *self._keys)
        self.class_names = self._class_names(request)
        pandas = (self._schema.metadata or {}).get(b"pandas")  # which columns are the index
        self.metadata = None if pandas is None else {b"pandas": pandas}

    def _class_names(self, request: Request) -> NDArray[Any] | None:
        if request.classes is not None:
            return as_names(request.classes)
        if not self.lists:
            return class_names(self.columns.scores)
        given = self.dataset.classes
        return np.array(given) if given is not None and len(given) == self.dataset.width else None

    def parts(self) -> Iterator[tuple[Path, ParquetRows]]:
        """Each file, and its path within the folder."""
        for part in self.dataset.parts:
            alone = ParquetRows(part.path, self.request, replace(self.dataset, parts=(part,)))
            yield part.path.relative_to(self.path), alone

    def batches(self) -> Iterator[RowBatch]:
        """The rows, some at a time."""
        done = 0
        for part in self.dataset.parts:
            for batch in self.dataset.batches(part, every_column=True):
                if len(batch.scores):
                    yield RowBatch(done, batch.scores, record=self._whole(part, batch.columns))
                    done += len(batch.scores)

    def _whole(self, part: Part, record: Any) -> Any:
        """A record with all columns in the order of the first file, those of folder names included."""
        arrow = pyarrow(part.path)
        arrays = [
            arrow.repeat(part.keys[name], record.num_rows) if name in self._keys else record.column(name)
            for name in self.names
        ]
        return arrow.record_batch(arrays, names=list(self.names))

    def arrow_fields(self, arrow: Any) -> list[Any]:
        """Names and types of the columns."""
        fields = [self._schema.field(name) for name in self._schema.names]
        keys = self.dataset.parts[0].keys
        return fields + [arrow.field(name, arrow.scalar(keys[name]).type) for name in self._keys]

    def row_name(self, batch: RowBatch, row: int) -> str:
        """Where a row of a batch is, for messages."""
        return f"row {batch.start + row}"


class ParquetSink:
    """Rows of a table and further columns, as parquet."""

    def __init__(self, file: IO[bytes], rows: Any, names: Sequence[str], path: Path):
        self._arrow = pyarrow(path)
        self._file, self._rows, self._names = file, rows, names
        self._fields = rows.arrow_fields(self._arrow)
        self._writer: Any = None

    def _open(self, number: Any) -> Any:
        arrow = self._arrow
        added = [arrow.list_(number)] if self._rows.lists else [number] * len(self._names)
        fields = [*self._fields, *(arrow.field(n, kind) for n, kind in zip(self._names, added, strict=True))]
        self._schema = arrow.schema(fields, metadata=getattr(self._rows, "metadata", None))
        return arrow.parquet.ParquetWriter(self._file, self._schema)

    def write(self, batch: RowBatch, added: NDArray[Any]) -> None:
        """Write rows with further columns."""
        arrow = self._arrow
        number = arrow.float32() if added.dtype == np.float32 else arrow.float64()
        if self._writer is None:
            self._writer = self._open(number)
        columns = batch.record.columns if batch.cells is None else self._parsed(batch.cells)
        if self._rows.lists:
            flat = arrow.array(np.ascontiguousarray(added).ravel(), number)
            offsets = arrow.array(np.arange(len(added) + 1, dtype=np.int32) * added.shape[1])
            new = [arrow.ListArray.from_arrays(offsets, flat)]
        else:
            new = [arrow.array(np.ascontiguousarray(column), number) for column in added.T]
        step = self._rows_at_a_time(columns)
        for start in range(0, len(added), step):
            parts = [self._as_declared(column.slice(start, step), field.type) for column, field in
                     zip([*columns, *new], self._schema, strict=True)]  # fmt: skip
            self._writer.write_batch(arrow.record_batch(parts, schema=self._schema))

    def _parsed(self, cells: list[list[str]]) -> list[Any]:
        """Columns of a text file in the types that were found for them."""
        arrow, found = self._arrow, []
        for column, field in zip(zip(*cells, strict=True), self._fields, strict=True):
            values: Any = column
            if arrow.types.is_integer(field.type):
                values = [int(cell) if cell.strip() else None for cell in column]
            elif arrow.types.is_floating(field.type):
                mark = getattr(self._rows, "decimal", ".")
                values = [float(cell.replace(mark, ".")) if cell.strip() else None for cell in column]
            found.append(arrow.array(values, field.type))
        return found

    def _rows_at_a_time(self, columns: Sequence[Any]) -> int:
        """Return a number of rows whose decoded text stays within a memory limit."""
        import pyarrow.compute

        longest = 1
        for column in columns:
            if self._arrow.types.is_dictionary(column.type) and is_text_type(self._arrow, column.type):
                longest = max(
                    longest, pyarrow.compute.max(pyarrow.compute.binary_length(column.dictionary)).as_py() or 0
                )
        return max(1, UNPACKED // longest)

    def _as_declared(self, column: Any, kind: Any) -> Any:
        return column if column.type == kind else column.cast(kind)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(Exception):  # the error that led here is the one to tell
                if self._writer is not None:
                    self._writer.close()
            return
        if self._writer is None:  # no rows at all
            self._writer = self._open(self._arrow.float64())
        self._writer.close()

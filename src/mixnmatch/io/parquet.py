"""Parquet files as tables: in memory while they are small, through a temporary file where they are large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from mixnmatch._engine.spool import Spooled, spool
from mixnmatch._engine.steps import Progress
from mixnmatch.io.dataset import NO_ROWS, Dataset, open_dataset, pyarrow
from mixnmatch.io.files import FileError, ScoreTable
from mixnmatch.io.formats import Arrays, Format, Request
from mixnmatch.io.text_write import named_columns

# Scores that take up more bytes than this are not held in memory.
IN_MEMORY = 1 << 27


def read_parquet(path: Path, request: Request) -> ScoreTable:
    """Read the columns that are needed of a file or a partitioned folder, a batch at a time."""
    dataset = open_dataset(path, request)
    if not dataset.n_rows:
        raise FileError(path, NO_ROWS)
    batches = _read(dataset, request.progress)
    if dataset.score_bytes > IN_MEMORY:
        with spool(batches) as rows:
            return _table(dataset, rows, request)
    parts = list(batches)
    joined = [None if parts[0][k] is None else np.concatenate([part[k] for part in parts]) for k in range(3)]
    assert joined[0] is not None
    return _table(dataset, Spooled(joined[0], joined[1], joined[2]), request)


def _read(dataset: Dataset, progress: Progress | None) -> Iterator[tuple[Any, Any, Any]]:
    done = 0
    for part in dataset.parts:
        for batch in dataset.batches(part):
            if len(batch.scores):
                yield batch.scores, dataset.labels(batch), dataset.weights(batch)
            done += len(batch.scores)
            if progress is not None:
                progress(done, dataset.n_rows, part.path.name)


def _table(dataset: Dataset, rows: Spooled, request: Request) -> ScoreTable:
    lists = dataset.width is not None
    classes = dataset.classes
    if classes is not None and (len(classes) != max(2, dataset.n_columns) or rows.labels is None):
        classes = None
    return ScoreTable(
        dataset.path,
        rows.scores,
        takes_logits(dataset, request.logits),
        labels=rows.labels,
        weights=rows.weight,
        classes=np.array(classes) if lists and classes is not None else None,
        columns=() if lists else dataset.columns.scores,
    )


def takes_logits(dataset: Dataset, asked: bool | None) -> bool:
    """Whether scores are logits: as asked, or, for lists, as the name of their column says."""
    if asked is None and dataset.width is not None:
        return dataset.columns.scores[0] == "logits"
    return bool(asked)


def _write_parquet(file: IO[bytes], arrays: Arrays, path: Path) -> None:
    arrow = pyarrow(path)
    names, extra = named_columns(path, arrays)
    columns = [*np.asarray(next(iter(arrays.values()))).T, *extra]
    table = arrow.table([arrow.array(np.ascontiguousarray(column)) for column in columns], names=names)
    arrow.parquet.write_table(table, file)


def _open_rows(path: Path, request: Request) -> Any:
    from mixnmatch.io.parquet_rows import ParquetRows

    return ParquetRows(path, request)


def _make_sink(file: IO[bytes], rows: Any, names: Sequence[str], path: Path) -> Any:
    from mixnmatch.io.parquet_rows import ParquetSink

    return ParquetSink(file, rows, names, path)


PARQUET = Format(
    endings=(".parquet",),
    summary="the same, or one column of lists; a file or a folder of files",
    read=read_parquet,
    write=_write_parquet,
    named_columns=True,
    folders=True,
    open_rows=_open_rows,
    make_sink=_make_sink,
)

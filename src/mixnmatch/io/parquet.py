"""Reading .parquet as one table: in memory while it is small, through a temporary file where it is large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mixnmatch._engine.spool import Spooled, spool
from mixnmatch.io.dataset import Dataset, Progress, open_dataset
from mixnmatch.io.text import Table

# Scores that take up more bytes than this are not held in memory.
IN_MEMORY = 1 << 27


def read_parquet(
    path: Path,
    *,
    label: str | None,
    weights: str | None,
    patterns: Sequence[str],
    need_labels: bool,
    progress: Progress | None = None,
) -> Table:
    """Read the columns that are needed of a file or a partitioned folder, a batch at a time."""
    dataset = open_dataset(path, label=label, weights=weights, patterns=patterns, need_labels=need_labels)
    batches = _read(dataset, progress)
    if dataset.score_bytes > IN_MEMORY:
        with spool(batches) as rows:
            return _table(dataset, rows)
    parts = list(batches)
    joined = [None if parts[0][k] is None else np.concatenate([part[k] for part in parts]) for k in range(3)]
    assert joined[0] is not None
    return _table(dataset, Spooled(joined[0], joined[1], joined[2]))


def _read(dataset: Dataset, progress: Progress | None) -> Iterator[tuple[Any, Any, Any]]:
    done = 0
    for part in dataset.parts:
        for batch in dataset.batches(part):
            if len(batch.scores):
                yield batch.scores, dataset.labels(batch), dataset.weights(batch)
            done += len(batch.scores)
            if progress is not None:
                progress(done, dataset.n_rows, part.path.name)


def _table(dataset: Dataset, rows: Spooled) -> Table:
    return Table(dataset.columns, rows.scores, rows.labels, rows.weight)

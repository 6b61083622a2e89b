"""Turn a stream of batches into one table: scores are written to a temporary file and memory-mapped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.frames import (
    NamedColumns,
    check_aligned,
    column_names,
    frame_values,
    is_frame,
    is_series,
    order_by_name,
)
from mixnmatch._engine.scores import from_tensor


@dataclass(frozen=True)
class Spooled:
    """All batches: scores in a memory-mapped file, labels and weights (8 bytes a sample) in memory."""

    scores: NDArray[Any]
    labels: NDArray[Any] | None
    weight: NDArray[Any] | None
    columns: Sequence[Any] | None = None

    @property
    def named(self) -> Any:
        """The scores, with the names of their columns if batches had some."""
        if self.columns is None:
            return self.scores
        vector = self.scores.ndim == 1
        return NamedColumns(self.scores[:, None] if vector else self.scores, self.columns)


@contextmanager
def spool(
    batches: Iterable[Sequence[Any]], *, directory: str | PathLike[str] | None = None, classes: Any = None
) -> Iterator[Spooled]:
    """Read all batches once, write their scores to a temporary file, and return everything as arrays.

    Only one batch of scores is in memory at a time. The file has no name, so that nothing is left behind whatever
    happens; it is given back to the disk when the context is left and the arrays are no longer used.

    Parameters
    ----------
    batches : iterable of (scores, labels) or (scores, labels, weight)
        Arrays, tensors or data frames, with scores of shape (m, L) or (m,) in every batch. The file has the type of
        the first batch's scores. Labels, weights or both may be None, then in all batches. The columns of data frames
        are matched by name to those of the first batch.
    directory : path, optional
        Where the file is made; the system's directory for temporary files if not given. On many machines that one is
        in memory: then name a directory on a disk.
    classes : sequence, optional
        Names of the classes; columns that are called like them are written in their order.

    Raises
    ------
    ValueError
        If batches do not fit together; the message says which one, counted from 0.
    """
    with tempfile.TemporaryFile(dir=directory, prefix="mixnmatch-") as file:
        yield _write(batches, file, classes)


def _write(batches: Iterable[Sequence[Any]], file: Any, classes: Any) -> Spooled:
    like: NDArray[Any] | None = None
    columns = None if classes is None else list(classes)
    n_rows = 0
    labels, weights = _Column("labels"), _Column("weights")
    for number, batch in enumerate(batches):
        scores, y, weight, names = _parts(batch, number)
        if names is not None and len(names) > 1 and columns is not None:
            order = order_by_name(names, columns)
            scores, names = (scores, names) if order is None else (scores[:, order], [names[k] for k in order])
        if like is None:
            columns = names
        elif names != columns:
            msg = f"batch {number} has scores with the columns {names!r:.200}, but those before have {columns!r:.200}"
            raise ValueError(msg)
        if like is None:
            like = np.empty((0, *scores.shape[1:]), scores.dtype if scores.dtype.kind == "f" else np.float64)
        if scores.shape[1:] != like.shape[1:]:
            msg = f"batch {number} has scores of shape {scores.shape}, but those before it end in {like.shape[1:]}"
            raise ValueError(msg)
        labels.add(y, len(scores), number)
        weights.add(weight, len(scores), number)
        file.write(np.ascontiguousarray(scores, dtype=like.dtype).data)
        n_rows += len(scores)
    if like is None or n_rows == 0:
        msg = "there are no rows: the batches are empty, or were used up by a loop before"
        raise ValueError(msg)
    file.flush()
    table = np.memmap(file, dtype=like.dtype, mode="r", shape=(n_rows, *like.shape[1:]))
    return Spooled(table, labels.joined(), weights.joined(), columns)


def _parts(batch: Sequence[Any], number: int) -> tuple[NDArray[Any], Any, Any, list[Any] | None]:
    """Scores, labels and weights of a batch, and the names of the columns."""
    if not isinstance(batch, Sequence) or len(batch) not in (2, 3):
        msg = f"batch {number} is not (scores, labels) or (scores, labels, weight)"
        raise ValueError(msg)
    given, y, weight = (*batch, None)[:3]
    try:
        check_aligned(given, labels=y, sample_weight=weight)
    except ValueError as error:
        msg = f"batch {number}: {error}"
        raise ValueError(msg) from None
    names = column_names(given) if is_frame(given) else [given.name] if is_series(given) and given.name else None
    scores = np.asarray(frame_values(given) if is_frame(given) else from_tensor(given))
    scores = scores[:, 0] if is_frame(given) and scores.shape[1] == 1 else scores
    if scores.ndim not in (1, 2) or scores.dtype.kind not in "fiu":
        msg = f"batch {number} must have numbers of shape (m, L) or (m,) as scores, got {scores.dtype} {scores.shape}"
        raise ValueError(msg)
    return scores, y, weight, names


class _Column:
    """Labels or weights of the batches so far: a vector for each, or None for all."""

    def __init__(self, name: str):
        self.name = name
        self.parts: list[Any] = []

    def add(self, values: Any, n_rows: int, number: int) -> None:
        if values is not None:
            values = np.asarray(from_tensor(values))
            if values.shape[:1] != (n_rows,):
                msg = f"batch {number} has {self.name} of shape {values.shape} for {n_rows} rows of scores"
                raise ValueError(msg)
        if self.parts and (values is None) != (self.parts[0] is None):
            msg = f"either all batches have {self.name} or none, but batch {number} differs from those before it"
            raise ValueError(msg)
        self.parts.append(values)

    def joined(self) -> NDArray[Any] | None:
        return None if self.parts[0] is None else np.concatenate(self.parts)

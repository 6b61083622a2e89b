"""Whether calibration has left every predicted class as it was."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.dask import is_dask, known_rows, one_class_chunk, reduce_chunks, rows_like
from mixnmatch._engine.frames import check_aligned, column_names, frame_values, is_frame, order_by_name, spellings
from mixnmatch._engine.scores import read_scores


def accuracy_preserved(before: Any, after: Any, *, logits: bool = False) -> bool:
    """Whether the predicted class of every sample is the same in ``before`` and ``after``.

    For tables of n x L only the order of the classes matters, so ``before`` may be logits or probabilities. A
    vector is the positive class of a binary problem; ``logits`` says whether ``before`` is one of logits. Columns of
    two data frames are matched by name.

    Examples
    --------
    >>> accuracy_preserved([[0.9, 0.1], [0.4, 0.6]], [[0.6, 0.4], [0.2, 0.8]])
    True
    >>> accuracy_preserved([[0.9, 0.1]], [[0.4, 0.6]])
    False
    """
    check_aligned(before, "before", after=after)
    after = _in_order_of(before, after)
    threshold = 0.0 if logits else 0.5
    if is_dask(before):
        first = one_class_chunk(known_rows(before))
        second = one_class_chunk(known_rows(after)) if is_dask(after) else np.asarray(after)
        if first.shape == second.shape:
            pair = [first, rows_like(second, first)]
            same: bool = reduce_chunks(_same_winners, pair, threshold, combine=operator.and_)
            return same
    first, second = _winners(before, threshold), _winners(after, 0.5)
    if first.shape != second.shape:
        msg = f"there are {len(first)} rows before and {len(second)} after"
        raise ValueError(msg)
    return bool((first == second).all())


def _in_order_of(before: Any, after: Any) -> Any:
    """``after`` with its columns in the order of ``before``, if both are data frames with the same names."""
    if not (is_frame(before) and is_frame(after)):
        return after
    names, own = column_names(before), column_names(after)
    if names is None or own is None:
        return after
    for wanted in spellings(names):
        order = order_by_name(own, wanted.tolist())
        if order is not None:
            return frame_values(after)[:, order]
    return after


def _same_winners(start: int, chunks: list[NDArray[Any]], threshold: float) -> bool:
    before, after = chunks
    return bool((_winners(before, threshold) == _winners(after, 0.5)).all())


def _winners(scores: Any, threshold: float) -> NDArray[np.intp]:
    values = read_scores(scores, logits=True, order_only=True).values
    return np.asarray((values > threshold).astype(np.intp) if values.ndim == 1 else values.argmax(axis=1))

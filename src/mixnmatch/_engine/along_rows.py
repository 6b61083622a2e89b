"""Row sums, row maxima, softmax, winners and picked entries, faster than with NumPy's own functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

try:  # comparisons, and sums in one order, are exact, and a softmax nearly: the results are the same
    import mixnmatch._engine.kernels._compiled as _compiled
except ImportError:
    _compiled = None  # type: ignore[assignment]

# Columns up to which the compiled kernel finds winners faster than NumPy.
FEW = 64
# Rows up to this long are added up column by column: measured, 20 times as fast for two columns, equal at about 30.
SHORT = 16
# Entries of a row that are added one to the other: beyond, rounding in single precision would show.
WIDE = 256


def row_sums(x: NDArray[Any], dtype: Any = None) -> NDArray[Any]:
    """Sum of each row."""
    if x.shape[1] > SHORT:
        return np.asarray(x.sum(axis=1, dtype=dtype) if dtype not in (None, x.dtype) else _long_row_sums(x))
    if _compiled is not None and dtype in (None, x.dtype) and x.dtype.char in "fd" and x.flags.c_contiguous:
        sums = np.empty(len(x), x.dtype)
        _compiled.sums(x, sums)
        return sums
    total = x[:, 0].astype(x.dtype if dtype is None else dtype)
    for column in range(1, x.shape[1]):
        total += x[:, column]
    return total


def column_sums(x: NDArray[Any]) -> NDArray[np.float64]:
    """Sum of each column in float64; for short rows one column after the other, which is faster."""
    if x.shape[1] > SHORT:
        return np.asarray(x.sum(axis=0, dtype=np.float64))
    return np.array([x[:, column].sum(dtype=np.float64) for column in range(x.shape[1])])


def _long_row_sums(x: NDArray[Any]) -> NDArray[Any]:
    """Measured, three to five times as fast as x.sum(axis=1); it adds naively, so no more than ``WIDE`` at a time."""
    if x.shape[1] <= WIDE:
        return np.asarray(np.einsum("ij->i", x))
    parts = [np.einsum("ij->i", x[:, start : start + WIDE]) for start in range(0, x.shape[1], WIDE)]
    return np.asarray(np.stack(parts, axis=1).sum(axis=1))


def winners(x: NDArray[Any]) -> NDArray[np.intp]:
    """Column of the largest entry of each row, the first one of equals."""
    if _compiled is not None and x.shape[1] <= FEW and x.dtype.char in "fd" and x.flags.c_contiguous:
        found = np.empty(len(x), np.intp)
        _compiled.winners(x, found)
        return found
    return (x[:, 1] > x[:, 0]).astype(np.intp) if x.shape[1] == 2 else x.argmax(axis=1)


def row_maxima(x: NDArray[Any]) -> NDArray[Any]:
    """Largest entry of each row; measured, up to four times as fast as x.max(axis=1)."""
    if _compiled is not None and x.dtype.char in "fd" and x.flags.c_contiguous:
        found = np.empty(len(x), x.dtype)
        _compiled.maxima(x, found)
        return found
    return picked(x, winners(x))


def log_softmax(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of the softmax of each row, in place."""
    if _compiled is not None and u.flags.c_contiguous:
        _compiled.log_softmax_into(u, u)
        return u
    u -= row_maxima(u)[:, None]
    u -= np.log(row_sums(np.exp(u)))[:, None]
    return u


def picked(x: NDArray[Any], columns: NDArray[np.intp]) -> NDArray[Any]:
    """One entry of each row, that of the given column."""
    if not x.flags.c_contiguous:
        return np.asarray(x[np.arange(len(x)), columns])
    return x.ravel().take(np.arange(0, x.size, x.shape[1]) + columns)


def two_columns(positive: NDArray[Any], *, logits: bool = False) -> NDArray[np.float64]:
    """Scores of both classes from those of the positive one, in float64, for blocks."""
    both = np.empty((len(positive), 2))
    both[:, 1] = positive
    both[:, 0] = 0.0 if logits else 1 - both[:, 1]
    return both


def both_columns(positive: Any, *, logits: bool) -> Any:
    """The same for whole tables: in their own type, in memory or on Dask."""
    both = np.stack([np.zeros_like(positive) if logits else 1 - positive, positive], axis=1)
    return both.rechunk({1: -1}) if hasattr(both, "rechunk") else both

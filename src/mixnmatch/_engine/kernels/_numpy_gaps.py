"""NumPy kernels that add up the entries between sorted knots, for isotonic fits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import row_maxima
from mixnmatch._engine.kernels.gaps import Knots

Block = NDArray[Any]
Labels = NDArray[np.intp]
Rows = NDArray[np.float64]


def add_gaps(x: Block, row_weight: Rows | None, knots: Knots, weight: Rows, score_sum: Rows, largest: Rows) -> None:
    """Add all entries of a block to the gaps between sorted knots, the first of which is left of them all.

    An entry belongs to the gap that follows the last knot not above it. What is added up is its row's weight (1 if
    there are none), and unless these are empty its score times that weight and the largest score.
    """
    if row_weight is None:  # sorting is faster than searching each of them
        ordered = np.sort(x, axis=None)
        edges = np.searchsorted(ordered, knots.values.astype(x.dtype), side="left")
        edges = np.concatenate([[0], edges, [ordered.size]])
        count = np.diff(edges)
        weight += count
        filled = np.flatnonzero(count)
        if len(score_sum):
            score_sum[filled] += np.add.reduceat(ordered, edges[filled], dtype=np.float64)
        if len(largest):
            largest[filled] = np.maximum(largest[filled], ordered[edges[filled + 1] - 1])
        return
    gap = np.searchsorted(knots.values, x.ravel(), side="right")
    spread = np.repeat(row_weight, x.shape[1])
    weight += np.bincount(gap, spread, len(weight))
    if len(score_sum):
        score_sum += np.bincount(gap, spread * x.ravel(), len(weight))
    if len(largest):
        np.maximum.at(largest, gap, x.ravel())


def add_gaps_of_logits(x: Block, y: Labels, row_weight: Rows | None, knots: Knots, weight: Rows) -> NDArray[np.bool_]:
    """Add the weight of all entries of softmax(x) but the labels' to the gaps, as :func:`add_gaps` does.

    Only logarithms are compared. A row with an entry so close to a knot that rounding decides between two gaps is left
    out; which rows these are is returned.
    """
    logs = knots.logarithms(x.shape[1])
    u = x.astype(np.float64)
    u -= row_maxima(u)[:, None]
    u -= np.log(np.exp(u).sum(axis=1, keepdims=True))
    gap = np.searchsorted(logs.values, u, side="right")
    around = np.concatenate([[-np.inf], logs.values, [np.inf]])
    near = (u - around[gap] < logs.doubt) | (around[gap + 1] - u < logs.doubt)
    near |= (u < logs.low) & (logs.values[0] < logs.low)  # such small numbers have fewer digits
    others = np.ones(x.shape, dtype=bool)
    others[np.arange(len(y)), y] = False
    unsure: NDArray[np.bool_] = (near & others).any(axis=1)
    others[unsure] = False
    spread = None if row_weight is None else np.repeat(row_weight, others.sum(axis=1))
    weight += np.bincount(gap[others], spread, len(weight))
    return unsure

"""Compiled kernels of isotonic regression: entries counted in the gaps between sorted knots."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mixnmatch._engine.kernels._numba_exp import JIT, exp64, row_max
from mixnmatch._engine.kernels.lookup import Knots

Block = NDArray[Any]
Labels = NDArray[np.intp]
Rows = NDArray[np.float64]


@njit(**JIT)  # type: ignore[untyped-decorator]
def _add_gaps(
    x: Any, bits: Any, row_weight: Any, shift: Any, base: Any, first: Any, last: Any, knots: Any,
    weight: Any, score_sum: Any, largest: Any,
) -> None:  # fmt: skip
    weighted, sums, tops = len(row_weight) > 0, len(score_sum) > 0, len(largest) > 0
    for i in range(x.shape[0]):
        w = row_weight[i] if weighted else 1.0
        for j in range(x.shape[1]):
            cell = (bits[i, j] >> shift) - base
            if x[i, j] == 0:  # a zero may carry a sign
                cell = -base
            if cell < 0:
                low = 0
            elif cell >= len(first):
                low = len(knots)
            else:
                low, high = first[cell], last[cell]
                while low < high:
                    middle = (low + high) >> 1
                    if knots[middle] <= x[i, j]:
                        low = middle + 1
                    else:
                        high = middle
            weight[low] += w
            if sums:
                score_sum[low] += w * np.float64(x[i, j])
            if tops:
                largest[low] = max(largest[low], np.float64(x[i, j]))


def add_gaps(x: Block, row_weight: Rows | None, knots: Knots, weight: Rows, score_sum: Rows, largest: Rows) -> None:
    """Add all entries of a block to the gaps between sorted knots, the first of which is left of them all."""
    if len(knots.values) == 0:
        from mixnmatch._engine.kernels import _numpy

        _numpy.add_gaps(x, row_weight, knots, weight, score_sum, largest)
        return
    bits = x.view(np.int32 if x.dtype.itemsize == 4 else np.int64)
    row_weight = np.empty(0) if row_weight is None else row_weight
    _add_gaps(x, bits, row_weight, *knots.cells(x.dtype), knots.values, weight, score_sum, largest)


@njit(**JIT)  # type: ignore[untyped-decorator]
def _log_sum(row: Any, top: Any) -> Any:
    total = 0.0
    for j in range(row.shape[0]):
        total += exp64(np.float64(row[j]) - top)
    return np.log(total)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _gap_of_log(v: Any, logs: Any, low: Any, first: Any, last: Any, doubt: Any) -> Any:
    """The gap of a logarithm among some of the knots, or -1 where rounding decides."""
    while first < last:
        middle = (first + last) >> 1
        if logs[middle] <= v:
            first = middle + 1
        else:
            last = middle
    near = (first > 0 and v - logs[first - 1] < doubt) or (first < len(logs) and logs[first] - v < doubt)
    return np.int64(-1) if near or (v < low and logs[0] < low) else np.int64(first)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _add_gaps_of_logits(
    x: Any, y: Any, row_weight: Any, logs: Any, low: Any, scale: Any, first: Any, last: Any, doubt: Any,
    cells: Any, searched: Any, in_cell: Any, weight: Any, unsure: Any,
) -> None:  # fmt: skip
    n_classes, n_cells = x.shape[1], len(first) - 1
    filled = first != last
    for i in range(x.shape[0]):
        row = x[i]
        top = np.float64(row_max(row))
        total = _log_sum(row, top)
        for j in range(n_classes):
            v = ((np.float64(row[j]) - top) - total - low) * scale + 1.0
            cells[j] = np.int32(min(max(v, 0.0), n_cells - 1.0))
        cells[y[i]] = n_cells  # the label is left out
        # Most entries are in cells without knots: nothing below branches on them.
        count = np.int64(0)
        for j in range(n_classes):
            searched[count] = j
            count += filled[cells[j]]
        sure = True
        for k in range(count):
            j = searched[k]
            v = (np.float64(row[j]) - top) - total
            searched[k] = _gap_of_log(v, logs, low, first[cells[j]], last[cells[j]], doubt)
            sure = sure and searched[k] >= 0
        unsure[i] = not sure
        if sure:
            w = row_weight[i] if len(row_weight) > 0 else 1.0
            for j in range(n_classes):
                in_cell[cells[j]] += w
            for k in range(count):
                weight[searched[k]] += w


def add_gaps_of_logits(x: Block, y: Labels, row_weight: Rows | None, knots: Knots, weight: Rows) -> NDArray[np.bool_]:
    """Add the weight of all entries of softmax(x) but the labels' to the gaps; return the rows that are left out."""
    logs = knots.logarithms(x.shape[1])
    unsure = np.empty(len(x), dtype=bool)
    first, last = np.append(logs.first, np.int32(0)), np.append(logs.last, np.int32(0))
    in_cell = np.zeros(len(first))
    scratch = np.empty((2, x.shape[1] + 1), dtype=np.int32)
    row_weight = np.empty(0) if row_weight is None else row_weight
    table = logs.values, logs.low, logs.scale, first, last, logs.doubt
    _add_gaps_of_logits(x, y, row_weight, *table, *scratch, in_cell, weight, unsure)
    empty = (logs.first == logs.last) & (in_cell[:-1] > 0)
    weight += np.bincount(logs.first[empty], in_cell[:-1][empty], len(weight))
    return unsure

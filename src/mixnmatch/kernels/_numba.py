"""Fused kernels compiled by Numba: one read of a block for everything a pass needs (extra `fast`).

The exponential is a polynomial on [-ln 2 / 2, ln 2 / 2] times a power of two put together from its bits, so that the
compiler can run it on whole vectors. It agrees with the exact one to a few units in the last place.
"""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from mixnmatch.kernels.lookup import Knots, Piecewise

Block = NDArray[Any]
Labels = NDArray[np.intp]
Rows = NDArray[np.float64]

_JIT: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"reassoc", "contract", "nsz", "arcp"}}


_A2, _A3, _A4, _A5, _A6, _A7 = (np.float32(1 / factorial(k)) for k in range(2, 8))
_B2, _B3, _B4, _B5, _B6, _B7, _B8, _B9, _B10, _B11, _B12, _B13 = (1 / factorial(k) for k in range(2, 14))
# ln 2 in two parts, the first with trailing zero bits, so that k * ln 2 loses nothing.
_LN2_HIGH32, _LN2_LOW32 = np.float32(0.693359375), np.float32(np.log(2.0) - 0.693359375)
_LN2_HIGH64 = float(np.float32(np.log(2.0)))
_LN2_LOW64 = float(np.log(np.longdouble(2)) - np.longdouble(_LN2_HIGH64))
_LOG2E32, _LOG2E64 = np.float32(1 / np.log(2.0)), 1 / np.log(2.0)
_LOWEST32, _LOWEST64 = np.float32(-87.0), -708.0


@intrinsic  # type: ignore[untyped-decorator]
def _float32_of_bits(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic  # type: ignore[untyped-decorator]
def _float64_of_bits(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


@njit(**_JIT)  # type: ignore[untyped-decorator]
def _exp32(x: Any) -> Any:
    x = max(x, _LOWEST32)
    k = np.floor(x * _LOG2E32 + np.float32(0.5))
    r = (x - k * _LN2_HIGH32) - k * _LN2_LOW32
    p = np.float32(1) + r * (np.float32(1) + r * (_A2 + r * (_A3 + r * (_A4 + r * (_A5 + r * (_A6 + r * _A7))))))
    return p * _float32_of_bits(np.int32((np.int32(k) + np.int32(127)) << np.int32(23)))


@njit(**_JIT)  # type: ignore[untyped-decorator]
def _exp64(x: Any) -> Any:
    x = max(x, _LOWEST64)
    k = np.floor(x * _LOG2E64 + 0.5)
    r = (x - k * _LN2_HIGH64) - k * _LN2_LOW64
    high = _B7 + r * (_B8 + r * (_B9 + r * (_B10 + r * (_B11 + r * (_B12 + r * _B13)))))
    p = 1.0 + r * (1.0 + r * (_B2 + r * (_B3 + r * (_B4 + r * (_B5 + r * (_B6 + r * high))))))
    return p * _float64_of_bits((np.int64(k) + np.int64(1023)) << np.int64(52))


def _exp(x: Any) -> Any:
    """Exponential of a number not above 0, in its own precision."""
    return np.exp(x)


@overload(_exp, jit_options=_JIT)  # type: ignore[untyped-decorator]
def _overload_exp(x: Any) -> Any:
    chosen = _exp32 if x == types.float32 else _exp64

    def implementation(x: Any) -> Any:
        return chosen(x)

    return implementation


@njit(**_JIT)  # type: ignore[untyped-decorator]
def _row_max(row: Any) -> Any:
    top = row[0]
    for j in range(row.shape[0]):
        top = max(top, row[j])
    return top


@njit(**_JIT)  # type: ignore[untyped-decorator]
def _nll_rows(x: Any, y: Any, beta: Any, out: Any) -> None:
    zero = x.dtype.type(0)
    for i in range(x.shape[0]):
        row = x[i]
        top = _row_max(row)
        s, s1, s2 = zero, zero, zero
        for j in range(row.shape[0]):
            u = row[j] - top
            e = _exp(beta * u)
            s += e
            s1 += e * u
            s2 += e * u * u
        mean = np.float64(s1) / np.float64(s)
        u_y = np.float64(row[y[i]]) - np.float64(top)
        out[0, i] = beta * u_y - np.log(np.float64(s))
        out[1, i] = u_y - mean
        out[2, i] = max(np.float64(s2) / np.float64(s) - mean * mean, 0.0)


def nll_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Log-probability of the label and its two derivatives' parts: log p_y, x_y - E_p[x], Var_p[x]."""
    out = np.empty((3, len(x)))
    _nll_rows(x, y, x.dtype.type(beta), out)
    return out


@njit(**_JIT)  # type: ignore[untyped-decorator]
def _brier_rows(x: Any, y: Any, beta: Any, mixture: bool, scratch: Any, out: Any) -> None:
    zero = x.dtype.type(0)
    for i in range(x.shape[0]):
        row = x[i]
        top = _row_max(row)
        s, s1 = zero, zero
        for j in range(row.shape[0]):
            u = row[j] - top
            e = _exp(beta * u)
            scratch[0, j] = e
            s += e
            s1 += e * u
        mean = s1 / s
        pp, pd, dd, spread = zero, zero, zero, zero
        for j in range(row.shape[0]):
            e = scratch[0, j]
            lead = row[j] - top - mean
            pp += e * e
            pd += e * e * lead
            dd += e * e * lead * lead
            spread += e * lead * lead
        p_y = np.float64(scratch[0, y[i]]) / np.float64(s)
        u_y = np.float64(row[y[i]]) - np.float64(top)
        square = np.float64(s) * np.float64(s)
        out[0, i] = p_y
        out[1, i] = p_y * (u_y - np.float64(mean))
        out[2, i] = np.float64(pp) / square
        out[3, i] = np.float64(pd) / square
        out[4, i] = np.float64(dd) / square
        out[5, i] = np.float64(spread) / np.float64(s)
        if mixture:
            t, qq, pq, qd, qdd = zero, zero, zero, zero, zero
            for j in range(row.shape[0]):
                u = row[j] - top
                f = _exp(u)
                e = scratch[0, j]
                t += f
                qq += f * f
                pq += e * f
                qd += e * f * (u - mean)
                qdd += e * f * (u - mean) * (u - mean)
            f_y = _exp(row[y[i]] - top)
            cross = np.float64(s) * np.float64(t)
            out[6, i] = np.float64(f_y) / np.float64(t)
            out[7, i] = np.float64(qq) / (np.float64(t) * np.float64(t))
            out[8, i] = np.float64(pq) / cross
            out[9, i] = np.float64(qd) / cross
            out[10, i] = np.float64(qdd) / cross


def brier_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Parts of the squared error and of its derivatives: p_y, dp_y, sum p^2, sum p dp, sum dp^2, Var_p[x]."""
    out = np.empty((6, len(x)))
    _brier_rows(x, y, x.dtype.type(beta), False, np.empty((1, x.shape[1]), x.dtype), out)
    return out


def mixture_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Parts of the squared error of w1 softmax(beta x) + w2 softmax(x) + w3 / L."""
    out = np.empty((11, len(x)))
    _brier_rows(x, y, x.dtype.type(beta), True, np.empty((1, x.shape[1]), x.dtype), out)
    return out


@njit(**_JIT)  # type: ignore[untyped-decorator]
def _mixture_into(x: Any, beta: Any, w1: Any, w2: Any, w3: Any, tiny: Any, out: Any) -> None:
    zero = x.dtype.type(0)
    for i in range(x.shape[0]):
        row = x[i]
        target = out[i]
        top = _row_max(row)
        s, t = zero, zero
        for j in range(row.shape[0]):
            e = _exp(beta * (row[j] - top))
            target[j] = e
            s += e
        scale = w1 / s
        if w2 > 0:
            for j in range(row.shape[0]):
                t += _exp(row[j] - top)
            plain = w2 / t
            for j in range(row.shape[0]):
                target[j] = max(scale * target[j] + plain * _exp(row[j] - top) + w3, tiny)
        else:
            for j in range(row.shape[0]):
                target[j] = max(scale * target[j] + w3, tiny)


def softmax_into(x: Block, beta: float, out: Block) -> None:
    """Write out = softmax(beta x), row by row."""
    mixture_into(x, beta, np.array([1.0, 0.0, 0.0]), out)


def mixture_into(x: Block, beta: float, weights: NDArray[np.float64], out: Block) -> None:
    """Write out = w1 softmax(beta x) + w2 softmax(x) + w3 / L, row by row."""
    real = x.dtype.type
    w1, w2, w3 = real(weights[0]), real(weights[1]), real(weights[2] / x.shape[1])
    _mixture_into(x, real(beta), w1, w2, w3, np.finfo(x.dtype).tiny, out)


@njit(**_JIT)  # type: ignore[untyped-decorator]
def _interpolate_into(
    x: Any, bits: Any, shift: Any, first: Any, last: Any, knots: Any, values: Any, slopes: Any, left: Any, out: Any
) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            cell = bits[i, j] >> shift
            low, high = first[cell], last[cell]
            if low < high:
                v = np.float64(x[i, j])
                while low < high:
                    middle = (low + high + 1) >> 1
                    if knots[middle] <= v:
                        low = middle
                    else:
                        high = middle - 1
            if low < 0:
                out[i, j] = left
            else:
                out[i, j] = values[low] + slopes[low] * (np.float64(x[i, j]) - knots[low])


def interpolate_into(x: Block, function: Piecewise, out: Block) -> None:
    """Write out = function(x) for every entry of a contiguous block with entries in [0, 1]."""
    lookup = function.lookup(x.dtype)
    bits = x.view(np.int32 if x.dtype.itemsize == 4 else np.int64)
    _interpolate_into(
        x, bits, lookup.shift, lookup.first, lookup.last,
        function.knots, function.values, function.slopes, function.left, out,
    )  # fmt: skip


@njit(**_JIT)  # type: ignore[untyped-decorator]
def _interpolate_columns_into(x: Any, knots: Any, values: Any, slopes: Any, left: Any, offsets: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            v = np.float64(x[i, j])
            low, high = offsets[j] - 1, offsets[j + 1] - 1
            while low < high:
                middle = (low + high + 1) >> 1
                if knots[middle] <= v:
                    low = middle
                else:
                    high = middle - 1
            if low < offsets[j]:
                out[i, j] = left[j]
            else:
                out[i, j] = values[low] + slopes[low] * (v - knots[low])


def interpolate_columns_into(
    x: Block, knots: Rows, values: Rows, slopes: Rows, left: Rows, offsets: NDArray[np.int64], out: Block
) -> None:
    """Write out[:, k] = k-th function(x[:, k]): the functions are stored end to end, the k-th from offsets[k] on."""
    _interpolate_columns_into(x, knots, values, slopes, left, offsets, out)


@njit(**_JIT)  # type: ignore[untyped-decorator]
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
        from mixnmatch.kernels import _numpy

        _numpy.add_gaps(x, row_weight, knots, weight, score_sum, largest)
        return
    bits = x.view(np.int32 if x.dtype.itemsize == 4 else np.int64)
    row_weight = np.empty(0) if row_weight is None else row_weight
    _add_gaps(x, bits, row_weight, *knots.cells(x.dtype), knots.values, weight, score_sum, largest)


@njit(**_JIT)  # type: ignore[untyped-decorator]
def _log_sum(row: Any, top: Any) -> Any:
    total = 0.0
    for j in range(row.shape[0]):
        total += _exp64(np.float64(row[j]) - top)
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
        top = np.float64(_row_max(row))
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

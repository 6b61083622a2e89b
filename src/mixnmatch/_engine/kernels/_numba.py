"""Fused kernels compiled by Numba: one read of a block for everything a pass needs (extra `fast`).

The exponential is :mod:`._numba_exp`'s; kernels of the logistic families are in
:mod:`._numba_logistic`, those that count entries between knots in :mod:`._numba_gaps`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mixnmatch._engine.kernels._numba_exp import JIT, exp, row_max
from mixnmatch._engine.kernels._numba_gaps import add_gaps, add_gaps_of_logits
from mixnmatch._engine.kernels._numba_logistic import log_odds_parts, logistic_sums, sigmoid_mixture_rows
from mixnmatch._engine.kernels._numpy import linear_softmax_into, mixture_rows_of_two
from mixnmatch._engine.kernels.lookup import Piecewise

__all__ = [
    "add_gaps",
    "add_gaps_of_logits",
    "brier_rows",
    "interpolate_columns_into",
    "interpolate_into",
    "linear_softmax_into",
    "log_odds_parts",
    "logistic_sums",
    "mixture_into",
    "mixture_rows",
    "nll_rows",
    "sigmoid_mixture_rows",
    "softmax_into",
]

Block = NDArray[Any]
Labels = NDArray[np.intp]
Rows = NDArray[np.float64]


@njit(**JIT)  # type: ignore[untyped-decorator]
def _nll_rows(x: Any, y: Any, beta: Any, out: Any) -> None:
    zero = x.dtype.type(0)
    for i in range(x.shape[0]):
        row = x[i]
        top = row_max(row)
        s, s1, s2 = zero, zero, zero
        for j in range(row.shape[0]):
            u = row[j] - top
            e = exp(beta * u)
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


@njit(**JIT)  # type: ignore[untyped-decorator]
def _brier_rows(x: Any, y: Any, beta: Any, mixture: bool, scratch: Any, out: Any) -> None:
    zero = x.dtype.type(0)
    for i in range(x.shape[0]):
        row = x[i]
        top = row_max(row)
        s, s1 = zero, zero
        for j in range(row.shape[0]):
            u = row[j] - top
            e = exp(beta * u)
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
                f = exp(u)
                e = scratch[0, j]
                t += f
                qq += f * f
                pq += e * f
                qd += e * f * (u - mean)
                qdd += e * f * (u - mean) * (u - mean)
            f_y = exp(row[y[i]] - top)
            cross = np.float64(s) * np.float64(t)
            out[6, i] = np.float64(f_y) / np.float64(t)
            out[7, i] = np.float64(qq) / (np.float64(t) * np.float64(t))
            out[8, i] = np.float64(pq) / cross
            out[9, i] = np.float64(qd) / cross
            out[10, i] = np.float64(qdd) / cross


def brier_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Parts of the squared error and of its derivatives: p_y, dp_y, sum p^2, sum p dp, sum dp^2, Var_p[x]."""
    if x.shape[1] == 2:
        return mixture_rows_of_two(x, y, beta, mixture=False)
    out = np.empty((6, len(x)))
    _brier_rows(x, y, x.dtype.type(beta), False, np.empty((1, x.shape[1]), x.dtype), out)
    return out


def mixture_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Parts of the squared error of w1 softmax(beta x) + w2 softmax(x) + w3 / L."""
    if x.shape[1] == 2:
        return mixture_rows_of_two(x, y, beta, mixture=True)
    out = np.empty((11, len(x)))
    _brier_rows(x, y, x.dtype.type(beta), True, np.empty((1, x.shape[1]), x.dtype), out)
    return out


@njit(**JIT)  # type: ignore[untyped-decorator]
def _mixture_into(x: Any, beta: Any, w1: Any, w2: Any, w3: Any, tiny: Any, out: Any) -> None:
    zero = x.dtype.type(0)
    for i in range(x.shape[0]):
        row = x[i]
        target = out[i]
        top = row_max(row)
        s, t = zero, zero
        for j in range(row.shape[0]):
            e = exp(beta * (row[j] - top))
            target[j] = e
            s += e
        scale = w1 / s
        if w2 > 0:
            for j in range(row.shape[0]):
                t += exp(row[j] - top)
            plain = w2 / t
            for j in range(row.shape[0]):
                target[j] = max(scale * target[j] + plain * exp(row[j] - top) + w3, tiny)
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


@njit(**JIT)  # type: ignore[untyped-decorator]
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


@njit(**JIT)  # type: ignore[untyped-decorator]
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

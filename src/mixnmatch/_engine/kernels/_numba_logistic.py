"""Compiled kernels of the logistic families: scores as log-odds, sums of binary problems, rows of a mixture.

``log(1 + e)`` and ``log(1 - p)`` are needed for e up to 1 and p up to 1/2. There both are series of atanh in an
argument of at most 1/3, which the compiler can run on whole vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mixnmatch._engine.kernels._numba_exp import JIT, exp64

Rows = NDArray[np.float64]
# Sums of g below this are taken of exponentials that are brought to the size of 1.
_TINY = 1e-250
# Sums of exponentials below this have lost digits: they are taken relative to the largest.
_UNDERFLOW = 1e-290
_C3, _C5, _C7, _C9, _C11, _C13, _C15, _C17 = (1 / k for k in range(3, 18, 2))
_C19, _C21, _C23, _C25, _C27, _C29, _C31, _C33 = (1 / k for k in range(19, 34, 2))


@njit(**JIT)  # type: ignore[untyped-decorator]
def _twice_atanh(s: Any) -> Any:
    """2 atanh(s) = log((1 + s) / (1 - s)) for 0 <= s <= 1/3."""
    q = s * s
    high = _C19 + q * (_C21 + q * (_C23 + q * (_C25 + q * (_C27 + q * (_C29 + q * (_C31 + q * _C33))))))
    low = _C7 + q * (_C9 + q * (_C11 + q * (_C13 + q * (_C15 + q * (_C17 + q * high)))))
    return 2.0 * s * (1.0 + q * (_C3 + q * (_C5 + q * low)))


@njit(**JIT)  # type: ignore[untyped-decorator]
def _log_sum_of_others(row: Any, top: Any) -> Any:
    """Logarithm of the sum of exponentials of all entries but one, also where they underflow."""
    second = -1.7976931348623157e308
    for j in range(row.shape[0]):
        if j != top:
            second = max(second, np.float64(row[j]))
    total = 0.0
    for j in range(row.shape[0]):
        if j != top:
            total += exp64(row[j] - second)
    return second + np.log(total) if total > 0 else second


@njit(**JIT)  # type: ignore[untyped-decorator]
def _log_odds_into(x: Any, logits: bool, lowest: Any, p: Any, log_p: Any, log_not: Any) -> None:
    for i in range(x.shape[0]):
        row = x[i]
        top = row.argmax()
        shift = np.float64(row[top]) if logits else 0.0
        total = 0.0
        for j in range(p.shape[0]):
            p[j] = exp64(row[j] - shift)
            total += p[j]
        rest = 0.0
        if not logits:
            total = 1.0
        large = p[top] > 0.5 * total
        if large:
            p[top] = 0.0
            for j in range(p.shape[0]):
                rest += p[j]
        to, shift = log_p[i], shift + np.log(total)
        for j in range(p.shape[0]):
            to[j] = max(row[j] - shift, lowest)
        to = log_not[i]
        for j in range(p.shape[0]):
            to[j] = max(-_twice_atanh(p[j] / (2.0 * total - p[j])), lowest)
        # Next to 1 the difference 1 - p has no digits left: there it is the sum of the other entries. Not below 1/2,
        # where several entries may be equal and must stay so.
        if not large:
            continue
        if rest >= _UNDERFLOW:
            to[top] = max(np.log(rest / total), lowest)
        else:
            to[top] = max(_log_sum_of_others(row, top) - shift, lowest)


@njit(**JIT)  # type: ignore[untyped-decorator]
def _log_odds_of_two_into(x: Any, lowest: Any, log_p: Any, log_not: Any) -> None:
    for i in range(x.shape[0]):
        lead = np.float64(x[i, 0]) - np.float64(x[i, 1])
        e = exp64(-abs(lead))
        rest = _twice_atanh(e / (2.0 + e))
        first = max(0.5 * (lead - abs(lead)) - rest, lowest)
        second = max(-0.5 * (lead + abs(lead)) - rest, lowest)
        log_p[i, 0] = log_not[i, 1] = first
        log_p[i, 1] = log_not[i, 0] = second


def log_odds_parts(x: NDArray[Any], lowest: float, *, logits: bool) -> tuple[Rows, Rows]:
    """Log p and log(1 - p) of every entry, neither below ``lowest``, of logits or of log-probabilities."""
    if x.shape[1] == 2 and not logits:  # what is not the one is the other
        clipped = np.maximum(x, lowest, dtype=np.float64)
        return clipped, clipped[:, ::-1].copy()
    x = np.ascontiguousarray(x)
    log_p, log_not = np.empty(x.shape), np.empty(x.shape)
    if x.shape[1] == 2:
        _log_odds_of_two_into(x, lowest, log_p, log_not)
    else:
        _log_odds_into(x, logits, lowest, np.empty(x.shape[1]), log_p, log_not)
    return log_p, log_not


@njit(**JIT)  # type: ignore[untyped-decorator]
def _logistic_sums(
    first: Any, second: Any, positive: Any, weight: Any, theta: Any, targets: Any, brier: bool, out: Any
) -> None:
    for k in range(first.shape[0]):
        a, b, c = theta[k, 0], theta[k, 1], theta[k, 2]
        low, gap = targets[0, k], targets[1, k] - targets[0, k]
        total, in_a, in_b, in_c = 0.0, 0.0, 0.0, 0.0
        aa, ab, ac, bb, bc, cc = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(first.shape[1]):
            u, v, w = first[k, i], second[k, i], weight[i]
            x = a * u + b * v + c
            t = low + positive[k, i] * gap
            e = exp64(-abs(x))
            r = 1.0 / (1.0 + e)
            p = r if x >= 0 else e * r
            spread = e * r * r
            if brier:
                value = (p - t) * (p - t)
                slope = 2.0 * w * (p - t) * spread
                curve = 2.0 * w * spread * spread
            else:
                value = 0.5 * (x + abs(x)) - x * t + _twice_atanh(e / (2.0 + e))
                slope = w * (p - t)
                curve = w * spread
            total += w * value
            in_a += slope * u
            in_b += slope * v
            in_c += slope
            aa += curve * u * u
            ab += curve * u * v
            ac += curve * u
            bb += curve * v * v
            bc += curve * v
            cc += curve
        out[k, 0], out[k, 1], out[k, 2], out[k, 3] = total, in_a, in_b, in_c
        out[k, 4], out[k, 5], out[k, 6], out[k, 7], out[k, 8], out[k, 9] = aa, ab, ac, bb, bc, cc


def logistic_sums(
    first: Rows, second: Rows | None, positive: NDArray[np.bool_], weight: Rows, theta: Rows, targets: Rows, loss: str
) -> Rows:
    """Loss, gradient (a, b, c) and curvature (aa, ab, ac, bb, bc, cc) of K logistic fits to K x m entries."""
    second = first if second is None else second  # its slope is 0 then
    out = np.empty((len(first), 10))
    _logistic_sums(first, second, positive.view(np.uint8), weight, theta, targets, loss == "brier", out)
    return out


@njit(**JIT)  # type: ignore[untyped-decorator]
def _shares(log_p: Any, log_not: Any, theta: Any, g: Any, rest: Any) -> None:
    """Values of g over their sum in a row, and the derivative of log g in its argument."""
    a, b, c = theta[0], theta[1], theta[2]
    total = 0.0
    for j in range(log_p.shape[0]):
        x = a * log_p[j] - b * log_not[j] + c
        e = exp64(-abs(x))
        r = 1.0 / (1.0 + e)
        g[j] = r if x >= 0 else e * r
        rest[j] = e * r if x >= 0 else r
        total += g[j]
    if total >= _TINY:
        for j in range(log_p.shape[0]):
            g[j] /= total
        return
    total, top = 0.0, -np.inf  # a row of zeros, almost: there g is the exponential of its argument
    for j in range(log_p.shape[0]):
        top = max(top, a * log_p[j] - b * log_not[j] + c)
    for j in range(log_p.shape[0]):
        g[j] = exp64(a * log_p[j] - b * log_not[j] + c - top)
        total += g[j]
    for j in range(log_p.shape[0]):
        g[j] /= total


@njit(**JIT)  # type: ignore[untyped-decorator]
def _sigmoid_mixture_rows(
    log_p: Any, log_not: Any, p: Any, y: Any, theta: Any, w: Any, brier: bool, scratch: Any, out: Any
) -> None:
    free, classes = theta.shape[0], log_p.shape[1]
    fixed = w.shape[0] > free
    mixed = scratch[2 * free]
    at_w = 1 + 3 * free
    for i in range(log_p.shape[0]):
        plain, label = p[i], y[i]
        for f in range(free):
            _shares(log_p[i], log_not[i], theta[f], scratch[2 * f], scratch[2 * f + 1])
        for j in range(classes):
            mixed[j] = (w[free] * plain[j] + w[free + 1] / classes) if fixed else 0.0
        for f in range(free):
            share = scratch[2 * f]
            for j in range(classes):
                mixed[j] += w[f] * share[j]
        if brier:  # from here on ``mixed`` is the slope of the loss in what is mixed
            mixed[label] -= 1.0
            value = 0.0
            for j in range(classes):
                value += mixed[j] * mixed[j]
                mixed[j] *= 2.0
        else:
            at = max(mixed[label], 1e-300)
            value = -np.log(at)
            mixed[:] = 0.0
            mixed[label] = -1.0 / at
        out[0, i] = value
        for f in range(free):
            share, rest = scratch[2 * f], scratch[2 * f + 1]
            mean = 0.0
            for j in range(classes):
                mean += mixed[j] * share[j]
            in_a, in_b, in_c = 0.0, 0.0, 0.0
            for j in range(classes):
                inner = (mixed[j] - mean) * share[j] * rest[j]
                in_a += inner * log_p[i, j]
                in_b -= inner * log_not[i, j]
                in_c += inner
            out[1 + 3 * f, i] = w[f] * in_a
            out[2 + 3 * f, i] = w[f] * in_b
            out[3 + 3 * f, i] = w[f] * in_c
            out[at_w + f, i] = mean
        if fixed:
            in_plain, in_uniform = 0.0, 0.0
            for j in range(classes):
                in_plain += mixed[j] * plain[j]
                in_uniform += mixed[j]
            out[at_w + free, i] = in_plain
            out[at_w + free + 1, i] = in_uniform / classes


def sigmoid_mixture_rows(
    log_p: Rows, log_not: Rows, p: Rows, y: NDArray[np.intp], theta: Rows, w: Rows, loss: str
) -> Rows:
    """Loss of each row under a mixture of normalised sigmoids, and its gradient in all theta (F x 3) and weights.

    Members beyond those of ``theta`` are ``p`` itself and the uniform distribution.
    """
    out = np.empty((1 + theta.size + len(w), len(y)))
    scratch = np.empty((2 * len(theta) + 1, log_p.shape[1]))
    _sigmoid_mixture_rows(log_p, log_not, p, y, theta, w, loss == "brier", scratch, out)
    return out

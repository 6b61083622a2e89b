"""NumPy kernels of the logistic families: log-odds, and sums for many binary fits at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import row_maxima, row_sums

Block = NDArray[Any]
Rows = NDArray[np.float64]
# Sums of exponentials below this have lost digits: they are taken relative to the largest.
_UNDERFLOW = 1e-290


def log_odds_parts(x: Block, lowest: float, *, logits: bool) -> tuple[Rows, Rows]:
    """Log p and log(1 - p) of every entry, neither below ``lowest``, of logits or of log-probabilities."""
    log_p = x.astype(np.float64)
    if logits:
        log_p -= row_maxima(log_p)[:, None]
        log_p -= np.log(row_sums(np.exp(log_p)))[:, None]
    if x.shape[1] == 2:
        np.maximum(log_p, lowest, out=log_p)
        return log_p, log_p[:, ::-1].copy()
    p = np.exp(log_p)
    with np.errstate(divide="ignore"):
        log_not = np.log1p(-np.minimum(p, 1.0))
        # Next to 1 the difference 1 - p has no digits left: there it is the sum of the other entries. Not below 1/2,
        # where several entries may be equal and must stay so.
        rows, top = np.arange(len(p)), p.argmax(axis=1)
        large = p[rows, top] > 0.5
        p[rows, top] = 0.0
        rest = row_sums(p)
        log_not[rows[large], top[large]] = np.log(rest[large])
        far = np.flatnonzero(rest < _UNDERFLOW)
        if lowest < np.log(_UNDERFLOW) and far.size:
            others = log_p[far]
            others[np.arange(len(far)), top[far]] = -np.inf
            second = np.maximum(row_maxima(others), -np.finfo(float).max)
            log_not[far, top[far]] = second + np.log(row_sums(np.exp(others - second[:, None])))
    return np.maximum(log_p, lowest, out=log_p), np.maximum(log_not, lowest, out=log_not)


def log_odds_of_columns(u: Rows, norm: Rows, log_rest: Rows, lowest: float) -> Rows:
    """Log p, in place of u, and log(1 - p) of K x m logarithms, neither below ``lowest``.

    ``norm`` is subtracted from u, and ``log_rest`` is log(1 - p) of the largest entry of each of the m samples.
    """
    u -= norm
    p = np.exp(u)
    log_not = np.where(p > 0.5, log_rest, np.log1p(-np.minimum(p, 0.5)))
    np.maximum(u, lowest, out=u)
    return np.maximum(log_not, lowest, out=log_not)


def logistic_sums(
    first: Rows, second: Rows | None, positive: NDArray[np.bool_], weight: Rows, theta: Rows, targets: Rows, loss: str
) -> Rows:
    """Loss, gradient (a, b, c) and curvature (aa, ab, ac, bb, bc, cc) of K logistic fits to K x m entries."""
    a, b, c = theta.T[:, :, None]
    x = a * first
    if second is not None:
        x += b * second
    x += c
    t = np.where(positive, targets[1][:, None], targets[0][:, None])
    e = np.exp(-np.abs(x))
    r = 1.0 / (1.0 + e)
    p = np.where(x >= 0, r, e * r)
    spread = p * (1.0 - p)
    if loss == "brier":
        value, slope, curve = np.square(p - t), 2.0 * (p - t) * spread, 2.0 * spread * spread
    else:
        value, slope, curve = np.maximum(x, 0) - x * t + np.log1p(e), p - t, spread
    slope *= weight
    curve *= weight
    out = np.zeros((len(first), 10))
    value *= weight
    out[:, 0], out[:, 3], out[:, 9] = value.sum(axis=1), slope.sum(axis=1), curve.sum(axis=1)
    scaled = curve * first
    out[:, 1], out[:, 4], out[:, 6] = _dots(slope, first), _dots(scaled, first), scaled.sum(axis=1)
    if second is not None:
        out[:, 2], out[:, 5] = _dots(slope, second), _dots(scaled, second)
        curve *= second
        out[:, 7], out[:, 8] = _dots(curve, second), curve.sum(axis=1)
    return out


def _dots(left: Rows, right: Rows) -> Rows:
    return np.asarray(np.einsum("ij,ij->i", left, right))

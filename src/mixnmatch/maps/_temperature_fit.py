"""Fits temperature scaling: a search in one number, for log loss and for squared error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import picked, row_maxima, row_sums
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch.maps._solve import LEAST_MEAN, STEEPEST, minimise_scalar
from mixnmatch.maps.temperature import PREVIEW_ROWS

# Inverse temperatures this many times smaller than the spread of the scores are as good as zero.
FLOOR = 1e-6


class Fitted(NamedTuple):
    """An inverse temperature, the mean loss there, the end of (0, inf) it ran to if any, and what is left to gain."""

    beta: float
    loss: float
    bound: str | None = None
    residual: float = 0.0


def fit(source: Rows, loss: str, floor: float, tolerance: float | None) -> Fitted:
    """Inverse temperature with the least loss; see ``fit_beta``."""
    source = source.as_log_odds(floor)
    preview = source.preview(PREVIEW_ROWS)
    # Float32 kernels round beta: evaluated where rounding changes nothing, one last Newton step is exact enough.
    single = source.scores.dtype == np.float32 and not source.chain
    tolerance = tolerance or (1e-5 if single else 1e-10)
    # At beta = 0 nothing is saturated: the curvature there gives the scale of the scores, whatever it is.
    curvature = preview.total(_nll_statistic, 0.0, floor)[2]
    if curvature <= 0:  # constant scores, in the preview at least
        curvature = source.total(_nll_statistic, 0.0, floor)[2]
    if curvature <= 0:
        statistic = _nll_statistic if loss == "nll" else _brier_statistic
        return Fitted(1.0, float(source.total(statistic, 1.0, floor)[0] / source.total_weight()))
    unit = min(float(np.sqrt(preview.total_weight() / curvature)), STEEPEST)  # spread of the scores is 1 / unit
    starts = [unit]
    if preview is not source or loss == "brier":
        first = _fit_nll(preview, unit, unit, floor, tolerance=1e-2)
        starts = [first.beta, unit] if first.bound == "uniform" else [first.beta]
    if loss == "nll":
        return _fit_nll(source, starts[0], unit, floor, tolerance=tolerance, single=single)
    return _fit_brier(source, preview, starts, unit, floor, tolerance=tolerance, single=single)


def _fit_nll(
    source: Rows, start: float, unit: float, floor: float, *, tolerance: float, single: bool = False
) -> Fitted:
    """Least log loss, which is convex in beta, and its two ends: uniform and separable."""
    n, low = source.total_weight(), FLOOR * unit

    def statistic(beta: float) -> NDArray[np.float64]:
        return source.total(_nll_statistic, beta, floor)

    search = partial(minimise_scalar, statistic, tolerance=tolerance, single=single, reach=16.0, low=low)
    target = certain_loss(n) * n

    def enough(value: float, promised: float, moved: float) -> bool:
        """Whether it is time to preview up if all labels lead or tie: long steps gain nothing any more."""
        return value <= target or (promised <= 1e-6 * value and moved > 0.01)

    minimum = search(start, enough=enough)
    if minimum.end == "high":
        separable = _separable_beta(source, statistic, minimum.beta, floor)
        if separable is not None:
            return separable
        minimum = search(minimum.beta)
    bound = {"low": "uniform", "high": "separable", None: None}[minimum.end]
    residual = 0.0 if bound else minimum.promised / max(minimum.value, LEAST_MEAN * n)
    return Fitted(minimum.beta, float(minimum.value / n), bound, residual)


def certain_loss(n: float) -> float:
    """Mean log loss of a map that may be right on all of n samples: Jeffreys' probability (n + 1/2) / (n + 1)."""
    return float(np.log1p(0.5 / (n + 0.5)))


def _separable_beta(
    source: Rows, statistic: Callable[[float], NDArray[np.float64]], beta: float, floor: float
) -> Fitted | None:
    """Inverse temperature for samples of which every label leads or ties; None if some label is behind."""
    from scipy.optimize import brentq

    behind, ties = source.total(_order_statistic, floor)
    if behind > 0:
        return None
    n = source.total_weight()
    target = certain_loss(n) * n

    def excess(log_beta: float) -> float:
        value = float(statistic(float(np.exp(log_beta)))[0]) - ties
        return float(np.log(max(value, 1e-300) / target))

    low = high = float(np.log(beta))
    while excess(low) < 0:
        if low < -np.log(STEEPEST):
            return None  # all classes tie, up to rounding: no temperature is better than another
        low, high = low - 1.0, low
    while excess(high) > 0 and high < np.log(STEEPEST):
        low, high = high, high + 1.0
    if low < high < np.log(STEEPEST):
        low = brentq(excess, low, high, xtol=1e-12, rtol=1e-12)
    separable = float(np.exp(low))
    return Fitted(separable, float(statistic(separable)[0] / n), "separable")


def _order_statistic(block: Block, floor: float) -> NDArray[np.float64]:
    """Weight of the samples whose label is behind another class, and log loss of ties at temperature 0."""
    x = block.log_scores(floor)
    if not len(x):
        return np.zeros(2)
    top = row_maxima(x)
    ties = np.log(row_sums((x == top[:, None]).astype(np.float64)))
    return block.weighted_sum(np.stack([(picked(x, block.y) < top).astype(np.float64), ties]))


def _nll_statistic(block: Block, beta: float, floor: float) -> NDArray[np.float64]:
    rows = block.kernels.nll_rows(block.log_scores(floor), block.y, beta)
    return np.asarray(block.weighted_sum(rows) * np.array([-1.0, -1.0, 1.0]))


def _brier_statistic(block: Block, beta: float, floor: float) -> NDArray[np.float64]:
    p_y, slope_y, square, slope, slope_square, variance = block.kernels.brier_rows(
        block.log_scores(floor), block.y, beta
    )
    # p'' = p ((x - E x)^2 - Var x), and p (x - E x) is the slope.
    bend_y = np.divide(slope_y**2, p_y, out=np.zeros_like(p_y), where=p_y > 0) - variance * p_y
    bend = 2 * slope_square - variance * square
    return block.weighted_sum(np.stack([1 - 2 * p_y + square, 2 * (slope - slope_y), 2 * (bend - bend_y)]))


def _fit_brier(
    source: Rows, preview: Rows, starts: list[float], unit: float, floor: float, *, tolerance: float, single: bool
) -> Fitted:
    """Zero of the slope of the squared error next to the best node of a grid in log beta."""
    n, low = source.total_weight(), FLOOR * unit

    def on(rows: Rows) -> Callable[[float], NDArray[np.float64]]:
        return lambda beta: rows.total(_brier_statistic, beta, floor)

    _, centre = min(best_node(lambda beta: float(on(preview)(beta)[0]), start, low) for start in starts)
    if preview is not source:
        centre = minimise_scalar(on(preview), centre, tolerance=1e-2, single=single, low=low).beta
    minimum = minimise_scalar(on(source), centre, tolerance=tolerance, single=single, low=low)
    if minimum.end == "high" or minimum.value <= LEAST_MEAN * n:
        # The squared error vanishes on the way up: the log loss says how certain the samples let the map be.
        by_nll = _fit_nll(source, minimum.beta, unit, floor, tolerance=tolerance, single=single)
        if by_nll.bound == "separable":
            return by_nll._replace(loss=float(on(source)(by_nll.beta)[0] / n))
    bound = {"low": "uniform", "high": "separable", None: None}[minimum.end]
    residual = 0.0 if bound else minimum.promised / max(minimum.value, LEAST_MEAN * n)
    return Fitted(minimum.beta, minimum.value / n, bound, residual)


def best_node(value: Callable[[float], float], start: float, low: float) -> tuple[float, float]:
    """Least value on the grid ``start * 2^k``, and where; the grid moves on while its best node is at an end."""
    known: dict[int, float] = {}
    centre = 0
    while low <= start * 2.0**centre <= STEEPEST:
        for k in range(centre - 2, centre + 3):
            if k not in known:
                known[k] = value(start * 2.0**k)
        best = min(known, key=lambda k: (known[k], abs(k)))
        if min(known) < best < max(known):
            break
        centre = best
    return known[best], start * 2.0**best

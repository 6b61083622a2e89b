"""Temperature scaling: one number for all classes, found exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import picked, row_maxima, row_sums
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch.maps._solve import LEAST_MEAN, STEEPEST, certify, minimise_scalar
from mixnmatch.maps.base import ONE_KERNEL_BYTES, CalibrationMap
from mixnmatch.maps.fitted import check_range

LOSSES = ("nll", "brier")
# Rows that a first, cheap look at the data takes.
LOOK = 1024
# Inverse temperatures this many times smaller than the spread of the scores are as good as zero.
FLOOR = 1e-6


class TemperatureScaling(CalibrationMap):
    r"""Temperature scaling (Guo et al. 2017): :math:`T(z; t)_l = z_l^{1/t} / \sum_k z_k^{1/t}`.

    Parameters
    ----------
    loss : {"nll", "brier"}
        What is minimised on the calibration set: log loss, or squared error as in the paper.
    logits : bool
        Whether scores are logits rather than probabilities.
    classes : sequence, optional
        Names of the columns, needed where labels are not column indices and a class may be absent.
    weights : {"frequency", "importance"}
        What sample weights mean.

    Attributes
    ----------
    beta_ : float
        Inverse temperature 1 / t, positive.
    temperature_ : float
        Temperature t.
    loss_ : float
        Mean loss on the calibration set.
    bound_ : str or None
        "separable" if the log loss decreases as t goes to 0 (every label is the predicted class): t then is where the
        mean probability of the label is about (n + 1/2) / (n + 1), which is as much as n samples without an error tell.
        "uniform" if the log loss decreases as t goes to infinity (scores without information, or reversed ones): t then
        is so large that going on no longer matters.
    backend_ : str
        Kernels that the fit used.

    Notes
    -----
    Log loss is convex in beta = 1/t. Newton's method with a bracket finds the optimum in a few passes over the rows;
    the search runs in all of (0, inf), so no bound can bind. Squared error is not convex in beta: a grid around the
    optimum of the log loss is scanned on a sample of the rows, and the zero of the derivative next to its best node is
    found on all of them.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017). On calibration of modern neural networks. ICML.

    Examples
    --------
    >>> scores = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
    >>> map = TemperatureScaling().fit(scores, [0, 1, 1, 1])
    >>> map.predict_proba([[0.9, 0.1]]).round(3)
    array([[0.787, 0.213]])
    """

    _fitted_by_blas = False

    accuracy_preserving = True
    injective = True
    _fitted: ClassVar[tuple[str, ...]] = ("beta_", "probability_floor_", "loss_", "bound_", "backend_")
    _block_bytes = ONE_KERNEL_BYTES

    beta_: float
    probability_floor_: float
    loss_: float
    bound_: str | None
    backend_: str

    def __init__(self, *, loss: str = "nll", logits: bool = False, classes: Any = None, weights: str = "frequency"):
        self.loss = loss
        self.logits = logits
        self.classes = classes
        self.weights = weights

    @property
    def temperature_(self) -> float:
        """Temperature 1 / beta."""
        return 1 / self.beta_

    def _check_params(self) -> None:
        check_loss(self.loss)

    def _check_fitted(self) -> None:
        check_range(self, "beta_", 0.0)
        check_range(self, "probability_floor_", 0.0, 1.0)

    def _fit(self, source: Rows) -> dict[str, Any]:
        floor = source.probability_floor()
        fitted = fit_beta(source, self.loss, floor)
        certify(type(self).__name__, fitted.residual)
        return {
            "beta_": rounded(fitted.beta),
            "probability_floor_": floor,
            "loss_": fitted.loss,
            "bound_": fitted.bound,
            "backend_": source.backend,
        }

    def _proba_into(self, block: Block, out: NDArray[Any]) -> None:
        block.kernels.softmax_into(block.log_scores(self.probability_floor_), self.beta_, out)

    def _log_proba(self, block: Block) -> NDArray[np.float64]:
        return log_softmax(np.asarray(self.beta_ * block.log_scores(self.probability_floor_), dtype=np.float64))


def check_loss(loss: str) -> None:
    """Raise an error unless ``loss`` is one that maps can minimise."""
    if loss not in LOSSES:
        msg = f'loss must be "nll" or "brier", got {loss!r}'
        raise ValueError(msg)


# Significant bits that fitted numbers keep. Sums over rows agree to 50 bits or so however the rows are cut and whatever
# computes them, so that rounding leaves the same number; a step function after the map then sees the same scores, and
# the same ties, to the last bit.
KEPT_BITS = 36


def rounded(value: float) -> float:
    """A fitted number without the bits that depend on the order of a sum."""
    fraction, power = math.frexp(value)
    return math.ldexp(round(math.ldexp(fraction, KEPT_BITS)), power - KEPT_BITS)


def rounded_weights(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of an ensemble without such bits; they still sum to 1, and zeros stay zeros."""
    whole = np.round(np.ldexp(weights, KEPT_BITS))
    whole[whole.argmax()] += 2.0**KEPT_BITS - whole.sum()
    return np.asarray(np.ldexp(whole, -KEPT_BITS))


# Weight that members which look at the scores keep between them in an ensemble, so that the order of a row survives.
INFORMATIVE = 1e-6


def keep_informative(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of an ensemble whose last member is the uniform prediction, never all on that one."""
    if weights[:-1].sum() >= INFORMATIVE:
        return weights
    kept = np.zeros_like(weights)
    kept[0], kept[-1] = INFORMATIVE, 1 - INFORMATIVE
    return kept


def log_softmax(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of the softmax of each row, in place."""
    u -= row_maxima(u)[:, None]
    u -= np.log(row_sums(np.exp(u)))[:, None]
    return u


@dataclass(frozen=True)
class Fitted:
    """An inverse temperature, the mean loss there, the end of (0, inf) it ran to if any, and what is left to gain."""

    beta: float
    loss: float
    bound: str | None = None
    residual: float = 0.0


def fit_beta(source: Rows, loss: str, floor: float, *, tolerance: float | None = None) -> Fitted:
    """Inverse temperature with the least loss.

    A search ends with a Newton step shorter than ``tolerance`` times beta; what is left is about its square.
    """
    source = source.as_log_odds(floor)
    look = source.preview(LOOK)
    # Float32 kernels round beta: evaluated where rounding changes nothing, one last Newton step is exact enough.
    single = source.scores.dtype == np.float32 and not source.chain
    tolerance = tolerance or (1e-5 if single else 1e-10)
    # At beta = 0 nothing is saturated: the curvature there gives the scale of the scores, whatever it is.
    curvature = look.total(_nll_statistic, 0.0, floor)[2]
    if curvature <= 0:  # constant scores, in the first look at least
        curvature = source.total(_nll_statistic, 0.0, floor)[2]
    if curvature <= 0:
        statistic = _nll_statistic if loss == "nll" else _brier_statistic
        return Fitted(1.0, float(source.total(statistic, 1.0, floor)[0] / source.total_weight()))
    unit = min(float(np.sqrt(look.total_weight() / curvature)), STEEPEST)  # spread of the scores is 1 / unit
    starts = [unit]
    if look is not source or loss == "brier":
        first = _fit_nll(look, unit, unit, floor, tolerance=1e-2)
        starts = [first.beta, unit] if first.bound == "uniform" else [first.beta]
    if loss == "nll":
        return _fit_nll(source, starts[0], unit, floor, tolerance=tolerance, single=single)
    return _fit_brier(source, look, starts, unit, floor, tolerance=tolerance, single=single)


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
        """Whether it is time to look up if all labels lead or tie: long steps gain nothing any more."""
        return value <= target or (promised <= 1e-6 * value and moved > 0.01)

    found = search(start, enough=enough)
    if found.end == "high":
        separable = _separable_beta(source, statistic, found.beta, floor)
        if separable is not None:
            return separable
        found = search(found.beta)
    bound = {"low": "uniform", "high": "separable", None: None}[found.end]
    residual = 0.0 if bound else found.promised / max(found.value, LEAST_MEAN * n)
    return Fitted(found.beta, float(found.value / n), bound, residual)


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
    found = float(np.exp(low))
    return Fitted(found, float(statistic(found)[0] / n), "separable")


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
    source: Rows, look: Rows, starts: list[float], unit: float, floor: float, *, tolerance: float, single: bool
) -> Fitted:
    """Zero of the slope of the squared error next to the best node of a grid in log beta."""
    n, low = source.total_weight(), FLOOR * unit

    def on(rows: Rows) -> Callable[[float], NDArray[np.float64]]:
        return lambda beta: rows.total(_brier_statistic, beta, floor)

    _, centre = min(best_node(lambda beta: float(on(look)(beta)[0]), start, low) for start in starts)
    if look is not source:
        centre = minimise_scalar(on(look), centre, tolerance=1e-2, single=single, low=low).beta
    found = minimise_scalar(on(source), centre, tolerance=tolerance, single=single, low=low)
    if found.end == "high" or found.value <= LEAST_MEAN * n:
        # The squared error vanishes on the way up: the log loss says how certain the samples let the map be.
        by_nll = _fit_nll(source, found.beta, unit, floor, tolerance=tolerance, single=single)
        if by_nll.bound == "separable":
            return replace(by_nll, loss=float(on(source)(by_nll.beta)[0] / n))
    bound = {"low": "uniform", "high": "separable", None: None}[found.end]
    residual = 0.0 if bound else found.promised / max(found.value, LEAST_MEAN * n)
    return Fitted(found.beta, found.value / n, bound, residual)


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

"""Temperature scaling: one number for all classes, found exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import row_maxima, row_sums
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch.maps.base import ONE_KERNEL_BYTES, CalibrationMap
from mixnmatch.maps.fitted import SMALLEST, check_range

LOSSES = ("nll", "brier")
# Rows that a first, cheap look at the data takes.
LOOK = 1024
# Inverse temperatures this many times smaller than the spread of the scores are as good as zero.
FLOOR = 1e-6
# A mean log loss below this cannot be told from zero: the data are separable and no temperature is the best.
SEPARABLE = 1e-9
# Scores that differ only if they are multiplied by more than this are the same score.
STEEPEST = 1e15


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
        "separable" if log loss falls for ever as t goes to 0 (every label has the largest score of its row), "uniform"
        if it does as t goes to infinity (scores that say nothing, or the opposite); t then is the point from which
        going on no longer matters.
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

    accuracy_preserving = True
    injective = True
    _fitted: ClassVar[tuple[str, ...]] = ("beta_", "log_floor_", "loss_", "bound_", "backend_")
    _block_bytes = ONE_KERNEL_BYTES

    beta_: float
    log_floor_: float
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
        check_range(self, "log_floor_", SMALLEST, 1.0)

    def _fit(self, source: Rows) -> dict[str, Any]:
        floor = source.log_floor()
        beta, loss, bound = fit_beta(source, self.loss, floor)
        return {"beta_": beta, "log_floor_": floor, "loss_": loss, "bound_": bound, "backend_": source.backend}

    def _proba_into(self, block: Block, out: NDArray[Any]) -> None:
        block.kernels.softmax_into(block.log_scores(self.log_floor_), self.beta_, out)

    def _log_proba(self, block: Block) -> NDArray[np.float64]:
        return log_softmax(np.asarray(self.beta_ * block.log_scores(self.log_floor_), dtype=np.float64))


def check_loss(loss: str) -> None:
    """Raise an error unless ``loss`` is one that maps can minimise."""
    if loss not in LOSSES:
        msg = f'loss must be "nll" or "brier", got {loss!r}'
        raise ValueError(msg)


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


def fit_beta(
    source: Rows, loss: str, floor: float, *, tolerance: float | None = None
) -> tuple[float, float, str | None]:
    """Inverse temperature with the least loss, the mean loss there, and the end of (0, inf) it ran to, if any.

    A search ends with a Newton step shorter than ``tolerance`` times beta; what is left is about its square.
    """
    n = source.total_weight()
    source = source.as_log_odds(floor)
    look = source.look(LOOK)

    def nll(rows: Rows) -> Callable[[float], NDArray[np.float64]]:
        return lambda beta: rows.total(_nll_statistic, beta, floor)

    start = 1.0
    if look is not source or loss == "brier":
        start, _, _ = _newton(nll(look), 1.0, look.total_weight(), tolerance=1e-2)
    # Float32 kernels round beta: evaluated where rounding changes nothing, one last Newton step is exact enough.
    single = source.scores.dtype == np.float32 and not source.chain
    tolerance = tolerance or (1e-5 if single else 1e-10)
    if loss == "nll":
        return _newton(nll(source), start, n, tolerance=tolerance, single=single)
    beta = _brier_beta(source, look, start, floor, tolerance, single)
    value = source.total(_brier_statistic, beta, floor)[0]
    return beta, float(value / n), None


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


def _newton(
    statistic: Callable[[float], NDArray[np.float64]],
    start: float,
    n: float,
    *,
    tolerance: float,
    single: bool = False,
) -> tuple[float, float, str | None]:
    """Minimise a convex function of beta > 0, given its value, slope and curvature, by Newton steps in a bracket."""
    low, high, beta = 0.0, np.inf, start
    for _ in range(200):
        beta = float(np.float32(beta)) if single else beta
        value, slope, curvature = statistic(beta)
        mean = float(value / n)
        if slope == 0 and curvature == 0:  # constant scores: every temperature is as good
            return beta, mean, None
        if slope < 0 and (mean <= SEPARABLE or beta >= STEEPEST):
            return beta, mean, "separable"
        low, high = (beta, high) if slope < 0 else (low, beta)
        if low == 0 and beta * np.sqrt(curvature / n) < FLOOR:
            return beta, mean, "uniform"
        step = beta - slope / curvature if curvature > 0 else np.inf
        if abs(step - beta) <= tolerance * beta:
            return float(step), mean, None
        following = float(np.clip(step, max(low, beta / 16), min(high, beta * 16)))
        if following in (low, high):  # Newton left the bracket: halve it instead
            following = 0.5 * (low + high)
        beta = following
    return beta, mean, None


def _brier_beta(source: Rows, look: Rows, start: float, floor: float, tolerance: float, single: bool) -> float:
    """Zero of the slope of the squared error next to the best node of a grid in log beta."""

    def value(beta: float) -> float:
        return float(look.total(_brier_statistic, beta, floor)[0])

    centre = best_node(value, start)
    if look is not source:
        centre = descend(lambda beta: look.total(_brier_statistic, beta, floor), centre, tolerance=1e-2, single=single)
    return descend(lambda beta: source.total(_brier_statistic, beta, floor), centre, tolerance=tolerance, single=single)


def descend(statistic: Callable[[float], Any], start: float, *, tolerance: float, single: bool) -> float:
    """Minimum near ``start`` of a function of beta, given its value, slope and curvature.

    Newton steps; where the function is not convex or they wander off, a search for a zero of the slope.
    """
    beta = start
    for _ in range(12):
        beta = float(np.float32(beta)) if single else beta
        _, slope, curvature = statistic(beta)[:3]
        step = -slope / curvature if curvature > 0 else np.inf
        if abs(step) <= tolerance * beta:
            return float(beta + step)
        if abs(step) > 0.5 * beta:
            break
        beta += step
    return root_of_slope(lambda b: float(statistic(b)[1]), start)


def best_node(value: Callable[[float], float], start: float) -> float:
    """Node of the grid ``start * 2^k`` with the least value; the grid moves on while its best node is at an end."""
    known: dict[int, float] = {}
    centre = 0
    while abs(centre) < 60 and start * 2.0**centre < STEEPEST:
        for k in range(centre - 2, centre + 3):
            if k not in known:
                known[k] = value(start * 2.0**k)
        best = min(known, key=lambda k: (known[k], abs(k)))
        if min(known) < best < max(known):
            break
        centre = best
    return start * 2.0**best


def root_of_slope(slope: Callable[[float], float], centre: float) -> float:
    """Zero of a slope near ``centre`` where a minimum is: a rough search, and interpolation on a fixed lattice."""
    rough = _secant(slope, centre)
    if rough is None:
        rough = _bracketed(slope, centre)
    # Three nodes around the root, on a lattice that does not depend on the last digits of the search: the parabola
    # through their slopes has its zero within 1e-10 of the exact one.
    middle = lattice(rough)
    nodes = middle * np.array([1 - 2.0**-10, 1.0, 1 + 2.0**-10])
    slopes = np.array([slope(float(b)) for b in nodes])
    if slopes[0] >= 0 or slopes[2] <= 0:  # flat, or at an end: nothing to interpolate
        return rough
    roots = np.polynomial.Polynomial.fit(nodes, slopes, 2).roots()
    real = roots[np.abs(roots.imag) < 1e-9 * middle].real
    return float(real[np.argmin(np.abs(real - middle))]) if real.size else middle


def lattice(beta: float) -> float:
    """``beta`` rounded to 12 bits, so that nearby searches end on the same number and float32 holds it exactly."""
    mantissa, exponent = np.frexp(beta)
    return float(np.ldexp(np.round(np.ldexp(mantissa, 12)), exponent - 12))


def _secant(slope: Callable[[float], float], centre: float) -> float | None:
    """Secant steps in log beta, down to 1e-4; None where the slope does not rise or the steps wander off."""
    a, b = np.log(centre), np.log(centre) + 0.05
    at_a, at_b = slope(centre), slope(float(np.exp(b)))
    for _ in range(10):
        rise = (at_b - at_a) / (b - a)
        if rise <= 0:
            return None
        following = b - at_b / rise
        if abs(following - np.log(centre)) > 1:
            return None
        if abs(following - b) < 1e-4:
            return float(np.exp(following))
        a, at_a, b, at_b = b, at_b, following, slope(float(np.exp(following)))
    return None


def _bracketed(slope: Callable[[float], float], centre: float) -> float:
    """Brent's method between two betas with slopes of opposite signs; an end of the search if there are none."""
    from scipy.optimize import brentq

    low, high = centre / 2, centre * 2
    at_low, at_high = slope(low), slope(high)
    for _ in range(60):
        if at_low <= 0 <= at_high:
            break
        if at_low > 0:
            low, high, at_low, at_high = low / 2, low, slope(low / 2), at_low
        else:
            low, high, at_low, at_high = high, high * 2, at_high, slope(high * 2)
        if high > STEEPEST:
            return high
    else:
        return low if at_low > 0 else high
    if at_low == at_high:  # constant scores
        return centre
    return float(np.exp(brentq(lambda b: slope(float(np.exp(b))), np.log(low), np.log(high), xtol=1e-4)))

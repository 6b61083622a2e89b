"""Quadratic scaling: a logistic function of the log-odds and their square, with straight tails."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.maps._ridge import fit_path
from mixnmatch.maps.odds import OddsTable
from mixnmatch.maps.odds_curve import CAUTION, WEAK, Curve, OddsCurveMap
from mixnmatch.maps.shrunken import check_penalty

Array = NDArray[np.float64]
# Strengths that leave-one-out chooses from; the last one leaves a straight line.
STRENGTHS = np.append(10.0 ** np.arange(-1.0, 3.1, 0.5), 1e5)
# So much of the calibration set is beyond each end of the curved part.
TAIL = 0.01
# Length of the pieces that a parabola is cut into, if there are not more than so many.
LONGEST_PIECE, MOST_PIECES = 4.0, 256


class QuadraticScaling(OddsCurveMap):
    r"""Quadratic scaling (Berta et al. 2025): :math:`p = \sigma(f(x))` with f quadratic in the log-odds x.

    Outside the range of the calibration set (without 1% on each side) f is a straight line, and f increases everywhere.
    A plain parabola decreases somewhere, which makes its log loss large on some data.

    Parameters
    ----------
    penalty : float or "loo"
        Strength :math:`\lambda` of the penalty :math:`\lambda u^2(s_2-s_1)^2/2` on the difference of the slopes of f at
        the two ends of the range, which shrinks f towards Platt scaling; u as for :class:`ShrunkenPlattScaling`. "loo"
        chooses it by approximate leave-one-out.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Notes
    -----
    On the range the slope of f runs linearly from :math:`s_1 > 0` to :math:`s_2 > 0`, and f is linear in the slopes and
    an intercept, so the problem is convex with bounds. A weak penalty (0.3) on the distance from the identity keeps it
    finite for separable data.

    References
    ----------
    Berta, Holzmueller, Jordan, Bach (2025). Structured matrix scaling for multi-class calibration. arXiv:2511.03685.

    Examples
    --------
    >>> map = QuadraticScaling().fit([0.1, 0.4, 0.6, 0.9, 0.7, 0.2], [0, 0, 1, 1, 0, 1])
    >>> map.strictly_increasing
    True
    """

    def __init__(
        self,
        *,
        penalty: float | str = "loo",
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.penalty = penalty
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _check_params(self) -> None:
        check_penalty(self.penalty)

    def _curve(self, table: OddsTable) -> Curve:
        low, high = table.span(TAIL)
        strengths = STRENGTHS if self.penalty == "loo" else np.array([float(self.penalty)])
        difference = np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
        turning = _features(np.array([table.pivot]), low, high)[0]
        unit = table.slope_unit**2
        weak = WEAK * (unit * np.diag([0.5, 0.5, 0.0]) + 0.25 * np.outer(turning, turning))
        penalties = unit * strengths[:, None, None] * difference + weak
        centre = np.array([1.0, 1.0, (low + high) / 2])
        lower = np.array([table.smallest_slope, table.smallest_slope, -np.inf])
        path = fit_path(_features(table.log_odds, low, high), table, penalties, centre, lower, self)
        first, last, middle = path.theta[path.most_cautious(table, CAUTION)]
        return _parabola(low, high, first, last, middle)


def _parabola(low: float, high: float, first: float, last: float, middle: float) -> Curve:
    """The function with these slopes at the ends of the range and this value in the middle, with straight tails.

    The parabola is cut into short pieces, so that single precision does not lose digits far from where a piece starts.
    """
    width = high - low
    knots = np.linspace(low, high, int(min(np.ceil(width / LONGEST_PIECE), MOST_PIECES)) + 1)
    away, bend = knots - low, (last - first) / (2 * width)
    value = middle - width * (3 * first + last) / 8 + (first + bend * away) * away
    slope = first + 2 * bend * away
    curved = np.append(np.full(len(knots) - 1, bend), 0.0)
    pieces = np.stack([value, slope, curved, 0 * curved], axis=1)
    return Curve(knots, np.vstack([[value[0], first, 0.0, 0.0], pieces]))


def _features(x: Array, low: float, high: float) -> Array:
    """What the slopes at the two ends and the value in the middle are multiplied with, m x 3."""
    t, width, middle = np.clip(x, low, high), high - low, (low + high) / 2
    # Integrals from the middle on of (high - t) / width and (t - low) / width.
    first = (np.square(high - middle) - np.square(high - t)) / (2 * width) + np.minimum(x - low, 0.0)
    last = (np.square(t - low) - np.square(middle - low)) / (2 * width) + np.maximum(x - high, 0.0)
    return np.stack([first, last, np.ones_like(x)], axis=1)

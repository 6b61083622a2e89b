"""Spline calibration: a natural cubic smoothing spline of the log-odds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.scores import is_number
from mixnmatch.maps._natural_splines import NaturalSplines, knots_of
from mixnmatch.maps._ridge import RidgePath, fit_path
from mixnmatch.maps._spline_average import averaged_spline
from mixnmatch.maps.odds import OddsTable
from mixnmatch.maps.odds_curve import CAUTION, WEAK, Curve, OddsCurveMap, straight_line
from mixnmatch.maps.shrunken import check_penalty

Array = NDArray[np.float64]
# Strengths that leave-one-out chooses from, with the range of the knots as the unit of length; the last one leaves a
# straight line.
STRENGTHS = np.append(10.0 ** np.arange(-3.0, 2.1, 0.5), 1e7)
# Groups of scores above which scores next to each other are joined, in so many cells.
GROUPS, CELLS = 1 << 10, 1 << 12
MOST_KNOTS = 100


class SplineCalibration(OddsCurveMap):
    r"""Spline calibration (Lucena 2018): :math:`p = \sigma(f(x))`, f a natural cubic spline of the log-odds x.

    Parameters
    ----------
    knots : int
        Number of knots at most, at quantiles of the log-odds of the calibration set.
    penalty : float, "loo" or "average"
        Strength :math:`\lambda` of the penalty :math:`\lambda\int f''(v)^2 dv/2`, added to the sum of log losses. Here
        v is the log-odds scaled to [0, 1] between the first and the last knot. "loo" chooses the strength by
        approximate leave-one-out. "average" takes a weighted mean of the probabilities of 44 functions and of the
        identity. With few samples it seldom does harm, since most of the weight is then that of the identity.
    monotone : bool or float
        Choose only among penalties that give a strictly increasing function, or average over these; the strongest one
        gives a straight line (Platt scaling). A number, for "average" only: average over all functions if the odds
        that one is right that decreases somewhere are above this number.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Notes
    -----
    A weak penalty (0.3) on the distance of the line inside f from the identity keeps the fit finite for separable data.
    More than 1,024 distinct scores are joined into cells that are narrower than 0.5% of ``1 + |x|``.

    An average is over three kinds of functions, each with four strengths (0.1 to 100) of the penalty that shrinks the
    line inside f towards the identity: splines of the log-odds with six strengths of the penalty on roughness, straight
    lines through 0, and splines of asinh(x) plus a line in x with four strengths, which bend most where
    :math:`|x|` is small. A penalty is a normal prior around the identity, and a fit weighs as much as the labels are
    likely under it (the evidence, by Laplace's approximation), times 2 for lines through 0 and 30 for the identity:
    scores that are calibrated stay nearly as they are.

    References
    ----------
    Lucena (2018). Spline-based probability calibration. arXiv:1809.07751.
    Green, Silverman (1994). Nonparametric regression and generalized linear models.
    MacKay (1992). The evidence framework applied to classification networks. Neural Computation.

    Examples
    --------
    >>> map = SplineCalibration().fit([0.1, 0.4, 0.6, 0.9, 0.7, 0.2], [0, 0, 1, 1, 0, 1])
    >>> p = map.predict_proba([0.2, 0.5, 0.8])[:, 1]
    >>> bool(p[0] < p[1] < p[2])
    True
    """

    def __init__(
        self,
        *,
        knots: int = 12,
        penalty: float | str = "loo",
        monotone: bool | float = True,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.knots = knots
        self.penalty = penalty
        self.monotone = monotone
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _check_params(self) -> None:
        if self.penalty != "average":
            check_penalty(self.penalty, '"loo" or "average"')
        whole = is_number(self.knots) and not isinstance(self.knots, bool) and int(self.knots) == self.knots
        if not (whole and 3 <= self.knots <= MOST_KNOTS):
            msg = f"knots must be a whole number from 3 to {MOST_KNOTS}, got {self.knots!r}"
            raise ValueError(msg)
        if not self._whether():
            if not (is_number(self.monotone) and self.monotone > 0):
                msg = f"monotone must be True, False or a positive number, got {self.monotone!r}"
                raise ValueError(msg)
            if self.penalty != "average":
                msg = f'monotone={self.monotone!r}: odds are for penalty="average"; pass True or False'
                raise ValueError(msg)

    def _whether(self) -> bool:
        """Whether ``monotone`` is True or False, not odds."""
        return isinstance(self.monotone, bool | np.bool_)

    def _curve(self, table: OddsTable) -> Curve:
        table = table.in_cells(GROUPS, CELLS)
        if self.penalty == "average":
            odds = (np.inf if self.monotone else 0.0) if self._whether() else float(self.monotone)
            return averaged_spline(table, int(self.knots), odds=odds, who=self)
        basis = NaturalSplines.at(knots_of(table, int(self.knots)))
        strengths = STRENGTHS if self.penalty == "loo" else np.append(float(self.penalty), STRENGTHS[-1:])
        path, curves = self._fits(table, basis, strengths)
        increasing = self._allowed(curves, table)
        if self.penalty == "loo":
            chosen = path.most_cautious(table, CAUTION, increasing)
        else:
            chosen = int(np.argmax(increasing)) if increasing.any() else len(increasing)
        return curves[chosen] if chosen < len(curves) else _line(basis.knots, *straight_line(table, self))

    def _fits(self, table: OddsTable, basis: NaturalSplines, strengths: Array) -> tuple[RidgePath, list[Curve]]:
        """A fit for every strength of the penalty on roughness."""
        parts, size = basis.components(), len(basis.knots)
        middle, length = float(basis.knots.mean()), float(np.ptp(basis.knots))
        rough = np.diag(np.append(np.ones(size - 2), [0.0, 0.0]))
        line = _towards_identity(size, table.pivot, middle, length, table.slope_unit)
        penalties = WEAK * line + strengths[:, None, None] * rough
        identity = np.append(np.zeros(size - 2), [length, middle])
        features, free = basis(table.log_odds) @ parts, np.full(size, -np.inf)
        path = fit_path(features, table, penalties, identity, free, self)
        return path, [basis.curve(parts @ theta) for theta in path.theta]

    def _allowed(self, curves: list[Curve], table: OddsTable) -> NDArray[np.bool_]:
        return np.array([curve.least_slope() >= table.smallest_slope for curve in curves]) | (not self.monotone)


def _towards_identity(size: int, pivot: float, middle: float, length: float, unit: float) -> Array:
    """Penalty on the slope less 1, and on the change at the pivot, of the line inside a spline."""
    penalty = np.zeros((size, size))
    turning = np.array([(pivot - middle) / length, 1.0])
    penalty[-2:, -2:] = np.diag([(unit / length) ** 2, 0.0]) + 0.25 * np.outer(turning, turning)
    return penalty


def _line(knots: Array, slope: float, intercept: float) -> Curve:
    ends = knots[[0, -1]]
    return Curve.through(ends, slope * ends + intercept, slope, slope)

"""Spline calibration: a natural cubic smoothing spline of the log-odds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.scores import is_number
from mixnmatch.maps._ridge import RidgePath, fit_path
from mixnmatch.maps.odds import OddsTable
from mixnmatch.maps.odds_curve import CAUTION, WEAK, Curve, OddsCurveMap, average, straight_line
from mixnmatch.maps.shrunken import check_penalty

Array = NDArray[np.float64]
# Strengths that leave-one-out chooses from, with the range of the knots as the unit of length; the last one leaves a
# straight line.
STRENGTHS = np.append(10.0 ** np.arange(-3.0, 2.1, 0.5), 1e7)
# The grid that is averaged over: strengths of that penalty, and of the one that draws the line inside to the identity.
AVERAGED, TOWARDS_IDENTITY = (1e-3, 1e-2, 0.1, 1.0, 10.0, 1e7), (0.1, 1.0, 10.0, 100.0)
# What the identity weighs beside one fit for each pair of these, before the data have spoken.
IDENTITY = 7.0
# Fits with less weight than this are left out of an average.
LEAST_SHARE = 1e-6
# Groups of scores above which scores next to each other are joined, in so many cells.
GROUPS, CELLS = 1 << 10, 1 << 12
# The outermost knots leave so much of the calibration set beyond them.
TAIL = 0.005
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
        approximate leave-one-out. "average" takes a weighted mean of the probabilities of 24 splines and of the
        identity, which has less log loss than the best of them, with few samples above all.
    monotone : bool
        Choose only among penalties that give a strictly increasing function, or average over these; the strongest one
        gives a straight line (Platt scaling).
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Notes
    -----
    A weak penalty (0.3) on the distance of the line inside f from the identity keeps the fit finite for separable data.
    More than 1,024 distinct scores are joined into cells that are narrower than 0.5% of ``1 + |x|``.

    An average is over six strengths of the penalty times four (0.1 to 100) of the one that draws the line inside f to
    the identity. A fit with leave-one-out log loss :math:`\ell_g`, summed over the samples, has a weight proportional
    to :math:`e^{-\ell_g}`, as in Bayesian model averaging; that of the identity is multiplied by 7.

    References
    ----------
    Lucena (2018). Spline-based probability calibration. arXiv:1809.07751.
    Green, Silverman (1994). Nonparametric regression and generalized linear models.
    Geisser, Eddy (1979). A predictive approach to model selection. Journal of the American Statistical Association.

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
        monotone: bool = True,
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

    def _curve(self, table: OddsTable) -> Curve:
        table = table.in_cells(GROUPS, CELLS)
        basis = NaturalSplines.at(_knots(table, int(self.knots)))
        if self.penalty == "average":
            return self._average(table, basis)
        strengths = STRENGTHS if self.penalty == "loo" else np.append(float(self.penalty), STRENGTHS[-1:])
        path, curves = self._fits(table, basis, strengths, np.array([WEAK]))
        increasing = self._allowed(curves, table)
        if self.penalty == "loo":
            chosen = path.most_cautious(table, CAUTION, increasing)
        else:
            chosen = int(np.argmax(increasing)) if increasing.any() else len(increasing)
        return curves[chosen] if chosen < len(curves) else _line(basis.knots, *straight_line(table, self))

    def _fits(
        self, table: OddsTable, basis: NaturalSplines, strengths: Array, towards_identity: Array
    ) -> tuple[RidgePath, list[Curve]]:
        """A fit for every pair of strengths: of the penalty on roughness, and of that on distance from the identity."""
        parts, size = basis.components(), len(basis.knots)
        middle, length = float(basis.knots.mean()), float(np.ptp(basis.knots))
        rough = np.diag(np.append(np.ones(size - 2), [0.0, 0.0]))
        line = _towards_identity(size, middle, length, table.slope_unit)
        penalties = towards_identity[:, None, None, None] * line + strengths[:, None, None] * rough
        identity = np.append(np.zeros(size - 2), [length, middle])
        features, free = basis(table.log_odds) @ parts, np.full(size, -np.inf)
        path = fit_path(features, table, penalties.reshape(-1, size, size), identity, free, self)
        return path, [basis.curve(parts @ theta) for theta in path.theta]

    def _allowed(self, curves: list[Curve], table: OddsTable) -> NDArray[np.bool_]:
        return np.array([curve.least_slope() >= table.smallest_slope for curve in curves]) | (not self.monotone)

    def _average(self, table: OddsTable, basis: NaturalSplines) -> Curve:
        path, curves = self._fits(table, basis, np.array(AVERAGED), np.array(TOWARDS_IDENTITY))
        line = _line(basis.knots, 1.0, 0.0)
        losses = np.append(path.losses(table), log_loss(table, line))
        weights = np.exp(losses.min() - losses) * np.append(self._allowed(curves, table), IDENTITY)
        likely = np.flatnonzero(weights > LEAST_SHARE * weights.sum())
        return average(
            [[*curves, line][k] for k in likely], weights[likely] / weights[likely].sum(), monotone=self.monotone
        )


def _knots(table: OddsTable, count: int) -> Array:
    """Distinct quantiles of the log-odds, at least three."""
    low, high = table.span(TAIL)
    shares = np.linspace(TAIL, 1 - TAIL, count)[1:-1]
    inner = table.quantiles(shares)
    # Knots that nearly coincide leave a piece without samples and a badly conditioned problem.
    apart = (high - low) / (10 * count)
    knots = [low]
    for knot in inner:
        if knot - knots[-1] >= apart and high - knot >= apart:
            knots.append(float(knot))
    return np.array([*knots, high] if len(knots) > 1 else [low, (low + high) / 2, high])


def _towards_identity(size: int, middle: float, length: float, unit: float) -> Array:
    """Penalty on the slope less 1, and on the value at 0, of the line inside a spline."""
    penalty = np.zeros((size, size))
    at_zero = np.array([-middle / length, 1.0])
    penalty[-2:, -2:] = np.diag([(unit / length) ** 2, 0.0]) + 0.25 * np.outer(at_zero, at_zero)
    return penalty


def log_loss(table: OddsTable, curve: Curve) -> float:
    """Sum of the log losses of all samples under a function of the log-odds."""
    eta = curve(table.log_odds)
    negative = table.weight - table.positive
    return float(np.logaddexp(0.0, -eta) @ table.positive + np.logaddexp(0.0, eta) @ negative)


def _line(knots: Array, slope: float, intercept: float) -> Curve:
    ends = knots[[0, -1]]
    return Curve.through(ends, slope * ends + intercept, slope, slope)


@dataclass(frozen=True)
class NaturalSplines:
    """The natural cubic splines that are 1 at one knot and 0 at the others.

    ``pieces`` has, for each piece of a :class:`Curve`, its four coefficients for each of the splines.
    """

    knots: Array
    pieces: Array

    @classmethod
    def at(cls, knots: Array) -> NaturalSplines:
        """The splines with these knots."""
        from scipy.interpolate import CubicSpline

        spline = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")
        inner = spline.c[::-1].transpose(1, 0, 2)
        pieces = np.zeros((len(knots) + 1, 4, len(knots)))
        pieces[1:-1] = inner
        pieces[0, 0, 0] = pieces[-1, 0, -1] = 1.0
        pieces[0, 1], pieces[-1, 1] = spline(knots[0], 1), spline(knots[-1], 1)
        return cls(knots, pieces)

    def __call__(self, x: Array) -> Array:
        """Value of each spline at every entry of x."""
        piece = np.searchsorted(self.knots, x, side="right")
        away = x - self.knots[np.maximum(piece - 1, 0)]
        powers = away[:, None] ** np.arange(4.0)
        return np.asarray(np.einsum("mi,mip->mp", powers, self.pieces[piece]))

    def curve(self, values: Array) -> Curve:
        """The spline with these values at the knots."""
        return Curve(self.knots, self.pieces @ values)

    def components(self) -> Array:
        """Values at the knots, in columns, of splines that add up to any other: first bent ones, then a line, then 1.

        The roughness of a sum of bent ones is the sum of their squared coefficients.
        """
        size, square = np.linalg.eigh(self.roughness())
        line = (self.knots - self.knots.mean()) / np.ptp(self.knots)
        bent = square[:, 2:] / np.sqrt(size[2:])  # the two smallest are 0: straight lines are not rough
        return np.column_stack([bent, line, np.ones(len(self.knots))])

    def roughness(self) -> Array:
        r"""Matrix of :math:`\int f''(v)^2 dv` as a form of the values at the knots, v running from 0 to 1 over them."""
        second = 2 * self.pieces[1:, 2]  # second derivatives at the knots
        width = np.diff(self.knots)
        left, right = second[:-1], second[1:]
        cross = np.einsum("k,kp,kq->pq", width, left, right)
        squares = np.einsum("k,kp,kq->pq", width, left, left) + np.einsum("k,kp,kq->pq", width, right, right)
        return np.asarray((self.knots[-1] - self.knots[0]) ** 3 * (squares + (cross + cross.T) / 2) / 3)

"""Binary maps that are piecewise cubic functions of the log-odds: what quadratic, spline and kernel maps share."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch.maps._ridge import fit_path
from mixnmatch.maps.base import BinaryMap
from mixnmatch.maps.columns import Columns, log_odds
from mixnmatch.maps.logistic import sigmoid
from mixnmatch.maps.odds import OddsTable, odds_tables

Array = NDArray[np.float64]
# Strength of the penalty on the distance from the identity that keeps fits finite whatever the data.
WEAK = 0.3
# The least flexible fit is taken whose leave-one-out loss is within so many standard errors of the least one.
CAUTION = 0.5
# Where an average of curves is evaluated: in steps of this size at most, but in at least and at most so many for each
# piece, and at these distances beyond the last knots.
STEP, PARTS = 0.25, (4, 64)
BEYOND = np.array([0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0])


@dataclass(frozen=True)
class Curve:
    """A function of the log-odds x, made of cubic pieces.

    Piece 0 holds left of all knots, piece k from knot k - 1 on. Its coefficients, the constant first, are of powers of
    x - knot, the knot being the one that it starts at (for piece 0 the first one).
    """

    knots: Array
    pieces: Array

    @classmethod
    def through(cls, x: Array, y: Array, left: float, right: float) -> Curve:
        """Straight lines through points, and beyond them with the slopes ``left`` and ``right``."""
        slopes = np.concatenate([[left], np.diff(y) / np.diff(x), [right]])
        constant = np.concatenate([y[:1], y])
        return cls(x, np.stack([constant, slopes, 0 * slopes, 0 * slopes], axis=1))

    def __call__(self, x: Array) -> Array:
        """Value at every entry of x."""
        return evaluate(x, self.knots, self.pieces)

    def slope(self, x: Array) -> Array:
        """Derivative at every entry of x."""
        powers = np.array([1.0, 2.0, 3.0])
        return evaluate(x, self.knots, np.pad(self.pieces[:, 1:] * powers, [(0, 0), (0, 1)]))

    def least_slope(self) -> float:
        """The smallest derivative anywhere."""
        _, b, c, d = self.pieces.T
        width = np.concatenate([[0.0], np.diff(self.knots), [0.0]])  # the outer pieces are lines
        ends = np.minimum(b, b + (2 * c + 3 * d * width) * width)
        with np.errstate(divide="ignore", invalid="ignore"):
            lowest = -c / (3 * d)
            inside = np.where((lowest > 0) & (lowest < width), b - c * c / (3 * d), np.inf)
        return float(min(ends.min(), inside.min()))


def average(at: Array, f: Array, slope: Array, weights: Array, *, inside: slice, monotone: bool) -> Curve:
    r"""Log-odds of the weighted mean of the probabilities :math:`\sigma(f_g(x))`, interpolated between many nodes.

    ``f`` and ``slope`` hold values and derivatives of the functions at the nodes ``at``, G x N. Interpolation is by
    cubic polynomials with the value and slope of the average at the nodes, and beyond the last node on each side by a
    straight line. With ``monotone`` slopes are limited so that the interpolation increases where the average does.
    Beyond the nodes ``inside`` the range of the samples it never decreases: nothing speaks for a turn there.
    """
    log_weights = np.log(weights)[:, None]
    log_p, log_not = (np.logaddexp.reduce(log_weights - np.logaddexp(0.0, sign * f), axis=0) for sign in (-1, 1))
    # The slope is that of the functions, weighted by the share of each in p (1 - p).
    share = np.exp(log_weights - np.logaddexp(0.0, f) - np.logaddexp(0.0, -f) - log_p - log_not)
    value, rise = log_p - log_not, np.sum(share * slope, axis=0)
    first, last = inside.start, inside.stop - 1
    value[last:] = np.maximum.accumulate(value[last:])
    value[: first + 1] = np.minimum.accumulate(value[first::-1])[::-1]
    width, secant = np.diff(at), np.diff(value) / np.diff(at)
    held = np.full(len(at), monotone)
    held[: first + 1] = held[last:] = True
    rise[:first], rise[last + 1 :] = np.maximum(rise[:first], 0.0), np.maximum(rise[last + 1 :], 0.0)
    # A cubic piece increases if the slopes at its ends are at most three times that between them.
    steepest = 3 * np.minimum(np.append(secant, np.inf), np.append(np.inf, secant))
    rise = np.where(held, np.minimum(rise, np.maximum(steepest, 0.0)), rise)
    left, right = rise[:-1], rise[1:]
    bent = (3 * secant - 2 * left - right) / width, (left + right - 2 * secant) / np.square(width)
    inner = np.stack([value[:-1], left, *bent], axis=1)
    outer = [[value[0], rise[0], 0.0, 0.0]], [[value[-1], rise[-1], 0.0, 0.0]]
    return Curve(at, np.vstack([outer[0], inner, outer[1]]))


def nodes(knots: Array, unit: float = 1.0) -> Array:
    """Nodes between knots, and beyond them in ever wider steps, for functions that change over distances of a unit."""
    between = [
        np.linspace(low, high, int(np.clip(np.ceil((high - low) / (STEP * unit)), *PARTS)), endpoint=False)
        for low, high in pairwise(knots)
    ]
    return np.concatenate([knots[0] - unit * BEYOND[::-1], *between, knots[-1] + unit * np.append(0.0, BEYOND)])


def evaluate(x: Array, knots: Array, pieces: Array) -> Array:
    """Value of a piecewise cubic function at every entry of x."""
    piece = np.searchsorted(knots, x, side="right")
    a, b, c, d = pieces.T
    away = x - knots[np.maximum(piece - 1, 0)]
    return np.asarray(((d[piece] * away + c[piece]) * away + b[piece]) * away + a[piece])


class OddsCurveMap(BinaryMap):
    """p = sigmoid(f(x)) for log-odds x, f piecewise cubic and a straight line beyond the first and last knot.

    Log-odds beyond those of a probability of 1e-37, which are 85, are read as those, whatever the scores are.

    Subclasses implement ``_curve(table)``. The knots of problem k are at ``offsets_[k]`` to ``offsets_[k + 1]`` of
    ``knots_``; its pieces, of which there is one more, start k entries later.
    """

    _fitted: ClassVar[tuple[str, ...]] = ("knots_", "pieces_", "offsets_", "probability_floor_")

    knots_: Array
    pieces_: Array
    offsets_: NDArray[np.int64]
    probability_floor_: float

    @property
    def strictly_increasing(self) -> bool:  # type: ignore[override]
        """Whether the function increases strictly."""
        monotone = getattr(self, "monotone", True)
        return isinstance(monotone, bool | np.bool_) and bool(monotone)

    @property
    def injective(self) -> bool:  # type: ignore[override]
        """Whether different scores stay different."""
        return self.strictly_increasing

    def _curve(self, table: OddsTable) -> Curve:
        raise NotImplementedError(type(self).__name__)

    def _fit_columns(self, columns: Columns) -> dict[str, Any]:
        floor = columns.source.probability_floor()
        curves = [self._curve(table) for table in odds_tables(columns, floor)]
        return {
            "knots_": np.concatenate([curve.knots for curve in curves]),
            "pieces_": np.concatenate([curve.pieces for curve in curves]),
            "offsets_": np.cumsum([0, *(len(curve.knots) for curve in curves)]),
            "probability_floor_": floor,
        }

    def _check_fitted(self) -> None:
        n_knots, starts = len(self.knots_), self.offsets_[:-1]
        inner = np.setdiff1d(np.arange(1, n_knots), starts)
        fits = self.pieces_.shape == (n_knots + len(starts), 4) and [self.offsets_[0], self.offsets_[-1]] == [
            0,
            n_knots,
        ]
        if not (fits and (np.diff(self.offsets_) > 0).all() and (self.knots_[inner] > self.knots_[inner - 1]).all()):
            msg = "the pieces of a curve do not fit together"
            raise ValueError(msg)

    def curves(self) -> list[Curve]:
        """The learned functions of the log-odds, one for each problem."""
        spans = enumerate(zip(self.offsets_[:-1], self.offsets_[1:], strict=True))
        return [Curve(self.knots_[a:b], self.pieces_[a + k : b + k + 1]) for k, (a, b) in spans]

    def _transform_columns(self, block: Block, scheme: str) -> Array:
        x = log_odds(block, scheme, self.probability_floor_)
        out = np.empty(x.shape)
        for k, curve in enumerate(self.curves()):
            out[:, k] = curve(x[:, k])
        return sigmoid(out)


def straight_line(table: OddsTable, who: Any) -> tuple[float, float]:
    """Slope (above 0) and intercept of the straight line with the least log loss, hardly penalised."""
    features = np.stack([table.log_odds, np.ones_like(table.log_odds)], axis=1)
    turning = np.array([table.pivot, 1.0])
    penalty = WEAK * (np.diag([table.slope_unit**2, 0.0]) + 0.25 * np.outer(turning, turning))
    path = fit_path(
        features, table, penalty[None], np.array([1.0, 0.0]), np.array([table.smallest_slope, -np.inf]), who
    )
    slope, intercept = path.theta[0]
    return float(slope), float(intercept)

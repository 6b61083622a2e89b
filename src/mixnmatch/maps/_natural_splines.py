"""Natural cubic splines: their values, slopes and roughness, and where their knots are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mixnmatch.maps.odds import OddsTable
from mixnmatch.maps.odds_curve import Curve

Array = NDArray[np.float64]
# The outermost knots leave so much of the calibration set beyond them.
TAIL = 0.005


def knots_of(table: OddsTable, count: int) -> Array:
    """Distinct quantiles of the log-odds, at least three."""
    low, high = table.span(TAIL)
    shares = np.linspace(TAIL, 1 - TAIL, count)[1:-1]
    inner = table.quantiles(shares)
    # Knots that nearly coincide leave a piece without samples and a badly conditioned problem.
    apart = (high - low) / (10 * count)
    kept = [low]
    for knot in inner:
        if knot - kept[-1] >= apart and high - knot >= apart:
            kept.append(float(knot))
    return np.array([*kept, high] if len(kept) > 1 else [low, (low + high) / 2, high])


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

    def slope(self, x: Array) -> Array:
        """Derivative of each spline at every entry of x."""
        piece = np.searchsorted(self.knots, x, side="right")
        away = x - self.knots[np.maximum(piece - 1, 0)]
        powers = np.stack([np.ones_like(away), 2 * away, 3 * np.square(away)], axis=1)
        return np.asarray(np.einsum("mi,mip->mp", powers, self.pieces[piece, 1:]))

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

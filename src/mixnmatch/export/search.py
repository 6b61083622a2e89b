"""Table lookup with operations that every runtime supports: a table of cells or an unrolled binary search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.export.graph import Tensor
from mixnmatch.maps.ties import are_edges

Array = NDArray[np.float64]
REALS = {"double": np.float64, "single": np.float32}
# Slopes up to this are added to steps without a loss of digits.
GENTLE = 1e-3
# How often a number's square root may be taken, so that cells of equal width hold few of the knots, many of which are
# close to 0; and how many cells there may be.
ROOTS, MOST_CELLS = range(5), 1 << 12
# Two ways to compute exp(u) differ by about |u| times this, relatively.
ROUNDING = {"double": 64 * np.finfo(np.float64).eps, "single": 4 * np.finfo(np.float32).eps}


@dataclass(frozen=True)
class PiecewiseTables:
    """Piecewise linear functions stored end to end: one for all columns of a tensor, or one for each."""

    knots: Array
    values: Array
    slopes: Array
    left: Array
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, fitted: Any) -> PiecewiseTables:
        """The functions of a map."""
        return cls(fitted.knots_, fitted.values_, fitted.slopes_, fitted.left_, fitted.offsets_.astype(np.int64))

    def after(self, which: NDArray[np.bool_], precision: str) -> PiecewiseTables:
        """Return the functions with knots moved just beyond the scores that they come from.

        A search sees knots lower than they are by the rounding of a runtime, so these go up by twice that, but not
        more than half-way to the next one. In double precision edges of cells are beyond all rounding as they are.
        """
        up = np.maximum(self.knots * (1 + 2 * _relative_rounding(self.knots, precision)), np.finfo(np.float32).tiny)
        following = np.append(self.knots[1:], np.inf)
        following[self.offsets[1:] - 1] = np.inf
        up = np.minimum(up, (self.knots + following) / 2)
        if precision == "double":
            which = which & ~are_edges(self.knots)
        return replace(self, knots=np.where(which, up, self.knots))

    def at(self, x: Tensor, *, exact: bool) -> Tensor:
        """Values of the functions at the entries of a tensor, n x 1 or n x K for K functions.

        Scores are compared with knots as they are if ``exact``. Others were computed, and the knots are where no
        rounding matters, but for maps that older versions have saved, whose knots are scores of the calibration set.
        A score that meets one again must not fall to its left by the rounding of another runtime's exponential: the
        search sees such knots a little lower.
        """
        position = self._search_cells(x, exact) if len(self.left) == 1 else self._search(x, exact)
        graph = x.graph
        slope = self.slopes[0]
        if len(self.left) == 1 and self.knots[0] <= 0 and (self.slopes == slope).all() and slope <= GENTLE:
            # One slope everywhere, as that of strictness: what is left of it are steps, looked up once.
            steps = self._with_left(self.values - slope * self.knots, self.left)
            value = position.looked_up_in(graph.constant("values", steps))
            return value + graph.constant("slope", slope) * x if slope else value
        value = position.looked_up_in(graph.constant("values", self._with_left(self.values, self.left)))
        if not self.slopes.any():
            return value
        knot = position.looked_up_in(graph.constant("knots", self._with_left(self.knots, 0 * self.left)))
        slope = position.looked_up_in(graph.constant("slopes", self._with_left(self.slopes, 0 * self.left)))
        return value + slope * (x - knot).at_least(0.0)

    def _with_left(self, table: Array, left: Array) -> Array:
        """Return a table with the value left of all knots before the entries of each function."""
        return np.insert(table, self.offsets[:-1], left)

    def _search_cells(self, x: Tensor, exact: bool) -> Tensor:
        """Positions in tables made by :meth:`_with_left`, of which there is one: how many knots are not above an entry.

        Looking up entries is what takes time in a runtime. So a first table says how many knots are in the cells before
        that of an entry, and only the few in its own are left to be searched.
        """
        graph = x.graph
        knots = _searched(self.knots, graph.precision, exact)
        cells = Cells.of(knots.astype(REALS[graph.precision]))
        before = graph.constant("before", cells.before)
        padded = graph.constant("searched", np.append(knots, np.full(2**cells.rounds, np.inf)))
        root = x
        for _ in range(cells.roots):
            root = root.sqrt()
        # What is not a number is in some cell too.
        cell = (root * float(cells.count)).index().at_least(0.0).at_most(float(cells.count))
        position = cell.looked_up_in(before)
        for round_ in range(cells.rounds - 1, -1, -1):
            step = float(2**round_)
            found = position if round_ == 0 else position + (step - 1.0)
            position = (found.looked_up_in(padded) <= x).choose(position + step, position)
        return position

    def _search(self, x: Tensor, exact: bool) -> Tensor:
        """Positions in tables made by :meth:`_with_left` of the last knots not above the entries.

        All functions are searched at once. The number of knots that are left halves in every round, the same way
        whatever the entries are, so that only the start of what is left has to be kept.
        """
        graph = x.graph
        knots = graph.constant("searched", _searched(self.knots, graph.precision, exact))
        starts, left = self.offsets[:-1], np.diff(self.offsets)
        first = graph.constant("starts", _one(starts))
        position, round_ = first, 0
        while left.max() > 1:
            half = left // 2
            step = graph.constant(f"half_{round_}", _one(half))
            # A function of which one knot is left takes no step, whatever this comparison says.
            probe = (position + (step - 1.0).at_least(0.0)).looked_up_in(knots)
            position = (probe <= x).choose(position + step, position)
            left, round_ = left - half, round_ + 1
        after = position.looked_up_in(knots) <= x
        # Functions before this one have an entry more in the tables.
        shift = graph.constant("shift", _one(np.arange(len(starts))))
        position = position + shift
        return after.choose(position + 1.0, position)


@dataclass(frozen=True)
class CurveTables:
    """Piecewise cubic functions stored end to end: one for all columns of a tensor, or one for each.

    Pieces are of powers of x less their ``origins``, the number closest to 0 where they hold: single precision would
    lose digits between a far knot and x.
    """

    functions: PiecewiseTables
    origins: Array
    pieces: Array

    @classmethod
    def of(cls, fitted: Any) -> CurveTables:
        """The functions of a map."""
        offsets = fitted.offsets_.astype(np.int64)
        first = fitted.knots_[offsets[:-1]]  # what the pieces on the left are about
        functions = PiecewiseTables(fitted.knots_, fitted.knots_, 0 * fitted.knots_, first, offsets)
        low = functions._with_left(fitted.knots_, np.full(len(first), -np.inf))
        high = np.append(low[1:], -np.inf)
        origins = np.clip(0.0, low, np.where(high == -np.inf, np.inf, high))  # the last piece of a function has no end
        move = origins - functions._with_left(fitted.knots_, first)
        a, b, c, d = fitted.pieces_.T
        moved = [a + (b + (c + d * move) * move) * move, b + (2 * c + 3 * d * move) * move, c + 3 * d * move, d]
        return cls(functions, origins, np.stack(moved, axis=1))

    def at(self, x: Tensor) -> Tensor:
        """Values of the functions at the entries of a tensor; they are continuous, so any search will do."""
        position, graph = self.functions._search(x, exact=True), x.graph
        away = x - position.looked_up_in(graph.constant("origins", self.origins))
        value = position.looked_up_in(graph.constant("power_3", self.pieces[:, 3]))
        for power in (2, 1, 0):
            value = value * away + position.looked_up_in(graph.constant(f"power_{power}", self.pieces[:, power]))
        return value


@dataclass(frozen=True)
class Cells:
    """Cells of equal width of the 2^roots-th root of numbers in [0, 1]."""

    roots: int
    count: int
    rounds: int  # of a search among as many knots as a cell may hold at most
    before: NDArray[np.int64]  # knots that are in cells before each one for certain

    @classmethod
    def of(cls, knots: NDArray[Any]) -> Cells:
        """Choose the cells with the shortest search, and of those the fewest.

        Not all runtimes round roots correctly. So a knot next to an end of a cell may be in either of two.
        """
        choices = []
        slack = 4 * np.finfo(knots.dtype).eps
        for roots in ROOTS:
            root = np.minimum(knots, knots.dtype.type(1))
            for _ in range(roots):
                root = np.sqrt(root)
            count = 64
            while count <= MOST_CELLS:
                lowest, highest = ((root * (count * (1 + sign * slack))).astype(np.int64) for sign in (-1, 1))
                cells = np.arange(count + 1)
                before = np.searchsorted(highest, cells)
                rounds = int((np.searchsorted(lowest, cells, side="right") - before).max()).bit_length()
                choices.append((10 * rounds + roots, count, roots, rounds, before))  # a round costs some ten roots
                count *= 2
        _, count, roots, rounds, before = min(choices, key=lambda choice: choice[:2])
        return cls(roots, count, rounds, before)


def _one(per_function: NDArray[Any]) -> NDArray[np.int64]:
    """Return one number for each function, or a single one."""
    return np.asarray(per_function[0] if len(per_function) == 1 else per_function, dtype=np.int64)


def _searched(knots: Array, precision: str, exact: bool) -> Array:
    if exact and precision == "double":
        return knots
    if exact:
        # The least number of the type that is not below the knot gives the same answers to numbers of the type.
        rounded = knots.astype(np.float32)
        return np.where(rounded < knots, np.nextafter(rounded, np.float32(np.inf)), rounded).astype(np.float64)
    lowered = knots * (1 - _relative_rounding(knots, precision))
    return np.where(are_edges(knots), knots, lowered) if precision == "double" else np.asarray(lowered)


def _relative_rounding(knots: Array, precision: str) -> Array:
    """Relative rounding difference between two computations of the same probability."""
    return np.asarray(ROUNDING[precision] * (4 - np.log(np.clip(knots, np.finfo(np.float64).tiny, 1.0))))

"""Looking numbers up in tables of knots with steps that every runtime has: a binary search that is unrolled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.export.graph import Tensor

Array = NDArray[np.float64]
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

    def at(self, x: Tensor, *, exact: bool) -> Tensor:
        """Values of the functions at the entries of a tensor, n x 1 or n x K for K functions.

        Knots are scores of the calibration set, so a score that meets one again must not fall to its left by the
        rounding of another runtime's exponential: unless ``exact``, the search sees knots a little lower.
        """
        position = self._search(x, exact)
        graph = x.graph
        value = position.looked_up_in(graph.constant("values", self._with_left(self.values, self.left)))
        if not self.slopes.any():
            return value
        knot = position.looked_up_in(graph.constant("knots", self._with_left(self.knots, 0 * self.left)))
        slope = position.looked_up_in(graph.constant("slopes", self._with_left(self.slopes, 0 * self.left)))
        return value + slope * (x - knot).at_least(0.0)

    def _with_left(self, table: Array, left: Array) -> Array:
        """A table with an entry more before those of each function: what holds left of all its knots."""
        return np.insert(table, self.offsets[:-1], left)

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


def _one(per_function: NDArray[Any]) -> NDArray[np.int64]:
    """A number for each function, or just one."""
    return np.asarray(per_function[0] if len(per_function) == 1 else per_function, dtype=np.int64)


def _searched(knots: Array, precision: str, exact: bool) -> Array:
    if exact and precision == "single":
        # The least number of the type that is not below the knot gives the same answers to numbers of the type.
        rounded = knots.astype(np.float32)
        return np.where(rounded < knots, np.nextafter(rounded, np.float32(np.inf)), rounded).astype(np.float64)
    exponent = 4 - np.log(np.clip(knots, np.finfo(np.float64).tiny, 1.0))
    return np.asarray(knots * (1 - ROUNDING[precision] * exponent))

"""Fast search for the last knot before a number: leading bits of a non-negative float preserve order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.cached_property import cached_property

# Bits that are dropped, by the size of a type. What stays tells numbers of any size apart to one part in 512 (tables of
# 2 MB for float64), or to one part in 8 (32 kB): enough for a few numbers, and made in no time.
_FINE, _COARSE = {4: 14, 8: 43}, {4: 20, 8: 49}
# Up to so many numbers the coarse table does.
_FEW_ENTRIES = 1 << 15


class Lookup(NamedTuple):
    """For each cell of leading bits, the last knot not above its first number, and that of its last number."""

    shift: int
    first: NDArray[np.int32]
    last: NDArray[np.int32]

    def cells(self, x: NDArray[Any]) -> NDArray[Any]:
        """Cell of every entry of x (contiguous, in [0, 1], no negative zeros)."""
        bits: NDArray[Any] = x.view(np.int32 if x.dtype.itemsize == 4 else np.int64)
        return np.asarray(np.right_shift(bits, self.shift))


def build_lookup(knots: NDArray[np.float64], dtype: np.dtype[Any], shift: int) -> Lookup:
    """Table for numbers in [0, 1] of a type, and sorted knots; -1 stands for "left of all knots"."""
    integer = np.dtype(f"i{dtype.itemsize}")
    cells = (int(np.array(1.0, dtype).view(integer)) >> shift) + 1
    below = np.minimum(knots.astype(dtype), dtype.type(2))  # the largest number of the type that is not above the knot
    below = np.where(below > knots, np.nextafter(below, dtype.type(0)), below)
    bits = np.abs(below).view(integer)
    # A knot at the start of a cell is not above the cell's first number; every other one is not above its last number.
    of_cell = np.minimum(bits >> shift, cells)
    from_cell = np.minimum(of_cell + ((below < knots) | (bits & ((1 << shift) - 1) != 0)), cells)
    last_knot = np.arange(-1, len(knots), dtype=np.int32)
    first, last = (np.repeat(last_knot, np.diff(cell, prepend=0, append=cells)) for cell in (from_cell, of_cell))
    return Lookup(shift, first, last)


def positions(x: NDArray[Any], knots: NDArray[np.float64], lookup: Lookup) -> NDArray[np.int32]:
    """Last knot not above each entry of x, -1 where there is none."""
    cells = lookup.cells(x)
    found: NDArray[np.int32] = lookup.first[cells]
    unsure = found != lookup.last[cells]
    if unsure.any():
        found[unsure] = np.searchsorted(knots, x[unsure].astype(np.float64), side="right") - 1
    return found


class Piecewise:
    """A piecewise linear function on [0, 1]: values[k] + slopes[k] (x - knots[k]) from knot k on, ``left`` before."""

    def __init__(
        self,
        knots: NDArray[np.float64],
        values: NDArray[np.float64],
        slopes: NDArray[np.float64],
        left: float,
    ):
        self.knots = knots
        self.values = values
        self.slopes = slopes
        self.left = left
        self._lookups: dict[tuple[int, int], Lookup] = {}

    @cached_property
    def steps(self) -> bool:
        """Whether it is a step function."""
        return not self.slopes.any()

    def lookup(self, x: NDArray[Any]) -> Lookup:
        """Return the lookup table for the entries of x, a small one for few entries; each is made once."""
        size = x.dtype.itemsize
        shift = (_COARSE if x.size <= _FEW_ENTRIES else _FINE)[size]
        found = self._lookups.get((size, shift))
        if found is None:
            found = self._lookups[size, shift] = build_lookup(self.knots, x.dtype, shift)
        return found

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Value at every entry of x."""
        k = np.searchsorted(self.knots, x, side="right")
        if self.steps:
            return np.append(self.left, self.values)[k]
        k -= 1
        inside = np.maximum(k, 0)
        result = self.values[inside] + self.slopes[inside] * (x - self.knots[inside])
        return np.where(k < 0, self.left, result)

"""Finding the knot before a number fast: the leading bits of a non-negative float are an index that keeps its order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Bits that are dropped: what stays tells numbers apart to one part in 512, whatever their size.
_SHIFT = {4: 14, 8: 43}


@dataclass(frozen=True)
class Lookup:
    """For each cell of leading bits, the last knot not above its first number, and that of its last number."""

    shift: int
    first: NDArray[np.int32]
    last: NDArray[np.int32]

    def cells(self, x: NDArray[Any]) -> NDArray[Any]:
        """Cell of every entry of x (contiguous, in [0, 1], no negative zeros)."""
        bits: NDArray[Any] = x.view(np.int32 if x.dtype.itemsize == 4 else np.int64)
        return np.asarray(np.right_shift(bits, self.shift))


def build_lookup(knots: NDArray[np.float64], dtype: np.dtype[Any]) -> Lookup:
    """Table for numbers in [0, 1] of a type, and sorted knots; -1 stands for "left of all knots"."""
    shift = _SHIFT[dtype.itemsize]
    integer = np.dtype(f"i{dtype.itemsize}")
    top = int(np.array(1.0, dtype).view(integer)) >> shift
    starts = (np.arange(top + 2, dtype=integer) << shift).view(dtype).astype(np.float64)
    position = (np.searchsorted(knots, starts, side="right") - 1).astype(np.int32)
    # A cell ends just before the next one starts; a knot exactly there belongs to the next cell.
    before = (np.searchsorted(knots, starts[1:], side="left") - 1).astype(np.int32)
    return Lookup(shift, position[:-1], np.maximum(before, position[:-1]))


def positions(x: NDArray[Any], knots: NDArray[np.float64], lookup: Lookup) -> NDArray[np.int32]:
    """Last knot not above each entry of x, -1 where there is none."""
    cells = lookup.cells(x)
    found: NDArray[np.int32] = lookup.first[cells]
    unsure = found != lookup.last[cells]
    if unsure.any():
        found[unsure] = np.searchsorted(knots, x[unsure].astype(np.float64), side="right") - 1
    return found


@dataclass(frozen=True, eq=False)
class Piecewise:
    """A piecewise linear function on [0, 1]: values[k] + slopes[k] (x - knots[k]) from knot k on, ``left`` before."""

    knots: NDArray[np.float64]
    values: NDArray[np.float64]
    slopes: NDArray[np.float64]
    left: float

    @cached_property
    def steps(self) -> bool:
        """Whether it is a step function."""
        return not self.slopes.any()

    @cached_property
    def _lookups(self) -> dict[int, Lookup]:
        return {}

    def lookup(self, dtype: np.dtype[Any]) -> Lookup:
        """Table for arguments of a type, made once."""
        found = self._lookups.get(dtype.itemsize)
        if found is None:
            found = self._lookups[dtype.itemsize] = build_lookup(self.knots, dtype)
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

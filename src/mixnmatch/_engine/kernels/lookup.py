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
    starts = (np.arange(top + 1, dtype=integer) << shift).view(dtype).astype(np.float64)
    # Few knots are placed among many cells, not the cells among the knots. A knot at the start of a cell is not above
    # the cell's first number; every other one is not above the last number of its cell.
    last_knot = np.arange(-1, len(knots), dtype=np.int32)
    from_cell = np.searchsorted(starts, knots, side="left")
    of_cell = np.searchsorted(starts, knots, side="right") - 1
    first, last = (np.repeat(last_knot, np.diff(cell, prepend=0, append=top + 1)) for cell in (from_cell, of_cell))
    return Lookup(shift, first, last)


# A table of where knots are has at most so many cells: it stays in a second-level cache.
_CELLS = 1 << 18


# Logarithms below this are of numbers so small that they have fewer digits than others.
_LOWEST = -690.0


@dataclass(frozen=True, eq=False)
class LogKnots:
    """Logarithms of sorted knots, to be compared with those of softmax entries, and cells of equal width of these.

    Cell 0 is everything below ``low`` and the last everything above all knots. A number in cell c has at least
    ``first[c]`` and at most ``last[c]`` knots below it. Two logarithms that differ by less than ``doubt`` may be those
    of one entry and a knot that is the same, or the next number to it.
    """

    values: NDArray[np.float64]
    low: float
    scale: float
    first: NDArray[np.int32]
    last: NDArray[np.int32]
    doubt: float

    @classmethod
    def of(cls, knots: NDArray[np.float64], n_classes: int) -> LogKnots:
        """Cells for the entries of rows of so many classes."""
        with np.errstate(divide="ignore"):
            logs = np.log(knots)
        # The sum of a row's exponentials, added up in any order, is off by at most as many units in the last place as
        # there are classes; the rest is the rounding of a few operations on numbers down to the lowest.
        doubt = float((2 * n_classes + 6000) * np.finfo(np.float64).eps)
        low, high = max(float(logs[0]), _LOWEST) - 4 * doubt, max(float(logs[-1]), _LOWEST) + 4 * doubt
        edges = np.concatenate([[-np.inf], np.linspace(low, high, _CELLS + 1), [np.inf]])
        first = np.searchsorted(logs, edges[:-1] - 2 * doubt).astype(np.int32)
        last = np.searchsorted(logs, edges[1:] + 2 * doubt).astype(np.int32)
        return cls(logs, low, _CELLS / (high - low), first, last, doubt)


@dataclass(frozen=True, eq=False)
class Knots:
    """Sorted numbers in [0, 1] among which many others are placed: cells of leading bits, from the first to the last.

    How many knots are not above a number is between ``first`` and ``last`` of its cell.
    """

    values: NDArray[np.float64]

    @cached_property
    def _logarithms(self) -> dict[int, LogKnots]:
        return {}

    def logarithms(self, n_classes: int) -> LogKnots:
        """Their logarithms, made once for a number of classes."""
        found = self._logarithms.get(n_classes)
        if found is None:
            found = self._logarithms[n_classes] = LogKnots.of(self.values, n_classes)
        return found

    @cached_property
    def _cells(self) -> dict[int, tuple[int, int, NDArray[np.int32], NDArray[np.int32]]]:
        return {}

    def cells(self, dtype: np.dtype[Any]) -> tuple[int, int, NDArray[np.int32], NDArray[np.int32]]:
        """Bits that are dropped, the first cell, and the two bounds for each cell; made once for a type."""
        found = self._cells.get(dtype.itemsize)
        if found is None:
            found = self._cells[dtype.itemsize] = self._cut(dtype)
        return found

    def _cut(self, dtype: np.dtype[Any]) -> tuple[int, int, NDArray[np.int32], NDArray[np.int32]]:
        integer = np.dtype(f"i{dtype.itemsize}")
        low, high = (int(np.abs(self.values[k]).astype(dtype).view(integer)) for k in (0, -1))
        shift = max(0, (high - low).bit_length() - _CELLS.bit_length() + 2)
        base = low >> shift
        starts = (np.arange(base, (high >> shift) + 2, dtype=integer) << shift).view(dtype).astype(np.float64)
        first = np.searchsorted(self.values, starts[:-1], side="right").astype(np.int32)
        return shift, base, first, np.searchsorted(self.values, starts[1:], side="left").astype(np.int32)


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

    def has_lookup(self, dtype: np.dtype[Any]) -> bool:
        """Whether the table for arguments of a type has been made."""
        return dtype.itemsize in self._lookups

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

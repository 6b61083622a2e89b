"""Find the gap between sorted knots that each of many entries falls into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.cached_property import cached_property

# A table of where knots are has at most so many cells: it stays in a second-level cache.
_CELLS = 1 << 18


# Logarithms below this are of numbers so small that they have fewer digits than others.
_LOWEST = -690.0


@dataclass(frozen=True, eq=False)
class LogKnots:
    """Logarithms of sorted knots in cells of equal width, for comparison with logarithms of softmax entries.

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

"""Probabilities that were computed, from logits, by a map or by renormalising, and differ by rounding: they are ties.

Exponentials and sums differ in their last bits between libraries, and with the order of the classes. A step of a map
between two such probabilities would put a sample on one side or the other by accident, and on the other side in another
runtime. So steps are put at the edges of narrow cells, never inside of one. A cell holds all numbers that have the same
first bits once they are rounded, so that numbers with few bits, such as 1/2 and 1, are in the middle of theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
# Bits of a number that do not count, of 52 after the first: cells have a relative width of about 2e-11, some 10,000
# times what two ways to compute a probability differ by.
DROPPED = 17
_HALF = 1 << (DROPPED - 1)
# All numbers below about 1e-289 are in one cell with 0: some runtimes give such a number where others give 0.
_LEAST = int(np.float64(2.0**-960).view(np.int64)) - _HALF


def lower_edges(p: NDArray[Any]) -> Vector:
    """The lower edges of the cells that non-negative numbers are in."""
    bits = _rounded_bits(p)
    bits -= _HALF
    bits[bits < _LEAST] = 0
    return bits.view(np.float64)


def upper_edges(p: NDArray[Any]) -> Vector:
    """The upper edges of the cells that non-negative numbers are in, which are the lower ones of the next."""
    bits = _rounded_bits(p)
    bits += _HALF
    return np.asarray(np.maximum(bits, _LEAST, out=bits).view(np.float64))


def are_edges(p: Vector) -> NDArray[np.bool_]:
    """Which numbers are edges of cells."""
    return np.asarray((p.view(np.int64) & ((1 << DROPPED) - 1) == _HALF) | (p == 0))


def _rounded_bits(p: NDArray[Any]) -> NDArray[np.int64]:
    bits = np.abs(np.asarray(p, dtype=np.float64)).view(np.int64)  # ordered like the numbers
    bits += _HALF
    bits >>= DROPPED
    bits <<= DROPPED
    return bits

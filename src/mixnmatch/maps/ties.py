"""Probabilities that were computed, from logits, by a map or by renormalising, and differ by rounding: they are ties.

Exponentials and sums differ in their last bits between libraries, and with the order of the classes. A step of a map
between two such probabilities would put a sample on one side or the other by accident, and on the other side in another
runtime. So steps are put at the edges of narrow cells, never inside of one. A cell holds all numbers that have the same
first bits once they are rounded, so that numbers with few bits, such as 1/2 and 1, are in the middle of theirs.

An edge can still be within rounding of a score of the calibration set: of n scores in n cells, about n / 10,000 are. A
map with a step at every score uses :func:`tied_groups`, which skips such edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
# Bits of a number that do not count, of 52 after the first: cells have a relative width of about 2e-11, some 10,000
# times what two ways to compute a probability differ by.
DROPPED = 17
_CELL, _HALF = 1 << DROPPED, 1 << (DROPPED - 1)
# Scores of the calibration set are at least so far from edges that :func:`tied_groups` gives: some 600 times what two
# ways to compute a probability differ by. Where scores are so dense that several edges in a row have one nearby, every
# so many keep the edge that is farthest from all scores.
_CLEARANCE, _MOST_SKIPPED = 1 << (DROPPED - 4), 4
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


def tied_groups(p: NDArray[Any]) -> tuple[NDArray[np.intp], Vector, Vector]:
    """Groups of non-negative numbers that may be ties: the group of each, and edges where groups start and end.

    Groups are in order. A group is made of one cell or of several: an edge that is next to a number is skipped, so that
    no rounding takes a number out of its group. Groups include their start but not their end.
    """
    # The cells of numbers, and where in them: all that is in the cell of 0 is in the middle of one below the others.
    bits = np.maximum(np.abs(np.asarray(p, dtype=np.float64)).view(np.int64), _LEAST - _HALF) + _HALF
    cell, cell_of = np.unique(bits >> DROPPED, return_inverse=True)
    skipped, lower, upper = _skipped_edges(bits)
    start, end = _unless_skipped(cell, skipped, lower), _unless_skipped(cell + 1, skipped, upper)
    starts, first, group = np.unique(start, return_index=True, return_inverse=True)
    # A group's cells end alike, because no edge between them is left.
    starts, ends = ((edge << DROPPED) - _HALF for edge in (starts, end[first]))
    starts[starts < _LEAST] = 0
    return group[cell_of], starts.view(np.float64), ends.view(np.float64)


def _skipped_edges(bits: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Edges that are next to a number, in order, and the closest other ones below and above. Edge k is below cell k."""
    inside = bits & (_CELL - 1)
    near = np.minimum(inside, _CELL - inside) < _CLEARANCE
    inside = inside[near]
    edges, edge_of = np.unique((bits[near] >> DROPPED) + (inside > _HALF), return_inverse=True)
    clearance = np.full(len(edges), _CELL)
    np.minimum.at(clearance, edge_of, np.minimum(inside, _CELL - inside))
    # Of so many edges in a row that would all be skipped one is kept.
    full = np.unique(edges // _MOST_SKIPPED, return_counts=True)[1]
    best_first = np.lexsort((-clearance, edges // _MOST_SKIPPED))
    first = np.cumsum(full) - full
    edges = np.delete(edges, best_first[first[full == _MOST_SKIPPED]])
    is_new = np.diff(edges, prepend=-1) > 1
    is_last = np.append(is_new[1:], True)[: len(edges)]
    run_of = np.cumsum(is_new) - 1
    return edges, edges[is_new][run_of] - 1, edges[is_last][run_of] + 1


def _unless_skipped(
    edges: NDArray[np.int64], skipped: NDArray[np.int64], instead: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The edges, or others instead of the skipped ones."""
    if not len(skipped):
        return edges
    at = np.minimum(np.searchsorted(skipped, edges), len(skipped) - 1)
    return np.where(skipped[at] == edges, instead[at], edges)


def are_edges(p: Vector) -> NDArray[np.bool_]:
    """Which numbers are edges of cells."""
    return np.asarray((p.view(np.int64) & ((1 << DROPPED) - 1) == _HALF) | (p == 0))


def _rounded_bits(p: NDArray[Any]) -> NDArray[np.int64]:
    bits = np.abs(np.asarray(p, dtype=np.float64)).view(np.int64)  # ordered like the numbers
    bits += _HALF
    bits >>= DROPPED
    bits <<= DROPPED
    return bits

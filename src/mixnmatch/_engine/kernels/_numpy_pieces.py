"""NumPy kernels of piecewise-linear functions: interpolation between knots."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.kernels.lookup import Piecewise, positions

Block = NDArray[Any]
Rows = NDArray[np.float64]

# Up to so many rows all columns are searched together, and not one after another.
_FEW = 64
# Steps of functions with up to so many knots are counted and not searched, in so many entries at a time.
_FEW_KNOTS, _STEPS = 24, 1 << 15
# Entries whose temporaries are small: the memory of larger ones would come from the system anew each time.
_CHUNK = 1 << 13


def even_cells(x: Rows, low: float, fine: int, factor: float, nodes: int) -> tuple[NDArray[np.intp], Rows]:
    """Cell of every entry between nodes from 0 downwards, and how far down the cell it is.

    There are ``fine`` even steps to ``low``; the steps below are ``factor`` times as wide.
    """
    share = x * (fine / low)
    np.minimum(share, fine + (share - fine) / factor, out=share)
    np.clip(share, 0.0, nodes - 1, out=share)
    cell = np.minimum(share.astype(np.intp), nodes - 2)
    share -= cell
    return cell, share


def add_interpolated(x: Rows, cell: NDArray[np.intp], share: Rows, values: Rows) -> Rows:
    """The sum of x and of the piecewise-linear function with the given values at the nodes."""
    result: Rows = np.diff(values)[cell]
    result *= share
    result += values[cell]
    result += x
    return result


def add_deviation(x: Rows, low: float, fine: int, factor: float, values: Rows) -> Rows:
    """The sum of x and of a piecewise-linear function of it, with values at the nodes of :func:`even_cells`."""
    return add_interpolated(x, *even_cells(x, low, fine, factor, len(values)), values)


def interpolate_into(x: Block, function: Piecewise, out: Block) -> None:
    """Write out = function(x) for every entry of a contiguous block of probabilities."""
    x = _in_unit_interval(x)
    lookup, flat, target = function.lookup(x), x.reshape(-1), out.reshape(-1)
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK]
        k = positions(part, function.knots, lookup)
        left = k < 0
        np.maximum(k, 0, out=k)
        result = function.values[k]
        if not function.steps:
            result += function.slopes[k] * (part - function.knots[k])
        result[left] = function.left
        target[start : start + _CHUNK] = result


def interpolate_columns_into(
    x: Block, knots: Rows, values: Rows, slopes: Rows, left: Rows, offsets: NDArray[np.int64], out: Block
) -> None:
    """Write out[:, k] = k-th function(x[:, k]): the functions are stored end to end, the k-th from offsets[k] on."""
    x = _in_unit_interval(x)
    if len(x) <= _FEW:
        last = _last_knots(x, knots, offsets)
        np.copyto(out, values[last] + slopes[last] * (x - knots[last]))
        np.copyto(out, left, where=last < offsets[:-1])
        return
    if np.diff(offsets).max() <= _FEW_KNOTS and not slopes.any():
        _count_steps_into(x, knots, values, left, offsets, out)
        return
    for k, column in enumerate(np.ascontiguousarray(x.T)):
        span = slice(offsets[k], offsets[k + 1])
        out[:, k] = Piecewise(knots[span], values[span], slopes[span], float(left[k]))(column)


def _last_knots(x: Block, knots: Rows, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Last knot of its own column not above each entry, the one before its first where there is none."""
    low, high = (np.tile(ends, (len(x), 1)) for ends in (offsets[:-1] - 1, offsets[1:] - 1))
    for _ in range(int(np.diff(offsets).max()).bit_length()):  # halves all ranges at once
        middle = (low + high + 1) >> 1
        above = knots[middle] <= x
        high = np.where(above, high, np.maximum(middle - 1, low))
        low = np.where(above, middle, low)
    return low


def _count_steps_into(x: Block, knots: Rows, values: Rows, left: Rows, offsets: NDArray[np.int64], out: Block) -> None:
    """The same for step functions with few knots: the knots not above each entry are counted, all columns together."""
    sizes = np.diff(offsets)
    column = np.repeat(np.arange(len(sizes)), sizes)
    rung = np.arange(len(knots)) - offsets[column]
    ladder = np.full((int(sizes.max()), len(sizes)), np.inf)  # the first knots of all columns, the second ones ...
    ladder[rung, column] = knots
    levels = np.full((len(sizes), len(ladder) + 1), np.nan)
    levels[:, 0], levels[column, rung + 1] = left, values
    first, rows = np.arange(len(sizes)) * levels.shape[1], max(1, _STEPS // x.shape[1])
    for start in range(0, len(x), rows):
        part = x[start : start + rows].astype(np.float64)
        count = np.zeros(part.shape, np.int8)
        for knot in ladder:
            count += (part >= knot).view(np.int8)
        out[start : start + rows] = levels.ravel()[count + first]


def _in_unit_interval(x: Block) -> Block:
    """Clip to [0, 1]: rounding may leave the interval, and a zero may be negative."""
    x = np.abs(x)
    return np.asarray(np.minimum(x, x.dtype.type(1), out=x))

"""Log-odds of binary problems in order, with the labels counted: exactly for few samples, in fine cells for many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.cached_property import cached_property
from mixnmatch.maps.columns import Columns, labels, log_odds, weighted_count

Array = NDArray[np.float64]
# Problems of up to so many entries, and of up to so many together, keep every distinct score.
EXACT_EACH, EXACT_ALL = 1 << 14, 1 << 22
# Otherwise log-odds x fall into cells of equal width of asinh(x): so many of them, fewer with many problems. The first
# and the last one hold all log-odds beyond FAR. Where fewer than ENOUGH are filled, or these two are, cells are made
# again between the smallest and the largest log-odds.
CELLS, FEWEST_CELLS, CELLS_ALL, FAR, ENOUGH = 1 << 14, 1 << 10, 1 << 21, 1e4, 1 << 8
# A span of log-odds below this is no span.
NARROW = 1e-6
REACH = (-float(np.arcsinh(FAR)), float(np.arcsinh(FAR)))
# Slopes stay above this over the size of the log-odds, so that functions increase strictly.
SMALLEST_SLOPE = 1e-6


@dataclass(frozen=True)
class OddsTable:
    """Entries of a binary problem in groups of equal (or nearly equal) log-odds, in increasing order."""

    log_odds: Array
    weight: Array
    positive: Array  # weight of the positive entries

    def quantiles(self, shares: Array) -> Array:
        """Log-odds below or at which there are these shares of the weight."""
        running = np.cumsum(self.weight)
        indices = np.searchsorted(running, shares * running[-1] * (1 - 1e-12), side="left")
        return np.asarray(self.log_odds[np.minimum(indices, len(running) - 1)])

    def span(self, share: float) -> tuple[float, float]:
        """Two different log-odds with at most ``share`` of the weight beyond each."""
        low, high = (float(end) for end in self.quantiles(np.array([share, 1.0 - share])))
        if high - low < NARROW:
            low, high = float(self.log_odds[0]), float(self.log_odds[-1])
        return (low, high) if high - low >= NARROW else ((low + high - 1) / 2, (low + high + 1) / 2)

    @cached_property
    def size(self) -> float:
        """Root mean square of the log-odds."""
        return float(np.sqrt(self.weight @ np.square(self.log_odds) / self.weight.sum()))

    @cached_property
    def slope_unit(self) -> float:
        """What a change of a slope by 1 changes log-odds by, where that is less than 1: their standard deviation."""
        spread = np.sqrt(self.weight @ np.square(self.log_odds - self._mean) / self.weight.sum())
        return float(min(spread, 1.0)) if spread >= NARROW else 1.0  # equal scores say nothing of a slope

    @property
    def pivot(self) -> float:
        """Where slopes turn at no cost: at 0, but close to the mean where all log-odds are close to it."""
        return (1 - self.slope_unit) * self._mean

    @property
    def _mean(self) -> float:
        return float(self.weight @ self.log_odds / self.weight.sum())

    @property
    def smallest_slope(self) -> float:
        """What the slope of a function that increases strictly is at least."""
        return SMALLEST_SLOPE / max(1.0, self.size)

    def in_cells(self, most: int, cells: int = CELLS) -> OddsTable:
        """The table itself if it has at most so many groups, else one with the groups of a cell joined."""
        if len(self.weight) <= most:
            return self
        cell = _cells(self.log_odds, cells, (np.arcsinh(self.log_odds[0]), np.arcsinh(self.log_odds[-1])))
        parts = self.weight, self.positive, self.weight * self.log_odds
        return _means(*(weighted_count(cell, part, cells) for part in parts))


def odds_tables(columns: Columns, floor: float) -> list[OddsTable]:
    """A table of log-odds for each problem, with probabilities read as at least ``floor``."""
    per_problem = columns.source.n_entries if columns.scheme == "pooled" else columns.source.n_rows
    if per_problem <= EXACT_EACH and per_problem * columns.n_problems <= EXACT_ALL:
        parts = list(columns.map_blocks(_block_odds, floor))
        x, positive = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        weight = np.concatenate([part[2] for part in parts])
        return [_distinct(x[:, k], positive[:, k], weight) for k in range(columns.n_problems)]
    cells = int(np.clip(CELLS_ALL // columns.n_problems, FEWEST_CELLS, CELLS))
    sums = columns.total(_block_cells, floor, cells, REACH, block_bytes=1 << 24)
    filled = sums[0] > 0
    if (filled.sum(axis=1) < ENOUGH).any() or filled[:, [0, -1]].any():
        ends = columns.source.total(_block_ends, columns.scheme, floor, combine=np.maximum)
        low, high = -ends[0], ends[1]
        sums = columns.total(_block_cells, floor, cells, (low, high), block_bytes=1 << 24)
    return [_means(*problem) for problem in np.moveaxis(sums, 1, 0)]


def _block_odds(block: Block, scheme: str, floor: float) -> tuple[Array, NDArray[np.bool_], Array]:
    x = log_odds(block, scheme, floor)
    positive, weight = labels(block, scheme)
    return x, positive, np.ones(len(x)) if weight is None else weight


def _distinct(x: Array, positive: NDArray[np.bool_], weight: Array) -> OddsTable:
    distinct, group = np.unique(x, return_inverse=True)
    sums = [weighted_count(group, part, len(distinct)) for part in (weight, weight * positive)]
    return OddsTable(distinct, *sums)


def _block_ends(block: Block, scheme: str, floor: float) -> Array:
    """Asinh of the largest log-odds of each problem, and of the smallest one with the other sign, 2 x K."""
    x = log_odds(block, scheme, floor)
    return np.asarray(np.arcsinh(np.stack([-x.min(axis=0), x.max(axis=0)])))


def _block_cells(block: Block, scheme: str, floor: float, cells: int, ends: tuple[Any, Any]) -> Array:
    """Weight, weight of positives and weighted sum of log-odds in each cell, 3 x K x cells."""
    x, positive, weight = _block_odds(block, scheme, floor)
    problems = x.shape[1]
    cell = _cells(x, cells, ends)
    cell += np.arange(problems) * cells
    each = np.repeat(weight, problems)
    parts = each, each * positive.ravel(), each * x.ravel()
    sums = [weighted_count(cell.ravel(), part, problems * cells) for part in parts]
    return np.stack(sums).reshape(3, problems, cells)


def _cells(x: Array, cells: int, ends: tuple[Any, Any]) -> NDArray[np.intp]:
    """Cells of log-odds, of equal width of asinh(x) between two ends."""
    width = np.maximum(ends[1] - ends[0], np.finfo(float).tiny) / cells
    return np.asarray(np.clip((np.arcsinh(x) - ends[0]) / width, 0, cells - 1), dtype=np.intp)


def _means(weight: Array, positive: Array, total: Array) -> OddsTable:
    filled = weight > 0
    return OddsTable(total[filled] / weight[filled], weight[filled], positive[filled])

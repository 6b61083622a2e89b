"""Tables of sorted scores that bins of equal mass are cut from: in memory, or found in passes over the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.cached_property import cached_property
from mixnmatch._engine.passes import run_blocks
from mixnmatch.maps.columns import COPIED_COLUMNS, Columns, tied_entries, weighted_count
from mixnmatch.maps.ties import upper_edges

T = TypeVar("T")
Vector = NDArray[np.float64]
# So many entries are sorted in memory at a time, some of the problems in each of so many passes over the rows. If that
# does not do, and on Dask, other passes find where bins end.
SORTED_ENTRIES, MOST_PASSES = 1 << 25, 16
# Counters of a pass.
CELLS = 1 << 20
# Non-negative floats below 2 are ordered like their bits, of which so many can be set.
BITS = 62


class BinaryScores(ABC):
    """Scores of a binary problem in order. A position in it, from 0 to ``size``, is a place where a bin can end."""

    size: int
    total: float  # weight of all entries
    n_distinct: int  # distinct scores, counted at least up to the number of bins asked for

    @abstractmethod
    def reach(self, goals: Vector) -> NDArray[np.intp]:
        """First positions, ties kept together, up to which there is the weight ``goals`` (above 0, in any order)."""

    @abstractmethod
    def middle(self, cuts: NDArray[np.intp]) -> Vector:
        """Half-way between the scores on the two sides of positions, none of them an end of the table."""

    @abstractmethod
    def below(self, cuts: NDArray[np.intp]) -> tuple[Vector, Vector]:
        """Weight of all and of the positive entries before positions."""

    def equal_mass(self, bins: int) -> NDArray[np.intp]:
        """Positions where ``bins`` bins of equal weight start and end; ties stay together, empty bins vanish."""
        inner = self.reach(goals(self.total, np.arange(1, bins), bins))
        return np.unique(np.concatenate([[0], inner, [self.size]]))

    def edges(self, cuts: NDArray[np.intp], *, computed: bool) -> Vector:
        """Edges of the bins: half-way between the scores on the two sides of a cut; 0 and 1 at the ends.

        Those of computed scores are between cells of ties: above the cell of the lower score, not above the other's.
        """
        middle = self.middle(cuts[1:-1])
        return np.concatenate([[0.0], upper_edges(middle) if computed else middle, [1.0]])

    def weights_between(self, cuts: NDArray[np.intp]) -> tuple[Vector, Vector]:
        """Weight of all and of the positive entries between cuts."""
        weight, positive = self.below(cuts)
        return np.diff(weight), np.diff(positive)


@dataclass(frozen=True)
class SortedScores(BinaryScores):
    """Entries without weights: all scores in order, and those of the positives. Positions count entries."""

    scores: NDArray[Any]
    positive: NDArray[Any]

    @classmethod
    def of(cls, scores: NDArray[Any], positive: NDArray[np.bool_]) -> SortedScores:
        """Table of scores in memory. Sorting both is much faster than sorting one and carrying labels along."""
        return cls(np.sort(scores), np.sort(scores[positive]))

    @property
    def size(self) -> int:  # type: ignore[override]
        """Number of entries."""
        return len(self.scores)

    @property
    def total(self) -> float:  # type: ignore[override]
        """Number of entries."""
        return float(len(self.scores))

    @cached_property
    def n_distinct(self) -> int:  # type: ignore[override]
        """Number of distinct scores."""
        return 1 + int(np.count_nonzero(self.scores[1:] != self.scores[:-1]))

    def reach(self, goals: Vector) -> NDArray[np.intp]:
        """First positions, ties kept together, up to which there are as many entries as ``goals``."""
        indices = np.ceil(goals).astype(np.intp)
        if self.n_distinct == len(self.scores):
            return indices
        return np.searchsorted(self.scores, self.scores[indices - 1], side="right")

    def middle(self, cuts: NDArray[np.intp]) -> Vector:
        """Half-way between the scores on the two sides of positions, none of them an end of the table."""
        return np.asarray((self.scores[cuts - 1].astype(np.float64) + self.scores[cuts]) / 2)

    def below(self, cuts: NDArray[np.intp]) -> tuple[Vector, Vector]:
        """Number of all and of the positive entries before positions."""
        positive = np.full(len(cuts), float(len(self.positive)))
        inner = cuts < len(self.scores)
        positive[inner] = np.searchsorted(self.positive, self.scores[cuts[inner]], side="left")
        return cuts.astype(np.float64), positive


@dataclass(frozen=True)
class GroupedScores(BinaryScores):
    """Scores in groups: lowest and highest score, and running weights up to each group. Positions count groups.

    A group is one distinct score, or all scores between two of which no bin ends.
    """

    low: Vector
    high: Vector
    weight: Vector
    positive: Vector
    n_distinct: int

    @classmethod
    def of(cls, scores: NDArray[Any], positive: NDArray[np.bool_], weight: Vector) -> GroupedScores:
        """Table of scores in memory, a group for each distinct one."""
        order = np.argsort(scores)
        scores, weight = scores[order].astype(np.float64), weight[order]
        starts = np.flatnonzero(np.append(True, scores[1:] != scores[:-1]))
        sums = np.add.reduceat(weight, starts), np.add.reduceat(weight * positive[order], starts)
        return cls.of_groups(scores[starts], scores[starts], *sums, n_distinct=len(starts))

    @classmethod
    def of_groups(
        cls, low: Vector, high: Vector, weight: Vector, positive: Vector, *, n_distinct: int
    ) -> GroupedScores:
        """Table of groups with their weights."""
        running, right = (np.concatenate([[0.0], np.cumsum(part)]) for part in (weight, positive))
        return cls(low, high, running, right, n_distinct)

    @property
    def size(self) -> int:  # type: ignore[override]
        """Number of groups."""
        return len(self.low)

    @property
    def total(self) -> float:  # type: ignore[override]
        """Weight of all entries."""
        return float(self.weight[-1])

    def reach(self, goals: Vector) -> NDArray[np.intp]:
        """First positions up to which there is the weight ``goals``."""
        return np.searchsorted(self.weight, goals, side="left")

    def middle(self, cuts: NDArray[np.intp]) -> Vector:
        """Half-way between the scores on the two sides of positions, none of them an end of the table."""
        return np.asarray((self.high[cuts - 1] + self.low[cuts]) / 2)

    def below(self, cuts: NDArray[np.intp]) -> tuple[Vector, Vector]:
        """Weight of all and of the positive entries before positions."""
        return self.weight[cuts], self.positive[cuts]


def goals(total: float, numbers: NDArray[np.intp], bins: NDArray[np.intp] | int) -> Vector:
    """Running weights at which the bins with these ``numbers`` end, of ``bins`` of equal mass.

    Rounding must not put off the end of a bin.
    """
    return np.asarray(total * numbers / bins * (1 - 1e-12))


def map_tables(columns: Columns, bin_counts: Sequence[int], work: Callable[[BinaryScores], T]) -> Iterator[T]:
    """``work(table)`` for a table of each problem that can be cut into these numbers of bins of equal mass."""
    source = columns.source
    at_a_time = _sorted_together(columns)
    if at_a_time:
        parts = [slice(k, k + at_a_time) for k in range(0, columns.n_problems, at_a_time)]
        return (one for part in parts for one in _map_sorted(columns.gathered(part, tied=True), work))
    total = columns.entry_weight()
    wanted = np.unique(np.concatenate([goals(total, np.arange(1, bins), bins) for bins in bin_counts]))
    distinct = columns.total(_distinct, max(bin_counts)).scores
    ends = _ends_of_bins(columns, wanted)
    groups = source.total(_groups, columns.scheme, ends, combine=_merged)
    return (work(_table(*parts)) for parts in zip(ends, groups, distinct, strict=True))


def _sorted_together(columns: Columns) -> int:
    """How many of the problems are to be sorted in memory at a time, 0 if none."""
    if columns.one_by_one:
        return COPIED_COLUMNS
    together = SORTED_ENTRIES * columns.n_problems // columns.source.n_entries
    return 0 if columns.source.on_dask or together * MOST_PASSES < columns.n_problems else together


def _map_sorted(gathered: list[Any], work: Callable[[BinaryScores], T]) -> Iterator[T]:
    one_each = [(k, k + 1) for k in range(len(gathered))]
    return run_blocks(lambda k, _: work(_sorted_table(*gathered[k])), one_each)


def _sorted_table(scores: NDArray[Any], positive: NDArray[np.bool_], weight: Vector | None) -> BinaryScores:
    return SortedScores.of(scores, positive) if weight is None else GroupedScores.of(scores, positive, weight)


def _table(ends: Vector, groups: Vector, distinct: Vector) -> GroupedScores:
    weight, positive, low = groups
    filled = np.isfinite(low)  # but for the last one, groups end with a score and are not empty
    high = np.append(ends, 1.0)
    return GroupedScores.of_groups(
        low[filled], high[filled], weight[filled], positive[filled], n_distinct=len(distinct)
    )


def _distinct(block: Block, scheme: str, most: int) -> Lowest:
    scores = tied_entries(block, scheme).scores
    return Lowest(most, [np.unique(column)[:most].astype(np.float64) for column in scores.T])


@dataclass(frozen=True)
class Lowest:
    """The lowest distinct scores of each problem, at most so many: enough to know how many there are up to that."""

    most: int
    scores: list[Vector]

    def __add__(self, other: Lowest) -> Lowest:
        """The lowest of both."""
        pairs = zip(self.scores, other.scores, strict=True)
        return Lowest(self.most, [np.union1d(a, b)[: self.most] for a, b in pairs])


def _ends_of_bins(columns: Columns, goals: Vector) -> list[Vector]:
    """For each problem the scores at which the running weight first reaches a goal, exactly.

    Scores are compared by their bits, from the leading ones on: each pass counts the weight in finer cells of those
    ranges in which a goal lies.
    """
    prefix = [np.zeros(len(goals), dtype=np.int64) for _ in range(columns.n_problems)]
    below = [np.zeros(len(goals)) for _ in prefix]
    left = BITS
    while left and len(goals):
        ranges = [np.unique(one) for one in prefix]
        room = CELLS // sum(len(one) for one in ranges)
        bits = min(left, max(1, int(room).bit_length() - 1))
        counts = columns.total(_cell_weights, tuple(ranges), left, bits)
        for k, (own, cells) in enumerate(zip(ranges, counts, strict=True)):
            row = np.searchsorted(own, prefix[k])
            cell, before = _cells_of_goals(np.cumsum(cells, axis=1), row, goals - below[k])
            below[k] += before
            prefix[k] = (prefix[k] << bits) | cell
        left -= bits
    return [np.unique(one).view(np.float64) if len(goals) else np.empty(0) for one in prefix]


def _cells_of_goals(running: Vector, row: NDArray[np.intp], goals: Vector) -> tuple[NDArray[np.intp], Vector]:
    """The cell of its row in which each goal is reached, and the weight in the cells before it."""
    cell = np.empty(len(row), dtype=np.intp)
    for r in np.unique(row):
        mine = row == r
        last = int(np.searchsorted(running[r], running[r, -1], side="left"))  # rounding may leave a goal just beyond
        cell[mine] = np.minimum(np.searchsorted(running[r], goals[mine], side="left"), last)
    return cell, np.where(cell > 0, running[row, cell - 1], 0.0)


def _cell_weights(block: Block, scheme: str, ranges: tuple[NDArray[np.int64], ...], left: int, bits: int) -> Any:
    """Weight in the 2^bits cells of each range; a range is all scores with the same bits but the last ``left``."""
    part = tied_entries(block, scheme)
    weights = []
    for column, own in zip(part.scores.T, ranges, strict=True):
        key = np.abs(column.astype(np.float64)).view(np.int64)
        row = np.minimum(np.searchsorted(own, key >> left), len(own) - 1)
        inside = own[row] == key >> left
        cell = (row << bits) | ((key >> (left - bits)) & ((1 << bits) - 1))
        weight = None if part.weight is None else part.weight[inside]
        sums = np.bincount(cell[inside], weight, len(own) << bits).astype(np.float64)
        weights.append(sums.reshape(len(own), -1))
    return tuple(weights)


def _groups(block: Block, scheme: str, ends: list[Vector]) -> list[Vector]:
    """Weight, weight of positives and lowest score of the entries up to each end, and beyond the last."""
    part = tied_entries(block, scheme)
    groups = []
    for column, positive, own in zip(part.scores.T, part.positive.T, ends, strict=True):
        group, size = np.searchsorted(own, column, side="left"), len(own) + 1
        weight = np.ones(len(column)) if part.weight is None else part.weight
        low = np.full(size, np.inf)
        np.minimum.at(low, group, column)
        groups.append(
            np.stack([weighted_count(group, weight, size), weighted_count(group, weight * positive, size), low])
        )
    return groups


def _merged(left: list[Vector], right: list[Vector]) -> list[Vector]:
    return [np.vstack([a[:2] + b[:2], np.minimum(a[2:], b[2:])]) for a, b in zip(left, right, strict=True)]

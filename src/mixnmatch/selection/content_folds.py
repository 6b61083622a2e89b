"""Folds by the content of samples: the same for any order of them, and for frequencies as for repetitions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.folds import class_statistics, fine_score_keys, fold_of, sample_keys
from mixnmatch._engine.rows import Rows

Keys = NDArray[np.uint64]
# Samples with equal scores are in the same fold, unless they are more than this share of all: a fold without a score
# that many samples have would say nothing about that score.
LARGEST_GROUP = 0.01
# Samples of larger groups are assigned one by one, or in at most about so many parts.
MOST_PARTS = 1 << 20
# Odd factors by which numbers are mixed.
FACTORS = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9


@dataclass(frozen=True, eq=False)
class ContentFolds:
    """Fold keys of samples, which take the place of their indices.

    A sample whose weight is a number of repetitions may be divided between folds. If any weight is not a whole number,
    as importance weights are, every sample is in one fold: a part of it in another one would be no new sample.

    Attributes
    ----------
    keys : array of shape (m,)
        A hash of each key is the fold.
    row : array of shape (m,), or None
        The row of the table that each key belongs to; None: one key for each row.
    weight : array of shape (m,), or None
        What each key weighs, where a sample with a weight is divided between folds.
    """

    keys: NDArray[np.int64]
    row: NDArray[np.intp] | None = None
    weight: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, source: Rows, n_folds: int, seed: int) -> ContentFolds:
        """The keys of a table in memory."""
        every = replace(source, weight=None)  # samples of weight 0 have a place in the table, too
        scores = np.concatenate(list(every.map_blocks(fine_score_keys)))
        weight = np.ones(len(scores)) if source.weight is None else np.asarray(source.weight, dtype=np.float64)
        _, group = np.unique(scores, return_inverse=True)
        large = (np.bincount(group, weight) > LARGEST_GROUP * weight.sum())[group] & (weight > 0)
        if not large.any():
            return cls(scores.view(np.int64))
        others = np.concatenate(list(every.map_blocks(sample_keys, _class_ranks(source))))
        repeated = bool((weight == np.floor(weight)).all())
        content = np.column_stack([scores, others, np.zeros_like(scores) if repeated else weight.view(np.uint64)])
        parts = _Parts.of(content, weight if repeated else np.ones(len(weight)), np.flatnonzero(large))
        if source.weight is None or not repeated:
            keys = scores.copy()
            keys[parts.row] = parts.keys
            return cls(keys.view(np.int64))
        parts = parts.merged(n_folds, seed)
        rest = np.flatnonzero(~large)
        row = np.concatenate([rest, parts.row])
        order = np.argsort(row, kind="stable")
        keys = np.concatenate([scores[rest], parts.keys])[order]
        return cls(keys.view(np.int64), row[order], np.concatenate([weight[rest], parts.weight])[order])

    def assign(self, source: Rows) -> Rows:
        """The samples with their keys as indices."""
        if self.row is None:
            return replace(source, index=self.keys)
        arrays = {"values": source.scores.values[self.row], "labels": source.labels[self.row], "weight": self.weight}
        return source._filled(arrays, self.keys)


@dataclass(frozen=True, eq=False)
class _Parts:
    """Samples of large groups, divided into parts of weight 1: keys, rows and weights of the parts.

    Samples with equal scores, and equal scores of their labels, are laid end to end in the order of their content and
    cut after each unit of weight. So k repetitions of a sample, in any order, and one sample of weight k are cut into
    the same parts.
    """

    keys: Keys
    row: NDArray[np.intp]
    weight: NDArray[np.float64]

    @classmethod
    def of(cls, content: Keys, weight: NDArray[np.float64], rows: NDArray[np.intp]) -> _Parts:
        rows = rows[np.lexsort(content[rows].T[::-1])]
        mass = weight[rows]
        unit = max(1.0, 2.0 ** np.ceil(np.log2(float(mass.sum()) / MOST_PARTS)))
        own = content[rows, :2]
        first = np.flatnonzero(np.append(True, (own[1:] != own[:-1]).any(axis=1)))
        end = np.concatenate([np.cumsum(part) for part in np.split(mass / unit, first[1:])])
        start = np.append(0.0, end[:-1])
        start[first] = 0.0
        low = np.floor(start + 1e-9).astype(np.int64)
        count = np.maximum(np.ceil(end - 1e-9).astype(np.int64) - low, 1)
        which = np.repeat(np.arange(len(rows)), count)
        number = low[which] + np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        inside = np.minimum(end[which], number + 1) - np.maximum(start[which], number)
        numbers = own[which, 0], own[which, 1], number.astype(np.uint64)
        key, label, place = (part * np.uint64(factor) for part, factor in zip(numbers, FACTORS, strict=True))
        return cls(key + label + place, rows[which], np.maximum(inside, 0.0) * unit)

    def merged(self, n_folds: int, seed: int) -> _Parts:
        """One part for each row and fold that it is in."""
        place = self.row * n_folds + fold_of(self.keys, n_folds, seed)
        _, first, which = np.unique(place, return_index=True, return_inverse=True)
        return _Parts(self.keys[first], self.row[first], np.bincount(which, self.weight).astype(np.float64))


def _class_ranks(source: Rows) -> NDArray[np.intp]:
    """The place of each class in an order by what is known of it, the same for any order of classes and samples.

    Classes of which the same is known, up to rounding, stay in their order.
    """
    known = np.round(source.total(class_statistics) / source.total_weight(), 6)
    return np.argsort(np.lexsort(known))

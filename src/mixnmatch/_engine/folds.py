"""Assign samples to folds by a hash of their index or scores, independent of storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mixnmatch._engine.block import Block

# Logarithm that stands for a probability of 0 where samples are only hashed.
LEAST_LOG = -700.0
# Weight of the sum of logarithms beside another sum in a key: no simple fraction.
GOLDEN = 0.6180339887498949
# The same for the largest logarithm.
SILVER = 0.4142135623730951
# Steps of keys for each unit of a logarithm.
KEY_STEPS = 2.0**16
# Every fold is a fit, and a fitted map that is kept.
MOST_FOLDS = 1000


@dataclass(frozen=True, eq=False)
class Fold:
    """One of ``n_folds`` folds; a hash of a sample's index or scores decides whether it belongs to it."""

    index: int
    n_folds: int
    keep: bool  # True: only the rows of the fold; False: all others
    seed: int = 0
    by_scores: bool = False  # whether it is a hash of the scores instead, so that equal rows are in the same fold

    def members(self, block: Block) -> NDArray[np.bool_]:
        """Which of the rows of a block take part."""
        number = score_keys(block) if self.by_scores else block.index
        inside: NDArray[np.bool_] = fold_of(number, self.n_folds, self.seed) == self.index
        return inside if self.keep else ~inside


def score_keys(block: Block) -> NDArray[np.uint64]:
    """Return an integer key for each sample, equal for logits and probabilities, and for any order of the classes.

    It is a sum over the log-probabilities in steps of 2^-16, which rounding changes in one row of many millions.
    """
    return _whole(_symmetric_sum(_logs(block)))


def fine_score_keys(block: Block) -> NDArray[np.uint64]:
    """Return the same kind of key, which also distinguishes scores that are nearly uniform.

    Sums over the classes hardly change there.
    """
    logs = _logs(block)
    return _whole(_symmetric_sum(logs) + SILVER * logs.max(axis=1))


def sample_keys(block: Block, rank: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return keys of each sample's label's score, of its scores in the order of the classes, and of its label; n x 3.

    The first one is equal for any order of the classes. ``rank`` is the place of each class in that order.
    """
    logs = _logs(block)
    at_label = _whole(logs[np.arange(len(logs)), block.y])
    in_order = _whole(logs @ np.cos(rank + 1.0))
    return np.stack([at_label, in_order, rank[block.y].astype(np.uint64)], axis=1)


def class_statistics(block: Block) -> NDArray[np.float64]:
    """Return sums for each class: its labels, its log-probabilities for samples with that label, and for all; 3 x L."""
    logs = _logs(block)
    at_label = logs[np.arange(len(logs)), block.y] * (1.0 if block.weight is None else block.weight)
    counts = [np.bincount(block.y, own, minlength=logs.shape[1]) for own in (block.weight, at_label)]
    return np.stack([*counts, block.weighted_sum(logs.T)])


def _logs(block: Block) -> NDArray[np.float64]:
    return np.maximum(block.log_probabilities(), LEAST_LOG)


def _symmetric_sum(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(GOLDEN * logs.sum(axis=1) + (logs / (1.0 - logs)).sum(axis=1))


def _whole(key: NDArray[np.float64]) -> NDArray[np.uint64]:
    return np.asarray(np.rint(key * KEY_STEPS).astype(np.int64).astype(np.uint64))


def check_folds(cv: Any) -> None:
    """Raise an error unless ``cv`` is a number of folds."""
    if isinstance(cv, bool) or not isinstance(cv, int | np.integer) or not 2 <= cv <= MOST_FOLDS:
        msg = f"cv must be a number of folds from 2 to {MOST_FOLDS}, got {cv!r}"
        raise ValueError(msg)


def fold_of(index: NDArray[Any] | range, n_folds: int, seed: int = 0) -> NDArray[np.intp]:
    """Return the fold of each index by a 64-bit hash, independent of order."""
    if not isinstance(seed, int | np.integer):
        msg = f"random_state must be a whole number, got {seed!r}"
        raise ValueError(msg)
    h = np.asarray(index, dtype=np.uint64) + np.uint64((int(seed) * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
    return ((h ^ (h >> np.uint64(31))) % np.uint64(n_folds)).astype(np.intp)

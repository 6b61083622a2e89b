"""Row sources: scores, labels, weights and the fitted maps before them, read block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch import kernels
from mixnmatch._passes import asked_backend, row_ranges, run_blocks, total
from mixnmatch._scores import ROUNDING, Scores

if TYPE_CHECKING:
    from mixnmatch.maps.base import CalibrationMap

T = TypeVar("T")

# Below this a zero is not told from a number: probabilities are read as at least so much where logarithms are taken.
SMALLEST_PROBABILITY = 1e-37
# Tables of two classes up to this many entries are turned into log-odds once instead of in every pass.
ODDS_ENTRIES = 1 << 26
# Every fold is a fit, and a fitted map that is kept.
MOST_FOLDS = 1000


@dataclass(frozen=True)
class Block:
    """Some consecutive rows: scores in one of three forms, labels and weights where there are any."""

    values: NDArray[Any]
    form: str  # "probabilities", "logits" or "log-probabilities" (what fitted maps hand on)
    index: NDArray[np.intp] | range  # which rows of the user's table these are
    labels: NDArray[np.intp] | None = None
    weight: NDArray[np.float64] | None = None
    uneven: bool = False  # rows of probabilities may be off the simplex by more than rounding
    backend: str = "numpy"

    @property
    def kernels(self) -> ModuleType:
        """Kernels for this block, chosen once for the whole source."""
        return kernels.choose(0, self.backend)

    def folds(self, n_folds: int, seed: int) -> NDArray[np.intp]:
        """Fold of each row of the block."""
        return fold_of(self.index, n_folds, seed)

    def rows(self, which: NDArray[np.bool_]) -> Block:
        """Scores of some of the rows, without labels and weights."""
        index = np.asarray(self.index)[which]
        return Block(self.values[which], self.form, index, uneven=self.uneven, backend=self.backend)

    @property
    def y(self) -> NDArray[np.intp]:
        """Labels, where the statistic needs them."""
        assert self.labels is not None
        return self.labels

    def weighted_sum(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over rows (the last axis) of row results, weighted if there are weights."""
        return np.asarray(rows.sum(axis=-1) if self.weight is None else rows @ self.weight)

    def log_scores(self, floor: float) -> NDArray[Any]:
        """Logarithms of the probabilities up to a constant in each row: what the softmax family acts on."""
        if self.form == "logits":
            return self.values
        if self.form == "log-probabilities":
            return np.asarray(np.maximum(self.values, np.log(floor)))
        return np.asarray(np.log(np.maximum(self.values, self.values.dtype.type(floor))))

    def probabilities(self) -> NDArray[Any]:
        """Probabilities, in float64 unless they came in as float32 probabilities."""
        if self.form == "log-probabilities":
            return np.asarray(np.exp(self.values))
        if self.form == "logits":
            p: NDArray[Any] = np.exp(self.values.astype(np.float64) - self.values.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            return p
        if not self.uneven:
            return self.values
        sums = self.values.sum(axis=1, dtype=np.float64)
        off = np.abs(sums - 1) > ROUNDING[self.values.dtype.name]
        return self.values / np.where(off, sums, 1.0)[:, None]

    def log_probabilities(self) -> NDArray[np.float64]:
        """Logarithms of the probabilities in float64, zeros as -inf."""
        if self.form == "log-probabilities":
            return self.values
        if self.form == "logits":
            u = self.values.astype(np.float64)
            u -= u.max(axis=1, keepdims=True)
            u -= np.log(np.exp(u).sum(axis=1, keepdims=True))
            return u
        with np.errstate(divide="ignore"):
            return np.log(self.probabilities().astype(np.float64))

    def after(self, fitted: CalibrationMap) -> Block:
        """The same rows as a fitted map puts them out."""
        return replace(self, values=fitted._log_proba(self), form="log-probabilities")


@dataclass(frozen=True)
class Fold:
    """One fold of ``n_folds``: a row belongs to the fold that a hash of its index says, wherever it is stored."""

    index: int
    n_folds: int
    keep: bool  # True: only the rows of the fold; False: all others
    seed: int = 0

    def members(self, index: NDArray[np.intp] | range) -> NDArray[np.bool_]:
        """Which of the rows take part."""
        inside: NDArray[np.bool_] = fold_of(index, self.n_folds, self.seed) == self.index
        return inside if self.keep else ~inside


def check_folds(cv: Any) -> None:
    """Raise an error unless ``cv`` is a number of folds."""
    if isinstance(cv, bool) or not isinstance(cv, int | np.integer) or not 2 <= cv <= MOST_FOLDS:
        msg = f"cv must be a number of folds from 2 to {MOST_FOLDS}, got {cv!r}"
        raise ValueError(msg)


def fold_of(index: NDArray[np.intp] | range, n_folds: int, seed: int = 0) -> NDArray[np.intp]:
    """Fold of each row index: a 64-bit mix of the index, so that order carries nothing."""
    if not isinstance(seed, int | np.integer):
        msg = f"random_state must be a whole number, got {seed!r}"
        raise ValueError(msg)
    h = np.asarray(index, dtype=np.uint64) + np.uint64((int(seed) * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
    return ((h ^ (h >> np.uint64(31))) % np.uint64(n_folds)).astype(np.intp)


@dataclass(frozen=True)
class RowSource:
    """What a pass reads: scores + labels + weights + the chain of fitted maps before it, applied on the fly."""

    scores: Scores
    labels: NDArray[np.intp] | None = None
    weight: NDArray[np.float64] | None = None
    chain: tuple[CalibrationMap, ...] = ()
    folds: tuple[Fold, ...] = ()
    classes: NDArray[Any] | None = None
    index: NDArray[np.intp] | None = None  # rows of the user's table, where this is a sample of it

    @property
    def n_rows(self) -> int:
        """Rows of the table, folds and weights not counted."""
        return self.scores.n_rows

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.scores.n_classes

    @property
    def n_entries(self) -> int:
        """Entries of the table."""
        return self.n_rows * self.n_classes

    @cached_property
    def backend(self) -> str:
        """Name of the kernels for passes over this source."""
        return kernels.backend_name(kernels.choose(self.n_entries, asked_backend()))

    def through(self, fitted: CalibrationMap) -> RowSource:
        """The source as it looks after a fitted map."""
        return replace(self, chain=(*self.chain, fitted))

    def fold(self, index: int, n_folds: int, *, keep: bool, seed: int = 0) -> RowSource:
        """Only the rows inside (``keep``) or outside a fold."""
        return replace(self, folds=(*self.folds, Fold(index, n_folds, keep, seed)))

    def sampled(self, at_most: int) -> RowSource:
        """About ``at_most`` rows spread evenly over the table, copied for a cheap look before the full passes.

        A table that is hardly larger than that is returned as it is.
        """
        step = self.n_rows // at_most
        if step < 2:
            return self
        pick = slice(None, None, step)
        index = np.arange(self.n_rows)[pick] if self.index is None else self.index[pick]
        sample = replace(
            self,
            scores=replace(self.scores, values=np.array(self.scores.values[pick])),
            labels=None if self.labels is None else self.labels[pick],
            weight=None if self.weight is None else self.weight[pick],
            index=index,
        )
        sample.__dict__["backend"] = self.backend  # chosen once for a fit, looks included
        return sample if sample.total_weight() > 0 else self

    def as_log_odds(self, floor: float) -> RowSource:
        """Binary probabilities that fit into memory as a vector of log-odds, so that passes take no logarithms."""
        small = self.n_classes == 2 and not self.scores.logits and self.n_entries <= ODDS_ENTRIES
        if self.chain or not small:
            return self
        ranges = row_ranges(self.n_rows, self.scores.row_bytes, backend="numba")
        plain = RowSource(self.scores)

        def odds(start: int, stop: int) -> NDArray[np.float64]:
            logs = plain.block(start, stop).log_scores(floor)
            return np.asarray(logs[:, 1] - logs[:, 0], dtype=np.float64)

        made = replace(self, scores=Scores(np.concatenate(list(run_blocks(odds, ranges))), True))
        made.__dict__["backend"] = self.backend
        return made

    def block(self, start: int, stop: int) -> Block:
        """Rows ``start`` to ``stop``, through the chain."""
        values = self.scores.read(start, stop)
        labels = None if self.labels is None else self.labels[start:stop]
        weight = None if self.weight is None else self.weight[start:stop]
        if self.scores.vector:
            values = _two_columns(values, self.scores.logits)
        index = range(start, stop) if self.index is None else self.index[start:stop]
        chosen = self._chosen(index, weight)
        if chosen is not None:
            index = np.asarray(index)[chosen]
            values = values[chosen]
            labels = None if labels is None else labels[chosen]
            weight = None if weight is None else weight[chosen]
        form = "logits" if self.scores.logits else "probabilities"
        block = Block(values, form, index, labels, weight, self.scores.uneven, self.backend)
        for fitted in self.chain:
            block = block.after(fitted)
        return block

    def _chosen(self, index: NDArray[np.intp] | range, weight: NDArray[np.float64] | None) -> NDArray[np.bool_] | None:
        chosen: NDArray[np.bool_] | None = None
        for fold in self.folds:
            inside = fold.members(index)
            chosen = inside if chosen is None else chosen & inside
        if weight is not None and not weight.all():
            chosen = weight > 0 if chosen is None else chosen & (weight > 0)
        return chosen

    def map_blocks(self, statistic: Callable[..., T], *args: Any, block_bytes: int | None = None) -> Iterator[T]:
        """``statistic(block, *args)`` for every block, in block order."""
        # Stages hand on float64 and write beside it, so a chained block is cut for eight bytes an entry.
        row_bytes = self.n_classes * 8 if self.chain else self.scores.row_bytes
        backend = "numpy" if self.chain else self.backend
        ranges = row_ranges(self.n_rows, row_bytes, block_bytes=block_bytes, backend=backend)
        return run_blocks(lambda start, stop: statistic(self.block(start, stop), *args), ranges)

    def total(self, statistic: Callable[..., T], *args: Any, block_bytes: int | None = None) -> T:
        """Sum of ``statistic(block, *args)`` over all blocks, in block order, in float64."""
        return total(self.map_blocks(statistic, *args, block_bytes=block_bytes))

    def total_weight(self) -> float:
        """Sum of the weights of the rows that take part: the n of every formula."""
        if not self.folds:
            return float(self.n_rows if self.weight is None else self.weight.sum())
        return float(self.total(_block_weight))

    def class_weights(self) -> NDArray[np.float64]:
        """Weight of each class among the rows that take part."""
        return self.total(_class_weights, self.n_classes)

    def log_floor(self) -> float:
        """What a probability of 0 is read as in logarithms: half of the smallest positive one among these rows."""
        if not self.chain and self.scores.logits:
            return SMALLEST_PROBABILITY
        smallest = min(self.map_blocks(_smallest_positive))
        return float(max(smallest / 2, SMALLEST_PROBABILITY))


def _block_weight(block: Block) -> float:
    return float(len(block.values) if block.weight is None else block.weight.sum())


def _class_weights(block: Block, n_classes: int) -> NDArray[np.float64]:
    return np.bincount(block.y, block.weight, minlength=n_classes).astype(np.float64)


def _smallest_positive(block: Block) -> float:
    if block.form == "log-probabilities":
        finite = block.values[np.isfinite(block.values)]
        return float(np.exp(finite.min())) if finite.size else 1.0
    values = block.values
    if values.size == 0:
        return 1.0
    low = float(values.min())
    return low if low > 0 else float(values[values > 0].min())


def _two_columns(values: NDArray[Any], logits: bool) -> NDArray[np.float64]:
    positive = values.astype(np.float64)
    return np.stack([np.zeros_like(positive) if logits else 1 - positive, positive], axis=1)

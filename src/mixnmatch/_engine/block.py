"""Blocks: some rows of a source, and the forms in which maps and metrics read them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import kernels
from mixnmatch._engine.along_rows import picked, row_sums, winners
from mixnmatch._engine.folds import fold_of
from mixnmatch._engine.passes import asked_backend
from mixnmatch._engine.scores import ROUNDING, SMALLEST_PROBABILITY, WIDEST, type_name


class FittedMap(Protocol):
    """Interface of a fitted map that the engine uses."""

    @property
    def accuracy_preserving(self) -> bool:
        """Whether the largest entry of every row stays the largest."""

    def _log_proba(self, block: Block) -> NDArray[np.float64]: ...


@dataclass(frozen=True, eq=False)
class Block:
    """Some consecutive rows: scores in one of three forms, labels and weights where there are any."""

    values: NDArray[Any]
    form: str  # "probabilities", "logits" or "log-probabilities" (what fitted maps hand on)
    index: NDArray[np.intp] | range  # which rows of the user's table these are
    labels: NDArray[np.intp] | None = None
    weight: NDArray[np.float64] | None = None
    off_simplex: bool = False  # rows of probabilities may be off the simplex by more than rounding
    rounding: float = ROUNDING["float64"]  # of the type that probabilities came in
    backend: str = "numpy"
    companions: tuple[Block, ...] = ()  # the same rows in other tables
    kept: NDArray[np.intp] | None = None  # who won the rows before they came through maps that keep winners

    @property
    def winner(self) -> NDArray[np.intp]:
        """Column that wins each row: of ties, and of leads lost to rounding, the one that won before."""
        return winners(self.values) if self.kept is None else self.kept

    @property
    def kernels(self) -> ModuleType:
        """Kernels for this block, chosen once for the whole source."""
        return kernels.load(self.backend)

    def folds(self, n_folds: int, seed: int) -> NDArray[np.intp]:
        """Fold of each row of the block."""
        return fold_of(self.index, n_folds, seed)

    def rows(self, which: NDArray[np.bool_]) -> Block:
        """Scores of some of the rows, without labels and weights."""
        return replace(self.part(which), labels=None, weight=None)

    def part(self, which: slice | NDArray[np.bool_]) -> Block:
        """Some of the rows, with their labels and weights, without other tables."""
        labels = None if self.labels is None else self.labels[which]
        weight = None if self.weight is None else self.weight[which]
        index = self.index[which] if isinstance(which, slice) else np.asarray(self.index)[which]
        kept = None if self.kept is None else self.kept[which]
        return replace(
            self, values=self.values[which], index=index, labels=labels, weight=weight, kept=kept, companions=()
        )

    @property
    def y(self) -> NDArray[np.intp]:
        """Labels, where the statistic needs them."""
        assert self.labels is not None
        return self.labels

    def weighted_sum(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over rows (the last axis) of row results, weighted if there are weights."""
        if self.weight is None:
            return np.asarray(rows.sum(axis=-1))
        return np.asarray(np.einsum("...i,i->...", rows, self.weight))  # without the threads that BLAS would start

    def log_scores(self, floor: float) -> NDArray[Any]:
        """Logarithms of the probabilities up to a constant in each row: what the softmax family acts on."""
        if self.form == "logits":
            return self.values
        if self.form == "log-probabilities":
            return np.asarray(np.maximum(self.values, self.log_floor(floor)))
        return np.asarray(np.log(np.maximum(self.values, self.values.dtype.type(max(floor, SMALLEST_PROBABILITY)))))

    def log_floor(self, floor: float) -> float:
        """Logarithm of the smallest probability that is used; logits have none unless the map was fitted with one."""
        if floor == 0 and self.form == "logits":
            return -np.inf
        return _log(max(floor, SMALLEST_PROBABILITY))

    def probabilities(self) -> NDArray[Any]:
        """Probabilities, in float64 unless they came in as float32 probabilities."""
        if self.form == "log-probabilities":
            return np.asarray(np.exp(self.values))
        if self.form == "logits":
            p: NDArray[np.float64] = self.kernels.leads(self.values)
            np.exp(p, out=p)
            p /= p.sum(axis=1, keepdims=True)  # to the last bit what users who do it themselves get
            return p
        if not self.off_simplex:
            return self.values
        sums = row_sums(self.values, np.float64)
        off = np.abs(sums - 1) > self.rounding
        return self.values / np.where(off, sums, 1.0)[:, None]

    def label_probabilities(self) -> NDArray[Any]:
        """Probability of each sample's label, bit-identical to :meth:`probabilities`."""
        if self.form != "logits":
            return picked(self.probabilities(), self.y)
        e = self.kernels.leads(self.values)
        np.exp(e, out=e)
        return np.asarray(picked(e, self.y) / e.sum(axis=1))

    def log_probabilities(self) -> NDArray[np.float64]:
        """Logarithms of the probabilities in float64, zeros as -inf."""
        if self.form == "log-probabilities":
            return self.values
        if self.form == "logits":
            u: NDArray[np.float64] = self.kernels.leads(self.values)
            u -= np.log(np.exp(u).sum(axis=1, keepdims=True))
            return u
        p = self.probabilities().astype(np.float64)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(p, out=p))

    def in_double(self) -> Block:
        """The same rows in float64."""
        return (
            self if self.values.dtype.char == "d" else self._with(self.values.astype(np.float64), self.form, self.kept)
        )

    def after(self, fitted: FittedMap) -> Block:
        """The same rows after a fitted map.

        It is computed in float64 from the start, logarithms included: the next map may be a step function, and a score
        that is at one of its steps must get there whatever computes it.
        """
        kept, values = self.winner if fitted.accuracy_preserving else None, fitted._log_proba(self.in_double())
        return self._with(values, "log-probabilities", kept)

    def _with(self, values: NDArray[Any], form: str, kept: NDArray[np.intp] | None) -> Block:
        """The same rows with other values; measured, three times as fast as dataclasses.replace."""
        return Block(
            values, form, self.index, self.labels, self.weight, self.off_simplex, self.rounding, self.backend,
            self.companions, kept,
        )  # fmt: skip


@lru_cache(maxsize=64)
def _log(number: float) -> float:
    return float(np.log(number))


def plain_block(scores: NDArray[Any], start: int, stop: int, *, logits: bool, n_classes: int) -> Block | None:
    """Return rows of an array as a block; None if they need the full checks."""
    name, as_it_is = type_name(scores.dtype), scores.dtype.isnative and scores.flags.c_contiguous
    if name not in ("float32", "float64") or not as_it_is or scores.shape[1] != n_classes:
        return None
    backend, values = kernels.choose_backend(asked_backend()), scores[start:stop]
    low, high, least, most = kernels.load(backend).extremes(values).tolist()
    if logits:
        # Rows that look like probabilities are worth a warning, infinities and NaN an error, huge numbers are narrowed.
        fine = low >= -WIDEST and high <= WIDEST and (high > 1 or low < 0)
    else:
        fine = low >= 0 and 1 - ROUNDING[name] <= least and most <= 1 + ROUNDING[name]
    if not fine:
        return None
    form = "logits" if logits else "probabilities"
    return Block(values, form, range(start, stop), rounding=ROUNDING[name], backend=backend)

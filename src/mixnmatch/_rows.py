"""Row sources: scores, labels, weights and the fitted maps before them, read block by block."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch import kernels
from mixnmatch._along_rows import picked, row_maxima, row_sums, two_columns, winners
from mixnmatch._dask import is_dask, map_chunks, reduce_chunks, rows_like
from mixnmatch._folds import Fold, fold_of
from mixnmatch._passes import add, asked_backend, light_bytes, row_ranges, run_blocks, total
from mixnmatch._scores import ROUNDING, Scores

if TYPE_CHECKING:
    from mixnmatch.maps.base import CalibrationMap

T = TypeVar("T")

# Below this a zero is not told from a number: probabilities are read as at least so much where logarithms are taken.
SMALLEST_PROBABILITY = 1e-37
# Tables of two classes up to this many entries are turned into log-odds once instead of in every pass.
ODDS_ENTRIES = 1 << 26
# A first look at the rows copies at most so many entries of the table.
LOOK_ENTRIES = 1 << 24


@dataclass(frozen=True)
class Block:
    """Some consecutive rows: scores in one of three forms, labels and weights where there are any."""

    values: NDArray[Any]
    form: str  # "probabilities", "logits" or "log-probabilities" (what fitted maps hand on)
    index: NDArray[np.intp] | range  # which rows of the user's table these are
    labels: NDArray[np.intp] | None = None
    weight: NDArray[np.float64] | None = None
    uneven: bool = False  # rows of probabilities may be off the simplex by more than rounding
    rounding: float = ROUNDING["float64"]  # of the type that probabilities came in
    backend: str = "numpy"
    beside: tuple[Block, ...] = ()  # the same rows in other tables
    kept: NDArray[np.intp] | None = (
        None  # winners of the rows before the maps that they came through, if these kept them
    )

    @property
    def winner(self) -> NDArray[np.intp]:
        """Column that wins each row: of ties, and of leads lost to rounding, the one that won before."""
        return winners(self.values) if self.kept is None else self.kept

    @property
    def kernels(self) -> ModuleType:
        """Kernels for this block, chosen once for the whole source."""
        return kernels.choose(0, self.backend)

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
        return replace(self, values=self.values[which], index=index, labels=labels, weight=weight, kept=kept, beside=())

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
            p = _leads(self.values)
            np.exp(p, out=p)
            p /= p.sum(axis=1, keepdims=True)  # to the last bit what users who do it themselves get
            return p
        if not self.uneven:
            return self.values
        sums = row_sums(self.values, np.float64)
        off = np.abs(sums - 1) > self.rounding
        return self.values / np.where(off, sums, 1.0)[:, None]

    def label_probabilities(self) -> NDArray[Any]:
        """Probability of each row's label, to the last bit that of :meth:`probabilities`, without all the others."""
        if self.form != "logits":
            return picked(self.probabilities(), self.y)
        e = _leads(self.values)
        np.exp(e, out=e)
        return np.asarray(picked(e, self.y) / e.sum(axis=1))

    def log_probabilities(self) -> NDArray[np.float64]:
        """Logarithms of the probabilities in float64, zeros as -inf."""
        if self.form == "log-probabilities":
            return self.values
        if self.form == "logits":
            u = _leads(self.values)
            u -= np.log(np.exp(u).sum(axis=1, keepdims=True))
            return u
        with np.errstate(divide="ignore"):
            return np.log(self.probabilities().astype(np.float64))

    def after(self, fitted: CalibrationMap) -> Block:
        """The same rows as a fitted map puts them out.

        It is computed in float64 from the start, logarithms included: the next map may be a step function, and a score
        that is at one of its steps must get there whatever computes it.
        """
        wide = replace(self, values=self.values.astype(np.float64, copy=False))
        kept = self.winner if fitted.accuracy_preserving else None
        return replace(self, values=fitted._log_proba(wide), form="log-probabilities", kept=kept)


@dataclass(frozen=True)
class RowSource:
    """What a pass reads: scores + labels + weights + the chain of fitted maps before it, applied on the fly.

    Arrays are NumPy's (in memory or memory-mapped), or all of them Dask's, in the same chunks of rows. A pass over the
    latter is one graph: on each chunk it is a pass over a source in memory.
    """

    scores: Scores
    labels: Any = None
    weight: Any = None
    chain: tuple[CalibrationMap, ...] = ()
    folds: tuple[Fold, ...] = ()
    classes: NDArray[Any] | None = None
    index: NDArray[np.intp] | range | None = None  # rows of the user's table, where this is a part of it
    beside: tuple[RowSource, ...] = ()  # other tables of the same rows

    @classmethod
    def of(cls, scores: Scores, labels: Any, weight: Any, classes: NDArray[Any] | None = None) -> RowSource:
        """A source of checked scores, labels and weights, all brought to where the scores are."""
        values = scores.values
        if is_dask(values) and isinstance(labels, np.ndarray):  # on their way to the workers, as short as they can be
            labels = labels.astype(np.min_scalar_type(scores.n_classes - 1))
        return cls(scores, _aligned(labels, values), _aligned(weight, values), classes=classes)

    @property
    def on_dask(self) -> bool:
        """Whether the rows are in Dask arrays."""
        return is_dask(self.scores.values)

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

    @property
    def light_bytes(self) -> int | None:
        """Bytes in a block of a pass that does little with each probability; None where these must be made first."""
        if self.scores.logits or self.chain or self.beside:
            return None
        return light_bytes(self.n_rows * self.scores.row_bytes)

    def through(self, fitted: CalibrationMap) -> RowSource:
        """The source as it looks after a fitted map."""
        return replace(self, chain=(*self.chain, fitted))

    def fold(self, index: int, n_folds: int, *, keep: bool, seed: int = 0) -> RowSource:
        """Only the rows inside (``keep``) or outside a fold."""
        return replace(self, folds=(*self.folds, Fold(index, n_folds, keep, seed)))

    def together(self, *others: RowSource) -> RowSource:
        """The source with other tables of the same rows: each block has theirs ``beside`` it."""
        return replace(self, beside=tuple(self._as_own_rows(other, other.scores.values) for other in others))

    def _as_own_rows(self, other: RowSource, values: Any) -> RowSource:
        if values is not self.scores.values:
            values = _aligned(values, self.scores.values)
        rows = {"labels": self.labels, "weight": self.weight, "folds": self.folds, "index": self.index}
        return replace(other, scores=replace(other.scores, values=values), **rows)

    def look(self, at_most: int) -> RowSource:
        """About ``at_most`` rows for a first, cheap look; fewer where rows are very long."""
        return self.sampled(min(at_most, max(LOOK_ENTRIES // self.n_classes, 64)))

    def sampled(self, at_most: int) -> RowSource:
        """About ``at_most`` rows spread evenly over the table, copied for a cheap look before the full passes.

        A table that is hardly larger than that is returned as it is.
        """
        step = self.n_rows // at_most
        return self if step < 2 else self._every(step)

    def in_memory(self) -> RowSource:
        """The source itself, with all of its rows brought here if they are on a cluster."""
        return self._every(1) if self.on_dask else self

    def _every(self, step: int) -> RowSource:
        made: dict[int, RowSource] = self.__dict__.setdefault("_made", {})
        if step not in made:
            pick = slice(None, None, step)
            names, arrays = zip(*self._arrays().items(), strict=True)
            picked = [array[pick] for array in arrays]
            if self.on_dask:
                import dask

                picked = dask.compute(*picked)
            found = dict(zip(names, map(np.array, picked), strict=True))
            index = np.arange(0, self.n_rows, step) if self.index is None else np.asarray(self.index)[pick]
            made[step] = self._filled(found, index)
        sample = made[step]
        return sample if step == 1 or sample.total_weight() > 0 else self

    def as_log_odds(self, floor: float) -> RowSource:
        """Binary probabilities that fit into memory as a vector of log-odds, so that passes take no logarithms."""
        small = self.n_classes == 2 and not self.scores.logits and self.n_entries <= ODDS_ENTRIES
        if self.chain or not small:
            return self
        settings = self._without_arrays().scores, floor
        if self.on_dask:
            values = map_chunks(_log_odds, self.scores.values, *settings, n_columns=None, dtype=np.float64)
        else:
            ranges = row_ranges(self.n_rows, self.scores.row_bytes, backend="numba")
            cut = self.scores.values
            parts = run_blocks(lambda start, stop: _log_odds(cut[start:stop], start, *settings), ranges)
            values = np.concatenate(list(parts))
        made = replace(self, scores=Scores(values, True))
        made.__dict__["backend"] = self.backend
        return made

    def _arrays(self) -> dict[str, Any]:
        """The arrays that a pass reads, by name; a table that is there twice is read once."""
        found = {"values": self.scores.values, "labels": self.labels, "weight": self.weight}
        for k, other in enumerate(self.beside):
            found[f"beside {k}"] = None if other.scores.values is self.scores.values else other.scores.values
        return {name: array for name, array in found.items() if array is not None}

    def _without_arrays(self) -> RowSource:
        """All but the arrays, which a chunk brings along."""
        others = tuple(other._without_arrays() for other in self.beside)
        bare = replace(
            self, scores=replace(self.scores, values=None), labels=None, weight=None, classes=None, beside=others
        )
        bare.__dict__["backend"] = self.backend
        return bare

    def _filled(self, arrays: dict[str, Any], index: NDArray[np.intp] | range) -> RowSource:
        """The source with other arrays, which hold the rows ``index`` of the table."""
        labels = arrays.get("labels")
        own = replace(
            self,
            scores=replace(self.scores, values=arrays["values"]),
            labels=None if labels is None else labels.astype(np.intp, copy=False),
            weight=arrays.get("weight"),
            index=index,
        )
        others = [own._as_own_rows(o, arrays.get(f"beside {k}", arrays["values"])) for k, o in enumerate(self.beside)]
        made = replace(own, beside=tuple(others))
        for source in (made, *others):
            source.__dict__["backend"] = self.backend  # chosen once for a fit, looks included
        return made

    def block(self, start: int, stop: int) -> Block:
        """Rows ``start`` to ``stop``, through the chain."""
        values = self.scores.read(start, stop)
        labels = None if self.labels is None else self.labels[start:stop]
        weight = None if self.weight is None else self.weight[start:stop]
        if self.scores.vector:
            values = two_columns(values, logits=self.scores.logits)
        index = range(start, stop) if self.index is None else self.index[start:stop]
        chosen = self._chosen(index, weight)
        if chosen is not None:
            index = np.asarray(index)[chosen]
            values = values[chosen]
            labels = None if labels is None else labels[chosen]
            weight = None if weight is None else weight[chosen]
        form = "logits" if self.scores.logits else "probabilities"
        rounding = ROUNDING[values.dtype.name]
        beside = tuple(other.block(start, stop) for other in self.beside)
        block = Block(values, form, index, labels, weight, self.scores.uneven, rounding, self.backend, beside)
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
        """``statistic(block, *args)`` for every block, in block order; from a cluster they come all together."""
        if self.on_dask:
            return iter(self._over_chunks(_chunk_statistics, statistic, args, block_bytes, combine=operator.add))
        # Stages hand on float64 and write beside it, so a chained block is cut for eight bytes an entry.
        row_bytes = self.n_classes * 8 if self.chain or self.beside else self.scores.row_bytes
        backend = "numpy" if self.chain or self.beside else self.backend
        ranges = row_ranges(self.n_rows, row_bytes, block_bytes=block_bytes, backend=backend)
        return run_blocks(lambda start, stop: statistic(self.block(start, stop), *args), ranges)

    def total(
        self,
        statistic: Callable[..., T],
        *args: Any,
        block_bytes: int | None = None,
        combine: Callable[[T, T], T] = add,
    ) -> T:
        """Sum of ``statistic(block, *args)`` over all blocks, in block order, in float64.

        ``combine`` takes two statistics of neighbouring rows to that of both, where that is not their sum.
        """
        if self.on_dask:
            found: T = self._over_chunks(_chunk_total, statistic, args, block_bytes, combine, combine=combine)
            return found
        return total(self.map_blocks(statistic, *args, block_bytes=block_bytes), combine)

    def _over_chunks(self, work: Callable[..., T], *args: Any, combine: Callable[[T, T], T]) -> T:
        arrays = self._arrays()
        bare = self._without_arrays()
        return reduce_chunks(work, list(arrays.values()), tuple(arrays), bare, *args, combine=combine)

    def total_weight(self) -> float:
        """Sum of the weights of the rows that take part: the n of every formula."""
        return self._total_weight

    @cached_property
    def _total_weight(self) -> float:
        if not self.folds and self.weight is None:
            return float(self.n_rows)
        if self.folds or self.on_dask:
            return float(self.total(_block_weight))
        return float(self.weight.sum())

    def class_weights(self) -> NDArray[np.float64]:
        """Weight of each class among the rows that take part."""
        return self.total(_class_weights, self.n_classes)

    def log_floor(self) -> float:
        """What a probability of 0 is read as in logarithms: half of the smallest positive one among these rows."""
        if not self.chain and self.scores.logits:
            return SMALLEST_PROBABILITY
        smallest = self.total(_smallest_positive, combine=min)
        return float(max(smallest / 2, SMALLEST_PROBABILITY))


def refuse_dask(source: RowSource, why: str, instead: str = "") -> None:
    """Raise an error for what needs rows in memory, if they are on Dask."""
    if source.on_dask:
        instead = instead or "take a sample that fits into memory, such as scores[::100].compute()"
        msg = f"{why}, which a Dask array does not allow: {instead}"
        raise ValueError(msg)


def _aligned(array: Any, table: Any) -> Any:
    """One entry (or one row) for each row of a table, where the table is: on Dask in the same chunks, or in memory."""
    if array is None:
        return None
    if is_dask(table):
        return rows_like(array, table)
    return array.compute() if is_dask(array) else array


def _part(start: int, chunks: list[Any], names: tuple[str, ...], bare: RowSource) -> RowSource:
    """The source of the rows of a chunk."""
    return bare._filled(dict(zip(names, chunks, strict=True)), range(start, start + len(chunks[0])))


def _chunk_statistics(
    start: int,
    chunks: list[Any],
    names: tuple[str, ...],
    bare: RowSource,
    statistic: Callable[..., T],
    args: tuple[Any, ...],
    block_bytes: int | None,
) -> list[T]:
    return list(_part(start, chunks, names, bare).map_blocks(statistic, *args, block_bytes=block_bytes))


def _chunk_total(
    start: int,
    chunks: list[Any],
    names: tuple[str, ...],
    bare: RowSource,
    statistic: Callable[..., T],
    args: tuple[Any, ...],
    block_bytes: int | None,
    combine: Callable[[T, T], T],
) -> T:
    part = _part(start, chunks, names, bare)
    return part.total(statistic, *args, block_bytes=block_bytes, combine=combine)


def _log_odds(values: NDArray[Any], first_row: int, like: Scores, floor: float) -> NDArray[np.float64]:
    source = RowSource(replace(like, values=values))
    logs = source.block(0, len(values)).log_scores(floor)
    return np.asarray(logs[:, 1] - logs[:, 0], dtype=np.float64)


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


def _leads(values: NDArray[Any]) -> NDArray[np.float64]:
    """Logits less the largest of their row."""
    return np.asarray(np.subtract(values, row_maxima(values)[:, None], dtype=np.float64))

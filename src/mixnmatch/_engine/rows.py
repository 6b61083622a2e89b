"""Row sources: scores, labels, weights and the fitted maps before them, read block by block."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import kernels
from mixnmatch._engine.along_rows import two_columns
from mixnmatch._engine.block import Block, FittedMap
from mixnmatch._engine.cached_property import cached_property
from mixnmatch._engine.dask import is_dask, map_chunks, reduce_chunks, rows_like
from mixnmatch._engine.fitting import count_pass
from mixnmatch._engine.folds import Fold
from mixnmatch._engine.passes import add, asked_backend, light_bytes, row_ranges, run_blocks, total
from mixnmatch._engine.scores import ROUNDING, SMALLEST_PROBABILITY, Scores, type_name

T = TypeVar("T")

# Tables of two classes up to this many entries are turned into log-odds once instead of in every pass.
ODDS_ENTRIES = 1 << 26
# A first look at the rows copies at most so many entries of the table.
LOOK_ENTRIES = 1 << 24
# Fewer where they have to be sent to the client.
LOOK_ENTRIES_ON_DASK = 1 << 22
# If no positive probability is below this, rows hold zeros and a one.
ONE_HOT = 1 - 1e-6


@dataclass(frozen=True, eq=False)
class Rows:
    """Checked samples: scores, labels, weights, class names, and the kernels that work on them.

    :func:`mixnmatch.rows` makes them from arrays, data frames, tensors or Dask arrays. The table is checked then and
    never again: every ``fit``, ``predict_proba``, metric, comparison and report takes ``Rows`` in place of arrays.
    An object cannot be changed; its methods return others that share its arrays.

    Attributes
    ----------
    scores : Scores
        The table of scores and its form.
    labels : array of shape (n,) or None
        Column of the true class of each sample.
    weight : array of shape (n,) or None
        Frequencies.
    classes : array of shape (L,)
        Names of the classes, in the order of the columns.
    columns : array of shape (L,) or None
        Names of the columns, where the scores came as a data frame.
    groups : array of shape (n,) or None
        Subgroup of each sample, for results by group.
    clusters : array of shape (n,) or None
        Samples of the same cluster depend on each other, for intervals.
    backend : {"numpy", "compiled"}
        Kernels, chosen once.

    Notes
    -----
    Arrays are NumPy's (in memory or memory-mapped), or all of them Dask's, in the same chunks of rows. A pass over the
    latter is one graph: on each chunk it is a pass over rows in memory. ``chain`` holds fitted maps that are applied on
    the fly in every pass.
    """

    scores: Scores
    labels: Any = None
    weight: Any = None
    chain: tuple[FittedMap, ...] = ()
    folds: tuple[Fold, ...] = ()
    classes: NDArray[Any] | None = None
    columns: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    clusters: NDArray[Any] | None = None
    index: NDArray[np.intp] | range | None = None  # rows of the user's table, where this is a part of it
    companions: tuple[Rows, ...] = ()  # other tables of the same rows
    backend: str = ""
    _samples: dict[int, Rows] = field(default_factory=dict, init=False, repr=False, compare=False)

    _unseen: list[bool] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.backend and self.scores.values is not None:
            chosen = kernels.choose_backend(asked_backend())
            object.__setattr__(self, "backend", chosen)

    @classmethod
    def of(cls, scores: Scores, labels: Any, weight: Any, **names: Any) -> Rows:
        """Make rows of checked scores, labels and weights, moved to where the scores are."""
        values = scores.values
        if is_dask(values) and isinstance(labels, np.ndarray):  # on their way to the workers, as short as they can be
            labels = labels.astype(np.min_scalar_type(scores.n_classes - 1))
        made = cls(scores, _aligned(labels, values), _aligned(weight, values), **names)
        made._unseen.append(True)
        return made

    def first_look(self) -> bool:
        """Whether these are the samples that a user gave, not made from them, and this is asked for the first time."""
        return bool(self._unseen) and self._unseen.pop()

    @property
    def form(self) -> str:
        """What the scores are: "probabilities" or "logits"."""
        return "logits" if self.scores.logits else "probabilities"

    @property
    def binary(self) -> bool:
        """Whether there are two classes, given as a vector or as two columns."""
        return self.n_classes == 2

    @property
    def positive(self) -> Any:
        """Name of the positive class, the second of two; None for more classes."""
        return None if self.classes is None or not self.binary else self.classes[1].item()

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        parts = [f"{self.n_rows} samples", f"{self.n_classes} classes", self.form]
        given = {"labels": self.labels, "weights": self.weight, "groups": self.groups, "clusters": self.clusters}
        parts += [f"with {name}" for name, value in given.items() if value is not None]
        return f"<Rows: {', '.join(parts)}>"

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

    @property
    def is_plain_table(self) -> bool:
        """Whether all samples take part as they are, in a table in memory: a block of all of them is no copy."""
        values, table = self.scores.values, type(self.scores.values) is np.ndarray
        as_it_is = table and values.ndim == 2 and values.dtype == self.scores.dtype and values.flags.c_contiguous
        changed = self.scores.wide or self.chain or self.folds or self.companions
        return as_it_is and not changed and (self.weight is None or bool(self.weight.all()))

    @property
    def light_bytes(self) -> int | None:
        """Block size of a pass with little work for each probability; None if probabilities must be computed first."""
        if self.scores.logits or self.chain or self.companions:
            return None
        return light_bytes(self.n_rows * self.scores.row_bytes)

    def through(self, fitted: FittedMap) -> Rows:
        """Return the source with a fitted map applied in every pass."""
        return replace(self, chain=(*self.chain, fitted))

    def in_double(self) -> Rows:
        """The source with blocks in float64, whatever the type of its scores."""
        return replace(self, scores=replace(self.scores, double=True))

    def fold(self, index: int, n_folds: int, *, keep: bool, seed: int = 0, by_scores: bool = False) -> Rows:
        """Only the rows inside (``keep``) or outside a fold."""
        return replace(self, folds=(*self.folds, Fold(index, n_folds, keep, seed, by_scores)))

    def together(self, *others: Rows) -> Rows:
        """Return the source with other tables of the same samples; each block has theirs as companions."""
        return replace(self, companions=tuple(self._as_own_rows(other, other.scores.values) for other in others))

    def _as_own_rows(self, other: Rows, values: Any) -> Rows:
        if values is not self.scores.values:
            values = _aligned(values, self.scores.values)
        rows = {"labels": self.labels, "weight": self.weight, "folds": self.folds, "index": self.index}
        return replace(other, scores=replace(other.scores, values=values), backend=self.backend, **rows)

    def preview(self, at_most: int) -> Rows:
        """About ``at_most`` rows for a first, cheap look; fewer where rows are very long."""
        entries = LOOK_ENTRIES_ON_DASK if self.on_dask else LOOK_ENTRIES
        return self.sampled(min(at_most, max(entries // self.n_classes, 16)))

    def sampled(self, at_most: int) -> Rows:
        """About ``at_most`` rows spread evenly over the table, copied for a cheap look before the full passes.

        A table that is hardly larger than that is returned as it is.
        """
        step = self.n_rows // at_most
        return self if step < 2 else self._every(step)

    def in_memory(self) -> Rows:
        """Return the source in memory; rows on a cluster are copied to the client."""
        return self._every(1) if self.on_dask else self

    def _every(self, step: int) -> Rows:
        if step not in self._samples:
            arrays = self._arrays()
            if not self.on_dask:
                found = {name: np.array(array[::step]) for name, array in arrays.items()}
            elif step == 1:  # all rows: straight to the client
                import dask

                found = dict(zip(arrays, dask.compute(*arrays.values()), strict=True))
            else:
                parts = reduce_chunks(_chunk_rows, list(arrays.values()), step, combine=operator.add)
                found = dict(zip(arrays, map(np.concatenate, zip(*parts, strict=True)), strict=True))
            index = np.arange(0, self.n_rows, step) if self.index is None else np.asarray(self.index)[::step]
            self._samples[step] = self._filled(found, index)
        sample = self._samples[step]
        return sample if step == 1 or sample.total_weight() > 0 else self

    def as_log_odds(self, floor: float) -> Rows:
        """Binary probabilities that fit into memory as a vector of log-odds, so that passes take no logarithms."""
        small = self.n_classes == 2 and not self.scores.logits and self.n_entries <= ODDS_ENTRIES
        if self.chain or not small:
            return self
        settings = self._without_arrays().scores, floor
        if self.on_dask:
            values = map_chunks(_log_odds, self.scores.values, *settings, n_columns=None, dtype=np.float64)
        else:
            ranges = row_ranges(self.n_rows, self.scores.row_bytes, backend="compiled")
            cut = self.scores.values
            parts = run_blocks(lambda start, stop: _log_odds(cut[start:stop], start, *settings), ranges)
            values = np.concatenate(list(parts))
        return replace(self, scores=Scores(values, True))

    def _arrays(self) -> dict[str, Any]:
        """Return the arrays that a pass reads, by name; a table used twice is read once."""
        found = {"values": self.scores.values, "labels": self.labels, "weight": self.weight}
        for k, other in enumerate(self.companions):
            found[f"companion {k}"] = None if other.scores.values is self.scores.values else other.scores.values
        return {name: array for name, array in found.items() if array is not None}

    def _without_arrays(self) -> Rows:
        """Return the source without its arrays, which tasks get from their chunks."""
        others = tuple(other._without_arrays() for other in self.companions)
        bare = replace(self.scores, values=None)
        named = replace(self, classes=None, columns=None, groups=None, clusters=None)
        return replace(named, scores=bare, labels=None, weight=None, companions=others)

    def _filled(self, arrays: dict[str, Any], index: NDArray[np.intp] | range) -> Rows:
        """The source with other arrays, which hold the rows ``index`` of the table."""
        labels = arrays.get("labels")
        own = replace(
            self,
            scores=replace(self.scores, values=arrays["values"]),
            labels=None if labels is None else labels.astype(np.intp, copy=False),
            weight=arrays.get("weight"),
            index=index,
        )
        others = [
            own._as_own_rows(o, arrays.get(f"companion {k}", arrays["values"])) for k, o in enumerate(self.companions)
        ]
        return replace(own, companions=tuple(others))

    def block(self, start: int, stop: int) -> Block:
        """Rows ``start`` to ``stop``, through the chain."""
        values = self.scores.read(start, stop)
        # A column of a table, or every second label, is not contiguous, and kernels need that.
        labels = None if self.labels is None else np.ascontiguousarray(self.labels[start:stop])
        weight = None if self.weight is None else np.ascontiguousarray(self.weight[start:stop])
        if self.scores.vector:
            values = two_columns(values, logits=self.scores.logits)
        index = range(start, stop) if self.index is None else self.index[start:stop]
        form = "logits" if self.scores.logits else "probabilities"
        rounding = ROUNDING[type_name(values.dtype)]
        block = Block(values, form, index, labels, weight, self.scores.off_simplex, rounding, self.backend)
        chosen = self._chosen(block)
        block = block if chosen is None else block.part(chosen)
        if self.companions:
            block = replace(block, companions=tuple(other.block(start, stop) for other in self.companions))
        for fitted in self.chain:
            block = block.after(fitted)
        return block

    def _chosen(self, block: Block) -> NDArray[np.bool_] | None:
        chosen: NDArray[np.bool_] | None = None
        for fold in self.folds:
            inside = fold.members(block)
            chosen = inside if chosen is None else chosen & inside
        if block.weight is not None and not block.weight.all():
            chosen = block.weight > 0 if chosen is None else chosen & (block.weight > 0)
        return chosen

    def map_blocks(self, statistic: Callable[..., T], *args: Any, block_bytes: int | None = None) -> Iterator[T]:
        """``statistic(block, *args)`` for every block, in block order; from a cluster they come all together."""
        count_pass()
        if self.on_dask:
            return iter(self._over_chunks(_chunk_statistics, statistic, args, block_bytes, combine=operator.add))
        # Stages hand on float64 and write beside it, so a chained block is cut for eight bytes an entry.
        row_bytes = self.n_classes * 8 if self.chain or self.companions else self.scores.row_bytes
        backend = "numpy" if self.chain or self.companions else self.backend
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
            count_pass()
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

    def probability_floor(self) -> float:
        """What a probability of 0 is read as in logarithms: half of the smallest positive one among these samples.

        It is at least 1e-37, and 0 (no floor) for logits. New samples are read with the floor of the calibration set,
        so that a zero never seen before counts for little more than the smallest probability seen. Of several rules
        this one has the least held-out log loss for all maps that take logarithms, on forests, naive Bayes and nearest
        neighbours (benchmarks/zero_floor.py). Where all rows are zeros and a one, there is no such number, and a zero
        is read as half an error in one more sample than there are.
        """
        if not self.chain and self.scores.logits:
            return 0.0
        if self.chain and not self.total(_has_zero, combine=max):
            # What maps hand on is floored only where it is exactly 0: however small, it is a number that was computed.
            return SMALLEST_PROBABILITY
        smallest = self.total(_smallest_positive, combine=min)
        if smallest > ONE_HOT:
            return 1 / (2 * (self.total_weight() + 1))
        return float(max(smallest / 2, SMALLEST_PROBABILITY))

    def has_zeros(self) -> bool:
        """Whether any probability, as given, is exactly 0."""
        if self.chain or self.scores.logits:
            return False
        return bool(self.total(_any_zero, combine=max))


def refuse_dask(source: Rows, why: str, instead: str = "") -> None:
    """Raise an error for what needs rows in memory, if they are on Dask."""
    if source.on_dask:
        instead = instead or "take a sample that fits into memory, such as scores[::100].compute()"
        msg = f"{why}, which a Dask array does not allow: {instead}"
        raise ValueError(msg)


def _aligned(array: Any, table: Any) -> Any:
    """Bring a vector to where a table is: to Dask in the same chunks of rows, or to memory."""
    if array is None:
        return None
    if is_dask(table):
        return rows_like(array, table)
    return array.compute() if is_dask(array) else array


def _part(start: int, chunks: list[Any], names: tuple[str, ...], bare: Rows) -> Rows:
    """The source of the rows of a chunk."""
    return bare._filled(dict(zip(names, chunks, strict=True)), range(start, start + len(chunks[0])))


def _chunk_statistics(
    start: int,
    chunks: list[Any],
    names: tuple[str, ...],
    bare: Rows,
    statistic: Callable[..., T],
    args: tuple[Any, ...],
    block_bytes: int | None,
) -> list[T]:
    return list(_part(start, chunks, names, bare).map_blocks(statistic, *args, block_bytes=block_bytes))


def _chunk_rows(start: int, chunks: list[NDArray[Any]], step: int) -> list[tuple[NDArray[Any], ...]]:
    """Every ``step``-th row of the table that is in a chunk, as a list that grows to that of all chunks."""
    return [tuple(np.array(chunk[-start % step :: step]) for chunk in chunks)]


def _chunk_total(
    start: int,
    chunks: list[Any],
    names: tuple[str, ...],
    bare: Rows,
    statistic: Callable[..., T],
    args: tuple[Any, ...],
    block_bytes: int | None,
    combine: Callable[[T, T], T],
) -> T:
    part = _part(start, chunks, names, bare)
    return part.total(statistic, *args, block_bytes=block_bytes, combine=combine)


def _log_odds(values: NDArray[Any], first_row: int, like: Scores, floor: float) -> NDArray[np.float64]:
    source = Rows(replace(like, values=values))
    logs = source.block(0, len(values)).log_scores(floor)
    return np.asarray(logs[:, 1] - logs[:, 0], dtype=np.float64)


def _block_weight(block: Block) -> float:
    return float(len(block.values) if block.weight is None else block.weight.sum())


def _class_weights(block: Block, n_classes: int) -> NDArray[np.float64]:
    return np.bincount(block.y, block.weight, minlength=n_classes).astype(np.float64)


def _has_zero(block: Block) -> bool:
    return bool(np.isneginf(block.values).any())


def _any_zero(block: Block) -> float:
    return float((block.values == 0).any())


def _smallest_positive(block: Block) -> float:
    if block.form == "log-probabilities":
        finite = block.values[np.isfinite(block.values)]
        return float(np.exp(finite.min())) if finite.size else 1.0
    values = block.values
    if values.size == 0:
        return 1.0
    low = float(values.min())
    return low if low > 0 else float(values[values > 0].min())

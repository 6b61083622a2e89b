"""How logistic maps are fitted: binary problems in groups, each by Newton steps of its own.

A table in memory is fitted a few classes at a time: their features are computed once from their columns and take little
memory. What a column does not tell, the normalising constant of its samples, is found in one pass before. Other rows
(files, Dask, folds, samples that come through other maps) are fitted in passes that all classes share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import picked
from mixnmatch._engine.block import Block
from mixnmatch._engine.passes import run_blocks
from mixnmatch._engine.prepared import FIXED_BYTES, Prepared
from mixnmatch._engine.rows import Rows
from mixnmatch.maps._solve import TOLERANCE, Point, bounded_step, newton
from mixnmatch.maps.columns import Columns, labels, log_odds_parts, weighted_count

if TYPE_CHECKING:
    from mixnmatch.maps.logistic import LogisticMap

Array = NDArray[np.float64]
# Rows of a first look, from which the passes over many more rows start, and how accurate a fit to them needs to be.
PREVIEW_ROWS, MUCH_MORE, FIRST_TOLERANCE = 4096, 4, 1e-4
# Slopes stay above this over the size of what they are of, so that the function increases strictly.
SMALLEST_SLOPE = 1e-9
# Bytes of a feature of the classes that are fitted together, and of the scores that are normalised at a time.
GROUP_BYTES, NORMALISED_BYTES = 1 << 17, 1 << 16


@dataclass(frozen=True)
class Fit:
    """Fits of K problems: mean of the features, parameters of the centred ones, their lower bounds, and the loss."""

    centre: Array
    theta: Array
    lower: Array
    loss: Array
    residual: float = 0.0

    def of(self, classes: slice) -> Fit:
        """The fits of some of the problems."""
        return Fit(self.centre[classes], self.theta[classes], self.lower[classes], self.loss[classes])

    @classmethod
    def joined(cls, parts: list[Fit]) -> Fit:
        """The fits of one group after another."""
        centre, theta, lower, loss = (
            np.concatenate(arrays)
            for arrays in zip(*((p.centre, p.theta, p.lower, p.loss) for p in parts), strict=True)
        )
        return cls(centre, theta, lower, loss, max(part.residual for part in parts))

    @property
    def coefficients(self) -> Array:
        """Parameters of the features as they are."""
        found = self.theta.copy()
        found[:, -1] -= np.sum(found[:, :-1] * self.centre, axis=1)
        return found


@dataclass(frozen=True)
class Problems:
    """Binary problems, each with its entries side by side: features, labels and weights."""

    first: Array
    second: Array | None
    positive: NDArray[np.bool_]
    weight: Array
    kernels: ModuleType

    def features(self) -> list[Array]:
        """The features, one or two tables."""
        return [self.first] if self.second is None else [self.first, self.second]


@dataclass(frozen=True)
class Group:
    """Some of the problems of a source: which, their entries, their weights, targets for both labels, and the loss."""

    classes: slice
    rows: Prepared
    entry_weight: float
    positive: Array
    targets: Array
    loss: str

    def centred(self, centre: Array) -> Group:
        """The same problems with features less ``centre``; those of this object are changed."""
        return replace(self, rows=self.rows.then(_centred, centre))

    def total(self, theta: Array, loss: str) -> tuple[Array, Array, Array]:
        """Value, gradient and curvature of each problem."""
        return self.rows.total(logistic_statistic, theta, self.targets, loss)


def fit_logistic(map_: LogisticMap, columns: Columns, floor: float) -> Fit:
    """Fit all problems; the first look at many samples is at some of them."""
    plain = columns.scheme == "each" and columns.source.is_plain_table and map_._reads_log_odds
    entries: Entries = Table.of(columns.source, floor) if plain else Passes(columns, floor)
    preview = entries.preview(PREVIEW_ROWS)
    many = preview.n_rows * MUCH_MORE <= entries.n_rows
    targets = _targets(columns, smoothing=map_.smoothing)

    def first(group: Group) -> Fit:
        centre = _centre(group)
        group = group.centred(centre)
        start = _start(group, centre)
        if preview is entries:
            return _minimised(group, start)
        return _minimised(group, start, FIRST_TOLERANCE) if many and map_.smoothing else start

    def again(group: Group) -> Fit:
        begun = start.of(group.classes)
        return _minimised(group.centred(begun.centre), begun)

    start = _in_groups(map_, preview, targets, first)
    return start if preview is entries else _in_groups(map_, entries, targets, again)


def _targets(columns: Columns, *, smoothing: bool) -> Array:
    """What the function is fitted to, for entries that are not positive and for those that are: 2 x K."""
    positive = columns.positive_weights()
    negative = columns.entry_weight() - positive
    if smoothing:
        return np.stack([1 / (negative + 2), (positive + 1) / (positive + 2)])
    return np.stack([np.zeros_like(negative), np.ones_like(positive)])


def _in_groups(map_: LogisticMap, entries: Entries, targets: Array, work: Callable[[Group], Fit]) -> Fit:
    """The fits that ``work`` gives for each group of problems, joined."""
    weight, positive = entries.entry_weight(), entries.positive_weights()
    n, size = len(positive), entries.at_a_time

    def fitted(first: int, last: int) -> Fit:
        part = slice(first, last)
        return work(Group(part, entries.rows(part, map_), weight, positive[part], targets[:, part], map_.loss))

    return Fit.joined(list(run_blocks(fitted, [(k, min(k + size, n)) for k in range(0, n, size)])))


class Entries(Protocol):
    """The entries of all problems, of which some are fitted at a time."""

    @property
    def n_rows(self) -> int:
        """Number of samples."""

    @property
    def at_a_time(self) -> int:
        """Number of problems in a group."""

    def entry_weight(self) -> float:
        """Weight of all entries of a problem."""

    def positive_weights(self) -> Array:
        """Weight of the positive entries of each problem."""

    def preview(self, at_most: int) -> Entries:
        """About ``at_most`` samples, or all of them if there are hardly more."""

    def rows(self, classes: slice, map_: LogisticMap) -> Prepared:
        """The problems of some classes."""


@dataclass(frozen=True)
class Passes:
    """Problems that are all fitted together, in passes over the rows."""

    columns: Columns
    floor: float

    @property
    def n_rows(self) -> int:
        """Number of samples."""
        return self.columns.source.n_rows

    @property
    def at_a_time(self) -> int:
        """Number of problems in a group: all of them."""
        return self.columns.n_problems

    def entry_weight(self) -> float:
        """Weight of all entries of a problem."""
        return self.columns.entry_weight()

    def positive_weights(self) -> Array:
        """Weight of the positive entries of each problem."""
        return self.columns.positive_weights()

    def preview(self, at_most: int) -> Passes:
        """About ``at_most`` samples, or all of them if there are hardly more."""
        some = self.columns.source.preview(at_most)
        return self if some is self.columns.source else replace(self, columns=replace(self.columns, source=some))

    def rows(self, classes: slice, map_: LogisticMap) -> Prepared:
        """All problems."""
        settings = self.columns.scheme, map_, self.floor
        return Prepared.of(self.columns.source, _problems, *settings, block_bytes=FIXED_BYTES)


def _problems(block: Block, scheme: str, map_: LogisticMap, floor: float) -> Problems:
    """All binary problems of a block."""
    positive, weight = labels(block, scheme)
    first, second = (None if f is None else np.ascontiguousarray(f.T) for f in map_._features(block, scheme, floor))
    assert first is not None
    weight = np.ones(first.shape[1]) if weight is None else weight
    return Problems(first, second, np.ascontiguousarray(positive.T), weight, block.kernels)


@dataclass(frozen=True)
class Table:
    """A table in memory, and what the log-odds of a column need of the rest of it."""

    source: Rows
    block: Block
    norms: Array  # 2 x n: what to subtract from logarithms, and log(1 - p) of the largest entry
    weight: Array
    lowest: float

    @classmethod
    def of(cls, source: Rows, floor: float) -> Table:
        """Look at all entries once."""
        block = source.block(0, source.n_rows)
        norms = np.concatenate(list(source.map_blocks(_norms, floor, block_bytes=NORMALISED_BYTES)), axis=1)
        weight = np.ones(source.n_rows) if block.weight is None else block.weight
        return cls(source, block, norms, weight, block.log_floor(floor))

    @property
    def n_rows(self) -> int:
        """Number of samples."""
        return len(self.weight)

    @property
    def at_a_time(self) -> int:
        """Number of classes whose features take little memory."""
        return max(1, GROUP_BYTES // (8 * self.n_rows))

    def entry_weight(self) -> float:
        """Weight of all samples."""
        return float(self.weight.sum())

    def positive_weights(self) -> Array:
        """Weight of each class."""
        return weighted_count(self.block.y, self.weight, self.block.values.shape[1])

    def preview(self, at_most: int) -> Table:
        """About ``at_most`` samples, or all of them if there are hardly more; the table is not copied."""
        step = self.n_rows // at_most
        if step < 2:
            return self
        norms, weight = (np.ascontiguousarray(array[..., ::step]) for array in (self.norms, self.weight))
        return replace(self, block=self.block.part(slice(None, None, step)), norms=norms, weight=weight)

    def rows(self, classes: slice, map_: LogisticMap) -> Prepared:
        """The problems of some classes."""
        log_p = self.block.values[:, classes].T.astype(np.float64, order="C")
        if self.block.form != "logits":
            with np.errstate(divide="ignore"):
                np.log(log_p, out=log_p)
        log_not = self.block.kernels.log_odds_of_columns(log_p, *self.norms, self.lowest)
        positive = self.block.y == np.arange(classes.start, classes.stop)[:, None]
        own = Problems(*map_._of_log_odds(log_p, log_not), positive, self.weight, self.block.kernels)
        return Prepared(self.source, self.rows, (classes, map_), [own])


def _norms(block: Block, floor: float) -> Array:
    """What to subtract from the logarithms of each sample, and log(1 - p) of its largest entry: 2 x n."""
    log_p, log_not = log_odds_parts(block, "each", floor)
    top = block.winner
    largest = picked(block.values, top).astype(np.float64)
    largest = largest if block.form == "logits" else np.log(largest)
    return np.stack([largest - picked(log_p, top), picked(log_not, top)])


def _centred(problems: Problems, centre: Array) -> Problems:
    """The problems with features less their ``centre``, in place."""
    for table, middle in zip(problems.features(), centre.T, strict=True):
        table -= middle[:, None]
    return problems


def _centre(group: Group) -> Array:
    """Mean of the features of each problem: centring on it keeps scores that hardly differ distinct."""
    sums = group.rows.total(_feature_sums)
    low, high = group.rows.total(_feature_ends, combine=np.maximum)
    # Of features that are all the same the mean must be that number, or rounding would pass for a spread.
    return np.asarray(np.clip(sums / group.entry_weight, -low, high))


def _feature_sums(problems: Problems) -> Array:
    """Weighted sum of the features of each problem: K x P."""
    return np.stack([np.einsum("ki,i->k", table, problems.weight) for table in problems.features()], axis=1)


def _feature_ends(problems: Problems) -> Array:
    """Largest feature of each problem with its sign reversed, and as it is: 2 x K x P."""
    ends = [[-t.min(axis=1, initial=np.inf), t.max(axis=1, initial=-np.inf)] for t in problems.features()]
    return np.moveaxis(np.array(ends), 0, -1)


def _start(group: Group, centre: Array) -> Fit:
    """Parameters to start from, and lower bounds.

    At the base rate, whatever the score, no probability is saturated, and the curvature gives the scale of the
    features: slopes stay above a small part of what matters on that scale, so that the function increases strictly.
    Slopes of 1 are the better start where they have the lower loss.
    """
    n, positive, targets = group.entry_weight, group.positive, group.targets
    rate = np.clip((positive * targets[1] + (n - positive) * targets[0]) / n, 1e-12, 1 - 1e-12)
    theta = np.column_stack([np.zeros_like(centre), np.log(rate / (1 - rate))])
    value, _, curvature = group.total(theta, "nll")
    squares = np.einsum("kpp->kp", curvature)
    size = np.sqrt(squares[:, :-1] / np.maximum(squares[:, -1:], np.finfo(float).tiny))
    lower = np.full(theta.shape, -np.inf)
    lower[:, :-1] = SMALLEST_SLOPE / np.where(size > 0, size, 1.0)
    identity = np.column_stack([np.ones_like(centre), centre.sum(axis=1)])
    better = group.total(identity, "nll")[0] < value
    return Fit(centre, np.maximum(np.where(better[:, None], identity, theta), lower), lower, value)


def _minimised(group: Group, start: Fit, tolerance: float = TOLERANCE) -> Fit:
    """The fits with the least loss, or close to it."""

    def at(theta: Array) -> Point:
        return Point(theta, *group.total(theta, group.loss))

    found = newton(
        at,
        at(start.theta),
        lambda point: bounded_step(point, start.lower),
        weight=group.entry_weight,
        project=lambda theta: np.maximum(theta, start.lower),
        tolerance=tolerance,
        unseen=True,
    )
    return replace(start, theta=found.point.theta, loss=found.point.value, residual=found.residual)


def logistic_statistic(problems: Problems, theta: Array, targets: Array, loss: str) -> tuple[Array, Array, Array]:
    """Value, gradient and curvature of each problem; for squared error the part of it that cannot be negative."""
    two = problems.second is not None
    if not two:
        theta = np.insert(theta, 1, 0.0, axis=1)
    tables = problems.first, problems.second, problems.positive, problems.weight
    sums = problems.kernels.logistic_sums(*tables, theta, targets, loss)
    # Of value, gradient (a, b, c) and curvature (aa, ab, ac, bb, bc, cc).
    if two:
        return sums[:, 0], sums[:, 1:4], sums[:, [4, 5, 6, 5, 7, 8, 6, 8, 9]].reshape(-1, 3, 3)
    return sums[:, 0], sums[:, [1, 3]], sums[:, [4, 6, 6, 9]].reshape(-1, 2, 2)

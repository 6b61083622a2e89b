"""Fits isotonic regression in two passes: the positives, and what lies between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.kernels import _numpy_gaps
from mixnmatch._engine.kernels.gaps import Knots
from mixnmatch._engine.kernels.lookup import Piecewise
from mixnmatch._engine.passes import row_ranges
from mixnmatch.maps.columns import COPIED_COLUMNS, Columns, scale_of, sorted_by, weighted_count
from mixnmatch.maps.ties import lower_edges

Vector = NDArray[np.float64]
# The paper's epsilon: what strictness adds to the slope everywhere.
STRICTNESS = 1e-9
# Bytes of scores that are sorted at a time: large against the positives, small against memory.
SORT_BYTES = 1 << 24
# Bytes of scores whose gaps are counted before they are added to those of others: large against the gaps themselves.
COUNT_BYTES = 1 << 26
# Entries for each positive from which a compiled kernel looks up each of them; where there are fewer they are sorted.
SEARCH_FROM = 16
# Bytes of scores that are turned into probabilities at a time: those, and what they are made of, stay in the cache.
CACHE_BYTES = 1 << 18


def fit_functions(columns: Columns, shape: str, *, strict: bool) -> list[Piecewise]:
    """The isotonic function of each binary problem."""
    positives = _positives(columns)
    gaps = _gaps(columns, positives, shape)
    made = [_function(*pair, shape, columns.computed) for pair in zip(positives, gaps, strict=True)]
    return [made_strict(f) for f in made] if strict else made


@dataclass(frozen=True, eq=False)
class Positives:
    """Distinct scores of the positives of a problem, and their weights."""

    scores: Vector
    weight: Vector


@dataclass(frozen=True, eq=False)
class Gaps:
    """All entries, by the positive that they follow or tie with; the first gap is left of every positive.

    The step shape needs their weight alone, the linear one the largest score too, the centred one also the sum of
    scores; what is not needed is empty.
    """

    weight: Vector
    score_sum: Vector
    largest: Vector

    @classmethod
    def empty(cls, size: int, shape: str) -> Gaps:
        """Gaps without entries."""
        largest = np.full(0 if shape == "step" else size, -np.inf)
        return cls(np.zeros(size), np.zeros(size if shape == "centred" else 0), largest)

    def __add__(self, other: Gaps) -> Gaps:
        """The entries of both."""
        weight, score_sum = self.weight + other.weight, self.score_sum + other.score_sum
        return Gaps(weight, score_sum, np.maximum(self.largest, other.largest))


def _positives(columns: Columns) -> list[Positives]:
    # Both passes cut a chained source alike: a matrix product rounds differently in blocks of another size, and a
    # positive must not fall below its own knot.
    size = SORT_BYTES if columns.source.chain else CACHE_BYTES
    parts = columns.map_blocks(_block_positives, block_bytes=size)
    scores, problem, weight = (_joined(column) for column in zip(*parts, strict=True))
    # A positive is at or above the knot that it makes, in whatever way its probability is computed.
    scores = lower_edges(scores) if columns.computed else scores
    if columns.n_problems == 1:
        return [_distinct(scores, weight)]
    order = np.argsort(problem, kind="stable")
    bounds = np.searchsorted(problem[order], np.arange(columns.n_problems + 1))
    spans = [order[start:stop] for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]
    return [_distinct(scores[span], None if weight is None else weight[span]) for span in spans]


def _joined(parts: tuple[Any, ...]) -> Any:
    return None if parts[0] is None else np.concatenate(parts)


def _distinct(scores: NDArray[Any], weight: Vector | None) -> Positives:
    if weight is None:
        distinct, count = np.unique(scores, return_counts=True)
        return Positives(distinct.astype(np.float64), count.astype(np.float64))
    distinct, index = np.unique(scores, return_inverse=True)
    return Positives(distinct.astype(np.float64), weighted_count(index, weight, len(distinct)))


def _block_positives(block: Block, scheme: str) -> tuple[NDArray[Any], NDArray[np.intp] | None, Vector | None]:
    weight = block.weight
    if scheme == "positive":
        rows = block.y == 1
        scores = _scores(block, scheme)[rows, 0]
        weight = None if weight is None else weight[rows]
    else:
        scores = block.label_probabilities()
    return scores, block.y if scheme == "each" else None, weight


def _scores(block: Block, scheme: str) -> NDArray[Any]:
    return sorted_by(block, scheme, scale_of(block, scheme))


def _gaps(columns: Columns, positives: list[Positives], shape: str) -> list[Gaps]:
    """Second pass: what lies in each gap, added up over blocks."""
    source, scheme = columns.source, columns.scheme
    knots = [Knots(p.scores) for p in positives]
    many = source.n_entries > SEARCH_FROM * len(knots[0].values)
    search = source.backend == "compiled" and len(knots) == 1 and (many or source.weight is not None)
    compiled = search and not source.chain
    # A compiled kernel does not need its whole block at once, and each block brings gaps of its own: let there be few.
    size = COUNT_BYTES if compiled else SORT_BYTES
    if compiled and scheme == "pooled" and shape == "step" and source.scores.logits:
        negatives = source.total(_negatives_of_logits, knots[0], block_bytes=size)
        negatives[1:] += positives[0].weight
        return [Gaps(negatives, np.empty(0), np.empty(0))]
    return source.total(_block_gaps, scheme, knots, shape, search, block_bytes=size, combine=_merged)


def _negatives_of_logits(block: Block, knots: Knots) -> Vector:
    """Weight of the negatives in each gap, found without their probabilities but where rounding decides."""
    weight = np.zeros(len(knots.values) + 1)
    unsure = block.kernels.add_gaps_of_logits(block.values, block.y, block.weight, knots, weight)
    for part in _pieces(block.part(unsure)):
        p = part.probabilities()
        negative = np.ones(p.shape, dtype=bool)
        negative[np.arange(len(p)), part.y] = False
        block.kernels.add_gaps(p[negative].reshape(len(p), -1), part.weight, knots, weight, np.empty(0), np.empty(0))
    return weight


def _merged(left: list[Gaps], right: list[Gaps]) -> list[Gaps]:
    return [a + b for a, b in zip(left, right, strict=True)]


def _block_gaps(block: Block, scheme: str, knots: list[Knots], shape: str, search: bool) -> list[Gaps]:
    found = [Gaps.empty(len(k.values) + 1, shape) for k in knots]
    kernels = block.kernels if search else _numpy_gaps
    for part in _pieces(block) if search else [block]:
        columns = [part.probabilities()] if scheme == "pooled" else _columns(_scores(part, scheme))
        for scores, k, gaps in zip(columns, knots, found, strict=True):
            kernels.add_gaps(scores, part.weight, k, gaps.weight, gaps.score_sum, gaps.largest)
    return found


def _columns(table: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The columns of a table, of which a few are copied at a time."""
    for first in range(0, table.shape[1], COPIED_COLUMNS):
        yield from np.ascontiguousarray(table[:, first : first + COPIED_COLUMNS].T)[:, :, None]


def _pieces(block: Block) -> Iterator[Block]:
    """A block, for compiled kernels in pieces that fit the cache: each row's probabilities depend on the row alone."""
    if block.backend != "compiled":
        yield block
        return
    for start, stop in row_ranges(len(block.values), block.values[:1].nbytes, block_bytes=CACHE_BYTES):
        yield block.part(slice(start, stop))


def _function(positives: Positives, gaps: Gaps, shape: str, computed: bool) -> Piecewise:
    """Pool adjacent violators on the groups "a positive and the negatives up to the next", and draw the shape."""
    from scipy.optimize import isotonic_regression

    if len(positives.scores) == 0:  # a class without positives: probability 0 everywhere
        return Piecewise(np.zeros(1), np.zeros(1), np.zeros(1), 0.0)
    weight = np.maximum(gaps.weight[1:], positives.weight)
    fitted = isotonic_regression(positives.weight / weight, weights=weight)
    starts = fitted.blocks[:-1]
    value = np.minimum(fitted.x[starts], 1.0)
    negatives_left = gaps.weight[0] > 0
    if shape == "step":
        # Below all scores of the calibration set nothing is known: the first value goes on.
        left = 0.0 if negatives_left else float(value[0])
        return Piecewise(positives.scores[starts], value, np.zeros(len(value)), left)
    if shape == "linear":
        ends = np.maximum.reduceat(np.maximum(gaps.largest[1:], positives.scores), starts)
        x = np.stack([positives.scores[starts], ends], axis=1).ravel()
        y = np.repeat(value, 2)
        if negatives_left:
            x, y = np.concatenate([[gaps.largest[0]], x]), np.concatenate([[0.0], y])
    else:
        # The sums come from additions in another order than the scores: keep a centre inside its own block.
        centre = np.add.reduceat(gaps.score_sum[1:], starts) / np.add.reduceat(weight, starts)
        x, y = np.clip(centre, positives.scores[starts], np.append(positives.scores[starts[1:]], 1.0)), value
        if negatives_left:
            middle = min(gaps.score_sum[0] / gaps.weight[0], float(gaps.largest[0]))
            x, y = np.concatenate([[middle], x]), np.concatenate([[0.0], y])
    # Between points that differ by rounding alone the function would be as steep as a step.
    return _through(lower_edges(x) if computed else x, y)


def _through(x: Vector, y: Vector) -> Piecewise:
    """The function through the points (x, y), constant outside of them; of points at one x only the last counts."""
    last = np.append(np.diff(x) > 0, True)
    knots, values = x[last], y[last]
    first = y[np.searchsorted(x, knots, side="left")]  # what the line from the left runs to
    gaps = np.maximum(np.diff(knots), 1e-300)  # between knots closer than this there is nothing to interpolate
    slopes = np.append((first[1:] - values[:-1]) / gaps, 0.0)
    return Piecewise(knots, values, slopes, float(y[0]))


def made_strict(f: Piecewise) -> Piecewise:
    """The paper's third step: g(a) + epsilon a."""
    knots = f.knots if f.knots[0] == 0 else np.concatenate([[0.0], f.knots])
    values = f.values if f.knots[0] == 0 else np.concatenate([[f.left], f.values])
    slopes = f.slopes if f.knots[0] == 0 else np.concatenate([[0.0], f.slopes])
    return Piecewise(knots, values + STRICTNESS * knots, slopes + STRICTNESS, f.left)

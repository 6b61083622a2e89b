"""Binary problems inside a table of scores: the positive class, each class against the rest, or all entries pooled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.fitting import count_pass
from mixnmatch._engine.rows import Rows
from mixnmatch.maps.ties import lower_edges

T = TypeVar("T")
# Columns that are copied from a table at a time: those of a cache line.
COPIED_COLUMNS = 16
# Scales of the scores that step maps sort: probabilities, or the log-odds of two classes, see :func:`squashed`.
SCALES = "probability", "log-odds"


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of a block as m x K binary problems: scores, which are positive, and weights of the m rows."""

    scores: NDArray[Any]
    positive: NDArray[np.bool_]
    weight: NDArray[np.float64] | None


def weighted_count(index: NDArray[Any], weight: NDArray[Any] | None, size: int) -> NDArray[np.float64]:
    """Total weight, or number without weights, of each index from 0 to ``size``."""
    return np.bincount(index, weight, size).astype(np.float64, copy=False)


def take(values: NDArray[Any], scheme: str) -> NDArray[Any]:
    """Entries of an n x L table that the problems look at, as m x K."""
    if scheme == "positive":
        return values[:, 1:]
    return values if scheme == "each" else values.reshape(-1, 1)


def labels(block: Block, scheme: str) -> tuple[NDArray[np.bool_], NDArray[np.float64] | None]:
    """Which entries are positive, and the weights of the m rows."""
    positive = np.zeros(block.values.shape, dtype=bool)
    positive[np.arange(len(block.y)), block.y] = True
    weight = block.weight
    if scheme == "pooled" and weight is not None:
        weight = np.repeat(weight, block.values.shape[1])
    return take(positive, scheme), weight


def scale_of(block: Block, scheme: str) -> str:
    """Scale on which a step map is fitted: logits of two classes still differ where probabilities are equal to 1."""
    return "log-odds" if scheme == "positive" and block.form == "logits" else "probability"


def sorted_by(block: Block, scheme: str, scale: str) -> NDArray[Any]:
    """Scores of the entries in [0, 1] on a scale: what step maps compare with their knots."""
    if scale == "log-odds":
        return squashed(log_odds(block, scheme, 0.0))
    return take(block.probabilities(), scheme)


def squashed(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Log-odds x as numbers :math:`s = \frac{1}{2\sqrt{1 - x}}` for x < 0, and :math:`1 - s(-x)` otherwise.

    Those of the largest logits still differ, and any order of the classes gives the same order of samples.
    """
    s = np.abs(log_odds)
    s += 1.0
    np.divide(0.5, np.sqrt(s, out=s), out=s)
    return np.asarray(np.where(log_odds < 0, s, 1.0 - s))


def probability_at(s: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    """The probability that a score on a scale stands for."""
    if scale == "probability":
        return s
    with np.errstate(divide="ignore"):
        away = np.square(0.5 / np.minimum(s, 1.0 - s)) - 1.0  # the size of the log-odds
    p = np.exp(-away) / (1.0 + np.exp(-away))
    return np.asarray(np.where(s < 0.5, p, 1.0 - p))


def entries(block: Block, scheme: str) -> Entries:
    """Scores, labels and weights of the binary problems in a block."""
    return Entries(sorted_by(block, scheme, scale_of(block, scheme)), *labels(block, scheme))


def tied_entries(block: Block, scheme: str) -> Entries:
    """The same with probabilities that differ by rounding alone made equal; those that users give stay as they are."""
    values, given = entries(block, scheme), block.form == "probabilities" and not block.off_simplex
    return values if given else replace(values, scores=lower_edges(values.scores))


def log_odds_parts(block: Block, scheme: str, floor: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log p and log(1 - p) of the entries, neither below the logarithm of ``floor``."""
    logits = block.form == "logits"
    x = block.values if logits else block.log_probabilities()
    if scheme == "positive" and not logits:  # what is not the one class is the other
        log_not, log_p = np.maximum(x.T, block.log_floor(floor), order="C")
        return log_p[:, None], log_not[:, None]
    log_p, log_not = block.kernels.log_odds_parts(x, block.log_floor(floor), logits=logits)
    return take(log_p, scheme), take(log_not, scheme)


def log_odds(block: Block, scheme: str, floor: float) -> NDArray[np.float64]:
    """Logarithm of p / (1 - p) of the entries, with both at least ``floor``."""
    if scheme == "positive" and block.form == "logits":  # with two classes it is the lead of the second one
        lead, lowest = np.subtract(block.values[:, 1:], block.values[:, :1], dtype=np.float64), block.log_floor(floor)
        return np.asarray(np.clip(lead, lowest, -lowest, out=lead))
    log_p, log_not = log_odds_parts(block, scheme, floor)
    return np.subtract(log_p, log_not, out=log_p)


@dataclass(frozen=True, eq=False)
class Columns:
    """A source of rows seen as K binary problems."""

    source: Rows
    scheme: str

    @property
    def computed(self) -> bool:
        """Whether probabilities are computed, so that they can differ by rounding; see :mod:`mixnmatch.maps.ties`."""
        return self.source.scores.logits or self.source.scores.off_simplex or bool(self.source.chain)

    @property
    def scale(self) -> str:
        """Scale of the scores in :func:`entries`."""
        on_logits = self.source.scores.logits and not self.source.chain
        return "log-odds" if self.scheme == "positive" and on_logits else "probability"

    @property
    def n_problems(self) -> int:
        """Number of problems K."""
        return self.source.n_classes if self.scheme == "each" else 1

    @property
    def one_by_one(self) -> bool:
        """Whether each problem can be read alone: its scores are a column of a table in memory."""
        return self.scheme == "each" and self.source.is_plain_table and not self.computed

    def positive_weights(self) -> NDArray[np.float64]:
        """Weight of the positive entries of each problem."""
        weights = self.source.class_weights()
        if self.scheme == "each":
            return weights
        return weights[1:] if self.scheme == "positive" else weights.sum(keepdims=True)

    def entry_weight(self) -> float:
        """Weight of all entries of a problem."""
        per_row = self.source.n_classes if self.scheme == "pooled" else 1
        return self.source.total_weight() * per_row

    def total(self, statistic: Callable[..., T], *args: Any, block_bytes: int | None = None) -> T:
        """Sum of ``statistic(block, scheme, *args)`` over blocks."""
        return self.source.total(statistic, self.scheme, *args, block_bytes=block_bytes)

    def map_blocks(self, statistic: Callable[..., T], *args: Any, block_bytes: int | None = None) -> Iterator[T]:
        """``statistic(block, scheme, *args)`` for every block."""
        return self.source.map_blocks(statistic, self.scheme, *args, block_bytes=block_bytes)

    def gathered(
        self, problems: slice = slice(None), *, tied: bool = False
    ) -> list[tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.float64] | None]]:
        """All entries of each problem, or of some, in memory: scores, labels and weights if any, in order of rows.

        With ``tied``, scores that differ by rounding alone are made equal.
        """
        if self.one_by_one:
            count_pass()
            columns = np.ascontiguousarray(self.source.scores.values[:, problems].T)
            classes = range(self.n_problems)[problems]
            return [(s, self.source.labels == k, self.source.weight) for s, k in zip(columns, classes, strict=True)]
        wanted = len(range(self.n_problems)[problems])
        shape = wanted, self.source.n_entries if self.scheme == "pooled" else self.source.n_rows
        scores, positive, weight = None, np.empty(shape, dtype=bool), []
        start = stop = 0
        for part in self.map_blocks(tied_entries if tied else entries):
            if scores is None:
                scores = np.empty(shape, part.scores.dtype)
            start, stop = stop, stop + len(part.scores)
            scores[:, start:stop] = part.scores[:, problems].T
            positive[:, start:stop] = part.positive[:, problems].T
            if part.weight is not None:
                weight.append(part.weight)
        assert scores is not None
        own = np.concatenate(weight) if weight else None
        return [(s[:stop], p[:stop], own) for s, p in zip(scores, positive, strict=True)]

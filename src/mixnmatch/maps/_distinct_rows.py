"""A sample of distinct rows in memory: the same for any order of the rows, and for weights as for repetitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.folds import fold_of, score_keys
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import Scores

Array = NDArray[np.float64]
# Hashes of scores are numbers below this.
HASHES = 1 << 62


def distinct_rows(source: Rows, at_most: int, floor: float) -> tuple[Rows, bool]:
    """About ``at_most`` distinct rows of a source as logits, in a fixed order, and whether these are all.

    Rows are those whose scores have the lowest hashes, and each has the weight of all that equal it.
    """
    found: DistinctRows = source.total(_lowest, at_most, floor)
    scores = Scores(found.values, True)
    rows = Rows(scores, found.labels, found.weight, classes=source.classes, backend=source.backend)
    return rows, found.complete


@dataclass(frozen=True, eq=False)
class DistinctRows:
    """Rows in the order of their hashes, with the weight of each."""

    at_most: int
    hashes: NDArray[np.int64]
    labels: NDArray[np.intp]
    values: Array
    weight: Array
    complete: bool = True

    def __add__(self, other: DistinctRows) -> DistinctRows:
        """The rows of both that have the lowest hashes."""
        names = "hashes", "labels", "values", "weight"
        both: dict[str, Any] = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names}
        return replace(self, **both, complete=self.complete and other.complete).merged()

    def merged(self) -> DistinctRows:
        """The rows with the lowest hashes, sorted, each once."""
        distinct = np.unique(self.hashes)
        few = len(distinct) <= self.at_most
        chosen = np.arange(len(self.hashes)) if few else np.flatnonzero(self.hashes < distinct[self.at_most])
        order = chosen[np.lexsort([part[chosen] for part in (self.values[:, 0], self.labels, self.hashes)])]
        hashes, labels, values = self.hashes[order], self.labels[order], self.values[order]
        same = (np.diff(hashes) == 0) & (np.diff(labels) == 0) & (values[1:] == values[:-1]).all(axis=1)
        first = np.flatnonzero(np.append(True, ~same)[: len(order)])
        weight = np.add.reduceat(self.weight[order], first) if len(first) else self.weight[order]
        return DistinctRows(
            self.at_most, hashes[first], labels[first], values[first], weight, complete=self.complete and few
        )


def _lowest(block: Block, at_most: int, floor: float) -> DistinctRows:
    weight = np.ones(len(block.y)) if block.weight is None else block.weight
    hashes = fold_of(score_keys(block), HASHES).astype(np.int64)
    values = block.log_scores(floor).astype(np.float64)
    return DistinctRows(at_most, hashes, block.y, values, weight).merged()

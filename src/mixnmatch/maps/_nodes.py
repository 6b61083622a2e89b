"""Nodes of the functions that order-preserving maps add to log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import log_softmax, row_maxima
from mixnmatch._engine.block import Block

Array = NDArray[np.float64]

# A tempered probability below exp(-REACH) / L is out of the finely divided range.
REACH = 9.0
# Cells of the fine range, cells of the range below it, and how much wider these are.
FINE, WIDE, FACTOR = 128, 32, 8


@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes of a piecewise-linear function on (-inf, 0]: even steps to ``low``, wider ones below, then constant.

    Of these, ``chosen`` are used, the first and the last among them.
    """

    low: float
    chosen: NDArray[np.intp]

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, n_classes: int) -> Nodes:
        """All nodes for the logarithms of the probabilities of ``n_classes`` classes."""
        return cls(-(np.log(n_classes) + REACH), np.arange(FINE + WIDE + 1))

    def only(self, chosen: NDArray[np.intp]) -> Nodes:
        """Some of the nodes."""
        return Nodes(self.low, chosen)

    @property
    def count(self) -> int:
        """Number of nodes."""
        return len(self.chosen)

    @property
    def positions(self) -> Array:
        """Nodes, from 0 downwards."""
        wide = 1 + FACTOR * np.arange(1, WIDE + 1) / FINE
        every = self.low * np.concatenate([np.arange(FINE + 1) / FINE, wide])
        return np.asarray(every[self.chosen])

    def locate(self, x: Array) -> tuple[NDArray[np.intp], Array]:
        """Cell of every entry, and how far down the cell it is: 0 at its upper node, 1 at the lower one."""
        from mixnmatch._engine.kernels._numpy_pieces import even_cells

        cell, s = even_cells(x, self.low, FINE, FACTOR, FINE + WIDE + 1)
        if self.count == FINE + WIDE + 1:
            return cell, s
        cell = np.repeat(np.arange(self.count - 1), np.diff(self.chosen))[cell]
        positions = self.positions
        np.subtract(x, positions[cell], out=s)
        s /= np.diff(positions)[cell]
        return cell, np.clip(s, 0.0, 1.0, out=s)


def tempered(block: Block, floor: float, beta: float) -> Array:
    """Logarithms of the probabilities after temperature scaling."""
    x = block.log_scores(floor).astype(np.float64)
    x -= row_maxima(x)[:, None]  # before the scaling: leads survive in logits of any size
    x *= beta
    return log_softmax(x)


def overlap(nodes: Nodes, knots: Array) -> Array:
    """Matrix from slopes between knots to values at the nodes (0 at 0)."""
    return np.maximum(nodes.positions[:, None], knots[1:]) - np.maximum(nodes.positions[:, None], knots[:-1])

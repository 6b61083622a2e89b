"""Passes of intra order-preserving maps: where entries fall between nodes, and the loss as it depends on these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.kernels._numpy_pieces import add_interpolated
from mixnmatch._engine.passes import total
from mixnmatch.maps._nodes import FACTOR, FINE, Array, Nodes, tempered

__all__ = [
    "FACTOR",
    "FINE",
    "Array",
    "Cells",
    "Diagonal",
    "Located",
    "Nodes",
    "Statistic",
    "brier_statistic",
    "nll_statistic",
    "on_nodes",
    "tempered",
]

Statistic = tuple[float, Array, Array]

# Entries of the tables, of rows x nodes or rows x classes, that a statistic works on at a time: they stay in the cache.
CHUNK_ENTRIES = 20_000


@dataclass(frozen=True, eq=False)
class Located:
    """Some rows after temperature scaling, with entries sorted into the cells between nodes; classes come first."""

    x: Array  # logarithms of the probabilities, L x m
    cell: NDArray[np.uint8]
    share: Array  # how far down its cell each entry is
    y: NDArray[np.intp]
    weight: Array
    n_cells: int

    @classmethod
    def of(cls, block: Block, nodes: Nodes, floor: float, beta: float) -> list[Located]:
        """The rows of a block in chunks."""
        n_cells, chunks = nodes.count - 1, []
        step = max(1, CHUNK_ENTRIES // max(n_cells, block.values.shape[1]))
        for start in range(0, max(len(block.values), 1), step):
            part = slice(start, start + step)
            rows = Block(block.values[part], block.form, block.index[part])
            x = np.ascontiguousarray(tempered(rows, floor, beta).T)
            cell, share = nodes.locate(x)
            weight = np.ones(x.shape[1]) if block.weight is None else block.weight[part]
            chunks.append(cls(x, cell.astype(np.uint8), share, block.y[part], weight, n_cells))
        return chunks

    def at(self, deviation: Array) -> Cells:
        """The rows under softmax(x + deviation(x))."""
        cell = self.cell.astype(np.intp)
        log_p = add_interpolated(self.x, cell, self.share, deviation)
        log_p -= log_p.max(axis=0)
        p = np.exp(log_p)
        total = p.sum(axis=0)
        p /= total
        log_p_y = self._of_label(log_p) - np.log(total)
        label = self._of_label(cell), self._of_label(self.share)
        cell *= cell.shape[1]
        cell += np.arange(cell.shape[1])
        return Cells(p, cell, self.share, label, self._of_label(p), log_p_y, self.weight, self.n_cells)

    def _of_label(self, table: NDArray[Any]) -> NDArray[Any]:
        """The entry of each row's label."""
        return np.asarray(table[self.y, np.arange(len(self.y))])


@dataclass(frozen=True, eq=False)
class Cells:
    """Some rows under softmax(x + deviation(x)), entries sorted into the cells between nodes; classes come first."""

    p: Array
    slot: NDArray[np.intp]  # number of the pair of cell and row
    share: Array
    label: tuple[NDArray[np.intp], Array]  # cell and share of each row's label
    p_y: Array
    log_p_y: Array
    weight: Array
    n_cells: int

    def moments(self, values: Array, powers: int) -> list[Array]:
        """Sums of values times share^0, share^1, ... over the entries of each cell and row."""
        sums = []
        for power in range(powers):
            values = values * self.share if power else values
            sums.append(histogram(self.slot.ravel(), values.ravel(), self.n_cells * len(self.weight)))
        return [moment.reshape(self.n_cells, -1) for moment in sums]

    def at_labels(self, values: Array) -> Array:
        """Sum over rows of a value for each, on the nodes next to the row's label."""
        cell, share = self.label
        return on_nodes(*(histogram(cell, v, self.n_cells) for v in (values, values * share)))


def histogram(cell: NDArray[np.intp], values: Array, size: int) -> Array:
    """Sum of the values in each cell."""
    return np.asarray(np.bincount(cell, values, size), dtype=np.float64)


def on_nodes(zeroth: Array, first: Array) -> Array:
    """What entries put on the nodes, from their zeroth and first moments in the cells: sums of hat functions."""
    nodes = np.zeros((len(zeroth) + 1, *zeroth.shape[1:]))
    nodes[:-1] = zeroth - first
    nodes[1:] += first
    return nodes


class Form:
    """Sums of products of two hat functions, as a matrix."""

    @staticmethod
    def product(left: Array, right: Array) -> Array:
        """Sum over rows of the products of what two tables, nodes x rows, hold for each pair of nodes."""
        return left @ right.T

    @staticmethod
    def pairs(zeroth: Array, first: Array, second: Array) -> Array:
        """Sum over entries, from three moments in the cells."""
        upper, lower = np.arange(len(zeroth)), np.arange(1, len(zeroth) + 1)
        pairs = np.zeros((len(zeroth) + 1, len(zeroth) + 1))
        pairs[upper, upper] = zeroth - 2 * first + second
        pairs[lower, lower] += second
        pairs[upper, lower] = pairs[lower, upper] = first - second
        return pairs


class Diagonal(Form):
    """The diagonal of that matrix alone, which is all that choosing knots takes."""

    @staticmethod
    def product(left: Array, right: Array) -> Array:
        """Sum over rows of the products for each node."""
        return np.asarray(np.einsum("nm,nm->n", left, right))

    @staticmethod
    def pairs(zeroth: Array, first: Array, second: Array) -> Array:
        """Sum over entries, from three moments in the cells."""
        return np.asarray(np.append(zeroth - 2 * first + second, 0.0) + np.append(0.0, second))


def nll_statistic(chunks: list[Located], deviation: Array, form: type[Form] = Form) -> Statistic:
    """Log loss, its gradient and its Hessian (in some form) in the deviations at the nodes."""

    def of(rows: Cells) -> Statistic:
        w, moments = rows.weight, rows.moments(rows.p, 3)
        mass = on_nodes(moments[0], moments[1])
        hessian = form.pairs(*(moment @ w for moment in moments)) - form.product(mass * w, mass)
        return float(-(w @ rows.log_p_y)), mass @ w - rows.at_labels(w), hessian

    return total(of(chunk.at(deviation)) for chunk in chunks)


def brier_statistic(chunks: list[Located], deviation: Array, form: type[Form] = Form) -> Statistic:
    """Squared error, its gradient and its Gauss-Newton matrix (in some form) in the deviations at the nodes."""

    def of(rows: Cells) -> Statistic:
        w, squares = rows.weight, rows.p**2
        mass, moments = on_nodes(*rows.moments(rows.p, 2)), rows.moments(squares, 3)
        square = on_nodes(moments[0], moments[1])
        norm = squares.sum(axis=0)
        loss = float(w @ (1 - 2 * rows.p_y + norm))
        gradient = square @ w - rows.at_labels(w * rows.p_y) - mass @ (w * (norm - rows.p_y))
        # With J = diag(p) - p p', the Jacobian of the softmax: J'J, summed over the hat functions.
        cross = form.product(square * w, mass)
        curvature = form.pairs(*(moment @ w for moment in moments)) - cross - cross.T
        curvature += form.product(mass * (w * norm), mass)
        return loss, 2 * gradient, 2 * curvature

    return total(of(chunk.at(deviation)) for chunk in chunks)

"""Reference kernels in NumPy: the oracle of the tests, and all that small inputs need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.kernels.lookup import Knots, Piecewise, positions

Block = NDArray[Any]
Labels = NDArray[np.intp]
Rows = NDArray[np.float64]


# Up to so many classes a block is worked on lying on its side: NumPy reduces long rows fast and short ones slowly.
_SIDEWAYS = 48


@dataclass(frozen=True)
class _Table:
    """A block less its row maxima, either way up, and what is done along its classes."""

    values: Block
    classes: int  # axis of the classes

    @classmethod
    def of(cls, x: Block) -> _Table:
        if x.shape[1] <= _SIDEWAYS:
            lying = np.ascontiguousarray(x.T)
            return cls(lying - lying.max(axis=0), 0)
        return cls(x - x.max(axis=1, keepdims=True), 1)

    def sum(self, values: Block) -> Block:
        total: Block = values.sum(axis=self.classes, keepdims=True)
        return total

    def dot(self, a: Block, b: Block) -> Rows:
        return np.asarray(np.einsum("ij,ij->i" if self.classes else "ij,ij->j", a, b), dtype=np.float64)

    def at(self, values: Block, y: Labels) -> Rows:
        rows = np.arange(len(y))
        return (values[rows, y] if self.classes else values[y, rows]).astype(np.float64)

    def spread(self, rows: Rows) -> Block:
        spread = rows[:, None] if self.classes else rows[None, :]
        return spread.astype(self.values.dtype)

    def softmax(self, beta: float) -> Block:
        p: Block = np.exp(self.values * self.values.dtype.type(beta))
        p /= self.sum(p)
        return p


def nll_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Log-probability of the label and its two derivatives' parts: log p_y, x_y - E_p[x], Var_p[x]."""
    if x.shape[1] == 2:
        return _nll_rows_binary(x, y, beta)
    table = _Table.of(x)
    u = table.values
    e = np.exp(u * u.dtype.type(beta))
    total = table.sum(e).ravel().astype(np.float64)
    mean = table.dot(e, u) / total
    e *= u
    second = table.dot(e, u) / total
    u_y = table.at(u, y)
    return np.stack([beta * u_y - np.log(total), u_y - mean, np.maximum(second - mean**2, 0.0)])


def _nll_rows_binary(x: Block, y: Labels, beta: float) -> Rows:
    # With two classes everything is a function of the lead of the other class over the label.
    lead = x[:, 0].astype(np.float64) - x[:, 1]
    np.negative(lead, out=lead, where=y == 0)
    decay = np.exp(-beta * np.abs(lead))
    # p of the other class: 1 / (1 + exp(-beta lead))
    other = np.where(lead > 0, 1.0, decay) / (1.0 + decay)
    log_p = -(np.maximum(beta * lead, 0.0) + np.log1p(decay))
    return np.stack([log_p, -other * lead, decay / np.square(1.0 + decay) * np.square(lead)])


def brier_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Parts of the squared error and of its derivatives: p_y, dp_y, sum p^2, sum p dp, sum dp^2, Var_p[x]."""
    table = _Table.of(x)
    return np.stack(_brier_parts(table, table.softmax(beta), y)[0])


def _brier_parts(table: _Table, p: Block, y: Labels) -> tuple[list[Rows], Block, Block]:
    lead = table.values - table.spread(table.dot(p, table.values))
    slope = lead * p
    parts = [table.at(p, y), table.at(slope, y), table.dot(p, p), table.dot(p, slope)]
    return [*parts, table.dot(slope, slope), table.dot(slope, lead)], slope, lead


def mixture_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Parts of the squared error of w1 softmax(beta x) + w2 softmax(x) + w3 / L."""
    table = _Table.of(x)
    p, q = table.softmax(beta), table.softmax(1.0)
    parts, slope, lead = _brier_parts(table, p, y)
    crossed = [table.at(q, y), table.dot(q, q), table.dot(p, q), table.dot(q, slope), table.dot(q, slope * lead)]
    return np.stack([*parts, *crossed])


def softmax_into(x: Block, beta: float, out: Block) -> None:
    """Write out = softmax(beta x), row by row."""
    np.subtract(x, x.max(axis=1, keepdims=True), out=out)
    out *= out.dtype.type(beta)
    np.exp(out, out=out)
    out /= out.sum(axis=1, keepdims=True)
    np.maximum(out, np.finfo(out.dtype).tiny, out=out)


def mixture_into(x: Block, beta: float, weights: NDArray[np.float64], out: Block) -> None:
    """Write out = w1 softmax(beta x) + w2 softmax(x) + w3 / L, row by row."""
    softmax_into(x, beta, out)
    out *= out.dtype.type(weights[0])
    if weights[1] > 0:
        plain = np.empty_like(out)
        softmax_into(x, 1.0, plain)
        plain *= out.dtype.type(weights[1])
        out += plain
    out += out.dtype.type(weights[2] / x.shape[1])
    np.maximum(out, np.finfo(out.dtype).tiny, out=out)


def interpolate_into(x: Block, function: Piecewise, out: Block) -> None:
    """Write out = function(x) for every entry of a contiguous block with entries in [0, 1]."""
    k = positions(x, function.knots, function.lookup(x.dtype))
    left = k < 0
    np.maximum(k, 0, out=k)
    if function.steps:
        result = function.values[k]
    else:
        result = function.values[k] + function.slopes[k] * (x - function.knots[k])
    result[left] = function.left
    out[...] = result


def interpolate_columns_into(
    x: Block, knots: Rows, values: Rows, slopes: Rows, left: Rows, offsets: NDArray[np.int64], out: Block
) -> None:
    """Write out[:, k] = k-th function(x[:, k]): the functions are stored end to end, the k-th from offsets[k] on."""
    for k, column in enumerate(np.ascontiguousarray(x.T)):
        span = slice(offsets[k], offsets[k + 1])
        out[:, k] = Piecewise(knots[span], values[span], slopes[span], float(left[k]))(column)


def add_gaps(x: Block, row_weight: Rows | None, knots: Knots, weight: Rows, score_sum: Rows, largest: Rows) -> None:
    """Add all entries of a block to the gaps between sorted knots, the first of which is left of them all.

    An entry belongs to the gap that follows the last knot not above it. What is added up is its row's weight (1 if
    there are none), and unless these are empty its score times that weight and the largest score.
    """
    if row_weight is None:  # sorting is faster than searching each of them
        ordered = np.sort(x, axis=None)
        edges = np.searchsorted(ordered, knots.values.astype(x.dtype), side="left")
        edges = np.concatenate([[0], edges, [ordered.size]])
        count = np.diff(edges)
        weight += count
        filled = np.flatnonzero(count)
        if len(score_sum):
            score_sum[filled] += np.add.reduceat(ordered, edges[filled], dtype=np.float64)
        if len(largest):
            largest[filled] = np.maximum(largest[filled], ordered[edges[filled + 1] - 1])
        return
    gap = np.searchsorted(knots.values, x.ravel(), side="right")
    spread = np.repeat(row_weight, x.shape[1])
    weight += np.bincount(gap, spread, len(weight))
    if len(score_sum):
        score_sum += np.bincount(gap, spread * x.ravel(), len(weight))
    if len(largest):
        np.maximum.at(largest, gap, x.ravel())


def add_gaps_of_logits(x: Block, y: Labels, row_weight: Rows | None, knots: Knots, weight: Rows) -> NDArray[np.bool_]:
    """Add the weight of all entries of softmax(x) but the labels' to the gaps, as :func:`add_gaps` does.

    Only logarithms are compared. A row with an entry so close to a knot that rounding decides between two gaps is left
    out; which rows these are is returned.
    """
    logs = knots.logarithms(x.shape[1])
    u = x.astype(np.float64)
    u -= u.max(axis=1, keepdims=True)
    u -= np.log(np.exp(u).sum(axis=1, keepdims=True))
    gap = np.searchsorted(logs.values, u, side="right")
    around = np.concatenate([[-np.inf], logs.values, [np.inf]])
    near = (u - around[gap] < logs.doubt) | (around[gap + 1] - u < logs.doubt)
    near |= (u < logs.low) & (logs.values[0] < logs.low)  # such small numbers have fewer digits
    others = np.ones(x.shape, dtype=bool)
    others[np.arange(len(y)), y] = False
    unsure: NDArray[np.bool_] = (near & others).any(axis=1)
    others[unsure] = False
    spread = None if row_weight is None else np.repeat(row_weight, others.sum(axis=1))
    weight += np.bincount(gap[others], spread, len(weight))
    return unsure

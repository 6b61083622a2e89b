"""Reference kernels in NumPy: the oracle of the tests, and all that small inputs need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.kernels.lookup import Piecewise, positions

Block = NDArray[Any]
Labels = NDArray[np.intp]
Rows = NDArray[np.float64]


# Up to so many classes a block is worked on lying on its side: NumPy reduces long rows fast and short ones slowly.
_SIDEWAYS = 48
# Entries whose temporaries are small: the memory of larger ones would come from the system anew each time.
_CHUNK = 1 << 13


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
    lookup, flat, target = function.lookup(x.dtype), x.reshape(-1), out.reshape(-1)
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK]
        k = positions(part, function.knots, lookup)
        left = k < 0
        np.maximum(k, 0, out=k)
        result = function.values[k]
        if not function.steps:
            result += function.slopes[k] * (part - function.knots[k])
        result[left] = function.left
        target[start : start + _CHUNK] = result


def interpolate_columns_into(
    x: Block, knots: Rows, values: Rows, slopes: Rows, left: Rows, offsets: NDArray[np.int64], out: Block
) -> None:
    """Write out[:, k] = k-th function(x[:, k]): the functions are stored end to end, the k-th from offsets[k] on."""
    for k, column in enumerate(np.ascontiguousarray(x.T)):
        span = slice(offsets[k], offsets[k + 1])
        out[:, k] = Piecewise(knots[span], values[span], slopes[span], float(left[k]))(column)

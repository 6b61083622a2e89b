"""NumPy kernels of temperature scaling and its ensembles: losses with their derivatives, and predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.kernels._numpy_rows import keep_winners
from mixnmatch._engine.kernels._numpy_table import Table

Block = NDArray[Any]
Labels = NDArray[np.intp]
Rows = NDArray[np.float64]


def nll_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Log-probability of the label and its two derivatives' parts: log p_y, x_y - E_p[x], Var_p[x]."""
    if x.shape[1] == 2:
        return _nll_rows_binary(x, y, beta)
    table = Table.of(x)
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
    if x.shape[1] == 2:
        return mixture_rows_of_two(x, y, beta, mixture=False)
    table = Table.of(x)
    return np.stack(_brier_parts(table, table.softmax(beta), y)[0])


def _brier_parts(table: Table, p: Block, y: Labels) -> tuple[list[Rows], Block, Block]:
    lead = table.values - table.spread(table.dot(p, table.values))
    slope = lead * p
    parts = [table.at(p, y), table.at(slope, y), table.dot(p, p), table.dot(p, slope)]
    return [*parts, table.dot(slope, slope), table.dot(slope, lead)], slope, lead


def mixture_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Parts of the squared error of w1 softmax(beta x) + w2 softmax(x) + w3 / L."""
    if x.shape[1] == 2:
        return mixture_rows_of_two(x, y, beta, mixture=True)
    table = Table.of(x)
    p, q = table.softmax(beta), table.softmax(1.0)
    parts, slope, lead = _brier_parts(table, p, y)
    crossed = [table.at(q, y), table.dot(q, q), table.dot(p, q), table.dot(q, slope), table.dot(q, slope * lead)]
    return np.stack([*parts, *crossed])


def mixture_rows_of_two(x: Block, y: Labels, beta: float, *, mixture: bool) -> Rows:
    """What :func:`mixture_rows` or :func:`brier_rows` give for two classes: functions of the label's lead."""
    out = np.empty((11 if mixture else 6, len(x)))
    lead = np.subtract(x[:, 0], x[:, 1], dtype=np.float64)
    np.negative(lead, out=lead, where=y == 1)
    p, rest = _sigmoids(beta * lead, out[0])
    np.multiply(p, rest, out=out[5])
    slope = np.multiply(out[5], lead, out=out[1])
    np.multiply(slope, lead, out=out[5])
    difference = p - rest
    _sum_of_squares(p, rest, out[2])
    np.multiply(difference, slope, out=out[3])
    np.multiply(slope, slope, out=out[4])
    out[4] *= 2.0
    if mixture:
        q, other = _sigmoids(lead.copy(), out[6])
        _sum_of_squares(q, other, out[7])
        np.multiply(p, q, out=out[8])
        out[8] += np.multiply(rest, other, out=difference)
        np.subtract(q, other, out=out[9])
        out[9] *= slope
        # q dp (x - E_p x), summed: slope times lead times (q_y p_other + q_other p_y)
        np.multiply(q, rest, out=out[10])
        out[10] += np.multiply(other, p, out=difference)
        out[10] *= slope
        out[10] *= lead
    return out


def _sigmoids(x: Rows, out: Rows) -> tuple[Rows, Rows]:
    """Write the logistic function of x to ``out`` and return it with its complement, both in full precision."""
    positive = x > 0
    np.abs(x, out=x)
    np.exp(np.negative(x, out=x), out=x)
    large = 1.0 / (1.0 + x)
    x *= large
    np.copyto(out, x)
    np.copyto(out, large, where=positive)
    np.copyto(large, x, where=positive)
    return out, large


def _sum_of_squares(a: Rows, b: Rows, out: Rows) -> None:
    np.multiply(a, a, out=out)
    out += b * b


def softmax_into(x: Block, beta: float, out: Block) -> None:
    """Write out = softmax(beta x), row by row, with the winners of x."""
    _softmax_into(x, beta, out)
    keep_winners(x, out)


def _softmax_into(x: Block, beta: float, out: Block) -> None:
    table = Table.of(x, out)
    u = table.values
    u *= u.dtype.type(beta)
    np.exp(u, out=u)
    np.divide(u, table.sum(u), out=table.lying(out))
    _lift(out)


def mixture_into(x: Block, beta: float, weights: NDArray[np.float64], out: Block) -> None:
    """Write out = w1 softmax(beta x) + w2 softmax(x) + w3 / L, row by row, with the winners of x."""
    _softmax_into(x, beta, out)
    out *= out.dtype.type(weights[0])
    if weights[1] > 0:
        plain = np.empty_like(out)
        _softmax_into(x, 1.0, plain)
        plain *= out.dtype.type(weights[1])
        out += plain
    out += out.dtype.type(weights[2] / x.shape[1])
    _lift(out)
    keep_winners(x, out)


def _lift(out: Block) -> None:
    """Raise entries below the smallest normal number to it, in place; checking first is ten times faster."""
    tiny = np.finfo(out.dtype).tiny
    if out.min(initial=1) < tiny:
        np.maximum(out, tiny, out=out)

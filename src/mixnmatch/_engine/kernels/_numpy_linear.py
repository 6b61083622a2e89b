"""NumPy kernels of maps that are linear in log-probabilities: with a matrix, or a slope for each class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import row_maxima, row_sums
from mixnmatch._engine.kernels._numpy_table import Table

Block = NDArray[Any]
Labels = NDArray[np.intp]
Rows = NDArray[np.float64]


def linear_softmax_into(x: Block, weight: NDArray[np.float64], intercept: NDArray[np.float64], out: Block) -> None:
    """Write out = softmax(weight log_softmax(x) + intercept), row by row, for a matrix or a diagonal."""
    weight, intercept = weight.astype(x.dtype, copy=False), intercept.astype(x.dtype, copy=False)
    if x.shape[1] == 2:
        _linear_sigmoid_into(x, np.diag(weight) if weight.ndim == 1 else weight, intercept, out)
        return
    table = Table.of(x, out)
    u = table.values
    u -= np.log(table.sum(np.exp(u)))
    if weight.ndim == 1:
        u *= table.along(weight)
    else:
        u = u @ weight.T if table.classes else weight @ u
    u += table.along(intercept)
    u -= table.max(u)
    np.exp(u, out=u)
    np.divide(u, table.sum(u), out=table.lying(out))


def _linear_sigmoid_into(x: Block, weight: Block, intercept: Block, out: Block) -> None:
    # With two classes all is a function of the lead of the second, before the map and after it.
    lead = x[:, 1] - x[:, 0]
    rest = np.log(1 + np.exp(-np.abs(lead)))
    first, second = -rest - np.maximum(lead, 0), np.minimum(lead, 0, out=lead) - rest  # log-probabilities
    on_first, on_second = weight[1] - weight[0]
    first *= on_first
    second *= on_second
    first += second
    first += intercept[1] - intercept[0]
    odds = np.exp(-np.abs(first))  # of the less probable class
    less = odds / (1 + odds)
    more = np.subtract(1, less, out=odds)
    second_leads = first > 0
    out[:, 0] = np.where(second_leads, less, more)
    out[:, 1] = np.where(second_leads, more, less)


def diagonal_softmax(s: Block, slope: Rows, intercept: Rows) -> tuple[Block, Block, Rows]:
    """Softmax over the classes of slope s + intercept, largest arguments, and sums of exponentials below them."""
    u = slope.astype(s.dtype, copy=False)[:, None] * s
    u += intercept.astype(s.dtype, copy=False)[:, None]
    top = u.max(axis=0)
    u -= top
    p = np.exp(u, out=u)
    total = p.sum(axis=0)
    p /= total
    return p, top, total.astype(np.float64)


def diagonal_product(s: Block, p: Block, slope: Rows, intercept: Rows, weight: Block | None) -> Rows:
    """Curvature of the log loss at p times a direction, in the slopes and in the intercepts."""
    z = slope.astype(s.dtype, copy=False)[:, None] * s
    z += intercept.astype(s.dtype, copy=False)[:, None]
    z *= p
    z -= p * z.sum(axis=0)
    if weight is not None:
        z *= weight
    return np.stack([np.einsum("ij,ij->i", z, s).astype(np.float64), z.sum(axis=1, dtype=np.float64)])


def diagonal_sums(s: Block, p: Block, weight: Block | None, *, curved: bool) -> Rows:
    """Sums over samples of p s and p for each class, or of q s^2, q s and q for q = p (1 - p) if ``curved``."""
    q = p * (1 - p) if curved else p
    q = q if weight is None else q * weight
    products = q * s
    sums = [products.sum(axis=1, dtype=np.float64), q.sum(axis=1, dtype=np.float64)]
    if curved:
        sums.insert(0, np.einsum("ij,ij->i", products, s).astype(np.float64))
    return np.stack(sums)


def vector_sums(
    x: Block, y: Labels, weight: Rows | None, beta: float, slope: Rows, intercept: Rows, *, curved: bool
) -> tuple[Rows, Rows]:
    """Sums over samples for each class at p = softmax(slope s + intercept), s = beta log_softmax(x).

    Returns the log-probability and s of each sample's label, and the sums of p s and p; if ``curved`` those of q s^2,
    q s and q for q = p (1 - p).
    """
    s, u = _scaled_and_linear(x, beta, slope, intercept)
    rows = np.arange(len(x))
    label = np.stack([u[rows, y], s[rows, y]]).astype(np.float64)
    p = np.exp(u)
    q = p * (1 - p) if curved else p
    return label, np.stack([_by_class(q * s**power, weight) for power in ((2, 1, 0) if curved else (1, 0))])


def vector_product(
    x: Block, weight: Rows | None, beta: float, slope: Rows, intercept: Rows, in_slope: Rows, in_intercept: Rows
) -> Rows:
    """Curvature of the log loss at some parameters times a direction, in the slopes and in the intercepts."""
    s, u = _scaled_and_linear(x, beta, slope, intercept)
    p = np.exp(u, out=u)
    z = in_slope.astype(x.dtype) * s + in_intercept.astype(x.dtype)
    z -= np.einsum("ij,ij->i", p, z)[:, None]
    z *= p
    return np.stack([_by_class(z * s, weight), _by_class(z, weight)])


def _scaled_and_linear(x: Block, beta: float, slope: Rows, intercept: Rows) -> tuple[Block, Block]:
    """Scaled log-probabilities s, and the log_softmax of slope s + intercept."""
    s = _log_softmax(x.copy())
    s *= x.dtype.type(beta)
    return s, _log_softmax(slope.astype(x.dtype) * s + intercept.astype(x.dtype))


def _log_softmax(u: Block) -> Block:
    u -= row_maxima(u)[:, None]
    u -= np.log(row_sums(np.exp(u)))[:, None]
    return u


def _by_class(table: Block, weight: Rows | None) -> Rows:
    """Sum over samples, in double precision."""
    if weight is None:
        return np.asarray(table.sum(axis=0, dtype=np.float64))
    return np.asarray(np.einsum("i,ij->j", weight, table, dtype=np.float64))

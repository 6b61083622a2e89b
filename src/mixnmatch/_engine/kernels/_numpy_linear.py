"""NumPy kernels of maps that are linear in log-probabilities: with a matrix, or a slope for each class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.kernels._numpy_table import Table

Block = NDArray[Any]
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

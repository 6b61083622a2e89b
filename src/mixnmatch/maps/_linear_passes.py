"""What passes over rows compute for the softmax-linear family: loss, gradient and curvature.

Blocks lie on their side here, classes x rows: what is done along the classes runs along whole vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import kernels
from mixnmatch._engine.block import Block
from mixnmatch._engine.prepared import KEPT_ENTRIES, KEPT_SINGLE, Prepared
from mixnmatch._engine.rows import Rows

Array = NDArray[np.float64]
# Bytes of a block, and rows that it has at least, so that multiplications of matrices are busy.
PRODUCT_BYTES, PRODUCT_ROWS = 1 << 19, 512
# The same for rows of many classes that are read as they are; and how many classes are many.
UPRIGHT_BYTES, UPRIGHT_ROWS, UPRIGHT_FROM = 1 << 21, 64, 64


@dataclass(frozen=True, eq=False)
class Problem:
    """What a pass needs to know: the scale that scores are brought to first, what is free, and how exact to be."""

    beta: float
    floor: float
    full: bool  # whether off-diagonal entries are free
    loss: str
    single: bool  # whether all products are in float32 (sums of blocks are in float64)
    single_curvature: bool = False  # whether those of the curvature are, which steers but does not decide
    shared: bool = False  # whether all classes share one slope; then v has one entry

    def n_parameters(self, n_classes: int) -> int:
        """Length of the flat parameter vector."""
        slopes = n_classes**2 if self.full else 1 if self.shared else n_classes
        return slopes + n_classes


@dataclass(frozen=True, eq=False)
class Scaled:
    """Scaled log-probabilities s of some rows, their labels and weights: what every statistic here reads."""

    s: NDArray[Any]
    y: NDArray[np.intp]
    weight: NDArray[Any] | None
    backend: str

    @property
    def kernels(self) -> ModuleType:
        """Kernels for these rows."""
        return kernels.load(self.backend)

    def weighted(self, table: NDArray[Any]) -> NDArray[Any]:
        """A table times the weights of its rows."""
        return table if self.weight is None else table * self.weight.astype(table.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Upright:
    """Rows as they are given, and what the kernels of diagonal maps read: the parameters that curvature is taken at."""

    x: NDArray[Any]
    y: NDArray[np.intp]
    weight: Array | None
    backend: str
    theta: Array

    @property
    def kernels(self) -> ModuleType:
        """Kernels for these rows."""
        return kernels.load(self.backend)


@dataclass(frozen=True, eq=False)
class Local(Scaled):
    """The same rows with their probabilities at some parameters: what products with the curvature there read."""

    p: NDArray[Any]


def log_probabilities(block: Block, floor: float, dtype: Any) -> NDArray[Any]:
    """Log-probabilities, classes x rows: the same for logits and for the probabilities they give."""
    x = np.array(block.log_scores(floor).T, dtype=dtype, order="C")  # always a copy: the block stays as it is
    x -= x.max(axis=0)
    x -= np.log(np.exp(x).sum(axis=0))
    return x


def scaled(block: Block, problem: Problem) -> Scaled:
    """The rows of a block as the maps of this family read them."""
    s = log_probabilities(block, problem.floor, np.float32 if problem.single else np.float64)
    s *= s.dtype.type(problem.beta)
    weight = None if block.weight is None else block.weight.astype(s.dtype, copy=False)
    return Scaled(s, block.y, weight, block.backend)


def upright(block: Block, problem: Problem) -> Upright:
    """The rows of a block as diagonal maps of many classes read them."""
    x = block.log_scores(problem.floor)
    x = x if problem.single else x.astype(np.float64, copy=False)
    return Upright(x, block.y, block.weight, block.backend, np.zeros(problem.n_parameters(x.shape[1])))


def scaled_rows(source: Rows, problem: Problem) -> Prepared:
    """The rows of a source as the maps of this family read them."""
    many = source.n_entries > (KEPT_SINGLE if problem.single else KEPT_ENTRIES) or source.on_dask
    if many and not problem.full and problem.loss == "nll" and source.n_classes >= UPRIGHT_FROM:
        block_bytes = max(UPRIGHT_BYTES, UPRIGHT_ROWS * source.scores.row_bytes)
        return Prepared.of(source, upright, problem, block_bytes=block_bytes)
    block_bytes = max(PRODUCT_BYTES, PRODUCT_ROWS * source.scores.row_bytes)
    return Prepared.of(source, scaled, problem, block_bytes=block_bytes, single=problem.single)


def unpack(theta: NDArray[Any], problem: Problem, n_classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Diagonal v (or matrix diag(v) + M) and intercept b from a flat parameter vector."""
    if problem.full:
        return theta[:-n_classes].reshape(n_classes, n_classes), theta[-n_classes:]
    return theta[:-n_classes], theta[-n_classes:]


def _linear(s: NDArray[Any], problem: Problem, theta: Array) -> NDArray[Any]:
    """(diag(v) + M) s + b."""
    weight, intercept = unpack(theta.astype(s.dtype, copy=False), problem, len(s))
    u: NDArray[Any] = weight @ s if problem.full else weight[:, None] * s
    u += intercept[:, None]
    return u


def _transposed(slope: NDArray[Any], s: NDArray[Any], problem: Problem) -> Array:
    """The transpose of :func:`_linear`: from slopes in u to slopes in the parameters, in float64."""
    if problem.full:
        in_weight = (slope @ s.T).astype(np.float64).ravel()
    else:
        in_weight = np.einsum("ij,ij->i", slope, s).astype(np.float64)
        if problem.shared:
            in_weight = in_weight.sum(keepdims=True)
    return np.concatenate([in_weight, slope.sum(axis=1, dtype=np.float64)])


def _in_parameters(by_class: Array, problem: Problem) -> Array:
    """Slopes in the parameters (v, b), from those in a slope and an intercept for each class."""
    in_weight, in_intercept = by_class
    return np.concatenate([in_weight.sum(keepdims=True) if problem.shared else in_weight, in_intercept])


def _forward(rows: Scaled, problem: Problem, theta: Array) -> tuple[NDArray[Any], Array]:
    """Probabilities, and the logarithm of that of the label."""
    index = np.arange(len(rows.y))
    if not problem.full:
        weight, intercept = unpack(theta, problem, len(rows.s))
        slope = np.broadcast_to(1 + weight, intercept.shape)
        p, top, total = rows.kernels.diagonal_softmax(rows.s, np.ascontiguousarray(slope), intercept)
        at_label = slope[rows.y] * rows.s[rows.y, index] + intercept[rows.y]
        return p, at_label - top - np.log(total)
    u = _linear(rows.s, problem, theta)
    u += rows.s
    u -= u.max(axis=0)
    at_label = u[rows.y, index].astype(np.float64)
    p = np.exp(u, out=u)
    total = p.sum(axis=0)
    p /= total
    return p, at_label - np.log(total)


def _loss_and_slope(rows: Scaled, problem: Problem, p: NDArray[Any], log_p: Array) -> tuple[float, NDArray[Any]]:
    """Weighted loss of a block, and its slope in the arguments of the softmax, in place of ``p``."""
    index = np.arange(len(rows.y))
    if problem.loss == "nll":
        value = -log_p
        slope = p
        slope[rows.y, index] -= 1
    else:
        residual = p.copy()
        residual[rows.y, index] -= 1
        value = (residual * residual).sum(axis=0, dtype=np.float64)
        slope = 2 * p * (residual - (p * residual).sum(axis=0))
    sum_of_values = value.sum() if rows.weight is None else value @ rows.weight.astype(np.float64)
    return float(sum_of_values), rows.weighted(slope)


def gradient_statistic(rows: Scaled | Upright, problem: Problem, theta: Array) -> Array:
    """Loss and its gradient in (v or diag(v) + M, b), in one vector."""
    if isinstance(rows, Upright):
        return _upright_gradient(rows, problem, theta)
    p, log_p = _forward(rows, problem, theta)
    if problem.full or problem.loss != "nll":
        value, slope = _loss_and_slope(rows, problem, p, log_p)
        return np.concatenate([[value], _transposed(slope, rows.s, problem)])
    weight = np.ones(len(log_p)) if rows.weight is None else rows.weight.astype(np.float64)
    expected = rows.kernels.diagonal_sums(rows.s, p, rows.weight, curved=False)
    at_label = rows.s[rows.y, np.arange(len(rows.y))]
    found = [np.bincount(rows.y, each, len(p)) for each in (weight * at_label, weight)]
    return np.concatenate([[-(log_p @ weight)], _in_parameters(expected - found, problem)])


def newton_statistic(rows: Scaled, problem: Problem, theta: Array) -> tuple[Array, Array]:
    """As :func:`gradient_statistic`, and the curvature of the log loss in all parameters."""
    s = rows.s
    n = len(s)
    p, log_p = _forward(rows, problem, theta)
    # How much p_k changes with each parameter of class k, all but a factor 1 - p_k: columns k n + j, then intercepts.
    own = (p[:, None] * s).reshape(n * n, -1) if problem.full else p * s
    stacked = np.concatenate([own, p])
    weighted = rows.weighted(stacked)
    hessian = -(stacked @ weighted.T).astype(np.float64)
    size, k = len(own), np.arange(n)
    if problem.full:
        square = weighted[:size].reshape(n, n, -1) @ s.T
        cross = weighted[:size].sum(axis=1).reshape(n, n)
        at = np.arange(size).reshape(n, n)
        hessian[at[:, :, None], at[:, None, :]] += square
        hessian[at, size + k[:, None]] += cross
        hessian[size + k[:, None], at] += cross
    else:
        cross = weighted[:size].sum(axis=1)
        hessian[k, k] += np.einsum("ij,ij->i", weighted[:size], s)
        hessian[k, size + k] += cross
        hessian[size + k, k] += cross
    hessian[size + k, size + k] += weighted[size:].sum(axis=1)
    if problem.shared:
        hessian = _one_slope(hessian, n)
    value, slope = _loss_and_slope(rows, problem, p, log_p)
    return np.concatenate([[value], _transposed(slope, s, problem)]), hessian


def _one_slope(hessian: Array, n_classes: int) -> Array:
    """Curvature in (v, b) for one v in all classes, from that for a v in each."""
    rows = np.concatenate([hessian[:n_classes].sum(axis=0, keepdims=True), hessian[n_classes:]])
    return np.concatenate([rows[:, :n_classes].sum(axis=1, keepdims=True), rows[:, n_classes:]], axis=1)


def _by_class(theta: Array, problem: Problem, n_classes: int) -> tuple[Array, Array]:
    """A slope and an intercept for each class, from a flat parameter vector."""
    weight, intercept = unpack(theta, problem, n_classes)
    return np.broadcast_to(weight, intercept.shape), intercept


def _upright_gradient(rows: Upright, problem: Problem, theta: Array) -> Array:
    """The same for rows as they are given."""
    n_classes = rows.x.shape[1]
    slope, intercept = _by_class(theta, problem, n_classes)
    label, expected = rows.kernels.vector_sums(
        rows.x, rows.y, rows.weight, problem.beta, 1 + slope, intercept, curved=False
    )
    weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight
    found = np.stack([np.bincount(rows.y, each, n_classes) for each in (weight * label[1], weight)])
    return np.concatenate([[-float(weight @ label[0])], _in_parameters(expected - found, problem)])


def local(rows: Scaled | Upright, problem: Problem, theta: Array) -> Local | Upright:
    """Rows and their probabilities at some parameters, in the precision of the curvature."""
    if isinstance(rows, Upright):
        return replace(rows, theta=theta)
    s = rows.s.astype(np.float32, copy=False) if problem.single_curvature else rows.s
    p, _ = _forward(Scaled(s, rows.y, None, rows.backend), problem, theta)
    weight = None if rows.weight is None else rows.weight.astype(s.dtype, copy=False)
    return Local(s, rows.y, weight, rows.backend, p)


def product_statistic(rows: Local | Upright, problem: Problem, direction: Array) -> Array:
    """Curvature of the log loss times a direction."""
    if isinstance(rows, Upright):
        at, along = (_by_class(each, problem, rows.x.shape[1]) for each in (rows.theta, direction))
        by_class = rows.kernels.vector_product(rows.x, rows.weight, problem.beta, 1 + at[0], at[1], *along)
        return _in_parameters(by_class, problem)
    if not problem.full:
        weight, intercept = unpack(direction, problem, len(rows.s))
        slope = np.broadcast_to(weight, intercept.shape)
        by_class = rows.kernels.diagonal_product(rows.s, rows.p, slope, intercept, rows.weight)
        return _in_parameters(by_class, problem)
    z = _linear(rows.s, problem, direction)
    z *= rows.p
    z -= rows.p * z.sum(axis=0)
    return _transposed(rows.weighted(z), rows.s, problem)


def diagonal_statistic(rows: Local | Upright, problem: Problem) -> Array:
    """Curvature of the log loss in each entry of (M, b), or for a diagonal map in v, in (v, b) and in b of a class."""
    if isinstance(rows, Upright):
        slope, intercept = _by_class(rows.theta, problem, rows.x.shape[1])
        own = rows.x, rows.y, rows.weight, problem.beta, 1 + slope, intercept
        return np.asarray(rows.kernels.vector_sums(*own, curved=True)[1])
    if not problem.full:
        return np.asarray(rows.kernels.diagonal_sums(rows.s, rows.p, rows.weight, curved=True))
    spread = rows.weighted(rows.p * (1 - rows.p))
    return np.column_stack([spread @ (rows.s * rows.s).T, spread.sum(axis=1)]).astype(np.float64)


def factor_statistic(rows: Local) -> tuple[Array, Array, float]:
    """Sums of diag(p) - p p', of r x x' for x = (s, 1) and r = 1 - |p|^2, and of r."""
    p = rows.p
    weighted = rows.weighted(p)
    classes = np.diag(weighted.sum(axis=1, dtype=np.float64)) - (p @ weighted.T).astype(np.float64)
    spread = rows.weighted(1 - (p * p).sum(axis=0))
    x = np.concatenate([rows.s, np.ones_like(rows.s[:1])])
    inputs = ((x * spread) @ x.T).astype(np.float64)
    return classes, inputs, float(spread.sum(dtype=np.float64))

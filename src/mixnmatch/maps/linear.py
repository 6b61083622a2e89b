"""The softmax-linear family: vector, matrix, Dirichlet, and structured vector and matrix scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._prepared import Prepared
from mixnmatch._rows import Block, RowSource
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.temperature import check_loss, fit_beta, log_softmax

Array = NDArray[np.float64]
# From so many classes on, products run in float32 (the gradient is still summed in float64).
SINGLE_FROM = 400
# Bytes of a block for passes that multiply matrices: enough rows to keep the multiplication busy.
PRODUCT_BYTES = 1 << 22


@dataclass(frozen=True)
class Penalty:
    """Ridge weights on the diagonal, the off-diagonal and the intercept, for the mean loss."""

    diagonal: float
    off_diagonal: float
    intercept: float


@dataclass(frozen=True)
class Problem:
    """What a pass needs to know: the scale that scores are brought to first, and what is free."""

    beta: float
    floor: float
    full: bool  # whether off-diagonal entries are free
    loss: str
    single: bool


class SoftmaxLinear(CalibrationMap):
    """softmax((I + diag(v) + M) s + b) of scaled log-probabilities s = beta log z, with ridges on v, M and b.

    Subclasses say which parts are free and how strongly they are held back. ``beta`` is that of temperature scaling,
    so that all penalties at infinity give temperature scaling.
    """

    _fitted: ClassVar[tuple[str, ...]] = ("weight_", "intercept_", "log_floor_", "loss_")
    _full: ClassVar[bool] = False

    weight_: Array
    intercept_: Array
    log_floor_: float
    loss_: float

    def __init__(self, *, loss: str = "nll", logits: bool = False, classes: Any = None, weights: str = "frequency"):
        self.loss = loss
        self.logits = logits
        self.classes = classes
        self.weights = weights

    @property
    def injective(self) -> bool:  # type: ignore[override]
        """Whether the fitted map is.

        Two rows x, x' of log-probabilities with the same output differ by c W^-1 1 for some c. Both being
        log-probabilities, their difference cannot have one sign in all entries: so c = 0 where W is invertible and
        W^-1 1 has one sign, as every positive diagonal has.
        """
        weight = getattr(self, "weight_", None)
        if weight is None:
            return False
        if weight.ndim == 1:
            return bool((weight > 0).all() or (weight < 0).all())
        if np.linalg.matrix_rank(weight) < len(weight):
            return False
        direction = np.linalg.solve(weight, np.ones(len(weight)))
        return bool((direction > 0).all() or (direction < 0).all())

    def _check_params(self) -> None:
        check_loss(self.loss)

    def _penalty(self, source: RowSource) -> Penalty:
        raise NotImplementedError(type(self).__name__)

    def _problem(self, source: RowSource) -> Problem:
        floor = source.log_floor()
        beta, _, _ = fit_beta(source, self.loss, floor)
        single = source.n_classes >= SINGLE_FROM and source.scores.dtype == np.float32
        return Problem(beta, floor, self._full, self.loss, single)

    def _fit(self, source: RowSource) -> dict[str, Any]:
        problem = self._problem(source)
        theta, value = solve(source, problem, self._penalty(source))
        return self._attributes(problem, theta, value, source.n_classes)

    def _attributes(self, problem: Problem, theta: Array, value: float, n_classes: int) -> dict[str, Any]:
        weight, intercept = unpack(theta, problem, n_classes)
        identity = np.eye(n_classes) if self._full else 1.0
        return {
            "weight_": problem.beta * (identity + weight),
            "intercept_": intercept,
            "log_floor_": problem.floor,
            "loss_": value,
        }

    def _log_proba(self, block: Block) -> Array:
        x = features(block, self.log_floor_, np.float64)
        u = x @ self.weight_.T if self._full else x * self.weight_
        u += self.intercept_
        return log_softmax(u)


def features(block: Block, floor: float, dtype: Any) -> NDArray[Any]:
    """Log-probabilities: the same for logits and for the probabilities they give."""
    x = block.log_scores(floor).astype(dtype)  # always a copy: the block itself stays as it is
    x -= x.max(axis=1, keepdims=True)
    x -= np.log(np.exp(x).sum(axis=1, keepdims=True))
    return x


def unpack(theta: Array, problem: Problem, n_classes: int) -> tuple[Array, Array]:
    """Diagonal v (or matrix diag(v) + M) and intercept b from a flat parameter vector."""
    if problem.full:
        return theta[:-n_classes].reshape(n_classes, n_classes), theta[-n_classes:]
    return theta[:n_classes], theta[n_classes:]


@dataclass(frozen=True)
class Scaled:
    """Scaled log-probabilities s of some rows, their labels and weights: what every statistic here reads."""

    s: NDArray[Any]
    y: NDArray[np.intp]
    weight: NDArray[Any] | None

    def weighted(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows of a table times their weights."""
        return rows if self.weight is None else rows * self.weight[:, None]


def scaled(block: Block, problem: Problem) -> Scaled:
    """The rows of a block as the maps of this family read them."""
    s = features(block, problem.floor, np.float32 if problem.single else np.float64)
    s *= s.dtype.type(problem.beta)
    return Scaled(s, block.y, None if block.weight is None else block.weight.astype(s.dtype, copy=False))


def scaled_rows(source: RowSource, problem: Problem) -> Prepared:
    """The rows of a source as the maps of this family read them."""
    return Prepared.of(source, scaled, problem, block_bytes=PRODUCT_BYTES)


def _forward(rows: Scaled, problem: Problem, theta: Array) -> tuple[NDArray[Any], Array]:
    """Probabilities, and the logarithm of that of the label."""
    s = rows.s
    weight, intercept = unpack(theta.astype(s.dtype, copy=False), problem, s.shape[1])
    if problem.full:
        u = s @ (weight + np.eye(len(weight), dtype=s.dtype)).T
    else:
        u = s * (weight + 1)
    u += intercept
    u -= u.max(axis=1, keepdims=True)
    at_label = u[np.arange(len(u)), rows.y].astype(np.float64)
    p = np.exp(u, out=u)
    total = p.sum(axis=1, keepdims=True)
    p /= total
    return p, at_label - np.log(total[:, 0])


def _loss_and_slope(rows: Scaled, problem: Problem, p: NDArray[Any], log_p: Array) -> tuple[float, NDArray[Any]]:
    """Weighted loss of a block, and its slope in the arguments of the softmax, in place of ``p``."""
    index = np.arange(len(p))
    if problem.loss == "nll":
        value = -log_p
        slope = p
        slope[index, rows.y] -= 1
    else:
        residual = p.copy()
        residual[index, rows.y] -= 1
        value = np.einsum("ij,ij->i", residual, residual).astype(np.float64)
        slope = 2 * p * (residual - np.einsum("ij,ij->i", p, residual)[:, None])
    sum_of_values = value.sum() if rows.weight is None else value @ rows.weight.astype(np.float64)
    return float(sum_of_values), rows.weighted(slope)


def gradient_statistic(rows: Scaled, problem: Problem, theta: Array) -> Array:
    """Loss and its gradient in (v or diag(v) + M, b), in one vector."""
    value, slope = _loss_and_slope(rows, problem, *_forward(rows, problem, theta))
    if problem.full:
        in_weight = (slope.T @ rows.s).astype(np.float64).ravel()
    else:
        in_weight = np.einsum("ij,ij->j", slope, rows.s).astype(np.float64)
    return np.concatenate([[value], in_weight, slope.sum(axis=0, dtype=np.float64)])


def newton_statistic(rows: Scaled, problem: Problem, theta: Array) -> tuple[Array, Array]:
    """As :func:`gradient_statistic`, and the curvature of the log loss in (v, b), for a diagonal map."""
    s = rows.s
    p, log_p = _forward(rows, problem, theta)
    weighted = rows.weighted(p)
    stacked = np.concatenate([p * s, p], axis=1)
    hessian = -(stacked.T @ rows.weighted(stacked)).astype(np.float64)
    n = s.shape[1]
    index = np.arange(n)
    hessian[index, index] += np.einsum("ij,ij,ij->j", weighted, s, s)
    cross = np.einsum("ij,ij->j", weighted, s)
    hessian[index, index + n] += cross
    hessian[index + n, index] += cross
    hessian[index + n, index + n] += weighted.sum(axis=0)
    value, slope = _loss_and_slope(rows, problem, p, log_p)
    in_weight = np.einsum("ij,ij->j", slope, s).astype(np.float64)
    return np.concatenate([[value], in_weight, slope.sum(axis=0, dtype=np.float64)]), hessian


def ridge_vector(penalty: Penalty, problem: Problem, n_classes: int) -> Array:
    """Ridge weight of each parameter."""
    if problem.full:
        ridge = np.full((n_classes, n_classes), penalty.off_diagonal)
        np.fill_diagonal(ridge, penalty.diagonal)
        return np.concatenate([ridge.ravel(), np.full(n_classes, penalty.intercept)])
    return np.concatenate([np.full(n_classes, penalty.diagonal), np.full(n_classes, penalty.intercept)])


def solve(
    source: RowSource, problem: Problem, penalty: Penalty, start: Array | None = None, *, rough: bool = False
) -> tuple[Array, float]:
    """Minimise mean loss + sum ridge theta^2 / 2; returns the parameters and the mean loss without the ridge.

    A ``rough`` answer is good enough to compare strengths by.
    """
    n, classes = source.total_weight(), source.n_classes
    size = classes * (classes + 1) if problem.full else 2 * classes
    theta = np.zeros(size) if start is None else start
    ridge = ridge_vector(penalty, problem, classes)
    rows = scaled_rows(source, problem)
    # With many classes the exact curvature costs more than the steps that it saves.
    if not problem.full and problem.loss == "nll" and classes < SINGLE_FROM:
        theta = _newton(rows, problem, ridge, theta, n)
    else:
        theta = _quasi_newton(rows, problem, ridge, theta, n, rough=rough)
    value = rows.total(gradient_statistic, problem, theta)[0] / n
    return theta, float(value)


def _newton(rows: Prepared, problem: Problem, ridge: Array, theta: Array, n: float) -> Array:
    """Damped Newton steps for a diagonal map: few parameters, a convex loss, exact curvature."""

    def evaluate(at: Array) -> tuple[float, Array, Array]:
        first, hessian = rows.total(newton_statistic, problem, at)
        value = first[0] / n + 0.5 * float(ridge @ at**2)
        return value, first[1:] / n + ridge * at, hessian / n + np.diag(ridge)

    value, gradient, hessian = evaluate(theta)
    for _ in range(50):
        jitter = 1e-12 * np.trace(hessian) / len(theta)
        step = -np.linalg.solve(hessian + jitter * np.eye(len(theta)), gradient)
        promised = -float(gradient @ step)
        if promised <= 1e-13 * max(abs(value), 1e-6):
            break
        length = 1.0
        while True:
            trial = evaluate(theta + length * step)
            if trial[0] <= value - 1e-4 * length * promised or length < 1e-6:
                break
            length /= 3
        if not trial[0] < value:
            break
        theta = theta + length * step
        value, gradient, hessian = trial
    return theta


def _quasi_newton(
    rows: Prepared, problem: Problem, ridge: Array, theta: Array, n: float, *, rough: bool = False
) -> Array:
    """L-BFGS in parameters that are scaled by the curvature on their own."""
    from scipy.optimize import minimize

    scale = 1 / np.sqrt(_diagonal_curvature(rows, problem, theta, n) + ridge)

    def evaluate(at: Array) -> tuple[float, Array]:
        now = at * scale
        found = rows.total(gradient_statistic, problem, now)
        value = found[0] / n + 0.5 * float(ridge @ now**2)
        return value, (found[1:] / n + ridge * now) * scale

    options: dict[str, Any] = {"maxiter": 500, "maxfun": 1000, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-7}
    if problem.single:  # rounding hides smaller falls of the loss than this
        options |= {"ftol": 1e-10}
    if rough:
        options |= {"maxiter": 25, "ftol": 1e-6}
    found = minimize(evaluate, theta / scale, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x * scale)


def curvature_statistic(rows: Scaled, problem: Problem, theta: Array) -> Array:
    """Diagonal of the curvature of the log loss in every parameter."""
    p, _ = _forward(rows, problem, theta)
    spread = rows.weighted(p * (1 - p))
    square = rows.s * rows.s
    in_weight = (spread.T @ square).ravel() if problem.full else np.einsum("ij,ij->j", spread, square)
    return np.concatenate([in_weight, spread.sum(axis=0)]).astype(np.float64)


def _diagonal_curvature(rows: Prepared, problem: Problem, theta: Array, n: float) -> Array:
    curvature = rows.total(curvature_statistic, problem, theta) / n
    return np.asarray(np.maximum(curvature, 1e-6 * curvature.max()))

"""Weights of a stack: the convex combination of members with the least proper score on rows they have not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mixnmatch.maps._solve import Point, Solution, certify, newton

Array = NDArray[np.float64]
# A member with less weight than this is left out: it costs time at prediction and gains nothing.
SMALLEST_WEIGHT = 0.01
# Weights are pulled towards equal ones as if by so many rows: with few rows the best weights are mostly noise.
PULL = 10.0
# What the constraint that weights sum to one weighs against the objective, before weights are normalised.
CONSTRAINT = 1e4


class Objective(Protocol):
    """A proper score of a weighted sum of members, on rows that the members have not seen."""

    @property
    def n_members(self) -> int:
        """Number of members."""
        ...

    @property
    def weight(self) -> Array:
        """Weights of the rows."""
        ...

    def rows(self, weights: Array) -> Array:
        """Loss of each row, for one set of weights or one for each row."""
        ...

    def model(self, weights: Array) -> tuple[Array, Array]:
        """Gradient and Hessian of the mean loss."""
        ...

    def mean(self, weights: Array) -> float:
        """Mean loss."""
        ...

    def some(self, members: NDArray[np.intp]) -> Objective:
        """The same with some of the members."""
        ...

    def part(self, rows: NDArray[np.bool_]) -> Objective:
        """The same with some of the samples."""
        ...


def mixed(members: Array, weights: Array) -> Array:
    """Weighted sum of the members (n x M) in each row, for one set of weights or one for each row."""
    return np.asarray(members @ weights if weights.ndim == 1 else np.einsum("nm,nm->n", members, weights))


@dataclass(frozen=True)
class LogLoss:
    """Log loss, from the probability of the label under each member, n x M."""

    at_label: Array
    weight: Array

    @property
    def n_members(self) -> int:
        """Number of members."""
        return int(self.at_label.shape[1])

    def some(self, members: NDArray[np.intp]) -> LogLoss:
        """The same with some of the members."""
        return LogLoss(self.at_label[:, members], self.weight)

    def part(self, rows: NDArray[np.bool_]) -> LogLoss:
        """The same with some of the samples."""
        return LogLoss(self.at_label[rows], self.weight[rows])

    def rows(self, weights: Array) -> Array:
        """Loss of each row, for one set of weights or one for each row."""
        return np.asarray(-np.log(mixed(self.at_label, weights)))

    def mean(self, weights: Array) -> float:
        """Mean loss."""
        return float(self.weight @ self.rows(weights) / self.weight.sum())

    def model(self, weights: Array) -> tuple[Array, Array]:
        """Gradient and Hessian of the mean loss."""
        share = self.at_label / (self.at_label @ weights)[:, None]
        n = self.weight.sum()
        return -(self.weight @ share) / n, (share.T * self.weight) @ share / n


@dataclass(frozen=True)
class SquaredError:
    """Squared error, from the probability of the label (n x M) and the products of the members (n x M x M)."""

    at_label: Array
    products: Array
    weight: Array

    @property
    def n_members(self) -> int:
        """Number of members."""
        return int(self.at_label.shape[1])

    def some(self, members: NDArray[np.intp]) -> SquaredError:
        """The same with some of the members."""
        products = self.products[:, members][:, :, members]
        return SquaredError(self.at_label[:, members], products, self.weight)

    def part(self, rows: NDArray[np.bool_]) -> SquaredError:
        """The same with some of the samples."""
        return SquaredError(self.at_label[rows], self.products[rows], self.weight[rows])

    def rows(self, weights: Array) -> Array:
        """Loss of each row, for one set of weights or one for each row."""
        if weights.ndim == 1:
            return np.asarray(1 - 2 * self.at_label @ weights + (self.products @ weights) @ weights)
        squares = np.einsum("nm,nmk,nk->n", weights, self.products, weights)
        return np.asarray(1 - 2 * mixed(self.at_label, weights) + squares)

    def mean(self, weights: Array) -> float:
        """Mean loss."""
        return float(self.weight @ self.rows(weights) / self.weight.sum())

    def model(self, weights: Array) -> tuple[Array, Array]:
        """Gradient and Hessian of the mean loss."""
        n = self.weight.sum()
        gram = np.tensordot(self.weight, self.products, axes=1) / n
        return 2 * (gram @ weights - self.weight @ self.at_label / n), 2 * gram


def stack(objective: Objective, *, smallest: float = SMALLEST_WEIGHT, pull: float = PULL) -> Array:
    r"""Weights on the simplex with the least mean loss, pulled a little towards equal ones.

    Weights below ``smallest`` are set to zero and the rest fitted again.

    Notes
    -----
    What is minimised for M members and n rows is
    :math:`\frac1n \sum_i S_i(w) + \frac{c}{2 n} \sum_m (w_m - 1/M)^2`, c being ``pull``. Both losses are convex in the
    weights. Newton steps, each an exact quadratic problem on the simplex, converge in a handful of iterations; squared
    error takes one.
    """
    free = np.arange(objective.n_members)
    while True:
        weights = _minimise(objective, free, pull)
        keep = free[weights[free] >= smallest]
        if len(keep) == len(free) or not len(keep):
            return weights
        free = keep


def _minimise(objective: Objective, free: NDArray[np.intp], pull: float) -> Array:
    ridge, equal, some = pull / float(objective.weight.sum()), 1 / len(free), objective.some(free)

    def at(weights: Array) -> Point:
        slope, curvature = some.model(weights)
        value = some.mean(weights) + 0.5 * ridge * float(np.square(weights - equal).sum())
        return Point(weights, value, slope + ridge * (weights - equal), curvature + ridge * np.eye(len(free)))

    found = newton_on_simplex(at, np.full(len(free), equal))
    certify("Auto", found.residual)
    weights = np.zeros(objective.n_members)
    weights[free] = found.point.theta
    return weights


def newton_on_simplex(at: Callable[[Array], Point], start: Array) -> Solution:
    """Minimise a convex function of weights on the simplex: Newton steps, each an exact quadratic problem there."""

    def step(point: Point) -> Array:
        linear = point.gradient - point.curvature @ point.theta
        return simplex_quadratic(point.curvature, linear) - point.theta

    def on_simplex(weights: Array) -> Array:
        kept = np.maximum(weights, 0.0)
        return np.asarray(kept / kept.sum())

    return newton(at, at(start), step, project=on_simplex, tolerance=1e-12)


def simplex_quadratic(hessian: Array, linear: Array) -> Array:
    """Minimise x' hessian x / 2 + linear' x over the simplex, as non-negative least squares with a heavy last row."""
    from scipy.optimize import nnls

    size = len(linear)
    scale = max(float(np.trace(hessian)) / size, np.finfo(float).tiny)
    # The jitter makes the minimum unique where members coincide: they then share the weight evenly.
    root = np.linalg.cholesky(hessian / scale + 1e-9 * np.eye(size)).T
    target = np.linalg.solve(root.T, -linear / scale)
    found = nnls(np.vstack([root, CONSTRAINT * np.ones(size)]), np.append(target, CONSTRAINT))[0]
    total = float(found.sum())
    return np.asarray(found / total) if total > 0 else np.full(size, 1 / size)


def cross_fitted_weights(objective: Objective, fold: NDArray[np.intp]) -> Array:
    """For each sample, the weights of a stack that were chosen without its fold (if there are several); n x M."""
    folds = np.unique(fold)
    if len(folds) < 2:
        return np.tile(stack(objective), (len(fold), 1))
    weights = np.empty((len(fold), objective.n_members))
    for k in folds:
        inside = fold == k
        weights[inside] = stack(objective.part(~inside))
    return weights


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences of row losses, and its standard error: a weight of k is k independent samples."""

    mean: float
    standard_error: float

    @classmethod
    def of(cls, first: Array, second: Array, weight: Array) -> Difference:
        """By how much the second loss is below the first."""
        difference, total = first - second, float(weight.sum())
        mean = float(weight @ difference) / total
        if total <= 1:
            return cls(mean, float("inf"))
        spread = float(weight @ np.square(difference - mean)) * total / (total - 1)
        return cls(mean, float(np.sqrt(spread)) / total)

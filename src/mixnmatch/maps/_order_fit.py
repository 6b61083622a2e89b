"""Fits intra order-preserving maps: where their knots are, and the slopes between them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.prepared import Prepared
from mixnmatch._engine.rows import Rows
from mixnmatch.maps._nodes import Array, Nodes, overlap
from mixnmatch.maps._order_passes import Diagonal, Located, Statistic, brier_statistic, nll_statistic
from mixnmatch.maps._solve import Point, Solution, newton

# Rows by which knots are chosen, where there are many more.
PREVIEW_ROWS = 32_768
# Slopes (1 is temperature scaling) stay above this, so that the function is strictly increasing.
LEAST_SLOPE = 1e-3


def fit(
    source: Rows, floor: float, beta: float, *, loss: str, n_knots: int, ridge: float
) -> tuple[Array, Array, float, float]:
    """Knots, slopes between them, sum of the losses without the ridge, and what is left to gain."""
    rows = nll_statistic if loss == "nll" else brier_statistic
    nodes = curvature_knots(source, floor, beta, n_knots, rows)
    knots = nodes.positions
    located = Prepared.of(source, Located.of, nodes, floor, beta)

    def statistic(deviation: Array) -> Statistic:
        return located.total(rows, deviation)

    found = _fit_slopes(statistic, overlap(nodes, knots), ridge, source.total_weight())
    slopes = found.point.theta
    total = float(found.point.value - 0.5 * ridge * float(np.sum((slopes - 1) ** 2)))
    return knots, slopes, total, found.residual


def curvature_knots(
    source: Rows, floor: float, beta: float, n_knots: int, statistic: Callable[..., Statistic] = nll_statistic
) -> Nodes:
    """At most ``n_knots`` nodes where the loss depends on the function, chosen on a part of the samples."""
    every = Nodes.of(source.n_classes)
    preview = Prepared.of(source.preview(PREVIEW_ROWS), Located.of, every, floor, beta)
    _, _, curvature = preview.total(statistic, np.zeros(every.count), Diagonal)
    return every.only(_knots(curvature, n_knots))


def _knots(curvature: Array, n_knots: int) -> NDArray[np.intp]:
    """Nodes that cut the square root of the curvature of the loss in the values at the nodes into equal parts."""
    matters = np.sqrt(np.maximum(curvature, 1e-12 * curvature.max() + 1e-300))
    below = np.cumsum(matters) / matters.sum()
    inner = np.arange(1, n_knots - 1) / (n_knots - 1) - 1e-9
    return np.unique(np.concatenate([[0], np.searchsorted(below, inner), [len(below) - 1]]))


def _fit_slopes(statistic: Callable[[Array], Statistic], design: Array, ridge: float, weight: float) -> Solution:
    """Slopes with the least penalised loss, by Newton steps from slopes of 1 that never raise it."""

    def at(slopes: Array) -> Point:
        loss, gradient, hessian = statistic(design @ (slopes - 1))
        value = loss + 0.5 * ridge * np.sum((slopes - 1) ** 2)
        bent = design.T @ hessian @ design + ridge * np.eye(len(slopes))
        return Point(slopes, value, gradient @ design + ridge * (slopes - 1), bent)

    def step(point: Point) -> Array:
        linear = point.gradient - point.curvature @ point.theta
        return bounded_minimum(point.curvature, linear, LEAST_SLOPE) - point.theta

    return newton(at, at(np.ones(design.shape[1])), step, weight=weight)


def bounded_minimum(matrix: Array, linear: Array, least: float) -> Array:
    """Minimise x' matrix x / 2 + linear' x over x >= least, exactly."""
    from scipy.linalg import cholesky, solve_triangular
    from scipy.optimize import nnls

    root = cholesky(matrix)  # upper: root' root = matrix
    target = solve_triangular(root, -(linear + least * matrix.sum(axis=1)), trans="T")
    return np.asarray(least + nnls(root, target, maxiter=30 * len(target))[0])

"""Fits the softmax-linear family: Newton's method, with the curvature in full or through products with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.cached_property import cached_property
from mixnmatch._engine.fitting import note_loss
from mixnmatch._engine.prepared import Prepared
from mixnmatch.maps._linear_passes import (
    Problem,
    diagonal_statistic,
    factor_statistic,
    gradient_statistic,
    local,
    newton_statistic,
    product_statistic,
    unpack,
)
from mixnmatch.maps._solve import CERTIFIED, LEAST_MEAN, TOLERANCE, Point, Solution, certify, newton

Array = NDArray[np.float64]
Linear = Callable[[Array], Array]
# Up to so many parameters the whole curvature is cheaper than the products with it that a step takes.
EXACT_TO = 30
# Enough to tell the better one of two strengths.
ROUGH = 1e-4
# What rounding may add to the mean loss, as a part of it: in float64 and in float32.
ROUNDING = (1e-12, 1e-7)
MOST_PRODUCTS = 200
# The most descents of the squared error, each with parameters scaled anew.
RESTARTS = 5
# The preconditioner is made anew once the loss has fallen to this part of what it was.
STALE = 0.8
# Off-diagonal entries that are held back so many times as strongly as the diagonal have little to do with it.
APART = 20.0


@dataclass(frozen=True, eq=False)
class Penalty:
    """Ridge weights on the diagonal, the off-diagonal and the intercept, for the mean loss."""

    diagonal: float
    off_diagonal: float
    intercept: float


def ridge_vector(penalty: Penalty, problem: Problem, n_classes: int) -> Array:
    """Ridge weight of each parameter."""
    intercept = np.full(n_classes, penalty.intercept)
    if not problem.full:
        return np.concatenate([np.full(1 if problem.shared else n_classes, penalty.diagonal), intercept])
    ridge = np.full((n_classes, n_classes), penalty.off_diagonal)
    np.fill_diagonal(ridge, penalty.diagonal)
    return np.concatenate([ridge.ravel(), intercept])


def solve(
    rows: Prepared,
    problem: Problem,
    penalty: Penalty,
    start: Array | None = None,
    *,
    tolerance: float = TOLERANCE,
    who: str | None = None,
) -> tuple[Array, float]:
    """Minimise mean loss + sum ridge theta^2 / 2; returns the parameters and the mean loss without the ridge.

    ``who`` is the map that is fitted, for a warning if it does not reach the optimum; none if it is not given.
    """
    classes = rows.source.n_classes
    theta = np.zeros(problem.n_parameters(classes)) if start is None else start
    objective = Objective(rows, problem, penalty)
    minimise = _newton if problem.loss == "nll" else _quasi_newton
    found = minimise(objective, theta, tolerance)
    if who is not None:
        certify(who, found.residual, allowed=max(CERTIFIED, 10 * ROUNDING[problem.single]))
    return found.point.theta, found.point.loss


@dataclass(frozen=True, eq=False)
class LossPoint(Point):
    """Penalised mean loss, its gradient and, where it was asked for, its curvature; and the mean loss alone."""

    loss: float = np.nan


@dataclass(frozen=True, eq=False)
class Objective:
    """Mean loss + sum ridge theta^2 / 2 over prepared rows."""

    rows: Prepared
    problem: Problem
    penalty: Penalty

    @cached_property
    def ridge(self) -> Array:
        """Ridge weight of each parameter."""
        return ridge_vector(self.penalty, self.problem, self.rows.source.n_classes)

    @cached_property
    def n(self) -> float:
        """Weight of all rows."""
        return self.rows.source.total_weight()

    def at(self, theta: Array, *, curvature: bool = False) -> LossPoint:
        """One pass over the rows."""
        if curvature:
            found, hessian = self.rows.total(newton_statistic, self.problem, theta)
            bent = hessian / self.n + np.diag(self.ridge)
        else:
            found, bent = self.rows.total(gradient_statistic, self.problem, theta), None
        loss = float(found[0] / self.n)
        value = loss + 0.5 * float(self.ridge @ theta**2)
        return LossPoint(theta, value, found[1:] / self.n + self.ridge * theta, bent, loss)

    def near(self, theta: Array) -> Prepared:
        """The rows as products with the curvature at some parameters read them."""
        return self.rows.then(local, self.problem, theta)

    def product(self, rows: Prepared, direction: Array) -> Array:
        """Curvature times a direction."""
        return rows.total(product_statistic, self.problem, direction) / self.n + self.ridge * direction


def _newton(objective: Objective, theta: Array, tolerance: float) -> Solution:
    """Damped Newton steps: the loss is convex, and the ridge makes it strictly so."""
    exact = len(theta) <= EXACT_TO
    start = objective.at(theta, curvature=exact)
    part = ROUNDING[objective.problem.single]
    return newton(
        partial(objective.at, curvature=exact),
        start,
        _exact_step if exact else CurvatureSolver(objective).step,
        last=objective.at,
        tolerance=max(tolerance, 0.1 * part),
        rounding=part * abs(start.value),
    )


def _exact_step(point: LossPoint) -> Array:
    # In units of the curvature in each parameter: ridges may differ by many orders of magnitude.
    unit = 1 / np.sqrt(np.diag(point.curvature))
    scaled = point.curvature * np.outer(unit, unit)
    scaled[np.diag_indices_from(scaled)] += 1e-14
    return -unit * np.linalg.solve(scaled, unit * point.gradient)


class CurvatureSolver:
    """Newton steps from products with the curvature, by preconditioned conjugate gradients."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.made_at = np.inf

    def step(self, point: LossPoint) -> Array:
        """Step from a point."""
        objective = self.objective
        rows = objective.near(point.theta)
        if point.value < STALE * self.made_at:
            make = _kronecker_inverse if objective.problem.full else _blocks_inverse
            self.precondition, self.made_at = make(objective, rows), point.value
        return _conjugate_gradients(
            lambda direction: objective.product(rows, direction), self.precondition, -point.gradient, abs(point.value)
        )


def _conjugate_gradients(product: Linear, precondition: Linear, right: Array, scale: float) -> Array:
    """Solution of a positive definite system, until further products would add little to what the step promises."""
    x, residual = np.zeros_like(right), right
    z = precondition(residual)
    direction, along = z, float(residual @ z)
    # Far from the optimum the quadratic model is not worth being minimised exactly.
    enough, promised = 0.5 if along > 1e-3 * scale else 0.1, 0.0
    for count in range(1, MOST_PRODUCTS + 1):
        bent = product(direction)
        curvature = float(direction @ bent)
        if not curvature > 0:  # rounding, where the curvature all but vanishes
            break
        length = along / curvature
        x = x + length * direction
        promised += length * along
        if count * length * along <= enough * promised:
            break
        residual = residual - length * bent
        z = precondition(residual)
        before, along = along, float(residual @ z)
        direction = z + (along / before) * direction
    return x if x.any() else z


def _blocks_inverse(objective: Objective, rows: Prepared) -> Linear:
    """Inverse of the curvature in v and b of each class, other classes left alone."""
    diagonal = replace(objective.problem, full=False)
    in_weight, cross, in_intercept = rows.total(diagonal_statistic, diagonal) / objective.n
    in_intercept = in_intercept + objective.penalty.intercept
    if objective.problem.shared:
        return _arrow_inverse(float(in_weight.sum()) + objective.penalty.diagonal, cross, in_intercept)
    in_weight = in_weight + objective.penalty.diagonal
    determinant = in_weight * in_intercept - cross**2

    def inverse(g: Array) -> Array:
        v, b = np.split(g, 2)
        return np.concatenate([(in_intercept * v - cross * b) / determinant, (in_weight * b - cross * v) / determinant])

    return inverse


def _arrow_inverse(in_slope: float, cross: Array, in_intercept: Array) -> Linear:
    """Inverse of the curvature in one slope and all intercepts, those of different classes taken as unrelated."""
    ratio = cross / in_intercept
    schur = in_slope - float(cross @ ratio)

    def inverse(g: Array) -> Array:
        slope = (g[0] - ratio @ g[1:]) / schur
        return np.concatenate([[slope], g[1:] / in_intercept - ratio * slope])

    return inverse


def _kronecker_inverse(objective: Objective, rows: Prepared) -> Linear:
    """Inverse of A (x) S + ridge, for A the mean of diag(p) - p p' and S that of x x' where p is undecided.

    The curvature is the mean of (diag(p) - p p') (x) x x' for x = (s, 1); this takes the two factors to be
    uncorrelated. Diagonal entries get the ridge of the others; where that is much stronger than their own, they are
    taken apart, with the intercepts.
    """
    problem, penalty, n = objective.problem, objective.penalty, objective.n
    classes, inputs, spread = rows.total(factor_statistic)
    n_classes = len(classes)
    ridge = np.append(np.full(n_classes, penalty.off_diagonal), penalty.intercept)
    root = 1 / np.sqrt(ridge)
    a, left = np.linalg.eigh(classes / n)
    b, right = np.linalg.eigh(inputs / max(spread, 1e-300) * np.outer(root, root))
    right *= root[:, None]
    shrink = 1 / (np.outer(np.maximum(a, 0), np.maximum(b, 0)) + 1)

    def inverse(g: Array) -> Array:
        table = np.column_stack(unpack(g, problem, n_classes))
        table = left @ (shrink * (left.T @ table @ right)) @ right.T
        return np.concatenate([table[:, :-1].ravel(), table[:, -1]])

    if penalty.off_diagonal <= APART * penalty.diagonal:
        return inverse
    own = np.append(np.arange(n_classes) * (n_classes + 1), np.arange(n_classes) + n_classes**2)
    blocks = _blocks_inverse(objective, rows)

    def inverse_apart(g: Array) -> Array:
        others = g.copy()
        others[own] = 0
        found = inverse(others)
        found[own] = blocks(g[own])
        return found

    return inverse_apart


def _quasi_newton(objective: Objective, theta: Array, tolerance: float) -> Solution:
    """L-BFGS in parameters that are scaled by the curvature on their own: the squared error is not convex."""
    rough = tolerance > TOLERANCE
    for _ in range(1 if rough else RESTARTS):
        found = _scaled_descent(objective, theta, rough)
        theta = found.point.theta
        if found.residual <= CERTIFIED:
            break
    return found


def _scaled_descent(objective: Objective, theta: Array, rough: bool) -> Solution:
    from scipy.optimize import minimize

    problem = objective.problem
    diagonal = objective.near(theta).total(diagonal_statistic, problem) / objective.n
    if problem.full:
        curvature = np.concatenate([diagonal[:, :-1].ravel(), diagonal[:, -1]])
    else:
        slopes = diagonal[0].sum(keepdims=True) if problem.shared else diagonal[0]
        curvature = np.concatenate([slopes, diagonal[2]])
    scale = 1 / np.sqrt(np.maximum(curvature, 1e-6 * curvature.max()) + objective.ridge)

    def evaluate(at: Array) -> tuple[float, Array]:
        point = objective.at(at * scale)
        return point.value, point.gradient * scale

    if rough:
        options = {"maxiter": 25, "ftol": 1e-6}
    else:  # rounding in float32 hides smaller falls of the loss than this
        options = {"maxiter": 500, "ftol": 1e-10 if problem.single else 1e-13}
    options |= {"maxfun": 1000, "maxcor": 20, "gtol": 1e-7 if rough else 1e-9}

    def reached(intermediate_result: Any) -> None:
        note_loss(float(intermediate_result.fun))

    start = theta / scale
    found = minimize(evaluate, start, jac=True, method="L-BFGS-B", options=options, callback=reached)
    point = objective.at(found.x * scale)
    # As the curvature at the start sees it, the fall that a step down the gradient still promises.
    left = float(np.square(point.gradient * scale).sum())
    return Solution(point, left / max(point.value, LEAST_MEAN))

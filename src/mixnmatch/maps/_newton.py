"""Many small smooth problems at once: damped Newton steps with lower bounds, one statistic pass a step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# value (K), gradient (K x P) and positive semi-definite curvature (K x P x P) at parameters K x P
Statistic = Callable[[Array], tuple[Array, Array, Array]]


def minimise(
    statistic: Statistic, start: Array, lower: Array, *, tolerance: float = 1e-11, iterations: int = 100
) -> tuple[Array, Array]:
    """Minimise K functions of P bounded parameters each, all in the same passes.

    Each step minimises the quadratic model over the box, exactly, by trying every set of parameters on their bound;
    it is then halved until the function falls. Problems stop one by one when a step promises less than ``tolerance``
    of the value.

    Returns
    -------
    parameters : array of shape (K, P)
    values : array of shape (K,)
    """
    theta = np.maximum(start, lower)
    value, gradient, curvature = statistic(theta)
    active = np.ones(len(theta), dtype=bool)
    for _ in range(iterations):
        step = _bounded_step(gradient, curvature, lower - theta)
        promised = -np.einsum("kp,kp->k", gradient, step)
        active &= promised > tolerance * np.maximum(np.abs(value), 1e-9)
        if not active.any():
            break
        length = np.where(active, 1.0, 0.0)
        for _ in range(30):
            trial = np.maximum(theta + length[:, None] * step, lower)
            found = statistic(trial)
            good = ~active | (found[0] <= value - 1e-4 * length * promised)
            if good.all():
                break
            length = np.where(good, length, length / 3)
        active &= found[0] < value
        better = active[:, None]
        theta = np.where(better, trial, theta)
        gradient = np.where(better, found[1], gradient)
        curvature = np.where(better[:, :, None], found[2], curvature)
        value = np.where(active, found[0], value)
    return theta, value


def _bounded_step(gradient: Array, curvature: Array, room: Array) -> Array:
    """Step with the least quadratic model, no entry below ``room`` (which is not positive)."""
    problems, size = gradient.shape
    scale = np.einsum("kpp->k", curvature)[:, None, None] / size
    damped = curvature + np.eye(size) * (1e-10 * scale + 1e-300)
    best, least = np.zeros((problems, size)), np.zeros(problems)
    bounded = [p for p in range(size) if np.isfinite(room[:, p]).all()]
    for count in range(len(bounded) + 1):
        for held in combinations(bounded, count):
            step = _step_holding(gradient, damped, room, held)
            value = np.einsum("kp,kp->k", gradient, step) + 0.5 * np.einsum("kp,kpq,kq->k", step, damped, step)
            better = (step >= room - 1e-15).all(axis=1) & (value < least)
            best[better], least[better] = step[better], value[better]
    return best


def _step_holding(gradient: Array, curvature: Array, room: Array, held: tuple[int, ...]) -> Array:
    """Minimum of the quadratic model with some parameters put on their bound."""
    size = gradient.shape[1]
    free = [p for p in range(size) if p not in held]
    step = np.zeros_like(gradient)
    step[:, held] = room[:, held]
    if free:
        right = -(gradient[:, free] + np.einsum("kpq,kq->kp", curvature[:, free][:, :, held], step[:, held]))
        step[:, free] = np.linalg.solve(curvature[:, free][:, :, free], right[:, :, None])[:, :, 0]
    return step

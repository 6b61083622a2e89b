"""How maps are fitted: one damped Newton method, one search in one dimension, one certificate of the optimum.

A fit counts as finished when the quadratic model of its loss promises to lower it by less than ``CERTIFIED`` of it.
That promise is the squared Newton decrement g' H^-1 g, the size of the gradient in the only scale that does not change
when scores or parameters are rescaled. Under constraints the step is the best feasible one, and the promise measures
how far the Karush-Kuhn-Tucker conditions are from being met. A fit that ends above it gives a ConvergenceWarning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.errors import caller_level
from mixnmatch._engine.fitting import note_loss

Array = NDArray[np.float64]
# The relative fall of the loss below which an optimum is certified.
CERTIFIED = 1e-8
# A step that promises less than this part of the loss is the last one; what remains after it is about the square.
TOLERANCE = 1e-9
# A mean loss below this is no longer improved upon.
LEAST_MEAN = 1e-6
# Scores that only differ when multiplied by more than this are the same score.
STEEPEST = 1e15


@dataclass(frozen=True)
class Point:
    """Parameters (P, or K x P for K problems side by side), and value, gradient and curvature of the objective."""

    theta: Array
    value: Any  # a number, or one for each problem
    gradient: Array
    curvature: Any = None


P = TypeVar("P", bound=Point)


@dataclass(frozen=True)
class Solution:
    """Where a search ended, and the relative fall of the objective that its last step promised."""

    point: Any
    residual: float


def newton(
    at: Callable[[Array], P],
    start: P,
    step: Callable[[P], Array],
    *,
    weight: float = 1.0,
    project: Callable[[Array], Array] | None = None,
    last: Callable[[Array], P] | None = None,
    tolerance: float = TOLERANCE,
    rounding: float = 0.0,
    unseen: bool = False,
    iterations: int = 100,
) -> Solution:
    """Minimise a function that is not negative, or K of them at once, by damped Newton steps.

    Parameters
    ----------
    at : callable
        The point at some parameters: one pass over the samples.
    start : Point
        Where to start.
    step : callable
        Minimum of the quadratic model at a point over the feasible parameters, less the parameters.
    weight : float
        Total weight of the samples if the objective is a sum over them, 1 if it is a mean.
    project : callable, optional
        Brings parameters that rounding took out of the feasible set back to it.
    last : callable, optional
        As ``at``, without the curvature: where the last step leads.
    tolerance : float
        A step that promises to lower the objective by less than this part of it is the last one.
    rounding : float
        What rounding may add to the value.
    unseen : bool
        Take the last step without a pass that says what is there.
    iterations : int
        The most steps.

    Notes
    -----
    A step that promises more than twice the value cannot be right, since the objective is not negative: it is
    shortened to that before the search along it begins. Where scores are saturated the curvature all but vanishes, and
    this is what keeps steps of a sensible size.
    """
    point, residual = start, np.inf
    least = LEAST_MEAN * weight
    for _ in range(iterations):
        if np.ndim(point.value) == 0:
            note_loss(float(point.value) / weight)
        direction = step(point)
        promised = -np.sum(point.gradient * direction, axis=-1)
        relative = promised / np.maximum(np.abs(point.value), least)
        active, residual = relative > tolerance, float(np.max(relative))
        if not np.any(active):
            theta = point.theta + direction
            theta = theta if project is None else project(theta)
            trial = replace(point, theta=theta) if unseen else (last or at)(theta)
            point = _chosen(trial.value <= point.value + rounding, trial, point)
            break
        trial, accepted = _searched(at, point, direction, promised, active, rounding, project)
        if not np.any(accepted):
            break
        point = _chosen(accepted, trial, point)
    return Solution(point, residual)


def _searched(
    at: Callable[[Array], P], point: P, direction: Array, promised: Any, active: Any, rounding: float, project: Any
) -> tuple[P, Any]:
    """Point along a direction that is low enough, and for which of the problems it is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        length = np.where(active, np.minimum(1.0, 2 * np.abs(point.value) / promised), 0.0)
    for _ in range(40):
        theta = point.theta + length[..., None] * direction
        trial = at(theta if project is None else project(theta))
        good = ~active | (trial.value <= point.value - 1e-4 * length * promised + rounding)
        if np.all(good):
            break
        length = np.where(good, length, length / 3)
    return trial, active & (trial.value < point.value + rounding)


def _chosen(mask: Any, new: P, old: P) -> P:
    """The new point for some of the problems, the old one for the others."""
    if np.all(mask):
        return new
    if not np.any(mask):
        return old

    def chosen(name: str) -> Any:
        first = getattr(new, name)
        return first if first is None else np.where(_wide(mask, first.ndim), first, getattr(old, name))

    return replace(old, **{field.name: chosen(field.name) for field in fields(old)})


def _wide(mask: Any, dimensions: int) -> Any:
    return mask.reshape(mask.shape + (1,) * (dimensions - 1))


def bounded_step(point: Point, lower: Array) -> Array:
    """Step to the least quadratic model over parameters not below ``lower``, by trying every set of them on it."""
    gradient, curvature, room = point.gradient, point.curvature, lower - point.theta
    problems, size = gradient.shape
    # In units of the curvature in each parameter: no scale of the scores makes the system singular.
    unit = 1 / np.sqrt(np.einsum("kpp->kp", curvature) + np.finfo(float).tiny)
    damped = curvature * unit[:, :, None] * unit[:, None, :] + np.eye(size) * 1e-12
    slope, limit = gradient * unit, room / unit
    best, least = np.zeros((problems, size)), np.zeros(problems)
    bounded = [p for p in range(size) if np.isfinite(room[:, p]).all()]
    for count in range(len(bounded) + 1):
        for at_bound in combinations(bounded, count):
            step = _step_holding(slope, damped, limit, at_bound)
            if not at_bound and (step >= limit).all():  # no bound is in the way
                return np.asarray(step * unit)
            value = np.einsum("kp,kp->k", slope, step) + 0.5 * np.einsum("kp,kpq,kq->k", step, damped, step)
            better = (step >= limit - 1e-13 * np.abs(limit)).all(axis=1) & (value < least)
            best[better], least[better] = step[better], value[better]
    return np.asarray(best * unit)


def _step_holding(gradient: Array, curvature: Array, room: Array, at_bound: tuple[int, ...]) -> Array:
    """Minimum of the quadratic model with some parameters put on their bound."""
    if not at_bound:
        return np.asarray(np.linalg.solve(curvature, -gradient[:, :, None])[:, :, 0])
    size = gradient.shape[1]
    free = [p for p in range(size) if p not in at_bound]
    step = np.zeros_like(gradient)
    step[:, at_bound] = room[:, at_bound]
    if free:
        right = -(gradient[:, free] + np.einsum("kpq,kq->kp", curvature[:, free][:, :, at_bound], step[:, at_bound]))
        step[:, free] = np.linalg.solve(curvature[:, free][:, :, free], right[:, :, None])[:, :, 0]
    return step


@dataclass(frozen=True)
class Minimum:
    """A minimum in one dimension: where, the value before the last step, and the fall that the step promised."""

    beta: float
    value: float
    promised: float
    end: str | None = None  # "low" or "high" where the search ran to an end of its range


def minimise_scalar(
    statistic: Callable[[float], Any],
    start: float,
    *,
    tolerance: float,
    single: bool = False,
    reach: float = 2.0,
    low: float = 0.0,
    high: float = STEEPEST,
    enough: Callable[[float, float, float], bool] | None = None,
) -> Minimum:
    """Minimum of a function of beta > 0 next to ``start``: the zero of its slope, by Newton steps in a bracket.

    Parameters
    ----------
    statistic : callable
        Value, slope and curvature at beta: one pass over the samples.
    start : float
        Where to start.
    tolerance : float
        The last step is shorter than this part of beta; what is left after it is about its square.
    single : bool
        Whether the statistic rounds beta to float32. It is then asked for numbers that rounding does not change.
    reach : float
        Factor by which a step may change beta; small where the function is not convex.
    low, high : float
        Ends of the range.
    enough : callable, optional
        Given the value, the promised fall and the relative length of the step, whether to stop while the function
        still falls to the right and nothing is known of an upper end.
    """
    low, high = (float(np.float32(end)) if single else end for end in (low, high))
    below, above, beta = 0.0, np.inf, min(max(start, low), high)
    value = promised = np.inf
    for _ in range(200):
        beta = float(np.float32(beta)) if single else beta
        value, slope, curvature = (float(x) for x in statistic(beta)[:3])
        step = -slope / curvature if curvature > 0 else np.inf
        promised = abs(slope * step) if slope else 0.0
        if slope == 0:
            return Minimum(beta, value, 0.0)
        if abs(step) <= tolerance * beta:
            return Minimum(beta + step, value, promised)
        below, above = (beta, above) if slope < 0 else (below, beta)
        if slope < 0 and beta >= high:
            return Minimum(beta, value, promised, "high")
        if slope > 0 and beta <= low:
            return Minimum(beta, value, promised, "low")
        if enough is not None and above == np.inf and enough(value, promised, abs(step) / beta):
            return Minimum(beta, value, promised, "high")
        if above - below <= tolerance * below:
            return Minimum(beta, value, promised)
        beta = _next_beta(beta, step, slope, below, above, reach)
        beta = min(max(beta, low), high)
    return Minimum(beta, value, promised)


def _next_beta(beta: float, step: float, slope: float, below: float, above: float, reach: float) -> float:
    """The Newton step as far as ``reach`` goes; where it leaves the bracket, the middle of that."""
    target = beta + step if np.isfinite(step) else beta * np.exp(-np.copysign(np.inf, slope))
    target = min(max(target, beta / reach), beta * reach)
    return float(target if below < target < above else np.sqrt(below * above))


def certify(who: str, residual: float, *, allowed: float = CERTIFIED) -> None:
    """Warn unless a fit has reached its optimum: ``residual`` is the relative fall of the loss still promised."""
    if residual <= allowed:
        return
    from sklearn.exceptions import ConvergenceWarning

    msg = (
        f"{who}: the fit stopped before it reached its optimum; one more step would lower the loss on the "
        f"calibration set by about {residual:.1e} of its value (converged: at most {allowed:.0e}). Check the scores "
        'for extreme values, pass them as float64, or use a map with fewer parameters, such as "ts"'
    )
    warnings.warn(msg, ConvergenceWarning, stacklevel=caller_level())

"""Quadratic problems over weights on the simplex, solved exactly: the best among the optima on all of its faces."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def simplex_minimum(gram: NDArray[np.float64], linear: Vector) -> Vector:
    """Minimise w' gram w - 2 linear' w over the simplex, exactly: the best among the optima on all of its faces."""
    members = len(linear)
    inside = _on_face(gram, linear, list(range(members)))
    if inside.min() > 0:  # the problem is convex: an optimum inside is the optimum
        return inside
    best, least = inside, np.inf
    for size in range(1, members):
        for face in map(list, combinations(range(members), size)):
            weights = _on_face(gram, linear, face)
            if weights.min() < -1e-12:
                continue
            weights = np.maximum(weights, 0.0) / np.maximum(weights, 0.0).sum()
            value = float(weights @ gram @ weights - 2 * linear @ weights)
            # Smaller faces come first; a larger one must be better by more than rounding.
            if not value >= least - 1e-13 * abs(value):
                best, least = weights, value
    return best


def _on_face(gram: NDArray[np.float64], linear: Vector, face: list[int]) -> Vector:
    """Optimum with the weights outside a face at zero and those on it free of sign, summing to 1."""
    size = len(face)
    weights = np.zeros(len(linear))
    if size == 1:
        weights[face] = 1.0
        return weights
    if size == 2:
        i, j = face
        spread = gram[i, i] - 2 * gram[i, j] + gram[j, j]
        even = spread <= 1e-15 * (gram[i, i] + gram[j, j])  # two members that are the same
        weights[i] = 0.5 if even else (linear[i] - linear[j] + gram[j, j] - gram[i, j]) / spread
        weights[j] = 1.0 - weights[i]
        return weights
    system = np.ones((size + 1, size + 1))
    system[:size, :size] = gram[np.ix_(face, face)]
    system[size, size] = 0.0
    weights[face] = np.linalg.lstsq(system, np.append(linear[face], 1.0), rcond=1e-13)[0][:size]
    return weights


def simplex_step(gradient: Vector, hessian: NDArray[np.float64], w: Vector) -> Vector:
    """Newton step in (log beta, w) that keeps the weights on the simplex, best over the faces of the simplex."""
    h = hessian.copy()
    scale = np.trace(h[1:, 1:])
    h[1:, 1:] += np.eye(3) * 1e-11 * scale
    coupling = np.linalg.solve(h[1:, 1:], h[1:, 0])
    schur = h[0, 0] - h[0, 1:] @ coupling
    floor = 1e-9 * max(abs(h[0, 0]), 1e-12 * scale)
    if schur < floor:  # not convex in the temperature here: bend the model upwards
        h[0, 0] += floor + abs(schur) - min(schur, 0.0)
    inside = _step_on_face(gradient, h, w, (1, 2, 3))
    if inside is not None and (w + inside[1:]).min() > 0:
        return inside
    # Steps of the weights sum to 0 but for rounding. With the same number taken off all of their slopes, that rounding
    # does not hide the fall that a short step brings.
    reduced = gradient.copy()
    reduced[1:] -= gradient[1:] @ w
    best, least = np.zeros(4), 0.0
    for size in (1, 2, 3):
        for face in combinations((1, 2, 3), size):
            step = _step_on_face(gradient, h, w, face)
            if step is None:
                continue
            value = float(reduced @ step + 0.5 * step @ h @ step)
            if value < least:
                best, least = step, value
    return best


def _step_on_face(gradient: Vector, h: NDArray[np.float64], w: Vector, face: tuple[int, ...]) -> Vector | None:
    step = np.zeros(4)
    outside = [k for k in (1, 2, 3) if k not in face]
    for k in outside:
        step[k] = -w[k - 1]
    free = [0, *face]
    system = np.zeros((len(free) + 1, len(free) + 1))
    system[:-1, :-1] = h[np.ix_(free, free)]
    system[:-1, -1] = system[-1, :-1] = [0.0, *(1.0 for _ in face)]
    right = np.append(-(gradient[free] + h[np.ix_(free, outside)] @ step[outside]), w[[k - 1 for k in outside]].sum())
    try:
        step[free] = np.linalg.solve(system, right)[:-1]
    except np.linalg.LinAlgError:
        return None
    if (w + step[1:]).min() < -1e-12:
        return None
    step[0] = np.clip(step[0], -1.0, 1.0)
    return step

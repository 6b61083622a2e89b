"""Logistic recalibration of binned data: where estimates of the residual curve start from."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch.evaluation._binning import Floats
from mixnmatch.maps._solve import Point, newton

Bools = NDArray[np.bool_]
# Probabilities are read as at least this far from 0 and 1: closer than a cell of the finest grid nothing is known.
MARGIN: Final = 1 / 2048
SLOPE_PENALTY: Final = 1.0


def inside(z: Floats) -> Floats:
    """Probabilities moved inside of [0, 1], so that their log-odds are finite."""
    return np.asarray(np.clip(z, MARGIN, 1 - MARGIN))


def log_odds(z: Floats) -> Floats:
    """Log-odds of probabilities moved inside of [0, 1]."""
    moved = inside(z)
    return np.asarray(np.log(moved / (1 - moved)))


def sigmoid(eta: Floats) -> Floats:
    """Logistic function without overflow."""
    small = np.exp(-np.abs(eta))
    return np.asarray(np.where(eta >= 0, 1.0, small) / (1.0 + small))


def log_likelihood(count: Floats, outcome: Floats, eta: Floats) -> Floats:
    """Log-likelihood of the outcomes of each problem under these log-odds."""
    softplus = np.maximum(eta, 0.0) + np.log1p(np.exp(-np.abs(eta)))
    return np.asarray((outcome * eta - count * softplus).sum(axis=-1))


def constant_outcomes(count: Floats, outcome: Floats) -> tuple[Bools, Bools]:
    """Which problems have no outcome, and which have nothing else, up to rounding: there is no likelihood maximum."""
    total, positive = count.sum(axis=-1), outcome.sum(axis=-1)
    return np.asarray(positive <= 1e-12 * total), np.asarray(positive >= (1 - 1e-12) * total)


def fit_logistic(count: Floats, outcome: Floats, logit: Floats) -> Floats:
    r"""Intercept a and slope b of :math:`\sigma(a + b\,\mathrm{logit}\,z)` for K problems, of shape (K, 2).

    The log-likelihood has a penalty :math:`(b - 1)^2 / 2`. Outcomes must not all be equal.

    Parameters
    ----------
    count, outcome : arrays of shape (K, J)
        Weight, and weight with the outcome 1, at J places.
    logit : array of shape (J,) or (K, J)
        Log-odds of the confidences there.
    """

    def score(theta: Floats) -> Floats:
        return np.asarray(theta[:, :1] + theta[:, 1:] * logit)

    def at(theta: Floats) -> Point:
        eta, excess = score(theta), theta[:, 1] - 1.0
        loss = -log_likelihood(count, outcome, eta)
        probability = sigmoid(eta)
        residual, weight = count * probability - outcome, count * (probability * (1.0 - probability))
        slope = weight * logit
        gradient = np.stack([residual.sum(axis=-1), (residual * logit).sum(axis=-1) + SLOPE_PENALTY * excess], axis=-1)
        entries = weight.sum(axis=-1), slope.sum(axis=-1), (slope * logit).sum(axis=-1) + SLOPE_PENALTY
        return Point(theta, loss + 0.5 * SLOPE_PENALTY * excess**2, gradient, np.stack(entries, axis=-1))

    def step(point: Point) -> Floats:
        (g0, g1), (h00, h01, h11) = point.gradient.T, point.curvature.T
        determinant = np.maximum(h00 * h11 - h01 * h01, 1e-300)
        return np.asarray(np.stack([h01 * g1 - h11 * g0, h01 * g0 - h00 * g1], axis=-1) / determinant[:, None])

    start = np.broadcast_to([0.0, 1.0], (len(count), 2))
    weight = float(count.sum(axis=-1).max())
    return np.asarray(newton(at, at(start), step, weight=weight, unseen=True).point.theta)

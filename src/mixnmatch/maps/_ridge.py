"""Logistic fits with a quadratic penalty for many strengths at once, and their approximate leave-one-out loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.maps._solve import Point, bounded_step, certify, newton
from mixnmatch.maps.odds import OddsTable

Array = NDArray[np.float64]
# Leverage times curvature below 1 by at least this: a sample that decides alone is left out at a large, finite loss.
LEAST_REST = 1e-9


@dataclass(frozen=True)
class RidgePath:
    r"""Fits :math:`\sigma(\theta\cdot\phi)` under G penalties :math:`(\theta-\theta_0)^T\Lambda_g(\theta-\theta_0)/2`.

    Attributes
    ----------
    theta : array of shape (G, P)
    if_positive, if_negative : array of shape (G, m)
        Approximate leave-one-out log loss of a positive and of a negative in each of the m groups.
    log_evidence : array of shape (G,)
        Logarithm of the likelihood, averaged over the normal prior that the penalty stands for (Laplace's
        approximation); -inf where the penalty is singular.
    """

    theta: Array
    if_positive: Array
    if_negative: Array
    log_evidence: Array

    def with_fixed(self, features: Array, theta: Array, table: OddsTable) -> RidgePath:
        """The path and, after its end, parameters that nothing was fitted for."""
        eta = features @ theta
        if_positive, if_negative = np.logaddexp(0.0, -eta), np.logaddexp(0.0, eta)
        loss = if_positive @ table.positive + if_negative @ (table.weight - table.positive)
        return RidgePath(
            np.vstack([self.theta, theta]),
            np.vstack([self.if_positive, if_positive]),
            np.vstack([self.if_negative, if_negative]),
            np.append(self.log_evidence, -loss),
        )

    def losses(self, table: OddsTable) -> Array:
        """Sum of the leave-one-out losses of all samples, for each penalty."""
        return np.asarray(self.if_positive @ table.positive + self.if_negative @ (table.weight - table.positive))

    def most_cautious(self, table: OddsTable, errors: float, allowed: NDArray[np.bool_] | None = None) -> int:
        """The last fit whose loss is within so many standard errors of the least one, and that is allowed.

        Fits come in order, the most flexible first. If none is allowed the answer is their number.
        """
        eligible = np.ones(len(self.theta), dtype=bool) if allowed is None else allowed
        if not eligible.any():
            return len(eligible)
        losses = np.where(eligible, self.losses(table), np.inf)
        best = int(np.argmin(losses))
        negative, n = table.weight - table.positive, table.weight.sum()
        more, less = self.if_positive - self.if_positive[best], self.if_negative - self.if_negative[best]
        mean = (more @ table.positive + less @ negative) / n
        spread = (np.square(more) @ table.positive + np.square(less) @ negative) / n - np.square(mean)
        chance = errors * np.sqrt(np.maximum(spread, 0.0) / n)
        return int(np.flatnonzero(eligible & (mean <= chance + 1e-15))[-1])


def fit_path(
    features: Array, table: OddsTable, penalties: Array, centre: Array, lower: Array, who: Any = None
) -> RidgePath:
    r"""Fit under each of G penalty matrices (G x P x P), parameters at least ``lower``.

    Parameters
    ----------
    features : array of shape (m, P)
        Features of the m groups of the table.
    penalties : array of shape (G, P, P)
        Symmetric, positive semi-definite.
    centre, lower : array of shape (P,)
        What the penalty draws to, and bounds (-inf: none).
    who : map, optional
        What is fitted, for the warning if the fit does not converge.

    Notes
    -----
    With the curvature :math:`H = \sum_i s_i\phi_i\phi_i^T + \Lambda`, :math:`s = p(1-p)`, leaving out sample i moves
    its log-odds to first order by :math:`h_i (p_i - y_i) / (1 - s_i h_i)`, :math:`h_i = \phi_i^T H^{-1}\phi_i`
    (Rad and Maleki 2020). The evidence is :math:`-L(\hat\theta) + \frac12\log|\Lambda| - \frac12\log|H|` with the
    penalised sum L of log losses (MacKay 1992).
    """
    size = features.shape[1]
    rate = np.clip(table.positive.sum() / table.weight.sum(), 1e-3, 1 - 1e-3)
    # Where all features but the last, which is 1, count for nothing, no probability is saturated.
    start = np.append(np.zeros(size - 1), np.log(rate / (1 - rate)))
    squares = (features[:, :, None] * features[:, None, :]).reshape(len(features), size * size)

    def at(theta: Array) -> Point:
        eta = theta @ features.T
        p, log_loss = _sigmoid_and_loss(eta)
        away = theta - centre
        pull = np.einsum("gpq,gq->gp", penalties, away)
        value = log_loss @ table.weight - eta @ table.positive + 0.5 * np.einsum("gp,gp->g", pull, away)
        gradient = (p * table.weight - table.positive) @ features + pull
        curvature = ((p * (1 - p) * table.weight) @ squares).reshape(-1, size, size) + penalties
        return Point(theta, value, gradient, curvature)

    solution = newton(
        at,
        at(np.maximum(np.tile(start, (len(penalties), 1)), lower)),
        lambda point: bounded_step(point, lower),
        weight=float(table.weight.sum()),
        project=lambda theta: np.maximum(theta, lower),
    )
    certify(type(who).__name__, solution.residual)
    theta, curvature = solution.point.theta, solution.point.curvature
    eta = theta @ features.T
    p, _ = _sigmoid_and_loss(eta)
    leverage = np.stack([_leverage(features, *one, lower) for one in zip(curvature, theta, strict=True)])
    move = leverage / np.maximum(1 - p * (1 - p) * leverage, LEAST_REST)
    if_positive = np.logaddexp(0.0, -(eta - move * (1 - p)))
    if_negative = np.logaddexp(0.0, eta + move * p)
    log_sizes = [np.linalg.slogdet(matrices)[1] for matrices in (penalties, curvature)]
    log_evidence = 0.5 * (log_sizes[0] - log_sizes[1]) - solution.point.value
    return RidgePath(theta, if_positive, if_negative, log_evidence)


def _leverage(features: Array, curvature: Array, theta: Array, lower: Array) -> Array:
    r"""The form :math:`\phi^T H^{-1} \phi` of every group, over the parameters that are not on their bound."""
    free = theta > lower
    own, block = features[:, free], curvature[np.ix_(free, free)]
    if not free.any():
        return np.zeros(len(features))
    damped = block + np.eye(len(block)) * (1e-12 * np.trace(block) / len(block) + 1e-300)
    return np.asarray(np.einsum("mp,mp->m", own, np.linalg.solve(damped, own.T).T))


def _sigmoid_and_loss(eta: Array) -> tuple[Array, Array]:
    """The logistic function, and log(1 + exp(eta))."""
    e = np.exp(-np.abs(eta))
    r = 1.0 / (1.0 + e)
    return np.where(eta >= 0, r, e * r), np.maximum(eta, 0.0) + np.log1p(e)

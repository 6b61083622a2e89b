"""The residual curve r(z) = P(y = 1 | z) - z estimated with as much smoothing as the data ask for.

This is what ``kde-residual`` and ``kde-residual-debiased`` use unless a bandwidth is given. A logistic start takes out
the smooth part of the miscalibration, a kernel smoother the rest, each shrunk by its share of signal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mixnmatch.evaluation._binning import Floats, Grid
from mixnmatch.evaluation.kde import Smoother, fit_grid, rule_of_thumb, spectrum
from mixnmatch.maps._solve import Point, newton

# Bandwidths that are tried, as multiples of the rule of thumb, and the price of variance in choosing one.
MULTIPLES: Final = (0.35, 0.7, 1.0, 1.4)
VARIANCE_PRICE: Final = 3.0
# Share of the estimated variance that the kernel part is shrunk by: below 1, for the shrinkage is itself noisy.
SHRINKAGE: Final = 0.5
SLOPE_PENALTY: Final = 1.0
# The logistic start reads confidences as at least this far from 0 and 1.
LOGIT_MARGIN: Final = 1 / 2048


@dataclass(frozen=True)
class ResidualCurve:
    """An estimated residual curve on the nodes of a grid, and the evidence that it is not zero.

    Attributes
    ----------
    grid : Grid
        The sample, on as many nodes as the bandwidths need.
    values : array of shape (..., nodes)
        Estimate of r. Its weighted mean is exactly mean(y) - mean(z), and z + r(z) is between 0 and 1.
    signal : array of shape (...)
        The larger of two statistics of "r is not zero": the score test of the logistic start (mean 2 if r = 0) and the
        signal-to-noise ratio of the kernel smoother times 1.5.
    bandwidth : array of shape (...)
        Standard deviation of the kernel that smoothed what the start had left.
    """

    grid: Grid
    values: Floats
    signal: Floats
    bandwidth: Floats

    @property
    def share(self) -> Floats:
        """Estimated share of signal, (1 - 1 / signal)_+, by which the noise-corrected curve is shrunk."""
        return np.maximum(1.0 - 1.0 / np.maximum(self.signal, 1.0), 0.0)

    def error(self, *, norm: int = 1, debiased: bool = False) -> Floats:
        r"""Calibration error of the curve, integrated over the sample.

        Notes
        -----
        Since :math:`\pi = z + r` is a probability with the mean of y, the plain value obeys the bounds of the true
        error: for d = 1 it is at least :math:`|\bar y - \bar z|` and at most
        :math:`\min(\bar y + \bar z,\ 2 - \bar y - \bar z)`; for d = 2 at least :math:`(\bar y - \bar z)^2` and, by
        :math:`(\pi - z)^2 \le \pi + z^2`, at most
        :math:`\min(\bar y + \overline{z^2},\ 1 - \bar y + \overline{(1 - z)^2})`. The noise-corrected value is never
        above the plain one.
        """
        grid = self.grid
        if norm not in (1, 2):
            msg = f"norm must be 1 or 2 for kernel estimators, got {norm!r}"
            raise ValueError(msg)
        value = (grid.count * np.abs(self.values) ** norm).sum(axis=-1) / grid.total[..., 0]
        if debiased:
            value = value * self.share**norm
        elif norm == 1:
            # Equal up to rounding where the curve has one sign: let rounding not break the bound.
            value = np.maximum(value, np.abs(grid.residual.sum(axis=-1)) / grid.total[..., 0])
        return np.asarray(value)


def residual_curve(grid: Grid, *, kernel: str = "triweight") -> ResidualCurve:
    r"""Estimate the residual curve of each problem of a grid.

    Notes
    -----
    1. The start is logistic recalibration, :math:`\pi_0(z) = \sigma(a + b\,\mathrm{logit}\,z)`, with a penalty
       :math:`(b - 1)^2 / 2` on the log-likelihood [1]_. It keeps the mean of y.
    2. What it leaves, :math:`e = y - \pi_0(z)`, is smoothed by :math:`l(z) = \sum_i K(z - z_i)\, e_i / q(z_i)` with
       :math:`q(z) = \sum_i K(z - z_i)`. The sum of l over the sample is the sum of e: the mean is kept again [2]_.
    3. The bandwidth is, of the multiples 0.35, 0.7, 1 and 1.4 of the rule of thumb, the one with the largest
       :math:`\sum l^2 - 3 \sum \mathrm{Var}\, l` (an estimate of risk).
    4. :math:`\pi = \pi_0 + \lambda^2 l` with :math:`\lambda^2 = (1 - 0.5 \sum \mathrm{Var}\,l / \sum l^2)_+`, projected
       on the curves that are possible, those between 0 and 1 with the mean of y: :math:`r = [\pi + c]_0^1 - z`.

    With growing n the kernel part takes over where the start is wrong, so that the curve is consistent for any smooth
    calibration function; where the start is right it costs little.

    References
    ----------
    .. [1] Cox (1958), Two further applications of a model for binary regression.
    .. [2] Hjort & Glad (1995), Nonparametric density estimation with a parametric start.
    """
    rule = rule_of_thumb(grid)
    grid = fit_grid(grid, rule * MULTIPLES[1], nodes_a_bandwidth=8)
    start = _logistic_start(grid) - grid.nodes
    rest, multiple, ratio = _kernel_part(grid, start, rule, kernel)
    values = _possible(grid, start + rest + grid.nodes) - grid.nodes
    signal = np.maximum(_score_statistic(grid), 1.5 * ratio)
    return ResidualCurve(grid, values, signal, multiple * rule)


def _kernel_part(grid: Grid, start: Floats, rule: Floats, kernel: str) -> tuple[Floats, Floats, Floats]:
    """Smoothed and shrunken rest, the chosen multiple of the rule, and the signal-to-noise ratio of all residuals."""
    probability = start + grid.nodes
    left = grid.residual - grid.count * start
    variance = grid.outcome * (1 - 2 * probability) + probability**2 * grid.count
    total, counts = grid.total, spectrum(grid.count)
    best = np.full(total.shape, -np.inf)
    rest, chosen, ratio = np.zeros_like(left), np.zeros(total.shape), np.zeros(total.shape)
    for multiple in MULTIPLES:
        smoother = Smoother(multiple * rule, grid.count.shape[-1], kernel)
        # The transform leaves rounding errors, also below zero, where there are no data.
        support = np.maximum(smoother.value(grid.count, transformed=counts), 1e-9 * total)
        spread = smoother.variance(grid.count, transformed=counts) / support**2
        part = smoother.value(left / support)
        power = _sum(grid.count * part**2)
        noise = _sum(variance * spread)  # the sum over the sample of the variance of the part
        score = power - VARIANCE_PRICE * noise
        better = score > best
        shrunk = part * np.maximum(1.0 - SHRINKAGE * noise / np.maximum(power, 1e-300), 0.0)
        best, chosen = np.where(better, score, best), np.where(better, multiple, chosen)
        rest = np.where(better, shrunk, rest)
        if multiple == MULTIPLES[1]:
            curve = smoother.value(grid.residual / support)
            ratio = _sum(grid.count * curve**2) / np.maximum(_sum(grid.squared_residual * spread), 1e-300)
    return rest, chosen[..., 0], ratio[..., 0]


def _sum(values: Floats) -> Floats:
    return np.asarray(values.sum(axis=-1, keepdims=True))


def _logits(nodes: Floats) -> Floats:
    inside = np.clip(nodes, LOGIT_MARGIN, 1 - LOGIT_MARGIN)
    return np.asarray(np.log(inside / (1 - inside)))


def _possible(grid: Grid, probability: Floats) -> Floats:
    """The nearest curves (in the mean square over the sample) between 0 and 1 that have the mean of the outcomes.

    They are the given ones moved by a constant and clipped. The mean grows with the constant: it is bracketed, then
    found by Newton steps, for which a bisection stands in where they leave the bracket.
    """
    share = grid.count / grid.total
    aim = np.clip(_sum(grid.outcome) / grid.total, 0.0, 1.0)
    low = -np.max(probability, axis=-1, keepdims=True)
    high = 1.0 - np.min(probability, axis=-1, keepdims=True)
    shift = np.clip(aim - _sum(share * probability), low, high)
    for _ in range(60):
        moved = probability + shift
        excess = _sum(share * np.clip(moved, 0.0, 1.0)) - aim
        if np.all(np.abs(excess) <= 1e-15):
            break
        low, high = np.where(excess < 0, shift, low), np.where(excess > 0, shift, high)
        step = shift - excess / np.maximum(_sum(share * ((moved > 0) & (moved < 1))), 1e-300)
        shift = np.where((step > low) & (step < high), step, 0.5 * (low + high))
    return np.asarray(np.clip(probability + shift, 0.0, 1.0))


def _logistic_start(grid: Grid) -> Floats:
    """Probabilities at the nodes of the logistic recalibration, by damped Newton steps from a = 0, b = 1.

    Where all outcomes are equal the likelihood has no maximum, but the curve has a limit: 0 or 1 everywhere.
    """
    shape = grid.count.shape
    count, outcome = grid.count.reshape(-1, shape[-1]), grid.outcome.reshape(-1, shape[-1])
    total, positive = count.sum(axis=-1), outcome.sum(axis=-1)
    none, every = positive <= 1e-12 * total, positive >= (1 - 1e-12) * total
    probability = np.broadcast_to(np.where(every, 1.0, 0.0)[:, None], count.shape).copy()
    mixed = ~(none | every)
    if mixed.any():
        probability[mixed] = _fitted_logistic(count[mixed], outcome[mixed], _logits(grid.nodes))
    return probability.reshape(shape)


def _fitted_logistic(count: Floats, outcome: Floats, logit: Floats) -> Floats:
    """Probabilities at the nodes for K problems, of shape (K, nodes)."""
    design = np.stack([np.ones_like(logit), logit, logit * logit], axis=-1)

    def score(theta: Floats) -> Floats:
        return np.asarray(theta[:, :1] + theta[:, 1:] * logit)

    def at(theta: Floats) -> Point:
        eta, excess = score(theta), theta[:, 1] - 1.0
        small = np.exp(-np.abs(eta))
        probability = np.where(eta >= 0, 1.0, small) / (1.0 + small)
        loss = count * (np.maximum(eta, 0.0) + np.log1p(small)) - outcome * eta
        gradient = (count * probability - outcome) @ design[:, :2]
        gradient[:, 1] += SLOPE_PENALTY * excess
        curvature = (count * (small / (1.0 + small) ** 2)) @ design
        curvature[:, 2] += SLOPE_PENALTY
        return Point(theta, loss.sum(axis=-1) + 0.5 * SLOPE_PENALTY * excess**2, gradient, curvature)

    def step(point: Point) -> Floats:
        (g0, g1), (h00, h01, h11) = point.gradient.T, point.curvature.T
        determinant = np.maximum(h00 * h11 - h01 * h01, 1e-300)
        return np.asarray(np.stack([h01 * g1 - h11 * g0, h01 * g0 - h00 * g1], axis=-1) / determinant[:, None])

    start = np.broadcast_to([0.0, 1.0], (len(count), 2))
    weight = float(count.sum(axis=-1).max())
    eta = score(newton(at, at(start), step, weight=weight, unseen=True).point.theta)
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(eta, -700.0, 700.0))))


def _score_statistic(grid: Grid) -> Floats:
    """Score test of a = 0, b = 1 in the logistic start: two squared standard normals if calibrated."""
    x, logit, residual = grid.nodes, _logits(grid.nodes), grid.residual
    weight = grid.count * (x * (1 - x))
    w0, w1, w2 = weight.sum(axis=-1), weight @ logit, weight @ (logit * logit)
    e0, e1 = residual.sum(axis=-1), residual @ logit
    centre = w1 / np.maximum(w0, 1e-300)
    spread = w2 - w1 * centre
    flat = spread <= np.maximum(1e-9 * w2, 1e-100)
    slope = np.where(flat, 0.0, (e1 - centre * e0) ** 2 / np.where(flat, 1.0, spread))
    return np.asarray(e0**2 / np.maximum(w0, 1e-12) + slope)

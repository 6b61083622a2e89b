"""The residual curve r(z) = P(y = 1 | z) - z of reliability diagrams, with smoothing chosen from the data.

A logistic start takes out the smooth part of the miscalibration, a kernel smoother the rest, shrunk by its share of
signal. Unlike the series behind ``kde-residual`` it follows the data in regions that few samples fall in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mixnmatch.evaluation import _logistic
from mixnmatch.evaluation._binning import Floats, Grid
from mixnmatch.evaluation._local import LocalSmoother
from mixnmatch.evaluation.kde import fit_grid, rule_of_thumb

# Bandwidths that are tried, as multiples of the rule of thumb, and the price of variance in choosing one.
MULTIPLES: Final = (0.35, 0.7, 1.0, 1.4)
VARIANCE_PRICE: Final = 3.0
# Share of the estimated variance that the kernel part is shrunk by: below 1, for the shrinkage is itself noisy.
SHRINKAGE: Final = 0.5


@dataclass(frozen=True)
class ResidualCurve:
    """An estimated residual curve on the nodes of a grid.

    Attributes
    ----------
    grid : Grid
        The sample on the nodes.
    values : array of shape (..., nodes)
        Estimate of r. Its weighted mean is exactly mean(y) - mean(z), and z + r(z) is between 0 and 1.
    bandwidth : array of shape (...)
        Standard deviation of the kernel that smoothed what the start had left.
    """

    grid: Grid
    values: Floats
    bandwidth: Floats


def residual_curve(grid: Grid, *, kernel: str = "triweight", coarsen: bool = True) -> ResidualCurve:
    r"""Estimate the residual curve of each problem of a grid, on as few nodes as it needs unless told otherwise.

    Notes
    -----
    1. The start is logistic recalibration, :math:`\pi_0(z) = \sigma(a + b\,\mathrm{logit}\,z)`, with a penalty
       :math:`(b - 1)^2 / 2` on the log-likelihood [1]_. It keeps the mean of y.
    2. What it leaves, :math:`e = y - \pi_0(z)`, is smoothed by :math:`l(z) = \sum_i K(z - z_i)\, e_i / q(z_i)` with
       :math:`q(z) = \sum_i K(z - z_i)`. The sum of l over the sample is the sum of e: the mean is kept again [2]_.
       Where samples are few the kernel is wider, see :class:`~mixnmatch.evaluation._local.LocalSmoother`.
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
    if coarsen:
        grid = fit_grid(grid, rule * MULTIPLES[1], nodes_a_bandwidth=8)
    start = _logistic_start(grid) - grid.nodes
    rest, multiple = _kernel_part(grid, start, rule, kernel)
    values = _possible(grid, start + rest + grid.nodes) - grid.nodes
    return ResidualCurve(grid, values, multiple * rule)


def _kernel_part(grid: Grid, start: Floats, rule: Floats, kernel: str) -> tuple[Floats, Floats]:
    """Smoothed and shrunken rest, and the chosen multiple of the rule."""
    probability = start + grid.nodes
    left = grid.residual - grid.count * start
    variance = grid.outcome * (1 - 2 * probability) + probability**2 * grid.count
    total = grid.total
    best = np.full(total.shape, -np.inf)
    rest, chosen = np.zeros_like(left), np.zeros(total.shape)
    for multiple in MULTIPLES:
        smoother = LocalSmoother(multiple * rule, grid, kernel)
        spread = smoother.squares / smoother.support**2
        part = smoother.spread_out(left)
        power = _sum(grid.count * part**2)
        noise = _sum(variance * spread)  # the sum over the sample of the variance of the part
        score = power - VARIANCE_PRICE * noise
        better = score > best
        shrunk = part * np.maximum(1.0 - SHRINKAGE * noise / np.maximum(power, 1e-300), 0.0)
        best, chosen = np.where(better, score, best), np.where(better, multiple, chosen)
        rest = np.where(better, shrunk, rest)
    return rest, chosen[..., 0]


def _sum(values: Floats) -> Floats:
    return np.asarray(values.sum(axis=-1, keepdims=True))


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
    none, every = _logistic.constant_outcomes(count, outcome)
    probability = np.broadcast_to(np.where(every, 1.0, 0.0)[:, None], count.shape).copy()
    mixed = ~(none | every)
    if mixed.any():
        logit = _logistic.log_odds(grid.nodes)
        theta = _logistic.fit_logistic(count[mixed], outcome[mixed], logit)
        probability[mixed] = _logistic.sigmoid(theta[:, :1] + theta[:, 1:] * logit)
    return probability.reshape(shape)

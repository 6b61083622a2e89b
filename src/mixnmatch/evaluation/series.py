"""The residual curve r(z) = P(y = 1 | z) - z as a series, with a prior on its size and smoothness.

This is what ``kde-residual`` and ``kde-residual-debiased`` use unless a bandwidth is given, and what intervals of
calibration errors draw curves from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.cached_property import cached_property
from mixnmatch.evaluation import _logistic
from mixnmatch.evaluation._binning import Floats, Grid

# Groups of samples of about equal mass.
MOST_GROUPS: Final = 128
# Cosines in the series.
TERMS: Final = 32
# Sizes that the logistic part may have, in standard deviations of an outcome, with their odds: twice the size, a fifth
# of the odds. Where that deviation is below the usual one (rare events) sizes are smaller in proportion.
USUAL: Final = 0.15
START_SIZES: Final = ((0.1, 1.0), (0.2, 0.2), (0.4, 0.04), (0.8, 0.008))
# A size of the logistic part that is not reduced: nothing is too far off to be found, such as certainty that is wrong.
LARGE: Final = (1.0, 0.01)
# Sizes of the rest with their odds, and its smoothness: the number of terms until their variance has fallen to 1/e.
# Curves with jumps are a kind of their own: their variances fall as 1/k^2.
NO_REST_ODDS: Final = 0.3
REST_SIZES: Final = ((0.05, 0.3), (0.1, 1.0), (0.2, 1.0), (0.4, 0.05))
SMOOTHNESS: Final = (1.0, 4.0, 16.0)
JUMPS: Final = -2.0
# Odds of "calibrated" in the plain estimate and in the noise-corrected one.
PLAIN_ODDS: Final = 0.01
EVEN_ODDS: Final = 1.0
# A column that is a combination of those before it, up to this part of its size, adds nothing.
DEPENDENT: Final = 1e-6
ALMOST_ZERO: Final = 1e-9
# A group or node holds data if it has more than this share of the weight: less is rounding.
EMPTY: Final = 1e-12
ROUNDING: Final = 1e-9


def _models() -> tuple[Floats, Floats, Floats]:
    """Size, variances of the terms (up to a factor) and odds of each model of the rest; the first is that it is 0."""
    k = np.arange(1.0, TERMS + 1)
    falling = [*(np.exp(-k / smooth) for smooth in SMOOTHNESS), k**JUMPS]
    listed = [(0.0, NO_REST_ODDS)] + [pair for pair in REST_SIZES for _ in falling]
    size, odds = np.array(listed).T
    return size, np.array([falling[0], *falling * len(REST_SIZES)]), odds / odds.sum()


@dataclass(frozen=True)
class Groups:
    """Samples grouped by their confidence, of P problems: arrays of shape (P, J), padded with empty groups.

    ``index`` is the group of each node of the grid, of shape (P, nodes).
    """

    count: Floats
    outcome: Floats
    z: Floats
    index: NDArray[np.intp]

    @property
    def total(self) -> Floats:
        """Sum of the weights, of shape (P, 1)."""
        return np.asarray(self.count.sum(axis=-1, keepdims=True))

    @property
    def share(self) -> Floats:
        """Share of the weight in each group."""
        return np.asarray(self.count / self.total)

    def gather(self, masses: Floats) -> Floats:
        """Sums over the groups of masses on the nodes, (R, nodes) for the one problem that there is."""
        starts = np.searchsorted(self.index[0], np.arange(self.count.shape[-1]))
        return np.asarray(np.add.reduceat(masses, starts, axis=-1))


def group_nodes(grid: Grid) -> Groups:
    """Group the nodes of a grid: at most 128 groups, of about equal mass.

    Linear binning splits a confidence between two nodes. Where these two have no neighbours they are put together
    again, so that the values of a score that only has a few of them are groups of their own.
    """
    n_nodes = grid.count.shape[-1]
    count, outcome = grid.count.reshape(-1, n_nodes), grid.outcome.reshape(-1, n_nodes)
    total = count.sum(axis=-1, keepdims=True)
    held = count > EMPTY * total
    framed = np.pad(held, ((0, 0), (2, 1)))
    second = held & framed[:, 1:-2] & ~framed[:, :-3] & ~framed[:, 3:]
    middle = (np.cumsum(count, axis=-1) - 0.5 * count) / total
    # Whole numbers are common here: rounding, which differs between block sizes, must not move them across.
    number = (middle * MOST_GROUPS + ROUNDING).astype(np.intp)
    cell = np.where(held, np.minimum(number, MOST_GROUPS - 1), -1)
    before = np.maximum.accumulate(cell, axis=-1)  # of the last node that holds data
    first = held & ~second
    first[:, 1:] &= cell[:, 1:] > before[:, :-1]
    index = np.maximum(np.cumsum(first, axis=-1) - 1, 0)
    size = int(index[:, -1].max()) + 1
    flat = (index + size * np.arange(len(count))[:, None]).ravel()
    sums = [
        np.bincount(flat, masses.ravel(), size * len(count)).reshape(-1, size).astype(np.float64)
        for masses in (count, outcome, count * grid.nodes)
    ]
    z = sums[2] / np.where(sums[0] > 0, sums[0], 1.0)
    return Groups(sums[0], sums[1], np.clip(z, 0.0, 1.0), index)


def orthonormal(groups: Groups, deviation: Floats, logit: Floats) -> tuple[Floats, Floats]:
    """Functions of the confidence that are orthonormal over the sample, and which of them are not zero.

    The first two are the directions in which the intercept and the slope of a logistic curve move residuals in units of
    ``deviation``, the standard deviation of an outcome; the others are cosines of the rank, in order of their
    frequency. Columns are scaled by the square root of the count: sums over groups of products are 0 or 1.

    Returns
    -------
    columns : array of shape (P, J, 2 + TERMS)
    alive : array of shape (P, 2 + TERMS)
        1 where a column is not zero.
    """
    count, total = groups.count, groups.total
    rank = (np.cumsum(count, axis=-1) - 0.5 * count) / total
    weight = count * deviation**2
    centre = (weight * logit).sum(axis=-1, keepdims=True) / np.maximum(weight.sum(axis=-1, keepdims=True), 1e-300)
    columns = np.empty((*count.shape, 2 + TERMS))
    columns[..., 0], columns[..., 1] = deviation, deviation * (logit - centre)
    # cos(k x) = 2 cos(x) cos((k - 1) x) - cos((k - 2) x)
    cosine = np.cos(np.pi * rank)
    last, current = np.ones_like(cosine), cosine
    for k in range(TERMS):
        columns[..., 2 + k] = current
        last, current = current, 2 * cosine * current - last
    columns *= np.sqrt(count)[..., None]
    size = np.sqrt((columns**2).sum(axis=-2))
    size[:, 2:] = np.sqrt(total)  # a cosine may be 0 up to rounding at all of a few values
    columns /= np.where(size > 0, size, 1.0)[:, None, :]
    # A row of its own for each column: what is left of a dependent one is there, not in a direction that is still free.
    own = np.broadcast_to(ALMOST_ZERO * np.eye(columns.shape[-1]), (len(columns), *2 * columns.shape[-1:]))
    q, triangle = np.linalg.qr(np.concatenate([columns, own], axis=-2))
    diagonal = np.diagonal(triangle, axis1=-2, axis2=-1)
    alive = (np.abs(diagonal) > DEPENDENT).astype(np.float64)
    return np.asarray(q[:, : count.shape[-1]] * (np.sign(diagonal) * alive)[:, None, :]), alive


@dataclass(frozen=True)
class ResidualSeries:
    r"""The posterior of the residual curves of P problems.

    Notes
    -----
    1. Samples are grouped by their confidence, see :func:`group_nodes`.
    2. The start is logistic recalibration, :math:`\pi_0(z) = \sigma(a + b\,\mathrm{logit}\,z)` [1]_, with the standard
       deviation :math:`s = \sqrt{\pi_0 (1 - \pi_0)}` of an outcome.
    3. What is left is a series, :math:`\pi(z) = \pi_0(z) + s(z) \sum_k \theta_k \psi_k(u)` with k from 1 to 32, where u
       is the rank of z among the sample and the :math:`\psi_k` are the functions :math:`\cos(\pi k u)` made orthonormal
       over the sample to the start and to each other. Then the estimates
       :math:`\hat\theta_k = \frac1n \sum_i \psi_k(u_i) (y_i - \pi_0(z_i)) / s(z_i)` have independent errors of variance
       1/n.
    4. A priori :math:`\theta_k \sim N(0, \tau^2 w_k)` with :math:`w_k \propto e^{-k/\kappa}`. This is Gaussian-process
       regression with a Poisson kernel, mirrored at both ends. A posteriori :math:`\theta_k` has the mean
       :math:`\rho_k \hat\theta_k` and the variance :math:`\rho_k / n` with
       :math:`\rho_k = n \tau^2 w_k / (1 + n \tau^2 w_k)`; the start is shrunk likewise towards a = 0, b = 1.
    5. Sizes and smoothness are not known: the posterior is a mixture of models. The rest is of size 0.1 or 0.2, with
       smaller odds 0, 0.05 or 0.4, and :math:`\kappa` is 1, 4 or 16, or :math:`w_k \propto 1 / k^2`, as for curves
       with jumps. The start is of size 0.1, 0.2, 0.4 or 0.8, each with a fifth of the odds of the one before. For rare
       events, where the standard deviation of an outcome is below 0.15, these sizes are smaller in proportion; the
       start also has a size of 1, with small odds, which is not. Odds times likelihoods are the weights of the models.

    With growing n all :math:`\rho_k` go to 1. Sizes of 0.1 to 0.2 standard deviations of an outcome are calibration
    errors of about 0.03 to 0.08 where confidences are spread evenly.

    References
    ----------
    .. [1] Cox (1958), Two further applications of a model for binary regression.
    """

    groups: Groups
    logit: Floats  # (P, J)
    theta: Floats  # (P, 2), intercept and slope of the start
    constant: NDArray[np.bool_]  # (P,), all outcomes equal
    start: Floats  # (P, J), probabilities of the start
    evidence: Floats  # (P,), twice the logarithm of the likelihood ratio of the start and the diagonal
    functions: Floats  # (P, J, 2 + TERMS), psi times s; the first two are of the start
    coefficients: Floats  # (P, TERMS), sqrt(n) times the estimates
    alive: Floats  # (P, TERMS)

    @classmethod
    def of(cls, grid: Grid) -> ResidualSeries:
        """Estimate the residual curves of the problems of a grid."""
        groups = group_nodes(grid)
        count, outcome, total = groups.count, groups.outcome, groups.total
        logit = _logistic.log_odds(groups.z)
        none, every = _logistic.constant_outcomes(count, outcome)
        constant = none | every
        theta = np.broadcast_to([0.0, 1.0], (len(count), 2)).copy()
        mixed = ~constant
        if mixed.any():
            theta[mixed] = _logistic.fit_logistic(count[mixed], outcome[mixed], logit[mixed])
        eta = theta[:, :1] + theta[:, 1:] * logit
        start = np.where(constant[:, None], every[:, None], _logistic.sigmoid(eta))
        fitted = np.where(constant, 0.0, _logistic.log_likelihood(count, outcome, eta))
        evidence = np.maximum(2 * (fitted - _logistic.log_likelihood(count, outcome, logit)), 0.0)
        deviation = np.where(constant[:, None], 0.0, np.sqrt(_logistic.sigmoid(eta) * _logistic.sigmoid(-eta)))
        columns, alive = orthonormal(groups, deviation, logit)
        root = np.sqrt(count)
        scale = np.where((root > 0) & (deviation > 0), root * deviation, np.inf)
        left = (outcome - count * start) / scale
        coefficients = (left[:, None, :] @ columns)[:, 0, 2:]
        functions = columns * (deviation * np.sqrt(total) / np.where(root > 0, root, np.inf))[..., None]
        return cls(groups, logit, theta, constant, start, evidence, functions, coefficients, alive[:, 2:])

    @cached_property
    def unit(self) -> Floats:
        """What sizes are multiplied by, of shape (P, 1): 1, but less for rare events."""
        z = _logistic.inside(self.groups.z)
        deviation = np.sqrt((self.groups.share * z * (1 - z)).sum(axis=-1, keepdims=True))
        return np.asarray(np.minimum(1.0, deviation / USUAL))

    @cached_property
    def shrinkage(self) -> tuple[Floats, Floats]:
        """Factors rho (P, models, TERMS) of the rest and the log-likelihoods of its models (P, models)."""
        size, falling, _ = _models()
        falling = falling * self.alive[:, None, :]
        part = falling / np.maximum(falling.sum(axis=-1, keepdims=True), 1e-300)
        ratio = (self.groups.total * self.unit**2)[..., None] * (size**2)[:, None] * part
        factor = ratio / (1 + ratio)
        gain = 0.5 * (factor * self.coefficients[:, None, :] ** 2 - np.log1p(ratio)).sum(axis=-1)
        return factor, gain

    @cached_property
    def start_shrinkage(self) -> tuple[Floats, Floats]:
        """The same of the start, (P, sizes) both."""
        size = np.array([*START_SIZES, LARGE])[:, 0]
        scaled = np.where(np.arange(len(size)) < len(START_SIZES), self.unit, 1.0) * size
        ratio = self.groups.total * scaled**2
        factor = ratio / (1 + ratio)
        return factor, 0.5 * factor * self.evidence[:, None] - np.log1p(ratio)

    @cached_property
    def posterior(self) -> tuple[Floats, Floats]:
        """Logarithms of odds times likelihoods of the models of the rest (P, models) and of the start (P, sizes)."""
        start_odds = np.array([*START_SIZES, LARGE])[:, 1]
        return self.shrinkage[1] + np.log(_models()[2]), self.start_shrinkage[1] + np.log(start_odds / start_odds.sum())

    def miscalibrated(self, odds: float) -> Floats:
        """Posterior probability that the curve is not 0, if 0 has these prior odds."""
        gain = sum(_log_sum(part) for part in self.posterior)
        return np.asarray(1.0 / (1.0 + odds * np.exp(-np.minimum(gain, 700.0))))

    def error(self, *, norm: int = 1, debiased: bool = False) -> Floats:
        r"""Estimates of the calibration errors, the posterior mean of :math:`\frac1n \sum_i |r(z_i)|^d`.

        Notes
        -----
        At each z the residual of a model is normal, with mean m and variance v. For d = 1 the mean of its absolute
        value is that of a folded normal, :math:`\sqrt{2v/\pi}\,e^{-m^2/2v} + m\,\mathrm{erf}(m/\sqrt{2v})`; for d = 2
        it is :math:`m^2 + v`. No residual is outside of :math:`[-z, 1 - z]`: what is beyond counts as the end, see
        :func:`beyond`.

        "Calibrated" is a model too, of error 0, with prior odds of 1 to 100. The value is kept within what is possible
        for the means of the sample: for d = 1 at least :math:`|\bar y - \bar z|` and at most
        :math:`\min(\bar y + \bar z,\ 2 - \bar y - \bar z)`; for d = 2 at least :math:`(\bar y - \bar z)^2` and, by
        :math:`(\pi - z)^2 \le \pi + z^2`, at most
        :math:`\min(\bar y + \overline{z^2},\ 1 - \bar y + \overline{(1 - z)^2})`.

        ``debiased`` gives "calibrated" even odds and drops the lower bound, which noise raises: the value is close to 0
        where the data do not contradict calibration.
        """
        if norm not in (1, 2):
            msg = f"norm must be 1 or 2 for kernel estimators, got {norm!r}"
            raise ValueError(msg)
        value = self._mean_power(norm) * self.miscalibrated(EVEN_ODDS if debiased else PLAIN_ODDS)
        low, high = self._bounds(norm)
        return np.asarray(np.clip(value, 0.0 if debiased else low, high))

    def _mean_power(self, norm: int) -> Floats:
        """Posterior mean of the d-th power of the residuals over the sample, if not calibrated."""
        groups, z = self.groups, self.groups.z[..., None]
        factor = self.shrinkage[0]
        n = groups.total[..., None]
        functions = self.functions[..., 2:]
        mean = functions @ np.swapaxes(factor * self.coefficients[:, None, :], -1, -2) / np.sqrt(n)
        variance = functions**2 @ np.swapaxes(factor, -1, -2) / n
        start_variance = (self.functions[..., :2] ** 2).sum(axis=-1)[..., None] / n
        weight, start_weight = (_weights(part) for part in self.posterior)
        value = np.zeros(len(weight))
        for k in range(start_weight.shape[-1]):
            shrunk = self.start_shrinkage[0][:, k, None]
            middle = self._start_residual(shrunk)[..., None] + mean
            spread = variance + shrunk[..., None] * start_variance
            power = mean_of_power(middle, spread, norm)
            power -= beyond(1 - z, middle, spread, norm) + beyond(z, -middle, spread, norm)
            value += start_weight[:, k] * ((groups.share[:, None, :] @ power)[:, 0] * weight).sum(axis=-1)
        return value

    def _start_residual(self, factor: Floats) -> Floats:
        """Residuals of the start after its parameters were moved by a factor from (0, 1) to where they are."""
        eta = factor * self.theta[:, :1] + (1 + factor * (self.theta[:, 1:] - 1)) * self.logit
        moved = _logistic.sigmoid(eta) - _logistic.inside(self.groups.z)
        return np.where(self.constant[:, None], self.start - self.groups.z, moved)

    def _bounds(self, norm: int) -> tuple[Floats, Floats]:
        groups = self.groups
        share, z = groups.share, groups.z
        y_mean = np.clip(groups.outcome.sum(axis=-1) / groups.total[..., 0], 0.0, 1.0)
        gap = np.abs(y_mean - (share * z).sum(axis=-1))
        if norm == 1:
            z_mean = (share * z).sum(axis=-1)
            return gap, np.minimum(y_mean + z_mean, 2 - y_mean - z_mean)
        high = np.minimum(y_mean + (share * z**2).sum(axis=-1), 1 - y_mean + (share * (1 - z) ** 2).sum(axis=-1))
        return gap**2, high


def mean_of_power(mean: Floats, variance: Floats, norm: int) -> Floats:
    """Mean of the absolute value or of the square of a normal variable."""
    if norm == 2:
        return np.asarray(mean**2 + variance)
    from scipy.special import erf

    deviation = np.sqrt(np.maximum(variance, 1e-24))
    ratio = mean / deviation
    return np.asarray(deviation * np.sqrt(2 / np.pi) * np.exp(-0.5 * ratio**2) + mean * erf(ratio / np.sqrt(2.0)))


def beyond(end: Floats, mean: Floats, variance: Floats, norm: int) -> Floats:
    r"""What a normal variable X adds to a power by being beyond an end c: the mean of max(X, c)^d - c^d.

    Notes
    -----
    With s the standard deviation and b = (m - c) / s it is :math:`(m - c) \Phi(b) + s\,\phi(b)` for d = 1 and
    :math:`(m^2 + s^2 - c^2) \Phi(b) + (m + c)\,s\,\phi(b)` for d = 2.
    """
    from scipy.special import ndtr

    deviation = np.sqrt(np.maximum(variance, 1e-24))
    ratio = (mean - end) / deviation
    density = deviation * np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
    if norm == 2:
        return np.asarray((mean**2 + variance - end**2) * ndtr(ratio) + (mean + end) * density)
    return np.asarray((mean - end) * ndtr(ratio) + density)


def _log_sum(logs: Floats) -> Floats:
    top = logs.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(logs - top).sum(axis=-1)) + top[..., 0])


def _weights(logs: Floats) -> Floats:
    raised = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))

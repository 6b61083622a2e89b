"""Likelihood of class priors given unlabelled scores: its maximum, its curvature and intervals along it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.cached_property import cached_property
from mixnmatch._engine.prepared import Prepared
from mixnmatch._engine.rows import Rows
from mixnmatch.maps._solve import Point
from mixnmatch.maps.summary import CELLS, cells
from mixnmatch.selection.stacking import newton_on_simplex

Array = NDArray[np.float64]
# The mean log-likelihood is maximised to within this, by the bound of `PriorLikelihood.gap`.
TOLERANCE = 1e-9
EM_STEPS, ROUNDS = 500, 5
# Steps of EM before the first Newton step, the number of classes up to which all take part in it, and how close to a
# role in the mixture others must be to do so.
WARM_UP, ALL_TO, NEARLY = 10, 50, 1e-2


@dataclass(frozen=True)
class Relative:
    """Likelihoods of some samples under each class, up to a factor in each row, the cells and weights of the rows."""

    likelihood: Array
    cell: NDArray[np.intp]
    weight: Array | None

    def weighted(self, rows: Array) -> Array:
        """Row results times the weights of the rows."""
        return rows if self.weight is None else (rows.T * self.weight).T


def relative(block: Block, log_source: Array) -> Relative:
    """Likelihood of each class: calibrated probability divided by source prior, the largest of a row being 1."""
    logs = block.log_probabilities() - log_source
    top = logs.max(axis=1, keepdims=True)
    blank = ~np.isfinite(top[:, 0])  # all on classes that the calibration set never predicts: nothing to learn from
    likelihood = np.exp(np.where(blank[:, None], 0.0, logs - np.where(blank[:, None], 0.0, top)))
    return Relative(likelihood, cells(np.exp(block.values)), block.weight)


def _log_likelihood(rows: Relative, priors: Array) -> float:
    with np.errstate(divide="ignore"):
        return float(np.sum(rows.weighted(np.log(rows.likelihood @ priors))))


def _moments(rows: Relative, priors: Array) -> tuple[Array, Array]:
    """Sum of r, and of r r', for r the likelihood of each class relative to that of the mixture."""
    with np.errstate(divide="ignore", invalid="ignore"):
        r = rows.likelihood / (rows.likelihood @ priors)[:, None]
    r_weighted = rows.weighted(r)
    return r_weighted.sum(axis=0), r_weighted.T @ r


def _joint_moments(rows: Relative, priors: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Sums of z, of z z' and of (noise . r) z z', for z the indicators of the cells followed by r."""
    r = rows.likelihood / (rows.likelihood @ priors)[:, None]
    z = np.concatenate([np.eye(CELLS)[rows.cell], r], axis=1)
    z_weighted = rows.weighted(z)
    return z_weighted.sum(axis=0), z_weighted.T @ z, (z_weighted.T * (r @ noise)) @ z


class Convex(Protocol):
    """A convex function of weights on the simplex, and not negative."""

    def mean(self, priors: Array, /) -> float:
        """Value."""
        ...

    def model(self, priors: Array, /) -> tuple[Array, Array]:
        """Gradient and Hessian."""
        ...


def minimise(objective: Convex, free: NDArray[np.intp], start: Array) -> Array:
    """Weights with the least value among those that are zero outside ``free``."""

    def whole(weights: Array) -> Array:
        found = np.zeros_like(start)
        found[free] = weights
        return found

    def at(weights: Array) -> Point:
        gradient, hessian = objective.model(whole(weights))
        return Point(weights, objective.mean(whole(weights)), gradient[free], hessian[np.ix_(free, free)])

    return whole(newton_on_simplex(at, start[free] / start[free].sum()).point.theta)


@dataclass(frozen=True)
class PriorLikelihood:
    r"""Mean negative log-likelihood of class priors, :math:`-\frac1n \sum_i \log \sum_k \pi_k\, q_{ik} / \pi^s_k`.

    It is convex in the priors; q are calibrated probabilities and :math:`\pi^s` the priors that they assume.
    Likelihoods are divided by the largest of their row, which adds a constant and makes it not negative.
    """

    rows: Prepared
    source_priors: Array

    @classmethod
    def of(cls, calibrated: Rows, source_priors: Array) -> PriorLikelihood:
        """The likelihood given the outputs of a fitted map."""
        with np.errstate(divide="ignore"):
            log_source = np.where(source_priors > 0, np.log(source_priors), np.inf)
        return cls(Prepared.of(calibrated, relative, log_source), source_priors)

    @property
    def n_members(self) -> int:
        """Number of classes."""
        return len(self.source_priors)

    @cached_property
    def n(self) -> float:
        """Weight of all samples."""
        return self.rows.source.total_weight()

    def mean(self, priors: Array) -> float:
        """Mean loss."""
        return -float(self.rows.total(_log_likelihood, priors)) / self.n

    def model(self, priors: Array) -> tuple[Array, Array]:
        """Gradient and Hessian of the mean loss."""
        first, second = self.rows.total(_moments, priors)
        return -first / self.n, second / self.n

    def joint_moments(self, priors: Array, noise: Array) -> tuple[Array, Array, Array]:
        """Means of z, of z z' and of (noise . r) z z', for z the indicators of the cells followed by r."""
        first, second, third = self.rows.total(_joint_moments, priors, noise)
        return first / self.n, second / self.n, third / self.n

    def gap(self, priors: Array) -> float:
        r"""Upper bound of what the mean log-likelihood can still gain, from one pass.

        With :math:`g_k` the mean of :math:`r_{ik}`, Jensen's inequality gives
        :math:`\ell(\pi') - \ell(\pi) \le \log \sum_k \pi'_k g_k \le \log \max_k g_k` for all priors :math:`\pi'`.
        """
        return max(0.0, float(np.log(np.max(-self.model(priors)[0]))))

    def maximise(self) -> tuple[Array, float]:
        """Priors of the largest likelihood, and the bound of what is missing to it.

        Steps of EM, which raise the likelihood from everywhere, say which classes are there at all. Newton steps on the
        simplex of these follow, and again EM, while the bound is above the tolerance.
        """
        priors = self.source_priors / self.source_priors.sum()
        for _ in range(WARM_UP):
            ratio = -self.model(priors)[0]
            priors = priors * ratio / (priors @ ratio)
        for _ in range(ROUNDS):
            free = self._candidates(priors)
            start = np.zeros_like(priors)
            start[free] = np.maximum(priors[free], 1e-6)
            start /= start.sum()
            priors = minimise(self, free, start)
            for _ in range(EM_STEPS):
                ratio = -self.model(priors)[0]
                gap = max(0.0, float(np.log(ratio.max())))
                if gap <= TOLERANCE:
                    return priors, gap
                if (ratio[priors == 0] > 1).any():  # EM never leaves zero
                    break
                priors = priors * ratio / (priors @ ratio)
        return priors, self.gap(priors)

    def _candidates(self, priors: Array) -> NDArray[np.intp]:
        """Classes that may have a positive prior; all, unless there are many."""
        known = self.source_priors > 0
        if self.n_members > ALL_TO:
            ratio = -self.model(priors)[0]
            some = known & ((ratio >= 1 - NEARLY) | (priors > NEARLY / self.n))
            start = np.where(some, priors, 0.0)
            if some.any() and np.isfinite(self.mean(start)):
                known = some
        return np.flatnonzero(known)


@dataclass(frozen=True)
class Fixed:
    """The likelihood where the prior of one class is given: a function of the shares of the other classes."""

    whole: PriorLikelihood
    index: int
    prior: float

    @property
    def n_members(self) -> int:
        """Number of the other classes."""
        return self.whole.n_members - 1

    @cached_property
    def _embedding(self) -> Array:
        """The matrix that takes shares of the other classes to priors of all classes."""
        others = np.delete(np.eye(self.whole.n_members), self.index, axis=1) * (1 - self.prior)
        others[self.index] = self.prior
        return others

    def mean(self, shares: Array) -> float:
        """Mean loss."""
        return self.whole.mean(self._embedding @ shares)

    def model(self, shares: Array) -> tuple[Array, Array]:
        """Gradient and Hessian of the mean loss."""
        gradient, hessian = self.whole.model(self._embedding @ shares)
        return self._embedding.T @ gradient, self._embedding.T @ hessian @ self._embedding

    def least(self, start: Array) -> tuple[float, Array]:
        """Least mean loss over the shares of the other classes, and these; infinite if a sample is impossible."""
        if not np.isfinite(self.mean(start)):
            return np.inf, start
        free = np.flatnonzero(np.delete(self.whole.source_priors, self.index) > 0)
        if len(free) == 1:
            shares = np.zeros(self.n_members)
            shares[free] = 1.0
        else:
            shares = minimise(self, free, start)
        return self.mean(shares), shares


def profile_interval(likelihood: PriorLikelihood, priors: Array, index: int, drop: float) -> tuple[float, float]:
    """Range of the prior of one class in which the largest log-likelihood falls by at most ``drop``.

    The log-likelihood is summed over samples, and the largest over the priors of the other classes.
    """
    from scipy.optimize import brentq

    best = likelihood.mean(priors)
    others = np.delete(priors, index)
    total = float(others.sum())
    known = np.delete(likelihood.source_priors, index)
    shares = others / total if total > 0 else known / known.sum()
    # Shares of exactly zero would be left out of a warm start's first step.
    shares = 0.999 * shares + 0.001 * known / known.sum()

    def excess(prior: float) -> float:
        found, _ = Fixed(likelihood, index, prior).least(shares)
        value = likelihood.n * (found - best) - drop
        return value if np.isfinite(value) else 1e300

    ends = []
    for end in (0.0, 1.0):
        if priors[index] == end or excess(end) <= 0:
            ends.append(end)
        else:
            ends.append(float(brentq(excess, end, priors[index], xtol=1e-7, rtol=1e-4)))
    return ends[0], ends[1]

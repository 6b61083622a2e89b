"""Class frequencies shrunk towards those of the calibration set, as far as the noise of the new samples demands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mixnmatch.selection.mixture import PriorLikelihood, Relative

Array = NDArray[np.float64]
# Strengths of the Dirichlet prior that are averaged, in samples for each class; the last one is followed by "no shift".
STRENGTHS = 10.0 ** np.linspace(-1.5, 3.0, 10)
# Log evidence behind the best from which on stronger priors are not looked at.
HOPELESS = 30.0
# Counts of classes are found to within about this part of their standard deviation, in so many accelerated steps.
TOLERANCE, STEPS = 1e-5, 150


def shrunken_shares(likelihood: PriorLikelihood, priors: Array, calibration_weight: float) -> Array:
    r"""Expected shares of the classes among the new samples, under Dirichlet priors around the source priors.

    The prior is :math:`\pi \sim \mathrm{Dirichlet}(\lambda \pi^s)`; shares under ten strengths :math:`\lambda`, and
    under no shift, are averaged by their evidence. Evidence and shares are those of the variational posterior: a
    Dirichlet distribution with parameters :math:`\lambda \pi^s_k + N_k`, for the expected counts

    .. math:: N_k = \sum_i \frac{\rho_k \ell_{ik}}{\sum_j \rho_j \ell_{ij}}, \qquad
              \log \rho_k = \psi(\lambda \pi^s_k + N_k) - \psi(\lambda + N) .

    The n samples count as :math:`N = n m / (n + m)`, since the calibration set of m samples adds its own noise.

    Parameters
    ----------
    likelihood : PriorLikelihood
        Likelihood of the new samples.
    priors : ndarray of shape (L,)
        The priors of maximum likelihood, where the search starts.
    calibration_weight : float
        Number m of samples in the calibration set.
    """
    posterior = _Posterior.of(likelihood, calibration_weight)
    counts = posterior.size * priors[posterior.known]
    found: list[tuple[float, Array]] = []
    for strength in STRENGTHS * len(posterior.centre):
        counts, evidence = posterior.fit(float(strength), counts)
        found.append((evidence, counts / counts.sum()))
        if evidence < max(each for each, _ in found) - HOPELESS:
            break
    else:
        evidence, counts = posterior.pass_over(posterior.centre)
        found.append((evidence, counts / counts.sum()))
    evidences = np.array([evidence for evidence, _ in found])
    weights = np.exp(evidences - evidences.max())
    shares = np.zeros(len(priors))
    shares[posterior.known] = (weights / weights.sum()) @ np.stack([each for _, each in found])
    return shares


@dataclass(frozen=True)
class _Posterior:
    """Variational posterior of the class frequencies; classes that the source never predicts are left out."""

    likelihood: PriorLikelihood
    known: NDArray[np.intp]
    centre: Array
    size: float

    @classmethod
    def of(cls, likelihood: PriorLikelihood, calibration_weight: float) -> _Posterior:
        known = np.flatnonzero(likelihood.source_priors > 0)
        centre = likelihood.source_priors[known]
        n, m = likelihood.n, calibration_weight
        return cls(likelihood, known, centre / centre.sum(), n * m / (n + m))

    def pass_over(self, weights: Array) -> tuple[float, Array]:
        """Log-likelihood of mixture weights and expected counts of the classes, for the effective number of samples."""
        whole = np.zeros(len(self.likelihood.source_priors))
        whole[self.known] = weights
        logs, counts = self.likelihood.rows.total(_expected_counts, whole)
        share = self.size / self.likelihood.n
        return share * float(logs), share * counts[self.known]

    def fit(self, strength: float, counts: Array) -> tuple[Array, float]:
        """Expected counts and log evidence under a prior, by accelerated fixed-point steps (SQUAREM)."""
        before = strength * self.centre
        for _ in range(STEPS):
            first = self._step(before, counts)
            second = self._step(before, first)
            change = first - counts
            if np.abs(change).max() <= TOLERANCE * np.sqrt(self.size):
                counts = second
                break
            bend = second - first - change
            length = max(1.0, float(np.linalg.norm(change)) / max(float(np.linalg.norm(bend)), 1e-300))
            leap = counts + 2 * length * change + length**2 * bend
            inside = np.isfinite(leap).all() and (leap >= 0).all() and leap.sum() > 0
            counts = self._step(before, leap * (self.size / leap.sum())) if inside else second
        return counts, self._evidence(before, counts)

    def _step(self, before: Array, counts: Array) -> Array:
        return self.pass_over(_geometric_means(before + counts)[0])[1]

    def _evidence(self, before: Array, counts: Array) -> float:
        """Lower bound of the log evidence: mean log-likelihood less the divergence of the posterior from the prior."""
        from scipy.special import gammaln

        after = before + counts
        weights, log_scale, logs = _geometric_means(after)
        value = self.pass_over(weights)[0] + self.size * log_scale
        normalisers = gammaln(after.sum()) - gammaln(after).sum() - gammaln(before.sum()) + gammaln(before).sum()
        return value - float(normalisers + counts @ logs)


def _geometric_means(parameters: Array) -> tuple[Array, float, Array]:
    """Geometric means of Dirichlet frequencies over the largest one, its logarithm, and all logarithms."""
    from scipy.special import digamma

    logs = np.asarray(digamma(parameters) - digamma(parameters.sum()), dtype=np.float64)
    largest = float(logs.max())
    return np.exp(logs - largest), largest, logs


def _expected_counts(rows: Relative, weights: Array) -> tuple[float, Array]:
    """Log-likelihood of mixture weights and expected counts of the classes, summed over samples."""
    mixture = np.maximum(rows.likelihood @ weights, 1e-300)
    counts = rows.weighted(rows.likelihood / mixture[:, None]).sum(axis=0)
    return float(np.sum(rows.weighted(np.log(mixture)))), weights * counts

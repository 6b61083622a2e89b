"""Class frequencies shrunk towards those of the calibration set, as far as the noise of the new samples demands."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.errors import caller_level
from mixnmatch.selection.mixture import PriorLikelihood, Relative

Array = NDArray[np.float64]
# Strengths of the Dirichlet prior that are averaged, in samples for each class; the last one is followed by "no shift".
STRENGTHS = 10.0 ** np.linspace(-1.5, 3.0, 10)
# Log evidence behind the best from which on stronger priors are not looked at.
HOPELESS = 30.0
# Counts of classes are found to within about this part of their standard deviation, in so many accelerated steps.
TOLERANCE, STEPS = 1e-5, 150
# A step that still changes counts by more than this part of their standard deviation is worth a warning.
NEARLY = 1e-2


def shrunken_shares(likelihood: PriorLikelihood, priors: Array, calibration_weight: float) -> Array:
    r"""Expected shares of the classes among the new samples, under Dirichlet priors around the source priors.

    For the prior :math:`\pi \sim \mathrm{Dirichlet}(\lambda \pi^s)` the most probable log-ratios of the frequencies
    solve

    .. math:: \pi_k = \frac{\lambda \pi^s_k + N_k}{\lambda + N}, \qquad
              N_k = \frac{N}{n} \sum_i \frac{\pi_k \ell_{ik}}{\sum_j \pi_j \ell_{ij}} ,

    a concave problem. The shares :math:`N_k / N` under ten strengths :math:`\lambda`, and under no shift, are averaged
    by their evidence. The n samples count as :math:`N = n m / (n + m)`, since the calibration set of m samples adds its
    own noise.

    Parameters
    ----------
    likelihood : PriorLikelihood
        Likelihood of the new samples.
    priors : ndarray of shape (L,)
        The priors of maximum likelihood, where the search starts.
    calibration_weight : float
        Number m of samples in the calibration set.
    """
    posterior = Posterior.of(likelihood, calibration_weight)
    counts = posterior.size * priors[posterior.known]
    found: list[tuple[float, Array]] = []
    for strength in STRENGTHS * len(posterior.centre):
        counts = posterior.fit(float(strength), counts)
        evidence = posterior.evidence(float(strength), counts)
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
class Posterior:
    """Posterior of the class frequencies under Dirichlet priors around the centre.

    Attributes
    ----------
    likelihood : PriorLikelihood
        Likelihood of the new samples.
    known : ndarray of int
        Classes that the source predicts; the others are left out.
    centre : ndarray
        Their frequencies in the source.
    size : float
        What the new samples count as.
    """

    likelihood: PriorLikelihood
    known: NDArray[np.intp]
    centre: Array
    size: float

    @classmethod
    def of(cls, likelihood: PriorLikelihood, calibration_weight: float) -> Posterior:
        """The posterior for a calibration set of so many samples."""
        known = np.flatnonzero(likelihood.source_priors > 0)
        centre = likelihood.source_priors[known]
        n, m = likelihood.n, calibration_weight
        return cls(likelihood, known, centre / centre.sum(), n * m / (n + m))

    def pass_over(self, frequencies: Array) -> tuple[float, Array]:
        """Log-likelihood of frequencies and expected counts of the classes, for the effective number of samples."""
        logs, counts = self.likelihood.rows.total(_expected_counts, self._whole(frequencies))
        share = self.size / self.likelihood.n
        return share * float(logs), share * counts[self.known]

    def fit(self, strength: float, counts: Array) -> Array:
        """Expected counts at the most probable frequencies, by accelerated steps of EM (SQUAREM)."""
        for _ in range(STEPS):
            first = self._step(strength, counts)
            second = self._step(strength, first)
            change = first - counts
            if np.abs(change).max() <= TOLERANCE * np.sqrt(self.size):
                return second
            bend = second - first - change
            length = max(1.0, float(np.linalg.norm(change)) / max(float(np.linalg.norm(bend)), 1e-300))
            leap = counts + 2 * length * change + length**2 * bend
            inside = np.isfinite(leap).all() and (leap >= 0).all() and leap.sum() > 0
            counts = self._step(strength, leap * (self.size / leap.sum())) if inside else second
        left = float(np.abs(self._step(strength, counts) - counts).max() / np.sqrt(self.size))
        if left > NEARLY:
            from sklearn.exceptions import ConvergenceWarning

            msg = f"the class frequencies have not converged: a step still changes a count by {left:.1e} of its noise"
            warnings.warn(msg, ConvergenceWarning, stacklevel=caller_level())
        return counts

    def evidence(self, strength: float, counts: Array) -> float:
        r"""Log of the likelihood, integrated over the prior, by Laplace's approximation in the log-ratios.

        The part of the integral that known labels would have is exact: with the expected counts as labels it is the
        Dirichlet-multinomial. What is lost because labels are not known is the ratio of the two determinants of the
        curvature (Cheeseman and Stutz 1996).
        """
        from scipy.special import gammaln

        before, size = strength * self.centre, self.size
        frequencies = self._frequencies(strength, counts)
        value = self.pass_over(frequencies)[0] - float(counts @ np.log(frequencies))
        labelled = gammaln(strength) - gammaln(strength + size) + np.sum(gammaln(before + counts) - gammaln(before))
        joint = self.likelihood.model(self._whole(frequencies))[1][np.ix_(self.known, self.known)]
        if_known = (strength + size) * (np.diag(frequencies) - np.outer(frequencies, frequencies))
        unknown = np.diag(counts) - size * frequencies[:, None] * joint * frequencies
        # Log-ratios are relative to the most frequent class.
        rest = np.delete(np.arange(len(counts)), frequencies.argmax())
        _, all_of_it = np.linalg.slogdet(if_known[np.ix_(rest, rest)])
        sign, kept = np.linalg.slogdet((if_known - unknown)[np.ix_(rest, rest)])
        return value + float(labelled) + (0.5 * float(all_of_it - kept) if sign > 0 else 0.0)

    def _step(self, strength: float, counts: Array) -> Array:
        return self.pass_over(self._frequencies(strength, counts))[1]

    def _frequencies(self, strength: float, counts: Array) -> Array:
        found = strength * self.centre + counts
        return np.asarray(found / found.sum())

    def _whole(self, frequencies: Array) -> Array:
        found = np.zeros(len(self.likelihood.source_priors))
        found[self.known] = frequencies
        return found


def _expected_counts(rows: Relative, frequencies: Array) -> tuple[float, Array]:
    """Log-likelihood of frequencies and expected counts of the classes, summed over samples."""
    mixture = np.maximum(rows.likelihood @ frequencies, 1e-300)
    counts = rows.weighted(rows.likelihood / mixture[:, None]).sum(axis=0)
    return float(np.sum(rows.weighted(np.log(mixture)))), frequencies * counts

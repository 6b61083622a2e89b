"""How sure estimated class priors are: standard errors, and tests of no shift and of label shift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mixnmatch.maps.summary import CELLS, CalibrationSummary
from mixnmatch.selection.mixture import PriorLikelihood

Array = NDArray[np.float64]
# Cells are merged until each holds so many samples, expected and in the calibration set.
LEAST_EXPECTED = 5.0
# Added to the information about each class, as a part of the mean: keeps it invertible where a class is never likely.
JITTER = 1e-9


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Chance in estimated priors, from the new samples and from the calibration set.

    Attributes
    ----------
    standard_errors : ndarray of shape (L,)
        Of the priors.
    inflation : ndarray of shape (L,)
        Variance of each prior as a multiple of that from the new samples alone.
    """

    likelihood: PriorLikelihood
    priors: Array
    summary: CalibrationSummary
    standard_errors: Array
    inflation: Array
    moments: tuple[Array, Array, Array]
    inverse: Array

    @classmethod
    def of(cls, likelihood: PriorLikelihood, priors: Array, summary: CalibrationSummary) -> Uncertainty:
        """Around the priors of the largest likelihood."""
        n = likelihood.n
        # A prior of zero has no curvature to speak of: look from just inside.
        inside = (n * priors + likelihood.source_priors) / (n + 1)
        noise = inside**2 / np.maximum(summary.class_weights, 0.5)
        moments = likelihood.joint_moments(inside, noise)
        information = moments[1][CELLS:, CELLS:]
        size = len(priors)
        jitter = JITTER * max(float(np.trace(information)) / size, 1e-300)
        inverse = np.asarray(np.linalg.inv(information + jitter * np.eye(size)), dtype=np.float64)
        in_new = np.maximum(np.diag(inverse) - inside**2, 1e-300) / n
        in_source = np.diag(inverse @ moments[2][CELLS:, CELLS:] @ inverse) - noise
        total = in_new + np.maximum(in_source, 0)
        return cls(likelihood, priors, summary, np.sqrt(total), total / in_new, moments, inverse)

    def no_shift_p_value(self) -> float:
        """Of the likelihood-ratio test that the priors are those of the source.

        Where nothing has shifted, the chance in the calibration set is to that in the new samples as n to m: together
        they are that of n m / (n + m) samples.
        """
        from scipy.special import chdtrc

        source = self.likelihood.source_priors
        n, m = self.likelihood.n, self.summary.total_weight
        gain = self.likelihood.mean(source) - self.likelihood.mean(self.priors)
        return float(chdtrc(int((source > 0).sum()) - 1, max(0.0, 2 * n * m / (n + m) * gain)))

    def fit_p_value(self) -> float:
        """Of the test that the new log-odds are a mixture of those of the classes in the calibration set.

        Pearson's statistic of the cells; its distribution is that of a weighted sum of chi-square ones, taken as one
        chi-square with the same mean and variance.
        """
        from scipy.special import chdtrc

        cells = self._cells()
        if cells is None:
            return float("nan")
        difference, expected, covariance = cells
        statistic = float(np.sum(difference**2 / expected))
        spread = covariance / np.sqrt(np.outer(expected, expected))
        mean, squares = float(np.trace(spread)), float(np.sum(spread**2))
        if not mean > 0 or not squares > 0:
            return float("nan")
        return float(chdtrc(mean**2 / squares, statistic * mean / squares))

    def _cells(self) -> tuple[Array, Array, Array] | None:
        """Shares of merged cells: new less expected, expected, and the covariance of the difference."""
        weights, n = self.summary.class_weights, self.likelihood.n
        present = weights > 0
        if not present.any() or self.priors[present].sum() <= 0:
            return None
        shares = self.summary.counts[present] / weights[present][:, None]
        priors = self.priors[present] / self.priors[present].sum()
        merging = _merging(priors @ shares * n, self.summary.counts.sum(axis=0))
        if len(merging) < 2:
            return None
        by_class = np.zeros((CELLS, len(self.priors)))
        by_class[:, present] = shares.T
        first, second, third = self.moments
        linear = merging @ np.concatenate([np.eye(CELLS), -by_class @ self.inverse], axis=1)
        in_new = (second - np.outer(first, first)) / n
        noise = self.priors**2 / np.maximum(weights, 0.5)
        by_label = second[:, CELLS:]
        in_source = third - (by_label * noise) @ by_label.T
        covariance = linear @ (in_new + in_source) @ linear.T
        expected = merging @ shares.T @ priors
        return merging @ first[:CELLS] - expected, expected, covariance


def _merging(expected: Array, counts: Array) -> Array:
    """Matrix of 0 and 1 that adds up neighbouring cells until all hold enough."""
    rows: list[Array] = []
    current = np.zeros(CELLS)
    for k in range(CELLS):
        current[k] = 1
        if min(current @ expected, current @ counts) >= LEAST_EXPECTED:
            rows.append(current)
            current = np.zeros(CELLS)
    if rows:
        rows[-1] = rows[-1] + current
    return np.array(rows)

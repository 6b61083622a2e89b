"""Which methods are tied with the best on paired losses, and which of them to take.

Ties are found by Hsu's comparison with the best. The simplest method within one standard error is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mixnmatch.evaluation._means import Moments
from mixnmatch.selection.methods import simplicity

Floats = NDArray[np.float64]
# Draws of the largest of the correlated t statistics; the quantile is then known to about 2% of itself.
DRAWS = 4000
# Inflation of standard errors that keeps the level in 5-fold cross-validation (measured: benchmarks/verdict_study.py).
CROSS_VALIDATED = 1.3
# Probability that the truly best method is called worse than another.
LEVEL = 0.05
# A method whose score is above the lowest one by less than this share of it counts as tied: nobody would notice.
NEGLIGIBLE = 1e-3


@dataclass(frozen=True)
class Selection:
    """The method selected, the one with the lowest mean loss, and all that are tied with it, from the simplest on."""

    method: str
    best: str
    tied: list[str]
    simplest: str  # the simplest method within one standard error of the best


def select(
    losses: Floats, names: Sequence[str], n_classes: int, weight: Floats | None = None, *, held_out: bool = False
) -> Selection:
    """Select a method by the losses (n x m) of samples that the methods were not fitted on."""
    means = np.average(losses, axis=0, weights=weight)
    best = int(means.argmin())
    same = means - means[best] <= NEGLIGIBLE * abs(means[best])
    tied = tied_with_best(losses, weight, level=LEVEL, inflation=1.0 if held_out else CROSS_VALIDATED) | same
    near = (near_best(losses, weight) & tied) | same
    order = simplicity(names, n_classes)
    ties = [name for name in order if tied[names.index(name)]]
    simplest = next(name for name in ties if near[names.index(name)])
    # A noisy method may be within one standard error where a simpler one with a lower score is not: then that one.
    better = [name for name in ties[: ties.index(simplest)] if means[names.index(name)] <= means[names.index(simplest)]]
    return Selection(better[0] if better else simplest, names[best], ties, simplest)


def tied_with_best(
    losses: Floats, weight: Floats | None = None, *, level: float = 0.05, inflation: float = 1.0, seed: int = 0
) -> NDArray[np.bool_]:
    r"""Methods that may be the best: none of the others has a significantly lower mean loss.

    Parameters
    ----------
    losses : array of shape (n, m)
        Loss of each sample under each of m methods.
    weight : array of shape (n,), optional
        Frequencies of the samples; samples are the units of the standard errors.
    level : float
        Probability, for large n, that the truly best method is not among the tied ones.
    inflation : float
        Factor of the standard errors, above 1 where losses of samples depend on each other: in cross-validation,
        those of a fold share the noise of a fit. See ``CROSS_VALIDATED``.
    seed : int
        Seed of the draws.

    Returns
    -------
    array of bool of shape (m,)
        The method with the lowest mean loss is always tied.

    Notes
    -----
    With the mean paired difference :math:`d_{ij}` of methods i and j and its standard error :math:`s_{ij}`, method i
    is tied unless :math:`\max_{j \ne i} d_{ij} / s_{ij} > c_i`. The critical value :math:`c_i` is the
    :math:`1 - \alpha` quantile of the largest of m - 1 t statistics with the correlation of the differences, so that
    comparing with the best of many is not mistaken for one comparison. It is found by simulation.

    References
    ----------
    Hsu (1981). Simultaneous confidence intervals for all distances from the best. Annals of Statistics 9, 1026-1034.
    """
    n, m = losses.shape
    finite = np.isfinite(losses).all(axis=0)
    if not finite.any():
        return np.ones(m, dtype=bool)
    tied = np.zeros(m, dtype=bool)
    columns = np.flatnonzero(finite)
    centred = losses[:, columns] - losses[:, columns].mean(axis=1, keepdims=True)  # differences alone matter
    moments = Moments.of(np.ascontiguousarray(centred.T), weight)
    means = moments.means()
    if n < 3 or len(columns) == 1:
        tied[columns] = True
        return tied
    covariance = moments.covariance()
    variance = np.diag(covariance)
    spread = np.sqrt(np.maximum(variance[:, None] + variance[None] - 2 * covariance, 0.0))
    behind = means[:, None] - means[None]
    # Differences that are rounding errors are none.
    none = spread <= 1e-12 * max(float(np.abs(losses[:, columns]).max()), 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(none, np.where(behind > 1e-12, np.inf, 0.0), behind / spread)
    critical = _critical_values(covariance, np.where(none, np.inf, spread), n - 1, level, seed)
    tied[columns] = statistic.max(axis=1) <= inflation * critical
    tied[columns[int(means.argmin())]] = True
    return tied


def near_best(losses: Floats, weight: Floats | None = None) -> NDArray[np.bool_]:
    """Methods whose mean loss is within one standard error of the lowest: that of the paired difference.

    Parameters
    ----------
    losses : array of shape (n, m)
        Loss of each sample under each of m methods.
    weight : array of shape (n,), optional
        Frequencies of the samples; samples are the units of the standard errors.

    Returns
    -------
    array of bool of shape (m,)
        Methods with an infinite loss are never near the best, unless all are.
    """
    means = np.average(losses, axis=0, weights=weight)
    best = int(np.where(np.isnan(means), np.inf, means).argmin())
    with np.errstate(invalid="ignore"):  # both losses may be infinite
        differences = losses - losses[:, [best]]
    moments = [Moments.of(one[None], weight) for one in differences.T]
    near = [one.means()[0] <= np.sqrt(one.covariance()[0, 0]) for one in moments]
    near[best] = True
    return np.array(near)


def _critical_values(covariance: Floats, spread: Floats, degrees: int, level: float, seed: int) -> Floats:
    """For each method the quantile of its largest t statistic, if all methods were equally good."""
    rng = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(covariance)
    drawn = rng.standard_normal((DRAWS, len(covariance))) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    drawn /= np.sqrt(rng.chisquare(degrees, (DRAWS, 1)) / degrees)
    largest = np.stack([((drawn[:, [i]] - drawn) / spread[i]).max(axis=1) for i in range(len(covariance))])
    return np.asarray(np.quantile(largest, 1 - level, axis=1))

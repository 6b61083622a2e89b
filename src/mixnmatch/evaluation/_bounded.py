"""Confidence intervals of means of quantities with a known range, such as accuracy, Brier score and log loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Bounds:
    """Smallest and largest value of a quantity, and whether it is only ever one of the two.

    ``unseen`` is for a quantity without a largest value: what it would be on average for samples unlike those seen.
    """

    low: float
    high: float
    proportion: bool = False
    unseen: float | None = None


PROPORTION: Final = Bounds(0.0, 1.0, proportion=True)
PROBABILITY: Final = Bounds(0.0, 1.0)
SQUARED_ERROR: Final = Bounds(0.0, 2.0)
HALF_SQUARED_ERROR: Final = Bounds(0.0, 1.0)
NOT_NEGATIVE: Final = Bounds(0.0, math.inf)


def bounded_interval(
    mean: float, standard_error: float, bounds: Bounds, *, size: float, degrees: float, confidence: float
) -> tuple[float, float]:
    r"""Interval of a mean of quantities between two bounds.

    Parameters
    ----------
    mean, standard_error : float
        The estimate and its standard error.
    bounds : Bounds
        Range of the quantity, finite.
    size : float
        Number of samples: Kish's effective number with weights, divided by the design effect with clusters.
    degrees : float
        Degrees of freedom of the standard error.
    confidence : float
        Coverage that is aimed at.

    Notes
    -----
    With the range scaled to [0, 1], mean m, standard error s and n samples:

    1. The interval of Clopper and Pearson [1]_ of m N successes in N trials. For a proportion N is n. Otherwise N is
       the number of trials with the same standard error, :math:`m (1 - m) / s^2 + 1`, times
       :math:`(t_{N-1} / t_{n-1})^2`, a ratio of Student quantiles for the uncertainty of s [2]_.
    2. Values that were never seen may still occur. With :math:`q = 1 - (\alpha/2)^{1/n}`, the largest probability that
       n samples miss with probability :math:`\alpha / 2`, the interval reaches at least from (1 - q) m to
       m + q (1 - m). For a proportion of 0 or 1 this is the interval of Clopper and Pearson.

    References
    ----------
    .. [1] Clopper & Pearson (1934), The use of confidence or fiducial limits illustrated in the case of the binomial.
    .. [2] Korn & Graubard (1998), Confidence intervals for proportions with small expected number of positive counts.
    """
    from scipy.special import stdtrit

    low, width = bounds.low, bounds.high - bounds.low
    share, error = min(max((mean - low) / width, 0.0), 1.0), standard_error / width
    tail = 0.5 * (1 - confidence)
    unseen = 1.0 - tail ** (1.0 / max(size, 1.0))
    ends = (share * (1 - unseen), share + unseen * (1 - share))
    trials = size if bounds.proportion else _equivalent_trials(share, error)
    if trials is not None:
        wide, narrow = (float(stdtrit(max(d, 0.5), 1 - tail)) for d in (degrees, trials - 1))
        exact = clopper_pearson(share, trials * min(1.0, narrow / wide) ** 2, confidence)
        ends = min(ends[0], exact[0]), max(ends[1], exact[1])
    # Rounding must not put the mean outside.
    return min(low + width * ends[0], mean), max(low + width * ends[1], mean)


def skewed_interval(
    mean: float, standard_error: float, bounds: Bounds, *, size: float, degrees: float, confidence: float
) -> tuple[float, float]:
    r"""Interval of a mean of quantities that have a smallest value and no largest one, such as the log loss.

    Parameters
    ----------
    mean, standard_error, size, degrees, confidence
        As for :func:`bounded_interval`.
    bounds : Bounds
        The smallest value, and what unseen samples may have.

    Notes
    -----
    The two steps of :func:`bounded_interval`, with m and s the mean above the smallest value and its standard error:

    1. The limit of its first step for a large range: :math:`m / N` times the limits of Garwood [1]_ of a Poisson count
       of :math:`N = m^2 / s^2`. The upper one is further from the mean than the lower one: losses are skewed.
    2. Large values are rare, and n samples may have none of them. With :math:`q = 1 - (\alpha/2)^{1/n}` and ``unseen``
       as u, the interval reaches at least from (1 - q) m to m + q (u - m). Without u the second end is left out.

    References
    ----------
    .. [1] Garwood (1936), Fiducial limits for the Poisson distribution.
    """
    from scipy.special import gammaincinv, stdtrit

    above = mean - bounds.low
    tail = 0.5 * (1 - confidence)
    missed = 1.0 - tail ** (1.0 / max(size, 1.0))
    ends = above * (1 - missed), above
    if bounds.unseen is not None:
        ends = ends[0], above + missed * max(bounds.unseen - mean, 0.0)
    if standard_error**2 > 1e-14 * above**2:
        count = (above / standard_error) ** 2
        wide, narrow = (float(stdtrit(max(d, 0.5), 1 - tail)) for d in (degrees, count))
        count *= min(1.0, narrow / wide) ** 2
        unit = above / count
        ends = min(ends[0], unit * gammaincinv(count, tail)), max(ends[1], unit * gammaincinv(count + 1, 1 - tail))
    # Rounding must not put the mean outside.
    return min(bounds.low + float(ends[0]), mean), max(bounds.low + float(ends[1]), mean)


def _equivalent_trials(share: float, error: float) -> float | None:
    """Trials whose proportion has this standard error; None where there is no spread to compare with."""
    variance = share * (1 - share)
    return variance / error**2 + 1 if error**2 > 1e-14 * variance else None


def clopper_pearson(share: float, trials: float, confidence: float) -> tuple[float, float]:
    """Clopper-Pearson interval of a proportion; the number of trials need not be whole."""
    from scipy.special import betaincinv

    tail = 0.5 * (1 - confidence)
    hits, misses = share * trials, (1 - share) * trials
    low = float(betaincinv(hits, misses + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, misses, 1 - tail)) if misses > 0 else 1.0
    return low, high

"""Confidence intervals for the offset of each class that hold at all times at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.monitoring.alternatives import SHIFTS, StepSums
from mixnmatch.monitoring.process import SPREAD

Floats = NDArray[np.float64]

# Rates of the bets that the intervals come from, each half of the one before.
RATES = 0.5 ** np.arange(1, 17)


@dataclass(frozen=True)
class ClassOffset:
    """How far the log-odds of one class are off, with an interval that holds at all times.

    Attributes
    ----------
    name : str or int
        The class.
    offset : float
        What has to be added to the log-odds of every sample for the mean probability to equal the observed frequency.
        Minus or plus infinity if the class was never, or always, the label.
    low, high : float
        The interval.
    observed, expected : float
        How often the class was the label, and its mean probability.
    """

    name: Any
    offset: float
    low: float
    high: float
    observed: float
    expected: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval excludes 0, that is, no offset."""
        return self.low > 0 or self.high < 0


def start_level(alpha: float, j: int) -> float:
    """Share of alpha for intervals that start at the j-th step: half for the first one, the rest for all others."""
    if j == 1:
        return alpha / 2
    return alpha / 2 * SPREAD / ((j + SPREAD - 2) * (j + SPREAD - 1))


def class_offsets(sums: StepSums, names: NDArray[Any], alpha: float) -> tuple[ClassOffset, ...]:
    r"""Offsets of all classes, whose intervals hold together, at all times, with probability 1 - alpha.

    Notes
    -----
    For a class let :math:`\xi_i = y_i - p_i`, whose conditional expectations sum to :math:`\Delta`. For
    :math:`0 < \lambda < 1` and :math:`\psi(\lambda) = -\log(1 - \lambda) - \lambda`,
    :math:`\exp(\lambda(\sum\xi_i - \Delta) - \psi(\lambda)\sum\xi_i^2)` is a non-negative supermartingale
    (Fan, Grama and Liu 2015; Howard et al. 2021), whatever the true probabilities are, and so is its mean over several
    :math:`\lambda`. Values of :math:`\Delta` for which it reaches 1 / alpha are ruled out. The offset of the log-odds
    that changes the sum of the probabilities by :math:`\Delta` then is found from the sums after a few offsets.
    """
    n_classes, n = len(sums.observed), sums.n
    if n == 0:
        return tuple(ClassOffset(_plain(name), 0.0, -math.inf, math.inf, math.nan, math.nan) for name in names)
    independent = 1 if n_classes == 2 else n_classes
    reach = _reach(sums.squares, alpha / (2 * independent))
    found = []
    for k, name in enumerate(names):
        ends = (sums.observed[k] - reach[k], sums.observed[k], sums.observed[k] + reach[k])
        low, offset, high = (_offset(total, n, sums.expected[k], sums.shifted[:, k]) for total in ends)
        seen, said = float(sums.observed[k]) / n, float(sums.expected[k]) / n
        found.append(ClassOffset(_plain(name), offset, low, high, seen, said))
    return tuple(found)


def _plain(name: Any) -> Any:
    return name.item() if hasattr(name, "item") else name


def _reach(squares: Floats, alpha: float) -> Floats:
    """How far the sum of the differences may be from its expectation, for sums of squares: bisection on the mixture."""
    penalty = -np.log1p(-RATES) - RATES
    threshold = math.log(len(RATES) / alpha)
    low, high = np.zeros(len(squares)), np.empty(len(squares))
    # One rate alone bounds the reach from above: that of all of them together is not larger.
    high[:] = ((threshold + penalty[:, None] * squares) / RATES[:, None]).min(axis=0)
    for _ in range(48):
        middle = (low + high) / 2
        exponent = RATES[:, None] * middle - penalty[:, None] * squares
        top = exponent.max(axis=0)
        above = top + np.log(np.exp(exponent - top).sum(axis=0)) >= threshold
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return high


def _offset(total: float, n: int, expected: float, shifted: Floats) -> float:
    """Offset of the log-odds for which probabilities sum to ``total``."""
    if total <= 0:
        return -math.inf
    if total >= n:
        return math.inf
    offsets = np.array([*(b for b in SHIFTS if b < 0), 0.0, *(b for b in SHIFTS if b > 0)])
    sums = np.insert(shifted, sum(b < 0 for b in SHIFTS), expected)
    # The log-odds of the mean are nearly straight in the offset; beyond the ends their slope is close to 1.
    with np.errstate(divide="ignore"):
        at = np.log(sums) - np.log(np.maximum(n - sums, 0.0))
    if not np.isfinite(at).all():  # every probability is 0, or every one is 1: no offset changes them
        return math.copysign(math.inf, total - expected) if not math.isclose(total, expected, abs_tol=1e-9) else 0.0
    target = math.log(total) - math.log(n - total)
    if target <= at[0]:
        return float(offsets[0] + target - at[0])
    if target >= at[-1]:
        return float(offsets[-1] + target - at[-1])
    return float(np.interp(target, at, offsets))

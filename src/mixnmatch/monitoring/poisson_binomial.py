"""Quantiles of the Poisson-binomial distribution: how many of n independent events with given probabilities happen."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Up to so many events the distribution is exact, above it is a normal one corrected for skewness.
EXACT = 2000


def distribution(p: Floats) -> Floats:
    """Probabilities of 0, 1, ..., n events: the product of the polynomials 1 - p + p x, in halves."""
    if len(p) <= 1:
        return np.array([1.0]) if len(p) == 0 else np.array([1 - p[0], p[0]])
    half = len(p) // 2
    return np.convolve(distribution(p[:half]), distribution(p[half:]))


def quantiles(p: Floats, levels: tuple[float, ...]) -> tuple[float, ...]:
    """Smallest numbers of events that are not exceeded with the given probabilities."""
    if len(p) <= EXACT:
        total = np.cumsum(distribution(p))
        # Sums of thousands of numbers may end just below a level that they should reach.
        return tuple(float(min(int(np.searchsorted(total, level - 1e-12)), len(p))) for level in levels)
    mean, variance = float(p.sum()), float((p * (1 - p)).sum())
    if variance == 0:
        return tuple(mean for _ in levels)
    skewness = float((p * (1 - p) * (1 - 2 * p)).sum()) / variance**1.5
    found = []
    for level in levels:
        z = NormalDist().inv_cdf(level)
        value = mean + math.sqrt(variance) * (z + skewness * (z * z - 1) / 6)
        found.append(min(max(round(value), 0.0), float(len(p))))
    return tuple(found)

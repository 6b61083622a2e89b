"""Finite-sample bounds: Clopper-Pearson limits, and sets of top-ranked samples whose error rate is certified."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Sets of top-ranked samples that are tried: each costs a share of the error probability. The best number grows with the
# number of events that a set of all samples may hold (measured: coverage over n = 300 to 10,000 and rates of 3 to 20%).
FEWEST_CANDIDATES, MOST_CANDIDATES, EVENTS_PER_CANDIDATE = 4, 50, 15
# Sets differ by this factor on average, at least: sets that are almost the same are not worth a share.
LEAST_RATIO = 1.05
# Weights that are scaled to numbers of samples are off by this much at most.
ROUNDING = 1e-9


def upper_limit(events: float, total: float, error: float) -> float:
    """Clopper-Pearson upper limit of a rate, exceeded with probability ``error`` at most."""
    from scipy.special import betaincinv

    if total <= 0 or events >= total:
        return 1.0
    return float(betaincinv(events + 1, total - events, 1 - error))


def lower_limit(events: float, total: float, error: float) -> float:
    """Clopper-Pearson lower limit of a rate."""
    return 1.0 - upper_limit(total - events, total, error)


def two_sided(events: float, total: float, error: float) -> tuple[float, float]:
    """Clopper-Pearson interval of a rate that misses it with probability ``error`` at most."""
    return lower_limit(events, total, error / 2), upper_limit(events, total, error / 2)


@dataclass(frozen=True)
class Ranked:
    """Samples in groups of equal score, the highest score first.

    Attributes
    ----------
    scores : array of shape (m,)
        Distinct scores, decreasing.
    weight, events : arrays of shape (m,)
        Weight of all samples, and of those with an event, that have at least this score.
    sizes : array of shape (m,)
        Kish's effective number of these samples: limits count samples, not weights.
    """

    scores: Floats
    weight: Floats
    events: Floats
    sizes: Floats

    @classmethod
    def of(cls, scores: Floats, event: NDArray[np.bool_], weight: Floats | None) -> Ranked:
        """Sort and add up."""
        w = np.ones(len(scores)) if weight is None else weight
        distinct, group = np.unique(-scores, return_inverse=True)
        group = group.reshape(-1)
        total = np.bincount(group, w, len(distinct)).cumsum()
        events = np.bincount(group, w * event, len(distinct)).cumsum()
        squares = np.bincount(group, w * w, len(distinct)).cumsum()
        return cls(-distinct, total, np.minimum(events, total), total**2 / squares)

    @property
    def total(self) -> float:
        """Weight of all samples."""
        return float(self.weight[-1])

    @property
    def size(self) -> float:
        """Effective number of all samples."""
        return float(self.sizes[-1])

    def counts(self, place: int) -> tuple[float, float]:
        """Effective numbers of events and of samples in the first groups."""
        size = float(self.sizes[place - 1])
        return float(self.events[place - 1] / self.weight[place - 1]) * size, size

    def next_above(self, place: int, dtype: np.dtype[np.floating]) -> float:
        """The smallest number of a type above the score of a group: a threshold that leaves the group out.

        It is one of the type of the scores: a comparison in NumPy rounds the threshold to that type.
        """
        score = float(self.scores[place])
        near = dtype.type(score)
        return float(near if float(near) > score else np.nextafter(near, dtype.type(np.inf)))


@dataclass(frozen=True)
class Certified:
    """The largest set of top-ranked samples that was certified, or the best bound if there was none.

    Attributes
    ----------
    place : int or None
        Groups in the set; None if no set was certified.
    bound : float
        Upper limit of the event rate in the set; if there is none, the lowest limit of all sets tried.
    share : float
        Error probability that each set tried was given.
    needed : float
        Samples without a single event that certifying any set would take.
    """

    place: int | None
    bound: float
    share: float
    needed: float


def certify(ranked: Ranked, rate: float, error: float) -> Certified:
    """Find the largest set of top-ranked samples whose event rate is at most ``rate``, with a guarantee.

    The sets are the m highest-ranked samples for a fixed series of ranks m, so they depend on neither labels nor
    scores. Given the score of the first sample left out, the samples above it are independent draws from the
    distribution of samples with a higher score. The Clopper-Pearson limit then is exact for each m. All of them hold
    together with probability 1 - ``error`` by Bonferroni's inequality. With weights, numbers of samples are Kish's
    effective ones, and the guarantee is approximate unless weights are equal.
    """
    needed = _needed(rate, error)
    if ranked.size < needed * (1 - ROUNDING):
        return Certified(None, upper_limit(0.0, ranked.size, error), error, needed)
    ranks = candidate_ranks(ranked.size, rate, error)
    share = error / len(ranks)
    # Ties with the first sample left out are left out as well.
    places = np.searchsorted(ranked.weight * (ranked.size / ranked.total), ranks * (1 + ROUNDING), side="right")
    best, bound, lowest = None, 1.0, 1.0
    for place in np.unique(places[places > 0])[::-1]:
        limit = upper_limit(*ranked.counts(place), share)
        lowest = min(lowest, limit)
        if limit <= rate:
            best, bound = int(place), limit
            break
    return Certified(best, lowest if best is None else bound, share, needed)


def candidate_ranks(total: float, rate: float, error: float) -> Floats:
    """Ranks that are tried: from the fewest samples that could be certified to all.

    They lie evenly on the scale m^(2/3), between even steps, which waste shares on large sets, and even ratios, which
    are far apart there.
    """
    count = min(FEWEST_CANDIDATES + int(total * rate / EVENTS_PER_CANDIDATE), MOST_CANDIDATES)
    while count > 1 and _needed(rate, error / count) * LEAST_RATIO ** (count - 1) > total:
        count -= 1
    first = min(_needed(rate, error / count), total)
    ranks = np.linspace(first ** (2 / 3), total ** (2 / 3), count) ** 1.5
    ranks[0] = first
    if count > 1:
        ranks[-1] = total
    return np.asarray(ranks)


def _needed(rate: float, error: float) -> float:
    """Samples without an event that it takes to certify a rate."""
    return math.inf if rate <= 0 else math.ceil(round(math.log(error) / math.log1p(-rate), 9))

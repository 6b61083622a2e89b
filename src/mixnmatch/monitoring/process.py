"""The e-process: a mixture of bets over alternatives and over the step at which calibration was lost.

Notes
-----
Let E_s(a) be the likelihood ratio of alternative a against the monitored probabilities on the samples of step s, where
a was fixed before these samples were looked at. While probabilities are calibrated, every product of such ratios has
expectation 1, and so has

    M = r_t + sum_j w_j sum_a v_a prod_{s >= j} E_s(a),      r_t + sum_{j <= t} w_j = 1,

where w_j is the prior probability that step j is the first one with another calibration, and r_t that none was. By
Ville's inequality M reaches 1 / alpha at any time with probability at most alpha. Since M >= r_t > 0 it never freezes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mixnmatch.monitoring.alternatives import Alternatives

Floats = NDArray[np.float64]

# The prior of the first changed step: w_j = SPREAD / ((j + SPREAD - 1) (j + SPREAD)), j = 1, 2, ...
SPREAD = 30.0
# Log evidence that steps may show by chance and not count as changed.
CALM = math.log(20.0)


def log_start_weight(j: int) -> float:
    """Logarithm of the prior probability that the j-th step, counted from 1, is the first changed one."""
    return math.log(SPREAD) - math.log(j + SPREAD - 1) - math.log(j + SPREAD)


def log_unchanged(steps: int) -> float:
    """Logarithm of the prior probability that no step up to this one has changed."""
    return math.log(SPREAD) - math.log(steps + SPREAD)


def log_sum(values: Floats, axis: int | None = None) -> Floats:
    """Logarithm of a sum of exponentials, along an axis."""
    largest = values.max(axis=axis, keepdims=True)
    safe = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        found = safe + np.log(np.exp(values - safe).sum(axis=axis, keepdims=True))
    return np.asarray(found.squeeze() if axis is None else found.squeeze(axis))


def by_start(log_ratios: Sequence[Floats], closed: int, folded: Floats) -> Floats:
    """Logarithms of w_j prod_{s >= j} E_s(a), a row for each start j.

    Parameters
    ----------
    log_ratios : sequence of arrays of shape (A,)
        log E_s(a) of the steps that are still open, oldest first.
    closed : int
        Number of steps before them.
    folded : array of shape (A,)
        The sum over all closed starts of their part in the closed steps, as logarithms; -inf where there is none.

    Returns
    -------
    array of shape (1 + number of open steps, A)
        The first row is that of all closed starts together.
    """
    table = np.stack(log_ratios)
    since = np.cumsum(table[::-1], axis=0)[::-1]
    weights = [log_start_weight(closed + place + 1) for place in range(len(table))]
    return np.concatenate([(folded + since[0])[None], since + np.array(weights)[:, None]])


def fold(log_ratios: Floats, j: int, folded: Floats) -> Floats:
    """Close the oldest open step, the j-th of all: its ratios join those of the closed ones."""
    return np.asarray(np.logaddexp(folded, log_start_weight(j)) + log_ratios)


def log_e_value(table: Floats, steps: int, alternatives: Alternatives) -> float:
    """Logarithm of M, for the table of :func:`by_start`."""
    changed = log_sum(table + alternatives.log_weights)
    return float(np.logaddexp(changed, log_unchanged(steps)))


def likeliest_start(table: Floats, closed: int, alternatives: Alternatives) -> int:
    """Row of the table of the latest start that fits about as well as the best one.

    At the first changed step another alternative may be the best one than later, when some have learned from it. Early
    starts cost these next to nothing, and a calm step may favour them by chance: a step belongs to the change only if
    there is evidence for it. The prior, which prefers early starts too, is left out among open steps.
    """
    weights = [log_start_weight(closed + place) for place in range(1, len(table))]
    since = table[1:] - np.array(weights)[:, None]
    later = np.concatenate([since[1:], np.zeros((1, since.shape[1]))])
    parts = [log_sum(each + alternatives.log_weights, axis=1) for each in (table[:1], since - later, later)]
    fit = np.concatenate([parts[0], parts[1] + parts[2]])
    return int(np.flatnonzero(fit >= fit.max() - CALM)[-1])

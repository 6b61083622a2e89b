"""What to do after an alarm: adapt to new class frequencies, refit the map, or look at the model."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mixnmatch.monitoring.alternatives import KINDS, MEMORIES, Alternatives, StepSums

Floats = NDArray[np.float64]

NOTHING, ADAPT, REFIT, MODEL = "nothing", "adapt", "refit", "model"
TEXTS = {
    NOTHING: "No action: no evidence that the probabilities have lost their calibration.",
    ADAPT: "Adapt the map: new class frequencies explain the change, one offset for each class corrects it.",
    REFIT: "Refit the map on recent samples: offsets of the classes do not explain the change.",
    MODEL: "Examine the model: even recalibrated, its scores tell much less about the labels than they claim.",
}
# Offsets explain a change if slopes are not better by more than this factor of evidence.
FACTOR = 5.0
# Share of the promised information that recalibrated scores must still have.
INFORMATION = 0.5


def advise(log_ratios: Floats, alternatives: Alternatives, sums: StepSums, log_gain: float) -> str:
    """Advice after an alarm.

    Parameters
    ----------
    log_ratios : array of shape (A,)
        Reduction of the summed log loss by each alternative on samples after the first changed step, from which the
        learned ones could learn.
    alternatives : Alternatives
        Which these are.
    sums : StepSums
        Sums over the samples since the change.
    log_gain : float
        Largest reduction of the summed log loss by an alternative on these samples.

    Notes
    -----
    The information that calibrated probabilities promise is the entropy of their mean less their mean entropy. What
    recalibrated ones deliver is the entropy of the observed class frequencies less their log loss. If the second is
    below half of the first, by more than two standard errors, a new map restores calibration but not the model.
    """
    promised, delivered, error = information(sums, log_gain)
    if delivered + 2 * error < INFORMATION * promised:
        return MODEL
    return REFIT if _advantage_of_slopes(log_ratios, alternatives) > math.log(FACTOR) else ADAPT


def _advantage_of_slopes(log_ratios: Floats, alternatives: Alternatives) -> float:
    """How much larger the log-likelihood is with slopes than with offsets alone.

    Only alternatives that learned from the same steps are compared: a fixed one that happens to be close to the truth
    would be ahead of all others. Nothing is learned yet at the first changed step, where the fixed ones decide.
    """
    learned = log_ratios[-alternatives.n_learned :].reshape(len(MEMORIES), len(KINDS))
    offsets, slope, both = learned[int(learned.max(axis=1).argmax())]
    if max(offsets, slope, both) > math.log(FACTOR):
        return float(max(slope, both) - offsets)
    fixed = log_ratios[: -alternatives.n_learned]
    return float(fixed[alternatives.n_offsets :].max() - fixed[: alternatives.n_offsets].max())


def information(sums: StepSums, log_gain: float) -> tuple[float, float, float]:
    """Information about the labels that was promised and delivered, in nats a sample, and its standard error."""
    n = max(sums.n, 1)
    loss, entropy, variance = (float(value) for value in sums.losses)
    promised = _entropy(sums.expected / n) - entropy / n
    delivered = _entropy(sums.observed / n) - (loss - max(log_gain, 0.0)) / n
    return promised, delivered, math.sqrt(variance) / n


def _entropy(share: Floats) -> float:
    positive = share[share > 0]
    return float(-(positive * np.log(positive)).sum())

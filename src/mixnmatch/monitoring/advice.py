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
# Offsets explain a change unless slopes are better by this factor of evidence, and by this share of what offsets gain:
# a map is never perfect, so that with enough samples slopes are always a little better.
FACTOR, SHARE = 5.0, 0.05
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
    return REFIT if _slopes_needed(log_ratios, alternatives) else ADAPT


def _slopes_needed(log_ratios: Floats, alternatives: Alternatives) -> bool:
    """Whether the log-likelihood is clearly larger with slopes than with offsets alone.

    Only alternatives that learned from the same steps are compared: a fixed one that happens to be close to the truth
    would be ahead of all others. Nothing is learned yet at the first changed step, where the fixed ones decide.
    """
    learned = log_ratios[-alternatives.n_learned :].reshape(len(MEMORIES), len(KINDS))
    offsets, slope, both = learned[int(learned.max(axis=1).argmax())]
    slopes = max(slope, both)
    if max(offsets, slopes) <= math.log(FACTOR):
        fixed = log_ratios[: -alternatives.n_learned]
        offsets, slopes = fixed[: alternatives.n_offsets].max(), fixed[alternatives.n_offsets :].max()
    return bool(slopes - offsets > max(math.log(FACTOR), SHARE * offsets))


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

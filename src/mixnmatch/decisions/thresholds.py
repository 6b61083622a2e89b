"""Thresholds for a target precision or recall, with a finite-sample guarantee."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.text import significant
from mixnmatch.decisions._guarantee import Ranked, certify, lower_limit, two_sided
from mixnmatch.decisions._inputs import check_share, labelled, positive_class, score_type
from mixnmatch.evaluation._means import check_confidence, finite
from mixnmatch.evaluation.notion import Outcomes

__all__ = ["Threshold", "threshold_for"]

# Coverage of the interval of a threshold without a guarantee.
PLAIN_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Threshold:
    """A threshold on the probability of the positive class: samples with ``p >= threshold`` are selected.

    Attributes
    ----------
    threshold : float
        The threshold; infinity if nothing may be selected.
    metric : {"precision", "recall"}
        What the target is about.
    target : float
        The target.
    met : bool
        Whether the target is met: with the guarantee if there is a ``confidence``, on these samples if not.
    confidence : float or None
        Probability with which precision or recall on new samples is at least ``bound``; None without a guarantee.
    bound : float
        Lower confidence limit of the metric at the threshold; if the target is not met, the highest limit found.
    interval : tuple of float
        Two-sided interval of the metric at the threshold.
    precision, recall : float
        On these samples, at the threshold; NaN where nothing is selected, or nothing is positive.
    selected : float
        Share of the samples that are selected.
    n_rows : int
        Samples of positive weight.
    positive : label
        Name of the positive class.
    """

    threshold: float
    metric: str
    target: float
    met: bool
    confidence: float | None
    bound: float
    interval: tuple[float, float]
    precision: float
    recall: float
    selected: float
    n_rows: int
    positive: Any = None

    def __float__(self) -> float:
        return self.threshold

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON: what is not finite becomes None."""
        found = {name: finite(value) if isinstance(value, float) else value for name, value in asdict(self).items()}
        return found | {"interval": [finite(end) for end in self.interval]}

    def __str__(self) -> str:
        # All digits of the threshold: it may be the next number above a score that is left out.
        if not self.met:
            return f"no threshold reaches a {self.metric} of {self.target:g} (highest lower limit {self.bound:.4g})"
        sure = "without a guarantee" if self.confidence is None else f"with {self.confidence:.0%} confidence"
        return (
            f"threshold {self.threshold!r}{self._of_class()}: {self.metric} at least {self.target:g} {sure}; "
            f"on these {self.n_rows} samples precision {self.precision:.4g}, recall {self.recall:.4g}, "
            f"{self.selected:.1%} selected"
        )

    def _of_class(self) -> str:
        return f" for class {self.positive}" if isinstance(self.positive, str) else ""


def threshold_for(
    probs: Any,
    y: Any = None,
    *,
    precision: float | None = None,
    recall: float | None = None,
    confidence: float | None = 0.95,
    sample_weight: Any = None,
    logits: bool = False,
    classes: Any = None,
    positive: Any = None,
    weights: str = "frequency",
) -> Threshold:
    r"""Threshold that reaches a target precision or recall, on new samples, with a given confidence.

    Parameters
    ----------
    probs : array of shape (n,) or (n, 2)
        Probability of the positive class, or of both classes; logits if ``logits``. Samples must not have been used
        to fit the model or the calibration map.
    y : array of shape (n,)
        Labels.
    precision, recall : float
        The target, one of the two. For a precision the lowest threshold is sought, for a recall the highest.
    confidence : float or None
        Probability with which the target is reached on new samples from the same distribution. None: the threshold
        that reaches it on these samples, without a guarantee.
    sample_weight : array of shape (n,), optional
        Frequencies in precision and recall. The guarantee counts samples, by Kish's effective number, and is
        approximate unless all weights are equal.
    logits : bool
        Whether ``probs`` are logits. The threshold is a probability in any case.
    classes : sequence, optional
        Names of the two classes; the second one is the positive class.
    positive : label, optional
        The positive class, which a vector of probabilities is about; needed for text labels, as for
        :func:`mixnmatch.rows`.
    weights : {"frequency", "importance"}
        What sample weights mean.

    Returns
    -------
    Threshold
        Samples with ``p >= result.threshold`` are selected. If no threshold can be guaranteed to reach the precision,
        it is infinity, ``met`` is False, and a warning says how many samples are needed at least. A recall can
        always be reached, if necessary by selecting everything (threshold 0).

    Notes
    -----
    *Recall.* Of m positive samples let a have at least the score t. The threshold is the highest score t of a positive
    sample for which the Clopper-Pearson lower limit of a out of m is at least the target. Recall decreases in t, so
    this is a limit for a quantile of the scores of positive samples and needs no correction for the choice of t.

    *Precision* need not be monotone in t. The candidates are the m highest-ranked samples for a fixed series of up to
    K = 50 numbers m. Each has a Clopper-Pearson limit at :math:`1 - (1 - \mathrm{confidence})/K`, so that all limits
    hold together (Bonferroni). The threshold lies just above the score of the first sample left out.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(2000)
    >>> y = (rng.random(2000) < p).astype(int)
    >>> found = threshold_for(p, y, precision=0.8)
    >>> found.met, bool((y[p >= found.threshold]).mean() > 0.8)
    (True, True)
    """
    if (precision is None) == (recall is None):
        msg = "name one target: precision=... or recall=..."
        raise ValueError(msg)
    metric, target = ("recall", recall) if precision is None else ("precision", precision)
    if target == 1 and confidence is not None:
        msg = f"{metric}=1 cannot be ensured with a confidence: pass a number below 1, or confidence=None"
        raise ValueError(msg)
    check_share(metric, target, one=True)
    assert target is not None
    if confidence is not None:
        check_confidence(confidence)
    source = labelled(probs, y, sample_weight, logits=logits, classes=classes, positive=positive, weights=weights)
    outcomes = positive_class(source, "a threshold")
    find = _for_precision if metric == "precision" else _for_recall
    return replace(find(outcomes, float(target), confidence, score_type(source)), positive=source.positive)


def _for_recall(outcomes: Outcomes, target: float, confidence: float | None, dtype: np.dtype[np.floating]) -> Threshold:
    positive = outcomes.y == 1
    weight = None if outcomes.weight is None else outcomes.weight[positive]
    if not positive.any():
        warnings.warn(
            "there is no positive sample to find a threshold from: everything is selected", UserWarning, stacklevel=3
        )
        return _at(0.0, "recall", target, confidence, True, 1.0, (0.0, 1.0), outcomes)
    ranked = Ranked.of(outcomes.z[positive], np.ones(int(positive.sum()), dtype=bool), weight)
    error = 1 - (PLAIN_CONFIDENCE if confidence is None else confidence)
    found = ranked.weight * (ranked.size / ranked.total)
    if confidence is None:
        limits = ranked.weight / ranked.total
    else:
        limits = np.array([lower_limit(float(count), ranked.size, error) for count in found])
    reached = np.flatnonzero(limits >= target * (1 - 1e-12))
    if not len(reached):  # not even the lowest score of a positive sample is low enough for all positives to come
        return _at(0.0, "recall", target, confidence, True, 1.0, (1.0, 1.0), outcomes)
    place = int(reached[0])
    bound = lower_limit(float(found[place]), ranked.size, error)
    interval = two_sided(float(found[place]), ranked.size, error)
    return _at(float(ranked.scores[place]), "recall", target, confidence, True, bound, interval, outcomes)


def _for_precision(
    outcomes: Outcomes, target: float, confidence: float | None, dtype: np.dtype[np.floating]
) -> Threshold:
    ranked = Ranked.of(outcomes.z, outcomes.y == 0, outcomes.weight)
    if confidence is None:
        precise = np.flatnonzero(1 - ranked.events / ranked.weight >= target - 1e-12)
        place, share, bound = (int(precise[-1]) + 1 if len(precise) else None), 1 - PLAIN_CONFIDENCE, math.nan
    else:
        found = certify(ranked, 1 - target, 1 - confidence)
        place, share, bound = found.place, found.share, 1 - found.bound
    if place is None:
        _warn_of_precision(ranked, target, confidence)
        bound = float((1 - ranked.events / ranked.weight).max()) if confidence is None else bound
        return _at(math.inf, "precision", target, confidence, False, bound, (math.nan, math.nan), outcomes)
    events, count = ranked.counts(place)
    if confidence is None:
        threshold, bound = float(ranked.scores[place - 1]), lower_limit(count - events, count, share)
    else:
        threshold = 0.0 if place == len(ranked.scores) else ranked.next_above(place, dtype)
    interval = two_sided(count - events, count, share)
    return _at(threshold, "precision", target, confidence, True, bound, interval, outcomes)


def _warn_of_precision(ranked: Ranked, target: float, confidence: float | None) -> None:
    if confidence is None:
        msg = f"no threshold has a precision of {target:g} on these samples"
    else:
        needed = certify(ranked, 1 - target, 1 - confidence).needed
        msg = (
            f"no threshold reaches a precision of {target:g} with {confidence:.0%} confidence on "
            f"{significant(ranked.size, 6)} samples; it takes at least {significant(needed, 6)} selected samples, "
            "all of them positive"
        )
    warnings.warn(msg, UserWarning, stacklevel=4)


def _at(
    threshold: float,
    metric: str,
    target: float,
    confidence: float | None,
    met: bool,
    bound: float,
    interval: tuple[float, float],
    outcomes: Outcomes,
) -> Threshold:
    """What is selected at a threshold."""
    w = np.ones(len(outcomes.z)) if outcomes.weight is None else outcomes.weight
    chosen: NDArray[np.float64] = w * (outcomes.z >= threshold)
    positive = float(w @ outcomes.y)
    hits, count = float(chosen @ outcomes.y), float(chosen.sum())
    return Threshold(
        threshold,
        metric,
        target,
        met,
        confidence,
        bound,
        interval,
        precision=hits / count if count else math.nan,
        recall=hits / positive if positive else math.nan,
        selected=count / float(w.sum()),
        n_rows=len(outcomes.z),
    )

"""Decision curves: net benefit and cost of a threshold on the probability, over all thresholds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.tabular import Record, Tabular, array_records
from mixnmatch.decisions._inputs import check_share, labelled, positive_class
from mixnmatch.evaluation._means import check_confidence
from mixnmatch.evaluation.notion import Outcomes

Floats = NDArray[np.float64]

__all__ = ["DecisionCurve", "net_benefit"]

DEFAULT_THRESHOLDS = 99
# A class with a smaller share than this is rare, and thresholds then begin at this part of its odds.
RARE, LEAST_ODDS = 0.1, 0.1


@dataclass(frozen=True, eq=False)
class DecisionCurve(Tabular):
    """Net benefit and cost of selecting samples with ``p >= threshold``, at many thresholds.

    Attributes
    ----------
    threshold : array of shape (m,)
        Thresholds t. A threshold stands for a ratio of costs: a false positive costs t, a false negative 1 - t.
    net_benefit : array of shape (m,)
        Net benefit of the model, in true positives per sample.
    low, high : arrays of shape (m,)
        Pointwise interval of the net benefit; NaN where ``prevalence`` was given, or for a single sample.
    select_all : array of shape (m,)
        Net benefit of selecting everyone; that of selecting no one is 0.
    true_positive, false_positive : arrays of shape (m,)
        Share of samples that are selected and positive, and selected and negative.
    prevalence : float
        Share of the positive class.
    confidence : float
        Coverage of the interval.
    n_rows : int
        Samples of positive weight.
    positive : label
        Name of the positive class.
    """

    threshold: Floats
    net_benefit: Floats
    low: Floats
    high: Floats
    select_all: Floats
    true_positive: Floats
    false_positive: Floats
    prevalence: float
    confidence: float
    n_rows: int
    positive: Any = None

    @property
    def cost(self) -> Floats:
        """Mean cost of the decisions, where a false positive costs t and a false negative 1 - t."""
        return self.threshold * self.false_positive + (1 - self.threshold) * (self.prevalence - self.true_positive)

    @property
    def cost_of_all(self) -> Floats:
        """Mean cost of selecting everyone."""
        return self.threshold * (1 - self.prevalence)

    @property
    def cost_of_none(self) -> Floats:
        """Mean cost of selecting no one."""
        return (1 - self.threshold) * self.prevalence

    @property
    def interventions_avoided(self) -> Floats:
        """Net reduction of selected samples against selecting everyone; NaN at a threshold of 0."""
        odds = _odds(self.threshold)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(odds > 0, (self.net_benefit - self.select_all) / odds, math.nan))

    def _records(self) -> list[Record]:
        names = ("threshold", "net_benefit", "low", "high", "select_all", "true_positive", "false_positive")
        return array_records(**{name: getattr(self, name) for name in names})

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON: what is not finite becomes None."""
        names = ("threshold", "net_benefit", "low", "high", "select_all", "cost", "cost_of_all", "cost_of_none")
        found = {name: [v if math.isfinite(v) else None for v in getattr(self, name).tolist()] for name in names}
        sizes = {"prevalence": self.prevalence, "confidence": self.confidence, "n_rows": self.n_rows}
        return found | sizes | {"positive": self.positive}


def _odds(threshold: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(threshold / (1 - threshold))


def net_benefit(
    probs: Any,
    y: Any = None,
    thresholds: Any = None,
    *,
    prevalence: float | None = None,
    sample_weight: Any = None,
    logits: bool = False,
    classes: Any = None,
    positive: Any = None,
    weights: str = "frequency",
    confidence: float = 0.95,
) -> DecisionCurve:
    r"""Net benefit of acting on a probability, over thresholds (decision curve analysis).

    Parameters
    ----------
    probs : array of shape (n,) or (n, 2)
        Probability of the positive class, or of both classes; logits if ``logits``.
    y : array of shape (n,)
        Labels.
    thresholds : array, optional
        Thresholds from 0 to below 1; by default 0.01 to 0.99. If one class is rarer than 10%, they are
        equally spaced in log-odds, from a tenth of the odds of that class to 0.5.
    prevalence : float, optional
        Share of the positive class in the population, where it is not that of the samples (case-control data).
    sample_weight : array of shape (n,), optional
        Frequencies; samples are the units of the interval.
    logits : bool
        Whether ``probs`` are logits.
    classes : sequence, optional
        Names of the two classes; the second one is the positive class.
    positive : label, optional
        The positive class, which a vector of probabilities is about; needed for text labels, as for
        :func:`mixnmatch.rows`.
    weights : {"frequency", "importance"}
        What sample weights mean.
    confidence : float
        Coverage of the pointwise interval.

    Returns
    -------
    DecisionCurve
        The curve as data; :class:`DecisionDisplay` draws it.

    Notes
    -----
    With n samples, of which TP positive and FP negative ones have :math:`p \ge t`,

    .. math:: \mathrm{NB}(t) = \frac{TP}{n} - \frac{t}{1-t}\,\frac{FP}{n}.

    With ``prevalence`` the rates within each class are weighed by it instead. The mean cost, where a false positive
    costs t and a false negative 1 - t, is :math:`(1-t)(\text{prevalence} - \mathrm{NB})`.

    References
    ----------
    Vickers, Elkin (2006). Decision curve analysis: a novel method for evaluating prediction models. Medical Decision
    Making.

    Examples
    --------
    >>> curve = net_benefit([0.1, 0.4, 0.6, 0.9], [0, 0, 1, 1], [0.2, 0.5])
    >>> curve.net_benefit
    array([0.4375, 0.5   ])
    """
    check_confidence(confidence)
    source = labelled(probs, y, sample_weight, logits=logits, classes=classes, positive=positive, weights=weights)
    outcomes = positive_class(source, "a decision curve")
    w = np.ones(len(outcomes.z)) if outcomes.weight is None else outcomes.weight
    found = float(w @ outcomes.y / w.sum())
    t = _default_thresholds(found if prevalence is None else prevalence) if thresholds is None else _read(thresholds)
    share = _selected(outcomes.z, np.stack([w * outcomes.y, w * (1 - outcomes.y)]), t) / w.sum()
    if prevalence is None:
        low, high = _interval(outcomes, w, t, share, confidence)
    else:
        share, found = _reweighed(share, found, check_share("prevalence", prevalence))
        low = high = np.full(len(t), math.nan)
    odds = _odds(t)
    return DecisionCurve(
        t,
        net_benefit=share[0] - odds * share[1],
        low=low,
        high=high,
        select_all=found - odds * (1 - found),
        true_positive=share[0],
        false_positive=share[1],
        prevalence=found,
        confidence=confidence,
        n_rows=len(outcomes.z),
        positive=source.positive,
    )


def is_rare(prevalence: float) -> bool:
    """Whether one of two classes occurs, and is rare."""
    return 0 < min(prevalence, 1 - prevalence) < RARE


def _default_thresholds(prevalence: float) -> Floats:
    if not is_rare(prevalence):
        return np.arange(1, DEFAULT_THRESHOLDS + 1) / (DEFAULT_THRESHOLDS + 1)
    share = min(prevalence, 1 - prevalence)
    t = 1 / (1 + np.exp(-np.linspace(math.log(LEAST_ODDS * share / (1 - share)), 0.0, DEFAULT_THRESHOLDS)))
    return np.asarray(t if prevalence < 0.5 else 1 - t[::-1])


def _read(thresholds: Any) -> Floats:
    t = np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
    if t.ndim != 1 or not len(t) or not ((t >= 0) & (t < 1)).all():
        msg = "thresholds must be numbers from 0 to below 1: at 1 a false positive would cost infinitely much"
        raise ValueError(msg)
    return t


def _selected(z: Floats, weight: Floats, t: Floats) -> Floats:
    """Sums of each row of ``weight`` over samples with z >= t."""
    order = np.argsort(z, kind="stable")
    sums = np.zeros((len(weight), len(z) + 1))
    sums[:, :-1] = weight[:, order][:, ::-1].cumsum(axis=1)[:, ::-1]
    return np.asarray(sums[:, np.searchsorted(z[order], t, side="left")])


def _reweighed(share: Floats, found: float, prevalence: float) -> tuple[Floats, float]:
    """Shares of selected positives and negatives in a population with another share of positives."""
    if not 0 < found < 1:
        msg = f"prevalence needs samples of both classes, but {found:.0%} are positive"
        raise ValueError(msg)
    factors = np.array([prevalence / found, (1 - prevalence) / (1 - found)])
    return share * factors[:, None], prevalence


def _interval(outcomes: Outcomes, w: Floats, t: Floats, share: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Student t interval: the net benefit is a mean over samples of 1, -t / (1 - t) or 0."""
    from scipy.special import stdtrit

    n = len(w)
    if n < 2:
        return np.full(len(t), math.nan), np.full(len(t), math.nan)
    odds, square = _odds(t), w**2
    mean = share[0] - odds * share[1]
    hits, misses = _selected(outcomes.z, np.stack([square * outcomes.y, square * (1 - outcomes.y)]), t)
    # Sum of w^2 (x - mean)^2 over the three values that x has.
    rest = square.sum() - hits - misses
    spread = hits * (1 - mean) ** 2 + misses * (odds + mean) ** 2 + rest * mean**2
    reach = stdtrit(n - 1, 0.5 + confidence / 2) * np.sqrt(np.maximum(spread, 0) * n / (n - 1)) / w.sum()
    return mean - reach, mean + reach

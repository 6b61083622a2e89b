"""Selective prediction: risk over coverage, and the coverage that a target risk allows."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.tabular import Record, Tabular, array_records
from mixnmatch._engine.text import estimate_text, significant
from mixnmatch.decisions._guarantee import Ranked, certify, two_sided
from mixnmatch.decisions._inputs import check_share, labelled, score_type, top_class
from mixnmatch.evaluation._means import check_confidence, finite

Floats = NDArray[np.float64]

__all__ = ["RiskCoverageCurve", "SelectiveCoverage", "coverage_for", "risk_coverage_curve"]


@dataclass(frozen=True, eq=False)
class RiskCoverageCurve(Tabular):
    """Error rate among the most confident predictions, over the share of samples that are predicted.

    Attributes
    ----------
    coverage : array of shape (m,)
        Share of samples with at least a confidence, increasing up to 1. Samples of equal confidence come together.
    risk : array of shape (m,)
        Error rate among those samples.
    threshold : array of shape (m,)
        The confidence.
    aurc : float
        Area under the curve: mean risk over all samples, each as the last one that is predicted.
    best_aurc : float
        The lowest area that predictions with as many errors can have, all errors having the lowest confidence.
    n_rows : int
        Samples of positive weight.
    """

    coverage: Floats
    risk: Floats
    threshold: Floats
    aurc: float
    best_aurc: float
    n_rows: int

    @property
    def error_rate(self) -> float:
        """Error rate if every sample is predicted."""
        return float(self.risk[-1])

    @property
    def excess_aurc(self) -> float:
        """What the ranking of the samples by confidence costs: the area above the lowest possible one."""
        return self.aurc - self.best_aurc

    def _records(self) -> list[Record]:
        return array_records(coverage=self.coverage, risk=self.risk, threshold=self.threshold)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        arrays = {name: getattr(self, name).tolist() for name in ("coverage", "risk", "threshold")}
        numbers = {name: getattr(self, name) for name in ("aurc", "best_aurc", "excess_aurc", "error_rate", "n_rows")}
        return arrays | numbers


def risk_coverage_curve(
    probs: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    logits: bool = False,
    classes: Any = None,
    weights: str = "frequency",
) -> RiskCoverageCurve:
    r"""Risk-coverage curve and the area under it.

    Parameters
    ----------
    probs : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``.
    y : array of shape (n,)
        Labels.
    sample_weight : array of shape (n,), optional
        Frequencies: a weight of k equals k repetitions of the sample.
    logits : bool
        Whether ``probs`` are logits.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.

    Returns
    -------
    RiskCoverageCurve
        The curve as data; :class:`RiskCoverageDisplay` draws it.

    Notes
    -----
    With samples sorted by decreasing confidence and :math:`e_i` errors among the first i,

    .. math:: \mathrm{AURC} = \frac1n \sum_{i=1}^n \frac{e_i}{i}.

    Within a group of equal confidence the mean over all orders is taken, so that the area does not depend on the order
    of the samples.

    References
    ----------
    Geifman, El-Yaniv (2017). Selective classification for deep neural networks. NeurIPS.

    Geifman, Uziel, El-Yaniv (2019). Bias-reduced uncertainty estimation for deep neural classifiers. ICLR.

    Examples
    --------
    >>> curve = risk_coverage_curve([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]], [0, 0, 0])
    >>> curve.coverage, curve.risk
    (array([0.33333333, 0.66666667, 1.        ]), array([0.        , 0.        , 0.33333333]))
    >>> round(curve.aurc, 4)
    0.1111
    """
    source = labelled(probs, y, sample_weight, logits=logits, classes=classes, weights=weights)
    outcomes = top_class(source, "a risk-coverage curve")
    ranked = Ranked.of(outcomes.z, outcomes.y == 0, outcomes.weight)
    errors = float(ranked.events[-1])
    best = _area(np.array([ranked.total - errors, ranked.total]), np.array([0.0, errors]))
    return RiskCoverageCurve(
        coverage=ranked.weight / ranked.total,
        risk=ranked.events / ranked.weight,
        threshold=ranked.scores,
        aurc=_area(ranked.weight, ranked.events),
        best_aurc=best,
        n_rows=len(outcomes.z),
    )


def _area(weight: Floats, events: Floats) -> float:
    """Mean of e_i / i, with the errors of a group spread evenly over it.

    In a group that begins after W samples with E errors and has e errors among g samples, e_i = E + (i - W) e / g; the
    sum over the group is (E - W e / g)(H(W + g) - H(W)) + e with harmonic numbers H.
    """
    from scipy.special import digamma

    before, errors_before = np.concatenate([[0.0], weight[:-1]]), np.concatenate([[0.0], events[:-1]])
    size, errors = weight - before, events - errors_before
    rate = np.divide(errors, size, out=np.zeros(len(size)), where=size > 0)
    start = errors_before - before * rate
    return float((start * (digamma(weight + 1) - digamma(before + 1)) + errors).sum() / weight[-1])


@dataclass(frozen=True)
class SelectiveCoverage:
    """The share of samples that can be predicted at a target risk.

    Attributes
    ----------
    threshold : float
        Confidence from which samples are predicted; infinity if none may be.
    target : float
        Target risk.
    met : bool
        Whether some samples can be predicted at that risk.
    confidence : float
        Probability with which the risk on new samples is at most ``bound``.
    bound : float
        Upper confidence limit of the risk at the threshold; if the target is not met, the lowest limit found.
    risk : float
        Error rate of the samples that are predicted; NaN if there are none.
    coverage : float
        Share of these samples that are predicted.
    interval : tuple of float
        Two-sided interval of the coverage on new samples.
    n_rows : int
        Samples of positive weight.
    """

    threshold: float
    target: float
    met: bool
    confidence: float
    bound: float
    risk: float
    coverage: float
    interval: tuple[float, float]
    n_rows: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON: what is not finite becomes None."""
        found = {name: finite(value) if isinstance(value, float) else value for name, value in asdict(self).items()}
        return found | {"interval": list(self.interval)}

    def __str__(self) -> str:
        # All digits of the threshold: it may be the next number above a score that is left out.
        if not self.met:
            return f"no samples can be predicted at a risk of {self.target:g} (lowest upper limit {self.bound:.4g})"
        return (
            f"predict where the confidence is at least {self.threshold!r}: risk at most {self.target:g} with "
            f"{self.confidence:.0%} confidence, coverage "
            + estimate_text(self.coverage, self.interval, self.confidence, f"n = {self.n_rows}", show="{:.1%}".format)
        )


def coverage_for(
    probs: Any,
    y: Any = None,
    *,
    risk: float,
    confidence: float = 0.95,
    sample_weight: Any = None,
    logits: bool = False,
    classes: Any = None,
    weights: str = "frequency",
) -> SelectiveCoverage:
    r"""Confidence threshold and coverage at which the error rate stays below a target, with a guarantee.

    Parameters
    ----------
    probs : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``. Samples must not have been used to fit the model or the map.
    y : array of shape (n,)
        Labels.
    risk : float
        Highest error rate among the samples that are predicted.
    confidence : float
        Probability with which the risk on new samples of the same distribution stays below the target.
    sample_weight : array of shape (n,), optional
        Frequencies in risk and coverage. The guarantee counts samples, by Kish's effective number, and is
        approximate unless all weights are equal.
    logits : bool
        Whether ``probs`` are logits. The threshold is a probability in any case.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.

    Returns
    -------
    SelectiveCoverage
        With the threshold on the confidence, the largest probability of a sample. If no sample can be predicted at
        that risk the threshold is infinity, ``met`` is False, and a warning says so.

    Notes
    -----
    Geifman and El-Yaniv (2017) search for the threshold by bisection, with a binomial limit at each step. Which
    thresholds the bisection tries depends on the labels, which their union bound over the steps does not cover. Here
    the candidates are the m most confident samples for a fixed series of up to K = 50 numbers m, each with a
    Clopper-Pearson limit at :math:`1 - (1 - \mathrm{confidence})/K`, so that the guarantee holds for any
    distribution and any ranking of the samples.

    References
    ----------
    Geifman, El-Yaniv (2017). Selective classification for deep neural networks. NeurIPS.

    Examples
    --------
    >>> from mixnmatch import load_sample
    >>> sample = load_sample()
    >>> found = coverage_for(sample.logits_eval, sample.labels_eval, risk=0.1, logits=True)
    >>> found.met, found.risk < 0.1
    (True, True)
    """
    check_share("risk", risk)
    check_confidence(confidence)
    source = labelled(probs, y, sample_weight, logits=logits, classes=classes, weights=weights)
    outcomes = top_class(source, "a guarantee of the risk")
    ranked = Ranked.of(outcomes.z, outcomes.y == 0, outcomes.weight)
    error = 1 - confidence
    found = certify(ranked, risk, error)
    size: dict[str, Any] = {"target": float(risk), "confidence": confidence, "bound": found.bound}
    size |= {"n_rows": len(outcomes.z), "met": found.place is not None}
    if found.place is None:
        msg = (
            f"no samples can be predicted at a risk of {risk:g} with {confidence:.0%} confidence on "
            f"{significant(ranked.size, 6)} samples; it takes at least {significant(found.needed, 6)} predicted "
            "samples, all of them right"
        )
        warnings.warn(msg, UserWarning, stacklevel=2)
        return SelectiveCoverage(math.inf, risk=math.nan, coverage=0.0, interval=(0.0, 0.0), **size)
    place = found.place
    count = float(ranked.weight[place - 1])
    return SelectiveCoverage(
        0.0 if place == len(ranked.scores) else ranked.next_above(place, score_type(source)),
        risk=float(ranked.events[place - 1]) / count,
        coverage=count / ranked.total,
        interval=two_sided(count / ranked.total * ranked.size, ranked.size, error),
        **size,
    )

"""Measures of two classes that are usual in medicine and credit scoring, such as intercept and slope."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.scores import SMALLEST_PROBABILITY
from mixnmatch._engine.text import estimate_text, significant
from mixnmatch.evaluation._bounded import PROPORTION
from mixnmatch.evaluation._logistic import sigmoid
from mixnmatch.evaluation._means import MeanEstimate, Moments, clustered_covariance, finite
from mixnmatch.evaluation.result import p_text
from mixnmatch.maps._solve import Point, certify, newton

__all__ = ["MEASURES", "BinaryMeasure", "binary_measures"]

Floats = NDArray[np.float64]


class BinaryMeasure(float):
    """A measure of the probabilities of the positive class: a float with an interval or a p-value.

    Attributes
    ----------
    name : str
        Its name in :func:`evaluate`.
    interval : tuple of float, or None
        Confidence interval; NaN where there is none, as for the slope of scores that separate the classes.
    p_value : float or None
        p-value of "it is what calibrated probabilities have", where there is a test.
    confidence : float
        Confidence of the interval.
    observed, expected : float or None
        Frequency of the positive class and its mean probability, among the samples that the measure is about.
    n_samples : int
        Number of these samples.
    """

    name: str
    interval: tuple[float, float] | None
    p_value: float | None
    confidence: float
    observed: float | None
    expected: float | None
    n_samples: int

    def __new__(cls, value: float, **attributes: Any) -> BinaryMeasure:
        """Make the float and attach what it knows."""
        made = super().__new__(cls, value)
        made.__dict__.update(dict.fromkeys(("interval", "p_value", "observed", "expected")) | attributes)
        return made

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"{type(self).__name__} cannot be changed"
        raise AttributeError(msg)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON: what is not finite becomes None."""
        low, high = (math.nan, math.nan) if self.interval is None else self.interval
        made: dict[str, Any] = {"value": finite(float(self)), "n_samples": self.n_samples}
        if self.interval is not None:
            made |= {"low": finite(low), "high": finite(high), "confidence": self.confidence}
        for key in ("p_value", "observed", "expected"):
            if getattr(self, key) is not None:
                made[key] = finite(getattr(self, key))
        return made

    def __str__(self) -> str:
        more = [] if self.p_value is None else [p_text(self.p_value)]
        if self.observed is not None and self.expected is not None:
            more.append(f"observed {significant(self.observed)}, expected {significant(self.expected)}")
        return estimate_text(self, self.interval, self.confidence, *more, f"n = {self.n_samples}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({float(self)!r}, name={self.name!r})"

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)


@dataclass(frozen=True)
class Samples:
    """Log-odds of the positive class, possibly infinite, whether it was the true one, weights and clusters."""

    log_odds: Floats
    y: NDArray[np.int8]
    weight: Floats | None
    clusters: NDArray[np.intp] | None
    confidence: float

    def __len__(self) -> int:
        return len(self.y)

    @property
    def probability(self) -> Floats:
        """Probability of the positive class."""
        return sigmoid(self.log_odds)

    def at(self, chosen: NDArray[np.bool_]) -> Samples:
        """Some of the samples."""
        weight = None if self.weight is None else self.weight[chosen]
        clusters = None if self.clusters is None else self.clusters[chosen]
        return Samples(self.log_odds[chosen], self.y[chosen], weight, clusters, self.confidence)

    def rate(self) -> MeanEstimate:
        """Frequency of the positive class."""
        values = self.y.astype(np.float64)[None, :]
        moments = Moments.of(values, self.weight)
        # One sample, or one cluster, has no standard error, but the interval of a proportion needs none.
        error, effective, n_groups = 0.0, float(moments.effective_sizes()[0]), None
        if self.clusters is None and len(self) > 1:
            error = float(np.sqrt(moments.covariance()[0, 0]))
        elif self.clusters is not None:
            codes = np.unique(self.clusters, return_inverse=True)[1].reshape(-1)
            covariance, count = clustered_covariance(values, self.weight, codes)
            if count > 1:
                error, n_groups = float(np.sqrt(covariance[0, 0])), count
                effective = float(moments.effective_sizes(covariance, count)[0])
            else:
                effective = 1.0
        return MeanEstimate(
            float(moments.means()[0]), standard_error=error, bounds=PROPORTION, effective_size=effective,
            n_rows=len(self), n_groups=n_groups, confidence=self.confidence,
        )  # fmt: skip

    def mean_probability(self) -> float:
        """Mean probability of the positive class."""
        return float(np.average(self.probability, weights=self.weight))

    def spread_of_sum(self, parts: Floats) -> Floats:
        """Sums of products of weighted parts (n x P) over samples, or over the sums within clusters."""
        if self.weight is not None:
            parts = parts * self.weight[:, None]
        if self.clusters is None:
            return np.asarray(parts.T @ parts)
        sums = np.stack([np.bincount(self.clusters, part) for part in parts.T])
        count = len(np.unique(self.clusters))
        return np.asarray(sums @ sums.T * (count / (count - 1) if count > 1 else math.nan))


def block_log_odds(block: Block) -> Floats:
    """Log-odds of the second of two classes, infinite where a probability is 0."""
    values = np.asarray(block.values, dtype=np.float64)
    with np.errstate(divide="ignore"):
        logs = np.log(values) if block.form == "probabilities" else values
    return np.asarray(logs[:, 1] - logs[:, 0])


def binary_measures(
    log_odds: Floats,
    y: NDArray[Any],
    weight: Floats | None = None,
    clusters: NDArray[np.intp] | None = None,
    *,
    names: tuple[str, ...] | None = None,
    confidence: float = 0.95,
) -> dict[str, BinaryMeasure]:
    r"""Compute measures of the probabilities of a positive class, by default all of them.

    Parameters
    ----------
    log_odds : array of shape (n,)
        Log-odds of the positive class.
    y : array of shape (n,)
        1 for the positive class, 0 for the other one.
    weight, clusters : arrays of shape (n,), optional
        Positive weights, and numbers of clusters of samples that depend on each other.
    names : tuple of str, optional
        Which measures.
    confidence : float
        Confidence of the intervals.

    Notes
    -----
    With probabilities p and their log-odds u:

    - ``observed_expected``: frequency of the positive class divided by its mean probability, also called O:E ratio or
      calibration-in-the-large. Its interval is that of the frequency (Clopper and Pearson) with the scores fixed.
    - ``calibration_intercept``: a in :math:`P(y=1) = \sigma(a + u)`, 0 if calibrated.
    - ``calibration_slope``: b in :math:`P(y=1) = \sigma(a + b u)` (Cox 1958), 1 if calibrated, below 1 if scores are
      too extreme. Maximum likelihood, with Wald intervals. A probability of 0 or 1 is read as maps read it.
    - ``spiegelhalter``: :math:`\sum (y - p)(1 - 2p)` divided by its standard deviation if p is calibrated.
    - ``top_1_percent``, ``top_5_percent``: frequency of the positive class minus its mean probability, among the
      samples with the highest scores; samples that tie with the last of them belong to them.

    References
    ----------
    Cox (1958). Two further applications of a model for binary regression. Biometrika.
    Spiegelhalter (1986). Probabilistic prediction in patient management and clinical trials. Statistics in Medicine.
    """
    samples = Samples(np.asarray(log_odds, dtype=np.float64), np.asarray(y), weight, clusters, confidence)
    return {name: MEASURES[name](samples, name) for name in names or tuple(MEASURES)}


def _observed_expected(samples: Samples, name: str) -> BinaryMeasure:
    rate, expected = samples.rate(), samples.mean_probability()
    ends = rate.interval
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        value, low, high = (float(np.divide(each, expected)) for each in (float(rate), *ends))
    return _made(samples, name, value, interval=(low, high), observed=float(rate), expected=expected)


def _intercept(samples: Samples, name: str) -> BinaryMeasure:
    if not 0 < samples.y.sum() < len(samples):
        return _made(samples, name, math.inf if samples.y[0] else -math.inf, interval=(math.nan, math.nan))
    offset = _finite_log_odds(samples)
    theta, covariance = _fitted(samples, np.ones((len(offset), 1)), offset)
    return _wald(samples, name, float(theta[0]), float(covariance[0, 0]), 0.0)


def _slope(samples: Samples, name: str) -> BinaryMeasure:
    u = _finite_log_odds(samples)
    low, high = float(u.min()), float(u.max())
    positive, negative = u[samples.y == 1], u[samples.y == 0]
    if low == high or not len(positive) or not len(negative):
        return _made(samples, name, math.nan, interval=(math.nan, math.nan))
    if negative.max() <= positive.min() or positive.max() <= negative.min():
        value = math.inf if negative.min() < positive.max() else -math.inf
        return _made(samples, name, value, interval=(math.nan, math.nan))
    centre, scale = (low + high) / 2, (high - low) / 2
    features = np.stack([np.ones_like(u), (u - centre) / scale], axis=1)
    theta, covariance = _fitted(samples, features, np.zeros_like(u))
    return _wald(samples, name, float(theta[1]) / scale, float(covariance[1, 1]) / scale**2, 1.0)


def _spiegelhalter(samples: Samples, name: str) -> BinaryMeasure:
    from scipy.special import ndtr

    p, rest = samples.probability, sigmoid(-samples.log_odds)
    weight = np.ones(len(p)) if samples.weight is None else samples.weight
    parts = np.where(samples.y == 1, rest, -p) * (rest - p)
    total = float(weight @ parts)
    if samples.clusters is None:
        variance = float(np.square(weight * (rest - p)) @ (p * rest))
    else:
        variance = float(samples.spread_of_sum(parts[:, None])[0, 0])
    if variance > 0:
        value = total / math.sqrt(variance)
    else:
        value = math.copysign(math.inf, total) if total else 0.0
    return _made(samples, name, value, p_value=float(2 * ndtr(-abs(value))))


def _top(share: float) -> Callable[[Samples, str], BinaryMeasure]:
    def measure(samples: Samples, name: str) -> BinaryMeasure:
        order = np.argsort(-samples.log_odds, kind="stable")
        running = np.cumsum(np.ones(len(order)) if samples.weight is None else samples.weight[order])
        last = int(np.searchsorted(running, share * running[-1] * (1 - 1e-12)))
        top = samples.at(samples.log_odds >= samples.log_odds[order[min(last, len(order) - 1)]])
        rate, expected = top.rate(), top.mean_probability()
        low, high = rate.interval
        return _made(
            top, name, float(rate) - expected, interval=(low - expected, high - expected), observed=float(rate),
            expected=expected,
        )  # fmt: skip

    return measure


# The measures by name.
MEASURES: Final[dict[str, Callable[[Samples, str], BinaryMeasure]]] = {
    "observed_expected": _observed_expected,
    "calibration_intercept": _intercept,
    "calibration_slope": _slope,
    "spiegelhalter": _spiegelhalter,
    "top_1_percent": _top(0.01),
    "top_5_percent": _top(0.05),
}


# What they are called for people, wherever they are shown.
TITLES: Final = {
    "observed_expected": "observed / expected",
    "calibration_intercept": "calibration intercept",
    "calibration_slope": "calibration slope",
    "top_1_percent": "excess in top 1%",
    "top_5_percent": "excess in top 5%",
    "spiegelhalter": "Spiegelhalter's test",
}
EXCESS: Final = "Excess: observed - expected frequency among the highest scores."


def _made(samples: Samples, name: str, value: float, **attributes: Any) -> BinaryMeasure:
    return BinaryMeasure(value, name=name, confidence=samples.confidence, n_samples=len(samples), **attributes)


def _finite_log_odds(samples: Samples) -> Floats:
    """Log-odds with probabilities of 0 read as half of the smallest positive one, the rule that maps have."""
    u = samples.log_odds
    known = np.isfinite(u)
    if known.all():
        return u
    if known.any():
        floor = max(float(sigmoid(-np.abs(u[known]).max(keepdims=True))[0]) / 2, SMALLEST_PROBABILITY)
    else:
        n = len(u) if samples.weight is None else float(samples.weight.sum())
        floor = 1 / (2 * (n + 1))
    limit = -math.log(floor)
    return np.asarray(np.clip(u, -limit, limit))


def _fitted(samples: Samples, features: Floats, offset: Floats) -> tuple[Floats, Floats]:
    """Coefficients of a logistic regression and their covariance; samples, not units of weight, are what varies."""
    weight = np.ones(len(offset)) if samples.weight is None else samples.weight
    outcome = weight * samples.y

    def at(theta: Floats) -> Point:
        eta = offset + features @ theta
        small = np.exp(-np.abs(eta))
        share = 1.0 / (1.0 + small)
        # A sum of terms of one sign: its rounding is a part of it, however large the log-odds are.
        loss = weight @ (np.maximum(np.where(samples.y == 1, -eta, eta), 0.0) + np.log1p(small))
        residual = weight * np.where(eta >= 0, share, small * share) - outcome
        curvature = (features.T * (weight * small * share**2)) @ features
        return Point(theta, loss, residual @ features, curvature)

    def step(point: Point) -> Floats:
        return np.asarray(-np.linalg.lstsq(point.curvature, point.gradient, rcond=None)[0])

    start = at(np.zeros(features.shape[1]))
    # Without an allowance for rounding the last step may be refused, which leaves errors of 1e-7.
    rounding = 1e-14 * float(start.value)
    found = newton(at, start, step, weight=float(weight.sum()), tolerance=1e-15, rounding=rounding)
    certify("the calibration slope and intercept", found.residual)
    point = at(found.point.theta)
    inverse = np.linalg.pinv(point.curvature)
    if samples.weight is None and samples.clusters is None:
        return point.theta, inverse
    eta = offset + features @ point.theta
    p, rest = sigmoid(eta), sigmoid(-eta)
    size = np.sqrt(p * rest) if samples.clusters is None else samples.y - p
    return point.theta, inverse @ samples.spread_of_sum(features * size[:, None]) @ inverse


def _wald(samples: Samples, name: str, value: float, variance: float, calibrated: float) -> BinaryMeasure:
    from scipy.special import ndtr, ndtri, stdtr, stdtrit

    if not variance > 0:  # so far apart that no sample tells where between two of them the optimum is
        return _made(samples, name, value, interval=(math.nan, math.nan))
    error, level = math.sqrt(variance), 0.5 + samples.confidence / 2
    if samples.clusters is None:
        reach, p_value = float(ndtri(level)), 2 * ndtr(-abs(value - calibrated) / error)
    else:
        degrees = len(np.unique(samples.clusters)) - 1
        reach, p_value = float(stdtrit(degrees, level)), 2 * stdtr(degrees, -abs(value - calibrated) / error)
    ends = value - reach * error, value + reach * error
    return _made(samples, name, value, interval=ends, p_value=float(p_value))

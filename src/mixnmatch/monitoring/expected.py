"""How good predictions are without labels: what calibrated probabilities say about their own accuracy."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.frames import check_aligned, column_names, frame_values, is_frame, order_by_name
from mixnmatch._engine.labels import as_labels, class_array, is_text, read_labels
from mixnmatch.evaluation._means import check_confidence, finite
from mixnmatch.monitoring.poisson_binomial import quantiles

Floats = NDArray[np.float64]

METRICS = ("accuracy", "f1", "roc_auc", "log_loss", "brier_score")


@dataclass(frozen=True)
class Expectation:
    """The expected value of a metric, with the interval that the metric itself falls into.

    Attributes
    ----------
    value : float
        Expectation; NaN if the metric is not defined, such as the ROC AUC of a single sample.
    low, high : float
        Interval for the metric of these samples, were their labels known: their chance is all that is uncertain.
    standard_error : float
        Standard deviation of the metric.
    """

    value: float
    low: float
    high: float
    standard_error: float

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class ExpectedPerformance:
    """Expected metrics of samples without labels.

    Attributes
    ----------
    accuracy, f1, roc_auc, log_loss, brier_score : Expectation
        For two classes, F1 and ROC AUC are those of the positive class; for more they are means over classes.
    n_samples : int
        Number of samples.
    step : str or int or None
        Time step, if steps were given.
    confidence : float
        Coverage of the intervals, if probabilities are calibrated.
    positive : label
        Name of the positive class; its column if the classes have no names, None for more than two classes.
    """

    accuracy: Expectation
    f1: Expectation
    roc_auc: Expectation
    log_loss: Expectation
    brier_score: Expectation
    n_samples: int
    step: str | int | None
    confidence: float
    positive: Any = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: numbers that are not finite become None."""
        found: dict[str, Any] = {"step": self.step, "n_samples": self.n_samples, "confidence": self.confidence}
        found["positive"] = self.positive
        for name in METRICS:
            found[name] = {key: finite(value) for key, value in asdict(getattr(self, name)).items()}
        return found

    def __str__(self) -> str:
        of = "" if self.step is None else f" of step {self.step}"
        lines = [f"Expected performance{of} ({self.n_samples} samples, {self.confidence:.0%} intervals)"]
        for name in METRICS:
            each = getattr(self, name)
            lines.append(f"  {name:<12} {each.value:.4f}  [{each.low:.4f}, {each.high:.4f}]")
        of = "mean over classes" if self.positive is None else f"of class {self.positive}"
        return "\n".join([*lines, f"F1 and ROC AUC: {of}."])


def expected_performance(
    scores: Any,
    *,
    fitted: Any = None,
    predictions: Any = None,
    ranking: Any = None,
    steps: Any = None,
    classes: Any = None,
    positive: Any = None,
    logits: bool = False,
    confidence: float = 0.95,
) -> ExpectedPerformance | tuple[ExpectedPerformance, ...]:
    r"""Estimate accuracy, F1, ROC AUC, log loss and Brier score of calibrated probabilities, without labels.

    If probabilities are calibrated, they say how often predictions are right. What they cannot see is a change in how
    labels depend on scores: for that, use a :class:`Monitor` once there are labels.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Calibrated probabilities, or the scores that ``fitted`` takes.
    fitted : CalibrationMap, optional
        Map to apply first.
    predictions : array of shape (n,), optional
        Predicted classes, if decisions are not for the most probable class.
    ranking : array of the shape of ``scores``, optional
        Scores that rank the samples for the ROC AUC, such as those before ``fitted``: a map with steps makes ties.
        The calibrated probabilities by default.
    steps : array of shape (n,), optional
        Time step of each sample; there is a result for each of them, in order of first appearance.
    classes : sequence, optional
        Names of the columns; by default those of ``fitted``, or of the columns of a data frame.
    positive : label, optional
        Of two classes, the one that F1 and ROC AUC are about; by default the second. A vector of probabilities is about
        this class.
    logits : bool
        Whether scores are logits. With ``fitted``, the map knows.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    ExpectedPerformance, or a tuple of them if there are ``steps``

    Notes
    -----
    Labels are independent with the given probabilities. The number of right predictions then has a Poisson-binomial
    distribution, whose quantiles are the interval of the accuracy. Every other metric is linear in the labels
    :math:`y_{ik}`, or is linearised at their expectation, with a coefficient :math:`d_{ik}`: its variance is
    :math:`\sum_i \bigl(\sum_k p_{ik} d_{ik}^2 - (\sum_k p_{ik} d_{ik})^2\bigr)`.

    Examples
    --------
    >>> result = expected_performance([0.1, 0.2, 0.9, 0.7])
    >>> round(float(result.accuracy), 3)
    0.825
    """
    check_confidence(confidence)
    check_aligned(scores, "scores", predictions=predictions, ranking=ranking, steps=steps)
    p, names = _probabilities(scores, fitted, logits, classes, positive)
    if not len(p):
        msg = "scores are empty: the performance on no samples is not defined"
        raise ValueError(msg)
    counted, title = _counted_classes(p.shape[1], names, positive)
    ranks = p if ranking is None else _ranking(ranking, p, names)
    if predictions is None:
        predicted = p.argmax(axis=1)
    else:
        given = as_labels(predictions, len(p))
        if fitted is None and classes is None and not is_text(given):
            names = None  # numbers are positions, whatever the columns of a data frame are called
        predicted = _read_predictions(given, p, names, positive)
    if steps is None:
        return _expected(p, predicted, ranks, None, confidence, counted, title)
    keys = np.asarray(steps)
    if keys.shape != (len(p),):
        msg = f"steps must have shape ({len(p)},), got {keys.shape}"
        raise ValueError(msg)
    unique, first, place = np.unique(keys, return_index=True, return_inverse=True)
    parts = [(_plain(unique[k]), place == k) for k in np.argsort(first)]
    return tuple(
        _expected(p[which], predicted[which], ranks[which], key, confidence, counted, title) for key, which in parts
    )


def _probabilities(
    scores: Any, fitted: Any, logits: bool, classes: Any, positive: Any
) -> tuple[Floats, NDArray[Any] | None]:
    """Calibrated probabilities, and the names of their columns, if they have any."""
    if fitted is not None:
        p = np.asarray(fitted.predict_proba(scores), dtype=np.float64)
        return p, fitted.classes_ if classes is None else class_array(classes)
    source = door.rows(scores, logits=logits, classes=classes)
    names = source.columns if classes is None and source.labels is None else source.classes
    if names is None and source.scores.vector and positive is not None:
        names = np.array([None, positive], dtype=object)  # the other class may have any name
    return np.asarray(source.block(0, source.n_rows).probabilities(), dtype=np.float64), names


def _read_predictions(given: NDArray[Any], p: Floats, names: NDArray[Any] | None, positive: Any) -> NDArray[np.intp]:
    """Columns of the predicted classes."""
    if names is not None and names[0] is None:
        codes = door.rows(p[:, 1], given, positive=positive).labels
    else:
        codes = read_labels(given, len(p), p.shape[1], names)[0]
    return np.asarray(codes, dtype=np.intp)


def _counted_classes(n_classes: int, names: NDArray[Any] | None, positive: Any) -> tuple[NDArray[np.intp], Any]:
    """The classes that F1 and ROC AUC are about, and the name of the positive one of two."""
    if n_classes != 2:
        if positive is not None:
            msg = f"positive is for two classes, the scores have {n_classes}"
            raise ValueError(msg)
        return np.arange(n_classes), None
    known = [0, 1] if names is None else names.tolist()
    if positive is None:
        return np.array([1]), known[1]
    texts = [str(name) for name in known]
    if str(positive) not in texts:
        msg = f"positive={positive!r} is not one of the classes {known!r:.200}; pass classes=[...] to name the columns"
        raise ValueError(msg)
    return np.array([texts.index(str(positive))]), positive


def _plain(key: Any) -> Any:
    return key.item() if isinstance(key, np.generic) else key


def _ranking(ranking: Any, p: Floats, names: NDArray[Any] | None) -> Floats:
    if is_frame(ranking):
        columns, ranking = column_names(ranking), frame_values(ranking)
        if ranking.shape[1] == 1:
            ranking = ranking[:, 0]
        elif columns is not None and names is not None:
            order = order_by_name(columns, names.tolist())
            if order is None:
                msg = f"ranking has the columns {columns!r:.200}, but the classes are {names.tolist()!r:.200}"
                raise ValueError(msg)
            ranking = ranking[:, order]
    values = np.asarray(ranking, dtype=np.float64)  # only their order matters
    if not np.isfinite(values).all():
        msg = "ranking holds numbers that are not finite"
        raise ValueError(msg)
    if values.ndim == 1 and p.shape[1] == 2:
        values = np.stack([-values, values], axis=1)
    if values.shape != p.shape:
        msg = f"ranking must have the shape of the scores, {p.shape}, got {values.shape}"
        raise ValueError(msg)
    return values


def _expected(
    p: Floats,
    predicted: NDArray[np.intp],
    ranks: Floats,
    step: Any,
    confidence: float,
    counted: NDArray[np.intp],
    positive: Any,
) -> ExpectedPerformance:
    x = np.log(np.where(p > 0, p, 1.0))
    squared = 1 + np.square(p).sum(axis=1, keepdims=True) - 2 * p
    return ExpectedPerformance(
        accuracy=_accuracy(p, predicted, confidence),
        f1=_bounded(*_f1(p, predicted, counted), p, confidence),
        roc_auc=_bounded(*_roc_auc(p, ranks, counted), p, confidence),
        log_loss=_linear(-x / len(p), p, confidence, math.inf),
        brier_score=_linear(squared / len(p), p, confidence, 2.0),
        n_samples=len(p),
        step=step,
        confidence=confidence,
        positive=positive,
    )


def _accuracy(p: Floats, predicted: NDArray[np.intp], confidence: float) -> Expectation:
    right = np.clip(p[np.arange(len(p)), predicted], 0.0, 1.0)
    low, high = quantiles(right, ((1 - confidence) / 2, (1 + confidence) / 2))
    error = math.sqrt(float((right * (1 - right)).sum())) / len(p)
    return Expectation(float(right.mean()), low / len(p), high / len(p), error)


def _linear(coefficients: Floats, p: Floats, confidence: float, largest: float) -> Expectation:
    value = float((p * coefficients).sum())
    return _with_interval(value, _standard_error(p, coefficients), confidence, largest)


def _bounded(value: float, coefficients: Floats, p: Floats, confidence: float) -> Expectation:
    if math.isnan(value):
        return Expectation(math.nan, math.nan, math.nan, math.nan)
    return _with_interval(value, _standard_error(p, coefficients), confidence, 1.0)


def _with_interval(value: float, error: float, confidence: float, largest: float) -> Expectation:
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * error
    return Expectation(value, max(value - reach, 0.0), min(value + reach, largest), error)


def _standard_error(p: Floats, coefficients: Floats) -> float:
    mean = (p * coefficients).sum(axis=1)
    return math.sqrt(max(float((p * coefficients**2).sum() - (mean**2).sum()), 0.0))


def _f1(p: Floats, predicted: NDArray[np.intp], counted: NDArray[np.intp]) -> tuple[float, Floats]:
    """F1 = 2 TP / (predicted + actual), and how it changes with each label."""
    chosen = np.zeros_like(p)
    chosen[np.arange(len(p)), predicted] = 1.0
    hits, sizes = (p * chosen).sum(axis=0), chosen.sum(axis=0) + p.sum(axis=0)
    used = counted[sizes[counted] > 0]
    coefficients = np.zeros_like(p)
    if not len(used):
        return math.nan, coefficients
    size = sizes[used]
    coefficients[:, used] = (2 * chosen[:, used] / size - 2 * hits[used] / size**2) / len(used)
    return float((2 * hits[used] / size).mean()), coefficients


def _roc_auc(p: Floats, ranks: Floats, counted: NDArray[np.intp]) -> tuple[float, Floats]:
    """Area under the ROC curve of each class against the rest, and how their mean changes with each label."""
    coefficients, values, used = np.zeros_like(p), [], []
    for k in counted:
        value, own = _class_auc(p[:, k], ranks[:, k])
        if not math.isnan(value):
            values.append(value)
            used.append(k)
            coefficients[:, k] = own
    if not values:
        return math.nan, coefficients
    coefficients /= len(used)
    return float(np.mean(values)), coefficients


def _class_auc(p: Floats, ranks: Floats) -> tuple[float, Floats]:
    # Pairs (i, j) in which i is positive and j is not are ordered rightly if i ranks above j, and half so in ties.
    values, place = np.unique(ranks, return_inverse=True)
    positive = np.bincount(place, p, minlength=len(values))
    negative = np.bincount(place, 1 - p, minlength=len(values))
    below = (np.cumsum(negative) - negative / 2)[place] - (1 - p) / 2
    above = (positive.sum() - np.cumsum(positive) + positive / 2)[place] - p / 2
    own = float((p * (1 - p)).sum())
    positives, negatives = float(p.sum()), float((1 - p).sum())
    pairs = positives * negatives - own
    if pairs <= 1e-9 * max(positives, negatives, 1.0):
        return math.nan, np.zeros_like(p)
    value = float((p * below).sum()) / pairs
    slope = (negatives - positives) - (1 - 2 * p)
    return value, (below - above - value * slope) / pairs

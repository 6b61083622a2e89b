"""How good predictions are without labels: what calibrated probabilities say about their own accuracy."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door, frames
from mixnmatch._engine.class_names import as_numbers
from mixnmatch._engine.errors import InputError
from mixnmatch._engine.labels import as_labels, class_array, is_text
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import from_tensor
from mixnmatch.evaluation._means import check_confidence, finite
from mixnmatch.maps.class_order import after_map, rows_for
from mixnmatch.maps.parameters import check_fitted_map
from mixnmatch.monitoring.poisson_binomial import quantiles

Floats = NDArray[np.float64]
Columns = NDArray[np.intp]
Names = list[NDArray[Any]]

METRICS = ("accuracy", "f1", "roc_auc", "log_loss", "brier_score")


@dataclass(frozen=True)
class Expectation:
    """The expected value of a metric, with the interval that the metric itself falls into.

    Attributes
    ----------
    value : float
        Expectation; NaN if the metric is not defined, such as the ROC AUC of a single sample.
    low, high : float
        Interval for the metric that the labels of these samples will give. It accounts for chance in the labels only.
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
    step : str, int, float, date or None
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
    step: Any
    confidence: float
    positive: Any = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: numbers that are not finite become None, dates become text (ISO 8601)."""
        found: dict[str, Any] = {"step": _for_json(self.step), "n_samples": self.n_samples}
        found |= {"confidence": self.confidence, "positive": _for_json(self.positive)}
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

    If probabilities are calibrated, they say how often predictions are right. They cannot detect a change in how
    labels depend on scores: for that, use a :class:`Monitor` once there are labels.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Calibrated probabilities, or the scores that ``fitted`` takes.
    fitted : CalibrationMap, optional
        Map to apply first.
    predictions : array of shape (n,), optional
        Predicted classes, if decisions are not for the most probable class, spelled as labels for :func:`evaluate`.
    ranking : array of the shape of ``scores``, or of shape (n,) for two classes, optional
        Scores that rank the samples for the ROC AUC, such as those before ``fitted``: a map with steps makes ties.
        The calibrated probabilities by default. Columns of a data frame are matched by name. A vector is about the
        class that it is called like, if it is a pandas or polars column, otherwise about the positive class.
    steps : array of shape (n,), optional
        Time step of each sample; there is a result for each of them, in order of first appearance.
    classes : sequence, optional
        Names of the columns, in order; by default those of ``fitted``, or of the columns of a data frame.
    positive : label, optional
        Of two classes, the one that F1 and ROC AUC are about; by default the second, or the name of a vector of
        scores. A vector of scores without the name of a class is about this class, as for :func:`evaluate`.
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
    _check_indexes(scores=scores, predictions=predictions, ranking=ranking, steps=steps)
    p, predicted, known = _read(scores, predictions, fitted, logits, classes, positive)
    counted, title = _counted_classes(p.shape[1], known, positive)
    ranks = p if ranking is None else _ranking(ranking, p, known, int(counted[0]))
    if steps is None:
        return _expected(p, predicted, ranks, None, confidence, counted, title)
    keys, place = _read_steps(steps, len(p))
    ends = np.cumsum(np.bincount(place, minlength=len(keys)))[:-1]
    parts = np.split(np.argsort(place, kind="stable"), ends)
    return tuple(
        _expected(p[rows], predicted[rows], ranks[rows], key, confidence, counted, title)
        for key, rows in zip(keys, parts, strict=True)
    )


def _check_indexes(**given: Any) -> None:
    """Raise an error if any two pandas objects have different indexes."""
    names = list(given)
    for k, name in enumerate(names):
        frames.check_aligned(given[name], name, **{other: given[other] for other in names[k + 1 :]})


def _read(
    scores: Any, predictions: Any, fitted: Any, logits: bool, classes: Any, positive: Any
) -> tuple[Floats, Columns, Names]:
    """Calibrated probabilities, the column of each prediction, and the names that the columns go by."""
    if isinstance(scores, Rows):
        if fitted is not None:
            fitted._check_form(scores)
        scores, logits, classes = _unpacked(scores, logits, classes)
    vector, name = _vector_name(scores)
    if fitted is not None:
        check_fitted_map(fitted)
        logits = fitted.takes_logits
        if classes is None and vector and positive is not None and frames.class_called(name, fitted.classes_) is None:
            classes = fitted.classes_  # the vector is about the positive class, whatever the map was fitted on
    by_map = fitted is not None and classes is None
    if by_map:
        given = rows_for(fitted, scores, predictions)
    else:
        named = _spelled(positive, predictions, classes) if vector else None
        given = _checked(scores, predictions, logits=logits, classes=classes, positive=named)
        if vector and predictions is None and classes is None:
            given = replace(given, classes=_two_names(name, positive))
    known = _known_names(given, scores, fitted if by_map else None, classes)
    known = [spelt for names in known for spelt in (names, *frames.spellings(names.tolist()))]
    given = given.in_memory()
    after = given if fitted is None or by_map else after_map(given, fitted)
    p = fitted.predict_proba(given) if by_map else after.block(0, given.n_rows).probabilities()
    predicted = np.argmax(p, axis=1) if predictions is None else given.labels
    return np.asarray(p, dtype=np.float64), np.asarray(predicted, dtype=np.intp), known


def _vector_name(scores: Any) -> tuple[bool, Any]:
    """Whether these are scores of one class, and the name of their column, if it has one."""
    if frames.is_frame(scores):
        names = frames.column_names(scores)
        return scores.shape[1] == 1, names[0] if names and len(names) == 1 else None
    name = scores.name if frames.is_series(scores) else None
    return door.is_vector(scores), None if name == "" else name


def _checked(scores: Any, predictions: Any, **settings: Any) -> Rows:
    """Rows with predictions in place of labels."""
    try:
        return door.rows(scores, predictions, **settings)
    except InputError as error:
        raise InputError(error.template, **error.fields, say_positive="pass positive=...") from None


def _unpacked(given: Rows, logits: bool, classes: Any) -> tuple[Any, bool, Any]:
    """Scores of checked rows, whether they are logits, and the names of their classes; labels are not used."""
    door.rows(given, logits=logits, classes=classes)  # refuses others
    values, names = given.scores.values, given.classes
    if given.columns is not None:
        values = frames.NamedColumns(values, given.columns.tolist())
    counted = names is None or names.tolist() == [*range(given.n_classes)]
    return values, given.scores.logits, classes if classes is not None or counted else names


def _spelled(positive: Any, predictions: Any, classes: Any) -> Any:
    """The positive class as the classes or the predictions spell it."""
    if positive is None or (classes is None and predictions is None):
        return None
    if classes is not None:
        names = class_array(classes)
        place = frames.class_called(positive, names)
        return positive if place is None else names.tolist()[place]
    if is_text(as_labels(predictions, len(predictions))):
        return str(positive)
    return (as_numbers([positive]) or [positive])[0]


def _two_names(name: Any, positive: Any) -> NDArray[Any]:
    """Names of two classes for a vector that is called ``name``, where nothing else says what the classes are."""
    same_kind = (as_numbers([name]) is None) == (as_numbers([positive]) is None)
    if None not in (name, positive) and same_kind and frames.class_called(name, np.array([positive])) is None:
        msg = f"the column of scores is called {name!r}, but positive={positive!r}: rename it, or pass classes=[...]"
        raise ValueError(msg)
    chosen = name if positive is None else positive
    if chosen is None:
        return np.arange(2)
    number = as_numbers([chosen])
    return np.array([f"not {chosen}", str(chosen)] if number is None else [int(number[0] == 0), *number])


def _known_names(given: Rows, scores: Any, fitted: Any, classes: Any) -> Names:
    """Names that the columns go by, the best first: of the map, of classes, or of a data frame read by position."""
    if fitted is not None:
        known = [fitted.classes_, *([fitted.columns_] if hasattr(fitted, "columns_") else [])]
        columns = frames.column_names(scores) if frames.is_frame(scores) else None
        if columns and len(columns) > 1 and all(frames.order_by_name(columns, each.tolist()) is None for each in known):
            known.append(np.array([str(name) for name in columns]))  # which the map has read by position
        return known
    named, own = np.asarray(given.classes), given.columns
    if own is None:
        return [named]
    matched = given.labels is not None and frames.order_by_name(own.tolist(), named.tolist()) is not None
    return [named, own] if matched or classes is not None else [own, named]


def _place(name: Any, known: Names) -> int | None:
    """Column that a name stands for, however it is written; None if it stands for none."""
    spelt = (np.array(each) for names in known for each in (names, as_numbers(names.tolist()) or []))
    found = (frames.class_called(name, names) for names in spelt)
    return next((place for place in found if place is not None), None)


def _counted_classes(n_classes: int, known: Names, positive: Any) -> tuple[Columns, Any]:
    """The classes that F1 and ROC AUC are about, and the name of the positive one of two."""
    if n_classes != 2:
        if positive is not None:
            msg = f"positive is for two classes, the scores have {n_classes}"
            raise ValueError(msg)
        return np.arange(n_classes), None
    names = known[0].tolist()
    place = 1 if positive is None else _place(positive, known)
    if place is None:
        msg = f"positive={positive!r} is not one of the classes {names!r:.200}; pass classes=[...] to name the columns"
        raise ValueError(msg)
    return np.array([place]), names[place]


def _ranking(ranking: Any, p: Floats, known: Names, positive: int) -> Floats:
    """What ranks the samples for each class: only the order of the numbers matters."""
    try:
        vector, name = _vector_name(ranking)
        values = frames.frame_values(ranking) if frames.is_frame(ranking) else from_tensor(ranking)
        values = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        msg = f"ranking: {error}".replace("of the scores", "of the ranking")
        raise ValueError(msg) from None
    if not np.isfinite(values).all():
        msg = f"ranking: row {np.argwhere(~np.isfinite(values))[0][0]} holds a number that is not finite"
        raise ValueError(msg)
    if vector and p.shape[1] == 2:
        values = values.reshape(-1)
        place = None if name is None else _place(name, known)
        sign = -1 if (positive if place is None else place) == 0 else 1
        values = np.stack([-sign * values, sign * values], axis=1)
    if values.shape != p.shape:
        msg = f"ranking must have the shape of the scores, {p.shape}, got {values.shape}"
        raise ValueError(msg)
    return values if vector or not frames.is_frame(ranking) else values[:, _ranking_order(ranking, known)]


def _ranking_order(ranking: Any, known: Names) -> Columns:
    """Its columns in the order of the classes; as they are where either has no names."""
    columns, counts = frames.column_names(ranking), list(range(ranking.shape[1]))
    for names in known:
        order = frames.order_by_name(counts if columns is None else columns, names.tolist())
        if order is not None:
            return order
    nameless = all(names.tolist() == counts for names in known)
    if columns is None or (nameless and as_numbers(columns) is None):
        return np.array(counts)
    msg = f"ranking has the columns {columns!r:.200}, but the classes are {known[0].tolist()!r:.200}"
    raise ValueError(msg)


def _read_steps(steps: Any, n_rows: int) -> tuple[list[Any], Columns]:
    """All steps in order of first appearance, and the place of each sample's step among them."""
    keys = np.array(steps, dtype=object) if isinstance(steps, list | tuple) else np.asarray(from_tensor(steps))
    if keys.shape != (n_rows,):
        msg = f"steps must have shape ({n_rows},), got {keys.shape}"
        raise ValueError(msg)
    if keys.dtype.kind in "mM" and np.datetime_data(keys.dtype)[0] == "ns":
        keys = keys.astype(f"{keys.dtype.kind}8[us]")  # Python has no dates in nanoseconds
    plain = [_plain(key) for key in keys.tolist()]
    for row, key in enumerate(plain):
        if key is None or type(key).__name__ in ("NAType", "NaTType") or key != key:
            msg = f"steps: row {row} has no value ({key}); drop or fill missing ones first"
            raise ValueError(msg)
    places = {key: k for k, key in enumerate(dict.fromkeys(plain))}
    return list(places), np.array([places[key] for key in plain], dtype=np.intp)


def _plain(key: Any) -> Any:
    return key.item() if isinstance(key, np.generic) else key


def _for_json(value: Any) -> Any:
    """A value that JSON knows, or its text."""
    value = _plain(value)
    if value is None or isinstance(value, str | int | float):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _expected(
    p: Floats, predicted: Columns, ranks: Floats, step: Any, confidence: float, counted: Columns, positive: Any
) -> ExpectedPerformance:
    x = np.log(np.where(p > 0, p, 1.0))
    squared = 1 + np.square(p).sum(axis=1, keepdims=True) - 2 * p
    return ExpectedPerformance(
        accuracy=_accuracy(p, predicted, confidence),
        f1=_linearised(*_f1(p, predicted, counted), p, confidence),
        roc_auc=_linearised(*_roc_auc(p, ranks, counted), p, confidence),
        log_loss=_linear(-x / len(p), p, confidence, math.inf),
        brier_score=_linear(squared / len(p), p, confidence, 2.0),
        n_samples=len(p),
        step=step,
        confidence=confidence,
        positive=positive,
    )


def _accuracy(p: Floats, predicted: Columns, confidence: float) -> Expectation:
    right = np.clip(p[np.arange(len(p)), predicted], 0.0, 1.0)
    low, high = quantiles(right, ((1 - confidence) / 2, (1 + confidence) / 2))
    error = math.sqrt(float((right * (1 - right)).sum())) / len(p)
    return Expectation(float(right.mean()), low / len(p), high / len(p), error)


def _linear(coefficients: Floats, p: Floats, confidence: float, largest: float) -> Expectation:
    return _linearised(float((p * coefficients).sum()), coefficients, p, confidence, largest)


def _linearised(value: float, coefficients: Floats, p: Floats, confidence: float, largest: float = 1.0) -> Expectation:
    if math.isnan(value):
        return Expectation(math.nan, math.nan, math.nan, math.nan)
    mean = (p * coefficients).sum(axis=1)
    error = math.sqrt(max(float((p * coefficients**2).sum() - (mean**2).sum()), 0.0))
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * error
    return Expectation(value, max(value - reach, 0.0), min(value + reach, largest), error)


def _f1(p: Floats, predicted: Columns, counted: Columns) -> tuple[float, Floats]:
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


def _roc_auc(p: Floats, ranks: Floats, counted: Columns) -> tuple[float, Floats]:
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

"""Scores, class names and sample weights of scikit-learn classifiers, as calibration needs them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import has_fit_parameter

from mixnmatch._engine.errors import caller_level
from mixnmatch._engine.labels import is_text, plain_names
from mixnmatch.exceptions import CalibrationWarning

__all__ = [
    "class_names",
    "codes_of",
    "is_pairwise",
    "read_targets",
    "score_method",
    "scores_of",
    "softmax",
    "warn_of_class_weights",
    "weight_parameter",
]

PROBABILITIES, LOGITS = "predict_proba", "decision_function"
# Weights that change the frequency of the rarest class by less than this factor are not worth a warning.
CLASS_WEIGHT_FACTOR = 1.5


def score_method(estimator: Any, *, prefer: str = LOGITS) -> str:
    """Return the method that scores come from: ``prefer`` if the estimator has it, otherwise the other one."""
    second = PROBABILITIES if prefer == LOGITS else LOGITS
    for name in (prefer, second):
        if hasattr(estimator, name):
            return name
    msg = f"{estimator!r} has neither predict_proba nor decision_function, and so no scores to calibrate"
    raise ValueError(msg)


def scores_of(estimator: Any, X: Any, *, method: str | None = None, prefer: str = LOGITS) -> tuple[NDArray[Any], bool]:
    """Return the scores of a fitted classifier, and whether they are logits.

    Parameters
    ----------
    estimator : fitted classifier
        Any object with ``classes_`` and ``decision_function`` or ``predict_proba``.
    X : array or data frame
        Features.
    method : {"decision_function", "predict_proba"}, optional
        Where scores come from.
    prefer : {"decision_function", "predict_proba"}
        Where they come from without ``method``, if the classifier has both.

    Returns
    -------
    scores : array of shape (n, L), or (n,) for two classes
        In the order of ``classes_``; a vector holds the second class.
    logits : bool
        Whether they are logits: what ``decision_function`` gives is taken as such.

    Notes
    -----
    A pairwise decision function, that of a support vector machine with ``decision_function_shape="ovo"``, has one
    column for each pair of classes. Its columns become votes for the classes, with the sum of the margins to break
    ties: the scores that the same machine gives with ``decision_function_shape="ovr"``.
    """
    use = score_method(estimator, prefer=prefer) if method is None else method
    n_classes = len(estimator.classes_)
    scores = np.asarray(getattr(estimator, use)(X))
    if scores.ndim == 2 and n_classes == 2:
        # Some libraries give the positive class as a single column.
        if scores.shape[1] == 1 or use == PROBABILITIES:
            scores = scores[:, -1]
    elif n_classes > 2 and use == LOGITS and is_pairwise(estimator):
        scores = _votes(scores, n_classes)
    width = 2 if scores.ndim == 1 else scores.shape[1]
    if width == n_classes and not (use == LOGITS and n_classes == 3 and _may_be_pairwise(estimator)):
        return scores, use == LOGITS
    if method is None and use == LOGITS and hasattr(estimator, PROBABILITIES):
        return scores_of(estimator, X, method=PROBABILITIES)
    of = f"{use} of {type(estimator).__name__}"
    if width == n_classes:
        msg = f"{of} may compare pairs of classes, which three columns do not show; set decision_function_shape='ovr'"
        raise ValueError(msg)
    hint = "; if it compares pairs of classes, set decision_function_shape='ovr'" if use == LOGITS else ""
    msg = f"{of} gives {width} columns for {n_classes} classes{hint}"
    raise ValueError(msg)


def is_pairwise(estimator: Any) -> bool:
    """Whether the decision function of a classifier has a column for each pair of classes."""
    return getattr(_innermost(estimator), "decision_function_shape", None) == "ovo"


def _may_be_pairwise(estimator: Any) -> bool:
    """Whether a classifier somewhere inside is pairwise, and nothing is known of what becomes of its scores."""
    if is_pairwise(estimator) or not hasattr(estimator, "get_params"):
        return False
    params = estimator.get_params(deep=True)
    return any(key.endswith("__decision_function_shape") and value == "ovo" for key, value in params.items())


def _innermost(estimator: Any) -> Any:
    """The classifier whose decision function a pipeline, a search or a frozen estimator hands on."""
    while True:
        if isinstance(estimator, Pipeline):
            estimator = estimator.steps[-1][1]
        elif isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            return estimator


def _votes(margins: NDArray[Any], n_classes: int) -> NDArray[np.float64]:
    """Scores of the classes from those of their pairs (0, 1), (0, 2), ...: a positive margin is for the first.

    Each class has its number of votes plus s / (3 (|s| + 1)), s being the sum of its margins: less than half a vote.
    """
    first, second = np.triu_indices(n_classes, 1)
    if margins.shape[1] != len(first):
        msg = f"a pairwise decision function of {n_classes} classes has {len(first)} columns, not {margins.shape[1]}"
        raise ValueError(msg)
    votes, sums = np.zeros((2, len(margins), n_classes))
    for k, (i, j) in enumerate(zip(first, second, strict=True)):
        margin = margins[:, k]
        votes[:, i] += margin >= 0
        votes[:, j] += margin < 0
        sums[:, i] += margin
        sums[:, j] -= margin
    return np.asarray(votes + sums / (3 * (np.abs(sums) + 1)))


def softmax(scores: NDArray[Any]) -> NDArray[np.float64]:
    """Probabilities of logits, n x L; a vector holds the second of two classes."""
    table = np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores
    p = np.exp(table - table.max(axis=1, keepdims=True), dtype=np.float64)
    p /= p.sum(axis=1, keepdims=True)
    return np.asarray(p)


def read_targets(y: Any) -> NDArray[Any]:
    """Labels of samples as a vector of numbers or text; a missing label is refused by its row."""
    labels = column_or_1d(y.to_numpy() if hasattr(y, "to_numpy") else y, warn=True)
    if labels.dtype.kind == "O":
        missing = np.fromiter(map(_is_missing, labels.tolist()), dtype=bool, count=len(labels))
    else:
        missing = labels != labels  # NaN and NaT
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        msg = f"label {labels[row]} in row {row} is not a class; leave out samples whose label is missing"
        raise ValueError(msg)
    labels = plain_names(labels, "labels")
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    return labels


def _is_missing(label: Any) -> bool:
    return label is None or type(label).__name__ == "NAType" or (isinstance(label, float) and label != label)


def codes_of(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Return the positions of labels among the classes of an estimator."""
    unknown = np.ones(len(labels), dtype=bool)
    codes = np.zeros(len(labels), dtype=np.intp)
    classes = plain_names(classes, "classes")
    if is_text(labels) == is_text(classes):
        order = np.argsort(classes)
        position = np.minimum(np.searchsorted(classes, labels, sorter=order), len(classes) - 1)
        codes = order[position]
        unknown = classes[codes] != labels
    if unknown.any():
        label = labels[unknown][:1].tolist()[0]
        known = f"the classes {classes.tolist()!r:.200} of the fitted classifier"
        msg = f"labels such as {label!r:.80} are not among {known}; encode them alike"
        raise ValueError(msg)
    return codes


def class_names(classes: Any) -> NDArray[Any]:
    """Return class labels as maps take and save them: whole numbers or text."""
    names = np.asarray(classes)
    if names.dtype.kind == "O" and all(isinstance(name, int | np.integer) for name in names):
        return names.astype(np.int64)
    if names.dtype.kind == "b":
        return names.astype(np.int64)
    if names.dtype.kind == "S":
        return np.char.decode(names)
    if names.dtype.kind == "f" and ((names == np.floor(names)) & (np.abs(names) < 2.0**53)).all():
        return names.astype(np.int64)
    return names if names.dtype.kind in "iufU" else names.astype(str)


def weight_parameter(estimator: Any) -> str | None:
    """Return the parameter of ``fit`` that sample weights go to; of a pipeline, that of its last step."""
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inside = None if last is None or isinstance(last, str) else weight_parameter(last)
        return None if inside is None else f"{name}__{inside}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def warn_of_class_weights(weight: NDArray[np.float64], codes: NDArray[np.intp], classes: NDArray[Any]) -> None:
    """Warn if sample weights are class weights that make the rarest class more frequent.

    Weights that undo a sampling of the classes make it rarer.
    """
    counts, sums = np.bincount(codes), np.bincount(codes, weight)
    mean = np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)
    if (np.abs(weight - mean[codes]) > 1e-9 * mean[codes]).any():
        return
    before, after = counts / counts.sum(), sums / sums.sum()
    rarest = int(np.where(counts > 0, before, np.inf).argmin())
    if after[counts > 0].min() <= CLASS_WEIGHT_FACTOR * before[rarest]:
        return
    msg = (
        f"sample_weight depends on the class alone and is also used to fit the calibration map: the calibrated "
        f"probabilities are those of a population in which class {classes[rarest]} makes up {after[rarest]:.1%}, not "
        f"{before[rarest]:.1%}. To weight classes in the training only, leave sample_weight out and use the "
        "class_weight of the estimator, or make_pipeline(estimator) and fit(X, y, step__sample_weight=...)"
    )
    warnings.warn(msg, CalibrationWarning, stacklevel=caller_level())

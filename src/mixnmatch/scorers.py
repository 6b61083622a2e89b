"""Calibration scorers for scikit-learn's ``cross_val_score``, ``GridSearchCV`` and similar functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metadata_routing import UNCHANGED, MetadataRequest

from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch._estimators import class_names, codes_of
from mixnmatch.evaluation.error import calibration_error
from mixnmatch.evaluation.scores import brier_score, log_loss

__all__ = ["CalibrationScorer", "calibration_error_loss", "get_scorer", "get_scorer_names", "make_calibration_scorer"]

# A metric of this package: scores, labels, and keywords sample_weight and classes.
Metric = Callable[..., float]


class CalibrationScorer:
    """A scorer for :class:`sklearn.model_selection.GridSearchCV` and similar classes; higher is better.

    Use :func:`get_scorer` or :func:`make_calibration_scorer` to make one. The columns of ``predict_proba`` are matched
    with the ``classes_`` of the classifier, so labels may lack a class. A label that the classifier does not know has
    probability 0.

    Parameters
    ----------
    metric : callable
        ``metric(scores, y, sample_weight=..., classes=...)``; lower is better.
    name : str
        Name of the scorer.
    """

    def __init__(self, metric: Metric, name: str) -> None:
        self.metric = metric
        self.name = name
        self._request = MetadataRequest(owner=self)
        self._request.score.add_request(param="sample_weight", alias=None)

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the negative metric of the probabilities that ``estimator`` predicts for ``X``, given labels ``y``."""
        if not hasattr(estimator, "predict_proba"):
            msg = (
                f"{self.name} needs predict_proba, which {type(estimator).__name__} does not have; wrap it in "
                "CalibratedClassifier"
            )
            raise AttributeError(msg)
        p = np.asarray(estimator.predict_proba(X))
        return -_value(self.metric, np.asarray(y), p, np.asarray(estimator.classes_), sample_weight)

    def set_score_request(self, *, sample_weight: bool | str | None = UNCHANGED) -> Self:
        """Request sample weights, for scikit-learn's metadata routing.

        Parameters
        ----------
        sample_weight : bool, str or None
            As for scikit-learn's scorers: True, False, or the name under which the weights are passed.
        """
        if sample_weight is not UNCHANGED:
            self._request.score.add_request(param="sample_weight", alias=sample_weight)
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """Return the metadata request, for scikit-learn."""
        return self._request

    def __repr__(self) -> str:
        """The call that makes the scorer."""
        known = self.name in _METRICS
        return f"get_scorer({self.name!r})" if known else f"make_calibration_scorer({self.name})"


def calibration_error_loss(
    y_true: Any, y_proba: Any, *, labels: Any = None, sample_weight: Any = None, **options: Any
) -> float:
    """Calibration error with the argument order of scikit-learn's metrics, for ``make_scorer``.

    Parameters
    ----------
    y_true : array of shape (n,)
        Labels.
    y_proba : array of shape (n, L) or (n,)
        Probabilities, with columns in the sorted order of the labels; a vector is for the second of two classes.
    labels : sequence, optional
        All class labels, in any order; by default those in ``y_true``.
    sample_weight : array of shape (n,), optional
        Weights.
    **options
        Options of :func:`mixnmatch.calibration_error`, such as ``notion``, ``estimator`` and ``norm``.

    Returns
    -------
    float
        The error; lower is better.

    Examples
    --------
    >>> round(calibration_error_loss(["no", "no", "yes", "yes"], [0.1, 0.2, 0.7, 0.9], estimator="histogram"), 3)
    0.175
    """
    truth = np.asarray(y_true)
    classes = np.unique(truth if labels is None else np.asarray(labels))
    p = np.asarray(y_proba)
    if p.ndim == 1:
        p = np.stack([1 - p, p], axis=1)
    if p.shape[1] != len(classes):
        msg = f"y_proba has {p.shape[1]} columns, but there are {len(classes)} labels; pass labels=[...], all of them"
        raise ValueError(msg)
    return _value(partial(calibration_error, **options), truth, p, classes, sample_weight)


def _value(metric: Metric, y: NDArray[Any], p: NDArray[Any], classes: NDArray[Any], weight: Any) -> float:
    """A metric of probabilities whose columns are ``classes``; for two classes, that of the second one."""
    every = np.union1d(classes, y)
    if len(every) > len(classes):
        known, p = p, np.zeros((len(p), len(every)))
        p[:, codes_of(classes, every)] = known
    elif not np.array_equal(every, classes):  # a classifier with classes in another order
        p = p[:, np.argsort(classes)]
    names = class_names(every)
    labels = names[codes_of(y, every)]
    return float(metric(p[:, 1] if len(every) == 2 else p, labels, sample_weight=weight, classes=names))


_METRICS: dict[str, Metric] = {
    "neg_calibration_error": calibration_error,
    "neg_class_wise_calibration_error": partial(calibration_error, notion="class-wise"),
    "neg_smooth_calibration_error": partial(calibration_error, estimator="smooth"),
    "neg_brier_score": partial(brier_score, scale_by_half="auto"),
    "neg_log_loss": log_loss,
}


def get_scorer(name: str) -> CalibrationScorer:
    """Return a scorer by its name.

    Parameters
    ----------
    name : str
        ``neg_calibration_error`` (top-label; for two classes, of the second class),
        ``neg_class_wise_calibration_error``, ``neg_smooth_calibration_error``, ``neg_brier_score`` or
        ``neg_log_loss``. The last two equal scikit-learn's scorers of the same name.

    Returns
    -------
    CalibrationScorer
        A scorer for ``scoring=``. Higher is better, so errors and losses are negative.

    Notes
    -----
    Select models by a proper score, ``neg_log_loss`` or ``neg_brier_score``, not by a calibration error: a model that
    predicts the base rate for every sample has a calibration error of 0.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> bool((cross_val_score(GaussianNB(), X, y, scoring=get_scorer("neg_calibration_error")) < 0).all())
    True
    """
    metric = _METRICS.get(name)
    if metric is None:
        msg = f"there is no scorer {name!r}; scorers are {', '.join(_METRICS)}{did_you_mean(name, _METRICS)}"
        raise ValueError(msg)
    return CalibrationScorer(metric, name)


def get_scorer_names() -> list[str]:
    """Return the names of all scorers, sorted.

    Examples
    --------
    >>> "neg_calibration_error" in get_scorer_names()
    True
    """
    return sorted(_METRICS)


def make_calibration_scorer(**options: Any) -> CalibrationScorer:
    """Make a scorer from options of :func:`mixnmatch.calibration_error`.

    Parameters
    ----------
    **options
        Such as ``notion``, ``estimator``, ``norm`` and ``bins``.

    Returns
    -------
    CalibrationScorer
        A scorer that returns the negative calibration error.

    Examples
    --------
    >>> make_calibration_scorer(estimator="histogram", bins=10)
    make_calibration_scorer(estimator='histogram', bins=10)
    """
    described = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return CalibrationScorer(partial(calibration_error, **options), described)

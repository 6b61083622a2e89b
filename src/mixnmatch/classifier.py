"""A scikit-learn classifier around any classifier and any calibration map."""

from __future__ import annotations

from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.utils import assert_all_finite, column_or_1d, get_tags, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, has_fit_parameter

from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.external import calibration_map
from mixnmatch.registry import calibrator

_SCORES = ("auto", "decision_function", "predict_proba")


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier with calibrated probabilities.

    Parameters
    ----------
    estimator : classifier, optional
        Any classifier with ``decision_function`` (taken as logits) or ``predict_proba``; logistic regression if not
        given. A classifier that is fitted already is passed as scikit-learn's ``FrozenEstimator(classifier)``; then all
        of X is the calibration set.
    map : str or map
        Calibration map, or its short name.
    cv : int or splitter
        Folds. The scores of each row come from a copy of the estimator that has not seen it.
    ensemble : bool
        False: one map is fitted to all out-of-fold scores, and the estimator to all rows. True: each fold keeps its
        estimator and a map fitted on the rows left out, and predictions are averaged.
    scores : {"auto", "decision_function", "predict_proba"}
        Where scores come from; "auto" takes ``decision_function`` if there is one.

    Attributes
    ----------
    classes_ : array
        Class labels.
    pairs_ : list of (estimator, map)
        Fitted pairs: one, or one for each fold.

    Notes
    -----
    A class that is missing from the training part of a fold has no column in that fold's scores; it counts as
    probability 0 there instead of stopping the fit or moving the other columns.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> model = CalibratedClassifier(GaussianNB(), map="ets").fit(X, y)
    >>> model.predict_proba(X[:1]).shape
    (1, 3)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        map: Any = "ets",  # noqa: A002
        cv: Any = 5,
        ensemble: bool = False,
        scores: str = "auto",
    ):
        self.estimator = estimator
        self.map = map
        self.cv = cv
        self.ensemble = ensemble
        self.scores = scores

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Fit the estimator (unless it is frozen) and the map.

        ``fit_params`` go to the estimator's fit.
        """
        if self.scores not in _SCORES:
            msg = f"scores must be one of {_SCORES}, got {self.scores!r}"
            raise ValueError(msg)
        X, y = indexable(X, y)
        labels = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        estimator = LogisticRegression() if self.estimator is None else self.estimator
        if not is_classifier(estimator):
            msg = f"CalibratedClassifier needs a classifier, got {estimator!r}"
            raise ValueError(msg)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X)
        if isinstance(estimator, FrozenEstimator):
            classes = np.asarray(estimator.classes_)
            codes = _codes(labels, classes)
            pairs: list[tuple[Any, CalibrationMap | None]]
            pairs = [(estimator, self._fit_map(*self._scores_of(estimator, X, classes), codes, sample_weight))]
        else:
            # A row of weight 0 is not there; it only keeps its place for splitters that name rows.
            there = np.ones(len(labels), dtype=bool) if sample_weight is None else sample_weight > 0
            classes = np.unique(labels[there])
            codes = np.zeros(len(labels), dtype=np.intp)
            codes[there] = _codes(labels[there], classes)
            if len(classes) < 2:
                # One class leaves nothing to calibrate; the estimator decides whether that is an error.
                rows = np.flatnonzero(there)
                pairs = [(self._fit_estimator(estimator, X, labels, rows, sample_weight, fit_params), None)]
            else:
                pairs = self._fit_folds(estimator, X, labels, codes, classes, sample_weight, fit_params)
        self.classes_ = classes
        self.pairs_ = pairs
        first = pairs[0][0]
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(first, name):
                setattr(self, name, getattr(first, name))
        return self

    def _fit_folds(
        self,
        estimator: Any,
        X: Any,
        y: NDArray[Any],
        codes: NDArray[np.intp],
        classes: NDArray[Any],
        weight: Any,
        fit_params: dict[str, Any],
    ) -> list[tuple[Any, CalibrationMap | None]]:
        there = np.ones(len(codes), dtype=bool) if weight is None else weight > 0
        splits = [
            (train[there[train]], test[there[test]])
            for train, test in _splitter(self.cv, codes).split(np.zeros(len(codes)), codes)
        ]
        fitted = [self._fit_estimator(estimator, X, y, train, weight, fit_params) for train, _ in splits]
        found = [self._scores_of(each, _rows(X, test), classes) for each, (_, test) in zip(fitted, splits, strict=True)]
        if self.ensemble:
            return [
                (each, self._fit_map(scores, logits, codes[test], None if weight is None else weight[test]))
                for each, (scores, logits), (_, test) in zip(fitted, found, splits, strict=True)
            ]
        if len({logits for _, logits in found}) > 1:  # some folds miss a class: all of them as probabilities
            found = [(_softmax(scores) if logits else scores, False) for scores, logits in found]
        rows = np.concatenate([test for _, test in splits])
        scores = np.concatenate([part for part, _ in found])
        chosen = self._fit_map(scores, found[0][1], codes[rows], None if weight is None else weight[rows])
        return [(self._fit_estimator(estimator, X, y, np.flatnonzero(there), weight, fit_params), chosen)]

    def _fit_estimator(self, estimator: Any, X: Any, y: Any, rows: Any, weight: Any, fit_params: dict[str, Any]) -> Any:
        params = dict(fit_params)
        if weight is not None and has_fit_parameter(estimator, "sample_weight"):
            params["sample_weight"] = weight
        if len(rows) == len(y):
            return clone(estimator).fit(X, y, **params)
        params = {key: _rows(value, rows) if _is_per_row(value, y) else value for key, value in params.items()}
        return clone(estimator).fit(_rows(X, rows), y[rows], **params)

    def _scores_of(self, fitted: Any, X: Any, classes: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        """Scores of rows in the columns of ``classes``, and whether they are logits."""
        use = self._score_method(fitted)
        logits = use == "decision_function"
        scores = np.asarray(getattr(fitted, use)(X))
        known = np.asarray(fitted.classes_)
        if len(known) == len(classes):
            return (scores if logits or scores.shape[1] > 2 else scores[:, 1]), logits
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        spread = np.zeros((len(scores), len(classes)))
        spread[:, _codes(known, classes)] = (_softmax(scores) if logits else scores)[:, : len(known)]
        return spread, False

    def _score_method(self, fitted: Any) -> str:
        if self.scores != "auto":
            return self.scores
        return "decision_function" if hasattr(fitted, "decision_function") else "predict_proba"

    def _fit_map(self, scores: NDArray[Any], logits: bool, codes: NDArray[np.intp], weight: Any) -> CalibrationMap:
        made = calibrator(self.map) if isinstance(self.map, str) else calibration_map(clone(self.map, safe=False))
        _set_logits(made, logits)
        return made.fit(scores, codes, weight)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Calibrated probabilities, with the columns of ``classes_``."""
        check_is_fitted(self, "pairs_")
        parts = [self._proba_of(estimator, fitted, X) for estimator, fitted in self.pairs_]
        return parts[0] if len(parts) == 1 else np.mean(parts, axis=0)

    def _proba_of(self, estimator: Any, fitted: CalibrationMap | None, X: Any) -> NDArray[Any]:
        if fitted is None:
            return np.ones((len(np.asarray(estimator.predict(X))), 1))
        scores, logits = self._scores_of(estimator, X, self.classes_)
        if fitted._input_settings()["logits"] and not logits:
            scores = np.log(np.maximum(scores, 1e-37))
        elif logits and not fitted._input_settings()["logits"]:
            scores = _softmax(scores)
        return fitted.predict_proba(scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """Most probable class of each row."""
        winner = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[winner])

    def to_onnx(self, path: str | PathLike[str], X: Any, *, precision: str = "double") -> None:
        """Write one ONNX file from features to calibrated probabilities, atomically (extra ``onnx``, and skl2onnx).

        Its outputs are ``label`` and ``probabilities``: what :meth:`predict` and :meth:`predict_proba` give. With
        ``ensemble=True`` it holds the classifiers and maps of all folds.

        Parameters
        ----------
        path : path
            Where to write; an existing file is replaced.
        X : array or data frame
            Some rows of features; only their types and names count, which become those of the inputs.
        precision : {"double", "single"}
            Precision inside of the maps, as for :meth:`CalibrationMap.to_onnx`. That of the classifier is skl2onnx's.

        Raises
        ------
        ValueError
            If skl2onnx cannot convert the classifier with the scores that the maps were fitted on, or if a fold has
            not seen all classes.
        """
        check_is_fitted(self, "pairs_")
        from mixnmatch.export.onnx_file import write_model  # first: it says which extra is missing

        from mixnmatch.export.onnx_estimator import classifier_model  # isort: skip

        write_model(classifier_model(self, X, precision=precision), path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(LogisticRegression() if self.estimator is None else self.estimator)
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.classifier_tags.multi_class = inner.classifier_tags.multi_class if inner.classifier_tags else True
        return tags


def _splitter(cv: Any, codes: NDArray[np.intp]) -> Any:
    if isinstance(cv, int | np.integer):
        smallest = int(np.bincount(codes).min())
        if cv < 2:
            msg = f"cv must be at least 2, got {cv}"
            raise ValueError(msg)
        folds = min(int(cv), len(codes))
        if smallest >= folds:
            return StratifiedKFold(folds)
        from sklearn.model_selection import KFold

        # A class with fewer rows than folds cannot be in all of them; shuffle so that order carries nothing.
        return KFold(folds, shuffle=True, random_state=0)
    return check_cv(cv, codes, classifier=True)


def _rows(X: Any, rows: Any) -> Any:
    from sklearn.utils import _safe_indexing

    return _safe_indexing(X, rows)


def _is_per_row(value: Any, y: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | dict) and len(value) == len(y)


def _codes(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    order = np.argsort(classes)
    position = np.minimum(np.searchsorted(classes, labels, sorter=order), len(classes) - 1)
    codes = order[position]
    unknown = classes[codes] != labels
    if unknown.any():
        msg = f"label {labels[np.flatnonzero(unknown)[0]]!r} is not a class of the fitted estimator"
        raise ValueError(msg)
    return codes


def _softmax(scores: NDArray[Any]) -> NDArray[np.float64]:
    table = np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores
    p = np.exp(table - table.max(axis=1, keepdims=True), dtype=np.float64)
    p /= p.sum(axis=1, keepdims=True)
    return np.asarray(p)


def _set_logits(made: CalibrationMap, logits: bool) -> None:
    """Tell the map, or the first of a composition, what kind of scores it gets."""
    first: Any = made
    while "first" in first.get_params(deep=False):
        first = first.first
    if "logits" in first.get_params(deep=False):
        first.logits = logits

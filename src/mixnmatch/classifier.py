"""A scikit-learn classifier that calibrates the probabilities of another one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils import _safe_indexing, check_consistent_length, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from mixnmatch._engine.along_rows import both_columns
from mixnmatch._engine.frames import check_aligned
from mixnmatch._estimators import (
    class_names,
    codes_of,
    read_targets,
    score_method,
    scores_of,
    softmax,
    warn_of_class_weights,
    weight_parameter,
)
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.external import calibration_map
from mixnmatch.maps.registry import calibrator, default_method

_SCORES = ("auto", "decision_function", "predict_proba")
# Probabilities below this count as this where a map takes logits.
SMALLEST = 1e-37


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Calibrate the probabilities of a classifier.

    The interface is that of :class:`sklearn.calibration.CalibratedClassifierCV`, with any calibration map.

    Parameters
    ----------
    estimator : classifier, optional
        Any classifier with ``decision_function`` (used as logits) or ``predict_proba``; by default logistic regression.
        Wrap a classifier that is already fitted in :class:`sklearn.frozen.FrozenEstimator`; all of X is then the
        calibration set.
    map : str or map, optional
        Calibration map, or its short name. The default depends on the number of classes; see
        :func:`mixnmatch.maps.default_method`. The map is cloned.
    cv : int or splitter
        Folds. A copy of the estimator that was not trained on a sample provides the scores of that sample.
    ensemble : bool
        False: fit one map to all out-of-fold scores, and the estimator to all samples. True: for each fold, keep its
        estimator and a map fitted to its held-out samples, and average their predictions.
    scores : {"auto", "decision_function", "predict_proba"}
        Method of the estimator that provides the scores; "auto" prefers ``decision_function``. A pairwise decision
        function (a support vector machine with ``decision_function_shape="ovo"``) is converted to votes for the
        classes.
    n_jobs : int, optional
        Number of folds that are fitted in parallel, as in scikit-learn. Maps use their own threads.

    Attributes
    ----------
    classes_ : array
        Class labels.
    pairs_ : list of (estimator, map)
        Fitted pairs: a single one, or one for each fold. The ``classes_`` of a map are the class labels, converted to
        text if they are neither integers nor text.

    Notes
    -----
    If a class is missing from the training samples of a fold, its probability in that fold is 0. The fit continues, and
    the other columns keep their places.

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
        map: Any = None,  # noqa: A002
        cv: Any = 5,
        ensemble: bool = False,
        scores: str = "auto",
        n_jobs: int | None = None,
    ):
        self.estimator = estimator
        self.map = map
        self.cv = cv
        self.ensemble = ensemble
        self.scores = scores
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Fit the estimator (unless it is frozen) and the map.

        Parameters
        ----------
        X : array or data frame of shape (n, m)
            Features.
        y : array of shape (n,)
            Labels of at least two classes.
        sample_weight : array of shape (n,), optional
            Weights for the map and the estimator. A pipeline passes them to its last step. Class weights belong to
            the estimator alone, since calibrated probabilities would be those of the reweighted samples: use its
            ``class_weight``, or a pipeline and ``fit(X, y, step__sample_weight=...)``.
        **fit_params
            Passed to the estimator's ``fit``; ``groups`` is passed to the splitter ``cv``. With metadata routing
            enabled in scikit-learn, all of them, and ``sample_weight``, are routed as requested.
        """
        if self.scores not in _SCORES:
            msg = f"scores must be one of {_SCORES}, got {self.scores!r}"
            raise ValueError(msg)
        check_aligned(X, "X", y=y, sample_weight=sample_weight, **fit_params)
        X, y = indexable(X, y)
        labels = read_targets(y)
        estimator = self._unfitted()
        if not is_classifier(estimator):
            msg = f"CalibratedClassifier needs a classifier, got {estimator!r}"
            raise ValueError(msg)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X)
            if (sample_weight < 0).any():
                row = int(np.flatnonzero(sample_weight < 0)[0])
                msg = f"sample_weight in row {row} is {sample_weight[row]:.6g}; weights must not be negative"
                raise ValueError(msg)
        for_fit, for_split = self._routed(estimator, sample_weight, fit_params)
        # A sample of weight 0 is not there; it only keeps its place for splitters that name samples.
        there = np.ones(len(labels), dtype=bool) if sample_weight is None else sample_weight > 0
        seen = np.unique(labels[there])
        if len(seen) < 2:
            problem = "there are no samples of positive weight"
            if len(seen):
                problem = f"all samples are of one class, {seen.tolist()[0]!r}"
            msg = f"{problem}; a classifier can only be calibrated with samples of two classes or more"
            raise ValueError(msg)
        frozen = isinstance(estimator, FrozenEstimator)
        if frozen and not hasattr(estimator, "classes_"):
            check_is_fitted(estimator)
        classes = np.asarray(estimator.classes_) if frozen else seen
        data = _Data(X, labels, np.zeros(len(labels), dtype=np.intp), sample_weight, there, classes)
        data.codes[there] = codes_of(labels[there], classes)
        if sample_weight is not None:
            warn_of_class_weights(sample_weight[there], data.codes[there], classes)
        if frozen:
            rows = np.flatnonzero(there)
            X_there = X if there.all() else _safe_indexing(X, rows)
            pairs = [(estimator, self._fit_map(*_scores(estimator, X_there, classes, self.scores), data, rows))]
        else:
            pairs = self._fit_folds(estimator, data, for_fit, for_split)
        self.classes_ = classes
        self.pairs_ = pairs
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(pairs[0][0], name):
                setattr(self, name, getattr(pairs[0][0], name))
        return self

    def _unfitted(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        estimator = LogisticRegression()
        return estimator.set_fit_request(sample_weight=True) if _routing_enabled() else estimator

    def _routed(self, estimator: Any, weight: Any, fit_params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What goes to the estimator's ``fit`` and what to the splitter's ``split``."""
        name = weight_parameter(estimator)
        if weight is not None and name is None and not isinstance(estimator, FrozenEstimator):
            last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
            msg = (
                f"{type(last).__name__} does not take sample_weight: the weights are used to fit the calibration map "
                "only, and the calibrated probabilities are likely to be wrong"
            )
            warnings.warn(msg, UserWarning, stacklevel=3)
        if _routing_enabled():
            given = fit_params if weight is None else {"sample_weight": weight, **fit_params}
            routed = process_routing(self, "fit", **given)
            return dict(routed.estimator.fit), dict(routed.splitter.split)
        for_fit = dict(fit_params)
        for_split = {"groups": for_fit.pop("groups")} if "groups" in for_fit else {}
        if weight is not None and name is not None:
            for_fit.setdefault(name, weight)
        return for_fit, for_split

    def get_metadata_routing(self) -> MetadataRouter:
        """Say where metadata go: ``sample_weight`` to the maps, other parameters to the estimator and the splitter."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self._unfitted(), method_mapping=to_fit).add(
            splitter=self.cv, method_mapping=to_split
        )

    def _fit_folds(
        self, estimator: Any, data: _Data, for_fit: dict[str, Any], for_split: dict[str, Any]
    ) -> list[tuple[Any, CalibrationMap]]:
        there = data.there
        for value in for_split.values():
            check_consistent_length(data.codes, value)
        splitter = _splitter(self.cv, data.codes[there])
        # Splitters of users may name samples by their places; our own divide those that are there.
        rows = np.flatnonzero(there) if isinstance(self.cv, int | np.integer) else np.arange(len(there))
        for_split = {name: None if value is None else _safe_indexing(value, rows) for name, value in for_split.items()}
        splits = [
            tuple(part[there[part]] for part in (rows[train], rows[test]))
            for train, test in splitter.split(np.zeros(len(rows)), data.codes[rows], **for_split)
        ]
        parts: list[tuple[Any, Any]] = [*splits] if self.ensemble else [*splits, (np.flatnonzero(there), None)]
        done = Parallel(n_jobs=self.n_jobs)(
            delayed(_fit_and_score)(clone(estimator), data, train, test, for_fit, self.scores) for train, test in parts
        )
        fitted, held_out = [each for each, _ in done], [scores for _, scores in done[: len(splits)]]
        if self.ensemble:
            return [
                (each, self._fit_map(scores, logits, data, test))
                for each, (scores, logits), (_, test) in zip(fitted, held_out, splits, strict=True)
            ]
        if len({logits for _, logits in held_out}) > 1:  # some folds miss a class: all of them as probabilities
            held_out = [(softmax(scores) if logits else scores, False) for scores, logits in held_out]
        tested = np.concatenate([test for _, test in splits])
        tables = [scores for scores, _ in held_out]
        if len({scores.ndim for scores in tables}) > 1:  # a fold that misses one of two classes has two columns
            tables = [both_columns(scores, logits=False) if scores.ndim == 1 else scores for scores in tables]
        chosen = self._fit_map(np.concatenate(tables), held_out[0][1], data, tested)
        return [(fitted[-1], chosen)]

    def _score_method(self, fitted: Any) -> str:
        return score_method(fitted) if self.scores == "auto" else self.scores

    def _fit_map(self, scores: NDArray[Any], logits: bool, data: _Data, rows: NDArray[np.intp]) -> CalibrationMap:
        names = class_names(data.classes)
        wanted = default_method(len(names)) if self.map is None else self.map
        map_ = calibrator(wanted) if isinstance(wanted, str) else calibration_map(wanted)
        weight = None if data.weight is None else data.weight[rows]
        return map_.for_input(logits=logits, classes=names).fit(scores, names[data.codes[rows]], weight)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Calibrated probabilities, with the columns of ``classes_``."""
        check_is_fitted(self, "pairs_")
        parts = [self._proba_of(estimator, fitted, X) for estimator, fitted in self.pairs_]
        return parts[0] if len(parts) == 1 else np.mean(parts, axis=0)

    def _proba_of(self, estimator: Any, fitted: CalibrationMap, X: Any) -> NDArray[Any]:
        scores, logits = _scores(estimator, X, self.classes_, self.scores)
        if fitted.takes_logits and not logits:
            scores = np.log(np.maximum(scores, SMALLEST))
        elif logits and not fitted.takes_logits:
            scores = softmax(scores)
        return fitted.predict_proba(scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """Most probable class of each sample."""
        winner = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[winner])

    def save(self, path: str | PathLike[str]) -> list[Path]:
        """Write the fitted maps, with the class labels, to files that :func:`mixnmatch.load` reads.

        The estimator is not saved: its scores, as ``decision_function`` or ``predict_proba`` gives them, are what a
        loaded map takes (its ``takes_logits`` says which). Save the estimator by its own means.

        Parameters
        ----------
        path : path
            Where to write. With ``ensemble=True`` there is a map for each fold, which belongs to the estimator of that
            fold: ``map.json`` then becomes ``map-0.json``, ``map-1.json`` and so on, in the order of ``pairs_``.

        Returns
        -------
        list of Path
            The files written.
        """
        check_is_fitted(self, "pairs_")
        target = Path(path)
        files = [target]
        if self.ensemble and len(self.pairs_) > 1:
            files = [target.with_name(f"{target.stem}-{k}{target.suffix}") for k in range(len(self.pairs_))]
        for file, (_, fitted) in zip(files, self.pairs_, strict=True):
            fitted.save(file)
        return files

    def to_onnx(self, path: str | PathLike[str], X: Any, *, precision: str = "double") -> None:
        """Write an ONNX file that maps features to calibrated probabilities (needs the extra ``onnx``, and skl2onnx).

        Its outputs ``label`` and ``probabilities`` are those of :meth:`predict` and :meth:`predict_proba`. skl2onnx
        computes the classifier in single precision, so a score next to a step of the map may fall on its other side.
        With ``ensemble=True`` the file contains the classifiers and maps of all folds.

        Parameters
        ----------
        path : path
            Where to write; an existing file is replaced.
        X : array or data frame
            A few rows of features; the inputs of the model get their types and names. Columns of a data frame are
            inputs of their own if the first step of a pipeline takes them so; otherwise there is one input, ``X``.
        precision : {"double", "single"}
            Precision of the maps, as for :meth:`CalibrationMap.to_onnx`. skl2onnx decides that of the classifier.

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
        inner = get_tags(self._unfitted())
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.classifier_tags.multi_class = inner.classifier_tags.multi_class if inner.classifier_tags else True
        return tags


@dataclass(frozen=True)
class _Data:
    """Samples to fit on; ``codes`` are the positions of their labels among the classes."""

    X: Any
    labels: NDArray[Any]
    codes: NDArray[np.intp]
    weight: NDArray[np.float64] | None
    there: NDArray[np.bool_]
    classes: NDArray[Any]


def _scores(fitted: Any, X: Any, classes: NDArray[Any], method: str) -> tuple[NDArray[Any], bool]:
    """Scores of samples in the columns of ``classes``, and whether they are logits."""
    scores, logits = scores_of(fitted, X, method=None if method == "auto" else method)
    known = np.asarray(fitted.classes_)
    if len(known) == len(classes):
        return scores, logits
    p = softmax(scores) if logits else scores
    p = both_columns(p, logits=False) if p.ndim == 1 else p
    spread = np.zeros((len(p), len(classes)))
    spread[:, codes_of(known, classes)] = p
    return spread, False


def _fit_and_score(
    estimator: Any,
    data: _Data,
    train: NDArray[np.intp],
    test: NDArray[np.intp] | None,
    params: dict[str, Any],
    method: str,
) -> tuple[Any, Any]:
    """Fit an estimator to some samples, and score others."""
    n = len(data.labels)
    if len(train) < n:
        params = {
            key: _safe_indexing(value, train) if _is_per_row(value, n) else value for key, value in params.items()
        }
        estimator.fit(_safe_indexing(data.X, train), data.labels[train], **params)
    else:
        estimator.fit(data.X, data.labels, **params)
    return estimator, None if test is None else _scores(estimator, _safe_indexing(data.X, test), data.classes, method)


def _splitter(cv: Any, codes: NDArray[np.intp]) -> Any:
    if isinstance(cv, str) and cv == "prefit":
        msg = 'there is no cv="prefit": pass a fitted classifier as sklearn.frozen.FrozenEstimator(classifier)'
        raise ValueError(msg)
    if isinstance(cv, int | np.integer):
        if cv < 2:
            msg = f"cv must be at least 2, got {cv}"
            raise ValueError(msg)
        folds = min(int(cv), len(codes))
        if int(np.bincount(codes).min()) >= folds:
            return StratifiedKFold(folds)
        # A class with fewer samples than folds cannot be in all of them; shuffle so that order carries nothing.
        return KFold(folds, shuffle=True, random_state=0)
    return check_cv(cv, codes, classifier=True)


def _is_per_row(value: Any, n: int) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | dict) and len(value) == n


def _routing_enabled() -> bool:
    return bool(get_config().get("enable_metadata_routing", False))

"""Other people's calibrators: any object with fit and predict_proba takes part in combinations."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows, refuse_dask
from mixnmatch.maps.base import BinaryMap, CalibrationMap
from mixnmatch.maps.columns import Columns, take
from mixnmatch.maps.parameters import clone


def calibration_map(candidate: Any) -> CalibrationMap:
    """``candidate`` itself if it is a map of ours, else the map around it."""
    if isinstance(candidate, CalibrationMap):
        return candidate
    _check_external(candidate)
    return External(candidate)


def binary_map(candidate: Any) -> BinaryMap:
    """``candidate`` as a binary map."""
    if isinstance(candidate, BinaryMap):
        return candidate
    if isinstance(candidate, CalibrationMap):
        msg = f"{candidate!r} is a map for many classes; Pooled and OneVsAll need a binary map, such as Isotonic()"
        raise TypeError(msg)
    _check_external(candidate)
    return ExternalBinary(candidate)


def _check_external(candidate: Any) -> None:
    if not (hasattr(candidate, "fit") and hasattr(candidate, "predict_proba")):
        msg = f"a map needs the methods fit and predict_proba; {candidate!r} does not have both"
        raise TypeError(msg)


class InputOfPart(CalibrationMap):
    """Base of maps whose scores go to a map inside first: what that map says about its input holds for all."""

    # Parameter with the map that scores go to.
    _first_part: ClassVar[str]

    def _input_settings(self) -> dict[str, Any]:
        return calibration_map(getattr(self, self._first_part))._input_settings()

    def for_input(
        self, *, logits: bool | None = None, classes: Any = None, weights: str | None = None
    ) -> CalibrationMap:
        """Return an unfitted copy for other input; see :meth:`CalibrationMap.for_input`."""
        part = calibration_map(getattr(self, self._first_part))
        copy: CalibrationMap = clone(self)
        copy.set_params(**{self._first_part: part.for_input(logits=logits, classes=classes, weights=weights)})
        return copy


class External(CalibrationMap):
    """A map around an object that is fitted on probabilities (n x L) and column indices, and predicts the same.

    Nothing is known of such an object, so neither accuracy preservation nor injectivity is claimed; it sees all rows
    at once, and it cannot be saved or exported by us.

    Parameters
    ----------
    estimator : object with fit and predict_proba
        The calibrator. It may take ``sample_weight`` in fit.
    logits, classes, weights
        As for :class:`TemperatureScaling`.
    """

    _fitted: ClassVar[tuple[str, ...]] = ("estimator_",)

    estimator_: Any

    def __init__(self, estimator: Any, *, logits: bool = False, classes: Any = None, weights: str = "frequency"):
        self.estimator = estimator
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _fit(self, source: Rows) -> dict[str, Any]:
        refuse_dask(source, f"{self.estimator!r} is fitted on all rows at once")
        blocks = list(source.map_blocks(lambda block: block))
        scores = np.concatenate([block.probabilities() for block in blocks])
        labels = np.concatenate([block.y for block in blocks])
        weight = None if source.weight is None else np.concatenate([block.weight for block in blocks])
        return {"estimator_": _fit_external(self.estimator, scores, labels, weight)}

    def _proba(self, block: Block) -> NDArray[Any]:
        return spread(self.estimator_, block.probabilities())


class ExternalBinary(BinaryMap):
    """A binary map around an object that is fitted on one column of scores and 0/1 labels.

    Parameters
    ----------
    estimator : object with fit and predict_proba
        The calibrator of the positive class.
    """

    _fitted: ClassVar[tuple[str, ...]] = ("estimators_",)

    estimators_: list[Any]

    def __init__(self, estimator: Any):
        self.estimator = estimator

    def _fit_columns(self, columns: Columns) -> dict[str, Any]:
        refuse_dask(columns.source, f"{self.estimator!r} is fitted on all rows at once")
        fitted = []
        for scores, positive, weight in columns.gathered():
            labels = positive.astype(np.intp)
            # Most calibrators need both classes; where one is absent the answer is known without them.
            both = 0 < labels.sum() < len(labels)
            fitted.append(
                _fit_external(self.estimator, scores[:, None].astype(np.float64), labels, weight)
                if both
                else float(labels[0])
            )
        return {"estimators_": fitted}

    def _transform_columns(self, block: Block, scheme: str) -> NDArray[np.float64]:
        scores = take(block.probabilities(), scheme).astype(np.float64)
        out = np.empty(scores.shape)
        for k, estimator in enumerate(self.estimators_):
            known = isinstance(estimator, float)
            out[:, k] = estimator if known else np.asarray(estimator.predict_proba(scores[:, k : k + 1]))[:, -1]
        return out


def _fit_external(estimator: Any, scores: NDArray[Any], labels: NDArray[np.intp], weight: Any) -> Any:
    fresh = clone(estimator)
    if weight is None:
        return fresh.fit(scores, labels) or fresh
    try:
        return fresh.fit(scores, labels, sample_weight=weight) or fresh
    except TypeError as error:
        msg = f"{estimator!r} takes no sample_weight"
        raise ValueError(msg) from error


def spread(estimator: Any, scores: NDArray[Any]) -> NDArray[np.float64]:
    """Predictions of an estimator in our columns: classes that it has not seen get probability 0."""
    predicted = np.asarray(estimator.predict_proba(scores), dtype=np.float64)
    known = getattr(estimator, "classes_", None)
    if known is None or len(known) == scores.shape[1]:
        if predicted.shape != scores.shape:
            msg = f"{estimator!r} gave probabilities of shape {predicted.shape} for scores of shape {scores.shape}"
            raise ValueError(msg)
        return predicted
    out = np.zeros(scores.shape)
    out[:, np.asarray(known, dtype=np.intp)] = predicted
    return out

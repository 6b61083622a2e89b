"""What all decision functions read: samples with or without labels, checked once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mixnmatch._engine import door
from mixnmatch._engine.rows import Rows, refuse_dask
from mixnmatch._engine.scores import is_number
from mixnmatch.evaluation.notion import Outcomes
from mixnmatch.maps._base_rate import warn_of_reversed_scores


def labelled(probs: Any, y: Any, sample_weight: Any = None, **settings: Any) -> Rows:
    """Checked probabilities, labels and weights."""
    return door.labelled(door.rows(probs, y, sample_weight, **settings))


def unlabelled(probs: Any, sample_weight: Any = None, **settings: Any) -> Rows:
    """Checked probabilities and weights, for decisions about samples whose labels are not known yet."""
    return door.rows(probs, None, sample_weight, **settings)


def class_names(source: Rows, classes: Any = None) -> Any:
    """Names of the classes: those given or found in the labels, or those of the columns of a data frame."""
    if classes is None and source.labels is None and source.columns is not None:
        return source.columns
    return source.classes


def positive_class(source: Rows, what: str) -> Outcomes:
    """Probability of the positive class of each sample, whether the sample is positive, and its weight."""
    if source.n_classes != 2:
        msg = (
            f"{what} is for two classes, the scores have {source.n_classes}; for one class k against the others "
            "pass probs[:, k] and y == k"
        )
        raise ValueError(msg)
    from mixnmatch.evaluation.notion import binary

    warn_of_reversed_scores(source)
    found = binary(in_memory(source, what).scores, source.labels, source.weight)
    return _as_predicted(found, source).counted()


def top_class(source: Rows, what: str) -> Outcomes:
    """Confidence of each sample, whether the predicted class is the label, and the weight of the sample."""
    from mixnmatch.evaluation.notion import top_label

    found = top_label(in_memory(source, what).scores, source.labels, source.weight)
    return _as_predicted(found, source).counted()


def score_type(source: Rows) -> np.dtype[np.floating]:
    """Type of the probabilities as the user holds them: thresholds are compared in it."""
    values = source.scores.values
    if values.dtype.kind != "f":
        return np.dtype(np.float64)
    return source.scores.dtype if source.scores.logits else values.dtype


def _as_predicted(found: Outcomes, source: Rows) -> Outcomes:
    """The same with probabilities of logits rounded to their type, as those that are compared with a threshold are."""
    if not source.scores.logits:
        return found
    return replace(found, z=found.z.astype(score_type(source)).astype(np.float64))


def in_memory(source: Rows, what: str) -> Rows:
    """The source itself, unless it is on Dask: thresholds need sorted scores."""
    refuse_dask(source, f"{what} sorts all samples")
    return source


def check_share(name: str, value: Any, *, one: bool = False) -> float:
    """Raise an error unless ``value`` lies strictly between 0 and 1 (1 itself may be allowed)."""
    if not is_number(value) or not 0 < value < 1:
        if one and is_number(value) and value == 1:
            return 1.0
        msg = f"{name} must be between 0 and 1, got {value!r}"
        raise ValueError(msg)
    return float(value)

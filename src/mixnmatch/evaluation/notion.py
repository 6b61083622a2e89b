"""Notions of calibration: which one-dimensional problems a table of probabilities and labels stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch._scores import ROUNDING, Scores
from mixnmatch.evaluation._binning import Floats, Grid, bin_columns

NOTIONS: Final = ("top-label", "class-wise", "canonical", "binary")
# Entries of a table that are worked on at a time.
ENTRIES_A_BLOCK: Final = 2_000_000
# Nodes for class-wise errors: one grid for each class.
CLASS_NODES: Final = 1025


@dataclass(frozen=True)
class Outcomes:
    """A one-dimensional calibration problem: confidences, whether what they were about happened, and frequencies."""

    z: Floats
    y: NDArray[np.int8]
    weight: Floats | None = None

    @property
    def n(self) -> float:
        """Number of samples, the sum of the weights."""
        return float(len(self.z)) if self.weight is None else float(self.weight.sum())


def probabilities(scores: Scores, rows: slice = slice(None)) -> Floats:
    """Rows of a checked table as float64 probabilities that sum to 1 (n x L, for a vector of scores n x 2)."""
    start, stop, _ = rows.indices(scores.n_rows)
    values = scores.read(start, stop).astype(np.float64, copy=False)
    if scores.vector:
        positive = _sigmoid(values) if scores.logits else values
        return np.stack([1.0 - positive, positive], axis=1)
    if scores.logits:
        values = np.exp(values - values.max(axis=1, keepdims=True))
        return np.asarray(values / values.sum(axis=1, keepdims=True))
    total = values.sum(axis=1, keepdims=True)
    off = np.abs(total - 1) > ROUNDING.get(scores.values.dtype.name, 1e-9)
    return np.asarray(values / np.where(off, total, 1.0))


def _sigmoid(u: Floats) -> Floats:
    small = np.exp(-np.abs(u))
    return np.asarray(np.where(u >= 0, 1.0, small) / (1.0 + small))


def _blocks(scores: Scores) -> list[slice]:
    step = max(1, ENTRIES_A_BLOCK // scores.n_classes)
    return [slice(start, min(start + step, scores.n_rows)) for start in range(0, scores.n_rows, step)]


def top_label(scores: Scores, labels: NDArray[np.intp], weight: Floats | None = None) -> Outcomes:
    """Confidence in the predicted class, and whether it was the true one.

    The predicted class is the argmax of the scores as given (of logits before the softmax), the first one of equals.
    """
    if scores.vector:
        positive = probabilities(scores)[:, 1]
        predicted = np.asarray(scores.values) > (0.0 if scores.logits else 0.5)
        confidence = np.where(predicted, positive, 1.0 - positive)
        return Outcomes(confidence, (predicted == labels).astype(np.int8), weight)
    z = np.empty(scores.n_rows)
    y = np.empty(scores.n_rows, dtype=np.int8)
    for rows in _blocks(scores):
        block = scores.read(rows.start, rows.stop)
        predicted = block.argmax(axis=1)
        y[rows] = predicted == labels[rows]
        top = np.take_along_axis(block, predicted[:, None], axis=1)
        if scores.logits:
            z[rows] = 1.0 / np.exp(block - top).sum(axis=1, dtype=np.float64)
        else:
            total = block.sum(axis=1, dtype=np.float64)
            off = np.abs(total - 1) > ROUNDING.get(scores.values.dtype.name, 1e-9)
            z[rows] = top[:, 0] / np.where(off, total, 1.0)
    return Outcomes(np.minimum(z, 1.0), y, weight)


def binary(scores: Scores, labels: NDArray[np.intp], weight: Floats | None = None) -> Outcomes:
    """Probability of the positive class (the second of two), and whether it was the true one."""
    if scores.n_classes != 2:
        msg = (
            f'the notion "binary" is for two classes, the scores have {scores.n_classes}; '
            'use "top-label", "class-wise" or "canonical"'
        )
        raise ValueError(msg)
    return Outcomes(probabilities(scores)[:, 1], (labels == 1).astype(np.int8), weight)


def one_class(p: Floats, labels: NDArray[np.intp], column: int, weight: Floats | None = None) -> Outcomes:
    """Probability of one class, and whether it was the true one."""
    return Outcomes(np.ascontiguousarray(p[:, column]), (labels == column).astype(np.int8), weight)


def class_grid(scores: Scores, labels: NDArray[np.intp], weight: Floats | None = None) -> Grid:
    """All classes binned at once: a grid of shape (L, nodes), in one pass over blocks of rows."""
    out: Grid | None = None
    for rows in _blocks(scores):
        own = None if weight is None else weight[rows]
        block = bin_columns(probabilities(scores, rows), labels[rows], own, n_nodes=CLASS_NODES)
        out = block if out is None else out + block
    assert out is not None  # scores are never empty
    return out


def class_frequencies(labels: NDArray[np.intp], n_classes: int, weight: Floats | None = None) -> NDArray[Any]:
    """Share of each class among the labels."""
    counts = np.bincount(labels, weights=weight, minlength=n_classes).astype(np.float64)
    return np.asarray(counts / counts.sum())

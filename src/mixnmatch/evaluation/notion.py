"""Notions of calibration: which one-dimensional problems a table of probabilities and labels stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import picked, row_sums, winners
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import ROUNDING, Scores
from mixnmatch.evaluation._binning import Floats, Grid, bin_columns

NOTIONS: Final = ("top-label", "class-wise", "canonical", "binary")
# Entries of a table that are worked on at a time.
ENTRIES_A_BLOCK: Final = 1 << 18
# Bytes of a block for statistics that are themselves large, one grid a class.
CLASS_BYTES: Final = 1 << 24


def default_notion(n_classes: int) -> str:
    """Return the default notion: the positive class for two classes, the top label for more."""
    return "binary" if n_classes == 2 else "top-label"


@dataclass(frozen=True)
class Outcomes:
    """A one-dimensional calibration problem: confidences, outcomes (1 if the event happened) and weights."""

    z: Floats
    y: NDArray[np.int8]
    weight: Floats | None = None

    @property
    def n(self) -> float:
        """Number of samples, the sum of the weights."""
        return float(len(self.z)) if self.weight is None else float(self.weight.sum())

    def counted(self) -> Outcomes:
        """The same without samples of weight 0."""
        if self.weight is None or self.weight.all():
            return self
        kept = self.weight > 0
        return Outcomes(self.z[kept], self.y[kept], self.weight[kept])


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
    source = Rows(scores, labels)
    z, y = np.empty(scores.n_rows), np.empty(scores.n_rows, dtype=np.int8)
    for rows in _blocks(scores):
        z[rows], y[rows] = top_label_rows(source.block(rows.start, rows.stop))
    return Outcomes(z, y, weight)


def top_label_rows(block: Block) -> tuple[Floats, NDArray[np.int8]]:
    """Confidence in the predicted class of each row of a block, and whether it was the true one."""
    values = block.values
    predicted = winners(values)
    top = picked(values, predicted)
    if block.form == "logits":
        z = 1.0 / np.exp(values - top[:, None]).sum(axis=1, dtype=np.float64)
    elif block.form == "log-probabilities":
        z = np.exp(top)
    else:
        z = top.astype(np.float64)
        if block.off_simplex:
            total = row_sums(values, np.float64)
            z /= np.where(np.abs(total - 1) > block.rounding, total, 1.0)
    return np.minimum(z, 1.0), (predicted == block.y).view(np.int8)


def one_class_rows(block: Block, column: int) -> tuple[Floats, NDArray[np.int8]]:
    """Probability of one class in each row of a block, and whether it was the true one."""
    z = block.probabilities()[:, column].astype(np.float64)
    return np.minimum(z, 1.0), (block.y == column).astype(np.int8)


def class_grid_statistic(block: Block) -> Grid:
    """All classes of a block binned at once: a grid of shape (L, nodes)."""
    p = np.asarray(block.probabilities(), dtype=np.float64)
    return bin_columns(np.minimum(p, 1.0), block.y, block.weight)


def binary(scores: Scores, labels: NDArray[np.intp], weight: Floats | None = None) -> Outcomes:
    """Probability of the positive class (the second of two), and whether it was the true one."""
    if scores.n_classes != 2:
        refuse_binary(scores.n_classes)
    return one_column(scores, labels, 1, weight)


def one_column(scores: Scores, labels: NDArray[np.intp], column: int, weight: Floats | None = None) -> Outcomes:
    """Probability of one class in a checked table, and whether it was the true one."""
    z = np.empty(scores.n_rows)
    for rows in _blocks(scores):
        z[rows] = probabilities(scores, rows)[:, column]
    np.minimum(z, 1.0, out=z)
    return Outcomes(z, (labels == column).view(np.int8), weight)


def refuse_binary(n_classes: int) -> None:
    """Raise an error for the notion "binary" of more classes than two."""
    msg = (
        f'the notion "binary" is for two classes, the scores have {n_classes}; '
        'use "top-label", "class-wise" or "canonical"'
    )
    raise ValueError(msg)


def one_class(p: Floats, labels: NDArray[np.intp], column: int, weight: Floats | None = None) -> Outcomes:
    """Probability of one class, and whether it was the true one."""
    return Outcomes(np.ascontiguousarray(p[:, column]), (labels == column).astype(np.int8), weight)


def class_grid(scores: Scores, labels: NDArray[np.intp], weight: Floats | None = None) -> Grid:
    """All classes binned at once: a grid of shape (L, nodes), in one pass over blocks of rows."""
    return Rows(scores, labels, weight).total(class_grid_statistic, block_bytes=CLASS_BYTES)


def class_frequencies(labels: NDArray[np.intp], n_classes: int, weight: Floats | None = None) -> NDArray[Any]:
    """Share of each class among the labels."""
    counts = np.bincount(labels, weights=weight, minlength=n_classes).astype(np.float64)
    return np.asarray(counts / counts.sum())

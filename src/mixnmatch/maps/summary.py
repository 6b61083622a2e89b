"""What a fitted map remembers of its calibration set: enough to adapt it to other class frequencies later."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import column_sums
from mixnmatch._engine.block import Block
from mixnmatch._engine.passes import asked_block_bytes
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.shared import single_threaded_blas

if TYPE_CHECKING:
    from mixnmatch.maps.base import CalibrationMap

Array = NDArray[np.float64]
# Cells of the histogram of log-odds, and the log-odds beyond which all scores are counted as one: float32 has none.
CELLS, LARGEST = 24, 14.0


@dataclass(frozen=True, eq=False)
class CalibrationSummary:
    """Calibrated predictions on the calibration set, in a few numbers.

    Attributes
    ----------
    mean_prediction : ndarray of shape (L,)
        Mean calibrated probability of each class: the class frequencies that the map assumes.
    counts : ndarray of shape (L, 24)
        Weight of the samples of each class by cells of log-odds: of the positive class for two classes, of the largest
        probability for more.
    """

    mean_prediction: Array
    counts: Array

    def __post_init__(self) -> None:
        n_classes = len(self.mean_prediction)
        fits = self.mean_prediction.ndim == 1 and self.counts.shape == (n_classes, CELLS)
        values = np.concatenate([self.mean_prediction.ravel(), self.counts.ravel()])
        if not fits or not (np.isfinite(values) & (values >= 0)).all():
            msg = "the summary of the calibration set is not valid"
            raise ValueError(msg)

    @classmethod
    def of_cells(cls, mean_prediction: Array, cells: NDArray[np.int64], weights: Array) -> CalibrationSummary:
        """A summary from its cells of positive weight, as files hold it: with many classes most are empty."""
        size = len(mean_prediction) * CELLS
        if cells.shape != weights.shape or cells.ndim != 1 or not ((cells >= 0) & (cells < size)).all():
            msg = "the summary of the calibration set has cells that do not exist"
            raise ValueError(msg)
        counts = np.bincount(cells, weights, size).astype(np.float64)
        return cls(mean_prediction, counts.reshape(-1, CELLS))

    def nonzero(self) -> tuple[NDArray[np.int64], Array]:
        """Cells of positive weight, counted class by class, and their weights."""
        cells = np.flatnonzero(self.counts)
        return cells.astype(np.int64), np.asarray(self.counts.ravel()[cells])

    @property
    def class_weights(self) -> Array:
        """Weight of each class in the calibration set."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def total_weight(self) -> float:
        """Weight of the calibration set."""
        return float(self.counts.sum())


def summarise(fitted: CalibrationMap, source: Rows) -> CalibrationSummary:
    """Apply a fitted map to labelled samples, in one pass, and count."""
    with single_threaded_blas() if fitted._multiplications() else nullcontext():
        size = asked_block_bytes()
        if size is None and fitted._summary_bytes is not None:
            least, most = fitted._summary_bytes
            size = min(max(source.n_rows * source.scores.row_bytes // 32, least), most)
        predicted, place, weight = source.total(_statistic, fitted, block_bytes=size)
    mean = predicted / max(float(predicted.sum()), 1e-300)
    return CalibrationSummary.of_cells(mean, np.concatenate(place), np.concatenate(weight))


def _statistic(block: Block, fitted: CalibrationMap) -> tuple[Array, list[NDArray[np.int64]], list[Array]]:
    """Sum of the predictions, cells of positive weight, and their weights: lists, which are joined and not added up."""
    p = np.empty(block.values.shape, block.values.dtype)
    fitted._proba_into(block, p)
    weight = np.ones(len(p)) if block.weight is None else block.weight
    predicted = column_sums(p) if block.weight is None else np.einsum("i,ij->j", weight, p)
    place = np.asarray(block.y, np.int64) * CELLS + cells(p)
    if p.shape[1] * CELLS <= len(p):  # counting in all cells is faster than sorting, unless there are too many of them
        counts = np.bincount(place, weight).astype(np.float64)
        present = np.flatnonzero(counts).astype(np.int64)
        return predicted, [present], [counts[present]]
    present, inverse = np.unique(place, return_inverse=True)
    return predicted, [present], [np.bincount(inverse, weight, len(present)).astype(np.float64)]


def cells(p: NDArray[Any]) -> NDArray[np.intp]:
    """Cell of each row of probabilities in the histogram of log-odds."""
    if p.shape[1] == 2:
        least, top, others = -LARGEST, p[:, 1], p[:, 0]
    else:
        top = p.max(axis=1)
        least, others = -np.log(p.shape[1] - 1), 1 - top
    tiny = np.finfo(np.float32).tiny
    odds = np.log(np.maximum(top, tiny, dtype=np.float64) / np.maximum(others, tiny, dtype=np.float64))
    share = (odds - least) / (LARGEST - least)
    return np.asarray(np.clip(share * CELLS, 0, CELLS - 1), dtype=np.intp)

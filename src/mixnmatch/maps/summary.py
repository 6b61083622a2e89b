"""What a fitted map remembers of its calibration set: enough to adapt it to other class frequencies later."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
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
    with single_threaded_blas() if fitted._needs_blas() else nullcontext():
        predicted, counts = source.total(_statistic, fitted)
    return CalibrationSummary(predicted / max(float(predicted.sum()), 1e-300), counts)


def _statistic(block: Block, fitted: CalibrationMap) -> tuple[Array, Array]:
    p = np.empty(block.values.shape, block.values.dtype)
    fitted._proba_into(block, p)
    weight = np.ones(len(p)) if block.weight is None else block.weight
    n_classes = p.shape[1]
    place = np.asarray(block.y) * CELLS + cells(p)
    counts = np.bincount(place, weight, minlength=n_classes * CELLS).astype(np.float64).reshape(n_classes, CELLS)
    means = p.sum(axis=0, dtype=np.float64) if block.weight is None else np.einsum("i,ij->j", weight, p)
    return means, counts


def cells(p: NDArray[Any]) -> NDArray[np.intp]:
    """Cell of each row of probabilities in the histogram of log-odds."""
    if p.shape[1] == 2:
        least, top, others = -LARGEST, p[:, 1], p[:, 0]
    else:
        top = p.max(axis=1)
        least, others = -np.log(p.shape[1] - 1), 1 - top
    tiny = np.finfo(np.float32).tiny
    odds = np.log(np.maximum(top, tiny, dtype=np.float64)) - np.log(np.maximum(others, tiny, dtype=np.float64))
    share = (odds - least) / (LARGEST - least)
    return np.asarray(np.clip(share * CELLS, 0, CELLS - 1), dtype=np.intp)

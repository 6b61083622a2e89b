"""What a calibration error needs of a block of rows: bins or a grid, which add up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mixnmatch._engine.block import Block
from mixnmatch._engine.passes import add
from mixnmatch._engine.rows import Rows
from mixnmatch.evaluation._binning import Floats, Grid, bin_linearly
from mixnmatch.evaluation.estimators import Estimator, GridEstimator, Histogram, Sweep
from mixnmatch.evaluation.histogram import bin_sums, count_bins
from mixnmatch.evaluation.notion import CLASS_BYTES, class_grid_statistic, one_class_rows, top_label_rows

GRID_ALTERNATIVE = (
    'a grid estimator gives such an answer in one pass: "kde-residual", "kde-residual-debiased", "kde" or "smooth"'
)


@dataclass(frozen=True)
class ErrorSums:
    """Sums over rows that a calibration error follows from."""

    bins: Any  # a grid, bins, or a tuple of bins for the classes
    frequencies: Floats  # weight of each class among the labels
    noise: float  # weighted sum of z (1 - z) of the top label
    weight_squares: float

    def __add__(self, other: ErrorSums) -> ErrorSums:
        """The sums of both samples together."""
        return ErrorSums(
            add(self.bins, other.bins),
            self.frequencies + other.frequencies,
            self.noise + other.noise,
            self.weight_squares + other.weight_squares,
        )

    @property
    def n(self) -> float:
        """Number of samples, the sum of the weights."""
        return float(self.frequencies.sum())

    @property
    def effective_n(self) -> float:
        """Kish's effective number of samples."""
        return self.n**2 / self.weight_squares


def error_sums(source: Rows, notion: str, estimator: Estimator) -> ErrorSums:
    """Sums of all rows of a source, in one pass."""
    if isinstance(estimator, Histogram) and isinstance(estimator.bins, str):
        estimator = replace(estimator, bins=count_bins(estimator.bins, source.total_weight()))
    block_bytes = CLASS_BYTES if notion == "class-wise" else source.light_bytes
    return source.total(error_statistic, notion, estimator, block_bytes=block_bytes)


def error_statistic(block: Block, notion: str, estimator: Estimator) -> ErrorSums:
    """Sums of a block."""
    weight, y = block.weight, block.y
    z, right = top_label_rows(block)
    noise = z * (1 - z)
    n_classes = block.values.shape[1]
    if notion == "class-wise":
        if isinstance(estimator, GridEstimator):
            bins: Any = class_grid_statistic(block)
        else:
            bins = tuple(_binned(*one_class_rows(block, k), weight, estimator) for k in range(n_classes))
    else:
        bins = _binned(*((z, right) if notion == "top-label" else one_class_rows(block, 1)), weight, estimator)
    return ErrorSums(
        bins,
        np.bincount(y, weights=weight, minlength=n_classes).astype(np.float64),
        float(noise.sum() if weight is None else noise @ weight),
        float(len(y) if weight is None else weight @ weight),
    )


def _binned(z: Floats, y: Any, weight: Floats | None, estimator: Estimator) -> Any:
    if isinstance(estimator, GridEstimator):
        return bin_linearly(z, y, weight)
    assert isinstance(estimator, Histogram)
    return bin_sums(z, y, weight, bins=estimator.bins)


def estimate(sums: Any, estimator: Estimator, norm: int | str) -> float:
    """The error of one problem from its grid or bins."""
    if isinstance(estimator, GridEstimator):
        return float(estimator.on_grid(sums, norm))
    assert isinstance(estimator, Histogram)
    return float(sums.debiased() if estimator.debiased else sums.error(norm))


def why_not_sums(estimator: Estimator, notion: str) -> str | None:
    """What keeps an estimate from being made of sums over rows, if anything does."""
    if notion == "canonical" or not estimator.one_dimensional:
        return "errors of the full vector compare rows with each other and need them in memory"
    if isinstance(estimator, Sweep) or (isinstance(estimator, Histogram) and estimator.binning != "equal-width"):
        return "equal-mass bins need all confidences in memory"
    if isinstance(estimator, GridEstimator | Histogram):
        return None
    return f"{type(estimator).__name__} needs the data in memory"


def refuse_streaming(why: str) -> None:
    """Raise an error that says why something cannot be made of sums, and what can."""
    msg = f"cannot stream: {why}. For one confidence (top-label, binary or class-wise) {GRID_ALTERNATIVE}"
    raise ValueError(msg)


@dataclass(frozen=True)
class BinnedOutcomes:
    """A one-dimensional problem given by its grid alone."""

    grid: Grid
    weight_squares: float

    @property
    def n(self) -> float:
        """Number of samples, the sum of the weights."""
        return float(self.grid.count.sum())

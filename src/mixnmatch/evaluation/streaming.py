"""Metrics of data that comes in batches: update, merge, compute, in bounded memory.

What is kept is a sum over rows (moments, bins, a grid), so that the answer is that of the one-shot function on all rows
together, in whatever batches they came and from whatever workers.
"""

from __future__ import annotations

from typing import Any, Self

from mixnmatch._engine import door
from mixnmatch.evaluation._accumulators import (
    Accumulator,
    AccuracyAccumulator,
    BrierAccumulator,
    CalibrationGainAccumulator,
    LogLossAccumulator,
)
from mixnmatch.evaluation._curves import Band, bin_edges, curve_statistic, histogram_points, kernel_points
from mixnmatch.evaluation._problem import choose_problem
from mixnmatch.evaluation._sums import ErrorSums, error_sums, refuse_streaming, why_not_sums
from mixnmatch.evaluation.error import CalibrationMetric, advised_n
from mixnmatch.evaluation.estimators import Estimator, Histogram, estimator
from mixnmatch.evaluation.reliability import ReliabilityCurve, assemble
from mixnmatch.evaluation.result import CalibrationError

__all__ = [
    "AccuracyAccumulator",
    "BrierAccumulator",
    "CalibrationErrorAccumulator",
    "CalibrationGainAccumulator",
    "LogLossAccumulator",
    "ReliabilityAccumulator",
]


class CalibrationErrorAccumulator(Accumulator):
    """Streaming :func:`calibration_error` for estimators that need no more than bins or a grid.

    Those are the kernel estimators, smooth ECE and equal-width histograms with a given number of bins, for the notions
    "top-label", "binary" and "class-wise". All others need the data in memory and are refused.

    Parameters
    ----------
    estimator, notion, norm, root, bins, binning, bandwidth, kernel, average, logits, classes
        As in :func:`calibration_error`.

    Examples
    --------
    >>> error = CalibrationErrorAccumulator(estimator="histogram", bins=2)
    >>> round(float(error.update([0.2, 0.2], [0, 0]).update([0.8, 0.8], [0, 1]).compute()), 6)
    0.25
    """

    def __init__(
        self,
        *,
        estimator: str | Estimator = "kde-residual",
        notion: str | None = None,
        norm: int | str | None = None,
        root: bool = False,
        bins: int | str | None = None,
        binning: str | None = None,
        bandwidth: float | str | None = None,
        kernel: str | None = None,
        average: str = "mean",
        logits: bool = False,
        classes: Any = None,
    ) -> None:
        super().__init__(logits=logits, classes=classes)
        chosen = _build(estimator, bins=bins, binning=binning, bandwidth=bandwidth, kernel=kernel)
        _check_streams(chosen, "top-label" if notion is None else notion)
        self.name = estimator if isinstance(estimator, str) else repr(chosen)
        self.metric = CalibrationMetric(chosen, notion, chosen.norms[0] if norm is None else norm, average)
        self.root = root

    def update(self, scores: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add a batch of scores and labels; an empty batch changes nothing."""
        if door.no_rows(scores, y):
            return self
        source = self._read(scores, y, sample_weight)
        metric = self.metric.for_classes(source.n_classes)
        assert metric.notion is not None
        return self._add(error_sums(source, metric.notion, metric.estimator))

    def compute(self) -> CalibrationError:
        """Return the calibration error of all samples so far."""
        sums: ErrorSums = self._seen()
        assert self._shape is not None
        metric = self.metric.for_classes(self._shape[0])
        assert metric.notion is not None
        value, per_class = metric.of_sums(sums)
        norm = metric.norm
        power = 1 / norm if isinstance(norm, int) else 1.0
        size = max(value, 0.0) ** power
        return CalibrationError(
            size if self.root and power != 1 else value,
            estimator=self.name,
            notion=metric.notion,
            norm=norm,
            root=self.root,
            n=sums.n,
            effective_n=sums.effective_n,
            per_class=per_class,
            advised_n=advised_n(size, sums.noise / sums.n),
        )


_build = estimator


class ReliabilityAccumulator(Accumulator):
    """Streaming :func:`reliability_curve`: kernel curves, and histograms of equal width or with given edges.

    Parameters
    ----------
    kind, notion, label, band, confidence, simultaneous, bandwidth, kernel, bins, closed, interval, seed
        As in :func:`reliability_curve`.
    logits, classes
        As in :func:`reliability_curve`.
    """

    def __init__(
        self,
        *,
        kind: str = "kde",
        notion: str | None = None,
        label: Any = None,
        band: str = "confidence",
        confidence: float = 0.95,
        simultaneous: bool = False,
        bandwidth: float | str = "adaptive",
        kernel: str = "triweight",
        bins: Any = 15,
        closed: str = "left",
        interval: str = "wilson",
        seed: int = 0,
        logits: bool = False,
        classes: Any = None,
    ) -> None:
        super().__init__(logits=logits, classes=classes)
        if kind not in ("kde", "histogram"):
            msg = f'curves of kind {kind!r} need the data in memory; kind="kde" is the curve that streams, on a grid'
            raise ValueError(msg)
        if isinstance(bins, str):
            msg = f'bins={bins!r} depend on how many rows there will be; give a number or edges, or use kind="kde"'
            raise ValueError(msg)
        self.kind, self.notion, self.label = kind, notion, label
        self.band = Band(band, confidence, simultaneous, interval, seed=seed)
        self.band.check()
        self.bandwidth, self.kernel = bandwidth, kernel
        self.bins, self.closed = bins, closed

    def update(self, scores: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add a batch of scores and labels; an empty batch changes nothing."""
        if door.no_rows(scores, y):
            return self
        source = self._read(scores, y, sample_weight)
        problem = choose_problem(source, self.notion, self.label)
        self._problem = problem.text
        bins = self.bins if self.kind == "histogram" else None
        if bins is not None:
            self._edges = bin_edges(bins)
        return self._add(source.total(curve_statistic, problem, bins, self.closed))

    def merge(self, other: Self) -> Self:
        """Add the samples of another accumulator with the same settings, and return this one."""
        super().merge(other)
        for name in ("_problem", "_edges"):
            if hasattr(other, name):
                setattr(self, name, getattr(other, name))
        return self

    def compute(self) -> ReliabilityCurve:
        """Return the curve of all samples so far."""
        rows, squares, grid, sums = self._seen()
        inflation = squares / float(grid.count.sum())
        if self.kind == "kde":
            points = kernel_points(grid, inflation, self.band, self.bandwidth, self.kernel)
        else:
            points = histogram_points(sums, inflation, self.band, self._edges)
        return assemble(self.kind, self._problem, points, self.band, grid, rows)


def _check_streams(chosen: Estimator, notion: str) -> None:
    """Raise an error for what needs all rows in memory."""
    why = why_not_sums(chosen, notion)
    if why is None and isinstance(chosen, Histogram) and isinstance(chosen.bins, str):
        why = f"bins={chosen.bins!r} depend on how many rows there will be; give a number"
    if why is not None:
        refuse_streaming(why)

"""Metrics that are fed batch by batch: update, merge, compute, in bounded memory.

What is kept is a sum over rows (moments, bins, a grid), so that the answer is that of the one-shot function on all rows
together, in whatever batches they came and from whatever workers.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from mixnmatch._rows import RowSource
from mixnmatch.evaluation import notion as notions
from mixnmatch.evaluation._accumulators import (
    Accumulator,
    AccuracyAccumulator,
    BrierAccumulator,
    CalibrationGainAccumulator,
    LogLossAccumulator,
)
from mixnmatch.evaluation._binning import Floats, Grid, bin_linearly
from mixnmatch.evaluation._curves import Band, edge_sums, histogram_points, kernel_points
from mixnmatch.evaluation._outcomes import choose_problem
from mixnmatch.evaluation.error import SMALLEST_ADVISED, CalibrationMetric
from mixnmatch.evaluation.estimators import Estimator, GridEstimator, Histogram, Sweep, estimator
from mixnmatch.evaluation.histogram import BinSums, bin_sums
from mixnmatch.evaluation.notion import Outcomes
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

GRID_ALTERNATIVE = (
    'a grid estimator gives such an answer in one pass: "kde-residual", "kde-residual-debiased", "kde" or "smooth"'
)


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
        notion: str = "top-label",
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
        _check_streams(chosen, notion)
        self.name = estimator if isinstance(estimator, str) else repr(chosen)
        self.metric = CalibrationMetric(chosen, notion, chosen.norms[0] if norm is None else norm, average)
        self.root = root

    def update(self, scores: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take in a batch of scores and labels."""
        source = self._read(scores, y, sample_weight)
        assert source.labels is not None
        table, labels, weight = source.scores, source.labels, source.weight
        top = notions.top_label(table, labels, weight)
        noise = top.z * (1 - top.z)
        sums = (self._notion(table.vector), top, source)
        frequencies = np.bincount(labels, weights=weight, minlength=source.n_classes).astype(np.float64)
        noise_sum = float(noise.sum() if weight is None else noise @ weight)
        return self._add((self._statistic(*sums), frequencies, noise_sum))

    def _notion(self, vector: bool) -> str:
        return "binary" if vector and self.metric.notion == "top-label" else self.metric.notion

    def _statistic(self, notion: str, top: Outcomes, source: RowSource) -> Any:
        chosen = self.metric.estimator
        labels, weight = source.labels, source.weight
        assert labels is not None
        if notion == "class-wise":
            if isinstance(chosen, GridEstimator):
                return notions.class_grid(source.scores, labels, weight)
            assert isinstance(chosen, Histogram)
            p = notions.probabilities(source.scores)
            each = (notions.one_class(p, labels, k, weight) for k in range(source.n_classes))
            return tuple(bin_sums(one.z, one.y, one.weight, bins=chosen.bins) for one in each)
        outcomes = top if notion == "top-label" else notions.binary(source.scores, labels, weight)
        if isinstance(chosen, GridEstimator):
            return bin_linearly(outcomes.z, outcomes.y, outcomes.weight)
        assert isinstance(chosen, Histogram)
        return bin_sums(outcomes.z, outcomes.y, outcomes.weight, bins=chosen.bins)

    def compute(self) -> CalibrationError:
        """The calibration error of all rows so far."""
        statistic, frequencies, noise = self._seen()
        n = float(frequencies.sum())
        per_class = self._each_class(statistic) if self.metric.notion == "class-wise" else None
        if per_class is None:
            value = self._one(statistic)
        elif self.metric.average == "mean":
            value = float(per_class.mean())
        else:
            value = float(per_class @ (frequencies / n))
        norm = self.metric.norm
        power = 1 / norm if isinstance(norm, int) else 1.0
        size = max(max(value, 0.0) ** power, SMALLEST_ADVISED)
        assert self._shape is not None
        return CalibrationError(
            max(value, 0.0) ** power if self.root and power != 1 else value,
            estimator=self.name,
            notion=self._notion(self._shape[1]),
            norm=norm,
            root=self.root,
            n=n,
            per_class=per_class,
            advised_n=math.ceil((1.96 / (0.5 * size)) ** 2 * max(noise / n, 1e-4)),
        )

    def _one(self, statistic: Any) -> float:
        chosen = self.metric.estimator
        if isinstance(chosen, GridEstimator):
            return float(chosen.on_grid(statistic, self.metric.norm))
        assert isinstance(chosen, Histogram)
        return float(statistic.debiased() if chosen.debiased else statistic.error(self.metric.norm))

    def _each_class(self, statistic: Any) -> Floats:
        if isinstance(statistic, Grid):
            return self.metric.each_of_grid(statistic)
        return np.array([self._one(sums) for sums in statistic])


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
        """Take in a batch of scores and labels."""
        source = self._read(scores, y, sample_weight)
        problem = choose_problem(source, self.notion, self.label)
        self._problem, outcomes = problem.text, problem.outcomes(source)
        weight = outcomes.weight
        rows = len(outcomes.z) if weight is None else int(np.count_nonzero(weight))
        squares = float(len(outcomes.z)) if weight is None else float(weight @ weight)
        grid = bin_linearly(outcomes.z, outcomes.y, weight)
        sums: BinSums | int = 0
        if self.kind == "histogram":
            sums, self._edges = edge_sums(outcomes, self.bins, "equal-width", self.closed)
        return self._add((rows, squares, grid, sums))

    def merge(self, other: Self) -> Self:
        """Take in what another accumulator of the same settings has seen; returns this one."""
        super().merge(other)
        for name in ("_problem", "_edges"):
            if hasattr(other, name):
                setattr(self, name, getattr(other, name))
        return self

    def compute(self) -> ReliabilityCurve:
        """The curve of all rows so far."""
        rows, squares, grid, sums = self._seen()
        inflation = squares / float(grid.count.sum())
        if self.kind == "kde":
            points = kernel_points(grid, inflation, self.band, self.bandwidth, self.kernel)
        else:
            points = histogram_points(sums, inflation, self.band, self._edges)
        return assemble(self.kind, self._problem, points, self.band, grid, rows)


def _check_streams(chosen: Estimator, notion: str) -> None:
    """Raise an error for what needs all rows in memory."""
    if notion == "canonical" or not chosen.one_dimensional:
        why = "errors of the full vector compare rows with each other and need them in memory"
    elif isinstance(chosen, Sweep) or (isinstance(chosen, Histogram) and chosen.binning != "equal-width"):
        why = "equal-mass bins need all confidences in memory"
    elif isinstance(chosen, Histogram) and isinstance(chosen.bins, str):
        why = f"bins={chosen.bins!r} depend on how many rows there will be; give a number"
    elif isinstance(chosen, GridEstimator | Histogram):
        return
    else:
        why = f"{type(chosen).__name__} needs the data in memory"
    msg = f"cannot stream: {why}. For one confidence (top-label, binary or class-wise) {GRID_ALTERNATIVE}"
    raise ValueError(msg)

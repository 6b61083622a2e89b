"""Accumulators of means over rows, and what all accumulators share."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.block import Block
from mixnmatch._engine.passes import add
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import read_scores
from mixnmatch.evaluation._bounded import HALF_SQUARED_ERROR, NOT_NEGATIVE, PROPORTION, SQUARED_ERROR, Bounds
from mixnmatch.evaluation._means import MeanEstimate, Moments, check_confidence
from mixnmatch.evaluation.gain import CalibrationGain, gain_from, gain_rows
from mixnmatch.evaluation.scores import (
    FEW,
    accuracy_rows,
    brier_rows,
    half_brier_rows,
    log_loss_rows,
    moments_statistic,
    wrong_loss_rows,
)


class Accumulator:
    """Base of all accumulators: what was seen of the shape of the scores, and how two of them are merged."""

    logits: bool
    classes: Any

    def __init__(self, *, logits: bool = False, classes: Any = None) -> None:
        self.logits = logits
        self.classes = classes
        self._shape: tuple[int, bool] | None = None  # number of classes, and whether scores are vectors
        self._state: Any = None

    def _read(self, scores: Any, y: Any, sample_weight: Any) -> Rows:
        source = door.rows(scores, y, sample_weight, logits=self.logits, classes=self.classes)
        shape = (source.n_classes, source.scores.vector)
        if self._shape is not None and shape != self._shape:
            msg = f"earlier scores had {_shape_text(self._shape)}, these have {_shape_text(shape)}"
            raise ValueError(msg)
        self._shape = shape
        return source

    def _add(self, state: Any) -> Self:
        self._state = state if self._state is None else add(self._state, state)
        return self

    def _settings(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def merge(self, other: Self) -> Self:
        """Add the samples of another accumulator with the same settings, and return this one."""
        if type(other) is not type(self) or repr(other._settings()) != repr(self._settings()):
            msg = f"cannot merge: {_describe(self)} and {_describe(other)} are not the same metric"
            raise ValueError(msg)
        if other._state is None:
            return self
        if self._shape is not None and self._shape != other._shape:
            msg = f"cannot merge: scores had {_shape_text(self._shape)} here and {_shape_text(other._shape)} there"
            raise ValueError(msg)
        self._shape = other._shape
        return self._add(other._state)

    def _seen(self) -> Any:
        if self._state is None:
            msg = "nothing to compute: call update first"
            raise ValueError(msg)
        return self._state


class _MeanAccumulator(Accumulator):
    """A mean over rows."""

    def __init__(self, *, logits: bool = False, classes: Any = None, confidence: float = 0.95) -> None:
        super().__init__(logits=logits, classes=classes)
        check_confidence(confidence)
        self.confidence = confidence

    def _rows(self, block: Block) -> NDArray[np.float64]:
        raise NotImplementedError

    def _bounds(self, moments: Moments) -> Bounds:
        raise NotImplementedError

    def update(self, scores: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add a batch of scores and labels; an empty batch changes nothing."""
        if door.no_rows(scores, y):
            return self
        source = self._read(scores, y, sample_weight)
        return self._add(source.total(moments_statistic, self._rows))

    def compute(self) -> MeanEstimate:
        """Return the mean over all samples so far, with its standard error."""
        moments: Moments = self._seen()
        return MeanEstimate(
            float(moments.means()[0]),
            standard_error=float(np.sqrt(moments.covariance()[0, 0])),
            bounds=self._bounds(moments),
            effective_size=float(moments.effective_sizes()[0]),
            **_size(moments, self.confidence),
        )


class BrierAccumulator(_MeanAccumulator):
    """Streaming :func:`brier_score`.

    Parameters
    ----------
    scale_by_half, logits, classes, confidence
        As in :func:`brier_score`.

    Examples
    --------
    >>> brier = BrierAccumulator()
    >>> for p, y in (([[0.5, 0.5]], [0]), ([[0.0, 1.0]], [1])):
    ...     _ = brier.update(p, y)
    >>> float(brier.compute())
    0.25
    """

    def __init__(
        self, *, scale_by_half: bool = False, logits: bool = False, classes: Any = None, confidence: float = 0.95
    ) -> None:
        super().__init__(logits=logits, classes=classes, confidence=confidence)
        self.scale_by_half = scale_by_half

    def _rows(self, block: Block) -> NDArray[np.float64]:
        return half_brier_rows(block) if self.scale_by_half else brier_rows(block)

    def _bounds(self, moments: Moments) -> Bounds:
        return HALF_SQUARED_ERROR if self.scale_by_half else SQUARED_ERROR


class LogLossAccumulator(_MeanAccumulator):
    """Streaming :func:`log_loss`.

    Parameters
    ----------
    eps, logits, classes, confidence
        As in :func:`log_loss`.
    """

    def __init__(
        self, *, eps: float = 0.0, logits: bool = False, classes: Any = None, confidence: float = 0.95
    ) -> None:
        super().__init__(logits=logits, classes=classes, confidence=confidence)
        self.eps = eps
        self._few = True  # whether what wrong predictions cost is still of interest

    def _rows(self, block: Block) -> NDArray[np.float64]:
        loss = log_loss_rows(block, self.eps)
        return np.stack([loss, wrong_loss_rows(block, self.eps) if self._few else np.full_like(loss, np.nan)])

    def _read(self, scores: Any, y: Any, sample_weight: Any) -> Rows:
        source = super()._read(scores, y, sample_weight)
        seen = 0 if self._state is None else self._state.n_rows
        self._few = not source.on_dask and seen + source.n_rows <= FEW
        return source

    def _bounds(self, moments: Moments) -> Bounds:
        unseen = float(moments.means()[1])
        return NOT_NEGATIVE if moments.n_rows > FEW or np.isnan(unseen) else replace(NOT_NEGATIVE, unseen=unseen)


class AccuracyAccumulator(_MeanAccumulator):
    """Streaming :func:`accuracy`.

    Parameters
    ----------
    logits, classes, confidence
        As in :func:`accuracy`.
    """

    def _rows(self, block: Block) -> NDArray[np.float64]:
        return accuracy_rows(block)

    def _bounds(self, moments: Moments) -> Bounds:
        return PROPORTION


class CalibrationGainAccumulator(Accumulator):
    """Streaming :func:`calibration_gain`.

    Parameters
    ----------
    injective, logits, classes, confidence
        As in :func:`calibration_gain`.
    """

    def __init__(
        self,
        *,
        injective: bool | None = None,
        logits: bool = False,
        classes: Any = None,
        confidence: float = 0.95,
    ) -> None:
        super().__init__(logits=logits, classes=classes)
        check_confidence(confidence)
        self.injective = injective
        self.confidence = confidence

    def update(self, before: Any, after: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add a batch of scores before the map, probabilities after it, and labels."""
        if door.no_rows(before, y):
            return self
        source = self._read(before, y, sample_weight)
        table = read_scores(after, n_classes=source.n_classes)
        if table.n_rows != source.n_rows:
            msg = f"there are {source.n_rows} rows before and {table.n_rows} after"
            raise ValueError(msg)
        seen = 0 if self._state is None else self._state.n_rows
        few = not source.on_dask and seen + source.n_rows <= FEW
        return self._add(source.together(Rows(table)).total(moments_statistic, partial(_gain_rows, few=few)))

    def compute(self) -> CalibrationGain:
        """Return the gain over all samples so far."""
        moments: Moments = self._seen()
        size = _size(moments, self.confidence) | {"effective_size": float(moments.effective_sizes()[0])}
        return gain_from(moments.means(), moments.covariance(), 0, self.injective, size)


def _gain_rows(before: Block, after: Block, few: bool) -> NDArray[np.float64]:
    """What :func:`gain_rows` gives, in as many rows for many samples as for few."""
    rows = gain_rows(before, after, few)
    return rows if few else np.concatenate([rows, np.full_like(rows[:2], np.nan)])


def _size(moments: Moments, confidence: float) -> dict[str, Any]:
    return {"n_rows": moments.n_rows, "n_groups": None, "confidence": confidence}


def _shape_text(shape: tuple[int, bool] | None) -> str:
    if shape is None:
        return "no rows"
    return "one column (a vector)" if shape[1] else f"{shape[0]} classes"


def _describe(metric: Any) -> str:
    settings = metric._settings() if isinstance(metric, Accumulator) else {}
    return f"{type(metric).__name__}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"

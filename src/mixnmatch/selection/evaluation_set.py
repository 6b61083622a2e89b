"""The samples that methods are evaluated on, and the losses of methods for each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.rows import Rows, refuse_dask
from mixnmatch._engine.scores import Scores
from mixnmatch.evaluation._bounded import Bounds
from mixnmatch.evaluation._means import MeanEstimate, Moments


def read_evaluation(evaluation: Any, source: Rows) -> Rows:
    """Check the samples to evaluate on, unless they are Rows already."""
    if isinstance(evaluation, Rows):
        other = door.labelled(door.rows(evaluation, logits=source.scores.logits, classes=source.classes))
    elif isinstance(evaluation, tuple | list) and len(evaluation) in (2, 3):
        other = door.rows(*evaluation, logits=source.scores.logits, classes=source.classes)
    else:
        msg = "evaluation must be Rows, a pair (scores, y), or (scores, y, sample_weight)"
        raise ValueError(msg)
    if other.n_classes != source.n_classes:
        msg = f"scores have {source.n_classes} classes, those to evaluate on {other.n_classes}"
        raise ValueError(msg)
    return other


@dataclass(frozen=True)
class SampleLosses:
    """For each sample: squared error, log loss, whether the predicted class is the label, and the predicted class."""

    brier: NDArray[np.float64]
    nll: NDArray[np.float64]
    right: NDArray[np.float64]
    winner: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class LossTable:
    """Losses of all methods for the same samples, none of which the methods were fitted on.

    Attributes
    ----------
    names : tuple of str
        The m methods.
    nll, brier : array of shape (n, m)
        Log loss and squared error of each sample.
    weight : array of shape (n,), or None
        Frequencies of the samples.
    fold : array of shape (n,)
        Part of the samples that each belongs to: the folds of the cross-validation, or for a held-out set folds that
        only serve to estimate the gain of selecting.
    class_weights, evaluated : array of shape (L,)
        Number of samples of each class to calibrate with, and to evaluate on (sums of weights).
    errors : float or None
        Number of evaluated samples whose predicted class, before calibration, is not the label; None if unknown.
    """

    names: tuple[str, ...]
    nll: NDArray[np.float64]
    brier: NDArray[np.float64]
    weight: NDArray[np.float64] | None
    fold: NDArray[np.intp]
    class_weights: NDArray[np.float64]
    evaluated: NDArray[np.float64]
    errors: float | None = None


@dataclass(frozen=True)
class EvaluationSet:
    """The samples that methods are evaluated on, those of weight zero left out."""

    source: Rows
    index: NDArray[np.intp]
    labels: NDArray[np.intp]
    weight: NDArray[np.float64] | None

    @classmethod
    def of(cls, source: Rows) -> EvaluationSet:
        """Samples of positive weight."""
        refuse_dask(source, "methods are compared sample by sample in memory")
        assert source.labels is not None
        index = np.arange(source.n_rows) if source.weight is None else np.flatnonzero(source.weight > 0)
        weight = None if source.weight is None else source.weight[index]
        return cls(source, index, source.labels[index], weight)

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.index)

    def given(self, chosen: NDArray[Any] | slice = slice(None)) -> Rows:
        """The samples, or some of them, with the scores that were given, for maps to be applied to."""
        values = np.asarray(self.source.scores.values[self.index[chosen]])
        return Rows(replace(self.source.scores, values=values), classes=self.source.classes)

    def predicted(self, p: NDArray[Any]) -> Rows:
        """The same samples with probabilities that a map gave them; these need no check."""
        return Rows(Scores(p, False), self.labels, self.weight, classes=self.source.classes)

    def identity(self) -> NDArray[Any]:
        """Uncalibrated probabilities."""
        from mixnmatch.maps.trivial import Identity

        return Identity(logits=self.source.scores.logits)._fit_source(self.source).predict_proba(self.given())

    def losses(self, p: NDArray[Any]) -> SampleLosses:
        """Losses of predictions, n x L."""
        rows = np.arange(self.n)
        error = np.array(p, dtype=np.float64)
        with np.errstate(divide="ignore"):
            nll = -np.log(error[rows, self.labels]) + 0.0
        error[rows, self.labels] -= 1
        winner = p.argmax(axis=1)
        right = (winner == self.labels).astype(np.float64)
        return SampleLosses(np.einsum("ij,ij->i", error, error), nll, right, winner)

    def mean(self, values: NDArray[np.float64], confidence: float, bounds: Bounds | None = None) -> MeanEstimate:
        """Weighted mean over samples of a quantity that may have a known range, with its standard error."""
        moments = Moments.of(values[None], self.weight)
        return MeanEstimate(
            float(moments.means()[0]),
            standard_error=float(np.sqrt(moments.covariance()[0, 0])),
            n_rows=self.n,
            n_groups=None,
            confidence=confidence,
            effective_size=float(moments.effective_sizes()[0]),
            bounds=bounds,
        )

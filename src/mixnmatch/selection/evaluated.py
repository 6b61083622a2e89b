"""What comparisons share: the rows that methods are evaluated on, their losses, and methods by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.rows import Rows, refuse_dask
from mixnmatch.evaluation._means import MeanEstimate, Moments
from mixnmatch.evaluation.gain import CalibrationGain
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.external import calibration_map

Methods = Sequence[Any] | Mapping[str, Any]
# Methods of this cost and above are only compared when they are asked for; on tables of more entries than that, so are
# those of the cost below.
COSTLY = 3
COSTLY_TO = 300_000


def read_evaluation(evaluation: tuple[Any, ...], source: Rows, *, logits: bool) -> Rows:
    """Check the rows to evaluate on."""
    if not isinstance(evaluation, tuple | list) or len(evaluation) not in (2, 3):
        msg = "evaluation must be a pair (scores, y), or (scores, y, sample_weight)"
        raise ValueError(msg)
    other = door.rows(*evaluation, logits=logits, classes=source.classes)
    if other.n_classes != source.n_classes:
        msg = f"scores have {source.n_classes} classes, those to evaluate on {other.n_classes}"
        raise ValueError(msg)
    return other


def default_methods(source: Rows) -> tuple[list[str], list[str]]:
    """Short names that are compared if nothing is said, and those left out because they take long to fit."""
    from mixnmatch.registry import REGISTRY

    limit = COSTLY if source.n_entries <= COSTLY_TO else COSTLY - 1
    entries = [entry for entry in REGISTRY.values() if entry.name != "uniform"]
    return [e.name for e in entries if e.cost < limit], [e.name for e in entries if e.cost >= limit]


def build_methods(methods: Methods | None, source: Rows, *, logits: bool) -> dict[str, CalibrationMap]:
    """Unfitted maps by name, the identity among them."""
    from mixnmatch.registry import calibrator

    classes = source.classes
    if methods is None:
        methods = default_methods(source)[0]
    elif isinstance(methods, str):
        methods = [*default_methods(source)[0], *default_methods(source)[1]] if methods == "all" else [methods]
    named = methods.items() if isinstance(methods, Mapping) else [(None, method) for method in methods]
    made: dict[str, CalibrationMap] = {}
    for given, method in named:
        if isinstance(method, str):
            made[given or method] = calibrator(method, logits=logits, classes=classes)
        else:
            map_ = calibration_map(method).for_input(logits=logits, classes=classes)
            made[given or " ".join(repr(method).split())] = map_
    if "identity" not in made:
        made["identity"] = calibrator("identity", logits=logits, classes=classes)
    return made


@dataclass(frozen=True)
class RowLosses:
    """Row by row: squared error, log loss, whether the winner is the label, and the winner."""

    brier: NDArray[np.float64]
    nll: NDArray[np.float64]
    right: NDArray[np.float64]
    winner: NDArray[np.intp]


@dataclass(frozen=True)
class EvaluationSet:
    """The rows that methods are evaluated on, those of weight zero left out."""

    source: Rows
    index: NDArray[np.intp]
    labels: NDArray[np.intp]
    weight: NDArray[np.float64] | None

    @classmethod
    def of(cls, source: Rows) -> EvaluationSet:
        """Rows of positive weight of a source."""
        refuse_dask(source, "methods are compared row by row in memory")
        assert source.labels is not None
        index = np.arange(source.n_rows) if source.weight is None else np.flatnonzero(source.weight > 0)
        weight = None if source.weight is None else source.weight[index]
        return cls(source, index, source.labels[index], weight)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.index)

    def scores(self, which: NDArray[Any] | slice = slice(None)) -> NDArray[Any]:
        """Scores as they were given."""
        return np.asarray(self.source.scores.values[self.index[which]])

    def identity(self) -> NDArray[Any]:
        """Uncalibrated probabilities."""
        from mixnmatch.maps.trivial import Identity

        return Identity(logits=self.source.scores.logits)._fit_source(self.source).predict_proba(self.scores())

    def losses(self, p: NDArray[Any]) -> RowLosses:
        """Losses of predictions, n x L."""
        rows = np.arange(self.n)
        error = np.array(p, dtype=np.float64)
        with np.errstate(divide="ignore"):
            nll = -np.log(error[rows, self.labels]) + 0.0
        error[rows, self.labels] -= 1
        winner = p.argmax(axis=1)
        right = (winner == self.labels).astype(np.float64)
        return RowLosses(np.einsum("ij,ij->i", error, error), nll, right, winner)

    def mean(self, values: NDArray[np.float64], confidence: float) -> MeanEstimate:
        """Weighted mean of a row quantity, with its standard error."""
        return MeanEstimate(**self._moments(values, confidence))

    def gain(self, before: RowLosses, after: RowLosses, injective: bool | None, confidence: float) -> CalibrationGain:
        """Calibration gain."""
        found = self._moments(before.brier - after.brier, confidence)
        first, second = self.mean(before.brier, confidence), self.mean(after.brier, confidence)
        return CalibrationGain(**found, before=float(first), after=float(second), exact=injective)

    def _moments(self, values: NDArray[np.float64], confidence: float) -> dict[str, Any]:
        moments = Moments.of(values[None], self.weight)
        return {
            "value": float(moments.means()[0]),
            "standard_error": float(np.sqrt(moments.covariance()[0, 0])),
            "n_rows": self.n,
            "n_groups": None,
            "confidence": confidence,
        }

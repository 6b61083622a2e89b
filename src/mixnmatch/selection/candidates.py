"""What ``auto`` chooses from: sequences of maps, and what a fit of them costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.combine import OneVsAll, Pooled
from mixnmatch.maps.ensemble_temperature import EnsembleTemperatureScaling
from mixnmatch.maps.isotonic import Isotonic
from mixnmatch.maps.logistic import BetaScaling
from mixnmatch.maps.order_preserving import IntraOrderPreserving
from mixnmatch.maps.scaling import StructuredMatrixScaling, StructuredVectorScaling
from mixnmatch.maps.temperature import TemperatureScaling
from mixnmatch.maps.trivial import Identity
from mixnmatch.selection.crossfit import Stages

# Up to so many classes maps with a matrix are tried in all ways. Above, only the best of them is, where a fit takes
# about a minute at most: rows times the square of the number of classes, 50000 rows of 1000 classes.
MATRIX_TO = 200
MATRIX_SIZE = 5e10
# The published ridge of structured matrix scaling can hold back too much, with 100 classes for one; a tenth is tried.
WEAK_RIDGE = 0.1


@dataclass(frozen=True)
class Stage:
    """A map that candidates are made of: how to make it, and the seconds that a fit takes for an entry of the table."""

    make: Callable[..., CalibrationMap]
    per_entry: float
    per_entry_and_class: float = 0.0

    def seconds(self, n_rows: float, n_classes: int) -> float:
        """A guess of the seconds that a fit takes, the same on every machine."""
        return n_rows * n_classes * (self.per_entry + n_classes * self.per_entry_and_class)


def _pooled_isotonic(**settings: Any) -> CalibrationMap:
    return Pooled(Isotonic(shape="centred", strict=True), **settings)


def _one_vs_all_isotonic(**settings: Any) -> CalibrationMap:
    return OneVsAll(Isotonic(shape="centred"), **settings)


def _one_vs_all_beta(**settings: Any) -> CalibrationMap:
    return OneVsAll(BetaScaling(), **settings)


def _weak_matrix(**settings: Any) -> CalibrationMap:
    return StructuredMatrixScaling(strength=WEAK_RIDGE, **settings)


# Measured on one core of a small server; what matters is the order and, for a time budget, the size.
STAGES: dict[str, Stage] = {
    "identity": Stage(Identity, 1e-8),
    "ts": Stage(TemperatureScaling, 1e-7),
    "irm": Stage(_pooled_isotonic, 1e-7),
    "irova": Stage(_one_vs_all_isotonic, 1e-7),
    "ets": Stage(EnsembleTemperatureScaling, 4e-7),
    "svs": Stage(StructuredVectorScaling, 2e-7),
    "beta": Stage(_one_vs_all_beta, 1e-6),
    "iop": Stage(IntraOrderPreserving, 1e-6),
    "sms": Stage(StructuredMatrixScaling, 5e-7, 1e-9),
    "sms-weak": Stage(_weak_matrix, 1.5e-6, 3e-9),
}


@dataclass(frozen=True)
class Candidate:
    """A sequence of maps: ``stages`` fitted one after another, then ``tail`` fitted on outputs for unseen rows."""

    stages: Stages
    tail: Stages = ()

    @property
    def name(self) -> str:
        """The stages in the order in which they act."""
        return " >> ".join(self.names)

    @property
    def names(self) -> Stages:
        """Names of all stages."""
        return *self.stages, *self.tail

    @property
    def matrix(self) -> bool:
        """Whether a stage has a matrix of parameters."""
        return any(stage.startswith("sms") for stage in self.stages)

    @property
    def fits(self) -> list[tuple[Stages, Stages]]:
        """What has to be fitted, one after another: candidates that begin alike share their first fits."""
        first: list[tuple[Stages, Stages]] = [(self.stages[: k + 1], ()) for k in range(len(self.stages))]
        return first + [(self.stages, self.tail[: k + 1]) for k in range(len(self.tail))]


def guess_seconds(candidates: list[Candidate], n_rows: float, n_classes: int, n_folds: int) -> float:
    """A guess of the seconds that cross-fitting and the final fits take together, the same on every machine."""
    fits = dict.fromkeys(fit for candidate in candidates for fit in candidate.fits)
    once = sum(STAGES[(*stages, *tail)[-1]].seconds(n_rows, n_classes) for stages, tail in fits)
    return once * (n_folds + 1)


CANDIDATES = (
    Candidate(("identity",)),
    Candidate(("ts",)),
    Candidate(("irm",)),
    Candidate(("ets",)),
    Candidate(("iop",)),
    Candidate(("iop", "irm")),
    Candidate(("svs",)),
    Candidate(("iop", "svs")),
    Candidate(("sms",)),
    Candidate(("sms",), ("iop",)),
    Candidate(("iop", "sms")),
    Candidate(("iop", "sms"), ("irm",)),
    Candidate(("iop", "sms"), ("iop",)),
    Candidate(("iop", "sms-weak")),
)
# With two classes a matrix says no more than a vector; a function of the positive class is worth a try instead.
CANDIDATES_FOR_TWO = (Candidate(("beta",)), Candidate(("irova",)))


def candidates_for(n_rows: float, n_classes: int) -> list[Candidate]:
    """Candidates for a problem with so many rows and classes."""
    if n_classes == 2:
        return [*(candidate for candidate in CANDIDATES if not candidate.matrix), *CANDIDATES_FOR_TWO]
    chosen = list(CANDIDATES)
    if n_classes > MATRIX_TO:
        best = Candidate(("iop", "sms"))
        chosen = [candidate for candidate in chosen if not candidate.matrix or candidate == best]
        if n_rows * n_classes**2 > MATRIX_SIZE:
            chosen.remove(best)
        chosen.remove(Candidate(("svs",)))  # better after an order-preserving map
    return chosen


def drop_over_budget(
    candidates: list[Candidate], budget: float | None, n_rows: float, n_classes: int, n_folds: int
) -> tuple[list[Candidate], list[Candidate]]:
    """Candidates that should fit into so many seconds together, from cheap to costly, and those dropped."""
    kept = sorted(candidates, key=lambda one: guess_seconds([one], n_rows, n_classes, n_folds))
    dropped = []
    while budget is not None and len(kept) > 1 and guess_seconds(kept, n_rows, n_classes, n_folds) > budget:
        dropped.append(kept.pop())
    return kept, dropped

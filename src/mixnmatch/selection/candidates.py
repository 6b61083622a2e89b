"""What ``auto`` chooses from: sequences of maps, and what a fit of them costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.combine import OneVsAll, Pooled
from mixnmatch.maps.context import ContextualOrderPreserving
from mixnmatch.maps.isotonic import Isotonic
from mixnmatch.maps.order_preserving import IntraOrderPreserving
from mixnmatch.maps.scaling import StructuredMatrixScaling, StructuredVectorScaling
from mixnmatch.maps.spline import SplineCalibration
from mixnmatch.maps.temperature import TemperatureScaling
from mixnmatch.maps.trivial import Identity
from mixnmatch.selection.crossfit import Stages

# Up to so many classes maps with a matrix are tried in two ways. Above, they are tried in one, where a fit takes about
# a minute at most: rows times the square of the number of classes, 50000 rows of 1000 classes.
MATRIX_TO = 200
MATRIX_SIZE = 5e10
# The published ridge of structured matrix scaling holds back too much for a stack, which takes care of overfitting.
WEAK_RIDGE = 0.1
# From so many samples on, isotonic regression improves on a function with a few knots.
ISOTONIC_FROM = 2500
# From so many samples on, a function that depends on the sample improves on one that does not.
CONTEXT_FROM = 300
# A function that decreases somewhere has to be so many times as likely as those that keep the order of the samples.
ODDS_AGAINST_ORDER = 20.0
# Mixing of smooth one-vs-all maps with the uniform distribution, as in their short names.
SMOOTHING = 0.03


@dataclass(frozen=True)
class Stage:
    """A map that candidates are made of: how to make it, and the seconds that a fit takes in all and for an entry."""

    make: Callable[..., CalibrationMap]
    per_entry: float
    per_entry_and_class: float = 0.0
    once: float = 1e-3

    def seconds(self, n_rows: float, n_classes: int) -> float:
        """A guess of the seconds that a fit takes, the same on every machine."""
        return self.once + n_rows * n_classes * (self.per_entry + n_classes * self.per_entry_and_class)


def _pooled_isotonic(**settings: Any) -> CalibrationMap:
    return Pooled(Isotonic(shape="centred", strict=True), **settings)


def _one_vs_all_isotonic(**settings: Any) -> CalibrationMap:
    return OneVsAll(Isotonic(shape="centred"), **settings)


def _averaged_spline(**settings: Any) -> CalibrationMap:
    return OneVsAll(SplineCalibration(penalty="average", monotone=ODDS_AGAINST_ORDER), smoothing=SMOOTHING, **settings)


def _weak_matrix(**settings: Any) -> CalibrationMap:
    return StructuredMatrixScaling(strength=WEAK_RIDGE, **settings)


# Measured on one core of a small server; what matters is the order and, for a time budget, the size.
STAGES: dict[str, Stage] = {
    "identity": Stage(Identity, 1e-8, once=1e-4),
    "ts": Stage(TemperatureScaling, 3e-8),
    "irm": Stage(_pooled_isotonic, 1e-7),
    "irova": Stage(_one_vs_all_isotonic, 1e-7),
    "svs": Stage(StructuredVectorScaling, 2e-7),
    "iop": Stage(IntraOrderPreserving, 2e-7, once=4e-3),
    "iop-context": Stage(ContextualOrderPreserving, 8e-7, once=3e-2),
    "spline": Stage(_averaged_spline, 2e-7, once=1e-2),
    "sms": Stage(StructuredMatrixScaling, 3e-7, 5e-10),
    "sms-weak": Stage(_weak_matrix, 4e-7, 1e-9),
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


IDENTITY = Candidate(("identity",))
# Functions of the probability of the positive class.
SPLINE, STEPS = Candidate(("spline",)), Candidate(("irova",))
# A matrix alone and after an order-preserving function; what is left to bend is found on samples it has not seen.
WEAK_MATRIX = Candidate(("sms-weak",), ("iop",))
AFTER_ORDER, AFTER_CONTEXT = (Candidate((first, "sms-weak"), ("iop",)) for first in ("iop", "iop-context"))
ORDER, ISOTONIC = Candidate(("iop",)), Candidate(("iop", "irm"))
VECTOR, MATRIX = Candidate(("iop", "svs")), Candidate(("iop", "sms"))


def candidates_for(n_rows: float, n_classes: int, *, accuracy_preserving: bool = False) -> list[Candidate]:
    """Candidates for a problem with so many samples (a weight of k is k of them) and classes, the identity first."""
    if n_classes == 2:
        steps = [STEPS] if n_rows >= ISOTONIC_FROM else []
        return [IDENTITY, *([ORDER] if accuracy_preserving else []), SPLINE, *steps]
    shared = ISOTONIC if n_rows >= ISOTONIC_FROM else ORDER
    if n_classes <= MATRIX_TO:
        return [IDENTITY, shared, WEAK_MATRIX, AFTER_CONTEXT if n_rows >= CONTEXT_FROM else AFTER_ORDER]
    return [IDENTITY, shared, VECTOR, *([MATRIX] if n_rows * n_classes**2 <= MATRIX_SIZE else [])]


def fallback_for(n_classes: int) -> Candidate:
    """What is left where a time budget has no room for any candidate: the cheapest map that is worth having."""
    return SPLINE if n_classes == 2 else Candidate(("ts",))


def folds_for(n_rows: float) -> int:
    """Number of folds: with many samples there is no need of more than three."""
    return 3 if n_rows >= ISOTONIC_FROM else 5


def drop_over_budget(
    candidates: list[Candidate], budget: float | None, n_rows: float, n_classes: int, n_folds: int
) -> tuple[list[Candidate], list[Candidate]]:
    """Candidates that should fit into so many seconds together, from cheap to costly, and those dropped.

    If all but the identity are dropped, the fallback takes their place.
    """
    kept = sorted(candidates, key=lambda one: guess_seconds([one], n_rows, n_classes, n_folds))
    dropped: list[Candidate] = []
    while budget is not None and len(kept) > 1 and guess_seconds(kept, n_rows, n_classes, n_folds) > budget:
        dropped.append(kept.pop())
    if dropped and len(kept) == 1:
        fallback = fallback_for(n_classes)
        kept, dropped = [*kept, fallback], [one for one in dropped if one != fallback]
    return kept, dropped

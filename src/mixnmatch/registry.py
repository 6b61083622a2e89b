"""Short names of maps: a table from names to expressions, for the command line and for one-line use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mixnmatch.maps.base import BinaryMap, CalibrationMap
from mixnmatch.maps.binning import BayesianBinning, HistogramBinning
from mixnmatch.maps.combine import OneVsAll, Pooled
from mixnmatch.maps.composition import Composition
from mixnmatch.maps.ensemble import Ensemble
from mixnmatch.maps.ensemble_temperature import EnsembleTemperatureScaling
from mixnmatch.maps.gaussian_process import GaussianProcessCalibration
from mixnmatch.maps.isotonic import Isotonic
from mixnmatch.maps.keep_winner import KeepWinner
from mixnmatch.maps.logistic import BetaScaling, PlattScaling
from mixnmatch.maps.normalised_isotonic import NormalisedIsotonic
from mixnmatch.maps.order_preserving import IntraOrderPreserving
from mixnmatch.maps.piecewise import PiecewiseMap
from mixnmatch.maps.scaling import (
    BiasCorrectedTemperatureScaling,
    DirichletScaling,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from mixnmatch.maps.temperature import TemperatureScaling
from mixnmatch.maps.trivial import Identity, Uniform
from mixnmatch.selection.auto import Auto

Options = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One short name: how to build the map, in a line what it is, and what it costs.

    ``cost`` orders names by the time of a fit: 0 for instant ones, 3 for those that take longest.
    """

    name: str
    build: Callable[[Options, Options], CalibrationMap]
    summary: str
    cost: int = 0

    @property
    def accuracy_preserving(self) -> bool:
        """Whether the map preserves accuracy."""
        return self.build({}, {}).accuracy_preserving


def _single(kind: type[CalibrationMap], **fixed: Any) -> Callable[[Options, Options], CalibrationMap]:
    return lambda common, options: kind(**common, **(fixed | options))


def _parted(options: Options, *outer: str) -> tuple[Options, Options]:
    """Options for the outer map (those named) and for the inner one (the rest)."""
    return {k: v for k, v in options.items() if k in outer}, {k: v for k, v in options.items() if k not in outer}


def _binary(kind: type[BinaryMap]) -> Callable[[Options, Options], CalibrationMap]:
    def build(common: Options, options: Options) -> CalibrationMap:
        outer, inner = _parted(options, *(["smoothing"] if issubclass(kind, PiecewiseMap) else []))
        return OneVsAll(kind(**inner), **common, **outer)

    return build


def _irm(common: Options, options: Options) -> CalibrationMap:
    outer, inner = _parted(options, "smoothing")
    return Pooled(Isotonic(strict=True, **inner), **common, **outer)


def _keep_matrix(common: Options, options: Options) -> CalibrationMap:
    return KeepWinner(StructuredMatrixScaling(**common, **options))


_one_vs_all = _binary(Isotonic)


def _after(
    first: type[CalibrationMap], second: Callable[[Options, Options], CalibrationMap]
) -> Callable[[Options, Options], CalibrationMap]:
    def build(common: Options, options: Options) -> CalibrationMap:
        outer, inner = _parted(options, "cv", "random_state")
        before, after = _parted(inner, "loss")
        return Composition(first(**common, **before), second({}, after), **outer)

    return build


_ENTRIES = (
    Entry("identity", _single(Identity), "no calibration: the scores as they are"),
    Entry("uniform", _single(Uniform), "the same probability for every class"),
    Entry("ts", _single(TemperatureScaling), "temperature scaling"),
    Entry("ets", _single(EnsembleTemperatureScaling), "ensemble temperature scaling, fitted jointly"),
    Entry("bcts", _single(BiasCorrectedTemperatureScaling), "temperature scaling with a bias for each class", 1),
    Entry("platt", _binary(PlattScaling), "Platt scaling on logits, one-vs-all for many classes"),
    Entry("beta", _binary(BetaScaling), "beta scaling, one-vs-all for many classes"),
    Entry("ensemble-beta", _single(Ensemble, family="beta"), "ensemble of beta scaling, identity and uniform", 3),
    Entry("ensemble-platt", _single(Ensemble, family="platt"), "ensemble of Platt scaling, identity and uniform", 3),
    Entry("vector", _single(VectorScaling), "vector scaling: a slope and an intercept for each class", 1),
    Entry("matrix", _single(MatrixScaling), "matrix scaling: all L x L slopes; over-fits", 3),
    Entry("dirichlet", _single(DirichletScaling), "Dirichlet scaling with off-diagonal regularisation (ODIR)", 3),
    Entry("svs", _single(StructuredVectorScaling), "structured vector scaling", 1),
    Entry("sms", _single(StructuredMatrixScaling), "structured matrix scaling", 2),
    Entry("keep-sms", _keep_matrix, "structured matrix scaling held to the given predictions", 2),
    Entry("isotonic", _binary(Isotonic), "isotonic regression, one-vs-all for many classes"),
    Entry("histogram", _binary(HistogramBinning), "histogram binning, one-vs-all for many classes"),
    Entry("bbq", _binary(BayesianBinning), "Bayesian binning into quantiles, one-vs-all for many classes", 1),
    Entry("irm", _irm, "multi-class isotonic regression: one strict isotonic function for all classes"),
    Entry("irm-normalised", _single(NormalisedIsotonic), "as irm, fitted with the normalisation inside"),
    Entry("irova", _one_vs_all, "isotonic regression one-vs-all"),
    Entry("irova-ts", _after(TemperatureScaling, _one_vs_all), "temperature scaling, then isotonic one-vs-all"),
    Entry("irova-ets", _after(EnsembleTemperatureScaling, _one_vs_all), "ETS, then isotonic one-vs-all"),
    Entry("irm-ts", _after(TemperatureScaling, _irm), "temperature scaling, then multi-class isotonic"),
    Entry("irm-ets", _after(EnsembleTemperatureScaling, _irm), "ETS, then multi-class isotonic"),
    Entry("iop", _single(IntraOrderPreserving), "intra order-preserving: one monotone function of log-scores", 1),
    Entry("gpc", _single(GaussianProcessCalibration), "Gaussian-process calibration", 3),
    Entry("auto", _single(Auto), "cross-validated stack of maps and compositions that does no harm", 3),
)
REGISTRY: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def calibrator(name: str, *, logits: bool = False, classes: Any = None, **options: Any) -> CalibrationMap:
    """Build a map from its short name.

    Parameters
    ----------
    name : str
        One of the names that :func:`calibrators` lists.
    logits : bool
        Whether scores are logits rather than probabilities.
    classes : sequence, optional
        Names of the columns.
    **options
        Parameters of the map; for a composition, ``loss`` goes to its first part, ``cv`` to the composition and the
        rest to its second part.

    Examples
    --------
    >>> calibrator("ets", logits=True)
    EnsembleTemperatureScaling(logits=True)
    >>> calibrator("irova-ts")
    Composition(first=TemperatureScaling(), second=OneVsAll(map=Isotonic()))
    """
    entry = REGISTRY.get(name)
    if entry is None:
        from difflib import get_close_matches

        close = get_close_matches(str(name), REGISTRY, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        msg = f"there is no map called {name!r}{hint} Names: {', '.join(REGISTRY)}"
        raise ValueError(msg)
    common: Options = {"logits": logits} if logits else {}
    if classes is not None:
        common["classes"] = classes
    if "weights" in options:
        common["weights"] = options.pop("weights")
    return entry.build(common, options)


@dataclass(frozen=True)
class Description:
    """A line about a short name."""

    name: str
    summary: str
    accuracy_preserving: bool

    def __str__(self) -> str:
        mark = "keeps accuracy" if self.accuracy_preserving else ""
        return f"{self.name:<15} {mark:<15} {self.summary}"


def calibrators() -> list[Description]:
    """All short names, with a line each and whether the map preserves accuracy.

    Examples
    --------
    >>> [line.name for line in calibrators() if line.accuracy_preserving][:3]
    ['identity', 'ts', 'ets']
    """
    return [Description(e.name, e.summary, e.accuracy_preserving) for e in REGISTRY.values()]

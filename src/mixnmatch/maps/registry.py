"""Every calibration map by name: where its class is, and the short names that stand for expressions.

A new map is one line here. It then has a short name, is savable, and takes part in comparisons, the command line, the
report, the tests of contracts and the table in the documentation. Other packages add theirs by :func:`register_map`, or
by an entry point in the group ``mixnmatch.maps``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any

from mixnmatch._engine.errors import InputError
from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch.maps.base import BinaryMap, CalibrationMap

Options = dict[str, Any]
Build = Callable[[Options, Options], CalibrationMap]
ENTRY_POINTS = "mixnmatch.maps"

# Where classes are. A file may name these and no others; a name stays loadable for ever.
CLASSES: dict[str, str] = {
    "Auto": "mixnmatch.selection.auto",
    "BayesianBinning": "mixnmatch.maps.binning",
    "BetaScaling": "mixnmatch.maps.logistic",
    "BiasCorrectedTemperatureScaling": "mixnmatch.maps.scaling",
    "Composition": "mixnmatch.maps.composition",
    "ContextualOrderPreserving": "mixnmatch.maps.context",
    "DirichletScaling": "mixnmatch.maps.scaling",
    "Ensemble": "mixnmatch.maps.ensemble",
    "EnsembleTemperatureScaling": "mixnmatch.maps.ensemble_temperature",
    "GaussianProcessCalibration": "mixnmatch.maps.gaussian_process",
    "HistogramBinning": "mixnmatch.maps.binning",
    "Identity": "mixnmatch.maps.trivial",
    "IntraOrderPreserving": "mixnmatch.maps.order_preserving",
    "Isotonic": "mixnmatch.maps.isotonic",
    "KeepWinner": "mixnmatch.maps.keep_winner",
    "KernelCalibration": "mixnmatch.maps.kernel",
    "MatrixScaling": "mixnmatch.maps.scaling",
    "NormalisedIsotonic": "mixnmatch.maps.normalised_isotonic",
    "OneVsAll": "mixnmatch.maps.combine",
    "PlattScaling": "mixnmatch.maps.logistic",
    "Pooled": "mixnmatch.maps.combine",
    "PriorShift": "mixnmatch.maps.prior_shift",
    "QuadraticScaling": "mixnmatch.maps.quadratic",
    "ShrunkenBetaScaling": "mixnmatch.maps.shrunken",
    "ShrunkenPlattScaling": "mixnmatch.maps.shrunken",
    "SplineCalibration": "mixnmatch.maps.spline",
    "StructuredMatrixScaling": "mixnmatch.maps.scaling",
    "StructuredVectorScaling": "mixnmatch.maps.scaling",
    "TemperatureScaling": "mixnmatch.maps.temperature",
    "Uniform": "mixnmatch.maps.trivial",
    "VectorScaling": "mixnmatch.maps.scaling",
    "VennAbers": "mixnmatch.maps.venn_abers",
}
_registered: dict[str, type[CalibrationMap]] = {}


def map_class(name: str) -> type[CalibrationMap] | None:
    """The class of a map by its name, imported when it is asked for; None if there is no such map."""
    if name in CLASSES:
        found: type[CalibrationMap] = getattr(import_module(CLASSES[name]), name)
        return found
    _load_entry_points()
    return _registered.get(name)


@dataclass(frozen=True)
class Method:
    """One short name: how to build the map, in a line what it is, and what it costs.

    ``cost`` orders names by the time of a fit: 0 for instant ones, 3 for those that take longest. ``same_as`` is the
    name that stands for the same map.
    """

    name: str
    build: Build
    summary: str
    cost: int = 0
    same_as: str | None = None

    @property
    def accuracy_preserving(self) -> bool:
        """Whether the map preserves accuracy."""
        return self.build({}, {}).accuracy_preserving


def _make(name: str, **settings: Any) -> Any:
    kind = map_class(name)
    assert kind is not None
    return kind(**settings)


def _single(name: str, **fixed: Any) -> Build:
    return lambda common, options: _make(name, **common, **(fixed | options))


def _parted(options: Options, *outer: str) -> tuple[Options, Options]:
    """Options for the outer map (those named) and for the inner one (the rest)."""
    return {k: v for k, v in options.items() if k in outer}, {k: v for k, v in options.items() if k not in outer}


def _binary(name: str, *, smoothing: float = 1.0) -> Build:
    """A binary map, one-vs-all for many classes; how much it is smoothed is the combinator's unless the map says it."""

    def build(common: Options, options: Options) -> CalibrationMap:
        kind = map_class(name)
        assert kind is not None
        own = "smoothing" in signature(kind).parameters and not kind._smoothed_outside
        outer, inner = _parted(options, *([] if own else ["smoothing"]))
        settings: Options = {"smoothing": smoothing} | common | outer
        made: CalibrationMap = _make("OneVsAll", map=kind(**inner), **settings)
        return made

    return build


def _irm(common: Options, options: Options) -> CalibrationMap:
    outer, inner = _parted(options, "smoothing")
    made: CalibrationMap = _make("Pooled", map=_make("Isotonic", strict=True, **inner), **common, **outer)
    return made


def _keep_matrix(common: Options, options: Options) -> CalibrationMap:
    made: CalibrationMap = _make("KeepWinner", map=_make("StructuredMatrixScaling", **common, **options))
    return made


def _keep_context_matrix(common: Options, options: Options) -> CalibrationMap:
    parts = {
        "first": _make("ContextualOrderPreserving", **common),
        "second": _make("StructuredMatrixScaling", **options),
    }
    made: CalibrationMap = _make("KeepWinner", map=_make("Composition", **parts))
    return made


def _after(first: str, second: Build) -> Build:
    def build(common: Options, options: Options) -> CalibrationMap:
        outer, inner = _parted(options, "cv", "random_state")
        before, after = _parted(inner, "loss")
        parts = {"first": _make(first, **common, **before), "second": second({}, after)}
        made: CalibrationMap = _make("Composition", **parts, **outer)
        return made

    return build


_one_vs_all = _binary("Isotonic")
_TS, _ETS = "TemperatureScaling", "EnsembleTemperatureScaling"
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("identity", _single("Identity"), "no calibration: the scores as they are"),
        Method("uniform", _single("Uniform"), "the same probability for every class"),
        Method("ts", _single(_TS), "temperature scaling"),
        Method("ets", _single(_ETS), "ensemble temperature scaling, fitted jointly"),
        Method("platt", _binary("PlattScaling"), "Platt scaling on logits, one-vs-all for many classes"),
        Method("beta", _binary("BetaScaling"), "beta scaling, one-vs-all for many classes"),
        Method("platt-shrunk", _binary("ShrunkenPlattScaling", smoothing=0.03), "Platt scaling, shrunk to identity", 1),
        Method("beta-shrunk", _binary("ShrunkenBetaScaling", smoothing=0.03), "beta scaling, shrunk to identity", 1),
        Method("quadratic", _binary("QuadraticScaling", smoothing=0.03), "logistic in log-odds and their square", 1),
        Method("spline", _binary("SplineCalibration", smoothing=0.03), "smoothing spline of the log-odds", 2),
        Method("kernel", _binary("KernelCalibration", smoothing=0.03), "kernel correction of Platt scaling", 2),
        Method("ensemble-beta", _single("Ensemble", family="beta"), "ensemble of beta, identity and uniform", 3),
        Method("ensemble-platt", _single("Ensemble", family="platt"), "ensemble of Platt, identity and uniform", 3),
        Method("bcts", _single("BiasCorrectedTemperatureScaling"), "temperature scaling with a bias for each class", 1),
        Method("vector", _single("VectorScaling"), "vector scaling: a slope and an intercept for each class", 1),
        Method("matrix", _single("MatrixScaling"), "matrix scaling: all L x L slopes; overfits", 3),
        Method("dirichlet", _single("DirichletScaling"), "Dirichlet scaling with ODIR regularisation", 3),
        Method("svs", _single("StructuredVectorScaling"), "structured vector scaling", 1),
        Method("sms", _single("StructuredMatrixScaling"), "structured matrix scaling", 2),
        Method("keep-sms", _keep_matrix, "structured matrix scaling that never changes the predicted class", 2),
        Method("keep-context-sms", _keep_context_matrix, "iop-context, then sms; never changes the predicted class", 2),
        Method("isotonic", _one_vs_all, "isotonic regression, one-vs-all for many classes"),
        Method("histogram", _binary("HistogramBinning"), "histogram binning, one-vs-all for many classes"),
        Method("bbq", _binary("BayesianBinning"), "Bayesian binning into quantiles, one-vs-all", 1),
        Method("venn-abers", _binary("VennAbers", smoothing=0.0), "inductive Venn-Abers, one-vs-all", 1),
        Method("irm", _irm, "multi-class isotonic regression: one strict function for all classes"),
        Method("irm-normalised", _single("NormalisedIsotonic"), "as irm, fitted with the normalisation inside"),
        Method("irova", _one_vs_all, "isotonic regression one-vs-all, as the paper calls it", same_as="isotonic"),
        Method("irova-ts", _after(_TS, _one_vs_all), "temperature scaling, then isotonic one-vs-all"),
        Method("irova-ets", _after(_ETS, _one_vs_all), "ETS, then isotonic one-vs-all"),
        Method("irm-ts", _after(_TS, _irm), "temperature scaling, then multi-class isotonic"),
        Method("irm-ets", _after(_ETS, _irm), "ETS, then multi-class isotonic"),
        Method(
            "iop", _single("IntraOrderPreserving"), "intra order-preserving: one monotone function of log-scores", 1
        ),
        Method(
            "iop-context", _single("ContextualOrderPreserving"), "as iop, with a function that depends on the sample", 1
        ),
        Method("gpc", _single("GaussianProcessCalibration"), "Gaussian-process calibration", 3),
        Method("auto", _single("Auto"), "cross-validated stack of maps and compositions", 3),
    )
}


def register_map(kind: type[CalibrationMap], *, name: str, summary: str | None = None, cost: int = 0) -> None:
    """Register your own map under a short name.

    It can then be built by :func:`calibrator`, compared, saved and loaded like the built-in ones. A binary map becomes
    one-vs-all for many classes.

    Parameters
    ----------
    kind : subclass of CalibrationMap or BinaryMap
        The map. Its class name is what files call it.
    name : str
        Short name.
    summary : str, optional
        What it is, in a line; by default the first line of its docstring.
    cost : int
        Cost of a fit, from 0 (instant) to 3 (slowest).
    """
    if not (isinstance(kind, type) and issubclass(kind, CalibrationMap)):
        msg = f"a map is a subclass of CalibrationMap, got {kind!r}"
        raise TypeError(msg)
    title = kind.__name__
    if title in CLASSES or _registered.get(title, kind) is not kind:
        msg = f"there is a map called {title} already: give the class another name"
        raise ValueError(msg)
    if name in METHODS and _registered.get(title) is not kind:
        msg = f"the short name {name!r} is taken"
        raise ValueError(msg)
    _registered[title] = kind
    text = summary or (kind.__doc__ or title).strip().splitlines()[0]
    METHODS[name] = Method(name, _binary(title) if issubclass(kind, BinaryMap) else _single(title), text, cost)


@cache
def _load_entry_points() -> None:
    """Maps of other packages: an entry point's name is the short name, its object the class."""
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        register_map(point.load(), name=point.name)


def methods() -> dict[str, Method]:
    """All short names, those of other packages included."""
    _load_entry_points()
    return METHODS


def calibrator(name: str, *, logits: bool = False, classes: Any = None, **options: Any) -> CalibrationMap:
    """Build a map from its short name.

    Parameters
    ----------
    name : str
        One of the names that :func:`calibrators` lists, or one of its lines.
    logits : bool
        Whether scores are logits rather than probabilities.
    classes : sequence, optional
        Names of the columns.
    **options
        Parameters of the map; for a composition, ``loss`` is passed to the first map, ``cv`` to the composition and the
        rest to the second map.

    Examples
    --------
    >>> calibrator("ets", logits=True)
    EnsembleTemperatureScaling(logits=True)
    >>> calibrator("irova-ts")
    Composition(first=TemperatureScaling(), second=OneVsAll(map=Isotonic()))
    """
    known = methods()
    method = known.get(name.name if isinstance(name, Description) else name)
    if method is None:
        meant = did_you_mean(name, known)
        why = "there is no method called {method!r}{meant}" + ("; {list_methods}" if not meant else "")
        raise InputError(why, method=name, meant=meant)
    common: Options = {"logits": logits} if logits else {}
    if classes is not None:
        common["classes"] = classes
    if "weights" in options:
        common["weights"] = options.pop("weights")
    return method.build(common, options)


def default_method(n_classes: int) -> str:
    """Return the short name of the default map.

    Parameters
    ----------
    n_classes : int
        Number of classes.

    Returns
    -------
    str
        For two classes a map with an intercept, which can move the mean probability to the base rate even if the
        predicted classes then change: a classifier of rare positives needs that. It is shrunk towards the identity, so
        it seldom does harm with few samples (``docs/results/two_classes.md``). For more classes one that keeps the
        predicted classes.

    Examples
    --------
    >>> default_method(2), default_method(10)
    ('beta-shrunk', 'ets')
    """
    return "beta-shrunk" if n_classes == 2 else "ets"


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
    """List all short names, each with a summary and whether the map preserves accuracy.

    Examples
    --------
    >>> [line.name for line in calibrators() if line.accuracy_preserving][:3]
    ['identity', 'ts', 'ets']
    """
    return [Description(each.name, each.summary, each.accuracy_preserving) for each in methods().values()]

"""Every calibration map by name: where its class is, and the short names that stand for expressions.

A new map is one line of ``METHODS``. It then has a short name, is savable, and takes part in comparisons, the command
line, the report, the tests of contracts and the table in the documentation. Other packages add theirs by
:func:`register_map`, or by an entry point in the group ``mixnmatch.maps``.
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


def map_class(name: str) -> type[CalibrationMap] | None:
    """The class of a map by its name, imported when it is asked for; None if there is no such map."""
    if name in CLASSES:
        kind: type[CalibrationMap] = getattr(import_module(CLASSES[name]), name)
        return kind
    _load_entry_points()
    return _registered.get(name)


@dataclass(frozen=True)
class Method:
    """One short name: how to build the map, and in a line what it is.

    ``slow`` marks methods that take much longer than the others, ``same_as`` is the name that stands for the same map.
    """

    build: Build
    summary: str
    slow: bool = False
    same_as: str | None = None

    @property
    def accuracy_preserving(self) -> bool:
        """Whether the map preserves accuracy."""
        return self.build({}, {}).accuracy_preserving


def _make(name: str, **settings: Any) -> Any:
    kind = map_class(name)
    assert kind is not None
    return kind(**settings)


def _parted(options: Options, *outer: str) -> tuple[Options, Options]:
    """Options for the outer map (those named) and for the inner one (the rest)."""
    return {k: v for k, v in options.items() if k in outer}, {k: v for k, v in options.items() if k not in outer}


class _Map:
    """Builds the map of one class, given as ``module.Class`` of ``mixnmatch.maps``. Binary maps become one-vs-all."""

    def __init__(self, path: str, *, smoothing: float = 1.0, **fixed: Any):
        module, _, self.kind = path.rpartition(".")
        self.module = module if module.startswith("mixnmatch.") else f"mixnmatch.maps.{module}"
        self.smoothing = smoothing
        self.fixed = fixed

    def __call__(self, common: Options, options: Options) -> CalibrationMap:
        kind = map_class(self.kind)
        assert kind is not None
        if not issubclass(kind, BinaryMap):
            return kind(**common, **(self.fixed | options))
        # How much it is smoothed is an option of the combinator unless the map has such an option itself.
        own = "smoothing" in signature(kind).parameters and not kind._smoothed_outside
        outer, inner = _parted(options, *([] if own else ["smoothing"]))
        settings: Options = {"smoothing": self.smoothing} | common | outer
        one_vs_all: CalibrationMap = _make("OneVsAll", map=kind(**inner), **settings)
        return one_vs_all


def _irm(common: Options, options: Options) -> CalibrationMap:
    outer, inner = _parted(options, "smoothing")
    pooled: CalibrationMap = _make("Pooled", map=_make("Isotonic", strict=True, **inner), **common, **outer)
    return pooled


def _keep_matrix(common: Options, options: Options) -> CalibrationMap:
    keeping: CalibrationMap = _make("KeepWinner", map=_make("StructuredMatrixScaling", **common, **options))
    return keeping


def _keep_context_matrix(common: Options, options: Options) -> CalibrationMap:
    parts = {
        "first": _make("ContextualOrderPreserving", **common),
        "second": _make("StructuredMatrixScaling", **options),
    }
    keeping: CalibrationMap = _make("KeepWinner", map=_make("Composition", **parts))
    return keeping


def _stack_with_biases(common: Options, options: Options) -> CalibrationMap:
    own, rest = _parted(options, "ridge")
    # Strong: class biases change only as far as there is evidence for it, as all else in the stack.
    parts = {
        "first": _make("Auto", **common, **rest),
        "second": _make("BiasCorrectedTemperatureScaling", **({"ridge": 100.0} | own)),
    }
    stack: CalibrationMap = _make("Composition", **parts)
    return stack


def _after(first: str, second: Build) -> Build:
    def build(common: Options, options: Options) -> CalibrationMap:
        outer, inner = _parted(options, "cv", "random_state")
        before, after = _parted(inner, "loss")
        parts = {"first": _make(first, **common, **before), "second": second({}, after)}
        composition: CalibrationMap = _make("Composition", **parts, **outer)
        return composition

    return build


_isotonic = _Map("isotonic.Isotonic")
_TS, _ETS = "TemperatureScaling", "EnsembleTemperatureScaling"
METHODS: dict[str, Method] = {
    "identity": Method(_Map("trivial.Identity"), "no calibration: the scores as they are"),
    "uniform": Method(_Map("trivial.Uniform"), "the same probability for every class"),
    "ts": Method(_Map("temperature.TemperatureScaling"), "temperature scaling"),
    "ets": Method(
        _Map("ensemble_temperature.EnsembleTemperatureScaling"), "ensemble temperature scaling, fitted jointly"
    ),
    "platt": Method(_Map("logistic.PlattScaling"), "Platt scaling on logits, one-vs-all for many classes"),
    "beta": Method(_Map("logistic.BetaScaling"), "beta scaling, one-vs-all for many classes"),
    "platt-shrunk": Method(_Map("shrunken.ShrunkenPlattScaling", smoothing=0.03), "Platt scaling, shrunk to identity"),
    "beta-shrunk": Method(_Map("shrunken.ShrunkenBetaScaling", smoothing=0.03), "beta scaling, shrunk to identity"),
    "quadratic": Method(_Map("quadratic.QuadraticScaling", smoothing=0.03), "logistic in log-odds and their square"),
    "spline": Method(_Map("spline.SplineCalibration", smoothing=0.03), "smoothing spline of the log-odds"),
    "kernel": Method(_Map("kernel.KernelCalibration", smoothing=0.03), "kernel correction of Platt scaling"),
    "ensemble-beta": Method(
        _Map("ensemble.Ensemble", family="beta"), "ensemble of beta, identity and uniform", slow=True
    ),
    "ensemble-platt": Method(
        _Map("ensemble.Ensemble", family="platt"), "ensemble of Platt, identity and uniform", slow=True
    ),
    "bcts": Method(_Map("scaling.BiasCorrectedTemperatureScaling"), "temperature scaling with a bias for each class"),
    "vector": Method(_Map("scaling.VectorScaling"), "vector scaling: a slope and an intercept for each class"),
    "matrix": Method(_Map("scaling.MatrixScaling"), "matrix scaling: all L x L slopes; overfits", slow=True),
    "dirichlet": Method(_Map("scaling.DirichletScaling"), "Dirichlet scaling with ODIR regularisation", slow=True),
    "svs": Method(_Map("scaling.StructuredVectorScaling"), "structured vector scaling"),
    "sms": Method(_Map("scaling.StructuredMatrixScaling"), "structured matrix scaling"),
    "keep-sms": Method(_keep_matrix, "structured matrix scaling that never changes the predicted class"),
    "keep-context-sms": Method(_keep_context_matrix, "iop-context, then sms; never changes the predicted class"),
    "isotonic": Method(_isotonic, "isotonic regression, one-vs-all for many classes"),
    "histogram": Method(_Map("binning.HistogramBinning"), "histogram binning, one-vs-all for many classes"),
    "bbq": Method(_Map("binning.BayesianBinning"), "Bayesian binning into quantiles, one-vs-all"),
    "venn-abers": Method(_Map("venn_abers.VennAbers", smoothing=0.0), "inductive Venn-Abers, one-vs-all"),
    "irm": Method(_irm, "multi-class isotonic regression: one strict function for all classes"),
    "irm-normalised": Method(
        _Map("normalised_isotonic.NormalisedIsotonic"), "as irm, fitted with the normalisation inside"
    ),
    "irova": Method(_isotonic, "isotonic regression one-vs-all, as the paper calls it", same_as="isotonic"),
    "irova-ts": Method(_after(_TS, _isotonic), "temperature scaling, then isotonic one-vs-all"),
    "irova-ets": Method(_after(_ETS, _isotonic), "ETS, then isotonic one-vs-all"),
    "irm-ts": Method(_after(_TS, _irm), "temperature scaling, then multi-class isotonic"),
    "irm-ets": Method(_after(_ETS, _irm), "ETS, then multi-class isotonic"),
    "iop": Method(
        _Map("order_preserving.IntraOrderPreserving"), "intra order-preserving: one monotone function of log-scores"
    ),
    "iop-context": Method(
        _Map("context.ContextualOrderPreserving"), "as iop, with a function that depends on the sample"
    ),
    "gpc": Method(_Map("gaussian_process.GaussianProcessCalibration"), "Gaussian-process calibration", slow=True),
    "auto": Method(_Map("mixnmatch.selection.auto.Auto"), "cross-validated stack of maps and compositions", slow=True),
    "bcts-auto": Method(_stack_with_biases, "auto, then bcts: for data whose class frequencies change", slow=True),
}
# Where classes are. A file may name these and no others; a name stays loadable for ever. Some have no short name.
CLASSES: dict[str, str] = {
    "Composition": "mixnmatch.maps.composition",
    "KeepWinner": "mixnmatch.maps.keep_winner",
    "OneVsAll": "mixnmatch.maps.combine",
    "Pooled": "mixnmatch.maps.combine",
    "PriorShift": "mixnmatch.maps.prior_shift",
} | {each.build.kind: each.build.module for each in METHODS.values() if isinstance(each.build, _Map)}
_registered: dict[str, type[CalibrationMap]] = {}


def register_map(kind: type[CalibrationMap], *, name: str, summary: str | None = None, slow: bool = False) -> None:
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
    slow : bool
        Whether a fit takes much longer than that of the other maps.
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
    METHODS[name] = Method(_Map(title), text, slow)


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
        For two classes ``auto``: it moves the mean probability to the base rate, which a classifier of rare positives
        needs, and of all maps it does harm least often (``docs/results/two_classes.md``). It keeps the order of the
        samples, unless the labels clearly contradict it. For more classes one that keeps the predicted classes.

    Examples
    --------
    >>> default_method(2), default_method(10)
    ('auto', 'ets')
    """
    return "auto" if n_classes == 2 else "ets"


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
    return [Description(name, each.summary, each.accuracy_preserving) for name, each in methods().items()]

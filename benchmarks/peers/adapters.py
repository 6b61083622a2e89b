"""Calibration methods of all libraries behind one small interface: ``fit(scores, labels)`` and ``apply(scores)``.

Every library gets the input that it documents: logits or probabilities, float32 or float64, converted before the clock
starts. One-vs-all loops are ours where a library has the binary method only; they are said so in the name.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from peers.datasets import log_probabilities, probabilities


class Adapter(Protocol):
    """What the suite asks of a method."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Learn from scores and labels."""

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Calibrated probabilities, n x L."""


# Methods of ours that are functions of probabilities: they are timed on these, as the peers are.
ON_PROBABILITIES = tuple(
    f"mixnmatch: {name}" for name in ("irm", "irova", "histogram", "histogram (width)", "bbq", "beta")
)


@dataclass(frozen=True)
class Method:
    """A method of a library.

    ``twin`` is our short name of the same method, with which it is compared in speed ("" if there is none);
    ``takes`` is "scores" (as they come, logits or probabilities), "probs" or "logits".
    """

    library: str
    name: str
    make: Callable[[bool, int], Adapter]
    twin: str = ""
    takes: str = "scores"
    dtype: str = "float32"
    preserving: bool = False
    module: str = ""

    @property
    def key(self) -> str:
        """Library and name, the identity of the method everywhere."""
        return f"{self.library}: {self.name}"

    @property
    def stored(self) -> str:
        """Which of the simulated scores it is timed on, "logits" or "probs"."""
        return "probs" if self.takes == "probs" or self.key in ON_PROBABILITIES else "logits"

    def natural(self, scores: np.ndarray, logits: bool) -> tuple[np.ndarray, bool]:
        """The scores as the method takes them, and whether these are logits."""
        scores = np.asarray(scores, dtype=self.dtype)
        if self.takes == "probs" and logits:
            return probabilities(scores), False
        if self.takes == "logits" and not logits:
            return log_probabilities(scores), True
        return scores, logits


class Ours:
    """A map of this package."""

    def __init__(self, build: Callable[[bool], Any], logits: bool) -> None:
        self.map = build(logits)

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Learn from scores and labels."""
        self.map.fit(x, y)

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Calibrated probabilities."""
        return self.map.predict_proba(x)


class ScikitLearn:
    """CalibratedClassifierCV around a frozen classifier whose features are its scores."""

    def __init__(self, method: str, logits: bool, n_classes: int) -> None:
        self.method, self.logits, self.n_classes = method, logits, n_classes

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Learn from scores and labels."""
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.frozen import FrozenEstimator

        frozen = FrozenEstimator(pass_through(self.logits, self.n_classes))
        self.model = CalibratedClassifierCV(frozen, method=self.method).fit(x, y)

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Calibrated probabilities."""
        return self.model.predict_proba(x)


def pass_through(logits: bool, n_classes: int) -> Any:
    """A fitted scikit-learn classifier that gives back its features as decision values or probabilities."""
    from sklearn.base import BaseEstimator, ClassifierMixin

    class PassThrough(ClassifierMixin, BaseEstimator):
        def fit(self, X: np.ndarray, y: np.ndarray | None = None) -> Any:
            self.classes_ = np.arange(n_classes)
            return self

        def predict(self, X: np.ndarray) -> np.ndarray:
            return X.argmax(axis=1)

    class Logits(PassThrough):
        def decision_function(self, X: np.ndarray) -> np.ndarray:
            return X[:, 1] - X[:, 0] if n_classes == 2 else X

    class Probabilities(PassThrough):
        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            return X

    return (Logits if logits else Probabilities)().fit(np.zeros((1, n_classes)))


class PooledIsotonic:
    """scikit-learn's IsotonicRegression on all n x L pairs, then normalised: the plain way to IRM."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Learn from scores and labels."""
        from sklearn.isotonic import IsotonicRegression

        truth = np.zeros(x.shape, dtype=x.dtype)
        truth[np.arange(len(x)), y] = 1
        self.model = IsotonicRegression(out_of_bounds="clip").fit(x.ravel(), truth.ravel())

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Calibrated probabilities."""
        return normalised(self.model.predict(x.ravel()).reshape(x.shape))


class Netcal:
    """A method of netcal."""

    def __init__(self, home: str, kind: str, **options: Any) -> None:
        self.model = getattr(import_module(f"netcal.{home}"), kind)(**options)

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Learn from scores and labels."""
        self.model.fit(x, y)

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Calibrated probabilities."""
        return two_columns(np.asarray(self.model.transform(x)))


class Probmetrics:
    """A calibrator of probmetrics, by tensors of logits or arrays of probabilities as the scores come."""

    def __init__(self, build: Callable[[Any], Any], logits: bool) -> None:
        self.model, self.logits = build(import_module("probmetrics.calibrators")), logits

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Learn from scores and labels."""
        if not self.logits:
            self.model.fit(x, y)
            return
        import torch
        from probmetrics.distributions import CategoricalLogits

        self.model.fit_torch(CategoricalLogits(torch.from_numpy(x)), torch.from_numpy(y))

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Calibrated probabilities."""
        if not self.logits:
            return self.model.predict_proba(x)
        import torch
        from probmetrics.distributions import CategoricalLogits

        return self.model.predict_proba_torch(CategoricalLogits(torch.from_numpy(x))).get_probs().numpy()


class TorchUncertainty:
    """A scaler of torch-uncertainty, fed with all rows in one batch."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.model = getattr(torch_uncertainty_scalers(), kind)(**options)

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Learn from scores and labels."""
        import torch

        self.model.fit([(torch.from_numpy(x), torch.from_numpy(y))], progress=False)

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Calibrated probabilities."""
        import torch

        return torch.softmax(self.model(torch.from_numpy(x)).detach(), dim=1).numpy()


def torch_uncertainty_scalers() -> Any:
    """The scalers without the package's own ``__init__``, which brings its trainer and, through it, torchvision."""
    from importlib.util import find_spec

    if "torch_uncertainty" not in sys.modules:
        spec = find_spec("torch_uncertainty")
        if spec is None or spec.submodule_search_locations is None:
            msg = "torch_uncertainty is not installed"
            raise ImportError(msg)
        root = next(iter(spec.submodule_search_locations))
        for name, folder in (("torch_uncertainty", root), ("torch_uncertainty.utils", f"{root}/utils")):
            bare = types.ModuleType(name)
            bare.__path__ = [folder]
            sys.modules[name] = bare
    return import_module("torch_uncertainty.post_processing")


class VennAbers:
    """Inductive Venn-Abers prediction; the package has no fit apart from predicting."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Keep scores and labels."""
        self.x, self.y = x, y

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Calibrated probabilities."""
        from venn_abers import VennAbersCalibrator

        return VennAbersCalibrator().predict_proba(p_cal=self.x, y_cal=self.y, p_test=x, va_type="one_vs_all")


class OneVsAll:
    """A binary method for each class, normalised: for libraries that leave that to their users."""

    def __init__(self, build: Callable[[], Any], n_classes: int) -> None:
        self.models = [build() for _ in range(1 if n_classes == 2 else n_classes)]

    def columns(self, x: np.ndarray) -> list[np.ndarray]:
        """Scores of each binary problem."""
        return [x[:, 1]] if len(self.models) == 1 else list(x.T)

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Learn from scores and labels."""
        for k, (model, column) in enumerate(zip(self.models, self.columns(x), strict=True)):
            model.fit(column.reshape(-1, 1), (y == (1 if len(self.models) == 1 else k)).astype(int))

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Calibrated probabilities."""
        pairs = zip(self.models, self.columns(x), strict=True)
        found = [np.asarray(model.predict(column.reshape(-1, 1))).ravel() for model, column in pairs]
        return two_columns(found[0]) if len(found) == 1 else normalised(np.stack(found, axis=1))


def two_columns(p: np.ndarray) -> np.ndarray:
    """The positive class alone becomes two columns."""
    return np.stack([1 - p, p], axis=1) if p.ndim == 1 else p


def normalised(p: np.ndarray) -> np.ndarray:
    """Rows that sum to 1; rows of zeros become uniform."""
    total = p.sum(axis=1, keepdims=True)
    return np.where(total > 0, p / np.where(total > 0, total, 1), 1 / p.shape[1])


def ours() -> list[Method]:
    """All short names of this package, a composition from its documentation, and the variants of auto."""
    from mixnmatch import calibrator, calibrators
    from mixnmatch.selection.auto import Auto

    made: list[Method] = []

    def add(name: str, build: Callable[[bool], Any], preserving: bool) -> None:
        made.append(Method("mixnmatch", name, lambda logits, _: Ours(build, logits), name, preserving=preserving))

    for entry in calibrators():
        if entry.name not in ("uniform", "isotonic", "auto"):  # isotonic is irova by another name
            add(entry.name, lambda logits, name=entry.name: calibrator(name, logits=logits), entry.accuracy_preserving)
    add("ets (brier)", lambda logits: calibrator("ets", logits=logits, loss="brier"), True)
    add("histogram (width)", lambda logits: calibrator("histogram", logits=logits, strategy="width", bins=15), False)
    add("sms-ets-irm", lambda logits: calibrator("sms", logits=logits) >> calibrator("irm-ets"), False)
    for keeps in (False, True):
        for scoring in ("nll", "brier"):
            words = [*(["keeps accuracy"] if keeps else []), *(["brier"] if scoring == "brier" else [])]
            name = "auto" + (f" ({', '.join(words)})" if words else "")
            add(name, lambda logits, k=keeps, s=scoring: Auto(logits=logits, accuracy_preserving=k, scoring=s), keeps)
    return made


def scikit_learn() -> list[Method]:
    """Methods of scikit-learn."""

    def through(method: str) -> Callable[[bool, int], Adapter]:
        return lambda logits, n_classes: ScikitLearn(method, logits, n_classes)

    home = "sklearn.calibration"
    return [
        Method("scikit-learn", "temperature", through("temperature"), "ts", preserving=True, module=home),
        Method("scikit-learn", "sigmoid", through("sigmoid"), "platt", module=home),
        Method("scikit-learn", "isotonic", through("isotonic"), "irova", takes="probs", module=home),
        Method("scikit-learn", "isotonic on pairs", lambda _, __: PooledIsotonic(), "irm", "probs",
               module="sklearn.isotonic"),
    ]  # fmt: skip


def netcal() -> list[Method]:
    """Methods of netcal, in float64: in float32 its temperature scaling silently does nothing."""
    table = (
        ("temperature", "ts", "scaling", "TemperatureScaling", True),
        ("logistic", "vector", "scaling", "LogisticCalibration", False),
        ("beta", "beta", "scaling", "BetaCalibration", False),
        ("isotonic", "irova", "binning", "IsotonicRegression", False),
        ("histogram", "histogram (width)", "binning", "HistogramBinning", False),
        ("bbq", "bbq", "binning", "BBQ", False),
        ("enir", "", "binning", "ENIR", False),
    )
    return [
        Method("netcal", name, lambda _, __, home=home, kind=kind: Netcal(home, kind), twin, "probs", "float64", keeps,
               f"netcal.{home}")
        for name, twin, home, kind, keeps in table
    ]  # fmt: skip


def probmetrics() -> list[Method]:
    """Calibrators of probmetrics that need no further package."""
    table: tuple[tuple[str, str, Callable[[Any], Any], bool], ...] = (
        ("temp-scaling", "ts", lambda m: m.get_calibrator("temp-scaling"), True),
        ("ts-mix", "", lambda m: m.get_calibrator("ts-mix"), True),
        ("ets (brier)", "ets (brier)", lambda m: m.ETSCalibrator(), True),
        ("ets", "ets", lambda m: m.ETSCalibrator(loss="ce"), True),
        ("vector", "vector", lambda m: m.VectorScalingCalibrator(), False),
        ("matrix", "matrix", lambda m: m.MatrixScalingCalibrator(), False),
        ("svs", "svs", lambda m: m.get_calibrator("svs"), False),
        ("sms", "sms", lambda m: m.get_calibrator("sms"), False),
        ("logistic-mix", "", lambda m: m.get_calibrator("logistic-mix"), False),
        ("quadratic, one-vs-rest", "", lambda m: one_vs_rest(m, m.BinaryLogisticCalibrator(type="quadratic")), False),
        ("affine, one-vs-rest", "platt", lambda m: one_vs_rest(m, m.BinaryLogisticCalibrator(type="affine")), False),
        ("histogram, one-vs-rest", "histogram",
         lambda m: one_vs_rest(m, m.BinaryHistogramBinningCalibrator(strategy="quantile")), False),
        ("cdf spline, one-vs-rest", "", lambda m: one_vs_rest(m, m.CDFSplineCalibrator()), False),
        ("intra order-preserving", "iop", lambda _: order_preserving(), True),
    )  # fmt: skip
    return [
        Method("probmetrics", name, lambda logits, _, build=build: Probmetrics(build, logits), twin,
               "probs" if "one-vs-rest" in name else "scores", preserving=keeps, module="probmetrics.calibrators")
        for name, twin, build, keeps in table
    ]  # fmt: skip


def one_vs_rest(module: Any, binary: Any) -> Any:
    """A binary calibrator of probmetrics for each class, by its own wrapper."""
    return module.MulticlassOneVsRestCalibrator(binary)


def order_preserving() -> Any:
    """The intra order-preserving calibrator, which probmetrics does not list among its names."""
    return import_module("probmetrics.calibrators.orderpreserving").IntraOrderPreservingCalibrator()


def torch_uncertainty() -> list[Method]:
    """Scalers of torch-uncertainty."""
    table = (
        ("temperature", "ts", "TemperatureScaler", False, True),
        ("vector", "vector", "VectorScaler", True, False),
        ("matrix", "matrix", "MatrixScaler", True, False),
        ("dirichlet", "dirichlet", "DirichletScaler", True, False),
        ("histogram", "histogram (width)", "HistogramBinningScaler", False, False),
        ("isotonic", "irova", "IsotonicRegressionScaler", False, False),
        ("bbq", "bbq", "BBQScaler", False, False),
    )

    def build(kind: str, sized: bool) -> Callable[[bool, int], Adapter]:
        return lambda _, n_classes: TorchUncertainty(kind, **({"num_classes": n_classes} if sized else {}))

    return [
        Method("torch-uncertainty", name, build(kind, sized), twin, "logits", preserving=keeps)
        for name, twin, kind, sized, keeps in table
    ]


def others() -> list[Method]:
    """Packages of one method each."""

    def beta(_: bool, n_classes: int) -> Adapter:
        return OneVsAll(import_module("betacal").BetaCalibration, n_classes)

    return [
        Method("betacal", "beta, one-vs-all", beta, "beta", "probs", module="betacal"),
        Method("venn-abers", "one-vs-all", lambda _, __: VennAbers(), "", "probs", module="venn_abers"),
        Method(
            "MAPIE", "venn-abers, one-vs-one", lambda _, n: MapieVennAbers(n), "", "probs", module="mapie.calibration"
        ),
    ]


class MapieVennAbers:
    """MAPIE's Venn-Abers calibrator around a classifier whose features are its probabilities."""

    def __init__(self, n_classes: int) -> None:
        from mapie.calibration import VennAbersCalibrator

        self.model = VennAbersCalibrator(estimator=pass_through(False, n_classes), cv="prefit")

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Learn from scores and labels."""
        self.model.fit(x, y)

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Calibrated probabilities."""
        return self.model.predict_proba(x)


def all_methods() -> dict[str, Method]:
    """Every method of every library by its key, ours first."""
    lists = (ours(), scikit_learn(), netcal(), probmetrics(), torch_uncertainty(), others())
    return {method.key: method for methods in lists for method in methods}

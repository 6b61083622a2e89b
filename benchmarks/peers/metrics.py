"""Metrics of all libraries behind one small interface: ``measure(scores, labels)`` gives a number.

All of them get probabilities. ``twin`` is what we call the same quantity; libraries differ in details of it (edges of
bins, a grid instead of all points), which ``docs/parity.md`` lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

BINS = 15


@dataclass(frozen=True)
class Metric:
    """A metric of a library; ``make`` imports it and returns the function of probabilities and labels."""

    library: str
    name: str
    twin: str
    make: Callable[[int], Callable[[np.ndarray, np.ndarray], Any]]
    dtype: str = "float32"
    module: str = ""
    binary: bool = False

    @property
    def key(self) -> str:
        """Library and name, the identity of the metric everywhere."""
        return f"{self.library}: {self.name}"


def ours() -> list[Metric]:
    """What this package measures."""

    def error(**options: Any) -> Callable[[int], Callable[[np.ndarray, np.ndarray], Any]]:
        def make(_: int) -> Callable[[np.ndarray, np.ndarray], Any]:
            calibration_error = import_module("mixnmatch").calibration_error
            return lambda p, y: calibration_error(p, y, **options)

        return make

    def public(name: str) -> Callable[[int], Callable[[np.ndarray, np.ndarray], Any]]:
        return lambda _: getattr(import_module("mixnmatch.evaluation"), name)

    def equal_mass(_: int) -> Callable[[np.ndarray, np.ndarray], Any]:
        from mixnmatch.evaluation.error import CalibrationMetric
        from mixnmatch.evaluation.estimators import Histogram

        metric = CalibrationMetric(Histogram(bins=BINS, binning="equal-mass"), "top-label")
        return lambda p, y: metric(p, y)

    made = {
        "ece": error(estimator="histogram", bins=BINS, notion="top-label"),
        "ece, equal-mass bins": equal_mass,
        "class-wise ece": error(estimator="histogram", bins=BINS, notion="class-wise"),
        "smooth ece": error(estimator="smooth"),
        "kde ece": error(estimator="kde"),
        "log loss": public("log_loss"),
        "brier": public("brier_score"),
        "accuracy": public("accuracy"),
    }

    def curve(_: int) -> Callable[[np.ndarray, np.ndarray], Any]:
        reliability = import_module("mixnmatch.evaluation").reliability_curve
        return lambda p, y: reliability(p[:, 1], y, kind="histogram", bins=BINS)

    binned = Metric("mixnmatch", "reliability curve", "reliability curve", curve, binary=True)
    return [*(Metric("mixnmatch", name, name, make) for name, make in made.items()), binned]


def top_label(p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and correctness, for libraries that know binary outcomes only."""
    best = p.argmax(axis=1)
    return p[np.arange(len(p)), best].astype(np.float64), (best == y).astype(np.int8)


def kdepy_ece(z: np.ndarray, y: np.ndarray, nodes: int = 2**12) -> float:
    """The paper's estimator with KDEpy's FFTKDE, written with whole arrays."""
    from KDEpy import FFTKDE

    grid = np.linspace(-1.01, 2.01, nodes)  # a little wider than the mirrored scores, as FFTKDE wants it
    inside = (grid >= 0) & (grid <= 1)
    width = 1.06 * z.std() * len(z) ** -0.2

    def density(sample: np.ndarray) -> np.ndarray:
        mirrored = np.concatenate([sample, -sample, 2 - sample])
        return 3 * FFTKDE(kernel="triweight", bw=width).fit(mirrored).evaluate(grid)[inside]

    both, positive = density(z), density(z[y == 1]) * y.mean()
    curve = np.divide(positive, both, out=np.zeros_like(both), where=both > 1e-9)
    return float(np.trapezoid(np.abs(grid[inside] - curve) * both, grid[inside]))


def torchmetrics_ece(n_classes: int) -> Callable[[np.ndarray, np.ndarray], Any]:
    """Top-label error; a binary problem as two classes, as everywhere here."""
    import torch
    from torchmetrics.functional.classification import multiclass_calibration_error

    return lambda p, y: multiclass_calibration_error(
        torch.from_numpy(p), torch.from_numpy(y), n_classes, BINS, "l1", validate_args=False
    ).item()


def probmetrics_metric(name: str) -> Callable[[int], Callable[[np.ndarray, np.ndarray], Any]]:
    """One of the metrics that probmetrics knows by name."""

    def make(_: int) -> Callable[[np.ndarray, np.ndarray], Any]:
        import torch
        from probmetrics.metrics import Metrics

        metrics = Metrics.from_names([name])
        return lambda p, y: metrics.compute_all_from_labels_probs(torch.from_numpy(y), torch.from_numpy(p))[name].item()

    return make


def netcal_metric(name: str, **options: Any) -> Callable[[int], Callable[[np.ndarray, np.ndarray], Any]]:
    """A histogram error of netcal."""
    return lambda _: getattr(import_module("netcal.metrics"), name)(BINS, **options).measure


def peers() -> list[Metric]:
    """What the peers measure."""

    def sklearn_metric(name: str) -> Callable[[int], Callable[[np.ndarray, np.ndarray], Any]]:
        def make(n_classes: int) -> Callable[[np.ndarray, np.ndarray], Any]:
            function, labels = getattr(import_module("sklearn.metrics"), name), np.arange(n_classes)
            if n_classes == 2 and name == "brier_score_loss":
                return lambda p, y: function(y, p[:, 1])
            return lambda p, y: function(y, p, labels=labels)

        return make

    def sklearn_accuracy(_: int) -> Callable[[np.ndarray, np.ndarray], Any]:
        score = import_module("sklearn.metrics").accuracy_score
        return lambda p, y: score(y, p.argmax(axis=1))

    def sklearn_curve(_: int) -> Callable[[np.ndarray, np.ndarray], Any]:
        curve = import_module("sklearn.calibration").calibration_curve
        return lambda p, y: curve(y, p[:, 1], n_bins=BINS)

    def mapie(_: int) -> Callable[[np.ndarray, np.ndarray], Any]:
        ece = import_module("mapie.metrics.calibration").top_label_ece
        return lambda p, y: ece(y, p, num_bins=BINS)

    def relplot(_: int) -> Callable[[np.ndarray, np.ndarray], Any]:
        smooth = import_module("relplot").smECE
        return lambda p, y: smooth(*top_label(p, y))

    return [
        Metric("scikit-learn", "log_loss", "log loss", sklearn_metric("log_loss"), module="sklearn.metrics"),
        Metric("scikit-learn", "brier_score_loss", "brier", sklearn_metric("brier_score_loss")),
        Metric("scikit-learn", "accuracy_score", "accuracy", sklearn_accuracy),
        Metric("scikit-learn", "calibration_curve", "reliability curve", sklearn_curve, binary=True),
        Metric("torchmetrics", "calibration_error", "ece", torchmetrics_ece, module="torchmetrics.classification"),
        Metric("netcal", "ECE", "ece", netcal_metric("ECE"), "float64", "netcal.metrics"),
        Metric("netcal", "ECE, equal-mass", "ece, equal-mass bins", netcal_metric("ECE", equal_intervals=False),
               "float64"),
        Metric("probmetrics", "ece-15", "ece", probmetrics_metric("ece-15"), module="probmetrics.metrics"),
        Metric("probmetrics", "logloss", "log loss", probmetrics_metric("logloss")),
        Metric("probmetrics", "brier", "brier", probmetrics_metric("brier")),
        Metric("MAPIE", "top_label_ece", "ece", mapie, module="mapie.metrics.calibration"),
        Metric("relplot", "smECE", "smooth ece", relplot, module="relplot"),
        Metric("KDEpy", "FFTKDE", "kde ece", lambda _: lambda p, y: kdepy_ece(*top_label(p, y)), module="KDEpy"),
    ]  # fmt: skip


def all_metrics() -> dict[str, Metric]:
    """Every metric of every library by its key, ours first."""
    return {metric.key: metric for metric in (*ours(), *peers())}

"""The methods of CalArena (arXiv 2605.30188), in its settings; all of them are in the package probmetrics.

Some of them call another package, which :data:`NEEDS` names. Dirichlet calibration needs dirichletcal, which does not
install beside current packages.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from peers.adapters import Method, Probmetrics

Build = Callable[[Any], Any]


def histogram(strategy: str) -> Build:
    """Histogram binning of two classes with ten bins."""
    return lambda module: module.BinaryHistogramBinningCalibrator(strategy=strategy)


def trees(name: str) -> Build:
    """A boosted-tree calibrator; not all of them are among the public names of the module."""
    return lambda _: getattr(import_module("probmetrics.calibrators.trees"), name)()


class Clipped(Probmetrics):
    """A calibrator whose values may leave the interval from 0 to 1, as those of the CDF spline mostly do: clipped."""

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Calibrated probabilities."""
        return np.clip(super().apply(x), 0, 1)


BOTH: dict[str, Build] = {
    "BBQ": lambda m: m.NetcalBBQCalibrator(),
    "Isotonic": lambda m: m.SklearnCalibrator(method="isotonic", cv="prefit"),
    "TS": lambda m: m.TemperatureScalingCalibrator(),
    "ETS": lambda m: m.ETSCalibrator(),
    "Spline": lambda m: m.MLISplineCalibrator(),
    "Kernel": lambda m: m.KernelCalibrator(),
    "XGBoost": trees("XGBoostCalibrator"),
    "LightGBM": trees("LightGBMCalibrator"),
    "CatBoost": trees("CatBoostCalibrator"),
}
BINARY: dict[str, Build] = BOTH | {
    "Hist-uniform": histogram("uniform"),
    "Hist-quantile": histogram("quantile"),
    "Scaling-Binning": lambda m: m.BinaryPlattBinnerCalibrator(),
    "CIR": lambda m: m.CenteredIsotonicRegressionCalibrator(),
    "Venn-Abers": lambda m: m.BinaryVennAbersCalibrator(),
    "Platt-probs": lambda m: m.get_calibrator("platt"),
    "Platt-logits": lambda m: m.BinaryLogisticCalibrator(type="affine"),
    "Quadratic": lambda m: m.BinaryLogisticCalibrator(type="quadratic"),
    "Beta": lambda m: m.BetacalCalibrator(),
    "CDF-Spline": lambda m: m.CDFSplineCalibrator(),
}
MULTICLASS: dict[str, Build] = BOTH | {
    "Hist-uniform": lambda m: m.MulticlassOneVsRestCalibrator(histogram("uniform")(m)),
    "Hist-quantile": lambda m: m.MulticlassOneVsRestCalibrator(histogram("quantile")(m)),
    "CIR": lambda m: m.MulticlassOneVsRestCalibrator(m.CenteredIsotonicRegressionCalibrator()),
    "Venn-Abers": lambda m: m.VennAbersCalibrator(),
    "VS": lambda m: m.VectorScalingCalibrator(),
    "SVS": lambda m: m.SVSCalibrator(),
    "MS": lambda m: m.MatrixScalingCalibrator(),
    "SMS": lambda m: m.SMSCalibrator(),
}
NEEDS = ("catboost", "cir-model", "lightgbm", "netcal", "splinecalib", "uncertainty-calibration", "venn-abers",
         "xgboost")  # fmt: skip
PREFIX = "CalArena "


def calarena(task: str) -> list[Method]:
    """The methods for two classes ("binary") or more ("multiclass"), without doing nothing, which is ours too."""
    keeps = ("TS", "ETS")

    def make(name: str, build: Build) -> Callable[[bool, int], Probmetrics]:
        return lambda logits, _: (Clipped if name == "CDF-Spline" else Probmetrics)(build, logits)

    return [
        Method("probmetrics", PREFIX + name, make(name, build),
               takes="probs", dtype="float64", preserving=name in keeps, module="probmetrics.calibrators")
        for name, build in (BINARY if task == "binary" else MULTICLASS).items()
    ]  # fmt: skip

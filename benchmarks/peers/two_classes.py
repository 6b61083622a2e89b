"""Packages whose methods know two classes only: they take and give the probability of the positive class."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from peers.adapters import Method, two_columns


class Positive:
    """A method of a vector of probabilities."""

    def __init__(self, build: Callable[[], Any], apply: str) -> None:
        self.model, self.how = build(), apply

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Learn from scores and labels."""
        self.model.fit(x[:, 1], y)

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Calibrated probabilities."""
        return two_columns(np.asarray(getattr(self.model, self.how)(x[:, 1])))


def positive(library: str, name: str, build: Callable[[], Any], apply: str = "predict_proba") -> Method:
    """Such a method of a library."""
    return Method(library, name, lambda _, __: Positive(build, apply), takes="probs", dtype="float64", module=library)


def probcal() -> list[Method]:
    """Methods of probcal in its own settings, and its choice among eight of them by cross-validation."""
    table: dict[str, tuple[str, dict[str, Any]]] = {
        "platt": ("PlattCalibrator", {}),
        "temperature": ("TemperatureCalibrator", {}),
        "beta": ("BetaCalibrator", {}),
        "isotonic": ("IsotonicCalibrator", {}),
        "centred isotonic": ("CenteredIsotonicCalibrator", {}),
        "histogram": ("HistogramBinningCalibrator", {}),
        "scaling-binning": ("ScalingBinningCalibrator", {}),
        "bbq": ("BBQCalibrator", {}),
        "enir": ("ENIRCalibrator", {}),
        "spline": ("SplineCalibrator", {}),
        "venn-abers": ("VennAbersCalibrator", {}),
        "cross venn-abers": ("CrossVennAbersCalibrator", {}),
        "selector": ("CalibratorSelector", {}),
        "selector (brier)": ("CalibratorSelector", {"scoring": "brier"}),
    }

    def build(kind: str, options: dict[str, Any]) -> Callable[[], Any]:
        return lambda: getattr(import_module("probcal"), kind)(**options)

    return [positive("probcal", name, build(kind, options)) for name, (kind, options) in table.items()]

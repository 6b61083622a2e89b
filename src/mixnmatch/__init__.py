"""Calibrated probabilities for any classifier, and honest evaluation of them.

Names are imported when they are first used, so that ``import mixnmatch`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mixnmatch._version import __version__

if TYPE_CHECKING:
    from mixnmatch._engine.passes import engine
    from mixnmatch.classifier import CalibratedClassifier
    from mixnmatch.data import load_sample
    from mixnmatch.evaluation import (
        CalibrationError,
        ReliabilityDisplay,
        accuracy,
        brier_score,
        calibration_error,
        calibration_gain,
        compare_gains,
        log_loss,
        reliability_curve,
        score_decomposition,
    )
    from mixnmatch.maps import (
        Auto,
        BayesianBinning,
        BetaScaling,
        BiasCorrectedTemperatureScaling,
        Composition,
        DirichletScaling,
        Ensemble,
        EnsembleTemperatureScaling,
        GaussianProcessCalibration,
        HistogramBinning,
        Identity,
        IntraOrderPreserving,
        Isotonic,
        KeepWinner,
        MatrixScaling,
        NormalisedIsotonic,
        OneVsAll,
        PlattScaling,
        Pooled,
        PriorShift,
        StructuredMatrixScaling,
        StructuredVectorScaling,
        TemperatureScaling,
        Uniform,
        VectorScaling,
    )
    from mixnmatch.maps.base import BinaryMap, CalibrationMap, accuracy_preserved
    from mixnmatch.maps.curve import map_curve
    from mixnmatch.maps.display import MapDisplay
    from mixnmatch.maps.shared_function import SharedFunction
    from mixnmatch.monitoring import Monitor, expected_performance, score_drift
    from mixnmatch.persistence import MapFileError, load
    from mixnmatch.registry import calibrator, calibrators
    from mixnmatch.selection.shift import PriorEstimate, estimate_priors

_HOMES = {
    "mixnmatch._engine.passes": ("engine",),
    "mixnmatch.classifier": ("CalibratedClassifier",),
    "mixnmatch.data": ("load_sample",),
    "mixnmatch.evaluation": (
        "CalibrationError",
        "ReliabilityDisplay",
        "accuracy",
        "brier_score",
        "calibration_error",
        "calibration_gain",
        "compare_gains",
        "log_loss",
        "reliability_curve",
        "score_decomposition",
    ),
    "mixnmatch.maps": (
        "Auto",
        "BayesianBinning",
        "BetaScaling",
        "BiasCorrectedTemperatureScaling",
        "Composition",
        "DirichletScaling",
        "Ensemble",
        "EnsembleTemperatureScaling",
        "GaussianProcessCalibration",
        "HistogramBinning",
        "Identity",
        "IntraOrderPreserving",
        "Isotonic",
        "KeepWinner",
        "MatrixScaling",
        "NormalisedIsotonic",
        "OneVsAll",
        "PlattScaling",
        "Pooled",
        "PriorShift",
        "StructuredMatrixScaling",
        "StructuredVectorScaling",
        "TemperatureScaling",
        "Uniform",
        "VectorScaling",
    ),
    "mixnmatch.maps.curve": ("map_curve",),
    "mixnmatch.maps.display": ("MapDisplay",),
    "mixnmatch.maps.base": ("BinaryMap", "CalibrationMap", "accuracy_preserved"),
    "mixnmatch.maps.shared_function": ("SharedFunction",),
    "mixnmatch.monitoring": ("Monitor", "expected_performance", "score_drift"),
    "mixnmatch.persistence": ("MapFileError", "load"),
    "mixnmatch.registry": ("calibrator", "calibrators"),
    "mixnmatch.selection.shift": ("PriorEstimate", "estimate_priors"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Auto",
    "BayesianBinning",
    "BetaScaling",
    "BiasCorrectedTemperatureScaling",
    "BinaryMap",
    "CalibratedClassifier",
    "CalibrationError",
    "CalibrationMap",
    "Composition",
    "DirichletScaling",
    "Ensemble",
    "EnsembleTemperatureScaling",
    "GaussianProcessCalibration",
    "HistogramBinning",
    "Identity",
    "IntraOrderPreserving",
    "Isotonic",
    "KeepWinner",
    "MapDisplay",
    "MapFileError",
    "MatrixScaling",
    "Monitor",
    "NormalisedIsotonic",
    "OneVsAll",
    "PlattScaling",
    "Pooled",
    "PriorEstimate",
    "PriorShift",
    "ReliabilityDisplay",
    "SharedFunction",
    "StructuredMatrixScaling",
    "StructuredVectorScaling",
    "TemperatureScaling",
    "Uniform",
    "VectorScaling",
    "__version__",
    "accuracy",
    "accuracy_preserved",
    "brier_score",
    "calibration_error",
    "calibration_gain",
    "calibrator",
    "calibrators",
    "compare_gains",
    "engine",
    "estimate_priors",
    "expected_performance",
    "load",
    "load_sample",
    "log_loss",
    "map_curve",
    "reliability_curve",
    "score_decomposition",
    "score_drift",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        msg = f"module 'mixnmatch' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

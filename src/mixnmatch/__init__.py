"""Calibrated probabilities for any classifier, and honest evaluation of them.

Names are imported when they are first used, so ``import mixnmatch`` is fast.
"""

from typing import Any

import lazy_loader as _lazy

_public, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)

# Names that are one level down now.
_MOVED = {
    "mixnmatch.evaluation": (
        "CalibrationError",
        "accuracy",
        "brier_score",
        "compare_gains",
        "log_loss",
        "reliability_curve",
        "score_decomposition",
    ),
    "mixnmatch.maps": (
        "BayesianBinning",
        "BetaScaling",
        "BinaryMap",
        "CalibrationMap",
        "DirichletScaling",
        "GaussianProcessCalibration",
        "HistogramBinning",
        "Identity",
        "IntraOrderPreserving",
        "KeepWinner",
        "MatrixScaling",
        "NormalisedIsotonic",
        "PlattScaling",
        "StructuredMatrixScaling",
        "StructuredVectorScaling",
        "Uniform",
        "VectorScaling",
    ),
    "mixnmatch.maps.curve": ("map_curve",),
    "mixnmatch.maps.display": ("MapDisplay",),
    "mixnmatch.maps.shared_function": ("SharedFunction",),
    "mixnmatch.monitoring": ("expected_performance", "score_drift"),
    "mixnmatch.persistence": ("MapFileError",),
    "mixnmatch.selection": ("estimate_priors",),
}


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _MOVED.items() if name in names), None)
    if home is None:
        return _public(name)
    import warnings
    from importlib import import_module

    warnings.warn(f"mixnmatch.{name} is now {home}.{name}", FutureWarning, stacklevel=2)
    return getattr(import_module(home), name)

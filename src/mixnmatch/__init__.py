"""Calibrated probabilities for any classifier, and honest evaluation of them.

Names are imported when they are first used, so that ``import mixnmatch`` costs next to nothing.
"""

from typing import Any

import lazy_loader as _lazy

_public, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)

# Names that are one level down now.
_MOVED = {
    "CalibrationError": "mixnmatch.evaluation",
    "compare_gains": "mixnmatch.evaluation",
    "score_decomposition": "mixnmatch.evaluation",
    "BayesianBinning": "mixnmatch.maps",
    "DirichletScaling": "mixnmatch.maps",
    "GaussianProcessCalibration": "mixnmatch.maps",
    "HistogramBinning": "mixnmatch.maps",
    "IntraOrderPreserving": "mixnmatch.maps",
    "MatrixScaling": "mixnmatch.maps",
    "NormalisedIsotonic": "mixnmatch.maps",
    "StructuredMatrixScaling": "mixnmatch.maps",
    "StructuredVectorScaling": "mixnmatch.maps",
    "Uniform": "mixnmatch.maps",
    "VectorScaling": "mixnmatch.maps",
    "map_curve": "mixnmatch.maps.curve",
    "MapDisplay": "mixnmatch.maps.display",
    "SharedFunction": "mixnmatch.maps.shared_function",
    "MapFileError": "mixnmatch.persistence",
}


def __getattr__(name: str) -> Any:
    home = _MOVED.get(name)
    if home is None:
        return _public(name)
    import warnings
    from importlib import import_module

    warnings.warn(f"mixnmatch.{name} is now {home}.{name}", FutureWarning, stacklevel=2)
    return getattr(import_module(home), name)

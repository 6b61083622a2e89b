"""A smallest probability: entries below it are raised to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import log_softmax

Array = NDArray[np.float64]


def raised(log_p: Array, floor: float) -> Array:
    """Logarithms of probabilities, those below a floor raised to it before rows are normalised again."""
    if floor == 0:
        return log_p
    if log_p.min(initial=0.0) < np.log(floor):
        rows = (log_p < np.log(floor)).any(axis=1)
        logs = np.maximum(log_p[rows], np.log(floor))
        log_p[rows] = log_softmax(logs)
    return log_p

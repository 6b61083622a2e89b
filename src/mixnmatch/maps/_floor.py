"""A smallest probability: entries below it are raised to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def raised(log_p: Array, floor: float) -> Array:
    """Logarithms of probabilities, those below a floor raised to it before rows are normalised again."""
    if floor == 0:
        return log_p
    low = log_p < np.log(floor)
    rows = low.any(axis=1)
    if rows.any():
        logs = np.maximum(log_p[rows], np.log(floor))
        log_p[rows] = logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)
    return log_p

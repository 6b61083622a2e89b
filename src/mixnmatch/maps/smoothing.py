"""Laplace smoothing, which keeps step functions from giving a probability of 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.scores import is_number


def check_smoothing(smoothing: Any) -> None:
    """Raise an error unless ``smoothing`` can be one."""
    if not is_number(smoothing) or smoothing < 0:
        msg = f"smoothing must be a number from 0 on, got {smoothing!r}"
        raise ValueError(msg)


def mix_with_uniform(p: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Laplace smoothing, in place: (1 - share) p + share / L."""
    share = float(share)  # in a narrower type, 1 - share and share would not add up
    if share > 0:
        p *= 1 - share
        p += share / p.shape[1]
    return p

"""Checks of fitted attributes that were read from a file: a map that passes them gives probabilities for every row."""

from __future__ import annotations

from typing import Any

import numpy as np

# No fit comes near this; products with scores (up to 1e9) and sums over classes stay finite.
LARGEST = 1e100
# A probability of 0 is read as one of at least this size: its logarithm is finite in single precision too.
SMALLEST = 1e-44
# Sums and interpolated values are right to rounding.
SLACK = 1e-6
ROUNDING = 1e-12


def require(holds: Any, fitted: Any, name: str, what: str) -> None:
    """Raise an error unless something holds for an attribute."""
    if not holds:
        msg = f"{name} of a {type(fitted).__name__} {what}"
        raise ValueError(msg)


def check_range(fitted: Any, name: str, low: float = -LARGEST, high: float = LARGEST) -> None:
    """Raise an error unless a number, or every entry of an array, is from ``low`` to ``high``."""
    value = np.asarray(getattr(fitted, name))
    inside = value.dtype.kind in "fiu" and bool(((value >= low) & (value <= high)).all())
    require(inside, fitted, name, f"is not from {low:g} to {high:g}")


def check_shape(fitted: Any, name: str, *shape: int) -> None:
    """Raise an error unless an array has a shape."""
    actual = np.shape(getattr(fitted, name))
    require(actual == shape, fitted, name, f"has shape {actual}, not {shape}")


def check_simplex(fitted: Any, name: str, size: int) -> None:
    """Raise an error unless an array holds ``size`` weights, none negative, that sum to 1."""
    check_shape(fitted, name, size)
    check_range(fitted, name, 0.0, 1.0 + SLACK)
    total = float(np.sum(getattr(fitted, name)))
    require(abs(total - 1) <= SLACK, fitted, name, f"sums to {total:.6g}, not to 1")

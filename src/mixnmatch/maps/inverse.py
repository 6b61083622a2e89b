"""The inverse of a map of two classes: the raw score at which the calibrated probability is p."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mixnmatch._engine.scores import WIDEST
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.combine import OneVsAll
from mixnmatch.maps.composition import Composition
from mixnmatch.maps.logistic import PlattScaling

Array = NDArray[np.float64]

# Log-odds at which a map that does not say whether it increases is looked at.
LOOK = np.linspace(-8.0, 8.0, 2001)


def inverse(fitted: CalibrationMap, p: Any) -> Any:
    """The raw score of the positive class at which a fitted map of two classes gives the probability p.

    See :meth:`CalibrationMap.inverse`.
    """
    check_is_fitted(fitted, "n_classes_")
    wanted = np.asarray(p, dtype=np.float64)
    if not ((wanted >= 0) & (wanted <= 1)).all():
        msg = f"p must be probabilities from 0 to 1, got {p!r:.80}"
        raise ValueError(msg)
    _check_increasing(fitted)
    logits = bool(fitted._input_settings()["logits"])
    platt, share = _platt_of(fitted)
    if platt is not None:
        found = _invert_platt(platt, (wanted.ravel() - share / 2) / (1 - share), logits=logits)
    else:
        found = _bisect(fitted, wanted.ravel(), logits=logits)
    return float(found[0]) if wanted.ndim == 0 else found.reshape(wanted.shape)


def _check_increasing(fitted: CalibrationMap) -> None:
    name = type(fitted).__name__
    if fitted.n_classes_ != 2:
        msg = f"only a map of two classes has an inverse; this {name} was fitted with {fitted.n_classes_}"
        raise ValueError(msg)
    if _says_increasing(fitted):
        return
    scores = LOOK if fitted._input_settings()["logits"] else 1 / (1 + np.exp(-LOOK))
    if not (np.diff(fitted.predict_proba(scores)[:, 1]) > 0).all():
        msg = (
            f"this {name} does not increase strictly: many scores have the same calibrated probability, or the order "
            "changes. Use a strictly increasing map, such as PlattScaling, BetaScaling or Isotonic(strict=True)"
        )
        raise ValueError(msg)


def _says_increasing(fitted: Any) -> bool:
    """Whether a map promises to increase strictly; with two classes, keeping order and samples apart comes to that."""
    if isinstance(fitted, OneVsAll):
        return bool(fitted.map_.strictly_increasing) and fitted.mixing_ < 1
    if isinstance(fitted, Composition):
        return _says_increasing(fitted.first_) and _says_increasing(fitted.second_)
    return bool(fitted.strictly_increasing or (fitted.accuracy_preserving and fitted.injective))


def _platt_of(fitted: CalibrationMap) -> tuple[PlattScaling | None, float]:
    """The Platt scaling that a map is, and the share of smoothing on top of it."""
    if isinstance(fitted, PlattScaling):
        return fitted, 0.0
    if isinstance(fitted, OneVsAll) and isinstance(fitted.map_, PlattScaling) and fitted.mixing_ < 1:
        return fitted.map_, float(fitted.mixing_)
    return None, 0.0


def _invert_platt(platt: PlattScaling, p: Array, *, logits: bool) -> Array:
    """Closed form: p = sigmoid(a x + b), with x the score or its log-odds, which are held within the floor's."""
    slope, intercept = platt.coef_[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (np.log(p) - np.log1p(-p) - intercept) / slope
    x = np.where(p <= 0, -np.inf, np.where(p >= 1, np.inf, x))
    if platt.on == "probability":
        inside = np.clip(x, 0.0, 1.0)
        with np.errstate(divide="ignore"):
            found = np.log(inside) - np.log1p(-inside) if logits else inside
        return np.where(x < 0, -np.inf, np.where(x > 1, np.inf, found))
    widest = -math.log(platt.log_floor_)
    beyond = np.where(x < -widest, -np.inf, np.where(x > widest, np.inf, 0.0))
    inside = np.clip(x, -widest, widest)
    return np.where(beyond != 0, beyond, inside if logits else _unclipped(inside, platt.log_floor_))


def _unclipped(x: Array, floor: float) -> Array:
    """The probability s with log max(s, floor) - log max(1 - s, floor) = x."""
    kink = abs(math.log(floor) - math.log1p(-floor)) if floor < 0.5 else 0.0
    middle = 1 / (1 + np.exp(-x))
    if floor >= 0.5:
        return np.where(x > 0, floor * np.exp(x), 1 - floor * np.exp(-x))
    return np.where(x > kink, floor * np.exp(x), np.where(x < -kink, 1 - floor * np.exp(-x), middle))


def _bisect(fitted: CalibrationMap, p: Array, *, logits: bool) -> Array:
    """Smallest score in floating point whose calibrated probability is at least p: halve the numbers in between."""
    ends = (-WIDEST, WIDEST) if logits else (0.0, 1.0)
    low, high = (np.full(len(p), _ordinal(np.array([end]))[0]) for end in ends)

    def reached(at: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.asarray(fitted.predict_proba(_number(at))[:, 1] >= p)

    if not len(p):
        return np.empty(0)
    never, always = ~reached(high), reached(low)
    at_lowest = np.asarray(fitted.predict_proba(_number(low))[:, 1] == p)
    while (high > low + 1).any():
        middle = (low & high) + ((low ^ high) >> 1)  # their mean, without a sum that overflows
        enough = reached(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    found = np.where(always & at_lowest, ends[0], np.where(always, -np.inf, _number(high)))
    return np.where(never, np.inf, found)


def _ordinal(x: Array) -> NDArray[np.int64]:
    """Place of a number among all floating-point numbers, with 0 at 0."""
    bits = np.abs(x).view(np.int64)
    return np.where(x < 0, -bits, bits)


def _number(place: NDArray[np.int64]) -> Array:
    """The floating-point number at a place."""
    return np.copysign(np.abs(place).view(np.float64), place.astype(np.float64))

"""The inverse of a map of two classes: the raw score at which the calibrated probability is p."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import WIDEST, Scores
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.combine import OneVsAll
from mixnmatch.maps.composition import Composition
from mixnmatch.maps.logistic import PlattScaling
from mixnmatch.maps.parameters import check_is_fitted

Array = NDArray[np.float64]

# Log-odds at which a map that does not say whether it increases is looked at.
SCORE_GRID = np.linspace(-8.0, 8.0, 2001)


def inverse(fitted: CalibrationMap, p: Any) -> Any:
    """The raw score of the positive class at which a fitted map of two classes gives the probability p.

    See :meth:`CalibrationMap.inverse`.
    """
    check_is_fitted(fitted)
    wanted = np.asarray(p, dtype=np.float64)
    if not ((wanted >= 0) & (wanted <= 1)).all():
        msg = f"p must be probabilities from 0 to 1, got {p!r:.80}"
        raise ValueError(msg)
    _check_increasing(fitted)
    logits = bool(fitted._input_settings()["logits"])
    ends = np.array([-WIDEST, WIDEST] if logits else [0.0, 1.0])
    lowest, highest = _positive(fitted, ends)
    q = wanted.ravel()
    scores = np.where(q > highest, np.inf, -np.inf)
    inside = (q >= lowest) & (q <= highest)
    platt, share = _platt_of(fitted)
    if platt is not None:
        scores[inside] = _invert_platt(platt, (q[inside] - share / 2) / (1 - share), logits=logits)
    elif inside.any():
        scores[inside] = _bisect(fitted, q[inside], ends)
    return float(scores[0]) if wanted.ndim == 0 else scores.reshape(wanted.shape)


def _check_increasing(fitted: CalibrationMap) -> None:
    name = type(fitted).__name__
    if fitted.n_classes_ != 2:
        msg = f"only a map of two classes has an inverse; this {name} was fitted with {fitted.n_classes_}"
        raise ValueError(msg)
    if _says_increasing(fitted):
        return
    scores = SCORE_GRID if fitted._input_settings()["logits"] else 1 / (1 + np.exp(-SCORE_GRID))
    if not (np.diff(_positive(fitted, scores)) > 0).all():
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
    with np.errstate(divide="ignore"):  # a probability of 0 or 1 is that of the lowest or highest score
        x = (np.log(p) - np.log1p(-p) - intercept) / slope
        if platt.on == "probability":
            s = np.clip(x, 0.0, 1.0)
            return np.asarray(np.log(s) - np.log1p(-s) if logits else s)
    floor = platt.probability_floor_
    if floor > 0:  # logits have none
        x = np.clip(x, math.log(floor), -math.log(floor))
    return x if logits else _unclipped(x, floor)


def _unclipped(x: Array, floor: float) -> Array:
    """The probability s with log max(s, floor) - log max(1 - s, floor) = x."""
    with np.errstate(over="ignore"):  # where it is 0 to all digits
        middle = 1 / (1 + np.exp(-x))
    if floor <= 0:
        return np.asarray(middle)
    kink = abs(math.log(floor) - math.log1p(-floor)) if floor < 0.5 else 0.0
    return np.where(x > kink, floor * np.exp(x), np.where(x < -kink, 1 - floor * np.exp(-x), middle))


def _positive(fitted: CalibrationMap, scores: Array) -> Array:
    """Calibrated probabilities of the positive class; scores made here need no check, some look like probabilities."""
    return np.asarray(fitted._apply(Rows(Scores(scores, fitted.takes_logits)))[:, 1])


def _bisect(fitted: CalibrationMap, p: Array, ends: Array) -> Array:
    """Smallest score in floating point whose calibrated probability is at least p: halve the numbers in between."""
    low, high = (np.full(len(p), place) for place in _ordinal(ends))

    def enough(scores: Array) -> NDArray[np.bool_]:
        return np.asarray(_positive(fitted, scores) >= p)

    at_lowest = enough(_number(low))
    while (high > low + 1).any():
        middle = (low & high) + ((low ^ high) >> 1)  # their mean, without a sum that overflows
        reached = enough(_number(middle))
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    lowest = ends[0] if ends[0] == 0 else -np.inf  # there is no lowest logit
    return np.where(at_lowest, lowest, _number(high))


def _ordinal(x: Array) -> NDArray[np.int64]:
    """Place of a number among all floating-point numbers, with 0 at 0."""
    bits = np.abs(x).view(np.int64)
    return np.where(x < 0, -bits, bits)


def _number(place: NDArray[np.int64]) -> Array:
    """The floating-point number at a place."""
    return np.copysign(np.abs(place).view(np.float64), place.astype(np.float64))

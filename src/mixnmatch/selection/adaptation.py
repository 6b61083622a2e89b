"""Adapting fitted maps to other class frequencies: known ones, known sampling rates, or estimated ones."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.composition import Composition
from mixnmatch.maps.prior_shift import PriorShift, by_class
from mixnmatch.selection.shift import PriorEstimate, _calibration_rows, base_and_ratios, estimate_priors, summary_of

Array = NDArray[np.float64]
# How far given priors may be from summing to 1.
SUM_TOLERANCE = 1e-4


def adapted(
    fitted: CalibrationMap,
    *,
    priors: Any = None,
    sampling: Any = None,
    unlabelled: Any = None,
    sample_weight: Any = None,
    calibration: Any = None,
) -> Composition:
    """A fitted map for other class frequencies; see :meth:`CalibrationMap.adapt`.

    A map that was adapted before is adapted anew: given and estimated priors replace the earlier ones, sampling rates
    multiply them.
    """
    if sum(given is not None for given in (priors, sampling, unlabelled)) != 1:
        msg = "adapt needs exactly one of priors, sampling and unlabelled"
        raise ValueError(msg)
    if sample_weight is not None and unlabelled is None:
        msg = "sample_weight is for unlabelled scores, and there are none"
        raise ValueError(msg)
    if unlabelled is not None:
        settings = {"sample_weight": sample_weight, "calibration": calibration}
        estimate = estimate_priors(fitted, unlabelled, confidence=None, **settings)
        for doubt in estimate.warnings:
            warnings.warn(doubt, UserWarning, stacklevel=3)
        return with_estimate(fitted, estimate)
    base, ratios = base_and_ratios(fitted)
    if sampling is not None:
        ratios = ratios / _rates(sampling, base.classes_)
    else:
        source = summary_of(base, _calibration_rows(base, calibration)).mean_prediction
        ratios = _prior_ratios(priors, source, base.classes_)
    return _after(fitted, base, ratios)


def with_estimate(fitted: CalibrationMap, estimate: PriorEstimate) -> Composition:
    """A fitted map for estimated class frequencies.

    The estimate is mixed with the frequencies that the map assumes as if these were one more sample: no class becomes
    impossible because none of its samples was seen.
    """
    base, _ = base_and_ratios(fitted)
    return _after(fitted, base, estimate.smoothed_ratios)


def _after(fitted: CalibrationMap, base: CalibrationMap, ratios: Array) -> Composition:
    """``base`` for frequencies that differ by ``ratios``, with the metadata that ``fitted`` was loaded with."""
    made = Composition.of_fitted(base, PriorShift.after(base, ratios))
    return made._with_fitted({"metadata_": fitted.metadata_}) if hasattr(fitted, "metadata_") else made


def _rates(sampling: Any, classes: NDArray[Any]) -> Array:
    rates = by_class(sampling, classes, "sampling", missing=1.0)
    if not (rates > 0).all():
        k = int(np.flatnonzero(~(rates > 0))[0])
        msg = f"sampling: the rate of class {classes.tolist()[k]!r} is {rates[k]:g}; rates must be positive"
        raise ValueError(msg)
    return rates


def _prior_ratios(priors: Any, source: Array, classes: NDArray[Any]) -> Array:
    given = by_class(priors, classes, "priors", missing=np.nan)
    open_ = np.isnan(given)
    rest = 1 - float(given[~open_].sum())
    if (given[~open_] <= 0).any():
        k = int(np.flatnonzero(given <= 0)[0])
        msg = (
            f"priors: that of class {classes.tolist()[k]!r} is {given[k]:g}; priors must be positive. "
            "For a class that hardly ever occurs give a small number such as 1e-6"
        )
        raise ValueError(msg)
    if open_.any():
        if rest <= 0 or source[open_].sum() <= 0:
            msg = f"priors: those given sum to {1 - rest:g}, which leaves nothing for the other classes"
            raise ValueError(msg)
        given[open_] = rest * source[open_] / source[open_].sum()
    elif abs(rest) > SUM_TOLERANCE:
        msg = f"priors sum to {1 - rest:g}; they must sum to 1"
        raise ValueError(msg)
    if (source <= 0).any():
        given = np.where(source > 0, given, 1.0)
        source = np.where(source > 0, source, 1.0)
    return np.asarray(given / source)

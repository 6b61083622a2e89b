"""Class priors from the frequencies of predicted classes: BBSE and RLLS, for comparison with maximum likelihood."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.summary import CalibrationSummary

Array = NDArray[np.float64]
# RLLS: probability of the deviation that is guarded against, and the factor of its bound that its authors use.
DEVIATION, FACTOR = 0.05, 0.01


def confusion(fitted: CalibrationMap, source: Rows) -> Array:
    """Share of samples by predicted class and label, L x L; L x 1 where there are no labels."""
    counts = source.through(fitted).total(_confusion)
    return np.asarray(counts / counts.sum())


def _confusion(block: Block) -> Array:
    n_classes = block.values.shape[1]
    columns = 1 if block.labels is None else n_classes
    place = block.winner * columns + (0 if block.labels is None else block.y)
    counts = np.bincount(place, block.weight, minlength=n_classes * columns)
    return counts.reshape(n_classes, columns).astype(np.float64)


def bbse(known: Array, new: Array, summary: CalibrationSummary, n: float) -> Array:
    """Black-box shift estimation (Lipton et al. 2018): solve confusion x ratios = frequencies of predictions."""
    return _priors(np.asarray(np.linalg.lstsq(known, new[:, 0], rcond=None)[0], dtype=np.float64), known)


def rlls(known: Array, new: Array, summary: CalibrationSummary, n: float) -> Array:
    r"""Regularised learning under label shift (Azizzadenesheli et al. 2019).

    Ratios :math:`1 + \theta` with the least :math:`\|C \theta - b\| + \Delta \|\theta\|`, C being the confusion and b
    what ratios of 1 leave unexplained. The minimum is on the path of ridge solutions, or at zero.
    """
    b = new[:, 0] - known.sum(axis=1)
    classes = len(known)
    strength = 0.0
    for size in (n, summary.total_weight):
        log = np.log(2 * classes / DEVIATION)
        strength += FACTOR * 3 * (2 * log / (3 * size) + np.sqrt(2 * log / size))
    left, values, right = np.linalg.svd(known)
    b = left.T @ b
    best, least = np.zeros(classes), float(np.linalg.norm(b))
    for ridge in np.concatenate([[0.0], np.logspace(-14, 4, 400)]) * values[0] ** 2:
        shrunk = np.divide(values, values**2 + ridge, out=np.zeros(classes), where=values > 1e-12 * values[0])
        theta = shrunk * b
        value = float(np.linalg.norm(values * theta - b) + strength * np.linalg.norm(theta))
        if value < least:
            best, least = theta, value
    return _priors(1 + right.T @ best, known)


def _priors(ratios: Array, known: Array) -> Array:
    """Priors from ratios: none negative, with sum 1."""
    label = known.sum(axis=0)
    priors = np.maximum(ratios, 0) * label
    total = float(priors.sum())
    return np.asarray(priors / total if total > 0 else label)


METHODS: dict[str, Callable[[Array, Array, CalibrationSummary, float], Array]] = {"bbse": bbse, "rlls": rlls}

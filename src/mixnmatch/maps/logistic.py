"""Platt and beta scaling: logistic functions of features of the score, for binary problems."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._rows import Block
from mixnmatch.maps._newton import minimise
from mixnmatch.maps.base import BinaryMap
from mixnmatch.maps.columns import Columns, entries, log_odds_parts, take
from mixnmatch.maps.temperature import check_loss

Array = NDArray[np.float64]
# Slopes stay above this, so that the function increases strictly.
SMALLEST_SLOPE = 1e-6


class LogisticMap(BinaryMap):
    """p = sigmoid(theta . features(score)), with all coefficients but the intercept positive.

    Subclasses say what the features are.
    """

    strictly_increasing = True
    injective = True
    _fitted: ClassVar[tuple[str, ...]] = ("coef_", "log_floor_", "loss_")
    _start: ClassVar[tuple[float, ...]]

    coef_: Array
    log_floor_: float
    loss_: Array

    def __init__(
        self,
        *,
        loss: str = "nll",
        smoothing: bool = True,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.loss = loss
        self.smoothing = smoothing
        self.logits = logits
        self.classes = classes
        self.weights = weights

    def _check_params(self) -> None:
        check_loss(self.loss)

    def _features(self, block: Block, way: str, floor: float) -> Array:
        """Features of the entries of a block, m x K x P, the last one constant."""
        raise NotImplementedError(type(self).__name__)

    def _fit_columns(self, columns: Columns) -> dict[str, Any]:
        floor = columns.source.log_floor()
        entry_weight, positive = columns.entry_weight(), columns.positive_weights()
        negative = entry_weight - positive
        if self.smoothing:
            targets = np.stack([1 / (negative + 2), (positive + 1) / (positive + 2)])
        else:
            targets = np.stack([np.zeros_like(negative), np.ones_like(positive)])
        start = np.tile(np.array(self._start), (columns.n_problems, 1))
        lower = np.append(np.full(len(self._start) - 1, SMALLEST_SLOPE), -np.inf)
        statistic = _nll_statistic if self.loss == "nll" else _brier_statistic
        theta, value = minimise(lambda t: columns.total(statistic, self, floor, targets, t), start, lower)
        return {"coef_": theta, "log_floor_": floor, "loss_": value / entry_weight}

    def _transform_columns(self, block: Block, way: str) -> Array:
        features = self._features(block, way, self.log_floor_)
        return sigmoid(np.einsum("mkp,kp->mk", features, self.coef_))


def sigmoid(x: Array) -> Array:
    """Logistic function, without overflow."""
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, decay) / (1.0 + decay)


def _parts(block: Block, way: str, which: LogisticMap, floor: float, theta: Array) -> tuple[Any, Array, Array]:
    features = which._features(block, way, floor)
    return entries(block, way), features, np.einsum("mkp,kp->mk", features, theta)


def _sums(part: Any, features: Array, value: Array, slope: Array, curvature: Array) -> tuple[Array, Array, Array]:
    weighted = features if part.weight is None else features * part.weight[:, None, None]
    gradient = np.einsum("mk,mkp->kp", slope, weighted)
    return part.weighted(value), gradient, np.einsum("mk,mkp,mkq->kpq", curvature, weighted, features, optimize=True)


def _nll_statistic(
    block: Block, way: str, which: LogisticMap, floor: float, targets: Array, theta: Array
) -> tuple[Array, Array, Array]:
    part, features, x = _parts(block, way, which, floor, theta)
    target = np.where(part.positive, targets[1], targets[0])
    p = sigmoid(x)
    value = np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x)))
    return _sums(part, features, value, p - target, p * (1 - p))


def _brier_statistic(
    block: Block, way: str, which: LogisticMap, floor: float, targets: Array, theta: Array
) -> tuple[Array, Array, Array]:
    # Gauss-Newton: the part of the curvature that cannot be negative.
    part, features, x = _parts(block, way, which, floor, theta)
    target = np.where(part.positive, targets[1], targets[0])
    p = sigmoid(x)
    slope = p * (1 - p)
    return _sums(part, features, (p - target) ** 2, 2 * (p - target) * slope, 2 * slope**2)


class PlattScaling(LogisticMap):
    r"""Platt scaling (Platt 1999): :math:`p = 1 / (1 + \exp(-a x - b))`, with a > 0.

    Parameters
    ----------
    on : {"logit", "probability"}
        What x is: the logit of the score, or the score itself as the paper writes it.
    loss : {"nll", "brier"}
        What is minimised on the calibration set.
    smoothing : bool
        Fit to Platt's smoothed targets (N+ + 1) / (N+ + 2) and 1 / (N- + 2), so that separable data and a class
        without positives have a finite answer.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    References
    ----------
    Platt (1999). Probabilistic outputs for support vector machines. Advances in Large Margin Classifiers.

    Examples
    --------
    >>> map = PlattScaling().fit([0.1, 0.4, 0.6, 0.9, 0.7, 0.2], [0, 0, 1, 1, 0, 1])
    >>> map.predict_proba([0.2, 0.8])[:, 1].round(3)
    array([0.407, 0.606])
    """

    _start = (1.0, 0.0)

    def __init__(
        self,
        *,
        on: str = "logit",
        loss: str = "nll",
        smoothing: bool = True,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        super().__init__(loss=loss, smoothing=smoothing, logits=logits, classes=classes, weights=weights)
        self.on = on

    def _check_params(self) -> None:
        super()._check_params()
        if self.on not in ("logit", "probability"):
            msg = f'on must be "logit" or "probability", got {self.on!r}'
            raise ValueError(msg)

    def _features(self, block: Block, way: str, floor: float) -> Array:
        if self.on == "logit":
            log_p, log_not = log_odds_parts(block, way, floor)
            x = log_p - log_not
        else:
            x = take(block.probabilities(), way).astype(np.float64)
        return np.stack([x, np.ones_like(x)], axis=2)


class BetaScaling(LogisticMap):
    r"""Beta scaling (Kull et al. 2017): :math:`p = 1 / (1 + \exp(-a \log z + b \log(1 - z) - c))`, a, b > 0.

    Parameters
    ----------
    loss : {"nll", "brier"}
        What is minimised on the calibration set.
    smoothing : bool
        As for :class:`PlattScaling`.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    References
    ----------
    Kull, Silva Filho, Flach (2017). Beyond sigmoids: how to obtain well-calibrated probabilities from binary
    classifiers with beta calibration. Electronic Journal of Statistics.

    Examples
    --------
    >>> map = BetaScaling().fit([0.1, 0.4, 0.6, 0.9, 0.7, 0.2], [0, 0, 1, 1, 0, 1])
    >>> bool((map.coef_[0, :2] > 0).all())
    True
    """

    _start = (1.0, 1.0, 0.0)

    def _features(self, block: Block, way: str, floor: float) -> Array:
        log_p, log_not = log_odds_parts(block, way, floor)
        return np.stack([log_p, -log_not, np.ones_like(log_p)], axis=2)

"""Platt and beta scaling: logistic functions of features of the score, for binary problems."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.prepared import Prepared
from mixnmatch.maps._newton import minimise
from mixnmatch.maps.base import BinaryMap
from mixnmatch.maps.columns import Columns, labels, log_odds, log_odds_parts, take
from mixnmatch.maps.fitted import SMALLEST, check_range, check_shape, require
from mixnmatch.maps.temperature import check_loss

Array = NDArray[np.float64]
# Rows of a first look, from which the passes over many more rows start.
LOOK, MUCH_MORE = 16384, 4
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

    @property
    def _n_problems(self) -> int:
        """Number of binary problems that the map was fitted to."""
        return len(self.coef_)

    def _check_fitted(self) -> None:
        check_shape(self, "coef_", len(self.coef_), len(self._start))
        check_range(self, "coef_")
        require(len(self.coef_) and (self.coef_[:, :-1] >= 0).all(), self, "coef_", "has a negative slope")
        check_range(self, "log_floor_", SMALLEST, 1.0)

    def _features(self, block: Block, way: str, floor: float) -> tuple[Array, Array | None]:
        """What the slopes are of, one or two m x K tables for the entries of a block."""
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
        look = columns.source.look(LOOK)
        if self.smoothing and look.n_rows * MUCH_MORE < columns.source.n_rows:
            start, _ = self._minimise(Columns(look, columns.way), floor, targets, start)
        theta, value = self._minimise(columns, floor, targets, start)
        return {"coef_": theta, "log_floor_": floor, "loss_": value / entry_weight}

    def _minimise(self, columns: Columns, floor: float, targets: Array, start: Array) -> tuple[Array, Array]:
        lower = np.append(np.full(len(self._start) - 1, SMALLEST_SLOPE), -np.inf)
        rows = Prepared.of(columns.source, logistic_problems, columns.way, self, floor)
        return minimise(lambda theta: rows.total(logistic_statistic, theta, targets, self.loss), start, lower)

    def _transform_columns(self, block: Block, way: str) -> Array:
        first, second = self._features(block, way, self.log_floor_)
        x = first * self.coef_[:, 0]
        if second is not None:
            x += second * self.coef_[:, 1]
        x += self.coef_[:, -1]
        return sigmoid(x)


def sigmoid(x: Array) -> Array:
    """Logistic function, without overflow, in place of its argument."""
    with np.errstate(over="ignore"):  # where it is 0 to all digits
        np.exp(np.negative(x, out=x), out=x)
    x += 1.0
    return np.reciprocal(x, out=x)


@dataclass(frozen=True)
class Problems:
    """The K binary problems of a block, each with its entries side by side: features, labels and weights."""

    first: Array
    second: Array | None
    positive: NDArray[np.bool_]
    weight: Array
    kernels: ModuleType


def logistic_problems(block: Block, way: str, which: LogisticMap, floor: float) -> Problems:
    """The binary problems of a block as the kernels read them."""
    positive, weight = labels(block, way)
    first, second = (None if x is None else np.ascontiguousarray(x.T) for x in which._features(block, way, floor))
    assert first is not None
    weight = np.ones(first.shape[1]) if weight is None else weight
    return Problems(first, second, np.ascontiguousarray(positive.T), weight, block.kernels)


def logistic_statistic(problems: Problems, theta: Array, targets: Array, loss: str) -> tuple[Array, Array, Array]:
    """Value, gradient and curvature of each problem; for squared error the part of it that cannot be negative."""
    two = problems.second is not None
    if not two:
        theta = np.insert(theta, 1, 0.0, axis=1)
    tables = problems.first, problems.second, problems.positive, problems.weight
    value, a, b, c, aa, ab, ac, bb, bc, cc = problems.kernels.logistic_sums(*tables, theta, targets, loss).T
    if two:
        return value, np.stack([a, b, c], 1), np.stack([aa, ab, ac, ab, bb, bc, ac, bc, cc], 1).reshape(-1, 3, 3)
    return value, np.stack([a, c], 1), np.stack([aa, ac, ac, cc], 1).reshape(-1, 2, 2)


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

    def _features(self, block: Block, way: str, floor: float) -> tuple[Array, Array | None]:
        if self.on == "logit":
            return log_odds(block, way, floor), None
        return take(block.probabilities(), way).astype(np.float64), None


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

    def _features(self, block: Block, way: str, floor: float) -> tuple[Array, Array | None]:
        log_p, log_not = log_odds_parts(block, way, floor)
        return log_p, -log_not

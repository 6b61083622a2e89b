"""Platt and beta scaling: logistic functions of features of the score, for binary problems."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.prepared import Prepared
from mixnmatch.maps._solve import TOLERANCE, Point, Solution, bounded_step, certify, newton
from mixnmatch.maps.base import BinaryMap
from mixnmatch.maps.columns import Columns, labels, log_odds, log_odds_parts, take
from mixnmatch.maps.fitted import check_range, check_shape, require
from mixnmatch.maps.temperature import check_loss

Array = NDArray[np.float64]
# Rows of a first look, from which the passes over many more rows start.
PREVIEW_ROWS, MUCH_MORE = 4096, 4
# Slopes stay above this over the size of what they are of, so that the function increases strictly.
SMALLEST_SLOPE = 1e-9


class LogisticMap(BinaryMap):
    """p = sigmoid(theta . features(score)), with all coefficients but the intercept positive.

    Subclasses say what the features are.
    """

    _fitted_by_blas = False

    strictly_increasing = True
    injective = True
    _fitted: ClassVar[tuple[str, ...]] = ("coef_", "probability_floor_", "loss_")
    _n_features: ClassVar[int]

    coef_: Array
    probability_floor_: float
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
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _check_params(self) -> None:
        check_loss(self.loss)

    @property
    def _n_problems(self) -> int:
        """Number of binary problems that the map was fitted to."""
        return len(self.coef_)

    def _check_fitted(self) -> None:
        check_shape(self, "coef_", len(self.coef_), self._n_features + 1)
        check_range(self, "coef_")
        require(len(self.coef_) and (self.coef_[:, :-1] >= 0).all(), self, "coef_", "has a negative slope")
        check_range(self, "probability_floor_", 0.0, 1.0)

    def _features(self, block: Block, scheme: str, floor: float) -> tuple[Array, Array | None]:
        """What the slopes are of, one or two m x K tables for the entries of a block."""
        raise NotImplementedError(type(self).__name__)

    def _fit_columns(self, columns: Columns) -> dict[str, Any]:
        floor = columns.source.probability_floor()
        entry_weight, positive = columns.entry_weight(), columns.positive_weights()
        negative = entry_weight - positive
        if self.smoothing:
            targets = np.stack([1 / (negative + 2), (positive + 1) / (positive + 2)])
        else:
            targets = np.stack([np.zeros_like(negative), np.ones_like(positive)])
        preview = Columns(columns.source.preview(PREVIEW_ROWS), columns.scheme)
        few = preview.source.n_rows * MUCH_MORE <= columns.source.n_rows
        centre = self._centre(preview, floor)
        rows = self._problems(preview, floor, centre)
        theta, lower = self._start(preview, rows, targets, centre)
        if few and self.smoothing:
            theta = self._minimise(preview, rows, targets, theta, lower, tolerance=1e-4).point.theta
        rows = self._problems(columns, floor, centre) if preview.source is not columns.source else rows
        solution = self._minimise(columns, rows, targets, theta, lower)
        certify(type(self).__name__, solution.residual)
        coefficients = solution.point.theta.copy()
        coefficients[:, -1] -= np.sum(coefficients[:, :-1] * centre, axis=1)
        return {"coef_": coefficients, "probability_floor_": floor, "loss_": solution.point.value / entry_weight}

    def _problems(self, columns: Columns, floor: float, centre: Array) -> Prepared:
        return Prepared.of(columns.source, logistic_problems, columns.scheme, self, floor, centre)

    def _centre(self, preview: Columns, floor: float) -> Array:
        """Mean of the features of each problem: centring on it keeps scores that hardly differ distinct."""
        rows = self._problems(preview, floor, np.zeros((preview.n_problems, self._n_features)))
        flat = np.zeros((preview.n_problems, self._n_features + 1))
        curvature = rows.total(logistic_statistic, flat, np.zeros((2, preview.n_problems)), "nll")[2]
        low, high = preview.source.total(_feature_ends, preview.scheme, self, floor, combine=np.maximum)
        # Of features that are all the same the mean must be that number, or rounding would pass for a spread.
        return np.asarray(np.clip(curvature[:, :-1, -1] / curvature[:, -1:, -1], -low, high))

    def _start(self, preview: Columns, rows: Prepared, targets: Array, centre: Array) -> tuple[Array, Array]:
        """Parameters to start from, and lower bounds.

        At the base rate, whatever the score, no probability is saturated, and the curvature gives the scale of the
        features: slopes stay above a small part of what matters on that scale, so that the function increases strictly.
        Slopes of 1 are the better start where they have the lower loss.
        """
        n, positive = preview.entry_weight(), preview.positive_weights()
        rate = np.clip((positive * targets[1] + (n - positive) * targets[0]) / n, 1e-12, 1 - 1e-12)
        theta = np.zeros((preview.n_problems, self._n_features + 1))
        theta[:, -1] = np.log(rate / (1 - rate))
        value, _, curvature = rows.total(logistic_statistic, theta, targets, "nll")
        squares = np.einsum("kpp->kp", curvature)
        size = np.sqrt(squares[:, :-1] / np.maximum(squares[:, -1:], np.finfo(float).tiny))
        lower = np.full(theta.shape, -np.inf)
        lower[:, :-1] = SMALLEST_SLOPE / np.where(size > 0, size, 1.0)
        identity = np.column_stack([np.ones_like(centre), centre.sum(axis=1)])
        better = rows.total(logistic_statistic, identity, targets, "nll")[0] < value
        return np.maximum(np.where(better[:, None], identity, theta), lower), lower

    def _minimise(
        self,
        columns: Columns,
        rows: Prepared,
        targets: Array,
        start: Array,
        lower: Array,
        tolerance: float = TOLERANCE,
    ) -> Solution:
        def at(theta: Array) -> Point:
            return Point(theta, *rows.total(logistic_statistic, theta, targets, self.loss))

        return newton(
            at,
            at(start),
            lambda point: bounded_step(point, lower),
            weight=columns.entry_weight(),
            project=lambda theta: np.maximum(theta, lower),
            tolerance=tolerance,
            unseen=True,
        )

    def _transform_columns(self, block: Block, scheme: str) -> Array:
        first, second = self._features(block, scheme, self.probability_floor_)
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


def logistic_problems(block: Block, scheme: str, map_: LogisticMap, floor: float, centre: Array) -> Problems:
    """The binary problems of a block as the kernels read them, features less their ``centre``."""
    positive, weight = labels(block, scheme)
    first, second = map_._features(block, scheme, floor)
    first = np.ascontiguousarray(first.T) - centre[:, :1]
    second = None if second is None else np.ascontiguousarray(second.T) - centre[:, 1:]
    weight = np.ones(first.shape[1]) if weight is None else weight
    return Problems(first, second, np.ascontiguousarray(positive.T), weight, block.kernels)


def _feature_ends(block: Block, scheme: str, map_: LogisticMap, floor: float) -> Array:
    """Largest feature of each problem with its sign reversed, and as it is: 2 x K x P."""
    tables = [table for table in map_._features(block, scheme, floor) if table is not None]
    ends = [[table.max(axis=0, initial=-np.inf) for table in (-features, features)] for features in tables]
    return np.moveaxis(np.array(ends), 0, -1)


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
        Fit to Platt's smoothed targets (N+ + 1) / (N+ + 2) and 1 / (N- + 2), so the solution is finite for separable
        data and for a class without positives.
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

    _n_features = 1

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

    def _features(self, block: Block, scheme: str, floor: float) -> tuple[Array, Array | None]:
        if self.on == "logit":
            return log_odds(block, scheme, floor), None
        return take(block.probabilities(), scheme).astype(np.float64), None


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

    _n_features = 2

    def _features(self, block: Block, scheme: str, floor: float) -> tuple[Array, Array | None]:
        log_p, log_not = log_odds_parts(block, scheme, floor)
        return log_p, -log_not

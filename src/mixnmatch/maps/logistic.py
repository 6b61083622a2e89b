"""Platt and beta scaling: logistic functions of features of the score, for binary problems."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.passes import row_ranges
from mixnmatch.maps.base import BinaryMap
from mixnmatch.maps.columns import Columns, log_odds, log_odds_parts, take
from mixnmatch.maps.fitted import check_range, check_shape, require
from mixnmatch.maps.temperature import check_loss

Array = NDArray[np.float64]
# The function is applied to so many bytes of scores at a time, or to so many pieces of a block if these are larger:
# what is computed on the way takes several times their memory.
PIECE_BYTES, PIECES = 1 << 15, 16


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
        """What the slopes are of: one or two m x K tables for the entries of a block, which the caller may change."""
        raise NotImplementedError(type(self).__name__)

    def _of_log_odds(self, log_p: Array, log_not: Array) -> tuple[Array, Array | None]:
        """The same of log p and log(1 - p), which may be changed; for features that are functions of these."""
        raise NotImplementedError(type(self).__name__)

    @property
    def _reads_log_odds(self) -> bool:
        """Whether features are functions of log p and log(1 - p)."""
        return True

    def _fit_columns(self, columns: Columns) -> dict[str, Any]:
        from mixnmatch.maps._logistic_fit import fit_logistic
        from mixnmatch.maps._solve import certify

        floor = columns.source.probability_floor()
        fit = fit_logistic(self, columns, floor)
        certify(type(self).__name__, fit.residual)
        loss = fit.loss / columns.entry_weight()
        return {"coef_": fit.coefficients, "probability_floor_": floor, "loss_": loss}

    def _transform_columns(self, block: Block, scheme: str) -> Array:
        out = np.empty(take(block.values, scheme).shape)
        each = len(out) // max(len(block.values), 1)  # entries of a sample, one below the other
        size = max(PIECE_BYTES, block.values.nbytes // PIECES)
        for start, stop in row_ranges(len(block.values), block.values.strides[0], block_bytes=size):
            first, second = self._features(block.part(slice(start, stop)), scheme, self.probability_floor_)
            first *= self.coef_[:, 0]
            if second is not None:
                second *= self.coef_[:, 1]
                first += second
            first += self.coef_[:, -1]
            out[start * each : stop * each] = sigmoid(first)
        return out


def sigmoid(x: Array) -> Array:
    """Logistic function, without overflow, in place of its argument."""
    with np.errstate(over="ignore"):  # where it is 0 to all digits
        np.exp(np.negative(x, out=x), out=x)
    x += 1.0
    return np.reciprocal(x, out=x)


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

    @property
    def _reads_log_odds(self) -> bool:
        return self.on == "logit"

    def _of_log_odds(self, log_p: Array, log_not: Array) -> tuple[Array, Array | None]:
        return np.subtract(log_p, log_not, out=log_p), None

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

    def _of_log_odds(self, log_p: Array, log_not: Array) -> tuple[Array, Array | None]:
        return log_p, np.negative(log_not, out=log_not)

    def _features(self, block: Block, scheme: str, floor: float) -> tuple[Array, Array | None]:
        return self._of_log_odds(*log_odds_parts(block, scheme, floor))

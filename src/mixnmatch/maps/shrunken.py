"""Platt and beta scaling that stay at the identity unless the calibration set speaks against it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.scores import is_number
from mixnmatch.maps._ridge import fit_path
from mixnmatch.maps.columns import Columns, log_odds
from mixnmatch.maps.logistic import BetaScaling, LogisticMap
from mixnmatch.maps.odds import OddsTable, odds_tables

Array = NDArray[np.float64]
# Strengths of the penalty that leave-one-out chooses from; after the last one comes the identity.
STRENGTHS = 10.0 ** np.arange(-1.0, 3.1, 0.5)
# An intercept is penalised like a change of a slope that is smaller by this factor.
INTERCEPT_SCALE = 2.0
# The strongest penalty is taken whose loss is within so many standard errors of the least one.
CAUTION = 0.5
# A penalty that holds slopes where they are.
FIXED = 1e10


class _Shrunken(LogisticMap):
    """A logistic function of the log-odds with a ridge penalty on its distance from the identity."""

    _fitted: ClassVar[tuple[str, ...]] = ("coef_", "probability_floor_", "prior_variance_")

    prior_variance_: Array

    def __init__(
        self,
        *,
        penalty: float | str = "loo",
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.penalty = penalty
        self.logits = logits
        self.classes = classes
        self.weights = weights

    def _check_params(self) -> None:
        check_penalty(self.penalty)

    def _fit_columns(self, columns: Columns) -> dict[str, Any]:
        floor = columns.source.probability_floor()
        fits = [self._fit_table(table) for table in odds_tables(columns, floor)]
        coef, variance = zip(*fits, strict=True)
        return {"coef_": np.stack(coef), "probability_floor_": floor, "prior_variance_": np.array(variance)}

    def _features_of(self, x: Array) -> Array:
        """What the coefficients are of, at log-odds x: m x P, the last column 1."""
        raise NotImplementedError(type(self).__name__)

    def _fit_table(self, table: OddsTable) -> tuple[Array, float]:
        """Coefficients, and the inverse of the strength of the penalty."""
        features = self._features_of(table.log_odds)
        slopes = self._n_features
        identity = np.append(np.ones(slopes), 0.0)
        # Scores that are all close together need steep slopes, which turn where the scores are: what counts is how much
        # the log-odds change.
        zero, turning = self._features_of(np.array([0.0, table.pivot]))
        turning[:slopes] -= zero[:slopes]
        scale = np.diag(np.append(np.ones(slopes), 0.0)) + np.outer(turning, turning) / INTERCEPT_SCALE**2
        scale[:slopes, :slopes] -= (1 - table.slope_unit**2) / slopes
        lower = np.append(np.full(slopes, table.smallest_slope), -np.inf)
        strengths = STRENGTHS if self.penalty == "loo" else np.array([float(self.penalty)])
        path = fit_path(features, table, strengths[:, None, None] * scale, identity, lower, self)
        if self.penalty != "loo":
            return path.theta[0], float(1 / strengths[0])
        path = path.with_fixed(features, identity, table)
        chosen = path.most_cautious(table, CAUTION)
        theta = path.theta[chosen]
        if chosen == len(strengths):  # the identity
            return theta, 0.0
        # A shrunken intercept would leave part of a wrong base rate in place, on which all samples agree.
        slopes_kept = np.append(theta[:-1], turning[:-1] @ (1 - theta[:-1]))
        weakest = np.diag(np.append(np.full(slopes, FIXED), STRENGTHS[0] / INTERCEPT_SCALE**2))
        intercept = fit_path(features, table, weakest[None], slopes_kept, lower, self).theta[0, -1]
        return np.append(theta[:-1], intercept), float(1 / strengths[chosen])


def check_penalty(penalty: Any, choices: str = '"loo"') -> None:
    """Raise an error unless ``penalty`` is a strength, or says that leave-one-out chooses it."""
    if penalty != "loo" and not (is_number(penalty) and penalty > 0):
        msg = f"penalty must be a positive number or {choices}, got {penalty!r}"
        raise ValueError(msg)


class ShrunkenPlattScaling(_Shrunken):
    r"""Platt scaling that is shrunk towards the identity: :math:`p = 1 / (1 + \exp(-a x - b))`, x the log-odds, a > 0.

    For calibration sets of a few hundred samples or fewer. It keeps the scores unchanged unless the calibration set
    shows that a change helps.

    Parameters
    ----------
    penalty : float or "loo"
        Strength :math:`\lambda` of the penalty :math:`\lambda(u^2(a-1)^2 + b^2/4)/2`, added to the sum of log losses.
        The unit u is the standard deviation of the log-odds, or 1 if that is less. Where u is below 1, b is replaced by
        the change of the log-odds at (1 - u) times their mean. "loo" chooses the strength for each problem by
        approximate leave-one-out.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Notes
    -----
    The leave-one-out loss of every strength is found from one fit each (see ``mixnmatch.maps._ridge``). Of the
    strengths from 0.1 to 1000, and the identity, the strongest is taken whose loss is within half a standard error of
    the least one. Unless that is the identity, the intercept is then fitted again with the weakest penalty, so that the
    mean probability is the base rate of the calibration set. ``prior_variance_`` is the inverse of the chosen strength,
    0 for the identity.

    References
    ----------
    Platt (1999). Probabilistic outputs for support vector machines. Advances in Large Margin Classifiers.
    Rad, Maleki (2020). A scalable estimate of the out-of-sample prediction error via approximate leave-one-out
    cross-validation. Journal of the Royal Statistical Society B.

    Examples
    --------
    >>> map = ShrunkenPlattScaling().fit([0.1, 0.4, 0.6, 0.9, 0.7, 0.2], [0, 0, 1, 1, 0, 1])
    >>> map.predict_proba([0.2, 0.8])[:, 1].round(3)
    array([0.2, 0.8])
    """

    _n_features = 1

    def _features(self, block: Block, scheme: str, floor: float) -> tuple[Array, Array | None]:
        return log_odds(block, scheme, floor), None

    def _features_of(self, x: Array) -> Array:
        return np.stack([x, np.ones_like(x)], axis=1)


class ShrunkenBetaScaling(_Shrunken, BetaScaling):
    r"""Beta scaling that is shrunk towards the identity: :math:`p = 1 / (1 + \exp(-a \log z + b \log(1 - z) - c))`.

    Parameters
    ----------
    penalty : float or "loo"
        Strength :math:`\lambda` of the penalty :math:`\lambda(2u^2(m-1)^2 + 2d^2 + c^2/4)/2` on the mean m of the
        slopes a and b, half their difference d and the intercept c, as for :class:`ShrunkenPlattScaling`.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    References
    ----------
    Kull, Silva Filho, Flach (2017). Beyond sigmoids: how to obtain well-calibrated probabilities from binary
    classifiers with beta calibration. Electronic Journal of Statistics.

    Examples
    --------
    >>> map = ShrunkenBetaScaling().fit([0.1, 0.4, 0.6, 0.9, 0.7, 0.2], [0, 0, 1, 1, 0, 1])
    >>> map.coef_
    array([[1., 1., 0.]])
    """

    def _features_of(self, x: Array) -> Array:
        return np.stack([-np.logaddexp(0.0, -x), np.logaddexp(0.0, x), np.ones_like(x)], axis=1)

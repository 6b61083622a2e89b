"""Kernel calibration: a local correction of Platt scaling, by local likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.scores import is_number
from mixnmatch.maps._ridge import RidgePath
from mixnmatch.maps.logistic import sigmoid
from mixnmatch.maps.odds import OddsTable
from mixnmatch.maps.odds_curve import CAUTION, Curve, OddsCurveMap, straight_line

Array = NDArray[np.float64]
# Bandwidths in log-odds that leave-one-out chooses from; after the last one there is no correction.
BANDWIDTHS = np.array([0.1, 0.16, 0.25, 0.4, 0.6, 1.0, 1.6, 2.5, 4.0])
# Groups of scores above which they are joined in cells, and nodes of the grid: at quantiles, and evenly spaced.
GROUPS, CELLS, QUANTILES, EVEN = 1 << 10, 1 << 12, 48, 25
# Curvature that draws a local correction to 0: that of two samples with probability 1/2.
LOCAL_PENALTY = 0.5
# Newton steps of the corrections, none longer than this.
STEPS, LONGEST, TOLERANCE = 50, 2.0, 1e-11


class KernelCalibration(OddsCurveMap):
    r"""Kernel calibration: :math:`p = \sigma(a x + b + c(x))`, the correction c found by local likelihood.

    Parameters
    ----------
    bandwidth : float or "loo"
        Standard deviation h of the Gaussian kernel, in units of the scaled log-odds :math:`o = a x + b`. "loo" chooses
        it by approximate leave-one-out.
    monotone : bool
        Make the function increase strictly, by isotonic regression on its grid.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Notes
    -----
    Platt scaling finds a and b. At each node of a grid the correction minimises the local loss

    .. math:: \sum_i K\left(\frac{o_i - o}{h}\right) \ell(y_i, \sigma(o_i + c)) + \frac{c^2}{4},
        \qquad K(u) = e^{-u^2/2},

    and is interpolated linearly between nodes. The last term shrinks it to 0 where there are few samples. Leaving out
    sample i changes its own correction to first order by :math:`(p_i - y_i) / (H_i - s_i)`, with H the curvature of the
    local loss and s = p (1 - p).

    References
    ----------
    Fan, Heckman, Wand (1995). Local polynomial kernel regression for generalized linear models and quasi-likelihood
    functions. Journal of the American Statistical Association.

    Examples
    --------
    >>> map = KernelCalibration().fit([0.1, 0.4, 0.6, 0.9, 0.7, 0.2], [0, 0, 1, 1, 0, 1])
    >>> p = map.predict_proba([0.2, 0.5, 0.8])[:, 1]
    >>> bool(p[0] < p[1] < p[2])
    True
    """

    def __init__(
        self,
        *,
        bandwidth: float | str = "loo",
        monotone: bool = True,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.bandwidth = bandwidth
        self.monotone = monotone
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _check_params(self) -> None:
        bandwidth: Any = self.bandwidth
        if bandwidth != "loo" and not (is_number(bandwidth) and bandwidth > 0):
            msg = f'bandwidth must be a positive number or "loo", got {self.bandwidth!r}'
            raise ValueError(msg)

    def _curve(self, table: OddsTable) -> Curve:
        table = table.in_cells(GROUPS, CELLS)
        slope, intercept = straight_line(table, self)
        scaled = OddsTable(slope * table.log_odds + intercept, table.weight, table.positive)
        nodes = _nodes(table)
        at = slope * nodes + intercept
        bandwidths = BANDWIDTHS if self.bandwidth == "loo" else np.array([float(self.bandwidth)])
        fits = [_corrections(scaled, at, h) for h in bandwidths]
        if self.bandwidth == "loo":
            chosen = _chosen(scaled, at, fits)
        else:
            chosen = 0
        values, weight = at, np.ones(len(at))
        if chosen < len(fits):
            values, weight = at + fits[chosen].correction, fits[chosen].curvature
        if self.monotone:
            values = _increasing(nodes, values, weight, table.smallest_slope)
        return Curve.through(nodes, values, slope, slope)


@dataclass(frozen=True)
class Corrections:
    """Correction of the log-odds at each node, and the curvature of the local loss there."""

    correction: Array
    curvature: Array


def _nodes(table: OddsTable) -> Array:
    """Grid of log-odds: quantiles, where most samples are, and even steps over the whole range."""
    low, high = table.span(0.0)
    return np.unique(np.concatenate([table.quantiles(np.linspace(0, 1, QUANTILES)), np.linspace(low, high, EVEN)]))


def _corrections(scaled: OddsTable, at: Array, bandwidth: float) -> Corrections:
    """Minimise the local loss at each node by Newton's method."""
    kernel = np.exp(-0.5 * np.square((scaled.log_odds - at[:, None]) / bandwidth))
    positive = kernel @ scaled.positive
    kernel *= scaled.weight
    correction = np.zeros(len(at))
    for _ in range(STEPS):
        p = sigmoid(scaled.log_odds + correction[:, None])
        mean = np.einsum("gm,gm->g", kernel, p)
        curvature = mean - np.einsum("gm,gm,gm->g", kernel, p, p) + LOCAL_PENALTY
        step = (positive - mean - LOCAL_PENALTY * correction) / curvature
        correction += np.clip(step, -LONGEST, LONGEST)
        if np.abs(step).max() < TOLERANCE:
            break
    return Corrections(correction, curvature)


def _chosen(scaled: OddsTable, at: Array, fits: list[Corrections]) -> int:
    """Which of the fits to take; their number if none is better than no correction."""
    own = scaled.log_odds
    losses = []
    for fit in fits:
        eta = own + np.interp(own, at, fit.correction)
        p = np.exp(-np.logaddexp(0.0, -eta))
        rest = np.maximum(np.interp(own, at, fit.curvature) - p * (1 - p), LOCAL_PENALTY)
        losses.append((np.logaddexp(0.0, -(eta - (1 - p) / rest)), np.logaddexp(0.0, eta + p / rest)))
    losses.append((np.logaddexp(0.0, -own), np.logaddexp(0.0, own)))
    if_positive, if_negative = (np.stack(part) for part in zip(*losses, strict=True))
    return RidgePath(np.zeros((len(losses), 1)), if_positive, if_negative, np.full(len(losses), -np.inf)).most_cautious(
        scaled, CAUTION
    )


def _increasing(nodes: Array, values: Array, weight: Array, smallest: float) -> Array:
    """The nearest function whose slope is nowhere below the smallest one."""
    from scipy.optimize import isotonic_regression

    least = smallest * nodes
    return np.asarray(isotonic_regression(values - least, weights=weight).x + least)

"""An average of many smooth functions of the log-odds, weighted by their evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.maps._natural_splines import NaturalSplines, knots_of
from mixnmatch.maps._ridge import fit_path
from mixnmatch.maps.odds import OddsTable
from mixnmatch.maps.odds_curve import Curve, average, nodes

Array = NDArray[np.float64]
# Strengths of the penalty that draws the line inside a function to the identity, and of the one on roughness, of
# functions of the log-odds and of their asinh. The largest one leaves a straight line.
LINE = (0.1, 1.0, 10.0, 100.0)
ROUGH, ROUGH_ASINH, STRAIGHT = (1e-3, 1e-2, 0.1, 1.0, 10.0, 1e7), (1e-2, 0.1, 1.0, 10.0), 1e7
# What straight lines through 0 (the pivot) and the identity weigh beside a spline before the data have spoken.
THROUGH_ZERO, IDENTITY = 2.0, 30.0
# Fits with less weight than this are left out.
LEAST_SHARE = 1e-6
# Knots of the two scales that are closer than so many units are one.
APART = 1e-3
# Log-odds of this size (root mean square) or less are smoothed on their own scale, larger ones as if they had it.
USUAL_SIZE = 10.0


@dataclass(frozen=True)
class Family:
    """Functions that are linear in their parameters, the last two of which are those of the straight line inside.

    ``features`` and ``slopes`` give values and derivatives of what the parameters multiply, m x P. The line is one of
    x less the pivot, the last parameter is its value there.
    """

    features: Callable[[Array], Array]
    slopes: Callable[[Array], Array]
    penalties: Array
    prior: Array
    pivot: float

    @property
    def identity(self) -> Array:
        """Parameters of the identity."""
        return np.append(np.zeros(self.penalties.shape[1] - 2), [1.0, self.pivot])


def averaged_spline(table: OddsTable, count: int, *, odds: float, who: Any) -> Curve:
    """The average; splines have so many knots at most.

    It is over functions that increase in the range of the samples, unless the odds that another one is right are above
    ``odds``; with infinite odds over those that increase everywhere.
    """
    basis = NaturalSplines.at(knots_of(table, count))
    scaled = OddsTable(np.arcsinh(table.log_odds), table.weight, table.positive)
    other = NaturalSplines.at(knots_of(scaled, count))
    unit = table.slope_unit
    at = nodes(_distinct(np.concatenate([basis.knots, np.sinh(other.knots)]), APART * unit), unit)
    # The nodes of the range of the samples, and the next ones beyond its ends.
    low, high = np.searchsorted(at, table.log_odds[[0, -1]])
    inside = slice(max(int(low) - 1, 0), min(int(high) + 1, len(at)))
    values, slopes, least = [at[None]], [np.ones((1, len(at)))], [np.ones((1, 2))]
    evidence, prior = [_identity_evidence(table)], [np.array([IDENTITY])]
    for family in (_of_log_odds(basis, table), _of_asinh(other, table)):
        free = np.full(len(family.identity), -np.inf)
        path = fit_path(family.features(table.log_odds), table, family.penalties, family.identity, free, who)
        values.append(path.theta @ family.features(at).T)
        slopes.append(path.theta @ family.slopes(at).T)
        least.append(np.stack([slopes[-1].min(axis=1), slopes[-1][:, inside].min(axis=1)], axis=1))
        evidence.append(path.log_evidence)
        prior.append(family.prior)
    log_weights = np.log(np.concatenate(prior)) + np.concatenate(evidence)
    rising, rising_inside = (np.concatenate(least) >= table.smallest_slope).T
    allowed = rising if odds == np.inf else rising_inside
    others, own = (np.logaddexp.reduce(log_weights[part], initial=-np.inf) for part in (~allowed, allowed))
    monotone = bool(others - own <= (np.log(odds) if odds > 0 else -np.inf))
    if monotone:
        log_weights[~allowed] = -np.inf
    weights = np.exp(log_weights - log_weights.max())
    kept = np.flatnonzero(weights > LEAST_SHARE * weights.sum())
    f, slope = (np.vstack(parts)[kept] for parts in (values, slopes))
    return average(at, f, slope, weights[kept] / weights[kept].sum(), inside=inside, monotone=monotone)


def _of_log_odds(basis: NaturalSplines, table: OddsTable) -> Family:
    """Splines of the log-odds, and lines; penalties on the slope of the line inside and on its change at the pivot."""
    bent, pivot = basis.components()[:, :-2], table.pivot
    stretch = max(1.0, table.size / USUAL_SIZE) ** 3

    def penalty(rough: float, line: float, at_pivot: float) -> Array:
        each = np.full(bent.shape[1], rough * stretch)
        return np.diag(np.append(each, [line * table.slope_unit**2, at_pivot / 4]))

    pairs = list(product(ROUGH, LINE))
    penalties = [penalty(rough, line, line) for rough, line in pairs]
    penalties += [penalty(STRAIGHT, line, STRAIGHT) for line in LINE]
    prior = np.append(np.ones(len(pairs)), np.full(len(LINE), THROUGH_ZERO))
    return Family(
        lambda x: np.column_stack([basis(x) @ bent, x - pivot, np.ones_like(x)]),
        lambda x: np.column_stack([basis.slope(x) @ bent, np.ones_like(x), np.zeros_like(x)]),
        np.stack(penalties),
        prior,
        pivot,
    )


def _of_asinh(basis: NaturalSplines, table: OddsTable) -> Family:
    """Splines of asinh(x) plus a line in x, with the same penalties but on the change of the whole at the pivot."""
    parts, pivot = basis.components()[:, :-1], table.pivot
    there = basis(np.arcsinh([pivot])) @ parts

    def features(x: Array) -> Array:
        return np.column_stack([basis(np.arcsinh(x)) @ parts - there, x - pivot, np.ones_like(x)])

    def slopes(x: Array) -> Array:
        inner = basis.slope(np.arcsinh(x)) @ parts / np.hypot(1.0, x)[:, None]
        return np.column_stack([inner, np.ones_like(x), np.zeros_like(x)])

    penalties = [
        np.diag(np.append(np.full(parts.shape[1], rough), [line * table.slope_unit**2, line / 4]))
        for rough, line in product(ROUGH_ASINH, LINE)
    ]
    return Family(features, slopes, np.stack(penalties), np.ones(len(penalties)), pivot)


def _distinct(knots: Array, apart: float) -> Array:
    """Knots in increasing order, without those close to the one before."""
    ordered = np.sort(knots)
    return np.asarray(ordered[np.append(True, np.diff(ordered) > apart)])


def _identity_evidence(table: OddsTable) -> Array:
    """Logarithm of the likelihood of the scores as they are."""
    x, negative = table.log_odds, table.weight - table.positive
    return -np.array([np.logaddexp(0.0, -x) @ table.positive + np.logaddexp(0.0, x) @ negative])

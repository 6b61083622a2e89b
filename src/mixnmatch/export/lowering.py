"""One lowering for each map: the computation of its ``predict_proba`` as steps of a graph.

A lowering is found by the exact class of a map, or is its method ``_lower``. A subclass may compute something else, so
it needs its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mixnmatch._engine.scores import SMALLEST_PROBABILITY
from mixnmatch.export.graph import OUTPUT, Graph, Tensor, log_softmax, softmax
from mixnmatch.export.inputs import LogitInput, ProbabilityInput
from mixnmatch.export.rows import GivenLogits, GivenProbabilities, GraphRows, Probabilities, Softmax
from mixnmatch.export.search import CurveTables, PiecewiseTables
from mixnmatch.maps._context_slopes import LOWEST
from mixnmatch.maps._nodes import FACTOR, FINE, WIDE, Nodes, overlap
from mixnmatch.maps.base import BinaryMap, CalibrationMap
from mixnmatch.maps.binning import BayesianBinning, HistogramBinning
from mixnmatch.maps.combine import OneVsAll, Pooled
from mixnmatch.maps.composition import Composition
from mixnmatch.maps.context import ContextualOrderPreserving
from mixnmatch.maps.ensemble import Ensemble
from mixnmatch.maps.ensemble_temperature import EnsembleTemperatureScaling
from mixnmatch.maps.families import FAMILIES, LogisticFamily
from mixnmatch.maps.gaussian_process import GaussianProcessCalibration
from mixnmatch.maps.isotonic import Isotonic
from mixnmatch.maps.keep_winner import KeepWinner
from mixnmatch.maps.kernel import KernelCalibration
from mixnmatch.maps.logistic import BetaScaling, PlattScaling
from mixnmatch.maps.normalised_isotonic import NormalisedIsotonic
from mixnmatch.maps.odds_curve import OddsCurveMap
from mixnmatch.maps.order_preserving import IntraOrderPreserving
from mixnmatch.maps.piecewise import PiecewiseMap
from mixnmatch.maps.prior_shift import PriorShift
from mixnmatch.maps.quadratic import QuadraticScaling
from mixnmatch.maps.scaling import (
    BiasCorrectedTemperatureScaling,
    DirichletScaling,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from mixnmatch.maps.shrunken import ShrunkenBetaScaling, ShrunkenPlattScaling
from mixnmatch.maps.spline import SplineCalibration
from mixnmatch.maps.temperature import TemperatureScaling
from mixnmatch.maps.trivial import Identity, Uniform
from mixnmatch.maps.venn_abers import VennAbers
from mixnmatch.selection.auto import Auto

F = TypeVar("F", bound=Callable[..., Any])
# Share of a unit in the last place that, added to a number of a type, always rounds to the next one.
NUDGE = 0.6
_LOWERINGS: dict[type[CalibrationMap], Callable[..., Any]] = {}


def lowering(*kinds: type[CalibrationMap]) -> Callable[[F], F]:
    """Register a function as the lowering of maps of exactly these classes.

    For a map it is called as ``lower(fitted, rows)`` and returns :class:`GraphRows`. For a :class:`BinaryMap` it is
    called as ``lower(fitted, rows, scheme)`` and returns a tensor with the calibrated probability of every entry: n x L
    for the ways "each" (a function for each class) and "pooled" (one for all), n x 1 for "positive" (the second class).
    """

    def register(function: F) -> F:
        for kind in kinds:
            _LOWERINGS[kind] = function
        return function

    return register


def lowering_of(fitted: CalibrationMap) -> Callable[..., Any]:
    """Return the lowering of a map; raise an error that says how to add one."""
    found = _LOWERINGS.get(type(fitted)) or getattr(type(fitted), "_lower", None)
    if found is None:
        name = type(fitted).__name__
        msg = (
            f"a {name} cannot be exported: it is not a map of this library. "
            f"Register how it is computed with mixnmatch.export.lowering({name})"
        )
        raise TypeError(msg)
    return found


def lower(fitted: CalibrationMap, rows: GraphRows, scope: str = "") -> GraphRows:
    """Add a fitted map to the graph that ``rows`` are in, and return its output."""
    step = lowering_of(fitted)
    with rows.graph.scope(scope):
        made: GraphRows = _binary_alone(fitted, rows) if isinstance(fitted, BinaryMap) else step(fitted, rows)
    if fitted.accuracy_preserving and made is not rows:
        made.before = rows
    return made


def lowered(fitted: CalibrationMap, *, precision: str = "double") -> Graph:
    """The graph of a fitted map: from scores, n x L, to what ``predict_proba`` returns for them."""
    check_is_fitted(fitted, "n_classes_")
    graph = Graph(precision)
    n_classes = fitted.n_classes_
    scores = LogitInput(graph) if fitted.takes_logits else ProbabilityInput(graph, n_classes)
    form = GivenLogits if fitted.takes_logits else GivenProbabilities
    made = lower(fitted, form(scores.values.real(), n_classes))
    p = made.probabilities
    if made.positive:
        p = p.at_least(float(np.finfo(np.float32).tiny))
    out = scores.without_masked(p.output())
    if fitted.accuracy_preserving:
        out = _keep_argmax(scores.values, out, n_classes)
    scores.usable.choose(out, math.nan)
    graph.prune()
    return graph


def _keep_argmax(given: Tensor, out: Tensor, n_classes: int) -> Tensor:
    """Repair rounding: where the largest entry is not the one given, raise that one just above it."""
    winner, found, top = given.argmax(), out.argmax(), out.max()
    raised = top + top * given.graph.add("spacing", kind=OUTPUT)
    column = given.graph.constant("columns", np.arange(n_classes))
    return column.equals(winner).choose(winner.equals(found).choose(out, raised), out)


def _mixed(p: Tensor, share: float, n_classes: int) -> Tensor:
    """Laplace smoothing: (1 - share) p + share / L."""
    if share == 0:
        return p
    weight = p.graph.constant("smoothing", share)
    return (1.0 - weight) * p + weight / float(n_classes)


@lowering(Identity)
def _identity(fitted: Identity, rows: GraphRows) -> GraphRows:
    return rows


@lowering(Uniform)
def _uniform(fitted: Uniform, rows: GraphRows) -> GraphRows:
    return Probabilities(rows.values.filled_with(1 / rows.n_classes), rows.n_classes)


def _floor(fitted: Any, rows: GraphRows) -> Tensor:
    return rows.graph.constant("floor", max(fitted.probability_floor_, SMALLEST_PROBABILITY))


def _scaled(fitted: Any, rows: GraphRows) -> tuple[Tensor, Tensor]:
    """Leads over the largest score of a row (not positive), and the same times the inverse temperature."""
    u = rows.log_scores(_floor(fitted, rows))
    u = u - u.max()  # before the scaling: leads survive in logits of any size
    return u, rows.graph.constant("beta", fitted.beta_) * u


@lowering(TemperatureScaling)
def _temperature(fitted: TemperatureScaling, rows: GraphRows) -> GraphRows:
    if rows.graph.nested and rows.graph.precision == "double":
        # As Python computes what it hands on: a step map that follows must see the same numbers to a few bits.
        u = rows.graph.constant("beta", fitted.beta_) * rows.log_scores(_floor(fitted, rows))
        return Softmax(u, rows.n_classes, positive=True)
    return Softmax(_scaled(fitted, rows)[1], rows.n_classes, positive=True)


@lowering(EnsembleTemperatureScaling)
def _ensemble_temperature(fitted: EnsembleTemperatureScaling, rows: GraphRows) -> GraphRows:
    plain, scaled = _scaled(fitted, rows)
    weights = fitted.member_weights_
    return _mixture(rows, [softmax(scaled), softmax(plain)], weights, uniform=True)


def _mixture(rows: GraphRows, members: list[Tensor], weights: Any, *, uniform: bool) -> GraphRows:
    """Weighted sum of probabilities; with ``uniform`` the last weight is that of the uniform prediction."""
    w = [rows.graph.constant(f"weight_{k}", weight) for k, weight in enumerate(weights)]
    mixed = w[0] * members[0]
    for weight, member in zip(w[1 : len(members)], members[1:], strict=True):
        mixed = mixed + weight * member
    if uniform:
        mixed = mixed + w[-1] / float(rows.n_classes)
    return Probabilities(mixed, rows.n_classes, positive=uniform)


@lowering(
    VectorScaling,
    BiasCorrectedTemperatureScaling,
    MatrixScaling,
    DirichletScaling,
    StructuredVectorScaling,
    StructuredMatrixScaling,
)
def _softmax_linear(fitted: Any, rows: GraphRows) -> GraphRows:
    x = log_softmax(rows.log_scores(_floor(fitted, rows)))
    weight = rows.graph.constant("weight", fitted.weight_.T)
    u = x.times_matrix(weight) if fitted.weight_.ndim == 2 else x * weight
    return Softmax(u + rows.graph.constant("intercept", fitted.intercept_), rows.n_classes)


@lowering(PriorShift)
def _prior_shift(fitted: PriorShift, rows: GraphRows) -> GraphRows:
    floor = rows.graph.constant("floor", SMALLEST_PROBABILITY)
    shifted = softmax(rows.logs(floor) + rows.graph.constant("log_ratios", fitted.log_ratios_))
    return Probabilities((rows.probabilities <= 0.0).choose(0.0, shifted), rows.n_classes)


@lowering(IntraOrderPreserving, GaussianProcessCalibration)
def _shared_function_of_logs(fitted: Any, rows: GraphRows) -> GraphRows:
    nodes = Nodes.of(rows.n_classes)
    if isinstance(fitted, IntraOrderPreserving):
        deviation = overlap(nodes, fitted.knots_) @ (fitted.slopes_ - 1)
    else:
        deviation = fitted.deviation_
    x = log_softmax(_scaled(fitted, rows)[1])
    s = x * (FINE / nodes.low)
    s = s.at_most((s - float(FINE)) / float(FACTOR) + float(FINE)).at_least(0.0).at_most(float(FINE + WIDE))
    cell = s.floor().at_most(float(FINE + WIDE - 1))
    index = cell.index()
    value = index.looked_up_in(rows.graph.constant("deviation", deviation))
    rise = index.looked_up_in(rows.graph.constant("rise", np.diff(deviation)))
    return Softmax(rise * (s - cell) + value + x, rows.n_classes, positive=True)


@lowering(ContextualOrderPreserving)
def _contextual(fitted: ContextualOrderPreserving, rows: GraphRows) -> GraphRows:
    graph, n_cells = rows.graph, len(fitted.knots_) - 1
    x = log_softmax(_scaled(fitted, rows)[1])
    slopes = graph.constant("slopes", fitted.slopes_[:, 0].mean(axis=0)[None])
    if fitted.context_knots_.shape[1] > 1:
        for m, context in enumerate(_contexts(x, rows.n_classes)):
            knots = fitted.context_knots_[m]
            above = context - graph.constant(f"context_{m}", knots[:-1])
            rises = (above / graph.constant(f"width_{m}", np.diff(knots))).at_least(0.0).at_most(1.0)
            change = np.diff(fitted.slopes_[m], axis=0) / len(fitted.slopes_)
            slopes = rises.times_matrix(graph.constant(f"change_{m}", change)) + slopes
    u = x
    for j in range(n_cells):
        upper, lower = (graph.constant(f"knot_{k}", fitted.knots_[k]) for k in (j, j + 1))
        u = (slopes.column(j) - 1.0) * (x.at_least(lower).at_most(upper) - upper) + u
    return Softmax(u, rows.n_classes, positive=True)


def _contexts(x: Tensor, n_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """The contexts of a :class:`ContextualOrderPreserving` for log-probabilities."""
    x = x.at_least(LOWEST)
    top = x.graph.constant("columns", np.arange(n_classes)).equals(x.argmax())
    first, second = x.max(), top.choose(2 * LOWEST, x).max()
    mean = (x.sum() - first) / float(n_classes - 1)
    rest = top.choose(0.0, x - second)
    p = top.choose(0.0, rest.exp())
    total = p.sum()
    return first - second, second - mean, total.log() - (p * rest).sum() / total


@lowering(Composition)
def _composition(fitted: Composition, rows: GraphRows) -> GraphRows:
    return lower(fitted.second_, lower(fitted.first_, rows, "first"), "second")


@lowering(KeepWinner)
def _keep_winner(fitted: KeepWinner, rows: GraphRows) -> GraphRows:
    return _kept(rows, lower(fitted.map_, rows))


def _kept(rows: GraphRows, made: GraphRows) -> GraphRows:
    """The output of a map, with the predicted class kept."""
    p, n_classes = made.probabilities, rows.n_classes
    winner = rows.graph.constant("columns", np.arange(n_classes)).equals(rows.winner)
    own = winner.choose(p, 0.0).sum()
    sums = own + winner.choose(0.0, p).falling(n_classes).running_sum()
    level = (sums / rows.graph.constant("counts", np.arange(2.0, n_classes + 2))).max().at_least(own)
    return Probabilities(winner.choose(level, p.at_most(level)), n_classes, positive=made.positive)


@lowering(Auto)
def _auto(fitted: Auto, rows: GraphRows) -> GraphRows:
    members = [lower(member, rows, f"member_{k}").probabilities for k, member in enumerate(fitted.members_)]
    stack = _mixture(rows, members, fitted.member_weights_, uniform=False)
    if fitted.floor_ > 0:
        raised = stack.probabilities.at_least(fitted.floor_)
        stack = Probabilities(raised / raised.sum(), rows.n_classes, positive=True)
    return _kept(rows, stack) if fitted.accuracy_preserving else stack


@lowering(Ensemble)
def _ensemble(fitted: Ensemble, rows: GraphRows) -> GraphRows:
    if not isinstance(fitted.family, str):
        msg = f"an Ensemble of the family {fitted.family!r} cannot be exported: only {sorted(FAMILIES)} can"
        raise TypeError(msg)
    log_p, log_not = _log_odds_parts(rows, _floor(fitted, rows))
    family = FAMILIES[fitted.family]
    theta = fitted.theta_
    members = []
    for k in range(len(theta)):
        if isinstance(family, LogisticFamily):
            x = _logistic_argument(rows, log_p, log_not, theta[k], f"theta_{k}")
            members.append(softmax(_log_sigmoid(x)))
        else:
            members.append(softmax(rows.graph.constant(f"theta_{k}", theta[k][0]) * log_p))
    if fitted.fixed:
        members.append(softmax(log_p))
    return _mixture(rows, members, fitted.member_weights_, uniform=bool(fitted.fixed))


@lowering(Pooled, OneVsAll, NormalisedIsotonic)
def _combined(fitted: Any, rows: GraphRows) -> GraphRows:
    scheme = fitted._scheme(rows.n_classes)
    g = lowering_of(fitted.map_)(fitted.map_, rows, scheme)
    g = (1.0 - g).joined(g) if scheme == "positive" else g
    total = g.sum()
    empty = total <= 0.0  # nothing is known of such a row: leave it as it came
    p = rows.probabilities
    normalised = empty.choose(p, g) / empty.choose(p.sum(), total)
    return Probabilities(_mixed(normalised, fitted.mixing_, rows.n_classes), rows.n_classes)


def _binary_alone(fitted: BinaryMap, rows: GraphRows) -> GraphRows:
    """A binary map that is used alone, on two classes."""
    positive = lowering_of(fitted)(fitted, rows, "positive")
    p = (1.0 - positive).joined(positive)
    if isinstance(fitted, PiecewiseMap):
        p = _mixed(p, min(1.0, fitted.smoothing / (fitted.total_weight_ + 1)), 2)
    return Probabilities(p, 2)


@lowering(Isotonic, HistogramBinning, BayesianBinning)
def _piecewise(fitted: PiecewiseMap, rows: GraphRows, scheme: str) -> Tensor:
    scores = _sorted_by(fitted, rows, scheme)
    return PiecewiseTables.of(fitted).at(scores, exact=rows.exact)


@lowering(VennAbers)
def _venn_abers(fitted: VennAbers, rows: GraphRows, scheme: str) -> Tensor:
    scores = _sorted_by(fitted, rows, scheme)
    # The upper end of the interval changes just after a score of the calibration set, which must stay on the left.
    upper = np.insert(fitted.upper_, fitted.offsets_[:-1], fitted.left_upper_)
    before = fitted.offsets_[:-1] + np.arange(len(fitted.left_))
    rises = np.delete(np.diff(upper, prepend=upper[0]) != 0, before)
    tables = PiecewiseTables.of(fitted)
    if not rows.exact:
        tables = tables.after(rises, rows.graph.precision)
    return tables.at(scores, exact=rows.exact)


@lowering(PlattScaling)
def _platt(fitted: PlattScaling, rows: GraphRows, scheme: str) -> Tensor:
    if fitted.on == "logit":
        return _logistic(fitted, rows, scheme)
    slope, intercept = (rows.graph.constant(f"coef_{k}", c) for k, c in enumerate(_coefficients(fitted)))
    return _log_sigmoid(slope * _taken(rows.probabilities, scheme) + intercept).exp()


@lowering(BetaScaling, ShrunkenBetaScaling, ShrunkenPlattScaling)
def _logistic(fitted: Any, rows: GraphRows, scheme: str) -> Tensor:
    parts = _taken_log_odds_parts(fitted, rows, scheme)
    return _log_sigmoid(_logistic_argument(rows, *parts, _coefficients(fitted), "coef")).exp()


@lowering(QuadraticScaling, SplineCalibration, KernelCalibration)
def _odds_curve(fitted: OddsCurveMap, rows: GraphRows, scheme: str) -> Tensor:
    log_p, log_not = _taken_log_odds_parts(fitted, rows, scheme)
    x = log_p - log_not
    return _log_sigmoid(CurveTables.of(fitted).at(x)).exp()


def _sorted_by(fitted: PiecewiseMap, rows: GraphRows, scheme: str) -> Tensor:
    """Scores in [0, 1] that the knots of a map are compared with, see :func:`mixnmatch.maps.columns.sorted_by`."""
    if fitted.scale_ == "probability":
        return _taken(rows.probabilities, scheme).at_most(1.0)  # rounding can put a score a hair above 1
    lead = rows.values.column(1) - rows.values.column(0)
    s = rows.graph.constant("one_half", 0.5) / (lead.abs() + 1.0).sqrt()
    return (lead <= 0.0).choose(s, 1.0 - s)


def _coefficients(fitted: Any) -> list[Any]:
    """Coefficients, each a vector with one entry a class, or a number where there is one problem."""
    return [column[0] if len(column) == 1 else column for column in fitted.coef_.T]


def _taken(values: Tensor, scheme: str) -> Tensor:
    return values.column(1) if scheme == "positive" else values


def _logistic_argument(rows: GraphRows, log_p: Tensor, log_not: Tensor, coefficients: Any, name: str) -> Tensor:
    """The argument a log p - b log(1 - p) + c of the logistic function; with two coefficients b = a."""
    c = [rows.graph.constant(f"{name}_{k}", value) for k, value in enumerate(coefficients)]
    if len(c) == 2:
        return c[0] * (log_p - log_not) + c[1]
    return c[0] * log_p - c[1] * log_not + c[2]


def _log_sigmoid(x: Tensor) -> Tensor:
    """Logarithm of the logistic function, without overflow and with the right slope everywhere."""
    tail = -40.0  # further down it is x to the last bit
    return (x <= tail).choose(x, -((-x.at_least(tail)).exp() + 1.0).log())


def _taken_log_odds_parts(fitted: Any, rows: GraphRows, scheme: str) -> tuple[Tensor, Tensor]:
    """Log p and log(1 - p) of the entries that a binary map looks at, with the floor that it was fitted with."""
    if isinstance(rows, GivenLogits) and fitted.probability_floor_ == 0:
        parts = _log_odds_parts_of_logits(rows)
    else:
        parts = _log_odds_parts(rows, _floor(fitted, rows))
    return _taken(parts[0], scheme), _taken(parts[1], scheme)


def _log_odds_parts(rows: GraphRows, floor: Tensor) -> tuple[Tensor, Tensor]:
    """Log p and log(1 - p) of the entries, neither below the logarithm of ``floor``."""
    log_p = rows.logs(floor)
    if rows.n_classes == 2:
        return log_p, log_p.column(1).joined(log_p.column(0))
    p = rows.probabilities
    # Next to 1 the difference 1 - p has no digits left: there it is the sum of the other entries. Not below 1/2, where
    # several entries may be equal and must stay so.
    top = rows.graph.constant("columns", np.arange(rows.n_classes)).equals(p.argmax())
    others = top.choose(0.0, p).sum()
    rest = (p <= 0.5).choose(1.0 - p, top.choose(others, 1.0 - p))
    return log_p, rest.at_least(floor).log()


def _log_odds_parts_of_logits(rows: GivenLogits) -> tuple[Tensor, Tensor]:
    """The same for logits, without a floor."""
    log_p = log_softmax(rows.values)
    if rows.n_classes == 2:
        return log_p, log_p.column(1).joined(log_p.column(0))
    p = rows.probabilities
    top = rows.graph.constant("columns", np.arange(rows.n_classes)).equals(p.argmax())
    others = top.choose(-1e30, log_p)
    second = others.max()
    rest = top.choose(0.0, (others - second).exp()).sum().log() + second
    small = p <= 0.5
    rest = small.choose(small.choose(1.0 - p, 0.5).log(), top.choose(rest, top.choose(0.5, 1.0 - p).log()))
    return log_p, rest

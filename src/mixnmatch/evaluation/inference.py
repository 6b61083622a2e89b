"""Intervals of calibration errors and tests of "is it calibrated?"."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch.evaluation._binning import Floats, Grid, bin_linearly
from mixnmatch.evaluation._bounded import clopper_pearson
from mixnmatch.evaluation._means import Moments, clustered_covariance
from mixnmatch.evaluation._sums import BinnedOutcomes
from mixnmatch.evaluation.adaptive import ResidualCurve, residual_curve
from mixnmatch.evaluation.estimators import Estimator, GridEstimator, Histogram, Norm, Smooth, Sweep
from mixnmatch.evaluation.histogram import count_bins
from mixnmatch.evaluation.kde import Smoother, fit_grid, rule_of_thumb
from mixnmatch.evaluation.notion import Outcomes
from mixnmatch.evaluation.smooth import smooth_error

# Resamples of a test, and of each of the steps by which an interval is found.
TEST_RESAMPLES: Final = 499
INTERVAL_RESAMPLES: Final = 200
INTERVAL_STEPS: Final = 11
# The statistic of intervals is smoothed this much more than the rule of thumb says.
STATISTIC_MULTIPLE: Final = 1.4
# Tails are this much thinner than nominal: quantiles of few resamples and the estimated curve are not exact.
TAIL: Final = 0.6
# Where a test rejects and its inversion reaches 0 all the same, the lower end is this part of the estimate.
LEAST_PART: Final = 1e-3
# Above this many draws outcomes are resampled on the nodes instead of row by row.
MOST_DRAWS: Final = 50_000_000
# Above this many rows the outcomes on a node are drawn from a normal distribution.
MOST_ROWS: Final = 2_000

Statistic = Callable[[Grid], Floats]


def calibration_test(
    outcomes: Outcomes | BinnedOutcomes,
    estimator: Estimator,
    norm: Norm,
    rng: np.random.Generator,
    *,
    resamples: int = TEST_RESAMPLES,
) -> float:
    """p-value of "the confidences are calibrated" by consistency resampling.

    Notes
    -----
    If calibrated, outcomes are draws from the confidences themselves. The p-value is the rank of the estimate among
    estimates from such draws: exact for any estimator, up to its granularity 1 / (resamples + 1).

    References
    ----------
    Broecker & Smith (2007), Increasing the reliability of reliability diagrams.
    """
    if isinstance(estimator, GridEstimator):
        grid = _coarse_enough(_grid(outcomes), estimator)
        observed = float(estimator.on_grid(grid, norm))
        drawn = estimator.on_grid(_null_grid(outcomes, grid, resamples, rng), norm)
    else:
        assert isinstance(outcomes, Outcomes)  # bins are resampled by row
        observed = estimator(outcomes, norm)
        drawn = np.array([estimator(_null(outcomes, rng), norm) for _ in range(resamples)])
    return rank_p_value(observed, drawn)


def _coarse_enough(grid: Grid, estimator: GridEstimator) -> Grid:
    """No more nodes than the estimator's bandwidth asks for: resamples cost what their nodes cost."""
    width = getattr(estimator, "bandwidth", None)
    if width is None:
        return grid
    rule = float(rule_of_thumb(grid))
    return fit_grid(grid, np.asarray(rule if isinstance(width, str) else min(width, rule)), nodes_a_bandwidth=12)


def rank_p_value(observed: float, drawn: Floats) -> float:
    """Share of the draws, the observation among them, that are at least as large as it (up to rounding)."""
    at_least = np.count_nonzero(drawn >= observed - 1e-12 * max(abs(observed), 1e-3))
    return float((1 + at_least) / (1 + len(drawn)))


def _null(outcomes: Outcomes, rng: np.random.Generator) -> Outcomes:
    return Outcomes(outcomes.z, (rng.random(len(outcomes.z)) < outcomes.z).astype(np.int8), outcomes.weight)


def _grid(outcomes: Outcomes | BinnedOutcomes) -> Grid:
    if isinstance(outcomes, BinnedOutcomes):
        return outcomes.grid
    return bin_linearly(outcomes.z, outcomes.y, outcomes.weight)


def _null_grid(outcomes: Outcomes | BinnedOutcomes, grid: Grid, resamples: int, rng: np.random.Generator) -> Grid:
    """Grids of the data with outcomes drawn from the confidences, (resamples, nodes)."""
    count = np.broadcast_to(grid.count, (resamples, grid.count.shape[-1]))
    if isinstance(outcomes, BinnedOutcomes) or _many_draws(outcomes, resamples):
        # Rows are the units: weights make for fewer of them.
        rows = count * (_effective_size(outcomes) / outcomes.n)
        whole = np.floor(rows + rng.random(count.shape)).astype(np.int64)
        hits = rng.binomial(whole, grid.nodes)
        return Grid(count, np.asarray(count * hits / np.maximum(whole, 1)))
    n_nodes = grid.count.shape[-1]
    outcome = np.empty(count.shape)
    for row in range(resamples):
        hit = rng.random(len(outcomes.z)) < outcomes.z
        own = None if outcomes.weight is None else outcomes.weight[hit]
        z = outcomes.z[hit]
        outcome[row] = bin_linearly(z, np.ones(len(z), dtype=np.int8), own, n_nodes=n_nodes).count
    return Grid(count, outcome)


def _many_draws(outcomes: Outcomes, resamples: int) -> bool:
    return outcomes.weight is None and len(outcomes.z) * resamples > MOST_DRAWS


def inverted_interval(
    outcomes: Outcomes | BinnedOutcomes,
    estimator: Estimator,
    norm: Norm,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = INTERVAL_RESAMPLES,
    p_value: float | None = None,
) -> tuple[float, float]:
    r"""Interval for the population's calibration error by inverting a test.

    Notes
    -----
    Let :math:`\hat r` be the adaptive residual curve. Along the line of models with residuals :math:`t \hat r`,
    :math:`t \ge 0`, samples of the size at hand are drawn (confidences from the sample, outcomes from
    :math:`z + t \hat r(z)`), and the residual kernel statistic of each is computed. The interval holds the errors of
    those t for which the observed statistic is between the lower and the upper quantile. Noise that inflates the
    statistic inflates it in the draws as well, so that nothing has to be debiased.

    Where the lower end is 0 although ``p_value``, that of :func:`calibration_test`, rejects calibration at the level
    1 - confidence, it is taken from the inversion of a one-sided test of that level.

    The upper end is at least the largest error that Clopper and Pearson's interval of the error rate allows, see
    :func:`largest_mean_difference`: where all outcomes are equal no curve has been seen along which to search.

    The interval is about the error itself. A biased estimate, such as a histogram's of few samples, may lie outside:
    see :func:`agreeing_interval`.
    """
    fine = _grid(outcomes)
    rule = float(rule_of_thumb(fine)) * STATISTIC_MULTIPLE
    grid = fit_grid(fine, np.asarray(rule), nodes_a_bandwidth=4)
    curve = _curve_on(residual_curve(fine), grid)
    share = np.maximum(grid.count, 0.0) / grid.count.sum()
    size = _effective_size(outcomes)
    statistic, functional = _statistic(estimator, norm, grid, rule, float(grid.count.sum()))
    observed = float(statistic(grid))
    error = float(share @ np.abs(curve))
    standard = float(np.sqrt(share @ (grid.nodes * (1 - grid.nodes)) / size)) + 1.0 / size
    steps = np.linspace(0.0, 1.0, INTERVAL_STEPS) ** 1.5 * ((error + 4 * standard) / max(error, 1e-12))
    tail = 0.5 * (1 - confidence) * TAIL
    draws = _Draws(share, size, resamples, rng)
    sizes, quantiles = [], []
    for step in steps:
        probability = np.clip(grid.nodes + step * curve, 0.0, 1.0)
        sizes.append(functional(Grid(share, share * probability)))
        drawn = statistic(draws.with_probability(probability))
        quantiles.append(np.quantile(drawn, [tail, 1 - tail, confidence]))
    values, edges = np.maximum.accumulate(sizes), np.maximum.accumulate(quantiles).T
    upper, lower, rejecting = (float(np.interp(observed, edge, values)) for edge in edges)
    lower = 0.0 if edges[1][0] >= observed else lower
    if lower == 0 and p_value is not None and rejects(p_value, confidence) and edges[2][0] < observed:
        lower = rejecting
    folded = norm != "max" and not isinstance(estimator, Smooth)
    difference = largest_mean_difference(fine, size, confidence, folded=folded)
    return lower, max(upper, lower, difference if norm == "max" else difference ** int(norm))


def rejects(p_value: float, confidence: float) -> bool:
    """Whether a test rejects at the level that belongs to a confidence."""
    return p_value <= 1 - confidence + 1e-12


def agreeing_interval(
    ends: tuple[float, float], value: float, p_value: float, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Make an interval agree with its estimate and its test.

    It contains the estimate, and its lower end is 0 just when the test does not reject at the level 1 - confidence. (An
    estimate of exactly 0 stays inside even if the test rejects; of one below 0, which is no error, 0 counts.)
    """
    value = max(value, 0.0)
    low, high = min(ends[0], value), max(ends[1], value)
    if not rejects(p_value, confidence):
        return 0.0, high
    return max(low, LEAST_PART * value), high


def largest_mean_difference(grid: Grid, size: float, confidence: float, *, folded: bool = True) -> float:
    r"""Largest difference between mean outcome and mean confidence that the data allow, by Clopper and Pearson.

    Notes
    -----
    With ``folded`` the outcome is "the more likely of the two did not happen", the confidence that of it,
    :math:`\min(z, 1 - z)`. The calibration error is at least the difference of their means, as it is for y and z, but
    less of it is due to chance. For rare events, or confidences above one half, the two are the same.
    """
    upper_half = folded & (grid.nodes > 0.5)
    rate = float(np.where(upper_half, grid.count - grid.outcome, grid.outcome).sum() / grid.count.sum())
    expected = float(grid.count @ np.where(upper_half, 1 - grid.nodes, grid.nodes) / grid.count.sum())
    low, high = clopper_pearson(min(max(rate, 0.0), 1.0), size, confidence)
    return max(high - expected, expected - low)


class _Draws:
    """Samples whose confidences are drawn once, and whose outcomes follow any curve by the same random numbers."""

    def __init__(self, share: Floats, size: int, resamples: int, rng: np.random.Generator) -> None:
        count = rng.multinomial(size, share / share.sum(), size=resamples)
        self._count = count.astype(np.float64)
        self._by_row = size <= MOST_ROWS
        if self._by_row:
            self._index = np.repeat(np.arange(count.size), count.ravel())
            self._node = self._index % len(share)
            self._uniform = rng.random(self._index.size)
        else:
            self._normal = rng.standard_normal(count.shape)

    def with_probability(self, probability: Floats) -> Grid:
        """The samples with outcomes of these probabilities at the nodes."""
        if self._by_row:
            hit = self._index[self._uniform < probability[self._node]]
            outcome = np.bincount(hit, minlength=self._count.size).astype(np.float64)
            return Grid(self._count, outcome.reshape(self._count.shape))
        spread = np.sqrt(self._count * (probability * (1 - probability)))
        drawn = np.clip(self._count * probability + spread * self._normal, 0.0, self._count)
        return Grid(self._count, drawn)


def _curve_on(curve: ResidualCurve, grid: Grid) -> Floats:
    values = np.interp(grid.nodes, curve.grid.nodes, curve.values)
    return values if np.any(values != 0) else np.full(values.shape, 1e-6)


def _effective_size(outcomes: Outcomes | BinnedOutcomes) -> int:
    """Rows are units: with weights, Kish's effective number of them."""
    if isinstance(outcomes, BinnedOutcomes):
        return max(1, round(outcomes.n**2 / outcomes.weight_squares))
    if outcomes.weight is None:
        return len(outcomes.z)
    return max(1, round(outcomes.n**2 / float(outcomes.weight @ outcomes.weight)))


def _statistic(
    estimator: Estimator, norm: Norm, grid: Grid, width: float, total: float
) -> tuple[Statistic, Callable[[Grid], float]]:
    """What is compared with resamples, and the error of a population given on the nodes."""
    if isinstance(estimator, Smooth):
        return (lambda sample: smooth_error(sample).value), (lambda model: float(smooth_error(model).value))
    if norm == "max":
        cells = _histogram_cells(estimator, grid, total)

        def largest(sample: Grid) -> Floats:
            weight, residual = sample.count @ cells, sample.residual @ cells
            return np.asarray(np.abs(residual / np.where(weight > 0, weight, 1.0)).max(axis=-1))

        return largest, lambda model: float(largest(model))
    smoother = Smoother(width, grid.count.shape[-1])
    power = int(norm)

    def smoothed(sample: Grid) -> Floats:
        residual = np.abs(smoother.mass(sample.residual))
        if power == 2:
            density = np.maximum(smoother.mass(sample.count), 1e-12 * sample.total)
            return np.asarray((residual**2 / density).sum(axis=-1) / sample.total[..., 0])
        return np.asarray(residual.sum(axis=-1) / sample.total[..., 0])

    def error(model: Grid) -> float:
        inside = model.count > 0
        return float((np.abs(model.residual[inside]) ** power / model.count[inside] ** (power - 1)).sum())

    return smoothed, error


def _histogram_cells(estimator: Estimator, grid: Grid, total: float) -> Floats:
    """Which bin each node is in, as a matrix (nodes, bins); equal-mass bins are those of the sample."""
    n_bins = count_bins(estimator.bins if isinstance(estimator, Histogram) else "sturges", total)
    equal_mass = isinstance(estimator, Sweep) or getattr(estimator, "binning", "") == "equal-mass"
    position = (np.cumsum(grid.count) - 0.5 * grid.count) / total if equal_mass else grid.nodes
    cell = np.clip((position * n_bins).astype(np.intp), 0, n_bins - 1)
    return np.asarray(np.eye(n_bins)[cell])


def cluster_inference(
    outcomes: Outcomes,
    clusters: NDArray[Any],
    norm: Norm,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = TEST_RESAMPLES,
) -> tuple[float, tuple[float, float]]:
    """p-value and interval when samples of a cluster depend on each other: clusters, not samples, are the units.

    Notes
    -----
    The test flips the signs of the residuals of whole clusters (wild bootstrap), which keeps what happens within a
    cluster. The interval resamples clusters with replacement: quantiles of the resampled statistic around its mean are
    put around the noise-corrected estimate; the lower end is 0 unless the test rejects. The upper end is at least that
    of :func:`largest_mean_difference` for the effective number of samples, that number divided by the design effect of
    the clusters. With few clusters (below about 20) both are rough.
    """
    if norm == "max":
        msg = 'clusters are for norm 1 and 2; for "max" leave them out'
        raise ValueError(msg)
    fine = bin_linearly(outcomes.z, outcomes.y, outcomes.weight)
    rule = float(rule_of_thumb(fine)) * STATISTIC_MULTIPLE
    grid = fit_grid(fine, np.asarray(rule), nodes_a_bandwidth=4)
    n_nodes = grid.count.shape[-1]
    statistic, _ = _statistic(Estimator(), norm, grid, rule, outcomes.n)
    names, cluster = np.unique(clusters, return_inverse=True)
    own = np.ones(len(outcomes.z)) if outcomes.weight is None else outcomes.weight
    outcome = outcomes.y.astype(np.float64)
    flipped, drawn = np.empty((resamples, n_nodes)), []
    for row in range(resamples):
        sign = rng.choice([-1.0, 1.0], size=len(names))[cluster]
        flipped[row] = _bin_values(outcomes.z, own * sign * (outcome - outcomes.z), n_nodes)
        times = np.bincount(rng.integers(0, len(names), len(names)), minlength=len(names))[cluster]
        drawn.append(statistic(bin_linearly(outcomes.z, outcomes.y, own * times, n_nodes=n_nodes)))
    count = np.broadcast_to(grid.count, flipped.shape)
    p_value = rank_p_value(float(statistic(grid)), statistic(Grid(count, flipped + grid.nodes * grid.count)))
    centre = float(residual_curve(fine).error(norm=int(norm), debiased=True))
    values = np.asarray(drawn)
    tail = 0.5 * (1 - confidence) * TAIL
    low, high = np.quantile(values, [tail, 1 - tail]) - values.mean()
    difference = largest_mean_difference(fine, _clustered_size(outcomes, cluster), confidence) ** int(norm)
    ends = max(0.0, centre - float(high)), max(centre - float(low), difference)
    return p_value, agreeing_interval(ends, centre, p_value, confidence=confidence)


def _clustered_size(outcomes: Outcomes, cluster: NDArray[np.intp]) -> float:
    """Effective number of samples for the rate at which the less likely of the two outcomes happens."""
    surprise = np.where(outcomes.z > 0.5, 1 - outcomes.y, outcomes.y).astype(np.float64)[None]
    covariance, n_clusters = clustered_covariance(surprise, outcomes.weight, cluster)
    return float(Moments.of(surprise, outcomes.weight).effective_sizes(covariance, n_clusters)[0])


def _bin_values(z: Floats, values: Floats, n_nodes: int) -> Floats:
    return bin_linearly(z, np.ones(len(z), dtype=np.int8), values, n_nodes=n_nodes).count


def normal_quantile(level: float) -> float:
    """Quantile of the standard normal distribution."""
    return NormalDist().inv_cdf(level)


def bootstrap_interval(
    value: float, resampled: Floats, p_value: float, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Basic bootstrap interval that agrees with its estimate and test, see :func:`agreeing_interval`.

    For problems of many dimensions, where there is no residual curve to invert a test along.
    """
    tail = 0.5 * (1 - confidence)
    low, high = np.quantile(resampled, [tail, 1 - tail])
    ends = max(0.0, float(2 * value - high)), float(2 * value - low)
    return agreeing_interval(ends, value, p_value, confidence=confidence)

"""Intervals of calibration errors and tests of "is it calibrated?"."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.steps import steps
from mixnmatch.evaluation._binning import Floats, Grid, bin_linearly
from mixnmatch.evaluation._bounded import clopper_pearson
from mixnmatch.evaluation._means import Moments, clustered_covariance
from mixnmatch.evaluation._sums import BinnedOutcomes
from mixnmatch.evaluation.estimators import Estimator, GridEstimator, Histogram, Norm, ResidualKernel, Smooth, Sweep
from mixnmatch.evaluation.histogram import count_bins
from mixnmatch.evaluation.kde import fit_grid, rule_of_thumb
from mixnmatch.evaluation.notion import Outcomes
from mixnmatch.evaluation.plausible import Functional, model_errors, power_functional, standard_normal
from mixnmatch.evaluation.scales import ScaleStatistic
from mixnmatch.evaluation.series import ResidualSeries, group_nodes
from mixnmatch.evaluation.smooth import smooth_error

# Resamples of a test, and curves drawn for an interval.
TEST_RESAMPLES: Final = 499
CURVES: Final = 1000
# Tails are this much thinner than nominal: the curves are estimated, and so are quantiles of few of them.
TAIL: Final = 0.4
# Where a test rejects and the interval reaches 0 all the same, the lower end is this part of the estimate.
LEAST_PART: Final = 1e-3
# Above this many draws outcomes are resampled on the nodes instead of row by row.
MOST_DRAWS: Final = 50_000_000


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
    If calibrated, outcomes are draws from the confidences themselves. The p-value is the rank of a statistic among
    those of such draws: exact, up to its granularity 1 / (resamples + 1). The statistic is the estimate; for
    ``kde-residual`` and its noise-corrected form it is :class:`~mixnmatch.evaluation.scales.ScaleStatistic`. Samples
    are the units: weights enter scaled to Kish's effective number, so that only their ratios matter.

    References
    ----------
    Broecker & Smith (2007), Increasing the reliability of reliability diagrams.
    """
    outcomes = _in_samples(outcomes)
    if isinstance(estimator, ResidualKernel) and estimator.bandwidth == "adaptive":
        grid = _grid(outcomes)
        groups = group_nodes(grid)
        statistic = ScaleStatistic(groups)
        observed = float(statistic(groups.outcome)[0])
        drawn = statistic(groups.gather(_null_grid(outcomes, grid, resamples, rng).outcome))
    elif isinstance(estimator, GridEstimator):
        grid = _coarse_enough(_grid(outcomes), estimator)
        observed = float(estimator.on_grid(grid, norm))
        drawn = estimator.on_grid(_null_grid(outcomes, grid, resamples, rng), norm)
    else:
        assert isinstance(outcomes, Outcomes)  # bins are resampled by row
        observed = estimator(outcomes, norm)
        drawn = np.array([estimator(_null(outcomes, rng), norm) for _ in steps(range(resamples), "testing")])
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
    """Grids of the data (:func:`_in_samples`) with outcomes drawn from the confidences, (resamples, nodes)."""
    count = np.broadcast_to(grid.count, (resamples, grid.count.shape[-1]))
    if isinstance(outcomes, BinnedOutcomes) or _many_draws(outcomes, resamples):
        whole = np.floor(count + rng.random(count.shape)).astype(np.int64)
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


def error_interval(
    outcomes: Outcomes | BinnedOutcomes,
    estimator: Estimator,
    norm: Norm,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    size: float | None = None,
) -> tuple[float, float]:
    r"""Interval for the population's calibration error from the curves that the data do not contradict.

    Parameters
    ----------
    outcomes, estimator, norm
        What the error is of. The interval is about the error itself, E \|r(z)\|^d, the smooth calibration error, or the
        largest gap of the bins, and so the same for most estimators. A biased estimate, such as a histogram's of few
        samples, may lie outside: see :func:`agreeing_interval`.
    rng : Generator
        For the curves.
    confidence : float
        Coverage that is aimed at.
    size : float, optional
        Number of independent samples; by default Kish's effective number.

    Notes
    -----
    :class:`~mixnmatch.evaluation.series.ResidualSeries` is a mixture of models, from "the start is all" to rough
    curves. For every model with at least 0.5% of the likelihood of the best one, curves are drawn from its
    posterior. The interval reaches from the smallest to the largest of these models: down to the error of the mean
    curve less the spread of the errors of drawn curves, and up to their upper quantile. (The drawn curves are rougher
    than the mean curve, which is smoother than the truth.) The extremes over models, instead of their mixture, keep the
    coverage where the data cannot tell the models apart.

    The upper end is at least the largest error that Clopper and Pearson's interval of the error rate allows, see
    :func:`mean_differences`, and at least the largest difference of the means that the data allow given the scores,
    see :func:`largest_shift`. It is at most the largest error that is possible with Clopper and Pearson's interval of
    the mean outcome. The lower end is at least as far below the errors of mean curves as the smallest mean difference
    in the interval of the error rate is below the observed one: posteriors are too certain where confidences are close
    to 0 and 1. Where all outcomes are equal the ends are those of the difference of the means.
    """
    fine = _grid(outcomes)
    size = _effective_size(outcomes) if size is None else size
    part = size / float(fine.count.sum())
    grid = Grid(fine.count * part, fine.outcome * part)
    tail = 0.5 * (1 - confidence) * TAIL
    folded = norm != "max" and not isinstance(estimator, Smooth)
    power = 1 if norm == "max" else int(norm)
    least, gap, most = (end**power for end in mean_differences(fine, size, confidence, folded=folded))
    if folded:
        most = max(most, largest_shift(fine, size, confidence) ** power)
    series = ResidualSeries.of(grid)
    if series.constant[0]:
        least, _, most = mean_differences(fine, size, confidence, folded=False)
        return least**power, most**power
    curve_noise, sampling_noise = standard_normal(rng, CURVES)
    if folded:
        functional = power_functional(series, 0, power, sampling_noise)
    else:
        functional = _functional_on_nodes(estimator, norm, grid, series)
    centre, median, spread = model_errors(series, 0, functional, curve_noise, tail)
    upper = min(float((median + spread).max()), _largest_error(fine, size, confidence, norm))
    lower = min(float((centre - spread).min()), float(centre.min()) - (gap - least))
    return max(lower, 0.0), max(upper, most)


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


def mean_differences(grid: Grid, size: float, confidence: float, *, folded: bool = True) -> tuple[float, float, float]:
    r"""Smallest, observed and largest difference between mean outcome and mean confidence that the data allow.

    Notes
    -----
    By Clopper and Pearson's interval of the rate of the outcome. With ``folded`` the outcome is "the more likely of the
    two did not happen", the confidence that of it, :math:`\min(z, 1 - z)`. The calibration error is at least the
    difference of their means, as it is for y and z, but less of it is due to chance. For rare events, or confidences
    above one half, the two are the same.
    """
    upper_half = folded & (grid.nodes > 0.5)
    rate = float(np.where(upper_half, grid.count - grid.outcome, grid.outcome).sum() / grid.count.sum())
    expected = float(grid.count @ np.where(upper_half, 1 - grid.nodes, grid.nodes) / grid.count.sum())
    low, high = clopper_pearson(min(max(rate, 0.0), 1.0), size, confidence)
    least = max(low - expected, expected - high, 0.0)
    return least, max(abs(rate - expected), least), max(high - expected, expected - low)


def largest_shift(grid: Grid, size: float, confidence: float) -> float:
    r"""Largest difference between mean outcome and mean confidence that the data allow, given the confidences.

    Notes
    -----
    Clopper and Pearson's interval of the mean outcome counts differences between confidences as noise: with half of
    them 0.01 and half 0.99 it is five times too long. So the samples with confidences up to one half and those above
    have intervals of their own, and distances from the observed rates add up as squares [1]_. Where one of the two
    parts is empty this is Clopper and Pearson's interval of the mean. It is never taken to be longer than that.

    References
    ----------
    .. [1] Zou & Donner (2008), Construction of confidence limits about effect measures: a general approach.
    """
    total = float(grid.count.sum())
    difference = float((grid.outcome - grid.count * grid.nodes).sum()) / total
    above = below = 0.0
    for part in (grid.nodes <= 0.5, grid.nodes > 0.5):
        share = float(grid.count[part].sum()) / total
        if share > 0:
            rate = min(max(float(grid.outcome[part].sum()) / (share * total), 0.0), 1.0)
            low, high = clopper_pearson(rate, share * size, confidence)
            above = math.hypot(above, share * (high - rate))
            below = math.hypot(below, share * (rate - low))
    given_scores = max(difference + above, below - difference)
    return min(given_scores, mean_differences(grid, size, confidence, folded=False)[2])


def _largest_error(grid: Grid, size: float, confidence: float, norm: Norm) -> float:
    """The largest error that is possible with a mean outcome in its Clopper-Pearson interval."""
    if norm == "max":
        return 1.0
    share = grid.count / grid.count.sum()
    low, high = clopper_pearson(float(np.clip(grid.outcome.sum() / grid.count.sum(), 0.0, 1.0)), size, confidence)
    power = int(norm)
    return float(min(high + share @ grid.nodes**power, 1 - low + share @ (1 - grid.nodes) ** power))


def _effective_size(outcomes: Outcomes | BinnedOutcomes) -> int:
    """Rows are units: with weights, Kish's effective number of them."""
    if isinstance(outcomes, BinnedOutcomes):
        return max(1, round(outcomes.n**2 / outcomes.weight_squares))
    if outcomes.weight is None:
        return len(outcomes.z)
    return max(1, round(outcomes.n**2 / float(outcomes.weight @ outcomes.weight)))


def _in_samples(outcomes: Outcomes | BinnedOutcomes) -> Outcomes | BinnedOutcomes:
    """The same with weights that sum to the effective number of samples."""
    part = _effective_size(outcomes) / outcomes.n
    if isinstance(outcomes, BinnedOutcomes):
        grid = Grid(outcomes.grid.count * part, outcomes.grid.outcome * part)
        return BinnedOutcomes(grid, outcomes.weight_squares * part**2)
    return outcomes if outcomes.weight is None else Outcomes(outcomes.z, outcomes.y, outcomes.weight * part)


def of_rarer_class(outcomes: Outcomes | BinnedOutcomes) -> Outcomes | BinnedOutcomes:
    """The same problem about the class of two that is predicted less often, so that their order does not matter."""
    if isinstance(outcomes, BinnedOutcomes):
        count, outcome = outcomes.grid.count, outcomes.grid.outcome
        if count @ outcomes.grid.nodes <= 0.5 * outcomes.n:
            return outcomes
        return BinnedOutcomes(Grid(count[::-1], (count - outcome)[::-1]), outcomes.weight_squares)
    if np.average(outcomes.z, weights=outcomes.weight) <= 0.5:
        return outcomes
    return Outcomes(1 - outcomes.z, 1 - outcomes.y, outcomes.weight)


def _functional_on_nodes(estimator: Estimator, norm: Norm, grid: Grid, series: ResidualSeries) -> Functional:
    """Smooth calibration error or largest gap of populations, whose residuals are constant in each group."""
    index, z = series.groups.index[0], series.groups.z[0][:, None]
    share = grid.count / grid.count.sum()
    cells = _histogram_cells(estimator, grid, float(grid.count.sum())) if norm == "max" else None

    def functional(probability: Floats) -> Floats:
        moved = np.clip(grid.nodes + (probability - z).T[:, index], 0.0, 1.0)
        model = Grid(share[None], share * moved)
        if cells is None:
            return smooth_error(model).value
        weight, residual = model.count @ cells, model.residual @ cells
        return np.asarray(np.abs(residual / np.where(weight > 0, weight, 1.0)).max(axis=-1))

    return functional


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
    cluster. The interval is that of :func:`error_interval` for the effective number of samples, that number divided by
    the design effect of the clusters. With few clusters (below about 20) both are rough.
    """
    if norm == "max":
        msg = 'clusters are for norm 1 and 2; for "max" leave them out'
        raise ValueError(msg)
    scaled = _in_samples(outcomes)
    assert isinstance(scaled, Outcomes)
    outcomes, grid = scaled, _grid(scaled)
    groups = group_nodes(grid)
    statistic = ScaleStatistic(groups)
    names, cluster = np.unique(clusters, return_inverse=True)
    own = np.ones(len(outcomes.z)) if outcomes.weight is None else outcomes.weight
    residual = own * (outcomes.y - outcomes.z)
    flipped = np.empty((resamples, grid.count.shape[-1]))
    for row in range(resamples):
        sign = rng.choice([-1.0, 1.0], size=len(names))[cluster]
        flipped[row] = _bin_values(outcomes.z, sign * residual, flipped.shape[-1])
    drawn = statistic(groups.gather(flipped) + groups.count * groups.z)
    p_value = rank_p_value(float(statistic(groups.outcome)[0]), drawn)
    size = clustered_size(outcomes, cluster)
    return p_value, error_interval(outcomes, Estimator(), norm, rng, confidence=confidence, size=size)


def clustered_size(outcomes: Outcomes, clusters: NDArray[Any]) -> float:
    """Effective number of samples for the rate at which the less likely of the two outcomes happens."""
    cluster = np.unique(clusters, return_inverse=True)[1].reshape(-1)
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

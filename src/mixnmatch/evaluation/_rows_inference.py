"""Tests and intervals of errors that look at whole rows of probabilities: class-wise and canonical ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.scores import Scores
from mixnmatch._engine.steps import steps
from mixnmatch.evaluation import inference, notion
from mixnmatch.evaluation._binning import Floats, Grid, locate
from mixnmatch.evaluation._bounded import clopper_pearson
from mixnmatch.evaluation.dirichlet import ProductKernel, choose_width
from mixnmatch.evaluation.estimators import Dirichlet, ResidualKernel, Smooth
from mixnmatch.evaluation.inference import TAIL, largest_shift, mean_differences, rank_p_value
from mixnmatch.evaluation.plausible import model_errors, power_functional, standard_normal
from mixnmatch.evaluation.scales import ScaleStatistic
from mixnmatch.evaluation.series import EVEN_ODDS, Groups, ResidualSeries, group_nodes

if TYPE_CHECKING:
    from mixnmatch.evaluation.error import CalibrationMetric

# Resamples of the test, those that cost a full estimate each, curves drawn for each class, and classes at a time.
RESAMPLES: Final = 199
FULL_RESAMPLES: Final = 99
LABELS_A_CHUNK: Final = 100
CURVES: Final = 200
# How much the variance of the squared canonical error grows with it, in units of the noise.
VARIANCE_GROWTH: Final = 6.0
CLASSES_A_CHUNK: Final = 64


def infer_by_rows(
    metric: CalibrationMetric,
    value: float,
    scores: Scores,
    labels: NDArray[np.intp],
    weight: Floats | None,
    *,
    confidence: float,
    rng: np.random.Generator,
) -> tuple[tuple[float, float], float]:
    """Interval of a class-wise or canonical error, and the p-value of "it is calibrated"."""
    p = notion.probabilities(scores)
    observed = value
    if weight is not None:  # samples are the units: only the ratios of weights matter
        weight = weight * (weight.sum() / (weight @ weight))
        observed = metric.evaluate(scores, labels, weight)[0]
    own = np.ones(len(p)) if weight is None else weight
    by_class = metric.notion == "class-wise" and metric.norm != "max" and not isinstance(metric.estimator, Smooth)
    if metric.notion == "canonical" and isinstance(metric.estimator, ResidualKernel):
        width = "paper" if metric.estimator.bandwidth == "adaptive" else metric.estimator.bandwidth
        smoother = ProductKernel(p, weight, bandwidth=width, kernel=metric.estimator.kernel)
        ends, p_value = canonical_inference(smoother, labels, int(metric.norm), rng, confidence=confidence)
        return inference.agreeing_interval(ends, value, p_value, confidence=confidence), p_value
    if not by_class:
        if isinstance(metric.estimator, Dirichlet) and metric.estimator.bandwidth is None:
            metric = replace(metric, estimator=Dirichlet(choose_width(p, weight)))  # once, not for each resample
        p_value = _labels_test(metric, observed, scores, weight, rng)
        ends = _bootstrap_interval(metric, observed, scores, labels, own, p_value, confidence, rng)
        return inference.agreeing_interval(ends, value, p_value, confidence=confidence), p_value
    grid = notion.class_grid(scores, labels, weight)
    default = isinstance(metric.estimator, ResidualKernel) and metric.estimator.bandwidth == "adaptive"
    p_value = class_wise_test(p, grid, rng, weight) if default else _labels_test(metric, observed, scores, weight, rng)
    shares = np.full(p.shape[1], 1 / p.shape[1])
    if metric.average == "frequency":
        shares = notion.class_frequencies(labels, p.shape[1], weight)
    size = float(own.sum() ** 2 / (own @ own))
    ends = class_wise_interval(grid, shares, size, int(metric.norm), rng, confidence=confidence)
    return inference.agreeing_interval(ends, value, p_value, confidence=confidence), p_value


def _labels_test(
    metric: CalibrationMetric, value: float, scores: Scores, weight: Floats | None, rng: np.random.Generator
) -> float:
    """Rank of an estimate among those of labels drawn from the rows, a full estimate for each."""
    cumulative = np.cumsum(notion.probabilities(scores), axis=1)
    resamples = steps(range(FULL_RESAMPLES), "testing")
    drawn = [metric.evaluate(scores, draw_labels(cumulative, rng), weight)[0] for _ in resamples]
    return inference.rank_p_value(value, np.asarray(drawn))


def _bootstrap_interval(
    metric: CalibrationMetric,
    value: float,
    scores: Scores,
    labels: NDArray[np.intp],
    weight: Floats,
    p_value: float,
    confidence: float,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Basic bootstrap, a full estimate for each resample."""
    counted = np.flatnonzero(weight > 0)  # without them a resample could have no weight at all
    drawn = []
    for _ in steps(range(FULL_RESAMPLES), "interval"):
        times = np.bincount(counted[rng.integers(0, len(counted), len(counted))], minlength=len(weight))
        drawn.append(metric.evaluate(scores, labels, weight * times)[0])
    return inference.bootstrap_interval(value, np.asarray(drawn), p_value, confidence=confidence)


def canonical_inference(
    smoother: ProductKernel,
    labels: NDArray[np.intp],
    norm: int,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = FULL_RESAMPLES,
) -> tuple[tuple[float, float], float]:
    r"""Interval and p-value of the canonical error by product kernels.

    Notes
    -----
    The statistic is the excess Q of the squared smoothed residuals over their noise V, an estimate of the squared error
    S without bias. The p-value is its rank among those of labels drawn from the probabilities, which also give its
    variance :math:`\sigma^2` if S = 0. The variance grows with S: noise that is spread evenly over its degrees of
    freedom, :math:`2 V^2 / \sigma^2` of them, makes it :math:`\sigma^2 (1 + 2 S / V)`. But signal and noise are both
    smooth, so that 6 takes the place of 2. The possible S are those with
    :math:`(Q - S)^2 \le q^2 \sigma^2 (1 + 6 S / V)`, with q the normal quantile. For d = 2 they are the interval.
    For d = 1 the lower end is the estimate with the smallest of them, the upper end the largest error that the largest
    of them allows, :math:`\sqrt{L S}`. It is at least what Clopper and Pearson's intervals of the class frequencies
    allow.
    """
    found = smoother.residuals(labels[None])
    excess, noise = float(found.excess[0]), max(float(found.noise_power[0]), 1e-300)
    cumulative = np.cumsum(smoother.p, axis=1)
    parts = []
    for start in steps(range(0, resamples, LABELS_A_CHUNK), "testing"):
        some = [draw_labels(cumulative, rng) for _ in range(start, min(start + LABELS_A_CHUNK, resamples))]
        parts.append(smoother.residuals(np.array(some)).excess)
    drawn = np.concatenate(parts)
    scale = inference.normal_quantile(0.5 + 0.5 * confidence) ** 2 * float(np.mean(drawn**2))
    middle = excess + 0.5 * VARIANCE_GROWTH * scale / noise
    reach = np.sqrt(max(middle**2 - excess**2 + scale, 0.0))
    smallest, largest = max(middle - reach, 0.0), max(middle + reach, 0.0)
    n_classes = smoother.p.shape[1]
    if norm == 1:
        smallest = float(found.errors(1, np.array([smallest]))[0])
        largest = min(float(np.sqrt(n_classes * largest)), 2.0)
    ends = smallest, max(largest, _least_upper_end(smoother, labels, norm, confidence))
    return ends, rank_p_value(excess, drawn)


def _least_upper_end(smoother: ProductKernel, labels: NDArray[np.intp], norm: int, confidence: float) -> float:
    """Smallest canonical error of a model that misses the frequency of a class by as much as the data allow."""
    n_classes, size = smoother.p.shape[1], float(smoother.weight.sum())
    most = 0.0
    for k in range(n_classes):
        rate, expected = smoother.mean((labels == k).astype(np.float64)), smoother.mean(smoother.p[:, k])
        low, high = clopper_pearson(min(max(rate, 0.0), 1.0), size, confidence)
        most = max(most, high - expected, expected - low)
    # Residuals sum to 0 over the classes: what one class has too little, the others have too much.
    return 2 * most if norm == 1 else most**2 * n_classes / (n_classes - 1)


def class_wise_test(
    p: Floats, grid: Grid, rng: np.random.Generator, weight: Floats | None = None, *, resamples: int = RESAMPLES
) -> float:
    """p-value of "each class is calibrated": labels are drawn from the rows of ``p``.

    The statistic is the sum over classes of that of :class:`~mixnmatch.evaluation.scales.ScaleStatistic`. ``grid``
    holds the observed samples, one problem a class.
    """
    groups = group_nodes(grid)
    statistics = [
        (part, ScaleStatistic(_classes(groups, part)))
        for part in (slice(k, k + CLASSES_A_CHUNK) for k in range(0, p.shape[1], CLASSES_A_CHUNK))
    ]

    def statistic(outcome: Floats) -> float:
        return sum(float(one(outcome[part]).sum()) for part, one in statistics)

    cumulative = np.cumsum(p, axis=1)
    draws = steps(range(resamples), "testing")
    drawn = [statistic(_outcomes(p, draw_labels(cumulative, rng), groups, weight)) for _ in draws]
    return rank_p_value(statistic(groups.outcome), np.asarray(drawn))


def _classes(groups: Groups, part: slice) -> Groups:
    return Groups(groups.count[part], groups.outcome[part], groups.z[part], groups.index[part])


def draw_labels(cumulative: Floats, rng: np.random.Generator) -> NDArray[np.intp]:
    """One label for each row of cumulative probabilities, by bisection in all rows at once."""
    n, n_classes = cumulative.shape
    at = rng.random(n) * cumulative[:, -1]
    rows = np.arange(n)
    low, high = np.zeros(n, dtype=np.intp), np.full(n, n_classes - 1, dtype=np.intp)
    while np.any(low < high):
        middle = (low + high) // 2
        right = cumulative[rows, middle] <= at
        low, high = np.where(right, middle + 1, low), np.where(right, high, middle)
        low = np.minimum(low, high)
    return low


def _outcomes(p: Floats, labels: NDArray[np.intp], groups: Groups, weight: Floats | None) -> Floats:
    """Weights of the samples with these labels in the groups of each class, (L, J)."""
    n_classes, size = groups.count.shape
    cell, fraction = locate(np.minimum(p[np.arange(len(p)), labels], 1.0), groups.index.shape[1])
    own = 1.0 if weight is None else weight
    total = np.zeros(n_classes * size)
    for node, mass in ((cell, own * (1 - fraction)), (cell + 1, own * fraction)):
        total += np.bincount(labels * size + groups.index[labels, node], mass, len(total))
    return total.reshape(n_classes, size)


def class_wise_interval(
    grid: Grid, shares: Floats, size: float, norm: int, rng: np.random.Generator, *, confidence: float = 0.95
) -> tuple[float, float]:
    r"""Interval of the weighted mean of the errors of single classes.

    Parameters
    ----------
    grid : Grid
        The samples, one problem a class.
    shares : array of shape (L,)
        Weights of the classes in the mean.
    size : float
        Number of independent samples.
    norm : 1 or 2
        The d of the d-th power.

    Notes
    -----
    Each class has plausible models, as in :func:`~mixnmatch.evaluation.inference.error_interval`. What model is right
    may be a mistake that all classes share, so that the smallest and the largest errors of models are averaged over
    classes; the smallest ones times the posterior probability that the class is miscalibrated, for noise makes the
    error of every class positive and does not average out. Otherwise noise is close to independent between classes:
    the spreads add up as squares, times L / (L - 1) for probabilities that sum to 1 (of two classes, one mirrors the
    other).
    """
    tail = 0.5 * (1 - confidence) * TAIL
    noise, sampling = standard_normal(rng, CURVES)
    n_classes = len(grid.count)
    low, high, reach = np.zeros(n_classes), np.zeros(n_classes), np.zeros(n_classes)
    for start in range(0, n_classes, CLASSES_A_CHUNK):
        part = slice(start, start + CLASSES_A_CHUNK)
        scaled = size / grid.count[part].sum(axis=-1, keepdims=True)
        series = ResidualSeries.of(Grid(grid.count[part] * scaled, grid.outcome[part] * scaled))
        certain = series.miscalibrated(EVEN_ODDS)
        for k in steps(range(len(series.groups.count)), "interval"):
            one = Grid(grid.count[start + k], grid.outcome[start + k])
            most = max(mean_differences(one, size, confidence)[2], largest_shift(one, size, confidence)) ** norm
            if series.constant[k]:
                high[start + k] = float(series.error(norm=norm)[k])
                low[start + k] = certain[k] * high[start + k]
                reach[start + k] = max(most - high[start + k], 0.0)
                continue
            functional = power_functional(series, k, norm, sampling)
            centre, median, spread = model_errors(series, k, functional, noise, tail)
            low[start + k], high[start + k] = certain[k] * centre.min(), median.max()
            reach[start + k] = max(float(spread.max()), most - float(median.max()))
    dependence = n_classes / (n_classes - 1)
    total = float(np.sqrt(dependence * ((shares * reach) ** 2).sum()))
    return max(float(shares @ low) - total, 0.0), float(shares @ high) + total

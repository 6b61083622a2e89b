"""Calibration error: estimator x notion x norm as a value, and one function for everyday use."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.rows import Rows, refuse_dask
from mixnmatch._engine.scores import Scores
from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch.evaluation import inference, notion
from mixnmatch.evaluation._binning import Floats, Grid
from mixnmatch.evaluation._clusters import read_clusters
from mixnmatch.evaluation._means import check_confidence
from mixnmatch.evaluation._rows_inference import infer_by_rows
from mixnmatch.evaluation._sums import (
    BinnedOutcomes,
    ErrorSums,
    error_sums,
    estimate,
    refuse_streaming,
    why_not_sums,
)
from mixnmatch.evaluation.estimators import (
    Estimator,
    GridEstimator,
    KernelCalibration,
    Norm,
    ResidualKernel,
    estimator,
)
from mixnmatch.evaluation.notion import Outcomes
from mixnmatch.evaluation.result import SMALLEST_ADVISED, CalibrationError
from mixnmatch.maps._base_rate import warn_of_reversed_scores

# Classes whose grids are smoothed at a time.
CLASSES_A_CHUNK = 64
DEFAULT_ESTIMATOR = ResidualKernel()


@dataclass(frozen=True)
class CalibrationMetric:
    """A calibration error as a value: an estimator, a notion and a norm. Callable on probabilities and labels.

    Parameters
    ----------
    estimator : Estimator
        How to estimate, such as ``ResidualKernel()`` or ``Histogram(bins=10)``.
    notion : "top-label", "class-wise", "canonical" or "binary", optional
        What is to be calibrated; by default "binary" for two classes and "top-label" for more, or "canonical" for
        estimators that know no other.
    norm : 1, 2 or "max"
        The d of the d-th power that is returned.
    average : "mean" or "frequency"
        Weights of the classes in the class-wise notion.

    Examples
    --------
    >>> import numpy as np
    >>> from mixnmatch.evaluation.estimators import Histogram
    >>> metric = CalibrationMetric(Histogram(bins=10), "binary")
    >>> round(metric(np.array([0.2, 0.2, 0.2, 0.8]), np.array([0, 0, 1, 1])), 3)
    0.15
    """

    estimator: Estimator = DEFAULT_ESTIMATOR
    notion: str | None = None
    norm: Norm = 1
    average: str = "mean"

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        if self.notion is not None and self.notion not in notion.NOTIONS:
            meant = did_you_mean(self.notion, notion.NOTIONS)
            msg = f"notion must be one of {', '.join(notion.NOTIONS)}, got {self.notion!r}{meant}"
            raise ValueError(msg)
        if self.norm not in self.estimator.norms:
            allowed = ", ".join(repr(norm) for norm in self.estimator.norms)
            msg = f"norm must be one of {allowed} for {type(self.estimator).__name__}, got {self.norm!r}"
            raise ValueError(msg)
        if self.average not in ("mean", "frequency"):
            msg = f'average must be "mean" or "frequency", got {self.average!r}'
            raise ValueError(msg)
        if self.notion is None:
            return
        canonical = self.notion == "canonical"
        if canonical != (not self.estimator.one_dimensional) and not (canonical and self.estimator.knows_canonical):
            knows = "knows the canonical notion only" if canonical is False else "does not know the canonical notion"
            msg = f"{type(self.estimator).__name__} {knows}; it cannot estimate {self.notion!r} errors"
            raise ValueError(msg)

    def __call__(
        self, scores: Any, y: Any = None, sample_weight: Any = None, *, logits: bool = False, classes: Any = None
    ) -> float:
        """Estimate the error of probabilities (or logits) and labels."""
        source = door.labelled(door.rows(scores, y, sample_weight, logits=logits, classes=classes))
        return self.for_classes(source.n_classes).of_source(source)[0]

    def for_classes(self, n_classes: int) -> CalibrationMetric:
        """The metric with its notion settled: the default one for so many classes, unless it has one."""
        if self.notion is None:
            settled = notion.default_notion(n_classes) if self.estimator.one_dimensional else "canonical"
            return replace(self, notion=settled)
        if self.notion == "binary" and n_classes != 2:
            notion.refuse_binary(n_classes)
        return self

    def of_source(self, source: Rows) -> tuple[float, Floats | None, ErrorSums | None]:
        """Estimate, errors of single classes for the class-wise notion, and the sums where those were enough."""
        why = why_not_sums(self.estimator, self._settled)
        if why is None:
            sums = error_sums(source, self._settled, self.estimator)
            return (*self.of_sums(sums), sums)
        if source.on_dask:
            refuse_streaming(why)
        return (*self.evaluate(source.scores, source.labels, source.weight), None)

    @property
    def _settled(self) -> str:
        assert self.notion is not None
        return self.notion

    def of_sums(self, sums: ErrorSums) -> tuple[float, Floats | None]:
        """Estimate from sums over rows, and the errors of single classes for the class-wise notion."""
        if self.notion != "class-wise":
            return estimate(sums.bins, self.estimator, self.norm), None
        if isinstance(sums.bins, Grid):
            each = self.each_of_grid(sums.bins)
        else:
            each = np.array([estimate(one, self.estimator, self.norm) for one in sums.bins])
        if self.average == "mean":
            return float(each.mean()), each
        return float(each @ (sums.frequencies / sums.n)), each

    def evaluate(
        self, scores: Scores, labels: NDArray[np.intp], weight: Floats | None = None
    ) -> tuple[float, Floats | None]:
        """Estimate of checked input, and the errors of single classes for the class-wise notion."""
        if self.notion == "canonical":
            p = notion.probabilities(scores)
            return self.estimator.canonical(p, labels, weight, self.norm), None
        if self.notion == "class-wise":
            each = self._each_class(scores, labels, weight)
            if self.average == "mean":
                return float(each.mean()), each
            return float(each @ notion.class_frequencies(labels, scores.n_classes, weight)), each
        return self.estimator(self.outcomes(scores, labels, weight), self.norm), None

    def outcomes(self, scores: Scores, labels: NDArray[np.intp], weight: Floats | None = None) -> Outcomes:
        """The one-dimensional problem of the top-label or binary notion."""
        make = notion.top_label if self.notion == "top-label" else notion.binary
        return make(scores, labels, weight)

    def _each_class(self, scores: Scores, labels: NDArray[np.intp], weight: Floats | None) -> Floats:
        if isinstance(self.estimator, GridEstimator):
            return self.each_of_grid(notion.class_grid(scores, labels, weight))
        p = notion.probabilities(scores)
        return np.array(
            [self.estimator(notion.one_class(p, labels, k, weight), self.norm) for k in range(scores.n_classes)]
        )

    def each_of_grid(self, grid: Grid) -> Floats:
        """Errors of the problems of a grid, some of them at a time to bound memory."""
        assert isinstance(self.estimator, GridEstimator)
        parts = []
        for start in range(0, len(grid.count), CLASSES_A_CHUNK):
            rows = slice(start, start + CLASSES_A_CHUNK)
            parts.append(self.estimator.on_grid(Grid(grid.count[rows], grid.outcome[rows]), self.norm))
        return np.concatenate(parts)


def calibration_error(
    scores: Any,
    y: Any = None,
    *,
    notion: str | None = None,
    estimator: str | Estimator = "kde-residual",
    norm: Norm | None = None,
    logits: bool = False,
    sample_weight: Any = None,
    root: bool = False,
    bins: int | str | None = None,
    binning: str | None = None,
    bandwidth: float | str | None = None,
    kernel: str | None = None,
    average: str = "mean",
    interval: bool = False,
    clusters: Any = None,
    confidence: float = 0.95,
    weights: str = "frequency",
    classes: Any = None,
    random_state: int | np.random.Generator | None = None,
    groups: Any = None,
) -> CalibrationError:
    r"""Calibration error of a classifier.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,), data frame, or Rows
        Probabilities, or logits with ``logits=True``. A vector holds the positive class of a binary problem.
    y : array of shape (n,)
        True classes: columns of the scores, or names listed in ``classes``; leave them out for ``Rows``.
    notion : "top-label", "class-wise", "canonical" or "binary", optional
        What is to be calibrated: the confidence in the predicted class, each column, the whole vector, or the
        probability of the positive class, which is the second of two. By default "binary" for two classes, given as a
        vector or as two columns, and "top-label" for more.
    estimator : str or Estimator
        ``kde-residual``, ``kde-residual-debiased``, ``kde``, ``histogram``, ``histogram-debiased``, ``sweep``,
        ``smooth``; for the canonical notion ``kde``, ``kde-residual`` (both up to 4 classes), ``dirichlet``, ``skce``.
    norm : 1, 2 or "max", optional
        The value is the d-th power of the error, as in the paper; "max" is for histograms. By default 1, or 2 for
        estimators that only know squares.
    root : bool
        Return the d-th root.
    bins, binning, bandwidth, kernel
        Options of the estimator, where it has them.
    average : "mean" or "frequency"
        Weights of the classes in the class-wise notion.
    interval : bool
        Whether to find a confidence interval and to test "it is calibrated". The interval contains the estimate, and
        0 exactly when the p-value is above 1 - confidence.
    clusters : array of shape (n,), optional
        Samples of the same cluster (a patient, a video) depend on each other: intervals and tests resample clusters.
        Top-label and binary only. Below 20 clusters there is a warning, a single one is refused.
    confidence : float
        Confidence of the interval.
    sample_weight, weights
        Weights are frequencies, or with ``weights="importance"`` importances. The interval and the p-value count
        samples and depend on the ratios of weights only; if the estimate is outside, the interval is extended to it.
    random_state : int or Generator, optional
        For resampling; intervals are reproducible with the default too.
    groups : array of shape (n,), optional
        Former name of ``clusters``, deprecated.

    Returns
    -------
    CalibrationError
        A float with attributes ``interval``, ``p_value``, ``advice``, ``per_class`` and more.

    Notes
    -----
    .. math:: ECE^d = E\,\|z - \pi(z)\|_d^d, \qquad \pi(z) = E[y \mid z]

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> z = rng.random(2000)
    >>> y = (rng.random(2000) < 0.8 * z).astype(int)
    >>> error = calibration_error(z, y, interval=True)
    >>> round(error, 2), error.interval[0] < 0.1 < error.interval[1], error.p_value < 0.01
    (0.1, True, True)
    """
    source = door.labelled(door.rows(scores, y, sample_weight, logits=logits, classes=classes, weights=weights))
    if source.n_classes == 2:  # with more classes the error itself is large
        warn_of_reversed_scores(source)
    check_confidence(confidence)
    clusters = read_clusters(source, clusters, groups)
    chosen = _build(estimator, bins=bins, binning=binning, bandwidth=bandwidth, kernel=kernel)
    metric = CalibrationMetric(chosen, notion, chosen.norms[0] if norm is None else norm, average)
    metric = metric.for_classes(source.n_classes)
    _check_random_state(random_state)
    return error_of(
        source,
        metric,
        name=estimator if isinstance(estimator, str) else repr(chosen),
        interval=interval,
        clusters=clusters,
        root=root,
        confidence=confidence,
        random_state=random_state,
    )


def error_of(
    source: Rows,
    metric: CalibrationMetric,
    *,
    name: str,
    interval: bool,
    confidence: float,
    random_state: int | np.random.Generator | None,
    clusters: Any = None,
    root: bool = False,
) -> CalibrationError:
    """The calibration error of checked samples by a metric whose notion is settled."""
    value, per_class, sums = metric.of_source(source)
    ends, p_value = None, None
    if interval:
        ends, p_value = _infer(metric, value, source, sums, clusters, confidence, generator(random_state))
    return result_of(
        metric,
        value,
        name=name,
        n=source.total_weight(),
        effective_n=_effective_n(metric, source, sums, clusters),
        noise=_noise(source.scores) if sums is None else sums.noise / sums.n,
        root=root,
        ends=ends,
        p_value=p_value,
        confidence=confidence,
        per_class=per_class,
    )


def result_of(
    metric: CalibrationMetric,
    value: float,
    *,
    name: str,
    n: float,
    noise: float,
    effective_n: float | None = None,
    root: bool = False,
    ends: tuple[float, float] | None = None,
    p_value: float | None = None,
    confidence: float = 0.95,
    per_class: Floats | None = None,
) -> CalibrationError:
    """The estimate as a :class:`CalibrationError`; ``value`` and ``ends`` are d-th powers."""
    assert metric.notion is not None
    power = 1 / metric.norm if root and isinstance(metric.norm, int) else 1.0
    size = _root(value, 1 / metric.norm) if isinstance(metric.norm, int) else value
    return CalibrationError(
        _root(value, power),
        estimator=name,
        notion=metric.notion,
        norm=metric.norm,
        root=root,
        n=n,
        effective_n=effective_n,
        interval=None if ends is None else (_root(ends[0], power), _root(ends[1], power)),
        confidence=confidence,
        p_value=p_value,
        per_class=per_class,
        advised_n=advised_n(size, noise),
    )


_build = estimator


def _check_random_state(random_state: Any) -> None:
    if random_state is None or isinstance(random_state, np.random.Generator):
        return
    if not isinstance(random_state, int | np.integer) or random_state < 0:
        msg = f"random_state must be a whole number from 0 on or a numpy Generator, got {random_state!r}"
        raise ValueError(msg)


def generator(random_state: int | np.random.Generator | None) -> np.random.Generator:
    """Random numbers for intervals and tests, of a seed; a generator is returned as it is."""
    _check_random_state(random_state)
    if isinstance(random_state, np.random.Generator):
        return random_state
    # Not the stream that the same seed gives to users: data simulated from it would meet the very same numbers here.
    return np.random.default_rng([0 if random_state is None else random_state, 0x6D69786E])


def _root(value: float, power: float) -> float:
    return value if power == 1 else max(value, 0.0) ** power


def advised_n(error: float, noise: float) -> int:
    """Samples that make two standard errors of mean y - mean z half of the error (of 0.01, if it is smaller)."""
    return math.ceil((1.96 / (0.5 * max(error, SMALLEST_ADVISED))) ** 2 * max(noise, 1e-4))


def _noise(scores: Scores) -> float:
    """Mean variance of the top label's outcome, by the first rows."""
    top = notion.probabilities(scores, slice(0, min(scores.n_rows, 10_000))).max(axis=1)
    return float((top * (1 - top)).mean())


def _effective_n(metric: CalibrationMetric, source: Rows, sums: ErrorSums | None, clusters: Any) -> float:
    """Number of samples that intervals and tests count."""
    if clusters is not None and metric.notion in ("top-label", "binary"):
        return inference.clustered_size(metric.outcomes(source.scores, source.labels, source.weight), clusters)
    if sums is not None:
        return sums.effective_n
    weight = source.weight
    return float(source.n_rows) if weight is None else float(weight.sum() ** 2 / (weight @ weight))


def _infer(
    metric: CalibrationMetric,
    value: float,
    source: Rows,
    sums: ErrorSums | None,
    clusters: Any,
    confidence: float,
    rng: np.random.Generator,
) -> tuple[tuple[float, float] | None, float | None]:
    one_dimensional = metric.notion in ("top-label", "binary")
    outcomes: Outcomes | BinnedOutcomes
    if source.on_dask:
        on_grid = sums is not None and isinstance(sums.bins, Grid) and one_dimensional and clusters is None
        instead = 'kernel estimators and "smooth" have one for the top label and for two classes, without clusters'
        if not on_grid:
            refuse_dask(source, "this interval resamples rows", instead)
        assert sums is not None
        outcomes = BinnedOutcomes(sums.bins, sums.weight_squares)
    elif one_dimensional:
        outcomes = metric.outcomes(source.scores, source.labels, source.weight)
    if one_dimensional:
        if clusters is not None:
            given = inference.of_rarer_class(outcomes) if metric.notion == "binary" else outcomes
            assert isinstance(given, Outcomes)
            p_value, ends = inference.cluster_inference(given, clusters, metric.norm, rng, confidence=confidence)
            return inference.agreeing_interval(ends, value, p_value, confidence=confidence), p_value
        counted = outcomes.counted() if isinstance(outcomes, Outcomes) else outcomes
        return infer_one_dimensional(metric, value, counted, rng, confidence)
    if clusters is not None:
        msg = f'clusters are for the notions "top-label" and "binary", got {metric.notion!r}'
        raise ValueError(msg)
    scores, labels, weight = source.scores, source.labels, source.weight
    if isinstance(metric.estimator, KernelCalibration):
        found = metric.estimator.result(notion.probabilities(scores), labels)
        if math.isnan(found.p_value):  # blocks too few or too much alike to say how far they spread
            return None, None
        width = inference.normal_quantile(0.5 + 0.5 * confidence) * found.standard_error
        ends = max(found.value - width, 0.0), max(found.value + width, 0.0)
        return inference.agreeing_interval(ends, value, found.p_value, confidence=confidence), found.p_value
    return infer_by_rows(metric, value, scores, labels, weight, confidence=confidence, rng=rng)


def infer_one_dimensional(
    metric: CalibrationMetric,
    value: float,
    outcomes: Outcomes | BinnedOutcomes,
    rng: np.random.Generator,
    confidence: float,
) -> tuple[tuple[float, float], float]:
    """Interval of the error of one confidence for each sample, and the p-value of "it is calibrated"."""
    if metric.notion == "binary":
        outcomes = inference.of_rarer_class(outcomes)
    p_value = inference.calibration_test(outcomes, metric.estimator, metric.norm, rng)
    ends = inference.error_interval(outcomes, metric.estimator, metric.norm, rng, confidence=confidence)
    return inference.agreeing_interval(ends, value, p_value, confidence=confidence), p_value

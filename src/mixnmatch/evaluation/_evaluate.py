"""Any set of metrics of one table, before and after a map, in one pass over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows, refuse_dask
from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch.evaluation import error as errors
from mixnmatch.evaluation._bounded import (
    HALF_SQUARED_ERROR,
    NOT_NEGATIVE,
    PROBABILITY,
    PROPORTION,
    SQUARED_ERROR,
    Bounds,
)
from mixnmatch.evaluation._clusters import read_clusters
from mixnmatch.evaluation._evaluation import Evaluation
from mixnmatch.evaluation._means import MeanEstimate, Moments, check_confidence, clustered_covariance
from mixnmatch.evaluation._sums import BinnedOutcomes, ErrorSums, error_statistic, why_not_sums
from mixnmatch.evaluation.error import CalibrationMetric
from mixnmatch.evaluation.estimators import Estimator, GridEstimator, estimator
from mixnmatch.evaluation.gain import gain_from, gain_rows, is_few
from mixnmatch.evaluation.notion import Outcomes, one_class_rows, top_label_rows
from mixnmatch.evaluation.scores import (
    PREVIEW_ROWS,
    accuracy_rows,
    brier_rows,
    half_brier_rows,
    log_loss_bounds,
    log_loss_rows,
    wrong_loss_rows,
)
from mixnmatch.evaluation.two_classes import MEASURES, binary_measures, block_log_odds
from mixnmatch.maps._base_rate import warn_of_reversed_scores
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.class_order import after_map
from mixnmatch.maps.parameters import check_fitted_map

__all__ = ["METRICS", "Evaluation", "evaluate"]

Floats = NDArray[np.float64]


def _confidence_rows(block: Block) -> Floats:
    return top_label_rows(block)[0]


def _positive_rows(block: Block) -> Floats:
    """Probability of the positive class, the second of two."""
    return one_class_rows(block, 1)[0]


def _base_rate_rows(block: Block) -> Floats:
    return np.asarray(block.y == 1, dtype=np.float64)


# Means over samples, by name: what each is of the samples of a block.
METRICS: dict[str, Callable[[Block], Floats]] = {
    "accuracy": accuracy_rows,
    "mean_confidence": _confidence_rows,
    "mean_probability": _positive_rows,
    "base_rate": _base_rate_rows,
    "log_loss": log_loss_rows,
    "brier_score": brier_rows,
    "half_brier_score": half_brier_rows,
}
BOUNDS: dict[str, Bounds] = {
    "accuracy": PROPORTION,
    "mean_confidence": PROBABILITY,
    "mean_probability": PROBABILITY,
    "base_rate": PROPORTION,
    "log_loss": NOT_NEGATIVE,
    "brier_score": SQUARED_ERROR,
    "half_brier_score": HALF_SQUARED_ERROR,
}
FOR_TWO = ("mean_probability", "base_rate", *MEASURES)
DEFAULT = ("calibration_error", "accuracy", "mean_confidence", "log_loss", "brier_score")


def evaluate(
    scores: Any,
    y: Any = None,
    *,
    metrics: str | Sequence[str] | None = None,
    map: CalibrationMap | None = None,  # noqa: A002
    notion: str | None = None,
    estimator: str | Estimator = "kde-residual",
    norm: int | str | None = None,
    bins: int | str | None = None,
    interval: bool = True,
    confidence: float = 0.95,
    logits: bool = False,
    sample_weight: Any = None,
    classes: Any = None,
    positive: Any = None,
    groups: Any = None,
    clusters: Any = None,
    weights: str = "frequency",
    random_state: int | np.random.Generator | None = None,
) -> Evaluation:
    """Compute metrics of scores, before and after a fitted map, in one pass over the table.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,), data frame, or Rows
        Probabilities, or logits if ``logits``.
    y : array of shape (n,)
        Labels; leave them out if ``scores`` is a table with labels (``Rows``).
    metrics : str or sequence of str, optional
        ``calibration_error`` and the means over samples ``accuracy``, ``mean_confidence``, ``log_loss``,
        ``brier_score`` (summed over classes) and ``half_brier_score`` (for two classes, that of scikit-learn); for two
        classes also ``mean_probability`` and ``base_rate`` of the positive one, and ``observed_expected``,
        ``calibration_intercept``, ``calibration_slope``, ``spiegelhalter``, ``top_1_percent`` and ``top_5_percent``,
        explained in :func:`mixnmatch.evaluation.binary_measures`. By default all but ``half_brier_score``; of Dask
        tables none of the last six, which need their samples in memory.
    map : fitted map, optional
        Compute the metrics after this map, too, and its calibration gain.
    notion, estimator, norm, bins
        Of the calibration error, as for :func:`calibration_error`; both sides have the same notion.
    interval : bool
        Whether to find the interval and the test of the calibration error, which takes longest.
    confidence : float
        Confidence of the intervals.
    logits, sample_weight, classes, positive, groups, clusters, weights
        As for :func:`mixnmatch.rows`.
    random_state : int or Generator, optional
        For the interval of the calibration error.

    Returns
    -------
    Evaluation
        A mapping from names to results, with ``after``, ``gain`` and ``groups``.

    Examples
    --------
    >>> found = evaluate([0.1, 0.2, 0.7, 0.9], [0, 0, 1, 1], interval=False)
    >>> float(found["accuracy"]), found["calibration_error"].notion
    (1.0, 'binary')
    """
    check_confidence(confidence)
    if map is not None:
        check_fitted_map(map)
    given = door.labelled(
        door.rows(
            scores, y, sample_weight, logits=logits, classes=classes, groups=groups, clusters=clusters,
            positive=positive, weights=weights,
        )
    )  # fmt: skip
    warn_of_reversed_scores(given)
    chosen = _build(estimator, bins=bins)
    metric = CalibrationMetric(chosen, notion, chosen.norms[0] if norm is None else norm)
    if metrics is None:
        own = [name for name in FOR_TWO if given.n_classes == 2 and not (given.on_dask and name in MEASURES)]
        metrics = (*DEFAULT, *own)
    metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    asked = _Asked(
        metrics,
        metric.for_classes(given.n_classes),
        estimator if isinstance(estimator, str) else repr(chosen),
        interval,
        confidence,
        random_state,
    )
    asked.check(given.n_classes)
    if asked.measures:
        refuse_dask(given, f"{asked.measures[0]} needs its samples in memory")
    read_clusters(given, None)  # checked as a whole; a subgroup may well lie in one cluster
    tables = given if map is None else given.together(after_map(given, map))
    injective = None if map is None else bool(map.injective)
    whole = _evaluate(tables, asked, injective)
    if given.groups is None:
        return whole
    refuse_dask(given, "groups need their samples in memory")
    parts = {}
    for name in np.unique(given.groups).tolist():
        parts[name] = _evaluate(_part(tables, given.groups == name), asked, injective)
    return replace(whole, groups=parts)


_build = estimator


@dataclass(frozen=True)
class _Asked:
    """What is to be measured."""

    metrics: tuple[str, ...]
    metric: CalibrationMetric
    name: str
    interval: bool
    confidence: float
    random_state: int | np.random.Generator | None

    def check(self, n_classes: int) -> None:
        all_names = ("calibration_error", *METRICS, *MEASURES)
        known = tuple(name for name in all_names if n_classes == 2 or name not in FOR_TWO)
        for name in self.metrics:
            if name not in known:
                msg = f"there is no metric {name!r}; metrics are {', '.join(known)}{did_you_mean(name, known)}"
                raise ValueError(msg)

    @property
    def means(self) -> tuple[str, ...]:
        return tuple(name for name in self.metrics if name in METRICS)

    @property
    def measures(self) -> tuple[str, ...]:
        return tuple(name for name in self.metrics if name in MEASURES)

    @property
    def in_pass(self) -> bool:
        """Whether the calibration error follows from what one pass over blocks collects."""
        return self.metric.notion != "canonical" and self.metric.estimator.one_dimensional


def _evaluate(tables: Rows, asked: _Asked, injective: bool | None) -> Evaluation:
    clusters = None
    if tables.clusters is not None:
        clusters = np.unique(tables.clusters, return_inverse=True)[1].reshape(-1).astype(np.intp)
    sides = [tables, *tables.companions]
    # What wrong predictions would cost comes from the same pass, if it is measured on all samples.
    few = "log_loss" in asked.means and not tables.on_dask and tables.n_rows < 2 * PREVIEW_ROWS
    found = tables.total(_sides_statistic, asked, not tables.on_dask, clusters is not None, few, is_few(tables))
    moments, collected, odds, values = found[0], found[1 : 1 + len(sides)], found[1 + len(sides) : -1], found[-1]
    k = len(asked.means)
    size: dict[str, Any] = {"n_rows": moments.n_rows, "n_groups": None, "confidence": asked.confidence}
    means, covariance, effective = moments.means(), moments.covariance(), moments.effective_sizes()
    kept = slice(None) if tables.weight is None or tables.on_dask else tables.weight > 0
    if clusters is not None:
        weight = None if tables.weight is None else tables.weight[kept]
        covariance, size["n_groups"] = clustered_covariance(np.concatenate(values, axis=1), weight, clusters[kept])
        effective = moments.effective_sizes(covariance, size["n_groups"])
    made = []
    for number, (side, sums, parts) in enumerate(zip(sides, collected, odds, strict=True)):
        at = number * k
        bounds = BOUNDS
        if few:
            bounds = BOUNDS | {"log_loss": replace(NOT_NEGATIVE, unseen=float(means[number - len(sides)]))}
        elif "log_loss" in asked.means:
            bounds = BOUNDS | {"log_loss": log_loss_bounds(side)}
        results: dict[str, Any] = {
            name: MeanEstimate(
                float(means[j]), standard_error=_root(covariance[j, j]), bounds=bounds.get(name),
                effective_size=float(effective[j]), **size,
            )
            for j, name in enumerate(asked.means, start=at)
        }  # fmt: skip
        if "calibration_error" in asked.metrics:
            results["calibration_error"] = _error(side, sums, asked, clusters)
        if asked.measures:
            u, y, weight = zip(*parts, strict=True)
            results |= binary_measures(
                np.concatenate(u), np.concatenate(y), None if weight[0] is None else np.concatenate(weight),
                None if clusters is None else clusters[kept], names=asked.measures, confidence=asked.confidence,
            )  # fmt: skip
        chosen = {name: results[name] for name in asked.metrics}
        made.append(Evaluation(chosen, moments.n_rows, tables.n_classes, positive=tables.positive))
    if len(made) == 1:
        return made[0]
    at = 2 * k
    ends = 5 if is_few(tables) else 3
    size["effective_size"] = float(moments.effective_sizes()[at])
    gain = gain_from(means[at : at + ends], covariance[at:, at:], 0, injective, size)
    return replace(made[0], after=made[1], gain=gain)


def _sides_statistic(
    block: Block, asked: _Asked, in_memory: bool, keep: bool, few: bool, possible: bool
) -> tuple[Any, ...]:
    """Moments of all means of all sides, what the calibration error and the measures of each side need, the values.

    The last moments are, for few samples, what wrong predictions of each side would cost; ``possible`` asks for the
    gains that were possible too.
    """
    sides = [block, *block.companions]
    rows = [METRICS[name](side) for side in sides for name in asked.means]
    if len(sides) == 2:
        rows += [*gain_rows(sides[0], sides[1], few=possible)]
    if few:
        rows += [wrong_loss_rows(side) for side in sides]
    values = np.array(rows).reshape(len(rows), len(block.y))
    collected = tuple(_collected(side, asked, in_memory) for side in sides)
    odds = tuple([(block_log_odds(side), side.y == 1, side.weight)] if asked.measures else [] for side in sides)
    return Moments.of(values, block.weight), *collected, *odds, [values] if keep else []


def _collected(side: Block, asked: _Asked, in_memory: bool) -> Any:
    """What the calibration error needs of a block: its sums, and in memory for an interval the outcomes themselves."""
    metric = asked.metric
    if "calibration_error" not in asked.metrics or not asked.in_pass:
        return ()
    assert metric.notion is not None
    sums = error_statistic(side, metric.notion, metric.estimator) if _adds_up(metric) else ()
    if not in_memory or metric.notion == "class-wise":
        return (sums,)
    z, hit = top_label_rows(side) if metric.notion == "top-label" else one_class_rows(side, 1)
    return sums, [(z, hit, side.weight)]


def _adds_up(metric: CalibrationMetric) -> bool:
    assert metric.notion is not None
    return isinstance(metric.estimator, GridEstimator) and why_not_sums(metric.estimator, metric.notion) is None


def _error(side: Rows, collected: Any, asked: _Asked, clusters: NDArray[np.intp] | None) -> Any:
    """The calibration error of one side."""
    metric, rng = asked.metric, errors.generator(asked.random_state)
    if side.on_dask and collected and isinstance(collected[0], ErrorSums):
        return _error_of_sums(collected[0], asked, rng)
    clustered = clusters is not None and metric.notion in ("top-label", "binary")
    if len(collected) < 2 or clustered:  # class-wise, canonical, clusters, or on Dask: these make passes of their own
        own = side if not side.chain or side.on_dask else door.calibrated(side, _materialised(side))
        codes = clusters if clustered else None
        known = asked.interval and (codes is None or len(np.unique(codes)) > 1)
        settings: dict[str, Any] = {"name": asked.name, "interval": known, "confidence": asked.confidence}
        return errors.error_of(own, metric, random_state=rng, clusters=codes, **settings)
    parts = collected[1]
    weight = None if parts[0][2] is None else np.concatenate([part[2] for part in parts])
    z = np.concatenate([part[0] for part in parts])
    outcomes = Outcomes(z, np.concatenate([part[1] for part in parts]), weight)
    if isinstance(collected[0], ErrorSums):
        value, noise = metric.of_sums(collected[0])[0], collected[0].noise / collected[0].n
    else:
        value, noise = metric.estimator(outcomes, metric.norm), float(np.average(z * (1 - z), weights=weight))
    effective = None if weight is None else outcomes.n**2 / float(weight @ weight)
    ends, p_value = None, None
    if asked.interval:
        ends, p_value = errors.infer_one_dimensional(metric, value, outcomes, rng, asked.confidence)
    return errors.result_of(
        metric, value, name=asked.name, n=outcomes.n, noise=noise, effective_n=effective, ends=ends, p_value=p_value,
        confidence=asked.confidence,
    )  # fmt: skip


def _error_of_sums(sums: ErrorSums, asked: _Asked, rng: np.random.Generator) -> Any:
    """The calibration error of samples on a cluster, of which only the sums came here."""
    metric = asked.metric
    value, per_class = metric.of_sums(sums)
    ends, p_value = None, None
    if asked.interval and metric.notion in ("top-label", "binary"):
        outcomes = BinnedOutcomes(sums.bins, sums.weight_squares)
        ends, p_value = errors.infer_one_dimensional(metric, value, outcomes, rng, asked.confidence)
    return errors.result_of(
        metric, value, name=asked.name, n=sums.n, noise=sums.noise / sums.n, effective_n=sums.effective_n, ends=ends,
        p_value=p_value, confidence=asked.confidence, per_class=per_class,
    )  # fmt: skip


def _materialised(side: Rows) -> Any:
    everyone = replace(side, weight=None)  # samples of weight 0 keep their places
    return np.concatenate(list(everyone.map_blocks(lambda block: np.asarray(block.probabilities(), dtype=np.float64))))


def _part(tables: Rows, chosen: NDArray[np.bool_]) -> Rows:
    """Some of the samples of all tables."""
    index = np.flatnonzero(chosen)
    own = _rows_at(tables, index)
    return own.together(*(_rows_at(other, index) for other in tables.companions)) if tables.companions else own


def _rows_at(table: Rows, index: NDArray[np.intp]) -> Rows:
    def some(values: Any) -> Any:
        return None if values is None else values[index]

    scores = replace(table.scores, values=table.scores.values[index])
    return replace(
        table, scores=scores, labels=some(table.labels), weight=some(table.weight), groups=some(table.groups),
        clusters=some(table.clusters), companions=(), index=None,
    )  # fmt: skip


def _root(variance: float) -> float:
    return float(np.sqrt(variance))

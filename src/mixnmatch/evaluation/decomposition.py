"""Calibration and refinement: what part of a proper score is miscalibration, and what part no map can remove."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.block import Block
from mixnmatch._engine.folds import fold_of
from mixnmatch._engine.rows import Rows, refuse_dask
from mixnmatch._engine.text import significant
from mixnmatch.evaluation._means import Moments, block_moments, finite
from mixnmatch.evaluation._problem import choose_problem
from mixnmatch.evaluation.scores import brier_rows, log_loss_rows
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.parameters import clone

Floats = NDArray[np.float64]

__all__ = ["ScoreDecomposition", "cross_validated_decomposition", "score_decomposition"]

SCORES = {"brier": brier_rows, "log": log_loss_rows}


@dataclass(frozen=True)
class ScoreDecomposition:
    """A mean score = miscalibration - discrimination + uncertainty = miscalibration + refinement.

    Attributes
    ----------
    score : {"brier", "log"}
        Which proper score was taken apart.
    method : {"CORP", "cross-validated"}
        How the scores were recalibrated.
    problem : str
        What the confidences are about: "the top label", "class ...", or "all classes".
    value : float
        Mean score.
    miscalibration : float
        What recalibration removes.
    discrimination : float
        How much better the recalibrated scores are than a constant one.
    uncertainty : float
        Score of the constant prediction that is best on these labels.
    n_rows : int
        Number of samples.
    standard_error : float or None
        Standard error of the miscalibration (cross-validated only).
    recalibrator : str or None
        Map that recalibrated (cross-validated only).
    """

    score: str
    method: str
    problem: str
    value: float
    miscalibration: float
    discrimination: float
    uncertainty: float
    n_rows: int
    standard_error: float | None = None
    recalibrator: str | None = None

    @property
    def refinement(self) -> float:
        """The paper's refinement error: the score of the recalibrated predictions."""
        return self.uncertainty - self.discrimination

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: what is not finite becomes None."""
        values = {**asdict(self), "refinement": self.refinement}
        return {name: finite(item) if isinstance(item, float) else item for name, item in values.items()}

    def __str__(self) -> str:
        by = self.method if self.recalibrator is None else f"{self.method}, {self.recalibrator}"
        spread = "" if self.standard_error is None else f" (standard error {significant(self.standard_error, 2)})"
        return "\n".join(
            [
                f"{self.score} score of {self.problem}, n = {self.n_rows} ({by})",
                f"  mean score     {self.value:10.6f}",
                f"  miscalibration {self.miscalibration:10.6f}{spread}",
                f"  discrimination {self.discrimination:10.6f}",
                f"  uncertainty    {self.uncertainty:10.6f}",
                f"  refinement     {self.refinement:10.6f}",
            ]
        )


@dataclass(frozen=True)
class Isotonic:
    """Isotonic regression of outcomes on confidences: distinct confidences, their weights, and the fitted values."""

    z: Floats
    weight: Floats
    fitted: Floats
    code: NDArray[np.intp]  # distinct confidence of each row

    @classmethod
    def of(cls, z: Floats, y: NDArray[Any], weight: Floats | None = None) -> Isotonic:
        """Pool adjacent violators, ties merged first."""
        distinct, code = np.unique(z, return_inverse=True)
        code = code.reshape(-1)
        mass = np.bincount(code, weight).astype(np.float64)
        return cls(distinct, mass, pool(outcome_means(y, weight, code, mass), mass), code)


def outcome_means(y: NDArray[Any], weight: Floats | None, code: NDArray[np.intp], mass: Floats) -> Floats:
    """Mean outcome at each distinct confidence; 0 where there is no weight."""
    sums = np.bincount(code, y if weight is None else y * weight, minlength=len(mass))
    return np.asarray(sums / np.where(mass > 0, mass, 1.0))


def pool(means: Floats, mass: Floats) -> Floats:
    """Non-decreasing sequence next to ``means`` in weighted squared error."""
    from scipy.optimize import isotonic_regression

    kept = mass > 0  # a row of weight 0 takes the value of the row before it, or after it at the start
    if kept.all():
        return np.asarray(np.clip(isotonic_regression(means, weights=mass).x, 0.0, 1.0))
    fitted = isotonic_regression(means[kept], weights=mass[kept]).x
    place = np.clip(np.cumsum(kept) - 1, 0, None)
    return np.asarray(np.clip(fitted[place], 0.0, 1.0))


def score_decomposition(
    scores: Any,
    y: Any = None,
    *,
    notion: str | None = None,
    label: Any = None,
    score: str = "brier",
    logits: bool = False,
    sample_weight: Any = None,
    classes: Any = None,
    weights: str = "frequency",
) -> ScoreDecomposition:
    r"""Decompose the score of one confidence by isotonic regression (CORP).

    With S the mean score of the confidences z, of their isotonic recalibration :math:`\hat z`, and of the constant
    :math:`\bar y`,

    .. math::
        S(z) = \underbrace{S(z) - S(\hat z)}_{\text{miscalibration}}
        - \underbrace{(S(\bar y) - S(\hat z))}_{\text{discrimination}} + \underbrace{S(\bar y)}_{\text{uncertainty}}

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``.
    y : array of shape (n,)
        Labels.
    notion : {"top-label", "binary", "class-wise"}, optional
        What the confidences are about; by default the positive class of two, the top label of more.
    label : optional
        The class, for the class-wise notion.
    score : {"brier", "log"}
        Squared error :math:`(z - y)^2` or log loss of the binary outcome.
    logits : bool
        Whether scores are logits.
    sample_weight : array of shape (n,), optional
        Frequencies.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.

    Returns
    -------
    ScoreDecomposition

    Notes
    -----
    Isotonic regression is the best monotone recalibration in sample under every proper score, so that miscalibration
    and discrimination are never negative. In sample, miscalibration is biased upwards; its bias falls as
    :math:`n^{-2/3}`.

    References
    ----------
    Dimitriadis, Gneiting, Jordan (2021). Stable reliability diagrams for probabilistic classifiers. PNAS 118.

    Murphy (1973). A new vector partition of the probability score. Journal of Applied Meteorology 12.

    Examples
    --------
    >>> parts = score_decomposition([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 0])
    >>> round(parts.miscalibration, 4), round(parts.discrimination, 4), round(parts.uncertainty, 4)
    (0.085, 0.0625, 0.1875)
    """
    _check_score(score)
    source = door.labelled(door.rows(scores, y, sample_weight, logits=logits, classes=classes, weights=weights))
    refuse_dask(
        source,
        "isotonic regression of the outcomes (CORP) needs all confidences in memory",
        'cross_validated_decomposition and reliability_curve(kind="kde"), on a grid, do without',
    )
    problem = choose_problem(source, notion, label)
    data = problem.outcomes(source)
    fit = Isotonic.of(data.z, data.y, data.weight)
    means = outcome_means(data.y, data.weight, fit.code, fit.weight)
    base = float(fit.weight @ means / fit.weight.sum())

    seen = fit.weight > 0  # a prediction that nothing came of may be infinitely wrong

    def mean_score(prediction: Floats) -> float:
        return float(np.average(_binary_score(prediction[seen], means[seen], score), weights=fit.weight[seen]))

    value, best = mean_score(fit.z), mean_score(fit.fitted)
    constant = mean_score(np.full_like(fit.z, base))
    return ScoreDecomposition(
        score, "CORP", problem.text, value, max(value - best, 0.0), max(constant - best, 0.0), constant, _n_rows(source)
    )


def cross_validated_decomposition(
    scores: Any,
    y: Any = None,
    *,
    recalibrator: Any = None,
    score: str = "brier",
    n_folds: int = 5,
    seed: int = 0,
    logits: bool = False,
    sample_weight: Any = None,
    classes: Any = None,
    weights: str = "frequency",
) -> ScoreDecomposition:
    r"""Decompose the score of full probability vectors, recalibrating each sample by a map of the other folds.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``.
    y : array of shape (n,)
        Labels.
    recalibrator : a map, optional
        Any object with ``fit(scores, y)`` and ``predict_proba(scores)``, one of ours or your own; it is cloned for
        each fold. The more flexible it is, the more miscalibration it can detect, and the more samples it needs. By
        default temperature scaling followed by one-vs-all isotonic regression (IROvA-TS). With few samples for each
        class a simpler one, such as ``TemperatureScaling()``, overfits less.
    score : {"brier", "log"}
        Squared error :math:`\lVert z - y\rVert_2^2` or log loss.
    n_folds : int
        Number of folds; the fold of a sample is a hash of its index.
    seed : int
        Of the folds.
    logits : bool
        Whether scores are logits.
    sample_weight : array of shape (n,), optional
        Frequencies; samples are the units of folds and of the standard error.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.

    Returns
    -------
    ScoreDecomposition
        ``miscalibration`` is the mean reduction of the score out of fold, which may be negative where there is nothing
        to remove; in expectation it is at most the calibration loss, since no map beats the true one.

    References
    ----------
    Berta, Holzmüller, Jordan, Bach (2025). Rethinking early stopping: refine, then calibrate.

    Examples
    --------
    >>> from mixnmatch.maps.temperature import TemperatureScaling
    >>> z = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.2, 0.8]] * 25
    >>> parts = cross_validated_decomposition(z, [0, 1, 1, 1] * 25, recalibrator=TemperatureScaling())
    >>> parts.miscalibration > 0
    True
    """
    _check_score(score)
    source = door.labelled(door.rows(scores, y, sample_weight, logits=logits, classes=classes, weights=weights))
    if not 2 <= n_folds <= source.n_rows:
        msg = f"n_folds must be at least 2 and at most the number of samples ({source.n_rows}), got {n_folds}"
        raise ValueError(msg)
    if recalibrator is None:
        from mixnmatch.maps.combine import OneVsAll
        from mixnmatch.maps.isotonic import Isotonic as IsotonicMap
        from mixnmatch.maps.temperature import TemperatureScaling

        recalibrator = TemperatureScaling() >> OneVsAll(IsotonicMap())
    moments = Moments.nothing(2)
    for fold in range(n_folds):
        inside = source.fold(fold, n_folds, keep=True, seed=seed)
        if inside.total_weight() == 0 or inside.total_weight() == source.total_weight():
            continue  # hashing may leave a fold of very few rows empty
        moments = moments + _fold_moments(source, clone(recalibrator), fold, n_folds, seed, score)
    if moments.n_rows == 0:
        msg = "there are too few samples for cross-validation: all of them are in one fold"
        raise ValueError(msg)
    value, reduction = (float(mean) for mean in moments.means())
    frequency = source.class_weights() / source.total_weight()
    uncertainty = _entropy(frequency, score)
    return ScoreDecomposition(
        score,
        "cross-validated",
        "all classes",
        value,
        reduction,
        uncertainty - (value - reduction),
        uncertainty,
        moments.n_rows,
        standard_error=float(np.sqrt(moments.covariance()[1, 1])),
        recalibrator=_name(recalibrator),
    )


def _fold_moments(source: Rows, recalibrator: Any, fold: int, n_folds: int, seed: int, score: str) -> Moments:
    inside = source.fold(fold, n_folds, keep=True, seed=seed)
    if isinstance(recalibrator, CalibrationMap):
        fitted = recalibrator._fit_source(source.fold(fold, n_folds, keep=False, seed=seed))
        return inside.total(_fold_statistic, score, fitted)
    refuse_dask(source, f"{_name(recalibrator)} is fitted on all rows at once")
    values, labels, weight = np.asarray(source.scores.values), source.labels, source.weight
    assert labels is not None
    held = fold_of(range(source.n_rows), n_folds, seed) == fold
    fitting = (values[~held], labels[~held]) if weight is None else (values[~held], labels[~held], weight[~held])
    after = np.zeros((source.n_rows, source.n_classes))
    after[held] = recalibrator.fit(*fitting).predict_proba(values[held])
    return inside.total(_fold_statistic, score, after)


def _fold_statistic(block: Block, score: str, recalibrated: Any) -> Moments:
    if not len(block.values):
        return Moments.nothing(2)
    if isinstance(recalibrated, CalibrationMap):
        after = block.after(recalibrated)
    else:
        after = Block(recalibrated[np.asarray(block.index)], "probabilities", block.index, block.labels)
    before = SCORES[score](block)
    with np.errstate(invalid="ignore"):  # infinite before and after: nothing was removed that can be counted
        return block_moments(block, np.stack([before, before - SCORES[score](after)]))


def _binary_score(prediction: Floats, means: Floats, score: str) -> Floats:
    """Mean score of a prediction at each distinct confidence, where the mean outcome is ``means``."""
    if score == "brier":
        return np.asarray(means * np.square(1 - prediction) + (1 - means) * np.square(prediction))
    from scipy.special import xlog1py, xlogy

    return np.asarray(-xlogy(means, prediction) - xlog1py(1 - means, -prediction))


def _entropy(frequency: Floats, score: str) -> float:
    if score == "brier":
        return float(1 - frequency @ frequency)
    from scipy.special import xlogy

    return float(-xlogy(frequency, frequency).sum())


def _n_rows(source: Rows) -> int:
    return source.n_rows if source.weight is None else int(np.count_nonzero(source.weight))


def _name(recalibrator: Any) -> str:
    text = repr(recalibrator) if isinstance(recalibrator, CalibrationMap) else type(recalibrator).__name__
    return " ".join(text.split())


def _check_score(score: str) -> None:
    if score not in SCORES:
        msg = f'score must be "brier" or "log", got {score!r}'
        raise ValueError(msg)

"""Compare methods on your own data, by cross-validation or on a held-out set, and rank them by a proper score."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.folds import check_folds, fold_of
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.steps import Progress, Steps
from mixnmatch.evaluation._bounded import PROPORTION, SQUARED_ERROR
from mixnmatch.evaluation._means import check_confidence
from mixnmatch.evaluation.scores import log_loss_bounds
from mixnmatch.maps._base_rate import warn_of_reversed_scores
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.external import calibration_map
from mixnmatch.maps.parameters import clone
from mixnmatch.selection.evaluation_set import EvaluationSet, LossTable, SampleLosses, read_evaluation
from mixnmatch.selection.methods import Methods, build_methods, check_labels, default_methods
from mixnmatch.selection.results import Comparison, MethodResult
from mixnmatch.selection.verdict import SCORES

__all__ = ["Comparison", "MethodResult", "compare"]


def compare(
    scores: Any,
    y: Any = None,
    *,
    methods: Methods | None = None,
    logits: bool = False,
    sample_weight: Any = None,
    evaluation: Any = None,
    cv: int = 5,
    random_state: int = 0,
    classes: Any = None,
    progress: Progress | None = None,
    confidence: float = 0.95,
    scoring: str = "nll",
) -> Comparison:
    """Compare calibration methods on held-out samples, and recommend one.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``.
    y : array of shape (n,)
        Labels.
    methods : sequence of short names and maps, or mapping from names to maps, or "all", optional
        Methods to compare. By default those of ``mixnmatch.selection.methods.TWO_CLASSES`` or ``MANY_CLASSES``;
        ``"all"`` compares all but ``uniform``. The identity (no calibration) is always included.
    logits : bool
        Whether scores are logits.
    sample_weight : array of shape (n,), optional
        Frequencies; samples are the units of the intervals.
    evaluation : tuple (scores, y) or (scores, y, sample_weight), optional
        Held-out set; methods are then fitted on all of ``scores``. Without it the comparison is cross-validated.
    cv : int
        Number of folds. The fold of a sample is a hash of its index.
    random_state : int
        Seed of that hash.
    classes : sequence, optional
        Names of the columns.
    progress : callable, optional
        Called before each method with the number of finished methods, the number of all methods, and the name.
    confidence : float
        Coverage of the intervals.
    scoring : {"nll", "brier"}
        The proper score to rank by: log loss, by which most maps are fitted, or the Brier score.

    Returns
    -------
    Comparison
        Methods ranked by the score, and the verdict. A method that fails is listed with its message.

    Notes
    -----
    Methods are ranked by a proper score, never by the calibration error, which is shown for information. Differences
    from the best are paired, sample by sample.

    Examples
    --------
    >>> from mixnmatch import load_sample
    >>> sample = load_sample()
    >>> result = compare(sample.logits_cal, sample.labels_cal, methods=["ts", "irm"], logits=True)
    >>> [line.name for line in result.results]
    ['ts', 'irm', 'identity']
    """
    check_confidence(confidence)
    check_folds(cv)
    if scoring not in SCORES:
        msg = f'scoring must be "nll" or "brier", got {scoring!r}'
        raise ValueError(msg)
    source = door.labelled(door.rows(scores, y, sample_weight, logits=logits, classes=classes))
    check_labels(source)
    warn_of_reversed_scores(source)
    held_out = None
    if evaluation is not None:
        held_out = read_evaluation(evaluation, source)
        check_labels(held_out, "evaluation labels")
    rows = EvaluationSet.of(source if held_out is None else held_out)
    maps = build_methods(methods, source)
    measured: list[tuple[MethodResult, SampleLosses | None]] = []
    given = rows.predicted(rows.identity())
    before = rows.losses(given.scores.values)
    steps = Steps(len(maps), progress)
    for name, unfitted in maps.items():
        steps.begin(name)
        began = time.perf_counter()
        try:
            predicted, seconds, fitted = _predict(unfitted, source, rows, held_out is None, cv, random_state)
            measured.append(_measure(name, fitted, predicted, seconds, rows, given, before, confidence))
        except Exception as error:
            message = " ".join(f"{type(error).__name__}: {error}".split())
            measured.append((MethodResult(name, seconds=time.perf_counter() - began, failure=message), None))
    if held_out is None:
        how = f"{cv}-fold cross-validation on {rows.n} samples, {source.n_classes} classes"
    else:
        how = f"fitted on {source.n_rows} samples, evaluated on {rows.n} others, {source.n_classes} classes"
    return Comparison(
        _ranked(measured, rows, confidence, scoring),
        how,
        rows.n,
        source.n_classes,
        confidence,
        left_out=tuple(default_methods(source)[1]) if methods is None else (),
        losses=_loss_table(
            measured, before, rows, fold_of(range(rows.source.n_rows), cv, random_state)[rows.index], source
        ),
        scoring=scoring,
        held_out=held_out is not None,
    )


def _loss_table(
    measured: list[tuple[MethodResult, SampleLosses | None]],
    before: SampleLosses,
    rows: EvaluationSet,
    fold: NDArray[np.intp],
    source: Rows,
) -> LossTable | None:
    good = [(result.name, losses) for result, losses in measured if losses is not None]
    if not good:
        return None
    nll, brier = (np.stack([getattr(losses, score) for _, losses in good], axis=1) for score in ("nll", "brier"))
    return LossTable(
        tuple(name for name, _ in good),
        nll,
        brier,
        rows.weight,
        fold,
        class_weights=source.class_weights(),
        evaluated=rows.source.class_weights(),
        errors=float(np.sum((1 - before.right) * (1 if rows.weight is None else rows.weight))),
    )


def _predict(
    unfitted: CalibrationMap, source: Rows, rows: EvaluationSet, crossed: bool, cv: int, seed: int
) -> tuple[NDArray[Any], float, CalibrationMap]:
    """Predictions for the samples evaluated on, seconds of a fit, and a fitted map (the last one)."""
    if not crossed:
        began = time.perf_counter()
        fitted = calibration_map(clone(unfitted))._fit_source(source)
        return fitted.predict_proba(rows.given()), time.perf_counter() - began, fitted
    fold = fold_of(range(source.n_rows), cv, seed)[rows.index]
    seconds, predicted = [], np.empty((rows.n, source.n_classes))
    fitted = unfitted
    for k in np.unique(fold):
        inside = fold == k
        if inside.all():
            msg = f"{rows.n} samples are too few for {cv}-fold cross-validation"
            raise ValueError(msg)
        began = time.perf_counter()
        rest = source.fold(int(k), cv, keep=False, seed=seed)
        fitted = calibration_map(clone(unfitted))._fit_source(rest)
        seconds.append(time.perf_counter() - began)
        predicted[inside] = fitted.predict_proba(rows.given(inside))
    return predicted, float(np.mean(seconds)), fitted


def _measure(
    name: str,
    fitted: CalibrationMap,
    predicted: NDArray[Any],
    seconds: float,
    rows: EvaluationSet,
    given: Rows,
    before: SampleLosses,
    confidence: float,
) -> tuple[MethodResult, SampleLosses]:
    from mixnmatch.evaluation.error import calibration_error
    from mixnmatch.evaluation.gain import calibration_gain

    after, calibrated = rows.losses(predicted), rows.predicted(predicted)
    changed = (after.winner != before.winner).astype(np.float64)
    result = MethodResult(
        name,
        gain=calibration_gain(given, calibrated, injective=bool(fitted.injective), confidence=confidence),
        nll=rows.mean(after.nll, confidence, log_loss_bounds(calibrated)),
        brier=rows.mean(after.brier, confidence, SQUARED_ERROR),
        accuracy=rows.mean(after.right, confidence, PROPORTION),
        accuracy_change=rows.mean(after.right - before.right, confidence),
        winners_changed=float(rows.mean(changed, confidence)),
        accuracy_preserving=bool(fitted.accuracy_preserving),
        error=calibration_error(calibrated, confidence=confidence),
        seconds=seconds,
    )
    return result, after


def _ranked(
    measured: list[tuple[MethodResult, SampleLosses | None]], rows: EvaluationSet, confidence: float, scoring: str
) -> tuple[MethodResult, ...]:
    good = [(result, getattr(losses, scoring)) for result, losses in measured if losses is not None]
    good.sort(key=lambda pair: float(rows.mean(pair[1], confidence)))
    best = good[0][1] if good else np.empty(0)
    with np.errstate(invalid="ignore"):  # both losses may be infinite
        ranked = [replace(result, behind=rows.mean(losses - best, confidence)) for result, losses in good]
    return (*ranked, *(result for result, losses in measured if losses is None))

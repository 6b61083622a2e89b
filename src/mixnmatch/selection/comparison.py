"""Compare methods on one's own data: cross-validated or on a given split, ranked by calibration gain."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mixnmatch._engine import door
from mixnmatch._engine.folds import check_folds, fold_of
from mixnmatch._engine.rows import Rows
from mixnmatch.evaluation._means import MeanEstimate, check_confidence
from mixnmatch.evaluation.gain import CalibrationGain
from mixnmatch.evaluation.result import CalibrationError
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.external import calibration_map
from mixnmatch.selection.evaluated import (
    EvaluationSet,
    Methods,
    RowLosses,
    build_methods,
    default_methods,
    read_evaluation,
)
from mixnmatch.selection.text import table

if TYPE_CHECKING:
    from mixnmatch.selection.display import ComparisonDisplay

__all__ = ["Comparison", "MethodResult", "compare"]

Progress = Callable[[int, int, str], None]
# Columns of a terminal that a printed comparison takes at most, unless a name is very long.
WIDTH = 100


@dataclass(frozen=True)
class MethodResult:
    """How one method did on rows that it was not fitted on.

    Attributes
    ----------
    name : str
        Short name, or the expression.
    gain : CalibrationGain or None
        Calibration gain over the uncalibrated scores, with its interval.
    behind : MeanEstimate or None
        By how much the gain is below that of the best method: the mean of paired differences, with its interval.
    nll, brier, accuracy : MeanEstimate or None
        Log loss, Brier score and accuracy.
    accuracy_change : MeanEstimate or None
        Accuracy after calibration minus before.
    winners_changed : float or None
        Share of rows whose most probable class changed.
    accuracy_preserving : bool
        Whether the method promises that there are none.
    error : CalibrationError or None
        Top-label calibration error by the default estimator. It is for reading, not for choosing.
    seconds : float
        Seconds that a fit took.
    failure : str or None
        Why there are no results, where the method failed.
    """

    name: str
    gain: CalibrationGain | None = None
    behind: MeanEstimate | None = None
    nll: MeanEstimate | None = None
    brier: MeanEstimate | None = None
    accuracy: MeanEstimate | None = None
    accuracy_change: MeanEstimate | None = None
    winners_changed: float | None = None
    accuracy_preserving: bool = False
    error: CalibrationError | None = None
    seconds: float = 0.0
    failure: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        made: dict[str, Any] = {}
        for key, value in vars(self).items():
            made[key] = value.to_dict() if hasattr(value, "to_dict") else value
        return made


@dataclass(frozen=True)
class Comparison:
    """Methods ranked by calibration gain, the best first and those that failed last.

    Attributes
    ----------
    results : tuple of MethodResult
        One for each method.
    how : str
        What the results rest on, in words.
    n_rows, n_classes : int
        Samples of the evaluation set, and classes.
    confidence : float
        Coverage of the intervals.
    left_out : tuple of str
        Short names that were not compared because they take long to fit.
    """

    results: tuple[MethodResult, ...]
    how: str
    n_rows: int
    n_classes: int
    confidence: float
    left_out: tuple[str, ...] = ()

    @property
    def best(self) -> MethodResult:
        """The method with the largest calibration gain."""
        return self.results[0]

    @property
    def failed(self) -> tuple[MethodResult, ...]:
        """Methods that failed."""
        return tuple(result for result in self.results if result.failure is not None)

    def tied(self) -> tuple[MethodResult, ...]:
        """Methods that are not told apart from the best: the interval of the paired difference holds zero."""
        return tuple(
            result for result in self.results if result.behind is not None and not result.behind.interval[0] > 0
        )

    def __getitem__(self, name: str) -> MethodResult:
        """The result of a method."""
        for result in self.results:
            if result.name == name:
                return result
        msg = f"{name!r} was not compared; compared were {', '.join(result.name for result in self.results)}"
        raise KeyError(msg)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {
            "how": self.how,
            "n_rows": self.n_rows,
            "n_classes": self.n_classes,
            "confidence": self.confidence,
            "ranked_by": "calibration gain",
            "left_out": list(self.left_out),
            "results": [result.to_dict() for result in self.results],
        }

    def plot(self, ax: Any = None) -> ComparisonDisplay:
        """Draw the gains with their intervals; see :class:`ComparisonDisplay`.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default on a new figure.
        """
        from mixnmatch.selection.display import ComparisonDisplay

        return ComparisonDisplay(self).plot(ax)

    def __str__(self) -> str:
        header = ("method", "gain", "behind best", "nll", "brier", "accuracy", "error", "s")
        rows = [_line(result) for result in self.results if result.failure is None]
        lines = [self.how, table(header, rows), ""]
        lines.append(f"gain: decrease of the Brier score; ±: {self.confidence:.0%} interval; s: seconds of a fit")
        if not all(result.accuracy_preserving for result in self.results if result.failure is None):
            lines.append("*: the method may change the predicted class")
        lines += [f"{result.name} failed: {result.failure}" for result in self.failed]
        if self.left_out:
            text = f"left out because they take long to fit: {', '.join(self.left_out)}"
            lines += [*fill(text, WIDTH).splitlines(), 'methods="all" compares them too']
        return "\n".join(lines)


def _line(result: MethodResult) -> tuple[str, ...]:
    assert result.gain is not None
    assert result.behind is not None
    return (
        result.name,
        f"{float(result.gain):+.5f} {_reach(result.gain)}",
        f"{float(result.behind):.5f} {_reach(result.behind)}",
        f"{result.nll:.4f}",
        f"{result.brier:.4f}",
        f"{result.accuracy:.4f}{' ' if result.accuracy_preserving else '*'}",
        f"{result.error:.4f}",
        f"{result.seconds:.2f}",
    )


def _reach(estimate: MeanEstimate) -> str:
    """Half of an interval, which is as long to either side."""
    low, high = estimate.interval
    return f"±{(high - low) / 2:.5f}"


def compare(
    scores: Any,
    y: Any,
    *,
    methods: Methods | None = None,
    logits: bool = False,
    sample_weight: Any = None,
    evaluation: tuple[Any, ...] | None = None,
    cv: int = 5,
    random_state: int = 0,
    classes: Any = None,
    progress: Progress | None = None,
    confidence: float = 0.95,
) -> Comparison:
    """Compare calibration methods on rows that they were not fitted on.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``.
    y : array of shape (n,)
        Labels.
    methods : sequence of short names and maps, or mapping from names to maps, or "all", optional
        What to compare. By default the short names that are quick to fit; those left out are named in the result, and
        ``"all"`` compares them too (all but ``uniform``). The identity always takes part.
    logits : bool
        Whether scores are logits.
    sample_weight : array of shape (n,), optional
        Frequencies; rows are the units of the intervals.
    evaluation : tuple (scores, y) or (scores, y, sample_weight), optional
        Held-out set; methods are then fitted on all of ``scores``. Without it the comparison is cross-validated.
    cv : int
        Number of folds. A row's fold is a hash of its index.
    random_state : int
        Seed of that hash.
    classes : sequence, optional
        Names of the columns.
    progress : callable, optional
        Called before each method with the number of methods done, the number of all, and the name.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    Comparison
        Methods ranked by calibration gain. A method that fails is listed with its message.

    Notes
    -----
    Methods are ranked by a proper score, the gain being the reduction of the Brier score; the calibration error is
    shown beside it but never ranked by. Differences to the best are paired, row by row.

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
    source = door.rows(scores, y, sample_weight, logits=logits, classes=classes)
    held_out = None
    if evaluation is not None:
        held_out = read_evaluation(evaluation, source, logits=logits)
    rows = EvaluationSet.of(source if held_out is None else held_out)
    maps = build_methods(methods, source, logits=logits)
    measured: list[tuple[MethodResult, RowLosses | None]] = []
    before = rows.losses(rows.identity())
    for done, (name, unfitted) in enumerate(maps.items()):
        if progress is not None:
            progress(done, len(maps), name)
        began = time.perf_counter()
        try:
            predicted, seconds, fitted = _predict(unfitted, source, rows, held_out is None, cv, random_state)
            measured.append(_measure(name, fitted, predicted, seconds, rows, before, confidence))
        except Exception as error:
            message = " ".join(f"{type(error).__name__}: {error}".split())
            measured.append((MethodResult(name, seconds=time.perf_counter() - began, failure=message), None))
    if held_out is None:
        how = f"{cv}-fold cross-validation on {rows.n} rows, {source.n_classes} classes"
    else:
        how = f"fitted on {source.n_rows} rows, evaluated on {rows.n} others, {source.n_classes} classes"
    left_out = tuple(default_methods(source)[1]) if methods is None else ()
    return Comparison(_ranked(measured, rows, confidence), how, rows.n, source.n_classes, confidence, left_out)


def _predict(
    unfitted: CalibrationMap, source: Rows, rows: EvaluationSet, crossed: bool, cv: int, seed: int
) -> tuple[NDArray[Any], float, CalibrationMap]:
    """Predictions for the rows evaluated on, seconds of a fit, and a fitted map (the last one)."""
    if not crossed:
        began = time.perf_counter()
        fitted = calibration_map(clone(unfitted, safe=False))._fit_source(source)
        return fitted.predict_proba(rows.scores()), time.perf_counter() - began, fitted
    fold = fold_of(range(source.n_rows), cv, seed)[rows.index]
    seconds, predicted = [], np.empty((rows.n, source.n_classes))
    fitted = unfitted
    for k in np.unique(fold):
        inside = fold == k
        if inside.all():
            msg = f"{rows.n} rows are too few for {cv}-fold cross-validation"
            raise ValueError(msg)
        began = time.perf_counter()
        rest = source.fold(int(k), cv, keep=False, seed=seed)
        fitted = calibration_map(clone(unfitted, safe=False))._fit_source(rest)
        seconds.append(time.perf_counter() - began)
        predicted[inside] = fitted.predict_proba(rows.scores(inside))
    return predicted, float(np.mean(seconds)), fitted


def _measure(
    name: str,
    fitted: CalibrationMap,
    predicted: NDArray[Any],
    seconds: float,
    rows: EvaluationSet,
    before: RowLosses,
    confidence: float,
) -> tuple[MethodResult, RowLosses]:
    from mixnmatch.evaluation.error import calibration_error

    after = rows.losses(predicted)
    changed = (after.winner != before.winner).astype(np.float64)
    result = MethodResult(
        name,
        gain=rows.gain(before, after, bool(fitted.injective), confidence),
        nll=rows.mean(after.nll, confidence),
        brier=rows.mean(after.brier, confidence),
        accuracy=rows.mean(after.right, confidence),
        accuracy_change=rows.mean(after.right - before.right, confidence),
        winners_changed=float(rows.mean(changed, confidence)),
        accuracy_preserving=bool(fitted.accuracy_preserving),
        error=calibration_error(predicted, rows.labels, sample_weight=rows.weight, confidence=confidence),
        seconds=seconds,
    )
    return result, after


def _ranked(
    measured: list[tuple[MethodResult, RowLosses | None]], rows: EvaluationSet, confidence: float
) -> tuple[MethodResult, ...]:
    good = [(result, losses) for result, losses in measured if losses is not None and result.gain is not None]
    good.sort(key=lambda pair: -float(pair[0].gain or 0.0))
    best = good[0][1].brier if good else np.empty(0)
    ranked = [replace(result, behind=rows.mean(losses.brier - best, confidence)) for result, losses in good]
    return (*ranked, *(result for result, losses in measured if losses is None))

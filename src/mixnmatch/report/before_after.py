"""Probabilities before and after a method, on samples that it was not fitted on: what the diagrams show."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.folds import fold_of
from mixnmatch._engine.passes import row_ranges
from mixnmatch._engine.rows import Rows
from mixnmatch.evaluation._evaluate import evaluate
from mixnmatch.evaluation._means import MeanEstimate
from mixnmatch.evaluation.error import calibration_error
from mixnmatch.evaluation.estimators import ResidualKernel
from mixnmatch.evaluation.gain import CalibrationGain, calibration_gain
from mixnmatch.evaluation.inference import TEST_RESAMPLES, calibration_test
from mixnmatch.evaluation.notion import Outcomes, default_notion
from mixnmatch.evaluation.reliability import reliability_curve, worst_classes
from mixnmatch.evaluation.two_classes import MEASURES
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.external import calibration_map
from mixnmatch.maps.parameters import clone
from mixnmatch.report.data import ClassRow, ConfidentShare, Side
from mixnmatch.selection.evaluation_set import EvaluationSet
from mixnmatch.selection.results import MethodResult

FOLDS = 5
BINS = 15
# Resamples of the test of a single class.
CLASS_RESAMPLES = TEST_RESAMPLES
# Characters of an expression that are shown.
LONGEST_NAME = 80


@dataclass(frozen=True)
class DetailedMethod:
    """The method that is shown in detail: its name, what it is, the map, and whether it came fitted."""

    name: str
    summary: str
    map: CalibrationMap
    fitted: bool


@dataclass(frozen=True, eq=False)
class BeforeAfter:
    """The samples evaluated on, as given and after the method: ``before`` may be logits, ``after`` never is."""

    rows: EvaluationSet
    before: NDArray[Any]
    after: NDArray[Any]
    logits: bool
    injective: bool

    @property
    def notion(self) -> str:
        """What the error is about."""
        return default_notion(self.rows.source.n_classes)

    def side(self, which: str, seed: int) -> Side:
        """Everything about the scores before or after."""
        given = self.before_rows if which == "before" else self.after_rows
        names = tuple(MEASURES) if given.n_classes == 2 else ()
        metrics = ("calibration_error", "log_loss", "brier_score", "accuracy", *names)
        found = evaluate(given, metrics=metrics, random_state=seed)
        return Side(
            error=found["calibration_error"],
            nll=found["log_loss"],
            brier=found["brier_score"],
            accuracy=found["accuracy"],
            curve=reliability_curve(given, seed=seed),
            bins=reliability_curve(given, kind="histogram", bins=BINS),
            measures={name: found[name] for name in names},
        )

    @property
    def before_rows(self) -> Rows:
        """The samples as they came."""
        return replace(self.after_rows, scores=replace(self.rows.source.scores, values=self.before))

    @property
    def after_rows(self) -> Rows:
        """The samples after the method."""
        return self.rows.predicted(self.after)

    def confident(self, level: float) -> tuple[ConfidentShare, ConfidentShare]:
        """Predictions at ``level`` and above, before and after: of the positive class of two, or of the top label."""
        tables = (self.rows.identity(), self._table(self.after))
        labels = self.rows.labels
        weight = np.ones(self.rows.n) if self.rows.weight is None else self.rows.weight
        found = []
        for p in tables:
            winner = np.ones(len(p), dtype=np.intp) if self.notion == "binary" else p.argmax(axis=1)
            chosen = p[np.arange(len(p)), winner] >= level
            total = float(weight[chosen].sum())
            right = float(weight[chosen & (winner == labels)].sum())
            found.append(ConfidentShare(level, total, right / total if total else np.nan))
        return found[0], found[1]

    def gain(self) -> CalibrationGain:
        """Calibration gain of the method."""
        return calibration_gain(self.before_rows, self.after_rows, injective=self.injective)

    def classes(self, n: int, seed: int) -> tuple[ClassRow, ...]:
        """The worst classes before calibration; of two classes, which mirror each other, the second."""
        labels, weight = self.rows.labels, self.rows.weight
        classes = self.rows.source.classes
        names = list(range(self.rows.source.n_classes)) if classes is None else classes.tolist()
        column = {name: k for k, name in enumerate(names)}
        before = [(column[name], error) for name, error in worst_classes(self.before_rows)]
        after = {column[name]: error for name, error in worst_classes(self.after_rows)}
        chosen = [pair for pair in before if pair[0] == 1] if len(before) == 2 else before[:n]
        tables = (self.rows.identity(), self._table(self.after))
        counts = np.bincount(labels, weights=weight, minlength=len(before))
        found = []
        for k, error in chosen:
            name = names[k]
            problems = [_one_class(p, labels, k, weight) for p in tables]
            tests = [
                calibration_test(p, ResidualKernel(), 1, np.random.default_rng([seed, k]), resamples=CLASS_RESAMPLES)
                for p in problems
            ]
            curves = [reliability_curve(given, label=name) for given in (self.before_rows, self.after_rows)]
            found.append(
                ClassRow(str(name), float(counts[k]), error, after[k], tests[0], tests[1], curves[0], curves[1])
            )
        return tuple(found)

    def result(self, chosen: DetailedMethod, side: Side) -> MethodResult:
        """The method as a line of a comparison, for a map that came fitted."""
        losses, was = self.rows.losses(self._table(self.after)), self.rows.losses(self.rows.identity())
        changed = (losses.winner != was.winner).astype(np.float64)
        return MethodResult(
            chosen.name,
            gain=self.gain(),
            nll=side.nll,
            brier=side.brier,
            accuracy=side.accuracy,
            accuracy_change=self.rows.mean(losses.right - was.right, 0.95),
            winners_changed=float(self.rows.mean(changed, 0.95)),
            accuracy_preserving=bool(chosen.map.accuracy_preserving),
            error=calibration_error(self.after_rows),
        )

    def improvement(self) -> MeanEstimate | None:
        """By how much the method lowers the log loss, where both are finite."""
        lower = self.rows.losses(self.rows.identity()).nll - self.rows.losses(self._table(self.after)).nll
        return self.rows.mean(lower, 0.95) if np.isfinite(lower).all() else None

    @staticmethod
    def _table(p: NDArray[Any]) -> NDArray[Any]:
        return np.stack([1 - p, p], axis=1) if p.ndim == 1 else p


def read_method(method: Any, source: Rows, *, logits: bool) -> DetailedMethod:
    """What ``method`` means: a short name, a map, or a map that is already fitted."""
    from mixnmatch.maps.registry import METHODS, calibrator

    if isinstance(method, str):
        built = calibrator(method, logits=logits, classes=source.classes)
        entry = METHODS.get(method)
        return DetailedMethod(method, "" if entry is None else entry.summary, built, False)
    given = calibration_map(method)
    name = _name(method)
    fitted = given is method and hasattr(given, "n_classes_")
    if not fitted:
        return DetailedMethod(name, "", given.for_input(logits=logits, classes=source.classes), False)
    if given.takes_logits != logits:
        have, want = ("logits", "probabilities") if logits else ("probabilities", "logits")
        msg = f"the scores are {have}, but the map was fitted on {want}; pass scores as the map takes them"
        raise ValueError(msg)
    return DetailedMethod(name, "the fitted map that was given", given, True)


def _name(map_: Any) -> str:
    """The expression, without what is the same for all maps of a report."""
    shown = map_
    if isinstance(map_, CalibrationMap):
        common = {"logits": False, "classes": None, "weights": "frequency"}
        shown = clone(map_)
        known = shown.get_params(deep=True)
        shown.set_params(**{key: common[key.rpartition("__")[2]] for key in known if key.rpartition("__")[2] in common})
    text = " ".join(repr(shown).split())
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def before_after(chosen: DetailedMethod, source: Rows, held_out: Rows | None, seed: int) -> BeforeAfter:
    """Apply the method to samples that it was not fitted on: the held-out set, or the folds of a cross-validation.

    A map that came fitted is applied as it is.
    """
    rows = EvaluationSet.of(source if held_out is None else held_out)
    given = rows.given()
    scores = given.scores.values
    fitted = chosen.map
    if chosen.fitted:
        after = fitted.predict_proba(given)
    elif held_out is not None:
        fitted = _fit(chosen.map, source)
        after = fitted.predict_proba(given)
    else:
        after, fitted = _cross_fitted(chosen.map, source, rows, seed)
    if scores.ndim == 1:
        after = after[:, 1]
    return BeforeAfter(rows, scores, after, source.scores.logits, bool(fitted.injective))


def _one_class(p: NDArray[Any], labels: NDArray[np.intp], column: int, weight: Any) -> Outcomes:
    z = np.clip(p[:, column].astype(np.float64), 0.0, 1.0)
    return Outcomes(z, (labels == column).astype(np.int8), weight)


def _fit(unfitted: CalibrationMap, source: Rows) -> CalibrationMap:
    return calibration_map(clone(unfitted))._fit_source(source)


def _cross_fitted(
    unfitted: CalibrationMap, source: Rows, rows: EvaluationSet, seed: int
) -> tuple[NDArray[Any], CalibrationMap]:
    """Predictions for each fold by the map fitted on the others; the folds are those of :func:`compare`."""
    fold = fold_of(range(source.n_rows), FOLDS, seed)[rows.index]
    if rows.n < 2 or len(np.unique(fold)) < 2:
        msg = f"{rows.n} samples are too few for {FOLDS}-fold cross-validation; pass evaluation=(scores, y)"
        raise ValueError(msg)
    fitted, after = unfitted, np.empty((rows.n, source.n_classes))
    for k in np.unique(fold):
        fitted = _fit(unfitted, source.fold(int(k), FOLDS, keep=False, seed=seed))
        after[fold == k] = fitted.predict_proba(rows.given(fold == k))
    return after, fitted


def fingerprint(*sources: Rows | None) -> str:
    """First digits of the SHA-256 of scores and labels."""
    digest = hashlib.sha256()
    for source in sources:
        if source is None:
            continue
        for start, stop in row_ranges(source.n_rows, source.scores.row_bytes):
            digest.update(source.scores.read(start, stop).tobytes())
        assert source.labels is not None
        digest.update(source.labels.astype("<i8").tobytes())
    return digest.hexdigest()[:16]

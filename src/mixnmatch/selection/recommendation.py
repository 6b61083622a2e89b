"""The guidelines of the paper's Appendix G made executable, with evidence from the user's own data beside them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mixnmatch._engine import door
from mixnmatch._engine.rows import Rows
from mixnmatch.evaluation.result import CalibrationError
from mixnmatch.selection.comparison import Comparison, compare
from mixnmatch.selection.learning import LearningCurve, learning_curve

__all__ = ["Recommendation", "recommend"]

# The paper's examples of few classes have 10 and of many 100 and 1000: the border is between them.
MANY_CLASSES = 32
# Its small model, LeNet-5, has 6e4 parameters; the smallest of its large ones, DenseNet-40, 1e6.
LARGE_MODEL = 250_000
# A model is poorly calibrated if the test says that it is not calibrated and its top-label error is at least this.
POOR_ERROR = 0.03
# Its data-rich cases start at 5000 rows, and at 25 rows a class (ImageNet).
RICH_ROWS = 5000
RICH_ROWS_A_CLASS = 25
# A class with fewer rows than this says next to nothing about a map of its own.
FEW_ROWS_A_CLASS = 10
LEAST_ROWS_FOR_CURVE = 64
# Seconds for each of the fits of auto that the evidence takes.
AUTO_SECONDS = 20.0

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Recommendation:
    """What the paper's guidelines say, what the data say, and what to do.

    Attributes
    ----------
    method : str
        What to use.
    why : str
        Why, in a sentence.
    guideline, guideline_reason : str
        The method that Appendix G recommends, and its reason.
    agree : bool
        Whether the data do not contradict the guideline: its method is not told apart from the best.
    data_best : str
        The method with the largest cross-validated calibration gain among those allowed.
    complexity : {"low", "moderate", "high"}
        Complexity of the calibration task.
    data_rich : bool
        Whether the calibration set is large for the number of classes.
    n_rows, rows_per_class, fewest : float
        Size of the calibration set, its mean per class, and the smallest class.
    n_classes : int
        Number of classes.
    preserve_accuracy : bool
        Whether the most probable class may not change.
    model_size : float or None
        Parameters of the model, if given.
    error : CalibrationError
        Top-label error of the uncalibrated scores, with its interval and the test of "it is calibrated".
    metric : str
        Which metric to use for what.
    enough : {"yes", "no", "unclear"}
        Whether the calibration set is big enough for the method recommended.
    enough_reason : str
        The evidence for that.
    cautions : tuple of str
        What else should be known.
    evidence : Comparison
        Cross-validated comparison of the paper's methods, SMS and auto.
    curve : LearningCurve or None
        Learning curve of the method recommended, and of the paper's.
    """

    method: str
    why: str
    guideline: str
    guideline_reason: str
    agree: bool
    data_best: str
    complexity: str
    data_rich: bool
    n_rows: float
    rows_per_class: float
    fewest: float
    n_classes: int
    preserve_accuracy: bool
    model_size: float | None
    error: CalibrationError
    metric: str
    enough: str
    enough_reason: str
    cautions: tuple[str, ...]
    evidence: Comparison
    curve: LearningCurve | None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        made: dict[str, Any] = {}
        for key, value in vars(self).items():
            made[key] = value.to_dict() if hasattr(value, "to_dict") else value
        made["cautions"] = list(self.cautions)
        return made

    def __str__(self) -> str:
        size = f"{self.n_classes} classes, {self.n_rows:g} rows ({self.rows_per_class:.3g} a class)"
        lines = [
            f"Use {self.method}: {self.why}",
            "",
            f"The task      {size}, top-label error {self.error}",
            f"              complexity {self.complexity}, data {'rich' if self.data_rich else 'limited'}",
            f"The paper     {self.guideline}: {self.guideline_reason}",
            f"The data      {self.data_best} has the largest calibration gain; "
            + ("the paper's choice is not told apart from it" if self.agree else "the paper's choice is behind it"),
            f"The metric    {self.metric}",
            f"More data?    {self.enough_reason}",
        ]
        lines += [f"Caution       {caution}" for caution in self.cautions]
        return "\n".join([*lines, "", str(self.evidence)])


def recommend(
    scores: Any,
    y: Any,
    *,
    logits: bool = False,
    preserve_accuracy: bool = False,
    model_size: float | None = None,
    sample_weight: Any = None,
    classes: Any = None,
    cv: int = 5,
    random_state: int = 0,
    progress: Progress | None = None,
) -> Recommendation:
    """Which calibration method and which metric to use, by the paper's guidelines and by the data.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``.
    y : array of shape (n,)
        Labels.
    logits : bool
        Whether scores are logits.
    preserve_accuracy : bool
        Whether the most probable class may not change.
    model_size : float, optional
        Number of parameters of the model. Without it the model counts as complex if it is poorly calibrated.
    sample_weight, classes, cv, random_state
        As for :func:`compare`.
    progress : callable, optional
        Called before each step with the number of steps done, the number of all, and a name.

    Returns
    -------
    Recommendation
        What the guidelines say, what the data say, and what to do where they disagree: the data decide, by the
        cross-validated reduction of a proper score, never by an estimate of the calibration error.

    Examples
    --------
    >>> from mixnmatch import load_sample
    >>> sample = load_sample()
    >>> advice = recommend(sample.logits_cal[:500], sample.labels_cal[:500], logits=True, preserve_accuracy=True)
    >>> advice.guideline, advice.complexity
    ('ets', 'moderate')
    """
    from mixnmatch.evaluation.error import calibration_error

    source = door.rows(scores, y, sample_weight, logits=logits, classes=classes)
    common: dict[str, Any] = {"logits": logits, "sample_weight": sample_weight, "classes": classes}
    steps = _Steps(progress, len(_methods(preserve_accuracy)) + 2)
    steps.now("calibration error")
    error = calibration_error(scores, y, interval=True, random_state=random_state, **common)
    complexity = _complexity(source.n_classes, model_size, error)
    rich = _rich(source)
    guideline, reason = _guideline(complexity, rich, preserve_accuracy)
    evidence = compare(
        scores,
        y,
        methods=_build(preserve_accuracy, source, logits, cv, random_state),
        cv=cv,
        random_state=random_state,
        progress=None if progress is None else lambda done, _total, name: steps.now(name),
        **common,
    )
    method, why, best, agree = _decide(evidence, guideline, preserve_accuracy)
    steps.now("learning curve")
    curve = _curve(scores, y, source, method, guideline, random_state, common)
    enough, enough_reason = _enough(curve, method if method in ("ets", "irm", "irova-ts") else guideline)
    weights = source.class_weights()
    return Recommendation(
        method=method,
        why=why,
        guideline=guideline,
        guideline_reason=reason,
        agree=agree,
        data_best=best,
        complexity=complexity,
        data_rich=rich,
        n_rows=source.total_weight(),
        rows_per_class=source.total_weight() / source.n_classes,
        fewest=float(weights.min()),
        n_classes=source.n_classes,
        preserve_accuracy=preserve_accuracy,
        model_size=model_size,
        error=error,
        metric=_metric(evidence, method),
        enough=enough,
        enough_reason=enough_reason,
        cautions=_cautions(weights.min(), error, evidence, method, complexity),
        evidence=evidence,
        curve=curve,
    )


class _Steps:
    """Counts steps for a progress display."""

    def __init__(self, progress: Progress | None, total: int):
        self._progress, self._total, self._done = progress, total, 0

    def now(self, name: str) -> None:
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total, name)
        self._done += 1


def _methods(preserve_accuracy: bool) -> tuple[str, ...]:
    base = ("identity", "ts", "ets", "irm", "irm-ets")
    return (*base, "keep-sms", "auto") if preserve_accuracy else (*base, "irova-ts", "sms", "auto")


def _build(preserve_accuracy: bool, source: Rows, logits: bool, cv: int, seed: int) -> dict[str, Any]:
    from mixnmatch.selection.auto import Auto
    from mixnmatch.selection.candidates import MATRIX_TO

    made: dict[str, Any] = {}
    for name in _methods(preserve_accuracy):
        if name in ("sms", "keep-sms") and source.n_classes > MATRIX_TO:
            continue
        made[name] = name
    made["auto"] = Auto(
        accuracy_preserving=preserve_accuracy,
        time_budget=AUTO_SECONDS,
        cv=cv,
        random_state=seed,
        logits=logits,
        classes=source.classes,
    )
    return made


def _complexity(n_classes: int, model_size: float | None, error: CalibrationError) -> str:
    """Appendix G: complexity of the model and of the data; a poorly calibrated model counts as a complex one."""
    large = _poor(error) if model_size is None else model_size >= LARGE_MODEL
    return ("low", "moderate", "high")[int(large) + int(n_classes >= MANY_CLASSES)]


def _poor(error: CalibrationError) -> bool:
    return error >= POOR_ERROR and error.p_value is not None and error.p_value < 0.05


def _rich(source: Rows) -> bool:
    n = source.total_weight()
    return n >= RICH_ROWS and n >= RICH_ROWS_A_CLASS * source.n_classes


def _guideline(complexity: str, rich: bool, preserve_accuracy: bool) -> tuple[str, str]:
    """The method that Appendix G recommends, and why."""
    if preserve_accuracy:
        return "ets", "accuracy must be preserved, so ETS, or IRM where its parametric form does not fit"
    if complexity == "low":
        return "ets", "a simple task: all methods do alike, and uncalibrated scores may be good enough; ETS is safe"
    if rich:
        return "irova-ts", f"a task of {complexity} complexity and much data: the expressive IROvA-TS"
    return "ets", f"a task of {complexity} complexity and little data: ETS first, IRM where its form does not fit"


def _decide(evidence: Comparison, guideline: str, preserve_accuracy: bool) -> tuple[str, str, str, bool]:
    """The method to use, why, the best one by the data, and whether the guideline's is not told apart from it."""
    allowed = [r for r in evidence.results if r.failure is None and (r.accuracy_preserving or not preserve_accuracy)]
    if not allowed:
        msg = f"no method could be tried on these rows: {evidence.results[0].failure}"
        raise ValueError(msg)
    best = allowed[0]
    tied = {result.name for result in evidence.tied()} | {best.name}
    agree = guideline in tied
    uncalibrated = evidence["identity"]
    if "identity" in tied or best.name == "identity":
        why = "no method is told apart from leaving the scores as they are"
        if uncalibrated.gain is not None and best.name != "identity":
            why += f" (the best, {best.name}, gains {float(best.gain or 0):+.2g})"
        return "identity", why, best.name, agree
    if agree and guideline != best.name:
        why = f"the paper's choice, not told apart from the best on your data ({best.name})"
        return guideline, why, best.name, agree
    if agree:
        return best.name, "the paper's choice and the best on your data", best.name, agree
    behind = evidence[guideline].behind
    gap = "" if behind is None else f" by {float(behind):.2g} in calibration gain"
    return best.name, f"the best on your data; the paper's choice, {guideline}, is behind it{gap}", best.name, agree


def _curve(
    scores: Any, y: Any, source: Rows, method: str, guideline: str, seed: int, common: dict[str, Any]
) -> LearningCurve | None:
    if source.total_weight() < LEAST_ROWS_FOR_CURVE or source.n_rows < LEAST_ROWS_FOR_CURVE:
        return None
    # The stack itself would take minutes; what it is made of is on the curve.
    names = [name for name in dict.fromkeys([method, guideline]) if name not in ("auto", "identity")]
    return learning_curve(scores, y, methods=names or ["ets"], random_state=seed, **common)


def _enough(curve: LearningCurve | None, method: str) -> tuple[str, str]:
    if curve is None:
        return "no", f"below {LEAST_ROWS_FOR_CURVE} rows nothing can be said about methods: collect more"
    outlook = curve.outlook(method)
    answer = {"yes": "no", "no": "yes", "unclear": "unclear"}[outlook.verdict]
    return answer, f"would more rows help {method}? {outlook}"


def _metric(evidence: Comparison, method: str) -> str:
    gain = evidence[method].gain
    bound = ""
    if gain is not None and gain.exact is False:
        bound = f"; for {method}, which need not be injective, it is a lower bound"
    return (
        "to rank methods, the calibration gain" + bound + "; to know the size of the error, the top-label kernel "
        "estimate with its interval"
    )


def _cautions(
    fewest: float, error: CalibrationError, evidence: Comparison, method: str, complexity: str
) -> tuple[str, ...]:
    found = []
    if complexity == "low" and _poor(error):
        found.append(f"the paper expects a model of this size to be calibrated well enough; this one is not ({error})")
    if fewest == 0:
        found.append("a class is absent from the calibration set: its probabilities are not calibrated")
    elif fewest < FEW_ROWS_A_CLASS:
        found.append(f"the smallest class has {fewest:g} rows: maps with parameters of its own say little about it")
    if error.p_value is not None and error.p_value >= 0.05:
        found.append(f"the scores are not told apart from calibrated ones (p = {error.p_value:.2g})")
    if math.isfinite(error.n) and error.n < error.advised_n:
        found.append(error.advice)
    change = evidence[method].accuracy_change
    if change is not None and evidence[method].winners_changed:
        found.append(f"{method} changes accuracy by {float(change):+.4f} here")
    found += [f"{result.name} failed: {result.failure}" for result in evidence.failed]
    return tuple(found)

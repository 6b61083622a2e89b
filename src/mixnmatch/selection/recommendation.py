"""Recommend a method: the verdict on the user's data, beside the guidelines of the paper's Appendix G."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mixnmatch._engine import door
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.steps import Progress, Steps
from mixnmatch._engine.tabular import Cells, Record, Tabular
from mixnmatch._engine.text import estimate_text, significant
from mixnmatch.evaluation.result import CalibrationError, p_text
from mixnmatch.selection.comparison import compare
from mixnmatch.selection.evaluation_set import read_evaluation
from mixnmatch.selection.learning import LearningCurve, learning_curve
from mixnmatch.selection.methods import LEAST_SAMPLES, MATRIX_TO, Methods, build_methods, check_labels, default_methods
from mixnmatch.selection.results import Comparison, wrapped
from mixnmatch.selection.verdict import Verdict, decide

__all__ = ["Recommendation", "recommend"]

# The paper's examples of few classes have 10 and of many 100 and 1000: the border is between them.
MANY_CLASSES = 32
# Its small model, LeNet-5, has 6e4 parameters; the smallest of its large ones, DenseNet-40, 1e6.
LARGE_MODEL = 250_000
# A model is poorly calibrated if it is significantly miscalibrated and its error is at least this.
POOR_ERROR = 0.03
# Its data-rich cases start at 5000 samples and 25 of each class, on average. The rarest class counts here; by chance
# it has about half of the average, so half of these numbers are asked of it.
RICH_SAMPLES = 2500
RICH_SAMPLES_A_CLASS = 12
# The learning curve of a recommendation only compares half of the samples with all of them.
REPETITIONS, REPETITIONS_OF_AUTO = 5, 3


@dataclass(frozen=True)
class Recommendation(Tabular):
    """The verdict on the data, what the paper's guidelines say, and the evidence.

    Attributes
    ----------
    verdict : Verdict
        Which method to use, the reason, and warnings; ``compare`` and the report show the same verdict.
    guideline, guideline_reason : str
        The method that Appendix G recommends, and its reason.
    agree : bool or None
        Whether the data are consistent with the guideline: its method is statistically tied with the best, or there are
        too few samples to tell. None if its method was not compared.
    complexity : {"low", "moderate", "high"}
        Complexity of the calibration task, by the number of classes and the size of the model.
    data_rich : bool
        Whether the calibration set is large for the number of classes; the rarest class counts.
    n_samples, rarest : float
        Size of the calibration set, and of its rarest class.
    n_classes : int
        Number of classes.
    preserve_accuracy : bool
        Whether the predicted classes must not change.
    model_size : float or None
        Parameters of the model, if given.
    error : CalibrationError
        Calibration error of the uncalibrated scores, with its confidence interval and p-value.
    metric : str
        Which metric to use for what.
    evidence : Comparison
        The comparison of methods behind the verdict.
    curve : LearningCurve or None
        Learning curve of the method to use.
    """

    verdict: Verdict
    guideline: str
    guideline_reason: str
    agree: bool | None
    complexity: str
    data_rich: bool
    n_samples: float
    rarest: float
    n_classes: int
    preserve_accuracy: bool
    model_size: float | None
    error: CalibrationError
    metric: str
    evidence: Comparison
    curve: LearningCurve | None

    @property
    def method(self) -> str:
        """The method to use."""
        return self.verdict.method

    @property
    def why(self) -> str:
        """Why, in a sentence."""
        return self.verdict.why

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        values: dict[str, Any] = {"method": self.method, "why": self.why}
        for key, value in vars(self).items():
            values[key] = value.to_dict() if hasattr(value, "to_dict") else value
        return values

    def _records(self) -> Sequence[Record]:
        return self.evidence._records()

    def _cells(self) -> Cells:
        return self.evidence._cells()

    def _texts(self) -> tuple[Sequence[str], Sequence[str]]:
        return self._lines(), [self.evidence.how]

    def __str__(self) -> str:
        texts = [line for text in self._lines() for line in wrapped(text)]
        return "\n".join([*texts, "", *self.evidence.table_lines()])

    def _lines(self) -> list[str]:
        """The verdict and the facts, a line each."""
        samples = f"{significant(self.n_samples, 6)} samples, {significant(self.rarest, 6)} of the rarest class"
        size = f"{self.n_classes} classes, {samples}"
        agreement = "statistically tied with the best" if self.agree else "significantly worse than the best"
        if self.agree is None:
            agreement = "not compared"
        elif not self.verdict.decided:
            agreement = "cannot be checked with so few samples"
        facts = [
            ("Task", f"{size}; {self.complexity} complexity, {'rich' if self.data_rich else 'limited'} data"),
            ("Error", f"{error_text(self.error)} before calibration"),
            ("Paper", f"{self.guideline}: {self.guideline_reason}. On your data: {agreement}"),
            ("Metric", self.metric),
        ]
        return str(self.verdict).splitlines() + [f"  {heading:<12} {text}" for heading, text in facts]


def error_text(error: CalibrationError) -> str:
    """An error in per cent with its notion, interval and test."""
    test = () if error.p_value is None else (p_text(error.p_value),)
    text = estimate_text(float(error), error.interval, error.confidence, *test, show="{:.2%}".format)
    return f"{error.notion} calibration error (ECE) {text}"


def recommend(
    scores: Any,
    y: Any = None,
    *,
    methods: Methods | None = None,
    evaluation: Any = None,
    logits: bool = False,
    preserve_accuracy: bool = False,
    model_size: float | None = None,
    sample_weight: Any = None,
    classes: Any = None,
    cv: int = 5,
    random_state: int = 0,
    progress: Progress | None = None,
) -> Recommendation:
    """Recommend a calibration method for the data, with the paper's guideline beside it.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``.
    y : array of shape (n,)
        Labels.
    methods : sequence of short names and maps, or mapping from names to maps, optional
        What to choose from; by default as in :func:`compare`.
    evaluation : tuple (scores, y) or (scores, y, sample_weight), optional
        Held-out set; without it the methods are cross-validated.
    logits : bool
        Whether scores are logits.
    preserve_accuracy : bool
        Whether the predicted classes must not change.
    model_size : float, optional
        Number of parameters of the model. Without it the model counts as complex if it is poorly calibrated.
    sample_weight, classes, cv, random_state
        As for :func:`compare`.
    progress : callable, optional
        Called before each step with the number of steps done, the number of all, and a name.

    Returns
    -------
    Recommendation
        The verdict of :func:`decide` on a comparison of methods, and what the guidelines say. Where they
        disagree, the data decide, by a proper score and never by an estimate of the calibration error.

    Examples
    --------
    >>> from mixnmatch import load_sample
    >>> sample = load_sample()
    >>> advice = recommend(sample.logits_cal[:500], sample.labels_cal[:500], logits=True, preserve_accuracy=True)
    >>> advice.guideline, advice.complexity
    ('ets', 'moderate')
    """
    from mixnmatch.evaluation.error import calibration_error

    source = door.labelled(door.rows(scores, y, sample_weight, logits=logits, classes=classes))
    check_labels(source)
    maps: dict[str, Any] = (
        _methods(source, preserve_accuracy, cv, random_state)
        if methods is None
        else dict(build_methods(methods, source))
    )
    steps = Steps(len(maps) + 2, progress)
    steps.begin("calibration error")
    error = calibration_error(source, interval=True, random_state=random_state)
    complexity = _complexity(source.n_classes, model_size, error)
    rich = _rich(source)
    guideline, reason = _guideline(complexity, rich, preserve_accuracy, source.n_classes)
    held_out = None if evaluation is None else read_evaluation(evaluation, source)
    evidence = compare(
        source,
        methods=maps,
        evaluation=held_out,
        cv=cv,
        random_state=random_state,
        progress=None if progress is None else lambda done, _total, name: steps.begin(name),
    )
    verdict = decide(evidence, preserve_accuracy=preserve_accuracy)
    steps.begin("learning curve")
    curve = _curve(source, maps, verdict.method, held_out, random_state)
    verdict = verdict.with_outlook(curve).with_warnings(_warnings(error, evidence, verdict, complexity))
    return Recommendation(
        verdict=verdict,
        guideline=guideline,
        guideline_reason=reason,
        agree=_agrees(guideline, evidence, verdict),
        complexity=complexity,
        data_rich=rich,
        n_samples=source.total_weight(),
        rarest=float(source.class_weights().min()),
        n_classes=source.n_classes,
        preserve_accuracy=preserve_accuracy,
        model_size=model_size,
        error=error,
        metric=_metric(evidence, verdict),
        evidence=evidence,
        curve=curve,
    )


def _agrees(guideline: str, evidence: Comparison, verdict: Verdict) -> bool | None:
    """Whether the data are consistent with a guideline, None if they cannot say: its method was not compared."""
    if guideline not in {result.name for result in evidence.results}:
        return None
    return not verdict.decided or guideline in {verdict.method, verdict.best, *verdict.tied_with}


def _methods(source: Rows, preserve_accuracy: bool, cv: int, seed: int) -> dict[str, Any]:
    """The default methods; where accuracy must be preserved, also those that are restricted to that."""
    from mixnmatch.selection.auto import Auto

    maps: dict[str, Any] = {name: name for name in default_methods(source)[0]}
    if preserve_accuracy and "auto" in maps:
        if 2 < source.n_classes <= MATRIX_TO:
            maps["keep-sms"] = "keep-sms"
        settings: dict[str, Any] = {"logits": source.scores.logits, "classes": source.classes}
        maps["auto"] = Auto(accuracy_preserving=True, cv=cv, random_state=seed, **settings)
    return maps


def _complexity(n_classes: int, model_size: float | None, error: CalibrationError) -> str:
    """Appendix G: complexity of the model and of the data; a poorly calibrated model counts as a complex one."""
    large = _poor(error) if model_size is None else model_size >= LARGE_MODEL
    return ("low", "moderate", "high")[int(large) + int(n_classes >= MANY_CLASSES)]


def _poor(error: CalibrationError) -> bool:
    return error >= POOR_ERROR and error.p_value is not None and error.p_value < 0.05


def _rich(source: Rows) -> bool:
    rarest = float(source.class_weights().min())
    return rarest * source.n_classes >= RICH_SAMPLES and rarest >= RICH_SAMPLES_A_CLASS


def _guideline(complexity: str, rich: bool, preserve_accuracy: bool, n_classes: int) -> tuple[str, str]:
    """The method that Appendix G recommends, and why."""
    caveat = "; these guidelines are about networks with many classes" if n_classes == 2 else ""
    if preserve_accuracy:
        return "ets", f"accuracy must be preserved, so ETS, or IRM if ETS is not flexible enough{caveat}"
    if complexity == "low":
        return "ets", f"a simple task, where all methods perform alike and ETS is safe{caveat}"
    if rich:
        return "irova-ts", f"a task of {complexity} complexity with much data: the flexible IROvA-TS{caveat}"
    return (
        "ets",
        f"a task of {complexity} complexity with little data: ETS, or IRM if it is not flexible enough{caveat}",
    )


def _curve(
    source: Rows, methods: dict[str, Any], method: str, held_out: Rows | None, seed: int
) -> LearningCurve | None:
    n = source.n_rows
    if method == "identity" or min(source.total_weight(), n) < LEAST_SAMPLES:
        return None
    return learning_curve(
        source,
        methods={method: methods[method]},
        most_sizes=2,
        repetitions=REPETITIONS_OF_AUTO if method == "auto" else REPETITIONS,
        evaluation=held_out,
        random_state=seed,
    )


def _metric(evidence: Comparison, verdict: Verdict) -> str:
    gain = evidence[verdict.method].gain
    bound = ""
    if gain is not None and gain.exact is False:
        bound = f" (a lower bound for {verdict.method}, which need not be injective)"
    return (
        f"rank methods by a proper score ({verdict.score}) or by the calibration gain{bound}; for the size of the "
        "error, use the calibration error (ECE) with its confidence interval"
    )


def _warnings(error: CalibrationError, evidence: Comparison, verdict: Verdict, complexity: str) -> list[str]:
    messages = []
    if complexity == "low" and _poor(error):
        messages.append("the paper expects a model of this size to be well calibrated; this one is not")
    if error.p_value is not None and error.p_value >= 0.05:
        messages.append(f"the scores show no significant miscalibration ({p_text(error.p_value)})")
    if math.isfinite(error.effective_n) and not error.enough:
        messages.append(error.advice)
    change = evidence[verdict.method].accuracy_change
    if change is not None and evidence[verdict.method].winners_changed:
        messages.append(f"{verdict.method} changes the accuracy by {100 * change:+.2f} percentage points")
    return messages

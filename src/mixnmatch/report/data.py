"""What a report says, as data: the page is drawn from these values and from nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from mixnmatch.evaluation._means import MeanEstimate
from mixnmatch.evaluation.gain import CalibrationGain
from mixnmatch.evaluation.reliability import ReliabilityCurve
from mixnmatch.evaluation.result import CalibrationError
from mixnmatch.evaluation.two_classes import BinaryMeasure
from mixnmatch.selection.learning import LearningCurve
from mixnmatch.selection.results import Comparison
from mixnmatch.selection.verdict import Verdict

if TYPE_CHECKING:
    from mixnmatch.report.decisions import DecisionSection

__all__ = ["ClassRow", "Diagnosis", "NextStep", "ReportData", "Reproduction", "Side"]


class _Plain:
    """Gives a frozen dataclass a ``to_dict`` of plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON: what is not finite becomes None."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Diagnosis(_Plain):
    """Whether the scores are calibrated, in words.

    Attributes
    ----------
    level : {"good", "slight", "bad", "unclear"}
        Calibrated; significantly miscalibrated, but by little; not calibrated; or too few samples to tell.
    headline : str
        Whether the scores are calibrated, in a few words.
    evidence : str
        The error, its interval and the test.
    effect : str
        What the method changes.
    confident : str
        How often confident predictions were right, before and after; empty if there are too few of them.
    """

    level: str
    headline: str
    evidence: str
    effect: str
    confident: str = ""


@dataclass(frozen=True)
class Side(_Plain):
    """Scores before calibration, or after it.

    Attributes
    ----------
    error : CalibrationError
        Calibration error with its interval and the test of "it is calibrated".
    nll, brier, accuracy : MeanEstimate
        Log loss, Brier score and accuracy.
    curve, bins : ReliabilityCurve
        The reliability curve, smoothed and in bins.
    measures : dict of BinaryMeasure
        For two classes, what :func:`mixnmatch.evaluation.binary_measures` has of the positive one, by name.
    """

    error: CalibrationError
    nll: MeanEstimate
    brier: MeanEstimate
    accuracy: MeanEstimate
    curve: ReliabilityCurve
    bins: ReliabilityCurve
    measures: dict[str, BinaryMeasure]

    @property
    def lead(self) -> float:
        """By how much the mean confidence is above the frequency of what was predicted."""
        return self.curve.mean_confidence - self.curve.mean_outcome


@dataclass(frozen=True)
class ConfidentShare(_Plain):
    """Predictions at a level and above: how many there are (sum of weights), and the share that came true."""

    level: float
    samples: float
    right: float


@dataclass(frozen=True)
class ClassRow(_Plain):
    """One class, as a problem of its own: its probability against whether it was the true one.

    Attributes
    ----------
    name : str
        The class.
    samples : float
        Samples of it that were evaluated on (sum of weights).
    before, after : float
        Class-wise calibration error.
    p_before, p_after : float
        p-value of "the probabilities of this class are calibrated".
    curve_before, curve_after : ReliabilityCurve
        Reliability curves of the class.
    """

    name: str
    samples: float
    before: float
    after: float
    p_before: float
    p_after: float
    curve_before: ReliabilityCurve
    curve_after: ReliabilityCurve


@dataclass(frozen=True)
class NextStep(_Plain):
    """Something to do: in a few words, why, and the commands for it, if there are any."""

    heading: str
    text: str
    command: str = ""


@dataclass(frozen=True)
class Reproduction(_Plain):
    """How to make the report again.

    Attributes
    ----------
    command : str
        A command line, or Python.
    versions : tuple of pairs of str
        Names and versions of what was used.
    random_state : int
        Seed.
    fingerprint : str
        First digits of the SHA-256 of scores and labels, to know the same data again.
    notes : tuple of str
        Estimators and settings, in words.
    """

    command: str
    versions: tuple[tuple[str, str], ...]
    random_state: int
    fingerprint: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ReportData(_Plain):
    """Everything that a report shows.

    Attributes
    ----------
    title : str
        What the report is about.
    n_calibration, n_evaluation, n_classes : int
        Samples of positive weight to calibrate with and to evaluate on, and classes.
    how : str
        Which samples the results rest on.
    subject : str
        What the error is about: the confidence in the predicted class, or the probability of the positive class.
    method, method_summary : str
        Name of the method that is shown in detail, the one of the verdict unless another was asked for, and what it is.
    accuracy_preserving : bool
        Whether it promises never to change the predicted class.
    diagnosis : Diagnosis
        Whether the scores are calibrated.
    verdict : Verdict
        Which method to use.
    before, after : Side
        The scores as given, and after the method.
    gain : CalibrationGain
        Calibration gain of the method.
    comparison : Comparison
        Methods, ranked by a proper score.
    curve : LearningCurve or None
        Results over the number of calibration samples.
    curve_answer : str
        Whether more calibration samples would help the method.
    classes : tuple of ClassRow
        The worst classes before calibration, the worst first.
    absent : tuple of str
        Classes without a calibration sample.
    next_steps : tuple of NextStep
        What to do next.
    reproduction : Reproduction
        How to make the report again.
    decisions : DecisionSection
        What decisions cost, and the coverage that a target risk allows.
    """

    title: str
    n_calibration: int
    n_evaluation: int
    n_classes: int
    how: str
    subject: str
    method: str
    method_summary: str
    accuracy_preserving: bool
    diagnosis: Diagnosis
    verdict: Verdict
    before: Side
    after: Side
    gain: CalibrationGain
    comparison: Comparison
    curve: LearningCurve | None
    curve_answer: str
    classes: tuple[ClassRow, ...]
    absent: tuple[str, ...]
    next_steps: tuple[NextStep, ...]
    reproduction: Reproduction
    decisions: DecisionSection


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

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
from mixnmatch.selection.comparison import Comparison
from mixnmatch.selection.learning import LearningCurve

if TYPE_CHECKING:
    from mixnmatch.report.decisions import DecisionSection

__all__ = ["ClassRow", "NextStep", "ReportData", "Reproduction", "Side", "Verdict"]


class _Plain:
    """Gives a frozen dataclass a ``to_dict`` of plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON: what is not finite becomes None."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Verdict(_Plain):
    """The answer, in words.

    Attributes
    ----------
    level : {"good", "slight", "bad", "unclear"}
        Calibrated; off, but by little; not calibrated; or too few rows to tell.
    headline : str
        Whether the scores are calibrated, in a few words.
    how_sure : str
        The evidence for that.
    effect : str
        What the chosen method does.
    helps : {"yes", "no", "harms"}
        Whether it lowers the Brier score beyond doubt, not so, or raises it.
    """

    level: str
    headline: str
    how_sure: str
    effect: str
    helps: str


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
    """

    error: CalibrationError
    nll: MeanEstimate
    brier: MeanEstimate
    accuracy: MeanEstimate
    curve: ReliabilityCurve
    bins: ReliabilityCurve

    @property
    def lead(self) -> float:
        """By how much the mean confidence is above the frequency of what was predicted."""
        return self.curve.mean_confidence - self.curve.mean_outcome


@dataclass(frozen=True)
class ClassRow(_Plain):
    """One class, as a problem of its own: its probability against whether it was the true one.

    Attributes
    ----------
    name : str
        The class.
    rows : float
        Rows of it that were evaluated on (sum of weights).
    before, after : float
        Class-wise calibration error.
    p_before, p_after : float
        p-value of "the probabilities of this class are calibrated".
    curve_before, curve_after : ReliabilityCurve
        Reliability curves of the class.
    """

    name: str
    rows: float
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
        Rows of positive weight to calibrate with and to evaluate on, and classes.
    how : str
        Which rows the results rest on.
    subject : str
        What is judged: the confidence in the predicted class, or the probability of one class.
    method, method_summary : str
        Name of the chosen method, and what it is.
    accuracy_preserving : bool
        Whether it promises never to change the predicted class.
    verdict : Verdict
        The answer.
    before, after : Side
        The scores as given, and after the chosen method.
    gain : CalibrationGain
        Calibration gain of the chosen method.
    comparison : Comparison
        Methods, ranked by calibration gain.
    curve : LearningCurve or None
        Results over the number of calibration rows.
    curve_answer : str
        Whether more calibration data would help.
    classes : tuple of ClassRow
        The worst classes before calibration, the worst first.
    absent : tuple of str
        Classes without a row to calibrate with.
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

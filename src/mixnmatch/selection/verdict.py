"""The verdict: which method to use, decided in one place from the losses of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.text import estimate_text, significant
from mixnmatch.evaluation._means import MeanEstimate, Moments
from mixnmatch.selection.evaluation_set import LossTable
from mixnmatch.selection.methods import SAFEST, SAFEST_FOR_TWO, simplicity, too_few
from mixnmatch.selection.ties import Selection, select

if TYPE_CHECKING:
    from mixnmatch.selection.learning import LearningCurve
    from mixnmatch.selection.results import Comparison

__all__ = ["Verdict", "decide", "more_data"]

Floats = NDArray[np.float64]
# Scores that can decide, by the name of the option.
SCORES = {"nll": "log loss", "brier": "Brier score"}
# A class with fewer samples than this says next to nothing about parameters of its own.
FEW_OF_A_CLASS = 10


@dataclass(frozen=True)
class Verdict:
    """Which method to use, and why.

    Attributes
    ----------
    method : str
        The method to use; ``"identity"`` means to leave the scores as they are.
    why : str
        The reason, in a sentence.
    decided : bool
        Whether the data decided. False if there are too few samples to rank methods; the method is then one that
        seldom does harm with few samples.
    best : str
        The method with the lowest mean score among those allowed.
    tied_with : tuple of str
        Other methods that are statistically tied with the best, from the simplest to the most flexible.
    score : str
        The proper score that decided, such as "log loss".
    improvement : MeanEstimate or None
        By how much the method lowers that score: the mean of paired differences to the uncalibrated scores, with its
        interval. None if that is unknown or infinite.
    helps : {"yes", "no", "harms"}
        Whether the score falls significantly, does not change significantly, or rises significantly.
    nested_gain : MeanEstimate or None
        Calibration gain (in units of the Brier score) of selecting a method and fitting it: in each fold, the gain of
        the method selected on the other folds. The gain of the method itself is optimistic, since the method was
        selected on the same samples.
    nested_improvement : MeanEstimate or None
        The same for the score that decided.
    accuracy_cost : MeanEstimate or None
        Where the predicted classes must not change: by how much the score is above that of ``unrestricted``.
    unrestricted : str
        The method with the lowest score if predicted classes may change; the method itself if the best one never
        changes them either.
    more_data : str
        Whether more calibration samples would help this method, where a learning curve was computed.
    warnings : tuple of str
        Further warnings.
    """

    method: str
    why: str
    decided: bool = True
    best: str = ""
    tied_with: tuple[str, ...] = ()
    score: str = SCORES["nll"]
    improvement: MeanEstimate | None = None
    helps: str = "no"
    nested_gain: MeanEstimate | None = None
    nested_improvement: MeanEstimate | None = None
    accuracy_cost: MeanEstimate | None = None
    unrestricted: str = ""
    more_data: str = ""
    warnings: tuple[str, ...] = ()

    def with_outlook(self, curve: LearningCurve | None) -> Verdict:
        """The same verdict with what a learning curve says about more calibration samples for this method."""
        return replace(self, more_data=more_data(self.method, curve))

    def with_warnings(self, texts: Sequence[str]) -> Verdict:
        """The same verdict with more warnings."""
        return replace(self, warnings=(*self.warnings, *texts))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        values = {key: value.to_dict() if hasattr(value, "to_dict") else value for key, value in vars(self).items()}
        return values | {"tied_with": list(self.tied_with), "warnings": list(self.warnings)}

    @property
    def headline(self) -> str:
        """What to use and why, in a sentence."""
        what = "Leave the scores as they are" if self.method == "identity" else f"Use {self.method}"
        return f"{what}: {self.why}."

    def lines(self) -> list[tuple[str, str]]:
        """What the verdict rests on: pairs of a heading and a text."""
        pairs = []
        if self.improvement is not None and self.method != "identity":
            pairs.append(("Effect", f"the {self.score} {change_text(self.improvement)}"))
        if self.nested_gain is not None:
            text = f"{signed_text(self.nested_gain)} in Brier score"
            pairs.append(("Nested gain", f"{text}, including the selection of the method"))
        elif self.nested_improvement is not None:
            text = f"the {self.score} {change_text(self.nested_improvement)}"
            pairs.append(("Nested", f"{text}, including the selection of the method"))
        if self.tied_with:
            pairs.append(("Tied", f"{', '.join(self.tied_with)}; statistically tied with the best, {self.best}"))
        if self.accuracy_cost is not None:
            cost = f"{signed_text(self.accuracy_cost)} in {self.score}"
            text = f"{cost}, against {self.unrestricted}" if self.unrestricted != self.method else "nothing here"
            pairs.append(("Accuracy", f"never changing a predicted class costs {text}"))
        if self.more_data:
            pairs.append(("More data?", self.more_data))
        return [*pairs, *(("Warning", text) for text in self.warnings)]

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"  {heading:<12} {text}" for heading, text in self.lines())])


def signed_text(estimate: MeanEstimate) -> str:
    """A difference, such as "+0.0123, 95% CI [+0.0100, +0.0146]"."""
    return estimate_text(float(estimate), estimate.interval, estimate.confidence, show="{:+.4f}".format)


def change_text(improvement: MeanEstimate) -> str:
    """How a score changes, such as "falls by 0.0123, 95% CI [0.0100, 0.0146]"."""
    low, high = improvement.interval
    confidence = improvement.confidence
    if low > 0:
        return f"falls by {estimate_text(float(improvement), (low, high), confidence, show='{:.4f}'.format)}"
    change, ends = 0 - float(improvement), (0 - high, 0 - low)
    if high < 0:
        return f"rises by {estimate_text(change, ends, confidence, show='{:.4f}'.format)}"
    return f"does not change significantly ({estimate_text(change, ends, confidence, show='{:+.4f}'.format)})"


def decide(comparison: Comparison, *, preserve_accuracy: bool = False) -> Verdict:
    r"""Which method to use, from a comparison on samples that the methods were not fitted on.

    Parameters
    ----------
    comparison : Comparison
        What :func:`compare` found.
    preserve_accuracy : bool
        Whether the predicted classes must not change.

    Returns
    -------
    Verdict
        The method, the reasons and warnings.

    Notes
    -----
    The choice is the simplest method, in the order of ``mixnmatch.selection.methods.SIMPLICITY``, whose mean score is
    within one standard error of the lowest one, by paired differences, or one that is simpler still, has a lower mean
    score and is tied with the best. Which methods are called tied with the best, or
    significantly worse, follows Hsu's comparison with the best at the 5% level, which accounts for the number of
    methods. Differences below 0.1% of the score count as ties.

    The identity is not a candidate, since a map with one or two parameters does almost no harm if the scores are
    calibrated already. It is chosen only if calibration significantly does harm: if the interval of the nested estimate
    of the improvement is below zero.

    With fewer than 64 samples, or fewer than 10 outside the most frequent class, no ranking is possible. The verdict
    then is temperature scaling, or ``auto`` for two classes, unless that significantly raises the score. If none
    of the predictions is wrong, any map would make the scores more extreme, and the verdict is to leave them.

    Examples
    --------
    >>> from mixnmatch import load_sample
    >>> from mixnmatch.selection import compare
    >>> sample = load_sample()
    >>> found = decide(compare(sample.logits_cal, sample.labels_cal, methods=["ts", "irm"], logits=True))
    >>> found.method, found.helps
    ('ts', 'yes')
    """
    table = comparison.losses
    if table is None:
        msg = f"no method could be fitted: {comparison.failed[0].failure}"
        raise ValueError(msg)
    preserving = [result.name for result in comparison.results if result.accuracy_preserving]
    verdict = decide_by_losses(
        table,
        scoring=comparison.scoring,
        allowed=preserving if preserve_accuracy else None,
        held_out=comparison.held_out,
        confidence=comparison.confidence,
    )
    return verdict.with_warnings([f"{result.name} failed: {result.failure}" for result in comparison.failed])


def decide_by_losses(
    table: LossTable,
    *,
    scoring: str = "nll",
    allowed: Sequence[str] | None = None,
    held_out: bool = False,
    confidence: float = 0.95,
) -> Verdict:
    """The verdict of :func:`decide` from losses alone; ``allowed`` names the methods that may be chosen."""
    methods = _Candidates(table, scoring, allowed, held_out, confidence)
    warnings = _warnings(table.class_weights)
    if not methods.allowed:
        why = "no other method could be compared" if allowed is None else "no other method keeps every predicted class"
        return Verdict("identity", why, decided=False, best="identity", score=methods.score, warnings=warnings)
    if table.errors == 0:
        n = significant(table.evaluated.sum(), 6)
        why = f"none of the {n} predictions is wrong, so the data cannot show how confident to be"
        return Verdict("identity", why, decided=False, best="identity", score=methods.score, warnings=warnings)
    reason = too_few(table.evaluated)
    return methods.default(reason, warnings) if reason else methods.verdict(warnings)


class _Candidates:
    """The methods to choose from, and their losses."""

    def __init__(
        self, table: LossTable, scoring: str, allowed: Sequence[str] | None, held_out: bool, confidence: float
    ):
        self.table = table
        self.n_classes = len(table.class_weights)
        self.confidence = confidence
        self.losses: Floats = table.nll if scoring == "nll" else table.brier
        self.score = SCORES[scoring]
        self.held_out = held_out
        self.how = "held-out" if held_out else "cross-validated"
        finite = [name for k, name in enumerate(table.names) if np.isfinite(self.losses[:, k]).all()]
        self.unrestricted = [name for name in finite if name != "identity"]
        self.allowed = [name for name in self.unrestricted if allowed is None or name in allowed]

    def of(self, name: str) -> Floats:
        """Losses of a method."""
        return self.losses[:, self.table.names.index(name)]

    def select(self, candidates: list[str], rows: Any = slice(None)) -> Selection:
        """Select among candidates by their losses for some of the samples."""
        weight = None if self.table.weight is None else self.table.weight[rows]
        losses = np.stack([self.of(name)[rows] for name in candidates], axis=1)
        return select(losses, candidates, self.n_classes, weight, held_out=self.held_out)

    def mean(self, values: Floats) -> MeanEstimate | None:
        """Weighted mean with its interval; None if it is not finite."""
        if not np.isfinite(values).all():
            return None
        moments = Moments.of(values[None], self.table.weight)
        return MeanEstimate(
            float(moments.means()[0]),
            standard_error=float(np.sqrt(moments.covariance()[0, 0])),
            n_rows=len(values),
            n_groups=None,
            confidence=self.confidence,
        )

    def improvement(self, name: str) -> MeanEstimate | None:
        """By how much a method lowers the score."""
        return self.mean(self.of("identity") - self.of(name)) if "identity" in self.table.names else None

    def nested(self) -> tuple[MeanEstimate | None, MeanEstimate | None]:
        """Calibration gain, and improvement of the score, of selecting on the other folds and fitting."""
        fold, names = self.table.fold, self.table.names
        folds = np.unique(fold)
        if len(folds) < 2 or "identity" not in names:
            return None, None
        chosen = np.empty(len(fold), dtype=np.intp)
        for k in folds:
            chosen[fold == k] = names.index(self.select(self.allowed, fold != k).method)
        rows, given = np.arange(len(fold)), names.index("identity")
        gain = self.mean(self.table.brier[:, given] - self.table.brier[rows, chosen])
        return gain, self.mean(self.losses[:, given] - self.losses[rows, chosen])

    def default(self, reason: str, warnings: tuple[str, ...]) -> Verdict:
        """The verdict where samples are too few to rank methods."""
        safe = SAFEST_FOR_TWO if self.n_classes == 2 and SAFEST_FOR_TWO in self.allowed else SAFEST
        method = safe if safe in self.allowed else simplicity(self.allowed, self.n_classes)[0]
        why = f"{reason}, too few to rank methods; {method} is the safest choice"
        improvement = self.improvement(method)
        if _helps(improvement) == "harms":
            method, why = "identity", f"{reason}, too few to rank methods, and {method} raises the {self.score}"
            improvement = None
        return Verdict(
            method,
            why,
            decided=False,
            best=method,
            score=self.score,
            improvement=improvement,
            helps=_helps(improvement),
            warnings=warnings,
        )

    def verdict(self, warnings: tuple[str, ...]) -> Verdict:
        """The verdict where there are enough samples."""
        selection = self.select(self.allowed)
        method, best, tied = selection.method, selection.best, selection.tied
        gain, improvement = self.nested()
        cost, unrestricted = self._accuracy_cost(method)
        why = self._why(selection)
        if improvement is not None and improvement.interval[1] < 0:
            why = f"calibration demonstrably does harm; the {self.how} {self.score} "
            why += change_text(improvement)
            method = "identity"
        effect = self.improvement(method)
        if effect is not None and effect < 0:
            warnings += (f"the scores as they are have a lower {self.score} than {method}, but not significantly",)
        return Verdict(
            method,
            why,
            best=best,
            tied_with=tuple(name for name in tied if name not in (method, best)),
            score=self.score,
            improvement=effect,
            helps=_helps(effect) if method != "identity" else "no",
            nested_gain=gain,
            nested_improvement=improvement,
            accuracy_cost=cost,
            unrestricted=unrestricted,
            warnings=warnings,
        )

    def _why(self, selection: Selection) -> str:
        restricted = len(self.allowed) < len(self.unrestricted)
        if len(self.allowed) == 1:
            return f"no other method {'keeps the predicted classes' if restricted else 'was compared'}"
        gain = self.improvement(selection.best)
        among = "" if gain is None or gain >= 0 else " of all maps"  # doing nothing is no candidate
        if restricted:
            among = " of all maps that keep the predicted classes"
        lowest = f"the lowest {self.how} {self.score}{among}"
        if len(selection.tied) == 1:
            return f"it has {lowest}, significantly lower than that of all others"
        if selection.method == selection.best:
            return f"it has {lowest}, and no simpler method is within one standard error (or 0.1%) of it"
        near = f"within one standard error (or 0.1%) of {selection.best}, which has {lowest}"
        if selection.method != selection.simplest:
            return (
                f"it is simpler than {selection.simplest} and has a lower {self.score}; {selection.simplest} is {near}"
            )
        return f"it is the simplest method {near}"

    def _accuracy_cost(self, method: str) -> tuple[MeanEstimate | None, str]:
        if len(self.allowed) == len(self.unrestricted):
            return None, ""
        best = self.select(self.unrestricted).best
        if best in self.allowed:  # the restriction excludes nothing that is better
            best = method
        return self.mean(self.of(method) - self.of(best)), best


def _helps(improvement: MeanEstimate | None) -> str:
    if improvement is None:
        return "no"
    low, high = improvement.interval
    return "yes" if low > 0 else ("harms" if high < 0 else "no")


def more_data(method: str, curve: LearningCurve | None) -> str:
    """Whether more calibration samples would help a method, by a learning curve."""
    if method == "identity":
        return "nothing is fitted; with more samples a method may turn out to help"
    if curve is None:
        return "there are too few samples for a learning curve; collect more"
    outlook = next((each for each in curve.outlooks if each.method == method), None)
    return f"unknown: {method} is not on the learning curve" if outlook is None else str(outlook)


def _warnings(counts: Floats) -> tuple[str, ...]:
    messages = []
    absent = int(np.count_nonzero(counts == 0))
    if absent:
        subject = "1 class has" if absent == 1 else f"{absent} classes have"
        messages.append(f"{subject} no calibration samples: their probabilities cannot be calibrated")
    elif counts.min() < FEW_OF_A_CLASS:
        messages.append(f"the rarest class has only {significant(counts.min(), 6)} calibration samples")
    return tuple(messages)

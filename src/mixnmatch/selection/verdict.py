"""The verdict: which method to use, decided in one place from the losses of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.evaluation._means import MeanEstimate, Moments
from mixnmatch.selection.evaluation_set import LossTable
from mixnmatch.selection.methods import SAFEST, SAFEST_FOR_TWO, simplicity, too_few
from mixnmatch.selection.ties import tied_with_best

if TYPE_CHECKING:
    from mixnmatch.selection.learning import LearningCurve
    from mixnmatch.selection.results import Comparison

__all__ = ["Verdict", "decide", "more_data"]

Floats = NDArray[np.float64]
# Probability that the truly best method is called worse than another.
LEVEL = 0.05
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
        Whether the data decided. False if there are too few samples to rank methods: the method is then a simple one
        that does well on average with so few samples.
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
        The method with the lowest score if predicted classes may change, where ``accuracy_cost`` is given.
    more_data : str
        Whether more calibration samples would help this method, where a learning curve was computed.
    warnings : tuple of str
        What else should be known.
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
        made = {key: value.to_dict() if hasattr(value, "to_dict") else value for key, value in vars(self).items()}
        return made | {"tied_with": list(self.tied_with), "warnings": list(self.warnings)}

    @property
    def headline(self) -> str:
        """What to use and why, in a sentence."""
        what = "Leave the scores as they are" if self.method == "identity" else f"Use {self.method}"
        return f"{what}: {self.why}."

    def lines(self) -> list[tuple[str, str]]:
        """What the verdict rests on: pairs of a heading and a text."""
        found = []
        if self.improvement is not None and self.method != "identity":
            found.append(("Effect", f"the {self.score} {change_text(self.improvement)}"))
        if self.nested_gain is not None:
            text = f"{self.nested_gain:+.4f} {interval_text(self.nested_gain, sign=True)} in Brier score"
            found.append(("Nested gain", f"{text}, when selecting the method is part of the procedure"))
        if self.tied_with:
            found.append(("Tied", f"{', '.join(self.tied_with)}; statistically tied with the best, {self.best}"))
        if self.accuracy_cost is not None:
            cost = f"{self.accuracy_cost:+.4f} {interval_text(self.accuracy_cost, sign=True)} in {self.score}"
            found.append(("Accuracy", f"never changing a predicted class costs {cost}, against {self.unrestricted}"))
        if self.more_data:
            found.append(("More data?", self.more_data))
        return [*found, *(("Warning", text) for text in self.warnings)]

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"  {heading:<12} {text}" for heading, text in self.lines())])


def interval_text(estimate: MeanEstimate, *, sign: bool = False) -> str:
    """Such as "(95% interval 0.0100 to 0.0146)"."""
    low, high = estimate.interval
    if math.isnan(low):
        return "(no interval)"
    form = "+.4f" if sign else ".4f"
    return f"({estimate.confidence:.0%} interval {low:{form}} to {high:{form}})"


def change_text(improvement: MeanEstimate) -> str:
    """How a score changes, such as "falls by 0.0123 (95% interval 0.0100 to 0.0146)"."""
    low, high = improvement.interval
    share = f"{improvement.confidence:.0%} interval"
    if low > 0:
        return f"falls by {float(improvement):.4f} ({share} {low:.4f} to {high:.4f})"
    if high < 0:
        return f"rises by {-float(improvement):.4f} ({share} {-high:.4f} to {-low:.4f})"
    return f"does not change significantly ({0 - improvement:+.4f}, {share} {0 - high:+.4f} to {0 - low:+.4f})"


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
    The simplest method that is statistically tied with the best (see :func:`tied_with_best`) by a proper score, in the
    order of ``mixnmatch.selection.methods.SIMPLICITY``. The identity is no candidate: a map with one or two parameters
    costs next to nothing where scores are calibrated already. It is chosen where calibrating is shown to harm: the
    nested estimate of the improvement is negative by more than one standard error.

    With fewer than 64 samples, or fewer than 10 outside the most frequent class, no ranking is possible. The verdict
    then is temperature scaling, or Platt scaling for two classes.

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
    race = _Race(comparison, table, preserve_accuracy)
    warnings = _warnings(comparison, table)
    reason = too_few(table.evaluated)
    if not race.candidates:
        why = "no other method could be fitted" if comparison.failed else "no other method was compared"
        if preserve_accuracy:
            why += " that never changes a predicted class"
        return Verdict("identity", why, decided=False, best="identity", score=race.score, warnings=warnings)
    if reason:
        return race.default(reason, warnings)
    return race.verdict(warnings)


class _Race:
    """The candidates of a comparison and their losses."""

    def __init__(self, comparison: Comparison, table: LossTable, preserve_accuracy: bool):
        self.table = table
        self.n_classes = comparison.n_classes
        self.confidence = comparison.confidence
        self.losses: Floats = table.nll if comparison.scoring == "nll" else table.brier
        self.score = SCORES[comparison.scoring]
        self.how = "held-out" if comparison.held_out else "cross-validated"
        results = {result.name: result for result in comparison.results}
        finite = [name for k, name in enumerate(table.names) if np.isfinite(self.losses[:, k]).all()]
        self.unrestricted = [name for name in finite if name != "identity"]
        self.candidates = [
            name for name in self.unrestricted if results[name].accuracy_preserving or not preserve_accuracy
        ]

    def of(self, name: str) -> Floats:
        """Losses of a method."""
        return self.losses[:, self.table.names.index(name)]

    def select(self, candidates: list[str], rows: Any = slice(None)) -> tuple[str, str, list[str]]:
        """The choice, the best by its mean, and all that are tied with it, from the simplest on."""
        weight = None if self.table.weight is None else self.table.weight[rows]
        losses = np.stack([self.of(name)[rows] for name in candidates], axis=1)
        tied = tied_with_best(losses, weight, level=LEVEL)
        best = candidates[int(np.average(losses, axis=0, weights=weight).argmin())]
        names = simplicity([name for name, one in zip(candidates, tied, strict=True) if one], self.n_classes)
        return names[0], best, names

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
            chosen[fold == k] = names.index(self.select(self.candidates, fold != k)[0])
        rows, given = np.arange(len(fold)), names.index("identity")
        gain = self.mean(self.table.brier[:, given] - self.table.brier[rows, chosen])
        return gain, self.mean(self.losses[:, given] - self.losses[rows, chosen])

    def default(self, reason: str, warnings: tuple[str, ...]) -> Verdict:
        """The verdict where samples are too few to rank methods."""
        safe = SAFEST_FOR_TWO if self.n_classes == 2 and SAFEST_FOR_TWO in self.candidates else SAFEST
        method = safe if safe in self.candidates else simplicity(self.candidates, self.n_classes)[0]
        why = f"{reason}, too few to rank methods; {method} is the safest simple choice"
        improvement = self.improvement(method)
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
        method, best, tied = self.select(self.candidates)
        gain, improvement = self.nested()
        cost, unrestricted = self._accuracy_cost(method)
        why = self._why(method, best, tied)
        if improvement is not None and float(improvement) < -improvement.standard_error:
            why = f"calibrating would raise the {self.how} {self.score} (with {method}, selecting included, it "
            why += f"{change_text(improvement)})"
            method = "identity"
        effect = self.improvement(method)
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

    def _why(self, method: str, best: str, tied: list[str]) -> str:
        lowest = f"the lowest {self.how} {self.score}"
        if len(self.candidates) == 1:
            return "no other method was compared"
        if len(tied) == 1:
            return f"it has {lowest}, significantly lower than that of every other method"
        if method == best:
            return f"it has {lowest}, and it is the simplest of {len(tied)} statistically tied methods"
        return f"it is the simplest of {len(tied)} methods that are statistically tied; {best} has {lowest}"

    def _accuracy_cost(self, method: str) -> tuple[MeanEstimate | None, str]:
        if len(self.candidates) == len(self.unrestricted):
            return None, ""
        _, best, _ = self.select(self.unrestricted)
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
    outlook = next((found for found in curve.outlooks if found.method == method), None)
    return f"unknown: {method} is not on the learning curve" if outlook is None else str(outlook)


def _warnings(comparison: Comparison, table: LossTable) -> tuple[str, ...]:
    found = []
    counts = table.class_weights
    absent = int(np.count_nonzero(counts == 0))
    if absent:
        which = "1 class has" if absent == 1 else f"{absent} classes have"
        found.append(f"{which} no calibration samples: their probabilities cannot be calibrated")
    elif counts.min() < FEW_OF_A_CLASS:
        found.append(f"the rarest class has only {counts.min():g} calibration samples")
    found += [f"{result.name} failed: {result.failure}" for result in comparison.failed]
    return tuple(found)

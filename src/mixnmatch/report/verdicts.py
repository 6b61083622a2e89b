"""What a report says: whether the scores are calibrated, what the method changes, and what to do next."""

from __future__ import annotations

import math

from mixnmatch.evaluation.result import CalibrationError
from mixnmatch.report.data import ClassRow, ConfidentShare, Diagnosis, NextStep, Side
from mixnmatch.report.formats import count, interval, listed, p_value, percent, points, samples
from mixnmatch.selection.learning import LearningCurve
from mixnmatch.selection.results import MethodResult
from mixnmatch.selection.verdict import Verdict, change_text

# A calibrated model would show an error as large as the one found less often than this.
SIGNIFICANCE = 0.05
# An error below this is small, even if it is significant.
SMALL_ERROR = 0.03
# For two classes an error is small if it is also below this share of how often the rarer one occurs.
SHARE_OF_RARE = 0.5
# Predictions that are called confident, and how many of them say something.
CONFIDENT, LEAST_CONFIDENT = 0.9, 20
# The error has a direction if at least this share of it remains in the difference of the means.
DIRECTED = 0.6


def significant(error: CalibrationError) -> bool:
    """Whether the scores are significantly miscalibrated."""
    return error.p_value is not None and error.p_value < SIGNIFICANCE


def small_error(side: Side) -> float:
    """What is a small error: for a rare event, a gap that would be small elsewhere may be most of its probability."""
    if side.error.notion != "binary":
        return SMALL_ERROR
    rate = side.curve.mean_outcome
    return min(SMALL_ERROR, SHARE_OF_RARE * min(rate, 1 - rate))


def level(side: Side) -> str:
    """One of good, slight, bad and unclear."""
    error, small = side.error, small_error(side)
    if significant(error):
        return "bad" if error >= small else "slight"
    high = math.inf if error.interval is None else error.interval[1]
    return "good" if high <= small else "unclear"


def rule(side: Side) -> str:
    """When scores are called calibrated, in words."""
    small = small_error(side)
    shown = f"{100 * small:.2g}%"
    limit = shown + (", half the frequency of the rarer class," if small < SMALL_ERROR else "")
    return (
        f"Scores are called calibrated if the test of the calibration error does not reject at {SIGNIFICANCE:.0%} and "
        f"the 95% interval of the error ends at {limit} or below. If the test rejects, they are slightly "
        f"miscalibrated with an error below {shown}, and not calibrated otherwise. In the remaining case the "
        "samples cannot tell."
    )


def confident_text(shares: tuple[ConfidentShare, ConfidentShare], method: str, subject: str, *, top: bool) -> str:
    """How often confident predictions were right, before and after; empty if there are too few."""
    was, now = shares
    if min(was.samples, now.samples) < LEAST_CONFIDENT:
        return ""
    text = f"Of predictions at {was.level:.0%} and above, {percent(was.right)} were right"
    if not top:
        text = f"Where {subject} was {was.level:.0%} or above, {percent(was.right)} of the samples were of that class"
    return f"{text}." if method == "identity" else f"{text}; with {method}, {percent(now.right)}."


def diagnose(
    before: Side,
    after: Side,
    result: MethodResult | None,
    effect: Verdict,
    subject: str,
    shares: tuple[ConfidentShare, ConfidentShare],
) -> Diagnosis:
    """Whether the scores are calibrated, and what a method changes; ``effect`` knows how the score changes."""
    found = level(before)
    headline = {
        "bad": f"Not calibrated: {_direction(before, subject)}.",
        "slight": f"Slightly miscalibrated: {_direction(before, subject)}.",
        "good": "Calibrated, as far as these data can tell.",
        "unclear": "Too few samples to tell whether the scores are calibrated.",
    }[found]
    confident = confident_text(shares, effect.method, subject, top=before.error.notion == "top-label")
    return Diagnosis(found, headline, _evidence(before.error), _effect(before, after, result, effect), confident)


def _direction(side: Side, subject: str) -> str:
    """Whether scores are too high, by the difference of the means, too low, or both for different samples."""
    top = side.error.notion == "top-label"
    mixed = abs(side.lead) < DIRECTED * side.error
    if top:
        words = ("overconfident", "underconfident")
        who = "the model is"
        compared = "accuracy"
    else:
        words = ("too high", "too low")
        who = f"{subject} is"
        compared = "frequency of the class"
    if mixed:
        return f"{who} {words[0]} for some samples and {words[1]} for others, with an error of {percent(side.error)}"
    over = side.lead > 0
    mean = "mean confidence" if top else "mean probability"
    where = f"its {mean} is {points(abs(side.lead))} {'above' if over else 'below'} the {compared}"
    return f"{who} {words[0] if over else words[1]}; {where}"


def _evidence(error: CalibrationError) -> str:
    text = f"The {error.notion} calibration error (ECE) is {percent(error)}"
    if error.interval is not None:
        text += f" ({error.confidence:.0%} interval {interval(error.interval)}) on {samples(error.n)}."
    if error.p_value is None:
        return text
    if significant(error):
        return f"{text} Unlikely to be chance ({p_value(error.p_value)})."
    return f"{text} That is compatible with a calibrated model ({p_value(error.p_value)})."


def _effect(before: Side, after: Side, result: MethodResult | None, effect: Verdict) -> str:
    method = effect.method
    if method == "identity":
        return "The scores are left as they are; the table below shows what the methods would change."
    text = f"With {method}, the error is {percent(after.error)} ({interval(after.error.interval)})"
    if effect.improvement is not None:
        text += f", and the {effect.score} {change_text(effect.improvement).replace('-', '−')}"
    text += "."
    if result is None or result.winners_changed is None:
        return text
    if not result.winners_changed:
        return f"{text} No predicted class changes."
    change = 0.0 if result.accuracy_change is None else float(result.accuracy_change)
    return (
        f"{text} It changes {percent(result.winners_changed)} of the predicted classes, "
        f"and the accuracy by {points(change, sign=True)}."
    )


def next_steps(
    method: str,
    fitted: bool,
    verdict: Verdict,
    before: Side,
    after: Side,
    curve: LearningCurve | None,
    curve_answer: str,
    classes: tuple[ClassRow, ...],
    absent: tuple[str, ...],
) -> tuple[NextStep, ...]:
    """What to do next, the most important first; ``method`` is the one that the report details."""
    steps = [_use(method, fitted, verdict, before)]
    outlook = "" if curve is None else next((o.verdict for o in curve.outlooks if o.method == method), "")
    if method != "identity":
        heading = {"yes": "Collect more calibration samples", "no": "The calibration set is large enough"}.get(outlook)
        evidence = curve_answer.partition(": ")[2] or curve_answer
        steps.append(NextStep(heading or "See whether more calibration samples help", f"{sentence(evidence)}."))
    ends = after.error.interval
    if ends is not None and ends[1] > small_error(after) and not after.error.enough:
        text = (
            f"With {samples(after.error.effective_n)} the error after calibration may be anything from "
            f"{percent(ends[0])} to {percent(ends[1])}; about {count(after.error.advised_n)} would give it to within "
            "±50%."
        )
        steps.append(NextStep("Evaluate on more samples", text))
    if level(after) == "bad":
        text = f"An error of {percent(after.error)} is left after {method}: try more flexible methods."
        steps.append(NextStep("Look at what is left", text, "mixnmatch compare SCORES --all"))
    if absent:
        text = (
            f"There are no calibration samples of {listed(list(absent))}. "
            "Probabilities of such classes are not calibrated by any method."
        )
        steps.append(NextStep("Find samples of absent classes", text))
    # As many tests as classes are shown: each at its share of the level.
    left = [r.name for r in classes if r.p_after * len(classes) < SIGNIFICANCE and r.after >= SMALL_ERROR / 3]
    if left and len(classes) > 1:
        text = f"Still miscalibrated: {listed(left)}. A map with parameters for each class may help there."
        steps.append(NextStep("Look at single classes", text))
    text = "A calibration map belongs to one model and one kind of data. Fit it again when either changes."
    steps.append(NextStep("Check again", text))
    return tuple(steps)


def _use(method: str, fitted: bool, verdict: Verdict, before: Side) -> NextStep:
    """The verdict as something to do."""
    why = f"{sentence(verdict.why)}."
    if verdict.method == "identity":
        return NextStep("Leave the scores as they are", why)
    if not verdict.decided:
        return NextStep(f"Collect more samples; use {verdict.method} until then", why, _commands(verdict.method))
    if method != verdict.method:
        return NextStep(f"Prefer {verdict.method} to {method}", why, _commands(verdict.method))
    if verdict.helps != "yes" and not significant(before.error):
        text = f"The scores are not significantly miscalibrated, and {method} does not lower the {verdict.score} "
        return NextStep("Calibrating is optional", f"{text}significantly. {why}", "" if fitted else _commands(method))
    return NextStep(f"Use {method}", why, "" if fitted else _commands(method))


def _commands(method: str) -> str:
    if not method.replace("-", "").isalnum():  # an expression, not a short name
        return ""
    return f"mixnmatch fit SCORES --method {method} -o map.json\nmixnmatch apply map.json NEW_SCORES -o calibrated.npz"


def sentence(text: str) -> str:
    """The text with a capital letter."""
    return text[:1].upper() + text[1:]

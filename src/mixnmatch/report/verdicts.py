"""What a report says: whether the scores are calibrated, what the method changes, and what to do next."""

from __future__ import annotations

from mixnmatch.evaluation import level as levels
from mixnmatch.evaluation.result import CalibrationError
from mixnmatch.report.data import ClassRow, ConfidentShare, Diagnosis, NextStep, Side
from mixnmatch.report.formats import count, interval, listed, p_value, percent, points, samples, sentence, typeset
from mixnmatch.selection.learning import LearningCurve
from mixnmatch.selection.results import MethodResult
from mixnmatch.selection.verdict import Verdict, change_text

# Classes are tested one by one, each at its share of this.
SIGNIFICANCE = 0.05
# Predictions that are called confident, and how many of them say something.
CONFIDENT, LEAST_CONFIDENT = 0.9, 20


def small_error(side: Side) -> float:
    """What a small error is, for one side."""
    return levels.small_error(side.error, side.curve.mean_outcome)


def level(side: Side) -> str:
    """One of good, slight, bad and unclear."""
    return levels.level(side.error, side.curve.mean_outcome)


def rule(side: Side) -> str:
    """When scores are called calibrated, in words."""
    small = small_error(side)
    shown = f"{100 * small:.2g}%"
    limit = shown + (", half the frequency of the rarer class," if small < levels.SMALL_ERROR else "")
    return (
        f"Calibrated: the test of the calibration error does not reject at {levels.significance(side.error):.0%} and "
        f"the {side.error.confidence:.0%} interval of "
        f"the error ends at {limit} or below. Slightly miscalibrated: the test rejects, the error is below {shown}. "
        f"Not calibrated: the test rejects, the error is {shown} or more. Otherwise there are too few samples to "
        "tell."
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
    direction = f": {_direction(before, subject)}" if found in ("bad", "slight") else ""
    headline = f"{levels.SENTENCES[found]}{direction}."
    confident = confident_text(shares, effect.method, subject, top=before.error.notion == "top-label")
    return Diagnosis(found, headline, _evidence(before.error), _effect(before, after, result, effect), confident)


def _direction(side: Side, subject: str) -> str:
    """Whether scores are too high, by the difference of the means, too low, or both for different samples."""
    top = side.error.notion == "top-label"
    if top:
        words = ("overconfident", "underconfident")
        who = "the model is"
        compared = "accuracy"
    else:
        words = ("too high", "too low")
        who = f"{subject} is"
        compared = "frequency of the class"
    if not levels.is_directed(side.error, side.lead):
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
    if levels.is_significant(error):
        return f"{text} Unlikely to be chance ({p_value(error.p_value)})."
    return f"{text} That is compatible with a calibrated model ({p_value(error.p_value)})."


def _effect(before: Side, after: Side, result: MethodResult | None, effect: Verdict) -> str:
    method = effect.method
    if method == "identity":
        return "The scores stay as they are; the table of methods shows what calibration would change."
    text = f"With {method}, the error is {percent(after.error)} ({interval(after.error.interval)})"
    if effect.improvement is not None:
        text += f", and the {effect.score} {typeset(change_text(effect.improvement))}"
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
    heading = {"yes": "Collect more calibration samples", "no": "Keep the size of the calibration set"}.get(outlook)
    if method != "identity" and heading is not None:  # what is not known yet is no step
        evidence = curve_answer.partition(": ")[2] or curve_answer
        steps.append(NextStep(heading, f"{sentence(evidence)}."))
    ends = after.error.interval
    if ends is not None and ends[1] > small_error(after) and not after.error.enough:
        text = (
            f"With {samples(after.error.effective_n)} the error after calibration may be anything from "
            f"{percent(ends[0])} to {percent(ends[1])}; about {count(after.error.advised_n)} samples would "
            "estimate it to within ±50%."
        )
        steps.append(NextStep("Evaluate on more samples", text))
    if level(after) == "bad":
        text = f"After {method} the calibration error is still {percent(after.error)}: try more flexible methods."
        steps.append(NextStep("Reduce the remaining error", text, "mixnmatch compare SCORES --all"))
    if absent:
        text = (
            f"There are no calibration samples of {listed(list(absent))}. "
            "No method can calibrate the probabilities of these classes."
        )
        steps.append(NextStep("Collect samples of absent classes", text))
    # As many tests as classes are shown: each at its share of the level.
    left = [r.name for r in classes if r.p_after * len(classes) < SIGNIFICANCE and r.after >= levels.SMALL_ERROR / 3]
    if left and len(classes) > 1:
        text = f"Still miscalibrated: {listed(left)}. A map with parameters for each class may help there."
        steps.append(NextStep("Check single classes", text))
    text = "A calibration map belongs to one model and one kind of data. Fit it again when either changes."
    steps.append(NextStep("Repeat this check", text))
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
    if verdict.helps != "yes" and not levels.is_significant(before.error):
        text = f"Both are fine: the scores are not significantly miscalibrated, and {method} does not lower the "
        heading = f"Use {method}, or leave the scores as they are"
        return NextStep(heading, f"{text}{verdict.score} significantly.", "" if fitted else _commands(method))
    return NextStep(f"Use {method}", why, "" if fitted else _commands(method))


def _commands(method: str) -> str:
    if not method.replace("-", "").isalnum():  # an expression, not a short name
        return ""
    return f"mixnmatch fit SCORES --method {method} -o map.json\nmixnmatch apply map.json NEW_SCORES -o calibrated.npz"

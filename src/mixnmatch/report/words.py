"""Numbers in words: how they are written, the verdict, and what to do next."""

from __future__ import annotations

import math

from mixnmatch.evaluation.gain import CalibrationGain
from mixnmatch.evaluation.result import CalibrationError
from mixnmatch.report.data import ClassRow, NextStep, Side, Verdict
from mixnmatch.selection.comparison import Comparison, MethodResult
from mixnmatch.selection.learning import LearningCurve

# A calibrated model would show an error as large as the one found less often than this.
SIGNIFICANCE = 0.05
# An error below this is small, whatever the test says.
SMALL_ERROR = 0.03
# The error has a direction if so much of it is left in the difference of the means.
DIRECTED = 0.6
# A calibration gain below this changes nothing that anyone could notice.
NOTHING = 1e-4
# Classes that are named in a sentence.
NAMED = 5


def percent(value: float | None) -> str:
    """A share as a percentage of about three digits."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(100 * value)
    digits = 1 if size >= 1 or size == 0 else 2
    return f"{100 * value:.{digits}f}%".replace("-", "−")


def points(value: float, *, sign: bool = False) -> str:
    """A difference of shares in percentage points."""
    size = abs(100 * value)
    return f"{number(100 * value, 1 if size >= 1 else 2, sign=sign)} percentage points"


def number(value: float | None, digits: int = 4, *, sign: bool = False) -> str:
    """A number with a fixed number of digits."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    value = round(value, digits) + 0.0  # -0 becomes 0
    return f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−")


def count(value: float) -> str:
    """A number of rows, in groups of three digits."""
    whole = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return whole.replace(",", "\u202f")


def rows(value: float) -> str:
    """So many rows."""
    return f"{count(value)} row{'' if value == 1 else 's'}"


def interval(ends: tuple[float, float] | None, *, as_percent: bool = True, sign: bool = False) -> str:
    """Two ends, or a dash where there are none."""
    if ends is None or not all(map(math.isfinite, ends)):
        return "–"
    show = percent if as_percent else (lambda end: number(end, sign=sign))
    return f"{show(ends[0])} to {show(ends[1])}"


def span(ends: tuple[float, float] | None, *, as_percent: bool = True, digits: int = 3) -> str:
    """Two ends where there is little room."""
    if ends is None or not all(map(math.isfinite, ends)):
        return "–"
    if as_percent:
        places = 1 if 100 * max(map(abs, ends)) >= 1 else 2
        return f"{100 * ends[0]:.{places}f} – {100 * ends[1]:.{places}f}%".replace("-", "−")
    return f"{number(ends[0], digits)} – {number(ends[1], digits)}"


def listed(names: list[str]) -> str:
    """A few names as a list in a sentence."""
    shown = names[:NAMED]
    if len(names) > NAMED:
        return f"{', '.join(shown)} and {len(names) - NAMED} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def significant(error: CalibrationError) -> bool:
    """Whether the test says that it is not calibrated."""
    return error.p_value is not None and error.p_value < SIGNIFICANCE


def level(error: CalibrationError) -> str:
    """One of good, slight, bad and unclear."""
    if significant(error):
        return "bad" if error >= SMALL_ERROR else "slight"
    high = math.inf if error.interval is None else error.interval[1]
    return "good" if high <= SMALL_ERROR else "unclear"


def direction(side: Side) -> str:
    """Which way the scores are off."""
    top = side.error.notion == "top-label"
    if abs(side.lead) < DIRECTED * side.error:
        return "too confident here and not enough there" if top else "too high here and too low there"
    if top:
        return "over-confident" if side.lead > 0 else "under-confident"
    return "too high" if side.lead > 0 else "too low"


def judge(
    before: Side, after: Side, gain: CalibrationGain, result: MethodResult | None, method: str, subject: str
) -> Verdict:
    """The verdict; ``subject`` is what is judged."""
    found = level(before.error)
    who = "the model" if before.error.notion == "top-label" else subject
    off = f"{who} is {direction(before)}, by {points(before.error)} on average."
    headline = {
        "bad": f"Not calibrated: {off}",
        "slight": f"Slightly off: {off}",
        "good": "Calibrated, as far as these data can tell.",
        "unclear": "Too few rows to tell whether the scores are calibrated.",
    }[found]
    helps = helpfulness(gain)
    return Verdict(found, headline, _how_sure(before.error), _effect(after, gain, result, method, helps), helps)


def helpfulness(gain: CalibrationGain) -> str:
    """Whether a method helps beyond doubt, not so, or harms."""
    low, high = gain.interval
    if abs(gain) < NOTHING:
        return "no"
    if low > 0:
        return "yes"
    return "harms" if high < 0 else "no"


def _how_sure(error: CalibrationError) -> str:
    text = f"The calibration error is {percent(error)}"
    if error.interval is not None:
        text += f" ({error.confidence:.0%} interval {interval(error.interval)}) on {rows(error.n)}."
    if error.p_value is None:
        return text
    if significant(error):
        most = f"{100 * error.p_value:.2g}%"
        return f"{text} Chance hardly explains it: a calibrated model shows as much in {most} of such samples at most."
    return (
        f"{text} A calibrated model shows as much in {error.p_value:.0%} of such samples, so there is no evidence "
        "against it."
    )


def _effect(after: Side, gain: CalibrationGain, result: MethodResult | None, method: str, helps: str) -> str:
    if method == "identity":
        return "The scores are left as they are; the table below shows what the methods would do."
    told = "next to no difference" if abs(gain) < NOTHING else "no difference that could be told from chance"
    verb = {"yes": "helps", "no": f"makes {told}", "harms": "does harm"}[helps]
    text = (
        f"Calibrating with {method} {verb}: the error afterwards is {percent(after.error)} "
        f"({interval(after.error.interval)}), the calibration gain {number(gain, sign=True)} "
        f"({interval(gain.interval, as_percent=False, sign=True)})."
    )
    if result is None or result.winners_changed is None:
        return text
    if not result.winners_changed:
        return f"{text} No predicted class changes."
    change = 0.0 if result.accuracy_change is None else float(result.accuracy_change)
    return (
        f"{text} It changes {percent(result.winners_changed)} of the predicted classes, "
        f"and accuracy by {points(change, sign=True)}."
    )


def more_data(curve: LearningCurve | None, method: str) -> str:
    """Whether more calibration data would help, in a sentence."""
    if curve is None:
        return "There are too few rows for a learning curve. Collect more before judging methods."
    if method == "identity":
        method = next((name for name in curve.methods if name != "identity"), method)
    outlook = next((found for found in curve.outlooks if found.method == method), None)
    if outlook is None or math.isnan(outlook.last_gain):
        return "Unclear: there are too few rows to compare calibration sets of different sizes."
    fall = number(abs(outlook.last_gain), 4)
    way = "lowered" if outlook.last_gain > 0 else "raised"
    last = f"the last increase of the calibration set {way} the log loss of {method} by {fall}"
    if outlook.verdict == "yes":
        return f"Yes: {last}; as large an increase again should bring about {number(outlook.next_gain, 4)}."
    if outlook.verdict == "no":
        return f"No: {last}, which is next to nothing."
    error = "" if math.isnan(outlook.standard_error) else f", with a standard error of {outlook.standard_error:.1g}"
    return f"Unclear: {last}{error}."


def next_steps(
    method: str,
    fitted: bool,
    comparison: Comparison,
    before: Side,
    after: Side,
    curve: LearningCurve | None,
    curve_answer: str,
    classes: tuple[ClassRow, ...],
    absent: tuple[str, ...],
) -> tuple[NextStep, ...]:
    """What to do next, the most important first."""
    steps = [_ship(method, fitted, comparison, before)]
    verdict = "" if curve is None else next((o.verdict for o in curve.outlooks if o.method == method), "")
    if method != "identity":
        heading = {"yes": "Collect more calibration rows", "no": "The calibration set is large enough"}.get(verdict)
        evidence = curve_answer.partition(": ")[2] or curve_answer
        steps.append(NextStep(heading or "See whether more calibration rows help", _sentence(evidence)))
    ends = after.error.interval
    if ends is not None and ends[1] > SMALL_ERROR and after.error.n < after.error.advised_n:
        text = (
            f"With {rows(after.error.n)} the error after calibration may be anything from {percent(ends[0])} to "
            f"{percent(ends[1])}; about {count(after.error.advised_n)} would tell it to within half of itself."
        )
        steps.append(NextStep("Judge on more rows", text))
    if significant(after.error) and after.error >= SMALL_ERROR:
        text = f"An error of {percent(after.error)} is left after {method}: try methods that can bend further."
        steps.append(NextStep("Look at what is left", text, "mixnmatch recommend SCORES"))
    if absent:
        text = (
            f"There are no calibration rows of {listed(list(absent))}. "
            "Probabilities of such classes are not calibrated, whatever the method."
        )
        steps.append(NextStep("Find rows of absent classes", text))
    # As many tests as classes are shown: each at its share of the level.
    left = [r.name for r in classes if r.p_after * len(classes) < SIGNIFICANCE and r.after >= SMALL_ERROR / 3]
    if left and len(classes) > 1:
        text = f"Still off after calibration: {listed(left)}. A map with parameters for each class may help there."
        steps.append(NextStep("Look at single classes", text))
    text = "A calibration map belongs to one model and one kind of data. Fit it again when either changes."
    steps.append(NextStep("Check again", text))
    return tuple(steps)


def _ship(method: str, fitted: bool, comparison: Comparison, before: Side) -> NextStep:
    good = [result for result in comparison.results if result.failure is None]
    tied = {result.name for result in comparison.tied()}
    if "identity" in tied or not good:
        if significant(before.error):
            text = "The scores are off, but on so few rows no method is told apart from doing nothing."
            return NextStep("Collect more rows, then choose a method", text)
        text = "No method is told apart from doing nothing: a map would only be one more thing to maintain."
        return NextStep("Leave the scores as they are", text)
    best = good[0]
    mine = next((result for result in good if result.name == method), None)
    if mine is not None and (mine.name in tied or mine.name == best.name or _near(mine, best)):
        text = f"No other method is better beyond doubt on these {rows(comparison.n_rows)}."
        if mine.name == best.name and len(tied) <= 1:
            text = "It has the largest calibration gain of all methods compared, beyond doubt."
        return NextStep(f"Use {method}", text, "" if fitted else _commands(method))
    text = "It has the largest calibration gain on your data"
    if mine is not None and mine.behind is not None:
        text += (
            f", {number(float(mine.behind))} more than {method} "
            f"({interval(mine.behind.interval, as_percent=False)}, row by row)"
        )
    text += "." if best.accuracy_preserving else ". It may change predicted classes."
    safe = next((result for result in good if result.accuracy_preserving), None)
    if not best.accuracy_preserving and safe is not None:
        text += f" Of those that never do, {safe.name} is the best."
    return NextStep(f"Prefer {best.name} to {method}", text, _commands(best.name))


def _near(mine: MethodResult, best: MethodResult) -> bool:
    """Whether intervals of gains overlap, for a method that was not compared row by row."""
    if mine.behind is not None or mine.gain is None or best.gain is None:
        return False
    return not best.gain.interval[0] > mine.gain.interval[1]


def _commands(method: str) -> str:
    if not method.replace("-", "").isalnum():  # an expression, not a short name
        return ""
    return f"mixnmatch fit SCORES --method {method} -o map.json\nmixnmatch apply map.json NEW_SCORES -o calibrated.npz"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]

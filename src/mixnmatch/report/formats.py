"""How numbers and names are written in a report."""

from __future__ import annotations

import math
import re

from mixnmatch.evaluation.result import p_text

# Classes that are named in a sentence.
NAMED = 5
# Numbers of samples in a text; other numbers may be names of classes.
COUNTED = r"(?<![\w.])\d{5,}(?= (?:to \d+ )?(?:calibration )?(?:samples|others|predictions)\b)"


def percent(value: float | None, digits: int | None = None) -> str:
    """A share as a percentage, of about three digits unless ``digits`` after the point are asked for."""
    if value is None or not math.isfinite(value):
        return "–"
    if digits is None:
        digits = 1 if abs(value) >= 0.01 or value == 0 else 2
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
    """A number of samples, from five digits on in groups of three."""
    text = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return text.replace(",", "\u202f" if value >= 10_000 else "")


def typeset(text: str) -> str:
    """A text of another module with minus signs, and with numbers of samples as :func:`count` writes them."""
    text = re.sub(r"(?<![\w.])-(?=[\d ])", "−", text)
    return re.sub(COUNTED, lambda found: count(int(found[0])), text)


def samples(value: float) -> str:
    """Such as "1 sample" and "5 000 samples"."""
    return f"{count(value)} sample{'' if value == 1 else 's'}"


def p_value(value: float) -> str:
    """A p-value, or the bound below which none is shown."""
    return p_text(value).replace("<=", "≤").replace("-", "−")


def interval(ends: tuple[float, float] | None) -> str:
    """Two shares as percentages of as many digits, or a dash where there are none."""
    if ends is None or not all(map(math.isfinite, ends)):
        return "–"
    digits = 1 if max(map(abs, ends)) >= 0.01 else 2
    low = percent(ends[0], digits)
    if ends[0] > 0 and low == percent(0.0, digits):  # 0 is not in the interval, though the digits do not show it
        low = f"above {low}"
    return f"{low} to {percent(ends[1], digits)}"


def span(ends: tuple[float, float] | None, digits: int = 4, *, as_percent: bool = False) -> str:
    """Two ends where there is little room; the upper one may be infinite."""
    if ends is None or not math.isfinite(ends[0]) or math.isnan(ends[1]):
        return "–"
    if as_percent:
        return f"{percent(ends[0], digits).removesuffix('%')} – {percent(ends[1], digits)}"
    return f"{number(ends[0], digits)} – {'∞' if math.isinf(ends[1]) else number(ends[1], digits)}"


def listed(names: list[str]) -> str:
    """A few names as a list in a sentence."""
    shown = names[:NAMED]
    if len(names) > NAMED:
        return f"{', '.join(shown)} and {len(names) - NAMED} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def sentence(text: str) -> str:
    """The text with a capital letter."""
    return text[:1].upper() + text[1:]


def method_name(name: str) -> str:
    """A method as tables and legends call it."""
    return "uncalibrated" if name == "identity" else name


def p_short(value: float) -> str:
    """A p-value in a column of them."""
    return p_value(value).removeprefix("p ").removeprefix("= ")


def exact(value: float | None) -> str:
    """A number to sort by, with all of its digits; empty where there is none."""
    return "" if value is None or not math.isfinite(value) else repr(float(value))


# What templates use.
FILTERS = (percent, number, count, typeset, interval, span, listed, sentence, method_name, p_short, exact)

"""How numbers and names are written in a report."""

from __future__ import annotations

import math

from mixnmatch.evaluation.result import p_text

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
    """A number of samples, in groups of three digits."""
    whole = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return whole.replace(",", "\u202f")


def samples(value: float) -> str:
    """Such as "1 sample" and "5 000 samples"."""
    return f"{count(value)} sample{'' if value == 1 else 's'}"


def p_value(value: float) -> str:
    """A p-value, or the bound below which none is shown."""
    return p_text(value).replace("<=", "≤").replace("-", "−")


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
FILTERS = (percent, number, count, interval, span, listed, sentence, method_name, p_short, exact)

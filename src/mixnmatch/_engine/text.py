"""Text for people: numbers, confidence intervals, tables, and lines that fit a terminal."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Sequence

# Columns that printed text takes at most, tables with very long names aside.
WIDTH = 80
# Numbers above this are not counts, costs or scores of anybody, and would fill lines.
_HUGE = 1e15
# Two columns of a table are at least two blanks apart.
_COLUMNS = re.compile(r"\S {2,}\S")


def significant(value: float, digits: int = 4, *, sign: bool = False) -> str:
    """A number of a few significant digits; a larger one is rounded to a whole number.

    Examples
    --------
    >>> significant(4537.6, 3), significant(0.0123456, 3), significant(99999.7)
    ('4538', '0.0123', '100000')
    """
    value = float(value)
    form = "+" if sign else ""
    if 10**digits - 0.5 <= abs(value) < _HUGE:
        return f"{value:{form}.0f}"
    return f"{value:{form}.{digits}g}" if value or math.isnan(value) else f"{0:{form}}"


def between(ends: tuple[float, float] | None, show: Callable[[float], str] = significant) -> str:
    """The two ends of an interval in brackets, the upper one perhaps infinite; nothing where there is none.

    A lower end above 0 that is shown as 0 has a round bracket, since 0 is not in the interval.

    Examples
    --------
    >>> between((0.1102, 0.1271)), between((0.1, math.inf)), between(None)
    ('[0.1102, 0.1271]', '[0.1, inf]', '')
    >>> between((2e-5, 0.1271), "{:.2f}".format)
    '(0.00, 0.13]'
    """
    if ends is None or not math.isfinite(ends[0]) or math.isnan(ends[1]):
        return ""
    bracket = "(" if ends[0] > 0 and show(ends[0]) == show(0.0) else "["
    return f"{bracket}{show(ends[0])}, {'inf' if math.isinf(ends[1]) else show(ends[1])}]"


def estimate_text(
    value: float,
    ends: tuple[float, float] | None,
    confidence: float = 0.95,
    *more: str,
    show: Callable[[float], str] = significant,
) -> str:
    """An estimate in a sentence: its value, its confidence interval and what else is known of it.

    Examples
    --------
    >>> estimate_text(0.1187, (0.1102, 0.1271), 0.95, "n = 10000")
    '0.1187, 95% CI [0.1102, 0.1271], n = 10000'
    """
    interval = [] if ends is None else [f"{100 * confidence:g}% CI {between(ends, show)}"]
    if interval and not between(ends):
        interval = ["no confidence interval"]  # of one sample, say
    return ", ".join([show(value), *interval, *more])


def table(rows: Sequence[Sequence[str]], *, left: int = 1, indent: int = 0) -> str:
    """Rows of cells, the first one a header: the first ``left`` columns are aligned left, the others right."""
    width = max(len(row) for row in rows)
    padded = [[*row, *[""] * (width - len(row))] for row in rows]
    sizes = [max(len(row[column]) for row in padded) for column in range(width)]
    lines = []
    for row in padded:
        cells = [
            cell.ljust(size) if column < left else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(row, sizes, strict=True))
        ]
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def wrapped(text: str, *, indent: str = "  ") -> str:
    """A text whose prose fits a terminal; rows of tables, and names without blanks, stay whole.

    Parameters
    ----------
    text : str
        Lines.
    indent : str
        What the further lines of a wrapped one start with, beside what the first one starts with.
    """
    return "\n".join(_wrapped(line, indent) for line in text.split("\n"))


def _wrapped(line: str, indent: str) -> str:
    if len(line) <= WIDTH or _COLUMNS.search(line):
        return line
    start = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(line, WIDTH, subsequent_indent=start + indent, break_long_words=False, break_on_hyphens=False)

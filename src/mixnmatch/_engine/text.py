"""Text for people: numbers without exponents, and lines that fit a terminal."""

from __future__ import annotations

import math
import re
import textwrap

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

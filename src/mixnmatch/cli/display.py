"""Text for people: aligned tables, percentages, and progress that only shows on a terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from mixnmatch._engine.text import significant
from mixnmatch.selection.text_table import table

__all__ = ["between", "number", "percent", "plural", "reporting", "table", "wrap"]


def percent(value: float, digits: int = 2) -> str:
    """0.1187 as 11.87%."""
    return f"{number(100 * value, digits)}%" if math.isfinite(value) else str(value)


def number(value: float, digits: int = 4) -> str:
    """A score with a fixed number of digits, and no sign for a zero."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def between(ends: tuple[float, float] | None, show: Callable[[float], str] = number) -> str:
    """An interval."""
    if ends is None or not all(math.isfinite(end) for end in ends):
        return ""
    return f"[{show(ends[0])}, {show(ends[1])}]"


def wrap(text: str) -> str:
    """Lines of a verdict, wrapped for a terminal."""
    from mixnmatch.selection.results import wrapped

    return "\n".join(line for paragraph in text.splitlines() for line in wrapped(paragraph))


def plural(count: float, noun: str) -> str:
    """Such as "1 row" and "5000 rows"; weights may make the count a fraction."""
    ending = "" if count == 1 else ("es" if noun.endswith("s") else "s")
    return f"{significant(count, 6) if count != int(count) else int(count)} {noun}{ending}"


@contextmanager
def reporting(label: str) -> Iterator[Callable[[int, int, str], None] | None]:
    """A function ``(done, total, what)`` that draws a bar on stderr, or ``None`` if that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as stack:
        bars: list[Any] = []

        def step(done: int, total: int, what: str = "") -> None:
            if not bars:
                bar = click.progressbar(
                    length=total, label=label, file=sys.stderr, item_show_func=lambda item: item or ""
                )
                bars.append(stack.enter_context(bar))
            bars[0].update(done - bars[0].pos, what)

        yield step
        for bar in bars:
            bar.update(bar.length - bar.pos, "")

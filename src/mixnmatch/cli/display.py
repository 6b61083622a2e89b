"""Text for people: aligned tables, percentages, and progress that only shows on a terminal."""

from __future__ import annotations

import logging
import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from mixnmatch._engine.text import between, significant, table
from mixnmatch.cli.terminal import clear_line, drawing, occupied_line

# Seconds from which on one would like to know whether something is still going on.
LONG = 2.0

__all__ = ["between", "number", "percent", "plural", "reporting", "table", "wrap"]


def percent(value: float, digits: int = 2) -> str:
    """0.1187 as 11.87%."""
    return f"{number(100 * value, digits)}%" if math.isfinite(value) else str(value)


def number(value: float, digits: int = 4) -> str:
    """A score with a fixed number of digits, and no sign for a zero."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


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
    """A function ``(done, total, what)`` that draws a bar with the remaining time on stderr.

    It is ``None`` if that is not a terminal, or if another one is drawing already. As long as the function is not
    called, work of unknown length shows the seconds that it has taken, from two on.
    """
    if not sys.stderr.isatty() or drawing():
        yield None
        return
    with occupied_line():
        shown = _Progress(label)
        try:
            yield shown.step
        except BaseException:
            shown.stop(finished=False)
            raise
        shown.stop()


def progress_line(label: str, seconds: float, message: str) -> str:
    """One line of the terminal about work that is going on."""
    line = f"{label}: {seconds:.0f} s{f' ({message})' if message else ''}"
    return line[: shutil.get_terminal_size().columns - 1]


class _LastMessage(logging.Handler):
    """What the package said last about a long fit."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message, without words for which a line has no room."""
        self.text = record.getMessage().replace(" over the samples", "")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within this, messages are sent and kept."""
        logger = logging.getLogger("mixnmatch")
        before = logger.level
        logger.addHandler(self)
        logger.setLevel(min(before or logging.INFO, logging.INFO))
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(before)


class _Progress:
    """Seconds, and then a bar for each stage whose steps are counted."""

    def __init__(self, label: str):
        self.label = label
        self._messages = _LastMessage()
        self._start = time.monotonic()
        self._stopped = threading.Event()
        self._clock = threading.Thread(target=self._count_seconds, daemon=True)
        self._clock.start()
        self._bars = ExitStack()
        self._bar: Any = None

    def step(self, done: int, total: int, what: str = "") -> None:
        """Draw that so many of all steps are done."""
        self._stop_clock()
        if self._bar is None or total != self._bar.length or done < self._bar.pos:
            self._end_bar()
            bar: Any = click.progressbar(
                length=total, label=self.label, file=sys.stderr, width=24, item_show_func=lambda item: item or ""
            )
            self._bar = self._bars.enter_context(bar)
        self._bar.update(done - self._bar.pos, what)

    def stop(self, *, finished: bool = True) -> None:
        """Leave the terminal as it is wanted for what is printed next."""
        self._stop_clock()
        self._end_bar(finished=finished)

    def _end_bar(self, *, finished: bool = True) -> None:
        if self._bar is not None and finished:
            self._bar.update(self._bar.length - self._bar.pos, "")
        self._bars.close()
        self._bar = None

    def _count_seconds(self) -> None:
        drawn = 0
        with self._messages.listening():
            while not self._stopped.wait(1.0):
                seconds = time.monotonic() - self._start
                if seconds >= LONG:
                    line = progress_line(self.label, seconds, self._messages.text)
                    click.echo(f"\r{line.ljust(drawn)}", nl=False, err=True)
                    drawn = len(line)

    def _stop_clock(self) -> None:
        if not self._stopped.is_set():
            self._stopped.set()
            self._clock.join()
            if time.monotonic() - self._start >= LONG:
                clear_line()

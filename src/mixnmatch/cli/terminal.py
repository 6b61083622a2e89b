"""How text is printed: control characters written out, prose wrapped, and colours on terminals that want them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import click

from mixnmatch._engine.text import wrapped
from mixnmatch._files import named

# What gets a colour; the words say the same without one.
_STYLES: tuple[tuple[str, dict[str, Any]], ...] = (
    (r"^Error:", {"fg": "red", "bold": True}),
    (r"^(Warning:|Slightly miscalibrated)", {"fg": "yellow", "bold": True}),
    (r"\b([Nn]ot calibrated|First alarm)\b", {"fg": "red"}),
    (r"^(Calibrated|No action)\b|\b[Nn]o sign of miscalibration\b", {"fg": "green"}),
    (r"^(Use [^:\n]*|Leave the scores as they are)(?=:)", {"bold": True}),
    (r"Did you mean [^?\n]*\?", {"fg": "cyan"}),
)


_drawing: ContextVar[bool] = ContextVar("drawing", default=False)


def echo(text: str, *, err: bool = False) -> None:
    """Print lines for people.

    Names of files and classes cannot steer the terminal: control characters are written out. Errors and warnings that
    do not go to a terminal stay in one line, for other programs to find.
    """
    shown = visible(text)
    if err and drawing():
        clear_line()
    if not err or sys.stderr.isatty():
        shown = wrapped(shown)
    with printing(err=err):
        click.echo(painted(shown), err=err, color=colour())


@contextmanager
def printing(*, err: bool = False) -> Iterator[None]:
    """Within this, a full disk behind standard output or standard error is named."""
    with named(f"standard {'error' if err else 'output'}"):
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError:
            # What is left in the buffer goes nowhere, or Python would fail again when it ends.
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, (sys.stderr if err else sys.stdout).fileno())
                os.close(nowhere)
            raise


@contextmanager
def occupied_line() -> Iterator[None]:
    """Within this, progress is drawn on the last line of the terminal."""
    before = _drawing.set(True)
    try:
        yield
    finally:
        _drawing.reset(before)


def drawing() -> bool:
    """Whether progress is drawn on the last line of the terminal."""
    return _drawing.get()


def clear_line() -> None:
    """Remove what is drawn on the last line."""
    click.echo(f"\r{' ' * (shutil.get_terminal_size().columns - 1)}\r", nl=False, err=True)


def visible(text: str) -> str:
    """A text with everything that is not to be seen written as an escape, line ends aside."""
    if text.isprintable():
        return text
    return "".join(one if one == "\n" or one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def painted(text: str) -> str:
    """A text with colours, which are left out again where it does not go to a terminal."""
    for pattern, style in _STYLES:
        start, _, end = click.style("\0", **style).partition("\0")
        text = re.sub(pattern, rf"{start}\g<0>{end}", text, flags=re.MULTILINE)
    return text


def colour() -> bool | None:
    """False if the user wants no colours (NO_COLOR) or the terminal has none; None leaves it to the output."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


class HelpFormatter(click.HelpFormatter):
    """Help with headings that stand out."""

    def write_heading(self, heading: str) -> None:
        """Write a heading."""
        super().write_heading(click.style(heading, bold=True))


class Context(click.Context):
    """A context whose help is formatted so, with colours only where they are wanted."""

    formatter_class = HelpFormatter

    def __init__(self, *args: Any, **settings: Any):
        super().__init__(*args, **{"color": colour(), **settings})

"""Loops that tell how far they are, to whoever listens: progress without a parameter in every function in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")
Progress = Callable[[int, int, str], None]
_listener: ContextVar[Progress | None] = ContextVar("listener", default=None)


@contextmanager
def listening(progress: Progress | None) -> Iterator[None]:
    """Within this, loops over :func:`steps` in this thread call ``progress(done, total, what)``."""
    before = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(before)


def steps(items: Sequence[Item], what: str) -> Iterator[Item]:
    """The items, one after the other; the listener hears of each."""
    tell = _listener.get()
    for done, item in enumerate(items):
        if tell is not None:
            tell(done, len(items), what)
        yield item
    if tell is not None:
        tell(len(items), len(items), what)

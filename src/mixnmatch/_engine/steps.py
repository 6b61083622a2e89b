"""Progress: what a display of it is called with, a counter of steps, and loops that report to whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
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


@dataclass
class Steps:
    """Counts the steps of a piece of work and reports them."""

    total: int
    report: Progress | None
    done: int = 0

    def __call__(self, what: str, count: int = 1) -> None:
        """Note that some steps are done, the last of which was ``what``."""
        self.done += count
        self._tell(what)

    def begin(self, what: str) -> None:
        """Note that a step begins; the next call of this says that it is done."""
        self._tell(what)
        self.done += 1

    def _tell(self, what: str) -> None:
        if self.report is not None:
            self.report(min(self.done, self.total), self.total, what)

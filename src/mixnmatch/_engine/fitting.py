"""Progress messages of long fits: logger "mixnmatch", level INFO."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

# Shorter fits have no messages.
SECONDS_BETWEEN_MESSAGES = 2.0


@dataclass
class _Fit:
    """The fit that a user asked for, with the fits inside it."""

    names: list[str]
    started: float
    last_message: float
    passes: int = 0
    loss: float | None = None

    def send_if_due(self) -> None:
        """Send a message if the last one is some time ago."""
        now = time.monotonic()
        if now - self.last_message >= SECONDS_BETWEEN_MESSAGES:
            self.last_message = now
            self._send(now, f"{' > '.join(self.names)}: ")

    def send_last(self) -> None:
        """Say that the fit is done, if it was a long one."""
        now = time.monotonic()
        if now - self.started >= SECONDS_BETWEEN_MESSAGES:
            self._send(now, f"{self.names[0]} fitted: ")

    def _send(self, now: float, start: str) -> None:
        noun = "pass" if self.passes == 1 else "passes"
        loss = "" if self.loss is None else f", loss {self.loss:.6g}"
        logging.getLogger("mixnmatch").info(
            "%s%d %s over the samples in %.0f s%s", start, self.passes, noun, now - self.started, loss
        )


_fit: ContextVar[_Fit | None] = ContextVar("fit", default=None)


@contextmanager
def fitting(name: str) -> Iterator[None]:
    """Within this, passes over the samples belong to the fit of a map, or to that of a map inside another one."""
    outer = _fit.get()
    if outer is not None:
        outer.names.append(name)
        outer.loss = None
        try:
            yield
        finally:
            outer.names.pop()
            outer.loss = None
        return
    now = time.monotonic()
    fit = _Fit([name], now, now)
    with _as_current(fit):
        yield
    fit.send_last()


@contextmanager
def _as_current(fit: _Fit | None) -> Iterator[None]:
    token = _fit.set(fit)
    try:
        yield
    finally:
        _fit.reset(token)


def part_of_pass() -> AbstractContextManager[None]:
    """Within this, no pass is counted: a worker goes through a chunk of the samples."""
    return _as_current(None)


def count_pass() -> None:
    """Note that a pass over the samples begins."""
    fit = _fit.get()
    if fit is not None:
        fit.passes += 1
        fit.send_if_due()


def note_loss(loss: float) -> None:
    """Note the mean loss that the fit has reached, penalties included."""
    fit = _fit.get()
    if fit is not None:
        fit.loss = loss

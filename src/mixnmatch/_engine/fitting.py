"""How far a long fit has come: messages of the logger "mixnmatch", level INFO, at most one every two seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

# Seconds between messages; shorter fits have none.
EVERY = 2.0


@dataclass
class _Fit:
    """The fit that a user asked for, with the fits inside it."""

    names: list[str]
    started: float
    told: float
    passes: int = 0
    loss: float | None = None

    def tell(self, end: str = "") -> None:
        """Send a message if the last one is some time ago."""
        now = time.monotonic()
        if now - self.told < EVERY:
            return
        self.told = now
        loss = "" if self.loss is None else f", penalised loss {self.loss:.6g}"
        seconds = f"{end}{now - self.started:.0f} s"
        logging.getLogger("mixnmatch").info(
            "%s: %s, %d passes over the samples%s", " > ".join(self.names), seconds, self.passes, loss
        )


_fit: ContextVar[_Fit | None] = ContextVar("fit", default=None)


@contextmanager
def fitting(name: str) -> Iterator[None]:
    """Within this, passes over the samples belong to the fit of a map, or to that of a map inside another one."""
    outer = _fit.get()
    if outer is not None:
        outer.names.append(name)
        try:
            yield
        finally:
            outer.names.pop()
        return
    now = time.monotonic()
    fit = _Fit([name], now, now)
    token = _fit.set(fit)
    try:
        yield
    finally:
        _fit.reset(token)
    if fit.told > fit.started:
        fit.told = fit.started
        fit.tell("fitted in ")


def count_pass() -> None:
    """Note that a pass over the samples begins."""
    fit = _fit.get()
    if fit is not None:
        fit.passes += 1
        fit.tell()


def note_loss(loss: float) -> None:
    """Note the mean loss, with its penalties, that the fit has reached."""
    fit = _fit.get()
    if fit is not None:
        fit.loss = loss

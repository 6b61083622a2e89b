"""Process-wide settings that are changed while our calls run, and restored when the last one ends."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from typing import Any, ClassVar
from weakref import WeakSet


class Shared:
    """A context for a global setting: entered by the first thread that uses it, left by the last.

    Contexts of their own would restore what another thread had set if they overlap. Some, such as the limits of
    threadpoolctl, must be left by the thread that entered them: with ``one_thread`` a thread of its own does both.
    """

    _all: ClassVar[WeakSet[Shared]] = WeakSet()

    def __init__(self, make: Callable[[], AbstractContextManager[Any]], *, one_thread: bool = False) -> None:
        self._make = make
        self._one_thread = one_thread
        self._reset()
        Shared._all.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._context: AbstractContextManager[Any] | None = None
        self._keeper: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Enter the context for the duration of a ``with`` block."""
        with self._lock:
            if self._users == 0:
                self._run(self._enter)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._run(self._leave)

    def _run(self, step: Callable[[], None]) -> None:
        if not self._one_thread:
            step()
            return
        if self._keeper is None:
            from concurrent.futures import ThreadPoolExecutor

            self._keeper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mixnmatch-settings")
        self._keeper.submit(step).result()

    def _enter(self) -> None:
        self._context = self._make()
        self._context.__enter__()

    def _leave(self) -> None:
        if self._context is not None:
            self._context.__exit__(None, None, None)
            self._context = None

    def _after_fork(self) -> None:
        """Reset after a fork: threads that used the context do not exist in the child, and may hold the lock."""
        with suppress(Exception):
            self._leave()
        self._reset()


def _after_fork_in_child() -> None:
    for context in Shared._all:
        context._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


@cache
def _controller(scipy_is_loaded: bool) -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:  # a container that only serves maps may do without it: BLAS threads cost time there
        return None
    return ThreadpoolController()


def _one_blas_thread() -> AbstractContextManager[Any]:
    # SciPy brings a BLAS of its own: look again once it is there.
    controller = _controller("scipy.linalg" in sys.modules)
    limited: AbstractContextManager[Any] = controller.limit(limits=1, user_api="blas") if controller else nullcontext()
    return limited


# Keeps BLAS to one thread while our own threads run blocks, so that the two do not compete for the cores.
single_threaded_blas = Shared(_one_blas_thread, one_thread=True)

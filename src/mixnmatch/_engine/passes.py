"""Passes over rows: cut a table into cache-sized blocks, run them on threads, hand results back in block order.

Everything that looks at all rows goes through :func:`run_blocks`. A pass never depends on how many threads ran it:
blocks are fixed by the shape of the table and their results arrive in block order.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

# Half of a typical 1 MiB second-level cache: a block and what a kernel writes beside it stay in it together. Compiled
# kernels keep what they need of a row in registers: for them a block only has to be worth its call.
BLOCK_BYTES = {"numpy": 1 << 19, "numba": 1 << 21}
# A pass that looks at each entry once or twice gains nothing from the cache, and pays for each block by a change of
# threads: a quarter of the table, within these bounds.
LIGHT_BYTES = 1 << 21, 1 << 23


@dataclass(frozen=True)
class Engine:
    """How passes are run here: bytes in a block (None: by the kernels), threads (None: all we may use), and kernels."""

    block_bytes: int | None = None
    threads: int | None = None
    backend: str = "auto"


_DEFAULT = Engine()
_engine: ContextVar[Engine] = ContextVar("mixnmatch_engine", default=_DEFAULT)
_worker = threading.local()
_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


@contextmanager
def engine(
    *, block_bytes: int | None = None, threads: int | None = None, backend: str | None = None
) -> Iterator[Engine]:
    """Run the passes inside this context with another block size, number of threads or kernels.

    Results do not depend on any of them beyond rounding; this is for tests, for measuring and for machines that are
    shared with others.

    Parameters
    ----------
    block_bytes : int, optional
        Bytes of scores in a block.
    threads : int, optional
        Threads that run blocks.
    backend : {"auto", "numpy", "numba"}, optional
        Kernels; "auto" takes compiled ones where they are installed and the input is large enough to pay for them.
    """
    asked: dict[str, Any] = {"block_bytes": block_bytes, "threads": threads, "backend": backend}
    changed = replace(_engine.get(), **{key: value for key, value in asked.items() if value is not None})
    token = _engine.set(changed)
    try:
        yield changed
    finally:
        _engine.reset(token)


def asked_backend() -> str:
    """Kernels that passes in this context are asked to use."""
    return _engine.get().backend


def asked_block_bytes() -> int | None:
    """Bytes in a block that passes in this context are asked to take."""
    return _engine.get().block_bytes


def light_bytes(table_bytes: int) -> int:
    """Bytes in a block of a pass that does little with each entry of a table, such as checking it."""
    least, most = LIGHT_BYTES
    return asked_block_bytes() or min(max(table_bytes // 4, least), most)


def available_threads() -> int:
    """Threads that a pass may use here."""
    asked = _engine.get().threads
    if asked is not None:
        return asked
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def row_ranges(
    n_rows: int, row_bytes: int, *, block_bytes: int | None = None, backend: str = "numpy", least_rows: int = 1
) -> list[tuple[int, int]]:
    """Cut ``n_rows`` rows of ``row_bytes`` bytes each into consecutive ranges that fit the cache, or have few rows."""
    size = block_bytes or _engine.get().block_bytes or BLOCK_BYTES[backend]
    step = max(least_rows, size // max(1, row_bytes))
    return [(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def _forget_pool() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _shared_pool() -> ThreadPoolExecutor:
    global _pool
    with _pool_lock:
        if _pool is None:
            workers = max(1, os.cpu_count() or 1)
            _pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="mixnmatch", initializer=_mark_worker)
        return _pool


def _mark_worker() -> None:
    _worker.inside = True


def run_blocks(work: Callable[[int, int], T], ranges: list[tuple[int, int]]) -> Iterator[T]:
    """Yield ``work(start, stop)`` for each range, in the order of the ranges.

    Blocks run on the shared thread pool, a bounded number ahead of the consumer, so that large statistics do not pile
    up. Inside a worker, or where one thread is all there is, they run in place.
    """
    threads = min(available_threads(), len(ranges))
    if threads < 2 or getattr(_worker, "inside", False):
        for start, stop in ranges:
            yield work(start, stop)
        return
    pool = _shared_pool()
    waiting: deque[Future[T]] = deque()
    try:
        for start, stop in ranges:
            if len(waiting) >= threads + 1:
                yield waiting.popleft().result()
            waiting.append(pool.submit(copy_context().run, work, start, stop))  # settings hold on workers too
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


class Shared:
    """A context that changes something global: entered by the first thread that asks, left by the last.

    Contexts of their own would restore what another thread had set if they overlap.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._users = 0
        self._context: AbstractContextManager[Any] | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Be inside."""
        with self._lock:
            if self._users == 0:
                self._context = self._make()
                self._context.__enter__()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0 and self._context is not None:
                    self._context.__exit__(None, None, None)


# Keeps BLAS to one thread while our own threads run blocks, so that the two do not fight for the cores.
single_threaded_blas = Shared(lambda: _blas_controller().limit(limits=1, user_api="blas"))


@cache
def _controller(scipy_is_loaded: bool) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _blas_controller() -> Any:
    # SciPy brings a BLAS of its own: look again once it is there.
    return _controller("scipy.linalg" in sys.modules)


def add(left: Any, right: Any) -> Any:
    """Add two statistics: numbers, arrays, or tuples of such."""
    if isinstance(left, tuple):
        return tuple(add(a, b) for a, b in zip(left, right, strict=True))
    return left + right


def total(results: Iterator[T], combine: Callable[[T, T], T] = add) -> T:
    """Add up statistics, or combine them in another way, in the order they come."""
    result = next(results)
    for item in results:
        result = combine(result, item)
    return result

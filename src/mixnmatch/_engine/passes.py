"""Passes over rows: cut a table into cache-sized blocks, run them on threads, return results in block order.

Everything that looks at all rows goes through :func:`run_blocks`. A pass never depends on how many threads ran it:
blocks are fixed by the shape of the table and their results arrive in block order.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

from mixnmatch._engine.kernels import COMPILED, NUMPY, choose_backend

T = TypeVar("T")

# Half of a typical 1 MiB second-level cache: a block and what a kernel writes beside it stay in it together. Compiled
# kernels keep what they need of a row in registers: for them a block only has to be worth its call.
BLOCK_BYTES = {NUMPY: 1 << 19, COMPILED: 1 << 21}
# A pass that looks at each entry once or twice gains nothing from the cache, and pays for each block by a change of
# threads: a quarter of the table, within these bounds.
LIGHT_BYTES = 1 << 21, 1 << 23


# What a process is asked to use from outside, where no code can be changed.
VARIABLES = {"threads": "MIXNMATCH_THREADS", "backend": "MIXNMATCH_BACKEND"}


@dataclass(frozen=True, eq=False)
class Settings:
    """How passes are run: bytes in a block (None: by the kernels), threads (None: all we may use), and kernels."""

    block_bytes: int | None = None
    threads: int | None = None
    backend: str = "auto"


def _of_environment() -> Settings:
    threads = os.environ.get(VARIABLES["threads"], "")
    if threads and not (threads.isdecimal() and int(threads) > 0):
        msg = f"{VARIABLES['threads']} must be a positive whole number, got {threads!r}"
        raise ValueError(msg)
    backend = os.environ.get(VARIABLES["backend"]) or "auto"
    try:
        choose_backend(backend)
    except ValueError as error:
        msg = f"{VARIABLES['backend']}: {error}"
        raise ValueError(msg) from None
    return Settings(threads=int(threads) if threads else None, backend=backend)


_default: Settings | None = None
# The settings of nested ``with engine(...)`` blocks, the innermost last. Each context (a thread, an asyncio task) has
# its own, so that one engine can be shared by all of them.
_entered: ContextVar[tuple[Settings, ...]] = ContextVar("mixnmatch_engine", default=())
_worker = threading.local()
_pool: Any = None
_pool_lock = threading.Lock()


def settings() -> Settings:
    """Return the current settings: those of the context, otherwise those of the process."""
    global _default
    entered = _entered.get()
    if entered:
        return entered[-1]
    if _default is None:
        _default = _of_environment()
    return _default


class engine:  # noqa: N801 (reads as a function: ``with engine(threads=1):``)
    """Run passes with another number of threads, block size or kernels, inside ``with`` or in the whole process.

    Results do not depend on any of them beyond rounding. Use it on machines that are shared with others, in tests and
    to measure. The environment variables ``MIXNMATCH_THREADS`` and ``MIXNMATCH_BACKEND`` set the defaults of a process.

    Parameters
    ----------
    block_bytes : int, optional
        Bytes of scores in a block.
    threads : int, optional
        Threads that run blocks. By default as many as the process may use: its CPU affinity and, in a container, its
        CPU quota count.
    backend : {"auto", "numpy", "compiled"}, optional
        Kernels; "auto" takes the compiled ones where the package was built with them.

    Examples
    --------
    >>> with engine(threads=1):
    ...     settings().threads
    1
    """

    def __init__(
        self, *, block_bytes: int | None = None, threads: int | None = None, backend: str | None = None
    ) -> None:
        asked: dict[str, Any] = {"block_bytes": block_bytes, "threads": threads, "backend": backend}
        self._asked = {key: value for key, value in asked.items() if value is not None}
        for key in ("block_bytes", "threads"):
            value = self._asked.get(key, 1)
            if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
                msg = f"{key} must be a positive whole number, got {value!r}"
                raise ValueError(msg)
        if backend is not None:
            choose_backend(backend)

    def __enter__(self) -> Settings:
        changed = replace(settings(), **self._asked)
        _entered.set((*_entered.get(), changed))
        return changed

    def __exit__(self, *_: object) -> None:
        _entered.set(_entered.get()[:-1])

    def set_default(self) -> None:
        """Use these settings in the whole process, wherever no ``with engine(...)`` says otherwise."""
        global _default
        if _default is None:
            _default = _of_environment()
        _default = replace(_default, **self._asked)


def asked_backend() -> str:
    """Return the backend requested in this context."""
    return settings().backend


def asked_block_bytes() -> int | None:
    """Return the block size requested in this context."""
    return settings().block_bytes


def light_bytes(table_bytes: int) -> int:
    """Bytes in a block of a pass that does little with each entry of a table, such as checking it."""
    least, most = LIGHT_BYTES
    return asked_block_bytes() or min(max(table_bytes // 4, least), most)


def available_threads() -> int:
    """Threads that a pass may use here."""
    asked = settings().threads
    if asked is not None:
        return asked
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _cpu_quota() or cores)


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()


@cache
def _cpu_quota(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> int | None:
    """Least CPU quota of the control groups that the process is in (Linux, versions 2 and 1), rounded up, or None.

    A container sees its own group as the root; a service of systemd is in a group below.
    """
    quotas = []
    for group in _control_groups(own):
        for names in ((f"{group}/cpu.max",), (f"cpu{group}/cpu.cfs_quota_us", f"cpu{group}/cpu.cfs_period_us")):
            try:
                words = [word for name in names for word in _text(f"{root}/{name}").split()]
                quota, period = int(words[0]), int(words[1])
            except (OSError, ValueError, IndexError):  # not there, or "max": no limit
                continue
            if quota > 0 and period > 0:
                quotas.append(max(1, -(-quota // period)))
    return min(quotas, default=None)


def _control_groups(own: str) -> set[str]:
    """The root, the groups that limit the processors of the process, and those that they are in."""
    try:
        lines = [line.split(":", 2) for line in _text(own).splitlines()]
    except OSError:
        return {""}
    groups = {""}
    for _, controllers, path in lines:
        if controllers == "" or "cpu" in controllers.split(","):
            parts = path.rstrip("/").split("/")
            groups |= {"/".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
    return groups


def row_ranges(
    n_rows: int, row_bytes: int, *, block_bytes: int | None = None, backend: str = "numpy", least_rows: int = 1
) -> list[tuple[int, int]]:
    """Cut ``n_rows`` rows of ``row_bytes`` bytes each into consecutive ranges that fit the cache, or have few rows."""
    size = block_bytes or settings().block_bytes or BLOCK_BYTES[backend]
    step = max(least_rows, size // max(1, row_bytes))
    return [(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def _forget_pool() -> None:
    """Forget the pool after a fork: its threads do not exist in the child, and its lock may be held."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _shared_pool() -> Any:
    global _pool
    with _pool_lock:
        if _pool is None:
            from concurrent.futures import ThreadPoolExecutor

            workers = max(1, os.cpu_count() or 1)
            _pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="mixnmatch", initializer=_mark_worker)
        return _pool


def _mark_worker() -> None:
    _worker.inside = True


def run_blocks(work: Callable[[int, int], T], ranges: list[tuple[int, int]]) -> Iterator[T]:
    """Yield ``work(start, stop)`` for each range, in the order of the ranges.

    Blocks run on the shared thread pool and on the thread that calls, which would otherwise wait; a bounded number is
    ahead of the consumer, so that large statistics do not pile up. Inside a worker, or where one thread is all there
    is, they run in place.
    """
    threads = 1 if len(ranges) < 2 else min(available_threads(), len(ranges))
    if threads < 2 or getattr(_worker, "inside", False):
        for start, stop in ranges:
            yield work(start, stop)
        return
    pool = _shared_pool()
    waiting: deque[Any] = deque()
    try:
        for start, stop in ranges:
            if sum(not future.done() for future in waiting) < threads - 1:
                waiting.append(pool.submit(copy_context().run, work, start, stop))  # settings hold on workers too
            else:
                waiting.append(_run_here(work, start, stop))
            while waiting and (waiting[0].done() or len(waiting) > 2 * threads):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _run_here(work: Callable[[int, int], T], start: int, stop: int) -> Any:
    """Run a block on this thread; an error is raised when its turn comes, as for blocks on other threads."""
    from concurrent.futures import Future

    future: Future[T] = Future()
    _worker.inside = True
    try:
        future.set_result(work(start, stop))
    except Exception as error:
        future.set_exception(error)
    finally:
        _worker.inside = False
    return future


def add(left: Any, right: Any) -> Any:
    """Add two statistics: numbers, arrays, or tuples of such."""
    if isinstance(left, tuple):
        return tuple(add(a, b) for a, b in zip(left, right, strict=True))
    return left + right


def total(results: Iterator[T], combine: Callable[[T, T], T] = add) -> T:
    """Add or combine statistics in the order in which they arrive."""
    result = next(results)
    for item in results:
        result = combine(result, item)
    return result

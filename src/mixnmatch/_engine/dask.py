"""Dask arrays as tables of rows: a pass is one graph of chunk statistics, reduced as a tree.

Nothing here imports Dask before a user has: what is not loaded cannot be the type of an array that comes in.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import numpy as np

from mixnmatch._engine.fitting import part_of_pass
from mixnmatch._engine.passes import asked_block_bytes, engine, total
from mixnmatch._engine.shared import single_threaded_blas

T = TypeVar("T")
# Statistics that a task of the tree adds up.
BRANCHES = 8
# What a pass needs to know goes along with each of its tasks up to so many bytes, and else once to each worker.
SMALL_JOB = 1 << 14
# Statistics come with their arguments, once for each pass: Dask warns of graphs larger than this.
LARGE_GRAPH = "4 GiB"


def is_dask(array: Any) -> bool:
    """Whether this is a Dask array."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(array, module.Array)


def known_rows(array: Any) -> Any:
    """Return the array with known chunk sizes, computed if necessary; the user's array is not changed."""
    if not np.isnan(array.shape[0]):
        return array
    array = array.copy()
    array.compute_chunk_sizes()
    return array


def one_class_chunk(table: Any) -> Any:
    """The table with all classes of a row in one chunk."""
    return table if table.ndim == 1 or table.numblocks[1] == 1 else table.rechunk({1: -1})


def rows_like(vector: Any, table: Any) -> Any:
    """Return a vector in the row chunks of a table.

    A NumPy vector is put on the cluster once, so that passes do not carry it along.
    """
    import dask.array as da

    if is_dask(vector):
        return vector if vector.chunks[0] == table.chunks[0] else vector.rechunk({0: table.chunks[0]})
    made = da.from_array(vector, chunks=(table.chunks[0], *vector.shape[1:]))
    return made.persist() if vector.ndim == 1 else made


def reduce_chunks(work: Callable[..., T], arrays: Sequence[Any], *args: Any, combine: Callable[[T, T], T]) -> T:
    """``work(start, chunks, *args)`` for all chunks of rows of parallel arrays, combined as a tree in row order.

    ``start`` is the first row of a chunk. Only what ``work`` returns travels: reading a chunk and working on it are one
    task. Chunks without rows are left out.
    """
    from uuid import uuid4

    import dask
    import dask.array as da
    from dask.array.optimization import optimize
    from dask.delayed import Delayed, delayed
    from dask.highlevelgraph import HighLevelGraph

    rows = arrays[0].chunks[0]
    token = uuid4().hex
    job: Any = _Job(work, args, rows)
    if _size(args) > SMALL_JOB:
        job = delayed(job, name=f"mixnmatch-job-{token}", traverse=False)
    pairs = [part for array in arrays for part in (array, "ij"[: array.ndim])]
    # The classes, in one chunk, stay an axis: Dask does not fuse what is contracted.
    axes = max(("ij"[: array.ndim] for array in arrays), key=len)
    leaves = da.blockwise(
        _leaf, axes, _numbers(rows), "i", job, None, *pairs,
        name=f"mixnmatch-{getattr(work, '__name__', 'pass')}-{token}",
        dtype=object, meta=np.empty((0,) * len(axes), dtype=object), align_arrays=False,
    )  # fmt: skip
    root = f"mixnmatch-total-{token}"
    own: list[Any] = [(leaves.name, k, *(0 for _ in axes[1:])) for k, size in enumerate(rows) if size]
    keys = own
    layer: dict[Any, Any] = {}
    while len(keys) > BRANCHES:
        groups = [keys[k : k + BRANCHES] for k in range(0, len(keys), BRANCHES)]
        keys = [(root, len(layer), k) for k in range(len(groups))]
        layer.update({key: (_fold, group, combine) for key, group in zip(keys, groups, strict=True)})
    layer[root] = (_fold, keys, combine)
    layers = HighLevelGraph.from_collections(root, layer, dependencies=[leaves])
    with dask.config.set({"optimization.fuse.active": None}):  # whatever users have set: tasks of one form come out
        graph = _with_larger_leaves(optimize(layers, [root]), own)
    with _large_graphs_allowed():
        result: T = Delayed(root, graph).compute().value
    return result


def _with_larger_leaves(graph: Any, leaves: list[Any]) -> dict[Any, Any]:
    """The graph with each leaf and the tasks that nothing else needs in one task.

    Dask fuses chains, but not tasks with a second input, and keeps an alias for each chain. On a cluster every task
    takes its time, and a chunk may be sent to another worker for the next one. A task that alone needs several others,
    such as the parts of a larger chunk, leaves them apart: they can be made at the same time.
    """
    from dask._task_spec import Task

    tasks: dict[Any, Any] = dict(graph)
    uses = Counter(key for task in tasks.values() for key in task.dependencies)

    def own(key: Any) -> list[Any]:
        return [one for one in tasks[key].dependencies if one in tasks and uses[one] == 1]

    for leaf in leaves:
        if leaf not in tasks:  # a single one is fused with the sum
            continue
        found, waiting = [leaf], own(leaf)
        while waiting:
            key = waiting.pop()
            found.append(key)
            below = own(key)
            waiting += below if len(below) == 1 else []
        tasks[leaf] = Task.fuse(*(tasks.pop(key) for key in found), key=leaf)
    return tasks


def unless_error(found: Any) -> Any:
    """Return the result of a reduction; if it is an error, raise it in the client."""
    if isinstance(found, Exception):
        raise found
    return found


def _large_graphs_allowed() -> AbstractContextManager[Any]:
    """Disable Dask's warning about large graphs, if `distributed` is loaded."""
    import dask

    if "distributed" not in sys.modules:
        return nullcontext()
    allowed: AbstractContextManager[Any] = dask.config.set(
        {"distributed.admin.large-graph-warning-threshold": LARGE_GRAPH}
    )
    return allowed


class _Job:
    """Data shared by all tasks of a pass: function, arguments, starts of chunks and block size."""

    def __init__(self, work: Callable[..., Any], args: tuple[Any, ...], rows: tuple[int, ...]):
        self.work = work
        self.args = args
        self.starts = np.cumsum((0, *rows[:-1])).tolist()
        self.block_bytes = asked_block_bytes()

    def run(self, number: int, chunks: list[Any]) -> Any:
        """Process a chunk on one thread: Dask assigns the cores."""
        with engine(threads=1, block_bytes=self.block_bytes), single_threaded_blas(), part_of_pass():
            return self.work(self.starts[number], chunks, *self.args)


def _size(value: Any) -> int:
    """Total bytes of the arrays in the arguments of a pass, nested ones included."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, tuple | list):
        return sum(map(_size, value))
    return sum(map(_size, vars(value).values())) if hasattr(value, "__dict__") and not callable(value) else 0


class _Parcel:
    """A statistic on its way: sent in one piece, where Dask would send each of its many small arrays on its own."""

    def __init__(self, value: Any):
        self.value = value

    def __sizeof__(self) -> int:  # what Dask believes that it takes in memory
        return object.__sizeof__(self) + _size(self.value)

    def __reduce__(self) -> tuple[Any, ...]:
        if "distributed" not in sys.modules:
            return _Parcel, (self.value,)
        from distributed.protocol.pickle import dumps

        return _opened, (dumps(self.value),)


def _opened(content: bytes) -> _Parcel:
    # Reads only what the cluster's own workers send, over the channel that Dask uses for results.
    from distributed.protocol.pickle import loads

    return _Parcel(loads(content))


def _leaf(number: int, job: _Job, *chunks: Any) -> _Parcel:
    return _Parcel(job.run(number, list(chunks)))


def _numbers(rows: tuple[int, ...]) -> Any:
    """The number of each chunk of rows, as an argument of a blockwise operation."""
    from dask.layers import ArrayBlockwiseDep

    class Numbers(ArrayBlockwiseDep):  # type: ignore[misc]
        def __getitem__(self, index: tuple[int, ...]) -> int:
            return index[0]

    return Numbers(chunks=(rows,))


def _fold(parts: list[_Parcel], combine: Callable[[Any, Any], Any]) -> _Parcel:
    return _Parcel(total((part.value for part in parts), combine))


def map_chunks(work: Callable[..., Any], table: Any, *args: Any, n_columns: int | None, dtype: Any) -> Any:
    """The lazy array of ``work(chunk, first, *args)`` for all chunks of rows, ``n_columns`` wide (None: a vector).

    ``first`` says where a chunk is: its first row, or its number in words while the sizes of chunks are not known.
    """
    from uuid import uuid4

    import dask.array as da

    rows = table.chunks[0]
    known = not np.isnan(table.shape[0])
    starts: list[Any] = np.cumsum((0, *rows[:-1])).tolist() if known else [f"chunk {k}" for k in range(len(rows))]
    axes: dict[str, Any] = {} if table.ndim == 1 and n_columns is None else {"chunks": (rows, (n_columns,))}
    if table.ndim == 1 and n_columns is not None:
        axes["new_axis"] = 1
    if table.ndim == 2 and n_columns is None:
        axes = {"drop_axis": 1}
    return da.map_blocks(
        _mapped, table, work=work, starts=starts, args=args, dtype=dtype,
        meta=np.empty((0,) * (1 if n_columns is None else 2), dtype=dtype),
        name=f"mixnmatch-{work.__name__.strip('_')}-{uuid4().hex}", **axes,
    )  # fmt: skip


def _mapped(
    chunk: Any, work: Callable[..., Any], starts: list[Any], args: tuple[Any, ...], block_id: tuple[int, ...]
) -> Any:
    with engine(threads=1), single_threaded_blas():
        return work(chunk, starts[block_id[0]], *args)

"""How long fits take on two workers of Dask, beside one process, on the same memory-mapped file.

Run ``python benchmarks/dask_workers.py``. Both sides have two threads in all: the process two, each worker one. Times
are the best of several fits, in turn, once the file is in the cache of the system and the workers have imported what
they need. Of each fit it prints seconds and, in brackets, processor seconds: those of the workers, and those of client
and scheduler. "Same graph" is the fit by Dask in this process, without workers. ``--trim`` leaves the memory allocator
of the workers as Dask sets it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import cache
from pathlib import Path

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import mixnmatch as mm


def write_rows(path: Path, n: int, n_classes: int) -> np.ndarray:
    """Write simulated logits to a file, part by part, and return the labels."""
    rng = np.random.default_rng(0)
    table = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, n_classes))
    labels = rng.integers(0, n_classes, n)
    for start in range(0, n, 10_000):
        part = 2 * rng.standard_normal((min(10_000, n - start), n_classes), dtype=np.float32)
        part[np.arange(len(part)), labels[start : start + len(part)]] += 6
        table[start : start + len(part)] = part
    table.flush()
    return labels


@cache
def opened(path: str) -> np.ndarray:
    """The file, mapped into memory once in each worker: a new mapping would have to be filled page by page."""
    return np.load(path, mmap_mode="r")


def read_part(path: str, start: int, stop: int) -> np.ndarray:
    """Some rows of the file; nothing is copied."""
    return opened(path)[start:stop]


def as_dask(path: Path, n: int, n_classes: int, rows: int) -> da.Array:
    """The file as a Dask array whose chunks each worker maps into memory itself."""
    read = dask.delayed(read_part)
    parts = [
        da.from_delayed(read(str(path), start, min(start + rows, n)), (min(rows, n - start), n_classes), np.float32)
        for start in range(0, n, rows)
    ]
    return da.concatenate(parts)


def processor_seconds() -> float:
    """Processor seconds of this process so far."""
    return time.process_time()


def main() -> None:
    """Print one line for each map."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--maps", nargs="+", default=["ts", "ets", "irm"])
    parser.add_argument("--trim", action="store_true")
    args = parser.parse_args()
    # Setting one threshold switches off that glibc adapts the other: then every array above 128 kB is fresh memory.
    allocator = {"MALLOC_TRIM_THRESHOLD_": 2**28, "MALLOC_MMAP_THRESHOLD_": 2**25}
    spawn = {f"distributed.nanny.pre-spawn-environ.{name}": size for name, size in allocator.items()}
    mm.engine(threads=2).set_default()
    settings = dask.config.set({} if args.trim else spawn)
    with tempfile.TemporaryDirectory() as folder, settings:
        path = Path(folder, "logits.npy")
        labels = write_rows(path, args.rows, args.classes)
        table = np.load(path, mmap_mode="r")
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
        with cluster, Client(cluster) as client:
            rows = as_dask(path, args.rows, args.classes, -(-args.rows // args.chunks))
            print(f"{args.rows} x {args.classes} in {args.chunks} chunks; seconds (and processor seconds)")
            for name in args.maps:
                map_ = mm.calibrator(name, logits=True)
                best = {"one": (np.inf, 0.0, 0.0), "two": (np.inf, 0.0, 0.0)}
                for _ in range(args.rounds):
                    for who, scores in (("one", table), ("two", rows)):
                        own, theirs = processor_seconds(), sum(client.run(processor_seconds).values())
                        start = time.perf_counter()
                        map_.fit(scores, labels)
                        took = time.perf_counter() - start
                        own, theirs = processor_seconds() - own, sum(client.run(processor_seconds).values()) - theirs
                        best[who] = min(best[who], (took, own, theirs))
                with dask.config.set(scheduler="synchronous"):
                    start = processor_seconds()
                    map_.fit(rows, labels)
                    graph = processor_seconds() - start
                (one, own, _), (two, client_cpu, workers) = best["one"], best["two"]
                print(
                    f"{name:<6} one process {one:6.2f} ({own:.2f})   two workers {two:6.2f} ({workers:.2f} + "
                    f"{client_cpu:.2f}), {two / one:.2f} times as long   same graph ({graph:.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""Fit maps and estimate an error on a file larger than the memory they may use, and time it beside a plain read.

    python benchmarks/out_of_core.py FOLDER [--gigabytes 10.8] [--classes 1000] [--limit 2] [--csv FILE] [--plot FILE]

makes a float32 file of logits in FOLDER (deleted at the end), then for each task starts a process of its own whose
memory (RLIMIT_DATA: everything that is not a file) is limited, takes the file out of the page cache, and prints
seconds, passes over the file, gigabytes a second and the peak of anonymous memory (looked at fifty times a second).
A plain read of the file, and one that only adds up all numbers of the mapping, stand beside. Before that, each task
runs on the first eighth and the first third of the rows, cached: the slope of log processor time of a pass against log
rows over the three sizes is 1 where cost is linear.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import mmap
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

READS = ("read", "read again", "sum")
TASKS = ("ts", "ets", "irm", "kde-ece")
SHARES = (1 / 8, 1 / 3)  # of the rows, besides all of them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=10.8)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=2.0, help="gigabytes of memory that a task may use")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    scores, labels = asked.folder / "out_of_core_logits.npy", asked.folder / "out_of_core_labels.npy"
    if asked.task:
        print(json.dumps(run(asked.task, scores, labels, asked.rows, asked.limit)))
        return
    rows = int(asked.gigabytes * 1e9 / 4 / asked.classes)
    load = round(os.getloadavg()[0], 2)
    print(f"load average at the start: {load}, {len(os.sched_getaffinity(0))} cores", flush=True)
    try:
        write(scores, labels, rows, asked.classes)
        found = []
        for task in (*READS, *TASKS):
            parts = () if task in READS else SHARES
            found += [in_new_process(task, asked, int(rows * share), cold=False) for share in parts]
            found.append(in_new_process(task, asked, rows, cold=task != "read again"))
    finally:
        scores.unlink(missing_ok=True)
        labels.unlink(missing_ok=True)
    slopes = {task: slope([row for row in found if row["task"] == task]) for task in TASKS}
    for task, value in slopes.items():
        print(f"{task}: processor time of a pass grows as rows to the power {value:.2f}")
    if asked.csv:
        with asked.csv.open("w", newline="") as file:
            table = csv.DictWriter(file, fieldnames=[*found[0], "load at start"])
            table.writeheader()
            table.writerows({**row, "load at start": load} for row in found)
    if asked.plot:
        plot(found, slopes, asked.plot)


def slope(found: list[dict]) -> float:
    """Of log processor time of a pass (an iterative fit may take one more) against log rows."""
    seconds = [row["processor seconds"] / row["passes"] for row in found]
    return float(np.polyfit(np.log([row["rows"] for row in found]), np.log(seconds), 1)[0])


def plot(found: list[dict], slopes: dict[str, float], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(6, 4), constrained_layout=True)
    for task, value in slopes.items():
        mine = [row for row in found if row["task"] == task]
        seconds = [row["processor seconds"] / row["passes"] for row in mine]
        ax.plot([row["rows"] for row in mine], seconds, "o-", label=f"{task}, slope {value:.2f}")
    ax.set(xscale="log", yscale="log", xlabel="rows", ylabel="processor seconds of a pass")
    ax.legend()
    figure.savefig(path)


def write(scores: Path, labels: Path, rows: int, classes: int) -> None:
    """Over-confident logits: the label's one is raised, and all are too far apart."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, rows)
    np.save(labels, y)
    out = np.lib.format.open_memmap(scores, mode="w+", dtype=np.float32, shape=(rows, classes))
    header = out.offset
    del out
    with scores.open("r+b") as file:
        file.seek(header)
        step = max(1, (1 << 26) // (4 * classes))
        for start in range(0, rows, step):
            part = rng.standard_normal((min(step, rows - start), classes), dtype=np.float32)
            part[np.arange(len(part)), y[start : start + step]] += 4
            part *= 1.7
            file.write(part)
        file.flush()
        os.fsync(file.fileno())


def drop_from_cache(path: Path) -> None:
    """Ask the system to forget what it has read of a file; what is on disk already can be forgotten."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_share(path: Path) -> float:
    """How much of a file is in the page cache."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as table:
        pages = -(-len(table) // mmap.PAGESIZE)
        there = (ctypes.c_ubyte * pages)()
        first = ctypes.c_char.from_buffer(table)
        ctypes.CDLL(None).mincore(ctypes.byref(first), ctypes.c_size_t(len(table)), there)
        del first
        return float(np.mean(np.frombuffer(there, np.uint8) & 1))


def in_new_process(task: str, asked: argparse.Namespace, rows: int, *, cold: bool) -> dict[str, object]:
    path = asked.folder / "out_of_core_logits.npy"
    if cold:
        drop_from_cache(path)
    cached = round(cached_share(path), 2)
    arguments = [str(asked.folder), "--task", task, "--rows", str(rows), "--limit", str(asked.limit)]
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    found = {"task": task, "rows": rows, "cached before": cached, **json.loads(done.stdout)}
    print(
        f"{task:10} {found['GB']:5.1f} GB, {cached:4.0%} cached  {found['seconds']:6.1f} s, {found['passes']:2} passes "
        f"first pass {found['first pass GB/s']:5.2f} GB/s  all {found['GB/s']:5.2f} GB/s  "
        f"a core {found['CPU GB/s']:5.2f} GB/s  anonymous {found['anonymous MB']:5.0f} MB  {found['result']}",
        flush=True,
    )
    return found


def run(task: str, scores: Path, labels: Path, rows: int, limit: float) -> dict[str, object]:
    """One task, under the limit."""
    size = int(limit * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    table, y = np.load(scores, mmap_mode="r")[:rows], np.load(labels)[:rows]
    if task in TASKS:
        few = np.random.default_rng(0).standard_normal((2000, 1000), dtype=np.float32)
        work(task, few, np.arange(2000) % 1000)  # load what is loaded late
    passes = count_passes(rows)
    memory = PeakAnonymous()
    began, processor = time.perf_counter(), time.process_time()
    if task in TASKS:
        result, ends = work(task, table, y), passes
    else:
        result = plain_sum(table) if task == "sum" else plain_read(scores)
        ends = [time.perf_counter()]
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    gigabytes = table.nbytes / 1e9
    return {
        "GB": round(gigabytes, 2),
        "limit GB": limit,
        "seconds": round(seconds, 2),
        "processor seconds": round(processor, 2),
        "passes": len(ends),
        "first pass GB/s": round(gigabytes / (ends[0] - began), 3),
        "GB/s": round(gigabytes * len(ends) / seconds, 3),
        "CPU GB/s": round(gigabytes * len(ends) / processor, 3),
        "anonymous MB": round(memory.peak / 1e6, 1),
        "result": result,
    }


def work(task: str, table: np.ndarray, y: np.ndarray) -> str:
    """Do it, and say in a number what came out."""
    import mixnmatch as mm

    if task == "kde-ece":
        return f"{float(mm.calibration_error(table, y, logits=True)):.5f}"
    fitted = mm.calibrator(task, logits=True).fit(table, y)
    return f"{len(fitted.map_.knots_)} knots" if task == "irm" else f"beta {fitted.beta_:.5f}"


def count_passes(n_rows: int) -> list[float]:
    """Note when each pass over all rows ends, without changing what it does."""
    from mixnmatch._engine import rows, scores

    ends: list[float] = []

    def noting(run_blocks):
        def run(work, ranges):
            yield from run_blocks(work, ranges)
            if ranges[-1][1] == n_rows:
                ends.append(time.perf_counter())

        return run

    for module in (rows, scores):
        module.run_blocks = noting(module.run_blocks)
    return ends


def plain_read(path: Path) -> str:
    buffer, total = bytearray(1 << 23), 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            total += count
    return f"{total / 1e9:.2f} GB"


def plain_sum(table: np.ndarray) -> str:
    """One thread adds up the mapping: what page faults and memory allow."""
    step = max(1, (1 << 21) // table[0].nbytes)
    return f"{sum(float(table[k : k + step].sum()) for k in range(0, len(table), step)):.1f}"


class PeakAnonymous(threading.Thread):
    """The largest amount of memory that is not a file's, looked at fifty times a second."""

    def __init__(self) -> None:
        """Start to look."""
        super().__init__(daemon=True)
        self.peak = 0
        self.start()

    def run(self) -> None:
        """Look for as long as the process lives."""
        while True:
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    self.peak = max(self.peak, int(line.split()[1]) * 1024)
            time.sleep(0.02)


if __name__ == "__main__":
    main()

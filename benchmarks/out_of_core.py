"""Fit maps and estimate an error on a file larger than the memory they may use, and time it beside a plain read.

    python benchmarks/out_of_core.py FOLDER [--gigabytes 10.8] [--classes 1000] [--limit 2] [--csv FILE]

makes a float32 file of logits in FOLDER (deleted at the end), then for each task starts a process of its own whose
memory (RLIMIT_DATA: everything that is not a file) is limited, drops the page cache where that is allowed, and prints
seconds, passes over the file, gigabytes a second and the peak of anonymous memory. A plain read of the file, and one
that only adds up all numbers of the mapping, stand beside.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

TASKS = ("read", "read again", "sum", "ts", "ets", "irm", "kde-ece")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=10.8)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=2.0, help="gigabytes of memory that a task may use")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    scores, labels = asked.folder / "out_of_core_logits.npy", asked.folder / "out_of_core_labels.npy"
    if asked.task:
        print(json.dumps(run(asked.task, scores, labels, asked.limit)))
        return
    rows = int(asked.gigabytes * 1e9 / 4 / asked.classes)
    try:
        write(scores, labels, rows, asked.classes)
        found = [in_new_process(task, asked) for task in TASKS]
    finally:
        scores.unlink(missing_ok=True)
        labels.unlink(missing_ok=True)
    if asked.csv:
        with asked.csv.open("w", newline="") as file:
            table = csv.DictWriter(file, fieldnames=list(found[0]))
            table.writeheader()
            table.writerows(found)


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


def drop_page_cache() -> bool:
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1")
    except OSError:
        return False
    return True


def in_new_process(task: str, asked: argparse.Namespace) -> dict[str, object]:
    cold = task != "read again" and drop_page_cache()
    arguments = [str(asked.folder), "--task", task, "--limit", str(asked.limit)]
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    found = {"task": task, "file": "on disk" if cold else "cached", **json.loads(done.stdout)}
    print(
        f"{task:10} {found['file']:8} {found['seconds']:8.1f} s  {found['passes']:3} passes  "
        f"first pass {found['first pass GB/s']:5.2f} GB/s  all {found['GB/s']:5.2f} GB/s  "
        f"a core {found['CPU GB/s']:5.2f} GB/s  "
        f"anonymous {found['anonymous MB']:6.0f} MB  {found['result']}",
        flush=True,
    )
    return found


def run(task: str, scores: Path, labels: Path, limit: float) -> dict[str, object]:
    """One task, under the limit."""
    import mixnmatch as mm

    size = int(limit * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    table, y = np.load(scores, mmap_mode="r"), np.load(labels)
    passes = count_passes(table.shape[0])
    memory = PeakAnonymous()
    began, processor = time.perf_counter(), time.process_time()
    if task in ("read", "read again"):
        result, ends = plain_read(scores), [time.perf_counter()]
    elif task == "sum":
        result, ends = plain_sum(table), [time.perf_counter()]
    else:
        if task == "kde-ece":
            result = f"{float(mm.calibration_error(table, y, logits=True)):.5f}"
        else:
            fitted = mm.calibrator(task, logits=True).fit(table, y)
            result = f"{getattr(fitted, 'beta_', np.nan):.5f}"
        ends = passes
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    gigabytes = table.nbytes / 1e9
    return {
        "GB": round(gigabytes, 2),
        "limit GB": limit,
        "seconds": round(seconds, 2),
        "passes": len(ends),
        "first pass GB/s": round(gigabytes / (ends[0] - began), 3),
        "GB/s": round(gigabytes * len(ends) / seconds, 3),
        "CPU GB/s": round(gigabytes * len(ends) / processor, 3),
        "anonymous MB": round(memory.peak / 1e6, 1),
        "result": result,
    }


def count_passes(n_rows: int) -> list[float]:
    """Note when each pass over all rows ends, without changing what it does."""
    from mixnmatch import _rows, _scores

    ends: list[float] = []

    def noting(run_blocks):
        def run(work, ranges):
            yield from run_blocks(work, ranges)
            if ranges[-1][1] == n_rows:
                ends.append(time.perf_counter())

        return run

    for module in (_rows, _scores):
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

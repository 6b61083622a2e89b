"""Time and memory of a fit and of an estimate against rows and classes, on one and two Dask workers.

    python benchmarks/scaling.py FOLDER [--csv FILE] [--plot FILE] [--quick]

Tables of float32 logits are written to FOLDER (and deleted again); workers, processes of one thread, map them. The
first sweep has 1000 classes and ever more rows, the second a fixed number of entries in ever more classes, up to a
language model's vocabulary. Printed are seconds, seconds of processor time of all workers together, the largest peak
of a worker's own memory (its files not counted), and the slope of log processor time against log entries: 1 is linear.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import mixnmatch as mm

CLASSES = 1000
ROWS = (12_500, 25_000, 50_000, 100_000)
ENTRIES = 30_000_000
MANY_CLASSES = (10, 100, 1000, 10_000, 150_000)
CHUNK_BYTES = 1 << 25
WORKERS = (1, 2)
FIELDS = ("sweep", "workers", "rows", "classes", "task", "seconds", "processor seconds", "worker MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    asked = parser.parse_args()
    less = 10 if asked.quick else 1
    shapes = [("rows", rows // less, CLASSES) for rows in ROWS]
    shapes += [("classes", ENTRIES // less // classes, classes) for classes in MANY_CLASSES]
    found = []
    for sweep, rows, classes in shapes:
        path = asked.folder / "scaling_logits.npy"
        try:
            labels = write(path, rows, classes)
            for workers in WORKERS:
                found += [{"sweep": sweep, **row} for row in measure(path, labels, workers)]
                for row in found[-2:]:
                    print("  ".join(f"{name} {row[name]}" for name in FIELDS), flush=True)
        finally:
            path.unlink(missing_ok=True)
    report_slopes(found)
    if asked.csv:
        with asked.csv.open("w", newline="") as file:
            table = csv.DictWriter(file, fieldnames=FIELDS)
            table.writeheader()
            table.writerows(found)
    if asked.plot:
        plot(found, asked.plot)


def write(path: Path, rows: int, classes: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, rows)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, classes))
    step = max(1, CHUNK_BYTES // (4 * classes))
    for start in range(0, rows, step):
        part = rng.standard_normal((min(step, rows - start), classes), dtype=np.float32)
        part[np.arange(len(part)), labels[start : start + step]] += 4
        out[start : start + step] = part
    out.flush()
    return labels


def open_rows(path: Path) -> da.Array:
    """The file as a Dask array whose chunks workers map by themselves."""
    table = np.load(path, mmap_mode="r")
    step = max(1, CHUNK_BYTES // table[0].nbytes)
    rows = tuple(min(step, len(table) - start) for start in range(0, len(table), step))

    def read(block_info):
        start, stop = block_info[None]["array-location"][0]
        return np.load(path, mmap_mode="r")[start:stop]

    meta = np.empty((0, 0), dtype=np.float32)
    return da.map_blocks(read, chunks=(rows, (table.shape[1],)), dtype=np.float32, meta=meta)


def measure(path: Path, labels: np.ndarray, workers: int) -> list[dict[str, object]]:
    tasks = {
        "fit ts": lambda scores: mm.calibrator("ts", logits=True).fit(scores, labels),
        "kde-ece": lambda scores: mm.calibration_error(scores, labels, logits=True),
    }
    found = []
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster.scheduler_address) as client,
    ):
        scores = open_rows(path)
        warm_up(client, scores)
        for name, task in tasks.items():
            before, began = sum(client.run(time.process_time).values()), time.perf_counter()
            task(scores)
            seconds = time.perf_counter() - began
            processor = sum(client.run(time.process_time).values()) - before
            memory = max(client.run(own_memory).values())
            rows, classes = scores.shape
            values = (workers, rows, classes, name, round(seconds, 2), round(processor, 2), round(memory / 1e6))
            found.append(dict(zip(FIELDS[1:], values, strict=True)))
    return found


def warm_up(client: Client, scores: da.Array) -> None:
    """Load the library, compiled kernels and the file into memory on every worker."""

    def load() -> None:
        mm.calibrator("ts", logits=True).fit(np.eye(8, dtype=np.float32).repeat(200_000, 0), np.arange(1_600_000) % 8)

    client.run(load)
    scores.max().compute()


def own_memory() -> int:
    """Anonymous memory of this process: what is resident and not a file."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(fields["RssAnon"].split()[0]) * 1024


def report_slopes(found: list[dict]) -> None:
    for task in ("fit ts", "kde-ece"):
        for workers in WORKERS:
            rows = [r for r in found if r["sweep"] == "rows" and r["task"] == task and r["workers"] == workers][1:]
            x, y = (np.log([r[name] for r in rows]) for name in ("rows", "processor seconds"))
            slope = np.polyfit(x, y, 1)[0]
            print(f"{task}, {workers} worker(s): processor time grows as rows to the power {slope:.2f}")


def plot(found: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(12, 6.5), constrained_layout=True)
    for row, (sweep, text) in enumerate((("rows", f"{CLASSES} classes"), ("classes", "rows x classes fixed"))):
        for ax, column in zip(axes[row], ("seconds", "processor seconds", "worker MB"), strict=True):
            for task, marker in (("fit ts", "o"), ("kde-ece", "s")):
                for workers, line in zip(WORKERS, ("--", "-"), strict=True):
                    mine = [r for r in found if (r["sweep"], r["task"], r["workers"]) == (sweep, task, workers)]
                    label = f"{task}, {workers} worker{'s' if workers > 1 else ''}"
                    ax.plot([r[sweep] for r in mine], [r[column] for r in mine], line, marker=marker, label=label)
            ax.set(xscale="log", xlabel=sweep, title=f"{column} ({text})")
            ax.set_ylim(bottom=0) if column == "worker MB" or sweep == "classes" else ax.set_yscale("log")
    axes[0, 0].legend(fontsize=8)
    figure.savefig(path)


if __name__ == "__main__":
    main()

"""Time and memory of fits and of an estimate against rows and classes, on one and two Dask workers.

    python benchmarks/scaling.py FOLDER [--csv FILE] [--plot FILE] [--quick]

Tables of float32 logits are written to FOLDER (4.4 GB, deleted again); workers, processes of one thread, read them in
chunks. The first sweep has 1000 classes and ever more rows, the second a fixed number of entries in ever more classes,
up to a language model's vocabulary. Each task runs twice, and the cheaper run counts. Printed are seconds, seconds of
processor time of all workers together, the largest peak of a worker's memory (of all that is resident, as the kernel
has noted it since the task began) and what it had before, and the slopes of log processor time over the largest sizes:
against rows, where 1 is linear, and against classes, where 0 says that only the number of entries counts.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import mixnmatch as mm

CLASSES = 1000
ROWS = (25_000, 50_000, 100_000, 200_000, 400_000)
ENTRIES = 50_000_000
MANY_CLASSES = (10, 100, 1000, 10_000, 50_000, 150_000)
CHUNK_BYTES = 1 << 25
WORKERS = (1, 2)
REPEATS = 2
TASKS: dict[str, Callable] = {
    "fit ts": lambda scores, labels: mm.calibrator("ts", logits=True).fit(scores, labels),
    "fit ets": lambda scores, labels: mm.calibrator("ets", logits=True).fit(scores, labels),
    "fit irm": lambda scores, labels: mm.calibrator("irm", logits=True).fit(scores, labels),
    "kde-ece": lambda scores, labels: mm.calibration_error(scores, labels, logits=True),
}
MEASURED = ("seconds", "processor seconds", "worker MB", "worker MB before")
FIELDS = ("sweep", "workers", "rows", "classes", "task", *MEASURED, "load at start")
# What slopes of the cost should be, and how many of the largest sizes they are fitted to: in small tables what workers
# spend on being workers, and with few classes work on rows, would hide what an entry costs.
SWEEPS = {"rows": ("1 is linear", 3), "classes": ("0: entries count", 5)}


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
    paths = [asked.folder / f"scaling_{rows}_{classes}.npy" for _, rows, classes in shapes]
    load = round(os.getloadavg()[0], 2)
    print(f"load average at the start: {load}", flush=True)
    found = []
    try:
        for path, (_, rows, classes) in zip(paths, shapes, strict=True):
            write(path, rows, classes)
        for workers in WORKERS:
            with (
                LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
                Client(cluster) as client,
            ):
                client.run(warm_up)
                for path, (sweep, _, _) in zip(paths, shapes, strict=True):
                    for row in measure(client, path):
                        found.append({"sweep": sweep, "workers": workers, **row, "load at start": load})
                        print("  ".join(f"{name} {found[-1][name]}" for name in FIELDS[:-1]), flush=True)
    finally:
        for path in paths:
            path.unlink(missing_ok=True)
    slopes = fit_slopes(found)
    for (sweep, task, workers), value in slopes.items():
        print(f"{task}, {workers} worker(s): processor time grows as {sweep} to the power {value:.2f}")
    if asked.csv:
        with asked.csv.open("w", newline="") as file:
            table = csv.DictWriter(file, fieldnames=FIELDS)
            table.writeheader()
            table.writerows(found)
    if asked.plot:
        plot(found, slopes, asked.plot)


def labels_of(rows: int, classes: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, classes, rows)


def write(path: Path, rows: int, classes: int) -> None:
    if path.exists():  # both sweeps have it
        return
    rng, labels = np.random.default_rng(0), labels_of(rows, classes)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, classes))
    step = max(1, CHUNK_BYTES // (4 * classes))
    for start in range(0, rows, step):
        part = rng.standard_normal((min(step, rows - start), classes), dtype=np.float32)
        part[np.arange(len(part)), labels[start : start + step]] += 4
        out[start : start + step] = part
    out.flush()


def open_rows(path: Path) -> da.Array:
    """The file as a Dask array whose chunks workers read into memory of their own: mapped pages would count as used."""
    table = np.load(path, mmap_mode="r")
    n_rows, n_classes, header = *table.shape, table.offset
    step = max(1, CHUNK_BYTES // (4 * n_classes))
    rows = tuple(min(step, n_rows - start) for start in range(0, n_rows, step))

    def read(block_info):
        start, stop = block_info[None]["array-location"][0]
        place = {"count": (stop - start) * n_classes, "offset": header + 4 * start * n_classes}
        return np.fromfile(path, dtype=np.float32, **place).reshape(-1, n_classes)

    meta = np.empty((0, 0), dtype=np.float32)
    return da.map_blocks(read, chunks=(rows, (n_classes,)), dtype=np.float32, meta=meta)


def measure(client: Client, path: Path) -> list[dict[str, object]]:
    scores = open_rows(path)
    labels = labels_of(*scores.shape)
    scores.max().compute()  # from here on the file is cached
    found = []
    for name, task in TASKS.items():
        runs = [run_once(client, task, scores, labels) for _ in range(REPEATS)]
        rows, classes = scores.shape
        found.append(
            {"rows": rows, "classes": classes, "task": name, **min(runs, key=lambda r: r["processor seconds"])}
        )
    return found


def run_once(client: Client, task: Callable, scores: da.Array, labels: np.ndarray) -> dict[str, float]:
    before = client.run(forget_peak)
    spent, began = sum(client.run(time.process_time).values()), time.perf_counter()
    task(scores, labels)
    seconds = time.perf_counter() - began
    spent = sum(client.run(time.process_time).values()) - spent
    peak = client.run(peak_memory)
    values = seconds, spent, max(peak.values()) / 1e6, max(before.values()) / 1e6
    return {name: round(value, 2) for name, value in zip(MEASURED, values, strict=True)}


def warm_up() -> None:
    """Load the library and compiled kernels, which takes a table that is large enough for them."""
    labels = np.arange(200_000) % 8
    for task in TASKS.values():
        task(np.eye(8, dtype=np.float32)[labels], labels)


def forget_peak() -> int:
    """Start the kernel's note of this process's peak anew, and return what is resident now."""
    import gc

    gc.collect()
    with suppress(OSError):  # where it is not allowed, the peak is that since the process began
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def peak_memory() -> int:
    """The most that was ever resident of this process since :func:`forget_peak`."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return int(fields["VmHWM"].split()[0]) * 1024


def fit_slopes(found: list[dict]) -> dict[tuple[str, str, int], float]:
    """Slopes of log processor time, each by least squares over the largest sizes of a sweep."""
    slopes = {}
    for sweep, (_, largest) in SWEEPS.items():
        for task in TASKS:
            for workers in WORKERS:
                key = (sweep, task, workers)
                mine = [r for r in found if (r["sweep"], r["task"], r["workers"]) == key][-largest:]
                x, y = (np.log([r[name] for r in mine]) for name in (sweep, "processor seconds"))
                slopes[key] = float(np.polyfit(x, y, 1)[0])
    return slopes


def plot(found: list[dict], slopes: dict[tuple[str, str, int], float], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    figure, axes = plt.subplots(2, 3, figsize=(13, 8), constrained_layout=True)
    for row, (sweep, (ideal, _)) in enumerate(SWEEPS.items()):
        fixed = f"{CLASSES} classes" if sweep == "rows" else "rows x classes fixed"
        for ax, column in zip(axes[row], MEASURED, strict=False):
            for number, task in enumerate(TASKS):
                for workers, line in zip(WORKERS, ("--", "-"), strict=True):
                    key = (sweep, task, workers)
                    mine = [r for r in found if (r["sweep"], r["task"], r["workers"]) == key]
                    label = f"{task}, {workers} worker{'s' if workers > 1 else ''}, slope {slopes[key]:.2f}"
                    style = {"color": f"C{number}", "marker": "o", "label": label}
                    ax.plot([r[sweep] for r in mine], [r[column] for r in mine], line, **style)
            ax.set(xscale="log", xlabel=sweep, title=f"{column} ({fixed})")
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.set_ylim(bottom=0) if column == "worker MB" else ax.set_yscale("log")
        axes[row, 1].legend(fontsize=7, title=f"slope of processor time ({ideal})", title_fontsize=7)
    figure.savefig(path)


if __name__ == "__main__":
    main()

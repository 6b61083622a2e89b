"""Time and memory beside the peers: rounds over all jobs, ours and theirs in turn.

Each library gets a fresh process for each size and round (for each import one of its own); what a method leaves behind
is given back to the system before the next one is measured.
"""

from __future__ import annotations

import csv
import json
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from peers.adapters import all_methods
from peers.datasets import SIZES, speed_files
from peers.metrics import all_metrics
from peers.runner import library_version, run

IMPORTS = {
    "mixnmatch": "mixnmatch",
    "scikit-learn": "sklearn.calibration",
    "netcal": "netcal.scaling",
    "probmetrics": "probmetrics.calibrators",
    "torch-uncertainty": "torch_uncertainty.post_processing",
    "torchmetrics": "torchmetrics.classification",
    "relplot": "relplot",
    "KDEpy": "KDEpy",
    "betacal": "betacal",
    "venn-abers": "venn_abers",
    "MAPIE": "mapie.calibration",
}
COLUMNS = ("kind", "size", "twin", "library", "name", "version", "n", "first", "fit", "fit_memory", "apply",
           "apply_memory", "input", "value", "problem")  # fmt: skip
# Of these the median over rounds is taken.
MEASURED = ("first", "fit", "fit_memory", "apply", "apply_memory", "input", "value")


@dataclass(frozen=True)
class Job:
    """Something to measure: ``kind`` is "fit", "metric", "import" or "yardstick"; ``twin`` is what is compared."""

    kind: str
    size: str
    twin: str
    library: str
    name: str

    @property
    def key(self) -> str:
        """What the task calls it."""
        if self.kind == "import":
            return IMPORTS[self.library]
        return self.name if self.kind == "yardstick" else f"{self.library}: {self.name}"


def jobs(sizes: Iterable[str]) -> list[Job]:
    """Everything that both sides have, ours beside theirs, in the order of measuring."""
    made = [Job("yardstick", "", name, "numpy", name) for name in ("exp", "sort", "read")]
    made += [Job("import", "", "import", library, "import") for library in IMPORTS]
    for size in sizes:
        methods = [method for method in all_methods().values() if method.twin]
        metrics = [m for m in all_metrics().values() if not m.binary or SIZES[size][1] == 2]
        for kind, members in (("fit", methods), ("metric", metrics)):
            theirs = {member.twin for member in members if member.library != "mixnmatch"}
            made += [Job(kind, size, m.twin, m.library, m.name) for m in members if m.twin in theirs]
    return made


Results = dict[Job, list[dict[str, Any]]]


def hopeless(job: Job, found: Results, limit: float) -> str:
    """Why a job need not be tried: its library is missing, or the smaller problem told that it takes too long."""
    if job.kind != "yardstick" and not library_version(job.library):
        return "not installed"
    smaller = {"BIG": "INET", "C100": "C10"}.get(job.size)
    if smaller is None:
        return ""
    before = found.get(Job(job.kind, smaller, job.twin, job.library, job.name), [])
    factor = SIZES[job.size][0] * SIZES[job.size][1] / (SIZES[smaller][0] * SIZES[smaller][1])
    for result in before:
        if result["problem"]:
            return f'not run: {smaller} gave "{result["problem"]}"'
        # Half of what a linear growth would need: fits grow more slowly than that, never much faster.
        if (result["fit"] + result.get("apply", 0)) * factor / 2 > limit:
            return f"not run: {smaller} took {result['fit']:.0f} s to fit and {result.get('apply', 0):.0f} s to apply"
    return ""


def measure(cache: Path, sizes: list[str], *, repeats: int, minutes: float, limit: float) -> list[dict[str, Any]]:
    """Measure all jobs ``repeats`` times, or as often as ``minutes`` allow (each once in any case).

    Results are kept in the cache as they come; what is there for the installed versions is not measured again.
    """
    cache.mkdir(parents=True, exist_ok=True)
    log = cache / "speed.jsonl"
    todo = jobs(sizes)
    found = read_log(log, todo)
    for size in sizes:
        speed_files(cache, size)
    end = time.monotonic() + 60 * minutes
    for turn in range(repeats):
        wanted = [job for job in todo if len(found.get(job, [])) <= turn and not failed(found.get(job, []))]
        for _, group in groupby(wanted, key=process_of):
            if turn and time.monotonic() > end:
                break
            for job, result in measured(list(group), found, cache, limit):
                found.setdefault(job, []).append(result)
                with log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([identity(job), result]) + "\n")
                print(f"{turn + 1} {job.kind:<10}{job.size:<5}{job.library}: {job.name:<28}{shown(result)}", flush=True)
    return [summary(job, found[job]) for job in todo if found.get(job)]


def process_of(job: Job) -> tuple[str, str, str]:
    """Jobs of which this is the same share a process."""
    return job.kind, job.size, job.library


def measured(group: list[Job], found: Results, cache: Path, limit: float) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Results of the jobs of one library at one size, without those that need not be tried."""
    left = []
    for job in group:
        problem = hopeless(job, found, limit)
        if problem:
            yield job, {"problem": problem}
        else:
            left.append(job)
    task = {"kind": group[0].kind, "size": group[0].size, "cache": str(cache), "keys": [job.key for job in left]}
    yield from zip(left, run(task, limit), strict=True)


def failed(results: list[dict[str, Any]]) -> bool:
    """Whether any of the results is a failure; it is not tried again."""
    return any(result["problem"] for result in results)


def identity(job: Job) -> list[str]:
    """What a kept result is known by."""
    return [job.kind, job.size, job.twin, job.library, job.name, library_version(job.library)]


def read_log(log: Path, todo: list[Job]) -> Results:
    """Kept results of the installed versions."""
    wanted = {tuple(identity(job)): job for job in todo}
    found: Results = {}
    if log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            key, result = json.loads(line)
            if tuple(key) in wanted:
                found.setdefault(wanted[tuple(key)], []).append(result)
    return found


def summary(job: Job, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over rounds, as a row of the table."""
    row: dict[str, Any] = dict(zip(COLUMNS, identity(job), strict=False))
    row["problem"] = next((result["problem"] for result in results if result["problem"]), "")
    row["n"] = len(results)
    for column in MEASURED:
        values = [result[column] for result in results if result.get(column) is not None]
        row[column] = statistics.median(values) if values else ""
    return row


def rounds(rows: list[dict[str, Any]]) -> str:
    """How often jobs of each size were measured, those that went well."""
    counts: dict[str, list[int]] = {}
    for row in rows:
        if row["size"] and not row["problem"]:
            counts.setdefault(row["size"], []).append(row["n"])
    return ", ".join(f"{statistics.median_low(n)} of {size}" for size, n in counts.items())


def shown(result: dict[str, Any]) -> str:
    """A result in a few words."""
    if result["problem"]:
        return str(result["problem"])
    apply = f", apply {1e3 * result['apply']:.2f} ms" if result.get("apply") is not None else ""
    return f"{1e3 * result['fit']:10.2f} ms{apply}, {result['fit_memory'] / 2**20:.1f} MB"


def write(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)

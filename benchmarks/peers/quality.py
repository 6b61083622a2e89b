"""Quality beside the peers: every method of every library on every problem, kept as it comes."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from peers.adapters import Method, all_methods
from peers.datasets import Problem
from peers.runner import library_version, run
from peers.task import judge

COLUMNS = ("problem", "classes", "rows", "library", "method", "version", "preserving", "nll", "brier", "accuracy",
           "accuracy_change", "ece", "fit", "apply", "failure")  # fmt: skip
MEASURED = COLUMNS[COLUMNS.index("nll") : COLUMNS.index("failure")]


def judge_all(problems: Iterable[Path], cache: Path, *, libraries: list[str], limit: float) -> list[dict[str, Any]]:
    """Rows of the quality table; whatever is in the cache for the installed version of a library is not run again.

    With a limit of 0 nothing is run, and problems that are not judged in full yet are left out.
    """
    folder = cache / "quality"
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for path in problems:
        kept = folder / f"{path.stem}.json"
        results: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
        began = time.monotonic()
        for library, methods in by_library(libraries).items():
            found = library_version(library)
            todo = [m.key for m in methods if results.get(m.key, {}).get("version") != found]
            if not todo or not found:
                continue
            if limit == 0:
                results = {}
                break
            for result in run({"kind": "quality", "problem": str(path), "keys": todo}, limit):
                results[result["key"]] = result | {"version": found}
                kept.write_text(json.dumps(results, indent=0), encoding="utf-8")
        print(f"{path.stem}: {time.monotonic() - began:.0f} s", flush=True)
        rows += table_rows(Problem.load(path), results, libraries)
    return rows


def forget(cache: Path, library: str) -> None:
    """Drop what is kept of a library, so that it is judged again: needed after changes without a new version."""
    for kept in (cache / "quality").glob("*.json"):
        results = json.loads(kept.read_text(encoding="utf-8"))
        left = {key: result for key, result in results.items() if not key.startswith(f"{library}: ")}
        kept.write_text(json.dumps(left, indent=0), encoding="utf-8")


def take_from(table: Path, path: Path, cache: Path, again: str) -> bool:
    """Keep the results that a table has of a problem, but for methods like ``again``; whether that was possible.

    The problem has to be the same one: the uncalibrated scores must have the log loss and Brier score of the table.
    """
    problem = Problem.load(path)
    with table.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["problem"] == problem.name]
    same = [row for row in rows if (row["library"], row["method"]) == ("mixnmatch", "identity")]
    found = judge(all_methods()["mixnmatch: identity"], problem)
    if not same or any(abs(float(same[0][name]) - found[name]) > 1e-7 for name in ("nll", "brier")):
        return False
    kept = cache / "quality" / f"{path.stem}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for row in rows:
        key = f"{row['library']}: {row['method']}"
        if not fnmatch(key, again) and key not in results:
            numbers = {name: float(row[name]) for name in MEASURED if row[name]}
            results[key] = {"key": key, "problem": row["failure"], "version": row["version"]} | numbers
    kept.write_text(json.dumps(results, indent=0), encoding="utf-8")
    return True


def by_library(libraries: list[str]) -> dict[str, list[Method]]:
    """Methods grouped by library, those of the named libraries or of all."""
    grouped: dict[str, list[Method]] = {}
    for method in all_methods().values():
        if not libraries or method.library in libraries:
            grouped.setdefault(method.library, []).append(method)
    return grouped


def table_rows(problem: Problem, results: dict[str, Any], libraries: list[str]) -> list[dict[str, Any]]:
    """The results of one problem as rows."""
    rows = []
    for method in all_methods().values():
        result = results.get(method.key)
        if result is None or (libraries and method.library not in libraries):
            continue
        about = {"problem": problem.name, "classes": problem.scores.shape[1], "rows": len(problem.labels),
                 "library": method.library, "method": method.name, "version": result["version"],
                 "preserving": int(method.preserving), "failure": result["problem"]}  # fmt: skip
        measured = {column: result[column] for column in COLUMNS if column in result and column != "problem"}
        rows.append(about | measured)
    return rows


def write(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({k: f"{v:.8g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)

"""Every method on every problem and size of the calibration set, kept as it comes: one file for each problem."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatch
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from peers.datasets import Problem
from peers.runner import library_version, run
from peers.task import judge
from tabular.methods import methods
from tabular.problems import Name, sizes

# As in scikit-learn: with the smallest probabilities of naive Bayes, single samples would decide about means.
FLOOR = 1e-15
OURS = "mixnmatch"
# Jobs of one process: so many go into one command line.
BATCH = 500
# Path of the problem, size of the calibration set, key of the method.
Job = tuple[str, int, str]


@lru_cache(maxsize=1)
def loaded(path: str) -> Problem:
    """A problem, read once for the methods of a process."""
    return Problem.load(Path(path))


def judge_size(path: str, size: int, key: str) -> dict[str, Any]:
    """Quality of a method that was fitted to the first ``size`` samples of the calibration set."""
    problem = loaded(path)
    method = methods(Name.parse(problem.name).task)[key]
    part = replace(problem, scores=problem.scores[:size], labels=problem.labels[:size])
    return judge(method, part, FLOOR)


def source_digest() -> str:
    """A short digest of the sources of this package, by which results of different sources are told apart."""
    import mixnmatch

    root = Path(mixnmatch.__file__).parent
    digest = sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:8]


class Results:
    """What is known of each problem, in one JSON file for each in a folder: size, then method, then result."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, name: str) -> dict[str, dict[str, Any]]:
        """Results of a problem by size (as text) and method."""
        path = self.folder / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def write(self, name: str, results: dict[str, dict[str, Any]]) -> None:
        """Keep the results of a problem."""
        unfinished = self.folder / "unfinished"
        unfinished.write_text(json.dumps(results, indent=0), encoding="utf-8")
        unfinished.rename(self.folder / f"{name}.json")

    def add(self, name: str, size: int, key: str, result: dict[str, Any]) -> None:
        """Keep one more result."""
        results = self.read(name)
        results.setdefault(str(size), {})[key] = result
        self.write(name, results)

    def forget(self, pattern: str, half: str) -> None:
        """Drop the results of the methods whose key fits a pattern, so that they are judged again."""
        for path in self.folder.glob(f"{half}__*.json"):
            results = self.read(path.stem)
            left = {size: {k: r for k, r in found.items() if not fnmatch(k, pattern)}
                    for size, found in results.items()}  # fmt: skip
            self.write(path.stem, left)


def jobs(paths: Iterable[Path], results: Results, library: str) -> Iterator[Job]:
    """What is not known yet of a library in its installed version, problem by problem, small sizes first."""
    found = library_version(library)
    if not found:
        return
    for path in paths:
        name = Name.parse(path.stem)
        keys = [key for key, method in methods(name.task).items() if method.library == library]
        known = results.read(path.stem)
        for size in sizes(Problem.load(path).labels):
            have = known.get(str(size), {})
            yield from ((str(path.resolve()), size, key) for key in keys if have.get(key, {}).get("version") != found)


def judge_all(paths: Iterable[Path], results: Results, *, libraries: Iterable[str], limit: float) -> None:
    """Judge what is not known, one library after another, in one process as long as it keeps to the limit.

    A method that does not finish a problem within ``limit`` seconds of processor time is not tried on the larger
    calibration sets of that problem, and has failed there too.
    """
    paths = list(paths)
    for library in libraries:
        facts = {"version": library_version(library)}
        if library == OURS:
            facts["sources"] = source_digest()
        todo = list(jobs(paths, results, library))
        print(f"{library}: {len(todo)} fits", flush=True)
        while todo:
            for result in run({"kind": "tabular", "keys": todo[:BATCH]}, limit):
                path, size, key = result["key"]
                results.add(Path(path).stem, size, key, result | facts | {"key": key})
                todo.pop(0)
                if result["problem"].startswith("more than"):
                    hopeless = [job for job in todo if job[0] == path and job[2] == key]
                    for _, larger, _ in hopeless:
                        said = f"{result['problem']} on {size} samples already"
                        results.add(Path(path).stem, larger, key, {"key": key, "problem": said} | facts)
                    todo = [job for job in todo if job not in hopeless]
                    break


COLUMNS = ("problem", "size", "library", "method", "version", "nll", "brier", "ece", "accuracy", "fit", "apply",
           "failure")  # fmt: skip


def write_table(paths: Iterable[Path], results: Results, path: Path) -> None:
    """Write what is known of some problems to one table, a line for each result."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        for problem in paths:
            for size, found in results.read(problem.stem).items():
                for key, result in found.items():
                    library, method = key.split(": ", 1)
                    row = {"problem": problem.stem, "size": size, "library": library, "method": method}
                    numbers = {k: f"{v:.8g}" for k, v in result.items() if isinstance(v, float)}
                    writer.writerow(row | numbers | {"version": result["version"], "failure": result["problem"]})

"""Does ``auto`` do harm, and how long does it take? Prints the numbers of ``docs/results/auto.md``.

Three parts, each with the ``auto`` of the package that is imported::

    python benchmarks/auto_study.py calibrated --repetitions 20 [--map beta-shrunk]
    python benchmarks/auto_study.py problems FOLDER --half first --task binary --csv RESULTS.csv
    python benchmarks/auto_study.py times

``calibrated`` fits simulated scores that are calibrated already: nothing can be gained, so that every change is harm.
``problems`` fits all problems in a folder that ``tabular.problems`` has made, at several sizes of the calibration set,
and counts those whose test log loss is more than 1% above that of the scores as given. ``times`` fits simulated logits.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mixnmatch import calibrator
from mixnmatch._engine.errors import InputError
from mixnmatch.selection import candidates
from peers.datasets import Problem

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]
KINDS = {"two classes": 2, "two classes, 8% positives": 2, "three classes": 3, "ten classes": 10}
FEW = (15, 30, 50, 100, 200)
SIZES = (100, 300, 1000)
TEST = 20_000
# The log loss of everything is that of probabilities of at least this.
SMALLEST = 1e-15
HARM = 0.01
GROUPS = {
    (0, 100): "up to 100",
    (101, 300): "101 to 300",
    (301, 1000): "301 to 1000",
    (1001, np.inf): "more than 1000",
    (0, np.inf): "all",
}
SHAPES = ((1000, 2), (5000, 2), (1_000_000, 2), (5000, 10), (5000, 100))


def losses(p: NDArray, y: Labels) -> tuple[float, float]:
    """Log loss, and Brier score summed over the classes."""
    p = np.asarray(p, dtype=np.float64)
    at_label = p[np.arange(len(y)), y]
    return float(-np.log(np.maximum(at_label, SMALLEST)).mean()), float(
        (np.square(p).sum(axis=1) - 2 * at_label + 1).mean()
    )


def simulate(kind: str, n: int, rng: np.random.Generator) -> tuple[Floats, Labels]:
    """Calibrated probabilities and labels drawn from them."""
    logits = rng.normal(size=(n, KINDS[kind])) * np.sqrt(2.0)
    if "8%" in kind:
        logits[:, 1] -= 3.5
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return p, (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=p.shape[1] - 1)


def calibrated(repetitions: int, name: str, kinds: tuple[str, ...]) -> None:
    """What a map does to scores that are calibrated already."""
    print("| scores | samples | worse | more than 1% worse | mean | worst |\n|---|---|---|---|---|---|")
    for kind in kinds:
        for n in FEW:
            changes, relative = [], []
            for repetition in range(repetitions):
                rng = np.random.default_rng([repetition, n])
                p, y = simulate(kind, n, rng)
                new, new_y = simulate(kind, TEST, rng)
                given = losses(new, new_y)[0]
                change = losses(calibrator(name).fit(p, y).predict_proba(new), new_y)[0] - given
                changes.append(change)
                relative.append(change / given)
            worse, harm = np.mean(np.array(changes) > 1e-9), np.mean(np.array(relative) > HARM)
            print(
                f"| {kind} | {n} | {worse:.0%} | {harm:.0%} | {np.mean(changes):+.4f} | {max(changes):+.4f} |",
                flush=True,
            )


def sizes(labels: Labels) -> list[int]:
    """Sizes of the calibration set: those with at least two samples outside the largest class."""
    wanted = [*(size for size in SIZES if size <= 0.8 * len(labels)), len(labels)]
    return [size for size in wanted if np.sort(np.bincount(labels[:size]))[:-1].sum() >= 2]


def fits(folder: Path, half: str, task: str) -> Iterator[dict[str, object]]:
    """Test losses of ``auto`` and of the scores as given, for every problem and size."""
    for path in sorted(folder.glob(f"{half}__{task}__*.npz")):
        problem = Problem.load(path)
        given = losses(problem.new_scores, problem.new_labels)
        for size in sizes(problem.labels):
            start = time.perf_counter()
            try:
                fitted = calibrator("auto").fit(problem.scores[:size], problem.labels[:size])
            except InputError as error:
                print(f"{problem.name}, {size} samples: {error}")
                continue
            seconds = time.perf_counter() - start
            p = fitted.predict_proba(problem.new_scores)
            found = losses(p, problem.new_labels)
            yield {
                "problem": problem.name,
                "size": size,
                "nll": found[0],
                "brier": found[1],
                "id_nll": given[0],
                "id_brier": given[1],
                "reordered": int(reordered(problem.new_scores, p)),
                "fit": seconds,
            }


def reordered(before: NDArray, after: NDArray) -> bool:
    """Whether higher log-odds of the second class become a lower probability somewhere."""
    with np.errstate(divide="ignore"):
        odds = np.log(before[:, 1]) - np.log(before[:, 0])
    order = np.argsort(odds, kind="stable")
    distinct = np.diff(odds[order]) > 0
    return bool((np.diff(after[order, 1])[distinct] < -1e-9).any())


def tabular(folder: Path, half: str, task: str, output: Path | None) -> None:
    """How often ``auto`` does harm on tabular problems."""
    rows = []
    for row in fits(folder, half, task):
        rows.append(row)
        if output is not None:
            with output.open("w", newline="") as file:
                writer = csv.DictWriter(file, row)
                writer.writeheader()
                writer.writerows(rows)
    table = {key: np.array([row[key] for row in rows], dtype=float) for key in rows[0] if key != "problem"}
    columns = "samples | problems | harm | log loss | as given | Brier score | as given | order changed"
    print(f"| {columns} |\n|---|---|---|---|---|---|---|---|")
    for (low, high), name in GROUPS.items():
        chosen = (table["size"] >= low) & (table["size"] <= high)
        if not chosen.any():
            continue
        harm = np.mean(table["nll"][chosen] > (1 + HARM) * table["id_nll"][chosen])
        means = " | ".join(f"{table[key][chosen].mean():.4f}" for key in ("nll", "id_nll", "brier", "id_brier"))
        print(f"| {name} | {chosen.sum()} | {harm:.1%} | {means} | {table['reordered'][chosen].mean():.0%} |")


def times() -> None:
    """Processor seconds of a fit."""
    print("| samples | classes | processor seconds |\n|---|---|---|")
    for n, n_classes in SHAPES:
        rng = np.random.default_rng(0)
        logits = rng.normal(size=(n, n_classes)) * 1.5
        logits[np.arange(n), rng.integers(0, n_classes, n)] += 4
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=n_classes - 1)
        scores = 1.7 * logits + 0.3 * rng.normal(size=n_classes)
        taken = []
        for _ in range(3):
            start = time.process_time()
            calibrator("auto", logits=True).fit(scores, y)
            taken.append(time.process_time() - start)
        print(f"| {n} | {n_classes} | {min(taken):.2f} |", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    already = parts.add_parser("calibrated")
    already.add_argument("--repetitions", type=int, default=20)
    already.add_argument("--map", default="auto", help="short name of another map")
    already.add_argument("--scores", choices=KINDS, nargs="+", default=tuple(KINDS))
    problems = parts.add_parser("problems")
    problems.add_argument("folder", type=Path)
    problems.add_argument("--half", choices=("first", "second"), default="first")
    problems.add_argument("--task", choices=("binary", "multiclass"), default="binary")
    problems.add_argument("--csv", type=Path)
    problems.add_argument("--odds", type=float, help="odds from which on two classes may be reordered [default: 20]")
    parts.add_parser("times")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.part == "calibrated":
        calibrated(asked.repetitions, asked.map, tuple(asked.scores))
    elif asked.part == "problems":
        if asked.odds is not None:
            candidates.ODDS_AGAINST_ORDER = asked.odds
        tabular(asked.folder, asked.half, asked.task, asked.csv)
    else:
        times()


if __name__ == "__main__":
    main()

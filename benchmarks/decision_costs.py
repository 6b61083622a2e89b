"""Cost of decisions on test sets: calibrated probabilities and Bayes decisions against tuned thresholds.

Run `python benchmarks/decision_costs.py` to make docs/results/decisions.md and decisions.csv; `--pilot` runs on other
data, on which the calibration map was chosen.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.metaestimators import available_if

from mixnmatch import CalibratedClassifier
from mixnmatch.decisions import bayes_decisions

RESULTS = Path(__file__).parent.parent / "docs" / "results"
SIZES = (100, 200, 500)
# What is compared in the page; the pilot also tries other maps.
MAP = "platt"
PILOT_MAPS = ("platt", "beta", "svs", "ts")
MOST_TEST_SAMPLES = 2000
CLASSIFIERS: dict[str, Any] = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
    "naive Bayes": GaussianNB(),
    "random forest": RandomForestClassifier(50, random_state=0),
    "gradient boosting": HistGradientBoostingClassifier(max_iter=50, random_state=0),
    "support vectors": make_pipeline(StandardScaler(), SVC()),
}
Table = tuple[np.ndarray, np.ndarray]
METHODS = ("calibrated", "tuned threshold", "raw probabilities", "threshold 0.5")


def generated(positives: float, seed: int, separation: float = 1.0) -> Table:
    return make_classification(
        8000,
        20,
        n_informative=6,
        n_redundant=4,
        weights=[1 - positives],
        flip_y=0.01,
        class_sep=separation,
        random_state=seed,
    )


def one_digit(digit: int) -> Table:
    X, y = load_digits(return_X_y=True)
    return X, (y == digit).astype(int)


def bundled(load: Callable[..., Table], positive: int) -> Table:
    X, y = load(return_X_y=True)
    return X, (y == positive).astype(int)


DATA: dict[str, Callable[[], Table]] = {
    "breast cancer": lambda: bundled(load_breast_cancer, 0),
    "wine, class 1": lambda: bundled(load_wine, 1),
    "digit 8": lambda: one_digit(8),
    "digit 3": lambda: one_digit(3),
    "generated, 50%": lambda: generated(0.5, 11),
    "generated, 20%": lambda: generated(0.2, 12),
    "generated, 5%": lambda: generated(0.05, 13, 0.7),
    "generated, 2%": lambda: generated(0.02, 14),
}
PILOT_DATA: dict[str, Callable[[], Table]] = {
    "pilot, 30%": lambda: generated(0.3, 101, 0.8),
    "pilot, 10%": lambda: generated(0.1, 102),
    "pilot, 3%": lambda: generated(0.03, 103),
    "digit 5": lambda: one_digit(5),
}


def mark_of(*arrays: np.ndarray) -> tuple[int, ...]:
    return tuple(zlib.crc32(np.ascontiguousarray(array).tobytes()) for array in arrays)


@dataclass
class Fits:
    """Fitted classifiers and their outputs: no method computes again what another one has computed."""

    known: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def fit(self, name: str, X: np.ndarray, y: np.ndarray) -> Any:
        """The classifier of that name, fitted to the data."""
        key = name, *mark_of(X, y)
        if key not in self.known:
            self.known[key] = clone(CLASSIFIERS[name]).fit(X, y)
        return self.known[key]

    def output(self, fitted: Any, method: str, X: np.ndarray) -> np.ndarray:
        """What a method of a fitted classifier returns."""
        key = id(fitted), method, *mark_of(X)
        if key not in self.known:
            self.known[key] = getattr(fitted, method)(X)
        return self.known[key]


FITS = Fits()


def _has(method: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(CLASSIFIERS[self.name], method)


class Cached(ClassifierMixin, BaseEstimator):
    """A classifier of the list whose fits are kept."""

    def __init__(self, name: str):
        self.name = name

    def fit(self, X: np.ndarray, y: np.ndarray) -> Cached:
        """Fit, or take the fit of the same data."""
        self.inner_ = FITS.fit(self.name, X, y)
        self.classes_ = self.inner_.classes_
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Classes."""
        return FITS.output(self.inner_, "predict", X)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Probabilities."""
        return FITS.output(self.inner_, "predict_proba", X)

    @available_if(_has("decision_function"))
    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Scores."""
        return FITS.output(self.inner_, "decision_function", X)


def random_costs(rng: np.random.Generator) -> np.ndarray:
    """A random cost matrix: errors cost 1 to 100 on a logarithmic scale, right decisions up to a fifth of that."""
    errors = np.exp(rng.uniform(0, np.log(100), 2))
    right = rng.uniform(0, 0.2, 2) * errors[::-1]
    return np.array([[right[0], errors[0]], [errors[1], right[1]]])


def mean_cost(y: np.ndarray, decided: np.ndarray, costs: np.ndarray) -> float:
    return float(costs[y, decided].mean())


def tuned(name: str, train: Table, test: Table, costs: np.ndarray) -> np.ndarray:
    scoring = make_scorer(lambda y, decided: -mean_cost(y, decided, costs))
    try:
        found = TunedThresholdClassifierCV(Cached(name), scoring=scoring, cv=5).fit(*train)
    except ValueError as error:
        if "constant predictions" not in str(error):
            raise
        # It refuses classifiers whose scores are constant; the better constant decision on the training set stands in.
        options = [np.full(len(train[1]), decision) for decision in (0, 1)]
        best = int(np.argmin([mean_cost(train[1], decided, costs) for decided in options]))
        return np.full(len(test[1]), best)
    return found.predict(test[0])


def judged(name: str, train: Table, test: Table, all_costs: list[np.ndarray], maps: tuple[str, ...]) -> Iterator[dict]:
    """Costs of all methods for each cost matrix, each relative to the better constant decision."""
    model = FITS.fit(name, *train)
    probs = {"raw probabilities": model.predict_proba(test[0])} if hasattr(model, "predict_proba") else {}
    for each in maps:
        fitted = CalibratedClassifier(Cached(name), map=each, cv=5).fit(*train)
        probs["calibrated" if each == MAP else f"calibrated, {each}"] = fitted.predict_proba(test[0])
    half = model.predict(test[0])
    for costs in all_costs:
        decisions = {method: bayes_decisions(p, costs) for method, p in probs.items()}
        decisions |= {"tuned threshold": tuned(name, train, test, costs), "threshold 0.5": half}
        constant = min(mean_cost(test[1], np.full(len(test[1]), d), costs) for d in (0, 1))
        yield {method: mean_cost(test[1], decided, costs) / constant for method, decided in decisions.items()}


def run(data: dict[str, Callable[[], Table]], seeds: int, n_costs: int, maps: tuple[str, ...]) -> list[dict[str, Any]]:
    rows = []
    for number, (name, load) in enumerate(data.items()):
        X, y = load()
        for size in SIZES:
            if size > 0.75 * len(y):
                continue
            for seed in range(seeds):
                X_train, X_test, y_train, y_test = train_test_split(
                    X, y, train_size=size, stratify=y, random_state=seed
                )
                test = X_test[:MOST_TEST_SAMPLES], y_test[:MOST_TEST_SAMPLES]
                rng = np.random.default_rng([number, size, seed])
                all_costs = [random_costs(rng) for _ in range(n_costs)]
                for classifier in CLASSIFIERS:
                    FITS.known.clear()
                    for k, found in enumerate(judged(classifier, (X_train, y_train), test, all_costs, maps)):
                        about = {"data": name, "n": size, "seed": seed, "classifier": classifier, "costs": k}
                        rows.append(about | found)
        print(f"{name}: {len(rows)} rows", flush=True)
    return rows


def mean_of(rows: list[dict[str, Any]], method: str) -> float:
    values = [row[method] for row in rows if method in row]
    return float(np.mean(values)) if values else float("nan")


def difference(rows: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Tuned threshold minus calibrated: mean, standard error over training sets, and share of training sets won."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        key = row["data"], row["n"], row["seed"]
        groups.setdefault(key, []).append(row["tuned threshold"] - row["calibrated"])
    means = np.array([np.mean(values) for values in groups.values()])
    error = float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else float("nan")
    return float(means.mean()), error, float((means > 0).mean())


def table(rows: list[dict[str, Any]], by: str) -> list[str]:
    lines = [
        f"| {by} | {' | '.join(METHODS)} | tuned − calibrated | training sets won |",
        "|---|" + "---:|" * (len(METHODS) + 2),
    ]
    for value in [*dict.fromkeys(row[by] for row in rows), "all"]:
        part = rows if value == "all" else [row for row in rows if row[by] == value]
        gap, error, won = difference(part)
        cells = [f"{mean_of(part, method):.3f}" for method in METHODS]
        lines.append(f"| {value} | {' | '.join(cells)} | {gap:+.3f} ± {error:.3f} | {won:.0%} |".replace("nan", "–"))
    return lines


PAGE = """# Decisions: calibration against tuned thresholds

Mean cost of decisions on test sets, relative to the better of the two constant decisions (1: no better than deciding
without a model). Lower is better. Made by `python benchmarks/decision_costs.py`.

- **calibrated**: `CalibratedClassifier(classifier, map="{map}", cv=5)`, then `bayes_decisions(probabilities, costs)`.
  The classifier and the map are fitted once for all cost matrices.
- **tuned threshold**: scikit-learn's `TunedThresholdClassifierCV(classifier, scoring=negative mean cost, cv=5)`, tuned
  for each cost matrix. Where it refuses a classifier with constant scores, the better constant decision on the training
  set stands in.
- **raw probabilities**: `bayes_decisions` on the classifier's own `predict_proba` (not for support vectors, which have
  none).
- **threshold 0.5**: the classifier's own `predict`.

{n} samples in all for training and calibration, {seeds} draws of them, {costs} random cost matrices each: errors cost 1
to 100 on a logarithmic scale, right decisions up to a fifth of the error they avoid. Test sets are the samples left
over, {test} at most. The map was chosen on other data (`--pilot`), nothing on these. ± is a standard error over
training sets; a training set is won if the calibrated decisions cost less on average over classifiers and costs.

## By number of samples

{by_n}

## By classifier

{by_classifier}

## By data set

{by_data}

Costs for each data set, number of samples and classifier are in [decisions.csv](decisions.csv).
"""


def write(rows: list[dict[str, Any]], seeds: int, n_costs: int) -> None:
    texts = {f"by_{by}": "\n".join(table(rows, by)) for by in ("n", "classifier", "data")}
    numbers = {"n": " / ".join(map(str, SIZES)), "seeds": seeds, "costs": n_costs, "test": MOST_TEST_SAMPLES}
    (RESULTS / "decisions.md").write_text(PAGE.format(map=MAP, **numbers, **texts), encoding="utf-8")
    with (RESULTS / "decisions.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["data", "n", "classifier", *METHODS])
        for key in dict.fromkeys((row["data"], row["n"], row["classifier"]) for row in rows):
            part = [row for row in rows if (row["data"], row["n"], row["classifier"]) == key]
            out.writerow([*key, *(f"{mean_of(part, method):.5f}".replace("nan", "") for method in METHODS)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pilot", action="store_true", help="compare maps on other data; write nothing")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--costs", type=int, default=6)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # folds without a positive sample are part of the problem
    began = time.perf_counter()
    rows = run(PILOT_DATA if asked.pilot else DATA, asked.seeds, asked.costs, PILOT_MAPS if asked.pilot else (MAP,))
    if asked.pilot:
        methods = sorted({name for row in rows for name in row if isinstance(row[name], float)})
        for n in (*SIZES, None):
            part = [row for row in rows if n in (None, row["n"])]
            print(n, {method: round(mean_of(part, method), 4) for method in methods})
    else:
        write(rows, asked.seeds, asked.costs)
        print("\n".join(table(rows, "n")))
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

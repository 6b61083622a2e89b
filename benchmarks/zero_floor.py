"""What a probability of exactly 0 should be read as where a map takes logarithms: held-out log loss by rule.

Forests, naive Bayes and nearest neighbours give exact zeros. For each classifier and table, maps are fitted on a
calibration set and judged on held-out samples, with several rules for the floor, below which no probability is read:

    half        half of the smallest positive probability of the calibration set, at least 1e-37 (the library's rule)
    smallest    the smallest itself, at least 1e-37
    1e-X        half of the smallest, at least 1e-X
    1/(n+2)L    half of the smallest, at least 1 / ((n + 2) L) for n samples and L classes

    python benchmarks/zero_floor.py                          # scikit-learn's own tables, a few minutes
    python benchmarks/zero_floor.py FILE.npz [FILE.npz ...]  # and files with `probs` and `labels`

Printed for each map and rule: mean log loss on held-out samples (mean over classifiers, tables, calibration sizes and
repetitions); then, for held-out samples whose label has a probability of exactly 0, the mean and the largest cost in
nats.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np

import mixnmatch as mm
from mixnmatch._engine import block
from mixnmatch._engine.rows import Rows, _smallest_positive

MAPS = ("ts", "ets", "platt", "beta", "vector", "sms", "dirichlet", "iop")
SIZES = (50, 200, 1000)
REPEATS = 2
Rule = Callable[[float, float, int], float]


def at_least(least: float) -> Rule:
    return lambda smallest, n, classes: max(smallest / 2, least)


RULES: dict[str, Rule] = {
    "half": at_least(1e-37),
    "smallest": lambda smallest, n, classes: max(smallest, 1e-37),
    "1e-300": at_least(1e-300),
    "1e-20": at_least(1e-20),
    "1e-12": at_least(1e-12),
    "1e-6": at_least(1e-6),
    "1/(n+2)L": lambda smallest, n, classes: max(smallest / 2, 1 / ((n + 2) * classes)),
}


def set_rule(rule: Rule) -> None:
    def floor(self: Rows) -> float:
        smallest = float(self.total(_smallest_positive, combine=min))
        return float(rule(smallest, self.total_weight(), self.n_classes))

    Rows.probability_floor = floor  # type: ignore[method-assign]


def tables() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Out-of-fold probabilities of classifiers on the tables that come with scikit-learn."""
    from sklearn.datasets import load_breast_cancer, load_digits, load_wine
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import cross_val_predict
    from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
    from sklearn.neighbors import KNeighborsClassifier

    models = {
        "forest-100": RandomForestClassifier(100, random_state=0),
        "forest-10": RandomForestClassifier(10, random_state=0),
        "gaussian-nb": GaussianNB(),
        "bernoulli-nb": BernoulliNB(binarize=5.0),
        "multinomial-nb": MultinomialNB(),
        "neighbours-10": KNeighborsClassifier(10),
    }
    for name, read in (("cancer", load_breast_cancer), ("digits", load_digits), ("wine", load_wine)):
        x, y = read(return_X_y=True)
        for model, estimator in models.items():
            yield f"{name} {model}", cross_val_predict(estimator, x, y, cv=5, method="predict_proba"), y


def from_file(path: str) -> tuple[str, np.ndarray, np.ndarray]:
    with np.load(path) as file:
        return Path(path).stem, file["probs"].astype(np.float64), file["labels"]


def losses(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -np.log(np.maximum(p[np.arange(len(y)), y].astype(np.float64), 1e-300))


def main(files: list[str]) -> None:
    warnings.simplefilter("ignore")
    block.SMALLEST_PROBABILITY = 0.0  # rules alone decide
    mean: dict[tuple[str, str], list[float]] = defaultdict(list)
    zeros: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name, p, y in [*tables(), *map(from_file, files)]:
        share = float((p == 0).mean())
        print(f"{name:<40} {len(y)} x {p.shape[1]}, {share:.1%} exact zeros", file=sys.stderr, flush=True)
        for size in (size for size in SIZES if size <= 0.7 * len(y)):
            for repeat in range(REPEATS):
                order = np.random.default_rng(repeat).permutation(len(y))
                fit, rest = order[:size], order[size : size + 3000]
                no_chance = p[rest, y[rest]] == 0
                for method, rule in product(MAPS, RULES):
                    set_rule(RULES[rule])
                    fitted = mm.calibrator(method, classes=list(range(p.shape[1]))).fit(p[fit], y[fit])
                    found = losses(fitted.predict_proba(p[rest]), y[rest])
                    mean[method, rule].append(float(found.mean()))
                    zeros[method, rule] += found[no_chance].tolist()
    for title, cells, summary in (
        ("mean log loss", mean, np.mean),
        ("zeros, mean nats", zeros, np.mean),
        ("zeros, most nats", zeros, np.max),
    ):
        print(f"\n{title:<20}" + "".join(f"{rule:>10}" for rule in RULES))
        for method in MAPS:
            print(f"{method:<20}" + "".join(f"{summary(cells[method, rule]):10.4f}" for rule in RULES))


if __name__ == "__main__":
    main(sys.argv[1:])

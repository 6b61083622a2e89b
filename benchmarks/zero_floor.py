"""What a probability of exactly 0 should be read as where a map takes logarithms: held-out log loss by rule.

Forests, naive Bayes and nearest neighbours give exact zeros. For each classifier and table, maps are fitted on a
calibration set and judged on held-out samples, with several rules for the floor:

    half        half of the smallest positive probability of the calibration set, at least 1e-37
    1e-X        the same, but at least 1e-X
    1/(n+2)L    half of the smallest positive one, but at least 1 / ((n + 2) L) for n samples and L classes

    python benchmarks/zero_floor.py                          # scikit-learn's own tables, two minutes
    python benchmarks/zero_floor.py FILE.npz [FILE.npz ...]  # and files with `probs` and `labels`

Printed: mean log loss on held-out samples of each map under each rule (mean over classifiers, tables, calibration sizes
and repetitions), then the worst cost of one held-out sample in nats.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import mixnmatch as mm
from mixnmatch._engine.rows import Rows, _smallest_positive

MAPS = ("ts", "ets", "platt", "beta", "vector", "sms", "dirichlet", "iop")
SIZES = (50, 200, 1000)
REPEATS = 3
Rule = Callable[[float, float, int], float]
RULES: dict[str, Rule] = {
    "half": lambda smallest, n, classes: max(smallest / 2, 1e-37),
    "1e-12": lambda smallest, n, classes: max(smallest / 2, 1e-12),
    "1e-6": lambda smallest, n, classes: max(smallest / 2, 1e-6),
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
        return Path(path).stem, file["probs"], file["labels"]


def losses(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -np.log(np.maximum(p[np.arange(len(y)), y].astype(np.float64), 1e-300))


def main(files: list[str]) -> None:
    warnings.simplefilter("ignore")
    mean: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    worst: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, p, y in [*tables(), *map(from_file, files)]:
        zeros = float((p == 0).mean())
        print(f"{name:<40} {len(y)} x {p.shape[1]}, {zeros:.1%} exact zeros", file=sys.stderr, flush=True)
        for size in SIZES:
            if size > 0.7 * len(y):
                continue
            for repeat in range(REPEATS):
                order = np.random.default_rng(repeat).permutation(len(y))
                fit, rest = order[:size], order[size : size + 5000]
                for rule, made in RULES.items():
                    set_rule(made)
                    for method in MAPS:
                        fitted = mm.calibrator(method, classes=list(range(p.shape[1]))).fit(p[fit], y[fit])
                        found = losses(fitted.predict_proba(p[rest]), y[rest])
                        mean[method][rule].append(float(found.mean()))
                        worst[method][rule] = max(worst[method][rule], float(found.max()))
    for title, cells in (("mean held-out log loss", mean), ("worst sample, nats", worst)):
        print(f"\n{title:<24}" + "".join(f"{rule:>11}" for rule in RULES))
        for method in MAPS:
            values = [np.mean(cells[method][rule]) for rule in RULES]
            print(f"{method:<24}" + "".join(f"{value:11.4f}" for value in values))


if __name__ == "__main__":
    main(sys.argv[1:])

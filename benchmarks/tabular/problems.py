"""Problems of the tabular part: models trained on KEEL data, with out-of-fold scores to calibrate on.

Of every data set a third, at least 150 samples, is the test set; the rest trains the model. The calibration set is the
training set with out-of-fold scores of five folds, as most users of small data have it; the test scores are those of
the model trained on the whole training set. The samples of the calibration set are in random order: its first 100, 300
and 1,000 samples are the smaller calibration sets.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from peers.datasets import Problem, classifier
from tabular.keel import HALVES, TASKS, Table, tables

MODELS = ("logistic", "forest", "bayes", "xgboost", "lightgbm", "mlp")
SIZES = (100, 300, 1000)
FOLDS = 5
FEWEST_TEST, MOST_SAMPLES = 150, 5000
# With fewer test samples of a class, chance decides which of two maps has the lower loss.
FEWEST_OF_A_CLASS = 10
FEWEST_IN_CALIBRATION = 2
# There are few data sets with more than two classes: they are cut twice.
CUTS = {"binary": 1, "multiclass": 2}


@dataclass(frozen=True)
class Name:
    """What a problem is made of; its text is the name of the problem and of its file."""

    half: str
    task: str
    data: str
    model: str
    cut: int

    def __str__(self) -> str:
        return "__".join((self.half, self.task, self.data, self.model, str(self.cut)))

    @classmethod
    def parse(cls, text: str) -> Name:
        """The name that a text stands for."""
        half, task, data, model, cut = text.split("__")
        if half not in HALVES or task not in TASKS or model not in MODELS:
            msg = f"{text}: not the name of a tabular problem"
            raise ValueError(msg)
        return cls(half, task, data, model, int(cut))


def split(y: np.ndarray, cut: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test samples, both in random order, with the same share of each class."""
    from sklearn.model_selection import train_test_split

    n_test = max(len(y) // 3, FEWEST_TEST)
    train, test = train_test_split(np.arange(len(y)), test_size=n_test, stratify=y, random_state=cut)
    return train[:MOST_SAMPLES], test[:MOST_SAMPLES]


def sizes(labels: np.ndarray) -> list[int]:
    """Sizes of the calibration sets of a problem; the last one is all samples.

    Sizes close to all, or with fewer than two samples of all but one class, are left out.
    """
    wanted = [size for size in SIZES if size <= 0.8 * len(labels)]
    counts = {size: np.sort(np.bincount(labels[:size])) for size in (*wanted, len(labels))}
    return [size for size, found in counts.items() if found[:-1].sum() >= FEWEST_IN_CALIBRATION]


def trained(model: str, x: np.ndarray, y: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Out-of-fold probabilities of the training samples, and probabilities of new ones."""
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    if model in ("xgboost", "lightgbm"):  # threads only wait for each other on tables of this size
        untrained = classifier(model).set_params(n_jobs=1)
    else:
        untrained = classifier(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # iterations that end early make a model like any other
        own = cross_val_predict(untrained, x, y, cv=folds, method="predict_proba")
        return own, untrained.fit(x, y).predict_proba(new)


def large_enough(y: np.ndarray) -> bool:
    """Whether training and test set have enough samples of every class, for all random splits."""
    cuts = [rows for cut in range(max(CUTS.values())) for rows in split(y, cut)]
    return min(np.bincount(y[rows], minlength=y.max() + 1).min() for rows in cuts) >= FEWEST_OF_A_CLASS


def made(table: Table, model: str, cut: int) -> Problem:
    """A problem: scores and labels to calibrate on, and to judge on."""
    train, test = split(table.y, cut)
    y = table.y
    scores, new_scores = trained(model, table.x[train], y[train], table.x[test])
    name = Name(table.half, table.task, table.name, model, cut)
    return Problem(str(name), scores, y[train], new_scores, y[test], logits=False)


def wanted(task: str, half: str, data: int, model: int) -> bool:
    """Whether a pair of data set and model, by their places, takes part.

    The second half has many more data sets with two classes: two of three pairs suffice, in the pattern of diagonals.
    """
    return task == "multiclass" or half == "first" or (data + model) % 3 > 0


def problems(folder: Path, half: str, pattern: str = "*") -> Iterator[Path]:
    """Files of the problems of a half whose names fit a pattern; those that are not there are made."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in TASKS:
        chosen = [table for table in tables() if (table.half, table.task) == (half, task) and large_enough(table.y)]
        for place, table in enumerate(chosen):
            for cut in range(CUTS[task]):
                for number, model in enumerate(MODELS):
                    path = folder / f"{Name(half, task, table.name, model, cut)}.npz"
                    if not wanted(task, half, place, number) or not fnmatch(path.stem, pattern):
                        continue
                    if not path.exists():
                        made(table, model, cut).save(path)
                    yield path

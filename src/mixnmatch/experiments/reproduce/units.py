"""The unit of work: one calibration set and one evaluation set of a classifier, and methods to try on them.

What a unit finds is kept in a small file, method by method, so that a run that was killed goes on where it stopped.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.passes import engine
from mixnmatch._engine.shared import single_threaded_blas
from mixnmatch._files import atomic_write
from mixnmatch.evaluation import KernelDensity, accuracy, brier_score, calibration_error, log_loss
from mixnmatch.experiments.reproduce.loading import Data, load
from mixnmatch.experiments.reproduce.manifest import Entry
from mixnmatch.experiments.reproduce.methods import method

__all__ = ["Sizes", "Unit", "curve_sizes", "curve_units", "run_unit", "split_sizes", "split_units", "stored"]

# To be raised when a map or a metric changes its numbers: what was stored before is then not used any more.
VERSION: Final = 4
LARGE: Final = 1000  # from so many classes on, sizes are those that the paper takes for ImageNet
SPLIT_ROWS: Final = {False: (5_000, 10_000), True: (25_000, 25_000)}
CURVE_EVALUATION: Final = 5_000
CURVE_LARGEST: Final = {False: 10_000, True: 45_000}
CURVE_SMALLEST: Final = 128

# The paper prints a rule for the bandwidth, and the authors' demo code has another: its numbers are those of Table 1.
AUTHORS: Final = KernelDensity(bandwidth="authors")

Result = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """Rows to calibrate with and to evaluate on."""

    calibration: int
    evaluation: int


@dataclass(frozen=True)
class Unit:
    """One draw of the rows of a classifier.

    Attributes
    ----------
    entry : Entry
        The classifier.
    digest : str
        Hash of its scores and labels.
    part : {"split", "curve"}
        For the tables (new sets each time), or for learning curves (one evaluation set for all).
    number : int
        Which split or repetition.
    sizes : Sizes
        Rows of the two sets.
    seed : int
        Seed of the whole run.
    """

    entry: Entry
    digest: str
    part: str
    number: int
    sizes: Sizes
    seed: int

    @property
    def identity(self) -> dict[str, Any]:
        """All that the numbers depend on, beside the method."""
        return {
            "version": VERSION,
            "scores": self.digest,
            "split": self.entry.split,
            "part": self.part,
            "number": self.number,
            "seed": self.seed,
            **asdict(self.sizes),
        }

    def path(self, cache: Path) -> Path:
        """Where results are kept."""
        text = json.dumps(self.identity, sort_keys=True)
        return cache / self.digest / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"

    def rows(self, data: Data) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row indices of the calibration and of the evaluation set."""
        first, second = _pools(len(data.labels), data.first, self.entry.split)
        if self.part == "split":
            rng = np.random.default_rng([self.seed, self.number])
            if self.entry.split == "given":
                return _draw(rng, first, self.sizes.calibration), _draw(rng, second, self.sizes.evaluation)
            both = _draw(rng, first, self.sizes.calibration + self.sizes.evaluation)
            return both[: self.sizes.calibration], both[self.sizes.calibration :]
        # The evaluation set is the same for all repetitions; smaller calibration sets are part of larger ones.
        evaluation = _draw(np.random.default_rng([self.seed, 2**31]), second, self.sizes.evaluation)
        rest = first if self.entry.split == "given" else np.setdiff1d(first, evaluation)
        order = np.random.default_rng([self.seed, 2**31, self.number]).permutation(rest)
        return order[: self.sizes.calibration], evaluation


def _draw(rng: np.random.Generator, pool: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    return np.asarray(rng.permutation(pool)[:size])


def _pools(n_rows: int, first: int, split: str) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    every = np.arange(n_rows)
    return (every[:first], every[first:]) if split == "given" else (every, every)


def split_sizes(entry: Entry, data: Data) -> Sizes:
    """Sizes for the tables: the paper's, fewer where the files have fewer rows."""
    calibration, evaluation = SPLIT_ROWS[entry.classes >= LARGE]
    first, second = _pools(len(data.labels), data.first, entry.split)
    if entry.split == "given":
        return Sizes(min(calibration, len(first)), min(evaluation, len(second)))
    calibration = min(calibration, len(first) // 2)
    return Sizes(calibration, min(evaluation, len(first) - calibration))


def curve_sizes(entry: Entry, data: Data) -> tuple[Sizes, ...]:
    """Sizes of the learning curve: doubled from 128 on, and the largest."""
    first, second = _pools(len(data.labels), data.first, entry.split)
    given = entry.split == "given"
    evaluation = min(CURVE_EVALUATION, len(second) if given else len(second) // 2)
    largest = min(CURVE_LARGEST[entry.classes >= LARGE], len(first) if given else len(first) - evaluation)
    sizes = []
    size = CURVE_SMALLEST
    while size < largest:
        sizes.append(size)
        size *= 2
    return tuple(Sizes(size, evaluation) for size in (*sizes, largest))


def split_units(entry: Entry, data: Data, numbers: Iterable[int], seed: int) -> list[Unit]:
    """Units of the tables."""
    sizes = split_sizes(entry, data)
    return [Unit(entry, data.digest, "split", number, sizes, seed) for number in numbers]


def curve_units(entry: Entry, data: Data, repetitions: int, seed: int) -> list[Unit]:
    """Units of the learning curve; where a size takes all rows there are, repetitions would all be the same."""
    first, _ = _pools(len(data.labels), data.first, entry.split)
    units = []
    for sizes in curve_sizes(entry, data):
        pool = len(first) - (0 if entry.split == "given" else sizes.evaluation)
        times = 1 if sizes.calibration == pool else repetitions
        units += [Unit(entry, data.digest, "curve", number, sizes, seed) for number in range(times)]
    return units


def stored(unit: Unit, cache: Path) -> dict[str, Result]:
    """Results that are kept of a unit: for each method's expression, its numbers."""
    try:
        content = json.loads(unit.path(cache).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return dict(content["results"])


@functools.cache
def expression(key: str, *, logits: bool) -> str:
    """A method in full, as a key: the same expression gives the same numbers."""
    return " ".join(repr(method(key).build(logits=logits)).split())


def missing(unit: Unit, keys: Sequence[str], logits: bool, cache: Path) -> list[str]:
    """Methods that have no result yet."""
    known = stored(unit, cache)
    return [key for key in keys if expression(key, logits=logits) not in known]


def run_unit(unit: Unit, keys: Sequence[str], cache: Path) -> None:
    """Fit methods on the calibration set, measure them on the evaluation set, and keep each result as it is found."""
    with engine(threads=1), single_threaded_blas(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        data = load(unit.entry, cache)
        results = stored(unit, cache)
        calibration, evaluation = unit.rows(data)
        if unit.entry.split == "top-label":
            results[expression("uncalibrated", logits=False)] = _top_label(data, evaluation, unit.number)
            _keep(unit, results, cache)
            return
        fit, fit_labels = np.asarray(data.scores[calibration]), data.labels[calibration]
        scores, labels = np.asarray(data.scores[evaluation]), data.labels[evaluation]
        before = results.get(expression("uncalibrated", logits=data.logits))
        for key in ["uncalibrated"] * (before is None) + [key for key in keys if key != "uncalibrated"]:
            said.clear()
            try:
                measures = _measure(key, fit, fit_labels, scores, labels, logits=data.logits, seed=unit.number)
            except (ValueError, ArithmeticError, MemoryError, RuntimeError) as error:
                measures = {"failure": " ".join(f"{type(error).__name__}: {error}".split())}
            if "failure" not in measures:
                before = before or measures
                measures["gain"] = before["brier"] - measures["brier"]
                measures["warnings"] = sorted({" ".join(str(one.message).split()) for one in said})
            results[expression(key, logits=data.logits)] = measures
            _keep(unit, results, cache)


def _measure(
    key: str,
    fit: NDArray[Any],
    fit_labels: NDArray[Any],
    scores: NDArray[Any],
    labels: NDArray[Any],
    *,
    logits: bool,
    seed: int,
) -> Result:
    began = time.process_time()
    fitted = method(key).build(logits=logits).fit(fit, fit_labels)
    fit_seconds = time.process_time() - began
    p = fitted.predict_proba(scores)
    predict_seconds = time.process_time() - began - fit_seconds
    return {
        "ece": float(calibration_error(p, labels, notion="top-label", estimator=AUTHORS)),
        "ece_floor": float(calibration_error(p, _drawn(p, seed), notion="top-label", estimator=AUTHORS)),
        "ece_printed": float(calibration_error(p, labels, notion="top-label", estimator="kde")),
        "ece_residual": float(calibration_error(p, labels, notion="top-label")),
        "brier": float(brier_score(p, labels)),
        "nll": float(log_loss(p, labels)),
        "accuracy": float(accuracy(p, labels)),
        "changed": int((p.argmax(axis=1) != scores.argmax(axis=1)).sum()) if scores.ndim == 2 else 0,
        "preserving": bool(fitted.accuracy_preserving),
        "injective": bool(fitted.injective),
        "fit_seconds": fit_seconds,
        "predict_seconds": predict_seconds,
        "metric_seconds": time.process_time() - began - fit_seconds - predict_seconds,
    }


def _drawn(p: NDArray[Any], seed: int) -> NDArray[np.intp]:
    """Labels as they would be if the probabilities were calibrated."""
    below = np.cumsum(p, axis=1, dtype=np.float64)
    draw = np.random.default_rng([seed, 2**30]).random(len(p)) * below[:, -1]
    return np.asarray((below < draw[:, None]).sum(axis=1))


def _top_label(data: Data, rows: NDArray[np.intp], seed: int) -> Result:
    """Errors of the confidence in the predicted class, where nothing else is known."""
    z, right = data.scores[rows], data.labels[rows]
    drawn = (np.random.default_rng([seed, 2**30]).random(len(z)) < z).astype(np.intp)
    return {
        "ece": float(calibration_error(z, right, notion="binary", estimator=AUTHORS)),
        "ece_floor": float(calibration_error(z, drawn, notion="binary", estimator=AUTHORS)),
        "ece_printed": float(calibration_error(z, right, notion="binary", estimator="kde")),
        "ece_residual": float(calibration_error(z, right, notion="binary")),
        "accuracy": float(right.mean()),
    }


def _keep(unit: Unit, results: dict[str, Result], cache: Path) -> None:
    path = unit.path(cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"name": unit.entry.name, **unit.identity, "results": results}
    atomic_write(path, json.dumps(content, indent=1).encode())

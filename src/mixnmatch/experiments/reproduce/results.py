"""Means over splits and repetitions of what the units found, and paired differences between methods."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mixnmatch.experiments.reproduce.manifest import Entry

__all__ = ["Curve", "Mean", "Results", "best_of"]

Record = dict[str, Any]
# Standard errors of a paired difference within which two methods count as equal.
NOISE: Final = 2.0
HIGHER_IS_BETTER: Final = ("gain", "accuracy")
# Methods that see all splits, to which those that see some are compared.
ANCHORS: Final = ("ts", "uncalibrated")


@dataclass(frozen=True)
class Mean:
    """A mean over splits, its standard error (nan for one split), and the number of splits.

    Splits share rows, so their results depend on each other, and the standard error of independent ones would be far
    too small. With n_c rows to calibrate with and n_e to evaluate on it is s sqrt(1/J + n_e/n_c), for J
    splits whose results have the standard deviation s (Nadeau and Bengio 2003, Inference for the generalization error).
    """

    value: float
    error: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float], overlap: float = 0.0) -> Mean:
        """Mean of numbers; ``overlap`` is n_e / n_c where they are of splits of the same rows."""
        n = len(values)
        error = float(np.std(values, ddof=1) * math.sqrt(1 / n + overlap)) if n > 1 else math.nan
        return cls(float(np.mean(values)), error, n)

    @property
    def is_noise(self) -> bool:
        """Whether the value cannot be told from zero; a value without standard error can."""
        return abs(self.value) <= NOISE * self.error if math.isfinite(self.error) else self.value == 0


@dataclass(frozen=True)
class Curve:
    """Means at calibration sizes, in order."""

    sizes: tuple[int, ...]
    means: tuple[Mean, ...]

    @property
    def values(self) -> tuple[float, ...]:
        """Means as numbers."""
        return tuple(mean.value for mean in self.means)

    def at(self, size: int) -> Mean:
        """Mean at a size."""
        return self.means[self.sizes.index(size)]


class Results:
    """Records of units by row and method."""

    def __init__(self, entries: Iterable[Entry], records: Iterable[Record]):
        self.entries = {entry.name: entry for entry in entries}
        self.splits: dict[tuple[str, str], dict[int, Record]] = defaultdict(dict)
        self.curves: dict[tuple[str, str], dict[int, dict[int, Record]]] = defaultdict(lambda: defaultdict(dict))
        for record in records:
            key = record["row"], record["method"]
            if record["part"] == "split":
                self.splits[key][record["number"]] = record
            else:
                self.curves[key][record["n_c"]][record["number"]] = record

    def rows(self, part: str = "split") -> list[Entry]:
        """Entries with results, in the order of the manifest."""
        known = {row for row, _ in (self.splits if part == "split" else self.curves)}
        return [entry for name, entry in self.entries.items() if name in known]

    def calibrated(self) -> list[Entry]:
        """Entries with results of more than the scores as they are."""
        return [entry for entry in self.rows() if (entry.name, "ts") in self.splits]

    def mean(self, row: str, method: str, metric: str) -> Mean | None:
        """Mean over splits.

        Splits differ more than methods do. So a method that has seen only some of them gets what it is away from
        temperature scaling on these, added to what temperature scaling has on all.
        """
        own, overlap = self._values(row, method, metric), self._overlap(row)
        if not own:
            return None
        for anchor in ANCHORS:
            every = self._values(row, anchor, metric)
            if set(own) < set(every):
                apart = Mean.of([own[k] - every[k] for k in own], overlap)
                base = Mean.of(list(every.values()), overlap)
                return Mean(base.value + apart.value, math.hypot(base.error, apart.error), apart.n)
        return Mean.of(list(own.values()), overlap)

    def _overlap(self, row: str) -> float:
        """Rows to evaluate on, divided by those to calibrate with."""
        one = next(record for key, records in self.splits.items() if key[0] == row for record in records.values())
        return float(one["n_e"] / one["n_c"])

    def _values(self, row: str, method: str, metric: str) -> dict[int, float]:
        records = self.splits.get((row, method), {})
        return {number: float(record[metric]) for number, record in records.items() if metric in record}

    def difference(self, row: str, method: str, other: str, metric: str) -> Mean | None:
        """Mean of the paired difference between two methods, on the splits that both have seen."""
        first, second = self._values(row, method, metric), self._values(row, other, metric)
        both = sorted(set(first) & set(second))
        return Mean.of([first[k] - second[k] for k in both], self._overlap(row)) if both else None

    def noise(self, row: str, method: str, other: str) -> float:
        """What the errors of two methods may differ by without being different; 0 where that is not known."""
        apart = self.difference(row, method, other, "ece")
        return NOISE * apart.error if apart is not None and math.isfinite(apart.error) else 0.0

    def above_floor(self, row: str, method: str) -> Mean | None:
        """Mean of the error less what it would be if the method were calibrated."""
        first, second = self._values(row, method, "ece"), self._values(row, method, "ece_floor")
        both = sorted(set(first) & set(second))
        return Mean.of([first[k] - second[k] for k in both], self._overlap(row)) if both else None

    def better(self, row: str, method: str, other: str, metric: str) -> int | None:
        """1 if the method is better beyond noise, -1 if worse, 0 if neither, None for fewer than two splits."""
        apart = self.difference(row, method, other, metric)
        if apart is None or apart.n < 2:
            return None
        if apart.is_noise:
            return 0
        return 1 if (apart.value > 0) == (metric in HIGHER_IS_BETTER) else -1

    def best(self, row: str, methods: Sequence[str], metric: str) -> set[str]:
        """Methods that are best within noise."""
        means = {method: mean for method in methods if (mean := self.mean(row, method, metric)) is not None}
        apart = {}
        if means:
            first = best_of({method: mean.value for method, mean in means.items()}, metric)
            apart = {method: self.difference(row, method, first, metric) for method in means}
        return {method for method, mean in apart.items() if mean is None or mean.is_noise}

    def curve(self, row: str, method: str, metric: str) -> Curve | None:
        """Learning curve: means over repetitions for each calibration size."""
        by_size = self.curves.get((row, method))
        if not by_size:
            return None
        sizes = tuple(sorted(by_size))
        return Curve(sizes, tuple(Mean.of([record[metric] for record in by_size[size].values()]) for size in sizes))


def best_of(values: dict[str, float], metric: str) -> str:
    """The method with the best value, the first of equals."""
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    return min(values, key=lambda method: sign * values[method])

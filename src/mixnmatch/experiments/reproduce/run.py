"""Running the units of a reproduction over the cores, and collecting what is stored."""

from __future__ import annotations

import functools
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mixnmatch._engine.steps import Progress
from mixnmatch.experiments.reproduce.loading import load
from mixnmatch.experiments.reproduce.manifest import Entry
from mixnmatch.experiments.reproduce.methods import LEARNING, METHODS, method
from mixnmatch.experiments.reproduce.units import (
    LARGE,
    Unit,
    curve_sizes,
    curve_units,
    expression,
    missing,
    run_unit,
    split_units,
    stored,
)

__all__ = ["PARTS", "Plan", "collect", "run"]

# What can be asked for, and whether it rests on splits, on learning curves, or on both.
PARTS: Final[dict[str, tuple[str, ...]]] = {
    "table1": ("split",),
    "table2": ("split",),
    "table3": ("curve",),
    "table4": ("curve",),
    "learning-curves": ("curve",),
    "figure1": ("curve",),
    "measures": ("curve",),
    "claims": ("split", "curve"),
    "guidelines": ("split", "curve"),
    "synthetic": (),
}
# Splits of a row that are done before the next row has its turn.
AT_A_TIME: Final = 5
Record = dict[str, Any]
# The message of the first failure, for each row and method.
Failures = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Plan:
    """What is to be run.

    Attributes
    ----------
    entries : tuple of Entry
        Rows of the tables.
    splits, slow_splits, large_slow_splits : int
        Random splits for the tables; those for slow methods; and those for slow methods from 1000 classes on.
    repetitions : int
        Repetitions of the learning curves.
    methods : tuple of str
        Columns of the tables.
    parts : tuple of str
        Keys of ``PARTS``.
    seed : int
        Seed of the random splits.
    """

    entries: tuple[Entry, ...]
    splits: int = 100
    slow_splits: int = 10
    large_slow_splits: int = 3
    repetitions: int = 20
    methods: tuple[str, ...] = tuple(METHODS)
    parts: tuple[str, ...] = tuple(PARTS)
    seed: int = 0
    needs: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """Derive what the parts rest on."""
        object.__setattr__(self, "needs", frozenset(need for part in self.parts for need in PARTS[part]))

    @property
    def columns(self) -> tuple[str, ...]:
        """Methods of the tables, the scores as they are among them."""
        return ("uncalibrated", *(key for key in self.methods if key != "uncalibrated"))

    def is_slow(self, key: str, entry: Entry) -> bool:
        """Whether a method sees fewer splits of an entry."""
        return method(key).slow or (entry.classes >= LARGE and key in SLOW_IF_LARGE)

    def n_splits(self, key: str, entry: Entry) -> int:
        """Splits of an entry that a method sees."""
        if not self.is_slow(key, entry):
            return self.splits
        return min(self.splits, self.large_slow_splits if entry.classes >= LARGE else self.slow_splits)


# Methods whose time grows so much with the classes that they count as slow from 1000 on.
SLOW_IF_LARGE: Final = ("beta", "beta-shared", "ensemble-beta", "svs")


@dataclass(frozen=True)
class _Work:
    unit: Unit
    keys: tuple[str, ...]
    logits: bool


def _stages(plan: Plan, cache: Path) -> Iterator[tuple[str, list[_Work]]]:
    """All work, in the order in which it is done: what most tables rest on first, slow methods last.

    All rows get their first few splits before any gets more, so that a run that is stopped has something of each.
    """
    for stage in ("splits", "learning curves", "slow methods"):
        work = [one for entry in plan.entries for one in _work(plan, entry, stage, cache)]
        yield stage, sorted(work, key=lambda one: one.unit.number // AT_A_TIME)


def _work(plan: Plan, entry: Entry, stage: str, cache: Path) -> list[_Work]:
    if ("curve" if stage == "learning curves" else "split") not in plan.needs:
        return []
    data = load(entry, cache)
    if stage == "learning curves":
        if entry.split == "top-label":
            return []
        keys: tuple[str, ...] = tuple(key for key in LEARNING if key in plan.columns)
        return [_Work(unit, keys, data.logits) for unit in curve_units(entry, data, plan.repetitions, plan.seed)]
    if entry.split == "top-label":
        keys_of = {"uncalibrated": plan.splits if stage == "splits" else 0}
    else:
        slow = stage == "slow methods"
        keys_of = {key: plan.n_splits(key, entry) for key in plan.columns if plan.is_slow(key, entry) == slow}
    missing_units = []
    for unit in split_units(entry, data, range(max(keys_of.values(), default=0)), plan.seed):
        keys = tuple(key for key, times in keys_of.items() if unit.number < times)
        missing_units.append(_Work(unit, keys, data.logits))
    return missing_units


def run(plan: Plan, cache: Path, *, jobs: int = 1, progress: Callable[[str], Progress | None] | None = None) -> int:
    """Run what is missing, and return the number of units that were.

    Units run through joblib, so that ``with joblib.parallel_config(backend="dask")`` spreads them over a cluster; its
    workers must see the same files. The numbers do not depend on ``jobs``.
    """
    from joblib import Parallel, delayed

    done = 0
    for stage, work in _stages(plan, cache):
        todo = [(one.unit, keys) for one in work if (keys := missing(one.unit, one.keys, one.logits, cache))]
        tell = None if progress is None else progress(stage)
        parallel = Parallel(n_jobs=jobs, batch_size=1, **_as_they_come(jobs))
        with warnings.catch_warnings():
            # Large arrays make joblib replace a process now and then, which costs nothing but this.
            warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
            parent = os.getpid()
            for number, name in enumerate(parallel(delayed(_named)(*one, cache, parent) for one in todo), start=1):
                if tell is not None:
                    tell(number, len(todo), name)
        done += len(todo)
    return done


def _as_they_come(jobs: int) -> dict[str, str]:
    """Results as they come, where the backend can do that."""
    from joblib import Parallel

    able = getattr(Parallel(n_jobs=jobs)._backend, "supports_return_generator", False)
    return {"return_as": "generator_unordered"} if able else {}


def _named(unit: Unit, keys: Sequence[str], cache: Path, parent: int) -> str:
    _end_with(parent)
    run_unit(unit, keys, cache)
    return unit.entry.name


@functools.cache
def _end_with(parent: int) -> None:
    """End this worker soon after the process that started it, even if that was killed; called once is enough."""
    if os.getppid() != parent:  # a worker of a cluster, which others look after, or no worker at all
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="mixnmatch-parent").start()


def collect(plan: Plan, cache: Path) -> tuple[list[Record], Failures]:
    """All stored results that the plan asks for, one record for each unit and method, and why some have none.

    A learning curve of which a size is missing is left out: its last point would not be its end.
    """
    records: list[Record] = []
    failures: Failures = {}
    for _, work in _stages(plan, cache):
        for one in work:
            results = stored(one.unit, cache)
            for key in one.keys:
                result = results.get(expression(key, logits=one.logits))
                if result is not None and "failure" in result:
                    failures.setdefault((one.unit.entry.name, key), result["failure"])
                elif result is not None:
                    records.append(_record(one.unit, key, result))
    partial = _partial_curves(plan, records, cache)
    whole = [one for one in records if one["part"] == "split" or (one["row"], one["method"]) not in partial]
    return whole, failures


def _partial_curves(plan: Plan, records: Sequence[Record], cache: Path) -> set[tuple[str, str]]:
    """Rows and methods with results for some sizes of the learning curve, but not for all."""
    known: dict[tuple[str, str], set[int]] = {}
    for record in records:
        if record["part"] == "curve":
            known.setdefault((record["row"], record["method"]), set()).add(record["n_c"])
    wanted = {
        entry.name: {sizes.calibration for sizes in curve_sizes(entry, load(entry, cache))}
        for entry in plan.entries
        if any(row == entry.name for row, _ in known)
    }
    return {(row, key) for (row, key), sizes in known.items() if sizes != wanted[row]}


def _record(unit: Unit, key: str, result: Record) -> Record:
    return {
        "part": unit.part,
        "row": unit.entry.name,
        "classes": unit.entry.classes,
        "number": unit.number,
        "n_c": unit.sizes.calibration,
        "n_e": unit.sizes.evaluation,
        "method": key,
        **{name: value for name, value in result.items() if name != "warnings"},
    }

"""Leagues of the tabular part: by size of the calibration set and by kind of model, two classes and more apart.

A game is a problem and a size of its calibration set. Two fields: all methods, and those of CalArena with one entry of
ours at a time.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from peers.calarena import PREFIX
from peers.datasets import Problem
from peers.league import Values, win_shares
from tabular.judging import OURS, Results
from tabular.keel import TASKS
from tabular.methods import methods
from tabular.problems import MODELS, SIZES, Name, sizes

IDENTITY, AUTO = f"{OURS}: identity", f"{OURS}: auto"
# Log loss that is higher than that of the uncalibrated scores by this factor is harm.
HARM = 1.01
# Where the uncalibrated log loss is nearly 0, a factor says little: clear harm is a difference of at least this, too.
CLEAR = 0.001
FIELDS = ("all", "calarena")
ALL = "all problems"
SCORES = ("nll", "brier")
RESAMPLES = 1000


@dataclass(frozen=True)
class Game:
    """Results of all methods on a problem with one size of the calibration set."""

    name: Name
    size: str
    results: dict[str, dict[str, Any]]

    @property
    def groups(self) -> tuple[str, str, str]:
        """The groups that it belongs to."""
        return ALL, f"size {self.size}", self.name.model

    def value(self, method: str, column: str) -> float | None:
        """A number of a method, None where it failed."""
        found = self.results[method]
        return None if found["problem"] else found[column]


@dataclass(frozen=True)
class Row:
    """A method in a league; the intervals resample data sets. Means are over the games that it finished.

    ``reason`` is the most frequent one of its failures.
    """

    task: str
    group: str
    field: str
    games: int
    method: str
    version: str
    wins_nll: float
    low_nll: float
    high_nll: float
    wins_brier: float
    low_brier: float
    high_brier: float
    nll: float
    brier: float
    ece: float
    harm: float
    clear_harm: float
    failures: int
    reason: str
    fit: float


GROUPS = (ALL, *(f"size {size}" for size in (*SIZES, "all")), *MODELS)


def games(paths: Iterable[Path], results: Results) -> list[Game]:
    """What was played on some problems."""
    found = []
    for path in paths:
        known = results.read(path.stem)
        here = sizes(Problem.load(path).labels)
        for size in here:
            if str(size) in known:
                label = str(size) if size in SIZES and size != here[-1] else "all"
                found.append(Game(Name.parse(path.stem), label, known[str(size)]))
    return found


def rows(paths: Iterable[Path], results: Results) -> list[Row]:
    """All leagues of some problems."""
    played = games(paths, results)
    found: list[Row] = []
    for task in TASKS:
        own = [game for game in played if game.name.task == task]
        known = {key for game in own for key in game.results}
        entries = [key for key in methods(task) if key in known]
        whole = [game for game in own if all(key in game.results for key in entries)]
        if len(whole) < len(own):
            print(f"{task}: {len(own) - len(whole)} of {len(own)} games are not judged in full, and left out")
        own = whole
        for field in FIELDS if own else ():
            found += field_rows(task, field, own, entries)
    return found


def field_rows(task: str, field: str, played: list[Game], entries: list[str]) -> list[Row]:
    """The leagues of a task with one field.

    Variants of ``auto`` never meet. In CalArena's field no two methods of ours meet: each of them plays against the
    methods of CalArena and doing nothing, and these play against each other and ``auto``.
    """
    if field == "calarena":
        entries = [key for key in entries if key.startswith((f"{OURS}: ", f"probmetrics: {PREFIX}"))]
        main = [key for key in entries if not key.startswith(f"{OURS}: ") or key in (IDENTITY, AUTO)]
    else:
        main = [key for key in entries if not key.startswith(AUTO) or key == AUTO]
    wins: dict[str, dict[str, list[float]]] = {}
    for score in SCORES:
        values: Values = {str(k): {key: game.value(key, score) for key in entries} for k, game in enumerate(played)}
        wins[score] = win_shares(values, main)
        for key in entries:
            if key not in main:  # it takes the place of auto
                wins[score] |= win_shares(values, [key], [rival for rival in main if rival != AUTO])
    return [
        league_row(task, group, field, key, part, {score: [wins[score][key][k] for k in places] for score in SCORES})
        for group in GROUPS
        if (places := [k for k, game in enumerate(played) if group in game.groups])
        for part in [[played[k] for k in places]]
        for key in entries
    ]


def league_row(task: str, group: str, field: str, key: str, part: list[Game], wins: dict[str, list[float]]) -> Row:
    """A method in a league of some games, of each of which the share of wins is known."""
    finished = [game.results[key] for game in part if game.value(key, "nll") is not None]

    def mean(column: str) -> float:
        return float(np.mean([result[column] for result in finished])) if finished else float("nan")

    pairs = [(game.value(key, "nll"), game.value(IDENTITY, "nll")) for game in part]
    pairs = [(after, before) for after, before in pairs if after is not None and before is not None]
    harmed = [after > HARM * before for after, before in pairs]
    clearly = [bad and after - before > CLEAR for bad, (after, before) in zip(harmed, pairs, strict=True)]
    data = [game.name.data for game in part]
    (low_nll, high_nll), (low_brier, high_brier) = (interval(wins[score], data) for score in SCORES)
    reasons = Counter(said for game in part if (said := game.results[key]["problem"]))
    reason = reasons.most_common(1)[0][0] if reasons else ""
    versions = {label(result) for result in finished}
    return Row(
        task, group, field, len(part), key, " and ".join(sorted(versions)),
        float(np.mean(wins["nll"])), low_nll, high_nll, float(np.mean(wins["brier"])), low_brier, high_brier,
        mean("nll"), mean("brier"), mean("ece"), *(float(np.mean(x)) if x else float("nan") for x in (harmed, clearly)),
        len(part) - len(finished), reason, mean("fit"),
    )  # fmt: skip


def label(result: dict[str, Any]) -> str:
    """Version of a result, with the digest of the sources for ours."""
    return result["version"] + (f" ({result['sources']})" if "sources" in result else "")


def interval(wins: list[float], data: list[str]) -> tuple[float, float]:
    """95% interval of a mean, by resampling data sets: games on the same data are alike."""
    names, index = np.unique(data, return_inverse=True)
    sums, counts = np.bincount(index, wins), np.bincount(index)
    draws = np.random.default_rng(0).integers(0, len(names), (RESAMPLES, len(names)))
    means = sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def write(found: list[Row], path: Path) -> None:
    """Write leagues to a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = [field.name for field in fields(Row)]
        writer.writerow(names)
        for row in found:
            values = [getattr(row, name) for name in names]
            writer.writerow([f"{value:.5g}" if isinstance(value, float) else value for value in values])


def read(path: Path) -> list[Row]:
    """Leagues of a table, none if it is not there."""
    if not path.exists():
        return []
    types = {field.name: {"int": int, "float": float, "str": str}[str(field.type)] for field in fields(Row)}
    with path.open(newline="", encoding="utf-8") as file:
        return [Row(**{name: types[name](text) for name, text in line.items()}) for line in csv.DictReader(file)]

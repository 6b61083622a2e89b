"""The guidelines of the paper's Appendix G, each beside what the results say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np

from mixnmatch.experiments.reproduce.claims import Statement, rank_correlations, verdict
from mixnmatch.experiments.reproduce.manifest import Entry
from mixnmatch.experiments.reproduce.methods import method
from mixnmatch.experiments.reproduce.results import Results, best_of

__all__ = ["check_guidelines"]

# The guidelines choose among these.
CHOICES: Final = ("ets", "irm", "irova-ts")
ALL: Final = ("ts", "ets", "irm", "irova", "irova-ts")
LIMITED: Final = 512  # up to so many rows, data count as limited
MANY: Final = 100  # from so many classes on, a calibration task counts as complex
CLOSE: Final = 0.001  # errors this close count as tied
SATISFACTORY: Final = 0.03


def check_guidelines(results: Results) -> list[Statement]:
    """Every guideline, against the results."""
    complex_rows = [entry for entry in results.rows("curve") if entry.classes >= MANY]
    others = [entry for entry in results.rows("curve") if entry.classes < MANY]
    return [
        _simple(results),
        _first_choice(results, complex_rows, "limited", "ets", "Complex task, few data: ETS is the first choice."),
        _alternative(results),
        _first_choice(
            results,
            complex_rows,
            "rich",
            "irova-ts",
            "Complex task, many data, accuracy not a constraint: IROvA-TS.",
        ),
        _first_choice(results, others, "limited", "ets", "All other cases, few data: ETS."),
        _first_choice(results, others, "rich", "ets", "All other cases, many data: ETS."),
        _parametric_first(results),
        _all_ranges(results),
        _accuracy(results),
        _metric(results),
    ]


def _error(results: Results, entry: Entry, key: str, regime: str) -> float:
    """Mean ECE¹ of a method where data are limited (up to 512 rows) or rich (the largest set)."""
    curve = results.curve(entry.name, key, "ece")
    if curve is None:
        return math.nan
    if regime == "rich":
        return curve.values[-1]
    return float(np.mean([value for size, value in zip(curve.sizes, curve.values, strict=True) if size <= LIMITED]))


def _winners(results: Results, entries: Iterable[Entry], regime: str) -> dict[str, tuple[str, dict[str, float]]]:
    winners = {}
    for entry in entries:
        errors = {key: _error(results, entry, key, regime) for key in CHOICES}
        if all(math.isfinite(value) for value in errors.values()):
            winners[entry.name] = (best_of(errors, "ece"), errors)
    return winners


def _count(names: Iterable[str]) -> str:
    return ", ".join(f"{method(key).title} {times}" for key, times in Counter(names).most_common())


def _first_choice(results: Results, entries: list[Entry], regime: str, choice: str, says: str) -> Statement:
    winners = _winners(results, entries, regime)
    says = f"{says} (Of ETS, IRM and IROvA-TS, by ECE¹.)"
    if not winners:
        return Statement(says, "no results", "cannot tell")
    fine = [
        errors[choice] - errors[best] <= max(CLOSE, results.noise(row, choice, best))
        for row, (best, errors) in winners.items()
    ]
    text = f"lowest ECE¹: {_count(best for best, _ in winners.values())}; {method(choice).title} is lowest within "
    text += f"noise in {sum(fine)} of {len(fine)} rows"
    regrets = [100 * (errors[choice] - errors[best]) for best, errors in winners.values()]
    text += f", and {np.median(regrets):.2f} points above the lowest in the median row"
    return Statement(says, text, verdict(float(np.mean(fine))))


def _simple(results: Results) -> Statement:
    says = (
        "Simple task (a small network, few classes: LeNet-5 on CIFAR-10): the scores are satisfactory as they are, and "
        "all methods perform alike."
    )
    names = [entry.name for entry in results.calibrated() if "lenet" in entry.model.lower() and entry.classes <= 10]
    if not names:
        return Statement(says, "no such row", "cannot tell")
    parts, fine = [], []
    for name in names:
        errors = {key: mean.value for key in ALL if (mean := results.mean(name, key, "ece")) is not None}
        before = results.mean(name, "uncalibrated", "ece")
        assert before is not None
        spread = max(errors.values()) - min(errors.values())
        parts.append(
            f"{name}: ECE¹ {100 * before.value:.2f} as it is, {100 * min(errors.values()):.2f} to "
            f"{100 * max(errors.values()):.2f} after calibration"
        )
        fine += [before.value <= SATISFACTORY, spread <= 0.01]
    return Statement(says, "; ".join(parts), verdict(float(np.mean(fine))))


def _alternative(results: Results) -> Statement:
    says = "IRM is the alternative where the parametric form of ETS is improper."
    losses = {}
    for entry in results.calibrated():
        sign = results.better(entry.name, "irm", "ets", "gain")
        if sign is not None:
            losses[entry.name] = sign
    better = [name for name, sign in losses.items() if sign == 1]
    if not losses:
        return Statement(says, "no results", "cannot tell")
    text = f"by calibration gain at the tables' n_c, IRM is better than ETS in {len(better)} of {len(losses)} rows"
    if better:
        text += f": {', '.join(better)}"
    return Statement(says, text, "yes" if better else "no")


def _parametric_first(results: Results) -> Statement:
    says = "Few data: the parametric TS and ETS do better than IROvA and IROvA-TS."
    fine = []
    for entry in results.rows("curve"):
        errors = [_error(results, entry, key, "limited") for key in ("ts", "ets", "irova", "irova-ts")]
        if all(math.isfinite(error) for error in errors):
            fine.append(min(errors[:2]) < min(errors[2:]))
    if not fine:
        return Statement(says, "no results", "cannot tell")
    text = f"so in {sum(fine)} of {len(fine)} rows, by mean ECE¹ up to {LIMITED} rows"
    return Statement(says, text, verdict(float(np.mean(fine))))


def _all_ranges(results: Results) -> Statement:
    says = "ETS and IRM perform well on all ranges of the calibration data size."
    fine = total = 0
    for entry in results.rows("curve"):
        before = results.curve(entry.name, "uncalibrated", "brier")
        for key in ("ets", "irm"):
            after = results.curve(entry.name, key, "brier")
            if before is None or after is None:
                continue
            fine += sum(after.at(size).value <= before.at(size).value for size in after.sizes)
            total += len(after.sizes)
    if not total:
        return Statement(says, "no results", "cannot tell")
    text = f"their mean Brier score is not above the uncalibrated one in {fine} of {total} points of the curves"
    return Statement(says, text, verdict(fine / total))


def _accuracy(results: Results) -> Statement:
    says = "With a hard constraint on accuracy: ETS and IRM."
    lost = {}
    for entry in results.calibrated():
        apart = results.difference(entry.name, "irova-ts", "uncalibrated", "accuracy")
        if apart is not None:
            lost[entry.name] = apart
    if not lost:
        return Statement(says, "no results", "cannot tell")
    worse = sum(apart.value < 0 and not apart.is_noise for apart in lost.values())
    gained = sum(apart.value > 0 and not apart.is_noise for apart in lost.values())
    values = [100 * apart.value for apart in lost.values()]
    text = (
        f"both changed no prediction; IROvA-TS lowers accuracy in {worse} of {len(lost)} rows and raises it in "
        f"{gained}, by {min(values):+.2f} to {max(values):+.2f} points"
    )
    return Statement(says, text, "yes" if worse else "partly")


def _metric(results: Results) -> Statement:
    says = "To rank methods use the calibration gain; an ECE estimate may rank otherwise."
    residual, paper = rank_correlations(results, "ece_residual"), rank_correlations(results)
    estimators = rank_correlations(results, "ece", "ece_residual")
    if not paper:
        return Statement(says, "no results", "cannot tell")
    means = [float(np.nanmean(list(errors.values()))) for errors in (paper, residual, estimators)]
    text = (
        f"rank correlation with the gain {means[0]:.2f} for the paper's KDE, {means[1]:.2f} for the residual KDE; the "
        f"two estimates of the same error agree with each other to {means[2]:.2f}"
    )
    return Statement(says, text, "yes" if means[2] < 0.95 else "partly")

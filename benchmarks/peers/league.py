"""Win rates and paired differences of methods over problems."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

# problem -> method -> value, lower is better; None is a failure.
Values = dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class Line:
    """A method in a league: win rate, mean value, paired difference to a reference with its 95% interval."""

    method: str
    win_rate: float
    mean: float
    failures: int
    difference: float
    low: float
    high: float


def beats(own: float | None, other: float | None) -> float:
    """1 for a win, 0.5 for a tie, 0 for a loss; a failure loses to every value and ties with a failure."""
    if own is None or other is None:
        return 0.5 if own is other else float(other is None)
    own, other = round(own, 12), round(other, 12)
    return float(own < other) + 0.5 * float(own == other)


def win_shares(values: Values, field: Iterable[str], others: Iterable[str] | None = None) -> dict[str, list[float]]:
    """Share of the other methods that each method of the field beats, for each problem.

    The other methods are those of the field, or those of ``others``.
    """
    methods = list(field)
    rivals = methods if others is None else list(others)
    shares: dict[str, list[float]] = {method: [] for method in methods}
    for found in values.values():
        for method in methods:
            games = [beats(found.get(method), found.get(other)) for other in rivals if other != method]
            shares[method].append(sum(games) / len(games))
    return shares


def win_rates(values: Values, field: Iterable[str]) -> dict[str, float]:
    """Share of the other methods of the field that each method beats, averaged over problems."""
    return {method: float(np.mean(shares)) for method, shares in win_shares(values, field).items()}


def league(values: Values, field: Iterable[str], against: str) -> list[Line]:
    """The table of a league, best win rate first; differences are over the problems where both succeeded."""
    from scipy.stats import t

    rates = win_rates(values, field)
    lines = []
    for method in sorted(rates, key=lambda name: -rates[name]):
        own = [value for found in values.values() if (value := found.get(method)) is not None]
        pairs = [(found.get(method), found.get(against)) for found in values.values()]
        differences = np.array([a - b for a, b in pairs if a is not None and b is not None])
        middle = float(differences.mean()) if len(differences) else float("nan")
        reach = float("nan")
        if len(differences) > 1:
            reach = float(t.ppf(0.975, len(differences) - 1) * differences.std(ddof=1) / np.sqrt(len(differences)))
        mean = float(np.mean(own)) if own else float("nan")
        failures = len(values) - len(own)
        lines.append(Line(method, rates[method], mean, failures, middle, middle - reach, middle + reach))
    return lines

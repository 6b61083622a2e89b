"""Coverage of the 95% intervals of accuracy, Brier score and log loss on 5 to 50 samples.

Usage: ``python benchmarks/small_intervals.py [--repetitions 400]``. Each line is a way to make scores and labels, each
column a number of samples; the cells are the share of intervals that contain the true value, and their mean length.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch import accuracy, brier_score, log_loss

Floats = NDArray[np.float64]
SIZES = (5, 10, 20, 30, 50)
TRUTH = 400_000


def labels(p: Floats, rng: np.random.Generator) -> NDArray[np.intp]:
    """Classes drawn from rows of probabilities."""
    return np.asarray((p.cumsum(axis=1)[:, :-1] < rng.random((len(p), 1))).sum(axis=1))


def tempered(p: Floats, power: float) -> Floats:
    """Probabilities to a power, normalised: above 1 they are overconfident."""
    q = p**power
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def right_with(rate: float, confidence: float) -> Callable[[int, np.random.Generator], tuple[Floats, Any]]:
    """A classifier of two classes with one confidence that is right at a given rate."""

    def draw(n: int, rng: np.random.Generator) -> tuple[Floats, Any]:
        right = rng.random(n) < rate
        return np.tile([1 - confidence, confidence], (n, 1)), right.astype(np.intp)

    return draw


def dirichlet(alpha: float, n_classes: int, power: float) -> Callable[[int, np.random.Generator], tuple[Floats, Any]]:
    """Scores from a Dirichlet distribution, overconfident by a power."""

    def draw(n: int, rng: np.random.Generator) -> tuple[Floats, Any]:
        p = rng.dirichlet(np.full(n_classes, alpha), n) + 1e-9
        p /= p.sum(axis=1, keepdims=True)
        return tempered(p, power), labels(p, rng)

    return draw


def rare(n: int, rng: np.random.Generator) -> tuple[Floats, Any]:
    """Two classes with about 2% positives."""
    z = np.clip(rng.beta(0.3, 14, n), 1e-6, 1 - 1e-6)
    return np.stack([1 - z, z], axis=1), (rng.random(n) < z).astype(np.intp)


CASES: dict[str, Callable[[int, np.random.Generator], tuple[Floats, Any]]] = {
    "right 99%, sure of 99%": right_with(0.99, 0.99),
    "right 90%, sure of 99%": right_with(0.9, 0.99),
    "right 70%, sure of 70%": right_with(0.7, 0.7),
    "2% positives": rare,
    "10 classes, spread": dirichlet(1.0, 10, 1.0),
    "3 classes, sharp": dirichlet(0.2, 3, 1.0),
    "3 classes, overconfident": dirichlet(0.2, 3, 3.0),
    "2 classes, uniform": dirichlet(1.0, 2, 1.0),
}
SCORES: dict[str, Callable[..., Any]] = {"accuracy": accuracy, "Brier score": brier_score, "log loss": log_loss}


def coverage(case: str, score: str, n: int, repetitions: int, seed: int = 0) -> tuple[float, float, float]:
    """Share of intervals that contain the true value, their mean length, and the share that leave the range."""
    rng = np.random.default_rng([seed, n])
    truth = float(SCORES[score](*CASES[case](TRUTH, np.random.default_rng(seed + 1))))
    most = {"accuracy": 1.0, "Brier score": 2.0}.get(score, np.inf)
    ends = np.array([SCORES[score](*CASES[case](n, rng)).interval for _ in range(repetitions)])
    covered = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    impossible = (ends[:, 0] < 0) | (ends[:, 1] > most)
    return float(covered.mean()), float((ends[:, 1] - ends[:, 0]).mean()), float(impossible.mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=400)
    repetitions = parser.parse_args().repetitions
    for score in SCORES:
        print(f"{score:<26}" + "".join(f"{f'n = {n}':>15}" for n in SIZES) + "   impossible")
        for case in CASES:
            found = [coverage(case, score, n, repetitions) for n in SIZES]
            cells = "".join(f"{f'{share:.3f} ({length:.3f})':>15}" for share, length, _ in found)
            print(f"{case:<26}{cells}   {np.mean([one[2] for one in found]):.3f}")


if __name__ == "__main__":
    main()

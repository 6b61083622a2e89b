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

from mixnmatch.evaluation import accuracy, brier_score, log_loss
from mixnmatch.evaluation._means import MeanEstimate

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


def wrong_labels(
    draw: Callable[[int, np.random.Generator], tuple[Floats, Any]], rate: float
) -> Callable[[int, np.random.Generator], tuple[Floats, Any]]:
    """The same scores with a share of labels that were drawn at random: rare, large losses."""

    def changed(n: int, rng: np.random.Generator) -> tuple[Floats, Any]:
        p, y = draw(n, rng)
        return p, np.where(rng.random(n) < rate, rng.integers(0, p.shape[1], n), y)

    return changed


def normal(scale: float, n_classes: int, power: float) -> Callable[[int, np.random.Generator], tuple[Floats, Any]]:
    """Normal logits; the true probabilities are those of the logits times a power."""

    def draw(n: int, rng: np.random.Generator) -> tuple[Floats, Any]:
        logits = scale * rng.normal(size=(n, n_classes))
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return p, labels(tempered(p, power), rng)

    return draw


def sometimes_sure(n: int, rng: np.random.Generator) -> tuple[Floats, Any]:
    """Two classes: 30% of the samples have a confidence of 99.999% and are right 95% of the time."""
    sure = rng.random(n) < 0.3
    z = np.where(sure, 1 - 1e-5, rng.uniform(0.5, 0.9, n))
    return np.stack([1 - z, z], axis=1), (rng.random(n) < np.where(sure, 0.95, z)).astype(np.intp)


def heavy_tails(n: int, rng: np.random.Generator) -> tuple[Floats, Any]:
    """Four classes, overconfident logits with heavy tails."""
    logits = 2 * rng.standard_t(2, size=(n, 4))
    p = np.exp(logits - logits.max(axis=1, keepdims=True)) + 1e-30
    p /= p.sum(axis=1, keepdims=True)
    return p, labels(tempered(p, 0.8), rng)


def sparse(n: int, rng: np.random.Generator) -> tuple[Floats, Any]:
    """Fifty classes, of which the first is right 80% of the time, whatever the scores say of the others."""
    top = rng.uniform(0.5, 0.999, (n, 1))
    rest = rng.dirichlet(np.full(49, 0.2), n) + 1e-9
    p = np.concatenate([top, (1 - top) * rest / rest.sum(axis=1, keepdims=True)], axis=1)
    return p, np.where(rng.random(n) < 0.8, 0, rng.integers(1, 50, n))


def shifted(n: int, rng: np.random.Generator) -> tuple[Floats, Any]:
    """Two classes; the log-odds are off by two."""
    log_odds = 2 * rng.normal(size=n)
    z, truth = 1 / (1 + np.exp(-log_odds - 2)), 1 / (1 + np.exp(-log_odds))
    return np.stack([1 - z, z], axis=1), (rng.random(n) < truth).astype(np.intp)


CASES: dict[str, Callable[[int, np.random.Generator], tuple[Floats, Any]]] = {
    "right 99%, sure of 99%": right_with(0.99, 0.99),
    "right 90%, sure of 99%": right_with(0.9, 0.99),
    "right 70%, sure of 70%": right_with(0.7, 0.7),
    "2% positives": rare,
    "10 classes, spread": dirichlet(1.0, 10, 1.0),
    "3 classes, sharp": dirichlet(0.2, 3, 1.0),
    "3 classes, overconfident": dirichlet(0.2, 3, 3.0),
    "2 classes, uniform": dirichlet(1.0, 2, 1.0),
    # These ruled out shorter intervals of the log loss, in which a wrong prediction costs what the scores expect it to.
    "5 classes, 5% wrong labels": wrong_labels(normal(5.0, 5, 1.0), 0.05),
    "10 sharp, 10% wrong labels": wrong_labels(dirichlet(0.05, 10, 1.0), 0.1),
    "20 classes, overconfident": normal(3.0, 20, 0.4),
    "right 95%, sure of 99.9%": right_with(0.95, 0.999),
    "sometimes sure": sometimes_sure,
    # These came after the choice.
    "heavy tails": wrong_labels(heavy_tails, 0.03),
    "50 classes, right 80%": sparse,
    "2 classes, shifted": shifted,
    "10% from elsewhere": wrong_labels(dirichlet(0.1, 3, 1.0), 0.1),
}


def with_student(p: Floats, y: Any) -> MeanEstimate:
    """The log loss with Student's t interval."""
    found = log_loss(p, y)
    return MeanEstimate(float(found), **(vars(found) | {"bounds": None}))


SCORES: dict[str, Callable[..., Any]] = {
    "accuracy": accuracy,
    "Brier score": brier_score,
    "log loss": log_loss,
    "log loss, Student's t": with_student,
}


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
        print(f"{score:<27}" + "".join(f"{f'n = {n}':>15}" for n in SIZES) + "   impossible")
        for case in CASES:
            found = [coverage(case, score, n, repetitions) for n in SIZES]
            cells = "".join(f"{f'{share:.3f} ({length:.3f})':>15}" for share, length, _ in found)
            print(f"{case:<27}{cells}   {np.mean([one[2] for one in found]):.3f}")


if __name__ == "__main__":
    main()

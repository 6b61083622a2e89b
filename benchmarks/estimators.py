"""Ratios of speed: estimators of calibration error beside KDEpy, torchmetrics and relplot.

make bench-ratios                # in the environment of the peers
python benchmarks/estimators.py  # whatever is installed; run it on an idle machine
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from mixnmatch.evaluation.error import calibration_error
from mixnmatch.evaluation.estimators import estimator
from mixnmatch.evaluation.notion import Outcomes
from peers.metrics import kdepy_ece


def best_of(call: Callable[[], object], repetitions: int = 7) -> float:
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def line(name: str, ours: float, theirs: float | None = None) -> None:
    beside = "" if theirs is None else f"{theirs:12.2f} ms {theirs / ours:8.1f}x"
    print(f"{name:<46}{ours:10.2f} ms{beside}", flush=True)


def looped_ece(z: np.ndarray, y: np.ndarray, nodes: int = 2**14) -> float:
    """The same as in the paper authors' script: nearest nodes looked up one by one in a Python loop."""
    from KDEpy import FFTKDE

    grid = np.linspace(-0.6, 1.6, nodes)
    width = z[y == 1].std() * (2 * len(z)) ** -0.2
    densities = []
    for sample in (z[y == 1], z):
        mirrored = np.concatenate([-sample[sample < 0.5], sample, 2 - sample[sample >= 0.5]])
        d = FFTKDE(kernel="triweight", bw=width).fit(mirrored).evaluate(grid)
        d[(grid < 0) | (grid > 1)] = 0
        densities.append(2 * d)
    integral = np.zeros(nodes)
    for i, confidence in enumerate(grid):
        k = np.abs(grid - confidence).argmin()
        if max(densities[0][k], densities[1][k]) > 1e-6:
            frequency = min(y.mean() * densities[0][k] / densities[1][k], 1.0)
            if not np.isnan(frequency):
                integral[i] = abs(confidence - frequency) * densities[1][i]
    keep = (grid >= 0) & (grid <= 1)
    return float(np.trapezoid(integral[keep], grid[keep]) / np.trapezoid(densities[1][keep], grid[keep]))


def beside_peers(z: np.ndarray, y: np.ndarray) -> None:
    outcomes = Outcomes(z, y)
    kde = estimator("kde", bandwidth="paper")
    if find_spec("KDEpy"):
        ours = best_of(lambda: kde(outcomes))
        line("kde n = 1e6 | KDEpy FFTKDE", ours, best_of(lambda: kdepy_ece(z, y), 3))
        print(f"    values: ours {kde(outcomes):.6f}, KDEpy {kdepy_ece(z, y):.6f}")
        line("kde n = 1e6 | as the authors' script", ours, best_of(lambda: looped_ece(z, y), 1))
    if find_spec("torchmetrics"):
        import torch
        from torchmetrics.functional.classification import binary_calibration_error

        tensors = torch.from_numpy(z), torch.from_numpy(y.astype(np.int64))
        theirs = best_of(lambda: binary_calibration_error(*tensors, n_bins=15, norm="l1", validate_args=False))
        histogram = estimator("histogram", bins=15)
        line("histogram n = 1e6 | torchmetrics", best_of(lambda: histogram(outcomes)), theirs)
    if find_spec("relplot"):
        import relplot

        smooth = estimator("smooth")
        theirs = best_of(lambda: relplot.smECE(z, y), 2)
        line("smooth n = 1e6 | relplot", best_of(lambda: smooth(outcomes)), theirs)
        print(f"    values: ours {smooth(outcomes):.6f}, relplot {relplot.smECE(z, y):.6f}")


def main() -> None:
    rng = np.random.default_rng(0)
    for n in (25_000, 1_000_000):
        z = rng.beta(5, 1, n)
        y = (rng.random(n) < z**1.3).astype(np.int8)
        outcomes = Outcomes(z, y)
        for name in ("kde", "kde-residual", "kde-residual-debiased", "histogram", "smooth"):
            chosen = estimator(name)
            line(f"{name} n = {n}", best_of(lambda c=chosen, o=outcomes: c(o)))
        line(f"calibration_error n = {n}", best_of(lambda z=z, y=y: calibration_error(z, y)))
    beside_peers(z, y)
    few = slice(0, 2000)
    line("with interval and test n = 2000", best_of(lambda: calibration_error(z[few], y[few], interval=True), 3))
    logits = 3 * rng.standard_normal((25_000, 1000), dtype=np.float32)
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    for notion in ("top-label", "class-wise"):
        took = best_of(lambda notion=notion: calibration_error(logits, labels, logits=True, notion=notion), 2)
        line(f"{notion} 25000 x 1000", took)


if __name__ == "__main__":
    main()

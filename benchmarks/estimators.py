"""Speed of the estimators of calibration error: `python benchmarks/estimators.py`."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from mixnmatch.evaluation.error import calibration_error
from mixnmatch.evaluation.estimators import estimator
from mixnmatch.evaluation.notion import Outcomes


def best_of(call: Callable[[], object], repetitions: int = 7) -> float:
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main() -> None:
    rng = np.random.default_rng(0)
    for n in (25_000, 1_000_000):
        z = rng.beta(5, 1, n)
        y = (rng.random(n) < z**1.3).astype(np.int8)
        for name in ("kde", "kde-residual", "kde-residual-debiased", "histogram", "smooth"):
            chosen = estimator(name)
            outcomes = Outcomes(z, y)
            print(f"{name:22s} n = {n:<8d} {best_of(lambda: chosen(outcomes)):8.2f} ms")  # noqa: B023
        print(f"{'calibration_error':22s} n = {n:<8d} {best_of(lambda: calibration_error(z, y)):8.2f} ms")  # noqa: B023
    z, y = z[:2000], y[:2000]
    print(
        f"{'with interval and test':22s} n = 2000     {best_of(lambda: calibration_error(z, y, interval=True)):8.2f} ms"
    )
    logits = 3 * rng.standard_normal((25_000, 1000), dtype=np.float32)
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    for notion in ("top-label", "class-wise"):
        call = lambda notion=notion: calibration_error(logits, labels, logits=True, notion=notion)  # noqa: E731
        print(f"{notion:22s} 25000 x 1000 {best_of(call, 2):8.0f} ms")


if __name__ == "__main__":
    main()

"""The default calibration error on problems with known truth: accuracy, intervals, the test and other notions.

    python benchmarks/estimator_study.py accuracy --logits DIR -o docs/results/estimators
    python benchmarks/estimator_study.py intervals --logits DIR -o docs/results/estimators
    python benchmarks/estimator_study.py power
    python benchmarks/estimator_study.py class-wise
    python benchmarks/estimator_study.py canonical
    python benchmarks/estimator_study.py bands

The cases are those of ``estimator_cases``, real outputs only with ``--logits``. ``--half chosen`` leaves out the cases
that the methods were not designed on. Tables are printed as Markdown; ``-o`` also writes them to a folder as CSV.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimator_cases import Case
from mixnmatch import calibration_error
from mixnmatch.evaluation._binning import Grid, bin_samples
from mixnmatch.evaluation.estimators import Estimator, GridEstimator, Histogram, KernelDensity, ResidualKernel, Smooth
from mixnmatch.evaluation.inference import calibration_test
from mixnmatch.evaluation.notion import Outcomes

Floats = NDArray[np.float64]
Row = dict[str, Any]
SIZES = (100, 300, 1000, 5000)
REFERENCE = "the paper's KDE"
ESTIMATORS: dict[str, Estimator] = {
    REFERENCE: KernelDensity(),
    "kde-residual": ResidualKernel(),
    "kde-residual-debiased": ResidualKernel(debiased=True),
    "smooth": Smooth(),
    "15 equal-width bins": Histogram(),
    "equal-mass bins, Sturges": Histogram(bins="sturges", binning="equal-mass"),
}
SIGN = "sign known"
SAMPLES_A_CHUNK = 100


def samples(case: Case, n: int, repetitions: int, purpose: int) -> tuple[Floats, NDArray[np.int8]]:
    """Repetitions of a case, other ones for every purpose."""
    seed = [purpose, n, *case.name.encode()]
    return case.samples(n, repetitions, np.random.default_rng(seed))


def estimates(estimator: Estimator, z: Floats, y: NDArray[np.int8]) -> Floats:
    """Estimates of many samples."""
    if not isinstance(estimator, GridEstimator):
        return np.array([estimator(Outcomes(a, b)) for a, b in zip(z, y, strict=True)])
    parts = []
    for start in range(0, len(z), SAMPLES_A_CHUNK):
        grid: Grid = bin_samples(z[start : start + SAMPLES_A_CHUNK], y[start : start + SAMPLES_A_CHUNK])
        parts.append(estimator.on_grid(grid))
    return np.concatenate(parts)


def accuracy(chosen: list[Case], repetitions: int) -> Iterator[Row]:
    """Mean absolute errors; for comparison, what knowing the sign of the true residuals gives."""
    for case in chosen:
        truth = case.truth()
        for n in SIZES:
            z, y = samples(case, n, repetitions, 0)
            found = {name: estimates(estimator, z, y) for name, estimator in ESTIMATORS.items()}
            sign = np.sign(case.probability(z) - z) if truth > 0 else 1.0
            found[SIGN] = np.abs((sign * (y - z)).mean(axis=1))
            for name, values in found.items():
                error = np.abs(values - truth)
                yield {
                    "half": case.half, "case": case.name, "n": n, "truth": truth, "estimator": name,
                    "mae": error.mean(), "mae_se": error.std() / np.sqrt(repetitions), "bias": values.mean() - truth,
                }  # fmt: skip


def relative(rows: list[Row]) -> list[Row]:
    """Mean absolute errors relative to the paper's KDE: geometric mean and largest over the cases of each half."""
    reference = {(row["case"], row["n"]): row["mae"] for row in rows if row["estimator"] == REFERENCE}
    out = []
    for half in dict.fromkeys(row["half"] for row in rows):
        for name in [*ESTIMATORS, SIGN]:
            line: Row = {"half": half, "estimator": name}
            for n in SIZES:
                part = [row for row in rows if (row["half"], row["estimator"], row["n"]) == (half, name, n)]
                ratio = np.array([row["mae"] / reference[row["case"], n] for row in part])
                line[f"n = {n}"] = f"{np.exp(np.log(ratio).mean()):.3f} (at most {ratio.max():.2f})"
            out.append(line)
    return out


def by_case(rows: list[Row]) -> list[Row]:
    """The ratio of the default estimator to the paper's KDE, and to the value with known signs, case by case."""
    error = {(row["case"], row["n"], row["estimator"]): row["mae"] for row in rows}
    out = []
    for half, case, truth in dict.fromkeys((row["half"], row["case"], row["truth"]) for row in rows):
        line: Row = {"half": half, "case": case, "true error": f"{truth:.4f}"}
        for n in SIZES:
            ours, known = (error[case, n, name] / error[case, n, REFERENCE] for name in ("kde-residual", SIGN))
            line[f"n = {n}"] = f"{ours:.2f} ({known:.2f})"
        out.append(line)
    return out


def intervals(chosen: list[Case], repetitions: int) -> Iterator[Row]:
    """Coverage and length of 95% intervals, how often the test rejects, and whether the parts agree."""
    for case in chosen:
        truth = case.truth()
        for n in SIZES:
            z, y = samples(case, n, repetitions, 1)
            found = [calibration_error(a, b, interval=True) for a, b in zip(z, y, strict=True)]
            low, high = np.array([error.interval for error in found]).T
            p_value, value = np.array([error.p_value for error in found]), np.array(found, dtype=float)
            agrees = (low <= value) & (value <= high) & ((low > 0) == ((p_value <= 0.05) & (value > 0))) & (high <= 1)
            yield {
                "half": case.half, "case": case.name, "n": n, "truth": truth,
                "coverage": float(np.mean((low <= truth) & (truth <= high))),
                "too_high": float(np.mean(low > truth)), "too_low": float(np.mean(high < truth)),
                "length": float(np.mean(high - low)), "rejected": float(np.mean(p_value <= 0.05)),
                "agree": float(np.mean(agrees)),
            }  # fmt: skip


def chi_square(z: Floats, y: Floats, bins: int = 15) -> Floats:
    """Chi-square of observed and expected counts in equal-mass bins, for many outcomes (R x n) of the same samples."""
    order = np.argsort(z, kind="stable")
    starts = np.unique(np.arange(bins) * len(z) // bins)
    expected = np.add.reduceat(z[order], starts)
    variance = np.add.reduceat((z * (1 - z))[order], starts)
    observed = np.add.reduceat(y[:, order], starts, axis=1)
    return np.asarray(((observed - expected) ** 2 / np.maximum(variance, 1e-12)).sum(axis=1))


def power(chosen: list[Case], repetitions: int) -> Iterator[Row]:
    """How often tests reject at 5%: the default one and the chi-square test over 15 equal-mass bins, both resampled."""
    for case in chosen:
        for n in (100, 300, 1000):
            z, y = samples(case, n, repetitions, 2)
            rng = np.random.default_rng(n)
            rejected = np.zeros(2)
            for a, b in zip(z, y, strict=True):
                rejected[0] += calibration_test(Outcomes(a, b), ResidualKernel(), 1, rng, resamples=199) <= 0.05
                drawn = chi_square(a, np.concatenate([b[None], rng.random((199, n)) < a]).astype(float))
                rejected[1] += np.mean(drawn >= drawn[0] - 1e-9) <= 0.05
            yield {
                "half": case.half, "case": case.name, "n": n, "truth": case.truth(),
                "default": rejected[0] / repetitions, "chi-square, 15 bins": rejected[1] / repetitions,
            }  # fmt: skip

"""The default calibration error on problems with known truth: accuracy, intervals, the test and other notions.

    python benchmarks/estimator_study.py accuracy --logits DIR -o docs/results/estimators
    python benchmarks/estimator_study.py neighbours --logits DIR -o docs/results/estimators
    python benchmarks/estimator_study.py intervals --logits DIR -o docs/results/estimators
    python benchmarks/estimator_study.py power
    python benchmarks/estimator_study.py class-wise
    python benchmarks/estimator_study.py canonical
    python benchmarks/estimator_study.py bands

The cases are those of ``estimator_cases``, real outputs only with ``--logits``. ``--part fifth`` leaves out the cases
that the methods were designed on. Tables are printed as Markdown; ``-o`` also writes them to a folder as CSV.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimator_cases import PARTS, Case, cases
from mixnmatch import calibration_error
from mixnmatch.evaluation import reliability_curve
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
BOUND = "efficiency bound"
DEFAULT = "kde-residual"
# Problems next to a case: its true residuals times these factors. Ratios above the limit are looked into.
FACTORS = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
LIMIT = 1.2
CALIBRATED = 1e-9
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


def efficiency_bound(case: Case, n: int) -> float:
    """Smallest mean absolute error that an estimator can have at a case and at all problems close to it.

    With the signs s(z) of the true residuals known, the calibration error is the mean of s(z) (y - z). The variance of
    that is the semiparametric efficiency bound. By the local asymptotic minimax theorem the largest mean absolute error
    of any estimator, over the problems at a distance of a multiple of 1 / sqrt(n), is at least sqrt(2 variance / (pi
    n)). Not defined where residuals are 0: the calibration error has no derivative there.
    """
    z, y = case.samples(400_000, 1, np.random.default_rng(21))
    return float(np.sqrt(2 / np.pi * np.var(np.sign(case.probability(z) - z) * (y - z)) / n))


def accuracy(chosen: list[Case], repetitions: int) -> Iterator[Row]:
    """Mean absolute errors, and the bound for them unless the case is calibrated."""
    for case in chosen:
        truth = case.truth()
        for n in SIZES:
            z, y = samples(case, n, repetitions, 0)
            cell: Row = {"part": case.part, "case": case.name, "n": n, "truth": truth}
            for name, estimator in ESTIMATORS.items():
                values = estimates(estimator, z, y)
                error = np.abs(values - truth)
                spread = {"mae_se": error.std() / np.sqrt(repetitions), "bias": values.mean() - truth}
                yield {**cell, "estimator": name, "mae": error.mean(), **spread}
            bound = efficiency_bound(case, n) if truth > CALIBRATED else np.nan
            yield {**cell, "estimator": BOUND, "mae": bound, "mae_se": 0.0, "bias": 0.0}


def relative(rows: list[Row]) -> list[Row]:
    """Mean absolute errors relative to the paper's KDE: geometric mean and largest over the cases of each part."""
    reference = {(row["case"], row["n"]): row["mae"] for row in rows if row["estimator"] == REFERENCE}
    out = []
    for part in dict.fromkeys(row["part"] for row in rows):
        for name in [*ESTIMATORS, BOUND]:
            line: Row = {"part": part, "estimator": name}
            for n in SIZES:
                here = [row for row in rows if (row["part"], row["estimator"], row["n"]) == (part, name, n)]
                ratio = np.array([row["mae"] / reference[row["case"], n] for row in here])
                ratio = ratio[np.isfinite(ratio)]
                line[f"n = {n}"] = f"{np.exp(np.log(ratio).mean()):.3f} (at most {ratio.max():.2f})"
            out.append(line)
    return out


def by_case(rows: list[Row]) -> list[Row]:
    """The ratio of the default estimator to the paper's KDE, and that of the bound, case by case."""
    error = {(row["case"], row["n"], row["estimator"]): row["mae"] for row in rows}
    out = []
    for part, case, truth in dict.fromkeys((row["part"], row["case"], row["truth"]) for row in rows):
        line: Row = {"part": part, "case": case, "true error": f"{truth:.4f}"}
        for n in SIZES:
            ours, bound = (error[case, n, name] / error[case, n, REFERENCE] for name in (DEFAULT, BOUND))
            line[f"n = {n}"] = f"{ours:.2f} ({bound:.2f})" if np.isfinite(bound) else f"{ours:.2f}"
        out.append(line)
    return out


def neighbours(chosen: list[Case], repetitions: int) -> Iterator[Row]:
    """Ratios to the paper's KDE on problems next to a case, for the cases where it is above the limit.

    An estimate that happens to be right at one size of the residuals is wrong at the sizes below and above it.
    """
    for case in chosen:
        truth = case.truth()
        sizes = [n for n in SIZES if truth > CALIBRATED and _errors(case, n, truth, repetitions)[2] > LIMIT]
        near = [_scaled(case, factor) for factor in FACTORS] if sizes else []
        truths = [one.truth() for one in near]
        for n in sizes:
            found = [_errors(one, n, own, repetitions) for one, own in zip(near, truths, strict=True)]
            ours, reference, ratio = np.array(found).T
            line: Row = {"part": case.part, "case": case.name, "n": n}
            line |= {f"x {factor:g}": f"{one:.2f}" for factor, one in zip(FACTORS, ratio, strict=True)}
            means = f"{ours.mean() / reference.mean():.2f}", f"{ours.max() / reference.max():.2f}"
            bound = efficiency_bound(case, n) / reference[FACTORS.index(1.0)]
            yield line | {"mean": means[0], "largest": means[1], "bound": f"{bound:.2f}"}


def _scaled(case: Case, factor: float) -> Case:
    """A case with its residuals times a factor."""
    probability = case.probability
    return Case(case.name, case.part, case.draw, lambda z: np.clip(z + factor * (probability(z) - z), 0, 1))


def _errors(case: Case, n: int, truth: float, repetitions: int) -> tuple[float, float, float]:
    """Mean absolute errors of the default and of the paper's KDE, and their ratio."""
    z, y = samples(case, n, repetitions, 0)
    ours, reference = (np.abs(estimates(ESTIMATORS[name], z, y) - truth).mean() for name in (DEFAULT, REFERENCE))
    return ours, reference, ours / reference


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
                "part": case.part, "case": case.name, "n": n, "truth": truth,
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
        truth = case.truth()
        for n in (64, 100, 300, 1000):
            z, y = samples(case, n, repetitions, 2)
            rng = np.random.default_rng(n)
            rejected = np.zeros(2)
            for a, b in zip(z, y, strict=True):
                rejected[0] += calibration_test(Outcomes(a, b), ResidualKernel(), 1, rng, resamples=199) <= 0.05
                drawn = chi_square(a, np.concatenate([b[None], rng.random((199, n)) < a]).astype(float))
                rejected[1] += np.mean(drawn >= drawn[0] - 1e-9) <= 0.05
            yield {
                "part": case.part, "case": case.name, "n": n, "truth": truth,
                "default": rejected[0] / repetitions, "chi-square, 15 bins": rejected[1] / repetitions,
            }  # fmt: skip


def rows_of(n_classes: int, n: int, kind: str, rng: np.random.Generator) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Probabilities of a model, the true ones, and labels."""
    p = np.exp(rng.normal(0, 1.5, (n, n_classes)))
    p /= p.sum(axis=1, keepdims=True)
    truth = p.copy()
    if kind == "overconfident":
        truth **= 0.6
    elif kind == "one class half as often":
        truth[:, 0] *= 0.5
    truth /= truth.sum(axis=1, keepdims=True)
    labels = (truth.cumsum(axis=1)[:, :-1] < rng.random((n, 1))).sum(axis=1)
    return p, truth, labels


def class_wise_truth(n_classes: int, kind: str) -> float:
    """Mean over classes of the error of each, by the means of 4000 groups of a large sample."""
    p, truth, _ = rows_of(n_classes, 4_000_000 // n_classes, kind, np.random.default_rng(99))
    errors = []
    for k in range(n_classes):
        groups = np.array_split(np.argsort(p[:, k]), 4000)
        errors.append(np.mean([abs((truth[rows, k] - p[rows, k]).mean()) for rows in groups]))
    return float(np.mean(errors))


def many_classes(notion: str, repetitions: int) -> Iterator[Row]:
    """Estimates, coverage and rejections of class-wise or canonical errors."""
    sizes = [(3, 300), (3, 2000), (10, 2000), (50, 2000)] if notion == "class-wise" else [(2, 300), (3, 300), (4, 300)]
    for n_classes, n in sizes:
        for kind in ("calibrated", "overconfident", "one class half as often"):
            rng = np.random.default_rng([n_classes, n])
            if notion == "class-wise":
                truth = 0.0 if kind == "calibrated" else class_wise_truth(n_classes, kind)
            else:
                p, pi, _ = rows_of(n_classes, 400_000, kind, rng)
                truth = float(np.abs(pi - p).sum(axis=1).mean())
            found = []
            for _ in range(repetitions):
                p, _, labels = rows_of(n_classes, n, kind, rng)
                found.append(calibration_error(p, labels, notion=notion, interval=True))
            low, high = np.array([error.interval for error in found]).T
            yield {
                "classes": n_classes, "n": n, "case": kind, "true error": truth,
                "mean estimate": float(np.mean(found)), "coverage": float(np.mean((low <= truth) & (truth <= high))),
                "mean length": float(np.mean(high - low)),
                "rejected": float(np.mean([error.p_value <= 0.05 for error in found])),
            }  # fmt: skip


# The settings of the bands were chosen on these, and on the cases of rare events below.
BAND_CASES = ("half slope", "sine, 1 period", "rare events, three times", "rare events, half", "XGBoost, KITTI",
              "IMDB, two classes", "Beta(.5, .5), overconfident", "20 values, smooth")  # fmt: skip
# These judge them. Truths with jumps are left out: at a jump no smooth curve is right.
JUDGED_BANDS = ("sine, 4 periods", "99.7% accuracy", "mixture of 3, spread", "mixture of 2, overlapping",
                "Beta(.3, .6), overconfident", "1000 classes, very sharp", "Wide ResNet, CIFAR-10",
                "ResNet 50, ImageNet", "LeNet, CIFAR-10", "GPT-2, AG News", "XGBoost, MNIST", "LLaVA, MMBench",
                "fine-tuned network, 20 Newsgroups", "Qwen-VL, OOD-CV")  # fmt: skip
BAND_SIZES = (400, 4000, 40_000)


def rare_tail(n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.int8]]:
    """Rare events with few large scores: 1% of the samples are above one half."""
    z = rng.beta(0.3, 6.0, n)
    z[: n // 100] = rng.uniform(0.4, 0.7, n // 100)
    return z, (rng.random(n) < z).astype(np.int8)


def rare(n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.int8]]:
    """Rare events, 2% of the samples, with log-odds that are normal: ever fewer samples and wider gaps up to 1."""
    z = 1 / (1 + np.exp(-rng.normal(-5.2, 1.9, n)))
    return z, (rng.random(n) < z).astype(np.int8)


RARE_BANDS = {"rare events, few large scores": rare_tail, "rare events, normal log-odds": rare}


def bands(chosen: list[Case], repetitions: int) -> Iterator[Row]:
    """Pointwise 95% bands: how often they hold the truth, and their width, averaged over samples and in the tail.

    The largest size is for the kernel band only, with a quarter of the repetitions.
    """
    problems: list[tuple[str, Any, Any]] = [
        (case.name, lambda n, rng, case=case: [part[0] for part in case.samples(n, 1, rng)], case.probability)
        for case in chosen
        if case.name in BAND_CASES + JUDGED_BANDS
    ]
    problems += [(name, draw, lambda z: z) for name, draw in RARE_BANDS.items()]
    for name, draw, probability in problems:
        for kind in ("kde", "histogram", "corp"):
            for n in BAND_SIZES if kind == "kde" else BAND_SIZES[:2]:
                covered, width, tail_covered, tail_width = [], [], [], []
                for seed in range(repetitions // 4 if n == BAND_SIZES[-1] else repetitions):
                    z, y = draw(n, np.random.default_rng([seed, n, *name.encode()]))
                    curve = reliability_curve(z, y, kind=kind)
                    wanted = probability(curve.confidence)
                    held = (curve.low <= wanted + 1e-12) & (wanted <= curve.high + 1e-12)
                    covered.append(curve.share @ held)
                    width.append(curve.share @ (curve.high - curve.low))
                    top = np.abs(curve.confidence - np.quantile(z, 0.995)).argmin()
                    tail_covered.append(held[top])
                    tail_width.append(curve.high[top] - curve.low[top])
                yield {
                    "case": name, "chosen on": "no" if name in JUDGED_BANDS else "yes", "kind": kind, "n": n,
                    "coverage": float(np.mean(covered)), "mean width": float(np.mean(width)),
                    "coverage at the 99.5% quantile": float(np.mean(tail_covered)),
                    "mean width there": float(np.mean(tail_width)),
                }  # fmt: skip


def markdown(rows: list[Row]) -> str:
    """A table of rows."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        cells = (f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row.values())
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write(rows: list[Row], path: Path) -> None:
    """Write rows as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{cell:.5g}" if isinstance(cell, float) else cell for key, cell in row.items()})


STUDIES: dict[str, Callable[[list[Case], int], Iterator[Row]]] = {
    "accuracy": accuracy, "neighbours": neighbours, "intervals": intervals, "power": power, "bands": bands,
}  # fmt: skip


def main() -> None:
    """Run one of the studies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=[*STUDIES, "class-wise", "canonical"])
    parser.add_argument("--logits", type=Path, help="folder of real outputs; without it those cases are left out")
    parser.add_argument("--part", choices=PARTS, help="only the cases of one part")
    parser.add_argument("--case", action="append", help="only this case; can be repeated")
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("-o", "--output", type=Path, help="folder for the table as CSV")
    arguments = parser.parse_args()
    start = time.time()
    chosen = [] if arguments.study in ("class-wise", "canonical") else cases(arguments.logits)
    if arguments.part:
        chosen = [case for case in chosen if case.part == arguments.part]
    if arguments.case:
        chosen = [case for case in chosen if case.name in arguments.case]
    if chosen:
        rows = list(STUDIES[arguments.study](chosen, arguments.repetitions))
    else:
        rows = list(many_classes(arguments.study, arguments.repetitions))
    if arguments.output:
        name = arguments.study + (f"_{arguments.part}" if arguments.part else "")
        write(rows, arguments.output / f"{name}.csv")
    if arguments.study == "accuracy":
        print(markdown(relative(rows)), end="\n\n")
        print(markdown(by_case(rows)))
    else:
        print(markdown(rows))
    print(f"{arguments.repetitions} repetitions, {time.time() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

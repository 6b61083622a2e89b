"""The paper's synthetic study (section 5.1) and what it says about estimators, intervals and tests.

Two classes with normal features and a logistic model with parameters (beta0, beta1): the calibration function is known,
and with it the true calibration error.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch.evaluation._binning import Floats, bin_samples
from mixnmatch.evaluation.estimators import Estimator, GridEstimator, Histogram, KernelDensity, ResidualKernel
from mixnmatch.evaluation.inference import agreeing_interval, calibration_test, error_interval
from mixnmatch.evaluation.notion import Outcomes

Case = tuple[float, float]
Row = dict[str, Any]
Progress = Callable[[str], None]

# The paper's less and better calibrated case, a calibrated one, and three more.
PAPER_CASES: Final[tuple[Case, ...]] = ((0.5, -1.5), (0.2, -1.9))
CASES: Final[tuple[Case, ...]] = (*PAPER_CASES, (0.0, -2.0), (1.0, -1.0), (0.0, -4.0), (0.0, -1.2))
PAPER_SIZES: Final = (64, 128, 256, 512, 1024)
SIZES: Final = (64, 256, 1024, 4096)
SAMPLES_A_CHUNK: Final = 250

PAPER_KDE: Final = "the paper's KDE"
EQUAL_WIDTH: Final = "15 equal-width bins"
EQUAL_MASS: Final = "equal-mass bins, Sturges"
PLAIN: Final = "residual KDE"
CORRECTED: Final = "residual KDE, noise-corrected"


def contestants(norm: int = 1) -> dict[str, Estimator]:
    """The estimators that are compared, by their names in tables."""
    chosen: dict[str, Estimator] = {
        PAPER_KDE: KernelDensity(),
        EQUAL_WIDTH: Histogram(),
        EQUAL_MASS: Histogram(bins="sturges", binning="equal-mass"),
        PLAIN: ResidualKernel(),
        CORRECTED: ResidualKernel(debiased=True),
    }
    if norm == 2:
        chosen[EQUAL_WIDTH + ", debiased"] = Histogram(debiased=True)
        chosen[EQUAL_MASS + ", debiased"] = Histogram(bins="sturges", binning="equal-mass", debiased=True)
    return chosen


def draw(case: Case, n: int, samples: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.int8]]:
    """Samples of size n of the probability of the first class and of whether it is true, one a row."""
    first = rng.random((samples, n)) < 0.5
    x = rng.standard_normal((samples, n)) + np.where(first, -1.0, 1.0)
    return np.asarray(1.0 / (1.0 + np.exp(-case[0] - case[1] * x))), first.astype(np.int8)


def calibration_function(z: Floats, case: Case) -> Floats:
    """The true probability of the first class given the predicted one (the paper's closed form)."""
    return np.asarray(1.0 / (1.0 + np.exp(-2.0 * (case[0] + np.log(1.0 / z - 1.0)) / case[1])))


def true_error(case: Case, norm: int = 1, n_nodes: int = 200_001) -> float:
    """The calibration error of a case by quadrature over the feature.

    Examples
    --------
    >>> round(true_error((0.5, -1.5)), 5), round(true_error((0.2, -1.9)), 5), round(true_error((0.0, -2.0)), 5)
    (0.07444, 0.02346, 0.0)
    """
    x = np.linspace(-10.0, 10.0, n_nodes)
    density = (np.exp(-0.5 * (x - 1) ** 2) + np.exp(-0.5 * (x + 1) ** 2)) / (2 * np.sqrt(2 * np.pi))
    predicted = 1.0 / (1.0 + np.exp(-case[0] - case[1] * x))
    truth = 1.0 / (1.0 + np.exp(2.0 * x))
    return float(np.trapezoid(np.abs(predicted - truth) ** norm * density, x))


@dataclass(frozen=True)
class Cell:
    """Estimates of one case and sample size: one array of paired repetitions for each estimator."""

    case: Case
    n: int
    norm: int
    truth: float
    estimates: dict[str, Floats]

    def row(self, name: str) -> Row:
        """Mean absolute error, its standard error, and bias of an estimator."""
        error = self.estimates[name] - self.truth
        return {
            "beta0": self.case[0],
            "beta1": self.case[1],
            "n": self.n,
            "norm": self.norm,
            "truth": self.truth,
            "estimator": name,
            "mae": float(np.abs(error).mean()),
            "mae_se": float(np.abs(error).std() / np.sqrt(len(error))),
            "bias": float(error.mean()),
            "sd": float(error.std()),
        }


def simulate(
    case: Case,
    n: int,
    *,
    repetitions: int,
    norm: int = 1,
    seed: int = 0,
    estimators: dict[str, Estimator] | None = None,
) -> Cell:
    """Estimates of many samples of a case."""
    chosen = contestants(norm) if estimators is None else estimators
    rng = np.random.default_rng([seed, n, CASES.index(case) if case in CASES else len(CASES)])
    estimates_of: dict[str, list[Floats]] = {name: [] for name in chosen}
    for start in range(0, repetitions, SAMPLES_A_CHUNK):
        z, y = draw(case, n, min(SAMPLES_A_CHUNK, repetitions - start), rng)
        grid = bin_samples(z, y)
        for name, estimator in chosen.items():
            if isinstance(estimator, GridEstimator):
                estimates_of[name].append(estimator.on_grid(grid, norm))
            else:
                estimates_of[name].append(
                    np.array([estimator(Outcomes(a, b), norm) for a, b in zip(z, y, strict=True)])
                )
    estimates = {name: np.concatenate(parts) for name, parts in estimates_of.items()}
    return Cell(case, n, norm, true_error(case, norm), estimates)


def error_study(
    *,
    repetitions: int = 1000,
    cases: Sequence[Case] = PAPER_CASES,
    sizes: Sequence[int] = PAPER_SIZES,
    norms: Sequence[int] = (1, 2),
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Cell]:
    """The paper's study: absolute errors of estimators against the number of samples."""
    cells = []
    for norm in norms:
        for case in cases:
            for n in sizes:
                cells.append(simulate(case, n, repetitions=repetitions, norm=norm, seed=seed))
                _tell(progress, f"norm {norm}, case {case}, n = {n}")
    return cells


def comparison_study(
    *, repetitions: int = 2000, seed: int = 0, progress: Progress | None = None
) -> tuple[list[Row], list[Row], list[Cell]]:
    """Six cases by four sizes: mean absolute errors relative to the paper's KDE, and every loss against histograms.

    Returns
    -------
    ratios : list of dict
        For each estimator, its mean absolute error averaged over the 24 cells, and that relative to the paper's KDE.
    losses : list of dict
        Cells where a residual estimator has the larger mean absolute error than a histogram, with the paired difference
        and its 95% interval.
    cells : list of Cell
        All estimates.
    """
    cells = error_study(repetitions=repetitions, cases=CASES, sizes=SIZES, norms=(1,), seed=seed, progress=progress)
    means = {name: float(np.mean([cell.row(name)["mae"] for cell in cells])) for name in cells[0].estimates}
    ratios = [{"estimator": name, "mae": mae, "ratio": mae / means[PAPER_KDE]} for name, mae in means.items()]
    losses = [
        row
        for cell in cells
        for ours in (PLAIN, CORRECTED)
        for theirs in (EQUAL_WIDTH, EQUAL_MASS)
        if (row := _paired(cell, ours, theirs))["difference"] > 0
    ]
    return ratios, losses, cells


def _paired(cell: Cell, ours: str, theirs: str) -> Row:
    error = {name: np.abs(cell.estimates[name] - cell.truth) for name in (ours, theirs)}
    difference = error[ours] - error[theirs]
    half = 1.96 * float(difference.std() / np.sqrt(len(difference)))
    middle = float(difference.mean())
    return {
        "beta0": cell.case[0],
        "beta1": cell.case[1],
        "n": cell.n,
        "estimator": ours,
        "against": theirs,
        "mae": float(error[ours].mean()),
        "their_mae": float(error[theirs].mean()),
        "difference": middle,
        "low": middle - half,
        "high": middle + half,
    }


def coverage_study(
    *,
    repetitions: int = 300,
    cases: Sequence[Case] = CASES,
    sizes: Sequence[int] = SIZES,
    norm: int = 1,
    seed: int = 0,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> list[Row]:
    """How often nominal 95% intervals hold the true error, and how often the test rejects at 5%."""
    from joblib import Parallel, delayed

    cells = [(case, n) for n in sizes for case in cases]
    work = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_coverage_of)(case, n, repetitions, norm, seed) for case, n in cells
    )
    rows = []
    for row in work:
        rows.append(row)
        _tell(progress, f"intervals, case {row['beta0'], row['beta1']}, n = {row['n']}")
    return rows


def _coverage_of(case: Case, n: int, repetitions: int, norm: int, seed: int) -> Row:
    estimator, truth = ResidualKernel(), true_error(case, norm)
    rng = np.random.default_rng([seed, n, 7])
    z, y = draw(case, n, repetitions, rng)
    ends, rejected = [], 0
    for a, b in zip(z, y, strict=True):
        p_value = calibration_test(Outcomes(a, b), estimator, norm, rng, resamples=99)
        interval = error_interval(Outcomes(a, b), estimator, norm, rng)
        value = estimator(Outcomes(a, b), norm)
        ends.append(agreeing_interval(interval, value, p_value))
        rejected += p_value <= 0.05
    low, high = np.array(ends).T
    return {
        "beta0": case[0],
        "beta1": case[1],
        "n": n,
        "truth": truth,
        "coverage": float(np.mean((low <= truth) & (truth <= high))),
        "length": float(np.mean(high - low)),
        "rejected": rejected / repetitions,
    }


def rate_study(
    *,
    repetitions: int = 400,
    cases: Sequence[Case] = PAPER_CASES,
    sizes: Sequence[int] = (64, 256, 1024, 4096, 16384),
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Row]:
    """How fast the bias of kernel estimators falls with n, against the rate of Theorem 4.1.

    The theorem bounds the bias by n^(-beta / (beta + L)); with kernels that are not negative, beta is at most 2, and a
    binary problem has L = 1 free coordinate, so that the bound falls like n^(-2/3). Slopes are fitted to logarithms.
    """
    rows = []
    kernels: dict[str, Estimator] = {PAPER_KDE: KernelDensity(), PLAIN: ResidualKernel()}
    for case in cases:
        cells = []
        for n in sizes:
            cells.append(simulate(case, n, repetitions=repetitions, seed=seed, estimators=kernels))
            _tell(progress, f"rate, case {case}, n = {n}")
        for name in kernels:
            bias = np.array([abs(cell.row(name)["bias"]) for cell in cells])
            spread = np.array([cell.row(name)["sd"] for cell in cells])
            logs = np.log(np.asarray(sizes, dtype=np.float64))
            rows.append(
                {
                    "beta0": case[0],
                    "beta1": case[1],
                    "estimator": name,
                    "sizes": list(sizes),
                    "bias": bias.tolist(),
                    "sd": spread.tolist(),
                    "bias_slope": float(np.polyfit(logs, np.log(np.maximum(bias, 1e-12)), 1)[0]),
                    "sd_slope": float(np.polyfit(logs, np.log(spread), 1)[0]),
                    "bound_slope": -2 / 3,
                }
            )
    return rows


def run_synthetic(
    out_dir: str | Path,
    *,
    repetitions: int = 1000,
    seed: int = 0,
    figures: bool = True,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> dict[str, list[Row]]:
    """Run all studies, write their tables (CSV and JSON) and figures to a directory, and return the tables.

    ``repetitions`` is that of the paper's study; the comparison takes twice as many, intervals a third, rates a
    quarter.
    """
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    cells = error_study(repetitions=repetitions, seed=seed, progress=progress)
    ratios, losses, compared = comparison_study(repetitions=2 * repetitions, seed=seed, progress=progress)
    tables = {
        "truth": [{"beta0": c[0], "beta1": c[1], "ece1": true_error(c), "ece2": true_error(c, 2)} for c in CASES],
        "errors": [cell.row(name) for cell in cells for name in cell.estimates],
        "comparison": [cell.row(name) for cell in compared for name in cell.estimates],
        "ratios": ratios,
        "losses": losses,
        "coverage": coverage_study(repetitions=max(repetitions // 3, 1), seed=seed, n_jobs=n_jobs, progress=progress),
        "rate": rate_study(repetitions=max(repetitions // 4, 2), seed=seed, progress=progress),
    }
    for name, rows in tables.items():
        _write(folder, name, rows)
    if figures:
        from mixnmatch.experiments.synthetic_plots import draw_figures

        draw_figures(folder, cells, tables["coverage"])
    return tables


def _write(folder: Path, name: str, rows: list[Row]) -> None:
    (folder / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]) if rows else ["empty"])
        writer.writeheader()
        writer.writerows(rows)


def _tell(progress: Progress | None, message: str) -> None:
    if progress is not None:
        progress(message)

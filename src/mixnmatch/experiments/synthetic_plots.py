"""Figures of the synthetic study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mixnmatch.experiments.synthetic import Cell, Row

DISTRIBUTION_SIZES = (64, 1024)


def _figure(rows: int, columns: int) -> tuple[Any, Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:  # pragma: no cover
        msg = "figures need matplotlib: pip install mixnmatch[plot]"
        raise ImportError(msg) from error
    figure = Figure(figsize=(5 * columns, 3.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def draw_figures(folder: Path, cells: Sequence[Cell], coverage: Sequence[Row]) -> list[Path]:
    """Draw the mean absolute errors, the error distributions and the coverage, and return the files."""
    paths = []
    for norm in sorted({cell.norm for cell in cells}):
        chosen = [cell for cell in cells if cell.norm == norm]
        paths.append(_mean_errors(folder / f"errors-norm-{norm}.png", chosen, norm))
        paths.append(_distributions(folder / f"distributions-norm-{norm}.png", chosen, norm))
    if coverage:
        paths.append(_coverage(folder / "coverage.png", coverage))
    return paths


def _mean_errors(path: Path, cells: Sequence[Cell], norm: int) -> Path:
    cases = list(dict.fromkeys(cell.case for cell in cells))
    figure, axes = _figure(1, len(cases))
    for axis, case in zip(axes[0], cases, strict=True):
        here = [cell for cell in cells if cell.case == case]
        for name in here[0].estimates:
            axis.plot([cell.n for cell in here], [cell.row(name)["mae"] for cell in here], marker="o", label=name)
        axis.set(xscale="log", yscale="log", xlabel="number of samples", title=f"beta = {case}")
        axis.set_ylabel(f"mean absolute error of ECE$^{norm}$")
    axes[0][-1].legend(fontsize=7)
    figure.savefig(path, dpi=120)
    return path


def _distributions(path: Path, cells: Sequence[Cell], norm: int) -> Path:
    chosen = [cell for cell in cells if cell.n in DISTRIBUTION_SIZES] or list(cells)
    cases = list(dict.fromkeys(cell.case for cell in chosen))
    sizes = sorted({cell.n for cell in chosen})
    figure, axes = _figure(len(cases), len(sizes))
    for cell in chosen:
        axis = axes[cases.index(cell.case)][sizes.index(cell.n)]
        errors = {name: values - cell.truth for name, values in cell.estimates.items()}
        limit = float(np.quantile(np.abs(np.concatenate(list(errors.values()))), 0.995)) or 1.0
        for name, values in errors.items():
            axis.hist(np.clip(values, -limit, limit), bins=30, histtype="step", density=True, label=name)
        axis.axvline(0.0, color="grey", linewidth=0.8)
        axis.set(title=f"beta = {cell.case}, n = {cell.n}", xlabel=f"error of ECE$^{norm}$")
    axes[0][-1].legend(fontsize=7)
    figure.savefig(path, dpi=120)
    return path


def _coverage(path: Path, rows: Sequence[Row]) -> Path:
    figure, axes = _figure(1, 2)
    for case in dict.fromkeys((row["beta0"], row["beta1"]) for row in rows):
        here = [row for row in rows if (row["beta0"], row["beta1"]) == case]
        sizes = [row["n"] for row in here]
        axes[0][0].plot(sizes, [row["coverage"] for row in here], marker="o", label=f"beta = {case}")
        axes[0][1].plot(sizes, [row["rejected"] for row in here], marker="o", label=f"beta = {case}")
    axes[0][0].axhline(0.95, color="grey", linewidth=0.8)
    axes[0][0].set(xscale="log", ylim=(0.8, 1.0), xlabel="number of samples", ylabel="coverage of 95% intervals")
    axes[0][1].axhline(0.05, color="grey", linewidth=0.8)
    axes[0][1].set(xscale="log", xlabel="number of samples", ylabel="rejected at 5%")
    axes[0][1].legend(fontsize=7)
    figure.savefig(path, dpi=120)
    return path

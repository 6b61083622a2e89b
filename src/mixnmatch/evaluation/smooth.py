"""Smooth calibration error (smooth ECE): residuals smoothed by a Gaussian whose width equals the error it finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from mixnmatch.evaluation._binning import Floats, Grid
from mixnmatch.evaluation.kde import spectrum

# Widths that are tried at most, and how close to the error they find the last one is.
STEPS: Final = 60
CLOSE: Final = 1e-10
# Factors of the cosine series below this are taken as 0.
SMALLEST_FACTOR: Final = 1e-18
COARSE_NODES: Final = 513
COARSE_WIDTH: Final = 0.02


@dataclass(frozen=True)
class SmoothError:
    """Smooth calibration error of each problem of a grid, and the width at which it was found (equal to it)."""

    value: Floats
    width: Floats


def summed_error(coefficients: Floats, width: Floats) -> Floats:
    """Sum over the samples of the smooth calibration error at given widths, from the spectrum of the residuals.

    Notes
    -----
    The reflected Gaussian is the heat kernel of [0, 1] with insulated ends: in a cosine series it multiplies the k-th
    coefficient by exp(-(pi k width)^2 / 2).
    """
    n_nodes = coefficients.shape[-1]
    last = np.sqrt(-2 * np.log(SMALLEST_FACTOR)) / (np.pi * max(float(np.min(width, initial=1.0)), 1 / n_nodes**2))
    order = np.arange(min(n_nodes, int(last) + 2))
    factors = np.exp(-0.5 * np.square(np.pi * order * width[..., None]))
    damped = np.zeros(np.broadcast_shapes(coefficients.shape, (*width.shape, 1)))
    np.multiply(coefficients[..., : len(order)], factors, out=damped[..., : len(order)])
    values = fft.idct(damped, type=1, axis=-1, overwrite_x=True)
    values[..., [0, -1]] *= 0.5
    return np.asarray(np.abs(values).sum(axis=-1))


def smooth_error(grid: Grid) -> SmoothError:
    r"""Smooth calibration error with the width at its fixed point.

    Notes
    -----
    .. math:: \mathrm{smECE}_\sigma = \int \Big| \frac1n \sum_i \tilde K_\sigma(t, z_i)(y_i - z_i) \Big| dt

    with a Gaussian :math:`\tilde K_\sigma` reflected at 0 and 1. It falls with :math:`\sigma`, so that
    :math:`\mathrm{smECE}_{\sigma} = \sigma` has one solution, found by the secant method within brackets (Illinois).

    References
    ----------
    Blasiok & Nakkiran (2023), Smooth ECE: principled reliability diagrams via kernel smoothing.
    """
    n_nodes = grid.count.shape[-1]
    if n_nodes > COARSE_NODES and (n_nodes - 1) % (COARSE_NODES - 1) == 0:
        coarse = _fixed_point(grid.coarsened(COARSE_NODES))
        narrow = np.asarray(coarse.width) <= COARSE_WIDTH  # there the coarse grid has not converged
        if not narrow.all():
            return _refined(coarse, grid, narrow) if narrow.any() else coarse
    return _fixed_point(grid)


def _refined(coarse: SmoothError, grid: Grid, narrow: NDArray[np.bool_]) -> SmoothError:
    """The errors of a coarse grid with those of some problems from the fine one."""
    shape = np.broadcast_shapes(grid.count.shape, grid.outcome.shape)
    fine = _fixed_point(Grid(*(np.broadcast_to(masses, shape)[narrow] for masses in (grid.count, grid.outcome))))
    value, width = np.array(coarse.value), np.array(coarse.width)
    value[narrow], width[narrow] = fine.value, fine.width
    return SmoothError(value, width)


def _fixed_point(grid: Grid) -> SmoothError:
    coefficients = spectrum(grid.residual)
    total = np.broadcast_to(grid.total[..., 0], coefficients.shape[:-1])

    def excess(width: Floats) -> Floats:
        return summed_error(coefficients, width) / total - width

    low, high = np.zeros(total.shape), np.ones(total.shape)
    above, below = excess(low), excess(high)
    width, found, rose = low, above, None
    for _ in range(STEPS):
        if np.all(np.abs(found) <= CLOSE):
            break
        secant = (low * below - high * above) / np.where(below < above, below - above, 1.0)
        width = np.where((secant > low) & (secant <= high), secant, 0.5 * (low + high))
        found = excess(width)
        rises = found > 0
        # An end that stays for the second time counts half: otherwise the other one alone would move.
        stays = np.where(rises == rose, 0.5, 1.0)
        above, below = np.where(rises, found, stays * above), np.where(rises, stays * below, found)
        low, high, rose = np.where(rises, width, low), np.where(rises, high, width), rises
    return SmoothError(found + width, width)

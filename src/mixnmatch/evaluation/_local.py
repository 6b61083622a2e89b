"""Kernel smoothing with windows that widen where there are few samples."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch.evaluation._binning import Floats, Grid
from mixnmatch.evaluation.kde import Smoother, spectrum

# A window widens until it holds as many samples, or this part of all of them, but not beyond this standard deviation in
# log-odds: samples with other log-odds say little about the outcomes here, however many they are.
ENOUGH: Final = 20.0
ENOUGH_PART: Final = 0.1
WIDEST: Final = 0.4


class LocalSmoother:
    """Smoothing of a grid with a kernel whose width is doubled, up to a limit, where this brings in enough samples.

    What counts is the effective number of samples in a window, the squared sum of the kernel over the sum of squares.
    Where even the widest window has too few, the width stays: the average remains noisy and is seen to be.

    Parameters
    ----------
    width : array of shape (...)
        Standard deviation of the kernel where samples are many.
    grid : Grid
        The samples.
    kernel : str
        Name of the kernel.
    widen : bool
        Whether the width may be doubled.

    Attributes
    ----------
    support, squares : arrays of shape (..., nodes)
        Sums over the sample of the kernel of each node, and of its square.
    """

    def __init__(self, width: Floats, grid: Grid, kernel: str, *, widen: bool = True) -> None:
        counts, n_nodes = spectrum(grid.count), grid.count.shape[-1]
        enough = np.minimum(ENOUGH, ENOUGH_PART * grid.total)
        waiting = np.ones(grid.count.shape, dtype=bool)
        steps = int(np.log2(max(0.25 * WIDEST / max(float(np.min(width)), 1e-9), 1.0))) if widen else 0
        self._levels: list[tuple[NDArray[np.bool_], Smoother]] = []
        for step in range(steps + 1):
            wide = np.asarray(width * 2.0**step)
            smoother = Smoother(wide, n_nodes, kernel)
            # The transform leaves rounding errors, also below zero, where there are no data.
            support = np.maximum(smoother.value(grid.count, transformed=counts), 1e-9 * grid.total)
            squares = np.maximum(smoother.variance(grid.count, transformed=counts), 0.0)
            if step == 0:
                self.support, self.squares = support, squares
                self._levels.append((waiting, smoother))  # less what wider windows take
            allowed = wide[..., None] <= WIDEST * grid.nodes * (1 - grid.nodes)
            taken = waiting & (support**2 >= enough * squares) & (allowed | (step == 0))
            waiting = waiting & ~taken
            if step > 0 and taken.any():
                self._levels.append((taken, smoother))
                self.support = np.where(taken, support, self.support)
                self.squares = np.where(taken, squares, self.squares)
            if not waiting.any():
                break
        first = np.ones(grid.count.shape, dtype=bool)
        for taken, _ in self._levels[1:]:
            first &= ~taken
        self._levels[0] = first, self._levels[0][1]

    def average(self, masses: Floats) -> Floats:
        """Kernel mean at each node, with the window of the node."""
        return np.asarray(sum(taken * smoother.value(masses) for taken, smoother in self._levels) / self.support)

    def variance(self, variances: Floats) -> Floats:
        """Variance of :meth:`average`, of independent masses with these variances."""
        found = sum(taken * smoother.variance(variances) for taken, smoother in self._levels)
        return np.asarray(np.maximum(found, 0.0) / self.support**2)

    def spread_out(self, masses: Floats) -> Floats:
        """Function whose sum over the sample is that of the masses: each is spread over the window of its own node."""
        shares = masses / self.support
        return np.asarray(sum(smoother.value(taken * shares) for taken, smoother in self._levels))

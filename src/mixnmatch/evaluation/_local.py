"""Kernel smoothing with windows that widen where there are few samples."""

from __future__ import annotations

from typing import Final

import numpy as np

from mixnmatch.evaluation._binning import Floats, Grid
from mixnmatch.evaluation.kde import NARROWEST, Smoother, spectrum

# A window widens until it holds as many samples, or this part of all of them, but not beyond this standard deviation in
# log-odds: samples with other log-odds say little about the outcomes here, however many they are.
ENOUGH: Final = 30.0
ENOUGH_PART: Final = 0.1
WIDEST: Final = 0.4
# By how much a window widens at a time.
GROWTH: Final = 2.0**0.5
# A window with less than this part of the weight is empty: the transform leaves as much, also below zero.
ROUNDING: Final = 1e-9


class LocalSmoother:
    """Smoothing of a grid with a kernel that widens where it holds few samples, until they are enough or up to a limit.

    What counts is the effective number of samples in a window: the squared sum of the kernel over the sum of squares,
    but no more than for samples spread evenly with the density at the node. So samples at the edge of a window, as
    beside a gap, count little.

    Parameters
    ----------
    width : array of shape (...)
        Standard deviation of the kernel where samples are many.
    grid : Grid
        The samples.
    kernel : str
        Name of the kernel.
    widen : bool
        Whether the width may grow.

    Attributes
    ----------
    support, squares : arrays of shape (..., nodes)
        Sums over the sample of the kernel of each node, and of its square.
    effective : array of shape (..., nodes)
        Effective number of samples in the window of each node; 0 where it is empty. A window that was widened counts as
        no more than enough, so that the number does not jump from one width to the next.
    """

    def __init__(self, width: Floats, grid: Grid, kernel: str, *, widen: bool = True) -> None:
        shape, counts, floor = grid.count.shape, spectrum(grid.count), ROUNDING * grid.total
        enough = np.minimum(ENOUGH, ENOUGH_PART * grid.total)
        widest = np.asarray(WIDEST * grid.nodes * (1 - grid.nodes))
        self.support, self.squares, self.effective = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        level = np.zeros(shape, dtype=np.intp)
        smoothers: list[Smoother] = []
        waiting = np.ones(shape, dtype=bool)
        wide = np.maximum(width, NARROWEST / (shape[-1] - 1))
        while waiting.any():
            smoother = Smoother(wide, shape[-1], kernel)
            support = np.maximum(smoother.value(grid.count, transformed=counts), floor)
            squares = np.maximum(smoother.variance(grid.count, transformed=counts), 0.0)
            effective = np.minimum(support**2 / np.maximum(squares, 1e-300), support / smoother.sum_of_squares)
            effective = np.where(support > floor, effective, 0.0)
            if smoothers:
                effective = np.minimum(effective, enough)
            level[waiting] = len(smoothers)
            smoothers.append(smoother)
            for kept, new in ((self.support, support), (self.squares, squares), (self.effective, effective)):
                np.copyto(kept, new, where=waiting)
            wide = wide * GROWTH
            waiting &= (effective < enough) & (wide[..., None] <= widest) & widen
        self._levels = [(level == step, smoother) for step, smoother in enumerate(smoothers)]

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

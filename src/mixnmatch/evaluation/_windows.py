"""Windows around each node that hold as many samples as a band needs, and not more where the curve may bend."""

from __future__ import annotations

from typing import Final

import numpy as np

from mixnmatch.evaluation._binning import Floats, Grid
from mixnmatch.evaluation._local import ENOUGH, ENOUGH_PART, GROWTH, ROUNDING, WIDEST
from mixnmatch.evaluation.kde import NARROWEST, Smoother, spectrum

# A window up to the narrowest bandwidth of the curve grows until it holds this many samples, times n^0.6. The best
# curve would take n^0.8: the bias of a window of fewer is small beside its noise.
MANY: Final = 3.0
MANY_POWER: Final = 0.6
# From this standard deviation in log-odds on it grows only as far as it must: there curves bend towards 0 and 1.
FAR: Final = 1.0


class Windows:
    r"""Local means of one sample, each over a window of its own.

    Notes
    -----
    The window of a node starts at the node alone and grows by factors of :math:`\sqrt 2` until it holds k samples:
    :math:`3 n^{0.6}` up to ``width``, 30 (a tenth of the samples, if that is less) beyond it and where it spans more
    than one standard deviation in log-odds. Beyond ``width`` it ends at 0.4 in log-odds. Between two sizes the kernels
    are mixed so that k is hit exactly: means and numbers of samples have no jumps where windows change size.

    How samples are counted says :class:`~mixnmatch.evaluation._local.LocalSmoother`.

    Parameters
    ----------
    grid : Grid
        The sample.
    width : float
        Standard deviation up to which a window may grow to hold many samples.
    kernel : str
        Name of the kernel.
    inflation : float
        Weight of an effective sample: the sum of squared weights over the sum of weights, 1 without weights.

    Attributes
    ----------
    effective : array of shape (nodes,)
        Effective number of samples in each window; 0 where it is empty.
    """

    def __init__(self, grid: Grid, width: float, kernel: str, inflation: float = 1.0) -> None:
        n_nodes, total = grid.count.shape[-1], float(grid.total[0]) / inflation
        narrowest = NARROWEST / (n_nodes - 1)
        width = max(width, narrowest)
        enough = min(ENOUGH, ENOUGH_PART * total)
        many = max(enough, MANY * total**MANY_POWER)
        spread = grid.nodes * (1 - grid.nodes)  # of z for a step of 1 in log-odds
        waiting = np.ones(n_nodes, dtype=bool)
        self._kernels: list[tuple[Floats, Smoother | None]] = []
        self._support, self.effective = np.zeros(n_nodes), np.zeros(n_nodes)
        before: tuple[Smoother | None, Floats, Floats] | None = None
        counts = spectrum(grid.count)
        sizes = _sizes(width, narrowest)
        for size, following in zip(sizes, [*sizes[1:], np.inf], strict=True):
            smoother = Smoother(size, n_nodes, kernel) if size > 0 else None
            support, held = _held(grid, smoother, counts)
            effective = held / inflation
            aim = np.where((size <= width) & (following <= FAR * spread), many, enough)
            last = (size >= width) & ((effective >= enough) | (following > WIDEST * spread))
            ends = waiting & ((effective >= aim) | last)
            share = ends.astype(np.float64)
            if before is not None:
                between = ends & (effective >= aim) & (before[2] < aim)
                share[between] = (aim - before[2])[between] / (effective - before[2])[between]
                self._add(ends - share, *before)
            self._add(share, smoother, support, effective)
            waiting &= ~ends
            before = smoother, support, effective

    def _add(self, share: Floats, smoother: Smoother | None, support: Floats, effective: Floats) -> None:
        if share.any():
            self._kernels.append((share, smoother))
            self._support += share * support
            self.effective += share * effective

    def average(self, masses: Floats) -> Floats:
        """Mean at each node over its window: masses that are sums over the samples, divided by their number."""
        transformed = spectrum(masses)
        found = sum(
            share * (masses if smoother is None else smoother.value(masses, transformed=transformed))
            for share, smoother in self._kernels
        )
        return np.asarray(found / np.maximum(self._support, 1e-300))


def _sizes(width: float, narrowest: float) -> list[float]:
    """Standard deviations that are tried: 0 for the node alone, those up to ``width``, and wider ones."""
    below = int(np.log(width / narrowest) / np.log(GROWTH))
    above = int(max(np.log(WIDEST / 4 / width), 0.0) / np.log(GROWTH)) + 1
    return [0.0, *(width * GROWTH ** np.arange(-below, above + 1)).tolist()]


def _held(grid: Grid, smoother: Smoother | None, counts: Floats) -> tuple[Floats, Floats]:
    """Sum of the kernel over the sample, and the effective sum of weights, in the windows of one size."""
    if smoother is None:
        support = np.maximum(grid.count, 0.0)
        return support, support
    floor = ROUNDING * grid.total
    support = np.maximum(smoother.value(grid.count, transformed=counts), floor)
    squares = np.maximum(smoother.variance(grid.count, transformed=counts), 1e-300)
    effective = np.minimum(support**2 / squares, support / smoother.sum_of_squares)
    return support, np.where(support > floor, effective, 0.0)

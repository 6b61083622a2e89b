"""Linear binning: confidences and outcomes as masses on a grid of [0, 1], behind all smooth estimators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Nodes that data are binned on; what is smoothed widely is coarsened afterwards, at no loss.
FINEST = 2049
# Rows whose temporaries stay in the cache.
ROWS_A_BLOCK = 32_768


@dataclass(frozen=True)
class Grid:
    """Masses on equally spaced nodes with one at 0 and one at 1; leading axes are independent problems.

    ``count`` holds the linearly binned weights, ``outcome`` the linearly binned weights times outcomes. Grids with the
    same nodes add up, which makes them the statistic of a block of rows.
    """

    count: Floats
    outcome: Floats

    def __add__(self, other: Grid) -> Grid:
        """The grid of both samples together."""
        return Grid(self.count + other.count, self.outcome + other.outcome)

    @property
    def nodes(self) -> Floats:
        """Positions of the nodes."""
        return np.linspace(0.0, 1.0, self.count.shape[-1])

    @property
    def total(self) -> Floats:
        """Sum of the weights, kept as an axis of length 1."""
        return np.asarray(self.count.sum(axis=-1, keepdims=True))

    @property
    def residual(self) -> Floats:
        """Linearly binned residuals y - z. Linear binning keeps means, so their sum is exactly that of the data."""
        return np.asarray(self.outcome - self.nodes * self.count)

    @property
    def squared_residual(self) -> Floats:
        """Sums of (y - z)^2 a node, for outcomes 0 and 1 (where y^2 = y)."""
        x = self.nodes
        return np.asarray(self.outcome * (1 - 2 * x) + x * x * self.count)

    def coarsened(self, n_nodes: int) -> Grid:
        """The same sample on fewer nodes. Hats on nested grids nest: it is as if it had been binned there at once.

        ``n_nodes - 1`` must divide the number of cells.
        """
        factor, rest = divmod(self.count.shape[-1] - 1, n_nodes - 1)
        if rest:
            msg = f"{n_nodes} nodes do not nest in {self.count.shape[-1]}"
            raise ValueError(msg)
        return self if factor == 1 else Grid(_coarsen(self.count, factor), _coarsen(self.outcome, factor))

    def spread(self) -> Floats:
        """Standard deviation of the confidences, an axis of length 1 (the grid adds at most half a cell to it)."""
        x, total = self.nodes, self.total
        mean = (self.count @ x)[..., None] / total
        second = (self.count @ (x * x))[..., None] / total
        return np.asarray(np.sqrt(np.maximum(second - mean * mean, 0.0)))


def bin_linearly(z: Floats, y: NDArray[Any], weight: Floats | None = None, *, n_nodes: int = FINEST) -> Grid:
    """Bin one sample of confidences and outcomes.

    Parameters
    ----------
    z : array of shape (n,)
        Confidences in [0, 1].
    y : array of shape (n,)
        Outcomes, 0 and 1 or numbers in between.
    weight : array of shape (n,), optional
        Frequencies.
    n_nodes : int
        Number of nodes, those at 0 and 1 included.

    Notes
    -----
    A point between nodes j and j + 1, a fraction f of the way, gives 1 - f to the one and f to the other. Counts and
    sums of f in each cell, one table for each outcome, hold all that is needed.
    """
    if y.dtype.kind not in "bui" and not _is_binary(y):
        ones = np.ones(len(z), dtype=np.int8)
        count = bin_linearly(z, ones, weight, n_nodes=n_nodes).outcome
        return Grid(count, bin_linearly(z, ones, _times(y.astype(np.float64), weight), n_nodes=n_nodes).outcome)
    full = np.zeros(2 * n_nodes)
    upper = np.zeros(2 * n_nodes)
    for start in range(0, len(z), ROWS_A_BLOCK):
        rows = slice(start, start + ROWS_A_BLOCK)
        cell, fraction = locate(z[rows], n_nodes)
        cell += n_nodes * y[rows].astype(np.intp)
        own = None if weight is None else weight[rows]
        full += np.bincount(cell, weights=own, minlength=2 * n_nodes)
        upper += np.bincount(cell, weights=_times(fraction, own), minlength=2 * n_nodes)
    negative, positive = _to_nodes(full.reshape(2, n_nodes), upper.reshape(2, n_nodes))
    return Grid(negative + positive, positive)


def bin_samples(z: Floats, y: NDArray[Any], *, n_nodes: int = FINEST) -> Grid:
    """Bin many samples of the same size, the rows of ``z`` and ``y`` (0 and 1): a grid of shape (samples, nodes)."""
    cell, fraction = locate(z, n_nodes)
    size = len(z) * n_nodes
    index = cell + n_nodes * np.arange(len(z))[:, None]
    hit = y != 0
    sums = [
        np.bincount(where.ravel(), None if share is None else share.ravel(), size).reshape(len(z), n_nodes)
        for where, share in ((index, None), (index, fraction), (index[hit], None), (index[hit], fraction[hit]))
    ]
    return Grid(_to_nodes(sums[0], sums[1]), _to_nodes(sums[2], sums[3]))


def bin_columns(p: NDArray[Any], labels: NDArray[np.intp], weight: Floats | None, *, n_nodes: int = FINEST) -> Grid:
    """Bin every column of ``p`` against "the label is this column": a grid of shape (columns, nodes).

    ``labels`` are columns of ``p``; a label outside of them (a class of another chunk) is a negative for all.
    """
    n_columns = p.shape[1]
    cell, fraction = locate(p, n_nodes)
    size = n_columns * n_nodes
    each = None if weight is None else np.repeat(weight, n_columns)
    index = (cell + n_nodes * np.arange(n_columns)).ravel()
    full = np.bincount(index, weights=each, minlength=size)
    upper = np.bincount(index, weights=_times(fraction.ravel(), each), minlength=size)
    rows = np.flatnonzero((labels >= 0) & (labels < n_columns))
    columns = labels[rows]
    hit = columns * n_nodes + cell[rows, columns]
    own = None if weight is None else weight[rows]
    full_hit = np.bincount(hit, weights=own, minlength=size)
    upper_hit = np.bincount(hit, weights=_times(fraction[rows, columns], own), minlength=size)
    shape = (n_columns, n_nodes)
    return Grid(
        _to_nodes(full.reshape(shape), upper.reshape(shape)),
        _to_nodes(full_hit.reshape(shape), upper_hit.reshape(shape)),
    )


def locate(z: NDArray[Any], n_nodes: int) -> tuple[NDArray[np.intp], Floats]:
    """Cell of each confidence, numbered by its lower node, and how far it is on the way to the upper one."""
    position = z * np.float64(n_nodes - 1)
    cell: NDArray[np.intp] = position.astype(np.intp)
    np.minimum(cell, n_nodes - 2, out=cell)  # exactly 1 is the upper end of the last cell
    position -= cell
    return cell, position


def _times(values: Floats, weight: Floats | None) -> Floats:
    return values if weight is None else values * weight


def _to_nodes(full: NDArray[Any], upper: NDArray[Any]) -> Floats:
    nodes: Floats = full - upper
    nodes[..., 1:] += upper[..., :-1]
    return nodes


def _is_binary(y: NDArray[Any]) -> bool:
    return bool(np.all((y == 0) | (y == 1)))


def _coarsen(masses: Floats, factor: int) -> Floats:
    cells = masses[..., :-1].reshape(*masses.shape[:-1], -1, factor)
    share = np.arange(factor) / factor
    lower, upper = np.moveaxis(cells @ np.stack([1 - share, share], axis=1), -1, 0)
    out: Floats = np.zeros((*masses.shape[:-1], cells.shape[-2] + 1))
    out[..., :-1] += lower
    out[..., 1:] += upper
    out[..., -1] += masses[..., -1]
    return out

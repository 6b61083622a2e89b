"""NumPy kernels: sums and extremes of rows, winners, and what metrics read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import row_maxima, row_sums, winners

Block = NDArray[Any]
Labels = NDArray[np.intp]
Rows = NDArray[np.float64]


def extremes(x: Block) -> Rows:
    """Smallest and largest entry, smallest and largest sum of a row; NaN if sums are undefined."""
    with np.errstate(over="ignore", invalid="ignore"):  # huge numbers sum to an infinity, or to nothing
        sums = row_sums(x)
    return np.array([x.min(), x.max(), sums.min(), sums.max()], dtype=np.float64)


def leads(x: Block) -> Rows:
    """Entries less the largest of their row, in float64."""
    return np.asarray(np.subtract(x, row_maxima(x)[:, None], dtype=np.float64))


def normalise(g: Rows, share: float) -> int:
    """Divide rows by their sum, in place, and make a share of them uniform; rows of zeros stay and are counted."""
    total = row_sums(g)
    empty = total == 0
    g *= ((1 - share) / np.where(empty, 1.0, total))[:, None]
    g += np.where(empty, 0.0, share / g.shape[1])[:, None]
    return int(empty.sum())


def keep_winners(given: Block, out: Block) -> None:
    """Where the largest entry of a row of ``out`` is not that of ``given``, raise the winner just above it.

    Mathematically, maps that preserve accuracy keep the order of a row. In floating point a lead of one unit in the
    last place can vanish in a softmax or a sum; then the entry that should win ties with another or falls behind it.
    """
    winner, found = winners(given), winners(out)
    lost = np.flatnonzero(winner != found)
    if lost.size:
        out[lost, winner[lost]] = np.nextafter(out[lost, found[lost]], out.dtype.type(np.inf))


def label_rows(x: Block, y: Labels) -> Rows:
    """Log-probability of the label of each row of logits, and the squared error."""
    rows, p = np.arange(len(x)), leads(x)
    at_label = p[rows, y]
    np.exp(p, out=p)
    total = p.sum(axis=1)
    p /= total[:, None]
    p[rows, y] = 0.0
    rest = p.sum(axis=1)
    return np.stack([at_label - np.log(total), np.einsum("ij,ij->i", p, p) + rest * rest])


def squared_errors(x: Block, y: Labels) -> Rows:
    """Squared error of each row of probabilities; the label is subtracted first, so that small errors keep digits."""
    p, rows = x.astype(np.float64), np.arange(len(x))
    p[rows, y] -= 1.0
    return np.asarray(np.einsum("ij,ij->i", p, p))

"""Squared kernel calibration error (SKCE): the full vector of probabilities tested by a kernel, without densities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.scores import is_number
from mixnmatch.evaluation._binning import Floats

# Rows that the median heuristic looks at, and numbers held at a time while pairs are compared.
MEDIAN_ROWS: Final = 250
ENTRIES_A_CHUNK: Final = 4_000_000


@dataclass(frozen=True)
class KernelError:
    """A squared kernel calibration error with its standard error and the p-value of "it is 0", where available."""

    value: float
    standard_error: float
    p_value: float
    bandwidth: float


def median_distance(p: NDArray[Any], *, seed: int = 0) -> float:
    """Median total variation distance between rows, of at most 250 of them (1 if rows are all alike)."""
    rows = p if len(p) <= MEDIAN_ROWS else p[np.random.default_rng(seed).permutation(len(p))[:MEDIAN_ROWS]]
    if len(rows) < 2:
        return 1.0
    i, j = np.triu_indices(len(rows), 1)
    step = max(1, ENTRIES_A_CHUNK // p.shape[1])
    parts = [_total_variation(rows[i[s : s + step]], rows[j[s : s + step]]) for s in range(0, len(i), step)]
    median = float(np.median(np.concatenate(parts)))
    return median if median > 0 else 1.0


def _total_variation(p: NDArray[Any], q: NDArray[Any]) -> Floats:
    return np.asarray(0.5 * np.abs(p - q).sum(axis=-1, dtype=np.float64))


def _kernel(distance: Floats, bandwidth: float, kernel: str) -> Floats:
    if kernel == "laplacian":
        return np.asarray(np.exp(-distance / bandwidth))
    if kernel == "gaussian":
        return np.asarray(np.exp(-0.5 * np.square(distance / bandwidth)))
    msg = f'the kernel of the kernel calibration error must be "laplacian" or "gaussian", got {kernel!r}'
    raise ValueError(msg)


def _pair_terms(p: Floats, labels: NDArray[np.intp], bandwidth: float, kernel: str) -> Floats:
    """Terms h_ij of all pairs within each block: ``p`` is (blocks, B, L), the result (blocks, B, B)."""
    n_blocks, size, _ = p.shape
    distance = np.empty((n_blocks, size, size))
    for i in range(size):
        distance[:, i] = _total_variation(p[:, i : i + 1], p)
    at_label = np.take_along_axis(p, np.broadcast_to(labels[:, None, :], (n_blocks, size, size)), axis=2)
    same = labels[:, :, None] == labels[:, None, :]
    inner = same - at_label - np.swapaxes(at_label, 1, 2) + p @ np.swapaxes(p, 1, 2)
    return np.asarray(_kernel(distance, bandwidth, kernel) * inner)


def block_skce(
    p: NDArray[Any],
    labels: NDArray[np.intp],
    *,
    block_size: int | None = None,
    bandwidth: float | None = None,
    kernel: str = "laplacian",
) -> KernelError:
    r"""Unbiased block estimator of the SKCE, linear in the number of rows, and its test.

    Parameters
    ----------
    p : array of shape (n, L)
        Probabilities.
    labels : array of shape (n,)
        Columns of the true classes.
    block_size : int, optional
        Rows of a block. Two rows make the linear estimator of the paper; larger blocks compare more pairs. By default
        32, or fewer where that would leave fewer than 16 blocks. Rows that do not fill a block are left out.
    bandwidth : float, optional
        Scale of the kernel; by default the median distance.
    kernel : "laplacian" or "gaussian"
        exp(-d / bandwidth) or exp(-(d / bandwidth)^2 / 2) of the total variation distance d.

    Notes
    -----
    With the matrix-valued kernel k(p, q) I, a pair of rows contributes

    .. math:: h_{ij} = k(p_i, p_j)\, \langle e_{y_i} - p_i,\; e_{y_j} - p_j \rangle .

    Within a block the mean of all pairs is an unbiased estimate; blocks are independent, so that their mean is close to
    normal, with mean 0 if the model is calibrated. The test is one-sided and corrected for the skewness of the blocks.
    The value may be below 0.

    References
    ----------
    Widmann, Lindsten & Zachariah (2019), Calibration tests in multi-class classification.
    """
    n, n_classes = p.shape
    size = min(max(n // 16, 2), 32) if block_size is None else block_size
    size = min(size, n)
    if size < 2:
        msg = f"the kernel calibration error compares pairs of samples: it needs blocks of at least 2, got {size}"
        raise ValueError(msg)
    scale = _bandwidth(p, bandwidth)
    n_blocks = n // size
    pairs = size * (size - 1)
    step = max(1, ENTRIES_A_CHUNK // (size * (n_classes + 3 * size)))
    means = []
    for start in range(0, n_blocks, step):
        stop = min(start + step, n_blocks)
        rows = slice(start * size, stop * size)
        block = p[rows].astype(np.float64).reshape(stop - start, size, n_classes)
        terms = _pair_terms(block, labels[rows].reshape(stop - start, size), scale, kernel)
        means.append((terms.sum(axis=(1, 2)) - np.trace(terms, axis1=1, axis2=2)) / pairs)
    each = np.concatenate(means)
    value = float(each.mean())
    error = float(each.std(ddof=1) / math.sqrt(n_blocks)) if n_blocks > 1 else math.nan
    return KernelError(value, error, _one_sided_p_value(each), scale)


def _one_sided_p_value(blocks: Floats) -> float:
    """p-value of "the mean of the blocks is not above 0", corrected for their skewness.

    Notes
    -----
    Means of blocks are skewed to the right, which makes a plain t-test timid. With skewness g and m blocks,
    t + (g / (6 sqrt(m))) (1 + 2 t^2) is closer to normal (Johnson 1978, Modified t tests for asymmetrical populations).
    """
    m = len(blocks)
    spread = float(blocks.std(ddof=1)) if m > 1 else 0.0
    if spread <= 0:
        return math.nan
    t = float(blocks.mean()) / spread * math.sqrt(m)
    skewness = float(np.mean((blocks - blocks.mean()) ** 3)) / spread**3
    t += skewness / (6 * math.sqrt(m)) * (1 + 2 * t * t)
    return 0.5 * math.erfc(t / math.sqrt(2))


def skce(
    p: NDArray[Any], labels: NDArray[np.intp], *, bandwidth: float | None = None, kernel: str = "laplacian"
) -> float:
    """Unbiased estimator of the SKCE over all pairs of rows: quadratic in n, for small samples.

    Equal to :func:`block_skce` with one block of all rows, in bounded memory.
    """
    n, n_classes = p.shape
    if n < 2:
        msg = "the kernel calibration error compares pairs of samples: it needs at least 2"
        raise ValueError(msg)
    scale = _bandwidth(p, bandwidth)
    values = p.astype(np.float64)
    step = max(1, ENTRIES_A_CHUNK // (n * n_classes))
    total = 0.0
    for start in range(0, n, step):
        rows = slice(start, start + step)
        own = values[rows]
        distance = _total_variation(own[:, None, :], values[None, :, :])
        inner = (labels[rows][:, None] == labels) - own[:, labels] - values[:, labels[rows]].T + own @ values.T
        terms = _kernel(distance, scale, kernel) * inner
        total += float(terms.sum() - terms[np.arange(len(own)), start + np.arange(len(own))].sum())
    return float(total / (n * (n - 1)))


def _bandwidth(p: NDArray[Any], bandwidth: float | None) -> float:
    if bandwidth is None:
        return median_distance(p)
    if not is_number(bandwidth) or bandwidth <= 0:
        msg = f"bandwidth must be positive and finite, got {bandwidth}"
        raise ValueError(msg)
    return float(bandwidth)

"""Canonical calibration error, of whole probability vectors: Dirichlet kernels, and product kernels for L <= 4."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.scores import is_number
from mixnmatch.evaluation._binning import Floats
from mixnmatch.evaluation.kde import SUPPORT, _profile
from mixnmatch.evaluation.series import mean_of_power

PAIRS_A_CHUNK: Final = 2_000_000
# Dirichlet kernels are tried at these widths, and probabilities are read as at least so much.
WIDTHS: Final = tuple(10.0 ** np.arange(-3.0, 0.01, 0.25))
SMALLEST: Final = 1e-10
SELECTION_ROWS: Final = 500
MOST_CLASSES: Final = 4


def _chunks(n: int) -> Iterator[slice]:
    step = max(1, PAIRS_A_CHUNK // n)
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


class _DirichletKernel:
    """log k(z_j; z_i): the Dirichlet density with parameters z_i / h + 1, at z_j."""

    def __init__(self, p: Floats, width: float) -> None:
        from scipy.special import gammaln

        inside = np.maximum(p, SMALLEST)
        inside = inside / inside.sum(axis=1, keepdims=True)
        n_classes = p.shape[1]
        self._logarithm = np.log(inside)
        self.weights = inside / width
        self._constant = gammaln(1 / width + n_classes) - gammaln(self.weights + 1).sum(axis=1)

    def rows(self, rows: slice) -> Floats:
        """Logarithms of the kernel at some rows, from all rows."""
        return np.asarray(self._logarithm[rows] @ self.weights.T + self._constant)


def choose_width(p: Floats, weight: Floats | None = None) -> float:
    """Width of the Dirichlet kernel with the largest leave-one-out likelihood, on at most 500 rows."""
    from scipy.special import logsumexp

    step = max(1, len(p) // SELECTION_ROWS)
    rows = p[::step][:SELECTION_ROWS]
    own = np.ones(len(rows)) if weight is None else weight[::step][:SELECTION_ROWS]
    kept = own > 0
    rows, own = rows[kept], own[kept]
    if own.sum() < 2:
        return float(WIDTHS[len(WIDTHS) // 2])
    best, chosen = -np.inf, WIDTHS[0]
    for width in WIDTHS:
        log_kernel = _DirichletKernel(rows, width).rows(slice(None))
        others = np.tile(own, (len(rows), 1))
        others[np.diag_indices(len(rows))] -= 1
        density = logsumexp(log_kernel, axis=1, b=np.maximum(others, 0.0))
        score = float(own @ np.where(np.isfinite(density), density, -1e3))
        if score > best:
            best, chosen = score, width
    return float(chosen)


def dirichlet_error(
    p: NDArray[Any],
    labels: NDArray[np.intp],
    weight: Floats | None = None,
    *,
    norm: int = 1,
    bandwidth: float | None = None,
) -> float:
    r"""Canonical calibration error for any number of classes by Dirichlet kernels, leaving one out.

    Parameters
    ----------
    p : array of shape (n, L)
        Probabilities.
    labels : array of shape (n,)
        Columns of the true classes.
    weight : array of shape (n,), optional
        Frequencies.
    norm : 1 or 2
        The d of the d-th power.
    bandwidth : float, optional
        Width h of the kernels; by default of largest leave-one-out likelihood.

    Notes
    -----
    .. math:: \frac1n \sum_j \Big\| \frac{\sum_{i \ne j} k(z_j; z_i)\, y_i}{\sum_{i \ne j} k(z_j; z_i)} - z_j
              \Big\|_d^d, \qquad k(\cdot\,; z_i) = \mathrm{Dirichlet}(z_i / h + 1)

    All pairs of rows are compared, a bounded number at a time.

    References
    ----------
    Popordanoska, Sayer & Blaschko (2022), A consistent and differentiable Lp canonical calibration error estimator.
    """
    values = p.astype(np.float64)
    own = np.ones(len(values)) if weight is None else weight
    if bandwidth is not None and (not is_number(bandwidth) or bandwidth <= 0):
        msg = f"bandwidth must be positive and finite, got {bandwidth!r}"
        raise ValueError(msg)
    kernel = _DirichletKernel(values, choose_width(values, weight) if bandwidth is None else bandwidth)
    hits = np.zeros_like(values)
    hits[np.arange(len(values)), labels] = own
    total = 0.0
    for rows in _chunks(len(values)):
        log_kernel = kernel.rows(rows)
        ratio = np.exp(log_kernel - log_kernel.max(axis=1, keepdims=True))
        here = np.arange(rows.start, rows.stop)
        # One copy of the row itself is left out; with a weight of k, k - 1 copies stay.
        self_kernel = ratio[here - rows.start, here]
        mass = ratio @ own - self_kernel
        outcome = ratio @ hits
        outcome[here - rows.start, labels[here]] -= self_kernel
        total += float(own[rows] @ _powers(outcome, mass, values[rows], norm))
    return total / float(own.sum())


def _powers(outcome: Floats, mass: Floats, z: Floats, norm: int) -> Floats:
    """||pi - z||_d^d of each row; a row without neighbours has no estimate and counts as calibrated."""
    if norm not in (1, 2):
        msg = f"norm must be 1 or 2 for the canonical calibration error, got {norm!r}"
        raise ValueError(msg)
    near = mass > 1e-12
    pi = np.where(near[:, None], outcome / np.where(near, mass, 1.0)[:, None], z)
    return np.asarray((np.abs(pi - z) ** norm).sum(axis=1))


def product_kernel_error(
    p: NDArray[Any],
    labels: NDArray[np.intp],
    weight: Floats | None = None,
    *,
    norm: int = 1,
    bandwidth: float | str = "paper",
    kernel: str = "triweight",
    residual: bool = False,
) -> float:
    r"""Canonical calibration error for up to 4 classes by the paper's product kernel.

    Parameters
    ----------
    p, labels, weight, norm
        As in :func:`dirichlet_error`.
    bandwidth : float or "paper"
        Standard deviation of the kernel along each class. The rule is 1.06 sigma_l n^(-1/(L+3)), the paper's for L = 2.
    kernel : "triweight", "gaussian" or "epanechnikov"
        Factor of the product, mirrored at 0 and 1.
    residual : bool
        Smooth y - z instead of y, and correct for noise.

    Notes
    -----
    .. math:: \tilde\pi(z) = \frac{\sum_i y_i \prod_l K_{h_l}(z_l - z_{il})}{\sum_i \prod_l K_{h_l}(z_l - z_{il})},
              \qquad ECE^d = \int \|z - \tilde\pi(z)\|_d^d\, dP(z)

    The integral is the mean over the sample: the simplex has no volume in the L dimensions of the product kernel, and
    the sample is as good a set of nodes as any.

    With ``residual``, :math:`\hat r(z) = \sum_i k_i (y_i - z_i)`, where the :math:`k_i` are the kernel weights divided
    by their sum, has for each class the noise :math:`v = \sum_i k_i^2 (y_i - z_i)^2`. Less the noise, only products of
    the residuals of two samples are left in the squares. For d = 2 the value is their mean, with sums over samples and
    classes, :math:`S = (\sum \hat r^2 - \sum v)_+ / \sum (1 - \sum_i k_i^2)`. For d = 1 it is read as a prior
    variance: with :math:`\rho = S / (S + \bar v)` the residuals are normal a posteriori, with mean
    :math:`\rho \hat r` and variance :math:`\rho v`; the value is the mean of their absolute values.
    """
    if norm not in (1, 2):
        msg = f"norm must be 1 or 2 for the canonical calibration error, got {norm!r}"
        raise ValueError(msg)
    smoother = ProductKernel(p, weight, bandwidth=bandwidth, kernel=kernel)
    if residual:
        return float(smoother.residuals(labels[None]).errors(norm)[0])
    hits = np.zeros(p.shape)
    hits[np.arange(len(p)), labels] = 1.0
    return smoother.mean((np.abs(smoother.smooth(hits)[0] - smoother.p) ** norm).sum(axis=1))


@dataclass(frozen=True)
class SmoothedResiduals:
    """Smoothed residuals of B sets of labels and their noise, (B, n, L), with the share of each sample.

    ``independent`` is the share of pairs in the squares of kernel means that are of two samples.
    """

    curve: Floats
    noise: Floats
    share: Floats
    independent: float

    def _sums(self, parts: Floats) -> Floats:
        return np.asarray(np.einsum("bnl,n->b", parts, self.share))

    @property
    def noise_power(self) -> Floats:
        """Expected sum over classes of the squared noise, for each set of labels."""
        return self._sums(self.noise)

    @property
    def excess(self) -> Floats:
        """Mean over pairs of two samples of the product of their residuals: it has no noise on average."""
        return (self._sums(self.curve**2) - self.noise_power) / max(self.independent, 1e-9)

    def errors(self, norm: int, power: Floats | None = None) -> Floats:
        """Noise-corrected errors; ``power`` replaces the estimate of the squared residuals, for each set of labels."""
        power = np.maximum(self.excess if power is None else power, 0.0)
        if norm == 2:
            return power
        signal = (power / np.maximum(power + self.noise_power, 1e-300))[:, None, None]
        values = self._sums(mean_of_power(signal * self.curve, signal * self.noise, norm))
        return np.where(power > 0, values, 0.0)


class ProductKernel:
    """Smoothing over the simplex by products of kernels, one factor a class."""

    def __init__(
        self, p: NDArray[Any], weight: Floats | None = None, *, bandwidth: float | str = "paper", kernel: str
    ) -> None:
        if p.shape[1] > MOST_CLASSES:
            msg = (
                f"product kernels are for at most {MOST_CLASSES} classes, got {p.shape[1]}; "
                'use estimator="dirichlet" for the canonical notion, or the notion "top-label" or "class-wise"'
            )
            raise ValueError(msg)
        self.p = p.astype(np.float64)
        self.weight = np.ones(len(p)) if weight is None else weight
        self._widths = _product_widths(self.p, self.weight, bandwidth)
        self._kernel = kernel

    def mean(self, values: Floats) -> float:
        """Weighted mean over the samples."""
        return float(self.weight @ values / self.weight.sum())

    def smooth(self, targets: Floats, *, squares: bool = False) -> tuple[Floats, Floats, Floats]:
        """Kernel means of targets (n, M) at each sample, and with ``squares`` the noise of independent targets.

        Third, the sum of the squared weights of each mean.

        A sample without neighbours has no mean: it is that of the probabilities for as many columns as there are
        classes, 0 otherwise.
        """
        own = self.weight[:, None]
        mean, noise = np.empty(targets.shape), np.empty(targets.shape if squares else (0, 0))
        squared_weights = np.ones(len(targets))
        for rows in _chunks(len(self.p)):
            product: Any = 1.0
            for column, width in enumerate(self._widths):
                product = product * _mirrored(self.p[rows, column], self.p[:, column], width, self._kernel)
            mass = (product @ self.weight)[:, None]
            near = mass > 1e-12
            mass = np.where(near, mass, 1.0)
            otherwise = 0.0 if squares else self.p[rows]
            mean[rows] = np.where(near, (product @ (targets * own)) / mass, otherwise)
            if squares:
                square = product**2
                noise[rows] = (square @ (targets**2 * own)) / mass**2
                squared_weights[rows] = np.where(near[:, 0], (square @ self.weight) / mass[:, 0] ** 2, 1.0)
        return mean, noise, squared_weights

    def residuals(self, labels: NDArray[np.intp]) -> SmoothedResiduals:
        """Smoothed residuals of B sets of labels, (B, n), in one pass over pairs of samples."""
        n, n_classes = self.p.shape
        targets = np.repeat(-self.p[:, None, :], len(labels), axis=1)
        targets[np.arange(n), np.arange(len(labels))[:, None], labels] += 1.0
        mean, noise, squared_weights = self.smooth(targets.reshape(n, -1), squares=True)
        shape = (n, len(labels), n_classes)
        ordered = [np.moveaxis(part.reshape(shape), 1, 0) for part in (mean, noise)]
        independent = 1.0 - self.mean(squared_weights)
        return SmoothedResiduals(ordered[0], ordered[1], self.weight / self.weight.sum(), independent)


def _product_widths(p: Floats, weight: Floats, bandwidth: float | str) -> Floats:
    n, n_classes = float(weight.sum()), p.shape[1]
    if isinstance(bandwidth, str):
        if bandwidth != "paper":
            msg = f'bandwidth must be a positive number or "paper" for the canonical notion, got {bandwidth!r}'
            raise ValueError(msg)
        mean = weight @ p / n
        spread = np.sqrt(weight @ np.square(p - mean) / n)
        return np.asarray(np.maximum(1.06 * spread * n ** (-1 / (n_classes + 3)), 1e-6))
    if not is_number(bandwidth) or bandwidth <= 0:
        msg = f'bandwidth must be a positive number or "paper" for the canonical notion, got {bandwidth!r}'
        raise ValueError(msg)
    return np.full(n_classes, float(bandwidth))


def _mirrored(at: Floats, points: Floats, width: float, kernel: str) -> Floats:
    """Kernel at some places from all points and their images, unnormalised (constants cancel in the regression)."""
    if kernel not in SUPPORT:
        msg = f"kernel must be one of {', '.join(sorted(SUPPORT))}, got {kernel!r}"
        raise ValueError(msg)
    turns = int(np.ceil(0.5 * SUPPORT[kernel] * width))
    out = np.zeros((len(at), len(points)))
    for turn in range(-turns, turns + 1):
        out += _profile((at[:, None] - points + 2.0 * turn) / width, kernel)
        out += _profile((at[:, None] + points + 2.0 * turn) / width, kernel)
    return out

"""Calibration errors by kernel density estimation on a grid: the paper's estimator and the residual one.

Everything here acts on a :class:`~mixnmatch.evaluation._binning.Grid`, over any number of independent problems at once
(leading axes), by cosine transforms: a cosine series reflects at 0 and 1 as often as needed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy import fft

from mixnmatch._engine.scores import is_number
from mixnmatch.evaluation._binning import Floats, Grid

Bandwidth = float | str
# Half-width of the support of a kernel of standard deviation 1.
SUPPORT: Final = {"triweight": 3.0, "epanechnikov": 5.0**0.5, "gaussian": 8.5}
# A grid cannot resolve a kernel narrower than this many cells.
NARROWEST: Final = 0.75
# Nodes within a standard deviation of the kernel from which on the value has converged (to about 1e-6).
NODES_A_BANDWIDTH: Final = 32


def kernel_masses(bandwidth: Floats, n_nodes: int, kernel: str = "triweight") -> Floats:
    """Kernel of standard deviation ``bandwidth`` on the nodes, folded to period 2, masses that sum to 1 over a period.

    Notes
    -----
    With s the standard deviation, the triweight kernel is (35/32)(1 - u^2)^3 with u = x / (3 s): the bandwidth rule of
    the paper is a rule for standard deviations, and the support of a triweight kernel is three of them.
    """
    if not isinstance(kernel, str) or kernel not in SUPPORT:
        msg = f"kernel must be one of {', '.join(sorted(SUPPORT))}, got {kernel!r}"
        raise ValueError(msg)
    cells = n_nodes - 1
    scale = np.maximum(np.asarray(bandwidth, dtype=np.float64), NARROWEST / cells)[..., None]
    reach = min(float(SUPPORT[kernel] * scale.max()), 40.0)
    if reach >= 20.0:  # many periods wide: flat to rounding
        reach = 20.0
        scale = np.minimum(scale, reach / SUPPORT[kernel])
    x = np.arange(n_nodes) / cells
    turns = int(np.ceil(reach / 2 + 0.5))
    masses = np.zeros((*scale.shape[:-1], n_nodes))
    for turn in range(-turns, turns + 1):
        masses += _profile((x + 2.0 * turn) / scale, kernel)
    period = 2 * masses.sum(axis=-1) - masses[..., 0] - masses[..., -1]
    return np.asarray(masses / period[..., None])


def _profile(u: Floats, kernel: str) -> Floats:
    if kernel == "gaussian":
        return np.asarray(np.exp(-0.5 * u * u))
    inside = np.maximum(1.0 - np.square(u / SUPPORT[kernel]), 0.0)
    return np.asarray(inside * inside * inside if kernel == "triweight" else inside)


class Smoother:
    """Convolution with a kernel on a grid with mirrors at 0 and 1.

    ``mass`` keeps sums: what the trapezoid rule integrates after smoothing is the sum before it. ``value`` is the same
    convolution read as function values at the nodes, a symmetric matrix.
    """

    def __init__(self, bandwidth: Floats | float, n_nodes: int, kernel: str = "triweight") -> None:
        self._masses = kernel_masses(np.asarray(bandwidth, dtype=np.float64), n_nodes, kernel)
        self._spectrum = _transform(self._masses)

    @property
    def sum_of_squares(self) -> Floats:
        """Sum of the squared masses of the kernel, an axis of length 1."""
        squared = self._masses**2
        return np.asarray(2 * squared.sum(axis=-1) - squared[..., 0] - squared[..., -1])[..., None]

    def value(self, masses: Floats, *, transformed: Floats | None = None) -> Floats:
        """Sum over the data of the kernel, at each node. ``transformed`` saves computing :func:`spectrum` again."""
        data = spectrum(masses) if transformed is None else transformed
        return np.asarray(fft.idct(data * self._spectrum, type=1, axis=-1))

    def mass(self, masses: Floats) -> Floats:
        """Masses of the nodes after smoothing; their sum is that of the masses before."""
        out = self.value(masses)
        out[..., 0] *= 0.5
        out[..., -1] *= 0.5
        return out

    def variance(self, variances: Floats, *, transformed: Floats | None = None) -> Floats:
        """Variance of :meth:`value` at each node, of independent masses with these variances."""
        data = spectrum(variances) if transformed is None else transformed
        return np.asarray(fft.idct(data * _transform(self._masses**2), type=1, axis=-1))


def spectrum(masses: Floats) -> Floats:
    """Cosine transform of masses and their images in the mirrors."""
    doubled = masses.astype(np.float64)
    doubled[..., 0] *= 2.0  # a point at a mirror and its image coincide
    doubled[..., -1] *= 2.0
    return _transform(doubled)


def _transform(values: Floats) -> Floats:
    return np.asarray(fft.dct(values, type=1, axis=-1))


def rule_of_thumb(grid: Grid) -> Floats:
    """The paper's bandwidth, h = 1.06 sigma n^(-1/5), read as the standard deviation of the kernel."""
    return np.asarray(1.06 * grid.spread()[..., 0] * grid.total[..., 0] ** -0.2)


def authors_rule(grid: Grid) -> Floats:
    """Bandwidth of the demo code of the paper's authors: sigma of the positives only, 2n for n, and no 1.06.

    It too is handed to a kernel as its standard deviation.
    """
    positive = Grid(grid.outcome, grid.outcome)
    empty = grid.outcome.sum(axis=-1) <= 0
    safe = np.where(empty[..., None], grid.count, positive.count)
    spread = Grid(safe, safe).spread()[..., 0]
    return np.asarray(spread * (2 * grid.total[..., 0]) ** -0.2)


def choose_bandwidth(grid: Grid, bandwidth: Bandwidth) -> Floats:
    """Standard deviation of the kernel for each problem of a grid."""
    if isinstance(bandwidth, str):
        if bandwidth == "paper":
            return rule_of_thumb(grid)
        if bandwidth == "authors":
            return authors_rule(grid)
        msg = f'bandwidth must be a positive number, "paper" or "authors", got {bandwidth!r}'
        raise ValueError(msg)
    if not is_number(bandwidth) or bandwidth <= 0:
        msg = f"bandwidth must be positive and finite, got {bandwidth}"
        raise ValueError(msg)
    return np.full(grid.count.shape[:-1], float(bandwidth))


def fit_grid(grid: Grid, bandwidth: Floats, nodes_a_bandwidth: int = NODES_A_BANDWIDTH) -> Grid:
    """The grid with as many nodes as the narrowest of these bandwidths needs, and no more."""
    finest = grid.count.shape[-1] - 1
    wanted = nodes_a_bandwidth / max(float(np.min(bandwidth)), 1e-9)
    cells = finest
    while cells % 2 == 0 and cells // 2 >= max(wanted, 256):
        cells //= 2
    return grid.coarsened(cells + 1)


def kde_error(grid: Grid, *, norm: int = 1, bandwidth: Bandwidth = "paper", kernel: str = "triweight") -> Floats:
    r"""The paper's estimator: kernel density and kernel regression of y on z, integrated by the trapezoid rule.

    Notes
    -----
    .. math:: \widetilde{ECE}^d = \int |z - \tilde\pi(z)|^d \, \tilde p(z) \, dz

    with :math:`\tilde\pi(z) = \sum_i y_i K_h(z - z_i) / \sum_i K_h(z - z_i)`, mirrored at 0 and 1.

    References
    ----------
    Zhang, Kailkhura & Han (2020), Mix-n-Match, section 4.1 and appendix C.
    """
    width = choose_bandwidth(grid, bandwidth)
    grid = fit_grid(grid, width)
    smoother = Smoother(width, grid.count.shape[-1], kernel)
    density, outcome = smoother.mass(grid.count), smoother.mass(grid.outcome)
    difference = np.abs(outcome - grid.nodes * density)
    return _integrate(difference, np.maximum(density, 0.0), grid.total, norm)


def residual_error(grid: Grid, *, norm: int = 1, bandwidth: Bandwidth = "paper", kernel: str = "triweight") -> Floats:
    r"""Residual kernel estimator at a given bandwidth: smooth the residuals y - z instead of y.

    Notes
    -----
    .. math:: r(z) = \frac{\sum_i K_h(z - z_i)(y_i - z_i)}{\sum_i K_h(z - z_i)}, \qquad
              ECE^d = \int |r(z)|^d \, \tilde p(z) \, dz

    Smoothing keeps sums, so for d = 1 the value is never below \|mean y - mean z\|, a bound that the true error obeys.
    """
    width = choose_bandwidth(grid, bandwidth)
    grid = fit_grid(grid, width)
    smoother = Smoother(width, grid.count.shape[-1], kernel)
    residual = np.abs(smoother.mass(grid.residual))
    density = np.maximum(smoother.mass(grid.count), 0.0) if norm == 2 else grid.count
    return _integrate(residual, density, grid.total, norm)


def residual_error_debiased(
    grid: Grid, *, norm: int = 1, bandwidth: Bandwidth = "paper", kernel: str = "triweight"
) -> Floats:
    r"""Residual kernel estimator at a given bandwidth, corrected for noise.

    Notes
    -----
    At each node the smoothed residual R is close to normal with an estimated variance V. For d = 2 the integral of V is
    subtracted. For d = 1, |R| has the mean of a folded normal, :math:`\sqrt V g(\mu)` with
    :math:`g(\mu) = \sqrt{2/\pi}\, e^{-\mu^2/2} + \mu\,\mathrm{erf}(\mu/\sqrt 2)`; the excess
    :math:`\sqrt V (g(\mu) - \mu)` is subtracted at :math:`\mu = \lambda |R| / \sqrt V`, where
    :math:`\lambda^2 = (1 - \int V / \int R^2)_+` is the share of the curve that is signal. Never below 0.
    """
    from scipy.special import erf

    width = choose_bandwidth(grid, bandwidth)
    grid = fit_grid(grid, width)
    smoother = Smoother(width, grid.count.shape[-1], kernel)
    density = np.maximum(smoother.mass(grid.count), 0.0)
    residual = np.abs(smoother.mass(grid.residual))
    variance = np.maximum(smoother.variance(grid.squared_residual), 0.0)
    variance[..., [0, -1]] *= 0.25
    total = grid.total[..., 0]
    power = _ratio(residual**2, density).sum(axis=-1)
    noise = _ratio(variance, density).sum(axis=-1)
    if norm == 2:
        return np.asarray(np.maximum(power - noise, 0.0) / total)
    deviation = np.sqrt(variance)
    share = np.sqrt(np.maximum(1.0 - _ratio(noise, power), 0.0))[..., None]
    mu = share * _ratio(residual, deviation)
    excess = deviation * (np.sqrt(2 / np.pi) * np.exp(-0.5 * mu * mu) + mu * erf(mu / np.sqrt(2.0)) - mu)
    return np.asarray(np.maximum((residual - excess).sum(axis=-1), 0.0) / total)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Quotient, 0 where there is nothing to divide by."""
    positive = denominator > 1e-300
    return np.where(positive, numerator / np.where(positive, denominator, 1.0), 0.0)


def _integrate(difference: Floats, density: Floats, total: Floats, norm: int) -> Floats:
    if norm == 1:
        return np.asarray(difference.sum(axis=-1) / total[..., 0])
    if norm == 2:
        # Far from the data both are rounding errors of the transform; there is no mass there either.
        density = np.where(density > 1e-12 * density.max(axis=-1, keepdims=True), density, 0.0)
        return np.asarray(_ratio(difference**2, density).sum(axis=-1) / total[..., 0])
    msg = f"norm must be 1 or 2 for kernel estimators, got {norm!r}"
    raise ValueError(msg)

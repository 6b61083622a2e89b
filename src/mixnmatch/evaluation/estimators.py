"""Estimators of calibration error as small immutable values, and the names they go by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, partial
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch.evaluation import dirichlet, kde, skce
from mixnmatch.evaluation._binning import Floats, Grid, bin_linearly
from mixnmatch.evaluation.histogram import Bins, bin_sums, sweep
from mixnmatch.evaluation.notion import Outcomes
from mixnmatch.evaluation.series import ResidualSeries
from mixnmatch.evaluation.smooth import smooth_error

Norm = int | str
ENTRY_POINTS: Final = "mixnmatch.estimators"


@dataclass(frozen=True)
class Estimator:
    """Base class of estimators of calibration errors.

    One-dimensional notions call it with :class:`Outcomes`; estimators of the canonical error also have the method
    ``canonical``.
    """

    one_dimensional: ClassVar[bool] = True
    knows_canonical: ClassVar[bool] = False
    norms: ClassVar[tuple[Norm, ...]] = (1, 2)

    def __call__(self, outcomes: Outcomes, norm: Norm = 1) -> float:
        """Estimate the d-th power of the error of a one-dimensional problem."""
        raise NotImplementedError

    def canonical(self, p: Floats, labels: NDArray[np.intp], weight: Floats | None = None, norm: Norm = 1) -> float:
        """Estimate the d-th power of the canonical error."""
        raise NotImplementedError


@dataclass(frozen=True)
class GridEstimator(Estimator):
    """An estimator that needs no more than linearly binned data, and takes many problems at once."""

    def on_grid(self, grid: Grid, norm: Norm = 1) -> Floats:
        """Estimates for all problems of a grid."""
        raise NotImplementedError

    def __call__(self, outcomes: Outcomes, norm: Norm = 1) -> float:
        """Estimate the d-th power of the error of a one-dimensional problem."""
        return float(self.on_grid(bin_linearly(outcomes.z, outcomes.y, outcomes.weight), norm))


@dataclass(frozen=True)
class KernelDensity(GridEstimator):
    """The paper's estimator, see :func:`mixnmatch.evaluation.kde.kde_error`."""

    bandwidth: float | str = "paper"
    kernel: str = "triweight"
    knows_canonical: ClassVar[bool] = True

    def on_grid(self, grid: Grid, norm: Norm = 1) -> Floats:
        """Estimates for all problems of a grid."""
        return kde.kde_error(grid, norm=int(norm), bandwidth=self.bandwidth, kernel=self.kernel)

    def canonical(self, p: Floats, labels: NDArray[np.intp], weight: Floats | None = None, norm: Norm = 1) -> float:
        """Product kernels, up to 4 classes."""
        return dirichlet.product_kernel_error(
            p, labels, weight, norm=int(norm), bandwidth=self.bandwidth, kernel=self.kernel
        )


@dataclass(frozen=True)
class ResidualKernel(GridEstimator):
    """Residual kernel estimator, plain or noise-corrected.

    With the bandwidth "adaptive" see :class:`mixnmatch.evaluation.series.ResidualSeries`, which has no kernel;
    otherwise :func:`mixnmatch.evaluation.kde.residual_error` and
    :func:`mixnmatch.evaluation.kde.residual_error_debiased`.
    """

    bandwidth: float | str = "adaptive"
    kernel: str = "triweight"
    debiased: bool = False
    knows_canonical: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a kernel that would not be used."""
        if self.bandwidth == "adaptive" and self.kernel != "triweight":
            msg = f'kernel={self.kernel!r} needs a bandwidth: pass a number, bandwidth="paper" or bandwidth="authors"'
            raise ValueError(msg)

    def on_grid(self, grid: Grid, norm: Norm = 1) -> Floats:
        """Estimates for all problems of a grid."""
        if self.bandwidth == "adaptive":
            errors = ResidualSeries.of(grid).error(norm=int(norm), debiased=self.debiased)
            return errors.reshape(grid.count.shape[:-1])
        estimate = kde.residual_error_debiased if self.debiased else kde.residual_error
        return estimate(grid, norm=int(norm), bandwidth=self.bandwidth, kernel=self.kernel)

    def canonical(self, p: Floats, labels: NDArray[np.intp], weight: Floats | None = None, norm: Norm = 1) -> float:
        """Product kernels on residuals, noise-corrected, up to 4 classes."""
        if self.debiased:
            msg = 'for the canonical notion "kde-residual" is noise-corrected already: use that, or "dirichlet"'
            raise ValueError(msg)
        width = "paper" if self.bandwidth == "adaptive" else self.bandwidth
        return dirichlet.product_kernel_error(
            p, labels, weight, norm=int(norm), bandwidth=width, kernel=self.kernel, residual=True
        )


@dataclass(frozen=True)
class Histogram(Estimator):
    """Histogram estimator, see :func:`mixnmatch.evaluation.histogram.bin_sums`; debiased for norm 2."""

    bins: Bins = 15
    binning: str = "equal-width"
    debiased: bool = False
    norms: ClassVar[tuple[Norm, ...]] = (1, 2, "max")

    def __call__(self, outcomes: Outcomes, norm: Norm = 1) -> float:
        """Estimate the d-th power of the error, or the largest gap for the norm "max"."""
        if self.debiased and norm != 2:
            msg = f"the debiased histogram estimates squared errors: it needs norm=2, got {norm!r}"
            raise ValueError(msg)
        sums = bin_sums(outcomes.z, outcomes.y, outcomes.weight, bins=self.bins, binning=self.binning)
        return sums.debiased() if self.debiased else sums.error(norm)


@dataclass(frozen=True)
class Sweep(Estimator):
    """Equal-mass histogram with a swept number of bins, see :func:`mixnmatch.evaluation.histogram.sweep`."""

    norms: ClassVar[tuple[Norm, ...]] = (1, 2, "max")

    def __call__(self, outcomes: Outcomes, norm: Norm = 1) -> float:
        """Estimate the d-th power of the error, or the largest gap for the norm "max"."""
        return sweep(outcomes.z, outcomes.y, outcomes.weight).error(norm)


@dataclass(frozen=True)
class Smooth(GridEstimator):
    """Smooth calibration error, see :func:`mixnmatch.evaluation.smooth.smooth_error`."""

    norms: ClassVar[tuple[Norm, ...]] = (1,)

    def on_grid(self, grid: Grid, norm: Norm = 1) -> Floats:
        """Estimates for all problems of a grid."""
        return smooth_error(grid).value


@dataclass(frozen=True)
class Dirichlet(Estimator):
    """Canonical error by Dirichlet kernels, see :func:`mixnmatch.evaluation.dirichlet.dirichlet_error`."""

    bandwidth: float | None = None
    one_dimensional: ClassVar[bool] = False
    knows_canonical: ClassVar[bool] = True

    def canonical(self, p: Floats, labels: NDArray[np.intp], weight: Floats | None = None, norm: Norm = 1) -> float:
        """Leave-one-out estimate."""
        return dirichlet.dirichlet_error(p, labels, weight, norm=int(norm), bandwidth=self.bandwidth)


@dataclass(frozen=True)
class KernelCalibration(Estimator):
    """Squared kernel calibration error, see :func:`mixnmatch.evaluation.skce.block_skce`. Rows are units."""

    bandwidth: float | None = None
    kernel: str = "laplacian"
    block_size: int | None = None
    one_dimensional: ClassVar[bool] = False
    knows_canonical: ClassVar[bool] = True
    norms: ClassVar[tuple[Norm, ...]] = (2,)

    def canonical(self, p: Floats, labels: NDArray[np.intp], weight: Floats | None = None, norm: Norm = 2) -> float:
        """Block estimate."""
        return self.result(p, labels).value

    def result(self, p: Floats, labels: NDArray[np.intp]) -> skce.KernelError:
        """Block estimate with its standard error and test."""
        return skce.block_skce(p, labels, block_size=self.block_size, bandwidth=self.bandwidth, kernel=self.kernel)


# Names and what makes an estimator: a class, a callable, or where such a thing is, as "mixnmatch.evaluation.x:Class".
ESTIMATORS: Final[dict[str, Callable[..., Estimator] | str]] = {
    "kde": KernelDensity,
    "kde-residual": ResidualKernel,
    "kde-residual-debiased": partial(ResidualKernel, debiased=True),
    "histogram": Histogram,
    "histogram-debiased": partial(Histogram, debiased=True),
    "sweep": Sweep,
    "smooth": Smooth,
    "dirichlet": Dirichlet,
    "skce": KernelCalibration,
}


def register_estimator(name: str, factory: Callable[..., Estimator]) -> None:
    """Add an estimator of your own under a name.

    It then works in :func:`calibration_error`, :func:`evaluate` and on the command line. Other packages can name theirs
    by an entry point in the group ``mixnmatch.estimators``.

    Parameters
    ----------
    name : str
        What it is called.
    factory : subclass of Estimator, or callable that returns one
        Called with the options.
    """
    if ESTIMATORS.get(name, factory) is not factory:
        msg = f"the name {name!r} is taken"
        raise ValueError(msg)
    ESTIMATORS[name] = factory


@cache
def _load_entry_points() -> None:
    for point in entry_points(group=ENTRY_POINTS):
        register_estimator(point.name, point.load())


def estimators() -> dict[str, Callable[..., Estimator]]:
    """All estimators by name, those of other packages included."""
    _load_entry_points()
    return {name: _factory(name) for name in ESTIMATORS}


def _factory(name: str) -> Callable[..., Estimator]:
    made = ESTIMATORS[name]
    return resolve_name(made) if isinstance(made, str) else made


def estimator(name: str | Estimator, **options: Any) -> Estimator:
    """Build an estimator from its name and options (those that are ``None`` are left at their defaults).

    Examples
    --------
    >>> estimator("histogram", bins="sturges", binning="equal-mass")
    Histogram(bins='sturges', binning='equal-mass', debiased=False)
    """
    given = {key: value for key, value in options.items() if value is not None}
    if isinstance(name, Estimator):
        if given:
            msg = f"options {', '.join(sorted(given))} are part of the estimator; set them there"
            raise ValueError(msg)
        return name
    _load_entry_points()
    if name not in ESTIMATORS:
        msg = f"estimator must be one of {', '.join(ESTIMATORS)}, got {name!r}{did_you_mean(name, ESTIMATORS)}"
        raise ValueError(msg)
    factory = _factory(name)
    known = {field.name for field in fields(factory())} - {"debiased"}
    unknown = sorted(set(given) - known)
    if unknown:
        takes = f"takes {', '.join(sorted(known))}" if known else "takes no options"
        msg = f"the estimator {name!r} has no option {unknown[0]!r}: it {takes}"
        raise ValueError(msg)
    return factory(**given)

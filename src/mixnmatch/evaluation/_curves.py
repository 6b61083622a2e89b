"""How reliability curves are computed from binned data (kernel, histogram) and from sorted data (CORP)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch.evaluation._binning import Floats, Grid, bin_linearly
from mixnmatch.evaluation._local import LocalSmoother
from mixnmatch.evaluation._means import check_confidence
from mixnmatch.evaluation._problem import Problem
from mixnmatch.evaluation._windows import Windows
from mixnmatch.evaluation.adaptive import MULTIPLES, residual_curve
from mixnmatch.evaluation.decomposition import Isotonic, outcome_means, pool
from mixnmatch.evaluation.estimators import ResidualKernel
from mixnmatch.evaluation.histogram import BinSums, bin_sums
from mixnmatch.evaluation.kde import Smoother, choose_bandwidth, fit_grid, rule_of_thumb
from mixnmatch.evaluation.notion import Outcomes

BANDS: Final = ("confidence", "consistency")
# A curve on many nodes is given at this many and where a node holds a larger share than one in FINEST_SHARE samples.
FEWEST: Final = 256
FINEST_SHARE: Final = 1000
# Bands of low levels are two-sided up to this many deviations: of so short ones noise misses both ends.
ONE_SIDED_FROM: Final = 0.84
# A node holds data if it has more than this share of the weight: less is rounding.
EMPTY: Final = 1e-12
SIMULATIONS: Final = 200
# Distinct confidences that resampled isotonic regressions tell apart.
MOST_DISTINCT: Final = 20_000


@dataclass(frozen=True)
class Band:
    """What band is wanted: around the curve or around the diagonal, at which level, everywhere at once or not."""

    kind: str = "confidence"
    level: float = 0.95
    simultaneous: bool = False
    interval: str = "wilson"  # for histograms
    resamples: int = 200  # for CORP
    seed: int = 0

    def check(self) -> None:
        """Raise an error if the band is not one that can be computed."""
        if self.kind not in BANDS:
            msg = f"band must be one of {', '.join(BANDS)}, got {self.kind!r}"
            raise ValueError(msg)
        check_confidence(self.level)
        if not isinstance(self.seed, int | np.integer) or self.seed < 0:
            msg = f"seed must be a whole number from 0 on, got {self.seed!r}"
            raise ValueError(msg)
        if self.interval not in ("wilson", "jeffreys"):
            msg = f'interval must be "wilson" or "jeffreys", got {self.interval!r}'
            raise ValueError(msg)


@dataclass(frozen=True)
class Points:
    """Points of a curve with their band, and the calibration error of the curve."""

    confidence: Floats
    value: Floats
    low: Floats
    high: Floats
    share: Floats
    error: float
    edges: Floats | None = None
    bandwidth: float | None = None


def kernel_points(grid: Grid, inflation: float, band: Band, bandwidth: float | str, kernel: str) -> Points:
    """Residual kernel curve z + r(z) on the nodes between the smallest and the largest confidence.

    ``inflation`` is the sum of squared weights over the sum of weights, 1 without weights.
    """
    width = None if bandwidth == "adaptive" else choose_bandwidth(grid, bandwidth)

    def residual(sample: Grid, *, coarsen: bool = True) -> tuple[Grid, Floats, Floats]:
        if width is None:
            curve = residual_curve(sample, kernel=kernel, coarsen=coarsen)
            return curve.grid, curve.values, curve.bandwidth
        coarse = fit_grid(sample, width)
        smoother = Smoother(width, coarse.count.shape[-1], kernel)
        support = np.maximum(smoother.value(coarse.count), EMPTY * coarse.total)
        return coarse, smoother.value(coarse.residual) / support, width

    confident = band.kind == "confidence"
    sample, curve, used = residual(grid, coarsen=not confident)
    x = sample.nodes
    if confident:
        find = _confidence_band if width is None else _smoothed_band
        low, high = find(sample, np.clip(x + curve, 0.0, 1.0), used, inflation, band, kernel)
        # The grid does not show how the curve goes on within the first and the last cell, maybe to 0 and to 1.
        low, high = np.where(x == 0, 0.0, low), np.where(x == 1, 1.0, high)
    else:
        rng = np.random.default_rng(band.seed)
        noise = np.sqrt(inflation * np.maximum(sample.count, 0.0) * x * (1 - x))
        drawn = x * sample.count + noise * rng.standard_normal((SIMULATIONS, len(x)))
        curves = residual(Grid(np.broadcast_to(sample.count, drawn.shape), drawn))[1]
        # The shrunken curve is far from normal if there is nothing to see: take quantiles, not deviations.
        reach = np.quantile(np.abs(curves), band.level, axis=0)
        if band.simultaneous:
            reach = reach * _critical(curves, reach, _inside(sample), band)
        low, high = x - reach, x + reach
    inside = _inside(sample)
    error = float(ResidualKernel(bandwidth, kernel).on_grid(grid))
    value, low, high = (np.clip(part[inside], 0.0, 1.0) for part in (x + curve, low, high))
    kept, share = _thinned(x[inside], np.maximum(sample.count[inside], 0.0) / sample.count.sum())
    return Points(x[inside][kept], value[kept], low[kept], high[kept], share, error, bandwidth=float(used))


def _confidence_band(
    grid: Grid, p: Floats, used: Floats, inflation: float, band: Band, kernel: str
) -> tuple[Floats, Floats]:
    """Band that holds the truth: from the lower to the upper ends of two intervals, around the curve and a local mean.

    The local mean is of so few samples that its bias is small beside its noise. Wherever the truth is above the curve,
    only the upper end can miss it, so one-sided intervals are enough, unless the curve is the local mean itself.
    """
    from scipy.special import ndtri

    width = float(rule_of_thumb(grid)) * MULTIPLES[0] * inflation**0.2  # the rule for the effective number of samples
    windows = Windows(grid, width, kernel, inflation)
    local = np.clip(p + windows.average(grid.outcome - grid.count * p), 0.0, 1.0)
    own = p * (1 - p)
    nearby = np.maximum(windows.average(grid.count * own), 0.0)
    deviations = _normal(band.level)
    if used > width:
        deviations = max(float(ndtri(band.level)), min(deviations, ONE_SIDED_FROM))
    if band.simultaneous:
        noise = np.sqrt(inflation * np.maximum(grid.count, 0.0) * own)
        drawn = np.random.default_rng(band.seed).standard_normal((SIMULATIONS, len(p)))
        curves = windows.average(noise * drawn)
        deviations = max(deviations, _critical(curves, curves.std(axis=0), _inside(grid), band))
    ends = [
        _wilson(windows.effective, centre, deviations, np.maximum(nearby, centre * (1 - centre)))
        for centre in (p, local)
    ]
    return np.minimum(ends[0][0], ends[1][0]), np.maximum(ends[0][1], ends[1][1])


def _smoothed_band(
    grid: Grid, p: Floats, used: Floats, inflation: float, band: Band, kernel: str
) -> tuple[Floats, Floats]:
    """Band around a curve of a given bandwidth, for what the curve would be without noise."""
    smoother = LocalSmoother(used, grid, kernel, widen=False)
    own = p * (1 - p)
    spread = Smoother(used, len(p), kernel)
    nearby = spread.value(grid.count * own) / np.maximum(spread.value(grid.count), EMPTY * grid.total)
    deviations = _normal(band.level)
    if band.simultaneous:
        variance = np.maximum(grid.count, 0.0) * own
        noise = np.sqrt(variance) * np.random.default_rng(band.seed).standard_normal((SIMULATIONS, len(p)))
        spreads = np.sqrt(smoother.variance(variance))
        deviations = max(deviations, _critical(smoother.average(noise), spreads, _inside(grid), band))
    return _wilson(smoother.effective / inflation, p, deviations, np.maximum(nearby, own))


def _thinned(x: Floats, share: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Nodes to keep, every one that holds many samples and few others, with the shares of those left out."""
    kept = np.flatnonzero((np.arange(len(x)) % max(len(x) // FEWEST, 1) == 0) | (share > 1 / FINEST_SHARE))
    kept = np.unique(np.append(kept, len(x) - 1))
    after = np.clip(np.searchsorted(kept, np.arange(len(x))), 1, max(len(kept) - 1, 1))
    after = np.minimum(after, len(kept) - 1)
    before = np.maximum(after - 1, 0)
    gap = np.maximum(x[kept[after]] - x[kept[before]], 1e-300)
    upper = np.clip((x - x[kept[before]]) / gap, 0.0, 1.0) * share
    shares = np.bincount(after, upper, len(kept)) + np.bincount(before, share - upper, len(kept))
    return kept, shares.astype(np.float64)


def _inside(grid: Grid) -> slice:
    held = np.flatnonzero(grid.count > EMPTY * grid.count.sum())
    return slice(int(held[0]), int(held[-1]) + 1)


def _critical(curves: Floats, spread: Floats, inside: slice, band: Band) -> float:
    """How many times the spread the band must reach to hold all of a curve."""
    scaled = np.abs(curves[:, inside]) / np.where(spread[inside] > 0, spread[inside], np.inf)
    return float(np.quantile(scaled.max(axis=1), band.level))


def _normal(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2))


def histogram_points(sums: BinSums, inflation: float, band: Band, edges: Floats | None = None) -> Points:
    """Mean outcome against mean confidence in each bin that is not empty."""
    full = sums.weight > 0
    weight = sums.weight[full]
    x = np.clip(sums.confidence[full] / weight, 0.0, 1.0)
    p = np.clip(sums.outcome[full] / weight, 0.0, 1.0)
    n = weight / inflation  # rows are units
    level = band.level ** (1 / len(n)) if band.simultaneous else band.level
    if band.kind == "consistency":
        low, high = _binomial_range(n, x, level)
    else:
        low, high = _wilson(n, p, _normal(level)) if band.interval == "wilson" else _jeffreys(n, p, level)
    return Points(x, p, low, high, sums.share[full], sums.error(1), edges=edges)


def _wilson(n: Floats, p: Floats, z: float, variance: Floats | None = None) -> tuple[Floats, Floats]:
    r"""Wilson's interval of a frequency p among n samples, z standard deviations wide; all of [0, 1] if there are none.

    Notes
    -----
    The frequencies :math:`\pi` with :math:`n (p - \pi)^2 \le z^2 (\pi (1 - \pi) + v - p (1 - p))`, where v is the
    variance of an outcome: p (1 - p), as Wilson has it, unless one is given.
    """
    variance = p * (1 - p) if variance is None else variance
    z = max(z, 1e-150)  # its square stays positive: without samples there is no 0 / 0
    centre = (n * p + z * z / 2) / (n + z * z)
    reach = z / (n + z * z) * np.sqrt((n + z * z) * variance + np.square(z * (p - 0.5)))
    low, high = np.clip(centre - reach, 0.0, 1.0), np.clip(centre + reach, 0.0, 1.0)
    return np.where(p == 0, 0.0, low), np.where(p == 1, 1.0, high)  # up to rounding they are there


def _jeffreys(n: Floats, p: Floats, level: float) -> tuple[Floats, Floats]:
    from scipy.special import betaincinv

    a, b, tail = n * p + 0.5, n * (1 - p) + 0.5, (1 - level) / 2
    low = np.where(p == 0, 0.0, betaincinv(a, b, tail))
    return low, np.where(p == 1, 1.0, betaincinv(a, b, 1 - tail))


def _binomial_range(n: Floats, x: Floats, level: float) -> tuple[Floats, Floats]:
    """Central range of the share of n draws with probability x."""
    from scipy.special import bdtr

    tail = (1 - level) / 2
    low, high = np.empty_like(x), np.empty_like(x)
    for i, (size, probability) in enumerate(zip(np.maximum(np.round(n), 1.0), x, strict=True)):
        reach = 8 * np.sqrt(size * probability * (1 - probability)) + 8
        first, last = np.floor(size * probability - reach), np.ceil(size * probability + reach)
        k = np.arange(max(0.0, first), min(size, last) + 1)
        at = np.searchsorted(bdtr(k, int(size), probability), [tail, 1 - tail])
        low[i], high[i] = k[np.minimum(at, len(k) - 1)] / size
    return low, high


def bin_edges(bins: Any) -> Floats:
    """Edges of bins of equal width, or those given."""
    return np.asarray(np.arange(bins + 1) / bins if np.ndim(bins) == 0 else bins, dtype=np.float64)


def curve_statistic(block: Block, problem: Problem, bins: Any, closed: str) -> tuple[int, float, Grid, Any]:
    """What a curve needs of a block: number of rows, sum of squared weights, the grid, and sums of bins if any."""
    outcomes = problem.of_block(block)
    weight = outcomes.weight
    squares = float(len(outcomes.z)) if weight is None else float(weight @ weight)
    sums: BinSums | int = 0 if bins is None else edge_sums(outcomes, bins, "equal-width", closed)[0]
    return len(outcomes.z), squares, bin_linearly(outcomes.z, outcomes.y, weight), sums


def edge_sums(outcomes: Outcomes, bins: Any, binning: str, closed: str) -> tuple[BinSums, Floats | None]:
    """Sums over bins: a number of them, or edges; which end belongs to a bin matters where scores hit edges."""
    if closed not in ("left", "right"):
        msg = f'closed must be "left" or "right", got {closed!r}'
        raise ValueError(msg)
    z, y, weight = outcomes.z, outcomes.y, outcomes.weight
    edges: Floats
    if np.ndim(bins) == 0:
        sums = bin_sums(z, y, weight, bins=bins, binning=binning)
        n_bins = len(sums.weight)
        edges = np.arange(n_bins + 1) / n_bins
        if binning == "equal-mass" or closed == "left":
            return sums, edges if binning == "equal-width" else None
    else:
        edges = np.asarray(bins, dtype=np.float64)
        if edges.ndim != 1 or len(edges) < 2 or np.any(np.diff(edges) < 0) or edges[0] > z.min() or edges[-1] < z.max():
            msg = "edges of bins must be a non-decreasing vector that spans all confidences"
            raise ValueError(msg)
    cell = np.searchsorted(edges[1:-1], z, side="right" if closed == "left" else "left")
    own = np.ones(len(z)) if weight is None else weight
    parts = [np.bincount(cell, mass, len(edges) - 1).astype(np.float64) for mass in (own, own * z, own * y)]
    return BinSums(*parts), edges


def corp_points(outcomes: Outcomes, band: Band) -> Points:
    """Isotonic regression of outcomes on confidences: two points for each of its blocks, the first and the last."""
    if band.simultaneous:
        msg = "the CORP curve has a pointwise band only; for a simultaneous one use the kernel curve"
        raise ValueError(msg)
    weight = outcomes.weight
    fit = Isotonic.of(outcomes.z, outcomes.y, weight)
    starts = np.append(0, np.flatnonzero(np.diff(fit.fitted) > 0) + 1)
    ends = np.append(starts[1:] - 1, len(fit.z) - 1)
    masses = np.add.reduceat(fit.weight, starts)
    at = np.stack([starts, ends], axis=1).ravel()
    double = np.repeat(ends > starts, 2)
    keep = double.copy()
    keep[::2] = True  # a block of one confidence is one point
    at, share = at[keep], (np.repeat(masses, 2) / np.where(double, 2, 1))[keep] / masses.sum()
    rng = np.random.default_rng(band.seed)
    centre = fit.fitted if band.kind == "confidence" else fit.z
    drawn = _resampled(fit, weight, centre, band.resamples, rng, at)
    low, high = np.quantile(drawn, [(1 - band.level) / 2, (1 + band.level) / 2], axis=0)
    if band.kind == "confidence":
        low, high = np.minimum(low, fit.fitted[at]), np.maximum(high, fit.fitted[at])
    error = float(fit.weight @ np.abs(fit.fitted - fit.z) / fit.weight.sum())
    return Points(fit.z[at], fit.fitted[at], low, high, share, error)


def _resampled(
    fit: Isotonic, weight: Floats | None, p: Floats, resamples: int, rng: np.random.Generator, at: NDArray[np.intp]
) -> Floats:
    """Isotonic regressions of outcomes drawn with probabilities ``p``, at some of the distinct confidences."""
    mass, code = fit.weight, fit.code
    if len(mass) > MOST_DISTINCT:  # neighbours share what is drawn: the band does not show it
        middle = np.cumsum(mass) - 0.5 * mass
        group = np.unique((middle / mass.sum() * MOST_DISTINCT).astype(np.intp), return_inverse=True)[1].reshape(-1)
        grouped = np.bincount(group, mass).astype(np.float64)
        p, mass, code, at = np.bincount(group, mass * p) / grouped, grouped, group[code], group[at]
    out = np.empty((resamples, len(at)))
    whole = mass.astype(np.int64)
    for i in range(resamples):
        if weight is None:
            means = rng.binomial(whole, np.clip(p, 0.0, 1.0)) / whole
        else:
            means = outcome_means(rng.random(len(code)) < p[code], weight, code, mass)
        out[i] = pool(means, mass)[at]
    return out

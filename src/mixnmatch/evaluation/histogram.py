"""Calibration errors by histograms: equal width, equal mass, debiased and with swept numbers of bins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.scores import MOST_BINS, is_number
from mixnmatch.evaluation._binning import Floats

try:  # it adds up in the same order: the sums are the same
    import mixnmatch._engine.kernels._compiled as _compiled
except ImportError:
    _compiled = None  # type: ignore[assignment]

Bins = int | str
# Named numbers of bins, as functions of the number of samples.
BIN_RULES: Final[dict[str, Callable[[float], int]]] = {
    "sturges": lambda n: math.ceil(math.log2(max(n, 1.0)) + 1),
    "cuberoot": lambda n: math.ceil(max(n, 1.0) ** (1 / 3) - 1e-9),
}
BINNINGS: Final = ("equal-width", "equal-mass")


@dataclass(frozen=True)
class BinSums:
    """Weight, confidence and outcome summed over each bin; such sums of the same bins add up."""

    weight: Floats
    confidence: Floats
    outcome: Floats

    def __add__(self, other: BinSums) -> BinSums:
        """The sums of both samples together."""
        return BinSums(self.weight + other.weight, self.confidence + other.confidence, self.outcome + other.outcome)

    @property
    def gap(self) -> Floats:
        """Mean outcome less mean confidence in each bin, 0 where a bin is empty."""
        return np.asarray((self.outcome - self.confidence) / np.where(self.weight > 0, self.weight, 1.0))

    @property
    def share(self) -> Floats:
        """Share of the sample in each bin."""
        return np.asarray(self.weight / self.weight.sum())

    def error(self, norm: int | str = 1) -> float:
        r"""Histogram estimate :math:`\sum_b (n_b / n) |\bar y_b - \bar z_b|^d`, or the largest gap for "max"."""
        if norm == "max":
            return float(np.abs(self.gap).max())
        if norm not in (1, 2):
            msg = f'norm must be 1, 2 or "max", got {norm!r}'
            raise ValueError(msg)
        return float(self.share @ np.abs(self.gap) ** int(norm))

    def debiased(self) -> float:
        r"""Debiased squared error of Kumar, Liang & Ma (2019).

        Notes
        -----
        .. math:: \sum_b \frac{n_b}{n} \Big[ (\bar y_b - \bar z_b)^2 - \frac{\bar y_b (1 - \bar y_b)}{n_b - 1} \Big]

        A difference of estimates, it may be below 0. A bin of one sample says nothing about its noise, and nothing is
        subtracted there.
        """
        mean = self.outcome / np.where(self.weight > 0, self.weight, 1.0)
        more = self.weight > 1
        noise = np.where(more, mean * (1 - mean) / np.where(more, self.weight - 1, 1.0), 0.0)
        return float(self.share @ (self.gap**2 - noise))


def count_bins(bins: Bins, n: float) -> int:
    """Number of bins that ``bins`` means for ``n`` samples.

    Examples
    --------
    >>> count_bins("sturges", 1024), count_bins("cuberoot", 1000), count_bins(15, 3)
    (11, 10, 15)
    """
    if isinstance(bins, str):
        if bins not in BIN_RULES:
            msg = f"bins must be a positive integer or one of {', '.join(BIN_RULES)}, got {bins!r}"
            raise ValueError(msg)
        return BIN_RULES[bins](n)
    if not is_number(bins) or not 1 <= bins <= MOST_BINS or int(bins) != bins:
        msg = f"bins must be a positive integer up to {MOST_BINS} or one of {', '.join(BIN_RULES)}, got {bins!r}"
        raise ValueError(msg)
    return int(bins)


def bin_sums(
    z: Floats, y: NDArray[Any], weight: Floats | None = None, *, bins: Bins = 15, binning: str = "equal-width"
) -> BinSums:
    """Sums over the bins of a histogram of confidences.

    Parameters
    ----------
    z, y : arrays of shape (n,)
        Confidences in [0, 1] and outcomes.
    weight : array of shape (n,), optional
        Frequencies: a weight of k equals k repetitions.
    bins : int, "sturges" or "cuberoot"
        Number of bins.
    binning : "equal-width" or "equal-mass"
        Equal width: bin b holds b/B <= z < (b+1)/B, the last one also z = 1. Equal mass: samples are put into bins by
        the middle of their ranks; equal confidences share a bin, so that bins may differ in mass, or be empty.
    """
    total = float(len(z)) if weight is None else float(weight.sum())
    n_bins = count_bins(bins, total)
    if binning == "equal-width":
        return _equal_width(z, y, weight, n_bins)
    if binning == "equal-mass":
        return Sorted.of(z, y, weight).equal_mass(n_bins)
    msg = f"binning must be one of {', '.join(BINNINGS)}, got {binning!r}"
    raise ValueError(msg)


def _equal_width(z: Floats, y: NDArray[Any], weight: Floats | None, n_bins: int, block: int = 32_768) -> BinSums:
    sums = np.zeros((3, n_bins))
    for start in range(0, len(z), block):
        rows = slice(start, start + block)
        sums += _sums_of_bins(z[rows], y[rows], None if weight is None else weight[rows], n_bins)
    return BinSums(*sums)


def _sums_of_bins(z: Floats, y: NDArray[Any], weight: Floats | None, n_bins: int) -> Floats:
    sums = np.zeros((3, n_bins))
    if _compiled is not None and weight is None and y.dtype.char in "?b" and z.dtype == np.float64:
        _compiled.add_to_bins(np.ascontiguousarray(z), np.ascontiguousarray(y), sums)
        return sums
    cell = (z * np.float64(n_bins)).astype(np.intp)
    np.minimum(cell, n_bins - 1, out=cell)
    sums[0] = np.bincount(cell, weights=weight, minlength=n_bins)
    sums[1] = np.bincount(cell, weights=z if weight is None else z * weight, minlength=n_bins)
    sums[2] = np.bincount(cell, weights=y if weight is None else y * weight, minlength=n_bins)
    return sums


@dataclass(frozen=True)
class Sorted:
    """A sample sorted by confidence with ties merged: cumulative sums up to each distinct confidence."""

    weight: Floats
    confidence: Floats
    outcome: Floats

    @classmethod
    def of(cls, z: Floats, y: NDArray[Any], weight: Floats | None = None) -> Sorted:
        """Sort a sample."""
        if weight is None and y.dtype.kind in "bui":
            return cls._counted(z, y)
        order = np.argsort(z)
        score = z[order].astype(np.float64)
        own = np.ones(len(z)) if weight is None else weight[order]
        starts = _starts(score)
        return cls(*(_running(part, starts) for part in (own, own * score, own * y[order])))

    @classmethod
    def _counted(cls, z: Floats, y: NDArray[Any]) -> Sorted:
        """Sort outcomes 0 and 1 without weights: sorting those of each is faster than sorting an index."""
        score, positive = np.sort(z), np.sort(z[y != 0])
        starts = _starts(score)
        weight = np.append(starts[1:], len(z)).astype(np.float64)
        outcome = np.searchsorted(positive, score[starts], side="right").astype(np.float64)
        return cls(weight, _running(score, starts), outcome)

    def equal_mass(self, n_bins: int) -> BinSums:
        """Sums over bins of equal mass."""
        total = self.weight[-1]
        middle = self.weight - 0.5 * np.diff(self.weight, prepend=0.0)
        # The middle of a rank falls on an edge only by ties; rounding must not decide on which side.
        middle *= n_bins / total
        middle += 1e-9
        ends = np.searchsorted(middle, np.arange(1, n_bins), side="left")

        def summed(cumulative: Floats) -> Floats:
            before = np.where(ends > 0, cumulative[ends - 1], 0.0)
            return np.diff(before, prepend=0.0, append=cumulative[-1])

        return BinSums(summed(self.weight), summed(self.confidence), summed(self.outcome))


def _starts(score: Floats) -> NDArray[np.intp]:
    """Where equal ones among sorted numbers start."""
    return np.append(0, np.flatnonzero(score[1:] != score[:-1]) + 1)


def _running(values: Floats, starts: NDArray[np.intp]) -> Floats:
    """Running sums of values up to the end of each part; the parts begin at ``starts``."""
    each = np.add.reduceat(values, starts, dtype=np.float64)
    return np.cumsum(each, out=each)


def sweep(z: Floats, y: NDArray[Any], weight: Floats | None = None) -> BinSums:
    """Equal-mass bins, as many as keep the mean outcome monotone from bin to bin (Roelofs et al. 2022).

    Notes
    -----
    The number of bins grows from 1 until the outcomes of some neighbouring bins are out of order; the last number
    before that is kept.
    """
    ranked = Sorted.of(z, y, weight)
    best = ranked.equal_mass(1)
    for n_bins in range(2, len(ranked.weight) + 1):
        sums = ranked.equal_mass(n_bins)
        full = sums.weight > 0
        mean = sums.outcome[full] / sums.weight[full]
        if np.any(np.diff(mean) < 0):
            break
        best = sums
    return best

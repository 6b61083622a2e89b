"""Means over rows with their standard errors: the sums that add up, and the numbers that come out of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.scores import is_number
from mixnmatch._engine.text import estimate_text, significant
from mixnmatch.evaluation._bounded import Bounds, bounded_interval, skewed_interval

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Sums over rows from which the weighted means of k row quantities and their covariance follow.

    Rows, not units of weight, are what varies: a row of weight w enters the variance with w squared.
    """

    n_rows: int
    weight: float
    weight_squares: float
    sums: Floats  # sum of w x, shape (k,)
    spread: Floats  # sum of w^2 x, shape (k,)
    products: Floats  # sum of w^2 x x', shape (k, k)

    @classmethod
    def of(cls, rows: Floats, weight: Floats | None) -> Self:
        """Sums over the last axis of ``rows``, of shape (k, n)."""
        n = rows.shape[1]
        if weight is None:
            sums = rows.sum(axis=1)
            return cls(n, float(n), float(n), sums, sums, _products(rows, rows))
        squares = np.square(weight)
        spread = rows * squares
        return cls(
            n,
            float(weight.sum()),
            float(squares.sum()),
            (rows * weight).sum(axis=1),
            spread.sum(axis=1),
            _products(spread, rows),
        )

    @classmethod
    def nothing(cls, k: int) -> Self:
        """No rows yet."""
        return cls(0, 0.0, 0.0, np.zeros(k), np.zeros(k), np.zeros((k, k)))

    def __add__(self, other: Moments) -> Moments:
        """Moments of the rows of both."""
        return Moments(
            self.n_rows + other.n_rows,
            self.weight + other.weight,
            self.weight_squares + other.weight_squares,
            self.sums + other.sums,
            self.spread + other.spread,
            self.products + other.products,
        )

    def means(self) -> Floats:
        """Weighted means."""
        return self.sums / self.weight

    def covariance(self) -> Floats:
        """Covariance of the means: n / (n - 1) sum w^2 (x - m)(x - m)' / (sum w)^2; NaN for a single row."""
        if self.n_rows < 2:
            return np.full(self.products.shape, np.nan)
        mean = self.means()
        with np.errstate(invalid="ignore"):  # an infinite loss has no variance
            cross = self.spread[:, None] * mean
            centred = self.products - cross - cross.T + self.weight_squares * (mean[:, None] * mean)
        variances = centred.reshape(-1)[:: len(mean) + 1]
        np.maximum(variances, 0.0, out=variances)
        return centred * (self.n_rows / (self.n_rows - 1) / self.weight**2)

    def effective_sizes(self, clustered: Floats | None = None, n_groups: int = 0) -> Floats:
        """Samples of equal weight that would know each mean as well: Kish's number, divided by the design effect.

        ``clustered`` is the covariance of the means between clusters. Where nothing varies it says nothing of how much
        samples of a cluster have in common, and each of the ``n_groups`` clusters counts as one sample.
        """
        kish = np.full(len(self.sums), self.weight**2 / self.weight_squares)
        if clustered is None:
            return kish
        alone, together = np.diag(self.covariance()), np.diag(clustered)
        varies = together > 1e-24 * np.maximum(self.means() ** 2, 1e-300)
        effect = np.where(varies, alone / np.where(varies, together, 1.0), n_groups / kish)
        return np.asarray(kish * np.minimum(effect, 1.0))


def _products(a: Floats, b: Floats) -> Floats:
    # Not by BLAS: its threads would wait for work at the cost of ours.
    return np.asarray(np.einsum("in,jn->ij", a, b))


def block_moments(block: Block, rows: Floats) -> Moments:
    """Moments of row quantities of a block, of shape (k, rows of the block)."""
    return Moments.of(rows, block.weight)


def clustered_covariance(rows: Floats, weight: Floats | None, groups: NDArray[np.intp]) -> tuple[Floats, int]:
    """Covariance of the weighted means when rows of a group belong together, and the number of groups."""
    w = np.ones(rows.shape[1]) if weight is None else weight
    mean = rows @ w / w.sum()
    deviations = (rows - mean[:, None]) * w
    n_groups = int(groups.max()) + 1
    present = np.bincount(groups, w > 0, minlength=n_groups) > 0
    count = int(present.sum())
    if count < 2:
        return np.full((len(rows), len(rows)), np.nan), count
    per_group = np.stack([np.bincount(groups, deviation, minlength=n_groups) for deviation in deviations])
    return per_group @ per_group.T * (count / (count - 1) / w.sum() ** 2), count


def check_confidence(confidence: float) -> None:
    """Raise an error unless ``confidence`` is a probability strictly between 0 and 1."""
    if not is_number(confidence) or not 0 < confidence < 1:
        msg = f"confidence must be between 0 and 1, got {confidence!r}"
        raise ValueError(msg)


class MeanEstimate(float):
    """A mean over samples: a float with its standard error, confidence interval and number of samples.

    Attributes
    ----------
    standard_error : float
        Standard error, cluster-robust if there were groups; NaN for a single sample (or group).
    confidence : float
        Coverage that ``interval`` aims at.
    n_rows : int
        Number of samples of positive weight.
    n_groups : int or None
        Number of groups, if samples were grouped.
    bounds : Bounds or None
        Range of the quantity, where it has one.
    effective_size : float or None
        Number of samples of equal weight with the same standard error; ``n_rows`` if None.
    unseen : tuple of float, or None
        For quantities without a known range: the smallest and the largest mean that any labels could give.
    """

    standard_error: float
    confidence: float
    n_rows: int
    n_groups: int | None
    bounds: Bounds | None = None
    effective_size: float | None = None
    unseen: tuple[float, float] | None = None

    def __new__(cls, value: float, **attributes: Any) -> Self:
        """Make the float and attach what it knows."""
        made = super().__new__(cls, value)
        made.__dict__.update(attributes)
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        msg = f"{type(self).__name__} cannot be changed"
        raise AttributeError(msg)

    @property
    def interval(self) -> tuple[float, float]:
        r"""Interval at ``confidence``: within the range of a bounded quantity, otherwise Student's t interval.

        Proportions have the interval of Clopper and Pearson, other bounded quantities one of the same kind (see
        :func:`mixnmatch.evaluation._bounded.bounded_interval`). The log loss, which has no largest value, has a skewed
        one (:func:`mixnmatch.evaluation._bounded.skewed_interval`). With ``unseen`` as (u, v) and q the largest
        probability that n samples miss with probability :math:`\alpha / 2`, Student's interval of a mean m reaches at
        least from m - q (m - u) to m + q (v - m).
        """
        from scipy.special import stdtrit

        if not (math.isfinite(self) and math.isfinite(self.standard_error)):
            return math.nan, math.nan
        bounds = self.bounds
        if bounds is not None:
            interval = bounded_interval if math.isfinite(bounds.high) else skewed_interval
            size = self.n_rows if self.effective_size is None else self.effective_size
            degrees = size - 1 if self.n_groups is None else self.n_groups - 1
            return interval(
                float(self), self.standard_error, bounds, size=size, degrees=degrees, confidence=self.confidence
            )
        mean, reach = float(self), float(stdtrit(self._degrees, 0.5 + self.confidence / 2)) * self.standard_error
        if self.unseen is None:
            return mean - reach, mean + reach
        missed = 1.0 - (0.5 * (1 - self.confidence)) ** (1.0 / self._units)
        return mean - max(reach, missed * (mean - self.unseen[0])), mean + max(reach, missed * (self.unseen[1] - mean))

    @property
    def p_value(self) -> float:
        """Two-sided p value of "the mean is zero"."""
        from scipy.special import stdtr

        if math.isnan(self.standard_error):
            return math.nan
        if float(self) == 0:
            return 1.0
        p = float(2 * stdtr(self._degrees, -abs(float(self)) / self.standard_error)) if self.standard_error else 0.0
        if self.unseen is None:
            return p
        opposite = max(self.unseen[1], 0.0) if self < 0 else max(-self.unseen[0], 0.0)
        share = abs(float(self)) / (abs(float(self)) + opposite)  # of unseen samples that would make up for those seen
        return max(p, min(1.0, float(2 * (1 - share) ** self._units)))

    @property
    def _units(self) -> float:
        """Number of samples, or of clusters, that could have shown what was not seen."""
        size = self.n_rows if self.effective_size is None else self.effective_size
        return float(max(size if self.n_groups is None else min(size, self.n_groups), 1.0))

    @property
    def _degrees(self) -> int:
        return (self.n_rows if self.n_groups is None else self.n_groups) - 1

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON: what is not finite becomes None."""
        low, high = self.interval
        return {
            "value": finite(float(self)),
            "standard_error": finite(self.standard_error),
            "low": finite(low),
            "high": finite(high),
            "confidence": self.confidence,
            "n_rows": self.n_rows,
            "n_groups": self.n_groups,
        }

    def _text(self, *more: str, sign: bool = False) -> str:
        """The value, its interval, further results and the number of samples."""

        def show(value: float) -> str:
            return significant(value, sign=sign)

        return estimate_text(self, self.interval, self.confidence, *more, f"n = {self.n_rows}", show=show)

    def __str__(self) -> str:
        return self._text()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({float(self)!r}, standard_error={self.standard_error!r})"

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)


def finite(number: float) -> float | None:
    """Return the number, or None if it is not finite, which JSON cannot express."""
    return number if math.isfinite(number) else None

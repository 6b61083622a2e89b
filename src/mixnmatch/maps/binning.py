"""Histogram binning, and the Bayesian average over many binnings (BBQ)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.kernels.lookup import Piecewise
from mixnmatch._engine.scores import MOST_BINS, is_number
from mixnmatch.maps.binary_scores import BinaryScores, goals, map_tables
from mixnmatch.maps.columns import Columns, probability_at, scale_of, sorted_by, squashed, weighted_count
from mixnmatch.maps.piecewise import PiecewiseMap
from mixnmatch.maps.ties import lower_edges

Vector = NDArray[np.float64]
# Entries are counted in so many blocks, unless these are small.
COUNTED_BLOCKS, COUNTED_BYTES = 128, 1 << 16
# Bins of all binnings that are looked at together: a handful of temporary tables of so many numbers.
BINS_TOGETHER = 1 << 12


class HistogramBinning(PiecewiseMap):
    """Histogram binning (Zadrozny and Elkan 2001): the share of positives among the scores in the same bin.

    Parameters
    ----------
    bins : int or "auto"
        Number of bins; "auto" takes the cube root of the number of entries, rounded up.
    strategy : {"width", "mass"}
        Bins of equal width, or with the same number of entries each; equal scores are never split.
    smoothing : float
        As for :class:`Isotonic`.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Notes
    -----
    A bin is closed on the left; the last one includes 1. A bin without entries keeps its middle as its value.

    References
    ----------
    Zadrozny, Elkan (2001). Obtaining calibrated probability estimates from decision trees and naive Bayesian
    classifiers. ICML.

    Examples
    --------
    >>> map = HistogramBinning(bins=2, strategy="width", smoothing=0).fit([0.1, 0.3, 0.4, 0.8], [0, 1, 0, 1])
    >>> map.predict_proba([0.2, 0.9])[:, 1].round(3)
    array([0.333, 1.   ])
    """

    def __init__(
        self,
        *,
        bins: int | str = "auto",
        strategy: str = "mass",
        smoothing: float = 1.0,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.bins = bins
        self.strategy = strategy
        self.smoothing = smoothing
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _check_params(self) -> None:
        super()._check_params()
        whole = isinstance(self.bins, int | np.integer) and not isinstance(self.bins, bool)
        if self.bins != "auto" and not (whole and 1 <= int(self.bins) <= MOST_BINS):
            msg = f'bins must be a whole number from 1 to {MOST_BINS}, or "auto", got {self.bins!r}'
            raise ValueError(msg)
        if self.strategy not in ("width", "mass"):
            msg = f'strategy must be "width" or "mass", got {self.strategy!r}'
            raise ValueError(msg)

    def _functions(self, columns: Columns) -> Iterable[Piecewise]:
        bins = int(np.ceil(np.cbrt(columns.entry_weight()))) if self.bins == "auto" else int(self.bins)
        if self.strategy == "width":
            edges = _of_equal_width(bins, columns.scale)
            if columns.computed:
                edges[1:-1] = lower_edges(edges[1:-1])
            size = max(columns.source.n_rows * columns.source.scores.row_bytes // COUNTED_BLOCKS, COUNTED_BYTES)
            counts = columns.total(_count_statistic, edges, block_bytes=size)
            return [_steps(edges, columns.scale, weight, positive) for weight, positive in counts]

        def cut(table: BinaryScores) -> Piecewise:
            cuts = table.equal_mass(bins)
            edges = table.edges(cuts, computed=columns.computed)
            return _steps(edges, columns.scale, *table.weights_between(cuts))

        return map_tables(columns, [bins], cut)


def _count_statistic(block: Block, scheme: str, edges: Vector) -> Vector:
    """Weight of all and of the positive entries in each bin, K x 2 x bins."""
    scores, bins, weight = sorted_by(block, scheme, scale_of(block, scheme)), len(edges) - 1, block.weight
    problems = scores.shape[1]
    a_row = 1 if scheme == "positive" else block.values.shape[1]
    cell = np.searchsorted(edges[1:-1], scores, side="right")  # numbers from 0 to the number of bins less one
    cell += np.arange(problems) * bins
    each = None if weight is None else np.repeat(weight, a_row)
    total = weighted_count(cell.ravel(), each, problems * bins)
    # Of the entries of a row only that of the label can be positive.
    rows = np.flatnonzero(block.y == 1) if scheme == "positive" else np.arange(len(block.y))
    hit = cell.reshape(len(block.y), a_row)[rows, 0 if scheme == "positive" else block.y]
    positive = weighted_count(hit, None if weight is None else weight[rows], problems * bins)
    return np.stack([total.reshape(problems, bins), positive.reshape(problems, bins)], axis=1)


def _of_equal_width(bins: int, scale: str) -> Vector:
    """Edges of bins of probabilities, as scores on a scale."""
    edges = np.arange(bins + 1) / bins
    if scale == "log-odds":
        edges[1:-1] = squashed(np.log(edges[1:-1]) - np.log(edges[-2:0:-1]))
    return edges


def _steps(edges: Vector, scale: str, weight: Vector, positive: Vector) -> Piecewise:
    p = probability_at(edges, scale)
    middle = (p[:-1] + p[1:]) / 2
    value = np.divide(positive, weight, out=middle.copy(), where=weight > 0)
    return Piecewise(edges[:-1].copy(), value, np.zeros(len(value)), float(value[0]))


class BayesianBinning(PiecewiseMap):
    r"""Bayesian binning into quantiles, BBQ (Naeini et al. 2015): the posterior mean over equal-mass binnings.

    Parameters
    ----------
    range_factor : float
        Binnings with :math:`n^{1/3} / C` to :math:`C n^{1/3}` bins are averaged, C being this factor.
    prior_weight : float
        Total weight N' of the Beta priors of a binning; a bin's prior has weight N' / B and its middle as mean.
    smoothing : float
        As for :class:`Isotonic`; the priors already keep probabilities away from 0 and 1.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    References
    ----------
    Naeini, Cooper, Hauskrecht (2015). Obtaining well calibrated probabilities using Bayesian binning. AAAI.

    Examples
    --------
    >>> map = BayesianBinning().fit([0.1, 0.3, 0.4, 0.8], [0, 0, 1, 1])
    >>> bool(map.predict_proba([0.9])[0, 1] > 0.5)
    True
    """

    def __init__(
        self,
        *,
        range_factor: float = 10.0,
        prior_weight: float = 2.0,
        smoothing: float = 0.0,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.range_factor = range_factor
        self.prior_weight = prior_weight
        self.smoothing = smoothing
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _check_params(self) -> None:
        super()._check_params()
        for name, least in (("range_factor", 1.0), ("prior_weight", 1e-9)):
            if not is_number(getattr(self, name)) or not least <= getattr(self, name) <= 1e9:
                msg = f"{name} must be a positive number from {least:g} to 1e9, got {getattr(self, name)!r}"
                raise ValueError(msg)

    def _functions(self, columns: Columns) -> Iterable[Piecewise]:
        root = np.cbrt(columns.entry_weight())
        fewest, most = max(1, int(root / self.range_factor)), max(1, int(np.ceil(root * self.range_factor)))

        def average(table: BinaryScores) -> Piecewise:
            # More bins than distinct scores only repeat the finest binning.
            counts = np.arange(min(fewest, table.n_distinct), min(most, table.n_distinct) + 1)
            return _average(table, counts, self.prior_weight, columns)

        return map_tables(columns, range(fewest, most + 1), average)


def _average(table: BinaryScores, counts: NDArray[np.intp], prior_weight: float, columns: Columns) -> Piecewise:
    """Average of the binnings, weighted by their marginal likelihoods, as one step function on all their edges."""
    cuts, sizes = _binnings(table, counts)
    seen = np.zeros(table.size + 1, dtype=bool)
    seen[cuts] = True
    at, place = np.flatnonzero(seen), (np.cumsum(seen, dtype=np.int32) - 1)[cuts]
    edges = table.edges(at, computed=columns.computed)
    p = probability_at(edges, columns.scale)
    log_score, value = _posteriors(p, table.below(at), place, sizes, prior_weight)
    posterior = np.exp(log_score - log_score.max())
    posterior /= posterior.sum()
    likely = posterior > 1e-12
    used = np.zeros(len(at), dtype=bool)
    used[place[np.repeat(likely, sizes + 1)]] = True
    knots = edges[used][:-1]
    # The sum of step functions, added up from their steps; rounding must not take it out of their range.
    low, high = value.min(), value.max()
    value *= np.repeat(np.where(likely, posterior, 0.0), sizes)
    opens = np.append(place[1:] > 0, False)  # all edges but the last of each binning
    first = np.cumsum(sizes) - sizes
    step = np.diff(value, prepend=0.0)
    step[first] = value[first]
    place = (np.cumsum(used) - 1)[place[opens]]
    values = np.cumsum(np.bincount(place, step, len(knots)))
    values = np.clip(values / posterior[likely].sum(), low, high)
    # Half-way between neighbouring floats there is none: edges next to each other may be equal.
    own = np.append(np.diff(knots) > 0, True)
    flat = np.broadcast_to(0.0, int(own.sum()))  # slopes that take no memory
    return Piecewise(knots[own], values[own], flat, float(values[own][0]))


def _binnings(table: BinaryScores, counts: NDArray[np.intp]) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """Distinct binnings into these numbers of bins of equal mass: all cuts, from 0 to the end each time, and sizes."""
    cuts = np.concatenate([_cuts(table, counts[part]) for part in _parts(counts)])
    cuts = cuts[np.append(True, cuts[1:] != cuts[:-1])]
    starts = np.flatnonzero(cuts == 0)
    sizes = np.diff(starts, append=len(cuts)) - 1
    if len(np.unique(sizes)) < len(sizes):
        distinct = {one.tobytes(): one for one in np.split(cuts, starts[1:])}.values()
        cuts, sizes = np.concatenate(list(distinct)), np.array([len(one) - 1 for one in distinct])
    return cuts, sizes


def _cuts(table: BinaryScores, counts: NDArray[np.intp]) -> NDArray[np.int32]:
    """All cuts of binnings into these numbers of bins of equal mass; some may be alike."""
    bins = np.repeat(counts, counts + 1)
    number = np.arange(len(bins)) - np.repeat(np.cumsum(counts + 1) - counts - 1, counts + 1)
    cuts = np.where(number == 0, 0, table.size)
    inner = (number > 0) & (number < bins)
    cuts[inner] = table.reach(goals(table.total, number[inner], bins[inner]))
    return cuts.astype(np.int32)


def _parts(sizes: NDArray[np.intp]) -> list[slice]:
    """Binnings of these sizes, in parts that have about as many bins."""
    part = np.cumsum(sizes) // BINS_TOGETHER
    starts = np.flatnonzero(np.diff(part, prepend=-1))
    return [slice(*ends) for ends in zip(starts, [*starts[1:], len(sizes)], strict=True)]


def _posteriors(
    p: Vector, below: tuple[Vector, Vector], place: NDArray[np.int32], sizes: NDArray[np.intp], prior_weight: float
) -> tuple[Vector, Vector]:
    """The same as :func:`_posterior`, a part of the binnings at a time."""
    log_score, value, ends = np.empty(len(sizes)), np.empty(int(sizes.sum())), np.append(0, np.cumsum(sizes))
    for part in _parts(sizes):
        first, last = ends[part.start], ends[part.stop]
        own = place[first + part.start : last + part.stop]  # a binning has one more edge than bins
        log_score[part], value[first:last] = _posterior(p, below, own, sizes[part], prior_weight)
    return log_score, value


def _posterior(
    p: Vector, below: tuple[Vector, Vector], place: NDArray[np.int32], sizes: NDArray[np.intp], prior_weight: float
) -> tuple[Vector, Vector]:
    """Log marginal likelihood of each binning, and the posterior means of the bins of all of them.

    ``p`` are the probabilities at the edges. ``place`` says which of these, with the weights below them, are those of
    the binnings, one after another.
    """
    from scipy.special import gammaln

    opens = place[1:] > 0  # between the last edge of a binning and the first of the next there is no bin
    left, right = place[:-1][opens], place[1:][opens]
    weight, positive = (part[right] - part[left] for part in below)
    share = np.repeat(prior_weight / sizes, sizes)
    middle = np.clip((p[left] + p[right]) / 2, 1e-6, 1 - 1e-6)
    alpha, beta = share * middle, share * (1 - middle)
    # B(alpha + positive, beta + negative) / B(alpha, beta) in logarithms; most bins have no positives.
    score = gammaln(beta + (weight - positive)) - gammaln(beta) - gammaln(share + weight)
    some = positive > 0
    score[some] += gammaln(alpha[some] + positive[some]) - gammaln(alpha[some])
    total = np.add.reduceat(score, np.cumsum(sizes) - sizes) + sizes * gammaln(prior_weight / sizes)
    return total, (alpha + positive) / (share + weight)

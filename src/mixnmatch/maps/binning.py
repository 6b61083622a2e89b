"""Histogram binning, and the Bayesian average over many binnings (BBQ)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._rows import Block
from mixnmatch._scores import MOST_BINS, is_number
from mixnmatch.kernels.lookup import Piecewise
from mixnmatch.maps.columns import Columns, entries
from mixnmatch.maps.piecewise import PiecewiseMap
from mixnmatch.maps.score_table import ScoreTable, score_tables

Vector = NDArray[np.float64]


class HistogramBinning(PiecewiseMap):
    """Histogram binning (Zadrozny and Elkan 2001): the share of positives among the scores in the same bin.

    Parameters
    ----------
    bins : int or "auto"
        Number of bins; "auto" takes the cube root of the number of entries, rounded up.
    strategy : {"width", "mass"}
        Bins of equal width, or with the same number of entries each; equal scores are never parted.
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
        self.logits = logits
        self.classes = classes
        self.weights = weights

    def _check_params(self) -> None:
        super()._check_params()
        whole = isinstance(self.bins, int | np.integer) and not isinstance(self.bins, bool)
        if self.bins != "auto" and not (whole and 1 <= int(self.bins) <= MOST_BINS):
            msg = f'bins must be a whole number from 1 to {MOST_BINS}, or "auto", got {self.bins!r}'
            raise ValueError(msg)
        if self.strategy not in ("width", "mass"):
            msg = f'strategy must be "width" or "mass", got {self.strategy!r}'
            raise ValueError(msg)

    def _functions(self, columns: Columns) -> list[Piecewise]:
        bins = int(np.ceil(np.cbrt(columns.entry_weight()))) if self.bins == "auto" else int(self.bins)
        if self.strategy == "width":
            edges = np.arange(bins + 1) / bins
            counts = columns.total(_count_statistic, edges)
            return [_steps(edges, weight, positive) for weight, positive in counts]
        made = []
        for table in score_tables(columns, [bins]):
            cuts = table.equal_mass(bins)
            made.append(_steps(table.edges(cuts), *table.within(cuts)))
        return made


def _count_statistic(block: Block, way: str, edges: Vector) -> Vector:
    """Weight of all and of the positive entries in each bin, K x 2 x bins."""
    part = entries(block, way)
    bins, problems = len(edges) - 1, part.scores.shape[1]
    index = np.clip(np.searchsorted(edges, part.scores, side="right") - 1, 0, bins - 1)
    flat = (index + np.arange(problems) * bins).ravel()
    weight = np.ones(len(index)) if part.weight is None else part.weight
    spread = np.repeat(weight, problems)
    total = np.bincount(flat, spread, problems * bins).reshape(problems, bins)
    positive = np.bincount(flat, spread * part.positive.ravel(), problems * bins).reshape(problems, bins)
    return np.stack([total, positive], axis=1)


def _steps(edges: Vector, weight: Vector, positive: Vector) -> Piecewise:
    middle = (edges[:-1] + edges[1:]) / 2
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
        self.logits = logits
        self.classes = classes
        self.weights = weights

    def _check_params(self) -> None:
        super()._check_params()
        for name, least in (("range_factor", 1.0), ("prior_weight", 1e-9)):
            if not is_number(getattr(self, name)) or not least <= getattr(self, name) <= 1e9:
                msg = f"{name} must be a positive number from {least:g} to 1e9, got {getattr(self, name)!r}"
                raise ValueError(msg)

    def _functions(self, columns: Columns) -> list[Piecewise]:
        root = np.cbrt(columns.entry_weight())
        fewest, most = max(1, int(root / self.range_factor)), max(1, int(np.ceil(root * self.range_factor)))
        made = []
        for table in score_tables(columns, range(fewest, most + 1)):
            # More bins than distinct scores only repeat the finest binning.
            counts = range(min(fewest, table.n_distinct), min(most, table.n_distinct) + 1)
            made.append(_average(table, list(counts), self.prior_weight))
        return made


def _average(table: ScoreTable, counts: list[int], prior_weight: float) -> Piecewise:
    """Average of the binnings, weighted by their marginal likelihoods, as one step function on all their edges."""
    binnings = {tuple(table.equal_mass(count)): None for count in counts}
    scored = [_posterior(table, np.array(cuts), prior_weight) for cuts in binnings]
    log_score = np.array([score for score, _, _ in scored])
    posterior = np.exp(log_score - log_score.max())
    posterior /= posterior.sum()
    kept = [(weight, part) for weight, part in zip(posterior, scored, strict=True) if weight > 1e-12]
    knots = np.unique(np.concatenate([edges[:-1] for _, (_, edges, _) in kept]))
    values = np.zeros(len(knots))
    for weight, (_, edges, value) in kept:
        values += weight * value[np.searchsorted(edges[1:-1], knots, side="right")]
    values /= sum(weight for weight, _ in kept)
    return Piecewise(knots, values, np.zeros(len(knots)), float(values[0]))


def _posterior(table: ScoreTable, cuts: NDArray[np.intp], prior_weight: float) -> tuple[float, Vector, Vector]:
    """Log marginal likelihood of a binning, its edges and the posterior means of its bins."""
    from scipy.special import betaln

    edges = table.edges(cuts)
    weight, positive = table.within(cuts)
    share = prior_weight / len(weight)
    middle = np.clip((edges[:-1] + edges[1:]) / 2, 1e-6, 1 - 1e-6)
    alpha, beta = share * middle, share * (1 - middle)
    score = betaln(alpha + positive, beta + weight - positive) - betaln(alpha, beta)
    return float(score.sum()), edges, (alpha + positive) / (share + weight)

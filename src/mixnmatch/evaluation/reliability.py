"""Reliability curves as data: how often what was predicted with confidence z happened, with a band."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mixnmatch._engine import door
from mixnmatch._engine.rows import Rows, refuse_dask
from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch._engine.tabular import Record, Tabular, array_records
from mixnmatch.evaluation._binning import Floats, Grid, bin_linearly
from mixnmatch.evaluation._curves import (
    Band,
    Points,
    bin_edges,
    corp_points,
    curve_statistic,
    edge_sums,
    histogram_points,
    kernel_points,
)
from mixnmatch.evaluation._problem import Problem, choose_problem
from mixnmatch.evaluation.error import CalibrationMetric
from mixnmatch.evaluation.histogram import count_bins
from mixnmatch.evaluation.kde import Smoother, fit_grid, rule_of_thumb
from mixnmatch.evaluation.notion import CLASS_BYTES, class_grid_statistic

__all__ = ["ReliabilityCurve", "reliability_curve", "worst_classes"]

KINDS = ("kde", "histogram", "corp")
# Points of the density that are kept for drawing.
DENSITY_NODES = 257


@dataclass(frozen=True, eq=False)
class ReliabilityCurve(Tabular):
    """A reliability curve: the frequency of an event against the confidence it was predicted with.

    Attributes
    ----------
    kind : {"kde", "histogram", "corp"}
        How it was estimated.
    problem : str
        What the confidences are about: "the top label" or "class ...".
    confidence : array of shape (m,)
        Confidences at which the curve is given: nodes of a grid, mean confidences of bins, or ends of isotonic blocks.
    value : array of shape (m,)
        Estimated frequency there, z + r(z).
    low, high : arrays of shape (m,)
        The band.
    band : {"confidence", "consistency"}
        A confidence band is around the curve and should contain the true curve. A consistency band is around the
        diagonal and contains curves of calibrated scores: a curve outside it is significantly miscalibrated.
    level : float
        Coverage of the band.
    simultaneous : bool
        Whether the level holds for the whole curve at once, or at each point.
    share : array of shape (m,)
        Share of the sample that each point stands for.
    density_at, density : arrays
        Smoothed density of the confidences.
    error : float
        Calibration error (d = 1) of this curve, integrated over the sample.
    mean_confidence, mean_outcome : float
        The calibration error is at least their difference.
    n_rows : int
        Number of samples of positive weight.
    edges : array or None
        Edges of the bins, for equal-width histograms and given edges.
    bandwidth : float or None
        Standard deviation of the kernel.
    """

    kind: str
    problem: str
    confidence: Floats
    value: Floats
    low: Floats
    high: Floats
    band: str
    level: float
    simultaneous: bool
    share: Floats
    density_at: Floats
    density: Floats
    error: float
    mean_confidence: float
    mean_outcome: float
    n_rows: int
    edges: Floats | None = None
    bandwidth: float | None = None

    @property
    def band_text(self) -> str:
        """The band in words."""
        extent = "simultaneous" if self.simultaneous else "pointwise"
        form = "intervals" if self.kind == "histogram" and self.band == "confidence" else "band"
        return f"{self.level:.0%} {extent} {self.band} {form}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values and lists, ready for JSON."""
        items = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: item.tolist() if isinstance(item, np.ndarray) else item for name, item in items.items()}

    def _records(self) -> list[Record]:
        return array_records(
            confidence=self.confidence, frequency=self.value, low=self.low, high=self.high, share=self.share
        )

    def _texts(self) -> tuple[list[str], list[str]]:
        return [f"Reliability of {self.problem} ({self.kind}, n = {self.n_rows}, error {self.error:.4f})"], []

    def __str__(self) -> str:
        """The curve as a table of a few points."""
        at = np.unique(np.linspace(0, len(self.confidence) - 1, 12).round().astype(int))
        rows = [
            f"{self.confidence[i]:10.4f} {self.value[i]:9.4f}   {self.low[i]:.4f} to {self.high[i]:.4f}" for i in at
        ]
        head = f"reliability of {self.problem} ({self.kind}, n = {self.n_rows}, error {self.error:.4f})"
        return "\n".join([head, f"confidence frequency   {self.band_text}", *rows])


def reliability_curve(
    scores: Any,
    y: Any = None,
    *,
    kind: str = "kde",
    notion: str | None = None,
    label: Any = None,
    band: str = "confidence",
    confidence: float = 0.95,
    simultaneous: bool = False,
    bandwidth: float | str = "adaptive",
    kernel: str = "triweight",
    bins: Any = 15,
    binning: str = "equal-width",
    closed: str = "left",
    interval: str = "wilson",
    n_resamples: int = 200,
    seed: int = 0,
    logits: bool = False,
    sample_weight: Any = None,
    classes: Any = None,
    weights: str = "frequency",
) -> ReliabilityCurve:
    r"""Reliability curve :math:`z \mapsto P(\text{event} \mid \text{confidence} = z)` with a band.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``.
    y : array of shape (n,)
        Labels.
    kind : {"kde", "histogram", "corp"}
        Residual kernel smoothing, bins, or isotonic regression.
    notion : {"top-label", "binary", "class-wise"}, optional
        What the confidences are about; by default the positive class of two, the top label of more.
    label : optional
        The class, for the class-wise notion.
    band : {"confidence", "consistency"}
        A band around the curve for the truth, or around the diagonal for curves of calibrated scores.
    confidence : float
        Coverage of the band.
    simultaneous : bool
        Cover the whole curve at once instead of each point (not for CORP; histograms by Sidak's correction).
    bandwidth : float or {"adaptive", "paper", "authors"}
        Standard deviation of the kernel, or a rule for it (kind "kde").
    kernel : {"triweight", "epanechnikov", "gaussian"}
        Kernel (kind "kde").
    bins : int, "sturges", "cuberoot", or array of edges
        Bins (kind "histogram").
    binning : {"equal-width", "equal-mass"}
        How a number of bins is laid out (kind "histogram").
    closed : {"left", "right"}
        Which end belongs to an equal-width bin or one with given edges; 0 and 1 always belong to the outer ones.
    interval : {"wilson", "jeffreys"}
        Intervals of the frequencies in bins (kind "histogram").
    n_resamples : int
        Resamples for the band (kind "corp").
    seed : int
        Seed of the resamples of CORP and of the simulated noise of consistency and simultaneous bands.
    logits : bool
        Whether scores are logits.
    sample_weight : array of shape (n,), optional
        Frequencies in the curve. The band counts samples, not weights.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.

    Returns
    -------
    ReliabilityCurve

    Notes
    -----
    The kernel curve is :math:`\pi(z) = z + r(z)`, with r by logistic recalibration and kernel smoothing of what it
    leaves (see :func:`mixnmatch.evaluation.adaptive.residual_curve`). Its bias can exceed its noise, so its confidence
    band also looks at a local mean with little bias,

    .. math:: \tilde\pi(z) = \pi(z) + \frac{\sum_i K_z(z_i)\,(y_i - \pi(z_i))}{\sum_i K_z(z_i)},

    over a window that holds about :math:`3 n^{0.6}` samples, or 30 where the curve bends towards 0 and 1 and where
    samples are few (see :class:`~mixnmatch.evaluation._windows.Windows`). The band reaches from the lower to the upper
    ends of Wilson's intervals around :math:`\pi` and :math:`\tilde\pi`, both with the effective number of samples in
    the window. If the truth is above the curve, only the upper end can miss it, so one-sided intervals are taken. Where
    there are no samples, as in a gap between scores, the band widens to [0, 1].

    ``benchmarks/estimator_study.py bands`` measures 24 smooth curves, 14 of which were not used to choose anything,
    with n = 400, 4000 and 40000: the nominal 95% pointwise band covered on average 95% to 100% of the sample. At
    single points within a few thousandths of 0 and 1 it can cover less: the grid of the curve has 2048 cells. No
    smooth curve is right at a jump of the true one. With a given bandwidth the band is that of the smoothed curve,
    bias not included.

    CORP's bands are by resampling outcomes from the isotonic fit (confidence) or from the confidences themselves
    (consistency). Where the isotonic fit is 0 or 1, as at its ends, its confidence band has no width.

    References
    ----------
    Dimitriadis, Gneiting, Jordan (2021). Stable reliability diagrams for probabilistic classifiers. PNAS 118.

    Bröcker, Smith (2007). Increasing the reliability of reliability diagrams. Weather and Forecasting 22.

    Wilson (1927). Probable inference, the law of succession, and statistical inference. JASA 22.

    Examples
    --------
    >>> curve = reliability_curve([0.2, 0.2, 0.8, 0.8], [0, 0, 1, 0], kind="histogram", bins=2)
    >>> curve.confidence.tolist(), curve.value.tolist()
    ([0.2, 0.8], [0.0, 0.5])
    """
    _check_kind(kind)
    wanted = Band(band, confidence, simultaneous, interval, n_resamples, seed)
    wanted.check()
    source = door.labelled(door.rows(scores, y, sample_weight, logits=logits, classes=classes, weights=weights))
    problem = choose_problem(source, notion, label)
    if source.on_dask:
        return _curve_of_sums(source, problem, kind, wanted, (bandwidth, kernel), (bins, binning, closed))
    outcomes = problem.outcomes(source).counted()
    grid = bin_linearly(outcomes.z, outcomes.y, outcomes.weight)
    weight_squares = float(len(outcomes.z)) if outcomes.weight is None else float(outcomes.weight @ outcomes.weight)
    inflation = weight_squares / outcomes.n
    if kind == "kde":
        points = kernel_points(grid, inflation, wanted, bandwidth, kernel)
    elif kind == "histogram":
        sums, edges = edge_sums(outcomes, bins, binning, closed)
        points = histogram_points(sums, inflation, wanted, edges)
    else:
        points = corp_points(outcomes, wanted)
    return assemble(kind, problem.text, points, wanted, grid, len(outcomes.z))


def _curve_of_sums(
    source: Rows, problem: Problem, kind: str, band: Band, smoothing: tuple[Any, str], cut: tuple[Any, str, str]
) -> ReliabilityCurve:
    """A curve from sums over rows, for rows that are not in memory."""
    bins, binning, closed = cut
    if kind == "corp" or (kind == "histogram" and binning != "equal-width"):
        why = "isotonic regression (CORP) and equal-mass bins need all confidences in memory"
        refuse_dask(source, why, 'kind="kde" is the curve on a grid')
    if np.ndim(bins) == 0:
        bins = count_bins(bins, source.total_weight())
    rows, squares, grid, sums = source.total(curve_statistic, problem, bins if kind == "histogram" else None, closed)
    inflation = squares / float(grid.count.sum())
    if kind == "kde":
        points = kernel_points(grid, inflation, band, *smoothing)
    else:
        points = histogram_points(sums, inflation, band, bin_edges(bins))
    return assemble(kind, problem.text, points, band, grid, rows)


def assemble(kind: str, problem: str, points: Points, band: Band, grid: Grid, n_rows: int) -> ReliabilityCurve:
    """A curve from its points and the grid of the sample."""
    density_at, density = _density(grid)
    total = float(grid.count.sum())
    return ReliabilityCurve(
        kind,
        problem,
        points.confidence,
        points.value,
        points.low,
        points.high,
        band.kind,
        band.level,
        band.simultaneous,
        points.share,
        density_at,
        density,
        points.error,
        float(grid.count @ grid.nodes) / total,
        float(grid.outcome.sum()) / total,
        n_rows,
        points.edges,
        points.bandwidth,
    )


def worst_classes(
    scores: Any,
    y: Any = None,
    *,
    n: int | None = None,
    logits: bool = False,
    sample_weight: Any = None,
    classes: Any = None,
    weights: str = "frequency",
) -> list[tuple[Any, float]]:
    """Classes by their class-wise calibration error (residual kernel, d = 1), the worst first.

    Parameters
    ----------
    scores : array of shape (m, L) or (m,)
        Probabilities, or logits if ``logits``.
    y : array of shape (m,)
        Labels.
    n : int, optional
        How many classes to return, by default all.
    logits : bool
        Whether scores are logits.
    sample_weight : array of shape (m,), optional
        Frequencies.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.

    Returns
    -------
    list of (label, error)

    Examples
    --------
    >>> worst_classes([[0.5, 0.3, 0.2]] * 10, [0] * 5 + [1] * 5, n=1)
    [(1, 0.2)]
    """
    source = door.labelled(door.rows(scores, y, sample_weight, logits=logits, classes=classes, weights=weights))
    metric = CalibrationMetric(notion="class-wise")
    errors = metric.each_of_grid(source.total(class_grid_statistic, block_bytes=CLASS_BYTES))
    names = np.arange(source.n_classes) if source.classes is None else source.classes
    # Errors that differ by rounding only are tied, and ties go by the order of the classes.
    order = np.argsort(-np.round(errors, 12), kind="stable")
    return [(names[k].item(), float(np.round(errors[k], 15))) for k in order[:n]]


def _density(grid: Grid) -> tuple[Floats, Floats]:
    """Density of the confidences, smoothed half as much as the rule of thumb says so that peaks at the ends show."""
    width = np.maximum(0.5 * rule_of_thumb(grid), 2 / (DENSITY_NODES - 1))
    grid = fit_grid(grid, width, nodes_a_bandwidth=4)
    density = np.maximum(Smoother(width, grid.count.shape[-1]).value(grid.count), 0.0)
    cells = grid.count.shape[-1] - 1
    step = max(1, cells // (DENSITY_NODES - 1))
    return grid.nodes[::step], density[::step] * cells / grid.count.sum()


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        msg = f"kind must be one of {', '.join(KINDS)}, got {kind!r}{did_you_mean(kind, KINDS)}"
        raise ValueError(msg)

"""Calibration gain: how much calibration error a map removes, for any number of classes."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import read_scores
from mixnmatch._engine.text import significant
from mixnmatch.evaluation._clusters import read_clusters
from mixnmatch.evaluation._means import MeanEstimate
from mixnmatch.evaluation.scores import FEW, brier_rows, means_over_rows
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.class_order import after_map

Floats = NDArray[np.float64]

__all__ = ["CalibrationGain", "GainComparison", "calibration_gain", "compare_gains"]

_MEANING = {
    True: "exact: the map is injective",
    False: "a lower bound: the map is not injective",
    None: "exact if the map is injective, otherwise a lower bound",
}


class CalibrationGain(MeanEstimate):
    """A calibration gain: a float, positive where the map helped, with its standard error and meaning.

    Attributes
    ----------
    before, after : float
        Brier score before and after the map; the gain is their difference.
    exact : bool or None
        Whether the gain estimates the reduction in squared calibration error itself (True) or a lower bound of it
        (False); None if nothing is known about the map.
    standard_error, interval, confidence, p_value, n_rows, n_groups
        As in :class:`MeanEstimate`. The p value is that of "the map changes nothing on average".
    """

    before: float
    after: float
    exact: bool | None

    @property
    def meaning(self) -> str:
        """What the number estimates, in words."""
        return _MEANING[self.exact]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {
            **super().to_dict(),
            "before": self.before,
            "after": self.after,
            "exact": self.exact,
            "meaning": self.meaning,
        }

    def __str__(self) -> str:
        return (
            f"calibration gain {self._text(sign=True)}\n"
            f"  Brier score {significant(self.before)} before, {significant(self.after)} after; {self.meaning}"
        )


class GainComparison(MeanEstimate):
    """The gain of one map minus that of another on the same samples: positive where the first is better.

    Attributes
    ----------
    gain_a, gain_b : CalibrationGain
        The two gains.
    exact : bool or None
        Whether the difference estimates a difference in squared calibration errors (both maps injective), or only one
        in squared loss (False), or nothing is known (None).
    standard_error, interval, confidence, p_value, n_rows, n_groups
        As in :class:`MeanEstimate`, of the paired differences. The p value is that of "the two are equally good".
    """

    gain_a: CalibrationGain
    gain_b: CalibrationGain
    exact: bool | None

    @property
    def meaning(self) -> str:
        """What the number estimates, in words."""
        if self.exact:
            return "difference in squared calibration error: both maps are injective"
        if self.exact is None:
            return "difference in squared calibration error if both maps are injective, otherwise in squared loss"
        return "difference in squared loss: a map that is not injective may also lose refinement"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        p = self.p_value
        return {
            **super().to_dict(),
            "p_value": None if math.isnan(p) else p,
            "gain_a": self.gain_a.to_dict(),
            "gain_b": self.gain_b.to_dict(),
            "exact": self.exact,
            "meaning": self.meaning,
        }

    def __str__(self) -> str:
        return (
            f"gain a - gain b = {self._text(f'p = {self.p_value:.3g}', sign=True)}\n"
            f"  gain a {significant(self.gain_a, sign=True)}, gain b {significant(self.gain_b, sign=True)}; "
            f"{self.meaning}"
        )


def calibration_gain(
    before: Any,
    after: Any,
    y: Any = None,
    *,
    logits: bool = False,
    sample_weight: Any = None,
    injective: bool | None = None,
    confidence: float = 0.95,
    clusters: Any = None,
    classes: Any = None,
    weights: str = "frequency",
    groups: Any = None,
) -> CalibrationGain:
    r"""Calibration gain of a map T, the paper's dimension-independent measure.

    .. math::
        \Delta\widehat{\mathrm{ECE}}^2(T)
        = \frac1n \sum_i \bigl(\lVert z^{(i)}-y^{(i)}\rVert_2^2 - \lVert T(z^{(i)})-y^{(i)}\rVert_2^2\bigr)

    Parameters
    ----------
    before : array of shape (n, L) or (n,)
        Scores before calibration: probabilities, or logits if ``logits``.
    after : array of shape (n, L) or (n,), or a fitted map
        Probabilities after calibration. A fitted map is applied to ``before`` block by block and knows whether it is
        injective.
    y : array of shape (n,)
        Labels.
    logits : bool
        Whether ``before`` is logits; ``after`` is always probabilities.
    sample_weight : array of shape (n,), optional
        Frequencies: a weight of k equals k repetitions in the mean. The standard error counts samples, not weights.
    injective : bool, optional
        Whether the map is injective, where ``after`` is an array (a map's ``.injective``).
    confidence : float
        Coverage of the result's ``interval``.
    clusters : array of shape (n,), optional
        Samples of one cluster vary together; the standard error then is cluster-robust.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.
    groups : array of shape (n,), optional
        Former name of ``clusters``, deprecated.

    Returns
    -------
    CalibrationGain
        A float with ``standard_error``, ``interval``, ``exact`` and ``meaning``.

    Notes
    -----
    By the calibration-refinement decomposition, :math:`\mathbb E\lVert z-y\rVert^2` is the squared calibration error
    plus the refinement error. An injective map leaves the refinement error as it is, so the reduction in squared loss
    is an unbiased estimate of the reduction in :math:`\mathrm{ECE}^2` of the full vector. The paper states it for
    accuracy-preserving maps; what is needed is that the map is injective, which its Definition 3.1 gives. Any other
    map can only add refinement error, so that the reduction in squared loss bounds the gain from below.

    The interval is Student's, but up to 5000 samples it leaves room for labels that were not seen: where events are
    rare, or scores close to 0 and 1, all samples may say the same although others would say the opposite. With q the
    largest probability that n samples miss with probability :math:`\alpha / 2`, the interval of a gain g reaches at
    least from g - q (g - u) to g + q (v - g), where u and v are the means over samples of the smallest and the largest
    gain that a label could give. The p-value agrees with it.

    References
    ----------
    Zhang, Kailkhura, Han (2020). Mix-n-Match: ensemble and compositional methods for uncertainty calibration in deep
    learning. ICML. Equation 8 and Appendix D.

    Gruber, Buettner (2022). Better uncertainty calibration via proper scores for classification and beyond. NeurIPS.

    Examples
    --------
    >>> before = [[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.9, 0.1]]
    >>> after = [[0.7, 0.3], [0.7, 0.3], [0.3, 0.7], [0.7, 0.3]]
    >>> gain = calibration_gain(before, after, [0, 1, 1, 0], injective=True)
    >>> round(float(gain), 3)
    0.055
    >>> gain.exact
    True
    """
    source = door.labelled(door.rows(before, y, sample_weight, logits=logits, classes=classes, weights=weights))
    other, exact = _after(source, before, after, injective)
    codes = read_clusters(source, clusters, groups)
    rows = partial(gain_rows, few=is_few(source))
    means, covariance, size = means_over_rows(source.together(other), rows, codes, confidence)
    return gain_from(means, covariance, 0, exact, size)


def compare_gains(
    before: Any,
    after_a: Any,
    after_b: Any,
    y: Any = None,
    *,
    logits: bool = False,
    sample_weight: Any = None,
    injective: tuple[bool | None, bool | None] = (None, None),
    confidence: float = 0.95,
    clusters: Any = None,
    classes: Any = None,
    weights: str = "frequency",
    groups: Any = None,
) -> GainComparison:
    r"""Compare two calibration maps by their gains on the same samples.

    The comparison is paired: the difference of gains is the mean of
    :math:`\lVert T_b(z)-y\rVert_2^2 - \lVert T_a(z)-y\rVert_2^2` over samples, which varies much less than either
    gain.

    Parameters
    ----------
    before : array of shape (n, L) or (n,)
        Scores before calibration: probabilities, or logits if ``logits``.
    after_a, after_b : arrays of shape (n, L) or (n,), or fitted maps
        Probabilities after either map, or the maps.
    y : array of shape (n,)
        Labels.
    logits : bool
        Whether ``before`` is logits.
    sample_weight : array of shape (n,), optional
        Frequencies; samples are the units of the standard error.
    injective : pair of bool, optional
        Whether the maps are injective, where they are given by arrays.
    confidence : float
        Coverage of the result's ``interval``.
    clusters : array of shape (n,), optional
        Samples of one cluster vary together; the standard error then is cluster-robust.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.
    groups : array of shape (n,), optional
        Former name of ``clusters``, deprecated.

    Returns
    -------
    GainComparison
        A float, positive where the first map is better, with ``standard_error``, ``interval`` and ``p_value``.

    Examples
    --------
    >>> z = [[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.9, 0.1]]
    >>> softer = [[0.7, 0.3], [0.7, 0.3], [0.3, 0.7], [0.7, 0.3]]
    >>> round(float(compare_gains(z, softer, z, [0, 1, 1, 0])), 3)
    0.055
    """
    source = door.labelled(door.rows(before, y, sample_weight, logits=logits, classes=classes, weights=weights))
    first, exact_a = _after(source, before, after_a, injective[0])
    second, exact_b = _after(source, before, after_b, injective[1])
    codes = read_clusters(source, clusters, groups)
    rows = partial(_comparison_rows, few=is_few(source))
    means, covariance, size = means_over_rows(source.together(first, second), rows, codes, confidence)
    exact = False if False in (exact_a, exact_b) else (None if None in (exact_a, exact_b) else True)
    return GainComparison(
        float(means[3]),
        standard_error=float(np.sqrt(covariance[3, 3])),
        unseen=_unseen(means[6:8]),
        gain_a=gain_from(means[[4, 0, 1, *range(8, len(means) - 2)]], covariance[4:, 4:], 0, exact_a, size),
        gain_b=gain_from(means[[5, 0, 2, *range(10, len(means))]], covariance[5:, 5:], 0, exact_b, size),
        exact=exact,
        **size,
    )


def is_few(source: Rows) -> bool:
    """Whether samples are so few that they may have missed labels that matter."""
    return not source.on_dask and source.n_rows <= FEW


def gain_rows(before: Block, after: Block, few: bool = False) -> Floats:
    """Reduction of the squared error of each row, and the error before and after; for few samples what was possible."""
    first, second = brier_rows(before), brier_rows(after)
    return np.stack([first - second, first, second, *(_possible_rows(before, after) if few else ())])


def _comparison_rows(before: Block, after_a: Block, after_b: Block, few: bool = False) -> Floats:
    z, a, b = brier_rows(before), brier_rows(after_a), brier_rows(after_b)
    pairs = ((after_b, after_a), (before, after_a), (before, after_b)) if few else ()
    return np.stack([z, a, b, b - a, z - a, z - b, *(row for pair in pairs for row in _possible_rows(*pair))])


def _possible_rows(before: Block, after: Block) -> tuple[Floats, Floats]:
    """Smallest and largest reduction of the squared error of each row that a label could give."""
    z, p = (np.asarray(block.probabilities(), dtype=np.float64) for block in (before, after))
    change = z - p
    common = np.einsum("ij,ij->i", change, z + p)
    return common - 2 * change.max(axis=1), common - 2 * change.min(axis=1)


def gain_from(means: Floats, covariance: Floats, at: int, exact: bool | None, size: dict[str, Any]) -> CalibrationGain:
    """A gain from means and covariance of what :func:`gain_rows` gives, starting at one of the rows."""
    return CalibrationGain(
        float(means[at]),
        standard_error=float(np.sqrt(covariance[at, at])),
        before=float(means[at + 1]),
        after=float(means[at + 2]),
        exact=exact,
        unseen=_unseen(means[at + 3 : at + 5]),
        **size,
    )


def _unseen(ends: Floats) -> tuple[float, float] | None:
    """Means of what was possible, where they are known."""
    return (float(ends[0]), float(ends[1])) if len(ends) == 2 and np.isfinite(ends).all() else None


def _after(source: Rows, before: Any, after: Any, injective: bool | None) -> tuple[Rows, bool | None]:
    """The rows after the map, and whether it is injective."""
    if isinstance(after, CalibrationMap):
        return after_map(source, after), bool(after.injective) if injective is None else injective
    if hasattr(after, "predict_proba"):  # a user's own map
        injective = getattr(after, "injective", None) if injective is None else injective
        after = after.predict_proba(before)
    if not isinstance(after, Rows) and source.classes is not None:
        after = door.scores_like(after, classes=source.classes, columns=source.columns, logits=False, vector_known=True)
    table = after.scores if isinstance(after, Rows) else read_scores(after)
    if (table.n_rows, table.n_classes) != (source.n_rows, source.n_classes):
        msg = (
            f"there are {source.n_rows} rows of {source.n_classes} classes before calibration, "
            f"but {table.n_rows} of {table.n_classes} after"
        )
        raise ValueError(msg)
    return Rows(table), injective

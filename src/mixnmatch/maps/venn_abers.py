"""Venn-Abers prediction: an interval of probabilities from two isotonic regressions, as a look-up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.folds import check_folds
from mixnmatch._engine.kernels.lookup import Piecewise
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import read_scores
from mixnmatch.maps.binary_scores import SORTED_ENTRIES
from mixnmatch.maps.columns import Columns, sorted_by, weighted_count
from mixnmatch.maps.parameters import check_is_fitted
from mixnmatch.maps.piecewise import PiecewiseMap, join_functions
from mixnmatch.maps.ties import tied_groups

Vector = NDArray[np.float64]


class VennAbers(PiecewiseMap):
    r"""Inductive Venn-Abers prediction (Vovk, Petej and Fedorova 2015) of one binary problem.

    For a score s, :math:`p_0(s)` and :math:`p_1(s)` are the values at s of two isotonic regressions: of the calibration
    set with s added as a negative, and with s added as a positive. One of the two is perfectly calibrated if
    samples are exchangeable. The probability is :math:`p = p_1 / (1 - p_0 + p_1)`, and never 0 or 1.

    Parameters
    ----------
    cv : int, optional
        Cross version: cut the calibration set into so many folds at random, compute the interval from each fold, and
        merge the intervals by geometric means of :math:`1 - p_0` and of :math:`p_1`.
    random_state : int
        Which samples are in which fold.
    smoothing : float
        As for :class:`Isotonic`.
    logits, classes, weights
        As for :class:`TemperatureScaling`. With ``cv``, repetitions of a sample may fall into different folds, so a
        weight of k does not equal k repetitions.

    Notes
    -----
    Both functions are step functions of s with at most n steps: :math:`p_0` can only change at a positive, and
    :math:`p_1` just after a negative. All steps are found in one sweep along the convex hull of the cumulative sums,
    O(n log n) in all, and applying the map is a search. Steps take memory for all entries of the calibration set.

    References
    ----------
    Vovk, Petej, Fedorova (2015). Large-scale probabilistic predictors with and without guarantees of validity. NeurIPS.

    Examples
    --------
    >>> map = VennAbers().fit([0.1, 0.3, 0.4, 0.8], [0, 1, 0, 1])
    >>> map.predict_proba([0.2, 0.9])[:, 1].round(3)
    array([0.4  , 0.667])
    >>> map.interval([0.2, 0.9]).round(3)
    array([[0.   , 0.667],
           [0.5  , 1.   ]])
    """

    _fitted: ClassVar[tuple[str, ...]] = (*PiecewiseMap._fitted, "lower_", "upper_", "left_upper_")

    lower_: Vector
    upper_: Vector
    left_upper_: Vector

    def __init__(
        self,
        *,
        cv: int | None = None,
        random_state: int = 0,
        smoothing: float = 0.0,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.cv = cv
        self.random_state = random_state
        self.smoothing = smoothing
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _check_params(self) -> None:
        super()._check_params()
        if self.cv is not None:
            check_folds(self.cv)
        if not isinstance(self.random_state, int | np.integer):
            msg = f"random_state must be a whole number, got {self.random_state!r}"
            raise ValueError(msg)

    def _check_fitted(self) -> None:
        super()._check_fitted()
        sizes = len(self.lower_), len(self.upper_), len(self.left_upper_)
        if sizes != (len(self.knots_), len(self.knots_), len(self.left_)):
            msg = "the intervals of a Venn-Abers map do not fit its knots"
            raise ValueError(msg)

    def _fit_columns(self, columns: Columns) -> dict[str, Any]:
        steps = self._steps(columns)
        return join_functions([one.function() for one in steps]) | {
            "lower_": np.concatenate([one.lower[1:] for one in steps]),
            "upper_": np.concatenate([one.upper[1:] for one in steps]),
            "left_upper_": np.array([one.upper[0] for one in steps]),
            "scale_": columns.scale,
        }

    def _steps(self, columns: Columns) -> list[Steps]:
        """The steps of each problem, from all samples or merged over folds."""
        if self.cv is None:
            return list(_all_steps(columns))
        n_folds, seed = int(self.cv), int(self.random_state)
        folds = [columns.source.fold(k, n_folds, keep=True, seed=seed) for k in range(n_folds)]
        parts = [_all_steps(Columns(fold, columns.scheme)) for fold in folds]
        return [Steps.merged(of_folds) for of_folds in zip(*parts, strict=True)]

    def interval(self, scores: Any) -> Vector:
        """The probabilities :math:`p_0` and :math:`p_1` of the positive class, n x 2, for a map of two classes.

        Parameters
        ----------
        scores : array of shape (n,) or (n, 2)
            As for :meth:`predict_proba`.
        """
        check_is_fitted(self)
        if len(self.left_) != 1:
            msg = f"an interval is of one binary problem, but this map was fitted to {len(self.left_)}, one a class"
            raise ValueError(msg)
        settings = {"logits": self._input_settings()["logits"], "n_classes": 2}
        source = Rows(read_scores(scores, **settings))
        s = sorted_by(source.block(0, source.n_rows), "positive", self.scale_)[:, 0]
        position = np.searchsorted(self.knots_, np.clip(np.abs(s), 0, 1).astype(np.float64), side="right")
        lower, upper = np.append(0.0, self.lower_), np.append(self.left_upper_, self.upper_)
        return np.stack([lower[position], upper[position]], axis=1)


@dataclass(frozen=True)
class Steps:
    """Two step functions of the score, p0 and p1: entry 0 of their values holds left of all knots."""

    knots: Vector
    lower: Vector
    upper: Vector

    @classmethod
    def of(cls, starts: Vector, ends: Vector, weight: Vector, positive: Vector) -> Steps:
        """The functions of distinct scores: where each starts and ends, in order, its weight and that of positives."""
        rises, p0 = _with_a_negative(weight, positive)
        # Seen from the other end, a positive is a negative; its groups end where they began.
        falls, flipped = _with_a_negative(weight[::-1], (weight - positive)[::-1])
        after = ends[::-1][falls][::-1]
        p1 = np.append(1 - flipped[::-1], 1.0)
        at = starts[rises]
        knots = np.union1d(at, after[after <= 1.0])
        left = np.append(-1.0, knots)
        lower = np.append(0.0, p0)[np.searchsorted(at, left, side="right")]
        return cls(knots, lower, p1[np.searchsorted(after, left, side="right")]).without_repetitions()

    @classmethod
    def merged(cls, parts: tuple[Steps, ...]) -> Steps:
        """The functions of several calibration sets, merged by geometric means of 1 - p0 and of p1."""
        knots = np.unique(np.concatenate([part.knots for part in parts]))
        left = np.append(-1.0, knots)
        places = [np.searchsorted(part.knots, left, side="right") for part in parts]
        log_not = np.mean([np.log1p(-part.lower[at]) for part, at in zip(parts, places, strict=True)], axis=0)
        log_upper = np.mean([np.log(part.upper[at]) for part, at in zip(parts, places, strict=True)], axis=0)
        return cls(knots, -np.expm1(log_not), np.exp(log_upper)).without_repetitions()

    def without_repetitions(self) -> Steps:
        """The same functions without knots at which nothing changes, but for the first."""
        changes = (np.diff(self.lower) != 0) | (np.diff(self.upper) != 0)
        if len(self.knots) == 0:
            return Steps(np.zeros(1), np.repeat(self.lower, 2), np.repeat(self.upper, 2))
        changes[0] = True
        first_of_run = np.append(True, changes)
        return Steps(self.knots[changes], self.lower[first_of_run], self.upper[first_of_run])

    def function(self) -> Piecewise:
        """The probability p1 / (1 - p0 + p1)."""
        p = self.upper / (1 - self.lower + self.upper)
        return Piecewise(self.knots, p[1:], np.zeros(len(self.knots)), float(p[0]))


def _all_steps(columns: Columns) -> Iterator[Steps]:
    """The steps of each problem; entries of as many problems as memory allows are gathered at a time."""
    at_a_time = max(1, SORTED_ENTRIES * columns.n_problems // max(columns.source.n_entries, 1))
    for first in range(0, columns.n_problems, at_a_time):
        for scores, positive, weight in columns.gathered(slice(first, first + at_a_time)):
            own = np.ones(len(scores)) if weight is None else weight
            inside = np.clip(np.abs(scores), 0, 1).astype(np.float64)
            if columns.computed:
                group, starts, ends = tied_groups(inside)
            else:
                starts, group = np.unique(inside, return_inverse=True)
                ends = np.nextafter(starts, 2.0)
            sums = [weighted_count(group, part, len(starts)) for part in (own, own * positive)]
            yield Steps.of(starts, ends, *sums)


def _with_a_negative(weight: Vector, positive: Vector) -> tuple[NDArray[np.intp], Vector]:
    """Where a group that begins with a positive starts, and the isotonic value there after one more negative joins it.

    The isotonic regression is the slope of the lower convex hull of the cumulative sums (weight, weight of positives).
    A negative that joins group k moves all points from the k-th on to the right by 1. The sweep goes from the last
    group to the first, so each step moves one point, and keeps the hull left of the edge that crosses the group.
    """
    starts = np.flatnonzero(positive > 0)
    if not len(starts):
        return starts, np.zeros(0)
    x = [0.0, *np.cumsum(np.add.reduceat(weight, starts)).tolist()]
    y = [0.0, *np.cumsum(np.add.reduceat(positive, starts)).tolist()]
    last = len(starts)
    x[last] += 1.0
    hull: list[int] = []
    for k in range(last + 1):
        _push(hull, k, x, y)
    values = np.empty(last)
    values[last - 1] = (y[last] - y[hull[-2]]) / (x[last] - x[hull[-2]])
    for k in range(last - 1, 0, -1):
        a, b = hull[-2], hull[-1]
        x[k] += 1.0
        if a == k:
            del hull[-2:]
            _push(hull, k, x, y)
        elif (y[k] - y[a]) * (x[b] - x[a]) < (y[b] - y[a]) * (x[k] - x[a]):
            del hull[-1]
            _push(hull, k, x, y)
        a, b = hull[-2], hull[-1]
        values[k - 1] = (y[b] - y[a]) / (x[b] - x[a])
    return starts, values


def _push(hull: list[int], k: int, x: list[float], y: list[float]) -> None:
    """Append a point to a lower convex hull, without the points that are then above it."""
    while len(hull) > 1:
        a, b = hull[-2], hull[-1]
        if (y[b] - y[a]) * (x[k] - x[b]) < (y[k] - y[b]) * (x[b] - x[a]):
            break
        del hull[-1]
    hull.append(k)

"""Normalisation-aware isotonic regression: IRM's function, refitted with the normalisation inside the loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.kernels.lookup import Piecewise
from mixnmatch._engine.passes import add
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import is_number
from mixnmatch._engine.shared import single_threaded_blas
from mixnmatch.maps._isotonic_fit import made_strict
from mixnmatch.maps._solve import Point, Solution, certify, newton
from mixnmatch.maps.columns import Columns, weighted_count
from mixnmatch.maps.combine import Pooled
from mixnmatch.maps.isotonic import Isotonic

Array = NDArray[np.float64]
Statistic = tuple[float, Array, Array]

# Weight of half the squared distance between the logarithms of the levels and those of IRM.
RIDGE = 1.0
# Levels that move by themselves; if IRM has more, neighbours move together.
MOST_GROUPS = 128
# Rows that the statistic works on at a time: its tables of rows x groups stay in the cache.
CHUNK = 512


class NormalisedIsotonic(Pooled):
    r"""Multi-class isotonic regression with the normalisation inside the loss.

    .. math:: T(z) = (g(z_1), \ldots, g(z_L)) / \sum_l g(z_l)

    IRM learns g on all entries as if each were a binary problem, and normalises afterwards. Here g has the
    constant pieces that IRM finds, but their levels :math:`e^{\theta_b}` minimise the log loss of the normalised
    probabilities:

    .. math::
        \min_{\theta_1 \leq \ldots \leq \theta_B} \; -\sum_i \log T(z^{(i)})_{y_i}
        + \frac{\mathrm{ridge}}{2} \sum_b (\theta_b - \theta_b^{\mathrm{IRM}})^2

    Parameters
    ----------
    ridge : float
        Strength of the shrinkage of the levels towards those of IRM; its effect fades as samples are added.
    smoothing : float
        As for :class:`Pooled`.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Attributes
    ----------
    map_ : Isotonic
        The function g, strict.
    loss_ : float
        Mean log loss on the calibration set, before smoothing and without the ridge.

    Notes
    -----
    The values g(z) of IRM sum to 1 on average, but not for every sample. The further they are from 1, the more the
    normalisation changes the fit, and the more this map gains. After temperature scaling the sums are nearer to 1, and
    the map gains less; with two classes they are 1 already, and the map is IRM. The ridge was chosen on held-out
    outputs of 24 published classifiers, with 500 and with 5000 samples; 1 to 3 are about as good.

    The problem is convex, and is solved by Newton steps on sums of a statistic over samples, each a small non-negative
    least squares problem in the increments of :math:`\theta`. The start is IRM and no step may raise the objective,
    so it is never above that of IRM. Entries below the lowest score of a true class have level 0, as in IRM. If there
    are more than 128 pieces, neighbouring ones are moved together. As in IRM, :math:`\epsilon a` is added to g(a), so
    that the map is ``accuracy_preserving`` and ``injective``.

    References
    ----------
    Arad, Rosset (2025). Improving multi-class calibration through normalization-aware isotonic techniques. ICML.

    Examples
    --------
    >>> scores = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
    >>> map = NormalisedIsotonic().fit(scores, [0, 1, 1, 1])
    >>> map.predict(scores).tolist()
    [0, 0, 1, 1]
    """

    accuracy_preserving = True
    injective = True
    _fitted_by_blas = True
    _fitted: ClassVar[tuple[str, ...]] = ("map_", "mixing_", "loss_")

    loss_: float

    def __init__(
        self,
        *,
        ridge: float = RIDGE,
        smoothing: float = 1.0,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.ridge = ridge
        self.smoothing = smoothing
        self.logits = logits
        self.classes = classes
        self.weights = weights

    def _check_params(self) -> None:
        super()._check_params()
        if not is_number(self.ridge) or not 1e-9 <= self.ridge <= 1e9:
            msg = f"ridge must be a positive number from 1e-9 to 1e9, got {self.ridge!r}"
            raise ValueError(msg)

    def _check_fitted(self) -> None:
        super()._check_fitted()
        g = self.map_
        if not isinstance(g, Isotonic) or len(g.left_) != 1 or (np.diff(g.values_) < 0).any() or g.slopes_.min() <= 0:
            msg = "a shared function that does not increase"
            raise ValueError(msg)

    def _fit(self, source: Rows) -> dict[str, Any]:
        (irm,) = Isotonic()._functions(Columns(source, "pooled"))
        levels = Levels.of(irm)

        def statistic(shift: Array) -> Statistic:
            return source.total(nll_statistic, levels, shift)

        n, ridge = source.total_weight(), float(self.ridge)
        with single_threaded_blas():
            solution = _fit_shifts(statistic, levels, ridge, n)
        certify(type(self).__name__, solution.residual)
        shift = solution.point.theta
        loss = solution.point.value - 0.5 * ridge * float(levels.sizes @ shift**2)
        values = np.exp(levels.moved(shift))
        values /= max(1.0, float(values[-1]))  # the scale is free: it cancels in the normalisation
        function = made_strict(Piecewise(irm.knots, values, irm.slopes, irm.left))
        learned = {
            "knots_": function.knots,
            "values_": function.values,
            "slopes_": function.slopes,
            "left_": np.array([function.left]),
            "offsets_": np.array([0, len(function.knots)]),
            "scale_": "probability",
        }
        return {
            "map_": Isotonic(strict=True)._as_part(learned, source),
            "mixing_": min(1.0, self.smoothing / (source.total_weight() + 1)),
            "loss_": loss / n,
        }


@dataclass(frozen=True)
class Levels:
    """The pieces of IRM's step function: where they are, log-levels, and the groups in which they move."""

    index: Piecewise  # number of the piece that a score is in, from 1; 0 is left of all positives
    theta: Array
    group: NDArray[np.intp]

    @classmethod
    def of(cls, irm: Piecewise) -> Levels:
        """Pieces of a step function with positive values."""
        count = len(irm.knots)
        groups = min(count, MOST_GROUPS)
        number = np.arange(1, count + 1)
        index = Piecewise(irm.knots, number.astype(np.float64), np.zeros(count), 0.0)
        return cls(index, np.log(irm.values), (number - 1) * groups // count)

    @property
    def sizes(self) -> Array:
        """Number of pieces in each group."""
        return np.bincount(self.group).astype(np.float64)

    @property
    def steps(self) -> Array:
        """How far each group's first piece is above the last one of the group before it, in IRM."""
        first = np.flatnonzero(np.diff(self.group)) + 1
        return np.asarray(self.theta[first] - self.theta[first - 1])

    def moved(self, shift: Array) -> Array:
        """Log-levels after a shift of each group."""
        # The order of levels is kept by the solution but for rounding; it is needed to the last bit.
        return np.asarray(np.maximum.accumulate(self.theta + shift[self.group]))


def nll_statistic(block: Block, levels: Levels, shift: Array) -> Statistic:
    """Log loss, its gradient and its Hessian in the shifts of the groups."""
    groups = len(shift)
    scores = np.minimum(np.abs(block.probabilities()), 1)
    theta = levels.theta + shift[levels.group]
    theta -= theta.max()
    # Piece 0 has level 0; its entries are counted in a column that is dropped.
    level, column = np.append(0.0, np.exp(theta)), np.append(0, levels.group + 1)
    result: Statistic = 0.0, np.zeros(groups), np.zeros((groups, groups))
    for start in range(0, len(scores), CHUNK):
        x, y = scores[start : start + CHUNK], block.y[start : start + CHUNK]
        w = np.ones(len(y)) if block.weight is None else block.weight[start : start + CHUNK]
        rows, number = np.arange(len(y)), np.empty(x.shape)
        block.kernels.interpolate_into(np.ascontiguousarray(x), levels.index, number)
        piece = number.astype(np.intp)
        cell = column[piece] + (rows * (groups + 1))[:, None]
        mass = weighted_count(cell.ravel(), level[piece].ravel(), len(y) * (groups + 1))
        mass = mass.reshape(len(y), groups + 1)[:, 1:]
        total = mass.sum(axis=1, keepdims=True)
        # Piece 0 is left of all labels, but maps before this one may round differently in blocks of another size.
        label = np.maximum(piece[rows, y] - 1, 0)
        mass /= total
        weighted = w[:, None] * mass
        sums = weighted.sum(axis=0)
        loss = float(w @ (np.log(total[:, 0]) - theta[label]))
        gradient = sums - weighted_count(levels.group[label], w, groups)
        result = add(result, (loss, gradient, np.diag(sums) - mass.T @ weighted))
    return result


def _fit_shifts(statistic: Callable[[Array], Statistic], levels: Levels, ridge: float, weight: float) -> Solution:
    """Shifts of the groups with the least penalised loss, by Newton steps that never raise it."""
    penalty, steps = ridge * levels.sizes, levels.steps

    def at(shift: Array) -> Point:
        loss, gradient, hessian = statistic(shift)
        value = loss + 0.5 * float(penalty @ shift**2)
        return Point(shift, value, gradient + penalty * shift, hessian + np.diag(penalty))

    def step(point: Point) -> Array:
        linear = point.gradient - point.curvature @ point.theta
        return _monotone_minimum(point.curvature, linear, steps) - point.theta

    return newton(at, at(np.zeros(len(penalty))), step, weight=weight)


def _monotone_minimum(matrix: Array, linear: Array, steps: Array) -> Array:
    """Minimise x' matrix x / 2 + linear' x over x with x[k + 1] - x[k] >= -steps[k], exactly."""
    from scipy.linalg import cholesky, solve_triangular
    from scipy.optimize import nnls

    root = cholesky(matrix)  # upper: root' root = matrix
    target = solve_triangular(root, -linear, trans="T")  # root times the minimum without constraints
    # x = base + first + cumulative sum of increments from 0 on; `first` is free, and its best value for given
    # increments is a projection.
    base, design = np.append(0.0, -np.cumsum(steps)), np.tril(np.ones(matrix.shape))[:, 1:]
    across = matrix.sum(axis=0) / matrix.sum()
    base -= across @ base + linear.sum() / matrix.sum()
    design -= across @ design
    increments = nnls(root @ design, target - root @ base, maxiter=100 * len(base))[0] if len(steps) else np.zeros(0)
    return np.asarray(base + design @ increments)

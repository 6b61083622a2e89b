"""The paper's ensemble: a weighted sum of accuracy-preserving maps of one family, weights and parameters together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import kernels
from mixnmatch._engine.along_rows import log_softmax
from mixnmatch._engine.block import Block
from mixnmatch._engine.prepared import FIXED_BYTES, Prepared
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import SMALLEST_PROBABILITY
from mixnmatch._engine.shared import Shared
from mixnmatch.maps._distinct_rows import distinct_rows
from mixnmatch.maps._solve import LEAST_MEAN, certify
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.columns import log_odds_parts
from mixnmatch.maps.families import FAMILIES, Family, LogisticFamily
from mixnmatch.maps.fitted import check_range, check_shape, check_simplex, require
from mixnmatch.maps.temperature import check_loss, keep_informative

Array = NDArray[np.float64]
# Distinct rows on which starts are compared.
SAMPLE_ROWS = 2048
# Starts beside the best single member: factors of its slopes, quantiles of the log-odds at which a member is 1/2, and
# its weights. So many of the best places of each factor are followed.
STEEPER, SHARES, FOLLOWED = (0.5, 2.0, 8.0, 64.0), (0.05, 0.4, 0.85), 2
QUANTILES = np.concatenate([[0.003, 0.01], np.linspace(0.02, 0.98, 25), [0.99, 0.997]])
# On a sample of the rows, starts are only followed until it is clear which of them is best.
LOOSE = 1e-8
# A fit is at a stationary point when no parameter changes the loss faster than this part of it. The loss is smooth:
# what could still be gained is about the square.
STATIONARY = 1e-4
RESTARTS = 5
# Mean loss and its gradient at packed parameters.
Mean = Callable[[Array], tuple[float, Array]]


# Members beyond this are no ensemble that data could tell apart.
MOST_FREE = 64


class Ensemble(CalibrationMap):
    r"""Model ensemble of one accuracy-preserving family: :math:`T(z) = \sum_j w_j T(z; \theta_j)`, w on the simplex.

    Each member has the paper's accuracy-preserving form (Def. 3.1),
    :math:`T(z; \theta)_l = g_\theta(z_l) / \sum_k g_\theta(z_k)`. As in ensemble temperature scaling, the identity and
    the uniform prediction are members beside the free ones; all weights and parameters are fitted together.
    ``Ensemble("beta")`` is ensemble beta scaling, ``Ensemble("platt")`` ensemble Platt scaling;
    ``Ensemble("temperature")`` is ETS (:class:`EnsembleTemperatureScaling` finds the same, faster).

    Parameters
    ----------
    family : {"temperature", "platt", "beta"} or Family
        Family of the members.
    free : int
        Number of members with free parameters.
    fixed : bool
        Whether the identity and the uniform prediction are members.
    loss : {"nll", "brier"}
        What is minimised on the calibration set.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Attributes
    ----------
    theta_ : array of shape (free, P)
        Parameters of the free members.
    member_weights_ : array
        Weights of the free members, then of the identity and the uniform prediction.
    loss_ : float
        Mean loss on the calibration set.

    Notes
    -----
    The problem is not convex: sequential quadratic programming runs from several starts on 2048 distinct samples,
    chosen by a hash of their scores, and from the best of them on all samples. If no ensemble is better, the best
    single member is used, so the loss on the calibration set is never above that of the single map.

    Examples
    --------
    >>> Ensemble("beta", loss="brier")
    Ensemble(family='beta', loss='brier')
    """

    accuracy_preserving = True
    injective = True
    _fitted: ClassVar[tuple[str, ...]] = ("theta_", "member_weights_", "probability_floor_", "loss_")

    theta_: Array
    member_weights_: Array
    probability_floor_: float
    loss_: float

    def __init__(
        self,
        family: Any = "temperature",
        *,
        free: int = 1,
        fixed: bool = True,
        loss: str = "nll",
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.family = family
        self.free = free
        self.fixed = fixed
        self.loss = loss
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _check_params(self) -> None:
        check_loss(self.loss)
        known = self.family in FAMILIES if isinstance(self.family, str) else hasattr(self.family, "single")
        if not known:
            msg = f"family must be one of {sorted(FAMILIES)} or a Family, got {self.family!r}"
            raise ValueError(msg)
        if not isinstance(self.free, int) or isinstance(self.free, bool) or not 1 <= self.free <= MOST_FREE:
            msg = f"free must be a whole number from 1 to {MOST_FREE}, got {self.free!r}"
            raise ValueError(msg)

    def _family(self) -> Family:
        return FAMILIES[self.family] if isinstance(self.family, str) else self.family

    def _members_of(self, block: Block) -> list[tuple[str, Array, float]]:
        """Name, probabilities and weight of each member."""
        alone = self.free == 1 and isinstance(self.family, str)
        free = [f"{self.family} scaling"] if alone else [f"member {j + 1}" for j in range(self.free)]
        names = free + (["identity", "uniform"] if self.fixed else [])
        parts = np.exp(self._member_log_proba(block))
        return list(zip(names, parts, self.member_weights_.tolist(), strict=True))

    def _check_fitted(self) -> None:
        lower = np.array(self._family().lower)
        check_shape(self, "theta_", self.free, len(lower))
        check_range(self, "theta_")
        require((self.theta_ >= lower).all(), self, "theta_", "is below what its family allows")
        check_simplex(self, "member_weights_", self.free + (2 if self.fixed else 0))
        check_range(self, "probability_floor_", 0.0, 1.0)

    def _fit(self, source: Rows) -> dict[str, Any]:
        family, floor = self._family(), max(source.probability_floor(), SMALLEST_PROBABILITY)
        members = _Members(family, self.free, bool(self.fixed), self.loss, floor)

        sample, complete = distinct_rows(source, SAMPLE_ROWS, floor)
        statistic = _statistic(source, family)
        on_sample = _mean_on(sample, members, statistic)
        mean = on_sample if complete else _mean_on(source, members, statistic)
        # Rounding must not decide which valley a start leads to: a few digits are enough.
        theta = np.array([float(f"{value:.3g}") for value in family.single(sample, floor, self.loss)])
        first = members.pack(np.tile(theta, (self.free, 1)), members.first_only())
        on_sample_alone = _polish(on_sample, members, first)
        alone = _polish(mean, members, on_sample_alone)
        if members.size == 1:
            best = alone
        else:
            grid = members.grid(on_sample_alone, _middles(sample, floor))
            best = _mix(mean, on_sample, members, alone, on_sample_alone, grid)
        for _ in range(RESTARTS):  # sequential quadratic programming may end early where the curvature has misled it
            if members.slope(best, *mean(best)) <= STATIONARY:
                break
            best = min([best, _polish_all(mean, members, best, 1e-15)], key=lambda packed: mean(packed)[0])
        value, gradient = mean(best)
        certify(type(self).__name__, members.slope(best, value, gradient), allowed=STATIONARY)
        theta, w = members.unpack(best)
        return {
            "theta_": theta,
            "member_weights_": keep_informative(w) if self.fixed else w,
            "probability_floor_": floor,
            "loss_": value,
        }

    def _member_log_proba(self, block: Block) -> Array:
        """Logarithms of the output of each member, in the order of the weights."""
        log_p, log_not = log_odds_parts(block, "each", self.probability_floor_)
        family = self._family()
        logs = [log_softmax(family.log_g(log_p, log_not, theta)) for theta in self.theta_]
        if self.fixed:
            logs += [log_softmax(log_p.copy()), np.full(log_p.shape, -np.log(log_p.shape[1]))]
        return np.stack(logs)

    def _log_proba(self, block: Block) -> Array:
        with np.errstate(divide="ignore"):
            weighted = self._member_log_proba(block) + np.log(self.member_weights_)[:, None, None]
        top = weighted.max(axis=0)
        return np.asarray(top + np.log(np.exp(weighted - top).sum(axis=0)))


@dataclass(frozen=True)
class _Members:
    """How parameters and weights are laid out in one vector: all theta, then all weights."""

    family: Family
    free: int
    fixed: bool
    loss: str
    floor: float

    @property
    def size(self) -> int:
        return self.free + (2 if self.fixed else 0)

    @property
    def n_theta(self) -> int:
        return self.free * len(self.family.lower)

    def pack(self, theta: Array, w: Array) -> Array:
        return np.concatenate([theta.ravel(), w])

    def unpack(self, packed: Array) -> tuple[Array, Array]:
        return packed[: self.n_theta].reshape(self.free, -1), packed[self.n_theta :]

    def first_only(self) -> Array:
        return np.asarray(np.eye(self.size)[0])

    def slope(self, packed: Array, value: float, gradient: Array) -> float:
        """How steep the loss still is, as a part of it: by moving weights, doubling slopes, adding 1 to intercepts."""
        theta, w = self.unpack(packed)
        in_theta, in_w = self.unpack(gradient)
        lower = np.array(self.family.lower)
        free = (theta > lower) | (in_theta < 0)
        change = np.where(np.isfinite(lower), np.abs(theta), 1.0) * np.abs(in_theta) * free
        gap = float(in_w @ w - in_w.min()) if len(w) > 1 else 0.0
        return max(float(change.max()), gap) / max(value, LEAST_MEAN)

    def grid(self, alone: Array, middles: Array) -> Iterator[list[list[Array]]]:
        """Starts with the first member elsewhere: for each factor and each place those that differ in the weights."""
        theta, _ = self.unpack(alone)
        slopes = np.isfinite(np.array(self.family.lower))
        rest = np.ones(self.size - 1)
        if self.fixed:
            rest[-1] = 0.02  # the uniform prediction has a small part in most ensembles
        weights = [np.append(share, (1 - share) * rest / rest.sum()) for share in SHARES]
        for steeper in STEEPER:
            places = []
            for middle in middles[:1] if slopes.all() else middles:
                moved = theta.copy()
                moved[0, slopes] *= steeper
                moved[0, ~slopes] = -middle * moved[0, slopes].mean()
                places.append([self.pack(moved, w) for w in weights])
            yield places

    def spread(self, alone: Array) -> list[Array]:
        """Starts around the single member: mixed with the others, and pushed apart from each other."""
        theta, _ = self.unpack(alone)
        slopes = np.isfinite(np.array(self.family.lower))
        starts = []
        for factor in (1.0, 2.0, 0.5):
            moved = theta.copy()
            moved[:, slopes] *= factor ** (1.0 + np.arange(self.free))[:, None]
            w = np.full(self.size, 0.2 / max(1, self.size - 1))
            w[0] = 0.8
            starts.append(self.pack(moved, w / w.sum()))
        return starts


def _middles(sample: Rows, floor: float) -> Array:
    """Quantiles of the log-odds of all entries."""
    log_p, log_not = log_odds_parts(sample.block(0, sample.n_rows), "each", floor)
    return np.unique(np.quantile(log_p - log_not, QUANTILES))


def _statistic(source: Rows, family: Family) -> Callable[..., Array]:
    """How the passes of one fit are made."""
    fused = isinstance(family, LogisticFamily) and source.backend == "compiled"
    return sigmoid_statistic if fused else ensemble_statistic


def _mean_on(source: Rows, members: _Members, statistic: Callable[..., Array]) -> Mean:
    """Mean loss over a source as a function of the packed parameters."""
    weight = source.total_weight()
    rows = Prepared.of(source, shared_parts, members.floor, block_bytes=FIXED_BYTES)

    def mean(packed: Array) -> tuple[float, Array]:
        sums = rows.total(statistic, members, packed)
        return float(sums[0] / weight), sums[1:] / weight

    return mean


@dataclass(frozen=True)
class SharedParts:
    """What all evaluations of the loss of a block share."""

    log_p: Array
    log_not: Array
    p: Array
    y: NDArray[np.intp]
    weight: Array


def shared_parts(block: Block, floor: float) -> SharedParts:
    """The parts of the loss of a block that do not depend on the parameters."""
    log_p, log_not = log_odds_parts(block, "each", floor)
    weight = np.ones(len(block.y)) if block.weight is None else block.weight
    return SharedParts(log_p, log_not, np.exp(log_softmax(log_p.copy())), block.y, weight)


def ensemble_statistic(block: SharedParts, members: _Members, packed: Array) -> Array:
    """Loss of a block and its gradient in all parameters and weights, in one vector."""
    theta, w = members.unpack(packed)
    rows, y, weight = np.arange(len(block.y)), block.y, block.weight
    members_of_block = [members.family.shares(block.log_p, block.log_not, t) for t in theta]
    parts = [shares for shares, _ in members_of_block]
    uniform = 1 / block.p.shape[1]
    mixed = w[0] * parts[0]
    for own, part in zip(w[1:], parts[1:], strict=False):
        mixed += own * part
    if members.fixed:
        mixed += w[-2] * block.p
        mixed += w[-1] * uniform
    if members.loss == "nll":
        at = np.maximum(mixed[rows, y], 1e-300)
        value = -(weight @ np.log(at))
        slope = np.zeros_like(mixed)  # of the loss in the mixed probabilities
        slope[rows, y] = -weight / at
    else:
        mixed[rows, y] -= 1
        value = weight @ np.einsum("ij,ij->i", mixed, mixed)
        slope = np.multiply(mixed, 2 * weight[:, None], out=mixed)
    in_w = [np.vdot(slope, part) for part in parts]
    if members.fixed:
        in_w += [np.vdot(slope, block.p), uniform * slope.sum()]
    in_theta = []
    for own, (part, derivative) in zip(w, members_of_block, strict=False):
        inner = slope - np.einsum("ij,ij->i", slope, part)[:, None]
        inner *= part
        inner *= derivative
        in_theta.append(own * members.family.pull_back(block.log_p, block.log_not, inner))
    return np.concatenate([[value], *in_theta, in_w])


def sigmoid_statistic(block: SharedParts, members: _Members, packed: Array) -> Array:
    """As :func:`ensemble_statistic`, for logistic families, in one compiled pass."""
    theta, w = members.unpack(packed)
    beta = theta.shape[1] == 3
    full = theta if beta else theta[:, [0, 0, 1]]
    compiled = kernels.load("compiled")
    rows = compiled.sigmoid_mixture_rows(block.log_p, block.log_not, block.p, block.y, full, w, members.loss)
    sums = rows @ block.weight
    in_theta = sums[1 : 1 + full.size].reshape(full.shape)
    if not beta:  # one slope for both logarithms
        in_theta = np.stack([in_theta[:, 0] + in_theta[:, 1], in_theta[:, 2]], axis=1)
    return np.concatenate([sums[:1], in_theta.ravel(), sums[1 + full.size :]])


def _polish(mean: Mean, members: _Members, packed: Array) -> Array:
    """Best parameters of the first member alone."""
    from scipy.optimize import minimize

    width = len(members.family.lower)
    w = members.first_only()

    def evaluate(theta: Array) -> tuple[float, Array]:
        value, gradient = mean(members.pack(np.tile(theta, (members.free, 1)), w))
        return value, gradient[:width]

    bounds = [(low, np.inf) for low in members.family.lower]
    options = {"ftol": 1e-13, "gtol": 1e-9}
    optimum = minimize(evaluate, packed[:width], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return members.pack(np.tile(optimum.x, (members.free, 1)), w)


def _mix(
    mean: Mean, on_sample: Mean, members: _Members, alone: Array, centre: Array, grid: Iterable[list[list[Array]]]
) -> Array:
    """The best of several starts on a sample, polished on all rows; or that start, or ``alone``, if it is better.

    The loss has many valleys, so starts are taken around the best single member on the sample, ``centre``, and where
    the loss is least on a grid. They depend on the sample alone, whose rows have a fixed order: starts that differ by
    rounding may end in different valleys.
    """

    def loss(packed: Array) -> float:
        return on_sample(packed)[0]

    starts = [centre, *members.spread(centre)]
    for places in grid:
        best = [min(((loss(start), start) for start in place), key=itemgetter(0)) for place in places]
        starts += [start for _, start in sorted(best, key=itemgetter(0))[:FOLLOWED]]
    start = min((_polish_all(on_sample, members, start, LOOSE) for start in starts), key=loss)
    return min([alone, start, _polish_all(mean, members, start)], key=lambda packed: mean(packed)[0])


@contextmanager
def _clip_warnings_ignored() -> Iterator[None]:
    with warnings.catch_warnings():
        # A step may end a rounding outside of its bounds; SciPy clips it and says so.
        warnings.filterwarnings("ignore", "Values in x were outside bounds", RuntimeWarning)
        yield


_without_clip_warnings = Shared(_clip_warnings_ignored)


def _polish_all(mean: Mean, members: _Members, start: Array, tolerance: float = 1e-12) -> Array:
    """Sequential quadratic programming in all parameters, weights on the simplex."""
    from scipy.optimize import minimize

    is_weight = np.concatenate([np.zeros(members.n_theta), np.ones(members.size)])
    simplex = {"type": "eq", "fun": lambda x: is_weight @ x - 1, "jac": lambda x: is_weight}
    bounds: list[tuple[float, float]] = [(low, np.inf) for low in members.family.lower] * members.free
    bounds += [(0.0, 1.0)] * members.size
    options = {"maxiter": 200, "ftol": tolerance}
    with _without_clip_warnings():
        optimum = minimize(mean, start, jac=True, method="SLSQP", bounds=bounds, constraints=[simplex], options=options)
    theta, w = members.unpack(optimum.x)
    w = np.maximum(w, 0.0)
    return members.pack(np.maximum(theta, np.array(members.family.lower)), w / w.sum())

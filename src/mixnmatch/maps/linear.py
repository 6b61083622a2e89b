"""The softmax-linear family: vector, matrix, Dirichlet, and structured vector and matrix scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import log_softmax
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch.maps.base import ONE_KERNEL_BYTES, CalibrationMap
from mixnmatch.maps.fitted import check_range, check_shape
from mixnmatch.maps.temperature import check_loss, fit_beta

if TYPE_CHECKING:  # fits alone need it
    from mixnmatch.maps._linear_passes import Problem

Array = NDArray[np.float64]
# From so many classes on, all products run in float32 (sums over blocks are still in float64).
SINGLE_FROM = 400
# Numbers of about this size are added up in float32 with an error of a few 1e-6.
SINGLE_TO = 200.0
# Scores are brought to a common scale by temperature scaling, but by no more than this: log-probabilities of classes
# that are nearly tied are all about -log L, and what is lost to rounding in them grows with the factor.
STEEPEST_LINEAR = 1e4
# Slopes multiply the logarithm of a zero. Of scores that are probabilities no class gets less than this, so that a zero
# that the calibration set did not have costs at most 28 nats.
LEAST_PROBABILITY = 1e-12


class SoftmaxLinear(CalibrationMap):
    """softmax((I + diag(v) + M) s + b) of scaled log-probabilities s = beta log z, with ridges on v, M and b.

    Subclasses say which parts are free and how strongly they are held back. ``beta`` is that of temperature scaling,
    so that all penalties at infinity give temperature scaling.
    """

    _fitted: ClassVar[tuple[str, ...]] = ("weight_", "intercept_", "probability_floor_", "loss_")
    _full: ClassVar[bool] = False
    _shared: ClassVar[bool] = False
    _block_bytes = ONE_KERNEL_BYTES

    weight_: Array
    intercept_: Array
    probability_floor_: float
    loss_: float

    def __init__(self, *, loss: str = "nll", logits: bool = False, classes: Any = None, weights: str = "frequency"):
        self.loss = loss
        self.logits = logits
        self.classes = classes
        self.weights = weights

    @property
    def injective(self) -> bool:  # type: ignore[override]
        """Whether the fitted map is.

        Two rows x, x' of log-probabilities with the same output differ by c W^-1 1 for some c. Both being
        log-probabilities, their difference cannot have one sign in all entries: so c = 0 where W is invertible and
        W^-1 1 has one sign, as every positive diagonal has.
        """
        weight = getattr(self, "weight_", None)
        if weight is None:
            return False
        if weight.ndim == 1:
            return bool((weight > 0).all() or (weight < 0).all())
        if np.linalg.matrix_rank(weight) < len(weight):
            return False
        direction = np.linalg.solve(weight, np.ones(len(weight)))
        return bool((direction > 0).all() or (direction < 0).all())

    def _multiplications(self) -> int:
        return self.n_classes_**2 if self._full else 0

    def _check_params(self) -> None:
        check_loss(self.loss)

    def _check_fitted(self) -> None:
        classes = self.n_classes_
        check_shape(self, "weight_", *((classes, classes) if self._full else (classes,)))
        check_shape(self, "intercept_", classes)
        check_range(self, "weight_")
        check_range(self, "intercept_")
        check_range(self, "probability_floor_", 0.0, 1.0)

    def _ridges(self, source: Rows) -> tuple[float, float, float]:
        """Ridge weights on the diagonal, the off-diagonal and the intercept, for the mean loss."""
        raise NotImplementedError(type(self).__name__)

    def _problem(self, source: Rows) -> Problem:
        from mixnmatch.maps._linear_passes import Problem

        floor = source.probability_floor()
        beta = min(fit_beta(source, self.loss, floor).beta, STEEPEST_LINEAR)
        single = source.scores.dtype == np.float32
        all_single = single and source.n_classes >= SINGLE_FROM
        return Problem(beta, floor, self._full, self.loss, all_single, single, self._shared)

    def _fit(self, source: Rows) -> dict[str, Any]:
        from mixnmatch.maps._linear_passes import scaled_rows
        from mixnmatch.maps._linear_solver import Penalty, solve

        problem, penalty = self._problem(source), Penalty(*self._ridges(source))
        theta, value = solve(scaled_rows(source, problem), problem, penalty, who=type(self).__name__)
        return self._attributes(problem, theta, value, source.n_classes)

    def _attributes(self, problem: Problem, theta: Array, value: float, n_classes: int) -> dict[str, Any]:
        from mixnmatch.maps._linear_passes import unpack

        weight, intercept = unpack(theta, problem, n_classes)
        identity = np.eye(n_classes) if self._full else np.ones(n_classes)
        return {
            "weight_": problem.beta * (identity + weight),
            "intercept_": intercept,
            "probability_floor_": problem.floor,
            "loss_": value,
        }

    def _proba_into(self, block: Block, out: NDArray[Any]) -> None:
        x = block.log_scores(self.probability_floor_)
        if x.dtype == np.float32 and not self._single_is_enough(x):
            x = x.astype(np.float64)
        block.kernels.linear_softmax_into(x, self.weight_, self.intercept_, out)
        if block.form == "probabilities":
            np.maximum(out, LEAST_PROBABILITY, out=out)

    def _single_is_enough(self, x: NDArray[Any]) -> bool:
        """Whether float32 gives probabilities to 1e-5: rounding must stay small beside 1 in what the softmax takes."""
        factor, constant, any_range = self._once(self.weight_, self._steepness)
        largest = constant if any_range else factor * (float(x.max()) - float(x.min())) + constant
        return bool(largest <= SINGLE_TO)

    def _steepness(self) -> tuple[float, float, bool]:
        """How much the softmax takes at most: a factor of the range of the scores, plus a constant."""
        each, constant = np.log(len(self.intercept_)), np.abs(self.intercept_).max()
        if self.weight_.ndim == 1 and self.weight_.min() >= 0:
            # Each class separately: what is far below the largest is rounded most, and matters least.
            return 0.0, float(self.weight_.max() * each + constant), True
        row = np.sqrt(np.square(self.weight_).sum(axis=1)) if self.weight_.ndim == 2 else np.abs(self.weight_)
        return float(row.max()), float(row.max() * each + constant), False

    def _log_proba(self, block: Block) -> Array:
        x = log_softmax(block.log_scores(self.probability_floor_).astype(np.float64))
        u = x @ self.weight_.T if self._full else x * self.weight_
        u += self.intercept_
        return log_softmax(u)

"""Families of strictly increasing functions that members of an ensemble come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import log_softmax
from mixnmatch._engine.rows import Rows
from mixnmatch.maps.columns import Columns
from mixnmatch.maps.logistic import BetaScaling, LogisticMap, PlattScaling
from mixnmatch.maps.temperature import fit_beta

Array = NDArray[np.float64]
# Slopes stay above this, so that members increase strictly.
SMALLEST_SLOPE = 1e-6
# The steepest single member that an ensemble starts from.
STEEPEST_SLOPE = 1e4
# Sums of g below this are taken in logarithms.
TINY = 1e-250


class Family(Protocol):
    """A parametric family of strictly increasing functions g on [0, 1], given by log g."""

    @property
    def lower(self) -> tuple[float, ...]:
        """Lower bounds of the parameters."""

    @property
    def identity(self) -> tuple[float, ...]:
        """Parameters with g(z) = z."""

    def log_g(self, log_p: Array, log_not: Array, theta: Array) -> Array:
        """Log g at scores given as log p and log(1 - p)."""

    def shares(self, log_p: Array, log_not: Array, theta: Array) -> tuple[Array, Array]:
        """Values of g over their sum in each row, and the derivative of log g in its argument."""

    def pull_back(self, log_p: Array, log_not: Array, inner: Array) -> Array:
        """Gradient in theta of a function whose slope in the argument of g is ``inner``."""

    def single(self, source: Rows, floor: float, loss: str) -> Array:
        """Parameters of one member alone, to start from."""


@dataclass(frozen=True)
class TemperatureFamily:
    """g(z) = z^beta: temperature scaling."""

    lower: tuple[float, ...] = (SMALLEST_SLOPE,)
    identity: tuple[float, ...] = (1.0,)

    def log_g(self, log_p: Array, log_not: Array, theta: Array) -> Array:
        """Log g."""
        return np.asarray(theta[0] * log_p)

    def shares(self, log_p: Array, log_not: Array, theta: Array) -> tuple[Array, Array]:
        """Shares of the row, and the derivative of log g in its argument, the power itself."""
        return np.exp(log_softmax(self.log_g(log_p, log_not, theta))), np.ones(1)

    def pull_back(self, log_p: Array, log_not: Array, inner: Array) -> Array:
        """Gradient in theta."""
        return np.array([np.vdot(inner, log_p)])

    def single(self, source: Rows, floor: float, loss: str) -> Array:
        """Temperature scaling alone."""
        return np.array([fit_beta(source, loss, floor).beta])


@dataclass(frozen=True)
class LogisticFamily:
    """g = sigmoid(theta . features): Platt scaling (two parameters) or beta scaling (three)."""

    beta: bool

    @property
    def lower(self) -> tuple[float, ...]:
        """Slopes are positive."""
        return (SMALLEST_SLOPE, SMALLEST_SLOPE, -np.inf) if self.beta else (SMALLEST_SLOPE, -np.inf)

    @property
    def identity(self) -> tuple[float, ...]:
        """Sigmoid of the logit."""
        return (1.0, 1.0, 0.0) if self.beta else (1.0, 0.0)

    def _argument(self, log_p: Array, log_not: Array, theta: Array) -> Array:
        second = theta[1] if self.beta else theta[0]
        x: Array = theta[0] * log_p
        x -= second * log_not
        x += theta[-1]
        return x

    def log_g(self, log_p: Array, log_not: Array, theta: Array) -> Array:
        """Log g."""
        x = self._argument(log_p, log_not, theta)
        return np.asarray(np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x))))

    def shares(self, log_p: Array, log_not: Array, theta: Array) -> tuple[Array, Array]:
        """Shares of the row, and the derivative of log g in its argument: both from one exponential."""
        g = self._argument(log_p, log_not, theta)
        np.negative(g, out=g)
        with np.errstate(over="ignore"):  # where g is 0 to all digits
            np.exp(g, out=g)
        g += 1.0
        np.reciprocal(g, out=g)
        rest = 1.0 - g
        sums = g.sum(axis=1, keepdims=True)
        if sums.min() < TINY:  # a row of zeros, almost: only logarithms tell its entries apart
            return np.exp(log_softmax(self.log_g(log_p, log_not, theta))), rest
        g /= sums
        return g, rest

    def pull_back(self, log_p: Array, log_not: Array, inner: Array) -> Array:
        """Gradient in theta."""
        first, second, last = np.vdot(inner, log_p), -np.vdot(inner, log_not), inner.sum()
        return np.array([first, second, last] if self.beta else [first + second, last])

    def single(self, source: Rows, floor: float, loss: str) -> Array:
        """The pooled binary map."""
        binary: LogisticMap = BetaScaling(loss=loss) if self.beta else PlattScaling(loss=loss)
        coef: Array = binary._fit_columns(Columns(source, "pooled"))["coef_"][0]
        # Scores that are all but tied say nothing that a mixture could be built on.
        return coef if coef[:-1].max() <= STEEPEST_SLOPE else np.array(self.identity)


FAMILIES: dict[str, Family] = {
    "temperature": TemperatureFamily(),
    "platt": LogisticFamily(beta=False),
    "beta": LogisticFamily(beta=True),
}

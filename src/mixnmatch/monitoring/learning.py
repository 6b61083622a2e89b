"""What earlier steps teach about the next one: offsets and slopes, by Newton steps from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mixnmatch.monitoring.alternatives import KINDS, MEMORIES

Floats = NDArray[np.float64]

# Precision of the normal prior around "no change": a standard deviation of 0.5 for offsets and of 0.2 for slopes.
OFFSET_PRECISION, SLOPE_PRECISION = 4.0, 25.0
# Bets stay within these changes, however wild the past was.
OFFSET_LIMIT = 3.0
SLOPE_LIMITS = (-0.7, 1.5)
# Up to so many classes the curvature is a full matrix; above, it is the part within each class.
FULL_CURVATURE = 32


@dataclass(frozen=True)
class Lessons:
    r"""Normal equations of the learned alternatives: sums over samples, one for each of ``MEMORIES``.

    Notes
    -----
    The samples of a step s have gradient :math:`g_s` and curvature :math:`H_s` of the log-likelihood at the parameters
    :math:`\theta_s` that were bet on. Expanded there, all log-likelihoods together have their maximum, under a normal
    prior with precisions R, at :math:`(\sum_s H_s + R)^{-1} \sum_s (g_s + H_s \theta_s)`. Both sums are kept, older
    steps discounted.
    """

    offsets_curvature: Floats  # (memories, L, L), or (memories, 1, L) for many classes
    offsets_target: Floats  # (memories, L)
    slope_curvature: Floats  # (memories, 1)
    slope_target: Floats  # (memories, 1)
    both_curvature: Floats  # (memories, 2 L, 2 L), or (memories, 3, L) for many classes
    both_target: Floats  # (memories, 2 L)

    @classmethod
    def empty(cls, n_classes: int) -> Self:
        """Nothing learned yet."""
        return cls(**{name: np.zeros(shape) for name, shape in lesson_shapes(n_classes).items()})

    @classmethod
    def of(cls, x: Floats, y: NDArray[np.intp], learned: Floats, log_q: Sequence[Floats]) -> Self:
        """The lessons of samples.

        Parameters
        ----------
        x : array of shape (n, L)
            Log-probabilities.
        y : array of shape (n,)
            Labels.
        learned : array of shape (memories * kinds, 2, L)
            Offsets and changes of slope that were bet on.
        log_q : sequence of arrays of shape (n, L)
            The log-probabilities that these give.
        """
        made = cls.empty(x.shape[1])
        for place, ((offsets, slopes), own) in enumerate(zip(learned, log_q, strict=True)):
            memory, kind = divmod(place, len(KINDS))
            made._learn(memory, KINDS[kind], np.exp(own), x, y, offsets, slopes)
        return made

    def _learn(
        self, memory: int, kind: str, q: Floats, x: Floats, y: NDArray[np.intp], offsets: Floats, slopes: Floats
    ) -> None:
        n_classes, own = q.shape[1], x[np.arange(len(y)), y]
        if kind == "slope":
            mean = (q * x).sum(axis=1)
            curvature = np.maximum((q * x * x).sum(axis=1) - mean**2, 0.0).sum()
            self.slope_curvature[memory] = curvature
            self.slope_target[memory] = own.sum() - mean.sum() + curvature * slopes[0]
            return
        g_offsets = np.bincount(y, minlength=n_classes) - q.sum(axis=0)
        if kind == "offsets":
            found = _curvature(q, np.ones((1, n_classes)))
            self.offsets_curvature[memory] = found
            self.offsets_target[memory] = g_offsets + _times(found, offsets[None])[0]
            return
        found = _curvature(q, np.stack([np.ones_like(x), x]))
        g_slopes = np.bincount(y, own, minlength=n_classes) - (q * x).sum(axis=0)
        self.both_curvature[memory] = found
        there = _times(found, np.stack([offsets, slopes]))
        self.both_target[memory] = np.concatenate([g_offsets + there[0], g_slopes + there[1]])

    def __add__(self, other: Lessons) -> Lessons:
        """Lessons of both."""
        return Lessons(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def aged(self, steps: int = 1) -> Lessons:
        """The lessons some steps later."""
        weight = np.array([memory**steps for memory in MEMORIES])
        aged = {}
        for field in fields(self):
            value = getattr(self, field.name)
            aged[field.name] = value * weight.reshape(-1, *[1] * (value.ndim - 1))
        return Lessons(**aged)

    def alternatives(self) -> Floats:
        """Offsets and changes of slope of the learned alternatives, shape (memories * kinds, 2, L)."""
        n_classes = self.offsets_target.shape[1]
        made = np.zeros((len(MEMORIES), len(KINDS), 2, n_classes))
        for place in range(len(MEMORIES)):
            made[place, 0, 0] = _solve(self.offsets_curvature[place], self.offsets_target[place], n_classes)[0]
            made[place, 1, 1] = self.slope_target[place] / (self.slope_curvature[place] + SLOPE_PRECISION)
            made[place, 2] = _solve(self.both_curvature[place], self.both_target[place], n_classes)
        np.clip(made[:, :, 0], -OFFSET_LIMIT, OFFSET_LIMIT, out=made[:, :, 0])
        np.clip(made[:, :, 1], *SLOPE_LIMITS, out=made[:, :, 1])
        return made.reshape(-1, 2, n_classes)


def lesson_shapes(n_classes: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of :class:`Lessons`."""
    memories, size = len(MEMORIES), n_classes
    full = size <= FULL_CURVATURE
    return {
        "offsets_curvature": (memories, size, size) if full else (memories, 1, size),
        "offsets_target": (memories, size),
        "slope_curvature": (memories, 1),
        "slope_target": (memories, 1),
        "both_curvature": (memories, 2 * size, 2 * size) if full else (memories, 3, size),
        "both_target": (memories, 2 * size),
    }


def _curvature(q: Floats, inputs: Floats) -> Floats:
    """Curvature of the log-likelihood in the coefficients of k inputs, ``inputs`` of shape (k, n, L) or (k, L)."""
    k, n_classes = len(inputs), q.shape[1]
    if n_classes > FULL_CURVATURE:
        spread = q * (1 - q) * n_classes / (n_classes - 1)  # makes up for covariances, where classes are alike
        return np.stack([(spread * inputs[i] * inputs[j]).sum(axis=0) for i in range(k) for j in range(i, k)])
    scaled = np.concatenate([q * each for each in inputs], axis=1)
    found = -(scaled.T @ scaled)
    place = np.arange(n_classes)
    for i in range(k):
        for j in range(k):
            found[place + i * n_classes, place + j * n_classes] += (q * inputs[i] * inputs[j]).sum(axis=0)
    return np.asarray(found)


def _times(curvature: Floats, parameters: Floats) -> Floats:
    """Curvature times parameters of shape (k, L)."""
    k, n_classes = parameters.shape
    if n_classes > FULL_CURVATURE:
        if k == 1:
            return np.asarray(curvature * parameters)
        a, b, c = curvature
        return np.stack([a * parameters[0] + b * parameters[1], b * parameters[0] + c * parameters[1]])
    return np.asarray((curvature @ parameters.ravel()).reshape(k, n_classes))


def _solve(curvature: Floats, target: Floats, n_classes: int) -> Floats:
    """Parameters of shape (k, L)."""
    k = len(target) // n_classes
    if n_classes <= FULL_CURVATURE:
        precision = np.repeat([OFFSET_PRECISION, SLOPE_PRECISION][:k], n_classes)
        found = np.linalg.solve(curvature + np.diag(precision), target)
        return np.asarray(found.reshape(k, n_classes))
    if k == 1:
        return np.asarray(target[None] / (curvature + OFFSET_PRECISION))
    a, b, c = curvature[0] + OFFSET_PRECISION, curvature[1], curvature[2] + SLOPE_PRECISION
    left, right = target[:n_classes], target[n_classes:]
    return np.asarray(np.stack([c * left - b * right, a * right - b * left]) / (a * c - b * b))

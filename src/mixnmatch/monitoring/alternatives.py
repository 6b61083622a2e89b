"""The bets of a monitor: alternatives to "the probabilities are calibrated", and what samples say for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.cached_property import cached_property

Floats = NDArray[np.float64]

# Offsets of one class on the log-odds, and slopes of all log-probabilities, that are tried from the first sample on.
OFFSETS = (-1.0, -0.4, -0.15, 0.15, 0.4, 1.0)
SLOPES = (0.7, 1.4)
# Offsets after which probabilities are summed up, to find the offset that fits.
SHIFTS = (-3.0, *OFFSETS, 3.0)
# Learned alternatives weigh a step that is k steps old by memory ** k: one remembers all, one the last few.
MEMORIES = (1.0, 0.7)
KINDS = ("offsets", "slope", "both")
# Prior shares of the three groups of alternatives.
SHARES = {"offsets": 0.3, "slopes": 0.2, "learned": 0.5}


@dataclass(frozen=True)
class Alternatives:
    """All alternatives for a number of classes: which kind each is, and its prior weight.

    They are, in this order: every value of ``OFFSETS`` for every class (for two classes, of the positive one), every
    value of ``SLOPES``, and for every memory the three learned ones of ``KINDS``.
    """

    n_classes: int

    @property
    def first_class(self) -> int:
        """First class with fixed offsets: with two classes, only the positive one has them."""
        return 1 if self.n_classes == 2 else 0

    @property
    def n_offsets(self) -> int:
        """Number of fixed offsets."""
        return len(OFFSETS) * (self.n_classes - self.first_class)

    @property
    def n_learned(self) -> int:
        """Number of learned alternatives."""
        return len(MEMORIES) * len(KINDS)

    @property
    def size(self) -> int:
        """Number of alternatives."""
        return self.n_offsets + len(SLOPES) + self.n_learned

    @cached_property
    def kinds(self) -> NDArray[np.intp]:
        """Place in ``KINDS`` of each alternative."""
        fixed = [0] * self.n_offsets + [1] * len(SLOPES)
        return np.array(fixed + list(range(len(KINDS))) * len(MEMORIES), dtype=np.intp)

    @cached_property
    def log_weights(self) -> Floats:
        """Logarithm of the prior weight of each alternative; the weights sum to 1."""
        parts = [
            np.full(self.n_offsets, SHARES["offsets"] / self.n_offsets),
            np.full(len(SLOPES), SHARES["slopes"] / len(SLOPES)),
            np.full(self.n_learned, SHARES["learned"] / self.n_learned),
        ]
        return np.asarray(np.log(np.concatenate(parts)))


@dataclass(frozen=True)
class StepSums:
    """Sums over the samples of a step; batches can be added in any order.

    Attributes
    ----------
    count : array of shape (1,)
        Number of samples.
    log_ratios : array of shape (A,)
        Sum of log q(y) - log p(y) for each alternative q.
    observed, expected, squares : arrays of shape (L,)
        How often each class was the label, the sum of its probabilities, and of the squared differences of the two.
    shifted : array of shape (len(SHIFTS), L)
        Sum of the probabilities after each shift of their log-odds.
    losses : array of shape (3,)
        Sums of the log loss, of its expectation (the entropy) and of its variance if probabilities are calibrated.
    """

    count: Floats
    log_ratios: Floats
    observed: Floats
    expected: Floats
    squares: Floats
    shifted: Floats
    losses: Floats

    @classmethod
    def empty(cls, n_classes: int) -> Self:
        """No samples yet."""
        return cls(**{name: np.zeros(shape) for name, shape in shapes(n_classes).items()})

    def __add__(self, other: StepSums) -> StepSums:
        """Sums over the samples of both."""
        return StepSums(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @property
    def n(self) -> int:
        """Number of samples."""
        return int(self.count[0])


def shapes(n_classes: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of :class:`StepSums`."""
    size = n_classes
    return {
        "count": (1,),
        "log_ratios": (Alternatives(size).size,),
        "observed": (size,),
        "expected": (size,),
        "squares": (size,),
        "shifted": (len(SHIFTS), size),
        "losses": (3,),
    }


def step_sums(p: Floats, x: Floats, y: NDArray[np.intp], learned: Sequence[Floats]) -> StepSums:
    """Sums over samples whose labels have positive probability.

    Parameters
    ----------
    p, x : arrays of shape (n, L)
        Probabilities, and what :func:`log_probabilities` makes of them.
    y : array of shape (n,)
        Labels.
    learned : sequence of arrays of shape (n, L)
        Log-probabilities of the learned alternatives. What they were learned from must not hold these samples.
    """
    rows, n_classes = np.arange(len(p)), p.shape[1]
    own = x[rows, y]
    first = Alternatives(n_classes).first_class
    observed = np.bincount(y, minlength=n_classes).astype(np.float64)
    ratios, shifted = [], np.empty((len(SHIFTS), n_classes))
    for place, offset in enumerate(SHIFTS):
        # Normaliser of p with exp(offset) times the odds of one class: 1 + p (exp(offset) - 1).
        normaliser = 1 + p * np.expm1(offset)
        shifted[place] = np.exp(offset) * (p / normaliser).sum(axis=0)
        if offset in OFFSETS:
            ratios.append((offset * observed - np.log(normaliser).sum(axis=0))[first:])
    parts = [np.stack(ratios, axis=1).ravel()]  # class by class, the offsets of a class side by side
    none = np.zeros(n_classes)
    steep = [log_alternative(p, x, none, none + slope - 1) for slope in SLOPES]
    parts += [np.array([(log_q[rows, y] - own).sum()]) for log_q in (*steep, *learned)]
    mean, square = (p * x).sum(axis=1), (p * x * x).sum(axis=1)
    squares = np.square(p).sum(axis=0) + observed - 2 * np.bincount(y, p[rows, y], minlength=n_classes)
    return StepSums(
        count=np.array([float(len(p))]),
        log_ratios=np.concatenate(parts),
        observed=observed,
        expected=p.sum(axis=0),
        squares=np.maximum(squares, 0.0),
        shifted=shifted,
        losses=np.array([-own.sum(), -mean.sum(), np.maximum(square - mean**2, 0.0).sum()]),
    )


def log_probabilities(p: Floats) -> Floats:
    """Logarithms of probabilities, and 0 for those that are 0: these stay 0 in every alternative."""
    return np.log(np.where(p > 0, p, 1.0))


def log_alternative(p: Floats, x: Floats, offsets: Floats, slopes: Floats) -> Floats:
    """Log-probabilities of an alternative, q_k proportional to p_k^(1 + slope_k) exp(offset_k), -inf where p is 0."""
    u = np.where(p > 0, (1 + slopes) * x + offsets, -np.inf)
    u -= u.max(axis=1, keepdims=True)
    u -= np.log(np.exp(u).sum(axis=1, keepdims=True))
    return u

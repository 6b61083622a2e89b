"""Scores as a runtime gets them: a sample that cannot be used, and classes that are masked, are told from the others.

``predict_proba`` refuses samples with NaN. A model in production computes on: such a sample gets NaN for every class,
and the samples beside it get what they would get without it.
"""

from __future__ import annotations

import math

from mixnmatch._engine.scores import WIDEST
from mixnmatch.export.graph import GIVEN, Graph, Tensor


class LogitInput:
    """Logits: ``values`` are in the range that maps compute with, ``usable`` says of which samples.

    A sample is usable if it holds neither NaN nor infinity, and a class that is not masked by minus infinity.
    """

    def __init__(self, graph: Graph):
        given = graph.add("input", kind=GIVEN, detail="logits")
        largest = graph.add("largest", kind=GIVEN)
        # Runtimes do not agree on the largest of numbers one of which is NaN, but all say that NaN is in no order.
        top = (given <= largest).choose(given, math.inf).max()
        self.usable = top.abs() <= largest
        finite = self.usable.choose(given, 0.0)
        top = self.usable.choose(top, 0.0)
        low = finite.min()
        # What ``predict_proba`` does: rows of huge numbers become leads over their largest, not below a bound.
        wide = WIDEST
        common = (-low <= wide).choose((top <= wide).choose(0.0, top), top)
        self.values = (finite - common).at_least(-wide)
        self._all_possible = -low <= largest
        self._possible = -largest <= finite

    def without_masked(self, p: Tensor) -> Tensor:
        """Probabilities with 0 for masked classes; the others of such a sample sum to 1 again."""
        left = self._possible.choose(p, 0.0)
        return left / self._all_possible.choose(1.0, left.sum())


class ProbabilityInput:
    """Probabilities: those of samples that are not ``usable``, because of NaN or an infinity, are replaced."""

    def __init__(self, graph: Graph, n_classes: int):
        given = graph.add("input", kind=GIVEN, detail="probabilities")
        largest = graph.add("largest", kind=GIVEN)
        self.usable = (given.abs() <= largest).choose(given, math.inf).max() <= largest
        self.values = self.usable.choose(given, 1 / n_classes)

    def without_masked(self, p: Tensor) -> Tensor:
        """The probabilities as they are: no class can be masked."""
        return p

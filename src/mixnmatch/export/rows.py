"""Scores inside an exported graph, in the forms that maps read; the counterpart of :class:`Block`."""

from __future__ import annotations

from mixnmatch._engine.cached_property import cached_property
from mixnmatch.export.graph import Graph, Tensor, softmax_parts


class GraphRows:
    """Scores of n rows and L classes in a graph. Subclasses say what they are; steps are added once, when needed."""

    # Whether probabilities are the user's own numbers, which can be compared with a knot exactly.
    exact = False

    def __init__(self, values: Tensor, n_classes: int, *, positive: bool = False):
        self.values = values
        self.n_classes = n_classes
        self.positive = positive  # whether the map that made these rows keeps them above zero
        self.before: GraphRows | None = None  # the rows that these were made from, if the map keeps their winners

    @property
    def graph(self) -> Graph:
        """The graph that the rows are part of."""
        return self.values.graph

    @cached_property
    def winner(self) -> Tensor:
        """Column that wins each row: of ties, and of leads lost to rounding, the one that won before."""
        return self.values.argmax() if self.before is None else self.before.winner

    @cached_property
    def probabilities(self) -> Tensor:
        """Probabilities."""
        raise NotImplementedError(type(self).__name__)

    def logs(self, floor: Tensor) -> Tensor:
        """Logarithms of the probabilities, not below that of ``floor``."""
        return self.probabilities.at_least(floor).log()

    def log_scores(self, floor: Tensor) -> Tensor:
        """The same up to a constant in each row."""
        return self.logs(floor)


class Probabilities(GraphRows):
    """The output of a map, as probabilities."""

    @cached_property
    def probabilities(self) -> Tensor:
        """The values."""
        return self.values


class Softmax(GraphRows):
    """The output of a map, as the softmax of scores."""

    @cached_property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return softmax_parts(self.values)

    @cached_property
    def probabilities(self) -> Tensor:
        """Softmax of the values."""
        _, e, total = self._parts
        return e / total

    @cached_property
    def _logs(self) -> Tensor:
        shifted, _, total = self._parts
        return shifted - total.log()

    def logs(self, floor: Tensor) -> Tensor:
        """Logarithms of the probabilities, not below that of ``floor``."""
        return self._logs.at_least(floor.log())


class GivenLogits(Softmax):
    """Logits as the user gives them."""

    def log_scores(self, floor: Tensor) -> Tensor:
        """The logits themselves."""
        return self.values


class GivenProbabilities(GraphRows):
    """Probabilities as the user gives them: rows that sum to 1 only roughly are renormalised."""

    exact = True

    @cached_property
    def probabilities(self) -> Tensor:
        """The values, rows that need it divided by their sums."""
        total = self.values.sum()
        even = (total - 1.0).abs() <= self.graph.add("tolerance")
        return self.values / even.choose(1.0, total)

    def log_scores(self, floor: Tensor) -> Tensor:
        """Logarithms; the sum of a row is a constant that does not matter."""
        return self.values.at_least(floor).log()

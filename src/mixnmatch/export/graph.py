"""A map as a list of tensor operations, written by its lowering and read by every export format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What the entries of a tensor are: numbers as the user gave them, numbers in the precision of the graph, numbers in the
# precision of the output, whole numbers, truth values.
GIVEN, REAL, OUTPUT, INTEGER, TRUTH = "given", "real", "output", "integer", "truth"

PRECISIONS = ("double", "single")


@dataclass(frozen=True)
class Step:
    """One operation; its inputs are indices of earlier steps (int) or constants (float).

    A number that stands for itself is of the same kind as the other inputs.
    """

    operation: str
    inputs: tuple[int | float, ...]
    kind: str
    detail: Any = None


class Graph:
    """Steps from scores, n x L, to probabilities, n x L; the last step is the result.

    Parameters
    ----------
    precision : {"double", "single"}
        Precision that it will be run in. Only tables that numbers are searched in depend on it.
    """

    def __init__(self, precision: str = "double"):
        if precision not in PRECISIONS:
            msg = f'precision must be "double" or "single", got {precision!r}'
            raise ValueError(msg)
        self.precision = precision
        self.steps: list[Step] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self._scope: list[str] = []

    def add(self, operation: str, *inputs: Tensor | float, kind: str = REAL, detail: Any = None) -> Tensor:
        """Append a step."""
        numbers = tuple(item.number if isinstance(item, Tensor) else float(item) for item in inputs)
        self.steps.append(Step(operation, numbers, kind, detail))
        return Tensor(self, len(self.steps) - 1)

    def constant(self, name: str, value: Any) -> Tensor:
        """Append a number or an array that belongs to the map, under a name within the current scope."""
        whole = np.asarray(value).dtype.kind in "iu"
        array = np.array(value, dtype=np.int64 if whole else np.float64, order="C")
        full = stem = "_".join([part for part in self._scope if part] + [name])
        count = 1
        while full in self.constants:
            count += 1
            full = f"{stem}_{count}"
        self.constants[full] = array
        return self.add("constant", kind=INTEGER if whole else REAL, detail=full)

    def prune(self) -> None:
        """Drop steps and constants that the last step does not need."""
        needed = {len(self.steps) - 1}
        for number in range(len(self.steps) - 1, -1, -1):
            if number in needed:
                needed.update(item for item in self.steps[number].inputs if isinstance(item, int))
        place = {number: k for k, number in enumerate(sorted(needed))}
        self.steps = [
            replace(step, inputs=tuple(place[item] if isinstance(item, int) else item for item in step.inputs))
            for number, step in enumerate(self.steps)
            if number in needed
        ]
        used = {step.detail for step in self.steps if step.operation == "constant"}
        self.constants = {name: array for name, array in self.constants.items() if name in used}

    @property
    def nested(self) -> bool:
        """Whether the map that is being lowered is part of another one."""
        return len(self._scope) > 1

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put ``name`` before the names of constants."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()


@dataclass(frozen=True, eq=False)
class Tensor:
    """The result of a step. Shapes broadcast as in NumPy; reductions over classes keep the last axis."""

    graph: Graph
    number: int

    @property
    def kind(self) -> str:
        """What the entries are."""
        return self.graph.steps[self.number].kind

    def _with(self, operation: str, other: Tensor | float) -> Tensor:
        return self.graph.add(operation, self, other, kind=self.kind)

    def __add__(self, other: Tensor | float) -> Tensor:
        return self._with("add", other)

    def __sub__(self, other: Tensor | float) -> Tensor:
        return self._with("subtract", other)

    def __mul__(self, other: Tensor | float) -> Tensor:
        return self._with("multiply", other)

    def __truediv__(self, other: Tensor | float) -> Tensor:
        return self._with("divide", other)

    def __rsub__(self, other: float) -> Tensor:
        return self.graph.add("subtract", other, self, kind=self.kind)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Tensor:
        return self.graph.add("negative", self, kind=self.kind)

    def __le__(self, other: Tensor | float) -> Tensor:
        return self.graph.add("less_equal", self, other, kind=TRUTH)

    def equals(self, other: Tensor) -> Tensor:
        """Where two tensors are the same."""
        return self.graph.add("equal", self, other, kind=TRUTH)

    def at_least(self, other: Tensor | float) -> Tensor:
        """The larger of two."""
        return self._with("maximum", other)

    def at_most(self, other: Tensor | float) -> Tensor:
        """The smaller of two."""
        return self._with("minimum", other)

    def choose(self, yes: Tensor | float, no: Tensor | float) -> Tensor:
        """``yes`` where this is true, else ``no``."""
        kind = yes.kind if isinstance(yes, Tensor) else no.kind if isinstance(no, Tensor) else REAL
        return self.graph.add("where", self, yes, no, kind=kind)

    def exp(self) -> Tensor:
        """Exponential."""
        return self.graph.add("exp", self)

    def log(self) -> Tensor:
        """Natural logarithm."""
        return self.graph.add("log", self)

    def sqrt(self) -> Tensor:
        """Square root."""
        return self.graph.add("sqrt", self)

    def abs(self) -> Tensor:
        """Absolute value."""
        return self.graph.add("abs", self, kind=self.kind)

    def floor(self) -> Tensor:
        """The largest whole number not above, as a real number."""
        return self.graph.add("floor", self)

    def max(self) -> Tensor:
        """Largest entry of each row."""
        return self.graph.add("max", self, kind=self.kind)

    def min(self) -> Tensor:
        """Smallest entry of each row."""
        return self.graph.add("min", self, kind=self.kind)

    def sum(self) -> Tensor:
        """Sum of each row."""
        return self.graph.add("sum", self, kind=self.kind)

    def falling(self, n_columns: int) -> Tensor:
        """The entries of each row, largest first."""
        return self.graph.add("falling", self, detail=n_columns)

    def running_sum(self) -> Tensor:
        """Sums of the first one, two and so on entries of each row."""
        return self.graph.add("running_sum", self)

    def argmax(self) -> Tensor:
        """Position of the (first) largest entry of each row."""
        return self.graph.add("argmax", self, kind=INTEGER)

    def column(self, index: int) -> Tensor:
        """One column, n x 1."""
        return self.graph.add("column", self, kind=self.kind, detail=index)

    def joined(self, other: Tensor) -> Tensor:
        """The columns of this one, then those of another."""
        return self._with("join", other)

    def times_matrix(self, matrix: Tensor) -> Tensor:
        """Product of the rows with a matrix."""
        return self._with("matmul", matrix)

    def looked_up_in(self, table: Tensor) -> Tensor:
        """Entries of a one-dimensional table at these positions."""
        return self.graph.add("gather", table, self, kind=table.kind)

    def filled_with(self, value: float) -> Tensor:
        """A tensor of this shape with one value everywhere."""
        return self.graph.add("full_like", self, value)

    def real(self) -> Tensor:
        """In the precision of the graph."""
        return self.graph.add("real", self)

    def index(self) -> Tensor:
        """Whole real numbers as positions."""
        return self.graph.add("index", self, kind=INTEGER)

    def output(self) -> Tensor:
        """In the precision of the output."""
        return self.graph.add("output", self, kind=OUTPUT)


def softmax_parts(u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The shifted scores, their exponentials and the sum of these: all that softmax and its logarithm need."""
    shifted = u - u.max()
    e = shifted.exp()
    return shifted, e, e.sum()


def softmax(u: Tensor) -> Tensor:
    """Softmax of each row."""
    _, e, total = softmax_parts(u)
    return e / total


def log_softmax(u: Tensor) -> Tensor:
    """Logarithm of the softmax of each row."""
    shifted, _, total = softmax_parts(u)
    return shifted - total.log()

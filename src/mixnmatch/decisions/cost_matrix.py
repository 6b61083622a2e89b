"""Cost matrices: what each decision costs for each true class, and the names of both."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.frames import order_by_name
from mixnmatch._engine.scores import is_number

Floats = NDArray[np.float64]

# What abstaining is called where decisions have names, and its index where they have not.
ABSTAIN = "abstain"
ABSTAIN_INDEX = -1


@dataclass(frozen=True, eq=False)
class CostMatrix:
    """What each decision costs, given the true class.

    Attributes
    ----------
    values : array of shape (L, D)
        Cost of each decision (columns) for each true class (rows). Negative costs are gains.
    decisions : tuple or None
        Names of the decisions; None if they are numbered 0, 1, ...
    abstain : float or None
        Cost of abstaining, the same for every class; None if that is not an option.

    Examples
    --------
    >>> CostMatrix.of([[0, 1], [10, 0]], n_classes=2).values
    array([[ 0.,  1.],
           [10.,  0.]])
    """

    values: Floats
    decisions: tuple[Any, ...] | None = None
    abstain: float | None = None

    @classmethod
    def of(cls, costs: Any, *, n_classes: int, classes: Any = None, abstain: float | None = None) -> CostMatrix:
        """Check a cost matrix.

        Parameters
        ----------
        costs : array of shape (L, D), data frame or CostMatrix
            Classes in rows and decisions in columns. The index of a data frame names the classes, in any order; its
            columns name the decisions.
        n_classes : int
            Number of classes L.
        classes : sequence, optional
            Names of the classes, in the order of the columns of the probabilities.
        abstain : float, optional
            Cost of abstaining.
        """
        if isinstance(costs, CostMatrix):
            made = cls(costs.values, costs.decisions, costs.abstain if abstain is None else abstain)
        else:
            made = cls(*_in_order(costs, n_classes, classes), abstain)
        made._check(n_classes)
        return made

    def _check(self, n_classes: int) -> None:
        if self.values.ndim != 2 or self.values.shape[0] != n_classes or self.values.shape[1] < 1:
            msg = (
                f"costs must have a row for each of the {n_classes} classes and a column for each decision, "
                f"got shape {self.values.shape}"
            )
            raise ValueError(msg)
        if not np.isfinite(self.values).all():
            row, column = (int(k[0]) for k in np.nonzero(~np.isfinite(self.values)))
            msg = f"costs: row {row}, column {column} is {self.values[row, column]}; costs must be finite"
            raise ValueError(msg)
        if self.abstain is not None and not is_number(self.abstain):
            msg = f"abstain must be a finite number, the cost of abstaining, got {self.abstain!r}"
            raise ValueError(msg)
        if self.abstain is not None and self.decisions is not None and ABSTAIN in self.decisions:
            msg = f"a decision is called {ABSTAIN!r} already; leave out abstain=, or rename the decision"
            raise ValueError(msg)

    @property
    def options(self) -> Floats:
        """Costs of all options, L x D; abstaining is the last one where it is allowed."""
        if self.abstain is None:
            return self.values
        return np.column_stack([self.values, np.full(len(self.values), float(self.abstain))])

    def named(self, index: NDArray[np.intp]) -> NDArray[Any]:
        """Decisions, by name if they have names, from columns of :attr:`options`."""
        if self.decisions is None:
            return np.where(index == self.values.shape[1], ABSTAIN_INDEX, index)
        return self._names()[index]

    def _names(self) -> NDArray[Any]:
        """Names of all options; numbers and booleans stay what they are beside the word for abstaining."""
        if self.decisions is None:
            names = [*range(self.values.shape[1]), *([] if self.abstain is None else [ABSTAIN_INDEX])]
        else:
            names = [*self.decisions, *([] if self.abstain is None else [ABSTAIN])]
        if {type(name) for name in names} in ({str}, {int}, {float}, {bool}):
            return np.array(names)
        found = np.empty(len(names), dtype=object)
        found[:] = names
        return found

    def indices(self, decisions: Any, n_rows: int) -> NDArray[np.intp]:
        """Columns of :attr:`options` that decisions stand for."""
        names = self._names()
        given = np.asarray(decisions, dtype=object if names.dtype.kind == "O" else None)
        if given.shape != (n_rows,):
            msg = f"decisions must have shape ({n_rows},), one for each sample, got {given.shape}"
            raise ValueError(msg)
        index = _positions(given, names)
        if (index < 0).any():
            row = int(np.flatnonzero(index < 0)[0])
            one = given[row].item() if hasattr(given[row], "item") else given[row]
            hint = "; pass abstain=, the cost of abstaining" if one in (ABSTAIN, ABSTAIN_INDEX) else ""
            msg = f"decision {one!r} of row {row} is not one of {names.tolist()!r:.200}{hint}"
            raise ValueError(msg)
        return index


def _positions(given: NDArray[Any], names: NDArray[Any]) -> NDArray[np.intp]:
    """Where each decision is among the names, by its value or else as it is written; -1 where it is not."""
    if "O" in (given.dtype.kind, names.dtype.kind) or (given.dtype.kind in "US") != (names.dtype.kind in "US"):
        place = {name: k for k, name in enumerate(names.tolist())}
        written = {str(name): k for k, name in enumerate(names.tolist())}
        if len(written) < len(names):
            written = {}
        found = (place.get(one, written.get(str(one), -1)) for one in map(_hashable, given.tolist()))
        return np.fromiter(found, np.intp, len(given))
    order = np.argsort(names, kind="stable")
    at = order[np.minimum(np.searchsorted(names, given, sorter=order), len(names) - 1)]
    return np.where(names[at] == given, at, -1)


def _hashable(one: Any) -> Any:
    return one if isinstance(one, Hashable) else str(one)


def _in_order(costs: Any, n_classes: int, classes: Any) -> tuple[Floats, tuple[Any, ...] | None]:
    """Costs with classes in the order of the probabilities, and names of the decisions."""
    try:
        values = np.asarray(costs, dtype=np.float64)
    except (ValueError, TypeError) as error:
        msg = "costs must be numbers, with a row for each class and a column for each decision"
        raise ValueError(msg) from error
    if not hasattr(costs, "columns"):
        return values, None
    columns = list(costs.columns)
    if len(set(columns)) < len(columns):
        msg = f"costs: the columns are {columns!r:.200}; name each decision once"
        raise ValueError(msg)
    numbered = (list(range(len(columns))), [f"column_{k}" for k in range(len(columns))])  # by pandas, by polars
    decisions = None if columns in numbered else tuple(columns)
    if not hasattr(costs, "index"):
        return values, decisions
    rows = list(costs.index)
    known = list(range(n_classes)) if classes is None else np.asarray(classes).tolist()
    order = np.arange(n_classes) if rows == known else _order_of_rows(rows, known)
    if order is None:
        msg = f"costs: the rows are {rows!r:.200}, but the classes are {known!r:.200}; name each class once"
        if known == list(range(n_classes)):
            msg += ", and pass classes=[...] to name the columns of the probabilities"
        raise ValueError(msg)
    return values[order], decisions


def _order_of_rows(rows: list[Any], known: list[Any]) -> NDArray[np.intp] | None:
    """Positions of the rows in the order of the classes; either may have a shared start."""
    order = order_by_name(rows, known)
    if order is None and (place := order_by_name(known, rows)) is not None:
        return np.argsort(place)
    return order

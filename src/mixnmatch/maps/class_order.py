"""Rows whose classes are in another order than those of a fitted map: both are matched by the names of the classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.along_rows import both_columns
from mixnmatch._engine.block import Block
from mixnmatch._engine.frames import check_aligned, order_by_name, vector_class, warn_of_position
from mixnmatch._engine.labels import is_text
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import check_n_classes

if TYPE_CHECKING:
    from mixnmatch.maps.base import CalibrationMap


def class_order(fitted: CalibrationMap, given: Rows) -> NDArray[np.intp] | None:
    """Column of each of the map's classes among those of the rows; None where the order is the same.

    Rows without names of their own, and maps that know their classes by number alone, are matched by position.

    Raises
    ------
    ValueError
        If both have names, and the names differ.
    """
    check_n_classes(given.n_classes, fitted.n_classes_)
    order = _order_by_names(fitted, given)
    return None if order is None or (order == np.arange(len(order))).all() else order


def _order_by_names(fitted: CalibrationMap, given: Rows) -> NDArray[np.intp] | None:
    known, columns = fitted.classes_, getattr(fitted, "columns_", None)
    names = [name for name in (None if _by_position(given) else given.classes, given.columns) if name is not None]
    for have in names:
        for wanted in (known, columns):
            order = None if wanted is None else order_by_name(have.tolist(), wanted.tolist())
            if order is not None:
                return order
    named = [have for have in names if is_text(have)]
    if given.n_classes == 2 and not named and given.scores.vector:
        vector_class(None, known, known=fitted._knows_vector())
    if named and not is_text(known):
        warn_of_position(named[0].tolist(), known)
    if not named or not is_text(known):
        return None
    have = named[0]
    if given.n_classes == 2:  # where all labels are of one class, the name of the other one is not known
        for place, name in enumerate(have.tolist()):
            if name in known.tolist():
                return np.arange(2) if known[place] == name else np.array([1, 0])
    msg = f"the classes of the scores are {have.tolist()!r:.200}, but the map was fitted with {known.tolist()!r:.200}"
    raise ValueError(msg)


def _by_position(given: Rows) -> bool:
    """Whether the classes are only counted: nobody has named them."""
    return given.labels is None and given.classes is not None and given.classes.tolist() == [*range(given.n_classes)]


@dataclass(frozen=True)
class InOrder:
    """A fitted map for rows in which its classes have another order; outputs are in the order of the rows."""

    fitted: CalibrationMap
    order: NDArray[np.intp]

    @property
    def accuracy_preserving(self) -> bool:
        """Whether the largest entry of every row stays the largest."""
        return self.fitted.accuracy_preserving

    def _log_proba(self, block: Block) -> NDArray[np.float64]:
        back = np.argsort(self.order)
        values = np.ascontiguousarray(block.values[:, self.order])
        winner = None if block.kept is None else back[block.kept]
        labels = None if block.labels is None else back[block.labels]
        calibrated = self.fitted._log_proba(replace(block, values=values, labels=labels, kept=winner, companions=()))
        return np.ascontiguousarray(calibrated[:, back])


def after_map(given: Rows, fitted: CalibrationMap) -> Rows:
    """The rows after a fitted map, whatever the order of its classes; the columns stay in their order."""
    fitted._check_form(given)
    order = class_order(fitted, given)
    return given.through(fitted if order is None else InOrder(fitted, order))


def rows_for(fitted: CalibrationMap, scores: Any, y: Any = None, sample_weight: Any = None) -> Rows:
    """Checked samples for a fitted map, with their columns in the order of its classes."""
    if isinstance(scores, Rows):
        return in_order_of(fitted, door.rows(scores, y, sample_weight))
    check_aligned(scores, labels=y, sample_weight=sample_weight)
    values = fitted._scores_by_name(scores)
    if len(np.shape(values)) == 2:
        check_n_classes(np.shape(values)[1], fitted.n_classes_)
    settings = fitted._input_settings() | {"classes": fitted.classes_}
    return door.rows(values, y, sample_weight, **settings)


def in_order_of(fitted: CalibrationMap, given: Rows) -> Rows:
    """The rows with their columns in the order of the map's classes."""
    fitted._check_form(given)
    order = class_order(fitted, given)
    if order is None:
        return given
    table = given.scores
    values: Any = both_columns(table.values, logits=table.logits) if table.vector else table.values
    labels = None if given.labels is None else np.argsort(order)[given.labels]
    return replace(
        given,
        scores=replace(table, values=values[:, order]),
        labels=labels,
        classes=None if given.classes is None else given.classes[order],
        columns=None if given.columns is None else given.columns[order],
    )

"""What a fitted map does, as curves: the function g that it learned, or a cut through the simplex."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch.maps.base import BinaryMap
from mixnmatch.maps.combine import OneVsAll, Pooled
from mixnmatch.maps.external import calibration_map
from mixnmatch.maps.parameters import check_is_fitted
from mixnmatch.maps.shared_function import SharedFunction

__all__ = ["MapCurve", "MapLine", "map_curve"]

Array = NDArray[np.float64]

# Without a choice of classes, so many of them are shown: the first ones.
MOST_CLASSES = 6
# Curves of classes that differ by less are one curve.
SAME = 1e-9
# What a map is called where its expression is longer than this is its class.
LONGEST_TITLE = 64
# The grid stays so far from 0 and 1, where logarithms end.
MARGIN = 1e-9


@dataclass(frozen=True)
class MapLine:
    """One curve of a map.

    Attributes
    ----------
    name : str
        What it is: the map, a class, or a member of an ensemble.
    value : array of shape (m,)
        Value at each confidence.
    weight : float or None
        Weight of a member; None for the map itself.
    """

    name: str
    value: Array
    weight: float | None = None


@dataclass(frozen=True)
class MapCurve:
    """What a map does to a confidence z.

    Attributes
    ----------
    confidence : array of shape (m,)
        Grid of confidences z.
    lines : tuple of MapLine
        The map, or its classes; then the members of an ensemble.
    title : str
        What map it is.
    meaning : str
        Description of the values.
    """

    confidence: Array
    lines: tuple[MapLine, ...]
    title: str
    meaning: str

    @property
    def members(self) -> tuple[MapLine, ...]:
        """The members of an ensemble, with their weights."""
        return tuple(line for line in self.lines if line.weight is not None)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        lines = [{"name": line.name, "weight": line.weight, "value": line.value.tolist()} for line in self.lines]
        return {
            "title": self.title,
            "meaning": self.meaning,
            "confidence": self.confidence.tolist(),
            "lines": lines,
        }


def map_curve(fitted: Any, *, classes: Sequence[Any] | None = None, n_points: int = 401) -> MapCurve:
    r"""The curves of a fitted map.

    Parameters
    ----------
    fitted : a fitted calibration map
        Any map, or object with ``predict_proba`` and ``classes_``.
    classes : sequence, optional
        Classes (as in ``classes_``) to show where classes differ; by default the first six. Classes that a map treats
        alike are one curve.
    n_points : int
        Size of the grid.

    Returns
    -------
    MapCurve
        For a map with a learned function (binary maps, :class:`Pooled`, :class:`OneVsAll`, :class:`SharedFunction`),
        g(z) before rows are normalised. For others a cut through the simplex: what becomes of the entry z of the row
        :math:`(z, (1-z)/(L-1), \ldots, (1-z)/(L-1))`. The members of ensembles are included, unless several classes are
        shown.

    Examples
    --------
    >>> from mixnmatch import calibrator, load_sample
    >>> sample = load_sample()
    >>> ets = calibrator("ets", logits=True).fit(sample.logits_cal, sample.labels_cal)
    >>> [line.name for line in map_curve(ets).lines]
    ['ensemble', 'temperature 1.96', 'identity', 'uniform']
    """
    check_is_fitted(fitted)
    if n_points < 2:
        msg = f"n_points must be at least 2, got {n_points!r}"
        raise ValueError(msg)
    z = np.linspace(0.0, 1.0, n_points)
    inside = np.clip(z, MARGIN, 1.0 - MARGIN)
    title = " ".join(repr(fitted).split())
    title = title if len(title) <= LONGEST_TITLE else type(fitted).__name__
    names = list(np.asarray(fitted.classes_).tolist())
    if isinstance(fitted, SharedFunction | Pooled):
        return MapCurve(z, (MapLine("every class", _shared(fitted, inside)),), title, "g(z), before normalisation")
    shown = _columns(names, classes)
    lines = _distinct(fitted, inside, shown, names)
    if _is_learned(fitted):
        binary = len(names) == 2
        return MapCurve(z, lines, title, "probability" if binary else "g(z) of a class, before normalisation")
    members = tuple(_members(fitted, _cut(inside, len(names), shown[0]), shown[0]))
    if members and len(lines) == 1:
        of = "" if len(names) == 2 or lines[0].name == "every class" else f", {lines[0].name}"
        lines = (MapLine(f"ensemble{of}", lines[0].value), *members)
    meaning = "probability" if len(names) == 2 else f"probability; the other {len(names) - 1} classes share the rest"
    return MapCurve(z, lines, title, meaning)


def _is_learned(fitted: Any) -> bool:
    """Whether the map applies a learned function to each entry."""
    return isinstance(fitted, BinaryMap | OneVsAll)


def _columns(names: list[Any], classes: Sequence[Any] | None) -> list[int]:
    """Columns of the classes to show; of two classes the second tells all."""
    if classes is None:
        return [1] if len(names) == 2 else list(range(min(len(names), MOST_CLASSES)))
    unknown = [label for label in classes if label not in names]
    if unknown or not len(classes):
        msg = f"classes must be some of {names}, got {list(classes)}"
        raise ValueError(msg)
    return [names.index(label) for label in classes]


def _distinct(fitted: Any, z: Array, shown: list[int], names: list[Any]) -> tuple[MapLine, ...]:
    """A line for each class shown, or a single one if the map treats them, and one more, alike."""
    values = {column: _entry(fitted, z, len(names), column) for column in shown}
    if len(names) > 2:
        other = (shown[0] + 1) % len(names)
        tried = [*values.values(), _entry(fitted, z, len(names), other)]
        if all(np.abs(value - tried[0]).max() < SAME for value in tried):
            return (MapLine("every class", tried[0]),)
    return tuple(MapLine(f"class {names[column]}", value) for column, value in values.items())


def _entry(fitted: Any, z: Array, n_classes: int, column: int) -> Array:
    """What becomes of the entry z of a column: g where the map has one, the entry of the row otherwise."""
    rows = _cut(z, n_classes, column)
    if isinstance(fitted, OneVsAll) and n_classes > 2:
        return np.asarray(fitted.map_._transform_columns(_block(rows), "each")[:, column])
    logits = calibration_map(fitted).takes_logits
    return np.asarray(fitted.predict_proba(np.log(rows) if logits else rows)[:, column], dtype=np.float64)


def _cut(z: Array, n_classes: int, column: int) -> Array:
    """Rows with z in a column and the rest shared by the others."""
    rows = np.repeat((1.0 - z)[:, None] / (n_classes - 1), n_classes, axis=1)
    rows[:, column] = z
    return rows


def _block(rows: Array) -> Block:
    return Block(rows, "probabilities", range(len(rows)))


def _shared(fitted: SharedFunction | Pooled, z: Array) -> Array:
    """The function that all entries go through."""
    if isinstance(fitted, SharedFunction):
        return np.asarray(fitted.g(z), dtype=np.float64)
    both = np.stack([1.0 - z, z], axis=1)
    return np.asarray(fitted.map_._transform_columns(_block(both), "pooled").reshape(both.shape)[:, 1])


def _members(fitted: Any, rows: Array, column: int) -> Iterator[MapLine]:
    """Members of an ensemble on the cut, with their weights."""
    for name, p, weight in fitted._members_of(_block(rows)) if hasattr(fitted, "_members_of") else ():
        yield MapLine(name, np.asarray(p[:, column]), float(weight))

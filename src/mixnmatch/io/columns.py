"""Tables with named columns: which columns are scores, which is the label, and what the classes are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.class_names import ROW_NUMBERS, class_names
from mixnmatch.io.files import FileError, listed

LABEL_COLUMNS = ("label", "labels")
WEIGHT_COLUMNS = ("weight", "weights")


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are for."""

    scores: tuple[str, ...]
    label: str | None
    weights: str | None

    @property
    def all(self) -> tuple[str, ...]:
        """Every column that is read."""
        return self.scores + tuple(name for name in (self.label, self.weights) if name is not None)


def choose_columns(
    path: Path,
    names: Sequence[str],
    *,
    label: str | None = None,
    weights: str | None = None,
    patterns: Sequence[str] = (),
    need_labels: bool = True,
) -> Columns:
    """Decide by their names what columns are for.

    The label is in the column that ``label`` names, or else in the one called "label" or "labels"; likewise the
    weights. Scores are the columns that match one of the ``patterns``, or else all others.
    """
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise FileError(path, f"has more than one column called {listed(twice)}")
    label = _find(path, names, label, LABEL_COLUMNS, "--label-column", required=need_labels)
    weights = _find(path, names, weights, WEIGHT_COLUMNS, "--weights", required=False)
    rest = [name for name in names if name not in (label, weights)]
    if patterns:
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in rest):
                raise FileError(path, f"no column matches {pattern!r}; it has {listed(names)}")
        return Columns(tuple(n for n in rest if any(fnmatchcase(n, p) for p in patterns)), label, weights)
    for name in rest:
        if name.strip().lower() in ROW_NUMBERS and len(rest) > 1:
            called = f"column {name!r} looks" if name.strip() else "a column without a name looks"
            raise FileError(path, f"{called} like a row number, not a class; remove it, or name the scores: --columns")
    if not rest:
        raise FileError(path, f"has no columns of scores, only {listed(names)}")
    return Columns(tuple(rest), label, weights)


def _find(
    path: Path, names: Sequence[str], asked: str | None, usual: Sequence[str], option: str, *, required: bool
) -> str | None:
    if asked is not None:
        if asked not in names:
            raise FileError(path, f"has no column {asked!r}; it has {listed(names)}")
        return asked
    found = [name for name in usual if name in names]
    if len(found) > 1:
        raise FileError(path, f"has columns {listed(found)}; choose with {option}")
    if not found and required:
        raise FileError(
            path, f"has no column {usual[0]!r}; name the one with the labels: {option}; it has {listed(names)}"
        )
    return found[0] if found else None


def resolve_labels(
    path: Path, labels: NDArray[Any] | None, columns: Sequence[str], classes: NDArray[Any] | None
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    """Labels and names of the classes that fit each other.

    Text labels are names of classes. Whole numbers are too where the classes are numbered; otherwise they are
    positions, counted from 0. A single column, of the positive class, bears the name of that class.
    """
    names = class_names(columns) if classes is None else classes
    if labels is None or labels.ndim != 1 or len(labels) == 0:
        return labels, names
    text = labels.dtype.kind in "US"
    if names is None:
        return labels, _two_classes(path, labels, columns[0]) if columns and text else None
    if not text and names.dtype.kind in "US":
        return _at_positions(path, labels, names), names
    if text and names.dtype.kind not in "US":
        raise FileError(
            path, f"labels are text such as {labels[0].item()!r}, but the classes are {listed(names.tolist())}"
        )
    if text and classes is None and columns:
        found = set(np.unique(labels).tolist())
        if not found <= set(names.tolist()) and found <= set(columns):
            names = np.array(columns)  # the labels carry the shared start as well
    return labels, names


def _at_positions(path: Path, labels: NDArray[Any], names: NDArray[Any]) -> NDArray[Any]:
    if labels.dtype.kind not in "iub":
        return labels
    outside = (labels < 0) | (labels >= len(names))
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        why = f"label {labels[row]} in row {row} is not the position of a column (0 to {len(names) - 1})"
        raise FileError(path, why)
    return np.asarray(names[labels.astype(np.intp)])


def _two_classes(path: Path, labels: NDArray[Any], column: str) -> NDArray[Any]:
    """Names of the two classes of a problem whose positive class has the one score column."""
    found = [str(name) for name in np.unique(labels)]
    if len(found) != 2 or column not in found:
        why = f"column {column!r} should be called like the positive class, but the labels are {listed(found)}"
        raise FileError(path, f"{why}; rename it, or pass --classes NEGATIVE,POSITIVE")
    other = found[0] if found[1] == column else found[1]
    return np.array([other, column])

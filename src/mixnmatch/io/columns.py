"""Tables with named columns: find scores, label and class names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.class_names import ROW_NUMBERS, as_numbers, class_names, shared_start
from mixnmatch._engine.frames import order_by_name, spellings
from mixnmatch.io.files import FileError, is_text, listed, shared_text

LABEL_COLUMNS = ("label", "labels")
WEIGHT_COLUMNS = ("weight", "weights")
# What columns are called that `apply` adds.
CALIBRATED = "calibrated_"


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

    def scores_alone(self) -> Columns:
        """The columns of scores, without labels and weights."""
        return Columns(self.scores, None, None)


def choose_columns(
    path: Path,
    names: Sequence[str],
    *,
    classes: Sequence[str] | None = None,
    **settings: Any,
) -> Columns:
    """Decide by their names what columns are for; see :func:`_chosen`.

    Scores that are called like the ``classes``, with or without a common start, are brought into their order.
    """
    chosen = _chosen(path, names, **settings)
    if classes is None or len(chosen.scores) < 2:
        return chosen
    order = order_by_name(chosen.scores, classes) if len(classes) == len(chosen.scores) else None
    if order is not None:
        return replace(chosen, scores=tuple(chosen.scores[k] for k in order))
    known = {name for names in spellings(chosen.scores) if is_text(names) for name in names.tolist()}
    shared = sorted(known & set(classes))
    if shared:
        why = "columns are called like some of the classes ({names}), but not like all of them: its scores are {scores}"
        raise FileError(path, why, names=listed(shared), scores=listed(chosen.scores))
    return chosen


def _chosen(
    path: Path,
    names: Sequence[str],
    *,
    label: str | None = None,
    weights: str | None = None,
    patterns: Sequence[str] = (),
    need_labels: bool = True,
    find: Callable[[Sequence[str]], Sequence[str]] | None = None,
) -> Columns:
    """What columns are for.

    The label is in the column that ``label`` names, or else in the one called "label" or "labels"; likewise the
    weights. Scores are the columns that match the ``patterns``, in their order, or else those that ``find`` finds among
    all names, or else all others. Where ``find`` is given, but finds nothing, other columns may be about something
    else: then row numbers and calibrated probabilities are passed over.
    """
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise FileError(path, "has more than one column called {names}", names=listed(twice))
    label = _find(path, names, label, LABEL_COLUMNS, "{label_column}", required=need_labels)
    weights = _find(path, names, weights, WEIGHT_COLUMNS, "{weights}", required=False)
    rest = [name for name in names if name not in (label, weights)]
    if patterns:
        chosen: list[str] = []
        for pattern in patterns:
            matching = [name for name in rest if fnmatchcase(name, pattern)]
            if not matching:
                raise FileError(
                    path, "no column matches {pattern!r}; it has {names}", pattern=pattern, names=listed(names)
                )
            chosen += matching
        return Columns(tuple(dict.fromkeys(chosen)), label, weights)
    if find is not None:
        found = tuple(find(rest))
        if found:
            return Columns(found, label, weights)
        rest = [n for n in rest if n.strip().lower() not in ROW_NUMBERS and not n.startswith(CALIBRATED)]
    for name in rest:
        if name.strip().lower() in ROW_NUMBERS and len(rest) > 1:
            called = f"column {name!r} looks" if name.strip() else "a column without a name looks"
            why = "{called} like a row number, not a class; remove it, or name the scores ({others}): {columns}"
            raise FileError(path, why, called=called, others=listed([other for other in rest if other != name]))
    if not rest:
        raise FileError(path, "has no columns of scores, only {names}", names=listed(names))
    calibrated = [name for name in rest if name.startswith(CALIBRATED)]
    if calibrated and len(calibrated) < len(rest):
        why = "has columns of calibrated probabilities ({names}) beside others; choose the scores: {columns}"
        raise FileError(path, why, names=listed(calibrated))
    return Columns(tuple(rest), label, weights)


def _find(
    path: Path, names: Sequence[str], asked: str | None, usual: Sequence[str], option: str, *, required: bool
) -> str | None:
    if asked is not None:
        if asked not in names:
            raise FileError(path, "has no column {asked!r}; it has {names}", asked=asked, names=listed(names))
        return asked
    found = [name for name in usual if name in names]
    if len(found) > 1:
        raise FileError(path, f"has columns {{names}}; choose with {option}", names=listed(found))
    if not found and required:
        why = f"has no column {{usual!r}}; name the one with the labels: {option}; it has {{names}}"
        raise FileError(path, why, usual=usual[0], names=listed(names))
    return found[0] if found else None


def resolve_labels(
    path: Path, labels: NDArray[Any] | None, columns: Sequence[str], classes: NDArray[Any] | None
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    """Match labels and class names.

    Text labels are names of classes. Whole numbers and booleans are too where the classes are numbered; otherwise they
    are positions, counted from 0. A single column, of the positive class, bears the name of that class.
    """
    names = class_names(columns) if classes is None else classes
    if labels is None or labels.ndim != 1 or len(labels) == 0:
        return labels, names
    text = is_text(labels)
    if names is None and columns:
        return labels, _two_classes(path, labels, columns[0]) if text else _two_numbers(labels, columns[0])
    if names is None:
        return labels, None
    if not text and names.dtype.kind in "US":
        numbers = as_numbers(names.tolist())
        if numbers is not None and len(set(numbers)) == len(numbers):
            return labels, np.array(numbers)
        return _at_positions(path, labels, names), names
    if text and classes is None and columns:
        found = set(labels.tolist())
        if not found <= set(names.tolist()):
            names = _names_with_start(columns, found, names)
    if text and names.dtype.kind not in "US":
        why = "labels are text such as {label!r:.80}, but the classes are {names}"
        raise FileError(path, why, label=labels.tolist()[0], names=listed(names.tolist()))
    return labels, names


def _names_with_start(columns: Sequence[str], labels: set[str], names: NDArray[Any]) -> NDArray[Any]:
    """Names of classes where labels have more of the columns' shared start, such as class_0; otherwise ``names``."""
    for cut in range(len(shared_start(columns)) + 1):
        longer = [name[cut:] for name in columns]
        if labels <= set(longer):
            return np.array(longer)
    return names


def _at_positions(path: Path, labels: NDArray[Any], names: NDArray[Any]) -> NDArray[Any]:
    if labels.dtype.kind not in "iub":
        return labels
    outside = (labels < 0) | (labels >= len(names))
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        why = "label {label} in row {row} is not the position of a column (0 to {last})"
        raise FileError(path, why, label=labels[row], row=row, last=len(names) - 1)
    return shared_text(names.tolist(), labels.astype(np.intp))


def _two_classes(path: Path, labels: NDArray[Any], column: str) -> NDArray[Any]:
    """Names of the two classes of a problem whose positive class has the one score column."""
    found = sorted(str(name) for name in set(labels.tolist()))
    if len(found) != 2 or column not in found:
        why = "column {column!r} should be called like the positive class, but the labels are {names}; rename it, or "
        raise FileError(path, why + "name both, the negative one first: {classes}", column=column, names=listed(found))
    other = found[0] if found[1] == column else found[1]
    return np.array([other, column])


def _two_numbers(labels: NDArray[Any], column: str) -> NDArray[Any] | None:
    """The two classes of a problem whose score column is called like one of them, such as 0 or False."""
    seen, number = set(labels.tolist()), as_numbers([column])
    seen = {0, 1} if seen <= {0, 1} else seen
    if number is None or len(seen) != 2 or number[0] not in seen:
        return None
    return np.array([*(seen - set(number)), *number])


def columns_of_classes(names: Sequence[str], classes: Sequence[str]) -> tuple[str, ...]:
    """Return the columns named after the classes with a common prefix; none if ambiguous."""
    known = set(names)
    starts = {name[: len(name) - len(classes[0])] for name in names if name.endswith(classes[0])}
    found = [
        tuple(start + each for each in classes) for start in starts if known.issuperset(start + c for c in classes)
    ]
    plain = [columns for columns in found if not columns[0].startswith(CALIBRATED)]
    return plain[0] if len(plain) == 1 else ()

"""Data frames as input: match columns to classes and check indexes.

pandas and polars are recognised by the types of what comes in; neither is imported here.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.class_names import ROW_NUMBERS, as_numbers, class_names
from mixnmatch._engine.errors import InputError, InputWarning, caller_level
from mixnmatch._engine.labels import is_text

_LIBRARIES = ("pandas", "polars")


def _library(value: Any) -> str | None:
    """Which data-frame library an object comes from, subclasses included."""
    if type(value) is np.ndarray or value is None:
        return None
    roots = [kind.__module__.partition(".")[0] for kind in type(value).__mro__]
    return next((root for root in roots if root in _LIBRARIES), None)


class NamedColumns:
    """An array with names for its columns, which is read like a data frame."""

    def __init__(self, values: NDArray[Any], columns: Sequence[Any]):
        self.values, self.columns, self.shape = values, columns, values.shape

    def to_numpy(self) -> NDArray[Any]:
        """The array."""
        return self.values


def is_frame(value: Any) -> bool:
    """Whether this is a data frame of pandas or polars, or an array with names for its columns."""
    if isinstance(value, NamedColumns):
        return True
    return hasattr(value, "columns") and hasattr(value, "shape") and _library(value) is not None


def is_series(value: Any) -> bool:
    """Whether this is a column of pandas or polars, which may have a name."""
    return hasattr(value, "name") and hasattr(value, "to_numpy") and _library(value) is not None


def column_names(frame: Any) -> list[Any] | None:
    """Names of the columns of a data frame, or None where they only count the columns."""
    names = list(frame.columns)
    if any(isinstance(name, tuple) for name in names) or names == list(range(len(names))):
        return None
    for name in names:
        if len(names) > 1 and str(name).strip().lower() in ROW_NUMBERS:
            msg = f"column {name!r} of the scores looks like a row number, not a class; leave it out"
            raise ValueError(msg)
    return names


def frame_values(frame: Any) -> NDArray[Any]:
    """The numbers of a data frame; columns of other types are named in the error."""
    values: NDArray[Any] = np.asanyarray(frame.to_numpy())
    if values.dtype.kind in "fiu":
        return values
    try:
        # Columns of nullable types come as objects; what is missing becomes NaN, which is then refused by its row.
        return np.asarray([[np.nan if _missing(entry) else entry for entry in row] for row in values], dtype=np.float64)
    except (TypeError, ValueError):
        text = [name for name, column in zip(frame.columns, values.T, strict=True) if not all(map(_number, column))]
        msg = f"columns {text!r:.200} of the scores are not numbers; pass only the columns with scores"
        raise ValueError(msg) from None


def _missing(entry: Any) -> bool:
    return entry is None or type(entry).__name__ == "NAType"


def _number(entry: Any) -> bool:
    return _missing(entry) or isinstance(entry, int | float | np.number)


def check_aligned(first: Any, what: str = "scores", /, **others: Any) -> None:
    """Raise an error if pandas objects have another index than the first, which is called ``what``."""
    index = _index(first)
    if index is None:
        return
    for name, other in others.items():
        theirs = _index(other)
        if theirs is None or len(theirs) != len(index) or index.equals(theirs):  # lengths are checked elsewhere
            continue
        at = int(np.flatnonzero(np.asarray(index != theirs))[0])
        here, there = (getattr(name, "item", lambda name=name: name)() for name in (index[at], theirs[at]))
        msg = (
            f"{what} and {name} have different indexes: row {at} is {here!r} in one and {there!r} in the other. Bring "
            f"them into the same order ({name}.loc[{what}.index]), or pass {name}.to_numpy() if their order is the "
            "same already"
        )
        raise ValueError(msg)


def _index(value: Any) -> Any:
    return value.index if _library(value) == "pandas" and hasattr(value, "index") else None


def order_by_name(columns: Sequence[Any], wanted: Sequence[Any]) -> NDArray[np.intp] | None:
    """Positions of the columns in the order of ``wanted`` names; None if the names differ.

    Columns may carry a shared start: ``prob_cat, prob_dog`` are matched to cat and dog. Numbers and booleans are
    matched however they are written: ``"True", "1.0"`` and ``1`` are one name.
    """
    for spelt in (_texts, as_numbers):
        want: list[Any] | None = spelt(wanted)
        for names in spellings(columns):
            have: list[Any] | None = spelt(names.tolist())
            if want and have and sorted(have) == sorted(want) and len(set(have)) == len(have):
                return np.array([have.index(name) for name in want], dtype=np.intp)
    return None


def _texts(names: Sequence[Any]) -> list[str]:
    return [str(name) for name in names]


def class_called(name: Any, classes: NDArray[Any]) -> int | None:
    """Position of the class that a column is called like, such as "True" or 1.0 for a class 1; None if none is."""
    spelt = _texts if is_text(classes) else as_numbers
    (wanted,), names = spelt([name]) or [None], classes.tolist()
    return names.index(wanted) if name is not None and wanted in names else None


def vector_class(name: Any, classes: NDArray[Any], *, known: bool) -> int:
    """Which of two classes a vector of scores is about: the one that it is called like, or else the second.

    Raises
    ------
    InputError
        If it is called like neither of two classes with names, and it is not ``known`` that it is about the second.
    """
    place = class_called(name, classes)
    if place is None and is_text(classes) and not known:
        template = (
            "the scores are a vector{called}, and the map was fitted with the classes {classes}: probability of which "
            "class? {name_vector}"
        )
        called = "" if name is None or name == "" else f" called {name!r:.80}"
        raise InputError(template, called=called, classes=classes.tolist())
    return 1 if place is None else place


def warn_of_position(names: Sequence[Any], classes: NDArray[Any]) -> None:
    """Warn that names of columns say nothing about classes that are numbers."""
    template = (
        "the columns {names!r:.200} are not called like the classes of the map: they are read as the classes "
        "{numbers!r:.200}, in this order. Rename them to be sure"
    )
    warning = InputWarning(template, names=list(names), numbers=classes.tolist())
    warnings.warn(warning, stacklevel=caller_level())


def spellings(columns: Sequence[Any]) -> list[NDArray[Any]]:
    """Return candidate class names for columns: as given, and without their common prefix."""
    found = [np.array(columns)] if len({type(name) for name in columns}) == 1 else []
    text = [str(name) for name in columns]
    short = class_names(text)
    return found if short is None else [*found, short]


def classes_of(columns: Sequence[Any], labels: NDArray[Any]) -> NDArray[Any] | None:
    """Names of the classes from the names of the columns, as the labels spell them.

    None if labels are positions: whole numbers beside columns whose names are no numbers.
    """
    seen, text = set(labels.tolist()), is_text(labels)
    found = spellings(columns)
    if not text:
        numbers = [as_numbers(names.tolist()) for names in found]
        found = [np.array(each) for each in numbers if each is not None and len(set(each)) == len(each)]
        if not found:
            return None
    for names in found:
        if is_text(names) == text and seen <= set(names.tolist()):
            return names
    msg = (
        f"labels such as {min(seen)!r} are not among the columns of the scores, {list(columns)!r:.200}; "
        "rename the columns, or pass classes=[...] to name them in order"
    )
    raise ValueError(msg)

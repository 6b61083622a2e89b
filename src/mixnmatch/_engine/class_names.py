"""Names of classes: as the columns of a table spell them, and as labels do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# How booleans are written; as labels they are 0 and 1.
TRUTH = {"false": 0, "true": 1}
# Columns of these names number the rows; taking one for a class would be wrong without a sign of it.
ROW_NUMBERS = ("", "id", "idx", "index", "row", "row_id", "sample_id", "unnamed: 0")


def class_names(columns: Sequence[str]) -> NDArray[Any] | None:
    """Names of the classes from the names of the score columns, or ``None`` for a single column.

    The start that all names share is left off as long as what remains are whole numbers or the start ends in "_",
    "-", "." or a space: ``prob_cat, prob_dog`` stand for cat and dog, ``p0, p1, p2`` for 0, 1 and 2.
    """
    if len(columns) < 2:
        return None
    start = shared_start(columns).rstrip("0123456789")
    rest = [name[len(start) :] for name in columns]
    if all(is_whole(name) for name in rest):
        return as_names(rest)
    cut = max(start.rfind(mark) for mark in "_-. ") + 1
    names = [name[cut:] for name in columns]
    return np.array(names) if all(names) else np.array(columns)


def shared_start(names: Sequence[str]) -> str:
    """Return the common prefix of all names."""
    first, last = min(names), max(names)  # all others are between them, and share what these two share
    same = next((index for index, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:same]


def as_names(texts: Sequence[str]) -> NDArray[Any]:
    """Names of classes or labels: numbers if all of them are whole numbers, otherwise text."""
    if all(is_whole(text.removesuffix(".0")) for text in texts):
        return np.array([int(text.removesuffix(".0")) for text in texts])
    return np.array(texts)


def as_numbers(names: Sequence[Any]) -> list[int] | None:
    """The integer labels that names stand for: 1 for 1, 1.0, True, "1.0" and "true"; ``None`` if one is no number."""
    found = [_as_number(name) for name in names]
    return None if None in found else [number for number in found if number is not None]


def _as_number(name: Any) -> int | None:
    text = str(name).strip().lower()
    if text in TRUTH:
        return TRUTH[text]
    digits = text.removesuffix(".0")
    return int(digits) if is_whole(digits) else None


def is_whole(text: str) -> bool:
    """Whether a text is a whole number as Python writes it; 07 is a name."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and (text == "0" or not digits.startswith("0")) and len(digits) < 19

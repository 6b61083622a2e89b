"""Indexes of pandas objects that are matched by position, where the first of them is not a table of scores."""

from __future__ import annotations

from typing import Any

from mixnmatch._engine.frames import check_aligned


def check_same_index(what: str, first: Any, **others: Any) -> None:
    """Raise an error if pandas objects have another index than the first, which is called ``what``."""
    try:
        check_aligned(first, **others)
    except ValueError as error:
        raise ValueError(str(error).replace("scores", what)) from None

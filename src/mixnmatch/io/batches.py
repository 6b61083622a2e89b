"""Rows of a table batch by batch, all of their columns included: what `apply` reads and writes.

A format that can do this gives :class:`Rows` (``Format.open_rows``) and takes batches in a sink (``Format.make_sink``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from mixnmatch.io.columns import Columns


@dataclass(frozen=True)
class RowBatch:
    """Some rows of a table.

    Attributes
    ----------
    start : int
        Number of the first row.
    scores : array of shape (m, L) or (m,)
        The scores as numbers.
    cells : list of list, or None
        All cells of the rows, in the order of the columns, as they stand in the file.
    record : object, or None
        The same as a record batch of pyarrow; either of the two is given.
    """

    start: int
    scores: NDArray[Any]
    cells: list[list[str]] | None = None
    record: Any = None


class Rows(Protocol):
    """Rows of a file with all of their columns."""

    names: tuple[str, ...]
    columns: Columns
    class_names: NDArray[Any] | None
    n_rows: int | None
    lists: bool

    def batches(self) -> Iterator[RowBatch]:
        """The rows, some at a time."""

    def arrow_fields(self, arrow: Any) -> list[Any]:
        """Names and types of the columns for pyarrow."""

    def row_name(self, batch: RowBatch, row: int) -> str:
        """Where a row of a batch is, for messages."""


class Sink(Protocol):
    """Output for batches, used as a context manager."""

    def write(self, batch: RowBatch, added: NDArray[Any]) -> None:
        """Write rows with further columns, the columns of ``added``."""

    def __enter__(self) -> Sink:
        """Begin to write."""

    def __exit__(self, *error: object) -> None:
        """Write what is left, unless there was an error; the file itself stays open."""


def free_names(taken: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return names that are not taken, with one number appended to all of them where necessary."""
    names, number = list(wanted), 1
    while set(names) & set(taken):
        number += 1
        names = [f"{name}_{number}" for name in wanted]
    return names

"""The registry of file formats: one module and one line here for each, open to other packages.

A package adds a format with :func:`register_format`, or without being imported first through an entry point of the
group ``mixnmatch.formats`` that names a :class:`Format`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from os import PathLike
from pathlib import Path
from typing import IO, Any

from numpy.typing import NDArray

from mixnmatch._engine.steps import Progress
from mixnmatch.io.files import ScoreTable, check_input, unknown_ending

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Request:
    """Options for reading a file; :func:`mixnmatch.io.read_table` explains them."""

    logits: bool | None = None
    labels: str | PathLike[str] | None = None
    label_column: str | None = None
    columns: Sequence[str] = ()
    weights: str | None = None
    classes: Sequence[str] | None = None
    need_labels: bool = True
    progress: Progress | None = None
    find_columns: Callable[[Sequence[str]], Sequence[str]] | None = None


@dataclass(frozen=True)
class Format:
    """A kind of file.

    Attributes
    ----------
    endings : tuple of str
        How names of such files end, in lower case, such as ``(".csv", ".csv.gz")``.
    summary : str
        What such a file holds, in one line.
    read : callable
        ``read(path, request)`` returns a :class:`ScoreTable`. It raises :class:`FileError` for what cannot be used.
    write : callable, optional
        ``write(file, arrays, path)`` writes to an open binary file. ``arrays`` starts with the scores, under the name
        "probs" or "logits", and may have "labels", "weights" and "classes". ``path`` is for messages.
    named_columns : bool
        Whether columns have names, so that options choose among them.
    separate_labels : bool
        Whether labels are in another file.
    folders : bool
        Whether a folder of such files is one table.
    open_rows : callable, optional
        ``open_rows(path, request)`` returns rows that can be read batch by batch with all of their columns; see
        :mod:`mixnmatch.io.batches`.
    make_sink : callable, optional
        ``make_sink(file, rows, names, path)`` returns what such batches, with further columns, are written to.
    """

    endings: tuple[str, ...]
    summary: str
    read: Callable[[Path, Request], ScoreTable]
    write: Callable[[IO[bytes], Arrays, Path], None] | None = None
    named_columns: bool = False
    separate_labels: bool = False
    folders: bool = False
    open_rows: Callable[[Path, Request], Any] | None = None
    make_sink: Callable[[IO[bytes], Any, Sequence[str], Path], Any] | None = None


# Where formats are defined; a module is imported when a file of its kind comes up.
_BUILT_IN = {
    ".npz": "mixnmatch.io.arrays:NPZ",
    ".npy": "mixnmatch.io.arrays:NPY",
    ".csv": "mixnmatch.io.text:CSV",
    ".csv.gz": "mixnmatch.io.text:CSV",
    ".tsv": "mixnmatch.io.text:CSV",
    ".parquet": "mixnmatch.io.parquet:PARQUET",
}
_added: dict[str, Format] = {}


def register_format(format: Format) -> None:  # noqa: A002
    """Add a format for the rest of the process; a later one takes the endings of an earlier one."""
    for ending in format.endings:
        if not ending.startswith(".") or ending != ending.lower():
            msg = f"endings start with a dot and are in lower case, got {ending!r}"
            raise ValueError(msg)
        if ending in _BUILT_IN:
            msg = f"files ending in {ending} are read by this package"
            raise ValueError(msg)
        _added[ending] = format


def unregister_format(format: Format) -> None:  # noqa: A002
    """Remove a format."""
    for ending in [key for key, value in _added.items() if value is format]:
        del _added[ending]


def format_of(path: Path, *, writing: bool = False) -> Format:
    """The format of a file by the end of its name.

    Raises
    ------
    FileError
        If no format has such an ending.
    """
    name = path.name.lower()
    found = _match(name, {**_BUILT_IN, **_added}) or _match(name, _from_other_packages())
    if found is None and path.is_dir() and not path.suffix and not writing:
        found = _BUILT_IN[".parquet"]
    kind = None if found is None else _loaded(found)
    if kind is None or (writing and kind.write is None):
        if not writing:
            check_input(path)
        raise unknown_ending(path, writable_endings() if writing else readable_endings(), writing=writing)
    return kind


def readable_endings() -> tuple[str, ...]:
    """Endings of names of files that can be read."""
    return tuple(_everything())


def writable_endings() -> tuple[str, ...]:
    """Endings of names of files that can be written."""
    return tuple(ending for ending, found in _everything().items() if _loaded(found).write is not None)


def _everything() -> dict[str, str | Format | Any]:
    return {**_BUILT_IN, **_added, **_from_other_packages()}


def _match(name: str, endings: dict[str, Any]) -> Any:
    """Return the format with the longest matching file ending."""
    ends = [ending for ending in endings if name.endswith(ending)]
    return endings[max(ends, key=len)] if ends else None


def _from_other_packages() -> dict[str, Format]:
    found: dict[str, Format] = {}
    for entry in entry_points(group="mixnmatch.formats"):
        loaded = entry.load()
        found |= {ending: loaded for ending in loaded.endings if ending not in _BUILT_IN}
    return found


def _loaded(found: str | Format) -> Format:
    if isinstance(found, Format):
        return found
    module, _, name = found.partition(":")
    loaded: Format = getattr(import_module(module), name)
    return loaded

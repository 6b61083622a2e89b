"""Contents of a score file, and checks of file names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.errors import InputError
from mixnmatch._engine.rows import Rows


class FileError(InputError):
    """A file cannot be used; the message names it and says why, in one line.

    Attributes
    ----------
    path : Path or str
        The file.
    template, fields
        The rest of the message; placeholders stand for options, which every surface names in its own way.
    """

    def __init__(self, path: Path | str, template: str, **fields: Any):
        self.path = path
        super().__init__(template, **fields)

    def text(self, options: Mapping[str, str]) -> str:
        """Return the message with the option names of a surface (Python or the command line)."""
        return f"{self.path}: {super().text(options)}"

    def of(self, path: Path | str) -> FileError:
        """The same message about another file."""
        return FileError(path, self.template, **self.fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.path, self.template, self.fields)


def _again(path: Path | str, template: str, fields: dict[str, Any]) -> FileError:
    return FileError(path, template, **fields)


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of a classifier as read from a file; nothing about the values has been checked yet.

    Attributes
    ----------
    path : Path
        The file.
    scores : array of shape (n, L) or (n,)
        Logits or probabilities; a vector is the positive class of a binary problem.
    logits : bool
        Which of the two they are.
    labels : array of shape (n,), or None
        Column indices, or names that ``classes`` lists. Text is an array of Python objects, each name kept once.
    weights : array of shape (n,), or None
        Weight of each row.
    classes : array of shape (L,), or None
        Names of the classes, in the order of the columns.
    columns : tuple of str
        What the score columns are called in the file, where it has names for them.
    rows : Rows, or None
        The samples, where they have been checked.
    """

    path: Path
    scores: NDArray[Any]
    logits: bool
    labels: NDArray[Any] | None = None
    weights: NDArray[Any] | None = None
    classes: NDArray[Any] | None = None
    columns: tuple[str, ...] = ()
    rows: Rows | None = None

    @property
    def checked(self) -> Rows:
        """Check the samples and return them."""
        assert self.rows is not None
        return self.rows

    @property
    def n_rows(self) -> int:
        """Number of samples."""
        return int(self.scores.shape[0])

    @property
    def n_classes(self) -> int:
        """Number of classes, 2 for a vector."""
        return 2 if self.scores.ndim == 1 else int(self.scores.shape[1])


def is_text(labels: NDArray[Any] | None) -> bool:
    """Whether labels are names rather than numbers."""
    return labels is not None and labels.dtype.kind in "USO"


def shared_text(names: Sequence[str], codes: NDArray[Any]) -> NDArray[Any]:
    """Return one name for each code; each distinct name is stored once."""
    found = np.empty(len(names), dtype=object)
    found[:] = names
    return np.asarray(found[codes])


def check_input(path: Path, *, folders: bool = False) -> None:
    """Raise an error unless ``path`` is a file with something in it (or a folder, where those are allowed)."""
    try:
        if path.is_dir():
            if folders:
                return
            raise FileError(path, "is a folder, not a file")
        if not path.exists():
            raise FileError(path, "no such file{hint}", hint=_similar(path))
        if not path.is_file():
            raise FileError(path, "is not a regular file")
        if path.stat().st_size == 0:
            raise FileError(path, "the file is empty")
    except OSError as error:
        raise FileError(path, "{why}", why=(error.strerror or str(error)).lower()) from None
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, "{why}", why=str(error)) from None  # such as a NUL in the name


def check_output(path: Path, endings: Sequence[str], *, force: bool = False) -> None:
    """Raise an error unless ``path`` can be written; to be called before the work starts.

    Parameters
    ----------
    path : Path
        File to be written.
    endings : sequence of str
        Endings of file names that can be written.
    force : bool
        Whether an existing file may be overwritten.
    """
    if not path.name.lower().endswith(tuple(endings)):
        raise FileError(path, "cannot write {kind}; the name must end in {endings}", **_kinds(path, endings))
    if path.is_dir():
        raise FileError(path, "is a folder; name a file in it")
    if not path.parent.is_dir():
        raise FileError(path, "the folder {folder} does not exist", folder=path.parent)
    if path.exists() and not force:
        raise already_there(path)


def already_there(path: Path) -> FileError:
    """The error for a file that would be overwritten."""
    return FileError(path, "exists already; pass {force} to overwrite it")


def unknown_ending(path: Path, endings: Sequence[str], *, writing: bool = False) -> FileError:
    """The error for a file that no reader, or no writer, takes."""
    if path.suffix.lower() in (".p", ".pkl", ".pickle", ".pt", ".pth", ".joblib") and not writing:
        why = "pickles can run code when they are opened, so they are not read; save arrays with"
        return FileError(path, f"{why} numpy.savez(file, logits=..., labels=...)")
    verb = "write" if writing else "read"
    return FileError(path, f"cannot {verb} {{kind}}; the name must end in {{endings}}", **_kinds(path, endings))


def listed(names: Sequence[Any], limit: int = 12) -> str:
    """Names in one line, the first few of many."""
    shown = ", ".join(f"'{name!s:.60}'" for name in names[:limit])
    return shown if len(names) <= limit else f"{shown}, ... ({len(names)} in all)"


def _kinds(path: Path, endings: Sequence[str]) -> dict[str, str]:
    kind = f"{path.suffix!r} files" if path.suffix else "files without an ending"
    either = f"{', '.join(endings[:-1])} or {endings[-1]}" if len(endings) > 1 else endings[0]
    return {"kind": kind, "endings": either}


def _similar(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (the folder {path.parent} does not exist)"
    close = get_close_matches(path.name, [other.name for other in path.parent.iterdir()], n=1, cutoff=0.75)
    return f". Did you mean {path.parent / close[0]}?" if close else ""

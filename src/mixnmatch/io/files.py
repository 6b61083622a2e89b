"""What a file of scores holds once it is read, and the checks that every file name goes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from numpy.typing import NDArray


class FileError(ValueError):
    """A file cannot be used; the message names it and says why, in one line."""

    def __init__(self, path: Path | str, why: str):
        super().__init__(f"{path}: {why}")


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
        Column indices, or names that ``classes`` lists.
    weights : array of shape (n,), or None
        Weight of each row.
    classes : array of shape (L,), or None
        Names of the classes, in the order of the columns.
    columns : tuple of str
        What the score columns are called in the file, where it has names for them.
    """

    path: Path
    scores: NDArray[Any]
    logits: bool
    labels: NDArray[Any] | None = None
    weights: NDArray[Any] | None = None
    classes: NDArray[Any] | None = None
    columns: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """Number of samples."""
        return int(self.scores.shape[0])

    @property
    def n_classes(self) -> int:
        """Number of classes, 2 for a vector."""
        return 2 if self.scores.ndim == 1 else int(self.scores.shape[1])


def check_input(path: Path, *, folders: bool = False) -> None:
    """Raise an error unless ``path`` is a file with something in it (or a folder, where those are allowed)."""
    try:
        if path.is_dir():
            if folders:
                return
            raise FileError(path, "is a folder, not a file")
        if not path.exists():
            raise FileError(path, f"no such file{_similar(path)}")
        if not path.is_file():
            raise FileError(path, "is not a regular file")
        if path.stat().st_size == 0:
            raise FileError(path, "the file is empty")
    except OSError as error:
        raise FileError(path, (error.strerror or str(error)).lower()) from None


def check_output(path: Path, endings: Sequence[str], *, force: bool = False) -> None:
    """Raise an error unless ``path`` can be written: asked before the work starts, not after it.

    Parameters
    ----------
    path : Path
        File to be written.
    endings : sequence of str
        Endings of file names that can be written.
    force : bool
        Whether an existing file may be overwritten.
    """
    if path.suffix.lower() not in endings:
        raise FileError(path, f"cannot write {_kind(path)}; the name must end in {_either(endings)}")
    if path.is_dir():
        raise FileError(path, "is a folder; name a file in it")
    if not path.parent.is_dir():
        raise FileError(path, f"the folder {path.parent} does not exist")
    if path.exists() and not force:
        raise FileError(path, "exists already; pass --force to overwrite it")


def unknown_ending(path: Path, endings: Sequence[str]) -> FileError:
    """The error for a file that no reader takes."""
    if path.suffix.lower() in (".p", ".pkl", ".pickle", ".pt", ".pth", ".joblib"):
        why = "pickles can run code when they are opened, so they are not read; save arrays with"
        return FileError(path, f"{why} numpy.savez(file, logits=..., labels=...)")
    return FileError(path, f"cannot read {_kind(path)}; the name must end in {_either(endings)}")


def listed(names: Sequence[Any], limit: int = 12) -> str:
    """Names in one line, the first few of many."""
    shown = ", ".join(f"'{name}'" for name in names[:limit])
    return shown if len(names) <= limit else f"{shown}, ... ({len(names)} in all)"


def _kind(path: Path) -> str:
    return f"{path.suffix!r} files" if path.suffix else "files without an ending"


def _either(endings: Sequence[str]) -> str:
    return f"{', '.join(endings[:-1])} or {endings[-1]}" if len(endings) > 1 else endings[0]


def _similar(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (the folder {path.parent} does not exist)"
    close = get_close_matches(path.name, [other.name for other in path.parent.iterdir()], n=1, cutoff=0.75)
    return f"; did you mean {path.parent / close[0]}?" if close else ""

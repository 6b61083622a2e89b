"""Writing calibrated probabilities, in one move: a reader finds the old file or the new one."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._files import atomic_write
from mixnmatch.io.files import FileError, unknown_ending

WRITABLE = (".npz", ".csv", ".parquet", ".npy")
Arrays = dict[str, NDArray[Any]]


def write_table(
    path: str | PathLike[str],
    scores: NDArray[Any],
    *,
    logits: bool = False,
    labels: NDArray[Any] | None = None,
    weights: NDArray[Any] | None = None,
    classes: NDArray[Any] | None = None,
) -> None:
    """Write a table that :func:`mixnmatch.io.read_table` reads.

    Parameters
    ----------
    path : path
        File ending in ``.npz``, ``.csv``, ``.parquet`` or ``.npy`` (scores only).
    scores : array of shape (n, L)
        Probabilities, or logits.
    logits : bool
        Which of the two they are: the name of the array in ``.npz``.
    labels, weights : arrays of shape (n,), optional
        What else is known of the rows.
    classes : array of shape (L,), optional
        Names of the columns.
    """
    path = Path(path)
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        raise unknown_ending(path, WRITABLE)
    arrays: Arrays = {"logits" if logits else "probs": scores}
    arrays |= {} if labels is None else {"labels": labels}
    arrays |= {} if weights is None else {"weights": weights}
    arrays |= {} if classes is None else {"classes": classes}
    writer(path, arrays)


def _write_npz(path: Path, arrays: Arrays) -> None:
    def write(file: IO[bytes]) -> None:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # names of arrays, not options

    atomic_write(path, write)


def _write_npy(path: Path, arrays: Arrays) -> None:
    atomic_write(path, lambda file: np.save(file, _scores(arrays), allow_pickle=False))


def _write_csv(path: Path, arrays: Arrays) -> None:
    names, columns = _columns(path, arrays)
    scores = _scores(arrays)
    extra = [column.tolist() for column in columns]
    cell = "%.9g" if scores.dtype == np.float32 else "%.17g"
    line = ",".join([cell] * scores.shape[1])

    def write(file: IO[bytes]) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        csv.writer(text, lineterminator="\n").writerow(names)
        cells = io.StringIO()
        quoted = csv.writer(cells, lineterminator="")
        for index, row in enumerate(scores):
            text.write(line % tuple(row.tolist()))
            for column in extra:
                cells.seek(0)
                cells.truncate()
                quoted.writerow([column[index]])
                text.write(f",{cells.getvalue()}")
            text.write("\n")
        text.flush()
        text.detach()

    atomic_write(path, write)


def _write_parquet(path: Path, arrays: Arrays) -> None:
    from mixnmatch.io.dataset import pyarrow

    arrow = pyarrow(path)
    names, extra = _columns(path, arrays)
    columns = [*np.asarray(_scores(arrays)).T, *extra]
    table = arrow.table([arrow.array(np.ascontiguousarray(column)) for column in columns], names=names)
    atomic_write(path, lambda file: arrow.parquet.write_table(table, file))


def _scores(arrays: Arrays) -> NDArray[Any]:
    return next(iter(arrays.values()))


def _columns(path: Path, arrays: Arrays) -> tuple[list[str], list[NDArray[Any]]]:
    """Names of all columns, and the columns beside the scores."""
    classes = arrays.get("classes")
    names = [str(name) for name in (range(_scores(arrays).shape[1]) if classes is None else classes.tolist())]
    extra = {name: arrays[key] for key, name in (("labels", "label"), ("weights", "weight")) if key in arrays}
    clash = set(names) & set(extra)
    if clash:
        raise FileError(path, f"a class is called {clash.pop()!r}, like another column; write an .npz file instead")
    return [*names, *extra], list(extra.values())


_WRITERS: dict[str, Callable[[Path, Arrays], None]] = {
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".npy": _write_npy,
}

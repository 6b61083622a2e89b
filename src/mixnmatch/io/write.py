"""Write calibrated probabilities atomically."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from mixnmatch._files import atomic_write
from mixnmatch.io.formats import Arrays, format_of


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
        File ending in ``.npz``, ``.csv``, ``.csv.gz``, ``.parquet``, ``.npy`` (scores only), or as another package has
        registered.
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
    write = format_of(path, writing=True).write
    assert write is not None
    arrays: Arrays = {"logits" if logits else "probs": scores}
    given = {"labels": labels, "weights": weights, "classes": classes}
    arrays |= {name: array for name, array in given.items() if array is not None}
    atomic_write(path, lambda file: write(file, arrays, path))

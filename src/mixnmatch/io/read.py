"""Reading a file of scores by the ending of its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.class_names import as_names
from mixnmatch.io.arrays import read_npy, read_npz
from mixnmatch.io.columns import resolve_labels
from mixnmatch.io.files import FileError, ScoreTable, check_input, unknown_ending

READABLE = (".npz", ".npy", ".csv", ".parquet")


def read_table(
    path: str | PathLike[str],
    *,
    logits: bool | None = None,
    labels: str | PathLike[str] | None = None,
    label_column: str | None = None,
    columns: Sequence[str] = (),
    weights: str | None = None,
    classes: Sequence[str] | None = None,
    need_labels: bool = True,
    progress: Callable[[int, int, str], None] | None = None,
) -> ScoreTable:
    """Read scores, labels and weights from a file.

    Parameters
    ----------
    path : path
        ``.npz`` with arrays ``logits`` or ``probs``, ``labels`` and optionally ``weights`` and ``classes``; ``.npy``
        with the scores, labels being in another file; ``.csv`` or ``.parquet`` with a row for each sample, a column
        for each class and one for the label. A folder of parquet files is read as one table.
    logits : bool, optional
        Whether scores are logits. By default the name of the array tells it in ``.npz``; elsewhere scores are
        probabilities. Nothing is guessed from values.
    labels : path, optional
        ``.npy`` file with the labels, for scores in ``.npy``.
    label_column : str, optional
        Column with the labels; "label" or "labels" by default.
    columns : sequence of str, optional
        Names of the score columns, or patterns such as ``prob_*``; by default all columns that are nothing else.
    weights : str, optional
        Array or column with the weights ("weights" by default, if there is one), or a ``.npy`` file.
    classes : sequence of str, optional
        Names of the classes, in the order of the columns.
    need_labels : bool
        Whether a file without labels is an error.
    progress : callable, optional
        Called with rows done, all rows and the name of a file, while parquet files are read.

    Raises
    ------
    FileError
        If the file cannot be used; the message says why.
    """
    path = Path(path)
    ending = path.suffix.lower()
    folder = path.is_dir() and ending not in (".npz", ".npy", ".csv")
    tabular = ending in (".csv", ".parquet") or folder
    if ending not in READABLE and not folder:
        check_input(path)
        raise unknown_ending(path, READABLE)
    _check_options(path, ending, tabular=tabular, labels=labels, label_column=label_column, columns=columns)
    if tabular:
        table = _read_tabular(path, ending, logits, label_column, columns, weights, need_labels, progress)
    elif ending == ".npz":
        table = read_npz(path, logits=logits, weights=weights, need_labels=need_labels)
    else:
        table = _read_pair(path, logits, labels, weights, need_labels)
    return _named(table, None if classes is None else as_names(classes))


def _check_options(path: Path, ending: str, *, tabular: bool, labels: Any, label_column: Any, columns: Any) -> None:
    """Options that a kind of file has no use for are errors, not ignored."""
    if labels is not None and ending != ".npy":
        raise FileError(path, "--labels is for scores in .npy; this file holds its labels itself")
    if (label_column is not None or columns) and not tabular:
        raise FileError(path, f"--label-column and --columns are for .csv and .parquet, not for {ending}")


def _read_tabular(
    path: Path,
    ending: str,
    logits: bool | None,
    label: str | None,
    patterns: Sequence[str],
    weights: str | None,
    need_labels: bool,
    progress: Callable[[int, int, str], None] | None,
) -> ScoreTable:
    asked: dict[str, Any] = {"label": label, "weights": weights, "patterns": patterns, "need_labels": need_labels}
    if ending == ".csv":
        from mixnmatch.io.text import read_csv

        found = read_csv(path, **asked)
    else:
        from mixnmatch.io.parquet import read_parquet

        found = read_parquet(path, **asked, progress=progress)
    return ScoreTable(
        path,
        found.scores,
        bool(logits),
        labels=found.labels,
        weights=found.weights,
        columns=found.columns.scores,
    )


def _read_pair(
    path: Path, logits: bool | None, labels: str | PathLike[str] | None, weights: str | None, need_labels: bool
) -> ScoreTable:
    scores = read_npy(path)
    if labels is None and need_labels:
        raise FileError(path, "holds scores only; name the file with the labels: --labels LABELS.npy")
    return ScoreTable(
        path,
        scores,
        bool(logits),
        labels=None if labels is None else _vector(Path(labels), scores),
        weights=None if weights is None else _vector(Path(weights), scores),
    )


def _vector(path: Path, scores: NDArray[Any]) -> NDArray[Any]:
    if path.suffix.lower() != ".npy":
        check_input(path)
        raise FileError(path, "should be a .npy file, like the scores")
    values = np.array(read_npy(path))
    if values.ndim == 0 or len(values) != len(np.atleast_1d(scores)):
        raise FileError(path, f"has shape {values.shape}, but there are {len(np.atleast_1d(scores))} rows of scores")
    return values


def _named(table: ScoreTable, classes: NDArray[Any] | None) -> ScoreTable:
    """The table with labels and classes that fit each other."""
    names = table.classes if classes is None else classes
    if table.scores.ndim not in (1, 2):
        raise FileError(
            table.path, f"scores must have one row a sample and one column a class, not shape {table.scores.shape}"
        )
    if names is not None and (names.ndim != 1 or len(names) != table.n_classes):
        given = names.shape[0] if names.ndim == 1 else names.shape
        raise FileError(table.path, f"there are {given} names of classes for {table.n_classes} columns of scores")
    labels, names = resolve_labels(table.path, table.labels, table.columns, names)
    return ScoreTable(
        table.path, table.scores, table.logits, labels=labels, weights=table.weights, classes=names,
        columns=table.columns,
    )  # fmt: skip

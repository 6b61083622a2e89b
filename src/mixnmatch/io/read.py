"""Reading scores, labels and weights from any file that some format knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from mixnmatch._engine.class_names import as_names
from mixnmatch._engine.steps import Progress
from mixnmatch.io.columns import resolve_labels
from mixnmatch.io.files import FileError, ScoreTable, listed
from mixnmatch.io.formats import Format, Request, format_of


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
    progress: Progress | None = None,
    find_columns: Callable[[Sequence[str]], Sequence[str]] | None = None,
) -> ScoreTable:
    """Read scores, labels and weights from a file.

    Parameters
    ----------
    path : path
        ``.npz`` with arrays ``logits`` or ``probs``, ``labels`` and optionally ``weights`` and ``classes``; ``.npy``
        with the scores, labels being in another file; ``.csv``, ``.csv.gz`` or ``.parquet`` with a row for each sample,
        a column for each class and one for the label. Columns of a .csv file are separated by commas, semicolons or
        tabs. In a .parquet file the scores may also be one column of lists. A folder of parquet files is read as one
        table.
    logits : bool, optional
        Whether scores are logits. By default the name of the array tells it in ``.npz``, and that of a column of lists
        called "logits" in ``.parquet``; elsewhere scores are probabilities. Nothing is guessed from values.
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
    find_columns : callable, optional
        Given the names of all columns that are neither label nor weight, returns those of the scores, or none if it
        cannot tell; other columns are then no error. For tables that hold more than scores.

    Raises
    ------
    FileError
        If the file cannot be used; the message says why.
    """
    path = Path(path)
    request = Request(
        logits, labels, label_column, tuple(columns), weights, classes, need_labels, progress, find_columns
    )
    kind = format_of(path)
    check_request(path, kind, request)
    return _named(kind.read(path, request), None if classes is None else as_names(classes))


def check_request(path: Path, kind: Format, request: Request) -> None:
    """Raise an error for options that do not apply to a kind of file."""
    if request.labels is not None and not kind.separate_labels:
        raise FileError(path, "{labels_option} is for scores in .npy; this file holds its labels itself")
    if (request.label_column is not None or request.columns) and not kind.named_columns:
        why = "{label_column_option} and {columns_option} are for .csv and .parquet, not for {ending}"
        raise FileError(path, why, ending=kind.endings[0])


def _named(table: ScoreTable, classes: NDArray[Any] | None) -> ScoreTable:
    """The table with labels and classes that fit each other."""
    names = table.classes if classes is None else classes
    if classes is not None and table.classes is not None:
        own, asked = table.classes.tolist(), classes.tolist()
        if own != asked and set(own) == set(asked):
            why = "names its classes itself, in the order {own}: leave out {classes}"
            raise FileError(table.path, why, own=listed(own))
    if table.scores.ndim not in (1, 2):
        why = "scores must have a row for each sample and a column for each class, not shape {shape}"
        raise FileError(table.path, why, shape=table.scores.shape)
    if names is not None and (names.ndim != 1 or len(names) != table.n_classes):
        given = names.shape[0] if names.ndim == 1 else names.shape
        why = "there are {given} names of classes for {columns_} columns of scores"
        raise FileError(table.path, why, given=given, columns_=table.n_classes)
    labels, names = resolve_labels(table.path, table.labels, table.columns, names)
    return replace(table, labels=labels, classes=names)

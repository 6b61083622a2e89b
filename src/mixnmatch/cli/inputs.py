"""Reading the files that commands are given, and measuring what is in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.along_rows import both_columns
from mixnmatch._engine.errors import InputError
from mixnmatch._engine.frames import class_called, order_by_name, vector_class, warn_of_position
from mixnmatch._engine.rows import Rows
from mixnmatch.cli.display import plural
from mixnmatch.cli.options import Reading
from mixnmatch.io import FileError, ScoreTable, read_table
from mixnmatch.io.columns import columns_of_classes
from mixnmatch.io.files import is_text, listed

# Bytes of mapped scores that are calibrated at a time.
MAPPED_BYTES = 1 << 24
_UNUSED = ". No label is called {names}: if such columns are not scores, name those that are: {columns}"


def read_checked(
    path: Path,
    reading: Reading,
    *,
    need_labels: bool = True,
    logits: bool | None = None,
    classes: NDArray[Any] | None = None,
    vector_known: bool = True,
    progress: Callable[[int, int, str], None] | None = None,
    find_columns: Callable[[Sequence[str]], Sequence[str]] | None = None,
) -> ScoreTable:
    """Read a file and check all of its values, so that errors name the file.

    ``logits`` is what scores are taken for, and ``classes`` what text labels name, where neither the file nor the user
    says it; of a vector only if it is known that it is about the second of them.
    """
    tells_kind = path.suffix.lower() == ".npz"  # the name of the array says what the scores are
    table = read_table(
        path,
        logits=logits if reading.logits is None and not tells_kind else reading.logits,
        labels=reading.labels,
        label_column=reading.label_column,
        columns=reading.columns,
        weights=reading.weights,
        classes=reading.classes,
        need_labels=need_labels,
        progress=progress,
        find_columns=find_columns,
    )
    if reading.importance and table.weights is None:
        raise FileError(path, "--importance is about weights, but there are none; name them: {weights}")
    if table.classes is None and classes is not None and is_text(classes):
        table = replace(table, classes=_names_like(table, classes, vector_known))
    # Numbers beside names are positions.
    names = None if is_text(table.classes) and table.labels is not None and not is_text(table.labels) else table.classes
    try:
        rows = door.rows(
            table.scores, table.labels, table.weights, logits=table.logits, classes=names,
            weights=reading.weighting,
        )  # fmt: skip
    except InputError as error:
        unused = _columns_without_labels(table) if "{declare_logits}" in error.template else []
        more = {"names": listed(unused)} if unused else {}
        declare = {"declare_logits": "call the array 'logits'"} if tells_kind else {}
        raise FileError(path, error.template + (_UNUSED if unused else ""), **error.fields | declare | more) from None
    except (ValueError, TypeError) as error:
        raise FileError(path, "{why}", why=str(error)) from None
    return replace(table, rows=rows if names is table.classes else replace(rows, classes=table.classes))


def _names_like(table: ScoreTable, classes: NDArray[Any], vector_known: bool) -> NDArray[Any] | None:
    """Names of the classes of a table without any, where it is clear from those that it is read for."""
    if table.scores.ndim == 2:
        return classes if is_text(table.labels) else None
    place = class_called(table.columns[0] if table.columns else None, classes)
    if len(classes) != 2 or (place is None and not vector_known):
        return None
    return classes[::-1] if place == 0 else classes


def _columns_without_labels(table: ScoreTable) -> list[str]:
    """Columns of scores that no label is called like; none if labels are numbers."""
    if table.classes is None or table.labels is None or not is_text(table.classes):
        return []
    seen = set(table.labels.tolist())
    return [str(name) for name in table.classes.tolist() if name not in seen] if len(seen) > 1 else []


def find_scores_of(map_: Any, *, in_file_order: bool = False) -> Callable[[Sequence[str]], Sequence[str]]:
    """A function that finds the columns of scores that a map is to be applied to among those of a table.

    They are those that the map was fitted on (`fit` notes their names in its file), or those that are called like the
    map's classes, all with the same start. Their order is that of the map, or else that of the file, where the second
    of two classes is the positive one.
    """
    known = [str(name) for name in map_.classes_.tolist()]
    fitted_on = _fitted_on(map_)

    def find(names: Sequence[str]) -> Sequence[str]:
        found = columns_of_classes(names, known)
        if fitted_on and set(fitted_on) <= set(names):
            found = fitted_on
        return tuple(name for name in names if name in found) if in_file_order else found

    return find


def _fitted_on(map_: Any) -> tuple[str, ...]:
    """Columns that a map was fitted on, in the order of its classes, if its file says so."""
    noted = (getattr(map_, "metadata_", None) or {}).get("columns")
    return tuple(noted) if isinstance(noted, list) and all(isinstance(name, str) for name in noted) else ()


def names_of(table: ScoreTable) -> NDArray[Any] | None:
    """Names of the classes of a table, where it has some."""
    if table.classes is None and table.labels is not None and is_text(table.labels):
        return np.array(sorted(set(table.labels.tolist())))
    return table.classes


def about(table: ScoreTable) -> str:
    """A file in a line."""
    kind = "logits" if table.logits else "probabilities"
    weighted = ", weighted" if table.weights is not None else ""
    names = "" if table.classes is None else f" ({_names(table.classes)})"
    return f"{table.path}: {plural(table.n_rows, 'row')}, {plural(table.n_classes, 'class')}{names}, {kind}{weighted}"


def _names(classes: NDArray[Any]) -> str:
    names = [str(name) for name in classes.tolist()]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]}, ..., {names[-1]}"


def load_map(path: Path) -> Any:
    """A saved map, or an error that names the file."""
    from mixnmatch.io.files import check_input
    from mixnmatch.persistence import load

    check_input(path)
    return load(path)


def _row_wise(function: Callable[[NDArray[Any]], NDArray[Any]], scores: NDArray[Any]) -> NDArray[Any]:
    """A function of all rows; where the scores are in a mapped file, so is the result."""
    from mixnmatch._engine.passes import row_ranges
    from mixnmatch._engine.spool import spool

    if not isinstance(scores, np.memmap):
        return function(scores)
    row_bytes = 8 * (1 if scores.ndim == 1 else scores.shape[1])
    ranges = row_ranges(len(scores), row_bytes, block_bytes=MAPPED_BYTES)
    with spool((function(scores[start:stop]), None) for start, stop in ranges) as rows:
        return rows.scores


def _in_order(table: ScoreTable, order: list[int]) -> ScoreTable:
    """The table with its columns, and their names, in another order; a vector becomes two columns."""
    vector, logits = table.scores.ndim == 1, table.logits

    def in_order(rows: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray((both_columns(rows, logits=logits) if vector else rows)[:, order])

    scores = _row_wise(in_order, table.scores)
    classes = None if table.classes is None else table.classes[order]
    rows = table.rows
    if rows is not None:
        labels = None if rows.labels is None else np.argsort(order)[rows.labels]
        names = None if rows.classes is None else rows.classes[order]
        rows = replace(rows, scores=replace(rows.scores, values=scores), labels=labels, classes=names)
    return replace(table, scores=scores, classes=classes, rows=rows)


def aligned(table: ScoreTable, map_: Any, map_path: Path) -> ScoreTable:
    """The table with its columns in the order of the classes that a map was fitted with."""
    order = order_for(table, map_, map_path)
    return table if order is None else _in_order(table, order)


def order_for(table: ScoreTable, map_: Any, map_path: Path) -> list[int] | None:
    """Column of each class that a map was fitted with, or an error if the two do not fit; None for the same order.

    Where both have names for the classes, columns are matched by name, those of other names by the names of the columns
    that the map was fitted on; otherwise by position. A single column holds the class whose name it has.
    """
    if table.logits != map_.takes_logits:
        have, want = ("logits", "probabilities") if table.logits else ("probabilities", "logits")
        why = "holds {have}, but {map} was fitted on {want}"
        raise FileError(table.path, why, have=have, want=want, map=map_path)
    if table.n_classes != map_.n_classes_:
        why = "has scores of {found} classes, but {map} was fitted with {known}"
        if table.columns:
            why += "; the columns read as scores are {names}: name those that are, {columns}"
        fields = {"found": table.n_classes, "known": map_.n_classes_, "map": map_path, "names": listed(table.columns)}
        raise FileError(table.path, why, **fields)
    known, names = map_.classes_, table.classes
    if table.scores.ndim == 1:
        about = names[1] if names is not None else table.columns[0] if table.columns else None
        try:
            return [1, 0] if vector_class(about, known, known=map_._knows_vector()) == 0 else None
        except InputError as error:
            raise FileError(table.path, error.template, **error.fields) from None
    if names is None:
        return None
    noted = _fitted_on(map_)
    for given, wanted in ((table.columns, known.tolist()), (names.tolist(), known.tolist()), (table.columns, noted)):
        order = order_by_name(given, wanted) if len(given) == len(known) == len(wanted) else None
        if order is not None:
            return None if (order == np.arange(len(order))).all() else order.tolist()
    if not is_text(known):
        if is_text(names):
            warn_of_position(names.tolist(), known)
        return None
    why = "its classes are {found}, but {map} was fitted with {known}"
    raise FileError(table.path, why, found=listed(names.tolist()), known=listed(known.tolist()), map=map_path)


def evaluation_rows(path: Path, table: ScoreTable, reading: Reading) -> Rows:
    """The samples of a file to judge on."""
    return same_kind(reading.read(path, like=table), table).checked


def same_kind(other: ScoreTable, table: ScoreTable) -> ScoreTable:
    """The evaluation file with its columns as in the calibration file, or an error if the two do not fit."""
    if other.logits != table.logits:
        have, want = ("logits", "probabilities") if other.logits else ("probabilities", "logits")
        raise FileError(other.path, "holds {have}, but {first} holds {want}", have=have, want=want, first=table.path)
    if other.n_classes != table.n_classes or other.scores.ndim != table.scores.ndim:
        why = "has {found} classes, but {first} has {known}"
        raise FileError(other.path, why, found=other.n_classes, known=table.n_classes, first=table.path)
    if other.classes is None or table.classes is None or other.classes.tolist() == table.classes.tolist():
        return other
    names, known = other.classes.tolist(), table.classes.tolist()
    if other.scores.ndim == 1 or set(names) != set(known):
        why = "its classes are {found}, but those of {first} are {known}"
        raise FileError(other.path, why, found=listed(names), known=listed(known), first=table.path)
    return _in_order(other, [names.index(name) for name in known])

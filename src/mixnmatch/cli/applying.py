"""Applying a map to files: tables batch by batch, with all of their columns; arrays as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.errors import InputError
from mixnmatch._engine.steps import Progress
from mixnmatch._files import atomic_folder, atomic_write
from mixnmatch.cli.inputs import aligned, find_scores_of, order_for
from mixnmatch.cli.options import Reading
from mixnmatch.cli.streams import is_standard, standard_output
from mixnmatch.io import FileError, Format, Request, ScoreTable, check_output, writable_endings, write_table
from mixnmatch.io.batches import RowBatch, free_names
from mixnmatch.io.columns import CALIBRATED
from mixnmatch.io.formats import format_of
from mixnmatch.io.read import check_request

# What standard output is written as.
STANDARD_FORMAT = Path("standard-output.csv")


def output_format(output: Path) -> Format:
    """The format of what is written."""
    return format_of(STANDARD_FORMAT if is_standard(output) else output, writing=True)


def is_table(scores: Path, output: Path) -> bool:
    """Whether rows of a table, with all of their columns, are to become rows of another one."""
    if format_of(scores).open_rows is None:
        return False
    return (scores.is_dir() and _names_a_folder(output)) or output_format(output).make_sink is not None


def _names_a_folder(output: Path) -> bool:
    return not is_standard(output) and output.suffix.lower() in ("", ".parquet")


def check_applied_output(scores: Path, output: Path, *, force: bool) -> None:
    """Raise an error unless ``output`` can be written: a file for a file, a folder for a folder."""
    if is_standard(output):
        return
    if not (scores.is_dir() and _names_a_folder(output)):
        check_output(output, writable_endings(), force=force)
        return
    if not output.parent.is_dir():
        raise FileError(output, "the folder {folder} does not exist", folder=output.parent)
    if output.resolve() != scores.resolve() and output.resolve().is_relative_to(scores.resolve()):
        raise FileError(output, "is inside of {scores}, and would become a part of what is read", scores=scores)
    if not output.exists():
        return
    if not force:
        raise FileError(output, "exists already; pass {force} to overwrite it")
    others = [path for path in output.rglob("*") if path.is_file() and path.suffix.lower() != ".parquet"]
    if not output.is_dir() or others:
        what = f"holds {others[0].relative_to(output)}" if others else "is a file"
        why = "{what}; only a folder of nothing but .parquet files is overwritten"
        raise FileError(output, why, what=what)


def calibrate_arrays(map_: Any, map_file: Path, scores: Path, reading: Reading, output: Path) -> int:
    """Write the probabilities of all rows of a file, and labels and weights if it has any; returns how many rows."""
    table = aligned(reading.read(scores, need_labels=False, like=map_), map_, map_file)
    calibrated = map_.predict_proba(replace(table.checked, labels=None, weight=None, classes=map_.classes_))
    numbered = map_.classes_.tolist() == list(range(map_.n_classes_))
    classes = table.classes if numbered else map_.classes_
    known: dict[str, Any] = {"labels": table.labels, "weights": table.weights, "classes": classes}
    if not is_standard(output):
        write_table(output, calibrated, **known)
        return table.n_rows
    write = output_format(output).write
    assert write is not None
    arrays = {"probs": calibrated, **{name: array for name, array in known.items() if array is not None}}
    with standard_output() as stream:
        write(stream, arrays, STANDARD_FORMAT)
    return table.n_rows


class Application:
    """A map that is applied to the batches of a table.

    All columns stay as they are; calibrated probabilities are added, one column for each class (one for the positive
    class where that is all that is given, one of lists where scores are in lists).
    """

    def __init__(
        self,
        map_: Any,
        map_file: Path,
        scores: Path,
        reading: Reading,
        names: Sequence[str] | None,
        progress: Progress | None,
    ):
        kind = format_of(scores)
        assert kind.open_rows is not None
        request = Request(
            logits=reading.logits,
            labels=reading.labels,
            label_column=reading.label_column,
            columns=reading.columns,
            weights=reading.weights,
            classes=reading.classes,
            need_labels=False,
            find_columns=find_scores_of(map_),
        )
        check_request(scores, kind, request)
        self.map = map_
        self.path = scores
        self.progress = progress
        self.done = 0
        self.rows: Any = kind.open_rows(scores, request)
        self.width = self.rows.dataset.width if self.rows.lists else len(self.rows.columns.scores)
        self.order = self._order(map_file, reading.logits)
        self.names = names

    def _order(self, map_file: Path, logits: bool | None) -> NDArray[np.intp]:
        """Column of each of the map's classes; the one column of a vector is the second of two."""
        rows, said = self.rows, logits
        if said is None and rows.lists:
            said = rows.logits
        width = self.width
        if rows.class_names is not None and len(rows.class_names) != max(width, 2):
            why = "there are {given} names of classes for {width} columns"
            raise FileError(self.path, why, given=len(rows.class_names), width=width)
        places = np.zeros(1) if width == 1 else np.zeros((1, width))
        columns = () if rows.lists else rows.columns.scores
        takes = self.map.takes_logits if said is None else said
        table = ScoreTable(self.path, places, takes, classes=rows.class_names, columns=columns)
        order = order_for(table, self.map, map_file)
        return np.arange(self.map.n_classes_) if order is None else np.array(order)

    def to(self, output: Path) -> int:
        """Write the table, in one move; returns the number of rows."""
        if self.path.is_dir() and _names_a_folder(output):
            with atomic_folder(output) as folder:
                for place, rows in self.rows.parts():
                    (folder / place).parent.mkdir(parents=True, exist_ok=True)
                    with (folder / place).open("wb") as file:
                        self._write(rows, file, folder / place)
            return self.done
        if is_standard(output):
            with standard_output() as stream:
                self._write(self.rows, stream, STANDARD_FORMAT)
        else:
            atomic_write(output, lambda file: self._write(self.rows, file, output))
        return self.done

    def _write(self, rows: Any, file: IO[bytes], path: Path) -> None:
        make_sink = format_of(path, writing=True).make_sink
        assert make_sink is not None
        lists = rows.lists and path.name.lower().endswith(".parquet")
        with make_sink(file, rows, self._new_names(rows, lists=lists), path) as sink:
            for batch in rows.batches():
                sink.write(batch, self._apply(rows, batch))
                self.done += len(batch.scores)
                if self.progress is not None and self.rows.n_rows is not None:
                    self.progress(self.done, self.rows.n_rows, self.path.name)

    def _new_names(self, rows: Any, *, lists: bool) -> list[str]:
        """Names of the columns that are added."""
        classes = [str(name) for name in self.map.classes_.tolist()]
        if self.width == 1:
            classes = [classes[self.order[1]]]
        if self.names is None:
            wanted = [CALIBRATED.rstrip("_")] if lists else [f"{CALIBRATED}{name}" for name in classes]
            return free_names(rows.names, wanted)
        needed = 1 if lists else len(classes)
        if len(self.names) != needed or len(set(self.names)) != needed or set(self.names) & set(rows.names):
            what = "one name" if needed == 1 else f"{needed} different names"
            raise FileError(self.path, "--names should be {what} that no column has yet", what=what)
        return list(self.names)

    def _apply(self, rows: Any, batch: RowBatch) -> NDArray[Any]:
        """Probabilities of a batch, a column for each class of the map."""
        scores = batch.scores
        try:
            if scores.ndim == 2:
                return np.asarray(self.map.predict_proba(np.ascontiguousarray(scores[:, self.order])))
            given = door.rows(scores, logits=self.map.takes_logits, classes=self.map.classes_[self.order])
            return np.asarray(self.map.predict_proba(given)[:, self.order[1:]])
        except InputError as error:
            fields = dict(error.fields)
            place = str(fields.get("place", ""))
            if place.startswith("row "):
                fields["place"] = rows.row_name(batch, int(place.removeprefix("row ")))
            raise FileError(getattr(rows, "path", self.path), error.template, **fields) from None

"""Applying a map to parquet datasets batch by batch, in memory that does not grow with the data."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.class_names import as_names, class_names
from mixnmatch._files import atomic_folder, atomic_write
from mixnmatch.cli.command import in_command_line_words
from mixnmatch.cli.inputs import aligned
from mixnmatch.cli.options import Reading
from mixnmatch.io import FileError, ScoreTable, check_output
from mixnmatch.io.dataset import Batch, Dataset, Part, open_dataset, pyarrow

Progress = Callable[[int, int, str], None]


def is_dataset(scores: Path, output: Path) -> bool:
    """Whether scores are in a parquet file or folder and are to become another one."""
    if scores.is_dir():
        return scores.suffix.lower() in ("", ".parquet") and output.suffix.lower() in ("", ".parquet")
    return scores.suffix.lower() == output.suffix.lower() == ".parquet"


def check_dataset_output(scores: Path, output: Path, *, force: bool) -> None:
    """Raise an error unless ``output`` can be written: a file for a file, a folder for a folder."""
    if not scores.is_dir():
        check_output(output, [".parquet"], force=force)
        return
    if not output.parent.is_dir():
        raise FileError(output, f"the folder {output.parent} does not exist")
    if output.resolve() != scores.resolve() and output.resolve().is_relative_to(scores.resolve()):
        raise FileError(output, f"is inside of {scores}, and would become a part of what is read")
    if not output.exists():
        return
    if not force:
        raise FileError(output, "exists already; pass --force to overwrite it")
    others = [path for path in output.rglob("*") if path.is_file() and path.suffix.lower() != ".parquet"]
    if not output.is_dir() or others:
        what = f"holds {others[0].relative_to(output)}" if others else "is a file"
        raise FileError(output, f"{what}; only a folder of nothing but .parquet files is overwritten")


class Application:
    """A map that is applied to the batches of a dataset.

    Columns keep their names: scores become probabilities, labels and weights stay as they are.
    """

    def __init__(self, map_: Any, map_file: Path, scores: Path, reading: Reading, progress: Progress | None):
        if reading.labels is not None:
            raise FileError(scores, "--labels is for scores in .npy; this file holds its labels itself")
        self.map = map_
        self.logits = map_.takes_logits if reading.logits is None else reading.logits
        self.progress = progress
        self.done = 0
        self.dataset: Dataset = open_dataset(
            scores,
            label=reading.label_column,
            weights=reading.weights,
            patterns=reading.columns,
            need_labels=False,
        )
        self.order = self._order(map_file, reading.classes)

    def _order(self, map_file: Path, classes: tuple[str, ...] | None) -> NDArray[np.intp]:
        """Columns of the dataset in the order of the map's classes."""
        columns = self.dataset.columns.scores
        names = class_names(columns) if classes is None else as_names(classes)
        if names is not None and len(names) != len(columns):
            raise FileError(self.dataset.path, f"there are {len(names)} names of classes for {len(columns)} columns")
        one = len(columns) == 1
        places = np.zeros(1) if one else np.arange(len(columns), dtype=np.float64)[None]
        table = ScoreTable(self.dataset.path, places, self.logits, classes=names, columns=columns)
        table = aligned(table, self.map, map_file)
        return np.zeros(1, np.intp) if one else table.scores[0].astype(np.intp)

    def to(self, output: Path) -> None:
        """Write the dataset, file by file, in one move."""
        if not self.dataset.path.is_dir():
            atomic_write(output, lambda file: self._write(self.dataset.parts[0], file))
            return
        with atomic_folder(output) as folder:
            for part in self.dataset.parts:
                target = folder / part.path.relative_to(self.dataset.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as file:
                    self._write(part, file)

    def _write(self, part: Part, file: Any) -> None:
        arrow = pyarrow(part.path)
        with arrow.parquet.ParquetFile(part.path) as given:
            known = given.schema_arrow
        kept = [name for name in known.names if name in self.dataset.columns.all]
        number = arrow.float32() if self.dataset.dtype == np.float32 else arrow.float64()
        scores = set(self.dataset.columns.scores)
        schema = arrow.schema([(n, number) if n in scores else known.field(n).remove_metadata() for n in kept])
        with arrow.parquet.ParquetWriter(file, schema) as writer:
            for batch in self.dataset.batches(part):
                if not len(batch.scores):
                    continue
                found = dict(zip(self.dataset.columns.scores, self._apply(batch), strict=True))
                arrays = [arrow.array(found[n], number) if n in found else batch.columns.column(n) for n in kept]
                writer.write_batch(arrow.record_batch(arrays, schema=schema))
                self.done += len(batch.scores)
                if self.progress is not None:
                    self.progress(self.done, self.dataset.n_rows, part.path.name)

    def _apply(self, batch: Batch) -> NDArray[Any]:
        """Probabilities of a batch, a row for each column of the dataset."""
        scores = batch.scores
        try:
            if scores.ndim == 1:
                return np.ascontiguousarray(self.map.predict_proba(scores)[:, 1:].T)
            out = np.empty_like(scores.T, order="C")
            out[self.order] = self.map.predict_proba(np.ascontiguousarray(scores[:, self.order])).T
            return out
        except ValueError as error:
            text = re.sub(r"^row (\d+)", lambda m: f"row {int(m[1]) + batch.start}", str(error))
            raise FileError(batch.part.path, in_command_line_words(text)) from None

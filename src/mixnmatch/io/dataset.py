"""Parquet datasets in batches: one file, or a folder of files partitioned by the names of its folders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.io.columns import Columns, choose_columns
from mixnmatch.io.files import FileError, check_input, listed, shared_text
from mixnmatch.io.formats import Request
from mixnmatch.io.text import MOST_LABEL

# The name under which pandas keeps an index that has none.
_INDEX = "__index_level_"
# Bytes of scores that a batch holds, about, and rows of one that has text: a text that is kept once in the file is
# unpacked for every row when it is written.
BATCH_BYTES = 1 << 22
BATCH_TEXTS = 1 << 12
# Columns of lists of these names need no option to be chosen.
LIST_COLUMNS = ("logits", "probs", "probabilities", "scores")
NO_ROWS = "has no rows"


def pyarrow(path: Path) -> Any:
    """The package pyarrow, or an error that says how to install it."""
    try:
        import pyarrow
        import pyarrow.dataset
        import pyarrow.parquet
    except ImportError:
        raise FileError(path, 'parquet files need pyarrow: pip install "mixnmatch[parquet]"') from None
    return pyarrow


@dataclass(frozen=True)
class Part:
    """One file of a dataset: where it is, its rows, and what the names of its folders say."""

    path: Path
    rows: int
    keys: dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """Some rows of a file: its arrow columns, and the scores as numbers."""

    part: Part
    start: int
    columns: Any
    scores: NDArray[Any]


@dataclass(frozen=True)
class Dataset:
    """Files that make up one table, all of whose columns were found to fit together.

    ``width`` is the length of the lists that the scores are in, or ``None`` where each class has a column; ``classes``
    are names of classes that the file itself gives to numbered labels.
    """

    path: Path
    columns: Columns
    parts: tuple[Part, ...]
    dtype: np.dtype[Any]
    width: int | None = None
    classes: tuple[str, ...] | None = None

    @property
    def n_rows(self) -> int:
        """Rows of all files."""
        return sum(part.rows for part in self.parts)

    @property
    def n_columns(self) -> int:
        """Scores of a row."""
        return len(self.columns.scores) if self.width is None else self.width

    @property
    def score_bytes(self) -> int:
        """Bytes that all scores take up as one array."""
        return self.n_rows * self.n_columns * self.dtype.itemsize

    def batches(self, part: Part, *, every_column: bool = False) -> Iterator[Batch]:
        """The rows of a file, a batch at a time: the columns that are needed, or all."""
        arrow = pyarrow(part.path)
        start = 0
        try:
            schema = arrow.parquet.read_schema(part.path)
            wanted = [name for name in (schema.names if every_column else self.columns.all) if name not in part.keys]
            texts = [name for name in wanted if is_text_type(arrow, schema.field(name).type)]
            step = max(256, BATCH_BYTES // (8 * self.n_columns))
            step = min(step, BATCH_TEXTS) if texts and every_column else step
            # Text that repeats is kept once in the file, and stays so.
            with arrow.parquet.ParquetFile(part.path, read_dictionary=texts) as file:
                for record in file.iter_batches(batch_size=step, columns=wanted):
                    yield Batch(part, start, record, self._scores(part, start, record))
                    start += record.num_rows
        except (arrow.ArrowException, OSError) as error:
            raise FileError(part.path, "{why}", why=corrupted(error)) from None
        if start != part.rows:
            why = "is corrupted: its footer says {promised} rows, but it has {found}"
            raise FileError(part.path, why, promised=part.rows, found=start)

    def _scores(self, part: Part, start: int, record: Any) -> NDArray[Any]:
        if self.width is not None:
            return self._lists(part, start, record.column(self.columns.scores[0]))
        out = np.empty((record.num_rows, len(self.columns.scores)), self.dtype)
        for index, name in enumerate(self.columns.scores):
            column = record.column(name)
            check_nulls(part.path, column, name, start)
            out[:, index] = column.to_numpy(zero_copy_only=False)
        return out if out.shape[1] > 1 else out[:, 0]

    def _lists(self, part: Part, start: int, column: Any) -> NDArray[Any]:
        """Scores from a column of lists, which must all be of one length."""
        arrow, name = pyarrow(part.path), self.columns.scores[0]
        check_nulls(part.path, column, name, start)
        if not arrow.types.is_fixed_size_list(column.type):
            sizes = column.value_lengths().to_numpy(zero_copy_only=False)
            odd = np.flatnonzero(sizes != self.width)
            if len(odd):
                why = "row {row}, column {column!r}: a list of {found} scores, where others have {width}"
                row = int(odd[0])
                raise FileError(part.path, why, row=start + row, column=name, found=int(sizes[row]), width=self.width)
        flat = column.flatten()
        check_nulls(part.path, flat, name, start, width=self.width or 1)
        values = np.asarray(flat.to_numpy(zero_copy_only=False), dtype=self.dtype)
        table = values.reshape(len(column), -1)
        return table if self.width != 1 else table[:, 0]

    def labels(self, batch: Batch) -> NDArray[Any] | None:
        """Labels of a batch, from their column or from the name of a folder."""
        name = self.columns.label
        if name is None:
            return None
        path, keys = batch.part.path, batch.part.keys
        if name in keys:
            same = np.zeros(len(batch.scores), np.intp)
            return shared_text([keys[name]], same) if isinstance(keys[name], str) else np.full(len(same), keys[name])
        column = batch.columns.column(name)
        check_nulls(path, column, name, batch.start)
        arrow = pyarrow(path)
        try:
            if is_text_type(arrow, column.type):
                if not arrow.types.is_dictionary(column.type):
                    column = column.dictionary_encode()
                column.validate(full=True)
                return self._names(path, name, column)
            if arrow.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            if not arrow.types.is_primitive(column.type):  # nested values, or bytes that a file keeps once
                why = "column {column!r} holds {kind}; labels are numbers or text"
                raise FileError(path, why, column=name, kind=column.type)
        except UnicodeDecodeError:
            raise FileError(path, "column {column!r} holds text that is not UTF-8", column=name) from None
        except arrow.ArrowException as error:  # such as a code beyond the end of a dictionary
            raise FileError(path, "{why}", why=corrupted(error)) from None
        return np.asarray(column.to_numpy(zero_copy_only=False))

    def _names(self, path: Path, name: str, column: Any) -> NDArray[Any]:
        codes, found = column.indices.to_numpy(zero_copy_only=False), column.dictionary
        check_nulls(path, found, name, 0)
        import pyarrow.compute

        text = found.type in (pyarrow.string(), pyarrow.large_string())
        size = pyarrow.compute.utf8_length if text else pyarrow.compute.binary_length
        longest = pyarrow.compute.max(size(found)).as_py() or 0
        if longest > MOST_LABEL:
            why = "column {column!r} has a label of {size} characters; names of classes have at most {most}"
            raise FileError(path, why, column=name, size=longest, most=MOST_LABEL)
        return shared_text(found.to_pylist(), codes)

    def weights(self, batch: Batch) -> NDArray[Any] | None:
        """Weights of a batch."""
        name = self.columns.weights
        if name is None:
            return None
        if name in batch.part.keys:
            return np.full(len(batch.scores), batch.part.keys[name])
        column = batch.columns.column(name)
        check_nulls(batch.part.path, column, name, batch.start)
        return np.asarray(column.to_numpy(zero_copy_only=False))


def open_dataset(path: Path, request: Request) -> Dataset:
    """Find the files, decide what their columns are for, and check that every file has them in a type that fits."""
    check_input(path, folders=True)
    arrow = pyarrow(path)
    try:
        found = arrow.dataset.dataset(path, format="parquet", partitioning="hive", exclude_invalid_files=False)
        schema = found.schema
        known = list(schema.names)
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        why = "is a folder with files that are not .parquet files" if path.is_dir() else corrupted(error)
        raise FileError(path, "{why}", why=why) from None
    if not found.files:
        raise FileError(path, "the folder holds no .parquet files")
    fragments = list(found.get_fragments())
    own = [dict(arrow.dataset.get_partition_keys(each.partition_expression)) for each in fragments]
    keys = set().union(*own) if path.is_dir() else set()
    asked = {request.label_column, request.weights}
    names = [n for n in known if n not in keys - asked and not n.startswith(_INDEX)]
    columns = _choose(arrow, path, schema, names, request)
    parts, schemas = [], []
    for fragment, values in zip(fragments, own, strict=True):
        file = Path(fragment.path)
        try:
            schemas.append(fragment.physical_schema)
            rows = fragment.count_rows()
        except (arrow.ArrowException, OSError) as error:
            raise FileError(file, "{why}", why=corrupted(error)) from None
        parts.append(Part(file, rows, {key: value for key, value in values.items() if key in keys}))
        _check_schema(arrow, parts[-1], schemas[-1], columns, None if len(parts) == 1 else parts[0].path)
    _check_labels(arrow, parts, schemas, columns.label)
    kinds = [_numbers_of(arrow, s.field(n).type) for s in schemas for n in columns.scores]
    narrow = all(kind in (arrow.float32(), arrow.float16()) for kind in kinds)
    dtype = np.dtype(np.float32 if narrow else np.float64)
    dataset = Dataset(path, columns, tuple(parts), dtype, classes=_class_names(schema, columns.label))
    lists = is_list(arrow, schemas[0].field(columns.scores[0]).type)
    return replace(dataset, width=_width(arrow, dataset)) if lists else dataset


def _choose(arrow: Any, path: Path, schema: Any, names: Sequence[str], request: Request) -> Columns:
    """Choose the score columns: one for each class, or a single one of lists."""
    asked: dict[str, Any] = {
        "label": request.label_column,
        "weights": request.weights,
        "need_labels": request.need_labels,
    }
    lists = [name for name in names if is_list(arrow, schema.field(name).type)]
    found = _lists_of_scores(arrow, path, schema, names, request, lists)
    if found:
        return choose_columns(path, names, patterns=(), find=lambda _: found, **asked)
    choice: dict[str, Any] = {"patterns": request.columns, "find": request.find_columns, "classes": request.classes}
    columns = choose_columns(path, names, **choice, **asked)
    if len(columns.scores) > 1:
        for name in set(columns.scores) & set(lists):
            why = "column {column!r} holds lists, which hold all scores of a row; name that column alone: {columns}"
            raise FileError(path, why, column=name)
    return columns


def _lists_of_scores(
    arrow: Any, path: Path, schema: Any, names: Sequence[str], request: Request, lists: Sequence[str]
) -> Sequence[str]:
    """Return the list column that holds the scores, if there is one and no option says otherwise."""
    if not lists or request.columns or (request.find_columns is not None and request.find_columns(names)):
        return ()
    usual = [name for name in LIST_COLUMNS if name in lists]
    single = [name for name in names if arrow.types.is_floating(schema.field(name).type)]
    if len(usual) == 1:
        return usual
    if single and not usual:  # a column for each class, and lists of something else
        return ()
    if len(lists) > 1:
        why = "has several columns of lists ({names}); name the one with the scores: {columns}"
        raise FileError(path, why, names=listed(lists))
    return lists


def _class_names(schema: Any, label: str | None) -> tuple[str, ...] | None:
    """Names that a data set of Hugging Face gives to its labels, which are numbers."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        names = features[label]["names"]
    except (TypeError, KeyError, ValueError, RecursionError):
        return None
    whole = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if whole and len(set(names)) == len(names) else None


def _width(arrow: Any, dataset: Dataset) -> int:
    """Length of the first list."""
    name = dataset.columns.scores[0]
    for part in dataset.parts:
        with arrow.parquet.ParquetFile(part.path) as file:
            for record in file.iter_batches(batch_size=1, columns=[name]):
                column = record.column(name)
                check_nulls(part.path, column, name, 0)
                width = len(column[0])
                if width < 1:
                    raise FileError(part.path, "row 0, column {column!r}: the list is empty", column=name)
                return width
    raise FileError(dataset.path, NO_ROWS)


def corrupted(error: Exception) -> str:
    """Return the error for a corrupted file."""
    text = (str(error).splitlines() or [""])[0]
    if "magic bytes" in text or "footer" in text.lower() or "too small" in text:
        return "is not a .parquet file, or was cut short"
    return f"is not a valid .parquet file ({text:.120})"


def _check_schema(arrow: Any, part: Part, schema: Any, columns: Columns, first: Path | None) -> None:
    for name in columns.all:
        if name in part.keys:
            continue
        if name not in schema.names:
            raise FileError(part.path, "has no column {column!r}, which {first} has", column=name, first=first)
        if name != columns.label:
            _check_type(part.path, arrow, name, schema.field(name).type)


def _check_type(path: Path, arrow: Any, name: str, kind: Any) -> None:
    number = _numbers_of(arrow, kind)
    if arrow.types.is_floating(number) or arrow.types.is_integer(number):
        return
    if arrow.types.is_nested(kind):
        why = "column {column!r} holds lists or records that are not numbers; scores need one column a class, or lists"
        raise FileError(path, why, column=name)
    why = "column {column!r} holds {kind}, not numbers; if it is no class, name the scores: {columns}"
    raise FileError(path, why, column=name, kind=kind)


def _check_labels(arrow: Any, parts: Sequence[Part], schemas: Sequence[Any], label: str | None) -> None:
    """Labels are text in all files or in none."""
    held = [(p.path, s.field(label).type) for p, s in zip(parts, schemas, strict=True) if label in s.names]
    for path, kind in held:
        if is_text_type(arrow, kind) != is_text_type(arrow, held[0][1]):
            why = "column {column!r} holds {kind}, but {other} in {first}"
            raise FileError(path, why, column=label, kind=kind, other=held[0][1], first=held[0][0])


def is_list(arrow: Any, kind: Any) -> bool:
    """Whether a column holds lists."""
    types = arrow.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _numbers_of(arrow: Any, kind: Any) -> Any:
    """The type of the numbers in a column, which may be in lists."""
    return kind.value_type if is_list(arrow, kind) else kind


def is_text_type(arrow: Any, kind: Any) -> bool:
    """Whether a column holds text or bytes, dictionary-encoded ones included."""
    kind = kind.value_type if arrow.types.is_dictionary(kind) else kind
    return kind in (arrow.string(), arrow.large_string(), arrow.binary(), arrow.large_binary())


def check_nulls(path: Path, column: Any, name: str, start: int, *, width: int = 1) -> None:
    """Raise an error for the first row without a value; a row has ``width`` entries of the column."""
    if column.null_count:
        row = start + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]) // width
        raise FileError(path, "row {row}, column {column!r}: there is no value (null)", row=row, column=name)

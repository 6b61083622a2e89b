"""Parquet datasets in batches: one file, or a folder of files partitioned by the names of its folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.io.columns import Columns, choose_columns
from mixnmatch.io.files import FileError, check_input

# The name under which pandas keeps an index that has none.
_INDEX = "__index_level_"
# Bytes of scores that a batch holds, about.
BATCH_BYTES = 1 << 22
Progress = Callable[[int, int, str], None]


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
    """Files that make up one table, all of whose columns were found to fit together."""

    path: Path
    columns: Columns
    parts: tuple[Part, ...]
    dtype: np.dtype[Any]

    @property
    def n_rows(self) -> int:
        """Rows of all files."""
        return sum(part.rows for part in self.parts)

    @property
    def score_bytes(self) -> int:
        """Bytes that all scores take up as one array."""
        return self.n_rows * len(self.columns.scores) * self.dtype.itemsize

    def batches(self, part: Part) -> Iterator[Batch]:
        """The rows of a file, a batch at a time."""
        arrow = pyarrow(part.path)
        wanted = [name for name in self.columns.all if name not in part.keys]
        step = max(256, BATCH_BYTES // (8 * len(self.columns.scores)))
        start = 0
        try:
            with arrow.parquet.ParquetFile(part.path) as file:
                for record in file.iter_batches(batch_size=step, columns=wanted):
                    yield Batch(part, start, record, self._scores(part, start, record))
                    start += record.num_rows
        except (arrow.ArrowException, OSError) as error:
            raise FileError(part.path, damaged(error)) from None
        if start != part.rows:
            raise FileError(part.path, f"is damaged: it promises {part.rows} rows and holds {start}")

    def _scores(self, part: Part, start: int, record: Any) -> NDArray[Any]:
        out = np.empty((record.num_rows, len(self.columns.scores)), self.dtype)
        for index, name in enumerate(self.columns.scores):
            column = record.column(name)
            check_nulls(part.path, column, name, start)
            out[:, index] = column.to_numpy(zero_copy_only=False)
        return out if out.shape[1] > 1 else out[:, 0]

    def labels(self, batch: Batch) -> NDArray[Any] | None:
        """Labels of a batch, from their column or from the name of a folder."""
        name = self.columns.label
        if name is None:
            return None
        if name in batch.part.keys:
            return np.full(len(batch.scores), batch.part.keys[name])
        column = batch.columns.column(name)
        check_nulls(batch.part.path, column, name, batch.start)
        arrow = pyarrow(batch.part.path)
        try:
            if arrow.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            if _is_text(arrow, column.type):
                return np.array(column.to_pylist(), dtype=str)
        except UnicodeDecodeError:
            raise FileError(batch.part.path, f"column {name!r} holds text that is not UTF-8") from None
        except arrow.ArrowException as error:  # such as a code beyond the end of a dictionary
            raise FileError(batch.part.path, damaged(error)) from None
        return np.asarray(column.to_numpy(zero_copy_only=False))

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


def open_dataset(
    path: Path, *, label: str | None, weights: str | None, patterns: Sequence[str], need_labels: bool
) -> Dataset:
    """Find the files, decide what their columns are for, and check that every file has them in a type that fits."""
    check_input(path, folders=True)
    arrow = pyarrow(path)
    try:
        found = arrow.dataset.dataset(path, format="parquet", partitioning="hive", exclude_invalid_files=False)
        known = list(found.schema.names)
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FileError(path, damaged(error)) from None
    if not found.files:
        raise FileError(path, "the folder holds no .parquet files")
    fragments = list(found.get_fragments())
    own = [dict(arrow.dataset.get_partition_keys(each.partition_expression)) for each in fragments]
    keys = set().union(*own) if path.is_dir() else set()
    names = [n for n in known if n not in keys - {label, weights} and not n.startswith(_INDEX)]
    columns = choose_columns(path, names, label=label, weights=weights, patterns=patterns, need_labels=need_labels)
    parts, schemas = [], []
    for fragment, values in zip(fragments, own, strict=True):
        file = Path(fragment.path)
        try:
            schemas.append(fragment.physical_schema)
            rows = fragment.count_rows()
        except (arrow.ArrowException, OSError) as error:
            raise FileError(file, damaged(error)) from None
        parts.append(Part(file, rows, {key: value for key, value in values.items() if key in keys}))
        _check_schema(arrow, parts[-1], schemas[-1], columns, None if len(parts) == 1 else parts[0].path)
    _check_labels(arrow, parts, schemas, columns.label)
    narrow = all(s.field(n).type in (arrow.float32(), arrow.float16()) for s in schemas for n in columns.scores)
    if not any(part.rows for part in parts):
        raise FileError(path, "has no rows")
    return Dataset(path, columns, tuple(parts), np.dtype(np.float32 if narrow else np.float64))


def damaged(error: Exception) -> str:
    """What is wrong with a file that cannot be read."""
    text = (str(error).splitlines() or [""])[0]
    if "magic bytes" in text or "footer" in text.lower() or "too small" in text:
        return "is not a .parquet file, or was cut short"
    return f"is not a valid .parquet file ({text:.120})"


def _check_schema(arrow: Any, part: Part, schema: Any, columns: Columns, first: Path | None) -> None:
    for name in columns.all:
        if name in part.keys:
            continue
        if name not in schema.names:
            raise FileError(part.path, f"has no column {name!r}, which {first} has")
        if name != columns.label:
            _check_type(part.path, arrow, name, schema.field(name).type)


def _check_type(path: Path, arrow: Any, name: str, kind: Any) -> None:
    if arrow.types.is_floating(kind) or arrow.types.is_integer(kind):
        return
    if arrow.types.is_nested(kind):
        raise FileError(path, f"column {name!r} holds lists or records; scores need one column of numbers a class")
    raise FileError(path, f"column {name!r} holds {kind}, not numbers; if it is no class, name the scores: --columns")


def _check_labels(arrow: Any, parts: Sequence[Part], schemas: Sequence[Any], label: str | None) -> None:
    """Labels are text in all files or in none."""
    held = [(p.path, s.field(label).type) for p, s in zip(parts, schemas, strict=True) if label in s.names]
    for path, kind in held:
        if _is_text(arrow, kind) != _is_text(arrow, held[0][1]):
            raise FileError(path, f"column {label!r} holds {kind}, but {held[0][1]} in {held[0][0]}")


def _is_text(arrow: Any, kind: Any) -> bool:
    kind = kind.value_type if arrow.types.is_dictionary(kind) else kind
    return bool(arrow.types.is_string(kind) or arrow.types.is_large_string(kind))


def check_nulls(path: Path, column: Any, name: str, start: int) -> None:
    """Raise an error for the first row without a value."""
    if column.null_count:
        row = start + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise FileError(path, f"row {row}, column {name!r}: there is no value (null)")

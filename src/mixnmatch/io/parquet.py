"""Reading .parquet: one file, or a folder of files partitioned by the names of its folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.io.columns import choose_columns
from mixnmatch.io.files import FileError, check_input
from mixnmatch.io.text import Table

# The name under which pandas keeps an index that has none.
_INDEX = "__index_level_"


def pyarrow(path: Path) -> Any:
    """The package pyarrow, or an error that says how to install it."""
    try:
        import pyarrow
        import pyarrow.dataset
        import pyarrow.parquet
    except ImportError:
        raise FileError(path, 'parquet files need pyarrow: pip install "mixnmatch[parquet]"') from None
    return pyarrow


def read_parquet(
    path: Path, *, label: str | None, weights: str | None, patterns: Sequence[str], need_labels: bool
) -> Table:
    """Read the columns that are needed of a file or a partitioned folder."""
    check_input(path, folders=True)
    arrow = pyarrow(path)
    try:
        dataset = arrow.dataset.dataset(path, format="parquet", partitioning="hive", exclude_invalid_files=False)
    except (arrow.ArrowInvalid, OSError) as error:
        raise FileError(path, _damaged(error)) from None
    if not dataset.files:
        raise FileError(path, "the folder holds no .parquet files")
    partitions = set(dataset.partitioning.schema.names) if path.is_dir() else set()
    partitions -= {label, weights}
    names = [n for n in dataset.schema.names if n not in partitions and not n.startswith(_INDEX)]
    columns = choose_columns(path, names, label=label, weights=weights, patterns=patterns, need_labels=need_labels)
    for name in (*columns.scores, *([columns.weights] if columns.weights else [])):
        _check_type(path, arrow, name, dataset.schema.field(name).type)
    try:
        table = dataset.to_table(columns=list(columns.all))
    except (arrow.ArrowInvalid, OSError) as error:
        raise FileError(path, _damaged(error)) from None
    if table.num_rows == 0:
        raise FileError(path, "has no rows")
    return Table(
        columns,
        _scores(path, arrow, table, columns.scores),
        None if columns.label is None else _labels(path, arrow, table, columns.label),
        None if columns.weights is None else _column(path, table, columns.weights),
    )


def _damaged(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0]
    if "magic bytes" in text or "footer" in text.lower() or "too small" in text:
        return "is not a .parquet file, or was cut short"
    return f"is not a valid .parquet file ({text:.120})"


def _check_type(path: Path, arrow: Any, name: str, kind: Any) -> None:
    numeric = arrow.types.is_floating(kind) or arrow.types.is_integer(kind)
    if numeric:
        return
    if arrow.types.is_nested(kind):
        raise FileError(path, f"column {name!r} holds lists or records; scores need one column of numbers a class")
    raise FileError(path, f"column {name!r} holds {kind}, not numbers; if it is no class, name the scores: --columns")


def _scores(path: Path, arrow: Any, table: Any, names: Sequence[str]) -> NDArray[Any]:
    narrow = all(table.schema.field(name).type in (arrow.float32(), arrow.float16()) for name in names)
    out = np.empty((table.num_rows, len(names)), np.float32 if narrow else np.float64)
    for index, name in enumerate(names):
        out[:, index] = _column(path, table, name)
    return out if len(names) > 1 else out[:, 0]


def _column(path: Path, table: Any, name: str) -> NDArray[Any]:
    column = table.column(name)
    _check_nulls(path, column, name)
    return np.asarray(column.to_numpy())


def _check_nulls(path: Path, column: Any, name: str) -> None:
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise FileError(path, f"row {row}, column {name!r}: there is no value (null)")


def _labels(path: Path, arrow: Any, table: Any, name: str) -> NDArray[Any]:
    column = table.column(name)
    _check_nulls(path, column, name)
    if arrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type):
        return np.array(column.to_pylist(), dtype=str)
    return np.asarray(column.to_numpy())

"""Reading .csv files with pyarrow: the same numbers and labels as the plain reader, several times faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mixnmatch.io.text import Layout

# Bytes that are parsed at a time.
BLOCK = 1 << 23
# Smaller files are not worth importing pyarrow for.
WORTH = 1 << 20


def read_fast(layout: Layout) -> tuple[NDArray[Any], list[str], NDArray[Any]] | None:
    """Numbers, different labels and their positions, or ``None`` for a file that the plain reader should read.

    That is: a small file, one with quotes or odd line ends (which the two would read differently), one that pyarrow
    finds something wrong with, and every file where pyarrow is not installed.
    """
    packed = layout.path.name.lower().endswith(".gz")
    if layout.path.stat().st_size < WORTH:
        return None
    try:
        import pyarrow
        import pyarrow.csv
    except ImportError:
        return None
    try:
        with pyarrow.input_stream(str(layout.path), compression="gzip" if packed else None) as stream:
            decimal = _decimal_if_plain(layout, stream)
        if decimal is None:
            return None
        with pyarrow.input_stream(str(layout.path), compression="gzip" if packed else None) as stream:
            return _read(pyarrow, layout, stream, decimal)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError):
        return None


def _decimal_if_plain(layout: Layout, stream: Any) -> str | None:
    """The mark of decimals, or ``None`` for a file that is not plain."""
    from mixnmatch.io.text import decimal_mark

    start = stream.read(BLOCK)
    lines = start.split(b"\n", 2)
    block = start
    while block:
        if b'"' in block or b"\r" in block.replace(b"\r\n", b"").rstrip(b"\r"):
            return None
        block = stream.read(BLOCK)
    if layout.delimiter == "," or len(lines) < 2:
        return "."
    cells = lines[1].decode("utf-8").split(layout.delimiter)
    return decimal_mark([cells[k] for k in layout.numbers if k < len(cells)])


def _read(arrow: Any, layout: Layout, stream: Any, decimal: str) -> tuple[NDArray[Any], list[str], NDArray[Any]] | None:
    columns = layout.columns
    wanted = [layout.names[index] for index in layout.numbers]
    label = columns.label
    types = dict.fromkeys(wanted, arrow.float64())
    if label is not None:
        types[label] = arrow.dictionary(arrow.int32(), arrow.string())
    reader = arrow.csv.open_csv(
        stream,
        read_options=arrow.csv.ReadOptions(column_names=list(layout.names), skip_rows=1, block_size=BLOCK),
        parse_options=arrow.csv.ParseOptions(delimiter=layout.delimiter, quote_char=False),
        convert_options=arrow.csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=[],
            strings_can_be_null=False,
            decimal_point=decimal,
        ),
    )
    parts, code_parts = [], []
    known: dict[str, int] = {}
    for batch in reader:
        block = np.empty((batch.num_rows, len(wanted)))
        for index, name in enumerate(wanted):
            block[:, index] = batch.column(name).to_numpy(zero_copy_only=False)
        parts.append(block)
        if label is not None:
            codes = _codes(batch.column(label), known)
            if codes is None:
                return None
            code_parts.append(codes)
    numbers = np.concatenate(parts) if parts else np.empty((0, len(wanted)))
    return numbers, list(known), np.concatenate(code_parts) if code_parts else np.empty(0, np.int64)


def _codes(column: Any, known: dict[str, int]) -> NDArray[Any] | None:
    """Positions of labels among those that are known, new ones added; ``None`` if there is one that cannot be."""
    from mixnmatch.io.text import MOST_LABEL

    names = [name.strip() for name in column.dictionary.to_pylist()]
    if column.null_count or not all(0 < len(name) <= MOST_LABEL for name in names):
        return None
    place = np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int64)
    return np.asarray(place[column.indices.to_numpy()])

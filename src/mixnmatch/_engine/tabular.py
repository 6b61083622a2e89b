"""Results that are tables: data frames for programs, and HTML in notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from mixnmatch._engine.text import significant

# Rows of a table that a notebook shows; a data frame has all of them.
SHOWN = 20

Record = Mapping[str, Any]
Cells = Sequence[Sequence[str]]


class Tabular:
    """A result with one record for each row of its table."""

    def _records(self) -> Sequence[Record]:
        """The rows: values by the name of the column, the first column names the row."""
        raise NotImplementedError

    def _cells(self) -> Cells:
        """The table as a notebook shows it, the first row a header."""
        records = self._records()
        some = records if len(records) <= SHOWN else [records[len(records) * k // SHOWN] for k in range(SHOWN)]
        return [list(records[0]) if records else [], *([_text(value) for value in one.values()] for one in some)]

    def _texts(self) -> tuple[Sequence[str], Sequence[str]]:
        """Paragraphs above the table and below it."""
        return (), ()

    def to_frame(self) -> Any:
        """Return the table as a data frame of pandas.

        Returns
        -------
        pandas.DataFrame
            A row for each record. Numbers have all of their digits, and the ends of an interval columns of their own,
            ``..._low`` and ``..._high``.
        """
        try:
            import pandas as pd
        except ImportError as error:
            msg = "a data frame needs pandas: pip install pandas"
            raise ImportError(msg) from error
        return pd.DataFrame([dict(record) for record in self._records()])

    def _repr_html_(self) -> str:
        """Return the table and its texts as HTML for notebooks."""
        header, *rows = self._cells()
        above, below = ("".join(f"<p>{escape(text)}</p>" for text in texts) for texts in self._texts())
        head = "".join(f'<th scope="col">{escape(text)}</th>' for text in header)
        body = "".join(
            f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(text)}</td>" for text in rest)}</tr>'
            for first, *rest in rows
        )
        return f"<div>{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"


def interval_columns(name: str, value: Any) -> dict[str, Any]:
    """An estimate and the ends of its interval as columns; all are None where there is no estimate."""
    low, high = (None, None) if value is None or value.interval is None else value.interval
    return {name: None if value is None else float(value), f"{name}_low": low, f"{name}_high": high}


def array_records(**columns: Any) -> list[Record]:
    """Records of columns that are arrays of the same length."""
    lists = {name: values.tolist() for name, values in columns.items()}
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return significant(value) if isinstance(value, float) else str(value)

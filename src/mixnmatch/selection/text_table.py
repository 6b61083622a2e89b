"""Aligned text tables."""

from __future__ import annotations

from collections.abc import Sequence

Row = Sequence[str]


def table(rows: Sequence[Row], *, left: int = 1, indent: int = 0) -> str:
    """Rows of cells, the first one a header: the first ``left`` columns start together, the others end together."""
    width = max(len(row) for row in rows)
    padded = [[*row, *[""] * (width - len(row))] for row in rows]
    sizes = [max(len(row[column]) for row in padded) for column in range(width)]
    lines = []
    for row in padded:
        cells = [
            cell.ljust(size) if column < left else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(row, sizes, strict=True))
        ]
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)

"""One page about a reproduction, in Markdown and in HTML, from the same blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mixnmatch._html import render
from mixnmatch.experiments.reproduce.claims import Statement
from mixnmatch.experiments.reproduce.tables import Table

__all__ = ["Block", "Code", "Figure", "Grid", "Heading", "Text", "statements", "table_block", "to_html", "to_markdown"]


@dataclass(frozen=True)
class Heading:
    """A title; the first of a page has level 1."""

    kind: ClassVar = "heading"
    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar = "text"
    text: str


@dataclass(frozen=True)
class Code:
    """Lines to be typed."""

    kind: ClassVar = "code"
    text: str


@dataclass(frozen=True)
class Grid:
    """A table of texts with a header; where ``bold`` is true the text is bold."""

    kind: ClassVar = "grid"
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    bold: Sequence[Sequence[bool]] | None = None
    left: int = 1


@dataclass(frozen=True)
class Figure:
    """A picture beside the page."""

    kind: ClassVar = "figure"
    path: str
    caption: str


Block = Heading | Text | Code | Grid | Figure


def table_block(table: Table) -> list[Block]:
    """A table of the paper with its title and caption."""
    rows, bold = [], []
    for line in table.lines:
        rows.append([line.entry.dataset, line.entry.label, *(cell.text for cell in line.cells)])
        bold.append([False, False, *(cell.bold for cell in line.cells)])
    return [
        Heading(table.title, 3),
        Text(table.caption),
        Grid(["Dataset", "Model", *table.titles], rows, bold, left=2),
    ]


def statements(claims: Sequence[Statement], says: str) -> Grid:
    """Statements as a table."""
    return Grid([says, "found here", "holds"], [[one.says, one.found, one.holds] for one in claims], left=3)


def to_markdown(blocks: Sequence[Block]) -> str:
    """The page in Markdown."""
    parts = []
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"{'#' * block.level} {_without_html(block.text)}")
        elif isinstance(block, Text):
            parts.append(_without_html(block.text))
        elif isinstance(block, Code):
            parts.append("\n".join(f"    {line}" for line in block.text.splitlines()))
        elif isinstance(block, Figure):
            caption = _without_html(block.caption)
            parts.append(f"![{caption}]({block.path})\n\n*{caption}*")
        else:
            parts.append(_markdown_grid(block))
    return "\n\n".join(parts) + "\n"


def _markdown_grid(grid: Grid) -> str:
    lines = [_line(grid.header), _line([":--" if k < grid.left else "--:" for k in range(len(grid.header))])]
    for number, row in enumerate(grid.rows):
        bold = [False] * len(row) if grid.bold is None else grid.bold[number]
        lines.append(_line([f"**{cell}**" if strong else cell for cell, strong in zip(row, bold, strict=True)]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_without_html(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _without_html(text: str) -> str:
    """A text in which names of data and models cannot add tags to a page that is made of the Markdown."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def to_html(blocks: Sequence[Block]) -> str:
    """The page in HTML; figures are files beside it."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "")
    return render("experiments/reproduce/assets/page.html", title=title, blocks=blocks)

"""One page about a reproduction, in Markdown and in HTML, from the same blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from mixnmatch.experiments.reproduce.claims import Statement
from mixnmatch.experiments.reproduce.tables import Table

__all__ = ["Block", "Code", "Figure", "Grid", "Heading", "Text", "statements", "table_block", "to_html", "to_markdown"]


@dataclass(frozen=True)
class Heading:
    """A title; the first of a page has level 1."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Code:
    """Lines to be typed."""

    text: str


@dataclass(frozen=True)
class Grid:
    """A table of texts with a header; where ``bold`` is true the text is bold."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    bold: Sequence[Sequence[bool]] | None = None
    left: int = 1


@dataclass(frozen=True)
class Figure:
    """A picture beside the page."""

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


STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1200px;padding:0 1rem;color:#1a1a1a}
table{border-collapse:collapse;font-size:13px;margin:1rem 0;display:block;overflow-x:auto}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #ddd;font-variant-numeric:tabular-nums}
.left{text-align:left}img{max-width:100%}pre{background:#f4f4f4;padding:.7rem;overflow-x:auto}figcaption{color:#555}"""


def to_html(blocks: Sequence[Block]) -> str:
    """The page in HTML; figures are files beside it."""
    title = next((escape(block.text) for block in blocks if isinstance(block, Heading)), "")
    body = "\n".join(_html(block) for block in blocks)
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head = f"<head>{meta}<title>{title}</title><style>{STYLE}</style></head>"
    return f'<!doctype html>\n<html lang="en">{head}\n<body>\n{body}\n</body></html>\n'


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{escape(block.text)}</h{block.level}>"
    if isinstance(block, Text):
        return f"<p>{escape(block.text)}</p>"
    if isinstance(block, Code):
        return f"<pre>{escape(block.text)}</pre>"
    if isinstance(block, Figure):
        caption = escape(block.caption)
        picture = f'<img src="{escape(block.path)}" alt="{caption}">'
        return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"
    lines = [_html_row(block.header, [False] * len(block.header), "th", block.left)]
    for number, row in enumerate(block.rows):
        bold = [False] * len(row) if block.bold is None else block.bold[number]
        lines.append(_html_row(row, bold, "td", block.left))
    return f"<table>{''.join(lines)}</table>"


def _html_row(cells: Sequence[str], bold: Sequence[bool], tag: str, left: int) -> str:
    tags = []
    for column, (cell, strong) in enumerate(zip(cells, bold, strict=True)):
        text = f"<b>{escape(cell)}</b>" if strong else escape(cell)
        tags.append(f"<{tag}{' class=left' if column < left else ''}>{text}</{tag}>")
    return f"<tr>{''.join(tags)}</tr>"

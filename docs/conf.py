"""Settings of the documentation: `sphinx-build -W --keep-going docs site`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml

from mixnmatch import __version__
from mixnmatch.playground import write_playground

project = "mixnmatch"
author = "The mixnmatch developers"
copyright = author  # noqa: A001
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["README.md"]

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "none"
# Packages that only some parts of the library need; where they are missing the pages are built without them.
autodoc_mock_imports = [name for name in ("onnx", "torch") if find_spec(name) is None]
autodoc_member_order = "bysource"
autosummary_generate = False
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"mixnmatch {__version__}"
html_show_sphinx = False


def leave_out_empty_folder(app: Any, page: str, source: list[str]) -> None:
    """Drop the list of pages about results where there are none yet: an empty pattern would be a warning."""
    if page == "index" and not list(Path(app.srcdir, "results").rglob("*.md")):
        source[0] = source[0].replace("results/**\n", "")


def write_mathml(writer: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers show by themselves: the site needs no network."""
    block = isinstance(node, nodes.math_block)
    formula = latex2mathml.tex2mathml(node.astext(), as_block=block)
    writer.body.append(f'<div class="math">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def add_playground(app: Any, error: Exception | None) -> None:
    """Put the page to try calibration in the browser beside the others."""
    if error is None and app.builder.format == "html":
        write_playground(Path(app.outdir, "try.html"))


def setup(app: Any) -> None:
    """Register what is done to pages before they are read, how formulas are written, and the page to try it."""
    app.connect("source-read", leave_out_empty_folder)
    app.connect("build-finished", add_playground)
    app.add_html_math_renderer("mathml", (write_mathml, None), (write_mathml, None))

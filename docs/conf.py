"""Settings of the documentation: `sphinx-build -W --keep-going docs site`."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from docutils import nodes
from docutils.utils.math import latex2mathml

from mixnmatch import __version__, calibration_error, calibrator, load_sample
from mixnmatch.evaluation import log_loss, reliability_curve
from mixnmatch.playground import write_playground

sys.path.insert(0, str(Path(__file__).parent))  # for the extension "inventories", below

project = "mixnmatch"
author = "The mixnmatch developers"
copyright = author  # noqa: A001
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "sphinx_copybutton",
    "inventories",
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
html_static_path = ["_static"]
html_css_files = ["site.css", "slider.css"]
copybutton_exclude = ".linenos, .gp, .go"  # prompts and output are not part of a command
html_math_renderer = "mathml"
html_title = f"mixnmatch {__version__}"
html_show_sphinx = False


def write_mathml(writer: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers render without scripts: the site needs no network."""
    block = isinstance(node, nodes.math_block)
    formula = latex2mathml.tex2mathml(node.astext(), as_block=block)
    writer.body.append(f'<div class="math">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def add_dark_images(app: Any, tree: nodes.document) -> None:
    """Show the dark version of a picture, where there is one, on dark pages."""
    for image in list(tree.findall(nodes.image)):
        dark = image["uri"].replace(".png", "-dark.png")
        if dark != image["uri"] and Path(app.srcdir, app.env.docname).parent.joinpath(dark).is_file():
            other = image.deepcopy()
            other["uri"] = dark
            image["classes"].append("only-light")
            other["classes"].append("only-dark")
            image.parent.insert(image.parent.index(image) + 1, other)


def temperatures() -> dict[str, Any]:
    """Reliability of the embedded sample at several temperatures, for the slider of the page on calibration."""
    sample = load_sample()
    best = calibrator("ts", logits=True).fit(sample.logits_cal, sample.labels_cal).temperature_
    steps = []
    for temperature in np.round(np.geomspace(0.5, 4.0, 43), 2):
        rows = {"scores": sample.logits_eval / temperature, "y": sample.labels_eval, "logits": True}
        curve = reliability_curve(**rows, kind="histogram", bins=10)
        steps.append(
            {
                "temperature": float(temperature),
                "confidence": np.round(curve.confidence, 3).tolist(),
                "accuracy": np.round(curve.value, 3).tolist(),
                "share": np.round(curve.share, 3).tolist(),
                "error": float(calibration_error(**rows, estimator="histogram", interval=None)),
                "loss": float(log_loss(**rows)),
                "mean": curve.mean_confidence,
                "right": curve.mean_outcome,
            }
        )
    return {"fitted": round(float(best), 2), "steps": steps}


def add_pages(app: Any, error: Exception | None) -> None:
    """Put the playground and the data of the slider beside the other pages."""
    if error is None and app.builder.format == "html":
        write_playground(Path(app.outdir, "try.html"))
        data = f"const TEMPERATURES = {json.dumps(temperatures())};\n"
        Path(app.outdir, "_static", "temperatures.js").write_text(data, encoding="utf-8")


def setup(app: Any) -> None:
    """Register the dark pictures, the formulas, and the pages that Sphinx does not write."""
    app.connect("doctree-read", add_dark_images, priority=100)  # before Sphinx collects the images
    app.connect("build-finished", add_pages)
    app.add_html_math_renderer("mathml", (write_mathml, None), (write_mathml, None))

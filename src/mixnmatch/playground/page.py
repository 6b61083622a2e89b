"""The playground as one file: modules, style and the embedded sample put together."""

from __future__ import annotations

import base64
import re
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mixnmatch._files import atomic_write
from mixnmatch._html import asset, closed_page
from mixnmatch._version import __version__
from mixnmatch.data import load_sample

# The modules of the page, each after those that it imports.
MODULES = (
    "numbers",
    "table",
    "solve",
    "temperature",
    "ensemble",
    "logistic",
    "isotonic",
    "maps",
    "measures",
    "mapfile",
    "names",
    "reading",
    "sample",
    "session",
    "drawing",
    "page",
)
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";', re.MULTILINE)
EXPORT = re.compile(r"^export (?:const|class) (\w+)", re.MULTILINE)
# Images of the embedded sample in the page: every so many of them, and steps in which logits are written.
EVERY, SCALE = 4, 256
POSITIVE = "cat"


def write_playground(path: str | PathLike[str]) -> None:
    """Write the playground to a file.

    Parameters
    ----------
    path : path
        File to write, such as ``playground.html``.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "playground.html")
    >>> write_playground(path)
    >>> os.path.getsize(path) > 100_000
    True
    """
    atomic_write(Path(path), render_playground().encode())


def render_playground() -> str:
    """The playground as HTML.

    Returns
    -------
    str
        A whole page. A file of scores and labels that a user drops on it is read, calibrated and evaluated in the
        browser; its content security policy forbids network requests.
    """
    sample = _sample()
    return closed_page(
        "playground/assets/playground.html",
        style=asset("report/assets/report.css") + _asset("playground.css"),
        script=bundle(),
        embedded={"playground-data": {"version": __version__, "sample": sample}},
        heading="Calibration playground – mixnmatch",
        version=__version__,
        sample=sample,
        every=EVERY,
    )


def bundle() -> str:
    """The modules of the page as one script: a page that makes no requests cannot import files.

    Each module becomes a function that returns what it exports, so that its other names stay its own.
    """
    return "const modules = {};\n" + "".join(_as_function(name, _asset(f"{name}.js")) for name in MODULES)


def _as_function(name: str, source: str) -> str:
    exported = ", ".join(EXPORT.findall(source))
    inside = IMPORT.sub(r"const {\1} = modules.\2;", source).replace("\nexport ", "\n")
    return f"modules.{name} = (() => {{\n{inside}return {{ {exported} }};\n}})();\n"


def _asset(name: str) -> str:
    return asset(f"playground/assets/{name}")


def _sample() -> dict[str, Any]:
    """Every fourth image of the embedded sample, logits as whole numbers of two bytes."""
    sample = load_sample()
    logits = np.concatenate([sample.logits_cal, sample.logits_eval])[::EVERY]
    labels = np.concatenate([sample.labels_cal, sample.labels_eval])[::EVERY]
    steps = np.round(logits.astype(np.float64) * SCALE).astype("<i2")
    return {
        "scale": SCALE,
        "classes": list(sample.class_names),
        "positive": POSITIVE,
        "logits": base64.b64encode(steps.tobytes()).decode(),
        "labels": base64.b64encode(labels.astype("u1").tobytes()).decode(),
        "images": len(labels),
    }

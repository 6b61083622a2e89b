"""The playground as one file: modules, style and the embedded sample put together."""

from __future__ import annotations

import base64
import re
from html import escape
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mixnmatch._files import atomic_write
from mixnmatch._html import closed_page
from mixnmatch._version import __version__
from mixnmatch.data import load_sample
from mixnmatch.report.page import asset

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
    body = _asset("body.html").replace("@SAMPLE@", escape(_about(sample))).replace("@VERSION@", escape(__version__))
    return closed_page(
        "Calibration playground – mixnmatch",
        body,
        style=asset("report.css") + _asset("playground.css"),
        script=bundle(),
        data={"playground-data": {"version": __version__, "sample": sample}},
        script_type="module",
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
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


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


def _about(sample: dict[str, Any]) -> str:
    """What the samples in the page are."""
    return (
        f"LeNet-5 on CIFAR-10: logits of {sample['images']} images that the network was not trained on, every "
        f"{EVERY}th of the sample that comes with the library, rounded to multiples of 1/{sample['scale']}. The sample "
        f"with two classes asks of the same images whether they show a {sample['positive']}; its scores are the "
        "probabilities of that class. The network is overconfident."
    )

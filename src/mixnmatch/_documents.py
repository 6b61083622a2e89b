"""JSON files that are written atomically and read strictly: a format, a version, a checksum and exact numbers."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from importlib import import_module
from os import PathLike
from typing import Any, NoReturn

from mixnmatch._plain_files import NotAPlainFileError, read_plain_file
from mixnmatch._version import __version__

# Larger files are refused before they are read.
MOST_BYTES = 1 << 30
# JSON nested deeper than this is refused; a composition of two maps is 4 deep, each further map adds 3.
MOST_NESTING = 200


def sealed(document: dict[str, Any]) -> bytes:
    """Return a document as the bytes of a JSON file with a checksum."""
    content = json.dumps(document | {"sha256": checksum(document)}, indent=1, allow_nan=False)
    return content.encode() + b"\n"


def write_document(path: str | PathLike[str], document: dict[str, Any]) -> str:
    """Write a document with its checksum, atomically; returns the checksum."""
    from mixnmatch._files import atomic_write

    atomic_write(path, sealed(document))
    return checksum(document)


def read_document(
    path: str | PathLike[str], *, form: str, version: int, what: str, error: type[Exception]
) -> dict[str, Any]:
    """Read a document of a format, or raise an error that names the file and says what is wrong with it.

    Parameters
    ----------
    path : path
        The file.
    form : str
        The format that it must name.
    version : int
        The newest version of the format that is known here.
    what : str
        What such a file is called in messages.
    error : type
        Kind of error to raise.
    """
    name = os.fspath(path)
    try:
        raw = read_plain_file(path, MOST_BYTES)
    except NotAPlainFileError as found:
        raise error(str(found)) from None
    try:
        document = json.loads(raw.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        msg = f"{name} is not a {what}: it is not JSON, or was cut short"
        raise error(msg) from None
    if not isinstance(document, dict) or document.get("format") != form:
        msg = f"{name} is not a {what} of mixnmatch"
        raise error(msg)
    if nesting(document) > MOST_NESTING:
        msg = f"{name} is nested more than {MOST_NESTING} levels deep, which no {what} is"
        raise error(msg)
    given = document.get("version")
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        msg = f"{name} has no valid format version"
        raise error(msg)
    if given > version:
        msg = f"{name} has format version {given}; this is {__version__}, which reads up to {version}: update it"
        raise error(msg)
    if document.get("sha256") != checksum({key: value for key, value in document.items() if key != "sha256"}):
        msg = f"{name} was edited or corrupted: its checksum does not match"
        raise error(msg)
    return document


def checksum(document: dict[str, Any]) -> str:
    """Return the SHA-256 of a document, independent of its layout."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return str(_sha256()(canonical.encode()).hexdigest())


def _sha256() -> Any:
    """Return Python's own SHA-256: ``hashlib`` loads OpenSSL, which takes longer than reading a map file."""
    for name in ("_sha2", "_sha256"):  # from Python 3.12 on, and before
        with suppress(ImportError):
            return import_module(name).sha256
    return import_module("hashlib").sha256


def nesting(document: Any) -> int:
    """Return the nesting depth of lists and tables, without recursion."""
    depth, level = 0, [document]
    while level and depth <= MOST_NESTING:
        level = [
            item
            for node in level
            for item in (node.values() if isinstance(node, dict) else node)
            if isinstance(item, dict | list)
        ]
        depth += 1
    return depth


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):  # such as 1e999: JSON has it, floats have not
        raise ValueError(text)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)

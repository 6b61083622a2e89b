"""Save and load maps as versioned JSON files with exact numbers; code in a file is never executed.

A file holds a readable header, the user's metadata and the map (:mod:`mixnmatch._map_json`). A checksum detects
corruption. Only regular files up to a stated size are read. Files of format version 1 will always load; a newer format
is refused with a message.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from mixnmatch._documents import MOST_NESTING, nesting, read_document, sealed
from mixnmatch._engine.passes import settings
from mixnmatch._map_json import MapFileError, decode, encode
from mixnmatch._version import __version__
from mixnmatch.maps.base import CalibrationMap

__all__ = ["MapFileError", "load", "read_header", "save"]

FORMAT = "mixnmatch-map"
VERSION = 1


def to_bytes(fitted: CalibrationMap, *, metadata: Mapping[str, Any] | None = None) -> bytes:
    """Return a fitted map as the bytes of a file; see :func:`save`."""
    if metadata is None:
        metadata = getattr(fitted, "metadata_", {})
    body = encode(fitted)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "library": f"mixnmatch {__version__}",
        "summary": {
            "method": " ".join(repr(fitted).split()),
            "accuracy_preserving": bool(fitted.accuracy_preserving),
            "rows": fitted.total_weight_,
            "classes": fitted.n_classes_,
            "loss": getattr(fitted, "loss", None),
            "metrics_at_fit": _metrics(fitted),
        },
        "map": body,
    }
    if not isinstance(metadata, Mapping):
        msg = f"metadata must be a mapping, such as {{'model': 'v3'}}, got {metadata!r:.80}"
        raise TypeError(msg)
    if metadata:
        document["metadata"] = _plain_metadata(metadata)
    if nesting(document) > MOST_NESTING:
        msg = f"the map or its metadata are nested more than {MOST_NESTING} levels deep and could not be loaded again"
        raise ValueError(msg)
    return sealed(document)


def save(fitted: CalibrationMap, path: str | PathLike[str], *, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a fitted map to ``path``, atomically.

    Parameters
    ----------
    fitted : CalibrationMap
        The map.
    path : path
        File to write.
    metadata : mapping, optional
        What else the file should say, such as the hash of a model or the name of a data set: text, numbers, lists and
        mappings with text as keys. If not given, a map that was loaded keeps the metadata of its file.
    """
    from mixnmatch._files import atomic_write

    atomic_write(path, to_bytes(fitted, metadata=metadata))


def _metrics(fitted: CalibrationMap) -> dict[str, float]:
    value = getattr(fitted, "loss_", None)
    return {"mean_loss": float(value)} if isinstance(value, float) and np.isfinite(value) else {}


def _plain_metadata(value: Any, where: str = "metadata", depth: int = 0) -> Any:
    """Return a copy of metadata made of plain values; raise an error for other values."""
    if depth > MOST_NESTING:
        msg = f"{where:.80} is nested too deeply"
        raise ValueError(msg)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                msg = f"{where} has the key {key!r:.80}; keys must be text"
                raise TypeError(msg)
        return {key: _plain_metadata(item, f"{where}[{key!r}]", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_metadata(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        msg = f"{where} is {value}, which JSON cannot hold; leave it out or write it as text"
        raise ValueError(msg)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    msg = f"{where} is a {type(value).__name__}; metadata can be text, numbers, lists and mappings"
    raise TypeError(msg)


def load(path: str | PathLike[str]) -> CalibrationMap:
    """Read a map that :meth:`CalibrationMap.save` wrote.

    The map has two attributes more than the one that was saved: ``header_``, what :func:`read_header` returns, and
    ``metadata_``, the user's metadata.

    Raises
    ------
    MapFileError
        If the file is not such a file, is corrupted or edited, or is of a newer format.
    OSError
        If the file cannot be read.
    """
    name = os.fspath(path)
    settings()  # a wrong value in the environment is no fault of the file
    document = _read_document(path)
    try:
        made = _checked(decode(document.get("map")))
    except MapFileError as error:
        msg = f"{name} does not hold a valid map: {error}"
        raise MapFileError(msg) from None
    except Exception as error:
        msg = f"{name} does not hold a valid map: {error!s:.500}"
        raise MapFileError(msg) from None
    header = _header(document)
    return made._with_fitted({"header_": header, "metadata_": header["metadata"]})


def read_header(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the header of a map file without building the map.

    Returns
    -------
    dict
        ``format``, ``version``, ``library``, ``summary`` (method, number of rows and classes, metrics at the fit) and
        ``metadata``.

    Raises
    ------
    MapFileError
        If the file is not a map file, or its checksum does not match.
    OSError
        If the file cannot be read.
    """
    return _header(_read_document(path))


def _header(document: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {}, **{key: value for key, value in document.items() if key != "map"}}


def _read_document(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the JSON of a map file and check its metadata."""
    document = read_document(path, form=FORMAT, version=VERSION, what="map file", error=MapFileError)
    if not isinstance(document.get("metadata", {}), dict):
        msg = f"{os.fspath(path)} has metadata that are not a table"
        raise MapFileError(msg)
    return document


def _checked(made: Any) -> CalibrationMap:
    """Apply the map to a few samples, check the result, and return the map."""
    if not isinstance(made, CalibrationMap):
        msg = "its content is not a map"
        raise MapFileError(msg)
    classes = made.n_classes_
    # The uniform row, rows that are sure of a class, and one with small and large entries.
    steep = np.full((1, classes), 1e-3 / classes)
    steep[0, -1] += 1 - steep.sum()
    rows = np.concatenate([np.full((1, classes), 1 / classes), np.eye(min(classes, 3), classes), steep])
    if made._input_settings()["logits"]:
        rows *= 20
    result = made.predict_proba(rows)
    sound = result.shape == rows.shape and np.isfinite(result).all() and (result >= 0).all()
    if not sound or np.abs(result.sum(axis=1) - 1).max() > 1e-6:
        msg = "the map does not give probabilities"
        raise MapFileError(msg)
    return made

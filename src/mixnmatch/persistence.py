"""Saving and loading maps: one JSON file, versioned, with exact numbers and nothing that could run.

A file holds a readable header and the map as a tree of ``{"type", "params", "fitted"}``. Only the classes listed here
can be named in it, and only numbers, text and arrays of numbers can be in it. A checksum tells an edited or damaged
file. Files of format version 1 will always load; a newer format is refused with a message.
"""

from __future__ import annotations

import base64
import os
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._documents import read_document, write_document
from mixnmatch._version import __version__
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.summary import CalibrationSummary

FORMAT = "mixnmatch-map"
VERSION = 1
# Arrays up to this size are written as readable numbers, larger ones as base64 of little-endian bytes.
READABLE = 64
_COMMON = ("classes_", "n_classes_", "total_weight_")
# What a map may have beside that; files of older versions have none.
_OPTIONAL = ("summary_",)
_SUMMARY = ("mean_prediction", "counts")
_DTYPES = ("<f8", "<i8")


class MapFileError(ValueError):
    """A file does not hold a map that can be loaded; the message says why."""


def _known() -> dict[str, type[CalibrationMap]]:
    from mixnmatch.maps import SAVABLE

    return {kind.__name__: kind for kind in SAVABLE}


def save(fitted: CalibrationMap, path: str | PathLike[str]) -> None:
    """Write a fitted map to ``path``, atomically: the file is the old one or the new one, never half of it."""
    body = _encode(fitted)
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
    write_document(path, document)


def _metrics(fitted: CalibrationMap) -> dict[str, float]:
    value = getattr(fitted, "loss_", None)
    return {"mean_loss": float(value)} if isinstance(value, float) and np.isfinite(value) else {}


def load(path: str | PathLike[str]) -> CalibrationMap:
    """Read a map that :meth:`CalibrationMap.save` wrote.

    Raises
    ------
    MapFileError
        If the file is not such a file, is damaged or edited, or is of a newer format.
    OSError
        If the file cannot be read.
    """
    name = os.fspath(path)
    document = read_document(path, form=FORMAT, version=VERSION, what="map file", error=MapFileError)
    try:
        return _checked(_decode(document.get("map")))
    except MapFileError:
        raise
    except Exception as error:
        msg = f"{name} does not hold a valid map: {error}"
        raise MapFileError(msg) from None


def _encode(value: Any) -> Any:
    if isinstance(value, CalibrationMap):
        return _encode_map(value)
    if isinstance(value, CalibrationSummary):
        return {"summary": {name: _encode_array(getattr(value, name)) for name in _SUMMARY}}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.ndarray):
        return _encode_array(value)
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, list | tuple):
        return {"list": [_encode(item) for item in value]}
    msg = f"{value!r:.80} cannot be saved: only maps of this library, numbers, text and arrays can"
    raise TypeError(msg)


def _encode_map(fitted: CalibrationMap) -> dict[str, Any]:
    name = type(fitted).__name__
    if _known().get(name) is not type(fitted):
        msg = f"a {name} cannot be saved: it is not a map of this library"
        raise TypeError(msg)
    if not hasattr(fitted, "n_classes_"):
        msg = f"{fitted!r:.80} is not fitted; fit it before saving"
        raise ValueError(msg)
    attributes = (*fitted._fitted, *_COMMON, *(name for name in _OPTIONAL if hasattr(fitted, name)))
    params = fitted.get_params(deep=False)
    return {
        "type": name,
        "params": {key: _encode_param(value) for key, value in params.items()},
        "fitted": {key: _encode(getattr(fitted, key)) for key in attributes},
    }


def _encode_param(value: Any) -> Any:
    if isinstance(value, CalibrationMap):
        params = value.get_params(deep=False)
        name = type(value).__name__
        if _known().get(name) is not type(value):
            msg = f"a {name} cannot be saved: it is not a map of this library"
            raise TypeError(msg)
        return {"unfitted": name, "params": {key: _encode_param(item) for key, item in params.items()}}
    return _encode(value)


def _encode_array(array: NDArray[Any]) -> dict[str, Any]:
    if array.dtype.kind == "U":
        return {"text": [str(item) for item in array]}
    if array.dtype.kind not in "fiu":
        msg = f"arrays of type {array.dtype} cannot be saved"
        raise TypeError(msg)
    dtype = "<f8" if array.dtype.kind == "f" else "<i8"
    plain = np.ascontiguousarray(array, dtype=dtype)
    header = {"dtype": dtype, "shape": list(plain.shape)}
    if plain.size <= READABLE and np.isfinite(plain).all():
        return {"array": header | {"values": plain.ravel().tolist()}}
    return {"array": header | {"base64": base64.b64encode(plain.tobytes()).decode("ascii")}}


def _decode(value: Any) -> Any:
    if value is None or isinstance(value, bool | str | int | float):
        return value
    if not isinstance(value, dict):
        msg = "an unexpected value"
        raise MapFileError(msg)
    keys = set(value)
    if keys == {"type", "params", "fitted"}:
        return _decode_map(value)
    if keys == {"unfitted", "params"}:
        return _class(value["unfitted"])(**_decode_params(value["params"]))
    if keys == {"array"}:
        return _decode_array(value["array"])
    if keys == {"summary"}:
        return _decode_summary(value["summary"])
    if keys == {"text"}:
        return np.array([_text(item) for item in value["text"]], dtype=str)
    if keys == {"list"}:
        return [_decode(item) for item in value["list"]]
    if keys == {"float"} and value["float"] in ("inf", "-inf", "nan"):
        return float(value["float"])
    msg = f"an unexpected entry with keys {sorted(map(str, keys))}"
    raise MapFileError(msg)


def _text(item: Any) -> str:
    if not isinstance(item, str):
        msg = "a class name that is not text"
        raise MapFileError(msg)
    return item


def _class(name: Any) -> type[CalibrationMap]:
    kind = _known().get(name) if isinstance(name, str) else None
    if kind is None:
        msg = f"it names a map that does not exist: {name!r:.80}"
        raise MapFileError(msg)
    return kind


def _decode_params(params: Any) -> dict[str, Any]:
    if not isinstance(params, dict):
        msg = "parameters that are not a table"
        raise MapFileError(msg)
    return {str(key): _decode(value) for key, value in params.items()}


def _decode_map(value: dict[str, Any]) -> CalibrationMap:
    kind = _class(value["type"])
    made = kind(**_decode_params(value["params"]))
    fitted = value["fitted"]
    expected = {*kind._fitted, *_COMMON}
    if not isinstance(fitted, dict) or set(fitted) - {*_OPTIONAL} != expected:
        msg = f"the attributes of a {kind.__name__} are not {sorted(expected)}"
        raise MapFileError(msg)
    for key, item in fitted.items():
        value = _decode(item)
        if not _is_of_kind(value, _annotation(kind, key)):
            msg = f"{key} of a {kind.__name__} is not of the right kind"
            raise MapFileError(msg)
        setattr(made, key, value)
    classes = made.classes_
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or made.n_classes_ != len(classes) or len(classes) < 2:
        msg = "the number of classes does not fit their names"
        raise MapFileError(msg)
    for key in expected - {"classes_", "loss_"}:
        item = getattr(made, key)
        if isinstance(item, float | np.ndarray) and not np.isfinite(item).all():
            msg = f"{key} of a {kind.__name__} is not finite"
            raise MapFileError(msg)
    summary = getattr(made, "summary_", None)
    if summary is not None and len(summary.mean_prediction) != len(classes):
        msg = "the summary of the calibration set is not of these classes"
        raise MapFileError(msg)
    made._check_fitted()
    return made


def _decode_summary(value: Any) -> CalibrationSummary:
    if not isinstance(value, dict) or set(value) != set(_SUMMARY):
        msg = "a summary of the calibration set that is not complete"
        raise MapFileError(msg)
    arrays = {name: _decode(item) for name, item in value.items()}
    if not all(isinstance(array, np.ndarray) and array.dtype.kind == "f" for array in arrays.values()):
        msg = "a summary of the calibration set without numbers"
        raise MapFileError(msg)
    return CalibrationSummary(**arrays)


def _annotation(kind: type, key: str) -> str:
    """What a class says of an attribute."""
    return next(str(found[key]) for base in kind.__mro__ if key in (found := vars(base).get("__annotations__", {})))


def _is_of_kind(value: Any, annotation: str) -> bool:
    """Whether a value is a number, text, an array or a map, whichever it should be."""
    if annotation.startswith(("NDArray", "Array", "Vector")):
        return isinstance(value, np.ndarray)
    plain: dict[str, Any] = {"float": int | float, "int": int, "str": str, "str | None": str | None}
    if annotation in plain:
        return isinstance(value, plain[annotation]) and not isinstance(value, bool)
    if annotation == "CalibrationSummary":
        return isinstance(value, CalibrationSummary)
    return isinstance(value, list if annotation.startswith("list") else CalibrationMap)


def _decode_array(value: Any) -> NDArray[Any]:
    if not isinstance(value, dict) or value.get("dtype") not in _DTYPES or not isinstance(value.get("shape"), list):
        msg = "an array without a valid type and shape"
        raise MapFileError(msg)
    shape = value["shape"]
    if not all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in shape):
        msg = "an array with an invalid shape"
        raise MapFileError(msg)
    if set(value) == {"dtype", "shape", "values"} and isinstance(value["values"], list):
        flat = np.array(value["values"], dtype=value["dtype"])
    elif set(value) == {"dtype", "shape", "base64"}:
        flat = np.frombuffer(base64.b64decode(value["base64"], validate=True), dtype=value["dtype"])
    else:
        msg = "an array without values"
        raise MapFileError(msg)
    native = flat.astype(flat.dtype.newbyteorder("="))
    return native.reshape(shape)


def _checked(made: Any) -> CalibrationMap:
    """The map, once it has shown on a few rows that it works as a whole."""
    if not isinstance(made, CalibrationMap):
        msg = "its content is not a map"
        raise MapFileError(msg)
    made._check_params()
    classes = made.n_classes_
    # The uniform row, rows that are sure of a class, and one with small and large entries.
    steep = np.full((1, classes), 1e-3 / classes)
    steep[0, -1] += 1 - steep.sum()
    rows = np.concatenate([np.full((1, classes), 1 / classes), np.eye(min(classes, 3), classes), steep])
    result = made.predict_proba(rows)
    sound = result.shape == rows.shape and np.isfinite(result).all() and (result >= 0).all()
    if not sound or np.abs(result.sum(axis=1) - 1).max() > 1e-6:
        msg = "the map does not give probabilities"
        raise MapFileError(msg)
    return made

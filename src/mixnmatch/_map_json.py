"""Maps as trees of plain JSON values and back: only known classes, numbers, text and arrays of numbers.

A map is ``{"type", "params", "fitted"}``. Floats are written so that they come back exactly; what JSON has no number
for (NaN, infinities) is text.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from inspect import get_annotations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.registry import map_class
from mixnmatch.maps.summary import CalibrationSummary

# Arrays up to this size are written as readable numbers, larger ones as base64 of little-endian bytes.
READABLE = 64
COMMON = ("classes_", "n_classes_", "total_weight_")
# Attributes that only some fitted maps have.
OPTIONAL = ("columns_", "vector_", "summary_")
SUMMARY = ("mean_prediction", "cells", "weights")
DENSE_SUMMARY = ("mean_prediction", "counts")
# Attributes that had another name in earlier files.
RENAMED = {"log_floor_": "probability_floor_"}
DTYPES = ("<f8", "<i8", "<u8", "|b1")


class MapFileError(ValueError):
    """A file does not hold a map that can be loaded; the message says why."""


def encode(value: Any) -> Any:
    """A fitted map, or a part of one, as plain values."""
    if isinstance(value, CalibrationMap):
        return _encode_map(value)
    if isinstance(value, CalibrationSummary):
        cells, weights = value.nonzero()
        parts = zip(SUMMARY, (value.mean_prediction, cells, weights), strict=True)
        return {"summary": {name: _encode_array(array) for name, array in parts}}
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, np.ndarray):
        return _encode_array(value)
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin1")}
    if isinstance(value, list | tuple):
        return {"list": [encode(item) for item in value]}
    msg = f"{value!r:.80} cannot be saved: only maps of this library, numbers, text and arrays can"
    raise TypeError(msg)


def _encode_map(fitted: CalibrationMap) -> dict[str, Any]:
    name = _name_of(fitted)
    if not hasattr(fitted, "n_classes_"):
        msg = f"{fitted!r:.80} is not fitted; fit it before saving"
        raise ValueError(msg)
    for key in fitted._fitted:
        _annotation(type(fitted), key)  # a file without it could not be loaded
    return {
        "type": name,
        "params": {key: _encode_param(value) for key, value in fitted.get_params(deep=False).items()},
        "fitted": {key: encode(getattr(fitted, key)) for key in _attributes(fitted)},
    }


def _attributes(fitted: CalibrationMap) -> tuple[str, ...]:
    return (*fitted._fitted, *COMMON, *(name for name in OPTIONAL if hasattr(fitted, name)))


def _encode_param(value: Any) -> Any:
    if isinstance(value, CalibrationMap):
        params = value.get_params(deep=False)
        return {"unfitted": _name_of(value), "params": {key: _encode_param(item) for key, item in params.items()}}
    return encode(value)


def _name_of(map_: CalibrationMap) -> str:
    name = type(map_).__name__
    if map_class(name) is not type(map_):
        msg = f"a {name} cannot be saved: it is not a map of this library; mixnmatch.maps.register_map makes it one"
        raise TypeError(msg)
    return name


def _encode_array(array: NDArray[Any]) -> dict[str, Any]:
    if array.dtype.kind == "O":
        return {"list": [encode(item) for item in array.tolist()]}
    if array.dtype.kind == "U":
        return {"text": [str(item) for item in array]}
    if array.dtype.kind == "S":
        return {"list": [encode(item) for item in array.tolist()]}
    if array.dtype.kind not in "fiub":
        msg = f"arrays of type {array.dtype} cannot be saved"
        raise TypeError(msg)
    dtype = {"f": "<f8", "i": "<i8", "b": "|b1"}.get(array.dtype.kind, "<i8")
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        dtype = "<u8"
    plain = np.ascontiguousarray(array, dtype=dtype)
    header = {"dtype": dtype, "shape": list(plain.shape)}
    if plain.size <= READABLE and np.isfinite(plain).all():
        return {"array": header | {"values": plain.ravel().tolist()}}
    return {"array": header | {"base64": base64.b64encode(plain.tobytes()).decode("ascii")}}


def decode(value: Any) -> Any:
    """What :func:`encode` was given; every map in it has passed its checks."""
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
    if len(keys) == 1 and (key := next(iter(keys))) in _LEAVES:
        return _LEAVES[key](value[key])
    msg = f"an unexpected entry with keys {sorted(map(str, keys))!r:.200}"
    raise MapFileError(msg)


def _decode_text(items: Any) -> NDArray[Any]:
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        msg = "a class name that is not text"
        raise MapFileError(msg)
    return np.array(items, dtype=str)


def _decode_list(items: Any) -> list[Any]:
    if not isinstance(items, list):
        msg = "a value that should be a list"
        raise MapFileError(msg)
    return [decode(item) for item in items]


def _decode_float(text: Any) -> float:
    if text not in ("inf", "-inf", "nan"):
        msg = "a value that should be a number"
        raise MapFileError(msg)
    return float(text)


def _decode_bytes(text: Any) -> bytes:
    if not isinstance(text, str):
        msg = "bytes that are not encoded as text"
        raise MapFileError(msg)
    return text.encode("latin1")


def _decode_array(value: Any) -> NDArray[Any]:
    if not isinstance(value, dict) or value.get("dtype") not in DTYPES or not isinstance(value.get("shape"), list):
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
    return flat.astype(flat.dtype.newbyteorder("=")).reshape(shape)


def _decode_summary(value: Any) -> CalibrationSummary:
    """A summary from its cells of positive weight, or from all of its counts (0.2 before its release, playground)."""
    made: dict[tuple[str, ...], tuple[str, Callable[..., CalibrationSummary]]] = {
        SUMMARY: ("fif", CalibrationSummary.of_cells),
        DENSE_SUMMARY: ("ff", CalibrationSummary),
    }
    for names, (kinds, make) in made.items():
        if isinstance(value, dict) and set(value) == set(names):
            parts = [decode(value[name]) for name in names]
            if [part.dtype.kind if isinstance(part, np.ndarray) else "" for part in parts] != list(kinds):
                msg = "a summary of the calibration set without numbers"
                raise MapFileError(msg)
            return make(*parts)
    msg = "a summary of the calibration set that is not complete"
    raise MapFileError(msg)


_LEAVES = {
    "summary": _decode_summary,
    "array": _decode_array,
    "text": _decode_text,
    "list": _decode_list,
    "float": _decode_float,
    "bytes": _decode_bytes,
}


def _class(name: Any) -> type[CalibrationMap]:
    kind = map_class(name) if isinstance(name, str) else None
    if kind is None:
        msg = f"it names a map that does not exist: {name!r:.80}"
        raise MapFileError(msg)
    return kind


def _decode_params(params: Any) -> dict[str, Any]:
    if not isinstance(params, dict):
        msg = "parameters that are not a table"
        raise MapFileError(msg)
    return {str(key): decode(value) for key, value in params.items()}


def _decode_map(value: dict[str, Any]) -> CalibrationMap:
    kind = _class(value["type"])
    made = kind(**_decode_params(value["params"]))
    fitted = value["fitted"]
    if isinstance(fitted, dict):
        # Files of older versions lack attributes that came later, or call them by another name.
        later = {key: encode(item) for key, item in kind._fitted_later.items()}
        fitted = later | {RENAMED.get(key, key): item for key, item in fitted.items()}
    expected = {*kind._fitted, *COMMON}
    if not isinstance(fitted, dict) or set(fitted) - set(OPTIONAL) != expected:
        msg = f"the attributes of a {kind.__name__} are not {sorted(expected)}"
        raise MapFileError(msg)
    attributes: dict[str, Any] = {}
    for key, item in fitted.items():
        found = decode(item)
        if key == "classes_" and isinstance(found, list):
            found = _names(found)
        if not _is_of_kind(found, _annotation(kind, key)):
            msg = f"{key} of a {kind.__name__} is not of the right kind"
            raise MapFileError(msg)
        attributes[key] = found
    made._with_fitted(attributes)
    _check_common(made)
    made._check_params()
    made._check_fitted()
    return made


def _names(items: list[Any]) -> NDArray[Any]:
    """Names of classes that were an array of Python objects or of bytes."""
    if all(isinstance(item, bytes) for item in items):
        return np.array(items)
    names = np.empty(len(items), dtype=object)
    names[:] = items
    return names


def _check_common(made: CalibrationMap) -> None:
    """What holds for every map: as many classes as names, all different, some rows, and finite numbers."""
    name = type(made).__name__
    classes = made.classes_
    if classes.ndim != 1 or made.n_classes_ != len(classes) or len(classes) < 2:
        msg = "the number of classes does not fit their names"
        raise MapFileError(msg)
    if len(set(classes.tolist())) != len(classes):
        msg = "two classes have the same name"
        raise MapFileError(msg)
    for key in {*made._fitted, *COMMON} - {"classes_"} - made._unknown:
        item = getattr(made, key)
        if isinstance(item, float | np.ndarray) and not np.isfinite(item).all():
            msg = f"{key} of a {name} is not finite"
            raise MapFileError(msg)
    summary = getattr(made, "summary_", None)
    if summary is not None and len(summary.mean_prediction) != len(classes):
        msg = "the summary of the calibration set is not of these classes"
        raise MapFileError(msg)
    if not made.total_weight_ > 0:
        msg = f"total_weight_ of a {name} is not positive"
        raise MapFileError(msg)


def _annotations(kind: type) -> dict[str, Any]:
    """Return the annotations of a class itself; ``get_annotations`` copies them, which takes long for many classes."""
    found = vars(kind).get("__annotations__") if sys.version_info < (3, 14) else get_annotations(kind)
    return found or {}


def _annotation(kind: type, key: str) -> str:
    """What a class says of an attribute, as it is written in the source.

    Raises
    ------
    TypeError
        If it says nothing. Without it a value in a file could not be checked.
    """
    for base in kind.__mro__:
        found = _annotations(base).get(key)
        if found is not None:
            text = found if isinstance(found, str) else found.__name__ if type(found) is type else str(found)
            return text.removeprefix("numpy.").removeprefix("np.").replace("ndarray", "NDArray", 1)
    msg = f"{kind.__name__} does not say what {key} is: annotate it in the class, such as {key}: NDArray[np.float64]"
    raise TypeError(msg)


def _is_of_kind(value: Any, annotation: str) -> bool:
    """Whether a value is a number, text, an array or a map, whichever it should be."""
    if annotation.startswith(("NDArray", "Array", "Vector")):
        return isinstance(value, np.ndarray)
    plain: dict[str, Any] = {"float": int | float, "int": int, "str": str, "str | None": str | None}
    if annotation == "bool":
        return isinstance(value, bool)
    if annotation in plain:
        return isinstance(value, plain[annotation]) and not isinstance(value, bool)
    if annotation == "CalibrationSummary":
        return isinstance(value, CalibrationSummary)
    if annotation == "list[str]":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if annotation.startswith("list"):
        return isinstance(value, list) and all(isinstance(item, CalibrationMap) for item in value)
    return isinstance(value, CalibrationMap)

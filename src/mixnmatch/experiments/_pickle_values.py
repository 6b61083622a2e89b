"""What stands in for NumPy objects while a pickle is read, and how arrays and bytes are made of it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

# Lists and tables inside each other.
MOST_NESTING = 100


class PickleError(ValueError):
    """A file is not a pickle of arrays; the message says what it holds instead."""


def as_text(value: Any) -> str:
    """Text, which Python 2 wrote as bytes."""
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


class Dtype:
    """Stand-in for a numeric numpy.dtype."""

    def __init__(self, code: Any, *_: Any) -> None:
        text = as_text(code)[:8]
        if text.lstrip("<>|=")[:1] not in tuple("biuf") or not text.lstrip("<>|=")[1:].isdigit():
            msg = f"arrays of type {text!r} are not admitted, only numeric ones"
            raise PickleError(msg)
        self.code = text

    def set_state(self, state: tuple[Any, ...]) -> None:
        order = as_text(state[1])
        if order in ("<", ">"):
            self.code = order + self.code.lstrip("<>|=")


class Array:
    """Stand-in for a numpy.ndarray that is being rebuilt."""

    def __init__(self, dtype: Any = None, raw: Any = b"", shape: Any = (), fortran: bool = False) -> None:
        self.parts = (dtype, raw, shape, fortran)

    def set_state(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        self.parts = (dtype, raw, shape, bool(fortran))

    def array(self) -> npt.NDArray[Any]:
        dtype, raw, shape, fortran = self.parts
        if not isinstance(dtype, Dtype) or not isinstance(raw, bytes) or not isinstance(shape, tuple):
            msg = "an array in the pickle is not made of plain bytes"
            raise PickleError(msg)
        flat = np.frombuffer(raw, dtype=np.dtype(dtype.code))
        return flat.reshape(tuple(int(k) for k in shape), order="F" if fortran else "C").copy()


class Latin1:
    """How Python 3 spells bytes in protocols that have none: ``bytes()`` or ``encode(text, "latin1")``."""

    def __init__(self, text: Any = "", codec: Any = "latin1") -> None:
        if not isinstance(text, str) or as_text(codec) != "latin1":
            msg = "only latin1 text is admitted as bytes"
            raise PickleError(msg)
        self.text = text


class Name:
    """A name that the pickle asks for, and what stands in for a call of it."""

    def __init__(self, call: Callable[..., Any] | None) -> None:
        self.call = call


_CORES = ("numpy.core", "numpy._core")
_ADMITTED: dict[tuple[str, str], Callable[..., Any] | None] = {
    ("numpy", "dtype"): Dtype,
    ("numpy", "ndarray"): None,  # only ever handed to _reconstruct
    ("_codecs", "encode"): Latin1,
    ("__builtin__", "bytes"): Latin1,
    **{(f"{core}.multiarray", "_reconstruct"): lambda _type, _shape, _code: Array() for core in _CORES},
    **{(f"{core}.multiarray", "scalar"): lambda dtype, raw: Array(dtype, raw) for core in _CORES},
    **{
        (f"{core}.numeric", "_frombuffer"): lambda raw, dtype, shape, order: Array(
            dtype, raw, shape, as_text(order) == "F"
        )
        for core in _CORES
    },
}


def admitted_name(module: Any, name: Any) -> Name:
    asked = as_text(module), as_text(name)
    if asked not in _ADMITTED:
        shown = ".".join(asked)
        msg = f"the pickle asks for {shown!r:.80}; only NumPy arrays, text, numbers and containers are admitted"
        raise PickleError(msg)
    return Name(_ADMITTED[asked])


class Materials:
    """Turns stand-ins into arrays and bytes; what is used more than once is made once."""

    def __init__(self, bytes_left: int) -> None:
        self.bytes_left = bytes_left
        self.built: dict[int, Any] = {}

    def build(self, value: Any, depth: int = 0) -> Any:
        """A value without stand-ins."""
        if depth > MOST_NESTING:
            msg = f"it nests containers more than {MOST_NESTING} deep"
            raise PickleError(msg)
        if value is None or type(value) in (bytes, str, bool, int, float):
            return value
        if id(value) not in self.built:
            self.built[id(value)] = self._built(value, depth)
        return self.built[id(value)]

    def _built(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is Latin1:
            return self._bytes(value)
        if kind is Array:
            dtype, raw, shape, fortran = value.parts
            raw = self._bytes(raw) if type(raw) is Latin1 else raw
            self._spend(len(raw) if isinstance(raw, bytes) else 0)
            array = Array(dtype, raw, shape, fortran).array()
            return array if array.ndim else array[()]
        if kind is dict:
            return {key: self.build(item, depth + 1) for key, item in value.items()}
        if kind in (list, tuple):
            return kind(self.build(item, depth + 1) for item in value)
        msg = f"a {kind.__name__.lower()} is not admitted in the pickle"
        raise PickleError(msg)

    def _bytes(self, value: Latin1) -> bytes:
        self._spend(len(value.text))
        return value.text.encode("latin1")

    def _spend(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            msg = "it expands to more bytes than it holds"
            raise PickleError(msg)

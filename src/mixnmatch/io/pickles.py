"""Pickles of arrays, read without running any code of the file."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["as_text", "read_pickle"]

_DAMAGE = (ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


def read_pickle(path: str | os.PathLike[str]) -> Any:
    """Read a pickle that holds nothing but containers, text, numbers and numeric NumPy arrays.

    Parameters
    ----------
    path : path
        A pickle of any protocol, written by Python 2 or 3.

    Returns
    -------
    object
        Lists, tuples, dicts, bytes, str, numbers and arrays; text of Python 2 comes back as bytes.

    Raises
    ------
    pickle.UnpicklingError
        If the file names any other class or function, or an array of objects.

    Notes
    -----
    Not even NumPy's own constructors are called: stand-ins take down shape, type and bytes, and are turned into
    arrays afterwards.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        _check_opcodes(raw)
        reader = _RestrictedUnpickler(io.BytesIO(raw), encoding="bytes")
        reader.room = 4 * len(raw) + 4096
        return reader.materialise(reader.load())
    except pickle.UnpicklingError as error:
        msg = f"{path}: {error}"
        raise pickle.UnpicklingError(msg) from None
    except _DAMAGE as error:
        msg = f"{path} is not a readable pickle: {error}"
        raise pickle.UnpicklingError(msg) from error


class _Dtype:
    """Stand-in for a numeric numpy.dtype."""

    def __init__(self, code: Any, *_: Any) -> None:
        text = as_text(code)[:8]
        if text.lstrip("<>|=")[:1] not in tuple("biuf") or not text.lstrip("<>|=")[1:].isdigit():
            msg = f"arrays of type {text!r} are not admitted, only numeric ones"
            raise pickle.UnpicklingError(msg)
        self.code = text

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = as_text(state[1])
        if order in ("<", ">"):
            self.code = order + self.code.lstrip("<>|=")


class _Array:
    """Stand-in for a numpy.ndarray that is being rebuilt."""

    def __init__(self, dtype: Any = None, raw: Any = b"", shape: Any = (), fortran: bool = False) -> None:
        self.parts = (dtype, raw, shape, fortran)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        self.parts = (dtype, raw, shape, bool(fortran))

    def array(self) -> npt.NDArray[Any]:
        dtype, raw, shape, fortran = self.parts
        if not isinstance(dtype, _Dtype) or not isinstance(raw, bytes | bytearray):
            msg = "an array in the pickle is not made of plain bytes"
            raise pickle.UnpicklingError(msg)
        flat = np.frombuffer(raw, dtype=np.dtype(dtype.code))
        return flat.reshape(tuple(int(k) for k in shape), order="F" if fortran else "C").copy()


def _stub_reconstruct(subtype: Any, shape: Any, code: Any) -> _Array:
    return _Array()


def _stub_frombuffer(raw: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    return _Array(dtype, raw, shape, as_text(order) == "F")


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,  # only ever handed to _reconstruct
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _stub_reconstruct for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _Array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _stub_frombuffer for core in ("core", "_core")},
}


def _check_opcodes(raw: bytes) -> None:
    """Refuse what no pickler writes and what could take time or memory out of proportion to the file.

    Lengths beyond the end of the file fail here, before room is made for them, and so do numbers of memory cells that
    skip others. Tuples that are used twice could be nested into keys whose hash takes for ever.
    """
    cells, top_is_tuple = 0, False
    tuples: set[int] = set()
    for name, argument in _opcodes(io.BytesIO(raw)):
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            index = cells if argument is None else int(argument)
            if index > cells + 1:
                msg = f"memory cell {index} is used before those below it"
                raise pickle.UnpicklingError(msg)
            cells += 1
            (tuples.add if top_is_tuple else tuples.discard)(index)
            continue
        shared = name in ("GET", "BINGET", "LONG_BINGET") and int(argument) in tuples
        if shared or name in ("DUP", "POP", "POP_MARK"):
            msg = "tuples that are used more than once are not admitted"
            raise pickle.UnpicklingError(msg)
        top_is_tuple = name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3")


def _opcodes(stream: io.BytesIO) -> Iterator[tuple[str, Any]]:
    """Names and arguments of the opcodes of a pickle; lines are taken as they are, whatever text is in them."""
    known = {opcode.code.encode("latin1"): opcode for opcode in pickletools.opcodes}
    name = ""
    while name != "STOP":
        opcode = known.get(stream.read(1))
        if opcode is None:
            msg = "it is damaged or was cut short"
            raise pickle.UnpicklingError(msg)
        name, argument = opcode.name, None
        if opcode.arg is not None and opcode.arg.n == pickletools.UP_TO_NEWLINE:
            argument = stream.readline()
            if name in ("GLOBAL", "INST"):
                stream.readline()
        elif opcode.arg is not None:
            argument = opcode.arg.reader(stream)
        yield name, argument


class _RestrictedUnpickler(pickle.Unpickler):
    room = 0  # bytes that may still be made

    def _take(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            msg = "it makes more of its bytes than it holds"
            raise pickle.UnpicklingError(msg)

    def _bytes(self, text: Any = "", codec: Any = "latin1") -> bytes:
        """How Python 3 spells bytes in protocols that have none: ``bytes()`` or ``encode(text, "latin1")``."""
        if not isinstance(text, str) or as_text(codec) != "latin1":
            msg = "only latin1 text is admitted as bytes"
            raise pickle.UnpicklingError(msg)
        self._take(len(text))
        return text.encode("latin1")

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("_codecs", "encode"), ("__builtin__", "bytes")):
            return self._bytes
        if (module, name) not in _ADMITTED:
            msg = f"the pickle asks for {module}.{name}; only NumPy arrays, text, numbers and containers are admitted"
            raise pickle.UnpicklingError(msg)
        return _ADMITTED[module, name]

    def materialise(self, value: Any, made: dict[int, Any] | None = None) -> Any:
        """Replace the stand-ins by arrays; what is used more than once is made once."""
        made = {} if made is None else made
        if id(value) not in made:
            made[id(value)] = self._made(value, made)
        return made[id(value)]

    def _made(self, value: Any, made: dict[int, Any]) -> Any:
        if isinstance(value, _Array):
            self._take(len(value.parts[1]))
            array = value.array()
            return array if array.ndim else array[()]
        if isinstance(value, dict):
            return {self.materialise(key, made): self.materialise(item, made) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.materialise(item, made) for item in value)
        if value is None or isinstance(value, bytes | bytearray | str | bool | int | float):
            return value
        msg = f"a {type(value).__name__} is not admitted in the pickle"
        raise pickle.UnpicklingError(msg)


def as_text(value: Any) -> str:
    """Text, which Python 2 wrote as bytes."""
    return value.decode("latin1") if isinstance(value, bytes) else str(value)

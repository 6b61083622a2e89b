"""Pickles of arrays, read by an interpreter of our own that knows a short list of instructions and calls nothing.

Published logits and image collections come as pickles. Python's own reader runs whatever a pickle asks for; this one
knows containers, text, numbers and what numeric NumPy arrays are written as. All else is refused: sets, keys that are
not text, objects, calls, and every instruction that is not in the list. Time and memory are bounded by the file's size.
"""

from __future__ import annotations

import codecs
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mixnmatch._plain_files import read_plain_file
from mixnmatch.experiments._pickle_values import (
    Array,
    Dtype,
    Latin1,
    Materials,
    Name,
    PickleError,
    admitted_name,
    as_text,
)

__all__ = ["PickleError", "as_text", "read_pickle"]

# Larger files are refused before they are read.
MOST_BYTES = 1 << 32
# Instructions of one file: a pickle of arrays has dozens, one with a million labels in a list a few million.
MOST_INSTRUCTIONS = 20_000_000
# Digits of a whole number.
MOST_DIGITS = 400
_DAMAGE = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError, struct.error)


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
    PickleError
        If the file holds anything else.
    """
    path = Path(path)
    try:
        raw = read_plain_file(path, MOST_BYTES)
        return Materials(4 * len(raw) + 4096).build(_Machine(raw).run())
    except PickleError as error:
        msg = f"{path}: {error}"
        raise PickleError(msg) from None
    except _DAMAGE as error:
        msg = f"{path} is not a readable pickle: {error!s:.200}"
        raise PickleError(msg) from None


class _Machine:
    """Runs the instructions of a pickle: a stack, marks on it, and numbered cells of memory."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memory: dict[int, Any] = {}

    def run(self) -> Any:
        """What the pickle leaves on the stack."""
        table, raw = _INSTRUCTIONS, self.raw
        for _ in range(MOST_INSTRUCTIONS):
            if self.at >= len(raw):
                msg = "it is corrupted or was cut short"
                raise PickleError(msg)
            code = raw[self.at]
            self.at += 1
            if code == ord("."):
                if len(self.stack) != 1 or self.marks:
                    msg = "it is corrupted: it does not hold one value"
                    raise PickleError(msg)
                return self.stack[0]
            work = table.get(code)
            if work is None:
                msg = f"it uses the instruction {bytes([code])!r}, which no pickle of arrays needs"
                raise PickleError(msg)
            work(self)
        msg = f"it has more than {MOST_INSTRUCTIONS} instructions"
        raise PickleError(msg)

    def take(self, size: int) -> bytes:
        """The next bytes of the file."""
        part = self.raw[self.at : self.at + size]
        if size < 0 or len(part) != size:
            msg = "it is corrupted or was cut short"
            raise PickleError(msg)
        self.at += size
        return part

    def number(self, form: str) -> Any:
        """The next number, in a format of :mod:`struct`."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self, most: int | None = None) -> bytes:
        """The next bytes up to the end of a line."""
        end = self.raw.find(b"\n", self.at, None if most is None else self.at + most + 1)
        if end < 0:
            msg = "it is corrupted: a line does not end"
            raise PickleError(msg)
        text = self.raw[self.at : end]
        self.at = end + 1
        return text

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self.stack.append(value)

    def pop(self) -> Any:
        """Take the uppermost value, which must not be below a mark."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            msg = "it is corrupted: a value is missing"
            raise PickleError(msg)
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        """Take all values above the last mark."""
        if not self.marks:
            msg = "it is corrupted: a mark is missing"
            raise PickleError(msg)
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    def top(self, kind: type) -> Any:
        """The uppermost value, which must be of a kind."""
        value = self.pop()
        if type(value) is not kind:
            msg = f"it is corrupted: a {kind.__name__} is missing"
            raise PickleError(msg)
        self.stack.append(value)
        return value

    def text_number(self) -> int:
        """A whole number written as text."""
        return int(self.line(MOST_DIGITS).rstrip(b"L"))

    def integer_or_bool(self) -> int | bool:
        """Protocol 0 writes True and False as 01 and 00."""
        text = self.line(MOST_DIGITS)
        return text == b"01" if text in (b"00", b"01") else int(text)

    def quoted(self) -> bytes:
        """Text of Python 2, as its repr."""
        text = self.line().strip()
        if len(text) < 2 or text[:1] != text[-1:] or text[:1] not in (b"'", b'"'):
            msg = "it is corrupted: a text is not in quotes"
            raise PickleError(msg)
        text_bytes: bytes = codecs.escape_decode(text[1:-1])[0]
        return text_bytes

    def little_endian(self, size: int) -> int:
        """A whole number of so many bytes."""
        if size > MOST_DIGITS:
            msg = "it holds a number that is too large"
            raise PickleError(msg)
        return int.from_bytes(self.take(size), "little", signed=True)

    def store(self, cell: int) -> None:
        """Remember the uppermost value."""
        value = self.pop()
        self.stack.append(value)
        self.memory[cell] = value

    def recall(self, cell: int) -> None:
        """Put a remembered value on the stack."""
        if cell not in self.memory:
            msg = "it is corrupted: it refers to a value that it does not define"
            raise PickleError(msg)
        self.stack.append(self.memory[cell])

    def set_items(self, items: list[Any]) -> None:
        """Put pairs of a key and a value into the table on the stack; keys are text."""
        table = self.top(dict)
        if len(items) % 2:
            msg = "it is corrupted: a key has no value"
            raise PickleError(msg)
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is Latin1:
                table[key.text.encode("latin1")] = value
            elif type(key) in (str, bytes):
                table[key] = value
            else:
                msg = f"a table has a key that is a {type(key).__name__.lower()}; only text is admitted"
                raise PickleError(msg)

    def reduce(self) -> None:
        """What stands in for a call."""
        arguments, name = self.pop(), self.pop()
        if type(name) is not Name or name.call is None or type(arguments) is not tuple:
            msg = "it calls something that is not allowed"
            raise PickleError(msg)
        self.push(name.call(*arguments))

    def build(self) -> None:
        """Set the state of an array or of its type; nothing else has one."""
        state, target = self.pop(), self.pop()
        if type(target) not in (Array, Dtype) or type(state) is not tuple:
            msg = "it sets attributes of something that is not an array"
            raise PickleError(msg)
        target.set_state(state)
        self.push(target)

    def dict_from_mark(self) -> None:
        """A new table of all pairs above the mark."""
        items = self.pop_to_mark()
        self.push({})
        self.set_items(items)

    def extend(self) -> None:
        """Append all values above the mark to the list below it."""
        items = self.pop_to_mark()
        self.top(list).extend(items)

    def append(self) -> None:
        """Append a value to the list below it."""
        value = self.pop()
        self.top(list).append(value)

    def set_item(self) -> None:
        """Put one pair into a table."""
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def tuple_of(self, size: int) -> None:
        """A tuple of the uppermost values."""
        self.push(tuple([self.pop() for _ in range(size)][::-1]))

    def stack_global(self) -> None:
        """A name in two texts on the stack."""
        name, module = self.pop(), self.pop()
        self.push(admitted_name(module, name))


def _reader(form: str) -> Callable[[_Machine], None]:
    return lambda m: m.push(m.number(form))


def _bytes_reader(form: str) -> Callable[[_Machine], None]:
    return lambda m: m.push(m.take(m.number(form)))


def _text_reader(form: str) -> Callable[[_Machine], None]:
    return lambda m: m.push(m.take(m.number(form)).decode("utf-8", "surrogatepass"))


# All that is admitted, by the byte that stands for it; the names in comments are those of the module pickletools.
_INSTRUCTIONS: dict[int, Callable[[_Machine], Any]] = {
    ord(code): work
    for code, work in {
        "\x80": lambda m: m.take(1),  # PROTO
        "\x95": lambda m: m.take(8),  # FRAME
        "(": lambda m: m.marks.append(len(m.stack)),  # MARK
        "N": lambda m: m.push(None),  # NONE
        "\x88": lambda m: m.push(True),  # NEWTRUE
        "\x89": lambda m: m.push(False),  # NEWFALSE
        "I": lambda m: m.push(m.integer_or_bool()),  # INT
        "J": _reader("<i"),  # BININT
        "K": _reader("<B"),  # BININT1
        "M": _reader("<H"),  # BININT2
        "L": lambda m: m.push(m.text_number()),  # LONG
        "\x8a": lambda m: m.push(m.little_endian(m.number("<B"))),  # LONG1
        "\x8b": lambda m: m.push(m.little_endian(m.number("<i"))),  # LONG4
        "F": lambda m: m.push(float(m.line(MOST_DIGITS))),  # FLOAT
        "G": _reader(">d"),  # BINFLOAT
        "S": lambda m: m.push(m.quoted()),  # STRING
        "T": _bytes_reader("<i"),  # BINSTRING
        "U": _bytes_reader("<B"),  # SHORT_BINSTRING
        "B": _bytes_reader("<I"),  # BINBYTES
        "C": _bytes_reader("<B"),  # SHORT_BINBYTES
        "\x8e": _bytes_reader("<Q"),  # BINBYTES8
        "\x96": _bytes_reader("<Q"),  # BYTEARRAY8
        "V": lambda m: m.push(m.line().decode("raw-unicode-escape")),  # UNICODE
        "X": _text_reader("<I"),  # BINUNICODE
        "\x8c": _text_reader("<B"),  # SHORT_BINUNICODE
        "\x8d": _text_reader("<Q"),  # BINUNICODE8
        "]": lambda m: m.push([]),  # EMPTY_LIST
        "l": lambda m: m.push(m.pop_to_mark()),  # LIST
        "a": lambda m: m.append(),  # APPEND
        "e": lambda m: m.extend(),  # APPENDS
        ")": lambda m: m.push(()),  # EMPTY_TUPLE
        "t": lambda m: m.push(tuple(m.pop_to_mark())),  # TUPLE
        "\x85": lambda m: m.tuple_of(1),  # TUPLE1
        "\x86": lambda m: m.tuple_of(2),  # TUPLE2
        "\x87": lambda m: m.tuple_of(3),  # TUPLE3
        "}": lambda m: m.push({}),  # EMPTY_DICT
        "d": lambda m: m.dict_from_mark(),  # DICT
        "s": lambda m: m.set_item(),  # SETITEM
        "u": lambda m: m.set_items(m.pop_to_mark()),  # SETITEMS
        "p": lambda m: m.store(m.text_number()),  # PUT
        "q": lambda m: m.store(m.number("<B")),  # BINPUT
        "r": lambda m: m.store(m.number("<I")),  # LONG_BINPUT
        "\x94": lambda m: m.store(len(m.memory)),  # MEMOIZE
        "g": lambda m: m.recall(m.text_number()),  # GET
        "h": lambda m: m.recall(m.number("<B")),  # BINGET
        "j": lambda m: m.recall(m.number("<I")),  # LONG_BINGET
        "c": lambda m: m.push(admitted_name(m.line(200), m.line(200))),  # GLOBAL
        "\x93": lambda m: m.stack_global(),  # STACK_GLOBAL
        "R": lambda m: m.reduce(),  # REDUCE
        "b": lambda m: m.build(),  # BUILD
    }.items()
}

"""Files that no accident makes: packed members that lie, programs for the reader of pickles, long labels, no files."""

import gzip
import io
import os
import pickle
import pickletools
import socket
import struct
import sys
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mixnmatch as mm
from mixnmatch.experiments.pickles import PickleError, read_pickle
from mixnmatch.io import FileError, read_table
from paper_networks.images import read_idx
from tests.fuzz.running import answer, examples

MOST_GROWTH = 200 << 20  # bytes that Python and NumPy may have allocated at once for a file of some kilobytes
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
SIZES = st.sampled_from((0, 1, 3, 40, 2**16, 2**31 - 1, 2**32 - 1))


@contextmanager
def little_memory():
    """Within this, nothing may allocate much, even for a moment."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST_GROWTH
    finally:
        tracemalloc.stop()


@contextmanager
def file_of(raw: bytes, ending: str):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{ending}"
        path.write_bytes(raw)
        yield path


def read(name: str, path: Path, reader: Callable[[Path], Any], refusals: tuple[type[Exception], ...]) -> Any:
    """What a reader makes of a file; anything but a refusal in words is a failure."""
    with little_memory():
        return answer(name, lambda: reader(path), refusals)


def scores_of(path: Path) -> Any:
    table = read_table(path, need_labels=False, logits=None)
    assert table.scores.ndim in (1, 2)
    return table


# ---- packed members ----


@st.composite
def headers(draw: Any) -> bytes:
    """What an .npy file starts with, true or not."""
    shape = draw(
        st.sampled_from(("(20, 3)", "(20,)", "()", "(0, 3)", "(10**9,)", "(1000000000, 3)", "(-1, 3)", "20", ""))
    )
    kind = draw(st.sampled_from(("<f8", "<i8", "|O", "<U3", "<U100000000", "|S9", "[('a', '<f8')]", ">f4", "x")))
    order = draw(st.sampled_from(("False", "True", "None")))
    text = f"{{'descr': {kind!r}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    text = draw(st.sampled_from((text, text, text, b"(" * 5000, b"[" * 300 + b"]" * 300, b"{}", b"1" * 4000)))
    version = draw(st.sampled_from((1, 1, 2, 3, 0, 255)))
    size = draw(st.sampled_from((len(text), len(text), len(text), 0, 2**15, 2**32 - 1)))
    length = struct.pack("<H", min(size, 2**16 - 1)) if version == 1 else struct.pack("<I", size)
    return b"\x93NUMPY" + bytes([version, 0]) + length + text


def array(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


@st.composite
def archives(draw: Any) -> bytes:
    """Archives of arrays in every method of packing, whose directory may lie about sizes, methods and sums."""
    sound = np.full((20, 3), 1 / 3)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in draw(st.sampled_from((("probs",), ("probs", "labels"), ("logits", "labels", "weights")))):
            content = draw(st.sampled_from(("sound", "sound", "zeros", "header", "empty", "text")))
            raw = {
                "sound": lambda name=name: array(np.arange(20) % 3 if name == "labels" else sound),
                "zeros": lambda: array(np.zeros((50_000, 3))),
                "header": lambda: draw(headers()) + bytes(draw(st.sampled_from((0, 480, 10**6)))),
                "empty": lambda: b"",
                "text": lambda: array(np.array(["x" * 2000, "a"] * 10)),
            }[content]()
            archive.writestr(f"{name}.npy", raw, compress_type=draw(st.sampled_from(METHODS)))
    data = bytearray(file.getvalue())
    for mark, start in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):  # the fields from the flags on
        at = data.find(mark)
        if at >= 0 and draw(st.integers(0, 3)) == 0:
            offset, width = draw(st.sampled_from(((0, 2), (2, 2), (8, 4), (12, 4), (16, 4))))
            number = draw(SIZES | st.sampled_from((8, 12, 14, 99)))
            data[at + start + offset : at + start + offset + width] = struct.pack("<Q", number)[:width]
    return bytes(data)


@examples(0.03, 60)
@given(archives())
def test_packed_members(raw):
    with file_of(raw, ".npz") as path:
        read("files: packed members", path, scores_of, (FileError,))


@examples(0.01, 40)
@given(headers(), st.integers(0, 500))
def test_headers_of_arrays(header, size):
    with file_of(header + bytes(size), ".npy") as path:
        read("files: headers of arrays", path, scores_of, (FileError,))


# ---- programs of the reader of pickles ----

TEXTS = st.sampled_from((b"a", b"latin1", b"f8", b"O8", b"numpy", b"dtype", b"<", b"\xc3\xa9", b"__doc__", bytes(24)))
GLOBALS = st.sampled_from(
    (
        b"numpy\ndtype\n",
        b"numpy\nndarray\n",
        b"numpy.core.multiarray\n_reconstruct\n",
        b"numpy._core.multiarray\nscalar\n",
        b"numpy.core.numeric\n_frombuffer\n",
        b"_codecs\nencode\n",
        b"os\nsystem\n",
        b"builtins\neval\n",
    )
)
CELLS = st.integers(0, 6)


def counted(width: int) -> st.SearchStrategy[bytes]:
    """A text after its length, which is mostly right."""
    right = TEXTS.map(lambda text: len(text).to_bytes(width, "little") + text)
    wrong = st.integers(0, 256**width - 1).map(lambda size: size.to_bytes(width, "little") + b"ab")
    return st.one_of(right, right, right, wrong)


def argument(opcode: Any) -> st.SearchStrategy[bytes]:
    """What follows an instruction in the file."""
    kind = None if opcode.arg is None else opcode.arg.name
    lines = st.sampled_from(
        (b"0\n", b"1\n", b"01\n", b"3L\n", b"-7\n", b"1e999\n", b"nan\n", b"x\n", b"9" * 500 + b"\n")
    )
    known: dict[str | None, st.SearchStrategy[bytes]] = {
        None: st.just(b""),
        "uint1": CELLS.map(lambda number: bytes([number])),
        "uint2": CELLS.map(lambda number: struct.pack("<H", number)),
        "int4": st.integers(-(2**31), 2**31 - 1).map(lambda number: struct.pack("<i", number)),
        "uint4": (CELLS | SIZES).map(lambda number: struct.pack("<I", number)),
        "uint8": (CELLS | SIZES).map(lambda number: struct.pack("<Q", number)),
        "float8": st.floats().map(lambda number: struct.pack(">d", number)),
        "stringnl": TEXTS.map(lambda text: repr(text)[1:].encode() + b"\n"),
        "stringnl_noescape": lines,
        "stringnl_noescape_pair": GLOBALS,
        "unicodestringnl": TEXTS.map(lambda text: text.replace(b"\n", b"") + b"\n"),
        "string1": counted(1),
        "string4": counted(4),
        "bytes1": counted(1),
        "bytes4": counted(4),
        "bytes8": counted(8),
        "bytearray8": counted(8),
        "unicodestring1": counted(1),
        "unicodestring4": counted(4),
        "unicodestring8": counted(8),
        "long1": counted(1),
        "long4": counted(4),
    }
    return known.get(kind, lines)


def instruction(opcode: Any) -> st.SearchStrategy[bytes]:
    return argument(opcode).map(lambda rest: opcode.code.encode("latin1") + rest)


OPCODES = {opcode.name: opcode for opcode in pickletools.opcodes}
# Those that put something on the stack, or take little from it, come more often: programs get further.
PUSHES = ("MARK", "NONE", "BININT1", "SHORT_BINUNICODE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE", "BINGET", "GLOBAL")
STEPS = st.one_of(
    st.one_of([instruction(OPCODES[name]) for name in PUSHES]),
    st.one_of(
        [instruction(OPCODES[name]) for name in ("MEMOIZE", "BINPUT", "TUPLE", "TUPLE2", "LIST", "APPEND", "REDUCE")]
    ),
    st.one_of([instruction(opcode) for opcode in pickletools.opcodes]),
)
# A stretch of a program that is repeated makes values that hold each other many times.
PROGRAMS = st.lists(
    st.one_of(STEPS, st.tuples(st.lists(STEPS, min_size=1, max_size=5), st.integers(2, 300)).map(
        lambda part: b"".join(part[0]) * part[1])),
    max_size=30,
).map(lambda parts: b"\x80\x04" + b"".join(parts) + b".")  # fmt: skip


# Programs that leave one value: containers in containers, values that hold each other, calls and states.
SOUND_ARRAY = pickle.dumps(np.arange(6.0).reshape(2, 3), 2)[2:-1]
LEAVES = st.one_of(
    st.sampled_from((b"N", b"\x88", b"K\x07", b"I01\n", SOUND_ARRAY)),
    counted(1).map(lambda text: b"\x8c" + text),
    GLOBALS.map(lambda name: b"c" + name),
)


def containers(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    items = st.lists(inner, max_size=4).map(b"".join)
    keyed = st.lists(st.tuples(counted(1).map(lambda key: b"\x8c" + key) | inner, inner).map(b"".join), max_size=3)
    return st.one_of(
        items.map(lambda content: b"(" + content + b"t"),
        items.map(lambda content: b"](" + content + b"e"),
        items.map(lambda content: b"\x8f(" + content + b"\x90"),  # a set
        items.map(lambda content: b"(" + content + b"\x91"),  # a set that can be in others
        keyed.map(lambda pairs: b"}(" + b"".join(pairs) + b"u"),
        st.tuples(GLOBALS, items).map(lambda call: b"c" + call[0] + b"(" + call[1] + b"tR"),
        st.tuples(inner, items).map(lambda state: state[0] + b"(" + state[1] + b"tb"),
        # Twice what was before, many times over.
        st.tuples(inner, st.integers(1, 90)).map(lambda held: held[0] + b"q\x05h\x05\x86" * held[1]),
        st.tuples(inner, st.sampled_from((1, 5, 90, 300))).map(lambda deep: b"(" * deep[1] + deep[0] + b"l" * deep[1]),
        inner.map(lambda value: b"]q\x06" + value + b"ah\x06a"),  # a list in itself
    )


VALUES = st.recursive(LEAVES, containers, max_leaves=12).map(lambda value: b"\x80\x04" + value + b".")


def plain(value: Any, depth: int = 0) -> None:
    """Assert that a value is made of arrays and plain containers. What is shared is looked at a few times only."""
    assert type(value) in (dict, list, tuple, str, bytes, int, float, bool, type(None), np.ndarray) or isinstance(
        value, np.number
    ), type(value)
    if isinstance(value, dict | list | tuple) and depth < 4:
        for item in list(value.values() if isinstance(value, dict) else value)[:5]:
            plain(item, depth + 1)


@examples(0.06, 150)
@given(PROGRAMS | VALUES)
def test_programs_of_pickles(raw):
    with file_of(raw, ".pkl") as path:
        plain(read("files: programs of pickles", path, read_pickle, (PickleError,)))


# ---- long labels ----

LENGTHS = st.sampled_from((1, 10, 999, 1000, 1001, 5000, 131_000))
LETTERS = st.sampled_from(("x", "é", "漢", "\U0001f600", '"', ",", "\n", "\0", " "))


LONG = st.lists(st.tuples(st.integers(0, 2999), LETTERS, LENGTHS), max_size=3)


def labels(long: list[tuple[int, str, int]]) -> list[str]:
    """Labels for 3000 samples, of which a few are long."""
    made = ["a", "b"] * 1500
    for place, letter, length in long:
        made[place] = letter * length
    return made


@examples(0.01, 25)
@given(LONG, st.sampled_from(("csv", "quoted", "gzip")), st.booleans())
def test_long_labels_of_text(long, how, needed):
    shown = ['"' + name.replace('"', '""') + '"' if how != "csv" else name for name in labels(long)]
    raw = ("a,b,label\n" + "".join(f"0.4,0.6,{name}\n" for name in shown)).encode()
    packed = how == "gzip"
    with file_of(gzip.compress(raw, 1) if packed else raw, ".csv.gz" if packed else ".csv") as path:

        def reader(path: Path) -> Any:
            return read_table(path, need_labels=needed)

        found = read("files: long labels in text", path, reader, (FileError,))
    if found is not None and needed:
        assert max(map(len, found.labels)) <= 1000


@examples(0.01, 25)
@given(
    LONG,
    st.sampled_from(("dictionary", "text", "large", "binary", "large binary", "list")),
    st.sampled_from(("none", "snappy", "zstd")),
)
def test_long_labels_of_parquet(long, how, compression):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    text = pa.array(labels(long))
    kinds = {
        "text": pa.string(),
        "large": pa.large_string(),
        "binary": pa.binary(),
        "large binary": pa.large_binary(),
        "dictionary": pa.dictionary(pa.int32(), pa.string()),
    }
    column = text.cast(kinds[how]) if how in kinds else pa.array([[name] for name in text.to_pylist()])
    table = pa.table({"a": np.full(3000, 0.4), "b": np.full(3000, 0.6), "label": column})
    file = io.BytesIO()
    pq.write_table(table, file, compression=compression)
    with file_of(file.getvalue(), ".parquet") as path:
        found = read("files: long labels in Parquet", path, read_table, (FileError,))
    if found is not None:
        assert max(map(len, found.labels)) <= 1000


# ---- what is not a file ----


def dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nothing"))


def looping(path: Path) -> None:
    path.symlink_to(path.with_name("other"))
    path.with_name("other").symlink_to(path)


def bound_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # addresses of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def behind(make: Callable[[Path], None], links: int) -> Callable[[Path], None]:
    """The same, behind some links to links."""

    def chain(path: Path) -> None:
        if links == 0:
            make(path)
            return
        names = [path, *(path.with_name(f"link{k}{path.suffix}") for k in range(links))]
        for one, other in zip(names, names[1:], strict=False):
            one.symlink_to(other)
        make(names[-1])

    return chain


NO_FILES: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo if hasattr(os, "mkfifo") else lambda _: None,
    "zeros": link_to("/dev/zero"),
    "random": link_to("/dev/urandom"),
    "terminal": link_to("/dev/tty"),
    "folder": Path.mkdir,
    "socket": bound_socket,
    "dangling": dangling,
    "looping": looping,
    "empty": Path.touch,
    "null": link_to("/dev/null"),
}
READERS: dict[str, Callable[[Path], Any]] = {
    ".json": mm.load,
    ".pkl": read_pickle,
    ".idx": read_idx,
    **dict.fromkeys((".npz", ".npy", ".csv", ".csv.gz", ".parquet", ".tsv"), read_table),
}


@pytest.mark.skipif(sys.platform == "win32", reason="special files of POSIX")
@examples(0.01, 60)
@given(st.sampled_from(sorted(NO_FILES)), st.sampled_from(sorted(READERS)), st.integers(0, 3))
def test_special_files(kind, ending, links):
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{ending}"
        behind(NO_FILES[kind], links)(path)
        with little_memory(), pytest.raises((ValueError, OSError), match=r"\S") as caught:
            answer(f"files: special ({kind})", lambda: READERS[ending](path), ())
        assert "file" in str(caught.value) or "link" in str(caught.value), "the message names the file"

"""Standard input and output as files, and outputs that are not overwritten by accident."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from mixnmatch._files import keep_existing
from mixnmatch.cli.terminal import printing
from mixnmatch.io.files import FileError, already_there

INPUT_NAME, OUTPUT_NAME = "standard input", "standard output"
# What files start with, and what they end in; all else is text.
_STARTS = ((b"PK\x03\x04", ".npz"), (b"\x93NUMPY", ".npy"), (b"PAR1", ".parquet"), (b"\x1f\x8b", ".csv.gz"))
_CHUNK = 1 << 20


def is_standard(path: Path) -> bool:
    """Whether a name stands for standard input or output."""
    return str(path) == "-"


@contextmanager
def readable(path: Path) -> Iterator[Path]:
    """A file that can be read: the one that was named, or one with all of standard input. Errors name the input."""
    if not is_standard(path):
        yield path
        return
    stream = _binary_stream("stdin")
    start = stream.read(_CHUNK)
    if not start:
        raise FileError(INPUT_NAME, "there is nothing in it")
    ending = next((ending for begin, ending in _STARTS if start.startswith(begin)), ".csv")
    handle, name = tempfile.mkstemp(prefix="mixnmatch-", suffix=ending)
    try:
        with os.fdopen(handle, "wb") as file:
            while start:
                file.write(start)
                start = stream.read(_CHUNK)
        yield Path(name)
    except FileError as error:
        raise (error.of(INPUT_NAME) if Path(error.path) == Path(name) else error) from None
    finally:
        Path(name).unlink(missing_ok=True)


def shown(path: Path, *, output: bool = False) -> str:
    """A file as it is called in texts."""
    return (OUTPUT_NAME if output else INPUT_NAME) if is_standard(path) else str(path)


@contextmanager
def standard_output() -> Iterator[IO[bytes]]:
    """Standard output for bytes, which have all gone out at the end."""
    with printing():
        stream = _binary_stream("stdout")
        yield stream
        stream.flush()


def _binary_stream(name: str) -> IO[bytes]:
    click_: Any = click
    stream: IO[bytes] = click_.get_binary_stream(name)
    return stream


@contextmanager
def not_overwriting(output: Path, *, force: bool) -> Iterator[None]:
    """Within this, a file that has come up at ``output`` since it was checked is not replaced unless asked for."""
    if force or is_standard(output):
        yield
        return
    with keep_existing(output):
        try:
            yield
        except FileExistsError as error:
            if error.filename is None or os.path.realpath(error.filename) != os.path.realpath(output):
                raise  # of another file
            raise already_there(output) from error

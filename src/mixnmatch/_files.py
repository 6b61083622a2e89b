"""Writing files so that a reader finds the old file or the new one, whatever happens in between."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class NotAPlainFileError(ValueError):
    """A path is not a regular file, or the file is larger than what is read."""


def read_plain_file(path: Path, most: int) -> bytes:
    """Content of a regular file of at most ``most`` bytes.

    Pipes and devices are refused and not waited for: opening one of them never blocks.

    Raises
    ------
    NotAPlainFileError
        If it is not such a file.
    OSError
        If it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            msg = f"{path} is not a regular file"
            raise NotAPlainFileError(msg)
        raw = file.read(most + 1) if status.st_size <= most else b""
    if status.st_size > most or len(raw) > most:
        msg = f"{path} is larger than the {most} bytes that such a file may have"
        raise NotAPlainFileError(msg)
    return raw


def atomic_write(path: Path, content: bytes | Callable[[Any], None]) -> None:
    """Write bytes, or what a function writes to an open binary file, to ``path`` in one move.

    The content goes to a new file beside the target, is flushed to disk, and takes the target's place.
    """
    path = Path(path)
    with _named(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _usual_mode(temporary, path)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of the system name the file that was asked for, not the one beside it that nobody knows of."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder to write to, that takes the place of ``path`` once all has gone well."""
    path = Path(path)
    with _named(path):
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                with file.open("rb") as written:
                    os.fsync(written.fileno())
        _usual_mode(str(temporary), path, new=0o777)
        _swap(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap(new: Path, path: Path) -> None:
    """Put a folder where ``path`` is; what was there is left where the new one was."""
    if not path.exists():
        new.rename(path)
        return
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    # Linux exchanges two names in one step: AT_FDCWD, RENAME_EXCHANGE.
    if exchange is not None and exchange(-100, os.fsencode(new), -100, os.fsencode(path), 2) == 0:
        return
    aside = path.with_name(f".{path.name}.old.part")  # elsewhere it takes two steps, the old folder being kept whole
    path.rename(aside)
    new.rename(path)
    aside.rename(new)


def _usual_mode(temporary: str, target: Path, new: int = 0o666) -> None:
    """Permissions of the file that is replaced, or of a new file as the umask makes it."""
    if target.exists():
        os.chmod(temporary, target.stat().st_mode & 0o777)
        return
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(temporary, new & ~mask)

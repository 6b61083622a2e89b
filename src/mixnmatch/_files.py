"""Writing files so that a reader finds the old file or the new one, whatever happens."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from os import PathLike
from pathlib import Path
from typing import IO, Any

# Files that are not to be replaced, should they exist by the time they are written.
_kept: ContextVar[frozenset[Path]] = ContextVar("mixnmatch_kept_files", default=frozenset())


@contextmanager
def keep_existing(path: Path) -> Iterator[None]:
    """Within this, writing ``path`` raises FileExistsError if it exists by then, also if it came up a moment before."""
    token = _kept.set(_kept.get() | {_target(path)})
    try:
        yield
    finally:
        _kept.reset(token)


def atomic_write(path: str | PathLike[str], content: bytes | Callable[[Any], None]) -> None:
    """Write bytes, or what a function writes to an open binary file, to ``path`` in one move.

    The content goes to a new file beside the target, is flushed to disk, and takes the target's place. A symbolic link
    is followed: the file that it points to is replaced, the link stays. Devices and pipes are written to as they are.
    """
    target = _target(path)
    with named(path):
        if target.exists() and not target.is_file() and not target.is_dir():
            with target.open("wb") as file:
                _write(file, content)
            return
        temporary = _beside(target)
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0), _mode_of(target))
    try:
        with named(path):
            with os.fdopen(handle, "wb") as file:
                _write(file, content)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                os.chmod(temporary, _mode_of(target))  # what the umask took away
            _place(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write(file: IO[bytes], content: bytes | Callable[[Any], None]) -> None:
    if callable(content):
        content(file)
    else:
        file.write(content)


def _place(temporary: Path, target: Path) -> None:
    """Give a new file its name."""
    if target not in _kept.get():
        os.replace(temporary, target)
        return
    try:
        os.link(temporary, target)  # fails if there is a file: of two writers one succeeds
    except FileExistsError:
        raise
    except OSError:  # a file system without links: claim the name first
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.replace(temporary, target)
    else:
        temporary.unlink()


def _target(path: str | PathLike[str]) -> Path:
    """The file that a path leads to."""
    return Path(os.path.realpath(path))


def _beside(target: Path) -> Path:
    """A name that nothing has yet, in the folder of the target."""
    return target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}.part")


def _mode_of(target: Path) -> int:
    """Permissions of the file that is replaced; a new one gets what the umask leaves of the usual ones."""
    with suppress(OSError):
        return stat.S_IMODE(target.stat().st_mode) & 0o777
    return 0o666


@contextmanager
def named(path: str | PathLike[str]) -> Iterator[None]:
    """Let system errors name the requested file instead of the temporary one."""
    try:
        yield
    except OSError as error:
        ours = error.filename is None or ".part" in str(error.filename)
        if error.errno is None or not ours:
            raise
        raise OSError(error.errno, error.strerror or os.strerror(error.errno), str(path)) from error


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder to write to, that takes the place of ``path`` once all has gone well."""
    target = _target(path)
    temporary = _beside(target)
    with named(path):
        temporary.mkdir()
    try:
        with named(path):
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    with file.open("rb") as written:
                        os.fsync(written.fileno())
            if target.exists():
                os.chmod(temporary, _mode_of(target))
            _swap(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap(new: Path, target: Path) -> None:
    """Put a folder where ``target`` is; what was there is left where the new one was."""
    if target in _kept.get():
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        os.mkdir(target)  # of two writers one succeeds
        os.replace(new, target) if os.name != "nt" else _move_in(new, target)
        return
    if not target.exists():
        new.rename(target)
        return
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if os.name != "nt" else None
    # Linux exchanges two names in one step: AT_FDCWD, RENAME_EXCHANGE. A kill between two steps would leave no folder.
    if exchange is not None and exchange(-100, os.fsencode(new), -100, os.fsencode(target), 2) == 0:
        return
    aside = target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}.old.part")  # kept whole until all is done
    target.rename(aside)
    try:
        new.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    aside.rename(new)


def _move_in(new: Path, target: Path) -> None:
    target.rmdir()
    new.rename(target)

"""Reading plain files, and nothing else: no pipe, no device, no more than so many bytes."""

from __future__ import annotations

import os
import stat
from os import PathLike


class NotAPlainFileError(ValueError):
    """A path is not a regular file, or the file is larger than what is read."""


def read_plain_file(path: str | PathLike[str], most: int) -> bytes:
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
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            msg = f"{path} is not a regular file"
            raise NotAPlainFileError(msg)
    except BaseException:  # a folder cannot become a file object, which would close it
        os.close(handle)
        raise
    with os.fdopen(handle, "rb") as file:
        # Room is made for as many bytes as are asked for: those of the file, and one to see whether it has grown.
        raw = file.read(status.st_size + 1) if status.st_size <= most else b""
    if status.st_size > most or len(raw) > most:
        msg = f"{path} is too large: such a file has at most {most} bytes"
        raise NotAPlainFileError(msg)
    return raw

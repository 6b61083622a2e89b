"""Writing files so that a reader finds the old file or the new one, whatever happens in between."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def atomic_write(path: Path, content: bytes | Callable[[Any], None]) -> None:
    """Write bytes, or what a function writes to an open binary file, to ``path`` in one move.

    The content goes to a new file beside the target, is flushed to disk, and takes the target's place.
    """
    path = Path(path)
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


def _usual_mode(temporary: str, target: Path) -> None:
    """Permissions of the file that is replaced, or of a new file as the umask makes it."""
    if target.exists():
        os.chmod(temporary, target.stat().st_mode & 0o777)
        return
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(temporary, 0o666 & ~mask)

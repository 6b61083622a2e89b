"""NumPy files (.npy, .npz), read without pickles and with sizes checked against the file."""

from __future__ import annotations

import io
import math
import os
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from mixnmatch.io.files import FileError, ScoreTable, check_input, is_text, listed
from mixnmatch.io.formats import Arrays, Format, Request

# Deflate cannot shrink anything by more than this; a member that claims more is lying about its size.
MOST_COMPRESSION = 1032
# Bytes of a header: NumPy itself trusts no more than ten thousand.
MOST_HEADER = 1 << 16
# Text labels are padded to the longest of them in an array; above so many bytes positions are written instead.
MOST_TEXT = 1 << 26
_SAVE_HINT = "save it with numpy.savez(file, logits=..., labels=...), or probs=... for probabilities"


def read_npy(path: Path) -> NDArray[Any]:
    """Read one array, memory-mapped."""
    check_input(path)
    with path.open("rb") as file:
        _check_header(path, "", file, path.stat().st_size)
    try:
        values: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise FileError(path, "is not a valid .npy file ({why})", why=_first_line(error)) from None
    return values


def read_npz(path: Path, request: Request) -> ScoreTable:
    """Read scores (``logits`` or ``probs``), ``labels`` and, if there are any, ``weights`` and ``classes``."""
    check_input(path)
    weights = request.weights
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
            key = _scores_key(path, members, request.logits)
            for name in (["labels"] if request.need_labels else []) + ([] if weights is None else [weights]):
                if name not in members:
                    why = "has no array {name!r}; it holds {names}"
                    raise FileError(path, why, name=name, names=listed(sorted(members)))
            wanted = {"scores": key, "labels": "labels", "weights": weights or "weights", "classes": "classes"}
            arrays = {
                role: _read_member(path, archive, name, members[name])
                for role, name in wanted.items()
                if name in members
            }
    except zipfile.BadZipFile as error:
        raise _not_a_zip(path, error) from None
    except (zlib.error, EOFError, OSError):  # also of places in the file that do not exist
        raise FileError(path, "is corrupted: it cannot be decompressed") from None
    except (NotImplementedError, RuntimeError) as error:  # an unknown compression, or encrypted
        raise FileError(path, "cannot be unpacked ({why})", why=_first_line(error)) from None
    return ScoreTable(
        path,
        arrays["scores"],
        key == "logits",
        labels=arrays.get("labels"),
        weights=arrays.get("weights"),
        classes=arrays.get("classes"),
    )


def npz_names(path: Path) -> set[str]:
    """Names of the arrays in a file."""
    check_input(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise _not_a_zip(path, error) from None


def _not_a_zip(path: Path, error: zipfile.BadZipFile) -> FileError:
    if "CRC" in str(error):
        return FileError(path, "is corrupted: a checksum does not match")
    cut = _starts_like_zip(path)
    return FileError(path, "is corrupted or was cut short" if cut else "is not an .npz file (not a zip archive)")


def _scores_key(path: Path, members: dict[str, str], logits: bool | None) -> str:
    """Return the name of the score array, which says whether the scores are logits."""
    found = [name for name in ("logits", "probs") if name in members]
    if not found:
        holds = f"it holds {listed(sorted(members))}" if members else "it holds no arrays"
        raise FileError(path, "has no array 'logits' or 'probs'; {holds}; " + _SAVE_HINT, holds=holds)
    if logits is None:
        if len(found) == 2:
            raise FileError(path, "holds both 'logits' and 'probs'; choose with {logits} or {probs}")
        return found[0]
    asked = "logits" if logits else "probs"
    if asked not in found:
        why = "has no array {asked!r}, only {found!r}; the name says what the scores are"
        raise FileError(path, why, asked=asked, found=found[0])
    return asked


def _read_member(path: Path, archive: zipfile.ZipFile, name: str, member: str) -> NDArray[Any]:
    info = archive.getinfo(member)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        how = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}.get(info.compress_type, "another method")
        raise FileError(
            path, "array {name!r} is compressed with {how}; only what numpy.savez writes is read", name=name, how=how
        )
    if info.file_size > info.compress_size * MOST_COMPRESSION + 1024:
        why = "array {name!r} claims a size that its {size} bytes cannot hold"
        raise FileError(path, why, name=name, size=info.compress_size)
    with archive.open(member) as file:
        _check_header(path, name, file, info.file_size)
    with archive.open(member) as file:
        try:
            return np.asarray(npy_format.read_array(file, allow_pickle=False))
        except ValueError as error:
            raise FileError(path, "array {name!r} cannot be read ({why})", name=name, why=_first_line(error)) from None


def _check_header(path: Path, name: str, file: IO[bytes], size: int) -> None:
    """Raise an error unless the header is valid and describes an array that fills ``size`` bytes."""
    what = f"array {name!r} " if name else ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = _start_of(file)
            used = len(start)
            head = io.BytesIO(start)
            version = npy_format.read_magic(head)
            read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            shape, _, dtype = read(head)
        if min(shape, default=0) < 0:
            raise ValueError(shape)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError):
        raise
    except Exception:  # a header is a Python literal: a corrupted one can fail in any way that parsing can
        raise FileError(path, "{what}is not in .npy format, or its header is corrupted", what=what) from None
    if dtype.hasobject:
        why = "{what}holds Python objects (pickles), which are not read; save plain numbers or strings"
        raise FileError(path, why, what=what)
    if dtype.fields is not None or dtype.subdtype is not None:
        raise FileError(path, "{what}holds records, not plain numbers or strings", what=what)
    needed, given = math.prod(shape) * dtype.itemsize, size - used
    if needed > given:
        why = "{what}was cut short: shape {shape} needs {needed} bytes, there are {given}"
        raise FileError(path, why, what=what, shape=_shape(shape), needed=needed, given=given)


def _start_of(file: IO[bytes]) -> bytes:
    """Return magic bytes and header of an array, which are checked before anything else is read."""
    start = file.read(8)
    width = 2 if start[6:7] == b"\x01" else 4
    length = file.read(width)
    size = int.from_bytes(length, "little")
    if len(length) < width or size > MOST_HEADER:
        msg = "no header"
        raise ValueError(msg)
    return start + length + file.read(size)


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(str(size) for size in shape) or "()"


def _starts_like_zip(path: str | os.PathLike[str]) -> bool:
    with open(path, "rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _read_npy_table(path: Path, request: Request) -> ScoreTable:
    scores = read_npy(path)
    if request.labels is None and request.need_labels:
        raise FileError(path, "holds scores only; name the .npy file with the labels: {labels}")
    return ScoreTable(
        path,
        scores,
        bool(request.logits),
        labels=None if request.labels is None else _vector(Path(request.labels), scores),
        weights=None if request.weights is None else _vector(Path(request.weights), scores),
    )


def _vector(path: Path, scores: NDArray[Any]) -> NDArray[Any]:
    if path.suffix.lower() != ".npy":
        check_input(path)
        raise FileError(path, "should be a .npy file, like the scores")
    values = np.array(read_npy(path))
    n_rows = len(np.atleast_1d(scores))
    if values.ndim == 0 or len(values) != n_rows:
        why = "has shape {shape}, but there are {n_rows} rows of scores"
        raise FileError(path, why, shape=values.shape, n_rows=n_rows)
    return values


def _write_npz(file: IO[bytes], arrays: Arrays, path: Path) -> None:
    # Not by numpy.savez: before NumPy 2.1 it leaves a full disk to be reported when its archive is collected.
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _plain(array, arrays.get("classes")), allow_pickle=False)


def _plain(array: NDArray[Any], classes: NDArray[Any] | None) -> NDArray[Any]:
    """An array without Python objects: text of one width, or positions of classes where that would be large."""
    if not is_text(array) or array.dtype.kind != "O":
        return array
    texts = array.tolist()
    known = {name: index for index, name in enumerate([] if classes is None else classes.tolist())}
    if 4 * len(texts) * max(map(len, texts), default=0) > MOST_TEXT and known.keys() >= set(texts):
        return np.array([known[text] for text in texts])
    return np.array(texts, dtype=str)


def _write_npy(file: IO[bytes], arrays: Arrays, path: Path) -> None:
    np.save(file, next(iter(arrays.values())), allow_pickle=False)


NPZ = Format(
    endings=(".npz",),
    summary="arrays `logits` or `probs`, `labels`; optionally `weights`, `classes`",
    read=read_npz,
    write=_write_npz,
)
NPY = Format(
    endings=(".npy",),
    summary="scores, with labels in another .npy file",
    read=_read_npy_table,
    write=_write_npy,
    separate_labels=True,
)

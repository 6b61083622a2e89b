"""Saving and loading a monitor: one JSON file like a map's, strict to read, and safe with several writers.

A monitor that was loaded from a file, or saved to it, remembers the file's checksum. Saving over a file that someone
else has written since is refused, because it would undo what the other one has counted. :func:`locked` makes other
processes wait, so that reading, updating and saving is one step.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._documents import checksum, read_document, write_document
from mixnmatch._map_json import _decode_array, _encode_array
from mixnmatch._map_json import encode as _encode
from mixnmatch._version import __version__
from mixnmatch.monitoring.alternatives import Alternatives, StepSums, shapes
from mixnmatch.monitoring.intervals import ClassOffset
from mixnmatch.monitoring.learning import Lessons, lesson_shapes
from mixnmatch.monitoring.monitor import OPEN_STEPS, Monitor, MonitorState, OpenStep
from mixnmatch.monitoring.result import StepRecord

FORMAT = "mixnmatch-monitor"
VERSION = 1


class StateFileError(ValueError):
    """A file of a monitor cannot be used; the message says why."""


def save_monitor(monitor: Monitor, path: str | PathLike[str]) -> None:
    """Write a monitor to a file, unless someone else has written the file meanwhile."""
    with locked(path), monitor._updating:
        if Path(path).exists() and _digest(path) != monitor._read_digest:
            msg = (
                f"{os.fspath(path)} was written by another process, or belongs to another monitor: "
                "load it and repeat the update, or save to a new file"
            )
            raise StateFileError(msg)
        document = {
            "format": FORMAT,
            "version": VERSION,
            "library": f"mixnmatch {__version__}",
            "summary": monitor.result().to_dict() | {"offsets": len(monitor._state.lifetime.observed)},
            "map": fingerprint(monitor.fitted),
            "alpha": monitor.alpha,
            "state": _encode_state(monitor._state),
        }
        monitor._read_digest = write_document(path, document)


def load_monitor(path: str | PathLike[str], fitted: Any) -> Monitor:
    """Read a monitor of a map from a file."""
    name = os.fspath(path)
    document = read_document(path, form=FORMAT, version=VERSION, what="monitor file", error=StateFileError)
    if document.get("map") != fingerprint(fitted):
        msg = f"{name} monitors another map; start a new file after a map was refitted or adapted"
        raise StateFileError(msg)
    try:
        monitor = Monitor(fitted, alpha=document["alpha"])
        monitor._state = _decode_state(document["state"], int(fitted.n_classes_))
        monitor.result()
    except StateFileError as error:
        msg = f"{name} does not hold a valid monitor: {error}"
        raise StateFileError(msg) from None
    except Exception as error:
        msg = f"{name} does not hold a valid monitor: {type(error).__name__}: {error}"
        raise StateFileError(msg) from None
    monitor._read_digest = document["sha256"]
    return monitor


def fingerprint(fitted: Any) -> str:
    """Checksum of a map, by which a file knows whose monitor it is."""
    return checksum({"map": _encode(fitted)})


@contextmanager
def locked(path: str | PathLike[str]) -> Iterator[None]:
    """Make other processes wait that want to use the file, where the system has such locks.

    The lock is on a hidden file beside it, and ends with the process. A thread can take it several times.
    """
    lock_file = Path(path).resolve().with_name(f".{Path(path).name}.lock")
    own = (lock_file, threading.get_ident())
    if own in _HELD or find_spec("fcntl") is None:  # without locks, as on Windows, a lost race is found by the checksum
        yield
        return
    handle = _lock(lock_file)
    _HELD.add(own)
    try:
        yield
    finally:
        _HELD.discard(own)
        lock_file.unlink(missing_ok=True)
        os.close(handle)


def _lock(path: Path) -> int:
    """An open file that this thread alone has locked."""
    import fcntl

    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            if os.fstat(handle).st_ino == path.stat().st_ino:
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)  # the one who had it before has removed the file meanwhile


# Locks that threads of this process have.
_HELD: set[tuple[Path, int]] = set()


def _digest(path: str | PathLike[str]) -> str:
    document = read_document(path, form=FORMAT, version=VERSION, what="monitor file", error=StateFileError)
    return str(document["sha256"])


def _encode_state(state: MonitorState) -> dict[str, Any]:
    return {
        "steps": [
            {"key": step.key, "learned": _encode_array(step.learned), "sums": _encode_arrays(step.sums)}
            for step in state.steps
        ],
        "closed": state.closed,
        "folded": _encode_array(state.folded),
        "lessons": _encode_arrays(state.lessons),
        "lifetime": _encode_arrays(state.lifetime),
        "history": [_encode_record(record) for record in state.history],
        "sources": list(state.sources),
        "impossible": state.impossible,
        "peak": _encode(state.peak),
        "alarm_step": state.alarm_step,
        "last": state.last,
    }


def _encode_arrays(value: StepSums | Lessons) -> dict[str, Any]:
    return {field.name: _encode_array(getattr(value, field.name)) for field in fields(value)}


def _encode_record(record: StepRecord) -> dict[str, Any]:
    found = {name: _encode(value) for name, value in asdict(record).items() if name != "offsets"}
    found["offsets"] = [
        [_encode(value) for value in (each.offset, each.low, each.high, each.observed, each.expected)]
        for each in record.offsets
    ]
    # Names of the classes are those of the map.
    return found | {"names": [_encode(each.name) for each in record.offsets]}


def _decode_state(value: Any, n_classes: int) -> MonitorState:
    _has_keys(value, {field.name for field in fields(MonitorState)})
    alternatives = Alternatives(n_classes)
    learned = (alternatives.n_learned, 2, n_classes)
    steps = []
    for each in _list(value["steps"]):
        _has_keys(each, {"key", "learned", "sums"})
        sums = StepSums(**_arrays(each["sums"], shapes(n_classes)))
        steps.append(OpenStep(_key(each["key"]), _array(each["learned"], learned), sums))
    history = tuple(_decode_record(each) for each in _list(value["history"]))
    closed, impossible = _count(value["closed"]), _count(value["impossible"])
    sources = tuple(_list(value["sources"]))
    keys = [record.step for record in history]
    fits = len(steps) <= OPEN_STEPS and closed + len(steps) == len(history) == len(set(keys))
    if not fits or [step.key for step in steps] != keys[closed:] or not all(isinstance(s, str) for s in sources):
        msg = "its steps do not fit together"
        raise StateFileError(msg)
    return MonitorState(
        steps=tuple(steps),
        closed=closed,
        folded=_array(value["folded"], (alternatives.size,), finite=False),
        lessons=Lessons(**_arrays(value["lessons"], lesson_shapes(n_classes))),
        lifetime=StepSums(**_arrays(value["lifetime"], shapes(n_classes))),
        history=history,
        sources=sources,
        impossible=impossible,
        peak=_number(value["peak"]),
        alarm_step=None if value["alarm_step"] is None else _key(value["alarm_step"]),
        last=None if value["last"] is None else _key(value["last"]),
    )


def _decode_record(value: Any) -> StepRecord:
    names = ("log_e_value", "mean_log_loss", "expected_log_loss")
    _has_keys(value, {"step", "n_samples", *names, "offsets", "names"})
    offsets = []
    for name, numbers in zip(_list(value["names"]), _list(value["offsets"]), strict=True):
        offsets.append(ClassOffset(_key(name), *[_number(number) for number in numbers]))
    given = {name: _number(value[name]) for name in names}
    return StepRecord(_key(value["step"]), _count(value["n_samples"]), offsets=tuple(offsets), **given)


def _has_keys(value: Any, wanted: set[str]) -> None:
    if not isinstance(value, dict) or set(value) != wanted:
        msg = f"an entry without exactly {sorted(wanted)}"
        raise StateFileError(msg)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        msg = "an entry that should be a list"
        raise StateFileError(msg)
    return value


def _key(value: Any) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        msg = "a name that is neither text nor an integer"
        raise StateFileError(msg)
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        msg = "a count that is not one"
        raise StateFileError(msg)
    return value


def _number(value: Any) -> float:
    if isinstance(value, dict) and set(value) == {"float"} and value["float"] in ("inf", "-inf", "nan"):
        return float(value["float"])
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = "an entry that should be a number"
        raise StateFileError(msg)
    return float(value)


def _arrays(value: Any, wanted: dict[str, tuple[int, ...]]) -> dict[str, NDArray[np.float64]]:
    _has_keys(value, set(wanted))
    return {name: _array(value[name], shape) for name, shape in wanted.items()}


def _array(value: Any, shape: tuple[int, ...], *, finite: bool = True) -> NDArray[np.float64]:
    if not isinstance(value, dict) or set(value) != {"array"}:
        msg = "an entry that should be an array"
        raise StateFileError(msg)
    found = _decode_array(value["array"])
    sound = found.shape == shape and found.dtype.kind == "f" and not np.isnan(found).any()
    if not sound or (finite and not np.isfinite(found).all()) or (found == math.inf).any():
        msg = f"an array that is not of shape {shape}, or not finite"
        raise StateFileError(msg)
    return found

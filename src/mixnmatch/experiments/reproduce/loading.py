"""Scores and labels of an entry of the manifest, read once in each process."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.labels import read_labels
from mixnmatch._engine.scores import read_scores
from mixnmatch._files import atomic_write
from mixnmatch.experiments.pickles import read_pickle
from mixnmatch.experiments.reproduce.manifest import PICKLES, Entry
from mixnmatch.io import FileError, read_table
from mixnmatch.io.arrays import npz_names

__all__ = ["Data", "load", "parts_of"]

Part = tuple[NDArray[Any], NDArray[Any], bool]
# Entries whose arrays a process keeps, because work goes round all of them.
KEPT = 64
# Rows of a simulator that tell one from another, and its network where none is named.
PROBE = 64
DEFAULT_NETWORK = "densenet161"
TOP_ARRAYS = ("top5_probs", "top5_classes")


@dataclass(frozen=True, eq=False)
class Data:
    """Scores and labels of a classifier.

    Attributes
    ----------
    scores : array of shape (n, L); for the split "top-label" of shape (n,), the largest probability
    labels : array of shape (n,); for the split "top-label" whether the predicted class is the true one
    logits : bool
    first : int
        Rows of the first file or part, from which the split "given" takes its calibration rows.
    digest : str
        Hash of all of it.
    """

    scores: NDArray[Any]
    labels: NDArray[Any]
    logits: bool
    first: int
    digest: str


@lru_cache(maxsize=KEPT)
def load(entry: Entry, cache: Path) -> Data:
    """Read (or simulate) the scores of an entry; what is simulated is kept in ``cache``."""
    if entry.simulated:
        return _simulated(entry, cache)
    parts = [_top_part(path) for path in entry.files] if entry.split == "top-label" else parts_of(entry)
    kinds = {logits for _, _, logits in parts}
    if len(kinds) > 1:
        raise FileError(entry.files[0], "holds logits where the other file of the row holds probabilities")
    for scores, _, _ in parts:
        if entry.split != "top-label" and _n_classes(scores) != entry.classes:
            message = f"has {_n_classes(scores)} classes; the manifest says {entry.classes}"
            raise FileError(entry.files[0], message)
    scores = np.concatenate([part[0] for part in parts])
    labels = np.concatenate([part[1] for part in parts])
    return Data(scores, labels, kinds.pop(), len(parts[0][1]), _digest(scores, labels))


def _n_classes(scores: NDArray[Any]) -> int:
    return 2 if scores.ndim == 1 else int(scores.shape[1])


def parts_of(entry: Entry) -> list[Part]:
    """Scores, labels and whether they are logits, for each file or part of a file."""
    labels = iter(entry.labels)
    parts: list[Part] = []
    for path in entry.files:
        if path.suffix.lower() in PICKLES:
            parts += _pickled(path)
            continue
        labels_path = next(labels) if path.suffix.lower() == ".npy" else None
        table = read_table(path, logits=entry.logits, labels=labels_path)
        if table.classes is not None or table.labels is None or table.labels.dtype.kind not in "iu":
            raise FileError(path, "labels must be whole numbers, the index of the true class")
        parts.append(_checked(path, table.scores, table.labels.astype(np.int64), table.logits))
    return parts


def _checked(path: Path, scores: NDArray[Any], labels: NDArray[Any], logits: bool) -> Part:
    """A part whose numbers can be used; otherwise every method would fail separately."""
    try:
        table = read_scores(scores, logits=logits)
        read_labels(labels, table.n_rows, table.n_classes)
    except (ValueError, TypeError) as error:
        raise FileError(path, str(error)) from None
    return scores, labels, logits


def _pickled(path: Path) -> list[Part]:
    """The two parts of a pickle as NN_calibration publishes them: ((logits_val, y_val), (logits_test, y_test))."""
    content = read_pickle(path)
    pairs = isinstance(content, tuple | list) and len(content) == 2
    if not pairs or not all(isinstance(part, tuple | list) and len(part) == 2 for part in content):
        raise FileError(path, "should hold ((logits_val, y_val), (logits_test, y_test))")
    parts: list[Part] = []
    for scores, labels in content:
        scores, labels = np.asarray(scores), np.asarray(labels)
        labels = labels.reshape(-1) if labels.size == len(scores) else labels  # one column in the published files
        if (
            scores.ndim != 2
            or scores.dtype.kind != "f"
            or labels.shape != (len(scores),)
            or labels.dtype.kind not in "iu"
        ):
            message = f"logits should be numbers, n x L, and labels n whole numbers; got {scores.shape}, {labels.shape}"
            raise FileError(path, message)
        parts.append(_checked(path, scores, labels.astype(np.int64), True))
    return parts


def _top_part(path: Path) -> Part:
    if not {*TOP_ARRAYS, "labels"} <= npz_names(path):
        raise FileError(path, f"should hold {', '.join(TOP_ARRAYS)} and labels")
    with np.load(path, allow_pickle=False) as archive:
        probs, classes = (archive[name][:, 0] for name in TOP_ARRAYS)
        return np.minimum(probs.astype(np.float64), 1.0), (classes == archive["labels"]).astype(np.int64), False


def _simulated(entry: Entry, cache: Path) -> Data:
    """Draws of a simulator, kept in a file under a name that the first rows give: a changed simulator is drawn anew."""
    from mixnmatch.experiments.imagenet_simulator import simulate

    _, _, network = entry.simulated.partition("-")
    network = network or DEFAULT_NETWORK
    digest = _hash(_digest(*simulate(PROBE, seed=entry.seed, model=network)).encode(), str(entry.rows).encode())
    paths = [cache / f"simulated-{digest}-{name}.npy" for name in ("logits", "labels")]
    if not all(path.exists() for path in paths):
        cache.mkdir(parents=True, exist_ok=True)
        simulated: tuple[NDArray[Any], NDArray[Any]] = simulate(entry.rows, seed=entry.seed, model=network)
        for path, array in zip(paths, simulated, strict=True):
            atomic_write(path, partial(_save, array))
    scores, labels = (np.load(path, mmap_mode="r") for path in paths)
    return Data(scores, np.asarray(labels, dtype=np.int64), True, len(labels), digest)


def _save(array: NDArray[Any], file: Any) -> None:
    np.save(file, array)


def _digest(*arrays: NDArray[Any]) -> str:
    parts = []
    for array in arrays:
        parts += [f"{array.dtype.str} {array.shape}".encode(), np.ascontiguousarray(array).data.tobytes()]
    return _hash(*parts)


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:20]

"""Which classifiers the tables are about: a manifest in TOML, or a folder whose file names tell it."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mixnmatch._files import atomic_write
from mixnmatch.io.arrays import npz_names
from mixnmatch.io.files import FileError, check_input

__all__ = ["Entry", "read_manifest", "scan", "write_manifest"]

SPLITS = ("random", "given", "top-label")
PICKLES = (".p", ".pkl", ".pickle")
ENDINGS = (".npz", ".npy", *PICKLES)
# Endings of the two files of a pair.
PAIR = (("_val", "_test"), ("_val", "_tst"))
# Data sets that are known by what file names call them.
KNOWN = ((r"cifar[-_]?100", "CIFAR-100"), (r"cifar[-_]?10", "CIFAR-10"), (r"imagenet", "ImageNet"), (r"svhn", "SVHN"))
SIMULATED_ROWS = 50_000


@dataclass(frozen=True)
class Entry:
    """One row of the tables: a classifier on a data set, and where its scores are.

    Attributes
    ----------
    dataset, model : str
        What the row is called.
    files : tuple of Path
        Files of scores and labels: ``.npz`` with ``logits`` or ``probs`` and ``labels``; ``.npy``, with ``labels`` and
        ``logits``; or a pickle ``((logits_val, y_val), (logits_test, y_test))``.
    classes : int
        Number of classes.
    split : {"random", "given", "top-label"}
        How calibration and evaluation sets are drawn. "random": from all rows together. "given": calibration rows from
        the first file (or part), evaluation rows from the second; for files with different distributions. "top-label":
        nothing is calibrated, because the file holds only the largest probabilities (``top5_probs``, ``top5_classes``).
    labels : tuple of Path
        Files of labels, for scores in ``.npy``.
    logits : bool or None
        Whether scores in ``.npy`` are logits.
    group : str
        Heading under which the row stands; the data set by default.
    simulated : str
        A simulator in place of files: "imagenet", or one of its networks, such as "imagenet-resnet50".
    rows, seed : int
        What the simulator is asked for.
    """

    dataset: str
    model: str
    files: tuple[Path, ...] = ()
    classes: int = 0
    split: str = "random"
    labels: tuple[Path, ...] = ()
    logits: bool | None = None
    group: str = ""
    simulated: str = ""
    rows: int = SIMULATED_ROWS
    seed: int = 0

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"{self.dataset} {self.model}"

    @property
    def label(self) -> str:
        """The model, and whether it is simulated."""
        return f"{self.model} (simulated)" if self.simulated else self.model

    @property
    def heading(self) -> str:
        """Rows under one heading stand together."""
        return self.group or self.dataset


def read_manifest(path: Path) -> tuple[Entry, ...]:
    """Entries of a manifest, or of a folder (see :func:`scan`). Paths are relative to the manifest.

    Raises
    ------
    FileError
        If the manifest or a file that it names cannot be used; the message says what to do.
    """
    path = Path(path)
    if path.is_dir():
        return scan(path)
    check_input(path)
    if path.suffix.lower() != ".toml":
        raise FileError(path, "a manifest is a .toml file, or a folder of .npz files")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(path, f"is not TOML: {error}") from None
    rows = content.get("row")
    if not isinstance(rows, list) or not rows:
        raise FileError(path, "has no rows; write a table [[row]] for each classifier")
    entries = tuple(_entry(path, number, row) for number, row in enumerate(rows, start=1))
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise FileError(path, f"has two rows called {name!r}; change the model of one of them")
    return entries


def _entry(path: Path, number: int, row: dict[str, Any]) -> Entry:
    where = f"row {number}"
    if not isinstance(row, dict):
        raise FileError(path, f"{where} is not a table")
    known = {field.name: field.type for field in fields(Entry)}
    for key, value in row.items():
        if key not in known:
            raise FileError(path, f"{where} has an unknown key {key!r}; known are {', '.join(known)}")
        if not _fits(value, known[key]):
            raise FileError(path, f"{where}: {key} = {value!r} is not a {_kind(known[key])}")
    for key in ("dataset", "model", "classes"):
        if key not in row:
            raise FileError(path, f"{where} has no {key!r}")
    where = f"{where} ({row['dataset']} {row['model']})"
    settings = dict(row)
    for key in ("files", "labels"):
        settings[key] = tuple(path.parent / name for name in row.get(key, ()))
    entry = Entry(**settings)
    _check(path, where, entry)
    return entry


def simulators() -> list[str]:
    """Values of ``simulated``."""
    from mixnmatch.experiments.imagenet_simulator import MODELS

    return ["imagenet", *(f"imagenet-{name}" for name in MODELS)]


def _fits(value: Any, kind: Any) -> bool:
    if kind == "tuple[Path, ...]":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, bool if kind.startswith("bool") else str)


def _kind(kind: Any) -> str:
    return {"tuple[Path, ...]": "list of file names", "int": "whole number", "str": "text"}.get(kind, "true or false")


def _check(path: Path, where: str, entry: Entry) -> None:
    if entry.split not in SPLITS:
        raise FileError(path, f"{where}: split must be one of {', '.join(SPLITS)}, got {entry.split!r}")
    if entry.classes < 2:
        raise FileError(path, f"{where}: classes must be at least 2, got {entry.classes}")
    if entry.simulated:
        if entry.simulated not in simulators():
            raise FileError(
                path, f"{where}: simulated must be one of {', '.join(simulators())}, got {entry.simulated!r}"
            )
        if entry.files:
            raise FileError(path, f"{where} is simulated and has files; it can only be one of the two")
        return
    if not entry.files:
        raise FileError(path, f"{where} has no files")
    for file in (*entry.files, *entry.labels):
        check_input(file)
        if file.suffix.lower() not in ENDINGS:
            raise FileError(file, f"cannot be read here; the name must end in {', '.join(ENDINGS)}")
    scores = [file for file in entry.files if file.suffix.lower() == ".npy"]
    if len(scores) != len(entry.labels) or (scores and entry.logits is None):
        raise FileError(path, f"{where}: scores in .npy need as many files of labels, and logits = true or false")
    parts = 2 * len(entry.files) if entry.files[0].suffix.lower() in PICKLES else len(entry.files)
    if entry.split == "given" and parts != 2:
        raise FileError(path, f'{where}: split = "given" needs two files, to calibrate and to evaluate, got {parts}')


def scan(folder: Path) -> tuple[Entry, ...]:
    """Entries of the files in a folder, by their names.

    ``X_val`` and ``X_test`` are one classifier; names with cifar10, cifar100 and the like tell the data set. Files
    ending in ``.p``, ``.pkl`` and ``.pickle`` are pairs by themselves.
    """
    paths = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in (".npz", *PICKLES))
    if not paths:
        raise FileError(folder, "has no files ending in .npz, .p, .pkl or .pickle")
    by_name = {path.name: path for path in paths}
    entries = []
    for path in paths:
        files: tuple[Path, ...] | None = (path,)
        stem = model = path.stem
        for first, second in PAIR:
            base = f"_{stem}"  # so that a file may be called val.npz
            before, after = (f"{base.removesuffix(a)}{b}"[1:] for a, b in ((second, first), (first, second)))
            if base.endswith(second) and f"{before}{path.suffix}" in by_name:
                files = None  # the second file of a pair
            elif base.endswith(first) and f"{after}{path.suffix}" in by_name:
                files = (path, by_name[f"{after}{path.suffix}"])
                model = base.removesuffix(first)[1:] or path.resolve().parent.name
        if files is None:
            continue
        if path.suffix.lower() == ".npz":
            names = npz_names(path)
            if "labels" not in names or not {"logits", "probs"} & names:
                continue
        dataset = next((name for pattern, name in KNOWN if re.search(pattern, model.lower())), "Other")
        entries.append(Entry(dataset, model, files, classes=_columns(files[0])))
    if not entries:
        raise FileError(folder, "no file in it holds `labels` and `logits` or `probs`")
    return tuple(sorted(entries, key=lambda entry: (_place(entry.dataset), entry.model)))


def _place(dataset: str) -> int:
    names = ["CIFAR-10", "CIFAR-100", "SVHN", "ImageNet"]
    return names.index(dataset) if dataset in names else len(names)


def _columns(path: Path) -> int:
    from mixnmatch.experiments.reproduce.loading import parts_of

    scores = parts_of(Entry("", "", (path,)))[0][0]
    return 2 if scores.ndim == 1 else int(scores.shape[1])


def write_manifest(entries: Iterable[Entry], path: Path) -> None:
    """Write entries as a manifest, with paths relative to it."""
    lines: list[str] = []
    for entry in entries:
        lines.append("[[row]]")
        for field in fields(Entry):
            value = getattr(entry, field.name)
            if value == field.default or (field.name in ("rows", "seed") and not entry.simulated):
                continue
            lines.append(f"{field.name} = {_toml(value, path.parent)}")
        lines.append("")
    atomic_write(path, "\n".join(lines).encode())


def _toml(value: Any, folder: Path) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item, folder) for item in value)}]"
    if isinstance(value, Path):
        value = Path(os.path.relpath(value, folder)).as_posix()
    return json.dumps(value)

"""Reading the files that commands are given, and measuring what is in them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.labels import read_labels
from mixnmatch._engine.scores import read_scores
from mixnmatch._engine.weights import read_weight
from mixnmatch.cli.command import in_command_line_words
from mixnmatch.cli.display import plural
from mixnmatch.cli.options import Reading
from mixnmatch.io import FileError, ScoreTable, read_table
from mixnmatch.io.files import listed

# Bytes of mapped scores that are calibrated at a time.
MAPPED_BYTES = 1 << 24


def read_checked(
    path: Path,
    reading: Reading,
    *,
    need_labels: bool = True,
    logits: bool | None = None,
    classes: NDArray[Any] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> ScoreTable:
    """Read a file and check all of its values, so that errors name the file.

    ``logits`` is what scores are taken for, and ``classes`` what text labels name, where neither the file nor the user
    says it.
    """
    table = read_table(
        path,
        logits=logits if reading.logits is None and path.suffix.lower() != ".npz" else reading.logits,
        labels=reading.labels,
        label_column=reading.label_column,
        columns=reading.columns,
        weights=reading.weights,
        classes=reading.classes,
        need_labels=need_labels,
        progress=progress,
    )
    if reading.importance and table.weights is None:
        raise FileError(path, "--importance is about weights, but there are none; name them: --weights")
    if table.classes is None and classes is not None and classes.dtype.kind == "U" and _is_text(table.labels):
        table = replace(table, classes=classes)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said again, once, when the table is used
            checked = read_scores(table.scores, logits=table.logits)
            if table.labels is not None:
                read_labels(table.labels, checked.n_rows, checked.n_classes, table.classes)
            read_weight(table.weights, checked.n_rows)
    except (ValueError, TypeError) as error:
        raise FileError(path, _in_words(str(error), path)) from None
    return table


def _is_text(labels: NDArray[Any] | None) -> bool:
    return labels is not None and labels.dtype.kind == "U"


def names_of(table: ScoreTable) -> NDArray[Any] | None:
    """Names of the classes of a table, where it has some."""
    if table.classes is None and _is_text(table.labels):
        return np.unique(table.labels)  # type: ignore[arg-type]
    return table.classes


def _in_words(message: str, path: Path) -> str:
    text = in_command_line_words(message)
    if path.suffix.lower() == ".npz":  # here the name of the array decides, not an option
        text = text.replace("pass --logits", "call the array 'logits'")
    return text


def about(table: ScoreTable) -> str:
    """A file in a line."""
    kind = "logits" if table.logits else "probabilities"
    weighted = ", weighted" if table.weights is not None else ""
    names = "" if table.classes is None else f" ({_names(table.classes)})"
    return f"{table.path}: {plural(table.n_rows, 'row')}, {plural(table.n_classes, 'class')}{names}, {kind}{weighted}"


def _names(classes: NDArray[Any]) -> str:
    names = [str(name) for name in classes.tolist()]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]}, {names[1]}, ..., {names[-1]}"


@dataclass(frozen=True)
class Measured:
    """Accuracy and proper scores of a table; each is a float that knows its interval."""

    accuracy: Any
    log_loss: Any
    brier_score: Any

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {name: getattr(self, name).to_dict() for name in ("accuracy", "log_loss", "brier_score")}


def settings_of(table: ScoreTable, weighting: str = "frequency") -> dict[str, Any]:
    """What functions of the library want to know about a table beside scores and labels."""
    return {"sample_weight": table.weights, "classes": table.classes, "weights": weighting}


def frequencies(table: ScoreTable, weighting: str) -> NDArray[Any] | None:
    """Weights for functions that take frequencies only: importances are rescaled, as ``weights="importance"`` does."""
    if weighting == "frequency" or table.weights is None:
        return table.weights
    # They sum to the effective number of rows now, which is less than the number of rows and no reason to warn.
    warnings.filterwarnings("ignore", message="sample_weight sums to")
    rescaled: NDArray[Any] = read_weight(table.weights, table.n_rows, weights=weighting)
    return rescaled


def measure(
    scores: Any, table: ScoreTable, *, logits: bool, weighting: str = "frequency", confidence: float = 0.95
) -> Measured:
    """Accuracy, log loss and Brier score of scores for the labels of a table."""
    from mixnmatch.evaluation.scores import accuracy, brier_score, log_loss

    settings = settings_of(table, weighting) | {"logits": logits, "confidence": confidence}
    with np.errstate(all="ignore"):
        return Measured(
            accuracy(scores, table.labels, **settings),
            log_loss(scores, table.labels, **settings),
            brier_score(scores, table.labels, **settings),
        )


def load_map(path: Path) -> Any:
    """A saved map, or an error that names the file."""
    from mixnmatch.io.files import check_input
    from mixnmatch.persistence import load

    check_input(path)
    return load(path)


def calibrated(map_: Any, scores: NDArray[Any]) -> NDArray[Any]:
    """Probabilities of all rows."""
    return _row_wise(map_.predict_proba, scores)


def _row_wise(function: Callable[[NDArray[Any]], NDArray[Any]], scores: NDArray[Any]) -> NDArray[Any]:
    """A function of all rows; where the scores are in a mapped file, so is the result."""
    from mixnmatch._engine.passes import row_ranges
    from mixnmatch._engine.spool import spool

    if not isinstance(scores, np.memmap):
        return function(scores)
    row_bytes = 8 * (1 if scores.ndim == 1 else scores.shape[1])
    ranges = row_ranges(len(scores), row_bytes, block_bytes=MAPPED_BYTES)
    with spool((function(scores[start:stop]), None) for start, stop in ranges) as rows:
        return rows.scores


def _in_order(table: ScoreTable, order: list[int]) -> ScoreTable:
    """The table with its columns, and their names, in another order."""
    assert table.classes is not None
    scores = _row_wise(lambda rows: np.ascontiguousarray(rows[:, order]), table.scores)
    return replace(table, scores=scores, classes=table.classes[order])


def aligned(table: ScoreTable, map_: Any, map_path: Path) -> ScoreTable:
    """The table with its columns in the order of the classes that a map was fitted with.

    Where both have names for the classes, columns are matched by name; otherwise by position.
    """
    if table.logits != map_.takes_logits:
        have, want = ("logits", "probabilities") if table.logits else ("probabilities", "logits")
        raise FileError(table.path, f"holds {have}, but {map_path} was fitted on {want}")
    if table.n_classes != map_.n_classes_:
        why = f"has scores of {table.n_classes} classes, but {map_path} was fitted with {map_.n_classes_}"
        raise FileError(table.path, why)
    known = [str(name) for name in map_.classes_.tolist()]
    numbered = known == [str(index) for index in range(len(known))]
    if numbered or table.classes is None or table.scores.ndim == 1:
        return table
    for names in (table.columns, tuple(str(name) for name in table.classes.tolist())):
        if set(names) == set(known):
            if list(names) == known:
                return table
            return _in_order(table, [names.index(name) for name in known])
    why = f"its classes are {listed(table.classes.tolist())}, but {map_path} was fitted with {listed(known)}"
    raise FileError(table.path, why)


def evaluation_rows(path: Path, table: ScoreTable, reading: Reading) -> tuple[Any, ...]:
    """Scores, labels and, if there are any, weights of a file to judge on."""
    other = same_kind(reading.read(path, like=table), table)
    weight = frequencies(other, reading.weighting)
    return (other.scores, other.labels) if weight is None else (other.scores, other.labels, weight)


def same_kind(other: ScoreTable, table: ScoreTable) -> ScoreTable:
    """The evaluation file with its columns as in the calibration file, or an error if the two do not fit."""
    if other.logits != table.logits:
        have, want = ("logits", "probabilities") if other.logits else ("probabilities", "logits")
        raise FileError(other.path, f"holds {have}, but {table.path} holds {want}")
    if other.n_classes != table.n_classes or other.scores.ndim != table.scores.ndim:
        raise FileError(other.path, f"has {other.n_classes} classes, but {table.path} has {table.n_classes}")
    if other.classes is None or table.classes is None or other.classes.tolist() == table.classes.tolist():
        return other
    names, known = other.classes.tolist(), table.classes.tolist()
    if other.scores.ndim == 1 or set(names) != set(known):
        raise FileError(other.path, f"its classes are {listed(names)}, but those of {table.path} are {listed(known)}")
    return _in_order(other, [names.index(name) for name in known])

"""Scores, labels and weights: what comes in is checked here, once, with errors that say what to do."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._passes import row_ranges, run_blocks

# How far a row of probabilities may be from summing to 1; rows are renormalised.
SUM_TOLERANCE = {"bfloat16": 2e-2, "float16": 1e-2, "float32": 1e-4, "float64": 1e-4}
# Rows this close to 1 differ from it by the rounding of their own type, and are taken as given.
ROUNDING = {"bfloat16": 0.0, "float16": 0.0, "float32": 1e-5, "float64": 1e-9}
# Logits this far behind the largest of their row are as far behind as any: sums of squares of such numbers are finite.
WIDEST = 1e9
# A row cannot be counted more often than this, and all rows together not less than this.
MOST_OFTEN, LEAST_TOTAL = 1e15, 1e-12
# A row that counts less than this does not count: its square would be lost beside anything.
LEAST_WEIGHT = 1e-30
# More bins than this would only take up memory.
MOST_BINS = 1_000_000
_NO_FREQUENCY = 'which cannot be a number of rows; if weights are importances, say weights="importance"'


@dataclass(frozen=True)
class Scores:
    """A checked table of scores: ``values`` is n x L, or n for the positive class of a binary problem."""

    values: Any
    logits: bool
    uneven: bool = False  # some row of probabilities is off the simplex by more than rounding
    wide: bool = False  # some logit is beyond WIDEST

    @property
    def vector(self) -> bool:
        """Whether the table is a vector of scores of the positive class."""
        return bool(self.values.ndim == 1)

    @property
    def n_rows(self) -> int:
        """Number of samples."""
        return int(self.values.shape[0])

    @property
    def n_classes(self) -> int:
        """Number of classes, 2 for a vector."""
        return 2 if self.vector else int(self.values.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type that predictions for these scores have: float32 stays float32, all else becomes float64."""
        kept = self.values.dtype.kind == "f" and self.values.dtype.itemsize <= 4
        return np.dtype(np.float32 if kept else np.float64)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the working type."""
        return self.n_classes * self.dtype.itemsize

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows ``start`` to ``stop`` as a contiguous block of the working type (no copy where it already is one)."""
        with np.errstate(over="ignore"):  # long doubles; what became an infinity is found when values are checked
            block = np.ascontiguousarray(self.values[start:stop], dtype=self.dtype)
        return _narrowed(block) if self.wide else block


def is_number(value: Any) -> bool:
    """Whether ``value`` is a finite real number that a float can hold."""
    if isinstance(value, int | np.integer):
        return abs(int(value)) < 10**300
    return isinstance(value, float | np.floating) and math.isfinite(float(value))


def read_scores(scores: Any, *, logits: bool = False, n_classes: int | None = None) -> Scores:
    """Check a table of scores and return it as :class:`Scores`.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``. A vector holds the positive class of a binary problem.
    logits : bool
        Whether the scores are logits. Nothing is guessed from the values.
    n_classes : int, optional
        Number of classes that the map was fitted with.

    Raises
    ------
    ValueError
        If the scores cannot be used; the message names the first bad row.
    """
    values = _as_table(scores)
    table = Scores(values, bool(logits))
    if values.ndim == 2 and values.shape[1] < 2:
        msg = (
            f"scores have {values.shape[1]} column(s): a classifier needs at least two classes. "
            "For the positive class of a binary problem pass a vector of shape (n,)"
        )
        raise ValueError(msg)
    if n_classes is not None and table.n_classes != n_classes:
        msg = f"scores have {table.n_classes} classes, but the map was fitted with {n_classes}"
        raise ValueError(msg)
    given = "bfloat16" if _is_bfloat16(scores) else values.dtype.name
    return _checked(table, given)


def from_tensor(value: Any) -> Any:
    """A tensor of PyTorch as a NumPy array, wherever it is and with or without a gradient; all else as it is."""
    if not hasattr(value, "detach"):
        return value
    tensor = value.detach().cpu()
    return (tensor.float() if _is_bfloat16(tensor) else tensor).numpy()  # NumPy has no bfloat16


def _is_bfloat16(value: Any) -> bool:
    return str(getattr(value, "dtype", "")) == "torch.bfloat16"


def _as_table(scores: Any) -> NDArray[Any]:
    if np.ma.isMaskedArray(scores):
        msg = "scores are a masked array: fill or drop the masked rows first (scores.filled, scores[~mask])"
        raise TypeError(msg)
    scores = from_tensor(scores)
    try:
        values = np.asanyarray(scores) if isinstance(scores, np.ndarray) else np.asarray(scores)
    except ValueError as error:
        msg = "scores must be an array of numbers of shape (n, L) or (n,); rows have different lengths"
        raise ValueError(msg) from error
    if values.dtype.kind not in "fiu":
        msg = f"scores must be real numbers, got an array of type {values.dtype}"
        raise ValueError(msg)
    if values.ndim not in (1, 2):
        msg = f"scores must have shape (n, L) or (n,), got {values.shape}"
        raise ValueError(msg)
    if values.shape[0] == 0 or values.size == 0:
        msg = f"scores are empty: shape {values.shape}"
        raise ValueError(msg)
    return np.asarray(values) if isinstance(values, np.matrix) else values


def _narrowed(block: NDArray[Any]) -> NDArray[Any]:
    """Logits with no number beyond ``WIDEST``; the order of every row stays as it is."""
    if block.ndim == 1:
        return np.asarray(np.clip(block, -WIDEST, WIDEST))
    beyond = np.abs(block).max(axis=1) > WIDEST
    rows = block[beyond]
    with np.errstate(over="ignore"):  # a difference may be larger than any float
        rows -= rows.max(axis=1, keepdims=True)
    narrowed = block.copy()
    narrowed[beyond] = np.maximum(rows, -WIDEST)
    return narrowed


def _checked(table: Scores, name: str) -> Scores:
    """Raise an error for the first bad row; say whether rows, given in a type, need to be renormalised or narrowed."""
    tolerance, rounding = SUM_TOLERANCE.get(name, 1e-4), ROUNDING.get(name, 1e-9)

    def find(start: int, stop: int) -> tuple[int, str] | float:
        block = table.read(start, stop)
        found = _check_logits(block) if table.logits else _check_probabilities(block, tolerance)
        return found if isinstance(found, float) else (start + found[0], found[1])

    furthest = 0.0
    for found in run_blocks(find, row_ranges(table.n_rows, table.row_bytes)):
        if not isinstance(found, float):
            row, why = found
            msg = f"row {row} of the scores {why}"
            raise ValueError(msg)
        furthest = max(furthest, found)
    return replace(table, wide=furthest > WIDEST) if table.logits else replace(table, uneven=furthest > rounding)


def _check_logits(block: NDArray[Any]) -> tuple[int, str] | float:
    """First bad row and what is wrong with it, or the largest absolute value."""
    # min and max carry NaN and infinities out of a block in two vectorised reads, without a temporary.
    low, high = float(block.min()), float(block.max())
    return max(-low, high) if np.isfinite(low) and np.isfinite(high) else _first_not_finite(block)


def _check_probabilities(block: NDArray[Any], tolerance: float) -> tuple[int, str] | float:
    """First bad row and what is wrong with it, or how far the furthest row is from summing to 1."""
    low, high = block.min(), block.max()
    if not (np.isfinite(low) and np.isfinite(high)):
        return _first_not_finite(block)
    flat = block.reshape(block.shape[0], -1)
    if low < 0:
        row = int(np.flatnonzero(flat.min(axis=1) < 0)[0])
        return row, f"has a negative entry ({flat[row].min():.6g}); if these are logits, pass logits=True"
    if block.ndim == 1:
        if high > 1:
            row = int(np.flatnonzero(block > 1)[0])
            return row, f"is {block[row]:.6g}, not a probability; if these are logits, pass logits=True"
        return 0.0
    with np.errstate(over="ignore"):  # huge numbers sum to an infinity, which is not 1 either
        sums = block.sum(axis=1)
    off = np.abs(sums - 1)
    if off.max() > tolerance:
        row = int(np.flatnonzero(off > tolerance)[0])
        return row, f"sums to {sums[row]:.6g}, not to 1; if these are logits, pass logits=True"
    return float(off.max())


def _first_not_finite(block: NDArray[Any]) -> tuple[int, str]:
    flat = block.reshape(block.shape[0], -1)
    row = int(np.flatnonzero(~np.isfinite(flat).all(axis=1))[0])
    bad = flat[row][~np.isfinite(flat[row])][0]
    name = "NaN" if np.isnan(bad) else "an infinity (or a number too large for a float)"
    return row, f"holds {name}; drop or repair such rows first"


def read_labels(y: Any, n_rows: int, n_classes: int, classes: Any = None) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Check labels and return their column indices and the names of the columns.

    Without ``classes``, integer labels are column indices; other labels are matched to the columns in sorted order,
    if all of them occur.
    """
    labels = _as_labels(y, n_rows)
    if classes is not None:
        names = np.asarray(classes)
        if names.ndim != 1 or len(names) != n_classes or len(np.unique(names)) != n_classes:
            msg = f"classes must name each of the {n_classes} columns once, got {names.tolist()!r:.200}"
            raise ValueError(msg)
        return _match(labels, names), names
    if labels.dtype.kind in "US":
        names = np.unique(labels)
        if len(names) != n_classes:
            msg = (
                f"the labels name {len(names)} classes but the scores have {n_classes} columns; "
                "pass classes=[...] to name the columns in order"
            )
            raise ValueError(msg)
        return _match(labels, names), names
    outside = (labels < 0) | (labels >= n_classes)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        msg = (
            f"label {labels[row]} in row {row} is not a column of the scores (0 to {n_classes - 1}); "
            "pass classes=[...] if the columns have other names"
        )
        raise ValueError(msg)
    return labels.astype(np.intp, copy=False), np.arange(n_classes)


def _as_labels(y: Any, n_rows: int) -> NDArray[Any]:
    if np.ma.isMaskedArray(y):
        msg = "labels are a masked array: drop the masked rows first"
        raise TypeError(msg)
    try:
        labels = np.asarray(from_tensor(y))
    except ValueError as error:
        msg = "labels must be a vector with one label a row; these have different lengths"
        raise ValueError(msg) from error
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        msg = f"labels must be a vector with one label a row, got shape {labels.shape}"
        raise ValueError(msg)
    if len(labels) != n_rows:
        msg = f"there are {len(labels)} labels for {n_rows} rows of scores"
        raise ValueError(msg)
    if labels.dtype.kind == "O":
        if not all(isinstance(label, str) for label in labels):
            msg = "labels are an object array; pass integers or strings"
            raise ValueError(msg)
        labels = labels.astype(str)
    if labels.dtype.kind == "f":
        with np.errstate(over="ignore"):  # long doubles; infinities are no class
            labels = labels.astype(np.float64)
        whole = np.isfinite(labels) & (labels == np.floor(labels)) & (np.abs(labels) < 2.0**53)
        if not whole.all():
            row = int(np.flatnonzero(~whole)[0])
            msg = f"label {labels[row]} in row {row} is not a class; pass integers or strings"
            raise ValueError(msg)
        labels = labels.astype(np.int64)
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iuUS":
        msg = f"labels must be integers or strings, got an array of type {labels.dtype}"
        raise ValueError(msg)
    return labels


def _match(labels: NDArray[Any], names: NDArray[Any]) -> NDArray[np.intp]:
    if (labels.dtype.kind in "US") != (names.dtype.kind in "US"):
        msg = f"labels of type {labels.dtype} cannot be matched to classes of type {names.dtype}"
        raise ValueError(msg)
    order = np.argsort(names, kind="stable")
    position = np.searchsorted(names, labels, sorter=order)
    codes = order[np.minimum(position, len(names) - 1)]
    unknown = names[codes] != labels
    if unknown.any():
        row = int(np.flatnonzero(unknown)[0])
        msg = f"label {labels[row].item()!r} in row {row} is not one of the classes {names.tolist()!r:.200}"
        raise ValueError(msg)
    return codes.astype(np.intp, copy=False)


def read_weight(sample_weight: Any, n_rows: int, *, weights: str = "frequency") -> NDArray[np.float64] | None:
    """Check sample weights; ``None`` stays ``None``.

    Weights are frequencies: k equals k repetitions. With ``weights="importance"`` they are rescaled so that they sum
    to Kish's effective sample size.
    """
    if weights not in ("frequency", "importance"):
        msg = f'weights must be "frequency" or "importance", got {weights!r}'
        raise ValueError(msg)
    if sample_weight is None:
        return None
    if np.ma.isMaskedArray(sample_weight):
        msg = "sample_weight is a masked array: drop the masked rows, or give them the weight 0"
        raise TypeError(msg)
    try:
        weight = np.asarray(from_tensor(sample_weight))
    except ValueError as error:
        msg = f"sample_weight must have shape ({n_rows},); its entries have different lengths"
        raise ValueError(msg) from error
    if weight.dtype.kind not in "fiub":
        msg = f"sample_weight must be numbers, got an array of type {weight.dtype}"
        raise ValueError(msg)
    with np.errstate(over="ignore"):  # long doubles; infinities are found below
        weight = weight.astype(np.float64)
    if weight.shape != (n_rows,):
        msg = f"sample_weight must have shape ({n_rows},), got {weight.shape}"
        raise ValueError(msg)
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        msg = f"sample_weight in row {row} is {weight[row]}; weights must be finite and not negative"
        raise ValueError(msg)
    largest = float(weight.max())
    if largest == 0:
        msg = "sample_weight is zero for every row"
        raise ValueError(msg)
    if weights == "importance":
        weight /= largest
        weight[weight < LEAST_WEIGHT] = 0.0
        scale = float(weight.sum()) / float(np.square(weight).sum())
        return np.asarray(weight * scale)
    weight[weight < LEAST_WEIGHT] = 0.0
    if largest > MOST_OFTEN:
        row = int(weight.argmax())
        msg = f"sample_weight in row {row} is {largest:.6g}, {_NO_FREQUENCY}"
        raise ValueError(msg)
    total = float(weight.sum())
    if total < LEAST_TOTAL:
        msg = f"sample_weight sums to {total:.6g}, {_NO_FREQUENCY}"
        raise ValueError(msg)
    if total < np.count_nonzero(weight) * (1 - 1e-9):
        msg = (
            f"sample_weight sums to {total:.6g}, less than the {np.count_nonzero(weight)} rows it weighs. Weights are "
            'read as frequencies; if they are importances, say weights="importance"'
        )
        warnings.warn(msg, UserWarning, stacklevel=4)
    return weight

"""Scores, labels and weights: what comes in is checked here, once, with errors that say what to do."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._along_rows import row_sums
from mixnmatch._dask import is_dask, known_rows, map_chunks, one_class_chunk, reduce_chunks
from mixnmatch._passes import light_bytes, row_ranges, run_blocks

# How far a row of probabilities may be from summing to 1; rows are renormalised.
SUM_TOLERANCE = {"bfloat16": 2e-2, "float16": 1e-2, "float32": 1e-4, "float64": 1e-4}
# Rows this close to 1 differ from it by the rounding of their own type, and are taken as given.
ROUNDING = {"bfloat16": 0.0, "float16": 0.0, "float32": 1e-5, "float64": 1e-9}
# Logits this far behind the largest of their row are as far behind as any: sums of squares of such numbers are finite.
WIDEST = 1e9
# A row cannot be counted more often than this, and all rows together not less than this.
MOST_OFTEN, LEAST_TOTAL = 1e15, 1e-12
# A row that counts less than this, or than this beside the largest, does not count: its square is lost in any sum.
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


def read_scores(scores: Any, *, logits: bool = False, n_classes: int | None = None, first_row: int | str = 0) -> Scores:
    """Check a table of scores and return it as :class:`Scores`.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``. A vector holds the positive class of a binary problem.
    logits : bool
        Whether the scores are logits. Nothing is guessed from the values.
    n_classes : int, optional
        Number of classes that the map was fitted with.
    first_row : int or str
        Where these rows are in the table that they are part of, for messages.

    Raises
    ------
    ValueError
        If the scores cannot be used; the message names the first bad row.
    """
    table = shape_scores(scores, logits=logits, n_classes=n_classes)
    if is_dask(table.values):
        table = replace(table, values=known_rows(table.values))
    given = "bfloat16" if _is_bfloat16(scores) else table.values.dtype.name
    return _checked(table, given, first_row)


def shape_scores(scores: Any, *, logits: bool = False, n_classes: int | None = None) -> Scores:
    """Check all but the numbers themselves, which a lazy array does not show before it is computed."""
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
    return table


def from_tensor(value: Any) -> Any:
    """A tensor of PyTorch as a NumPy array, wherever it is and with or without a gradient; all else as it is."""
    if not hasattr(value, "detach"):
        return value
    tensor = value.detach().cpu()
    return (tensor.float() if _is_bfloat16(tensor) else tensor).numpy()  # NumPy has no bfloat16


def _is_bfloat16(value: Any) -> bool:
    return str(getattr(value, "dtype", "")) == "torch.bfloat16"


def _as_table(scores: Any) -> Any:
    values = scores if is_dask(scores) else _as_array(scores)
    if values.dtype.kind not in "fiu":
        msg = f"scores must be real numbers, got an array of type {values.dtype}"
        raise ValueError(msg)
    if values.ndim not in (1, 2):
        msg = f"scores must have shape (n, L) or (n,), got {values.shape}"
        raise ValueError(msg)
    if values.shape[0] == 0 or values.size == 0:
        msg = f"scores are empty: shape {values.shape}"
        raise ValueError(msg)
    return one_class_chunk(values) if is_dask(values) else values


def _as_array(scores: Any) -> NDArray[Any]:
    if np.ma.isMaskedArray(scores):
        msg = "scores are a masked array: fill or drop the masked rows first (scores.filled, scores[~mask])"
        raise TypeError(msg)
    scores = from_tensor(scores)
    try:
        values = np.asanyarray(scores) if isinstance(scores, np.ndarray) else np.asarray(scores)
    except ValueError as error:
        msg = "scores must be an array of numbers of shape (n, L) or (n,); rows have different lengths"
        raise ValueError(msg) from error
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


def _checked(table: Scores, name: str, first_row: int | str = 0) -> Scores:
    """Raise an error for the first bad row; say whether rows, given in a type, need to be renormalised or narrowed."""
    tolerance = SUM_TOLERANCE.get(name, 1e-4)
    if is_dask(table.values):
        found = reduce_chunks(_check_chunk, [table.values], table.logits, tolerance, combine=_first_or_furthest)
    else:
        found = _check_rows(table, tolerance)
    if not isinstance(found, float):
        row, why = found
        place = f"row {row} of {first_row}" if isinstance(first_row, str) else f"row {first_row + row}"
        msg = f"{place} of the scores {why}"
        raise ValueError(msg)
    if table.logits:
        return replace(table, wide=found > WIDEST)
    return replace(table, uneven=found > ROUNDING.get(name, 1e-9))


def _check_chunk(start: int, chunks: list[NDArray[Any]], logits: bool, tolerance: float) -> tuple[int, str] | float:
    found = _check_rows(Scores(chunks[0], logits), tolerance)
    return found if isinstance(found, float) else (start + found[0], found[1])


def _first_or_furthest(left: tuple[int, str] | float, right: tuple[int, str] | float) -> tuple[int, str] | float:
    if isinstance(left, float):
        return max(left, right) if isinstance(right, float) else right
    return left


def _check_rows(table: Scores, tolerance: float) -> tuple[int, str] | float:
    """First bad row and what is wrong with it, or the largest logit, or how far a row is from summing to 1."""

    def find(start: int, stop: int) -> tuple[int, str] | float:
        block = table.read(start, stop)
        found = _check_logits(block) if table.logits else _check_probabilities(block, tolerance)
        return found if isinstance(found, float) else (start + found[0], found[1])

    furthest = 0.0
    for found in run_blocks(find, row_ranges(table.n_rows, table.row_bytes, block_bytes=light_bytes())):
        if not isinstance(found, float):
            return found
        furthest = max(furthest, found)
    return furthest


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
        sums = row_sums(block)
    furthest = max(float(sums.max()) - 1, 1 - float(sums.min()))
    if furthest > tolerance:
        row = int(np.flatnonzero(np.abs(sums - 1) > tolerance)[0])
        return row, f"sums to {sums[row]:.6g}, not to 1; if these are logits, pass logits=True"
    return furthest


def _first_not_finite(block: NDArray[Any]) -> tuple[int, str]:
    flat = block.reshape(block.shape[0], -1)
    row = int(np.flatnonzero(~np.isfinite(flat).all(axis=1))[0])
    bad = flat[row][~np.isfinite(flat[row])][0]
    name = "NaN" if np.isnan(bad) else "an infinity (or a number too large for a float)"
    return row, f"holds {name}; drop or repair such rows first"


def read_labels(y: Any, n_rows: int, n_classes: int, classes: Any = None) -> tuple[Any, NDArray[Any]]:
    """Check labels and return their column indices and the names of the columns.

    Without ``classes``, integer labels are column indices; other labels are matched to the columns in sorted order,
    if all of them occur. Labels in a Dask array stay there.
    """
    if is_dask(y):
        return _read_dask_labels(y, n_rows, n_classes, classes)
    labels = _as_labels(y, n_rows)
    if classes is None and labels.dtype.kind not in "US":
        return _column_indices(labels, n_classes), np.arange(n_classes)
    names = _column_names(np.unique(labels) if classes is None else classes, n_classes, given=classes is not None)
    return _match(labels, names), names


def _column_names(given_names: Any, n_classes: int, *, given: bool) -> NDArray[Any]:
    names: NDArray[Any] = np.asarray(given_names)
    if given and (names.ndim != 1 or len(names) != n_classes or len(np.unique(names)) != n_classes):
        msg = f"classes must name each of the {n_classes} columns once, got {names.tolist()!r:.200}"
        raise ValueError(msg)
    if len(names) != n_classes:
        msg = (
            f"the labels name {len(names)} classes but the scores have {n_classes} columns; "
            "pass classes=[...] to name the columns in order"
        )
        raise ValueError(msg)
    return names


def _column_indices(labels: NDArray[Any], n_classes: int, first_row: int = 0) -> NDArray[np.intp]:
    outside = (labels < 0) | (labels >= n_classes)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        msg = (
            f"label {labels[row]} in row {first_row + row} is not a column of the scores (0 to {n_classes - 1}); "
            "pass classes=[...] if the columns have other names"
        )
        raise ValueError(msg)
    return labels.astype(np.intp, copy=False)


def _read_dask_labels(y: Any, n_rows: int, n_classes: int, classes: Any) -> tuple[Any, NDArray[Any]]:
    """Column indices as a lazy array, once a pass has found all labels to be good."""
    labels = known_rows(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    _check_label_shape(labels.shape, n_rows)
    names: NDArray[Any] | None = None
    if classes is not None:
        names = _column_names(classes, n_classes, given=True)
    elif labels.dtype.kind in "USO":
        found = reduce_chunks(_label_names, [labels], combine=_either_or_union)
        names = _column_names(_unless_error(found), n_classes, given=False)
    _unless_error(reduce_chunks(_label_error, [labels], n_classes, names, combine=_first_error))
    # Labels may have to be sent from worker to worker: as short as they can be.
    short = np.min_scalar_type(n_classes - 1)
    codes = map_chunks(_label_codes, labels, n_classes, names, short, n_columns=None, dtype=short)
    return codes, np.arange(n_classes) if names is None else names


def _label_codes(
    labels: NDArray[Any], first_row: int, n_classes: int, names: NDArray[Any] | None, dtype: Any
) -> NDArray[Any]:
    checked = _as_labels(labels, len(labels), first_row)
    found = _column_indices(checked, n_classes, first_row) if names is None else _match(checked, names, first_row)
    return found.astype(dtype)


def _label_error(start: int, chunks: list[NDArray[Any]], n_classes: int, names: Any) -> Exception | None:
    try:
        _label_codes(chunks[0], start, n_classes, names, np.intp)
    except (ValueError, TypeError) as error:
        return error
    return None


def _label_names(start: int, chunks: list[NDArray[Any]]) -> NDArray[Any] | Exception:
    try:
        return np.unique(_as_labels(chunks[0], len(chunks[0]), start))
    except (ValueError, TypeError) as error:
        return error


def _either_or_union(left: Any, right: Any) -> Any:
    failed = [part for part in (left, right) if isinstance(part, Exception)]
    return failed[0] if failed else np.union1d(left, right)


def _first_error(left: Exception | None, right: Exception | None) -> Exception | None:
    return left or right


def _unless_error(found: Any) -> Any:
    if isinstance(found, Exception):
        raise found
    return found


def _check_label_shape(shape: tuple[int, ...], n_rows: int) -> None:
    if len(shape) != 1:
        msg = f"labels must be a vector with one label a row, got shape {shape}"
        raise ValueError(msg)
    if shape[0] != n_rows:
        msg = f"there are {shape[0]} labels for {n_rows} rows of scores"
        raise ValueError(msg)


def _as_labels(y: Any, n_rows: int, first_row: int = 0) -> NDArray[Any]:
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
    _check_label_shape(labels.shape, n_rows)
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
            msg = f"label {labels[row]} in row {first_row + row} is not a class; pass integers or strings"
            raise ValueError(msg)
        labels = labels.astype(np.int64)
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iuUS":
        msg = f"labels must be integers or strings, got an array of type {labels.dtype}"
        raise ValueError(msg)
    return labels


def _match(labels: NDArray[Any], names: NDArray[Any], first_row: int = 0) -> NDArray[np.intp]:
    if (labels.dtype.kind in "US") != (names.dtype.kind in "US"):
        msg = f"labels of type {labels.dtype} cannot be matched to classes of type {names.dtype}"
        raise ValueError(msg)
    order = np.argsort(names, kind="stable")
    position = np.searchsorted(names, labels, sorter=order)
    codes = order[np.minimum(position, len(names) - 1)]
    unknown = names[codes] != labels
    if unknown.any():
        row = int(np.flatnonzero(unknown)[0])
        msg = f"label {labels[row].item()!r} in row {first_row + row} is not one of the classes {names.tolist()!r:.200}"
        raise ValueError(msg)
    return codes.astype(np.intp, copy=False)


def read_weight(sample_weight: Any, n_rows: int, *, weights: str = "frequency") -> Any:
    """Check sample weights; ``None`` stays ``None``, and a Dask array stays one.

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
    weight: Any
    try:
        weight = known_rows(sample_weight) if is_dask(sample_weight) else np.asarray(from_tensor(sample_weight))
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
    sums = _weigh_all(weight)
    if sums.largest == 0:
        msg = "sample_weight is zero for every row"
        raise ValueError(msg)
    least = LEAST_WEIGHT * (sums.largest if weights == "importance" else max(sums.largest, 1.0))
    weight = weight * (weight >= least)
    if weights == "importance":
        weight = weight / sums.largest
        sums = _weigh_all(weight)
        return weight * (sums.total / sums.squares)
    if sums.largest > MOST_OFTEN:
        msg = f"sample_weight in row {sums.row} is {sums.largest:.6g}, {_NO_FREQUENCY}"
        raise ValueError(msg)
    if sums.total < LEAST_TOTAL:
        msg = f"sample_weight sums to {sums.total:.6g}, {_NO_FREQUENCY}"
        raise ValueError(msg)
    if sums.total < sums.rows * (1 - 1e-9):
        msg = (
            f"sample_weight sums to {sums.total:.6g}, less than the {sums.rows} rows it weighs. Weights are "
            'read as frequencies; if they are importances, say weights="importance"'
        )
        warnings.warn(msg, UserWarning, stacklevel=4)
    return weight


@dataclass(frozen=True)
class _Weighed:
    """Of some weights: their sum, the sum of their squares, how many are positive, the largest and its row."""

    total: float
    squares: float
    rows: int
    largest: float
    row: int

    def __add__(self, other: _Weighed) -> _Weighed:
        larger = self if self.largest >= other.largest else other
        both = self.total + other.total, self.squares + other.squares, self.rows + other.rows
        return _Weighed(*both, larger.largest, larger.row)


def _weigh_all(weight: Any) -> _Weighed:
    found = reduce_chunks(_weigh, [weight], combine=_weigh_both) if is_dask(weight) else _weigh(0, [weight])
    sums: _Weighed = _unless_error(found)
    return sums


def _weigh(start: int, chunks: list[NDArray[np.float64]]) -> _Weighed | Exception:
    """Sums of the weights of a chunk; an error if one of them cannot be."""
    weight = chunks[0]
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        msg = f"sample_weight in row {start + row} is {weight[row]}; weights must be finite and not negative"
        return ValueError(msg)
    if not len(weight):
        return _Weighed(0.0, 0.0, 0, 0.0, start)
    row = int(weight.argmax())
    with np.errstate(over="ignore"):  # such weights are refused, or scaled and summed again
        total, squares = float(weight.sum()), float(np.square(weight).sum())
    return _Weighed(total, squares, int(np.count_nonzero(weight)), float(weight[row]), start + row)


def _weigh_both(left: Any, right: Any) -> Any:
    failed = [part for part in (left, right) if isinstance(part, Exception)]
    return failed[0] if failed else left + right

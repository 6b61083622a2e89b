"""Check scores once, with errors that say what to do."""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import row_sums
from mixnmatch._engine.dask import is_dask, known_rows, one_class_chunk, reduce_chunks
from mixnmatch._engine.errors import InputError, InputWarning, caller_level
from mixnmatch._engine.kernels import choose_backend, load
from mixnmatch._engine.passes import asked_backend, light_bytes, row_ranges, run_blocks

# How far a row of probabilities may be from summing to 1; rows are renormalised.
SUM_TOLERANCE = {"bfloat16": 2e-2, "float16": 1e-2, "float32": 1e-4, "float64": 1e-4}
# Rows this close to 1 differ from it by the rounding of their own type, and are taken as given.
ROUNDING = {"bfloat16": 0.0, "float16": 0.0, "float32": 1e-5, "float64": 1e-9}
_REAL = {"f": "float32", "d": "float64"}
# Rows further off than that, but not further than this for each class (and than MOST_OFF), are taken for probabilities
# that were rounded or cut to a few decimals: they are renormalised with a warning.
ROUNDED, MOST_OFF = 1e-3, 5e-2
# Logits in so many rows are compared with probabilities, which they are sometimes mistaken for.
ROWS_TO_COMPARE = 10
# Logits this far behind the largest of their row are as far behind as any: sums of squares of such numbers are finite.
WIDEST = 1e9
# No probability is read as less than this where logarithms are taken: float32 still holds it.
SMALLEST_PROBABILITY = 1e-37
# More bins than this would only take up memory.
MOST_BINS = 1_000_000


def type_name(dtype: np.dtype[Any]) -> str:
    """Name of a type: NumPy puts it together anew each time, which takes longer than checking a row."""
    return _REAL.get(dtype.char) or dtype.name


@dataclass(frozen=True, eq=False)
class Scores:
    """A checked table of scores: ``values`` is n x L, or n for the positive class of a binary problem."""

    values: Any
    logits: bool
    off_simplex: bool = False  # some row of probabilities is off the simplex by more than rounding
    wide: bool = False  # some logit is beyond WIDEST
    masked: bool = False  # some logit is -inf: a class that a sample cannot be of
    double: bool = False  # blocks are read in float64, whatever the type of the scores
    small: bool = False  # no logit is beyond 1

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
        """Type that predictions for these scores have: float32 for floats of up to 4 bytes, float64 for all else."""
        kept = self.values.dtype.kind == "f" and self.values.dtype.itemsize <= 4 and not self.double
        return np.dtype(np.float32 if kept else np.float64)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the working type."""
        return self.n_classes * self.dtype.itemsize

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows ``start`` to ``stop`` as a contiguous block of the working type (no copy where it already is one)."""
        block, dtype = self.values[start:stop], self.dtype
        if block.dtype != dtype or not block.flags.c_contiguous or type(block) is not np.ndarray:
            with np.errstate(over="ignore"):  # long doubles; what became an infinity is found when values are checked
                block = np.ascontiguousarray(block, dtype=dtype)
        return _narrowed(block) if self.wide else block

    def mask(self, start: int, stop: int) -> NDArray[np.bool_] | None:
        """Which classes of rows ``start`` to ``stop`` are masked by -inf; None if no row has any."""
        if not self.masked:
            return None
        impossible = np.isneginf(self.values[start:stop])
        return np.stack([np.zeros_like(impossible), impossible], axis=1) if self.vector else impossible


def is_number(value: Any) -> bool:
    """Whether ``value`` is a finite real number that a float can hold."""
    if isinstance(value, int | np.integer):
        return abs(int(value)) < 10**300
    return isinstance(value, float | np.floating) and math.isfinite(float(value))


def read_scores(
    scores: Any,
    *,
    logits: bool = False,
    n_classes: int | None = None,
    first_row: int | str = 0,
    order_only: bool = False,
    may_be_empty: bool = False,
) -> Scores:
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
    order_only : bool
        Whether only the order of a row's entries matters, so that probabilities may be read as logits.
    may_be_empty : bool
        Whether a table without rows will do.

    Raises
    ------
    ValueError
        If the scores cannot be used; the message names the first bad row.
    """
    table = shape_scores(scores, logits=logits, n_classes=n_classes, may_be_empty=may_be_empty)
    if table.values.shape[0] == 0:
        return table
    if is_dask(table.values):
        table = replace(table, values=known_rows(table.values))
    checked = _checked(table, "bfloat16" if _is_bfloat16(scores) else type_name(table.values.dtype), first_row)
    if checked.logits and not order_only:
        _warn_of_probabilities(checked)
    return checked


def shape_scores(
    scores: Any, *, logits: bool = False, n_classes: int | None = None, may_be_empty: bool = False
) -> Scores:
    """Check everything but the values, which are unknown for a lazy array."""
    values = _as_table(scores, may_be_empty=may_be_empty)
    table = Scores(values, bool(logits))
    if values.ndim == 2 and values.shape[1] < 2:
        msg = (
            f"scores have {values.shape[1]} column(s): a classifier needs at least two classes. "
            "For the positive class of a binary problem pass a vector of shape (n,)"
        )
        raise ValueError(msg)
    if n_classes is not None:
        if values.shape == (0,) and not is_dask(values):  # an empty list says nothing about classes
            return replace(table, values=np.empty((0, n_classes), values.dtype))
        if table.vector and n_classes != 2 and values.shape == (n_classes,):
            msg = f"scores have shape ({n_classes},): pass one sample as scores[None, :], of shape (1, {n_classes})"
            raise ValueError(msg)
        check_n_classes(table.n_classes, n_classes)
    return table


def check_n_classes(found: int, fitted: int) -> None:
    """Raise an error if scores have another number of classes than a map was fitted with."""
    if found != fitted:
        msg = f"scores have {found} classes, but the map was fitted with {fitted}"
        raise ValueError(msg)


def from_tensor(value: Any) -> Any:
    """Convert a PyTorch tensor on any device to a NumPy array; return other objects unchanged."""
    if not hasattr(value, "detach"):
        return value
    tensor = value.detach().cpu()
    return (tensor.float() if _is_bfloat16(tensor) else tensor).numpy()  # NumPy has no bfloat16


def _is_bfloat16(value: Any) -> bool:
    return not isinstance(value, np.ndarray) and str(getattr(value, "dtype", "")) == "torch.bfloat16"


def _as_table(scores: Any, *, may_be_empty: bool = False) -> Any:
    values = scores if is_dask(scores) else _as_array(scores)
    if values.dtype.kind not in "fiu":
        methods = {"collect": ".collect()", "toarray": ".toarray()"}  # of polars' lazy frames, of SciPy's sparse arrays
        hint = next((f"; pass scores{call}" for name, call in methods.items() if hasattr(scores, name)), "")
        kind = f"an array of type {values.dtype}" if values.ndim else f"a {type(scores).__name__}"
        msg = f"scores must be real numbers, got {kind}{hint}"
        raise ValueError(msg)
    if values.ndim not in (1, 2):
        msg = f"scores must have shape (n, L) or (n,), got {values.shape}"
        raise ValueError(msg)
    if values.size == 0 and not (may_be_empty and values.shape[0] == 0):
        msg = f"scores are empty: shape {values.shape}"
        raise ValueError(msg)
    return one_class_chunk(values) if is_dask(values) else values


def _as_array(scores: Any) -> NDArray[Any]:
    if "numpy.ma" in sys.modules and np.ma.isMaskedArray(scores):
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
    usual = SUM_TOLERANCE.get(name, 1e-4)
    tolerance = max(usual, _rounding(table.n_classes))
    if is_dask(table.values):
        found = reduce_chunks(_check_chunk, [table.values], table.logits, tolerance, combine=_first_or_furthest)
    else:
        found = _check_rows(table, tolerance)
    if not isinstance(found, float):
        row, why, hint = found
        place = f"row {row} of {first_row}" if isinstance(first_row, str) else f"row {first_row + row}"
        raise InputError("{place} of the scores {why}; " + hint, place=place, why=why)
    if table.logits:
        return replace(table, wide=found > WIDEST, masked=found == math.inf, small=found <= 1)
    if found > usual:
        msg = (
            "some rows of the scores do not sum to exactly 1 (off by up to {off:.2g}), probably because they were "
            "rounded; they are renormalised. Save more decimals to avoid this"
        )
        warnings.warn(InputWarning(msg, off=found), stacklevel=caller_level())
    return replace(table, off_simplex=True) if found > ROUNDING.get(name, 1e-9) else table


def _warn_of_probabilities(table: Scores) -> None:
    """Warn if scores passed as logits look like probabilities."""
    if not table.small or table.n_rows < ROWS_TO_COMPARE:
        return
    dask = is_dask(table.values)
    off = reduce_chunks(_off_simplex, [table.values], combine=max) if dask else _off_simplex(0, [table.values])
    if off <= (0.0 if table.vector else _rounding(table.n_classes)):
        what = "lie in [0, 1]" if table.vector else "lie in [0, 1] and sum to 1"
        msg = (
            "all rows of the scores {what}, so they are probably probabilities, but they are read as logits; for "
            "probabilities pass {probs}"
        )
        warnings.warn(InputWarning(msg, what=what), stacklevel=caller_level())


def _rounding(n_classes: int) -> float:
    """Return the largest deviation of row sums from 1 if probabilities were cut to three decimals."""
    return min(ROUNDED * n_classes, MOST_OFF)


def _off_simplex(_start: int, chunks: list[NDArray[Any]]) -> float:
    """Return how far rows are from being probabilities."""
    furthest, values = 0.0, chunks[0]
    if values.ndim == 1:
        return float(max(0.0, -values.min()))
    for start, stop in row_ranges(len(values), 8 * values.shape[1]):
        block = values[start:stop]
        furthest = max(furthest, float(-block.min()), float(np.abs(block.sum(axis=1, dtype=np.float64) - 1).max()))
        if furthest > _rounding(values.shape[1]):
            break
    return furthest


Found = tuple[int, str, str] | float


def _check_chunk(start: int, chunks: list[NDArray[Any]], logits: bool, tolerance: float) -> Found:
    found = _check_rows(Scores(chunks[0], logits), tolerance)
    return found if isinstance(found, float) else (start + found[0], *found[1:])


def _first_or_furthest(left: Found, right: Found) -> Found:
    if isinstance(left, float):
        return max(left, right) if isinstance(right, float) else right
    return left


def _check_rows(table: Scores, tolerance: float) -> Found:
    """First bad row, what is wrong and what to do; or the largest logit, or how far a row is from summing to 1."""

    def find(start: int, stop: int) -> Found:
        block = table.read(start, stop)
        found = _check_logits(block) if table.logits else _check_probabilities(block, tolerance)
        return found if isinstance(found, float) else (start + found[0], *found[1:])

    n_rows, row_bytes, furthest = table.n_rows, table.row_bytes, 0.0
    for found in run_blocks(find, row_ranges(n_rows, row_bytes, block_bytes=light_bytes(n_rows * row_bytes))):
        if not isinstance(found, float):
            return found
        furthest = max(furthest, found)
    return furthest


def _check_logits(block: NDArray[Any]) -> Found:
    """First bad row and what is wrong with it, or the largest absolute value: infinite where classes are masked."""
    low, high = _extremes(block)[:2]
    if np.isfinite(low) and np.isfinite(high):
        return max(-low, high)
    flat = block.reshape(len(block), -1)
    # A sample must have a class that it can be of; a vector holds the logits of one of two classes.
    possible = np.isfinite(flat.max(axis=1)) | (block.ndim == 1)
    unusable = np.isnan(flat) | np.isposinf(flat)
    if unusable.any():
        return _first_not_finite(flat, unusable)
    if possible.all():
        return math.inf
    return int(np.flatnonzero(~possible)[0]), "masks every class by -inf", "leave at least one class of each sample"


def _extremes(block: NDArray[Any]) -> tuple[float, float, float, float]:
    """Smallest and largest entry, and smallest and largest sum of a row; not finite if some entry is not."""
    kernels = load(choose_backend(asked_backend()))
    found = kernels.extremes(block if block.ndim == 2 else block[None])
    if np.isnan(found[0]):  # an entry is NaN, or sums of huge numbers are
        found[:2] = block.min(), block.max()
    low, high, least, most = found.tolist()
    return low, high, least, most


def _check_probabilities(block: NDArray[Any], tolerance: float) -> Found:
    """First bad row and what is wrong with it, or how far the furthest row is from summing to 1."""
    low, high, least, most = _extremes(block)
    if block.ndim == 1:
        return 0.0 if low >= 0 and high <= 1 else _first_improper(block, block, tolerance)
    furthest = max(most - 1, 1 - least)
    # What is not finite shows in a sum.
    if low >= 0 and furthest <= tolerance:
        return furthest
    with np.errstate(over="ignore", invalid="ignore"):  # huge numbers sum to an infinity, which is not 1 either
        return _first_improper(block, row_sums(block), tolerance)


_LOGITS = "if these are logits, {declare_logits}"
_PERCENT = "if these are percentages, divide them by 100"


def _first_improper(block: NDArray[Any], sums: NDArray[Any], tolerance: float) -> tuple[int, str, str]:
    """First row that is not a probability or a row of such, what is wrong with it and what to do."""
    flat = block.reshape(block.shape[0], -1)
    if not np.isfinite(flat).all():
        return _first_not_finite(flat, ~np.isfinite(flat))
    if flat.min() < 0:
        row = int(np.flatnonzero(flat.min(axis=1) < 0)[0])
        return row, f"has a negative entry ({flat[row].min():.6g})", _LOGITS
    if block.ndim == 1:
        row = int(np.flatnonzero(block > 1)[0])
        hint = f"{_PERCENT}; {_LOGITS}" if block.max() <= 100 else _LOGITS
        return row, f"is {block[row]:.6g}, not a probability", hint
    row = int(np.flatnonzero(~(np.abs(sums - 1) <= tolerance))[0])
    hint = _PERCENT if abs(sums[row] - 100) <= 100 * tolerance else _LOGITS
    return row, f"sums to {sums[row]:.6g}, not to 1", hint


def _first_not_finite(flat: NDArray[Any], bad: NDArray[np.bool_]) -> tuple[int, str, str]:
    row = int(np.flatnonzero(bad.any(axis=1))[0])
    name = "NaN" if np.isnan(flat[row][bad[row]][0]) else "an infinity (or a number too large for a float)"
    return row, f"holds {name}", "drop or repair such rows first"

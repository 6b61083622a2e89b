"""Check sample weights once, with errors that say what to do."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.dask import is_dask, known_rows, reduce_chunks, unless_error
from mixnmatch._engine.errors import InputError, InputWarning, caller_level
from mixnmatch._engine.scores import from_tensor

# A row cannot be counted more often than this, and all rows together not less than this.
MOST_OFTEN, LEAST_TOTAL = 1e15, 1e-12
# A row that counts less than this, or than this beside the largest, does not count: its square is lost in any sum.
LEAST_WEIGHT = 1e-30
_NO_FREQUENCY = "which cannot be a number of rows; if weights are importances, pass {importance}"


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
        msg = "{sample_weight} must have shape ({n_rows},); its entries have different lengths"
        raise InputError(msg, n_rows=n_rows) from error
    if weight.dtype.kind not in "fiub":
        msg = "{sample_weight} must be numbers, got an array of type {type}"
        raise InputError(msg, type=weight.dtype)
    with np.errstate(over="ignore"):  # long doubles; infinities are found below
        weight = weight.astype(np.float64)
    if weight.shape != (n_rows,):
        msg = "{sample_weight} must have shape ({n_rows},), got {shape}"
        raise InputError(msg, n_rows=n_rows, shape=weight.shape)
    sums = _weigh_all(weight)
    if sums.largest == 0:
        msg = "{sample_weight} is zero for every row"
        raise InputError(msg)
    least = LEAST_WEIGHT * (sums.largest if weights == "importance" else max(sums.largest, 1.0))
    weight = weight * (weight >= least)
    if weights == "importance":
        weight = weight / sums.largest
        sums = _weigh_all(weight)
        return weight * (sums.total / sums.squares)
    if sums.largest > MOST_OFTEN:
        msg = f"{{sample_weight}} in row {{row}} is {{value:.6g}}, {_NO_FREQUENCY}"
        raise InputError(msg, row=sums.row, value=sums.largest)
    if sums.total < LEAST_TOTAL:
        msg = f"{{sample_weight}} sums to {{total:.6g}}, {_NO_FREQUENCY}"
        raise InputError(msg, total=sums.total)
    if sums.total < sums.rows * (1 - 1e-9):
        msg = (
            "{sample_weight} sums to {total:.6g}, less than the {rows} rows it weighs. Weights are "
            "read as frequencies; if they are importances, pass {importance}"
        )
        warnings.warn(InputWarning(msg, total=sums.total, rows=sums.rows), stacklevel=caller_level())
    return weight


@dataclass(frozen=True, eq=False)
class _Weighed:
    """Sum, sum of squares, number of positive weights, largest weight and its row."""

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
    sums: _Weighed = unless_error(found)
    return sums


def _weigh(start: int, chunks: list[NDArray[np.float64]]) -> _Weighed | Exception:
    """Sum the weights of a chunk; return an error for an invalid weight."""
    weight = chunks[0]
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        msg = "{sample_weight} in row {row} is {value}; weights must be finite and not negative"
        return InputError(msg, row=start + row, value=weight[row])
    if not len(weight):
        return _Weighed(0.0, 0.0, 0, 0.0, start)
    row = int(weight.argmax())
    with np.errstate(over="ignore"):  # such weights are refused, or scaled and summed again
        total, squares = float(weight.sum()), float(np.square(weight).sum())
    return _Weighed(total, squares, int(np.count_nonzero(weight)), float(weight[row]), start + row)


def _weigh_both(left: Any, right: Any) -> Any:
    failed = [part for part in (left, right) if isinstance(part, Exception)]
    return failed[0] if failed else left + right

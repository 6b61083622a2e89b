"""Fused kernels compiled from C (folder ``c``): one read of a block for everything that a pass needs.

They have the signatures of the reference in :mod:`._numpy`, whose functions they call for rare cases. A wheel brings
them compiled; an installation from source compiles them where there is a C compiler, and does without them elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import mixnmatch._engine.kernels._compiled as _compiled

if TYPE_CHECKING:
    from mixnmatch._engine.kernels.gaps import Knots
    from mixnmatch._engine.kernels.lookup import Piecewise

Block = NDArray[Any]
Labels = NDArray[np.intp]
Rows = NDArray[np.float64]


def extremes(x: Block) -> Rows:
    """Smallest and largest entry, smallest and largest sum of a row; NaN if sums are undefined."""
    out = np.empty(4)
    _compiled.extremes(x, out)
    return out


def leads(x: Block) -> Rows:
    """Entries less the largest of their row, in float64."""
    out = np.empty(x.shape)
    _compiled.leads_into(x, out)
    return out


def normalise(g: Rows, share: float) -> int:
    """Divide rows by their sum, in place, and make a share of them uniform; rows of zeros stay and are counted."""
    return _compiled.normalise(g, share)


def winners(x: Block) -> NDArray[np.intp]:
    """Column of the largest entry of each row, the first one of equals."""
    out = np.empty(len(x), np.intp)
    _compiled.winners(x, out)
    return out


def keep_winners(given: Block, out: Block) -> None:
    """Where the largest entry of a row of ``out`` is not that of ``given``, raise the winner just above it."""
    if given.dtype == out.dtype and given.flags.c_contiguous:
        _compiled.keep_winners(given, out)
    else:
        from mixnmatch._engine.kernels import _numpy_rows

        _numpy_rows.keep_winners(given, out)


def nll_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Log-probability of the label and its two derivatives' parts: log p_y, x_y - E_p[x], Var_p[x]."""
    out = np.empty((3, len(x)))
    _compiled.nll_rows(x, y, beta, out)
    return out


def brier_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Parts of the squared error and of its derivatives: p_y, dp_y, sum p^2, sum p dp, sum dp^2, Var_p[x]."""
    return _brier_rows(x, y, beta, mixture=False)


def mixture_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Parts of the squared error of w1 softmax(beta x) + w2 softmax(x) + w3 / L."""
    return _brier_rows(x, y, beta, mixture=True)


def _brier_rows(x: Block, y: Labels, beta: float, *, mixture: bool) -> Rows:
    if x.shape[1] == 2:
        from mixnmatch._engine.kernels._numpy_softmax import mixture_rows_of_two

        return mixture_rows_of_two(x, y, beta, mixture=mixture)
    out = np.empty((11 if mixture else 6, len(x)))
    _compiled.brier_rows(x, y, beta, mixture, np.empty(x.shape[1], x.dtype), out)
    return out


def label_rows(x: Block, y: Labels) -> Rows:
    """Log-probability of the label of each row of logits, and the squared error."""
    out = np.empty((2, len(x)))
    _compiled.label_rows_of_logits(x, y, np.empty(x.shape[1]), out)
    return out


def squared_errors(x: Block, y: Labels) -> Rows:
    """Squared error of each row of probabilities."""
    out = np.empty(len(x))
    _compiled.squared_errors(x, y, out)
    return out


def softmax_into(x: Block, beta: float, out: Block) -> None:
    """Write out = softmax(beta x), row by row, with the winners of x."""
    _mixture_into(x, beta, 1.0, 0.0, 0.0, out)


def mixture_into(x: Block, beta: float, weights: Rows, out: Block) -> None:
    """Write out = w1 softmax(beta x) + w2 softmax(x) + w3 / L, row by row, with the winners of x."""
    _mixture_into(x, beta, weights[0], weights[1], weights[2] / x.shape[1], out)


def _mixture_into(x: Block, beta: float, w1: float, w2: float, w3: float, out: Block) -> None:
    target = out if out.dtype == x.dtype else np.empty(x.shape, x.dtype)
    _compiled.mixture_into(x, beta, w1, w2, w3, target)
    if target is not out:
        out[...] = target


def linear_softmax_into(x: Block, weight: Rows, intercept: Rows, out: Block) -> None:
    """Write out = softmax(weight log_softmax(x) + intercept), row by row, for a matrix or a diagonal."""
    if x.shape[1] == 2:
        from mixnmatch._engine.kernels import _numpy_linear

        _numpy_linear.linear_softmax_into(x, weight, intercept, out)
        return
    weight, intercept = weight.astype(x.dtype, copy=False), intercept.astype(x.dtype, copy=False)
    target = out if out.dtype == x.dtype else np.empty_like(x)
    if weight.ndim == 1:
        _compiled.affine_softmax_into(x, weight, intercept, target)
    else:
        _compiled.log_softmax_into(x, target)
        _compiled.affine_softmax_into(target @ weight.T, None, intercept, target)
    if target is not out:
        out[...] = target


def diagonal_softmax(s: Block, slope: Rows, intercept: Rows) -> tuple[Block, Block, Rows]:
    """Softmax over the classes of slope s + intercept, largest arguments, and sums of exponentials below them."""
    p, top, total = np.empty_like(s), np.empty(s.shape[1], s.dtype), np.empty(s.shape[1])
    _compiled.diagonal_softmax_into(
        s, *(each.astype(s.dtype, copy=False) for each in (slope, intercept)), p, top, total
    )
    return p, top, total


def diagonal_product(s: Block, p: Block, slope: Rows, intercept: Rows, weight: Block | None) -> Rows:
    """Curvature of the log loss at p times a direction, in the slopes and in the intercepts."""
    out, mean = np.empty((2, len(s))), np.empty(s.shape[1])
    direction = (np.ascontiguousarray(each, dtype=s.dtype) for each in (slope, intercept))
    _compiled.diagonal_product(s, p, *direction, weight, mean, out)
    return out


def diagonal_sums(s: Block, p: Block, weight: Block | None, *, curved: bool) -> Rows:
    """Sums over samples of p s and p for each class, or of q s^2, q s and q for q = p (1 - p) if ``curved``."""
    out = np.empty((3 if curved else 2, len(s)))
    _compiled.diagonal_sums(s, p, weight, curved, out)
    return out


def vector_sums(
    x: Block, y: Labels, weight: Rows | None, beta: float, slope: Rows, intercept: Rows, *, curved: bool
) -> tuple[Rows, Rows]:
    """Log-probability and s of the labels, and sums over samples for each class; see the NumPy kernel."""
    label, out = np.empty((2, len(x))), np.empty((3 if curved else 2, x.shape[1]))
    parameters = (each.astype(x.dtype) for each in (slope, intercept))
    _compiled.vector_sums(x, y, weight, beta, *parameters, curved, np.empty((8, x.shape[1]), x.dtype), label, out)
    return label, out


def vector_product(
    x: Block, weight: Rows | None, beta: float, slope: Rows, intercept: Rows, in_slope: Rows, in_intercept: Rows
) -> Rows:
    """Curvature of the log loss at some parameters times a direction, in the slopes and in the intercepts."""
    out = np.empty((2, x.shape[1]))
    parameters = (each.astype(x.dtype) for each in (slope, intercept, in_slope, in_intercept))
    _compiled.vector_product(x, weight, beta, *parameters, np.empty((8, x.shape[1]), x.dtype), out)
    return out


def add_deviation(x: Rows, low: float, fine: int, factor: float, values: Rows) -> Rows:
    """The sum of x and of a piecewise-linear function of it; see the NumPy kernel."""
    out = np.empty_like(x)
    _compiled.add_deviation(x, low, fine, factor, values, out)
    return out


def interpolate_into(x: Block, function: Piecewise, out: Rows) -> None:
    """Write out = function(x) for every entry of a contiguous block of probabilities."""
    _compiled.interpolate_into(
        x, *function.lookup(x), function.knots, function.values, function.slopes, function.left, out
    )


def interpolate_columns_into(
    x: Block, knots: Rows, values: Rows, slopes: Rows, left: Rows, offsets: NDArray[np.int64], out: Rows
) -> None:
    """Write out[:, k] = k-th function(x[:, k]): the functions are stored end to end, the k-th from offsets[k] on."""
    _compiled.interpolate_columns_into(np.ascontiguousarray(x), knots, values, slopes, left, offsets, out)


def add_gaps(x: Block, row_weight: Rows | None, knots: Knots, weight: Rows, score_sum: Rows, largest: Rows) -> None:
    """Add all entries of a block to the gaps between sorted knots, the first of which is left of them all."""
    if len(knots.values) == 0 or x.size == 0:
        from mixnmatch._engine.kernels import _numpy_gaps

        _numpy_gaps.add_gaps(x, row_weight, knots, weight, score_sum, largest)
        return
    shift, base, first, last = knots.cells(x.dtype)
    sums, tops = score_sum if len(score_sum) else None, largest if len(largest) else None
    _compiled.add_gaps(x, row_weight, shift, base, first, last, knots.values, weight, sums, tops)


def add_gaps_of_logits(x: Block, y: Labels, row_weight: Rows | None, knots: Knots, weight: Rows) -> NDArray[np.bool_]:
    """Add the weight of all entries of softmax(x) but the labels' to the gaps; return the rows that are left out."""
    logs = knots.logarithms(x.shape[1])
    unsure = np.zeros(len(x), dtype=bool)
    if not len(x):
        return unsure
    first, last = np.append(logs.first, np.int32(0)), np.append(logs.last, np.int32(0))  # a cell for the label
    in_cell = np.zeros(len(first))
    scratch = np.empty((2, x.shape[1] + 1), dtype=np.int32)
    _compiled.add_gaps_of_logits(
        x, y, row_weight, logs.values, logs.low, logs.scale, first, last, logs.doubt, scratch, in_cell, weight, unsure
    )
    empty = (logs.first == logs.last) & (in_cell[:-1] > 0)
    weight += np.bincount(logs.first[empty], in_cell[:-1][empty], len(weight))
    return unsure


def log_odds_parts(x: Block, lowest: float, *, logits: bool) -> tuple[Rows, Rows]:
    """Log p and log(1 - p) of every entry, neither below ``lowest``, of logits or of log-probabilities."""
    if x.shape[1] == 2 and not logits:  # what is not the one is the other
        clipped = np.maximum(x, lowest, dtype=np.float64)
        return clipped, clipped[:, ::-1].copy()
    x = np.ascontiguousarray(x)
    log_p, log_not = np.empty(x.shape), np.empty(x.shape)
    if not len(x):
        return log_p, log_not
    if x.shape[1] == 2:
        _compiled.log_odds_of_two_into(x, lowest, log_p, log_not)
    else:
        _compiled.log_odds_into(x, logits, lowest, np.empty(x.shape[1]), log_p, log_not)
    return log_p, log_not


def log_odds_of_columns(u: Rows, norm: Rows, log_rest: Rows, lowest: float) -> Rows:
    """Log p, in place of u, and log(1 - p) of K x m logarithms, neither below ``lowest``; see the NumPy kernel."""
    log_not = np.empty_like(u)
    _compiled.log_odds_of_columns(u, norm, log_rest, lowest, log_not)
    return log_not


def logistic_sums(
    first: Rows, second: Rows | None, positive: NDArray[np.bool_], weight: Rows, theta: Rows, targets: Rows, loss: str
) -> Rows:
    """Loss, gradient (a, b, c) and curvature (aa, ab, ac, bb, bc, cc) of K logistic fits to K x m entries."""
    second = first if second is None else second  # its slope is 0 then
    out = np.empty((len(first), 10))
    arrays = (np.ascontiguousarray(array) for array in (first, second, positive, weight, theta, targets))
    _compiled.logistic_sums(*arrays, loss == "brier", out)
    return out


def sigmoid_mixture_rows(log_p: Rows, log_not: Rows, p: Rows, y: Labels, theta: Rows, w: Rows, loss: str) -> Rows:
    """Loss of each row under a mixture of normalised sigmoids, and its gradient in all theta (F x 3) and weights.

    Members beyond those of ``theta`` are ``p`` itself and the uniform distribution.
    """
    out = np.empty((1 + theta.size + len(w), len(y)))
    scratch = np.empty((2 * len(theta) + 1, log_p.shape[1]))
    arrays = (np.ascontiguousarray(array) for array in (log_p, log_not, p, y, theta, w))
    _compiled.sigmoid_mixture_rows(*arrays, loss == "brier", scratch, out)
    return out

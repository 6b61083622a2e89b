"""Reference kernels in NumPy: the oracle of the tests, and all that small inputs need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import row_maxima, row_sums, winners
from mixnmatch._engine.kernels.lookup import Knots, Piecewise, positions

Block = NDArray[Any]
Labels = NDArray[np.intp]
Rows = NDArray[np.float64]


# Up to so many classes a block is worked on lying on its side: NumPy reduces long rows fast and short ones slowly.
_SIDEWAYS = 48
# Up to so many rows all columns are searched together, and not one after another.
_FEW = 64
# Steps of functions with up to so many knots are counted and not searched, in so many entries at a time.
_FEW_KNOTS, _STEPS = 24, 1 << 15
# Sums of exponentials below this have lost digits: they are taken relative to the largest.
_UNDERFLOW = 1e-290
# Entries whose temporaries are small: the memory of larger ones would come from the system anew each time.
_CHUNK = 1 << 13
# Up to so many entries, searching among the knots takes less time than making a table of where they are.
_FEW_ENTRIES = 1 << 16


@dataclass(frozen=True)
class _Table:
    """A block less its row maxima, either way up, and what is done along its classes."""

    values: Block
    classes: int  # axis of the classes

    @classmethod
    def of(cls, x: Block, out: Block | None = None) -> _Table:
        """A block made ready, upright ones in ``out`` if that has the precision."""
        if x.shape[1] <= _SIDEWAYS:
            lying = np.array(x.T, order="C")
            lying -= lying.max(axis=0)
            return cls(lying, 0)
        scratch = out if out is not None and out.dtype == x.dtype else None
        return cls(np.subtract(x, row_maxima(x)[:, None], out=scratch), 1)

    def sum(self, values: Block) -> Block:
        return row_sums(values)[:, None] if self.classes else values.sum(axis=0, keepdims=True)

    def max(self, values: Block) -> Block:
        return row_maxima(values)[:, None] if self.classes else values.max(axis=0, keepdims=True)

    def dot(self, a: Block, b: Block) -> Rows:
        return np.asarray(np.einsum("ij,ij->i" if self.classes else "ij,ij->j", a, b), dtype=np.float64)

    def at(self, values: Block, y: Labels) -> Rows:
        rows = np.arange(len(y))
        return (values[rows, y] if self.classes else values[y, rows]).astype(np.float64)

    def spread(self, rows: Rows) -> Block:
        spread = rows[:, None] if self.classes else rows[None, :]
        return spread.astype(self.values.dtype)

    def along(self, numbers: Block) -> Block:
        """One number for each class, to be put beside the values."""
        return numbers if self.classes else numbers[:, None]

    def lying(self, out: Block) -> Block:
        """A block that is written to, the same way up as the values."""
        return out if self.classes else out.T

    def softmax(self, beta: float) -> Block:
        p: Block = np.exp(self.values * self.values.dtype.type(beta))
        p /= self.sum(p)
        return p


def extremes(x: Block) -> Rows:
    """Smallest and largest entry, smallest and largest sum of a row; NaN if sums are undefined."""
    with np.errstate(over="ignore", invalid="ignore"):  # huge numbers sum to an infinity, or to nothing
        sums = row_sums(x)
    return np.array([x.min(), x.max(), sums.min(), sums.max()], dtype=np.float64)


def leads(x: Block) -> Rows:
    """Entries less the largest of their row, in float64."""
    return np.asarray(np.subtract(x, row_maxima(x)[:, None], dtype=np.float64))


def normalise(g: Rows, share: float) -> int:
    """Divide rows by their sum, in place, and make a share of them uniform; rows of zeros stay and are counted."""
    total = row_sums(g)
    empty = total == 0
    g *= ((1 - share) / np.where(empty, 1.0, total))[:, None]
    g += np.where(empty, 0.0, share / g.shape[1])[:, None]
    return int(empty.sum())


def _in_unit_interval(x: Block) -> Block:
    """Rounding can put a probability a hair outside [0, 1], and a zero may carry a sign."""
    x = np.abs(x)
    return np.asarray(np.minimum(x, x.dtype.type(1), out=x))


def keep_winners(given: Block, out: Block) -> None:
    """Where the largest entry of a row of ``out`` is not that of ``given``, raise the winner just above it.

    Mathematically, maps that preserve accuracy keep the order of a row. In floating point a lead of one unit in the
    last place can vanish in a softmax or a sum; then the entry that should win ties with another or falls behind it.
    """
    winner, found = winners(given), winners(out)
    lost = np.flatnonzero(winner != found)
    if lost.size:
        out[lost, winner[lost]] = np.nextafter(out[lost, found[lost]], out.dtype.type(np.inf))


def label_rows(x: Block, y: Labels, *, logits: bool) -> Rows:
    """Probability of the label and its logarithm, squared error, largest probability and its class."""
    winner, rows = winners(x), np.arange(len(x))
    p = x.astype(np.float64)
    if logits:
        p -= p[rows, winner][:, None]
        at_label = p[rows, y]
        np.exp(p, out=p)
        total = p.sum(axis=1)
        p /= total[:, None]
        log_p = at_label - np.log(total)
    else:
        with np.errstate(divide="ignore"):
            log_p = np.log(p[rows, y])
    top, p_y = p[rows, winner], p[rows, y]
    p[rows, y] = 0.0
    rest = p.sum(axis=1) if logits else 1 - p_y
    return np.stack([p_y, log_p, _dots(p, p) + rest * rest, top, winner.astype(np.float64)])


def nll_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Log-probability of the label and its two derivatives' parts: log p_y, x_y - E_p[x], Var_p[x]."""
    if x.shape[1] == 2:
        return _nll_rows_binary(x, y, beta)
    table = _Table.of(x)
    u = table.values
    e = np.exp(u * u.dtype.type(beta))
    total = table.sum(e).ravel().astype(np.float64)
    mean = table.dot(e, u) / total
    e *= u
    second = table.dot(e, u) / total
    u_y = table.at(u, y)
    return np.stack([beta * u_y - np.log(total), u_y - mean, np.maximum(second - mean**2, 0.0)])


def _nll_rows_binary(x: Block, y: Labels, beta: float) -> Rows:
    # With two classes everything is a function of the lead of the other class over the label.
    lead = x[:, 0].astype(np.float64) - x[:, 1]
    np.negative(lead, out=lead, where=y == 0)
    decay = np.exp(-beta * np.abs(lead))
    # p of the other class: 1 / (1 + exp(-beta lead))
    other = np.where(lead > 0, 1.0, decay) / (1.0 + decay)
    log_p = -(np.maximum(beta * lead, 0.0) + np.log1p(decay))
    return np.stack([log_p, -other * lead, decay / np.square(1.0 + decay) * np.square(lead)])


def brier_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Parts of the squared error and of its derivatives: p_y, dp_y, sum p^2, sum p dp, sum dp^2, Var_p[x]."""
    if x.shape[1] == 2:
        return mixture_rows_of_two(x, y, beta, mixture=False)
    table = _Table.of(x)
    return np.stack(_brier_parts(table, table.softmax(beta), y)[0])


def _brier_parts(table: _Table, p: Block, y: Labels) -> tuple[list[Rows], Block, Block]:
    lead = table.values - table.spread(table.dot(p, table.values))
    slope = lead * p
    parts = [table.at(p, y), table.at(slope, y), table.dot(p, p), table.dot(p, slope)]
    return [*parts, table.dot(slope, slope), table.dot(slope, lead)], slope, lead


def mixture_rows(x: Block, y: Labels, beta: float) -> Rows:
    """Parts of the squared error of w1 softmax(beta x) + w2 softmax(x) + w3 / L."""
    if x.shape[1] == 2:
        return mixture_rows_of_two(x, y, beta, mixture=True)
    table = _Table.of(x)
    p, q = table.softmax(beta), table.softmax(1.0)
    parts, slope, lead = _brier_parts(table, p, y)
    crossed = [table.at(q, y), table.dot(q, q), table.dot(p, q), table.dot(q, slope), table.dot(q, slope * lead)]
    return np.stack([*parts, *crossed])


def mixture_rows_of_two(x: Block, y: Labels, beta: float, *, mixture: bool) -> Rows:
    """What :func:`mixture_rows` or :func:`brier_rows` give for two classes: functions of the label's lead."""
    out = np.empty((11 if mixture else 6, len(x)))
    lead = np.subtract(x[:, 0], x[:, 1], dtype=np.float64)
    np.negative(lead, out=lead, where=y == 1)
    p, rest = _sigmoids(beta * lead, out[0])
    np.multiply(p, rest, out=out[5])
    slope = np.multiply(out[5], lead, out=out[1])
    np.multiply(slope, lead, out=out[5])
    difference = p - rest
    _sum_of_squares(p, rest, out[2])
    np.multiply(difference, slope, out=out[3])
    np.multiply(slope, slope, out=out[4])
    out[4] *= 2.0
    if mixture:
        q, other = _sigmoids(lead.copy(), out[6])
        _sum_of_squares(q, other, out[7])
        np.multiply(p, q, out=out[8])
        out[8] += np.multiply(rest, other, out=difference)
        np.subtract(q, other, out=out[9])
        out[9] *= slope
        # q dp (x - E_p x), summed: slope times lead times (q_y p_other + q_other p_y)
        np.multiply(q, rest, out=out[10])
        out[10] += np.multiply(other, p, out=difference)
        out[10] *= slope
        out[10] *= lead
    return out


def _sigmoids(x: Rows, out: Rows) -> tuple[Rows, Rows]:
    """The logistic function of x, into ``out``, and what it leaves to 1, in place of x; both to all digits."""
    positive = x > 0
    np.abs(x, out=x)
    np.exp(np.negative(x, out=x), out=x)
    large = 1.0 / (1.0 + x)
    x *= large
    np.copyto(out, x)
    np.copyto(out, large, where=positive)
    np.copyto(large, x, where=positive)
    return out, large


def _sum_of_squares(a: Rows, b: Rows, out: Rows) -> None:
    np.multiply(a, a, out=out)
    out += b * b


def softmax_into(x: Block, beta: float, out: Block) -> None:
    """Write out = softmax(beta x), row by row."""
    table = _Table.of(x, out)
    u = table.values
    u *= u.dtype.type(beta)
    np.exp(u, out=u)
    np.divide(u, table.sum(u), out=table.lying(out))
    _lift(out)


def mixture_into(x: Block, beta: float, weights: NDArray[np.float64], out: Block) -> None:
    """Write out = w1 softmax(beta x) + w2 softmax(x) + w3 / L, row by row."""
    softmax_into(x, beta, out)
    out *= out.dtype.type(weights[0])
    if weights[1] > 0:
        plain = np.empty_like(out)
        softmax_into(x, 1.0, plain)
        plain *= out.dtype.type(weights[1])
        out += plain
    out += out.dtype.type(weights[2] / x.shape[1])
    _lift(out)


def _lift(out: Block) -> None:
    """Raise what is below the smallest normal number to it, in place; looking first takes a tenth of the time."""
    tiny = np.finfo(out.dtype).tiny
    if out.min(initial=1) < tiny:
        np.maximum(out, tiny, out=out)


def log_odds_parts(x: Block, lowest: float, *, logits: bool) -> tuple[Rows, Rows]:
    """Log p and log(1 - p) of every entry, neither below ``lowest``, of logits or of log-probabilities."""
    log_p = x.astype(np.float64)
    if logits:
        log_p -= row_maxima(log_p)[:, None]
        log_p -= np.log(row_sums(np.exp(log_p)))[:, None]
    if x.shape[1] == 2:
        np.maximum(log_p, lowest, out=log_p)
        return log_p, log_p[:, ::-1].copy()
    p = np.exp(log_p)
    with np.errstate(divide="ignore"):
        log_not = np.log1p(-np.minimum(p, 1.0))
        # Next to 1 the difference 1 - p has no digits left: there it is the sum of the other entries. Not below 1/2,
        # where several entries may be equal and must stay so.
        rows, top = np.arange(len(p)), p.argmax(axis=1)
        large = p[rows, top] > 0.5
        p[rows, top] = 0.0
        rest = row_sums(p)
        log_not[rows[large], top[large]] = np.log(rest[large])
        far = np.flatnonzero(rest < _UNDERFLOW)
        if lowest < np.log(_UNDERFLOW) and far.size:
            others = log_p[far]
            others[np.arange(len(far)), top[far]] = -np.inf
            second = np.maximum(row_maxima(others), -np.finfo(float).max)
            log_not[far, top[far]] = second + np.log(row_sums(np.exp(others - second[:, None])))
    return np.maximum(log_p, lowest, out=log_p), np.maximum(log_not, lowest, out=log_not)


def logistic_sums(
    first: Rows, second: Rows | None, positive: NDArray[np.bool_], weight: Rows, theta: Rows, targets: Rows, loss: str
) -> Rows:
    """Loss, gradient (a, b, c) and curvature (aa, ab, ac, bb, bc, cc) of K logistic fits to K x m entries."""
    a, b, c = theta.T[:, :, None]
    x = a * first
    if second is not None:
        x += b * second
    x += c
    t = np.where(positive, targets[1][:, None], targets[0][:, None])
    e = np.exp(-np.abs(x))
    r = 1.0 / (1.0 + e)
    p = np.where(x >= 0, r, e * r)
    spread = p * (1.0 - p)
    if loss == "brier":
        value, slope, curve = np.square(p - t), 2.0 * (p - t) * spread, 2.0 * spread * spread
    else:
        value, slope, curve = np.maximum(x, 0) - x * t + np.log1p(e), p - t, spread
    slope *= weight
    curve *= weight
    out = np.zeros((len(first), 10))
    value *= weight
    out[:, 0], out[:, 3], out[:, 9] = value.sum(axis=1), slope.sum(axis=1), curve.sum(axis=1)
    scaled = curve * first
    out[:, 1], out[:, 4], out[:, 6] = _dots(slope, first), _dots(scaled, first), scaled.sum(axis=1)
    if second is not None:
        out[:, 2], out[:, 5] = _dots(slope, second), _dots(scaled, second)
        curve *= second
        out[:, 7], out[:, 8] = _dots(curve, second), curve.sum(axis=1)
    return out


def _dots(left: Rows, right: Rows) -> Rows:
    return np.asarray(np.einsum("ij,ij->i", left, right))


def linear_softmax_into(x: Block, weight: NDArray[np.float64], intercept: NDArray[np.float64], out: Block) -> None:
    """Write out = softmax(weight log_softmax(x) + intercept), row by row, for a matrix or a diagonal."""
    weight, intercept = weight.astype(x.dtype, copy=False), intercept.astype(x.dtype, copy=False)
    if x.shape[1] == 2:
        _linear_sigmoid_into(x, np.diag(weight) if weight.ndim == 1 else weight, intercept, out)
        return
    table = _Table.of(x, out)
    u = table.values
    u -= np.log(table.sum(np.exp(u)))
    if weight.ndim == 1:
        u *= table.along(weight)
    else:
        u = u @ weight.T if table.classes else weight @ u
    u += table.along(intercept)
    u -= table.max(u)
    np.exp(u, out=u)
    np.divide(u, table.sum(u), out=table.lying(out))


def _linear_sigmoid_into(x: Block, weight: Block, intercept: Block, out: Block) -> None:
    # With two classes all is a function of the lead of the second, before the map and after it.
    lead = x[:, 1] - x[:, 0]
    rest = np.log(1 + np.exp(-np.abs(lead)))
    first, second = -rest - np.maximum(lead, 0), np.minimum(lead, 0, out=lead) - rest  # log-probabilities
    on_first, on_second = weight[1] - weight[0]
    first *= on_first
    second *= on_second
    first += second
    first += intercept[1] - intercept[0]
    odds = np.exp(-np.abs(first))  # of the less probable class
    less = odds / (1 + odds)
    more = np.subtract(1, less, out=odds)
    second_leads = first > 0
    out[:, 0] = np.where(second_leads, less, more)
    out[:, 1] = np.where(second_leads, more, less)


def diagonal_softmax(s: Block, slope: Rows, intercept: Rows) -> tuple[Block, Block, Rows]:
    """Softmax over the classes of slope s + intercept, largest arguments, and sums of exponentials below them."""
    u = slope.astype(s.dtype, copy=False)[:, None] * s
    u += intercept.astype(s.dtype, copy=False)[:, None]
    top = u.max(axis=0)
    u -= top
    p = np.exp(u, out=u)
    total = p.sum(axis=0)
    p /= total
    return p, top, total.astype(np.float64)


def diagonal_product(s: Block, p: Block, slope: Rows, intercept: Rows, weight: Block | None) -> Rows:
    """Curvature of the log loss at p times a direction, in the slopes and in the intercepts."""
    z = slope.astype(s.dtype, copy=False)[:, None] * s
    z += intercept.astype(s.dtype, copy=False)[:, None]
    z *= p
    z -= p * z.sum(axis=0)
    if weight is not None:
        z *= weight
    return np.stack([np.einsum("ij,ij->i", z, s).astype(np.float64), z.sum(axis=1, dtype=np.float64)])


def diagonal_sums(s: Block, p: Block, weight: Block | None, *, curved: bool) -> Rows:
    """Sums over samples of p s and p for each class, or of q s^2, q s and q for q = p (1 - p) if ``curved``."""
    q = p * (1 - p) if curved else p
    q = q if weight is None else q * weight
    products = q * s
    sums = [products.sum(axis=1, dtype=np.float64), q.sum(axis=1, dtype=np.float64)]
    if curved:
        sums.insert(0, np.einsum("ij,ij->i", products, s).astype(np.float64))
    return np.stack(sums)


def even_cells(x: Rows, low: float, fine: int, factor: float, nodes: int) -> tuple[NDArray[np.intp], Rows]:
    """Cell of every entry between nodes from 0 downwards, and how far down the cell it is.

    There are ``fine`` even steps to ``low``; the steps below are ``factor`` times as wide.
    """
    share = x * (fine / low)
    np.minimum(share, fine + (share - fine) / factor, out=share)
    np.clip(share, 0.0, nodes - 1, out=share)
    cell = np.minimum(share.astype(np.intp), nodes - 2)
    share -= cell
    return cell, share


def add_interpolated(x: Rows, cell: NDArray[np.intp], share: Rows, values: Rows) -> Rows:
    """The sum of x and of the piecewise-linear function with the given values at the nodes."""
    result: Rows = np.diff(values)[cell]
    result *= share
    result += values[cell]
    result += x
    return result


def add_deviation(x: Rows, low: float, fine: int, factor: float, values: Rows) -> Rows:
    """The sum of x and of a piecewise-linear function of it, with values at the nodes of :func:`even_cells`."""
    return add_interpolated(x, *even_cells(x, low, fine, factor, len(values)), values)


def interpolate_into(x: Block, function: Piecewise, out: Block) -> None:
    """Write out = function(x) for every entry of a contiguous block of probabilities."""
    x = _in_unit_interval(x)
    if x.size <= _FEW_ENTRIES and not function.has_lookup(x.dtype):
        np.copyto(out, function(x))
        return
    lookup, flat, target = function.lookup(x.dtype), x.reshape(-1), out.reshape(-1)
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK]
        k = positions(part, function.knots, lookup)
        left = k < 0
        np.maximum(k, 0, out=k)
        result = function.values[k]
        if not function.steps:
            result += function.slopes[k] * (part - function.knots[k])
        result[left] = function.left
        target[start : start + _CHUNK] = result


def interpolate_columns_into(
    x: Block, knots: Rows, values: Rows, slopes: Rows, left: Rows, offsets: NDArray[np.int64], out: Block
) -> None:
    """Write out[:, k] = k-th function(x[:, k]): the functions are stored end to end, the k-th from offsets[k] on."""
    x = _in_unit_interval(x)
    if len(x) <= _FEW:
        last = _last_knots(x, knots, offsets)
        np.copyto(out, values[last] + slopes[last] * (x - knots[last]))
        np.copyto(out, left, where=last < offsets[:-1])
        return
    if np.diff(offsets).max() <= _FEW_KNOTS and not slopes.any():
        _count_steps_into(x, knots, values, left, offsets, out)
        return
    for k, column in enumerate(np.ascontiguousarray(x.T)):
        span = slice(offsets[k], offsets[k + 1])
        out[:, k] = Piecewise(knots[span], values[span], slopes[span], float(left[k]))(column)


def _last_knots(x: Block, knots: Rows, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Last knot of its own column not above each entry, the one before its first where there is none."""
    low, high = (np.tile(ends, (len(x), 1)) for ends in (offsets[:-1] - 1, offsets[1:] - 1))
    for _ in range(int(np.diff(offsets).max()).bit_length()):  # halves all ranges at once
        middle = (low + high + 1) >> 1
        above = knots[middle] <= x
        high = np.where(above, high, np.maximum(middle - 1, low))
        low = np.where(above, middle, low)
    return low


def _count_steps_into(x: Block, knots: Rows, values: Rows, left: Rows, offsets: NDArray[np.int64], out: Block) -> None:
    """The same for step functions with few knots: the knots not above each entry are counted, all columns together."""
    sizes = np.diff(offsets)
    column = np.repeat(np.arange(len(sizes)), sizes)
    rung = np.arange(len(knots)) - offsets[column]
    ladder = np.full((int(sizes.max()), len(sizes)), np.inf)  # the first knots of all columns, the second ones ...
    ladder[rung, column] = knots
    levels = np.full((len(sizes), len(ladder) + 1), np.nan)
    levels[:, 0], levels[column, rung + 1] = left, values
    first, rows = np.arange(len(sizes)) * levels.shape[1], max(1, _STEPS // x.shape[1])
    for start in range(0, len(x), rows):
        part = x[start : start + rows].astype(np.float64)
        count = np.zeros(part.shape, np.int8)
        for knot in ladder:
            count += (part >= knot).view(np.int8)
        out[start : start + rows] = levels.ravel()[count + first]


def add_gaps(x: Block, row_weight: Rows | None, knots: Knots, weight: Rows, score_sum: Rows, largest: Rows) -> None:
    """Add all entries of a block to the gaps between sorted knots, the first of which is left of them all.

    An entry belongs to the gap that follows the last knot not above it. What is added up is its row's weight (1 if
    there are none), and unless these are empty its score times that weight and the largest score.
    """
    if row_weight is None:  # sorting is faster than searching each of them
        ordered = np.sort(x, axis=None)
        edges = np.searchsorted(ordered, knots.values.astype(x.dtype), side="left")
        edges = np.concatenate([[0], edges, [ordered.size]])
        count = np.diff(edges)
        weight += count
        filled = np.flatnonzero(count)
        if len(score_sum):
            score_sum[filled] += np.add.reduceat(ordered, edges[filled], dtype=np.float64)
        if len(largest):
            largest[filled] = np.maximum(largest[filled], ordered[edges[filled + 1] - 1])
        return
    gap = np.searchsorted(knots.values, x.ravel(), side="right")
    spread = np.repeat(row_weight, x.shape[1])
    weight += np.bincount(gap, spread, len(weight))
    if len(score_sum):
        score_sum += np.bincount(gap, spread * x.ravel(), len(weight))
    if len(largest):
        np.maximum.at(largest, gap, x.ravel())


def add_gaps_of_logits(x: Block, y: Labels, row_weight: Rows | None, knots: Knots, weight: Rows) -> NDArray[np.bool_]:
    """Add the weight of all entries of softmax(x) but the labels' to the gaps, as :func:`add_gaps` does.

    Only logarithms are compared. A row with an entry so close to a knot that rounding decides between two gaps is left
    out; which rows these are is returned.
    """
    logs = knots.logarithms(x.shape[1])
    u = x.astype(np.float64)
    u -= row_maxima(u)[:, None]
    u -= np.log(np.exp(u).sum(axis=1, keepdims=True))
    gap = np.searchsorted(logs.values, u, side="right")
    around = np.concatenate([[-np.inf], logs.values, [np.inf]])
    near = (u - around[gap] < logs.doubt) | (around[gap + 1] - u < logs.doubt)
    near |= (u < logs.low) & (logs.values[0] < logs.low)  # such small numbers have fewer digits
    others = np.ones(x.shape, dtype=bool)
    others[np.arange(len(y)), y] = False
    unsure: NDArray[np.bool_] = (near & others).any(axis=1)
    others[unsure] = False
    spread = None if row_weight is None else np.repeat(row_weight, others.sum(axis=1))
    weight += np.bincount(gap[others], spread, len(weight))
    return unsure

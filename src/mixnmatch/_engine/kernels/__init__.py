"""Numerical kernels with two backends of equal signatures: a NumPy reference and fused C.

Both modules offer

``nll_rows(x, y, beta)``
    per row, at the tempered softmax p = softmax(beta x): log p_y, x_y - E_p[x], Var_p[x]
``brier_rows(x, y, beta)``
    per row, with dp = dp/dbeta: p_y, dp_y, sum p^2, sum p dp, sum dp^2, Var_p[x]
``mixture_rows(x, y, beta)``
    the same and, with q = softmax(x): q_y, sum q^2, sum p q, sum q dp, sum q dp (x - E_p[x])
``softmax_into(x, beta, out)`` and ``mixture_into(x, beta, weights, out)``
    apply temperature scaling, and w1 softmax(beta x) + w2 softmax(x) + w3 / L, with the winners of x
``linear_softmax_into(x, weight, intercept, out)``
    apply softmax(weight log_softmax(x) + intercept), for a matrix or a diagonal
``diagonal_softmax(s, slope, intercept)``, ``diagonal_product(...)`` and ``diagonal_sums(...)``
    what fits of a slope and an intercept for each class need of tables classes x rows
``vector_sums(...)`` and ``vector_product(...)``
    the same of rows as they are given, from x alone, for tables of many classes that are too large to keep
``interpolate_into(x, function, out)``
    a piecewise linear function of every entry
``interpolate_columns_into(x, knots, values, slopes, left, offsets, out)``
    a piecewise linear function for each column
``extremes(x)``
    smallest and largest entry, smallest and largest sum of a row
``winners(x)`` and ``keep_winners(given, out)``
    column of the largest entry, and the repair of rounding where it has changed
``label_rows(x, y)``
    at p = softmax(x): log p_y and the squared error
``squared_errors(x, y)``
    the squared error of probabilities
``add_gaps(x, row_weight, knots, weight, score_sum, largest)``
    add the entries to what is known of each gap between sorted knots
``add_gaps_of_logits(x, y, row_weight, knots, weight)``
    the same for the softmax of rows, all but the label's entry, and without the rows where rounding decides
``log_odds_parts(x, lowest, logits=...)``
    log p and log(1 - p) of every entry, of logits or of log-probabilities
``log_odds_of_columns(u, norm, log_rest, lowest)``
    the same of some columns alone, from the normalising constant of each row and log(1 - p) of its largest entry
``logistic_sums(first, second, positive, weight, theta, targets, loss)``
    loss, gradient and curvature of K binary fits p = sigmoid(a first + b second + c), each a row of K x m tables

on a contiguous block ``x`` of float32 or float64 rows. Row results are float64 and depend on the row alone, so that a
sum over rows does not depend on how they were cut into blocks. One kernel is compiled only: ``sigmoid_mixture_rows``
does for logistic families what ``ensemble_statistic`` of ``maps/ensemble.py`` does for any.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from types import ModuleType

NUMPY, COMPILED = "numpy", "compiled"


@cache
def compiled_available() -> bool:
    """Whether the kernels were compiled when the package was built."""
    return find_spec("mixnmatch._engine.kernels._compiled") is not None


def choose_backend(asked: str = "auto") -> str:
    """Return the name of the backend, "numpy" or "compiled", without loading it."""
    if asked == "auto":
        return COMPILED if compiled_available() else NUMPY
    if asked not in (NUMPY, COMPILED):
        msg = f'backend must be "auto", "{NUMPY}" or "{COMPILED}", got {asked!r}'
        raise ValueError(msg)
    if asked == COMPILED and not compiled_available():
        msg = "compiled kernels are not available: there was no C compiler when mixnmatch was installed"
        raise ValueError(msg)
    return asked


@cache
def load(backend: str) -> ModuleType:
    """The kernels of a backend."""
    if backend == COMPILED:
        from mixnmatch._engine.kernels import compiled

        return compiled
    from mixnmatch._engine.kernels import _numpy

    return _numpy

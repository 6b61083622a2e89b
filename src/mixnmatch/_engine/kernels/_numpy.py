"""All NumPy kernels: the reference that compiled ones are tested against, and what runs without a compiler."""

from mixnmatch._engine.along_rows import winners
from mixnmatch._engine.kernels._numpy_gaps import add_gaps, add_gaps_of_logits
from mixnmatch._engine.kernels._numpy_linear import (
    diagonal_product,
    diagonal_softmax,
    diagonal_sums,
    linear_softmax_into,
    vector_product,
    vector_sums,
)
from mixnmatch._engine.kernels._numpy_logistic import log_odds_of_columns, log_odds_parts, logistic_sums
from mixnmatch._engine.kernels._numpy_pieces import add_deviation, interpolate_columns_into, interpolate_into
from mixnmatch._engine.kernels._numpy_rows import (
    extremes,
    keep_winners,
    label_rows,
    leads,
    normalise,
    squared_errors,
)
from mixnmatch._engine.kernels._numpy_softmax import brier_rows, mixture_into, mixture_rows, nll_rows, softmax_into

__all__ = [
    "add_deviation",
    "add_gaps",
    "add_gaps_of_logits",
    "brier_rows",
    "diagonal_product",
    "diagonal_softmax",
    "diagonal_sums",
    "extremes",
    "interpolate_columns_into",
    "interpolate_into",
    "keep_winners",
    "label_rows",
    "leads",
    "linear_softmax_into",
    "log_odds_of_columns",
    "log_odds_parts",
    "logistic_sums",
    "mixture_into",
    "mixture_rows",
    "nll_rows",
    "normalise",
    "softmax_into",
    "squared_errors",
    "vector_product",
    "vector_sums",
    "winners",
]

"""After a fit: do the calibrated probabilities have the class frequencies of the calibration set as their mean?"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from mixnmatch._engine.block import Block
from mixnmatch._engine.errors import caller_level
from mixnmatch._engine.rows import Rows
from mixnmatch.exceptions import CalibrationWarning

# A difference is reported if chance alone makes one in any class with this probability, ...
LEVEL = 0.001
# ... and if it is at least this share of the class frequency.
SHARE = 0.2


def warn_of_one_class(fitted: Any, given: Rows) -> bool:
    """Warn if all samples are of one class, and say whether they are: a map can then only learn to predict it."""
    present = np.flatnonzero(fitted.summary_.class_weights > 0)
    if len(present) > 1:
        return False
    assert given.classes is not None
    name = given.classes[present[0]].item()
    msg = f"all labels are of class {name!r}: nothing can be learned about the other classes"
    warnings.warn(msg, CalibrationWarning, stacklevel=caller_level())
    return True


def warn_of_base_rate(fitted: Any, given: Rows) -> None:
    """Warn if the mean calibrated probability of a class misses its frequency by more than chance."""
    from scipy.special import ndtri

    summary = fitted.summary_
    weight, seen = summary.total_weight, summary.class_weights
    expected = weight * summary.mean_prediction
    # Counts are whole numbers: a difference of one of them is no evidence, and its error is at least one. The variance
    # of a count is at most that of equal probabilities.
    one = 1.0 if given.weight is None else given.total(_weight_squares) / weight
    error = np.sqrt(np.maximum(one * expected * (1 - summary.mean_prediction), one**2))
    gap = np.abs(expected - seen)
    rarer = np.minimum(seen, weight - seen)
    clear = (gap - one + ndtri(LEVEL / 2 / given.n_classes) * error > 0) & (gap >= SHARE * rarer)
    if not clear.any():
        return
    worst = 1 if given.n_classes == 2 else int(np.where(clear, gap / error, 0).argmax())
    assert given.classes is not None
    why = "it keeps the predicted classes" if fitted.accuracy_preserving else "it does not fit these data"
    msg = (
        f"after calibration the mean probability of class {given.classes[worst].item()!r} is "
        f"{_percent(expected[worst] / weight)}, but {_percent(seen[worst] / weight)} of the calibration set are of "
        f"that class: the map cannot follow the class frequencies because {why}. Use one with an intercept "
        "for each class, such as beta, platt or auto"
    )
    warnings.warn(msg, CalibrationWarning, stacklevel=caller_level())


def _weight_squares(block: Block) -> float:
    return float(len(block.y) if block.weight is None else block.weight @ block.weight)


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"

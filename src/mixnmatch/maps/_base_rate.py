"""After a fit: does the calibration set show that something is wrong with the scores, the labels or the map?"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.errors import caller_level
from mixnmatch._engine.rows import Rows
from mixnmatch.exceptions import CalibrationWarning
from mixnmatch.maps.summary import CalibrationSummary

# A difference is reported if chance alone makes one in any class with this probability, ...
LEVEL = 0.001
# ... and if it is at least this share of the class frequency.
SHARE = 0.2
# Scores of two classes are compared on about so many rows, and are reversed if the area under the ROC curve is below a
# half by so many standard errors.
ROWS_TO_RANK, REVERSED = 20_000, 4.0
# With more classes, at most about so many rows and entries are looked at.
ROWS_TO_COMPARE, ENTRIES_TO_COMPARE = 2_000, 20_000


def warn_of_one_class(summary: CalibrationSummary, given: Rows) -> bool:
    """Warn if all samples are of one class, and say whether they are: a map can then only learn to predict it."""
    present = np.flatnonzero(summary.class_weights > 0)
    if len(present) > 1:
        return False
    assert given.classes is not None
    name = given.classes[present[0]].item()
    msg = f"all labels are of class {name!r}: nothing can be learned about the other classes"
    warnings.warn(msg, CalibrationWarning, stacklevel=caller_level())
    return True


def warn_of_reversed_scores(given: Rows) -> None:
    """Warn once if columns of scores that a user gave are swapped; not of parts of them or calibrated ones."""
    text = reversed_scores(given) if given.first_look() else ""
    if text:
        warnings.warn(text, CalibrationWarning, stacklevel=caller_level())


def reversed_scores(given: Rows) -> str:
    """What is wrong if samples of a class have lower scores of it than others, probably those of another class.

    Empty if that may be chance. With two classes it is about the positive one.
    """
    if given.n_classes != 2:
        return _swapped_columns(given)
    some = given.sampled(ROWS_TO_RANK).in_memory()
    scores, positive = (np.concatenate(parts) for parts in zip(*some.map_blocks(_ranked_by), strict=True))
    others, own = np.sort(scores[~positive]), scores[positive]
    if not (len(others) and len(own)):
        return ""
    below = (np.searchsorted(others, own, side) for side in ("left", "right"))
    area = float(np.mean(sum(below))) / (2 * len(others))
    error = np.sqrt((len(scores) + 1) / (12 * len(own) * len(others)))  # if scores say nothing about the labels
    if area >= 0.5 - REVERSED * error:
        return ""
    assert given.classes is not None
    other, name = given.classes.tolist()
    return (
        f"scores of class {name!r} are lower for samples of that class than for others (area under the ROC curve "
        f"{area:.2f}): they are probably those of class {other!r}; check the order of the columns"
    )


def _swapped_columns(given: Rows) -> str:
    """As for two classes, but by mean probabilities, which take less time than ranks."""
    some = given.sampled(min(ROWS_TO_COMPARE, ENTRIES_TO_COMPARE // given.n_classes + 1)).in_memory()
    p, y = (np.concatenate(parts) for parts in zip(*some.map_blocks(_labelled), strict=True))
    n, own = np.bincount(y, minlength=given.n_classes), np.bincount(y, p[np.arange(len(y)), y], given.n_classes)
    rest = len(y) - n
    if not rest.all():
        return ""
    variance = p.var(axis=0, dtype=np.float64)  # with which errors are those of scores that say nothing
    with np.errstate(divide="ignore", invalid="ignore"):  # classes without samples
        means, others = own / n, (p.sum(axis=0) - own) / rest
        gaps = np.nan_to_num(others - means)
        behind = np.nan_to_num(gaps / np.sqrt(variance * (1 / n + 1 / rest)))
        of_all = (n @ gaps) / np.sqrt(n @ variance)  # all columns may be in another order, each with few samples
        worst = int(behind.argmax())
        like = int(np.nan_to_num(np.bincount(y, p[:, worst], given.n_classes) / n).argmax())
    if not max(behind[worst], of_all) > REVERSED:
        return ""
    assert given.classes is not None
    name, other = (given.classes[k].item() for k in (worst, like))
    return (
        f"scores of class {name!r} are lower for samples of that class than for others (mean probability "
        f"{means[worst]:.2g} against {others[worst]:.2g}): they are probably those of class {other!r}; check the order "
        "of the columns"
    )


def _labelled(block: Block) -> tuple[NDArray[Any], NDArray[Any]]:
    return block.probabilities(), block.y


def _ranked_by(block: Block) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """What samples are ranked by, and whether they are of the positive class."""
    scores = block.values[:, 1] - block.values[:, 0] if block.form == "logits" else block.values[:, 1]
    return scores, block.y == 1


def warn_of_base_rate(summary: CalibrationSummary, given: Rows, *, preserving: bool) -> None:
    """Warn if the mean calibrated probability of a class misses its frequency by more than chance.

    ``preserving`` says that the map keeps the predicted classes.
    """
    from statistics import NormalDist  # SciPy would take longer to load than most maps to fit

    weight, seen = summary.total_weight, summary.class_weights
    expected = weight * summary.mean_prediction
    # Counts are whole numbers: a difference of one of them is no evidence, and its error is at least one. The variance
    # of a count is at most that of equal probabilities.
    one = 1.0 if given.weight is None else given.total(_weight_squares) / weight
    error = np.sqrt(np.maximum(one * expected * (1 - summary.mean_prediction), one**2))
    gap = np.abs(expected - seen)
    rarer = np.minimum(seen, weight - seen)
    quantile = NormalDist().inv_cdf(LEVEL / 2 / given.n_classes)
    clear = (gap - one + quantile * error > 0) & (gap >= SHARE * rarer)
    if not clear.any():
        return
    worst = 1 if given.n_classes == 2 else int(np.where(clear, gap / error, 0).argmax())
    assert given.classes is not None
    why = "it keeps the predicted classes" if preserving else "it does not fit these data"
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

"""Methods by name: which ones are compared unless others are asked for, and which of two is the simpler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.rows import Rows
from mixnmatch._engine.text import significant
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.external import calibration_map
from mixnmatch.maps.registry import calibrator, methods

Methods = Sequence[Any] | Mapping[str, Any]

# The candidates that compare, recommend, report and demo share, so that they come to the same verdict.
MANY_CLASSES = ("identity", "ts", "ets", "irm", "irm-ets", "irova-ts", "svs", "sms", "auto")
TWO_CLASSES = ("identity", "ts", "platt", "ets", "beta-shrunk", "beta", "isotonic", "auto")
# Maps with a matrix are left out above so many classes, and `auto`, which takes long with more than two classes, on
# tables of more entries.
MATRIX_TO = 200
AUTO_TO = 400_000

# From simple to flexible: parameters shared by all classes, a function shared by all classes, parameters of each class,
# a function of each class, a matrix of parameters, a stack of maps. Within a group by the number of parameters.
SIMPLICITY = (
    "identity", "uniform", "ts", "ets", "ensemble-platt", "ensemble-beta",
    "irm", "irm-normalised", "iop", "iop-context", "irm-ts", "irm-ets", "gpc",
    "platt-shrunk", "platt", "bcts", "svs", "vector", "beta-shrunk", "beta", "quadratic",
    "isotonic", "irova", "histogram", "bbq", "venn-abers", "spline", "kernel", "irova-ts", "irova-ets",
    "keep-sms", "keep-context-sms", "sms", "dirichlet", "matrix",
    "auto", "bcts-auto",
)  # fmt: skip
# With two classes, Platt scaling has two parameters in all, and beta scaling three.
SIMPLE_FOR_TWO = ("identity", "uniform", "ts", "platt-shrunk", "platt", "ets", "beta-shrunk", "beta", "quadratic")

# With few samples, the map that does harm least often; with two classes it has an intercept.
SAFEST, SAFEST_FOR_TWO = "ts", "auto"
# With fewer samples, or fewer outside the most frequent class, methods cannot be ranked.
LEAST_SAMPLES = 64
LEAST_OTHERS = 10


def too_few(class_weights: NDArray[np.float64]) -> str:
    """Why samples with these numbers for each class are too few to rank methods; empty if they are enough.

    Examples
    --------
    >>> too_few(np.array([20.0, 20.0]))
    'there are only 40 samples (at least 64 are needed)'
    >>> too_few(np.array([995.0, 5.0]))
    'only 5 of 1000 samples are not of the most frequent class (at least 10 are needed)'
    """
    total = float(class_weights.sum())
    others = total - float(class_weights.max())
    if total < LEAST_SAMPLES:
        return f"there are only {significant(total, 6)} samples (at least {LEAST_SAMPLES} are needed)"
    if others < LEAST_OTHERS:
        return (
            f"only {significant(others, 6)} of {significant(total, 6)} samples are not of the most frequent class "
            f"(at least {LEAST_OTHERS} are needed)"
        )
    return ""


def check_labels(source: Rows, what: str = "labels") -> None:
    """Refuse samples that are all of one class: nothing can be learned from them, nor judged on them."""
    counts = source.class_weights()
    if np.count_nonzero(counts) < 2:
        column = int(counts.argmax())
        name = column if source.classes is None else source.classes[column]
        msg = (
            f"{what}: all samples are of class {str(name)!r}; methods can only be fitted and judged on samples of at "
            "least two classes"
        )
        raise ValueError(msg)


def simplicity(names: Sequence[str], n_classes: int) -> list[str]:
    """The names from the simplest to the most flexible; maps without a short name come before a stack, as given.

    Examples
    --------
    >>> simplicity(["auto", "beta", "ets", "platt"], 2)
    ['platt', 'ets', 'beta', 'auto']
    >>> simplicity(["auto", "beta", "ets", "platt"], 10)
    ['ets', 'platt', 'beta', 'auto']
    """
    order = (*SIMPLE_FOR_TWO, *SIMPLICITY) if n_classes == 2 else SIMPLICITY
    other = order.index("auto") - 0.5
    return sorted(names, key=lambda name: order.index(name) if name in order else other)


def default_methods(source: Rows) -> tuple[list[str], list[str]]:
    """Short names that are compared unless others are asked for, and the remaining ones."""
    two = source.n_classes == 2
    names: tuple[str, ...] = TWO_CLASSES if two else MANY_CLASSES
    if too_few(source.class_weights()):  # no ranking is possible
        names = ("identity", SAFEST_FOR_TWO if two else SAFEST)
    left_out = ["sms"] if source.n_classes > MATRIX_TO else []
    if source.n_entries > AUTO_TO and not two:
        left_out.append("auto")
    compared = [name for name in names if name not in left_out]
    others = [name for name, method in methods().items() if method.same_as is None and name != "uniform"]
    return compared, [name for name in others if name not in compared]


def build_methods(asked: Methods | None, source: Rows) -> dict[str, CalibrationMap]:
    """Unfitted maps by name, the identity among them."""
    classes, logits = source.classes, source.scores.logits
    if asked is None:
        asked = default_methods(source)[0]
    elif isinstance(asked, str):
        asked = [*default_methods(source)[0], *default_methods(source)[1]] if asked == "all" else [asked]
    named = asked.items() if isinstance(asked, Mapping) else [(None, method) for method in asked]
    maps: dict[str, CalibrationMap] = {}
    for given, method in named:
        if isinstance(method, str):
            maps[given or method] = calibrator(method, logits=logits, classes=classes)
        else:
            map_ = calibration_map(method).for_input(logits=logits, classes=classes)
            maps[given or " ".join(repr(method).split())] = map_
    if "identity" not in maps:
        maps["identity"] = calibrator("identity", logits=logits, classes=classes)
    return maps

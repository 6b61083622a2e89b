"""Prior shift: probabilities for data in which the classes have other frequencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import log_softmax
from mixnmatch._engine.block import Block
from mixnmatch._engine.frames import is_series
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.suggestions import closest
from mixnmatch.maps.base import CalibrationMap

Array = NDArray[np.float64]
# Class names that an error message lists at most.
LISTED = 20


class PriorShift(CalibrationMap):
    r"""Multiply the probability of each class by a ratio, and normalise.

    It corrects calibrated probabilities for a change of the class frequencies (label shift): the ratio of a class is
    its frequency in the new data divided by that in the calibration set. Usually :meth:`CalibrationMap.adapt` makes it.

    Parameters
    ----------
    ratios : array of length L, dict from class to ratio, or pandas Series, optional
        Positive numbers; only their proportions matter. The index of a Series names the classes. A class that a dict
        or a Series leaves out has the ratio 1. If not given, all ratios are 1.
    logits : bool
        Whether scores are logits.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.

    Attributes
    ----------
    log_ratios_ : ndarray of shape (L,)
        Logarithms of the ratios.

    Notes
    -----
    For ratios r,

    .. math:: T(z)_k = \frac{r_k z_k}{\sum_j r_j z_j} .

    It is computed in logarithms, so saturated scores and extreme ratios stay precise. A probability of zero
    stays zero. Where the features of each class are distributed as before, and z is calibrated, T(z) is calibrated for
    the new frequencies (Saerens et al. 2002). Nothing is learned from the scores and labels that it is fitted on.

    References
    ----------
    Saerens, Latinne, Decaestecker (2002). Adjusting the outputs of a classifier to new a priori probabilities: a simple
    procedure. Neural Computation.

    Examples
    --------
    >>> shift = PriorShift([1.0, 9.0]).fit([[0.5, 0.5]], [0])
    >>> shift.predict_proba([[0.9, 0.1], [1.0, 0.0]])
    array([[0.5, 0.5],
           [1. , 0. ]])
    """

    _fitted_by_blas = False

    injective = True

    _follows_base_rate = False
    _fitted: ClassVar[tuple[str, ...]] = ("log_ratios_",)

    log_ratios_: Array

    def __init__(self, ratios: Any = None, *, logits: bool = False, classes: Any = None, weights: str = "frequency"):
        self.ratios = ratios
        super().__init__(logits=logits, classes=classes, weights=weights)

    @classmethod
    def after(cls, before: CalibrationMap, ratios: Array) -> Self:
        """A fitted shift of the classes of a fitted map, to be applied after it."""
        shift = cls(np.asarray(ratios, dtype=np.float64).tolist())
        logs = np.log(_positive(shift.ratios, before.classes_))
        return shift._with_fitted({"log_ratios_": logs, **before._calibration_set()})

    def _fit(self, source: Rows) -> dict[str, Any]:
        classes = np.arange(source.n_classes) if source.classes is None else source.classes
        return {"log_ratios_": np.log(_positive(self.ratios, classes))}

    def _check_fitted(self) -> None:
        if self.log_ratios_.shape != (self.n_classes_,):
            msg = f"log_ratios_ has shape {self.log_ratios_.shape} for {self.n_classes_} classes"
            raise ValueError(msg)

    def _log_proba(self, block: Block) -> Array:
        return np.asarray(log_softmax(block.log_probabilities() + self.log_ratios_))


def _positive(ratios: Any, classes: NDArray[Any]) -> Array:
    ratio_of_class = np.ones(len(classes)) if ratios is None else by_class(ratios, classes, "ratios", missing=1.0)
    if not (ratio_of_class > 0).all():
        k = int(np.flatnonzero(~(ratio_of_class > 0))[0])
        msg = f"ratios: that of class {classes.tolist()[k]!r} is {ratio_of_class[k]:g}; ratios must be positive"
        raise ValueError(msg)
    return ratio_of_class


def by_class(values: Any, classes: NDArray[Any], name: str, *, missing: float) -> Array:
    """Numbers by class, given by name or in the order of the classes; ``missing`` stands where a name has none.

    Names are the keys of a dict, or the index of a pandas Series.
    """
    names = classes.tolist()
    if is_series(values) and hasattr(values, "index"):
        if not values.index.is_unique:
            msg = f"{name}: the index names a class twice, {values.index.tolist()!r:.80}"
            raise ValueError(msg)
        values = values.to_dict()
    if isinstance(values, Mapping):
        unknown = [key for key in values if key not in names]
        if unknown:
            spelled = {str(one): one for one in names}
            meant = closest(unknown[0], spelled)
            hint = "" if meant is None else f". Did you mean {spelled[meant]!r}?"
            msg = f"{name}: there is no class {unknown[0]!r}; the classes are {_listed(names)}{hint}"
            raise ValueError(msg)
        values = [values.get(key, missing) for key in names]
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        msg = f"{name} must be numbers, one for each class {_listed(names)}"
        raise ValueError(msg) from None
    if numbers.shape != (len(names),):
        msg = f"{name} must have one number for each of the {len(names)} classes {_listed(names)}, got {values!r:.80}"
        raise ValueError(msg)
    given = numbers[~np.isnan(numbers)] if np.isnan(missing) else numbers
    if not np.isfinite(given).all():
        msg = f"{name} must be finite numbers, got {values!r:.80}"
        raise ValueError(msg)
    return numbers


def _listed(names: list[Any]) -> str:
    shown = ", ".join(repr(name) for name in names[:LISTED])
    return shown if len(names) <= LISTED else f"{shown}, ... ({len(names)} in all)"

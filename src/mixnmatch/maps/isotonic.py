"""Isotonic regression of 0/1 labels: exact, from the positives and what lies between them."""

from __future__ import annotations

from typing import Any

from mixnmatch._engine.kernels.lookup import Piecewise
from mixnmatch.maps.columns import Columns
from mixnmatch.maps.piecewise import PiecewiseMap

SHAPES = ("step", "linear", "centred")


class Isotonic(PiecewiseMap):
    r"""Isotonic regression (Zadrozny and Elkan 2002) of one binary problem.

    The non-decreasing function g with the least squared error :math:`\sum_j (g(a_j) - b_j)^2` to the labels b, as in
    :func:`scipy.optimize.isotonic_regression`.

    Parameters
    ----------
    shape : {"step", "linear", "centred"}
        What g is between the scores of the calibration set: piecewise constant as in the paper; interpolated between
        the ends of constant pieces as in scikit-learn; or interpolated between the weighted centres of constant
        pieces (centred isotonic regression).
    strict : bool
        Add :math:`\epsilon a` to g (the paper's third step), so that it increases strictly.
    smoothing : float
        With smoothing c, probabilities are mixed with 1/2 with weight c / (n + 1), which keeps the log loss finite; 0:
        the paper's map, zeros included.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Notes
    -----
    A block of the solution can only start at a positive. So the sorted positives and, for each gap between two of
    them, the weight of the negatives in it (for the other two shapes also their largest score and the sum of their
    scores) determine g, and the pool-adjacent-violators algorithm runs on at most as many groups as there are
    positives. Negatives tied with a positive count with it. For n samples and L classes that takes memory for n
    numbers instead of n L pairs.

    Probabilities that are given as such are distinguished to the last bit. Those that are computed, from logits,
    by a previous map or by renormalising, count as ties if they differ by less than about 2e-11 of their size: rounding
    differs between runtimes. A step is then that much below the score that makes it.

    Logits of two classes are not turned into probabilities, which all round to 1 above log-odds of about 37. There g
    is a function of the log-odds x, stored as one of :math:`s = \frac{1}{2\sqrt{1 - x}}` for x < 0 and 1 - s(-x)
    otherwise. Steps are the same as those of probabilities; the other two shapes are linear in s between scores of the
    calibration set. With more classes, after another map and where classes are pooled, g is a function of the
    probability.

    References
    ----------
    Zadrozny, Elkan (2002). Transforming classifier scores into accurate multiclass probability estimates. KDD.
    Oron, Flournoy (2017). Centered isotonic regression. Statistics in Biopharmaceutical Research.

    Examples
    --------
    >>> map = Isotonic(smoothing=0).fit([0.1, 0.3, 0.4, 0.8], [0, 1, 0, 1])
    >>> map.predict_proba([0.2, 0.35, 0.9])
    array([[1. , 0. ],
           [0.5, 0.5],
           [0. , 1. ]])
    """

    def __init__(
        self,
        *,
        shape: str = "step",
        strict: bool = False,
        smoothing: float = 1.0,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.shape = shape
        self.strict = strict
        self.smoothing = smoothing
        super().__init__(logits=logits, classes=classes, weights=weights)

    @property
    def strictly_increasing(self) -> bool:  # type: ignore[override]
        """Whether g increases strictly."""
        return bool(self.strict)

    @property
    def injective(self) -> bool:  # type: ignore[override]
        """Whether different scores stay different."""
        return bool(self.strict)

    def _check_params(self) -> None:
        super()._check_params()
        if self.shape not in SHAPES:
            msg = f"shape must be one of {SHAPES}, got {self.shape!r}"
            raise ValueError(msg)

    def _functions(self, columns: Columns) -> list[Piecewise]:
        from mixnmatch.maps._isotonic_fit import fit_functions

        return fit_functions(columns, self.shape, strict=self.strict)

"""The result of an estimate: a float with its estimator, confidence interval and advised number of samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from mixnmatch._engine.text import estimate_text, significant
from mixnmatch.evaluation._binning import Floats

# Tests by resampling cannot show a smaller p-value than this; smaller ones are printed as this bound.
P_VALUE_FLOOR = 0.002
# The smallest error that numbers of samples are advised for.
SMALLEST_ADVISED = 0.01


def p_text(p_value: float) -> str:
    """A p-value as it is printed everywhere, such as "p = 0.31" or, at most, "p <= 0.002"."""
    return f"p = {p_value:.3g}" if p_value > P_VALUE_FLOOR * (1 + 1e-9) else f"p <= {P_VALUE_FLOOR:g}"


class CalibrationError(float):
    """A calibration error: a float with an interval, a p-value and more as attributes.

    Attributes
    ----------
    estimator, notion : str
        Names of the estimator and of the notion of calibration.
    norm : int or str
        1, 2 or "max".
    root : bool
        Whether the d-th root was taken; otherwise the value is the d-th power, as in the paper.
    n : float
        Number of samples (the sum of the weights).
    effective_n : float
        Effective number of samples, which interval, test and advice count: Kish's with weights, divided by the design
        effect with clusters.
    interval : tuple of float, or None
        Lower and upper end of a confidence interval, if asked for.
    confidence : float
        Confidence of the interval.
    p_value : float or None
        p-value of "it is calibrated", if the interval was asked for.
    per_class : array or None
        Errors of the single classes, for the class-wise notion.
    advised_n : int
        Samples for which an error of this size (or of 0.01, if smaller) would be estimated to within ±50%.
    """

    estimator: str
    notion: str
    norm: int | str
    root: bool
    n: float
    effective_n: float
    interval: tuple[float, float] | None
    confidence: float
    p_value: float | None
    per_class: Floats | None
    advised_n: int

    def __new__(
        cls,
        value: float,
        *,
        estimator: str,
        notion: str,
        norm: int | str,
        n: float,
        effective_n: float | None = None,
        root: bool = False,
        interval: tuple[float, float] | None = None,
        confidence: float = 0.95,
        p_value: float | None = None,
        per_class: Floats | None = None,
        advised_n: int = 0,
    ) -> CalibrationError:
        """Make a result."""
        self = super().__new__(cls, value)
        self.__dict__.update(
            estimator=estimator, notion=notion, norm=norm, root=root, n=n,
            effective_n=n if effective_n is None else effective_n, interval=interval, confidence=confidence,
            p_value=p_value, per_class=per_class, advised_n=advised_n,
        )  # fmt: skip
        return self

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"a calibration error is immutable: cannot set {name!r}"
        raise AttributeError(msg)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (float(self), dict(self.__dict__))

    @property
    def enough(self) -> bool:
        """Whether there are as many samples as advised."""
        return self.effective_n >= self.advised_n

    @property
    def advice(self) -> str:
        """One sentence on whether there are enough samples."""
        n, size = f"{self.effective_n:.0f}", "an error of this size"
        if self._size < SMALLEST_ADVISED:
            size = f"an error of {SMALLEST_ADVISED:g}, which is larger than this one,"
        if self.enough:
            return f"n = {n} samples are enough to estimate {size} to within ±50%."
        return f"n = {n} samples are few: about {self.advised_n} would be needed to estimate {size} to within ±50%."

    @property
    def _size(self) -> float:
        """The d-th root of the error."""
        rooted = self.root or not isinstance(self.norm, int)
        return float(self) if rooted else max(float(self), 0.0) ** (1 / int(self.norm))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        return {
            "value": float(self),
            **{key: getattr(self, key) for key in ("estimator", "notion", "norm", "root", "n", "effective_n")},
            "confidence": self.confidence,
            "p_value": self.p_value,
            "interval": None if self.interval is None else list(self.interval),
            "per_class": None if self.per_class is None else np.asarray(self.per_class).tolist(),
            "advised_n": self.advised_n,
            "advice": self.advice,
        }

    def __str__(self) -> str:
        """The value, with its interval and test where there are any."""
        test = () if self.p_value is None else (p_text(self.p_value),)
        return estimate_text(self, self.interval, self.confidence, *test)

    def __format__(self, spec: str) -> str:
        """Format as the float it is; without a format as :meth:`__str__`."""
        return format(float(self), spec) if spec else str(self)

    def __repr__(self) -> str:
        """The value and what it is."""
        return (
            f"CalibrationError({self}, n = {significant(self.n, 6)}, {self.notion}, {self.estimator}, norm {self.norm})"
        )


def _rebuild(value: float, details: dict[str, Any]) -> CalibrationError:
    return CalibrationError(value, **details)

"""Pooled and one-vs-all: two ways to turn a binary map into a map of many classes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import two_columns
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch.maps.base import SMALL_SUMMARY, BinaryMap, CalibrationMap
from mixnmatch.maps.columns import Columns
from mixnmatch.maps.external import binary_map
from mixnmatch.maps.parameters import clone
from mixnmatch.maps.smoothing import check_smoothing, mix_with_uniform


class _Shared(CalibrationMap):
    """What pooled and one-vs-all have in common: a binary map inside, normalised rows, smoothing."""

    @property
    def _fitted_by_blas(self) -> bool:  # type: ignore[override]
        return bool(getattr(self.map, "_fitted_by_blas", True))

    _fitted: ClassVar[tuple[str, ...]] = ("map_", "mixing_")
    _summary_bytes = SMALL_SUMMARY

    map_: BinaryMap
    mixing_: float

    def __init__(
        self,
        map: Any,  # noqa: A002
        *,
        smoothing: float = 1.0,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.map = map
        self.smoothing = smoothing
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _check_params(self) -> None:
        check_smoothing(self.smoothing)
        for name, default in (("logits", False), ("weights", "frequency")):
            inside = getattr(getattr(self, "map", None), name, default)
            if inside not in (default, getattr(self, name)):
                msg = f"{name}={inside!r} of the map inside has no effect: give it to {type(self).__name__}"
                raise ValueError(msg)

    def _check_fitted(self) -> None:
        if not isinstance(self.map_, BinaryMap) or not 0 <= self.mixing_ <= 1:
            msg = "a combination without a binary map, or with an impossible share of smoothing"
            raise ValueError(msg)
        needed = self.n_classes_ if self._scheme(self.n_classes_) == "each" else 1
        problems = getattr(self.map_, "_n_problems", needed)
        if problems != needed:
            msg = f"a combination of {needed} problems with a map of {problems}"
            raise ValueError(msg)

    def _scheme(self, n_classes: int) -> str:
        raise NotImplementedError(type(self).__name__)

    def _fit(self, source: Rows) -> dict[str, Any]:
        inner = binary_map(clone(self.map))
        inner._check_params()
        learned = inner._fit_columns(Columns(source, self._scheme(source.n_classes)))
        return {
            "map_": inner._as_part(learned, source),
            "mixing_": min(1.0, self.smoothing / (source.total_weight() + 1)),
        }

    def _proba(self, block: Block) -> NDArray[Any]:
        scheme = self._scheme(block.values.shape[1])
        g = self.map_._transform_columns(block, scheme)
        if scheme == "positive":
            return mix_with_uniform(two_columns(g[:, 0]), self.mixing_)
        g = g.reshape(block.values.shape)
        if block.kernels.normalise(g, self.mixing_):  # nothing is known of rows of zeros: they stay as they came
            empty = ~g.any(axis=1)
            g[empty] = mix_with_uniform(block.probabilities()[empty].astype(np.float64), self.mixing_)
        return g


class Pooled(_Shared):
    r"""The paper's data ensemble: one binary map g learned on all n L entries, applied to every entry, normalised.

    .. math:: T(z) = (g(z_1), \ldots, g(z_L)) / \sum_l g(z_l)

    With a strictly increasing g this is the paper's accuracy-preserving form (Def. 3.1);
    ``Pooled(Isotonic(strict=True))`` is multi-class isotonic regression, IRM.

    Parameters
    ----------
    map : BinaryMap, or any object with fit and predict_proba
        The binary map to learn.
    smoothing : float
        With smoothing c, probabilities are mixed with the uniform distribution with weight c / (n + 1), so no
        probability is below c / ((n + 1) L) and the log loss is finite. 0: the paper's map, zeros included.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Examples
    --------
    >>> from mixnmatch import Isotonic
    >>> irm = Pooled(Isotonic(strict=True))
    >>> irm.accuracy_preserving
    True
    """

    def _scheme(self, n_classes: int) -> str:
        return "pooled"

    @property
    def accuracy_preserving(self) -> bool:  # type: ignore[override]
        """Whether the order of the classes of a sample is kept: if the shared function increases strictly."""
        return bool(getattr(self.map, "strictly_increasing", False))

    @property
    def injective(self) -> bool:  # type: ignore[override]
        """Whether different scores stay different: if the shared function increases strictly."""
        return bool(getattr(self.map, "strictly_increasing", False))


class OneVsAll(_Shared):
    """One binary map for each class against the rest; the probabilities of a sample are then normalised.

    ``OneVsAll(Isotonic())`` is IROvA. With two classes there is one problem: the second class, and its complement.

    Parameters
    ----------
    map : BinaryMap, or any object with fit and predict_proba
        The binary map to learn.
    smoothing : float
        As for :class:`Pooled`.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Examples
    --------
    >>> from mixnmatch import Isotonic
    >>> OneVsAll(Isotonic())
    OneVsAll(map=Isotonic())
    """

    _least_rows = 1 << 10  # a column of a block should be long enough to pay for a call

    def _scheme(self, n_classes: int) -> str:
        return "positive" if n_classes == 2 else "each"

    @property
    def injective(self) -> bool:  # type: ignore[override]
        """Whether different scores stay different: fitted with two classes, if the function increases strictly."""
        if getattr(self, "n_classes_", None) != 2:
            return False
        return self.mixing_ < 1 and bool(getattr(self.map_, "strictly_increasing", False))

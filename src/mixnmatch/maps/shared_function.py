"""The paper's Def. 3.1 for a function that the user brings: the same strictly increasing g for every entry."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch.maps.base import CalibrationMap


class SharedFunction(CalibrationMap):
    r"""Accuracy-preserving map of Def. 3.1: :math:`T(z) = (g(z_1), \ldots, g(z_L)) / \sum_l g(z_l)`.

    Parameters
    ----------
    g : callable
        A strictly increasing function from [0, 1] to the non-negative numbers, that takes and returns arrays. Nothing
        is learned; ``fit`` checks on a grid that g is finite, not negative and strictly increasing.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Examples
    --------
    >>> square = SharedFunction(np.square).fit([[0.75, 0.25], [0.5, 0.5]], [0, 1])
    >>> square.predict_proba([[0.75, 0.25]])
    array([[0.9, 0.1]])
    """

    accuracy_preserving = True
    injective = True

    def __init__(self, g: Any, *, logits: bool = False, classes: Any = None, weights: str = "frequency"):
        self.g = g
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _check_params(self) -> None:
        if not callable(self.g):
            msg = f"g must be a function, got {self.g!r}"
            raise TypeError(msg)
        values = np.asarray(self.g(np.linspace(0, 1, 1001)), dtype=np.float64)
        if values.shape != (1001,) or not np.isfinite(values).all() or values[0] < 0 or (np.diff(values) <= 0).any():
            msg = "g must be finite, not negative and strictly increasing on [0, 1], entry by entry"
            raise ValueError(msg)

    def _fit(self, source: Rows) -> dict[str, Any]:
        return {}

    def _proba(self, block: Block) -> NDArray[Any]:
        p = block.probabilities().astype(np.float64)
        g: NDArray[Any] = np.asarray(self.g(np.clip(p, 0.0, 1.0)), dtype=np.float64)
        return np.asarray(g / g.sum(axis=1, keepdims=True))

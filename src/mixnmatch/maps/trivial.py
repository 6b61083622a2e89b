"""The two maps that learn nothing: identity and uniform."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch.maps.base import CalibrationMap


class Identity(CalibrationMap):
    """The uncalibrated prediction: T(z) = z (softmax for logits).

    Parameters
    ----------
    logits : bool
        Whether scores are logits.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.
    """

    _fitted_by_blas = False

    accuracy_preserving = True
    injective = True
    _follows_base_rate = False

    def _fit(self, source: Rows) -> dict[str, Any]:
        return {}

    def _proba(self, block: Block) -> NDArray[Any]:
        return block.probabilities()

    def _log_proba(self, block: Block) -> NDArray[np.float64]:
        return block.log_probabilities()


class Uniform(CalibrationMap):
    """The uniform prediction: every class has probability 1 / L.

    It is temperature scaling with an infinite temperature. All classes are tied, so it does not preserve accuracy;
    ensembles with it as a member do.

    Parameters
    ----------
    logits : bool
        Whether scores are logits.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.
    """

    _fitted_by_blas = False

    _follows_base_rate = False

    def _fit(self, source: Rows) -> dict[str, Any]:
        return {}

    def _proba(self, block: Block) -> NDArray[Any]:
        return np.full(block.values.shape, 1 / block.values.shape[1])

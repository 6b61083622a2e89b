"""Keep the winner: any map, without changing the predicted class."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import picked, winners
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.external import InputOfPart, calibration_map
from mixnmatch.maps.parameters import clone


class KeepWinner(InputOfPart):
    r"""Any map, made accuracy-preserving: the nearest probabilities that keep the predicted class.

    .. math:: T(z) = \arg\min_{r \in \Delta} \mathrm{KL}(S(z) \,\|\, r)
        \quad \text{subject to} \quad r_w \geq r_l \text{ for all } l, \quad w = \arg\max_l z_l

    S is the map inside, w the predicted class. Where S keeps w, T(z) is S(z). Elsewhere the probability of w is
    averaged with those of the classes ranked above it, as many as are above the common level; all others stay.

    Parameters
    ----------
    map : map
        Any map, or object with fit and predict_proba. Its settings for logits, classes and weights apply.

    Attributes
    ----------
    map_ : fitted map
        The map inside.

    Notes
    -----
    With the entries of :math:`q = S(z)` other than :math:`q_w` in falling order, :math:`q_{(1)} \geq q_{(2)} \ldots`,

    .. math:: T(z)_w = \theta = \max_{k \geq 0} \frac{q_w + q_{(1)} + \ldots + q_{(k)}}{k + 1}, \qquad
        T(z)_l = \min(q_l, \theta)

    which is isotonic regression of the probabilities of a sample, under the constraint that w is not below the others.
    It is the same for every proper score that treats the classes alike, log loss and squared error among them: if q is
    the distribution of the label given z, no map that keeps the predicted class (up to ties) has a lower expected
    score. One function for all entries (the paper's Def. 3.1) also keeps the order of all other entries; this map keeps
    only the predicted class, so the map inside can correct one class against another.

    Where classes are averaged, the confidence in the predicted class is higher than the map inside says, and too high;
    the top-label calibration error shows it. (With two classes both probabilities are one half there.) Averaged classes
    are equal up to the last digit, in which the predicted class is larger. If many samples are affected, consider
    changing their predictions: compare the accuracy of the map inside. If you only need the confidence of predictions
    that must not change, use :class:`Pooled` isotonic regression or ETS. Averaging loses information, so the
    calibration gain is a lower bound.

    Examples
    --------
    >>> from mixnmatch.maps import StructuredMatrixScaling
    >>> KeepWinner(StructuredMatrixScaling()).accuracy_preserving
    True
    >>> keep_winner(np.array([0]), np.array([[0.3, 0.6, 0.1]]), logarithms=False)
    array([[0.45, 0.45, 0.1 ]])
    """

    accuracy_preserving = True

    _fitted: ClassVar[tuple[str, ...]] = ("map_",)
    _first_part = "map"

    map_: CalibrationMap

    def __init__(self, map: Any):  # noqa: A002
        self.map = map

    @property
    def injective(self) -> bool:  # type: ignore[override]
        """Whether different scores stay different: if the map inside preserves accuracy and is injective."""
        inside = getattr(self, "map_", self.map)
        return all(getattr(inside, promise, False) for promise in ("accuracy_preserving", "injective"))

    def _check_fitted(self) -> None:
        if not np.array_equal(self.map_.classes_, self.classes_):
            msg = "the map inside has other classes"
            raise ValueError(msg)

    def _fit(self, source: Rows) -> dict[str, Any]:
        return {"map_": calibration_map(clone(self.map))._fit_source(source)}

    def _proba(self, block: Block) -> NDArray[Any]:
        return keep_winner(block.winner, self.map_._proba(block), logarithms=False)

    def _log_proba(self, block: Block) -> NDArray[np.float64]:
        return keep_winner(block.winner, self.map_._log_proba(block), logarithms=True)


def keep_winner(winner: NDArray[np.intp], values: NDArray[Any], *, logarithms: bool) -> NDArray[Any]:
    """The rows nearest to ``found`` in which the entry of the column ``winner`` is not below any other.

    ``found`` holds probabilities or their logarithms; it comes back as it is if there is nothing to do.
    """
    lost = np.flatnonzero(winner != winners(values))
    if not lost.size:
        return values
    winner, rows = winner[lost], values[lost]
    shared = _shared_level(np.exp(rows) if logarithms else rows, winner)
    level = np.log(shared) if logarithms else shared
    np.minimum(rows, level[:, None], out=rows)
    rows[np.arange(len(rows)), winner] = level
    projected = values.copy()
    projected[lost] = rows
    return projected


def _shared_level(p: NDArray[Any], winner: NDArray[np.intp]) -> NDArray[np.float64]:
    """What the winner gets: the largest mean of its entry and some of the largest others."""
    own = picked(p, winner).astype(np.float64)
    others = p.astype(np.float64)
    others[np.arange(len(p)), winner] = 0  # one more zero lowers a mean and is never among the entries that share
    others.sort(axis=1)
    sums = own[:, None] + np.cumsum(others[:, :0:-1], axis=1)
    return np.asarray(np.maximum(own, (sums / np.arange(2, p.shape[1] + 1)).max(axis=1)))

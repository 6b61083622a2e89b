"""Keep the winner: any map, held to the predicted classes that it was given."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mixnmatch._engine.along_rows import picked, winners
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.external import InputOfPart, calibration_map


class KeepWinner(InputOfPart):
    r"""Any map, made accuracy-preserving: the nearest rows in which the largest entry stays where it was.

    .. math:: T(z) = \arg\min_{r \in \Delta} \mathrm{KL}(S(z) \,\|\, r)
        \quad \text{subject to} \quad r_w \geq r_l \text{ for all } l, \quad w = \arg\max_l z_l

    S is the map inside. Where it leaves the winner w in front, T(z) is S(z). Where it puts other classes before w, the
    winner shares evenly with the largest of them, as many as are above the common level; all other entries stay.

    Parameters
    ----------
    map : map
        Any map, or object with fit and predict_proba. Whether scores are logits, the names of the columns and the
        meaning of weights are what it says.

    Attributes
    ----------
    map_ : fitted map
        The map inside.

    Notes
    -----
    With the entries of :math:`q = S(z)` other than :math:`q_w` in falling order, :math:`q_{(1)} \geq q_{(2)} \ldots`,

    .. math:: T(z)_w = \theta = \max_{k \geq 0} \frac{q_w + q_{(1)} + \ldots + q_{(k)}}{k + 1}, \qquad
        T(z)_l = \min(q_l, \theta)

    which is isotonic regression of the row under the one demand that w is not below the others. It is the same for
    every proper score that treats the classes alike, log loss and squared error among them: if q is the distribution of
    the label given z, no map that keeps the winner (up to ties) has a lower expected one. One function for all entries
    (the paper's Def. 3.1) also keeps the order of all other entries, and knows nothing of the classes; this keeps the
    winner alone, and the corrections between classes of the map inside.

    Where classes share, the winner has more than the map inside gives it: the row as a whole is as good as it can be,
    but the confidence in the winner is too high there, and a top-label calibration error sees that. (With two classes
    such a row is one half and one half.) Classes that share come out equal, but for the last digit, which the winner
    has more. If many rows share, their predictions are worth changing: compare the accuracy of the map inside. If the
    confidence of predictions that must not change is all you need, take :class:`Pooled` isotonic regression or ETS.
    Rows that share are told apart no longer, so that the calibration gain is a lower bound.

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
        """Whether different rows stay different: if there is nothing to keep back, and the map inside is injective."""
        inside = getattr(self, "map_", self.map)
        return all(getattr(inside, promise, False) for promise in ("accuracy_preserving", "injective"))

    def _check_fitted(self) -> None:
        if not np.array_equal(self.map_.classes_, self.classes_):
            msg = "the map inside has other classes"
            raise ValueError(msg)

    def _fit(self, source: Rows) -> dict[str, Any]:
        return {"map_": calibration_map(clone(self.map, safe=False))._fit_source(source)}

    def _proba(self, block: Block) -> NDArray[Any]:
        return keep_winner(block.winner, self.map_._proba(block), logarithms=False)

    def _log_proba(self, block: Block) -> NDArray[np.float64]:
        return keep_winner(block.winner, self.map_._log_proba(block), logarithms=True)


def keep_winner(winner: NDArray[np.intp], found: NDArray[Any], *, logarithms: bool) -> NDArray[Any]:
    """The rows nearest to ``found`` in which the entry of the column ``winner`` is not below any other.

    ``found`` holds probabilities or their logarithms; it comes back as it is if there is nothing to do.
    """
    lost = np.flatnonzero(winner != winners(found))
    if not lost.size:
        return found
    winner, rows = winner[lost], found[lost]
    shared = _shared_level(np.exp(rows) if logarithms else rows, winner)
    level = np.log(shared) if logarithms else shared
    np.minimum(rows, level[:, None], out=rows)
    rows[np.arange(len(rows)), winner] = level
    kept = found.copy()
    kept[lost] = rows
    return kept


def _shared_level(p: NDArray[Any], winner: NDArray[np.intp]) -> NDArray[np.float64]:
    """What the winner gets: the largest mean of its entry and some of the largest others."""
    own = picked(p, winner).astype(np.float64)
    others = p.astype(np.float64)
    others[np.arange(len(p)), winner] = 0  # one more zero lowers a mean and is never among the entries that share
    others.sort(axis=1)
    sums = own[:, None] + np.cumsum(others[:, :0:-1], axis=1)
    return np.asarray(np.maximum(own, (sums / np.arange(2, p.shape[1] + 1)).max(axis=1)))

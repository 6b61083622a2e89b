"""Ensemble temperature scaling: the paper's three-member ensemble, fitted jointly."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import log_softmax, row_maxima, row_sums
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.text import significant
from mixnmatch.maps._ensemble_temperature_fit import Candidate, fit_brier, fit_nll
from mixnmatch.maps._solve import CERTIFIED, certify
from mixnmatch.maps.base import ONE_KERNEL_BYTES, CalibrationMap
from mixnmatch.maps.fitted import check_range, check_simplex
from mixnmatch.maps.temperature import (
    check_loss,
    fit_beta,
    keep_informative,
    rounded,
    rounded_weights,
)

Vector = NDArray[np.float64]
# What is certified of a fit to float32 scores.
SINGLE = 1e-6
# Probabilities above this are mixed as they are, others through their logarithms.
SMALLEST_MIXED = 1e-290


class EnsembleTemperatureScaling(CalibrationMap):
    r"""Ensemble temperature scaling, ETS: :math:`T(z; w, t) = w_1 T(z; t) + w_2 z + w_3 / L`.

    The three members are temperature scaling with temperatures t, 1 and infinity. The temperature and the weights are
    fitted jointly, weights on the simplex.

    Parameters
    ----------
    loss : {"nll", "brier"}
        What is minimised on the calibration set: log loss, or squared error as in the paper.
    logits : bool
        Whether scores are logits rather than probabilities.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.

    Attributes
    ----------
    beta_ : float
        Inverse temperature 1 / t of the free member.
    member_weights_ : array of shape (3,)
        Weights of T(z; t), of z, and of the uniform prediction.
    loss_ : float
        Mean loss on the calibration set.
    backend_ : str
        Kernels that the fit used.

    Notes
    -----
    For a fixed temperature the problem is convex in the weights; jointly it is not (the paper calls it convex), and can
    have several local optima in t. A scan over t on some of the samples finds the promising ones, and each is
    refined on all samples. The optimum at the temperature of temperature scaling is another candidate, so the loss on
    the calibration set is never above that of temperature scaling, of the identity, of the uniform prediction or of
    fitting t first and the weights afterwards. If no prediction is wrong, the map is temperature scaling
    (see ``bound_`` of :class:`TemperatureScaling`).

    References
    ----------
    Zhang, Kailkhura, Han (2020). Mix-n-Match: ensemble and compositional methods for uncertainty calibration in deep
    learning. ICML. Section 3.2.2.

    Examples
    --------
    >>> scores = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
    >>> map = EnsembleTemperatureScaling(loss="brier").fit(scores, [0, 1, 1, 1])
    >>> map.predict_proba([[0.9, 0.1]]).round(3)
    array([[0.75, 0.25]])
    """

    accuracy_preserving = True
    injective = True
    _fitted: ClassVar[tuple[str, ...]] = ("beta_", "member_weights_", "probability_floor_", "loss_", "backend_")
    _block_bytes = ONE_KERNEL_BYTES
    _kernel_keeps_winners = True

    beta_: float
    member_weights_: Vector
    probability_floor_: float
    loss_: float
    backend_: str

    def __init__(self, *, loss: str = "nll", logits: bool = False, classes: Any = None, weights: str = "frequency"):
        self.loss = loss
        super().__init__(logits=logits, classes=classes, weights=weights)

    @property
    def temperature_(self) -> float:
        """Temperature of the free member."""
        return 1 / self.beta_

    def _check_params(self) -> None:
        check_loss(self.loss)

    def _members_of(self, block: Block) -> list[tuple[str, Vector, float]]:
        """Name, probabilities and weight of each member."""
        tempered = np.exp(log_softmax(self.beta_ * block.log_scores(self.probability_floor_)))
        p = np.asarray(block.probabilities(), dtype=np.float64)
        names = (f"temperature {significant(self.temperature_, 3)}", "identity", "uniform")
        parts = (tempered, p, np.full(p.shape, 1.0 / p.shape[1]))
        return list(zip(names, parts, self.member_weights_.tolist(), strict=True))

    def _check_fitted(self) -> None:
        check_range(self, "beta_", 0.0)
        check_range(self, "probability_floor_", 0.0, 1.0)
        check_simplex(self, "member_weights_", 3)

    def _fit(self, source: Rows) -> dict[str, Any]:
        floor = source.probability_floor()
        alone = fit_beta(source, self.loss, floor, tolerance=1e-3)
        if alone.bound == "separable":  # no error to learn weights from: as certain as temperature scaling, no more
            best = Candidate(alone.beta, np.eye(3)[0], alone.loss * source.total_weight(), alone.residual)
        else:
            best = (fit_nll if self.loss == "nll" else fit_brier)(source, alone.beta, floor)
        # Sums of float32 rows hide smaller falls of the loss than their rounding.
        certify(type(self).__name__, best.residual, allowed=SINGLE if source.scores.dtype == np.float32 else CERTIFIED)
        return {
            "beta_": rounded(best.beta),
            "member_weights_": rounded_weights(keep_informative(best.weights)),
            "probability_floor_": floor,
            "loss_": best.value / source.total_weight(),
            "backend_": source.backend,
        }

    def _proba_into(self, block: Block, out: NDArray[Any]) -> None:
        block.kernels.mixture_into(block.log_scores(self.probability_floor_), self.beta_, self.member_weights_, out)

    def _log_proba(self, block: Block) -> Vector:
        u = block.log_scores(self.probability_floor_).astype(np.float64)
        u -= row_maxima(u)[:, None]
        w1, w2, w3 = self.member_weights_
        mixed = w1 * _shares(self.beta_ * u)
        mixed += w2 * _shares(u.copy())
        mixed += w3 / u.shape[1]
        if mixed.min() > SMALLEST_MIXED:
            return np.asarray(np.log(mixed, out=mixed))
        # Entries that underflow differ in their logarithms only. Their rows alone are computed in another way: a row
        # must not depend on those beside it.
        few = mixed.min(axis=1) <= SMALLEST_MIXED
        mixed[few] = 1.0
        np.log(mixed, out=mixed)
        w1, w2, w3 = np.log(np.maximum(self.member_weights_, np.finfo(float).tiny))
        low = np.logaddexp(w1 + log_softmax(self.beta_ * u[few]), w2 + log_softmax(u[few]))
        mixed[few] = np.logaddexp(low, w3 - np.log(u.shape[1]))
        return np.asarray(mixed)


def _shares(u: Vector) -> Vector:
    """Softmax of rows whose largest entry is 0, in place."""
    np.exp(u, out=u)
    u /= row_sums(u)[:, None]
    return u

"""Intra order-preserving maps: one increasing piecewise-linear function of the scores, shared by all classes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import log_softmax
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import is_number
from mixnmatch.maps._nodes import FACTOR, FINE, Array, Nodes, overlap, tempered
from mixnmatch.maps.base import SMALL_SUMMARY, CalibrationMap
from mixnmatch.maps.fitted import LARGEST, check_range, check_shape, require
from mixnmatch.maps.temperature import check_loss, fit_beta

# Weight of half the squared distance between the slopes and that of temperature scaling.
RIDGE = 3.0
# More knots than this are finer than floats.
MOST_KNOTS = 1000


class IntraOrderPreserving(CalibrationMap):
    r"""Intra order-preserving map, diagonal and order-invariant: :math:`T(z) = \mathrm{softmax}(g(x_1), ..., g(x_L))`.

    Here x are the logarithms of the probabilities after temperature scaling, and g is a strictly increasing
    piecewise-linear function that all classes share; g(x) = x is temperature scaling.

    Parameters
    ----------
    loss : {"nll", "brier"}
        What is minimised on the calibration set: log loss or squared error.
    n_knots : int
        Number of knots of g, both ends included.
    ridge : float
        Strength of the penalty that shrinks the slopes towards that of temperature scaling; its effect fades as
        samples are added.
    logits : bool
        Whether scores are logits rather than probabilities.
    classes : sequence, optional
        Names of the columns, needed where labels are not column indices and a class may be absent.
    weights : {"frequency", "importance"}
        What sample weights mean.

    Attributes
    ----------
    beta_ : float
        Inverse temperature of temperature scaling.
    knots_ : array of shape (k,)
        Knots of g, from x = 0 downwards; k is ``n_knots`` unless there are too few different scores.
    slopes_ : array of shape (k - 1,)
        Slope of g between consecutive knots; all are positive. Beyond the knots it is 1.
    loss_ : float
        Mean loss on the calibration set, without the ridge.
    backend_ : str
        Kernels that the fit of the inverse temperature used.

    Notes
    -----
    Since g is strictly increasing, the order of the classes never changes (``accuracy_preserving``). The map is
    ``injective``: T(z) fixes g(x_l) up to a constant of the sample, that is x_l up to one number. The sum of exp(x_l)
    is strictly increasing in this number and must be 1. Logarithms of probabilities rather than logits make the map the
    same for logits and for their softmax. (Log-scores relative to the largest one would do so too, but with them the
    held-out log loss was higher, for some CIFAR-100 networks by much.)

    The logits are linear in the slopes :math:`s_j`, so the log loss is convex in them. The sum of the losses of all
    samples plus a ridge,

    .. math:: \sum_i \mathrm{loss}_i + \frac{\mathrm{ridge}}{2} \sum_j (s_j - 1)^2, \qquad s_j \geq 10^{-3},

    is minimised by Newton steps, each a small non-negative least squares problem on the sum of a statistic over rows.
    The start is temperature scaling and no step may raise the objective, so the loss on the calibration set is never
    above that of temperature scaling. Squared error is not convex; Gauss-Newton steps lead to a local optimum.

    Knots are chosen where the loss depends on g: they cut the square root of its curvature in the values of g, at
    temperature scaling, into equal parts. Their number and the ridge were chosen on held-out halves of 24 sets of
    outputs of published classifiers, on which 8 to 16 knots and ridges from 1 to 10 are all about as good.

    References
    ----------
    Rahimi, Shaban, Cheng, Hartley, Boots (2020). Intra order-preserving functions for calibration of multi-class neural
    networks. NeurIPS.

    Examples
    --------
    >>> scores = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
    >>> map = IntraOrderPreserving().fit(scores, [0, 1, 1, 1])
    >>> map.predict(scores).tolist()
    [0, 0, 1, 1]
    """

    accuracy_preserving = True
    injective = True
    _fitted: ClassVar[tuple[str, ...]] = ("beta_", "knots_", "slopes_", "probability_floor_", "loss_", "backend_")
    _block_bytes: ClassVar[dict[str, int]] = {"numpy": 1 << 19, "compiled": 1 << 19}  # several tables beside the block
    _summary_bytes = SMALL_SUMMARY

    beta_: float
    knots_: Array
    slopes_: Array
    probability_floor_: float
    loss_: float
    backend_: str

    def __init__(
        self,
        *,
        loss: str = "nll",
        n_knots: int = 12,
        ridge: float = RIDGE,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.loss = loss
        self.n_knots = n_knots
        self.ridge = ridge
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _check_params(self) -> None:
        check_loss(self.loss)
        if not (isinstance(self.n_knots, (int, np.integer)) and 2 <= self.n_knots <= MOST_KNOTS):
            msg = f"n_knots must be an integer from 2 to {MOST_KNOTS}, got {self.n_knots!r}"
            raise ValueError(msg)
        if not is_number(self.ridge) or self.ridge <= 0:
            msg = f"ridge must be positive and finite, got {self.ridge!r}"
            raise ValueError(msg)

    def _check_fitted(self) -> None:
        check_range(self, "beta_", 0.0)
        check_range(self, "probability_floor_", 0.0, 1.0)
        check_range(self, "knots_", -LARGEST, 0.0)
        check_shape(self, "knots_", len(self.knots_))
        check_shape(self, "slopes_", len(self.knots_) - 1)
        check_range(self, "slopes_", 0.0)
        require((np.diff(self.knots_) < 0).all(), self, "knots_", "does not decrease")

    def _fit(self, source: Rows) -> dict[str, Any]:
        from mixnmatch.maps._order_fit import fit
        from mixnmatch.maps._solve import certify

        floor = source.probability_floor()
        beta = fit_beta(source, self.loss, floor).beta
        knots, slopes, total, residual = fit(
            source, floor, beta, loss=self.loss, n_knots=self.n_knots, ridge=float(self.ridge)
        )
        certify(type(self).__name__, residual)
        return {
            "beta_": beta,
            "knots_": knots,
            "slopes_": slopes,
            "probability_floor_": floor,
            "loss_": total / source.total_weight(),
            "backend_": source.backend,
        }

    def _proba_into(self, block: Block, out: NDArray[Any]) -> None:
        out[...] = np.exp(self._log_proba(block))
        np.maximum(out, np.finfo(out.dtype).tiny, out=out)

    def _log_proba(self, block: Block) -> Array:
        nodes = Nodes.of(block.values.shape[1])
        deviation = self._once(self.slopes_, lambda: overlap(nodes, self.knots_) @ (self.slopes_ - 1))
        x = tempered(block, self.probability_floor_, self.beta_)
        return log_softmax(block.kernels.add_deviation(x, nodes.low, FINE, FACTOR, deviation))

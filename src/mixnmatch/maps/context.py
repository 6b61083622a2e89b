"""Order-preserving maps whose function of the log-scores depends on the sample."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import log_softmax
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch.maps._context_slopes import (
    Slopes,
    contexts,
    fit_slopes,
    hat_shares,
    inverses,
    leave_one_out_statistic,
    log_loss_statistic,
    weights_of,
)
from mixnmatch.maps._nodes import tempered
from mixnmatch.maps._order_fit import PREVIEW_ROWS, curvature_knots
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.fitted import LARGEST, check_range, check_shape, check_simplex, require
from mixnmatch.maps.shrunken import check_penalty
from mixnmatch.maps.temperature import fit_beta

Array = NDArray[np.float64]

# Knots of the function of the log-scores, both ends included, and knots of each context.
N_KNOTS, CONTEXT_KNOTS = 9, 4
# So much of the calibration set is beyond each of the outer knots of a context, and knots are this far apart at least.
TAIL, APART = 0.02, 0.1
# Strengths of the penalty whose fits are averaged, with temperature scaling as the last one.
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0)
# Power of the leave-one-out likelihood in the weights of the strengths: below 1, since it is itself an estimate.
POWER = 0.5


class ContextualOrderPreserving(CalibrationMap):
    r"""Order-preserving map with a function for each sample: :math:`T(z) = \mathrm{softmax}(g_x(x_1), ..., g_x(x_L))`.

    Here x are the logarithms of the probabilities after temperature scaling. As for :class:`IntraOrderPreserving`,
    :math:`g_x` is a strictly increasing piecewise-linear function that all classes share. Its slopes depend on three
    properties of the sample: how far the first class leads, how far the second stands out, and how evenly the rest is
    spread. With two classes, where the first property says everything, they are constant.

    Parameters
    ----------
    penalty : float or "loo"
        Strength of the shrinkage of the slopes towards temperature scaling. "loo" averages the fits of several
        strengths and temperature scaling, weighted by their approximate leave-one-out log loss.
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
    knots_ : array of shape (J + 1,)
        Knots of g, from x = 0 downwards. Beyond them its slope is 1.
    context_knots_ : array of shape (M, K)
        Knots of each of the M contexts, in ascending order.
    slopes_ : array of shape (M, K, J)
        Slope of g in each of J cells where a context is at a knot; the slope for a sample is the mean over contexts.
    penalty_weights_ : array
        Weights of the fits with penalty 1, 3, 10, 30, 100 and of temperature scaling; 1 if ``penalty`` is a number.
    loss_ : float
        Mean log loss on the calibration set.
    backend_ : str
        Kernels that the fit of the inverse temperature used.

    Notes
    -----
    With the classes of a sample in falling order, :math:`x_{(1)} \geq x_{(2)} \geq \ldots`, and the probabilities q of
    all but the first among themselves, the contexts are

    .. math:: c_1 = x_{(1)} - x_{(2)}, \qquad c_2 = x_{(2)} - \frac{1}{L - 1} \sum_{r \geq 2} x_{(r)}, \qquad
        c_3 = -\sum_{r \geq 2} q_r \log q_r .

    The slope of :math:`g_x` in cell j is :math:`s_j(x) = \frac{1}{M} \sum_{m,k} h_{mk}(c_m) \theta_{mkj}`, where
    :math:`h_{mk}` are the hat functions of the knots of context m. So it is additive in the contexts. All
    :math:`\theta \geq 10^{-3}`: the order of every sample survives (``accuracy_preserving``). Unlike
    :class:`IntraOrderPreserving` the map need not be injective.

    The logits are linear in :math:`\theta`, so the log loss is convex. The sum of the losses and the penalty

    .. math:: \frac{\lambda}{2} \sum_j \left[ (\bar s_j - 1)^2 + \sum_{m,k} d_{mkj}^2 \right], \qquad
        \bar s_j = \frac{1}{MK} \sum_{m,k} \theta_{mkj}, \quad
        d_{mkj} = \frac{1}{M} \left( \theta_{mkj} - \frac{1}{K} \sum_{k'} \theta_{mk'j} \right)

    are minimised by Newton steps with bounds, for all strengths :math:`\lambda` side by side. With many samples the
    slopes are free, with few they are those of temperature scaling.

    Leaving out sample i moves its slopes, to first order, by :math:`S_i (I - C_i S_i)^{-1} r_i`. Here :math:`r_i` and
    :math:`C_i` are gradient and curvature of its loss in the slopes, and :math:`S_i` is the inverse of the curvature of
    the objective, as its slopes see it (Rad and Maleki 2020). With the sum :math:`\ell_\lambda` of the losses of the
    samples left out, the fits are averaged with weights proportional to :math:`\exp(-\ell_\lambda / 2)`. A mean of
    fits is another map of this kind, and by convexity its loss on the calibration set is not above that of temperature
    scaling. Slopes at their bound count as fixed, so that the approximation is too optimistic where many are.

    The contexts, numbers of knots and strengths were chosen on 12 sets of outputs of published classifiers;
    benchmarks/context_study.py compares the map with others on 12 more.

    References
    ----------
    Rahimi, Shaban, Cheng, Hartley, Boots (2020). Intra order-preserving functions for calibration of multi-class neural
    networks. NeurIPS.

    Rad, Maleki (2020). A scalable estimate of the out-of-sample prediction error via approximate leave-one-out
    cross-validation. JRSS B.

    Examples
    --------
    >>> scores = [[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]
    >>> map = ContextualOrderPreserving().fit(scores, [0, 1, 1, 2])
    >>> map.predict(scores).tolist()
    [0, 0, 1, 2]
    """

    accuracy_preserving = True
    _fitted: ClassVar[tuple[str, ...]] = (
        "beta_",
        "knots_",
        "context_knots_",
        "slopes_",
        "penalty_weights_",
        "probability_floor_",
        "loss_",
        "backend_",
    )
    _block_bytes: ClassVar[dict[str, int]] = {"numpy": 1 << 19, "compiled": 1 << 19}  # several tables beside the block

    beta_: float
    knots_: Array
    context_knots_: Array
    slopes_: Array
    penalty_weights_: Array
    probability_floor_: float
    loss_: float
    backend_: str

    def __init__(
        self,
        *,
        penalty: float | str = "loo",
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.penalty = penalty
        super().__init__(logits=logits, classes=classes, weights=weights)

    def _check_params(self) -> None:
        check_penalty(self.penalty)

    def _check_fitted(self) -> None:
        check_range(self, "beta_", 0.0)
        check_range(self, "probability_floor_", 0.0, 1.0)
        check_range(self, "knots_", -LARGEST, 0.0)
        check_shape(self, "knots_", len(self.knots_))
        require((np.diff(self.knots_) < 0).all(), self, "knots_", "does not decrease")
        check_range(self, "context_knots_")
        n_contexts = 1 if self.n_classes_ == 2 else 3
        check_shape(self, "context_knots_", n_contexts, self.context_knots_.size // n_contexts)
        require((np.diff(self.context_knots_) > 0).all(), self, "context_knots_", "does not increase")
        check_shape(self, "slopes_", *self.context_knots_.shape, len(self.knots_) - 1)
        check_range(self, "slopes_", 0.0)
        check_simplex(self, "penalty_weights_", len(self.penalty_weights_))

    def _fit(self, source: Rows) -> dict[str, Any]:
        floor = source.probability_floor()
        beta = fit_beta(source, "nll", floor).beta
        knots = curvature_knots(source, floor, beta, N_KNOTS).positions
        slopes = Slopes(floor, beta, knots, _context_knots(source, floor, beta))
        if self.penalty == "loo":
            fits, curvatures = fit_slopes(source, slopes, np.array(STRENGTHS), type(self).__name__)
            losses = source.total(leave_one_out_statistic, slopes, fits, inverses(curvatures, fits))
            fits = np.vstack([fits, np.ones(slopes.size)])
            weights = np.exp(-POWER * (losses - losses.min()))
            weights /= weights.sum()
        else:
            fits, _ = fit_slopes(source, slopes, np.array([float(self.penalty)]), type(self).__name__)
            weights = np.ones(1)
        theta = weights @ fits
        return {
            "beta_": beta,
            "knots_": knots,
            "context_knots_": slopes.context_knots,
            "slopes_": theta.reshape(*slopes.context_knots.shape, -1),
            "penalty_weights_": weights,
            "probability_floor_": floor,
            "loss_": float(source.total(log_loss_statistic, slopes, theta[None])[0][0] / source.total_weight()),
            "backend_": source.backend,
        }

    def _multiplications(self) -> int:
        return int(self.slopes_.size)

    def _proba_into(self, block: Block, out: NDArray[Any]) -> None:
        out[...] = np.exp(self._log_proba(block))
        np.maximum(out, np.finfo(out.dtype).tiny, out=out)

    def _log_proba(self, block: Block) -> Array:
        x = tempered(block, self.probability_floor_, self.beta_)
        excess = hat_shares(x, self.context_knots_) @ self.slopes_.reshape(-1, len(self.knots_) - 1) - 1
        u = x.copy()
        for j, (upper, lower) in enumerate(zip(self.knots_[:-1], self.knots_[1:], strict=True)):
            part = np.maximum(x, lower)
            np.minimum(part, upper, out=part)
            part -= upper
            part *= excess[:, j, None]
            u += part
        return log_softmax(u)


def _context_knots(source: Rows, floor: float, beta: float) -> Array:
    """Knots of each context, M x K: quantiles of a part of the samples, not too close to each other."""
    if source.n_classes == 2:
        return np.zeros((1, 1))
    blocks = list(source.preview(PREVIEW_ROWS).map_blocks(_context_values, floor, beta))
    values = np.concatenate([block for block, _ in blocks])
    weight = np.concatenate([block for _, block in blocks])
    order = np.argsort(values, axis=0, kind="stable")
    below = np.cumsum(weight[order], axis=0)
    apart = APART * np.arange(CONTEXT_KNOTS)
    asked = np.linspace(TAIL, 1 - TAIL, CONTEXT_KNOTS)
    knots = np.empty((values.shape[1], CONTEXT_KNOTS))
    for m, ranks in enumerate(order.T):
        place = np.searchsorted(below[:, m], asked * below[-1, m])
        knots[m] = values[ranks[np.minimum(place, len(ranks) - 1)], m]
    return np.asarray(np.maximum.accumulate(knots - apart, axis=1) + apart)


def _context_values(block: Block, floor: float, beta: float) -> tuple[Array, Array]:
    return contexts(tempered(block, floor, beta)), weights_of(block)

"""Temperature scaling: one number for all classes, found exactly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import log_softmax
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch.maps.base import ONE_KERNEL_BYTES, CalibrationMap
from mixnmatch.maps.fitted import check_range

if TYPE_CHECKING:
    from mixnmatch.maps._temperature_fit import Fitted

LOSSES = ("nll", "brier")
# Rows that a first, cheap look at the data takes.
PREVIEW_ROWS = 1024


class TemperatureScaling(CalibrationMap):
    r"""Temperature scaling (Guo et al. 2017): :math:`T(z; t)_l = z_l^{1/t} / \sum_k z_k^{1/t}`.

    Parameters
    ----------
    loss : {"nll", "brier"}
        What is minimised on the calibration set: log loss, or squared error as in the paper.
    logits : bool
        Whether scores are logits rather than probabilities.
    classes : sequence, optional
        Names of the columns, needed where labels are not column indices and a class may be absent.
    weights : {"frequency", "importance"}
        What sample weights mean.

    Attributes
    ----------
    beta_ : float
        Inverse temperature 1 / t, positive.
    temperature_ : float
        Temperature t.
    loss_ : float
        Mean loss on the calibration set.
    bound_ : str or None
        "separable" if the log loss decreases as t goes to 0 (every label is the predicted class): t is then chosen so
        that the mean probability of the label is about (n + 1/2) / (n + 1), since n samples without an error show no
        more. "uniform" if the log loss decreases as t goes to infinity (scores without information, or reversed ones):
        t is then so large that a larger one makes no difference.
    backend_ : str
        Kernels that the fit used.

    Notes
    -----
    Log loss is convex in beta = 1/t. Newton's method with a bracket finds the optimum in a few passes over the
    samples; the temperature is not limited to a fixed range. Squared error is not convex in beta: a grid around the
    optimum of the log loss is scanned on some of the samples, and the zero of the derivative next to its best node is
    found on all of them.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017). On calibration of modern neural networks. ICML.

    Examples
    --------
    >>> scores = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
    >>> map = TemperatureScaling().fit(scores, [0, 1, 1, 1])
    >>> map.predict_proba([[0.9, 0.1]]).round(3)
    array([[0.787, 0.213]])
    """

    _fitted_by_blas = False

    accuracy_preserving = True
    injective = True
    _fitted: ClassVar[tuple[str, ...]] = ("beta_", "probability_floor_", "loss_", "bound_", "backend_")
    _block_bytes = ONE_KERNEL_BYTES
    _kernel_keeps_winners = True

    beta_: float
    probability_floor_: float
    loss_: float
    bound_: str | None
    backend_: str

    def __init__(self, *, loss: str = "nll", logits: bool = False, classes: Any = None, weights: str = "frequency"):
        self.loss = loss
        super().__init__(logits=logits, classes=classes, weights=weights)

    @property
    def temperature_(self) -> float:
        """Temperature 1 / beta."""
        return 1 / self.beta_

    def _check_params(self) -> None:
        check_loss(self.loss)

    def _check_fitted(self) -> None:
        check_range(self, "beta_", 0.0)
        check_range(self, "probability_floor_", 0.0, 1.0)

    def _fit(self, source: Rows) -> dict[str, Any]:
        from mixnmatch.maps._solve import certify

        floor = source.probability_floor()
        fitted = fit_beta(source, self.loss, floor)
        certify(type(self).__name__, fitted.residual)
        return {
            "beta_": rounded(fitted.beta),
            "probability_floor_": floor,
            "loss_": fitted.loss,
            "bound_": fitted.bound,
            "backend_": source.backend,
        }

    def _proba_into(self, block: Block, out: NDArray[Any]) -> None:
        block.kernels.softmax_into(block.log_scores(self.probability_floor_), self.beta_, out)

    def _log_proba(self, block: Block) -> NDArray[np.float64]:
        return log_softmax(np.asarray(self.beta_ * block.log_scores(self.probability_floor_), dtype=np.float64))


def check_loss(loss: str) -> None:
    """Raise an error unless ``loss`` is one that maps can minimise."""
    if loss not in LOSSES:
        msg = f'loss must be "nll" or "brier", got {loss!r}'
        raise ValueError(msg)


# Significant bits that fitted numbers keep. Sums over rows agree to 50 bits or so however the rows are cut and whatever
# computes them, so that rounding leaves the same number; a step function after the map then sees the same scores, and
# the same ties, to the last bit.
KEPT_BITS = 36


def rounded(value: float) -> float:
    """A fitted number without the bits that depend on the order of a sum."""
    fraction, power = math.frexp(value)
    return math.ldexp(round(math.ldexp(fraction, KEPT_BITS)), power - KEPT_BITS)


def rounded_weights(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of an ensemble without such bits; they still sum to 1, and zeros stay zeros."""
    whole = np.round(np.ldexp(weights, KEPT_BITS))
    whole[whole.argmax()] += 2.0**KEPT_BITS - whole.sum()
    return np.asarray(np.ldexp(whole, -KEPT_BITS))


# Weight that members which look at the scores keep between them in an ensemble, so that the order of a row survives.
INFORMATIVE = 1e-6


def keep_informative(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of an ensemble whose last member is the uniform prediction, never all on that one."""
    if weights[:-1].sum() >= INFORMATIVE:
        return weights
    informative = np.zeros_like(weights)
    informative[0], informative[-1] = INFORMATIVE, 1 - INFORMATIVE
    return informative


def fit_beta(source: Rows, loss: str, floor: float, *, tolerance: float | None = None) -> Fitted:
    """Inverse temperature with the least loss.

    A search ends with a Newton step shorter than ``tolerance`` times beta; what is left is about its square.
    """
    from mixnmatch.maps._temperature_fit import fit  # a server of fitted maps need not import it

    return fit(source, loss, floor, tolerance)

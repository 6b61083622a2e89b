"""Proper scores and accuracy: means over samples, in one pass, with standard errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.along_rows import picked, row_maxima, row_sums, winners
from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows, refuse_dask
from mixnmatch.evaluation._bounded import HALF_SQUARED_ERROR, NOT_NEGATIVE, PROPORTION, SQUARED_ERROR, Bounds
from mixnmatch.evaluation._clusters import read_clusters
from mixnmatch.evaluation._means import (
    MeanEstimate,
    Moments,
    block_moments,
    check_confidence,
    clustered_covariance,
)

Floats = NDArray[np.float64]

__all__ = ["accuracy", "brier_score", "log_loss"]

# Samples up to which the intervals of the log loss and of calibration gains look at what labels that were not seen
# would cost. With more, the standard error is enough.
FEW = 5000
# Samples on which that is measured, where there are at least twice as many: the logarithm of every score takes long,
# and the mean over these is exact enough for the small part that it has in the interval.
PREVIEW_ROWS = 512
# Losses from which a class counts as masked: logits of -inf are read as -1e9, which maps may divide by a temperature.
MASKED = 1e6


def brier_score(
    scores: Any,
    y: Any = None,
    *,
    scale_by_half: bool | str = False,
    logits: bool = False,
    sample_weight: Any = None,
    clusters: Any = None,
    classes: Any = None,
    weights: str = "frequency",
    confidence: float = 0.95,
    groups: Any = None,
) -> MeanEstimate:
    r"""Brier score, the mean squared error of probabilities: :math:`\frac1n\sum_i\lVert z^{(i)}-y^{(i)}\rVert_2^2`.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``. A vector is the positive class of a binary problem and has the same
        score as its two columns.
    y : array of shape (n,)
        Labels.
    scale_by_half : bool or "auto"
        Halve the score, so that it goes from 0 to 1; for two classes it is the mean of :math:`(z_1 - y_1)^2` then.
        "auto" halves for two classes and not for more, as :func:`sklearn.metrics.brier_score_loss` by default. The
        default here is the sum over all classes, for two classes twice scikit-learn's number.
    logits : bool
        Whether scores are logits.
    sample_weight : array of shape (n,), optional
        Frequencies: a weight of k equals k repetitions in the mean. The standard error counts samples, not weights.
    clusters : array of shape (n,), optional
        Samples of one cluster (a patient, a video) vary together; the standard error then is cluster-robust.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.
    confidence : float
        Coverage of the result's ``interval``.
    groups : array of shape (n,), optional
        Former name of ``clusters``, deprecated.

    Returns
    -------
    MeanEstimate
        A float with ``standard_error`` and ``interval``.

    References
    ----------
    Brier (1950). Verification of forecasts expressed in terms of probability. Monthly Weather Review 78.

    Examples
    --------
    >>> float(brier_score([[0.5, 0.5], [0.0, 1.0]], [0, 1]))
    0.25
    >>> float(brier_score([[0.5, 0.5], [0.0, 1.0]], [0, 1], scale_by_half="auto"))
    0.125
    """
    source = door.labelled(door.rows(scores, y, sample_weight, logits=logits, classes=classes, weights=weights))
    rows, bounds = brier_rows, SQUARED_ERROR
    if _is_halved(scale_by_half, source.n_classes):
        rows, bounds = half_brier_rows, HALF_SQUARED_ERROR
    return mean_over_rows(source, rows, read_clusters(source, clusters, groups), confidence, bounds)


def log_loss(
    scores: Any,
    y: Any = None,
    *,
    eps: float = 0.0,
    logits: bool = False,
    sample_weight: Any = None,
    clusters: Any = None,
    classes: Any = None,
    weights: str = "frequency",
    confidence: float = 0.95,
    groups: Any = None,
) -> MeanEstimate:
    r"""Log loss (negative log-likelihood), :math:`-\frac1n\sum_i \log z^{(i)}_{y^{(i)}}`, in nats.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``.
    y : array of shape (n,)
        Labels.
    eps : float
        Lower bound for the probability of the label. With 0, the default, a label with probability 0 has an infinite
        loss.
    logits : bool
        Whether scores are logits.
    sample_weight : array of shape (n,), optional
        Frequencies: a weight of k equals k repetitions in the mean. The standard error counts samples, not weights.
    clusters : array of shape (n,), optional
        Samples of one cluster (a patient, a video) vary together; the standard error then is cluster-robust.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.
    confidence : float
        Coverage of the result's ``interval``.
    groups : array of shape (n,), optional
        Former name of ``clusters``, deprecated.

    Returns
    -------
    MeanEstimate
        A float with ``standard_error`` and ``interval``.

    Examples
    --------
    >>> round(float(log_loss([[0.5, 0.5], [0.0, 1.0]], [0, 1])), 6)
    0.346574
    >>> float(log_loss([[0.5, 0.5], [0.0, 1.0]], [0, 0]))
    inf
    """
    if not 0 <= eps < 1:
        msg = f"eps must be at least 0 and below 1, got {eps}"
        raise ValueError(msg)
    source = door.labelled(door.rows(scores, y, sample_weight, logits=logits, classes=classes, weights=weights))
    clusters = read_clusters(source, clusters, groups)
    return mean_over_rows(source, partial(log_loss_rows, eps=eps), clusters, confidence, log_loss_bounds(source, eps))


def accuracy(
    scores: Any,
    y: Any = None,
    *,
    logits: bool = False,
    sample_weight: Any = None,
    clusters: Any = None,
    classes: Any = None,
    weights: str = "frequency",
    confidence: float = 0.95,
    groups: Any = None,
) -> MeanEstimate:
    """Share of samples whose label has the largest score; of tied scores the first column counts as the largest.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``.
    y : array of shape (n,)
        Labels.
    logits : bool
        Whether scores are logits.
    sample_weight : array of shape (n,), optional
        Frequencies: a weight of k equals k repetitions in the mean. The standard error counts samples, not weights.
    clusters : array of shape (n,), optional
        Samples of one cluster (a patient, a video) vary together; the standard error then is cluster-robust.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.
    confidence : float
        Coverage of the result's ``interval``.
    groups : array of shape (n,), optional
        Former name of ``clusters``, deprecated.

    Returns
    -------
    MeanEstimate
        A float with ``standard_error`` and ``interval``.

    Examples
    --------
    >>> float(accuracy([[0.6, 0.4], [0.1, 0.9], [0.5, 0.5]], [0, 0, 0]))
    0.6666666666666666
    """
    source = door.labelled(door.rows(scores, y, sample_weight, logits=logits, classes=classes, weights=weights))
    return mean_over_rows(source, accuracy_rows, read_clusters(source, clusters, groups), confidence, PROPORTION)


def _is_halved(scale_by_half: Any, n_classes: int) -> bool:
    if isinstance(scale_by_half, str) and scale_by_half == "auto":
        return n_classes == 2
    if not isinstance(scale_by_half, bool | np.bool_):
        msg = f'scale_by_half must be True, False or "auto", got {scale_by_half!r}'
        raise ValueError(msg)
    return bool(scale_by_half)


def brier_rows(block: Block) -> Floats:
    """Squared error of each row; the label is subtracted first, so that small errors keep their digits."""
    if block.form == "logits":
        return np.asarray(block.kernels.label_rows(block.values, block.y)[1])
    p = np.ascontiguousarray(block.probabilities())
    return np.asarray(block.kernels.squared_errors(p, block.y))


def half_brier_rows(block: Block) -> Floats:
    """Half of the squared error of each row: for two classes, the squared error of the positive one."""
    return brier_rows(block) / 2


def log_loss_rows(block: Block, eps: float = 0.0) -> Floats:
    """Negative log-probability of the label of each row, infinite where it is zero and ``eps`` is."""
    if block.form == "logits":
        loss = -block.kernels.label_rows(block.values, block.y)[0]
    elif block.form == "log-probabilities":
        loss = -picked(block.values, block.y)
    else:
        with np.errstate(divide="ignore"):
            loss = np.log(picked(block.probabilities(), block.y).astype(np.float64))
        np.negative(loss, out=loss)
    if eps > 0:
        np.minimum(loss, -np.log(eps), out=loss)
    return np.asarray(loss + 0.0)  # -0 becomes 0


def wrong_loss_rows(block: Block, eps: float = 0.0) -> Floats:
    """Loss of each row if its predicted class were wrong: the mean over the other classes of positive probability.

    Where there are none it is infinite; but logits of -inf mask classes that are impossible, and if all others are, the
    loss is that of the predicted class.
    """
    logs = block.log_probabilities()
    if eps > 0:
        logs = np.maximum(logs, np.log(eps))
    predicted, possible = -row_maxima(logs), logs > -MASKED
    if possible.all():
        return np.asarray((-row_sums(logs) - predicted) / (logs.shape[1] - 1))
    others = possible.sum(axis=1) - 1
    total = -row_sums(np.where(possible, logs, 0.0)) - predicted
    alone = np.inf if block.form == "probabilities" else predicted
    return np.asarray(np.where(others > 0, total / np.maximum(others, 1), alone))


def log_loss_bounds(source: Rows, eps: float = 0.0) -> Bounds:
    """Range of the log loss and, for few samples, what unseen ones may cost."""
    if source.on_dask or source.n_rows > FEW:
        return NOT_NEGATIVE
    preview = source.sampled(PREVIEW_ROWS)
    return replace(NOT_NEGATIVE, unseen=preview.total(_wrong_loss_statistic, eps) / preview.total_weight())


def _wrong_loss_statistic(block: Block, eps: float) -> float:
    return float(block.weighted_sum(wrong_loss_rows(block, eps)))


def accuracy_rows(block: Block) -> Floats:
    """1 where the label has the largest score and 0 elsewhere."""
    return np.asarray(winners(block.values) == block.y, dtype=np.float64)


def mean_over_rows(
    source: Rows,
    rows: Callable[[Block], Floats],
    clusters: Any = None,
    confidence: float = 0.95,
    bounds: Bounds | None = None,
) -> MeanEstimate:
    """Mean of a row quantity of one source, which may have a known range."""
    moments, covariance, size = _moments_over_rows(source, rows, clusters, confidence)
    effective = moments.effective_sizes(None if clusters is None else covariance, size["n_groups"] or 0)
    return MeanEstimate(
        float(moments.means()[0]),
        standard_error=_root(covariance[0, 0]),
        bounds=bounds,
        effective_size=float(effective[0]),
        **size,
    )


def means_over_rows(
    source: Rows, rows: Callable[..., Floats], clusters: Any, confidence: float
) -> tuple[Floats, Floats, dict[str, Any]]:
    """Means of k row quantities of a source, their covariance, and what an estimate says of its size.

    ``rows`` is called with a block of the source and those of the tables beside it, the same rows in each, and returns
    an array of shape (k, rows of the block), or one row of it.
    """
    moments, covariance, size = _moments_over_rows(source, rows, clusters, confidence)
    return moments.means(), covariance, size | {"effective_size": float(moments.effective_sizes()[0])}


def _moments_over_rows(
    source: Rows, rows: Callable[..., Floats], clusters: Any, confidence: float
) -> tuple[Moments, Floats, dict[str, Any]]:
    check_confidence(confidence)
    if clusters is None:
        moments = source.total(moments_statistic, rows, block_bytes=source.light_bytes)
        size: dict[str, Any] = {"n_rows": moments.n_rows, "n_groups": None, "confidence": confidence}
        return moments, moments.covariance(), size
    refuse_dask(source, "clusters of samples need a loss for each sample in memory", "leave clusters out")
    codes, weight = clusters, source.weight
    if weight is not None and not weight.all():  # blocks leave such rows out
        codes, weight = np.unique(codes[weight > 0], return_inverse=True)[1].reshape(-1), weight[weight > 0]
    values = np.concatenate(list(source.map_blocks(_row_values, rows)), axis=1)
    covariance, n_groups = clustered_covariance(values, weight, codes)
    size = {"n_rows": values.shape[1], "n_groups": n_groups, "confidence": confidence}
    return Moments.of(values, weight), covariance, size


def moments_statistic(block: Block, rows: Callable[..., Floats]) -> Moments:
    """Moments of row quantities of a block."""
    return block_moments(block, _row_values(block, rows))


def _row_values(block: Block, rows: Callable[..., Floats]) -> Floats:
    return np.atleast_2d(rows(block, *block.companions))


def _root(variance: float) -> float:
    return float(np.sqrt(variance))

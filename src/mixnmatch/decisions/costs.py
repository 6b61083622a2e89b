"""Decisions that cost least, and what decisions cost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.frames import check_aligned, classes_of, is_series
from mixnmatch._engine.labels import as_labels, class_array, is_text
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import is_number
from mixnmatch._engine.text import significant
from mixnmatch.decisions._inputs import class_names, labelled, unlabelled
from mixnmatch.decisions.cost_matrix import CostMatrix
from mixnmatch.evaluation._bounded import Bounds
from mixnmatch.evaluation._means import MeanEstimate
from mixnmatch.evaluation.scores import mean_over_rows

Floats = NDArray[np.float64]

__all__ = ["bayes_decisions", "cost_threshold", "expected_cost", "realised_cost"]


def bayes_decisions(
    probs: Any, costs: Any, abstain: float | None = None, *, logits: bool = False, classes: Any = None
) -> NDArray[Any]:
    r"""Decisions with the lowest expected cost.

    Parameters
    ----------
    probs : array of shape (n, L) or (n,)
        Calibrated probabilities, or logits if ``logits``. A vector holds the positive class of a binary problem.
    costs : array of shape (L, D), or data frame
        Cost of each decision (columns) for each true class (rows). There may be more or fewer decisions than classes.
        The index of a pandas data frame names the classes; rows of polars are in the order of the columns of ``probs``.
    abstain : float, optional
        Cost of abstaining, for example of asking a human. Without it every sample gets a decision.
    logits : bool
        Whether ``probs`` are logits.
    classes : sequence, optional
        Names of the columns of ``probs``, to match the index of a data frame of costs.

    Returns
    -------
    array of shape (n,)
        Columns of ``costs``, -1 where abstaining is cheaper than every decision. Names of the decisions if ``costs``
        is a data frame whose columns have names, and "abstain" then.

    Notes
    -----
    The decision for probabilities p is :math:`\arg\min_d \sum_k p_k C_{kd}`. Of decisions with equal expected cost the
    first column is taken; abstaining must be strictly cheaper. The decisions are optimal only as far as the
    probabilities are calibrated.

    Examples
    --------
    A false negative costs ten times as much as a false positive:

    >>> bayes_decisions([0.02, 0.2, 0.9], [[0, 1], [10, 0]])
    array([0, 1, 1])
    >>> bayes_decisions([0.02, 0.2, 0.9], [[0, 1], [10, 0]], abstain=0.3)
    array([ 0, -1,  1])
    """
    classes = _classes_by_name(probs, costs, classes)
    source = unlabelled(probs, logits=logits, classes=classes)
    matrix = CostMatrix.of(costs, n_classes=source.n_classes, classes=class_names(source, classes), abstain=abstain)
    return matrix.named(decide(source, matrix))


def _classes_by_name(probs: Any, costs: Any, classes: Any) -> Any:
    """Names of the classes; a column that is called like one of two rows of the costs is about that class."""
    if classes is not None or not is_series(probs) or not (hasattr(costs, "index") and hasattr(costs, "columns")):
        return classes
    rows = list(costs.index)
    return sorted(rows, key=lambda name: name == probs.name) if len(rows) == 2 and probs.name in rows else None


def decide(source: Rows, matrix: CostMatrix) -> NDArray[np.intp]:
    """Columns of ``matrix.options`` with the lowest expected cost for each sample."""
    return np.concatenate(list(source.map_blocks(_cheapest, matrix.options)))


def option_costs(block: Block, options: Floats) -> Floats:
    """Expected cost of every option for each sample of a block."""
    return np.asarray(block.probabilities().astype(np.float64, copy=False) @ options)


def _cheapest(block: Block, options: Floats) -> NDArray[np.intp]:
    return np.asarray(option_costs(block, options).argmin(axis=1))


def expected_cost(
    probs: Any,
    costs: Any,
    decisions: Any = None,
    sample_weight: Any = None,
    *,
    abstain: float | None = None,
    logits: bool = False,
    classes: Any = None,
    weights: str = "frequency",
    confidence: float = 0.95,
) -> MeanEstimate:
    r"""Mean cost that decisions should have, if the probabilities are calibrated.

    Parameters
    ----------
    probs : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``.
    costs : array of shape (L, D), or data frame
        Cost of each decision for each true class, as for :func:`bayes_decisions`.
    decisions : array of shape (n,), optional
        Decisions as :func:`bayes_decisions` returns them; by default those.
    sample_weight : array of shape (n,), optional
        Frequencies: a weight of k equals k repetitions of the sample.
    abstain : float, optional
        Cost of abstaining.
    logits : bool
        Whether ``probs`` are logits.
    classes : sequence, optional
        Names of the columns of ``probs``.
    weights : {"frequency", "importance"}
        What sample weights mean.
    confidence : float
        Coverage of the result's ``interval``.

    Returns
    -------
    MeanEstimate
        A float with ``standard_error`` and ``interval``.

    Notes
    -----
    The mean of :math:`\sum_k p_k C_{k d}` over samples. No labels are needed. Where there are labels,
    :func:`realised_cost` says what the decisions did cost; a large difference is a sign of miscalibration.

    Examples
    --------
    >>> float(expected_cost([0.05, 0.2, 0.9], [[0, 1], [10, 0]]))
    0.4666666666666666
    """
    check_aligned(probs, "probs", decisions=decisions)
    classes = _classes_by_name(probs, costs, classes)
    source = unlabelled(probs, sample_weight, logits=logits, classes=classes, weights=weights)
    matrix = CostMatrix.of(costs, n_classes=source.n_classes, classes=class_names(source, classes), abstain=abstain)
    options = matrix.options
    if decisions is None:
        return mean_over_rows(source, lambda block: option_costs(block, options).min(axis=1), confidence=confidence)
    chosen = matrix.indices(decisions, source.n_rows)

    def cost(block: Block) -> Floats:
        found = option_costs(block, options)
        return np.asarray(found[np.arange(len(found)), chosen[np.asarray(block.index)]])

    return mean_over_rows(source, cost, confidence=confidence)


def realised_cost(
    decisions: Any,
    y: Any,
    costs: Any,
    sample_weight: Any = None,
    *,
    abstain: float | None = None,
    classes: Any = None,
    weights: str = "frequency",
    confidence: float = 0.95,
) -> MeanEstimate:
    """Mean cost of decisions, given the labels.

    Parameters
    ----------
    decisions : array of shape (n,)
        Decisions as :func:`bayes_decisions` returns them.
    y : array of shape (n,)
        Labels.
    costs : array of shape (L, D), or data frame
        Cost of each decision for each true class.
    sample_weight : array of shape (n,), optional
        Frequencies; samples are the units of the standard error.
    abstain : float, optional
        Cost of abstaining.
    classes : sequence, optional
        Names of the classes, in the order of the rows of ``costs``; by default the index of a data frame.
    weights : {"frequency", "importance"}
        What sample weights mean.
    confidence : float
        Coverage of the result's ``interval``.

    Returns
    -------
    MeanEstimate
        A float with ``standard_error`` and ``interval``.

    Examples
    --------
    >>> float(realised_cost([0, 1, 1], [0, 0, 1], [[0, 1], [10, 0]]))
    0.3333333333333333
    """
    n_classes = len(costs.values if isinstance(costs, CostMatrix) else costs)
    check_aligned(decisions, "decisions", labels=y, sample_weight=sample_weight)
    n_rows = len(decisions)
    labels = as_labels(y, n_rows)
    if classes is None and hasattr(costs, "index") and hasattr(costs, "columns"):
        classes = _classes_of_rows(list(costs.index), labels)
    if classes is None and is_text(labels):
        msg = (
            "the labels are text: pass classes=[...] with the names of the classes in the order of the rows of the "
            "costs, or costs as a data frame whose index names them"
        )
        raise ValueError(msg)
    # Uniform probabilities stand in for the scores, which the cost of decisions already taken does not depend on.
    source = labelled(np.full((n_rows, n_classes), 1 / n_classes), y, sample_weight, classes=classes, weights=weights)
    matrix = CostMatrix.of(costs, n_classes=n_classes, classes=source.classes, abstain=abstain)
    return mean_cost(source, matrix.indices(decisions, n_rows), matrix.options, confidence)


def _classes_of_rows(rows: list[Any], labels: NDArray[Any]) -> NDArray[Any] | None:
    """Names of the classes from those of the rows of costs, as the labels spell them."""
    if rows == list(range(len(rows))):
        return None
    try:
        found = classes_of(rows, labels)
    except ValueError:  # said by the row of the label, where labels are matched
        found = None
    return class_array(rows) if found is None else found


def mean_cost(source: Rows, chosen: NDArray[np.intp], options: Floats, confidence: float = 0.95) -> MeanEstimate:
    """Mean cost of the options chosen for samples, given their labels.

    Its interval allows for costs of these options that the samples have not seen.
    """
    possible = options[:, np.unique(chosen)]
    low, high = float(possible.min()), float(possible.max())
    bounds = Bounds(low, high) if low < high else None
    return mean_over_rows(source, cost_of(chosen, options), confidence=confidence, bounds=bounds)


def cost_of(chosen: NDArray[np.intp], options: Floats) -> Any:
    """A function of blocks: the cost of the option chosen for each sample, given its label."""
    return lambda block: options[block.y, chosen[np.asarray(block.index)]]


def cost_threshold(
    false_positive: float, false_negative: float, *, true_positive: float = 0.0, true_negative: float = 0.0
) -> float:
    r"""Probability of the positive class from which on the positive decision costs less.

    Parameters
    ----------
    false_positive, false_negative : float
        Costs of the two errors. Only their ratio counts, where right decisions cost nothing.
    true_positive, true_negative : float
        Costs of right decisions.

    Returns
    -------
    float
        At this calibrated probability both decisions have the same expected cost; above it the positive one is
        cheaper.

    Notes
    -----
    .. math:: t = \frac{C_{FP} - C_{TN}}{(C_{FP} - C_{TN}) + (C_{FN} - C_{TP})}

    At the threshold itself :func:`bayes_decisions` takes the first decision, the negative one.

    Examples
    --------
    >>> cost_threshold(1, 9)
    0.1
    """
    given = {"false_positive": false_positive, "false_negative": false_negative}
    given |= {"true_positive": true_positive, "true_negative": true_negative}
    for name, value in given.items():
        if not is_number(value):
            msg = f"{name} must be a finite number, got {value!r}"
            raise ValueError(msg)
    against, missed = float(false_positive) - float(true_negative), float(false_negative) - float(true_positive)
    if against < 0 or missed < 0 or against + missed <= 0:
        msg = (
            "an error must not be cheaper than the right decision: a false positive costs "
            f"{significant(false_positive, 6)} against {significant(true_negative, 6)} for a true negative, a false "
            f"negative {significant(false_negative, 6)} against {significant(true_positive, 6)} for a true positive. "
            "One decision is always the better one, whatever the probability"
        )
        raise ValueError(msg)
    return against / (against + missed)

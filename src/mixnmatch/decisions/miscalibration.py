"""What miscalibration costs: decisions on raw scores against decisions on cross-fitted calibrated probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from mixnmatch._engine.folds import check_folds, fold_of
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.text import significant
from mixnmatch.decisions._inputs import in_memory, labelled
from mixnmatch.decisions.cost_matrix import CostMatrix
from mixnmatch.decisions.costs import cost_of, decide
from mixnmatch.evaluation._means import MeanEstimate
from mixnmatch.evaluation.scores import means_over_rows
from mixnmatch.maps.composition import CrossFitted
from mixnmatch.maps.external import calibration_map
from mixnmatch.maps.parameters import clone

__all__ = ["MiscalibrationCost", "cost_of_miscalibration"]


class MiscalibrationCost(MeanEstimate):
    """What miscalibration costs per sample: a float, positive where calibration pays, with a paired interval.

    Attributes
    ----------
    before, after : MeanEstimate
        Mean cost of Bayes decisions on the raw scores, and after calibration.
    changed : float
        Share of decisions that calibration changes.
    method : str
        The calibration map.
    standard_error, interval, confidence, p_value, n_rows, n_groups
        As in :class:`MeanEstimate`, of the paired differences. The p value is that of "calibration changes nothing".
    """

    before: MeanEstimate
    after: MeanEstimate
    changed: float
    method: str

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {
            **super().to_dict(),
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "changed": self.changed,
            "method": self.method,
        }

    def __str__(self) -> str:
        return (
            f"cost of miscalibration per sample: {self._text(sign=True)}\n"
            f"cost {significant(self.before)} on raw scores, {significant(self.after)} after {self.method}; "
            f"{self.changed:.1%} of decisions change"
        )


def cost_of_miscalibration(
    scores: Any,
    y: Any,
    costs: Any,
    *,
    method: Any = None,
    cv: int = 5,
    abstain: float | None = None,
    logits: bool = False,
    sample_weight: Any = None,
    classes: Any = None,
    weights: str = "frequency",
    confidence: float = 0.95,
    random_state: int = 0,
) -> MiscalibrationCost:
    r"""Extra cost of decisions that are based on uncalibrated scores.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``, of samples that the model was not trained on.
    y : array of shape (n,)
        Labels.
    costs : array of shape (L, D), or data frame
        Cost of each decision for each true class, as for :func:`bayes_decisions`.
    method : str or map, optional
        Calibration map; by default Platt scaling for two classes and structured vector scaling for more.
    cv : int
        Number of folds: the decision for each sample rests on a map fitted without its fold.
    abstain : float, optional
        Cost of abstaining.
    logits : bool
        Whether scores are logits.
    sample_weight : array of shape (n,), optional
        Frequencies; samples are the units of the standard error.
    classes : sequence, optional
        Names of the columns.
    weights : {"frequency", "importance"}
        What sample weights mean.
    confidence : float
        Coverage of the result's ``interval``.
    random_state : int
        Seed of the folds.

    Returns
    -------
    MiscalibrationCost
        Cost before minus cost after, per sample, with a paired interval.

    Notes
    -----
    With Bayes decisions d on raw and d' on calibrated probabilities, the mean of
    :math:`C_{y d} - C_{y d'}`. Differences are taken sample by sample, so that they vary much less than either cost.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=2000) - 2
    >>> y = (rng.random(2000) < 1 / (1 + np.exp(-x))).astype(int)
    >>> found = cost_of_miscalibration(3 * x, y, [[0, 1], [9, 0]], logits=True)
    >>> found.before > found.after, found.interval[0] > 0
    (True, True)
    """
    check_folds(cv)
    source = labelled(scores, y, sample_weight, logits=logits, classes=classes, weights=weights)
    in_memory(source, "the cost of miscalibration")
    matrix = CostMatrix.of(costs, n_classes=source.n_classes, classes=source.classes, abstain=abstain)
    name = ("platt" if source.n_classes == 2 else "svs") if method is None else method
    crossed = source.through(_cross_fitted(source, name, cv, random_state))
    first, second = (_spread(decide(table, matrix), source) for table in (source, crossed))
    before, after = cost_of(first, matrix.options), cost_of(second, matrix.options)

    def rows(block: Any) -> Any:
        one, two = before(block), after(block)
        index = np.asarray(block.index)
        return np.stack([one - two, one, two, (first[index] != second[index]).astype(np.float64)])

    means, covariance, size = means_over_rows(source, rows, None, confidence)
    errors = np.sqrt(np.diag(covariance))
    return MiscalibrationCost(
        float(means[0]),
        standard_error=float(errors[0]),
        before=MeanEstimate(float(means[1]), standard_error=float(errors[1]), **size),
        after=MeanEstimate(float(means[2]), standard_error=float(errors[2]), **size),
        changed=float(means[3]),
        method=name if isinstance(name, str) else " ".join(repr(name).split()),
        **size,
    )


def _cross_fitted(source: Rows, method: Any, cv: int, seed: int) -> CrossFitted:
    """The map as fitted without the fold of each sample."""
    from mixnmatch.maps.registry import calibrator

    used = np.arange(source.n_rows) if source.weight is None else np.flatnonzero(source.weight > 0)
    if len(np.unique(fold_of(used, cv, seed))) < 2:
        msg = f"{len(used)} samples are too few for {cv}-fold cross-fitting"
        raise ValueError(msg)
    unfitted = calibrator(method, logits=source.scores.logits) if isinstance(method, str) else calibration_map(method)
    if bool(unfitted._input_settings()["logits"]) != source.scores.logits:
        msg = "the map and the scores disagree: one of them was given with logits=True, the other without"
        raise ValueError(msg)
    rest = [source.fold(k, cv, keep=False, seed=seed) for k in range(cv)]
    return CrossFitted([calibration_map(clone(unfitted))._fit_source(part) for part in rest], seed)


def _spread(chosen: Any, source: Rows) -> Any:
    """Decisions in the order of the samples as given: those of weight zero, which passes leave out, get any."""
    if source.weight is None or source.weight.all():
        return chosen
    out = np.zeros(source.n_rows, dtype=np.intp)
    out[source.weight > 0] = chosen
    return out

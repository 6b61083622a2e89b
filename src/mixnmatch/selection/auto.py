"""Auto: a stack of cross-fitted maps and compositions, weighted by a proper score, that does no harm."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.folds import check_folds, fold_of
from mixnmatch._engine.rows import Rows
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.fitted import check_shape, check_simplex, require
from mixnmatch.maps.keep_winner import keep_winner
from mixnmatch.maps.trivial import Identity

if TYPE_CHECKING:
    from mixnmatch.selection.candidates import Candidate
    from mixnmatch.selection.crossfit import CrossFitter
    from mixnmatch.selection.stacking import Objective
    from mixnmatch.selection.verdict import Verdict

Array = NDArray[np.float64]
# Choices are made on at most about so many rows; the members are then fitted to all.
ROWS_TO_CHOOSE_BY = 100_000
# With fewer rows a fold, nothing can be said about which map is better.
LEAST_ROWS_A_FOLD = 2


class Auto(CalibrationMap):
    r"""A cross-validated stack: a weighted mean of maps and compositions, chosen automatically.

    .. math:: T(z) = \sum_m w_m T_m(z), \qquad w = \arg\min_{w \in \Delta}
        \sum_i S\Bigl(\sum_m w_m T_m^{(-k(i))}(z^{(i)}), y^{(i)}\Bigr)

    Candidates :math:`T_m` are single maps and compositions, the identity among them. Each is fitted without each of
    the folds in turn; the weights w, on the simplex, minimise the proper score S of the outputs for held-out samples.
    Members with positive weight are then fitted to all samples. If the stack is not better than the identity on
    held-out samples, it is the identity. With few samples the best weights are mostly noise: they are shrunk to equal
    ones.

    Parameters
    ----------
    scoring : {"nll", "brier"}
        The proper score S that weights are chosen by: log loss or squared error.
    accuracy_preserving : bool
        Never change the predicted class. :class:`KeepWinner` is then applied to the stack, whose weights are chosen
        without it. If a stack of accuracy-preserving candidates is better on held-out samples, it is used instead.
    time_budget : float, optional
        Seconds that the fit should take at most. Candidates that exceed a deterministic cost estimate are dropped, the
        costliest first. If time runs out nevertheless, those not yet tried are dropped, too.
    cv : int
        Number of folds. The fold of a sample is a hash of its index.
    random_state : int
        Seed of that hash.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Attributes
    ----------
    members_ : list of fitted maps
        The maps with positive weight.
    member_weights_ : array of shape (m,)
        Their weights.
    candidates_ : list of str
        What was tried, as names of stages in the order in which they act.
    candidate_weights_, candidate_losses_, candidate_gains_, candidate_errors_, candidate_seconds_ : arrays
        For each candidate its weight, its mean loss on held-out samples, by how much that is below the loss of the
        identity, the standard error of this paired difference, and the seconds it took. Candidates are judged as they
        are, the stack as it is used: with :class:`KeepWinner`, where ``accuracy_preserving`` asks for that.
    dropped_ : list of str
        Candidates that the time budget left no room for.
    loss_, gain_, gain_error_ : float
        The mean loss of the stack on rows that its members had not seen (the weights had), by how much it is below
        that of the identity, and the standard error of the difference.
    verdict_ : str
        The verdict on the candidates and the stack, as text; see :func:`mixnmatch.selection.decide`. Stacks of the
        unrestricted kind enter it with weights that were chosen without the fold of each sample.
    cost_ : float
        Seconds that the fit took.

    Notes
    -----
    Structured matrix scaling is the best published parametric map, but it assumes that log-probabilities need an
    affine correction. An order-preserving function first and the matrix afterwards do better than either; isotonic
    regression or a second order-preserving function on top is fitted on outputs for rows that the matrix has not seen.
    ``make fitter`` ranks it among all methods of this package and of others.

    References
    ----------
    van der Laan, Polley, Hubbard (2007). Super learner. Statistical Applications in Genetics and Molecular Biology.
    Yao, Vehtari, Simpson, Gelman (2018). Using stacking to average Bayesian predictive distributions.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(300, 3))
    >>> p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    >>> y = (p.cumsum(axis=1) < rng.random((300, 1))).sum(axis=1)
    >>> map = Auto(logits=True).fit(3 * logits, y)
    >>> "identity" in map.candidates_, map.gain_ > 0
    (True, True)
    """

    _fitted: ClassVar[tuple[str, ...]] = (
        "members_",
        "member_weights_",
        "candidates_",
        "candidate_weights_",
        "candidate_losses_",
        "candidate_gains_",
        "candidate_errors_",
        "candidate_seconds_",
        "dropped_",
        "loss_",
        "gain_",
        "gain_error_",
        "verdict_",
        "cost_",
    )
    _fitted_later: ClassVar[dict[str, Any]] = {"verdict_": ""}

    # Below the number of rows that allows choosing, nothing is known of the candidates.
    _unknown: ClassVar[frozenset[str]] = frozenset(
        {"loss_", "gain_", "gain_error_", "candidate_losses_", "candidate_gains_", "candidate_errors_"}
    )

    members_: list[CalibrationMap]
    member_weights_: Array
    candidates_: list[str]
    candidate_weights_: Array
    candidate_losses_: Array
    candidate_gains_: Array
    candidate_errors_: Array
    candidate_seconds_: Array
    dropped_: list[str]
    loss_: float
    gain_: float
    gain_error_: float
    verdict_: str
    cost_: float

    def __init__(
        self,
        *,
        scoring: str = "nll",
        accuracy_preserving: bool = False,
        time_budget: float | None = None,
        cv: int = 5,
        random_state: int = 0,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.scoring = scoring
        self.accuracy_preserving = accuracy_preserving
        self.time_budget = time_budget
        self.cv = cv
        self.random_state = random_state
        self.logits = logits
        self.classes = classes
        self.weights = weights

    @property
    def injective(self) -> bool:  # type: ignore[override]
        """Whether the fitted map is known to be: if it has one member, that is injective, and it is left as it is."""
        members = getattr(self, "members_", [])
        if len(members) != 1:
            return False
        return bool(members[0].injective) and (members[0].accuracy_preserving or not self.accuracy_preserving)

    def _check_params(self) -> None:
        if self.scoring not in ("nll", "brier"):
            msg = f'scoring must be "nll" or "brier", got {self.scoring!r}'
            raise ValueError(msg)
        check_folds(self.cv)
        budget = self.time_budget
        if budget is not None and not (isinstance(budget, int | float) and budget > 0):
            msg = f"time_budget must be a positive number of seconds or None, got {budget!r}"
            raise ValueError(msg)

    def _check_fitted(self) -> None:
        check_simplex(self, "member_weights_", len(self.members_))
        require((self.member_weights_ > 0).all(), self, "member_weights_", "has a member without weight")
        for member in self.members_:
            require(member.n_classes_ == self.n_classes_, self, "members_", "has a map of other classes")
        for name in self._fitted:
            if name.startswith("candidate_"):
                check_shape(self, name, len(self.candidates_))

    def _fit(self, source: Rows) -> dict[str, Any]:
        from mixnmatch.selection.candidates import STAGES, candidates_for, drop_over_budget
        from mixnmatch.selection.crossfit import CrossFitter, cached, with_one_floor

        began = time.perf_counter()
        few = source.n_rows < 2 * ROWS_TO_CHOOSE_BY
        rows = cached(source.in_memory() if few else source.sampled(ROWS_TO_CHOOSE_BY))
        candidates = candidates_for(source.n_rows, source.n_classes)
        candidates, dropped = drop_over_budget(candidates, self.time_budget, _n_rows(rows), source.n_classes, self.cv)
        if not _enough(rows, self.cv, self.random_state):
            return self._as_identity(source, dropped, began)
        settings = {"logits": source.scores.logits and not source.chain}
        maps = {name: stage.make(**settings) for name, stage in STAGES.items()}
        fitter = CrossFitter(with_one_floor(rows), maps, self.cv, self.random_state)
        whole = CrossFitter(rows if few else source, maps, self.cv, self.random_state)
        tried, outputs, seconds = self._try(fitter, candidates, began)
        dropped += [candidate for candidate in candidates if candidate not in tried]
        preserving = [all(maps[name].accuracy_preserving for name in candidate.names) for candidate in tried]
        report = self._weigh(
            outputs, fitter.source, np.flatnonzero(preserving), [candidate.name for candidate in tried]
        )
        weights = report["candidate_weights_"]
        chosen = [(candidate, weight) for candidate, weight in zip(tried, weights, strict=True) if weight > 0]
        members = [_member(candidate, whole, fitter) for candidate, _ in chosen]
        return {
            **report,
            "members_": members,
            "member_weights_": np.array([weight for _, weight in chosen]),
            "candidates_": [candidate.name for candidate in tried],
            "candidate_seconds_": np.array(seconds),
            "dropped_": [candidate.name for candidate in dropped],
            "cost_": time.perf_counter() - began,
        }

    def _try(
        self, fitter: CrossFitter, candidates: list[Candidate], began: float
    ) -> tuple[list[Candidate], list[Rows], list[float]]:
        """Cross-fit candidates, cheap ones first: their outputs for rows that they have not seen, and the seconds."""
        from mixnmatch.selection.crossfit import cached

        tried: list[Candidate] = []
        outputs: list[Rows] = []
        seconds: list[float] = []
        for candidate in candidates:
            start = time.perf_counter()
            if tried and self.time_budget is not None and start - began > self.time_budget:
                break
            place = fitter.after(candidate.stages) if candidate.tail else fitter
            stages = candidate.tail or candidate.stages
            outputs.append(cached(place.source.through(place.cross_fitted(stages))))
            tried.append(candidate)
            seconds.append(time.perf_counter() - start)
        return tried, outputs, seconds

    def _weigh(
        self, outputs: list[Rows], given: Rows, preserving: NDArray[np.intp], names: list[str]
    ) -> dict[str, Any]:
        """Weights of the candidates, the identity being the first of them, and how they did."""
        from mixnmatch.selection.crossfit import kept_losses, objective
        from mixnmatch.selection.stacking import Difference, stack

        loss = objective(outputs, self.scoring)
        single = np.eye(len(outputs))
        rows = [loss.rows(one) for one in single]
        gains = [Difference.of(rows[0], other, loss.weight) for other in rows]
        weights = stack(loss)
        stacked = loss.rows(weights)
        if self.accuracy_preserving:
            # The stack of all candidates with KeepWinner, or that of the accuracy-preserving ones.
            stacked = kept_losses(given, outputs, weights, self.scoring)
            alone = np.zeros(len(outputs))
            alone[preserving] = stack(loss.some(preserving))
            if loss.mean(alone) < loss.weight @ stacked / loss.weight.sum():
                weights, stacked = alone, loss.rows(alone)
        gain = Difference.of(rows[0], stacked, loss.weight)
        verdict = self._verdict(loss, given, np.stack(rows, axis=1), stacked, names, preserving)
        if not gain.mean > 0:  # do no harm
            weights, gain = single[0], gains[0]
        return {
            "verdict_": str(verdict),
            "candidate_weights_": weights,
            "candidate_losses_": np.array([loss.mean(one) for one in single]),
            "candidate_gains_": np.array([difference.mean for difference in gains]),
            "candidate_errors_": np.array([difference.standard_error for difference in gains]),
            "loss_": loss.mean(single[0]) - gain.mean,
            "gain_": gain.mean,
            "gain_error_": gain.standard_error,
        }

    def _verdict(
        self,
        loss: Objective,
        given: Rows,
        losses: Array,
        stacked: Array,
        names: list[str],
        preserving: NDArray[np.intp],
    ) -> Verdict:
        """The verdict on the candidates and the stack, which is called "auto"."""
        from mixnmatch.selection.evaluation_set import LossTable
        from mixnmatch.selection.stacking import cross_fitted_losses
        from mixnmatch.selection.verdict import decide_by_losses

        fold = fold_of(range(len(losses)), self.cv, self.random_state)
        if not self.accuracy_preserving and len(np.unique(fold)) > 1:
            stacked = cross_fitted_losses(loss, fold)
        table = np.column_stack([losses, stacked])
        unknown = np.full_like(table, math.nan)
        nll, brier = (table, unknown) if self.scoring == "nll" else (unknown, table)
        weights = given.class_weights()
        return decide_by_losses(
            LossTable((*names, "auto"), nll, brier, loss.weight, fold, class_weights=weights, evaluated=weights),
            scoring=self.scoring,
            allowed=[*(names[k] for k in preserving), "auto"] if self.accuracy_preserving else None,
        )

    def _as_identity(self, source: Rows, dropped: list[Candidate], began: float) -> dict[str, Any]:
        """The answer where rows are too few to choose by."""
        one, unknown = np.ones(1), np.full(1, math.nan)
        return {
            "members_": [Identity(logits=source.scores.logits and not source.chain)._fit_source(source)],
            "member_weights_": one,
            "candidates_": ["identity"],
            "candidate_weights_": one,
            "candidate_losses_": unknown,
            "candidate_gains_": np.zeros(1),
            "candidate_errors_": unknown,
            "candidate_seconds_": np.zeros(1),
            "dropped_": [candidate.name for candidate in dropped],
            "loss_": math.nan,
            "gain_": 0.0,
            "gain_error_": math.nan,
            "verdict_": "Leave the scores as they are: there are too few samples to choose a map.",
            "cost_": time.perf_counter() - began,
        }

    def _members_of(self, block: Block) -> list[tuple[str, Array, float]]:
        """Name, probabilities and weight of each member."""
        parts = [np.exp(member._log_proba(block)) for member in self.members_]
        used = [name for name, w in zip(self.candidates_, self.candidate_weights_, strict=True) if w > 0]
        names = used if len(used) == len(parts) else [type(member).__name__ for member in self.members_]
        return list(zip(names, parts, self.member_weights_.tolist(), strict=True))

    def _log_proba(self, block: Block) -> Array:
        parts = zip(self.members_, np.log(self.member_weights_), strict=True)
        mixed: Array | None = None
        for member, log_weight in parts:
            part = member._log_proba(block) + log_weight
            mixed = part if mixed is None else np.logaddexp(mixed, part)
        assert mixed is not None
        return keep_winner(block.winner, mixed, logarithms=True) if self.accuracy_preserving else mixed

    def summary(self) -> str:
        """What was tried, how it did on rows it had not seen, what it weighs and what it cost, as an aligned table."""
        from mixnmatch.selection.text_table import table

        columns = ("candidate", "weight", self.scoring, "gain", "std. error", "seconds")
        rows = [
            (name, f"{weight:.3f}", f"{loss:.5f}", f"{gain:+.5f}", f"{error:.5f}", f"{seconds:.2f}")
            for name, weight, loss, gain, error, seconds in zip(
                self.candidates_,
                self.candidate_weights_,
                self.candidate_losses_,
                self.candidate_gains_,
                self.candidate_errors_,
                self.candidate_seconds_,
                strict=True,
            )
        ]
        lines = [table(columns, rows)]
        lines.append(
            f"stack: {self.scoring} {self.loss_:.5f}, gain over the identity {self.gain_:+.5f} "
            f"(std. error {self.gain_error_:.5f}), {self.cost_:.1f} s in all"
        )
        if self.dropped_:
            lines.append("dropped for lack of time: " + ", ".join(self.dropped_))
        if self.verdict_:
            lines += ["", self.verdict_]
        return "\n".join(lines)


def _n_rows(source: Rows) -> float:
    return float(source.n_rows)


def _enough(rows: Rows, n_folds: int, seed: int) -> bool:
    """Whether every fold, and the rows outside it, has rows."""
    if _n_rows(rows) < LEAST_ROWS_A_FOLD * n_folds:
        return False
    inside = [rows.fold(k, n_folds, keep=True, seed=seed).total_weight() for k in range(n_folds)]
    return min(inside) > 0 and sum(inside) > max(inside)


def _member(candidate: Candidate, whole: CrossFitter, fitter: CrossFitter) -> CalibrationMap:
    """A candidate fitted to all rows; its tail to outputs, for the rows that were chosen by, of maps blind to them."""
    from mixnmatch.selection.crossfit import composed

    first = whole.fitted(candidate.stages)
    if not candidate.tail:
        return first
    tail = fitter.after(candidate.stages).fitted(candidate.tail)
    return composed([first, tail], cv=fitter.n_folds, seed=fitter.seed)

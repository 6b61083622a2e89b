"""Auto: a weighted mean of a few cross-fitted maps, shrunk towards the scores as they are."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.folds import check_folds
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import is_number
from mixnmatch.maps._floor import raised
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.fitted import check_range, check_shape, check_simplex, require
from mixnmatch.maps.keep_winner import keep_winner
from mixnmatch.maps.trivial import Identity

if TYPE_CHECKING:
    from mixnmatch.selection.candidates import Candidate
    from mixnmatch.selection.crossfit import CrossFitter
    from mixnmatch.selection.trial import Clock, Progress
    from mixnmatch.selection.verdict import Verdict

Array = NDArray[np.float64]
# Choices are made on at most about so many rows; the members are then fitted to all.
ROWS_TO_CHOOSE_BY = 100_000
# With fewer samples nothing can be said about which map is better.
LEAST_SAMPLES = 10


class Auto(CalibrationMap):
    r"""A weighted mean of a few maps and compositions, shrunk towards the scores as they are.

    .. math:: T(z) = \lambda \sum_m w_m T_m(z) + (1 - \lambda)\, z

    1. There are a few candidates :math:`T_m`, chosen by the number of classes; the identity is one of them.
    2. Each is fitted without each of the folds in turn.
    3. The weights w, on the simplex, minimise a proper score of the outputs for held-out samples. With few samples they
       are shrunk towards equal ones.
    4. The evidence is the total improvement of the log loss on held-out samples, minus half of its standard error.
       Without evidence the scores stay as they are; with at least 3 nats (odds of 20 to 1) the stack replaces them, and
       in between :math:`\lambda` grows in proportion. With two classes, where the members are
       shrunk to the identity already, :math:`\lambda` is the largest share at which the log loss, plus half a
       standard error of the difference, is at most 1% above that of the scores as they are.
    5. Members with positive weight are fitted to all samples.
    6. Very small probabilities are raised to a floor that costs at most 0.3% of the loss, since the log loss is
       infinite if the true class has probability 0. If the scores stay as they are, this applies only if some are 0.

    Parameters
    ----------
    scoring : {"nll", "brier"}
        The proper score that weights are chosen by: log loss or squared error.
    caution : float
        Standard errors by which a gain is lowered before it counts as evidence (step 4).
    accuracy_preserving : bool
        Never change the predicted class. :class:`KeepWinner` is then applied to the stack, whose weights are chosen
        without it. If a stack of accuracy-preserving candidates is better on held-out samples, it is used instead.
    time_budget : float, optional
        Seconds that the fit should take at most. Candidates that exceed a deterministic cost estimate are dropped, the
        costliest first, and after the first fold those for which the time will not suffice. If none is left,
        temperature scaling (for two classes the spline) is tried in their place, with a warning.
    cv : int, optional
        Number of folds. By default 5, and 3 from 2,500 samples on. The fold of a sample is a hash of its scores; more
        than 1% of samples with equal scores are divided between the folds.
    random_state : int
        Seed of that hash.
    verbose : bool
        Write a line to stderr for every step. :meth:`reporting_to` passes the steps to a function.
    logits, classes, weights
        As for :class:`TemperatureScaling`.

    Attributes
    ----------
    members_ : list of fitted maps
        The maps with positive weight.
    member_weights_ : array of shape (m,)
        Their weights.
    candidates_ : list of str
        The candidates that were tried. A name lists the maps of a composition in order.
    candidate_weights_, candidate_losses_, candidate_gains_, candidate_errors_, candidate_seconds_ : arrays
        For each candidate its weight, its mean loss on held-out samples, by how much that is below the loss of the
        identity, the standard error of this paired difference, and the seconds it took. Candidates are judged as they
        are, the stack as it is used: with :class:`KeepWinner`, where ``accuracy_preserving`` asks for that.
    dropped_ : list of str
        Candidates dropped because of the time budget.
    behind_ : list of str
        Candidates dropped because they were far behind after the first fold.
    loss_, gain_, gain_error_ : float
        The mean loss of the result on samples that were used for neither its members nor its weights, by how much it
        is below that of the identity, and the standard error of the difference.
    evidence_ : float
        Total improvement of the log loss by the stack on held-out samples, minus ``caution`` standard errors, in
        nats.
    floor_ : float
        The smallest probability.
    verdict_ : str
        The verdict on the candidates and the result, as text; see :func:`mixnmatch.selection.decide`.
    cost_ : float
        Seconds that the fit took.

    Notes
    -----
    For two classes the candidate is an average of smoothing splines, lines and the identity, weighted by how likely the
    labels are under them (:class:`SplineCalibration`). It keeps the order of the samples, unless the odds are above 20
    to 1 that a higher score means a lower probability somewhere. From 2,500 samples on isotonic regression is another
    one, and so is an order-preserving function where the predicted class must not change. The identity is outside the
    stack.

    For more classes the candidates are an order-preserving function, and structured matrix scaling, alone and after
    such a function; with 300 samples or more the function depends on the sample. The matrix is followed by another
    order-preserving function, fitted on its outputs for samples that it has not seen. In tables of many samples a
    candidate is dropped if it is behind the best by more than three standard errors after the first fold.

    "Does no harm" is a statement about averages: how often the result is worse than doing nothing, and by how much, is
    in ``docs/results/auto.md``, with the script that measures it.

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
    >>> "identity" in map.candidates_, map.evidence_ > 3, map.gain_ > 0
    (True, True, True)
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
        "behind_",
        "loss_",
        "gain_",
        "gain_error_",
        "evidence_",
        "floor_",
        "verdict_",
        "cost_",
    )
    _fitted_later: ClassVar[dict[str, Any]] = {"verdict_": "", "behind_": [], "evidence_": math.nan, "floor_": 0.0}

    # Below the number of rows that allows choosing, nothing is known of the candidates.
    _unknown: ClassVar[frozenset[str]] = frozenset(
        {"loss_", "gain_", "gain_error_", "candidate_losses_", "candidate_gains_", "candidate_errors_", "evidence_"}
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
    behind_: list[str]
    loss_: float
    gain_: float
    gain_error_: float
    evidence_: float
    floor_: float
    verdict_: str
    cost_: float

    def __init__(
        self,
        *,
        scoring: str = "nll",
        caution: float = 0.5,
        accuracy_preserving: bool = False,
        time_budget: float | None = None,
        cv: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
        logits: bool = False,
        classes: Any = None,
        weights: str = "frequency",
    ):
        self.scoring = scoring
        self.caution = caution
        self.accuracy_preserving = accuracy_preserving
        self.time_budget = time_budget
        self.cv = cv
        self.random_state = random_state
        self.verbose = verbose
        self.logits = logits
        self.classes = classes
        self.weights = weights

    @property
    def injective(self) -> bool:  # type: ignore[override]
        """Whether the fitted map is known to be: if it has one member, that is injective, and it is left as it is."""
        members = getattr(self, "members_", [])
        if len(members) != 1 or self.floor_ > 0:
            return False
        return bool(members[0].injective) and (members[0].accuracy_preserving or not self.accuracy_preserving)

    def _check_params(self) -> None:
        if self.scoring not in ("nll", "brier"):
            msg = f'scoring must be "nll" or "brier", got {self.scoring!r}'
            raise ValueError(msg)
        if not (is_number(self.caution) and self.caution >= 0):
            msg = f"caution must be a number from 0 on, got {self.caution!r}"
            raise ValueError(msg)
        if self.cv is not None:
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
        check_range(self, "floor_", 0.0, 1 / self.n_classes_)

    def reporting_to(self, progress: Progress | None) -> Self:
        """Let the next ``fit`` call ``progress(done, total, what)`` after every step; returns the map itself."""
        self._progress = progress
        return self

    def _fit(self, source: Rows) -> dict[str, Any]:
        from mixnmatch.selection.candidates import STAGES, candidates_for, drop_over_budget, folds_for
        from mixnmatch.selection.content_folds import ContentFolds
        from mixnmatch.selection.crossfit import CrossFitter, cached, fitted_to_all, with_one_floor
        from mixnmatch.selection.trial import Clock, Steps, Trial, all_steps, warn_of_budget

        clock, progress = Clock(self.time_budget), self.__dict__.pop("_progress", None)
        few = source.n_rows < 2 * ROWS_TO_CHOOSE_BY
        rows = (source if few else source.sampled(ROWS_TO_CHOOSE_BY)).in_memory()
        # Folds and cross-fitted maps of a source depend on the indices, which new folds replace.
        rows = cached(rows, rows.n_entries if rows.folds or rows.chain else None)
        n_folds = self.cv or folds_for(rows.total_weight())
        preserving = self.accuracy_preserving
        candidates = candidates_for(source.total_weight(), source.n_classes, accuracy_preserving=preserving)
        candidates, dropped = drop_over_budget(candidates, self.time_budget, rows.n_rows, source.n_classes, n_folds)
        folds = ContentFolds.of(rows, n_folds, self.random_state)
        rows, floored = folds.assign(rows), folds.assign(with_one_floor(rows))
        if not _enough(rows, n_folds, self.random_state):
            return self._as_identity(source, dropped, clock)
        settings = {"logits": source.scores.logits and not source.chain}
        maps = {name: stage.make(**settings) for name, stage in STAGES.items()}
        fitter = CrossFitter(floored, maps, n_folds, self.random_state)
        whole = CrossFitter(rows if few else source, maps, n_folds, self.random_state)
        steps = Steps(all_steps(candidates, n_folds) + 2, progress or self._printer())
        trial = Trial(fitter, candidates, clock, steps)
        keeping = [all(maps[name].accuracy_preserving for name in candidate.names) for candidate in trial.tried]
        names = [candidate.name for candidate in trial.tried]
        report = self._weigh(trial.outputs(), fitter, np.flatnonzero(keeping), names, rows)
        steps("weights")
        weights = report["candidate_weights_"]
        chosen = [(candidate, weight) for candidate, weight in zip(trial.tried, weights, strict=True) if weight > 0]
        members = [fitted_to_all(candidate, whole, fitter) for candidate, _ in chosen]
        steps("members", steps.total - steps.done)
        late = [*dropped, *trial.late]
        warn_of_budget(self.time_budget, trial.tried, late)
        return {
            **report,
            "members_": members,
            "member_weights_": np.array([weight for _, weight in chosen]),
            "candidates_": names,
            "candidate_seconds_": np.array([trial.seconds[candidate] for candidate in trial.tried]),
            "dropped_": [candidate.name for candidate in late],
            "behind_": [candidate.name for candidate in trial.behind],
            "cost_": clock.seconds,
        }

    def _printer(self) -> Progress | None:
        if not self.verbose:
            return None
        return lambda done, total, what: print(f"auto: {done} of {total} steps, {what}", file=sys.stderr, flush=True)

    def _weigh(
        self,
        outputs: list[Rows],
        fitter: CrossFitter,
        preserving: NDArray[np.intp],
        names: list[str],
        untouched: Rows,
    ) -> dict[str, Any]:
        """Weights of the candidates, the identity being the first of them, and how they did.

        ``untouched`` are the rows with zeros, which members read as small numbers.
        """
        from mixnmatch.selection.crossfit import HeldOut, kept_losses
        from mixnmatch.selection.evidence import CrossFittedStack, probability_floor
        from mixnmatch.selection.stacking import Difference

        given = fitter.source
        held_out = HeldOut.of(outputs, self.scoring)
        loss = held_out.objective
        identity = np.eye(len(outputs))[0]
        rows = [loss.rows(one) for one in np.eye(len(outputs))]
        gains = [Difference.of(rows[0], other, loss.weight) for other in rows]
        fold = np.concatenate(list(given.map_blocks(Block.folds, fitter.n_folds, fitter.seed)))
        shrunken = given.n_classes == 2
        members = np.arange(int(shrunken and len(outputs) > 1), len(outputs))
        stack, keeps = CrossFittedStack.of(held_out, fold, members), self.accuracy_preserving
        if keeps:
            # The stack of all candidates with KeepWinner, or that of the accuracy-preserving ones.
            stack = stack.keeping_winners(given, outputs, self.scoring)
            other = CrossFittedStack.of(held_out, fold, preserving)
            if loss.weight @ other.losses < loss.weight @ stack.losses:
                stack, keeps = other, False
        zeros = untouched.has_zeros()
        if zeros:  # what the scores as they are would give, with the floor
            floor = probability_floor(held_out, identity, given.n_classes)
            held_out = held_out.with_first(np.maximum(HeldOut.of([untouched], "nll").at_label[:, 0], floor))
        share = stack.share(held_out, self.caution, shrunken=shrunken)
        weights, each = (share * part + (1 - share) * identity for part in (stack.weights, stack.each))
        changed = weights[0] < 1
        # Doing nothing keeps the predicted classes exactly.
        final = kept_losses(given, outputs, each, self.scoring) if keeps and changed else loss.rows(each)
        gain = Difference.of(rows[0], final, loss.weight)
        table = np.column_stack([*rows, final])
        return {
            "verdict_": str(self._verdict(loss.weight, given, table, fold, names, preserving)),
            "candidate_weights_": weights,
            "candidate_losses_": np.array([loss.mean(one) for one in np.eye(len(outputs))]),
            "candidate_gains_": np.array([difference.mean for difference in gains]),
            "candidate_errors_": np.array([difference.standard_error for difference in gains]),
            "loss_": loss.mean(identity) - gain.mean,
            "gain_": gain.mean,
            "gain_error_": gain.standard_error,
            "evidence_": stack.evidence(held_out, self.caution),
            # Scores that stay as they are stay so exactly, unless they call something impossible.
            "floor_": probability_floor(held_out, weights, given.n_classes) if changed or zeros else 0.0,
        }

    def _verdict(
        self,
        weight: Array,
        given: Rows,
        table: Array,
        fold: NDArray[np.intp],
        names: list[str],
        preserving: NDArray[np.intp],
    ) -> Verdict:
        """The verdict on the candidates and the result, which is called "auto"; their losses are in ``table``."""
        from mixnmatch.selection.evaluation_set import LossTable
        from mixnmatch.selection.verdict import decide_by_losses

        unknown = np.full_like(table, math.nan)
        nll, brier = (table, unknown) if self.scoring == "nll" else (unknown, table)
        weights = given.class_weights()
        return decide_by_losses(
            LossTable((*names, "auto"), nll, brier, weight, fold, class_weights=weights, evaluated=weights),
            scoring=self.scoring,
            allowed=[*(names[k] for k in preserving), "auto"] if self.accuracy_preserving else None,
        )

    def _as_identity(self, source: Rows, dropped: list[Candidate], clock: Clock) -> dict[str, Any]:
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
            "behind_": [],
            "loss_": math.nan,
            "gain_": 0.0,
            "gain_error_": math.nan,
            "evidence_": math.nan,
            "floor_": 0.0,
            "verdict_": "Leave the scores as they are: there are too few samples to choose a map.",
            "cost_": clock.seconds,
        }

    def _members_of(self, block: Block) -> list[tuple[str, Array, float]]:
        """Name, probabilities and weight of each member."""
        parts = [np.exp(member._log_proba(block)) for member in self.members_]
        used = [name for name, w in zip(self.candidates_, self.candidate_weights_, strict=True) if w > 0]
        names = used if len(used) == len(parts) else [type(member).__name__ for member in self.members_]
        return list(zip(names, parts, self.member_weights_.tolist(), strict=True))

    def _log_proba(self, block: Block) -> Array:
        wide = block.in_double()
        mixed: Array | None = None
        for member, log_weight in zip(self.members_, np.log(self.member_weights_), strict=True):
            part = member._log_proba(wide) + log_weight
            mixed = part if mixed is None else np.logaddexp(mixed, part)
        assert mixed is not None
        mixed = raised(mixed, self.floor_)
        return keep_winner(block.winner, mixed, logarithms=True) if self.accuracy_preserving else mixed

    def summary(self) -> str:
        """Table of the candidates: weight, loss on held-out samples, gain and time."""
        from mixnmatch._engine.text import table

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
        lines = [table([columns, *rows])]
        lines.append(
            f"stack: {self.scoring} {self.loss_:.5f}, gain over the identity {self.gain_:+.5f} "
            f"(std. error {self.gain_error_:.5f}), {self.cost_:.1f} s in all"
        )
        if not math.isnan(self.evidence_):
            lines.append(f"evidence for a change: {self.evidence_:.1f} nats; smallest probability: {self.floor_:.1e}")
        if self.behind_:
            lines.append("far behind after the first fold: " + ", ".join(self.behind_))
        if self.dropped_:
            lines.append("dropped for lack of time: " + ", ".join(self.dropped_))
        if self.verdict_:
            lines += ["", self.verdict_]
        return "\n".join(lines)


def _enough(rows: Rows, n_folds: int, seed: int) -> bool:
    """Whether there are samples enough, in at least two folds."""
    if rows.total_weight() < LEAST_SAMPLES:
        return False
    inside = [rows.fold(k, n_folds, keep=True, seed=seed).total_weight() for k in range(n_folds)]
    return sum(inside) > max(inside)

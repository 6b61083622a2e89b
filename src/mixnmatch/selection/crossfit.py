"""Cross-fitting: outputs of maps on rows that they have not seen, with work shared between maps that begin alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.passes import row_ranges, run_blocks
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import SMALLEST_PROBABILITY, Scores
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.composition import Composition, CrossFitted
from mixnmatch.maps.keep_winner import keep_winner
from mixnmatch.maps.parameters import clone
from mixnmatch.selection.stacking import Array, LogLoss, Objective, SquaredError

if TYPE_CHECKING:
    from mixnmatch.selection.candidates import Candidate

# Tables of up to so many entries are kept in memory between stages; larger ones are read through the maps each time.
CACHED_ENTRIES = 4_000_000
# The same for the rows outside the fold that maps are being fitted without: there are only a few such tables at a time.
CACHED_OF_A_FOLD = 32_000_000
Stages = tuple[str, ...]


def cached(source: Rows, at_most: int | None = None) -> Rows:
    """The rows of a source as a table of their own, if they are few: what comes before need not be run again."""
    if source.on_dask or source.n_entries > (CACHED_ENTRIES if at_most is None else at_most):
        return source
    blocks = list(source.map_blocks(lambda block: block))
    values = np.concatenate([block.values for block in blocks])
    labels = np.concatenate([block.y for block in blocks])
    weight = None if source.weight is None else np.concatenate([block.weight for block in blocks])
    form = blocks[0].form
    if form == "log-probabilities":
        values = np.maximum(values, np.log(SMALLEST_PROBABILITY))
    table = Scores(values, form != "probabilities", source.scores.off_simplex and form == "probabilities")
    index = None if source.index is None else np.concatenate([np.asarray(block.index) for block in blocks])
    return Rows(table, labels, weight, classes=source.classes, index=index)


@dataclass(frozen=True)
class _Floored:
    """Probabilities as they are, those below a floor raised to it."""

    floor: float
    accuracy_preserving: ClassVar[bool] = True

    def _log_proba(self, block: Block) -> Array:
        return np.asarray(np.log(np.maximum(block.probabilities(), self.floor)), dtype=np.float64)


def with_one_floor(source: Rows) -> Rows:
    """Probabilities with zeros read as half of the smallest positive one of all rows.

    Maps find that number themselves, on the rows they are fitted on, and clip other rows by it: a map fitted without a
    fold would clip the smallest probabilities in it, and be judged by that.
    """
    if source.scores.logits or source.chain or source.folds or source.index is not None:
        return source
    return cached(source.through(_Floored(source.probability_floor())))


class CrossFitter:
    """Fits sequences of maps to the rows outside each fold, and to all rows, each beginning of a sequence once.

    Parameters
    ----------
    source : Rows
        The rows.
    maps : mapping from names to unfitted maps
        What the names in a sequence stand for.
    n_folds, seed : int
        Folds, by a hash of the index of each row (:class:`ContentFolds` makes it depend on the scores instead).
    """

    def __init__(self, source: Rows, maps: Mapping[str, CalibrationMap], n_folds: int, seed: int):
        self.source = source
        self.maps = maps
        self.n_folds = n_folds
        self.seed = seed
        self._fits: dict[tuple[int | None, Stages], list[CalibrationMap]] = {}
        self._sources: dict[tuple[int | None, Stages], Rows] = {}
        self._after: dict[Stages, CrossFitter] = {}

    def fitted(self, stages: Stages, fold: int | None = None) -> CalibrationMap:
        """The maps of a sequence one after another, fitted to the rows outside a fold, or to all."""
        return composed(self._fitted(stages, fold))

    def cross_fitted(self, stages: Stages) -> CrossFitted:
        """The sequence as fitted without the fold of each row."""
        return CrossFitted([self.fitted(stages, fold) for fold in range(self.n_folds)], self.seed)

    def after(self, stages: Stages) -> CrossFitter:
        """A fitter on the outputs of a sequence for rows that it has not seen, with the same folds.

        What is fitted there has seen, through other rows' outputs, a trace of the rows it is tried on; a map of few
        parameters can make nothing of it, and nested folds would cost as many times more as there are folds.
        """
        if stages not in self._after:
            rows = cached(self.source.through(self.cross_fitted(stages)))
            self._after[stages] = CrossFitter(rows, self.maps, self.n_folds, self.seed)
        return self._after[stages]

    def load(self, names: Iterable[str]) -> None:
        """Fit maps to a few rows of no meaning: what the first use of a map loads is no sign of what it takes."""
        waves = np.sin(np.arange(1.0, 121.0)).reshape(40, 3)
        rows = Rows(Scores(waves, True, False), (waves + waves[::-1]).argmax(axis=1))
        for name in names:
            clone(self.maps[name])._fit_source(rows)

    def held_out(self, fold: int) -> Rows:
        """The rows of a fold."""
        return self.source.fold(fold, self.n_folds, keep=True, seed=self.seed)

    def forget(self, fold: int) -> None:
        """Drop the tables that were kept for fits without a fold."""
        for key in [key for key in self._sources if key[0] == fold]:
            del self._sources[key]

    def _fitted(self, stages: Stages, fold: int | None) -> list[CalibrationMap]:
        key = (fold, stages)
        if key not in self._fits:
            before = stages[:-1]
            fresh = clone(self.maps[stages[-1]])
            found = fresh._fit_source(self._rows(before, fold))
            self._fits[key] = [*(self._fitted(before, fold) if before else ()), found]
        return self._fits[key]

    def _rows(self, stages: Stages, fold: int | None) -> Rows:
        """The rows outside a fold as they look after a sequence."""
        key = (fold, stages)
        if key not in self._sources:
            if stages:
                rows = self._rows(stages[:-1], fold).through(self._fitted(stages, fold)[-1])
            else:
                rows = self.source
                if fold is not None:
                    rows = rows.fold(fold, self.n_folds, keep=False, seed=self.seed)
            kept = None if fold is None else min(CACHED_OF_A_FOLD, 8 * CACHED_ENTRIES)
            self._sources[key] = cached(rows, kept) if (stages or fold is not None) else rows
        return self._sources[key]


def composed(parts: list[CalibrationMap], *, cv: int | None = None, seed: int = 0) -> CalibrationMap:
    """Fitted maps one after another as one fitted map."""
    first, *rest = parts
    if not rest:
        return first
    return Composition.of_fitted(first, composed(rest), cv=cv, random_state=seed)


@dataclass(frozen=True)
class HeldOut:
    """Outputs of members for rows that they have not seen, as far as weights are chosen by them.

    Attributes
    ----------
    objective : Objective
        The proper score that is minimised.
    at_label : array of shape (n, M)
        What each member gives the label.
    """

    objective: Objective
    at_label: Array

    @property
    def weight(self) -> Array:
        """Weights of the rows."""
        return self.objective.weight

    def with_first(self, at_label: Array) -> HeldOut:
        """The same with other probabilities of the label under the first member; the objective stays as it is."""
        return replace(self, at_label=np.column_stack([at_label, self.at_label[:, 1:]]))

    @classmethod
    def of(cls, sources: list[Rows], scoring: str) -> HeldOut:
        """From the outputs of all members, the first of which leaves scores as they are."""
        first = sources[0]
        ranges = row_ranges(first.n_rows, first.n_classes * 8 * len(sources))

        def work(start: int, stop: int) -> tuple[Array, Array, Array]:
            blocks = [source.block(start, stop) for source in sources]
            y = blocks[0].y
            at_label = np.stack([_logs_at(block, y) for block in blocks], axis=1)
            products = np.empty(0)
            if scoring == "brier":
                p = np.stack([np.asarray(block.probabilities(), dtype=np.float64) for block in blocks], axis=1)
                products = p @ p.transpose(0, 2, 1)
            weight = np.ones(len(y)) if blocks[0].weight is None else blocks[0].weight
            return at_label, products, weight

        logs, products, weight = (np.concatenate(part) for part in zip(*run_blocks(work, ranges), strict=True))
        at_label = np.exp(np.maximum(logs, np.log(SMALLEST_PROBABILITY)))
        made = LogLoss(at_label, weight) if scoring == "nll" else SquaredError(at_label, products, weight)
        return cls(made, at_label)


def kept_losses(given: Rows, outputs: list[Rows], weights: Array, scoring: str) -> Array:
    """Loss of each sample if outputs are summed with its weights and the predicted class of the scores is kept."""
    from mixnmatch.evaluation.scores import brier_rows, log_loss_rows

    used = [(output, weight) for output, weight in zip(outputs, weights.T, strict=True) if weight.any()]
    # Blocks leave out samples of weight 0, and ``weights`` are those of the others.
    counted = np.ones(given.n_rows, dtype=bool) if given.weight is None else given.weight > 0
    before = np.append(0, np.cumsum(counted))

    def work(start: int, stop: int) -> Array:
        block, own = given.block(start, stop), slice(before[start], before[stop])
        parts = (weight[own, None] * output.block(start, stop).probabilities() for output, weight in used)
        kept = keep_winner(block.winner, np.asarray(sum(parts), dtype=np.float64), logarithms=False)
        after = replace(block, values=kept, form="probabilities", off_simplex=False)
        return np.asarray(log_loss_rows(after, SMALLEST_PROBABILITY) if scoring == "nll" else brier_rows(after))

    return np.concatenate(list(run_blocks(work, row_ranges(given.n_rows, given.n_classes * 8 * len(used)))))


def _logs_at(block: Block, column: NDArray[np.intp]) -> Array:
    """Logarithm of the probability in some column of each row."""
    logs = block.log_probabilities()
    return np.asarray(logs[np.arange(len(logs)), column], dtype=np.float64)


def fitted_to_all(candidate: Candidate, whole: CrossFitter, fitter: CrossFitter) -> CalibrationMap:
    """A candidate fitted to all rows; its tail to outputs, for the rows that were chosen by, of maps blind to them."""
    first = whole.fitted(candidate.stages)
    if not candidate.tail:
        return first
    tail = fitter.after(candidate.stages).fitted(candidate.tail)
    return composed([first, tail], cv=fitter.n_folds, seed=fitter.seed)

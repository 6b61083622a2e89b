"""Trying candidates: cross-fitting fold by fold, with a race, a time budget and progress."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from mixnmatch._engine.errors import caller_level
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.steps import Progress as Progress
from mixnmatch._engine.steps import Steps as Steps
from mixnmatch.exceptions import CalibrationWarning
from mixnmatch.selection.candidates import Candidate, fallback_for
from mixnmatch.selection.crossfit import CrossFitter, HeldOut, cached
from mixnmatch.selection.stacking import Array, Difference

# After the first fold a candidate is dropped whose loss is above the least one by more than so many standard errors,
# if the fold has at least so many samples.
BEHIND, SAMPLES_TO_RACE = 3.0, 500
# Tails, weights and the final fits together take about as long as this many folds.
FINAL_FITS = 2.5


@dataclass
class Clock:
    """Seconds since a fit began, and whether more of them are left."""

    budget: float | None
    began: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self.began

    def allows(self, seconds: float) -> bool:
        """Whether so many more seconds are left."""
        return self.budget is None or self.seconds + seconds <= self.budget


class Trial:
    """Candidates fitted without each of the folds, cheap ones first; the identity is the first of them.

    Attributes
    ----------
    tried : list of Candidate
        Those that were fitted without every fold.
    behind, late : list of Candidate
        Those that lost the race after the first fold, and those that the time budget left no room for.
    seconds : dict
        Seconds that each took.
    """

    def __init__(self, fitter: CrossFitter, candidates: list[Candidate], clock: Clock, steps: Steps):
        self.fitter = fitter
        self.clock = clock
        self.steps = steps
        self.behind: list[Candidate] = []
        self.late: list[Candidate] = []
        self.seconds = dict.fromkeys(candidates, 0.0)
        if clock.budget is not None:
            fitter.load(dict.fromkeys(name for candidate in candidates for name in candidate.names))
        self.tried = self._with_tails(self._fold_by_fold(candidates))

    def outputs(self) -> list[Rows]:
        """The rows after each of the candidates, as fitted without the fold of each row."""
        places = [(self._place(candidate), candidate.tail or candidate.stages) for candidate in self.tried]
        return [cached(place.source.through(place.cross_fitted(stages))) for place, stages in places]

    def _place(self, candidate: Candidate) -> CrossFitter:
        return self.fitter.after(candidate.stages) if candidate.tail else self.fitter

    def _fold_by_fold(self, candidates: list[Candidate]) -> list[Candidate]:
        """Fit all but tails without one fold after another; tables of a fold are dropped when it is done."""
        alive = candidates
        for fold in range(self.fitter.n_folds):
            alive = self._fold(fold, alive)
            if fold == 0:
                alive = self._in_time(self._race(alive))
            self.fitter.forget(fold)
        return alive

    def _fold(self, fold: int, candidates: list[Candidate]) -> list[Candidate]:
        done: list[Candidate] = []
        for candidate in candidates:
            spent = sum(self.seconds.values())
            if fold == 0 and done and not self.clock.allows(spent * (self._rounds - 1)):
                self.late.append(candidate)
                continue
            with self._timing(candidate):
                self.fitter.fitted(candidate.stages, fold)
            self.steps(f"{candidate.name}, fold {fold + 1}")
            done.append(candidate)
        return done

    @property
    def _rounds(self) -> float:
        """How many times the work of one fold there is in all."""
        return self.fitter.n_folds + FINAL_FITS

    @contextmanager
    def _timing(self, candidate: Candidate) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[candidate] += time.perf_counter() - start

    def _race(self, candidates: list[Candidate]) -> list[Candidate]:
        """Those that are not behind the best by more than chance; what a tail may still make up for is not judged."""
        runners = [candidate for candidate in candidates if not candidate.tail]
        rows = self.fitter.held_out(0)
        if len(runners) < 2 or rows.total_weight() < SAMPLES_TO_RACE:
            return candidates
        held_out = HeldOut.of([rows.through(self.fitter.fitted(one.stages, 0)) for one in runners], "nll")
        losses: Array = -np.log(held_out.at_label)
        best = losses[:, int((held_out.weight @ losses).argmin())]
        for k, candidate in enumerate(runners[1:], start=1):
            lead = Difference.of(losses[:, k], best, held_out.weight)
            if lead.mean > BEHIND * lead.standard_error:
                self._drop(candidate, self.behind)
        return [candidate for candidate in candidates if candidate not in self.behind]

    def _in_time(self, candidates: list[Candidate]) -> list[Candidate]:
        """Drop the costliest until the rest should be done in time; the fallback remains if nothing else does."""
        kept = list(candidates)
        while len(kept) > 1 and not self.clock.allows(sum(self.seconds[one] for one in kept) * (self._rounds - 1)):
            costliest = max(kept[1:], key=lambda one: self.seconds[one])
            kept.remove(costliest)
            self._drop(costliest, self.late)
        if self.late and len(kept) == 1:
            fallback = fallback_for(self.fitter.source.n_classes)
            self.seconds.setdefault(fallback, 0.0)
            kept += self._fold(0, [fallback])
            self.late = [one for one in self.late if one != fallback]
        return kept

    def _drop(self, candidate: Candidate, where: list[Candidate]) -> None:
        where.append(candidate)
        self.steps(candidate.name, self.fitter.n_folds - 1)

    def _with_tails(self, candidates: list[Candidate]) -> list[Candidate]:
        """Fit the tails, on outputs for unseen rows; those for which no time is left are dropped."""
        tried = []
        for candidate in candidates:
            if candidate.tail and not self.clock.allows(0.0):
                self.late.append(candidate)
                continue
            if candidate.tail:
                with self._timing(candidate):
                    self._place(candidate).cross_fitted(candidate.tail)
                self.steps(candidate.name)
            tried.append(candidate)
        return tried


def all_steps(candidates: list[Candidate], n_folds: int) -> int:
    """Steps of a trial: every candidate in every fold, and every tail."""
    return len(candidates) * n_folds + sum(bool(candidate.tail) for candidate in candidates)


def warn_of_budget(budget: float | None, tried: list[Candidate], late: list[Candidate]) -> None:
    """Warn if a time budget left room for one map beside the identity, of several."""
    if late and len(tried) <= 2:
        msg = (
            f"auto: time_budget={budget:g} s left time for {tried[-1].name!r} only; a larger budget, or fewer samples, "
            "allows other candidates (dropped_ lists them)"
        )
        warnings.warn(msg, CalibrationWarning, stacklevel=caller_level())

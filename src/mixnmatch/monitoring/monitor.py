"""Monitoring a fitted map in production: one update a batch, an alarm with a lifetime guarantee, and advice."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.frames import check_aligned
from mixnmatch._engine.labels import read_labels
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import from_tensor, is_number
from mixnmatch._engine.shared import single_threaded_blas
from mixnmatch.maps.class_order import rows_for
from mixnmatch.maps.parameters import check_fitted_map
from mixnmatch.monitoring import advice, process
from mixnmatch.monitoring.alternatives import Alternatives, StepSums, log_alternative, log_probabilities, step_sums
from mixnmatch.monitoring.intervals import ClassOffset, class_offsets, start_level
from mixnmatch.monitoring.learning import Lessons
from mixnmatch.monitoring.result import MonitorResult, StepRecord

Floats = NDArray[np.float64]

# Steps that stay open for late labels; older ones are summed up.
OPEN_STEPS = 24
# Entries of the table of probabilities that are looked at together.
BLOCK_ENTRIES = 1 << 18
# Classes whose offsets are kept for every step.
WATCHED = 12


@dataclass(frozen=True)
class OpenStep:
    """A step that may still get samples: its bets, fixed when it was opened, and its sums so far."""

    key: str | int
    learned: Floats
    sums: StepSums


@dataclass(frozen=True)
class MonitorState:
    """All that a monitor remembers."""

    steps: tuple[OpenStep, ...]
    closed: int
    folded: Floats
    lessons: Lessons
    lifetime: StepSums
    history: tuple[StepRecord, ...]
    sources: tuple[str, ...]
    impossible: int
    peak: float
    alarm_step: str | int | None
    last: str | int | None

    @classmethod
    def empty(cls, n_classes: int) -> MonitorState:
        """Nothing seen yet."""
        folded = np.full(Alternatives(n_classes).size, -np.inf)
        lessons, lifetime = Lessons.empty(n_classes), StepSums.empty(n_classes)
        return cls((), 0, folded, lessons, lifetime, (), (), 0, 0.0, None, None)


class Monitor:
    r"""Monitor whether a fitted map is still calibrated, and advise what to do if not.

    The monitor bets against the map's probabilities, with the labels as they arrive. While the probabilities are
    calibrated, its wealth, the e-value, has expectation 1, and the probability that it ever reaches 1 / alpha is at
    most alpha, however long it runs and however often you look.

    Parameters
    ----------
    fitted : CalibrationMap
        The map in use. Scores given to :meth:`update` are those that ``fitted.predict_proba`` takes.
    alpha : float
        Largest probability of a false alarm in the whole lifetime of the monitor.

    Notes
    -----
    The bets are likelihood ratios (Henzi and Ziegel 2022; Arnold, Henzi and Ziegel 2023) of alternatives
    :math:`q_k \propto p_k^{1+u_k} e^{b_k}`, with offsets b and slopes 1 + u: fixed offsets for single classes, fixed
    slopes for all classes, and offsets, a slope, or both for all classes that were learned from earlier steps alone.
    They are averaged over the alternatives and over the step at which calibration was lost. The order of the samples
    within a step does not matter.

    What is assumed: samples of a step do not depend on each other given their scores, and *which* labels have arrived
    does not depend on what they say. If, say, defaults are known sooner than repayments, wait until a step is complete.

    References
    ----------
    Henzi and Ziegel (2022). Valid sequential inference on probability forecast performance. Biometrika 109.

    Arnold, Henzi and Ziegel (2023). Sequentially valid tests for forecast calibration. Annals of Applied Statistics 17.

    Examples
    --------
    >>> import numpy as np
    >>> from mixnmatch.maps import Identity
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.05, 0.6, size=4000)
    >>> monitor = Monitor(Identity().fit(p, rng.random(4000) < p))
    >>> monitor.update(p[:2000], rng.random(2000) < p[:2000]).alarm
    False
    >>> odds = 2 * p / (1 - p)
    >>> result = monitor.update(p, rng.random(4000) < odds / (1 + odds))
    >>> result.alarm, result.advice
    (True, 'adapt')
    """

    def __init__(self, fitted: Any, *, alpha: float = 0.05) -> None:
        check_fitted_map(fitted)
        if not is_number(alpha) or not 0 < alpha < 1:
            msg = f"alpha must be between 0 and 1, got {alpha!r}"
            raise ValueError(msg)
        self.fitted = fitted
        self.alpha = float(alpha)
        self._alternatives = Alternatives(int(fitted.n_classes_))
        self._state = MonitorState.empty(int(fitted.n_classes_))
        self._read_digest: str | None = None
        self._updating = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_updating"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _updating=threading.Lock())

    def update(
        self,
        scores: Any,
        labels: Any = None,
        *,
        step: str | int | None = None,
        source: str | None = None,
        sample_weight: None = None,
    ) -> MonitorResult:
        """Count a batch of samples whose labels have arrived.

        Threads may share a monitor: they wait for each other.

        Parameters
        ----------
        scores : array of shape (n, L) or (n,), data frame, or Rows
            Scores as the map takes them.
        labels : array of shape (n,)
            True classes. Rows bring their own.
        step : str or int, optional
            Time step of the samples. A new key opens a step, a known one adds to it: late labels are fine. By default
            every update is a step of its own. Labels for one of the last 24 steps count there; labels that are even
            later count in the oldest of these.
        source : str, optional
            Name or checksum of the batch. A batch that was counted before is refused, so that a job that is run again
            does not count it twice.
        sample_weight : None
            Not supported, since e-values of weighted samples are not valid. Repeat samples that occurred
            several times; weights that correct for sampling have no valid e-value.

        Raises
        ------
        ValueError
            If the batch cannot be used; nothing has changed then.
        """
        if sample_weight is not None or (isinstance(scores, Rows) and scores.weight is not None):
            msg = "a monitor takes no weights: repeat samples that occurred several times, and leave weights out"
            raise ValueError(msg)
        if step is not None and (isinstance(step, bool) or not isinstance(step, str | int | np.integer)):
            msg = f"step must be text or an integer, got {step!r}"
            raise ValueError(msg)
        if source is not None and not isinstance(source, str):
            msg = f"source must be text, got {source!r}"
            raise ValueError(msg)
        with self._updating:
            if source is not None and self.has_counted(source):
                msg = f"the batch {source!r:.80} was counted before"
                raise ValueError(msg)
            p, y = self._read(scores, labels)
            if not len(y):
                return self.result()
            key = self._new_key() if step is None else (int(step) if isinstance(step, np.integer) else step)
            possible = p[np.arange(len(y)), y] > 0
            with single_threaded_blas():
                state = self._opened(key)
                place = self._place(state, key)
                found, lessons = self._counted(p[possible], y[possible], state.steps[place].learned)
            lessons = lessons.aged(len(state.steps) - 1 - place)
            self._state = self._added(state, place, found, lessons, int((~possible).sum()), source)
            return self.result()

    def result(self) -> MonitorResult:
        """The result of all updates so far."""
        state = self._state
        alarm = state.peak >= -math.log(self.alpha)
        since, offsets = self._offsets(alarm)
        return MonitorResult(
            step=state.last,
            n_samples=state.lifetime.n + state.impossible,
            n_steps=len(state.history),
            log_e_value=self._log_e_value(state),
            p_value=math.exp(-max(state.peak, 0.0)),
            alarm=alarm,
            alarm_step=state.alarm_step,
            advice=self._advice() if alarm else advice.NOTHING,
            since=since,
            offsets=offsets,
            impossible=state.impossible,
            alpha=self.alpha,
        )

    def has_counted(self, source: str) -> bool:
        """Whether a batch of this name was counted."""
        return source in self._state.sources

    @property
    def history(self) -> tuple[StepRecord, ...]:
        """All steps, in the order in which they were opened."""
        return self._state.history

    def save(self, path: str | PathLike[str]) -> None:
        """Write the monitor to one JSON file, atomically; :meth:`load` reads it.

        Raises
        ------
        StateFileError
            If another process has written the file since this monitor was loaded from it or saved to it.
        """
        from mixnmatch.monitoring.state import save_monitor

        save_monitor(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str], fitted: Any) -> Monitor:
        """Read a monitor that :meth:`save` wrote.

        Parameters
        ----------
        path : path
            The file.
        fitted : CalibrationMap
            The map that is monitored. It must be the one that the file was made with.

        Raises
        ------
        StateFileError
            If the file cannot be used; the message says why.
        """
        from mixnmatch.monitoring.state import load_monitor

        return load_monitor(path, fitted)

    def _read(self, scores: Any, labels: Any) -> tuple[Floats, NDArray[np.intp]]:
        if isinstance(scores, Rows):
            given = rows_for(self.fitted, door.labelled(door.rows(scores, labels))).in_double()
            return self.fitted.predict_proba(given), np.asarray(given.labels, dtype=np.intp)
        check_aligned(scores, labels=labels)
        values = from_tensor(scores)
        if getattr(getattr(values, "dtype", None), "kind", "") == "f" and isinstance(values, np.ndarray):
            values = values.astype(np.float64, copy=False)  # so that small probabilities do not become 0
        if labels is None:
            msg = "labels: None given, but a monitor needs a label for each sample; without labels, see score_drift"
            raise TypeError(msg)
        p = np.asarray(self.fitted.predict_proba(values), dtype=np.float64)
        codes, _ = read_labels(labels, len(p), p.shape[1], self.fitted.classes_)
        return p, np.asarray(codes, dtype=np.intp)

    def _counted(self, p: Floats, y: NDArray[np.intp], learned: Floats) -> tuple[StepSums, Lessons]:
        """Sums over samples, block by block so that temporary arrays stay small."""
        n_classes = self._alternatives.n_classes
        sums, lessons = StepSums.empty(n_classes), Lessons.empty(n_classes)
        size = max(1, BLOCK_ENTRIES // n_classes)
        for start in range(0, len(p), size):
            part, labels = p[start : start + size], y[start : start + size]
            x = log_probabilities(part)
            log_q = [log_alternative(part, x, offsets, slopes) for offsets, slopes in learned]
            sums = sums + step_sums(part, x, labels, log_q)
            lessons = lessons + Lessons.of(x, labels, learned, log_q)
        return sums, lessons

    def _new_key(self) -> int:
        taken = {record.step for record in self._state.history}
        number = len(self._state.history) + 1
        while number in taken:
            number += 1
        return number

    def _opened(self, key: str | int) -> MonitorState:
        """The state in which a step is open, with bets that were learned from all steps before it."""
        state = self._state
        if any(record.step == key for record in state.history):
            return state
        if len(state.steps) == OPEN_STEPS:
            oldest = state.steps[0]
            folded = process.fold(oldest.sums.log_ratios, state.closed + 1, state.folded)
            state = replace(state, steps=state.steps[1:], closed=state.closed + 1, folded=folded)
        lessons = state.lessons.aged()
        opened = OpenStep(key, lessons.alternatives(), StepSums.empty(self._alternatives.n_classes))
        record = StepRecord(key, 0, 0.0, math.nan, math.nan)
        return replace(state, steps=(*state.steps, opened), lessons=lessons, history=(*state.history, record))

    def _place(self, state: MonitorState, key: str | int) -> int:
        """Which open step samples of a key count in: the oldest one for those that come very late."""
        return next((place for place, each in enumerate(state.steps) if each.key == key), 0)

    def _added(
        self,
        state: MonitorState,
        place: int,
        found: StepSums,
        lessons: Lessons,
        impossible: int,
        source: str | None,
    ) -> MonitorState:
        step = state.steps[place]
        step = replace(step, sums=step.sums + found)
        steps = (*state.steps[:place], step, *state.steps[place + 1 :])
        state = replace(
            state,
            steps=steps,
            lessons=state.lessons + lessons,
            lifetime=state.lifetime + found,
            sources=state.sources if source is None else (*state.sources, source),
            impossible=state.impossible + impossible,
            last=step.key,
        )
        return self._recorded(state, place)

    def _recorded(self, state: MonitorState, place: int) -> MonitorState:
        """The state with an update noted in the history: counts in their own step, the e-value in the last one."""
        log_e = self._log_e_value(state)
        reached = log_e >= -math.log(self.alpha) and state.alarm_step is None
        sums = state.steps[place].sums
        n, losses = max(sums.n, 1), sums.losses
        history = list(state.history)
        own = state.closed + place
        history[own] = replace(
            history[own],
            n_samples=sums.n,
            mean_log_loss=float(losses[0]) / n,
            expected_log_loss=float(losses[1]) / n,
        )
        watched = self._alternatives.n_classes <= WATCHED
        history[-1] = replace(history[-1], log_e_value=log_e, offsets=self._lifetime_offsets(state) if watched else ())
        return replace(
            state,
            history=tuple(history),
            peak=max(state.peak, log_e),
            alarm_step=history[-1].step if reached else state.alarm_step,
        )

    def _table(self, state: MonitorState) -> Floats:
        return process.by_start([step.sums.log_ratios for step in state.steps], state.closed, state.folded)

    def _log_e_value(self, state: MonitorState) -> float:
        if state.impossible:
            return math.inf
        return process.log_e_value(self._table(state), len(state.history), self._alternatives) if state.steps else 0.0

    def _change(self) -> tuple[int, StepSums]:
        """Place of the open step at which a change is likeliest, and the sums of all samples since."""
        state = self._state
        # A change in a closed step lies before all open ones, which then are all after it.
        place = max(process.likeliest_start(self._table(state), state.closed, self._alternatives) - 1, 0)
        total = StepSums.empty(self._alternatives.n_classes)
        for step in state.steps[place:]:
            total = total + step.sums
        return place, total

    def _offsets(self, alarm: bool) -> tuple[str | int | None, tuple[ClassOffset, ...]]:
        state = self._state
        names = np.asarray(self.fitted.classes_)
        if not alarm or not state.steps:
            first = state.history[0].step if state.history else None
            known = next((record.offsets for record in reversed(state.history) if record.step == state.last), ())
            return first, known or self._lifetime_offsets(state)
        place, sums = self._change()
        level = start_level(self.alpha, state.closed + place + 1)
        return state.steps[place].key, class_offsets(sums, names, level)

    def _lifetime_offsets(self, state: MonitorState) -> tuple[ClassOffset, ...]:
        names = np.asarray(self.fitted.classes_)
        return class_offsets(state.lifetime, names, start_level(self.alpha, 1))

    def _advice(self) -> str:
        if not self._state.steps:
            return advice.MODEL
        place, sums = self._change()
        if sums.n == 0:  # all that was seen is impossible
            return advice.MODEL
        ratios = np.stack([step.sums.log_ratios for step in self._state.steps[place:]])
        later = ratios[1:] if len(ratios) > 1 else ratios
        return advice.advise(later.sum(axis=0), self._alternatives, sums, float(ratios.sum(axis=0).max()))

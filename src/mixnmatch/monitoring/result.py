"""What a monitor says after an update."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from mixnmatch._engine.tabular import Record, Tabular
from mixnmatch._engine.text import significant
from mixnmatch.monitoring.advice import TEXTS
from mixnmatch.monitoring.intervals import ClassOffset

# Classes that are printed, those with the clearest offsets first.
SHOWN = 5


@dataclass(frozen=True)
class StepRecord:
    """A time step in the history of a monitor.

    Attributes
    ----------
    step : str or int
        Its name.
    n_samples : int
        Samples counted in it.
    log_e_value : float
        Logarithm of the e-value before the next step began.
    mean_log_loss, expected_log_loss : float
        Mean log loss of its samples, and its expectation if probabilities are calibrated.
    offsets : tuple of ClassOffset
        Offsets before the next step began, for up to twelve classes; empty for more.
    """

    step: str | int
    n_samples: int
    log_e_value: float
    mean_log_loss: float
    expected_log_loss: float
    offsets: tuple[ClassOffset, ...] = ()


@dataclass(frozen=True)
class MonitorResult(Tabular):
    """The state of a monitored map.

    Attributes
    ----------
    step : str or int or None
        Step that was updated last.
    n_samples, n_steps : int
        What was counted so far.
    log_e_value : float
        Logarithm of the e-value; infinity after an event of probability 0.
    p_value : float
        Smallest anytime-valid p-value so far: 1 over the largest e-value.
    alarm : bool
        Whether the e-value has reached 1 / alpha at any time. An alarm stays.
    alarm_step : str or int or None
        Newest step when it did so first.
    advice : {"nothing", "adapt", "refit", "model"}
        What to do; "model" means that the model itself has changed.
    since : str or int or None
        First step that ``offsets`` take into account: after an alarm, the likeliest step of the change.
    offsets : tuple of ClassOffset
        Offset of each class on the log-odds with a time-uniform interval; those of all classes hold together.
    impossible : int
        Samples whose label had probability 0. One is enough for an alarm.
    alpha : float
        Largest probability of an alarm in the whole lifetime while probabilities are calibrated.
    """

    step: str | int | None
    n_samples: int
    n_steps: int
    log_e_value: float
    p_value: float
    alarm: bool
    alarm_step: str | int | None
    advice: str
    since: str | int | None
    offsets: tuple[ClassOffset, ...]
    impossible: int
    alpha: float

    @property
    def e_value(self) -> float:
        """Evidence against calibration: its expectation is at most 1 while probabilities are calibrated."""
        return math.exp(self.log_e_value) if self.log_e_value < 709 else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: numbers that are not finite become None."""
        found = asdict(self) | {"e_value": self.e_value, "offsets": [asdict(offset) for offset in self.offsets]}
        return {name: _finite(value) for name, value in found.items()}

    def _records(self) -> list[Record]:
        return [{"class": each.name} | {k: v for k, v in asdict(each).items() if k != "name"} for each in self.offsets]

    def _texts(self) -> tuple[list[str], list[str]]:
        return [line for line in str(self).splitlines() if not line.startswith("  ")], []

    def __str__(self) -> str:
        size = f"{self.n_samples} samples in {self.n_steps} {'step' if self.n_steps == 1 else 'steps'}"
        state = "ALARM" if self.alarm else "No alarm"
        lines = [f"{state}: e-value {e_text(self.log_e_value)}, alarm at {1 / self.alpha:g} ({size})"]
        if self.impossible:
            lines.append(f"Labels that had probability 0: {self.impossible}")
        if self.alarm:
            lines.append(f"First alarm in step {self.alarm_step}. Likely change: step {self.since}.")
        lines.append(TEXTS[self.advice])
        lines += [f"  {offset_text(offset)}" for offset in clearest(self.offsets)[:SHOWN]]
        if len(self.offsets) > SHOWN:
            lines.append(f"  ... {len(self.offsets)} classes in all")
        return "\n".join(lines)


def clearest(offsets: tuple[ClassOffset, ...]) -> list[ClassOffset]:
    """Offsets, those whose intervals are furthest from 0 first."""
    return sorted(offsets, key=lambda each: -max(each.low, -each.high, -1e9 + abs(each.observed - each.expected)))


def offset_text(each: ClassOffset) -> str:
    """An offset in a line."""
    return (
        f"class {each.name}: offset {each.offset:+.3f} [{each.low:+.3f}, {each.high:+.3f}], "
        f"observed {each.observed:.4f}, expected {each.expected:.4f}"
    )


def e_text(log_e_value: float) -> str:
    """An e-value, however large."""
    if math.isinf(log_e_value):
        return "infinite" if log_e_value > 0 else "0"
    if log_e_value < 13:
        return significant(math.exp(log_e_value), 3)
    return f"10^{log_e_value / math.log(10):.1f}"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value

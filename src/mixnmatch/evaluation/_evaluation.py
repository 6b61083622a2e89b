"""What an evaluation found: results by name, before and after a map, and for subgroups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mixnmatch._engine.tabular import Record, Tabular, interval_columns
from mixnmatch._engine.text import between, significant, table
from mixnmatch.evaluation._means import MeanEstimate
from mixnmatch.evaluation.gain import CalibrationGain
from mixnmatch.evaluation.result import p_text

INFINITE_LOSS = "The log loss is infinite: a sample has probability 0 of its label."


@dataclass(frozen=True)
class Evaluation(Tabular, Mapping[str, Any]):
    """Metrics of one table of scores by name, each a float with its interval.

    Attributes
    ----------
    values : dict
        Results by name.
    n_samples, n_classes : int
        Samples and classes.
    positive : label or None
        Name of the positive class, for two classes.
    after : Evaluation or None
        The same metrics after a map, if one was given.
    gain : CalibrationGain or None
        Calibration gain of that map.
    groups : dict
        Evaluations of the subgroups, where the rows have some.
    """

    values_by_name: dict[str, Any]
    n_samples: int
    n_classes: int
    after: Evaluation | None = None
    gain: CalibrationGain | None = None
    groups: dict[Any, Evaluation] | None = None
    positive: Any = None

    def __getitem__(self, name: str) -> Any:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        made: dict[str, Any] = {name: value.to_dict() for name, value in self.items()}
        made |= {"n_samples": self.n_samples, "n_classes": self.n_classes, "positive": self.positive}
        if self.after is not None:
            made["after"] = self.after.to_dict()
        if self.gain is not None:
            made["calibration_gain"] = self.gain.to_dict()
        if self.groups:
            made["groups"] = {str(name): one.to_dict() for name, one in self.groups.items()}
        return made

    def _records(self) -> list[Record]:
        found: list[Record] = []
        for group, one in ((None, self), *(self.groups or {}).items()):
            named = {} if not self.groups else {"group": group}
            for name in one:
                numbers = interval_columns("value" if one.after is None else "before", one[name])
                after = {} if one.after is None else interval_columns("after", one.after[name])
                found.append({"metric": name, **named, **numbers, **after})
        return found

    def _texts(self) -> tuple[list[str], list[str]]:
        size = f"{self.n_samples} samples, {self.n_classes} classes{self._positive()}"
        return [size], [] if self.gain is None else str(self.gain).splitlines()

    def __str__(self) -> str:
        parts = [self._table()]
        parts += [f"\ngroup {group}, n = {one.n_samples}\n{one._table()}" for group, one in (self.groups or {}).items()]
        confidence = next((value.confidence for value in self.values() if value.interval is not None), None)
        brackets = "" if confidence is None else f" Brackets: {100 * confidence:g}% confidence intervals."
        sides = [self] if self.after is None else [self, self.after]
        notes = [INFINITE_LOSS] if any(math.isinf(side.get("log_loss", 0.0)) for side in sides) else []
        size = f"n = {self.n_samples}{self._positive()}.{brackets}"
        return "\n".join([*parts, *([""] if self.groups else []), *notes, size])

    def _positive(self) -> str:
        """Which class is the positive one, unless it is 1 as usual."""
        return "" if self.positive in (None, 1) else f", positive class {self.positive}"

    def _table(self) -> str:
        """A line for each metric, or two, before and after; below them the calibration gain."""
        rows = []
        for name in self:
            if self.after is None:
                rows.append([name, *_cells(self[name])])
            else:
                rows += [[name, "before", *_cells(self[name])], ["", "after", *_cells(self.after[name])]]
        return "\n".join([table(rows, left=4), *([] if self.gain is None else [str(self.gain)])])


def _cells(value: Any) -> tuple[str, str]:
    """A value with its interval, and the p-value of its test, if it has one."""
    tested = not isinstance(value, MeanEstimate) and value.p_value is not None
    return f"{significant(value)} {between(value.interval)}".rstrip(), p_text(value.p_value) if tested else ""

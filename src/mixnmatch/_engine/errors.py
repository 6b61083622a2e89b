"""Input errors and warnings as templates, so that Python and the command line name their own options.

A message is a constant template and fields. Where it names an option, it has a placeholder, which is ``logits=True`` in
Python and ``--logits`` on the command line.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

# What a placeholder is in Python; the command line has a table of the same keys.
PYTHON = {
    "all": 'methods="all"',
    "calibration": "calibration=(scores, y)",
    "classes": "classes=[...]",
    "columns": "columns=[...]",
    "columns_option": "columns",
    "declare_logits": "pass logits=True",
    "force": "force=True",
    "importance": 'weights="importance" to the map or the metric',
    "label_column": "label_column=...",
    "label_column_option": "label_column",
    "labels": "labels=...",
    "list_methods": "mixnmatch.calibrators() lists the methods",
    "labels_option": "labels",
    "logits": "logits=True",
    "name_vector": 'Pass pd.Series(scores, name="...") with the name of the class, or a column for each class',
    "probs": "logits=False",
    "say_positive": "pass mixnmatch.rows(scores, y, positive=...) in place of scores and labels",
    "sample_weight": "sample_weight",
    "weights": "weights=...",
}


class _Message:
    """A template and its fields."""

    template: str
    fields: dict[str, Any]

    def __init__(self, template: str, **fields: Any):
        self.template, self.fields = template, fields
        super().__init__(self.text(PYTHON))  # type: ignore[call-arg]

    def text(self, options: Mapping[str, str]) -> str:
        """Return the message with the option names of a surface (Python or the command line)."""
        return self.template.format(**{**options, **self.fields})

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.template, self.fields)


def _again(kind: type[_Message], template: str, fields: dict[str, Any]) -> _Message:
    return kind(template, **fields)


class InputError(_Message, ValueError):
    """Input that cannot be used."""


class InputWarning(_Message, UserWarning):
    """Input that can be used, but is probably not what was meant."""


def caller_level() -> int:
    """``stacklevel`` of a warning that points at the line of the user's code which called the library."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "mixnmatch":
        frame, level = frame.f_back, level + 1
    return level

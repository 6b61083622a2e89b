"""What a fitted map has learned, in a few lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from mixnmatch._engine.text import significant
from mixnmatch.selection.verdict import SCORES

# Arrays up to this size are shown number by number.
FEW = 6
_HIDDEN = ("backend_", "loss_", "bound_", "probability_floor_", "mixing_")


def describe(fitted: Any) -> list[tuple[str, str]]:
    """Pairs of a name and a value."""
    if hasattr(fitted, "first_") and hasattr(fitted, "second_"):
        first = [(f"first, {name}", value) for name, value in describe(fitted.first_)]
        return first + [(f"then, {name}", value) for name, value in describe(fitted.second_)]
    if hasattr(fitted, "map_"):
        return describe(fitted.map_)
    if hasattr(fitted, "candidates_"):
        return _stack(fitted)
    return [*_temperature(fitted), *_weights(fitted), *_knots(fitted)] or _attributes(fitted)


def _stack(fitted: Any) -> list[tuple[str, str]]:
    """The members of a stack, the heaviest first, and how it did on rows that they had not seen."""
    order = np.argsort(-fitted.candidate_weights_, kind="stable")
    used = [k for k in order if fitted.candidate_weights_[k] > 0]
    members = [(fitted.candidates_[k], f"weight {fitted.candidate_weights_[k]:.3f}") for k in used]
    spread = f"standard error {significant(fitted.gain_error_, 2)}"
    held_out = f"{SCORES[fitted.scoring]} lower by {significant(fitted.gain_)} ({spread})"
    return [*members, ("on held-out rows", held_out)]


def _temperature(fitted: Any) -> list[tuple[str, str]]:
    if not hasattr(fitted, "temperature_"):
        return []
    notes = {
        "separable": " (every label already has the largest score: no temperature is the best)",
        "uniform": " (the scores say nothing about the labels)",
    }
    note = notes.get(getattr(fitted, "bound_", None) or "", "")
    return [("temperature", f"{significant(fitted.temperature_)}{note or _direction(fitted.temperature_)}")]


def _direction(temperature: float) -> str:
    if abs(temperature - 1) < 0.005:
        return " (about 1: as confident as it should be)"
    return f" (the model was {'over' if temperature > 1 else 'under'}confident)"


def _weights(fitted: Any) -> list[tuple[str, str]]:
    weights = getattr(fitted, "member_weights_", None)
    if weights is None or np.size(weights) != 3:
        return []
    first, second, third = (f"{weight:.3f}" for weight in weights)
    return [("weights", f"{first} calibrated, {second} as given, {third} uniform")]


def _knots(fitted: Any) -> list[tuple[str, str]]:
    offsets = getattr(fitted, "offsets_", None)
    if offsets is None:
        return []
    pieces = np.diff(np.asarray(offsets))
    if len(pieces) == 1:
        return [("function", f"piecewise linear, {int(pieces[0])} knots")]
    return [
        ("functions", f"{len(pieces)} piecewise linear ones, {int(pieces.min())} to {int(pieces.max())} knots each")
    ]


def _attributes(fitted: Any) -> list[tuple[str, str]]:
    lines = []
    for name in getattr(fitted, "_fitted", ()):
        value = getattr(fitted, name, None)
        if name in _HIDDEN or value is None or isinstance(value, str):
            continue
        title = name.rstrip("_").replace("_", " ")
        if isinstance(value, float | int):
            lines.append((title, significant(value)))
        elif isinstance(value, np.ndarray) and value.dtype.kind in "fi":
            lines.append((title, _array(value)))
    return lines or [("parameters", "none")]


def _array(value: Any) -> str:
    if value.size <= FEW:
        return ", ".join(significant(item) for item in value.ravel())
    shape = " x ".join(str(size) for size in value.shape)
    return f"{shape} numbers, {significant(value.min())} to {significant(value.max())}"

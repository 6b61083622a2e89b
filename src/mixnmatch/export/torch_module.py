"""Maps as PyTorch modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mixnmatch._engine.scores import ROUNDING
from mixnmatch.export.graph import INTEGER, Step
from mixnmatch.export.lowering import NUDGE, lowered
from mixnmatch.maps.base import CalibrationMap

try:
    import torch
    from torch import nn
except ModuleNotFoundError as error:
    msg = "to_torch needs the package torch: install mixnmatch[torch]"
    raise ModuleNotFoundError(msg, name="torch") from error

_TYPES = {"double": torch.float64, "single": torch.float32}


def _maximum(a: Any, b: Any) -> Any:
    return torch.maximum(a, b) if isinstance(b, torch.Tensor) else torch.clamp(a, min=b)


def _minimum(a: Any, b: Any) -> Any:
    return torch.minimum(a, b) if isinstance(b, torch.Tensor) else torch.clamp(a, max=b)


# Steps that need nothing but their inputs.
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "negative": lambda a: -a,
    "maximum": _maximum,
    "minimum": _minimum,
    "exp": torch.exp,
    "log": torch.log,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "floor": torch.floor,
    "where": torch.where,
    "less_equal": lambda a, b: a <= b,
    "equal": lambda a, b: a == b,
    "gather": torch.take,
    "matmul": lambda a, b: a @ b,
    "max": lambda a: a.amax(dim=-1, keepdim=True),
    "min": lambda a: a.amin(dim=-1, keepdim=True),
    "sum": lambda a: a.sum(dim=-1, keepdim=True),
    "falling": lambda a: a.sort(dim=-1, descending=True).values,
    "running_sum": lambda a: a.cumsum(dim=-1),
    "argmax": lambda a: a.argmax(dim=-1, keepdim=True),
    "join": lambda a, b: torch.cat([a, b], dim=-1),
    "full_like": torch.full_like,
    "index": lambda a: a.long(),
}


class CalibrationModule(nn.Module):  # type: ignore[misc]
    """A fitted map as a module: from scores (n, L), or (n,) for the positive class, to probabilities (n, L).

    The numbers of the map are buffers: they move with ``.to(device)`` and are in ``state_dict``. They keep their
    precision when the module is cast (``.half()`` of a network that it is part of), because a map rounded to 16 bits
    is another map; the output has the type of the input. Gradients flow through to the scores.

    Parameters
    ----------
    fitted : CalibrationMap
        The map.
    precision : {"double", "single"}
        Precision of the numbers inside. Single is for devices without double precision.
    """

    def __init__(self, fitted: CalibrationMap, *, precision: str = "double"):
        super().__init__()
        graph = lowered(fitted, precision=precision)
        self.expression = " ".join(repr(fitted).split())
        self.logits = fitted.takes_logits
        self.n_classes = int(fitted.n_classes_)
        self._real = _TYPES[precision]
        self._steps = tuple(graph.steps)
        for name, array in graph.constants.items():
            kind = torch.int64 if array.dtype.kind == "i" else self._real
            self.register_buffer(name, torch.tensor(array, dtype=kind))

    def extra_repr(self) -> str:
        """What the map is."""
        return self.expression

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        def moved(tensor: Any) -> Any:
            made = fn(tensor)
            return made if made.dtype == tensor.dtype else tensor.to(made.device)

        return super()._apply(moved, recurse)

    def forward(self, scores: Any) -> Any:
        """Calibrated probabilities, in the type of the scores."""
        given = self._two_columns(scores) if scores.dim() == 1 else scores
        if given.dim() != 2 or given.shape[1] != self.n_classes:
            msg = f"scores must have shape (n, {self.n_classes}), got {tuple(scores.shape)}"
            raise ValueError(msg)
        # Numbers of 16 bits are read as Python reads them: masks of -1e9 need a wider range.
        given = given if given.dtype == torch.float64 else given.to(torch.float32)
        values: list[Any] = []
        for step in self._steps:
            values.append(self._run(step, values, given, scores.dtype))
        return values[-1]

    def _two_columns(self, positive: Any) -> Any:
        wide = positive.to(self._real)
        return torch.stack([torch.zeros_like(wide) if self.logits else 1 - wide, wide], dim=1)

    def _run(self, step: Step, values: list[Any], given: Any, kind: Any) -> Any:
        operation = step.operation
        if operation == "input":
            return given
        if operation == "constant":
            return getattr(self, step.detail)
        if operation == "tolerance":
            return ROUNDING["float64" if kind == torch.float64 else "float32"]
        if operation == "largest":
            return torch.finfo(given.dtype).max
        if operation == "spacing":
            return NUDGE * torch.finfo(kind).eps
        literal = int if step.kind == INTEGER else float
        inputs: list[Any] = [values[item] if isinstance(item, int) else literal(item) for item in step.inputs]
        if operation == "column":
            return inputs[0][:, step.detail : step.detail + 1]
        if operation == "real":
            return inputs[0].to(self._real)
        if operation == "output":
            return inputs[0].to(kind)
        return _OPERATIONS[operation](*inputs)

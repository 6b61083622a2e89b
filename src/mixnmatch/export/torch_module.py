"""Maps as PyTorch modules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
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
# Scores that are calibrated at a time where no gradient is needed: what a map writes on the way then fits a cache of a
# processor, or takes little of the memory of another device, whose calls cost more.
BLOCK_ENTRIES, DEVICE_BLOCK_ENTRIES = 1 << 17, 1 << 22
# PyTorch 2.2 does not tell; there, programs are compiled for batches that fit in a block.
_is_compiling = getattr(torch.compiler, "is_compiling", torch.jit.is_tracing)
# The steps of the map, beside its numbers, in the state of a module.
_STEPS = "_extra_state"


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
    """A fitted map as a module: from scores (..., L) to probabilities of the same shape.

    A vector, (n,), holds scores of the positive class of two and becomes (n, 2). A sample with NaN or infinity gets NaN
    for every class; a class with a logit of minus infinity gets 0.

    The numbers of the map are buffers: they move with ``.to(device)`` and are in ``state_dict``. They keep their
    precision when the module is cast (``.half()`` of a network that it is part of), because a map rounded to 16 bits
    is another map; the output has the type of the input. Gradients flow through to the scores. Where none are needed,
    scores are calibrated in blocks, so that little memory is needed beside the output.

    The state also holds the steps of the map. It loads into a module that was made of the same class of map, whatever
    samples that one was fitted on.

    Parameters
    ----------
    fitted : CalibrationMap
        The map.
    precision : {"double", "single"}
        Precision of the numbers inside. Single is for devices without double precision.
    dim : int
        Dimension of the classes: 1 for segmentation logits (B, L, H, W).
    """

    def __init__(self, fitted: CalibrationMap, *, precision: str = "double", dim: int = -1):
        super().__init__()
        graph = lowered(fitted, precision=precision)
        self.expression = " ".join(repr(fitted).split())
        self.logits = fitted.takes_logits
        self.n_classes = int(fitted.n_classes_)
        self.precision = precision
        self.dim = dim
        self._real = _TYPES[precision]
        self._take_steps(graph.steps)
        for name, array in graph.constants.items():
            kind = torch.int64 if array.dtype.kind == "i" else self._real
            self.register_buffer(name, torch.tensor(array, dtype=kind))
        self._make_own_forward()

    def _make_own_forward(self) -> None:
        """Give the module its own copy of ``forward``: compilers cache only a few programs for each function."""
        shared = type(self).forward
        own = FunctionType(shared.__code__.replace(), shared.__globals__, shared.__name__)
        own.__doc__ = shared.__doc__
        self.__dict__["forward"] = MethodType(own, self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "forward"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._make_own_forward()

    def _take_steps(self, steps: Sequence[Step]) -> None:
        """Store the steps, and after which step each result can be freed."""
        last = {item: number for number, step in enumerate(steps) for item in step.inputs if isinstance(item, int)}
        self._steps = tuple(steps)
        self._done = tuple(tuple(item for item in last if last[item] == number) for number in range(len(steps)))

    def extra_repr(self) -> str:
        """What the map is."""
        return self.expression

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        def moved(tensor: Any) -> Any:
            made = fn(tensor)
            return made if made.dtype == tensor.dtype else tensor.to(made.device)

        return super()._apply(moved, recurse)

    def forward(self, scores: Any) -> Any:
        """Calibrated probabilities, in the type of the scores; in double precision for whole numbers."""
        scores = scores if scores.is_floating_point() else scores.to(torch.float64)
        if scores.dim() == 1 and self.n_classes == 2:
            return self._in_blocks(self._two_columns(scores), scores.dtype)
        rank = scores.dim()
        if rank < 2 or not -rank <= self.dim < rank or scores.shape[self.dim] != self.n_classes:
            msg = (
                f"scores must have {self.n_classes} classes in dimension {self.dim} and at least one dimension of "
                f"samples, got shape {tuple(scores.shape)}"
            )
            raise ValueError(msg)
        rows = scores.movedim(self.dim, -1)
        made = self._in_blocks(rows.reshape(-1, self.n_classes), scores.dtype)
        return made.reshape(rows.shape).movedim(-1, self.dim)

    def _in_blocks(self, rows: Any, kind: Any) -> Any:
        """Calibrate n x L scores, in blocks unless gradients or tracing are active."""
        traced = _is_compiling() or torch.jit.is_tracing()
        if traced or (rows.requires_grad and torch.is_grad_enabled()):
            return self._calibrate(rows, kind)
        size = max(1, (BLOCK_ENTRIES if rows.device.type == "cpu" else DEVICE_BLOCK_ENTRIES) // self.n_classes)
        if len(rows) <= size:
            return self._calibrate(rows, kind)
        out = torch.empty(rows.shape, dtype=kind, device=rows.device)
        for start in range(0, len(rows), size):
            out[start : start + size] = self._calibrate(rows[start : start + size], kind)
        return out

    def _calibrate(self, rows: Any, kind: Any) -> Any:
        # Numbers of 16 bits are read as Python reads them: masks of -1e9 need a wider range.
        given = rows if rows.dtype == torch.float64 else rows.to(torch.float32)
        values: list[Any] = []
        for step, done in zip(self._steps, self._done, strict=True):
            values.append(self._run(step, values, given, kind))
            for item in done:
                values[item] = None
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

    def get_extra_state(self) -> Any:
        """Return the steps of the map and its description as a tensor of JSON bytes."""
        steps = [[step.operation, step.inputs, step.kind, step.detail] for step in self._steps]
        text = json.dumps({**self._description(), "expression": self.expression, "steps": steps})
        return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Any) -> None:
        """Do nothing: the state has been restored before its tensors were loaded."""

    def _description(self) -> dict[str, Any]:
        """Describe what two modules must share to exchange states."""
        return {
            "map": ".".join(re.findall(r"[A-Z]\w*(?=\()", self.expression)),
            "n_classes": self.n_classes,
            "logits": self.logits,
            "precision": self.precision,
        }

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        saved = state_dict.get(prefix + _STEPS)
        if saved is not None:
            told = json.loads(bytes(saved.cpu().tolist()))
            own = self._description()
            other = [f"{name} {told[name]!r}, not {own[name]!r}" for name in own if told[name] != own[name]]
            if other:
                error_msgs.append(f"the state is that of a calibration map with {', '.join(other)}")
                return
            steps = [Step(operation, tuple(inputs), kind, detail) for operation, inputs, kind, detail in told["steps"]]
            names = [step.detail for step in steps if step.operation == "constant"]
            missing = [prefix + name for name in names if prefix + name not in state_dict]
            if missing:
                missing_keys.extend(missing)
                return
            self._take_steps(steps)
            self.expression = told["expression"]
            self._resize({name: state_dict[prefix + name] for name in names})
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if saved is None and prefix + _STEPS in missing_keys:  # states of earlier versions hold numbers alone
            missing_keys.remove(prefix + _STEPS)

    def _resize(self, numbers: dict[str, Any]) -> None:
        """Make buffers of the names and shapes of other numbers, on the device of the present ones."""
        device = next((each.device for each in self.buffers()), None)
        for name in [name for name in self._buffers if name not in numbers]:
            del self._buffers[name]
        for name, other in numbers.items():
            own = self._buffers.get(name)
            if own is None or own.shape != other.shape:
                kind = other.dtype if other.dtype == torch.int64 else self._real
                self._buffers[name] = torch.empty(other.shape, dtype=kind, device=device)

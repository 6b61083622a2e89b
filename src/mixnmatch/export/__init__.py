"""Export of fitted maps to ONNX files and PyTorch modules: each map is lowered once, and every runtime reads that."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mixnmatch.export.graph import Graph, Tensor
from mixnmatch.export.lowering import lower, lowering
from mixnmatch.export.rows import GraphRows, Probabilities, Softmax

if TYPE_CHECKING:
    from mixnmatch.export.onnx_file import onnx_model
    from mixnmatch.export.torch_module import CalibrationModule

# What needs a package that may not be there.
_HOMES = {
    "CalibrationModule": "mixnmatch.export.torch_module",
    "onnx_model": "mixnmatch.export.onnx_file",
}

__all__ = [
    "CalibrationModule",
    "Graph",
    "GraphRows",
    "Probabilities",
    "Softmax",
    "Tensor",
    "lower",
    "lowering",
    "onnx_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module 'mixnmatch.export' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOMES[name]), name)

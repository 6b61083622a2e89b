"""Export of fitted maps to ONNX files and PyTorch modules."""

from mixnmatch.export.lowering import lower, lowered, lowering
from mixnmatch.export.rows import Probabilities, Rows, Softmax

__all__ = ["Probabilities", "Rows", "Softmax", "lower", "lowered", "lowering"]

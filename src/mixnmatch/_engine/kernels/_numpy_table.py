"""Blocks for the NumPy kernels of softmax maps: row maxima subtracted, transposed for few classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import row_maxima, row_sums

Block = NDArray[Any]
Labels = NDArray[np.intp]
Rows = NDArray[np.float64]

# Up to so many classes a block is worked on lying on its side: NumPy reduces long rows fast and short ones slowly.
SIDEWAYS = 48


class Table:
    """A block with row maxima subtracted, as given or transposed, and reductions over classes."""

    def __init__(self, values: Block, classes: int):
        self.values = values
        self.classes = classes  # axis of the classes

    @classmethod
    def of(cls, x: Block, out: Block | None = None) -> Table:
        """Prepare a block; one that is not transposed is stored in ``out`` if its type fits."""
        if x.shape[1] <= SIDEWAYS:
            lying = np.array(x.T, order="C")
            lying -= lying.max(axis=0)
            return cls(lying, 0)
        scratch = out if out is not None and out.dtype == x.dtype else None
        return cls(np.subtract(x, row_maxima(x)[:, None], out=scratch), 1)

    def sum(self, values: Block) -> Block:
        return row_sums(values)[:, None] if self.classes else values.sum(axis=0, keepdims=True)

    def max(self, values: Block) -> Block:
        return row_maxima(values)[:, None] if self.classes else values.max(axis=0, keepdims=True)

    def dot(self, a: Block, b: Block) -> Rows:
        return np.asarray(np.einsum("ij,ij->i" if self.classes else "ij,ij->j", a, b), dtype=np.float64)

    def at(self, values: Block, y: Labels) -> Rows:
        rows = np.arange(len(y))
        return (values[rows, y] if self.classes else values[y, rows]).astype(np.float64)

    def spread(self, rows: Rows) -> Block:
        spread = rows[:, None] if self.classes else rows[None, :]
        return spread.astype(self.values.dtype)

    def along(self, numbers: Block) -> Block:
        """Return one number for each class in a shape that broadcasts with the values."""
        return numbers if self.classes else numbers[:, None]

    def lying(self, out: Block) -> Block:
        """Return an output block in the orientation of the values."""
        return out if self.classes else out.T

    def softmax(self, beta: float) -> Block:
        p: Block = np.exp(self.values * self.values.dtype.type(beta))
        p /= self.sum(p)
        return p

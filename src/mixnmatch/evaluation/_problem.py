"""From scores and labels to confidences and outcomes: of the top label, of the positive class, or of one class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mixnmatch._engine.block import Block
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.suggestions import did_you_mean
from mixnmatch.evaluation.notion import (
    Outcomes,
    default_notion,
    one_class_rows,
    one_column,
    top_label,
    top_label_rows,
)

NOTIONS = ("top-label", "binary", "class-wise")


@dataclass(frozen=True)
class Problem:
    """Which confidences are looked at: ``column`` is that of one class, or None for the top label."""

    notion: str
    column: int | None
    text: str

    def of_block(self, block: Block) -> Outcomes:
        """Confidences and outcomes of a block of rows."""
        found = top_label_rows(block) if self.column is None else one_class_rows(block, self.column)
        return Outcomes(*found, block.weight)

    def outcomes(self, source: Rows) -> Outcomes:
        """Confidences and outcomes of all rows of a source."""
        labels, weight = source.labels, source.weight
        assert labels is not None
        if self.column is None:
            return top_label(source.scores, labels, weight)
        return one_column(source.scores, labels, self.column, weight)


def choose_problem(source: Rows, notion: str | None, label: Any) -> Problem:
    """Which problem ``notion`` and ``label`` mean.

    With neither, two classes stand for the positive one and more for the top label; a label alone stands for that
    class.
    """
    if notion is None:
        notion = "class-wise" if label is not None else default_notion(source.n_classes)
    if notion not in NOTIONS:
        msg = f"notion must be one of {', '.join(NOTIONS)}, got {notion!r}{did_you_mean(notion, NOTIONS)}"
        raise ValueError(msg)
    if (notion == "class-wise") != (label is not None):
        msg = 'name the class with label=... together with notion="class-wise", and only then'
        raise ValueError(msg)
    if notion == "top-label":
        return Problem(notion, None, "the top label")
    names = np.arange(source.n_classes) if source.classes is None else source.classes
    if notion == "binary":
        if source.n_classes != 2:
            msg = (
                f'the notion "binary" is for two classes, the scores have {source.n_classes}; '
                "use the top label, or name a class with label=..."
            )
            raise ValueError(msg)
        return Problem(notion, 1, f"class {names[1]}")
    found = np.flatnonzero(names == label) if np.ndim(label) == 0 else np.empty(0, np.intp)
    if not found.size:
        msg = f"label {label!r} is not one of the classes {names.tolist()!r:.200}"
        raise ValueError(msg)
    return Problem(notion, int(found[0]), f"class {names[found[0]]}")

"""The paper's two measures on learning curves: how far a method gets, and how many rows it needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Needed", "needed"]


@dataclass(frozen=True)
class Needed:
    """Rows that reach an error; ``sign`` says if that is a bound only."""

    rows: float
    sign: str = ""


def needed(sizes: Sequence[int], errors: Sequence[float], level: float) -> Needed:
    """Calibration rows at which a learning curve first falls to ``level``.

    Between two sizes the curve is a straight line in the logarithm of the size.

    Examples
    --------
    >>> needed([100, 400], [0.04, 0.02], 0.03).rows
    200.0
    >>> needed([100, 400], [0.04, 0.02], 0.01), needed([100, 400], [0.04, 0.02], 0.05)
    (Needed(rows=400, sign='>'), Needed(rows=100, sign='≤'))
    """
    if errors[0] == level:
        return Needed(sizes[0])
    if errors[0] < level:
        return Needed(sizes[0], "≤")
    for k in range(1, len(sizes)):
        if errors[k] <= level:
            share = (errors[k - 1] - level) / (errors[k - 1] - errors[k])
            low, high = math.log(sizes[k - 1]), math.log(sizes[k])
            return Needed(round(math.exp(low + share * (high - low)), 9))
    return Needed(sizes[-1], ">")

"""Binary maps that are piecewise linear functions of the score: what isotonic regression and binning have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.kernels.lookup import Piecewise
from mixnmatch.maps.base import BinaryMap
from mixnmatch.maps.columns import SCALES, Columns, sorted_by
from mixnmatch.maps.fitted import ROUNDING, SLACK, check_range, require
from mixnmatch.maps.smoothing import check_smoothing, mix_with_uniform


class PiecewiseMap(BinaryMap):
    """A binary map made of one :class:`Piecewise` function for each problem.

    Subclasses implement ``_functions(columns)``. Functions of all problems are stored end to end: those of problem k
    are at ``offsets_[k]`` to ``offsets_[k + 1]``. They are functions of the probability or, for two classes and logits,
    of the log-odds brought to [0, 1] (``scale_``, :func:`mixnmatch.maps.columns.squashed`). ``smoothing`` acts where
    the map is used alone; combinators have their own.
    """

    _fitted_by_blas = False

    _smoothed_outside: ClassVar[bool] = True
    _fitted: ClassVar[tuple[str, ...]] = ("knots_", "values_", "slopes_", "left_", "offsets_", "scale_")
    _fitted_later: ClassVar[dict[str, Any]] = {"scale_": "probability"}

    knots_: NDArray[np.float64]
    values_: NDArray[np.float64]
    slopes_: NDArray[np.float64]
    left_: NDArray[np.float64]
    offsets_: NDArray[np.int64]
    scale_: str

    smoothing: float

    def _check_params(self) -> None:
        check_smoothing(self.smoothing)

    def _proba(self, block: Block) -> NDArray[Any]:
        return mix_with_uniform(super()._proba(block), min(1.0, self.smoothing / (self.total_weight_ + 1)))

    @property
    def _n_problems(self) -> int:
        """Number of binary problems that the map was fitted to."""
        return len(self.left_)

    def _check_fitted(self) -> None:
        require(self.scale_ in SCALES, self, "scale_", f"is none of {SCALES}")
        for name in set(self._fitted) - {"scale_"}:
            require(getattr(self, name).ndim == 1, self, name, "is not a vector")
        require(
            self.offsets_.dtype.kind == "i" and len(self.offsets_) > 1, self, "offsets_", "is not made of positions"
        )
        sizes = {len(self.knots_), len(self.values_), len(self.slopes_), int(self.offsets_[-1])}
        starts = self.offsets_[:-1]
        fits = len(sizes) == 1 and self.offsets_[0] == 0 and len(self.left_) == len(starts)
        fits = fits and (np.diff(self.offsets_) > 0).all()
        # The knots that another one of the same function precedes.
        is_inner = np.ones(len(self.knots_), dtype=bool)
        is_inner[starts if fits else ()] = False
        inner = np.flatnonzero(is_inner)
        if not (fits and (self.knots_[inner] >= self.knots_[inner - 1]).all()):
            msg = "the pieces of a function do not fit together"
            raise ValueError(msg)
        for name in ("knots_", "values_", "left_"):
            check_range(self, name, 0.0, 1.0 + SLACK)
        # A piece ends where the next one starts, or at 1.
        ends = np.append(self.knots_[1:], 1.0)
        ends[self.offsets_[1:] - 1] = 1.0
        reached = self.values_ + self.slopes_ * (ends - self.knots_)
        inside = (reached >= -SLACK).all() and (reached <= 1 + SLACK).all()
        require(inside, self, "slopes_", "leads out of [0, 1]")
        if self.strictly_increasing:
            falls = (self.slopes_ < 0).any() or (self.values_[inner] < reached[inner - 1] - ROUNDING).any()
            falls = falls or (self.values_[starts] < self.left_ - ROUNDING).any()
            require(not falls, self, "values_", "decreases where it must increase")

    def _functions(self, columns: Columns) -> Iterable[Piecewise]:
        raise NotImplementedError(type(self).__name__)

    def _fit_columns(self, columns: Columns) -> dict[str, Any]:
        return join_functions(self._functions(columns)) | {"scale_": columns.scale}

    def functions(self) -> list[Piecewise]:
        """The learned functions, one for each problem."""
        return self._once(self.knots_, self._separated)

    def _separated(self) -> list[Piecewise]:
        spans = zip(self.offsets_[:-1], self.offsets_[1:], self.left_, strict=True)
        return [Piecewise(self.knots_[a:b], self.values_[a:b], self.slopes_[a:b], float(left)) for a, b, left in spans]

    def _transform_columns(self, block: Block, scheme: str) -> NDArray[np.float64]:
        scores = sorted_by(block, scheme, self.scale_)
        out = np.empty(scores.shape)
        functions = self.functions()
        if len(functions) == 1:
            block.kernels.interpolate_into(np.ascontiguousarray(scores), functions[0], out)
        else:
            arrays = (self.knots_, self.values_, self.slopes_, self.left_, self.offsets_)
            block.kernels.interpolate_columns_into(scores, *arrays, out)
        return out


def join_functions(functions: Iterable[Piecewise]) -> dict[str, Any]:
    """The functions of all problems as fitted attributes, stored end to end as they come: none is kept beside them."""
    knots, values, left, offsets, slopes = np.empty(0), np.empty(0), [], [0], {}
    for function in functions:
        start, stop = offsets[-1], offsets[-1] + len(function.knots)
        for joined, part in ((knots, function.knots), (values, function.values)):
            joined.resize(stop, refcheck=False)  # the system moves large arrays without a copy
            joined[start:] = part
        if not function.steps:
            slopes[start, stop] = function.slopes
        left.append(function.left)
        offsets.append(stop)
    fitted = {"knots_": knots, "values_": values, "slopes_": np.zeros(offsets[-1])}  # untouched zeros take no memory
    for (start, stop), part in slopes.items():
        fitted["slopes_"][start:stop] = part
    return fitted | {"left_": np.array(left), "offsets_": np.array(offsets)}

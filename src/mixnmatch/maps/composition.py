"""Composition: one map after another, each fitted on the output of the one before."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch._engine.folds import check_folds
from mixnmatch._engine.rows import Rows
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.external import InputOfPart, calibration_map
from mixnmatch.maps.parameters import clone


class Composition(InputOfPart):
    """First one map, then another: ``first >> second``.

    The second map is fitted on the outputs of the first for the same calibration set. That is harmless if the first
    map has few parameters. A map with many parameters, such as structured matrix scaling, overfits; then use ``cv``,
    which fits the second map on out-of-fold outputs of the first.

    Parameters
    ----------
    first, second : maps
        Any maps, or objects with fit and predict_proba. The settings ``logits``, ``classes`` and ``weights`` are those
        of ``first``.
    cv : int, optional
        Number of folds for cross-fitting the outputs of the first map. The fold of a sample is a hash of its index.
    random_state : int
        Seed of that hash.

    Examples
    --------
    >>> from mixnmatch import Isotonic, OneVsAll, TemperatureScaling
    >>> TemperatureScaling() >> OneVsAll(Isotonic())
    Composition(first=TemperatureScaling(), second=OneVsAll(map=Isotonic()))
    """

    _fitted: ClassVar[tuple[str, ...]] = ("first_", "second_")
    _first_part = "first"

    first_: CalibrationMap
    second_: CalibrationMap

    def __init__(self, first: Any, second: Any, *, cv: int | None = None, random_state: int = 0):
        self.first = first
        self.second = second
        self.cv = cv
        self.random_state = random_state

    @classmethod
    def of_fitted(
        cls, first: CalibrationMap, second: CalibrationMap, *, cv: int | None = None, random_state: int = 0
    ) -> Self:
        """Two fitted maps, one after the other, as one fitted map."""
        composition = cls(clone(first), clone(second), cv=cv, random_state=random_state)
        return composition._with_fitted({"first_": first, "second_": second, **first._calibration_set()})

    @property
    def accuracy_preserving(self) -> bool:  # type: ignore[override]
        """Whether both maps preserve accuracy."""
        return all(getattr(part, "accuracy_preserving", False) for part in (self.first, self.second))

    @property
    def injective(self) -> bool:  # type: ignore[override]
        """Whether both maps are injective."""
        parts = (getattr(self, "first_", self.first), getattr(self, "second_", self.second))
        return all(getattr(part, "injective", False) for part in parts)

    def _check_params(self) -> None:
        if self.cv is not None:
            check_folds(self.cv)

    def _check_fitted(self) -> None:
        if not self.first_.n_classes_ == self.second_.n_classes_ == self.n_classes_:
            msg = "the maps of a composition have different numbers of classes"
            raise ValueError(msg)

    def _fit(self, source: Rows) -> dict[str, Any]:
        # The second map may have steps: what it sees must not depend on who computed the first one, to the last bit.
        source = source.in_double()
        first = calibration_map(clone(self.first))._fit_source(source)
        seen = source.through(first if self.cv is None else self._cross_fitted(source, first))
        second = calibration_map(clone(self.second))._fit_source(seen)
        return {"first_": first, "second_": second}

    def _cross_fitted(self, source: Rows, whole: CalibrationMap) -> CrossFitted:
        """Copies of the first map that each miss a fold; the one of all rows where a fold is all there is."""
        assert self.cv is not None
        rest = [source.fold(k, self.cv, keep=False, seed=self.random_state) for k in range(self.cv)]
        maps = [
            calibration_map(clone(self.first))._fit_source(part) if part.total_weight() > 0 else whole for part in rest
        ]
        return CrossFitted(maps, self.random_state)

    def _log_proba(self, block: Block) -> NDArray[np.float64]:
        return self.second_._log_proba(block.after(self.first_))

    def _proba(self, block: Block) -> NDArray[Any]:
        return self.second_._proba(block.after(self.first_))


class CrossFitted(CalibrationMap):
    """Out-of-fold outputs of a map on the rows that it is fitted on: each row from the copy that has not seen it.

    Parameters
    ----------
    maps : list of fitted maps
        The k-th was fitted on all rows but those of fold k.
    seed : int
        Seed of the hash that says which fold a row is in.
    """

    def __init__(self, maps: list[CalibrationMap], seed: int):
        self.maps = maps
        self.seed = seed

    @property
    def accuracy_preserving(self) -> bool:  # type: ignore[override]
        """Whether all copies preserve accuracy."""
        return all(fitted.accuracy_preserving for fitted in self.maps)

    def _log_proba(self, block: Block) -> NDArray[np.float64]:
        fold = block.folds(len(self.maps), self.seed)
        out = np.empty(block.values.shape)
        for k, fitted in enumerate(self.maps):
            rows = fold == k
            if rows.any():
                out[rows] = fitted._log_proba(block.rows(rows))
        return out

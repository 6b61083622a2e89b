"""What every calibration map is: an estimator that is fitted on a row source and applied block by block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.along_rows import two_columns
from mixnmatch._engine.block import Block, plain_block
from mixnmatch._engine.dask import is_dask, map_chunks
from mixnmatch._engine.fitting import fitting
from mixnmatch._engine.kernels import choose_backend
from mixnmatch._engine.passes import asked_backend, asked_block_bytes, available_threads, row_ranges, run_blocks
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import read_scores, shape_scores
from mixnmatch._engine.shared import single_threaded_blas
from mixnmatch.maps._base_rate import warn_of_base_rate, warn_of_one_class, warn_of_reversed_scores
from mixnmatch.maps.fitted_methods import FittedMethods
from mixnmatch.maps.parameters import Parameters, check_is_fitted, clone
from mixnmatch.maps.summary import CalibrationSummary, summarise

if TYPE_CHECKING:
    from mixnmatch.maps.composition import Composition

T = TypeVar("T")

# Bytes of scores in a block that a map is applied to, by kernels; a map that is one call of a kernel takes larger ones.
APPLIED_BYTES = {"numpy": 1 << 20, "compiled": 1 << 20}
ONE_KERNEL_BYTES = APPLIED_BYTES | {"compiled": 1 << 21}
# Rows in such a block at most: what is worked out in float64 beside short rows takes more memory than they do.
APPLIED_ROWS = 1 << 16
# For the last pass of a fit of maps that work in float64 beside the block, and are fitted with little memory.
SMALL_SUMMARY = 1 << 16, 1 << 18
# Tables up to this size are one block, and nothing but their numbers has to be looked at.
SMALL_BYTES = 1 << 18
# Blocks that a small table is cut into at most. Products of matrices are rounded differently in other blocks: with
# them, the number of threads must not decide.
MOST_PARTS, PARTS_WITH_PRODUCTS = 4, 2
# OpenBLAS uses one thread for products of matrices with no more multiplications than this. Tables for which a few of
# them suffice, of not too few rows each, need no limit on its threads, which takes time to set.
BLAS_ALONE, FEW_BLOCKS, LEAST_ALONE = 1 << 18, 8, 256
# No product has more for each sample, other than that of L x L entries for L classes.
SMALL_PRODUCT = 1 << 10


def applied_bytes(n_rows: int, row_bytes: int, most: int, parts: int) -> int:
    """Bytes in a block that a map is applied to, so many of which make up a small table."""
    rows = -(-n_rows // parts)
    return min(max(rows * row_bytes, SMALL_BYTES), most)


class CalibrationMap(FittedMethods, Parameters):
    """Base of all calibration maps: from scores to calibrated probabilities.

    A map has three flags. ``accuracy_preserving``: the predicted class of a sample never changes, even in floating
    point. ``injective``: different scores give different probabilities, so the calibration gain is exact and not only
    a lower bound. ``strictly_increasing``, for binary maps: the function of the positive class increases strictly.

    Subclasses implement ``_fit(source)``, which returns the fitted attributes and sets nothing, and one of
    ``_log_proba(block)`` and ``_proba(block)``.
    """

    accuracy_preserving: bool = False
    injective: bool = False
    strictly_increasing: bool = False

    # Attributes that make up a fitted map, in the order in which they are saved.
    _fitted: ClassVar[tuple[str, ...]] = ()

    # Those among them that may be NaN: what was measured at the fit, which predictions do not depend on.
    _unknown: ClassVar[frozenset[str]] = frozenset({"loss_"})

    # Values of attributes that files of older versions do not have.
    _fitted_later: ClassVar[dict[str, Any]] = {}

    # Rows of a block that the map is applied to, at the least.
    _least_rows: ClassVar[int] = 1

    # Whether the kernel that applies the map to logits also keeps the winners.
    _kernel_keeps_winners: ClassVar[bool] = False

    # Whether the smoothing parameter of a binary map is left to the combinator around it.
    _smoothed_outside: ClassVar[bool] = False

    # Whether the map is learned with products of matrices: BLAS has threads of its own, which compete with ours. Maps
    # inside others speak for themselves.
    _fitted_by_blas: ClassVar[bool] = True

    # Whether calibrated probabilities are meant to have the class frequencies of the calibration set as their mean.
    _follows_base_rate: ClassVar[bool] = True

    # Bytes of scores in such a block: applying a map writes less beside it than learning does.
    _block_bytes: ClassVar[dict[str, int]] = APPLIED_BYTES

    # The same of the pass that looks at predictions after a fit, at least and at most; None: as in other passes.
    _summary_bytes: ClassVar[tuple[int, int] | None] = None

    classes_: NDArray[Any]
    n_classes_: int
    total_weight_: float
    backend_: str
    columns_: NDArray[Any]
    vector_: bool
    header_: dict[str, Any]
    metadata_: dict[str, Any]
    # What `fit` keeps of the calibration set; parts of other maps, and maps in older files, have none.
    summary_: CalibrationSummary

    def __init__(self, *, logits: bool = False, classes: Any = None, weights: str = "frequency"):
        self.logits = logits
        self.classes = classes
        self.weights = weights

    def fit(self, scores: Any, y: Any = None, sample_weight: Any = None, *, positive: Any = None) -> Self:
        """Learn the map from a calibration set.

        Parameters
        ----------
        scores : array of shape (n, L) or (n,), data frame, or Rows
            Probabilities, or logits if the map was made with ``logits=True``. The columns of a data frame are matched
            to the labels by name.
        y : array of shape (n,)
            Labels: column indices, or names of the classes (see ``classes``). Rows bring their own.
        sample_weight : array of shape (n,), optional
            Frequencies: a weight of k equals k repetitions of the sample.
        positive : label, optional
            Which of two classes a vector of scores is about; needed for text labels.

        Warns
        -----
        CalibrationWarning
            If all labels are of one class, if scores of two classes rank the samples in reverse, or if the calibrated
            probabilities miss the class frequencies by more than chance.
        """
        if isinstance(scores, Rows):
            self._check_form(scores)
        given = door.labelled(door.rows(scores, y, sample_weight, positive=positive, **self._input_settings()))
        self._fit_source(given)
        summary = summarise(self, given)
        self._with_fitted({"summary_": summary})
        if not warn_of_one_class(summary, given):
            warn_of_reversed_scores(given)
            if self._follows_base_rate:
                warn_of_base_rate(summary, given, preserving=self.accuracy_preserving)
        return self

    def fit_batches(self, batches: Iterable[Any], *, directory: str | PathLike[str] | None = None) -> Self:
        """Learn the map from batches, such as a DataLoader gives, without keeping all scores in memory.

        Batches are read once: their scores go to a temporary file on the way, and :meth:`fit` runs on that.

        Parameters
        ----------
        batches : iterable of (scores, labels) or (scores, labels, weight)
            Arrays or tensors, also on a GPU; for example ``((model(x), y) for x, y in loader)``. Data frames are
            matched by the names of their columns, as in :meth:`fit`.
        directory : path, optional
            Where the temporary file is made; the system's directory for such files if not given.
        """
        from mixnmatch._engine.spool import spool

        with spool(batches, directory=directory, classes=self._input_settings()["classes"]) as rows:
            return self.fit(rows.named, rows.labels, rows.weight)

    def _check_form(self, given: Rows) -> None:
        if given.scores.logits != self.takes_logits:
            wanted = "logits" if self.takes_logits else "probabilities"
            msg = (
                f"the scores were given as {given.form}, but the map takes {wanted}: pass logits={self.takes_logits} "
                f"with the scores, or make the map with logits={given.scores.logits}"
            )
            raise ValueError(msg)

    @property
    def takes_logits(self) -> bool:
        """Whether the scores given to ``fit`` and ``predict_proba`` are logits rather than probabilities."""
        return bool(self._input_settings()["logits"])

    def for_input(
        self, *, logits: bool | None = None, classes: Any = None, weights: str | None = None
    ) -> CalibrationMap:
        """Return an unfitted copy of the map for other input.

        Parameters
        ----------
        logits : bool, optional
            Whether the scores will be logits.
        classes : sequence, optional
            Names of the columns.
        weights : {"frequency", "importance"}, optional
            What sample weights mean. As for the other two, None leaves the setting as it is.

        Returns
        -------
        CalibrationMap
            A copy with these settings. A map of your own without such parameters comes back after an ``Identity`` that
            has them.
        """
        asked = {"logits": logits, "classes": classes, "weights": weights}
        given = {name: value for name, value in asked.items() if value is not None}
        copy: CalibrationMap = clone(self)
        if given.keys() <= copy.get_params(deep=False).keys():
            copy.set_params(**given)
            return copy
        from mixnmatch.maps.trivial import Identity

        return Identity(**given) >> copy

    def _input_settings(self) -> dict[str, Any]:
        return {
            "logits": bool(getattr(self, "logits", False)),
            "classes": getattr(self, "classes", None),
            "weights": getattr(self, "weights", "frequency"),
        }

    def _fit_source(self, source: Rows) -> Self:
        """Fit on a source of rows; the map changes only once all has gone well."""
        self._check_params()
        with fitting(type(self).__name__), single_threaded_blas() if self._fitted_by_blas else nullcontext():
            attributes = self._fit(source)
        attributes["classes_"] = source.classes if source.classes is not None else np.arange(source.n_classes)
        attributes["n_classes_"] = source.n_classes
        attributes["total_weight_"] = source.total_weight()
        attributes["backend_"] = source.backend
        if source.columns is not None:
            attributes["columns_"] = source.columns
        if source.scores.vector:
            attributes["vector_"] = True
        # One assignment, so that a prediction in another thread sees the old map or the new one, never parts of both.
        params = {name: value for name, value in vars(self).items() if not name.endswith("_") or name.startswith("_")}
        self.__dict__ = params | attributes
        return self

    def _with_fitted(self, attributes: dict[str, Any]) -> Self:
        """Take over fitted attributes that were learned elsewhere, such as those of a file, all at once."""
        self.__dict__ = self.__dict__ | attributes
        return self

    def _calibration_set(self) -> dict[str, Any]:
        """The fitted attributes that are about the calibration set, whatever was learned from it."""
        names = ("classes_", "n_classes_", "total_weight_", "columns_", "vector_")
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def _knows_vector(self) -> bool:
        """Whether a vector of scores is about the second class: the map was fitted on one, or told the classes."""
        return getattr(self, "vector_", False) or self._input_settings()["classes"] is not None

    def _snapshot(self) -> Self:
        """The map as it is now, whatever a fit in another thread makes of this object."""
        same = object.__new__(type(self))
        same.__dict__ = self.__dict__
        return same

    def _once(self, fitted: Any, make: Callable[[], T]) -> T:
        """What follows from a fitted attribute, made once for it; it is not part of a pickle."""
        cached = self.__dict__.get("_cached")
        if cached is None or cached[0] is not fitted:
            cached = self._cached = (fitted, make())
        value: T = cached[1]
        return value

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_cached"}

    def _check_params(self) -> None:
        """Raise an error if a parameter has a value that it cannot have."""

    def _check_fitted(self) -> None:
        """Raise an error if fitted attributes, read from a file, do not fit together."""

    def _fit(self, source: Rows) -> dict[str, Any]:
        raise NotImplementedError(type(self).__name__)

    def predict_proba(self, scores: Any) -> NDArray[Any]:
        """Calibrated probabilities, n x L: float32 for float32 scores, float64 otherwise.

        The columns of a data frame are matched to the map's classes by name, and so is a Series. A vector without such
        a name holds the second class; where classes have names, the map must have been fitted on a vector or with
        ``classes``. A class with a logit of -inf is masked: its probability is exactly 0. For a Dask array the result
        is a lazy one; its rows are checked when they are computed.
        """
        check_is_fitted(self)
        fitted = self._snapshot()
        logits = bool(fitted._input_settings()["logits"])
        if type(scores) is np.ndarray and scores.ndim == 2 and scores.nbytes:
            out = fitted._apply_at_once(scores, logits)
            if out is not None:
                return out
        return fitted._predict_proba(scores, logits)

    def _apply_at_once(self, scores: NDArray[Any], logits: bool) -> NDArray[Any] | None:
        """Probabilities of a plain table, each block of which is checked just before; None if one is not plain."""
        out = np.empty(scores.shape, scores.dtype)

        def work(start: int, stop: int) -> bool:
            block = plain_block(scores, start, stop, logits=logits, n_classes=self.n_classes_)
            if block is not None:
                self._calibrate(block, out[start:stop])
            return block is not None

        if len(scores) * max(self.n_classes_**2, SMALL_PRODUCT) <= BLAS_ALONE and scores.nbytes <= SMALL_BYTES:
            return out if work(0, len(scores)) else None
        row_bytes = scores.nbytes // len(scores)
        ranges = self._applied_ranges(len(scores), row_bytes, choose_backend(asked_backend()))
        is_small = scores.nbytes <= SMALL_BYTES  # for which threads are not worth their start
        with self._alone_on_cores(ranges):
            plain = (work(*rows) for rows in ranges) if is_small else run_blocks(work, ranges)
            return out if all(plain) else None

    def _predict_proba(self, scores: Any, logits: bool) -> NDArray[Any]:
        settings: dict[str, Any] = {"logits": logits, "n_classes": self.n_classes_}
        if isinstance(scores, Rows):
            from mixnmatch.maps.class_order import in_order_of

            scores = in_order_of(self, scores)
            if not scores.on_dask:
                return self._apply(scores)
            scores = scores.scores.values
        scores = self._scores_by_name(scores)
        if is_dask(scores):
            table = shape_scores(scores, may_be_empty=True, **settings)
            backend = choose_backend(asked_backend())
            lazy: NDArray[Any] = map_chunks(
                _apply_to_chunk, table.values, self, settings, backend, n_columns=table.n_classes, dtype=table.dtype
            )
            return lazy
        return self._apply(Rows(read_scores(scores, may_be_empty=True, **settings)))

    def _scores_by_name(self, scores: Any) -> Any:
        """Values of a data frame, or of a column with a name, in the order of the map's classes."""
        return door.scores_like(
            scores,
            classes=self.classes_,
            columns=getattr(self, "columns_", None),
            logits=self.takes_logits,
            vector_known=self._knows_vector(),
        )

    def _apply(self, source: Rows) -> NDArray[Any]:
        table = source.scores
        out = np.empty((table.n_rows, table.n_classes), table.dtype)

        def work(start: int, stop: int) -> None:
            self._calibrate(source.block(start, stop), out[start:stop])
            mask = table.mask(start, stop)
            if mask is not None:
                leave_out(mask, out[start:stop])

        ranges = self._applied_ranges(table.n_rows, table.row_bytes, source.backend)
        with self._alone_on_cores(ranges):
            deque(run_blocks(work, ranges), maxlen=0)
        return out

    def _applied_ranges(self, n_rows: int, row_bytes: int, backend: str) -> list[tuple[int, int]]:
        """The blocks that the map is applied to."""
        products = self._multiplications()
        most = min(self._block_bytes[backend], APPLIED_ROWS * row_bytes)
        alone = min(BLAS_ALONE // products, most // row_bytes) if products else 0
        if LEAST_ALONE <= alone < n_rows <= FEW_BLOCKS * alone:
            size = alone * row_bytes
        else:
            parts = PARTS_WITH_PRODUCTS if products else min(available_threads(), MOST_PARTS)
            size = applied_bytes(n_rows, row_bytes, most, parts)
        size = asked_block_bytes() or size
        return row_ranges(n_rows, row_bytes, block_bytes=size, least_rows=self._least_rows)

    def _calibrate(self, block: Block, out: NDArray[Any]) -> None:
        """Write the probabilities of a block, with its winners where the map promises them."""
        self._proba_into(block, out)
        kept = self._kernel_keeps_winners and block.form == "logits" and out.dtype == block.values.dtype
        if self.accuracy_preserving and not kept:
            block.kernels.keep_winners(block.values, out)

    def _alone_on_cores(self, ranges: list[tuple[int, int]]) -> AbstractContextManager[None]:
        """Keep BLAS to one thread for large products of matrices.

        Otherwise it competes with our threads. The last bits of a product depend on how many threads BLAS has, which
        calls in other threads may change.
        """
        most = max((stop - start for start, stop in ranges), default=0)
        return single_threaded_blas() if most * self._multiplications() > BLAS_ALONE else nullcontext()

    def _multiplications(self) -> int:
        """Multiplications for each sample in the largest product of matrices by which the fitted map is applied.

        0 without such a product, in the map or in one inside it.
        """
        values = [value for name, value in vars(self).items() if name.endswith("_")]
        parts = [part for value in values for part in (value if isinstance(value, list) else [value])]
        return max((part._multiplications() for part in parts if isinstance(part, CalibrationMap)), default=0)

    def predict(self, scores: Any) -> NDArray[Any]:
        """Most probable class of each sample."""
        fitted = self._snapshot()
        winner: Any = fitted.predict_proba(scores).argmax(axis=1)
        if is_dask(winner):
            lazy: NDArray[Any] = winner.map_blocks(fitted.classes_.__getitem__, dtype=fitted.classes_.dtype)
            return lazy
        return np.asarray(fitted.classes_[winner])

    def _proba_into(self, block: Block, out: NDArray[Any]) -> None:
        out[...] = self._proba(block)

    def _proba(self, block: Block) -> NDArray[Any]:
        return np.exp(self._log_proba(block))

    def _log_proba(self, block: Block) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(self._proba(block).astype(np.float64, copy=False))

    def __rshift__(self, after: Any) -> Composition:
        """``a >> b``: first this map, then ``after``, fitted on the output of this one."""
        from mixnmatch.maps.composition import Composition

        return Composition(self, after)


def _apply_to_chunk(
    chunk: NDArray[Any], first_row: int | str, fitted: CalibrationMap, settings: dict[str, Any], backend: str
) -> NDArray[Any]:
    table = read_scores(chunk, first_row=first_row, may_be_empty=True, **settings)
    return fitted._apply(Rows(table, backend=backend))


class BinaryMap(CalibrationMap):
    """Base of maps for two classes; :class:`OneVsAll` and :class:`Pooled` extend them to many classes.

    Subclasses implement ``_fit_columns(columns)``, which returns fitted arrays with the problems along their first
    axis, and ``_transform_columns(block, scheme)``. Used alone it needs two classes.
    """

    def _fit(self, source: Rows) -> dict[str, Any]:
        from mixnmatch.maps.columns import Columns

        if source.n_classes != 2:
            name = type(self).__name__
            msg = (
                f"{name} is a map for two classes, but the scores have {source.n_classes}; "
                f"use OneVsAll({name}()) or Pooled({name}())"
            )
            raise ValueError(msg)
        return self._fit_columns(Columns(source, "positive"))

    def _as_part(self, learned: dict[str, Any], source: Rows) -> Self:
        """Become the fitted binary map inside a combinator, which has learned its functions."""
        common = {"classes_": np.arange(2), "n_classes_": 2, "total_weight_": source.total_weight()}
        return self._with_fitted(learned | common)

    def _fit_columns(self, columns: Any) -> dict[str, Any]:
        raise NotImplementedError(type(self).__name__)

    def _transform_columns(self, block: Block, scheme: str) -> NDArray[np.float64]:
        """Calibrated probability of every entry of a block, n x K for K problems ("positive", "each", "pooled")."""
        raise NotImplementedError(type(self).__name__)

    def _proba(self, block: Block) -> NDArray[Any]:
        return two_columns(self._transform_columns(block, "positive")[:, 0])


def leave_out(mask: NDArray[np.bool_], out: NDArray[Any]) -> None:
    """Give masked classes a probability of exactly 0 and renormalise their rows; all others stay as they are."""
    rows = np.flatnonzero(mask.any(axis=1))
    left = np.where(mask[rows], 0, out[rows])
    out[rows] = left / left.sum(axis=1, keepdims=True)

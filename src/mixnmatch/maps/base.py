"""What every calibration map is: a scikit-learn estimator that is fitted on a row source and applied block by block."""

from __future__ import annotations

import math
import operator
import sys
from collections import deque
from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from mixnmatch._engine import kernels
from mixnmatch._engine.along_rows import two_columns, winners
from mixnmatch._engine.block import Block
from mixnmatch._engine.dask import is_dask, known_rows, map_chunks, one_class_chunk, reduce_chunks, rows_like
from mixnmatch._engine.labels import read_labels
from mixnmatch._engine.passes import asked_backend, asked_block_bytes, row_ranges, run_blocks, single_threaded_blas
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import Scores, is_number, read_scores, shape_scores
from mixnmatch._engine.weights import read_weight

if TYPE_CHECKING:
    from mixnmatch.maps.composition import Composition
    from mixnmatch.maps.summary import CalibrationSummary


# Bytes of scores in a block that a map is applied to, by kernels; a map that is one call of a kernel takes larger ones.
APPLIED_BYTES = {"numpy": 1 << 20, "numba": 1 << 20}
ONE_KERNEL_BYTES = APPLIED_BYTES | {"numba": 1 << 21}


def read_rows(
    scores: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    logits: bool = False,
    classes: Any = None,
    weights: str = "frequency",
) -> Rows:
    """Check scores, labels and weights, and return them as a source of rows."""
    table = read_scores(scores, logits=logits)
    labels, names = read_labels(y, table.n_rows, table.n_classes, classes)
    weight = read_weight(sample_weight, table.n_rows, weights=weights)
    return Rows.of(table, labels, weight, classes=names)


class CalibrationMap(BaseEstimator):  # type: ignore[misc]
    """Base of all calibration maps T: from probability vectors to better ones.

    A map says three things about itself. ``accuracy_preserving``: the largest entry of every row stays the largest,
    in floating point. ``injective``: different rows stay different, so that the calibration gain is exact and not only
    a lower bound. ``strictly_increasing``: for binary maps, the function of the positive class is.

    Subclasses implement ``_fit(source)``, which returns the fitted attributes and sets nothing, and one of
    ``_log_proba(block)`` and ``_proba(block)``.
    """

    accuracy_preserving: bool = False
    injective: bool = False
    strictly_increasing: bool = False

    # Attributes that make up a fitted map, in the order in which they are saved.
    _fitted: ClassVar[tuple[str, ...]] = ()

    # Rows of a block that the map is applied to, at the least.
    _least_rows: ClassVar[int] = 1

    # Bytes of scores in such a block: applying a map writes less beside it than learning does.
    _block_bytes: ClassVar[dict[str, int]] = APPLIED_BYTES

    logits: bool
    classes: Any
    weights: str

    classes_: NDArray[Any]
    n_classes_: int
    total_weight_: float
    # What `fit` keeps of the calibration set; parts of other maps, and maps in older files, have none.
    summary_: CalibrationSummary

    def fit(self, scores: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the map from a calibration set.

        Parameters
        ----------
        scores : array of shape (n, L) or (n,)
            Probabilities, or logits if the map was made with ``logits=True``.
        y : array of shape (n,)
            Labels: column indices, or names of the columns (see ``classes``).
        sample_weight : array of shape (n,), optional
            Frequencies: a weight of k equals k repetitions of the row.
        """
        from mixnmatch.maps.summary import summarise

        source = read_rows(scores, y, sample_weight, **self._input_settings())
        self._fit_source(source)
        self.summary_ = summarise(self, source)
        return self

    def fit_batches(self, batches: Iterable[Any], *, directory: str | PathLike[str] | None = None) -> Self:
        """Learn the map from batches, such as a DataLoader gives, without keeping all scores in memory.

        Batches are read once: their scores go to a temporary file on the way, and :meth:`fit` runs on that.

        Parameters
        ----------
        batches : iterable of (scores, labels) or (scores, labels, weight)
            Arrays or tensors, also on a GPU; for example ``((model(x), y) for x, y in loader)``.
        directory : path, optional
            Where the temporary file is made; the system's directory for such files if not given.
        """
        from mixnmatch._engine.spool import spool

        with spool(batches, directory=directory) as rows:
            return self.fit(rows.scores, rows.labels, rows.weight)

    def _input_settings(self) -> dict[str, Any]:
        return {
            "logits": bool(getattr(self, "logits", False)),
            "classes": getattr(self, "classes", None),
            "weights": getattr(self, "weights", "frequency"),
        }

    def _fit_source(self, source: Rows) -> Self:
        """Fit on a source of rows; the map changes only once all has gone well."""
        self._check_params()
        with single_threaded_blas():
            attributes = self._fit(source)
        attributes["classes_"] = source.classes if source.classes is not None else np.arange(source.n_classes)
        attributes["n_classes_"] = source.n_classes
        attributes["total_weight_"] = source.total_weight()
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        for name, value in attributes.items():
            setattr(self, name, value)
        return self

    def _check_params(self) -> None:
        """Raise an error if a parameter has a value that it cannot have."""

    def _check_fitted(self) -> None:
        """Raise an error if fitted attributes, read from a file, do not fit together."""

    def _fit(self, source: Rows) -> dict[str, Any]:
        raise NotImplementedError(type(self).__name__)

    def predict_proba(self, scores: Any) -> NDArray[Any]:
        """Calibrated probabilities, n x L: float32 for float32 scores, float64 otherwise.

        For a Dask array they are a lazy one; its rows are checked when they are computed.
        """
        check_is_fitted(self, "n_classes_")
        settings = {"logits": self._input_settings()["logits"], "n_classes": self.n_classes_}
        if is_dask(scores):
            lazy: NDArray[Any] = self._apply_lazily(shape_scores(scores, **settings), settings)
            return lazy
        return self._apply(Rows(read_scores(scores, **settings)))

    def _apply_lazily(self, table: Scores, settings: dict[str, Any]) -> Any:
        n_rows = table.values.shape[0]
        size = sys.maxsize if math.isnan(n_rows) else n_rows * table.n_classes
        backend = kernels.backend_name(kernels.choose(size, asked_backend()))
        return map_chunks(
            _apply_to_chunk, table.values, self, settings, backend, n_columns=table.n_classes, dtype=table.dtype
        )

    def _apply(self, source: Rows) -> NDArray[Any]:
        table = source.scores
        out = np.empty((table.n_rows, table.n_classes), table.dtype)
        keep = self.accuracy_preserving

        def work(start: int, stop: int) -> None:
            block, target = source.block(start, stop), out[start:stop]
            self._proba_into(block, target)
            if keep:
                keep_argmax(block.values, target)

        size = asked_block_bytes() or self._block_bytes[source.backend]
        ranges = row_ranges(table.n_rows, table.row_bytes, block_bytes=size, least_rows=self._least_rows)
        with single_threaded_blas():
            deque(run_blocks(work, ranges), maxlen=0)
        return out

    def predict(self, scores: Any) -> NDArray[Any]:
        """Most probable class of each row."""
        winner: Any = self.predict_proba(scores).argmax(axis=1)
        if is_dask(winner):
            lazy: NDArray[Any] = winner.map_blocks(self.classes_.__getitem__, dtype=self.classes_.dtype)
            return lazy
        return np.asarray(self.classes_[winner])

    def _proba_into(self, block: Block, out: NDArray[Any]) -> None:
        out[...] = self._proba(block)

    def _proba(self, block: Block) -> NDArray[Any]:
        return np.exp(self._log_proba(block))

    def _log_proba(self, block: Block) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(self._proba(block).astype(np.float64, copy=False))

    def __rshift__(self, after: Any) -> Composition:
        """``a >> b``: first this map, then ``after``, fitted on what this one puts out."""
        from mixnmatch.maps.composition import Composition

        return Composition(self, after)

    def adapt(
        self,
        *,
        priors: Any = None,
        sampling: Any = None,
        unlabelled: Any = None,
        sample_weight: Any = None,
        calibration: Any = None,
    ) -> Composition:
        """The fitted map for data in which the classes have other frequencies: this map, then a :class:`PriorShift`.

        Say one of ``priors``, ``sampling`` and ``unlabelled``. It assumes label shift: each class looks as it did in
        the calibration set, only the frequencies of the classes differ.

        Parameters
        ----------
        priors : dict from class to frequency, or array of length L, optional
            Frequencies of the classes in the new data. Classes that a dict leaves out share what remains, in the
            proportions they had.
        sampling : dict from class to rate, or array of length L, optional
            The calibration set was sampled by class from data like the new ones: the share of each class that was
            kept, such as ``{"neg": 0.1}``. Classes that a dict leaves out were kept.
        unlabelled : array of shape (n, L) or (n,), optional
            Scores of new samples, from which the frequencies are estimated by maximum likelihood
            (:func:`mixnmatch.estimate_priors`, which also gives intervals and tests). Doubts become warnings.
        sample_weight : array of shape (n,), optional
            Weights of the unlabelled samples.
        calibration : tuple (scores, y) or (scores, y, sample_weight), optional
            The calibration set, for a map that does not remember it, such as one from a file of an older version.

        Examples
        --------
        >>> from mixnmatch import calibrator
        >>> fitted = calibrator("identity").fit([[0.8, 0.2], [0.2, 0.8]], [0, 1])
        >>> fitted.adapt(priors=[0.8, 0.2]).predict_proba([[0.5, 0.5]])
        array([[0.8, 0.2]])
        """
        from mixnmatch.selection.adaptation import adapted

        given = {"priors": priors, "sampling": sampling, "unlabelled": unlabelled}
        return adapted(self, **given, sample_weight=sample_weight, calibration=calibration)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted map to one JSON file, atomically; :func:`mixnmatch.load` reads it."""
        from mixnmatch.persistence import save

        save(self, path)

    def to_onnx(
        self,
        path: str | PathLike[str],
        *,
        classifier: Any = None,
        output: str | None = None,
        precision: str = "double",
        vector: bool = False,
    ) -> None:
        """Write the fitted map to an ONNX file, atomically (extra ``onnx``).

        The model takes ``scores``, float32 of shape (n, L), and gives ``probabilities`` of the same shape and type:
        what :meth:`predict_proba` gives for float32 scores. It does not check its input. All operators are standard.

        Parameters
        ----------
        path : path
            Where to write; an existing file is replaced.
        classifier : path or ModelProto, optional
            A classifier in ONNX to append the map to: the file then goes from the classifier's inputs to ``label`` and
            calibrated ``probabilities``, all other outputs are dropped. Labels are the map's ``classes_``.
        output : str, optional
            The tensor of the classifier that holds the scores: one of its outputs, or any tensor inside. If not given
            it is the only output that can be.
        precision : {"double", "single"}
            Precision inside. Single is for accelerators: then a score that is next to a step of a map with steps may
            end up on the other side of it.
        vector : bool
            For maps of two classes: ``scores`` has shape (n,) and holds the positive class.
        """
        from mixnmatch.export.onnx_file import write_onnx

        write_onnx(self, path, classifier=classifier, output=output, precision=precision, vector=vector)

    def to_torch(self, *, precision: str = "double") -> Any:
        """The fitted map as a PyTorch module, :class:`mixnmatch.export.CalibrationModule` (extra ``torch``).

        Parameters
        ----------
        precision : {"double", "single"}
            Precision inside, as for :meth:`to_onnx`; the output has the type of the input.
        """
        from mixnmatch.export.torch_module import CalibrationModule

        return CalibrationModule(self, precision=precision)


def _apply_to_chunk(
    chunk: NDArray[Any], first_row: int | str, fitted: CalibrationMap, settings: dict[str, Any], backend: str
) -> NDArray[Any]:
    if not len(chunk):
        return np.empty((0, fitted.n_classes_), Scores(chunk, False).dtype)
    source = Rows(read_scores(chunk, first_row=first_row, **settings))
    source.__dict__["backend"] = backend
    return fitted._apply(source)


class BinaryMap(CalibrationMap):
    """A map of the positive class of a binary problem, that combinators can also fit to many problems at once.

    Subclasses implement ``_fit_columns(columns)``, which returns fitted arrays with the problems along their first
    axis, and ``_transform_columns(block, way)``. Used by itself it needs two classes.
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

    def _fit_columns(self, columns: Any) -> dict[str, Any]:
        raise NotImplementedError(type(self).__name__)

    def _transform_columns(self, block: Block, which: str) -> NDArray[np.float64]:
        """Calibrated probability of every entry of a block, n x K for K problems ("positive", "each", "pooled")."""
        raise NotImplementedError(type(self).__name__)

    def _proba(self, block: Block) -> NDArray[Any]:
        return two_columns(self._transform_columns(block, "positive")[:, 0])


def check_smoothing(smoothing: Any) -> None:
    """Raise an error unless ``smoothing`` can be one."""
    if not is_number(smoothing) or smoothing < 0:
        msg = f"smoothing must be a number from 0 on, got {smoothing!r}"
        raise ValueError(msg)


def mix_with_uniform(p: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Laplace smoothing, in place: (1 - share) p + share / L."""
    share = float(share)  # in a narrower type, 1 - share and share would not add up
    if share > 0:
        p *= 1 - share
        p += share / p.shape[1]
    return p


def keep_argmax(given: NDArray[Any], out: NDArray[Any]) -> None:
    """Repair rounding: where the largest entry of ``out`` is not that of ``given``, raise the winner just above it.

    Mathematically the maps that call this keep the order of a row. In floating point a lead of one unit in the last
    place can vanish in a softmax or a sum; then the entry that should win ties with, or falls just behind, another.
    """
    winner, found = winners(given), winners(out)
    lost = np.flatnonzero(winner != found)
    if lost.size:
        out[lost, winner[lost]] = np.nextafter(out[lost, found[lost]], out.dtype.type(np.inf))


def accuracy_preserved(before: Any, after: Any, *, logits: bool = False) -> bool:
    """Whether every row of ``after`` has its largest entry where ``before`` has it.

    For tables of n x L only the order of a row's entries matters, so ``before`` may be logits or probabilities. A
    vector is the positive class of a binary problem; ``logits`` says whether ``before`` is one of logits.

    Examples
    --------
    >>> accuracy_preserved([[0.9, 0.1], [0.4, 0.6]], [[0.6, 0.4], [0.2, 0.8]])
    True
    >>> accuracy_preserved([[0.9, 0.1]], [[0.4, 0.6]])
    False
    """
    threshold = 0.0 if logits else 0.5
    if is_dask(before):
        first = one_class_chunk(known_rows(before))
        second = one_class_chunk(known_rows(after)) if is_dask(after) else np.asarray(after)
        if first.shape == second.shape:
            pair = [first, rows_like(second, first)]
            same: bool = reduce_chunks(_same_winners, pair, threshold, combine=operator.and_)
            return same
    first, second = _winners(before, threshold), _winners(after, 0.5)
    if first.shape != second.shape:
        msg = f"there are {len(first)} rows before and {len(second)} after"
        raise ValueError(msg)
    return bool((first == second).all())


def _same_winners(start: int, chunks: list[NDArray[Any]], threshold: float) -> bool:
    before, after = chunks
    return bool((_winners(before, threshold) == _winners(after, 0.5)).all())


def _winners(scores: Any, threshold: float) -> NDArray[np.intp]:
    values = read_scores(scores, logits=True).values  # only the order matters, whatever they are
    return np.asarray((values > threshold).astype(np.intp) if values.ndim == 1 else values.argmax(axis=1))

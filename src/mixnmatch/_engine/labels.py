"""Check labels once and turn them into column indices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.dask import is_dask, known_rows, map_chunks, reduce_chunks, unless_error
from mixnmatch._engine.errors import InputError
from mixnmatch._engine.scores import from_tensor


def read_labels(y: Any, n_rows: int, n_classes: int, classes: Any = None) -> tuple[Any, NDArray[Any]]:
    """Check labels and return their column indices and the names of the columns.

    Without ``classes``, integer labels are column indices, and of two columns also -1 and 1. Text labels are matched to
    the columns in sorted order, as scikit-learn sorts classes ("10" comes before "2"), if all of them occur. Labels in
    a Dask array stay there.
    """
    if is_dask(y):
        return _read_dask_labels(y, n_rows, n_classes, classes)
    labels = as_labels(y, n_rows)
    if classes is None and not is_text(labels):
        if n_classes == 2 and _range(labels)[0] == -1 and labels.max() <= 1 and labels.all():
            classes = np.array([-1, 1])
        else:
            return _column_indices(labels, n_classes), np.arange(n_classes)
    names = _column_names(different(labels) if classes is None else classes, n_classes, given=classes is not None)
    return _match(labels, names), names


def is_text(labels: NDArray[Any]) -> bool:
    """Whether labels are text, in a NumPy type or as Python's own strings."""
    return labels.dtype.kind in "USO"


def different(labels: NDArray[Any]) -> NDArray[Any]:
    """All names among labels, sorted."""
    # Text of any length is not padded to the longest, as long as it is in Python's own objects.
    return np.array(sorted(set(labels.tolist()))) if labels.dtype.kind == "O" else np.unique(labels)


def plain_names(values: NDArray[Any], what: str) -> NDArray[Any]:
    """Convert labels or class names from Python objects, such as a pandas column, to text or numbers.

    Text stays in Python's own strings, which are not padded to the longest.
    """
    if values.dtype.kind != "O":
        return values
    kinds = set(map(type, values.ravel().tolist()))
    if all(issubclass(kind, str) for kind in kinds):
        return values
    if all(issubclass(kind, bool | np.bool_ | int | np.integer) for kind in kinds):
        try:
            return values.astype(np.int64)
        except OverflowError:
            msg = f"{what} are whole numbers of at most 64 bits; pass larger ones as text"
            raise ValueError(msg) from None
    if all(issubclass(kind, float | int | np.number) for kind in kinds):
        return values.astype(np.float64)
    found = sorted(kind.__name__ for kind in kinds)
    remedy = "drop or fill missing ones first" if any(map(_may_be_missing, kinds)) else "convert them with .astype(str)"
    msg = f"{what} must be all text or all whole numbers, got {', '.join(found)}; {remedy}"
    raise ValueError(msg)


def _may_be_missing(kind: type) -> bool:
    """Whether a missing entry has this type; NaN is a float."""
    return issubclass(kind, float) or kind.__name__ in ("NoneType", "NAType", "NaTType")


def class_array(classes: Any) -> NDArray[Any]:
    """Names of classes as an array of text or integers."""
    names = plain_names(np.asarray(classes), "classes")
    return names.astype(str) if names.dtype.kind == "O" else names


def _column_names(given_names: Any, n_classes: int, *, given: bool) -> NDArray[Any]:
    names = class_array(given_names)
    if given and (names.ndim != 1 or len(names) != n_classes or len(np.unique(names)) != n_classes):
        msg = f"classes must name each of the {n_classes} columns once, got {names.tolist()!r:.200}"
        raise ValueError(msg)
    if len(names) != n_classes:
        msg = (
            "the labels name {found} classes but the scores have {n_classes} columns; "
            "pass {classes} to name the columns in order"
        )
        raise InputError(msg, found=len(names), n_classes=n_classes)
    return names


def _range(labels: NDArray[Any]) -> tuple[int, int]:
    """Smallest and largest of integer labels; reading them twice is faster than comparing each one."""
    return (int(labels.min()), int(labels.max())) if labels.size else (0, 0)


def _column_indices(labels: NDArray[Any], n_classes: int, first_row: int = 0) -> NDArray[np.intp]:
    low, high = _range(labels)
    if low < 0 or high >= n_classes:
        row = int(np.flatnonzero((labels < 0) | (labels >= n_classes))[0])
        msg = (
            "label {label} in row {row} is not a column of the scores (0 to {last}); "
            "pass {classes} if the columns have other names"
        )
        raise InputError(msg, label=labels[row], row=first_row + row, last=n_classes - 1)
    return labels.astype(np.intp, copy=False)


def _read_dask_labels(y: Any, n_rows: int, n_classes: int, classes: Any) -> tuple[Any, NDArray[Any]]:
    """Check labels in a pass and return their column indices as a lazy array."""
    labels = known_rows(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    _check_label_shape(labels.shape, n_rows)
    names: NDArray[Any] | None = None
    if classes is not None:
        names = _column_names(classes, n_classes, given=True)
    elif labels.dtype.kind in "USO":
        found = reduce_chunks(_label_names, [labels], combine=_either_or_union)
        names = _column_names(unless_error(found), n_classes, given=False)
    unless_error(reduce_chunks(_label_error, [labels], n_classes, names, combine=_first_error))
    # Labels may have to be sent from worker to worker: as short as they can be.
    short = np.min_scalar_type(n_classes - 1)
    codes = map_chunks(_label_codes, labels, n_classes, names, short, n_columns=None, dtype=short)
    return codes, np.arange(n_classes) if names is None else names


def _label_codes(
    labels: NDArray[Any], first_row: int, n_classes: int, names: NDArray[Any] | None, dtype: Any
) -> NDArray[Any]:
    checked = as_labels(labels, len(labels), first_row)
    found = _column_indices(checked, n_classes, first_row) if names is None else _match(checked, names, first_row)
    return found.astype(dtype)


def _label_error(start: int, chunks: list[NDArray[Any]], n_classes: int, names: Any) -> Exception | None:
    try:
        _label_codes(chunks[0], start, n_classes, names, np.intp)
    except (ValueError, TypeError) as error:
        return error
    return None


def _label_names(start: int, chunks: list[NDArray[Any]]) -> NDArray[Any] | Exception:
    try:
        return different(as_labels(chunks[0], len(chunks[0]), start))
    except (ValueError, TypeError) as error:
        return error


def _either_or_union(left: Any, right: Any) -> Any:
    failed = [part for part in (left, right) if isinstance(part, Exception)]
    return failed[0] if failed else np.union1d(left, right)


def _first_error(left: Exception | None, right: Exception | None) -> Exception | None:
    return left or right


def _check_label_shape(shape: tuple[int, ...], n_rows: int) -> None:
    if len(shape) != 1:
        msg = f"labels must be a vector with one label for each sample, got shape {shape}"
        raise ValueError(msg)
    if shape[0] != n_rows:
        msg = f"there are {shape[0]} labels for {n_rows} rows of scores"
        raise ValueError(msg)


def as_labels(y: Any, n_rows: int, first_row: int = 0) -> NDArray[Any]:
    """Labels as a vector of integers or text, one for each row."""
    if np.ma.isMaskedArray(y):
        msg = "labels are a masked array: drop the masked rows first"
        raise TypeError(msg)
    try:
        labels = np.asarray(from_tensor(y))
    except ValueError as error:
        msg = "labels must be a vector with one label for each sample; these have different lengths"
        raise ValueError(msg) from error
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    _check_label_shape(labels.shape, n_rows)
    labels = plain_names(labels, "labels")
    if labels.dtype.kind == "O":
        return labels
    if labels.dtype.kind == "f":
        with np.errstate(over="ignore"):  # long doubles; infinities are no class
            labels = labels.astype(np.float64)
        whole = np.isfinite(labels) & (labels == np.floor(labels)) & (np.abs(labels) < 2.0**53)
        if not whole.all():
            row = int(np.flatnonzero(~whole)[0])
            remedy = "labels are integers or strings, and come after the scores"
            if np.isnan(labels[row]):
                remedy = "leave out samples whose label is missing"
            msg = f"label {labels[row]} in row {first_row + row} is not a class; {remedy}"
            raise ValueError(msg)
        labels = labels.astype(np.int64)
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iuUS":
        msg = f"labels must be integers or strings, got an array of type {labels.dtype}"
        raise ValueError(msg)
    return labels


def _match(labels: NDArray[Any], names: NDArray[Any], first_row: int = 0) -> NDArray[np.intp]:
    if is_text(labels) != is_text(names):
        kinds = ("text", "numbers") if is_text(labels) else ("numbers", "text")
        some = (array[:1].tolist()[0] for array in (labels, names))
        (label, name), (ours, theirs) = some, kinds
        msg = (
            f"the labels are {ours}, such as {label!r:.80}, and the classes are {theirs}, such as {name!r:.80}: label "
            "samples by the names of the classes"
        )
        raise ValueError(msg)
    if labels.dtype.kind == "O":
        place = {name: index for index, name in enumerate(names.tolist())}
        codes = np.fromiter((place.get(label, -1) for label in labels.tolist()), np.intp, len(labels))
        unknown = codes < 0
    else:
        order = np.argsort(names, kind="stable")
        position = np.searchsorted(names, labels, sorter=order)
        codes = order[np.minimum(position, len(names) - 1)]
        unknown = names[codes] != labels
    if unknown.any():
        row = int(np.flatnonzero(unknown)[0])
        label = labels[row : row + 1].tolist()[0]
        template = (
            "label {label!r:.200} in row {row} is not one of the classes {names!r:.200}; pass {classes} if the columns "
            "have other names"
        )
        raise InputError(template, label=label, row=first_row + row, names=names.tolist())
    return codes.astype(np.intp, copy=False)

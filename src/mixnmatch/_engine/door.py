"""Check arrays, data frames, tensors and Dask arrays and turn them into :class:`Rows`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.along_rows import both_columns
from mixnmatch._engine.class_names import as_numbers
from mixnmatch._engine.dask import is_dask, reduce_chunks
from mixnmatch._engine.errors import InputError
from mixnmatch._engine.frames import (
    check_aligned,
    class_called,
    classes_of,
    column_names,
    frame_values,
    is_frame,
    is_series,
    order_by_name,
    vector_class,
    warn_of_position,
)
from mixnmatch._engine.labels import as_labels, class_array, different, is_text, plain_names, read_labels
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import Scores, read_scores


def rows(
    scores: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    logits: bool = False,
    classes: Any = None,
    groups: Any = None,
    clusters: Any = None,
    positive: Any = None,
    weights: str = "frequency",
) -> Rows:
    """Check scores, labels and weights once, and return them as :class:`Rows`.

    Everything in the library that takes scores and labels takes ``Rows`` in their place, and does not check them again.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,), data frame, tensor, Dask array, or Rows
        Probabilities, or logits if ``logits``. A vector holds the positive class of a binary problem. The columns of a
        data frame are matched to the classes by name. Rows come back as they are.
    y : array of shape (n,), optional
        Labels: column indices, or names of the classes.
    sample_weight : array of shape (n,), optional
        Frequencies: a weight of k equals k repetitions of the sample.
    logits : bool
        Whether scores are logits.
    classes : sequence, optional
        Names of the classes. Columns of a data frame are brought into this order; columns of an array are in it.
    groups : array of shape (n,), optional
        Subgroup of each sample; :func:`evaluate` then gives results by group as well.
    clusters : array of shape (n,), optional
        Samples of the same cluster (a patient, a user) depend on each other; intervals take that into account.
    positive : label, optional
        Which of two classes a vector of scores is about. Needed for text labels, unless the scores are a pandas or
        polars column with the name of that class. Of a data frame with a column for each of two classes, the column of
        the positive class becomes the second.
    weights : {"frequency", "importance"}
        What sample weights mean; importances are rescaled to Kish's effective sample size.

    Examples
    --------
    >>> rows([0.1, 0.8, 0.3], ["no", "yes", "no"], positive="yes")
    <Rows: 3 samples, 2 classes, probabilities, with labels>
    """
    if isinstance(scores, Rows):
        _refuse_more(scores, y, sample_weight, logits, classes, groups, clusters, positive)
        return scores
    check_aligned(scores, labels=y, sample_weight=sample_weight, groups=groups, clusters=clusters)
    classes = None if classes is None else class_array(classes)
    columns = column_names(scores) if is_frame(scores) else None
    title = _title(scores, columns)
    if columns and len(columns) > 1:
        scores, columns, classes = _named_columns(scores, columns, y, classes, positive)
    elif is_frame(scores):
        scores = frame_values(scores)
        scores = scores[:, 0] if scores.shape[1] == 1 else scores
        columns = None
    table = read_scores(scores, logits=logits)
    if table.vector and classes is not None and (place := class_called(title, classes)) is not None:
        positive = _same_class(positive, classes.tolist()[place])
    if classes is None and table.n_classes == 2 and y is not None and not is_dask(y):
        classes = _two_classes(as_labels(y, table.n_rows), positive, title if table.vector else None, table.vector)
    elif positive is not None:
        classes = _with_positive(classes, positive, table)
    labels, names = (
        (None, _only_names(classes, table)) if y is None else read_labels(y, table.n_rows, table.n_classes, classes)
    )
    from mixnmatch._engine.weights import read_weight  # predictions do not need it

    weight = read_weight(sample_weight, table.n_rows, weights=weights)
    made = Rows.of(
        table,
        labels,
        weight,
        classes=names,
        columns=None if columns is None else np.array([str(name) for name in columns]),
        groups=_one_each(groups, table.n_rows, "groups"),
        clusters=_one_each(clusters, table.n_rows, "clusters"),
    )
    if table.masked and labels is not None:
        _refuse_masked_labels(made)
    return made


def _refuse_masked_labels(given: Rows) -> None:
    arrays = [given.scores.values, given.labels]
    row = reduce_chunks(_first_masked, arrays, combine=min) if given.on_dask else _first_masked(0, arrays)
    if row < math.inf:
        msg = f"row {int(row)} has a label that is masked by a logit of -inf: drop such rows, or do not mask it"
        raise ValueError(msg)


def _first_masked(start: int, chunks: list[Any]) -> float:
    """The first row whose label is masked, or infinity."""
    values, labels = chunks
    mask = Scores(values, logits=True, masked=True).mask(0, len(values))
    impossible = np.flatnonzero(False if mask is None else mask[np.arange(len(labels)), labels])
    return start + float(impossible[0]) if impossible.size else math.inf


def scores_like(
    scores: Any, *, classes: NDArray[Any], columns: NDArray[Any] | None, logits: bool, vector_known: bool
) -> Any:
    """Scores for a map fitted with these classes: columns with names are brought into their order.

    One column with the name of a class holds the scores of that class. One without holds those of the second class, if
    it is known (``vector_known``) or the classes are numbers.

    Raises
    ------
    ValueError
        If the columns have other names than the map's classes, or it is not known which class a vector is about.
    """
    if is_series(scores):
        return _of_class(scores, scores.name, classes, logits, vector_known)
    if not is_frame(scores):
        if not vector_known and len(classes) == 2 and is_vector(scores):
            vector_class(None, classes, known=False)
        return scores
    names, values = column_names(scores), frame_values(scores)
    if values.shape[1] == 1:
        return _of_class(values[:, 0], names and names[0], classes, logits, vector_known)
    if names is None:
        return values
    for known in (classes, columns):
        order = None if known is None else order_by_name(names, known.tolist())
        if order is not None:
            return values[:, order]
    if columns is None and not is_text(classes):
        warn_of_position(names, classes)
        return values
    wanted = classes if columns is None else columns
    msg = f"scores have the columns {names!r:.200}, but the map was fitted with {wanted.tolist()!r:.200}"
    raise ValueError(msg)


def _of_class(values: Any, name: Any, classes: NDArray[Any], logits: bool, vector_known: bool) -> Any:
    """Scores of the class that a column is called like: a vector of the second class, or two columns in order."""
    if len(classes) != 2 or not len(values) or vector_class(name, classes, known=vector_known) == 1:
        return values
    values = np.asarray(values)
    values = values if values.dtype.kind == "f" else values.astype(np.float64)
    return both_columns(values, logits=logits)[:, ::-1]


def is_vector(scores: Any) -> bool:
    """Whether these are scores of one class, of at least one sample."""
    try:
        shape = np.shape(scores)
    except ValueError:  # rows of different lengths, which are refused where values are checked
        return False
    return len(shape) == 1 and shape[0] != 0


def _title(scores: Any, columns: list[Any] | None) -> Any:
    """Return the name of a single score column, which may be the name of the positive class."""
    if columns and len(columns) == 1:
        return columns[0]
    return scores.name if is_series(scores) else None


def _named_columns(
    scores: Any, columns: list[Any], y: Any, classes: Any, positive: Any
) -> tuple[NDArray[Any], list[Any], Any]:
    """Values of a data frame, the names of its columns, and the classes that these stand for, in the same order.

    Of two classes the positive one becomes the second, where it is said which it is.
    """
    values = frame_values(scores)
    if classes is not None:
        order = order_by_name(columns, classes.tolist())
        if order is not None:
            ordered = values if (order == np.arange(len(order))).all() else values[:, order]  # a large file stays there
            return ordered, [columns[k] for k in order], classes
        shared = {str(name) for name in columns} & {str(name) for name in classes.tolist()}
        if shared:
            msg = f"the columns of the scores, {columns!r:.200}, are not the classes {classes.tolist()!r:.200}"
            raise ValueError(msg)
        return values, columns, classes
    if y is None or is_dask(y):
        return values, columns, None
    classes = classes_of(columns, as_labels(y, len(values)))
    if positive is not None and classes is not None and classes.tolist()[1:] and classes.tolist()[0] == positive:
        swapped = [*range(1, len(classes)), 0]
        return values[:, swapped], [columns[k] for k in swapped], classes[swapped]
    return values, columns, classes


def _same_class(positive: Any, title: Any) -> Any:
    """The positive class, of which a column with the name of a class holds the scores."""
    if positive is not None and positive != title:
        msg = f"the column of scores is called {title!r}, which is one of the classes, but positive={positive!r}"
        raise ValueError(msg)
    return title


def _two_classes(labels: NDArray[Any], positive: Any, title: Any, vector: bool) -> NDArray[Any] | None:
    """Names of two classes, the positive one second; None where labels are 0 and 1, or -1 and 1."""
    text = is_text(labels)
    if positive is None and not text and as_numbers([title]) is None:
        return None
    found = different(labels)
    if not text and set(found.tolist()) <= {0, 1}:
        found = np.arange(2)
    if vector and (place := class_called(title, found)) is not None:
        positive = _same_class(positive, found.tolist()[place])
    if positive is None:
        if vector and text:
            rarer = min(found.tolist(), key=labels.tolist().count)
            template = (
                "scores are a vector and labels are text, {found!r:.100}: say which class the scores are about, such "
                "as {rarer!r}: {say_positive}"
            )
            raise InputError(template, found=found.tolist(), rarer=str(rarer))
        return None
    others = [name for name in found.tolist() if name != positive]
    if len(others) > 1 or isinstance(positive, str) != text:
        msg = f"positive={positive!r} and the labels {found.tolist()!r:.100} are not two classes"
        raise ValueError(msg)
    if not others:
        others = [f"not {positive}" if text else int(positive == 0)]
    if not vector and sorted([positive, *others]) != [*others, positive]:
        msg = (
            f"scores have two columns, in the order of the sorted classes: {positive!r} would be the first. "
            "Pass classes=[...] to name the columns in order, or the column of the positive class alone"
        )
        raise ValueError(msg)
    return np.array([others[0], positive])


def _with_positive(classes: Any, positive: Any, table: Scores) -> Any:
    if table.n_classes != 2:
        msg = f"positive is for two classes, the scores have {table.n_classes}"
        raise ValueError(msg)
    if classes is None:  # labels on Dask, or none at all
        msg = "pass classes=[negative, positive] with these scores"
        raise ValueError(msg)
    if positive not in classes.tolist():
        msg = f"positive={positive!r} is not one of the classes {classes.tolist()!r:.200}"
        raise ValueError(msg)
    if table.vector:
        return np.array(sorted(classes.tolist(), key=lambda name: name == positive))
    if classes[1] != positive:
        msg = f"the positive class is the second column, {classes[1].item()!r}; swap the columns to have {positive!r}"
        raise ValueError(msg)
    return classes


def _only_names(classes: Any, table: Scores) -> NDArray[Any]:
    names = np.arange(table.n_classes) if classes is None else classes
    if len(names) != table.n_classes:
        msg = f"classes must name each of the {table.n_classes} columns once, got {names.tolist()!r:.200}"
        raise ValueError(msg)
    return np.asarray(names)


def _one_each(values: Any, n_rows: int, what: str) -> NDArray[Any] | None:
    if values is None:
        return None
    found = plain_names(np.asarray(values), what)
    if found.shape != (n_rows,):
        msg = f"{what} must have shape ({n_rows},), got {found.shape}"
        raise ValueError(msg)
    missing = np.flatnonzero(found != found)  # NaN and NaT, which no value is equal to
    if len(missing):
        msg = f"{what}: row {missing[0]} has no value ({found[missing[0]]}); drop or fill missing ones first"
        raise ValueError(msg)
    return found


def _refuse_more(given: Rows, y: Any, sample_weight: Any, logits: bool, classes: Any, *more: Any) -> None:
    """Raise an error if labels, weights or classes are passed beside checked Rows."""
    if y is not None or sample_weight is not None or any(value is not None for value in more):
        msg = "these are Rows already: pass labels, weights and groups to mixnmatch.rows(...), which makes them"
        raise ValueError(msg)
    if logits and not given.scores.logits:
        msg = "these Rows hold probabilities: pass logits=True to mixnmatch.rows(...), which makes them"
        raise ValueError(msg)
    if classes is not None and given.classes is not None and list(classes) != given.classes.tolist():
        msg = f"these Rows have the classes {given.classes.tolist()!r:.200}, not {list(classes)!r:.200}"
        raise ValueError(msg)


def no_rows(scores: Any, y: Any) -> bool:
    """Whether a batch has no samples."""
    empty = not isinstance(scores, Rows) and len(np.shape(scores)) > 0 and np.shape(scores)[0] == 0
    if empty and y is not None and np.size(y):
        msg = f"there are no scores, but {np.size(y)} labels"
        raise ValueError(msg)
    return empty


def labelled(given: Rows) -> Rows:
    """Return the rows; raise an error if they have no labels."""
    if given.labels is None:
        msg = "labels are needed here: pass y"
        raise ValueError(msg)
    return given


def calibrated(given: Rows, values: Any) -> Rows:
    """Return the same samples with calibrated probabilities as scores, without checking them again."""
    return replace(given, scores=Scores(values, False), chain=())

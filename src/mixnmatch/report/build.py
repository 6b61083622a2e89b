"""From scores and labels to a report: what is computed, in which order, and the file that comes out."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mixnmatch._engine.rows import Rows
from mixnmatch._files import atomic_write
from mixnmatch._version import __version__
from mixnmatch.maps.base import read_rows
from mixnmatch.report import judged, words
from mixnmatch.report.data import ReportData, Reproduction
from mixnmatch.selection.comparison import Comparison, compare
from mixnmatch.selection.evaluation_set import EvaluationSet, read_evaluation
from mixnmatch.selection.learning import LearningCurve, learning_curve
from mixnmatch.selection.methods import Methods, build_methods

__all__ = ["build_report", "write_report"]

DEFAULT_TITLE = "Calibration report"
# What is compared if nothing is said, and what is left of it on large tables and with many classes.
METHODS = ("ts", "ets", "irm", "irm-ets", "irova", "irova-ts", "beta", "vector", "histogram", "sms")
QUICK_METHODS = ("ts", "ets", "irm", "irova-ts")
LARGE_TABLE = 2_000_000
MANY_CLASSES = 200
# Methods of the learning curve beside the chosen one.
CURVE_METHODS = ("ts", "irm", "irova-ts")
FEWEST_ROWS_FOR_CURVE = 64
WORST_CLASSES = 8

Progress = Callable[[int, int, str], None]


def write_report(
    path: str | PathLike[str],
    scores: Any,
    y: Any,
    *,
    evaluation: tuple[Any, ...] | None = None,
    method: Any = "ets",
    methods: Methods | None = None,
    logits: bool = False,
    sample_weight: Any = None,
    weights: str = "frequency",
    classes: Any = None,
    title: str | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
    command: str | None = None,
) -> ReportData:
    """Write a report on a model's calibration: one HTML file that needs nothing else, not even a network.

    Parameters
    ----------
    path : path
        File to write; it is replaced in one move.
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``.
    y : array of shape (n,)
        Labels.
    evaluation : tuple (scores, y) or (scores, y, sample_weight), optional
        Held-out set to judge on. Without them, methods are cross-validated on ``scores``.
    method : str, map or fitted map
        What the diagrams show the effect of. A fitted map is judged as it is, on the evaluation rows or else on
        ``scores``, which it should not have been fitted on.
    methods : sequence of short names and maps, or mapping from names to maps, optional
        What the table compares; by default the main ones, fewer on large tables.
    logits : bool
        Whether scores are logits.
    sample_weight : array of shape (n,), optional
        Frequencies of ``scores``.
    weights : {"frequency", "importance"}
        What sample weights mean.
    classes : sequence, optional
        Names of the columns.
    title : str, optional
        What the report is about.
    random_state : int
        Seed of folds and resamples.
    progress : callable, optional
        Called now and then with the percentage done, 100, and what is being done.
    command : str, optional
        The command line that makes this report, for the section on how to reproduce it.

    Returns
    -------
    ReportData
        What the report shows.

    Examples
    --------
    >>> import tempfile
    >>> from mixnmatch import load_sample
    >>> sample = load_sample()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = write_report(
    ...         f"{folder}/report.html", sample.logits_cal[:500], sample.labels_cal[:500], methods=["ts"], logits=True
    ...     )
    >>> data.verdict.level, data.verdict.helps
    ('bad', 'yes')
    """
    from mixnmatch.report.page import render

    target = Path(path)
    if not target.parent.is_dir():  # before the work, not after it
        msg = f"there is no folder {target.parent}"
        raise FileNotFoundError(msg)
    data = build_report(
        scores,
        y,
        evaluation=evaluation,
        method=method,
        methods=methods,
        logits=logits,
        sample_weight=sample_weight,
        weights=weights,
        classes=classes,
        title=title,
        random_state=random_state,
        progress=progress,
        command=command,
    )
    atomic_write(target, render(data).encode())
    return data


def build_report(
    scores: Any,
    y: Any,
    *,
    evaluation: tuple[Any, ...] | None = None,
    method: Any = "ets",
    methods: Methods | None = None,
    logits: bool = False,
    sample_weight: Any = None,
    weights: str = "frequency",
    classes: Any = None,
    title: str | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
    command: str | None = None,
) -> ReportData:
    """Compute what a report shows, without writing anything.

    Parameters
    ----------
    scores, y, evaluation, method, methods, logits, sample_weight, weights, classes, title, random_state, progress, \
    command
        As for :func:`write_report`.

    Returns
    -------
    ReportData
        To be drawn by :func:`render`, or to be used by a program (``to_dict``).

    Examples
    --------
    >>> from mixnmatch import load_sample
    >>> sample = load_sample()
    >>> data = build_report(sample.logits_cal[:300], sample.labels_cal[:300], methods=["ts"], logits=True)
    >>> data.n_classes, sorted(result.name for result in data.comparison.results)
    (10, ['ets', 'identity', 'ts'])
    """
    source = read_rows(scores, y, sample_weight, logits=logits, classes=classes, weights=weights)
    held_out = None if evaluation is None else read_evaluation(evaluation, source, logits=logits)
    chosen = judged.choose(method, source, logits=logits)
    step = _steps(progress)
    with warnings.catch_warnings():
        # It was said once, when the weights were read.
        warnings.filterwarnings("ignore", message="sample_weight sums to")
        step(0, 1, "probabilities before and after", 0, 20)
        rows = judged.judge(chosen, source, held_out, random_state)
        before, after = rows.side("before", random_state), rows.side("after", random_state)
        step(1, 2, "single classes", 0, 20)
        class_rows = rows.classes(WORST_CLASSES, random_state)
        comparison = _compare(chosen, methods, source, held_out, logits, random_state, step)
        if chosen.fitted:
            comparison = _with(comparison, rows.result(chosen, after))
        curve = _curve(chosen, source, held_out, logits, random_state, step)
        gain = rows.gain()
    step(1, 1, "done", 20, 100)
    subject = _subject(rows, source)
    result = next((result for result in comparison.results if result.name == chosen.name), None)
    answer = words.more_data(curve, chosen.name)
    absent = _absent(source)
    return ReportData(
        title=DEFAULT_TITLE if title is None else str(title),
        n_calibration=EvaluationSet.of(source).n,
        n_evaluation=rows.rows.n,
        n_classes=source.n_classes,
        how=_how(chosen, source, held_out, rows),
        subject=subject,
        method=chosen.name,
        method_summary=chosen.summary,
        accuracy_preserving=bool(chosen.map.accuracy_preserving),
        verdict=words.judge(before, after, gain, result, chosen.name, subject),
        before=before,
        after=after,
        gain=gain,
        comparison=comparison,
        curve=curve,
        curve_answer=answer,
        classes=class_rows,
        absent=absent,
        next_steps=words.next_steps(
            chosen.name, chosen.fitted, comparison, before, after, curve, answer, class_rows, absent
        ),
        reproduction=_reproduction(command, method, methods, source, held_out, logits, random_state),
    )


def _steps(progress: Progress | None) -> Callable[[int, int, str, int, int], None]:
    """Progress within a part of the work, as a percentage of all of it."""

    def step(done: int, total: int, what: str, first: int, last: int) -> None:
        if progress is not None:
            progress(round(first + (last - first) * done / max(total, 1)), 100, what)

    return step


def _arrays(source: Rows) -> tuple[Any, ...]:
    """Scores, labels and weights of a source, as functions of the library take them; labels are columns."""
    return source.scores.values, source.labels, source.weight


def _compare(
    chosen: judged.Chosen,
    methods: Methods | None,
    source: Rows,
    held_out: Rows | None,
    logits: bool,
    seed: int,
    step: Callable[[int, int, str, int, int], None],
) -> Comparison:
    scores, labels, weight = _arrays(source)
    maps = build_methods(_default_methods(source) if methods is None else methods, source, logits=logits)
    if not chosen.fitted:
        maps = {chosen.name: chosen.map, **{name: map_ for name, map_ in maps.items() if name != chosen.name}}
    return compare(
        scores,
        labels,
        methods=maps,
        logits=logits,
        sample_weight=weight,
        evaluation=None if held_out is None else _arrays(held_out),
        cv=judged.FOLDS,
        random_state=seed,
        progress=lambda done, total, name: step(done, total, name, 20, 60),
    )


def _default_methods(source: Rows) -> tuple[str, ...]:
    if source.n_entries > LARGE_TABLE:
        return QUICK_METHODS
    return tuple(name for name in METHODS if name != "sms" or source.n_classes <= MANY_CLASSES)


def _with(comparison: Comparison, result: Any) -> Comparison:
    """A comparison with another result in its place."""
    good = [found for found in (*comparison.results, result) if found.gain is not None]
    good.sort(key=lambda found: -float(found.gain))
    return replace(comparison, results=(*good, *comparison.failed))


def _curve(
    chosen: judged.Chosen,
    source: Rows,
    held_out: Rows | None,
    logits: bool,
    seed: int,
    step: Callable[[int, int, str, int, int], None],
) -> LearningCurve | None:
    n = EvaluationSet.of(source).n
    if n < FEWEST_ROWS_FOR_CURVE:
        return None
    large = source.n_entries > LARGE_TABLE
    scores, labels, weight = _arrays(source)
    others = [name for name in (CURVE_METHODS[:1] if large else CURVE_METHODS) if name != chosen.name]
    maps: dict[str, Any] = {chosen.name: chosen.map, **{name: name for name in others}}
    return learning_curve(
        scores,
        labels,
        methods=maps,
        repetitions=2 if large else 5,
        evaluation=None if held_out is None else _arrays(held_out),
        logits=logits,
        sample_weight=weight,
        random_state=seed,
        progress=lambda done, total, name: step(done, total, name, 60, 100),
    )


def _subject(rows: judged.Judged, source: Rows) -> str:
    if not rows.vector:
        return "the confidence in the predicted class"
    name = 1 if source.classes is None else source.classes[1]
    return f"the probability of class {name}"


def _absent(source: Rows) -> tuple[str, ...]:
    names = np.arange(source.n_classes) if source.classes is None else source.classes
    return tuple(str(name) for name in names[source.class_weights() == 0])


def _how(chosen: judged.Chosen, source: Rows, held_out: Rows | None, rows: judged.Judged) -> str:
    n, m = words.rows(EvaluationSet.of(source).n), words.rows(rows.rows.n)
    if held_out is not None:
        other = "The map came fitted; other methods were" if chosen.fitted else "Methods were"
        return f"{other} fitted on {n} and judged on {m} that they had not seen."
    if chosen.fitted:
        return f"The map came fitted and was judged on {m}, which it should not have seen; others were cross-validated."
    return f"Methods were judged by {judged.FOLDS}-fold cross-validation: each of {m} by maps that had not seen it."


def _reproduction(
    command: str | None,
    method: Any,
    methods: Methods | None,
    source: Rows,
    held_out: Rows | None,
    logits: bool,
    seed: int,
) -> Reproduction:
    if command is None:
        arguments = ["scores", "y"]
        if held_out is not None:
            arguments.append("evaluation=(evaluation_scores, evaluation_y)")
        arguments.append(f"method={method!r}" if isinstance(method, str) else "method=fitted_map")
        if methods is not None:
            plain = all(isinstance(name, str) for name in methods) and not isinstance(methods, Mapping)
            arguments.append(f"methods={list(methods)!r}" if plain else "methods=methods")
        if logits:
            arguments.append("logits=True")
        arguments.append(f"random_state={seed}")
        inside = "".join(f"    {argument},\n" for argument in ('"report.html"', *arguments))
        command = f"from mixnmatch.report import write_report\n\nwrite_report(\n{inside})"
    import scipy
    import sklearn

    notes = (
        "Calibration error: residual kernel estimate, first power; interval and p-value by resampling.",
        f"Reliability: residual kernel smoothing, 95% pointwise band; {judged.BINS} equal bins with Wilson intervals.",
        "Calibration gain: reduction of the Brier score, with a Student t interval over rows.",
        f"Single classes: {judged.CLASS_RESAMPLES} resamples for each p-value.",
    )
    versions = (
        ("mixnmatch", __version__),
        ("Python", platform.python_version()),
        ("NumPy", np.__version__),
        ("SciPy", scipy.__version__),
        ("scikit-learn", sklearn.__version__),
    )
    return Reproduction(command, versions, seed, judged.fingerprint(source, held_out), notes)

"""From scores and labels to a report: what is computed, in which order, and the file that comes out."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mixnmatch._engine import door
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.steps import Progress
from mixnmatch._files import atomic_write
from mixnmatch._version import __version__
from mixnmatch.maps._base_rate import reversed_scores
from mixnmatch.maps.registry import METHODS
from mixnmatch.report import before_after as details
from mixnmatch.report import decisions, formats, verdicts
from mixnmatch.report.data import ReportData, Reproduction
from mixnmatch.selection.auto import Auto
from mixnmatch.selection.comparison import compare
from mixnmatch.selection.evaluation_set import EvaluationSet, read_evaluation
from mixnmatch.selection.learning import LearningCurve, learning_curve
from mixnmatch.selection.methods import LEAST_SAMPLES, Methods, build_methods, check_labels
from mixnmatch.selection.results import Comparison, MethodResult
from mixnmatch.selection.verdict import Verdict, more_data

__all__ = ["build_report", "write_report"]

DEFAULT_TITLE = "Calibration report"
# On larger tables the learning curve has fewer methods and repetitions.
LARGE_TABLE = 2_000_000
# Methods of the learning curve beside the one of the verdict.
CURVE_METHODS, CURVE_METHODS_FOR_TWO = ("ts", "irm", "irova-ts"), ("platt", "beta", "isotonic")
REPETITIONS, FEW_REPETITIONS, LEAST_REPETITIONS = 5, 3, 2
WORST_CLASSES = 8


def write_report(
    path: str | PathLike[str],
    scores: Any,
    y: Any = None,
    *,
    evaluation: Any = None,
    method: Any = None,
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
        Held-out set to evaluate on. Without it, methods are cross-validated on ``scores``.
    method : str, map or fitted map, optional
        The method that is shown in detail; by default the one that the verdict says to use. A fitted map is evaluated
        as it is, on the held-out set or else on ``scores``, which it should not have been fitted on.
    methods : sequence of short names and maps, or mapping from names to maps, optional
        What to compare; by default as in :func:`compare`.
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
    >>> data.diagnosis.level, data.verdict.method, data.verdict.helps
    ('bad', 'ts', 'yes')
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
    y: Any = None,
    *,
    evaluation: Any = None,
    method: Any = None,
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
    (10, ['identity', 'ts'])
    """
    source = door.labelled(door.rows(scores, y, sample_weight, logits=logits, classes=classes, weights=weights))
    logits = source.scores.logits
    held_out = None if evaluation is None else read_evaluation(evaluation, source)
    check_labels(source)
    if held_out is not None:
        check_labels(held_out, "evaluation labels")
    asked = None if method is None else details.read_method(method, source, logits=logits)
    step = _steps(progress)
    step(0, 1, "comparing methods", 0, 40)
    comparison = _compare(asked, methods, source, held_out, logits, random_state, step)
    verdict = comparison.verdict.with_warnings([text] if (text := reversed_scores(source)) else [])
    chosen = asked or _of_verdict(verdict, methods, source, logits)
    step(0, 1, "probabilities before and after", 40, 60)
    rows = details.before_after(chosen, source, held_out, random_state)
    before, after = rows.side("before", random_state), rows.side("after", random_state)
    step(1, 2, "single classes", 40, 60)
    class_rows = rows.classes(WORST_CLASSES, random_state)
    if chosen.fitted:
        comparison = _with(comparison, rows.result(chosen, after))
    curve = _curve(chosen, source, held_out, logits, random_state, step)
    gain = rows.gain()
    decided = decisions.measure(rows)
    step(1, 1, "done", 20, 100)
    subject = _subject(source)
    result = next((result for result in comparison.results if result.name == chosen.name), None)
    answer = more_data(chosen.name, curve)
    absent = _absent(source)
    effect = Verdict(chosen.name, "", improvement=rows.improvement())
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
        diagnosis=verdicts.diagnose(before, after, result, effect, subject, rows.confident(verdicts.CONFIDENT)),
        verdict=verdict.with_outlook(curve) if verdict.method == chosen.name else verdict,
        before=before,
        after=after,
        gain=gain,
        comparison=comparison,
        curve=curve,
        curve_answer=answer,
        classes=class_rows,
        absent=absent,
        next_steps=verdicts.next_steps(
            chosen.name, chosen.fitted, verdict, before, after, curve, answer, class_rows, absent
        ),
        reproduction=_reproduction(command, method, methods, source, held_out, logits, random_state),
        decisions=decided,
    )


def _of_verdict(verdict: Verdict, methods: Methods | None, source: Rows, logits: bool) -> details.DetailedMethod:
    """The method of the verdict, under the name that it has in the comparison."""
    built = build_methods(methods, source)[verdict.method]
    summary = METHODS[verdict.method].summary if verdict.method in METHODS else ""
    return details.DetailedMethod(verdict.method, summary, built, False)


def _steps(progress: Progress | None) -> Callable[[int, int, str, int, int], None]:
    """Progress within a part of the work, as a percentage of all of it."""

    def step(done: int, total: int, what: str, first: int, last: int) -> None:
        if progress is not None:
            progress(round(first + (last - first) * done / max(total, 1)), 100, what)

    return step


def _compare(
    asked: details.DetailedMethod | None,
    methods: Methods | None,
    source: Rows,
    held_out: Rows | None,
    logits: bool,
    seed: int,
    step: Callable[[int, int, str, int, int], None],
) -> Comparison:
    maps = build_methods(methods, source)
    if asked is not None and not asked.fitted:
        maps = {asked.name: asked.map, **{name: map_ for name, map_ in maps.items() if name != asked.name}}
    return compare(
        source,
        methods=maps,
        evaluation=held_out,
        cv=details.FOLDS,
        random_state=seed,
        progress=lambda done, total, name: step(done, total, name, 0, 40),
    )


def _with(comparison: Comparison, result: MethodResult) -> Comparison:
    """A comparison with another result in its place."""
    good = [found for found in (*comparison.results, result) if found.nll is not None]
    good.sort(key=lambda found: math.inf if found.nll is None else float(found.nll))
    return replace(comparison, results=(*good, *comparison.failed))


def _curve(
    chosen: details.DetailedMethod,
    source: Rows,
    held_out: Rows | None,
    logits: bool,
    seed: int,
    step: Callable[[int, int, str, int, int], None],
) -> LearningCurve | None:
    if EvaluationSet.of(source).n < LEAST_SAMPLES:
        return None
    large = source.n_entries > LARGE_TABLE
    names = CURVE_METHODS_FOR_TWO if source.n_classes == 2 else CURVE_METHODS
    others = [name for name in (names[:1] if large else names) if name != chosen.name]
    maps: dict[str, Any] = {chosen.name: chosen.map, **{name: name for name in others}}
    repetitions = FEW_REPETITIONS if isinstance(chosen.map, Auto) else REPETITIONS
    return learning_curve(
        source,
        methods=maps,
        repetitions=LEAST_REPETITIONS if large else repetitions,
        evaluation=held_out,
        random_state=seed,
        progress=lambda done, total, name: step(done, total, name, 60, 100),
    )


def _subject(source: Rows) -> str:
    if source.n_classes != 2:
        return "the confidence in the predicted class"
    name = 1 if source.classes is None else source.classes[1]
    return f"the probability of class {name}"


def _absent(source: Rows) -> tuple[str, ...]:
    names = np.arange(source.n_classes) if source.classes is None else source.classes
    return tuple(str(name) for name in names[source.class_weights() == 0])


def _how(chosen: details.DetailedMethod, source: Rows, held_out: Rows | None, rows: details.BeforeAfter) -> str:
    n, m = formats.samples(EvaluationSet.of(source).n), formats.samples(rows.rows.n)
    if held_out is not None:
        other = "The map came fitted; other methods were" if chosen.fitted else "Methods were"
        return f"{other} fitted on {n} and evaluated on {m} that they had not seen."
    if chosen.fitted:
        return (
            f"The map came fitted and was evaluated on {m}, which it should not have seen; others by cross-validation."
        )
    return f"Methods were evaluated on {m} by {details.FOLDS}-fold cross-validation."


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
        if method is not None:
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
        f"Reliability: residual kernel smoothing, 95% pointwise band; {details.BINS} equal bins with Wilson intervals.",
        "Brier score: squared error summed over classes; with two classes, twice the number of scikit-learn.",
        "Calibration gain: reduction of the Brier score, with a Student t interval over samples.",
        "Verdict: the simplest method within one standard error (or 0.1%) of the lowest log loss. Tied: Hsu, 5% level.",
        f"Single classes: {details.CLASS_RESAMPLES} resamples for each p-value.",
    )
    versions = (
        ("mixnmatch", __version__),
        ("Python", platform.python_version()),
        ("NumPy", np.__version__),
        ("SciPy", scipy.__version__),
        ("scikit-learn", sklearn.__version__),
    )
    return Reproduction(command, versions, seed, details.fingerprint(source, held_out), notes)

"""Learning curves: performance against the number of calibration samples, and whether more samples would help."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine import door
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.steps import Progress, Steps
from mixnmatch._engine.tabular import Cells, Record, Tabular
from mixnmatch._engine.text import table, wrapped
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.maps.external import calibration_map
from mixnmatch.maps.parameters import clone
from mixnmatch.selection.evaluation_set import EvaluationSet, read_evaluation
from mixnmatch.selection.methods import Methods, build_methods

if TYPE_CHECKING:
    from mixnmatch.selection.display import LearningCurveDisplay

__all__ = ["CurvePoint", "LearningCurve", "learning_curve"]

MEASURES = ("nll", "brier", "accuracy", "error")
DEFAULT_METHODS = ("ts", "ets", "irm", "irova-ts", "sms")
# Sizes are halved from the largest one, at most so often and not below so many samples.
MOST_SIZES = 6
FEWEST_SAMPLES = 32
# Share of the samples that are set aside to evaluate on, where no others are given.
HELD_OUT = 1 / 3
# A change by less than this share of the log loss is not worth the labels.
WORTHWHILE = 1e-3
# A smaller change of the log loss is printed as "less than" this.
SMALLEST_SHOWN = 0.0001


@dataclass(frozen=True)
class CurvePoint:
    """One method at one calibration-set size: means over repetitions and their standard errors.

    Attributes
    ----------
    method : str
        Name of the method.
    size : int
        Samples that it was fitted on.
    nll, brier, accuracy, error : float
        Means of log loss, Brier score, accuracy and calibration error (of the positive class if there are two classes,
        otherwise of the predicted class) on other samples.
    nll_error, brier_error, accuracy_error, error_error : float
        Standard errors of these over repetitions. Repetitions share samples, so these are somewhat too small.
    repetitions : int
        Repetitions that succeeded.
    """

    method: str
    size: int
    nll: float
    brier: float
    accuracy: float
    error: float
    nll_error: float
    brier_error: float
    accuracy_error: float
    error_error: float
    repetitions: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {key: (value if not _missing(value) else None) for key, value in vars(self).items()}


@dataclass(frozen=True)
class Outlook:
    """Whether more calibration samples would help a method.

    Attributes
    ----------
    method : str
        Name of the method.
    last_gain : float
        Decrease of the log loss at the last increase of the calibration set.
    standard_error : float
        Standard error of that difference, paired over repetitions.
    next_gain : float
        Expected decrease at a further increase by the same factor, if the excess loss falls like 1 / n.
    verdict : {"yes", "no", "unclear"}
        Whether more samples would help.
    sizes : tuple of int
        Sizes of the calibration set before and after the last increase.
    """

    method: str
    last_gain: float
    standard_error: float
    next_gain: float
    verdict: str
    sizes: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        values = {key: (value if not _missing(value) else None) for key, value in vars(self).items()}
        return values | {"sizes": list(self.sizes)}

    def __str__(self) -> str:
        if math.isnan(self.last_gain):
            return (
                f"unclear: there are too few samples to compare calibration sets of different sizes for {self.method}"
            )
        step = f"going from {self.sizes[0]} to {self.sizes[1]} samples" if len(self.sizes) == 2 else "the last increase"
        spread = "" if math.isnan(self.standard_error) else f" (standard error {self.standard_error:.4f})"
        verb = "lowered" if self.last_gain > 0 else "raised"
        size = f"by {abs(self.last_gain):.4f}{spread}"
        if abs(self.last_gain) < SMALLEST_SHOWN:
            verb, size = "changed", f"by less than {SMALLEST_SHOWN}"
        change = f"{step} {verb} the log loss of {self.method} {size}"
        if self.verdict == "yes":
            return f"yes: {change}; the next such step should lower it by about {self.next_gain:.4f}"
        return f"{self.verdict}: {change}"


@dataclass(frozen=True)
class LearningCurve(Tabular):
    """Results of methods over the number of calibration samples.

    Attributes
    ----------
    points : tuple of CurvePoint
        By method and then by size.
    outlooks : tuple of Outlook
        For each method, whether more samples would help.
    sizes : tuple of int
        Numbers of samples.
    how : str
        Description of the samples and repetitions.
    failures : dict
        Messages of methods that failed, by "method at size".
    """

    points: tuple[CurvePoint, ...]
    outlooks: tuple[Outlook, ...]
    sizes: tuple[int, ...]
    how: str
    failures: dict[str, str]

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods."""
        return tuple(dict.fromkeys(point.method for point in self.points))

    def of(self, method: str) -> tuple[CurvePoint, ...]:
        """The curve of one method."""
        return tuple(point for point in self.points if point.method == method)

    def outlook(self, method: str) -> Outlook:
        """Whether more samples would help a method."""
        return next(outlook for outlook in self.outlooks if outlook.method == method)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {
            "how": self.how,
            "sizes": list(self.sizes),
            "points": [point.to_dict() for point in self.points],
            "outlooks": [outlook.to_dict() for outlook in self.outlooks],
            "failures": dict(self.failures),
        }

    def plot(self, measure: str = "nll", *, ax: Any = None) -> LearningCurveDisplay:
        """Draw a measure over the number of samples; see :class:`LearningCurveDisplay`.

        Parameters
        ----------
        measure : {"nll", "brier", "accuracy", "error"}
            Which measure.
        ax : matplotlib axes, optional
            Where to draw; by default on a new figure.
        """
        from mixnmatch.selection.display import LearningCurveDisplay

        return LearningCurveDisplay(self, measure).plot(ax)

    def _records(self) -> list[Record]:
        return [point.to_dict() for point in self.points]

    def _texts(self) -> tuple[list[str], list[str]]:
        return [self.how], [f"{outlook.method}: {outlook}" for outlook in self.outlooks]

    def _cells(self) -> Cells:
        header = ("method", "samples", "log loss", "std. error", "Brier", "accuracy", "ECE")
        rows = [
            (
                p.method,
                str(p.size),
                *(f"{value:.4f}" for value in (p.nll, p.nll_error, p.brier, p.accuracy)),
                f"{100 * p.error:.2f}%",
            )
            for p in self.points
        ]
        return [header, *rows]

    def __str__(self) -> str:
        lines = [wrapped(self.how), table(self._cells()), "Would more calibration data help?"]
        lines += [wrapped(f"  {outlook.method}: {outlook}") for outlook in self.outlooks]
        lines += [f"{where} failed: {why}" for where, why in self.failures.items()]
        return "\n".join(lines)


def learning_curve(
    scores: Any,
    y: Any = None,
    *,
    methods: Methods | None = None,
    sizes: Sequence[int] | None = None,
    most_sizes: int = MOST_SIZES,
    repetitions: int = 5,
    evaluation: Any = None,
    logits: bool = False,
    sample_weight: Any = None,
    classes: Any = None,
    random_state: int = 0,
    progress: Progress | None = None,
) -> LearningCurve:
    """Fit methods on increasing numbers of samples, and evaluate them on held-out samples.

    Parameters
    ----------
    scores : array of shape (n, L) or (n,)
        Probabilities, or logits if ``logits``.
    y : array of shape (n,)
        Labels.
    methods : sequence of short names and maps, or mapping from names to maps, optional
        By default TS, ETS, IRM, IROvA-TS and SMS. The identity (no calibration) is always included.
    sizes : sequence of int, optional
        Numbers of samples to fit on; by default all available samples, half of them, a quarter, and so on.
    most_sizes : int
        Maximal number of default sizes.
    repetitions : int
        Number of random draws. In each repetition, smaller sets are subsets of larger ones, so differences between
        sizes are paired.
    evaluation : tuple (scores, y) or (scores, y, sample_weight), optional
        Held-out set. By default a third of the samples, drawn anew in every repetition, is set aside.
    logits, sample_weight, classes
        As for :func:`compare`.
    random_state : int
        Seed of the draws.
    progress : callable, optional
        Called before each step with the number of finished steps, the number of all steps, and a name.

    Returns
    -------
    LearningCurve
        Means and standard errors by method and size, and for each method whether more samples would help.

    Notes
    -----
    The excess loss of a parametric map falls like 1 / n. Then the next doubling of the samples gains half as much as
    the last one, and all further doublings together gain as much as the last one.

    Examples
    --------
    >>> from mixnmatch import load_sample
    >>> sample = load_sample()
    >>> curve = learning_curve(sample.logits_cal, sample.labels_cal, methods=["ts"], logits=True, repetitions=2)
    >>> curve.outlook("ts").verdict in ("no", "unclear")
    True
    """
    _check(repetitions, sizes)
    source = door.labelled(door.rows(scores, y, sample_weight, logits=logits, classes=classes))
    other = None if evaluation is None else read_evaluation(evaluation, source)
    maps = build_methods(DEFAULT_METHODS if methods is None else methods, source)
    usable = EvaluationSet.of(source).index
    most = len(usable) if other is not None else math.floor(len(usable) * (1 - HELD_OUT))
    sizes_tried = _sizes(sizes, most, most_sizes)
    losses: dict[tuple[str, int], list[tuple[float, ...] | None]] = {}
    failures: dict[str, str] = {}
    steps = Steps(repetitions * len(sizes_tried) * len(maps), progress)
    for repetition in range(repetitions):
        order = usable[np.random.default_rng([random_state, repetition]).permutation(len(usable))]
        rows = EvaluationSet.of(other if other is not None else _subset(source, np.sort(order[most:])))
        for size in sizes_tried:
            part = _subset(source, np.sort(order[:size]))
            for name, unfitted in maps.items():
                steps.begin(f"{name}, {size} samples")
                try:
                    result: tuple[float, ...] | None = _evaluate(unfitted, part, rows)
                except Exception as error:
                    failures[f"{name} at {size} samples"] = " ".join(f"{type(error).__name__}: {error}".split())
                    result = None
                losses.setdefault((name, size), []).append(result)
    where = "held-out samples" if other is not None else "a third of the samples, drawn anew each time"
    how = f"{repetitions} repetitions of up to {most} calibration samples, evaluated on {where}"
    points = tuple(_point(name, size, losses[name, size]) for name in maps for size in sizes_tried)
    outlooks = tuple(_outlook(name, sizes_tried, losses) for name in maps)
    return LearningCurve(points, outlooks, tuple(sizes_tried), how, failures)


def _check(repetitions: Any, sizes: Sequence[int] | None) -> None:
    if isinstance(repetitions, bool) or not isinstance(repetitions, int | np.integer) or repetitions < 1:
        msg = f"repetitions must be a number from 1 on, got {repetitions!r}"
        raise ValueError(msg)
    if sizes is not None and (len(sizes) == 0 or min(sizes) < 1):
        msg = f"sizes must be numbers of samples from 1 on, got {sizes!r}"
        raise ValueError(msg)


def _sizes(sizes: Sequence[int] | None, most: int, most_sizes: int) -> list[int]:
    if most < 1:
        msg = "there are too few samples for a learning curve: at least two are needed"
        raise ValueError(msg)
    if sizes is None:
        halved = [most >> k for k in range(most_sizes)]
        return sorted({size for size in halved if size >= FEWEST_SAMPLES} or {most})
    if max(sizes) > most:
        msg = f"sizes go up to {max(sizes)}, but there are only {most} samples to fit on"
        raise ValueError(msg)
    return sorted({int(size) for size in sizes})


def _subset(source: Rows, index: NDArray[np.intp]) -> Rows:
    assert source.labels is not None
    table_ = source.scores
    weight = None if source.weight is None else source.weight[index]
    part = replace(table_, values=np.asarray(table_.values[index]))
    return Rows(part, source.labels[index], weight, classes=source.classes)


def _evaluate(unfitted: CalibrationMap, part: Rows, rows: EvaluationSet) -> tuple[float, ...]:
    """Log loss, Brier score, accuracy and calibration error on other samples."""
    from mixnmatch.evaluation.error import calibration_error

    fitted = calibration_map(clone(unfitted))._fit_source(part)
    p = fitted.predict_proba(rows.given())
    losses = rows.losses(p)
    means = [float(np.average(v, weights=rows.weight)) for v in (losses.nll, losses.brier, losses.right)]
    error = calibration_error(rows.predicted(p))
    return (*means, float(error))


def _point(name: str, size: int, results: list[tuple[float, ...] | None]) -> CurvePoint:
    good = np.array([result for result in results if result is not None]).reshape(-1, len(MEASURES))
    count = len(good)
    means = good.mean(axis=0) if count else np.full(len(MEASURES), math.nan)
    if count > 1:
        with np.errstate(invalid="ignore"):  # an infinite loss has no variance
            errors = good.std(axis=0, ddof=1) / math.sqrt(count)
    else:
        errors = np.full(len(MEASURES), math.nan)
    measures = dict(zip(MEASURES, map(float, means), strict=True))
    spreads = {f"{name}_error": float(error) for name, error in zip(MEASURES, errors, strict=True)}
    return CurvePoint(method=name, size=size, repetitions=count, **measures, **spreads)


def _outlook(name: str, sizes: list[int], losses: dict[tuple[str, int], list[tuple[float, ...] | None]]) -> Outlook:
    """What the last increase brought, and what the next one should."""
    if len(sizes) < 2:
        return Outlook(name, math.nan, math.nan, math.nan, "unclear")
    pairs = zip(losses[name, sizes[-2]], losses[name, sizes[-1]], strict=True)
    both = [(before[0], after[0]) for before, after in pairs if before is not None and after is not None]
    falls = np.array([before - after for before, after in both if math.isfinite(before) and math.isfinite(after)])
    if not len(falls):
        return Outlook(name, math.nan, math.nan, math.nan, "unclear")
    mean = float(falls.mean())
    error = float(falls.std(ddof=1) / math.sqrt(len(falls))) if len(falls) > 1 else math.nan
    # With excess c / n: from n0 to n1 = r n0 it falls by c (r - 1) / n1, from n1 to r n1 by a factor r less.
    coming = max(mean, 0.0) * sizes[-2] / sizes[-1]
    matters = WORTHWHILE * max(after for _, after in both)
    at_most = (mean + 2 * error) * sizes[-2] / sizes[-1]
    if mean > 2 * error and coming > matters:
        verdict = "yes"
    else:
        verdict = "no" if at_most <= matters else "unclear"
    return Outlook(name, mean, error, coming, verdict, (sizes[-2], sizes[-1]))


def _missing(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)

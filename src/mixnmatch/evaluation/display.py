"""Reliability diagrams: curves of :mod:`mixnmatch.evaluation.reliability`, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mixnmatch._drawing import COLOURS, GREY, LINES, MARKERS, pyplot, without_frame
from mixnmatch.evaluation.reliability import ReliabilityCurve, reliability_curve, worst_classes
from mixnmatch.maps.base import CalibrationMap

__all__ = ["ReliabilityDisplay"]

AXES = ("probability", "log-odds")
# Log-odds axes end here: curves are computed at multiples of 1/2048.
CLOSEST = 1 / 2048
# Where they have ticks, with one minus these.
ODDS_TICKS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5)


class ReliabilityDisplay:
    """A reliability diagram with the density of the confidences underneath.

    Usually made by :meth:`from_estimator`, :meth:`from_predictions`, :meth:`from_map`, :meth:`compare` or
    :meth:`worst_classes`, which draw it at once.

    Parameters
    ----------
    curves : sequence of ReliabilityCurve
        Curves to draw over each other, or each in a panel of its own.
    names : sequence of str, optional
        What the legend calls them; without names there is no legend entry but the error.
    panels : bool
        Whether each curve has a panel of its own (small multiples).
    axes : {"probability", "log-odds"}
        Scale of both axes. Log-odds let probabilities close to 0 or 1 be read, as of rare events.

    Attributes
    ----------
    figure_, ax_, density_ax_
        What was drawn on; with ``panels``, ``ax_`` and ``density_ax_`` are lists.

    Examples
    --------
    >>> from mixnmatch.data import load_sample
    >>> sample = load_sample()
    >>> display = ReliabilityDisplay.from_predictions(
    ...     sample.labels_eval, sample.logits_eval, logits=True
    ... )  # doctest: +SKIP
    """

    def __init__(
        self,
        curves: Sequence[ReliabilityCurve],
        names: Sequence[str] | None = None,
        *,
        panels: bool = False,
        axes: str = "probability",
    ) -> None:
        if not curves:
            msg = "there is no curve to draw"
            raise ValueError(msg)
        if names is not None and len(names) != len(curves):
            msg = f"there are {len(names)} names for {len(curves)} curves"
            raise ValueError(msg)
        self.curves = tuple(curves)
        self.names = None if names is None else tuple(str(name) for name in names)
        if axes not in AXES:
            msg = f"axes must be {' or '.join(map(repr, AXES))}, got {axes!r}"
            raise ValueError(msg)
        self.panels = panels
        self.axes = axes

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        scores: Any,
        *,
        name: str | None = None,
        ax: Any = None,
        axes: str = "probability",
        **options: Any,
    ) -> ReliabilityDisplay:
        """Draw the reliability diagram of scores.

        Parameters
        ----------
        y : array of shape (n,)
            Labels.
        scores : array of shape (n, L) or (n,)
            Probabilities, or logits with ``logits=True``.
        name : str, optional
            What the legend calls them.
        ax : matplotlib axes, optional
            Where to draw; by default on a new figure.
        axes : {"probability", "log-odds"}
            Scale of both axes.
        **options
            Of :func:`reliability_curve`: ``kind``, ``notion``, ``label``, ``band``, ``logits`` and the others.
        """
        names = None if name is None else [name]
        return cls([reliability_curve(scores, y, **options)], names, axes=axes).plot(ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, name: str | None = None, ax: Any = None, **options: Any
    ) -> ReliabilityDisplay:
        """Draw the reliability diagram of a fitted classifier.

        Parameters
        ----------
        estimator : fitted classifier
            With ``predict_proba``; otherwise with ``decision_function``, whose values are taken as logits. Its
            ``classes_`` name the columns.
        X : array or data frame
            Features of samples that it was not fitted on.
        y : array of shape (n,)
            Their labels.
        name : str, optional
            What the legend calls the classifier; by default its class.
        ax : matplotlib axes, optional
            Where to draw; by default on a new figure.
        axes : {"probability", "log-odds"}
            Scale of both axes.
        **options
            Of :func:`reliability_curve`: ``kind``, ``notion``, ``label``, ``band``, ``sample_weight`` and the others.
        """
        from mixnmatch._estimators import class_names, codes_of, scores_of

        scores, logits = scores_of(estimator, X, prefer="predict_proba")
        classes = np.asarray(estimator.classes_)
        names = class_names(classes)
        labels = names[codes_of(np.asarray(y), classes)]
        name = type(estimator).__name__ if name is None else name
        return cls.from_predictions(labels, scores, name=name, ax=ax, logits=logits, classes=names, **options)

    @classmethod
    def from_map(
        cls,
        fitted: CalibrationMap,
        scores: Any,
        y: Any,
        *,
        names: Sequence[str] = ("before", "after"),
        ax: Any = None,
        axes: str = "probability",
        **options: Any,
    ) -> ReliabilityDisplay:
        """Draw the curves before and after a fitted map in one diagram.

        Parameters
        ----------
        fitted : a fitted calibration map
            Any object with ``predict_proba``; whether it takes logits is its own ``logits``.
        scores : array of shape (n, L) or (n,)
            Scores before the map.
        y : array of shape (n,)
            Labels.
        names : pair of str
            What the legend calls the two.
        ax : matplotlib axes, optional
            Where to draw; by default on a new figure.
        axes : {"probability", "log-odds"}
            Scale of both axes.
        **options
            Of :func:`reliability_curve`.
        """
        logits = bool(options.pop("logits", _takes_logits(fitted)))
        after = fitted.predict_proba(scores)
        vector = np.ndim(scores) == 1
        before_curve = reliability_curve(scores, y, logits=logits, **options)
        after_curve = reliability_curve(after[:, 1] if vector else after, y, **options)
        return cls([before_curve, after_curve], names, axes=axes).plot(ax)

    @classmethod
    def compare(
        cls,
        y: Any,
        scores: Mapping[str, Any],
        *,
        logits: Sequence[str] = (),
        ax: Any = None,
        axes: str = "probability",
        **options: Any,
    ) -> ReliabilityDisplay:
        """Draw the curves of several scores of the same samples in one diagram.

        Parameters
        ----------
        y : array of shape (n,)
            Labels.
        scores : mapping of names to arrays
            Scores by what the legend calls them, e.g. ``{"before": z, "after": p}``.
        logits : sequence of str
            The names of those that are logits.
        ax : matplotlib axes, optional
            Where to draw; by default on a new figure.
        axes : {"probability", "log-odds"}
            Scale of both axes.
        **options
            Of :func:`reliability_curve`.
        """
        unknown = set(logits) - set(scores)
        if unknown:
            msg = f"logits names {sorted(unknown)}, but the scores are {sorted(scores)}"
            raise ValueError(msg)
        curves = [reliability_curve(table, y, logits=name in logits, **options) for name, table in scores.items()]
        subjects = {curve.problem for curve in curves}
        if len(subjects) > 1:
            msg = f"these scores are about different things ({', '.join(sorted(subjects))}): draw one diagram for each"
            raise ValueError(msg)
        return cls(curves, list(scores), axes=axes).plot(ax)

    @classmethod
    def worst_classes(
        cls, y: Any, scores: Any, *, n: int = 6, figure: Any = None, **options: Any
    ) -> ReliabilityDisplay:
        """Draw the classes with the largest class-wise errors, a panel each, the worst first.

        Parameters
        ----------
        y : array of shape (m,)
            Labels.
        scores : array of shape (m, L)
            Probabilities, or logits with ``logits=True``.
        n : int
            How many classes.
        figure : matplotlib figure, optional
            Where to draw; by default on a new figure.
        **options
            Of :func:`reliability_curve`, without ``notion`` and ``label``.
        """
        shared = {key: options[key] for key in ("logits", "sample_weight", "classes", "weights") if key in options}
        worst = worst_classes(scores, y, n=n, **shared)
        curves = [reliability_curve(scores, y, label=label, **options) for label, _ in worst]
        return cls(curves, panels=True).plot(figure=figure)

    def plot(self, ax: Any = None, *, figure: Any = None) -> ReliabilityDisplay:
        """Draw on ``ax``, or on a new figure.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw a single diagram; the density takes the space below it.
        figure : matplotlib figure, optional
            Where to draw panels.
        """
        if self.panels:
            return self._plot_panels(ax, figure)
        if ax is None:
            width, height, side = 5.0, 5.8, 4.1  # inches, with room for the density below the square
            figure = pyplot().figure(figsize=(width, height))
            ax = figure.add_axes((0.7 / width, 1.35 / height, side / width, side / height))
        self.ax_, self.density_ax_, self.figure_ = ax, _density_axes(ax), ax.figure
        names = self.names or ("",) * len(self.curves)
        for k, (curve, name) in enumerate(zip(self.curves, names, strict=True)):
            # As in the report, of two the first ("before") is orange and the second ("after") blue.
            look = 1 - k if len(self.curves) == 2 else k
            _draw(ax, self.density_ax_, curve, name, look, alone=len(self.curves) == 1)
        _finish(ax, self.density_ax_, self.curves, legend=True)
        if self.axes == "log-odds":
            _log_odds_axes(ax, self.density_ax_, self.curves)
        return self

    def _plot_panels(self, ax: Any, figure: Any) -> ReliabilityDisplay:
        if ax is not None:
            msg = "panels need a figure of their own: leave ax out, or pass figure=..."
            raise ValueError(msg)
        columns = min(3, len(self.curves))
        rows = -(-len(self.curves) // columns)
        if figure is None:
            figure = pyplot().figure(figsize=(0.6 + 2.8 * columns, 0.3 + 3.5 * rows))
        width, height = 0.6 + 2.8 * columns, 0.3 + 3.5 * rows
        # In inches: panels of 2.4, 0.4 between them, and below each row 0.75 for the density and 0.35 for titles.
        room = {"left": 0.65 / width, "right": 1 - 0.35 / width, "top": 1 - 0.35 / height, "bottom": 1.0 / height}
        grid = figure.subplots(rows, columns, squeeze=False, gridspec_kw={**room, "wspace": 0.17, "hspace": 0.46})
        self.figure_, self.ax_, self.density_ax_ = figure, [], []
        names = self.names or tuple(curve.problem for curve in self.curves)
        for k, panel in enumerate(grid.ravel()):
            if k >= len(self.curves):
                panel.set_visible(False)
                continue
            below = _density_axes(panel)
            _draw(panel, below, self.curves[k], "", 0, alone=True)
            _finish(panel, below, self.curves[k : k + 1], legend=False)
            panel.set_title(f"{names[k]}   error {self.curves[k].error:.2g}", fontsize="medium")
            panel.set_ylabel("frequency" if k % columns == 0 else "")
            below.set_ylabel("density" if k % columns == 0 else "", fontsize="small")
            below.set_xlabel("confidence" if k + columns >= len(self.curves) else "")
            self.ax_.append(panel)
            self.density_ax_.append(below)
        return self


def _density_axes(ax: Any) -> Any:
    """A small panel below ``ax`` with the same confidences."""
    below = ax.inset_axes([0.0, -0.22, 1.0, 0.18], sharex=ax)
    ax.tick_params(labelbottom=False)
    return below


def _draw(ax: Any, below: Any, curve: ReliabilityCurve, name: str, k: int, *, alone: bool) -> None:
    colour, line = COLOURS[k % len(COLOURS)], LINES[k % len(LINES)]
    label = f"{name}: error {curve.error:.4f}" if name else f"error {curve.error:.4f}"
    x, consistency = curve.confidence, curve.band == "consistency"
    shade = GREY if consistency and alone else colour
    if curve.kind == "histogram" and not consistency:
        reach = np.abs(np.stack([curve.value - curve.low, curve.high - curve.value]))
        marker = MARKERS[k % len(MARKERS)]
        ax.errorbar(
            x, curve.value, reach, color=colour, ls=line, lw=1.2, marker=marker, ms=4.5, capsize=2.5, label=label
        )
    else:
        marker = {"histogram": MARKERS[k % len(MARKERS)]}.get(curve.kind, "")
        band_label = curve.band_text if alone else None
        ax.fill_between(x, curve.low, curve.high, color=shade, alpha=0.2, lw=0, label=band_label)
        ax.plot(x, curve.value, color=colour, ls=line, lw=1.8, marker=marker, ms=4.5, label=label)
    below.fill_between(curve.density_at, curve.density, color=colour, alpha=0.18, lw=0)
    below.plot(curve.density_at, curve.density, color=colour, ls=line, lw=1.2)


def _finish(ax: Any, below: Any, curves: Sequence[ReliabilityCurve], *, legend: bool) -> None:
    ax.plot([0, 1], [0, 1], color=GREY, ls=":", lw=1.2, zorder=1)
    problems = list(dict.fromkeys(curve.problem for curve in curves))
    what = "accuracy" if problems == ["the top label"] else "frequency"
    ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), ylabel=what)
    ax.set_box_aspect(1)
    below.set(ylim=(0, None), yticks=[], xlabel="confidence")
    below.set_ylabel("density", fontsize="small")
    without_frame(ax, below)
    below.spines["left"].set_visible(False)
    ax.set_title(f"reliability of {' and '.join(problems)}, n = {curves[0].n_rows}", fontsize="medium")
    if legend:
        shaded = len(curves) == 1 and not (curves[0].kind == "histogram" and curves[0].band == "confidence")
        title = None if shaded else curves[0].band_text
        ax.legend(loc="upper left", fontsize="small", title=title, title_fontsize="small", framealpha=0.85)


def _log_odds_axes(ax: Any, below: Any, curves: Sequence[ReliabilityCurve]) -> None:
    """Scale both axes by log-odds, from the smallest to the largest score, without the density."""
    scores = np.concatenate([curve.confidence for curve in curves])
    ends = np.log([CLOSEST / (1 - CLOSEST), (1 - CLOSEST) / CLOSEST])
    with np.errstate(divide="ignore"):
        low, high = np.clip(np.log(extremes := np.array([scores.min(), scores.max()])) - np.log1p(-extremes), *ends)
    low, high = (float(1 / (1 + np.exp(-end))) for end in (np.floor(low), np.ceil(high)))
    ticks = sorted({p for small in ODDS_TICKS for p in (small, 1 - small) if low <= p <= high})
    ax.set_xscale("logit", nonpositive="clip")
    ax.set_yscale("logit", nonpositive="clip")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(ticks, [f"{p:.4g}" for p in ticks])
        axis.set_ticks([], minor=True)
    ax.plot([low, high], [low, high], color=GREY, ls=":", lw=1.2, zorder=1)
    ax.set(xlim=(low, high), ylim=(low, high), xlabel="confidence")
    ax.tick_params(labelbottom=True)
    below.set_visible(False)


def _takes_logits(fitted: Any) -> bool:
    """Whether a map, or the first of a composition, was made for logits."""
    if isinstance(fitted, CalibrationMap):
        return fitted.takes_logits
    return bool(getattr(fitted, "logits", False))

"""Comparisons and learning curves, drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mixnmatch._drawing import COLOURS, GREY, line_style, new_axes, without_frame

if TYPE_CHECKING:
    from mixnmatch.selection.learning import LearningCurve
    from mixnmatch.selection.results import Comparison

__all__ = ["ComparisonDisplay", "LearningCurveDisplay"]

MEASURES = {
    "nll": "log loss",
    "brier": "Brier score",
    "accuracy": "accuracy",
    "error": "calibration error (ECE)",
}


class ComparisonDisplay:
    """Calibration gain of each method with its interval, the best on top.

    Filled circles are methods that preserve accuracy, open squares those that may change predictions.

    Parameters
    ----------
    comparison : Comparison
        What to draw. Methods that failed are named under the axes.

    Attributes
    ----------
    figure_, ax_
        What was drawn on.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    def plot(self, ax: Any = None) -> ComparisonDisplay:
        """Draw on ``ax``, or on a new figure.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw.
        """
        drawn = [result for result in self.comparison.results if result.gain is not None]
        if not drawn:
            msg = "there is no method to draw: all of them failed"
            raise ValueError(msg)
        ax = new_axes(6.4, 1.5 + 0.27 * len(drawn)) if ax is None else ax
        self.ax_, self.figure_ = ax, ax.figure
        ax.axvline(0.0, color=GREY, ls=":", lw=1.2, zorder=1)
        for preserving, colour, marker, face, label in (
            (True, COLOURS[0], "o", COLOURS[0], "preserves accuracy"),
            (False, COLOURS[1], "s", "white", "may change predictions"),
        ):
            chosen = [(k, r) for k, r in enumerate(drawn) if r.accuracy_preserving is preserving]
            if not chosen:
                continue
            gains = np.array([float(r.gain) for _, r in chosen if r.gain is not None])
            ends = np.array([r.gain.interval for _, r in chosen if r.gain is not None])
            reach = np.abs(ends.T - gains)
            style = {"color": colour, "marker": marker, "mfc": face, "ms": 5.5, "ls": "none", "capsize": 2.5}
            ax.errorbar(gains, [k for k, _ in chosen], xerr=reach, label=label, **style)
        ax.set_yticks(range(len(drawn)), [result.name for result in drawn])
        ax.set_ylim(len(drawn) - 0.4, -0.6)
        ax.set_xlabel(f"calibration gain (decrease of the Brier score), {self.comparison.confidence:.0%} intervals")
        if self.comparison.failed:
            names = ", ".join(result.name for result in self.comparison.failed)
            ax.set_xlabel(f"{ax.get_xlabel()}\nfailed: {names}")
        ax.set_title(self.comparison.how, fontsize="medium", loc="left")
        ax.grid(axis="y", color="0.93", lw=0.8)
        ax.set_axisbelow(True)
        ax.legend(fontsize="small", framealpha=0.85)
        without_frame(ax)
        return self


class LearningCurveDisplay:
    """A measure over the number of calibration samples, a line for each method.

    Parameters
    ----------
    curve : LearningCurve
        What to draw.
    measure : {"nll", "brier", "accuracy", "error"}
        Which of its measures.

    Attributes
    ----------
    figure_, ax_
        What was drawn on.
    """

    def __init__(self, curve: LearningCurve, measure: str = "nll") -> None:
        if measure not in MEASURES:
            msg = f"measure must be one of {', '.join(MEASURES)}, got {measure!r}"
            raise ValueError(msg)
        self.curve = curve
        self.measure = measure

    def plot(self, ax: Any = None) -> LearningCurveDisplay:
        """Draw on ``ax``, or on a new figure.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw.
        """
        ax = new_axes(6.4, 4.2) if ax is None else ax
        self.ax_, self.figure_ = ax, ax.figure
        for k, method in enumerate(self.curve.methods):
            points = self.curve.of(method)
            sizes = np.array([point.size for point in points])
            values = np.array([getattr(point, self.measure) for point in points])
            spreads = np.nan_to_num(np.array([getattr(point, f"{self.measure}_error") for point in points]))
            style = line_style(k)
            ax.fill_between(sizes, values - spreads, values + spreads, color=style["color"], alpha=0.15, lw=0)
            ax.plot(sizes, values, lw=1.6, ms=4.5, label=method, **style)
        ax.set_xscale("log")
        ax.set_xticks(self.curve.sizes, [str(size) for size in self.curve.sizes])
        ax.set_xticks([], minor=True)
        ax.set(xlabel="rows to fit on", ylabel=MEASURES[self.measure])
        ax.set_title("shaded: one standard error over repetitions", fontsize="small", loc="left")
        ax.legend(fontsize="small", framealpha=0.85)
        without_frame(ax)
        return self

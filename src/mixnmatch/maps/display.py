"""Calibration maps drawn: the learned function, or a cut through the simplex, and the members of an ensemble."""

from __future__ import annotations

from typing import Any

import numpy as np

from mixnmatch._drawing import COLOURS, GREY, LINES, new_axes, without_frame
from mixnmatch.maps.curve import MapCurve, map_curve

__all__ = ["MapDisplay"]

# Members that weigh less are named in the legend but hardly drawn.
FAINT = 0.005


class MapDisplay:
    """Plot of a calibration map: calibrated against original confidence.

    Usually made by :meth:`from_map` or :meth:`from_estimator`, which draw it at once.

    Parameters
    ----------
    curve : MapCurve
        What to draw.

    Attributes
    ----------
    figure_, ax_
        What was drawn on.
    """

    def __init__(self, curve: MapCurve) -> None:
        self.curve = curve

    @classmethod
    def from_map(cls, fitted: Any, *, ax: Any = None, **options: Any) -> MapDisplay:
        """Draw a fitted map.

        Parameters
        ----------
        fitted : a fitted calibration map
            Any map, or object with ``predict_proba`` and ``classes_``.
        ax : matplotlib axes, optional
            Where to draw; by default on a new figure.
        **options
            Of :func:`map_curve`: ``classes`` and ``n_points``.
        """
        return cls(map_curve(fitted, **options)).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: Any, *, fold: int = 0, ax: Any = None, **options: Any) -> MapDisplay:
        """Draw the map that a fitted :class:`CalibratedClassifier` applies to the scores of its classifier.

        Parameters
        ----------
        estimator : fitted CalibratedClassifier
            It has one map, or with ``ensemble=True`` one for each fold.
        fold : int
            Which of these.
        ax : matplotlib axes, optional
            Where to draw; by default on a new figure.
        **options
            Of :func:`map_curve`: ``classes`` and ``n_points``.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(estimator)
        pairs = getattr(estimator, "pairs_", None)
        if pairs is None:
            msg = f"a CalibratedClassifier is needed, whose map can be drawn, got {estimator!r:.200}"
            raise TypeError(msg)
        if not 0 <= fold < len(pairs):
            msg = f"fold must be from 0 to {len(pairs) - 1}, got {fold!r}"
            raise ValueError(msg)
        return cls.from_map(pairs[fold][1], ax=ax, **options)

    def plot(self, ax: Any = None) -> MapDisplay:
        """Draw on ``ax``, or on a new figure.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw.
        """
        ax = new_axes(5.0, 4.8) if ax is None else ax
        self.ax_, self.figure_ = ax, ax.figure
        z = self.curve.confidence
        ax.plot([0, 1], [0, 1], color=GREY, ls=":", lw=1.2, zorder=1)
        for k, line in enumerate(self.curve.lines):
            style = {"color": COLOURS[k % len(COLOURS)], "ls": LINES[k % len(LINES)]}
            if line.weight is None:
                ax.plot(z, line.value, lw=2.2, label=line.name, zorder=3, **style)
            else:
                alpha = 1.0 if line.weight >= FAINT else 0.35
                label = f"{line.name}, weight {line.weight:.3f}"
                ax.plot(z, line.value, lw=1.3, alpha=alpha, label=label, **style)
        top = max(1.0, *(float(np.max(line.value)) for line in self.curve.lines))
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.01 * top, 1.01 * top), xlabel="confidence z", ylabel=self.curve.meaning)
        ax.set_title(self.curve.title, fontsize="medium")
        if len(self.curve.lines) > 1:
            ax.legend(loc="upper left", fontsize="small", framealpha=0.85)
        without_frame(ax)
        return self

"""Decision curves, cost curves and risk-coverage curves, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from mixnmatch._drawing import COLOURS, GREY, LINES, new_axes, without_frame
from mixnmatch.decisions.benefit import DecisionCurve, net_benefit
from mixnmatch.decisions.selective import RiskCoverageCurve, SelectiveCoverage, risk_coverage_curve

__all__ = ["DecisionDisplay", "RiskCoverageDisplay"]


class _Curves:
    """What both displays share: curves of one kind, and what the legend calls them."""

    def __init__(self, curves: Sequence[Any], names: Sequence[str] | None = None) -> None:
        if not curves:
            msg = "there is no curve to draw"
            raise ValueError(msg)
        if names is not None and len(names) != len(curves):
            msg = f"there are {len(names)} names for {len(curves)} curves"
            raise ValueError(msg)
        self.curves = tuple(curves)
        self.names = ("model",) if names is None and len(curves) == 1 else names
        if self.names is None:
            self.names = tuple(f"model {k + 1}" for k in range(len(curves)))

    def _axes(self, ax: Any) -> Any:
        self.ax_ = new_axes(6.0, 4.2) if ax is None else ax
        self.figure_ = self.ax_.figure
        without_frame(self.ax_)
        return self.ax_


class DecisionDisplay(_Curves):
    """Net benefit, or cost, of acting on a probability, over thresholds.

    Usually made by :meth:`from_predictions` or :meth:`compare`, which draw it at once.

    Parameters
    ----------
    curves : sequence of DecisionCurve
        Curves to draw over each other, of the same samples.
    names : sequence of str, optional
        What the legend calls them.

    Attributes
    ----------
    figure_, ax_
        What was drawn on.

    Examples
    --------
    >>> display = DecisionDisplay.compare(y, {"raw": p, "calibrated": q}, kind="cost")  # doctest: +SKIP
    """

    curves: tuple[DecisionCurve, ...]

    @classmethod
    def from_predictions(
        cls, y: Any, probs: Any, *, name: str | None = None, kind: str = "net benefit", ax: Any = None, **options: Any
    ) -> Self:
        """Draw the decision curve of probabilities.

        Parameters
        ----------
        y : array of shape (n,)
            Labels.
        probs : array of shape (n,) or (n, 2)
            Probabilities.
        name : str, optional
            What the legend calls them.
        kind : {"net benefit", "cost"}
            What is drawn.
        ax : matplotlib axes, optional
            Where to draw; by default on a new figure.
        **options
            Of :func:`net_benefit`.
        """
        return cls([net_benefit(probs, y, **options)], None if name is None else [name]).plot(ax, kind=kind)

    @classmethod
    def compare(
        cls, y: Any, probs: Mapping[str, Any], *, kind: str = "net benefit", ax: Any = None, **options: Any
    ) -> Self:
        """Draw several probabilities of the same samples over each other.

        Parameters
        ----------
        y : array of shape (n,)
            Labels.
        probs : mapping of names to arrays
            Probabilities by what the legend calls them.
        kind : {"net benefit", "cost"}
            What is drawn.
        ax : matplotlib axes, optional
            Where to draw; by default on a new figure.
        **options
            Of :func:`net_benefit`.
        """
        curves = [net_benefit(table, y, **options) for table in probs.values()]
        return cls(curves, list(probs)).plot(ax, kind=kind)

    def plot(self, ax: Any = None, *, kind: str = "net benefit") -> Self:
        """Draw on ``ax``, or on a new figure.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw.
        kind : {"net benefit", "cost"}
            What is drawn.
        """
        if kind not in ("net benefit", "cost"):
            msg = f'kind must be "net benefit" or "cost", got {kind!r}'
            raise ValueError(msg)
        ax = self._axes(ax)
        first, cost = self.curves[0], kind == "cost"
        everyone, no_one = (first.cost_of_all, first.cost_of_none) if cost else (first.select_all, 0 * first.threshold)
        ax.plot(first.threshold, everyone, color=GREY, ls="--", lw=1.2, label="select everyone")
        ax.plot(first.threshold, no_one, color=GREY, ls=":", lw=1.2, label="select no one")
        assert self.names is not None
        for k, (curve, name) in enumerate(zip(self.curves, self.names, strict=True)):
            colour, line = COLOURS[k % len(COLOURS)], LINES[k % len(LINES)]
            value = curve.cost if cost else curve.net_benefit
            ax.plot(curve.threshold, value, color=colour, ls=line, lw=1.8, label=name)
            if not cost and len(self.curves) == 1 and np.isfinite(curve.low).all():
                ax.fill_between(curve.threshold, curve.low, curve.high, color=colour, alpha=0.18, lw=0)
        values = np.concatenate([curve.cost if cost else curve.net_benefit for curve in self.curves])
        top = max(float(values.max()), float(first.prevalence) if not cost else 0.0)
        best = float(np.minimum(first.cost_of_all, first.cost_of_none).max())
        limits = (0.0, 1.15 * max(best, top)) if cost else (-0.25 * max(top, 1e-3), 1.08 * max(top, 1e-3))
        ax.set(xlim=(float(first.threshold.min()), float(first.threshold.max())), ylim=limits)
        ax.set_xlabel("threshold t" if not cost else "threshold t = cost of a false positive (a false negative: 1 − t)")
        ax.set_ylabel("mean cost per sample" if cost else "net benefit")
        ax.set_title(f"{'cost' if cost else 'net benefit'} of decisions, n = {first.n_rows}", fontsize="medium")
        ax.legend(loc="best", fontsize="small", framealpha=0.85)
        return self


class RiskCoverageDisplay(_Curves):
    """Error rate among the most confident predictions, over the share of samples that are predicted.

    Usually made by :meth:`from_predictions` or :meth:`compare`, which draw it at once.

    Parameters
    ----------
    curves : sequence of RiskCoverageCurve
        Curves to draw over each other.
    names : sequence of str, optional
        What the legend calls them.
    guarantee : SelectiveCoverage, optional
        A target risk and the coverage that it allows, marked on the picture.

    Attributes
    ----------
    figure_, ax_
        What was drawn on.

    Examples
    --------
    >>> display = RiskCoverageDisplay.from_predictions(y, p)  # doctest: +SKIP
    """

    curves: tuple[RiskCoverageCurve, ...]

    def __init__(
        self,
        curves: Sequence[RiskCoverageCurve],
        names: Sequence[str] | None = None,
        *,
        guarantee: SelectiveCoverage | None = None,
    ) -> None:
        super().__init__(curves, names)
        self.guarantee = guarantee

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        probs: Any,
        *,
        name: str | None = None,
        guarantee: SelectiveCoverage | None = None,
        ax: Any = None,
        **options: Any,
    ) -> Self:
        """Draw the risk-coverage curve of probabilities.

        Parameters
        ----------
        y : array of shape (n,)
            Labels.
        probs : array of shape (n, L) or (n,)
            Probabilities, or logits with ``logits=True``.
        name : str, optional
            What the legend calls them.
        guarantee : SelectiveCoverage, optional
            What :func:`coverage_for` found, to be marked.
        ax : matplotlib axes, optional
            Where to draw; by default on a new figure.
        **options
            Of :func:`risk_coverage_curve`.
        """
        names = None if name is None else [name]
        return cls([risk_coverage_curve(probs, y, **options)], names, guarantee=guarantee).plot(ax)

    @classmethod
    def compare(cls, y: Any, probs: Mapping[str, Any], *, ax: Any = None, **options: Any) -> Self:
        """Draw several probabilities of the same samples over each other.

        Parameters
        ----------
        y : array of shape (n,)
            Labels.
        probs : mapping of names to arrays
            Probabilities by what the legend calls them.
        ax : matplotlib axes, optional
            Where to draw; by default on a new figure.
        **options
            Of :func:`risk_coverage_curve`.
        """
        return cls([risk_coverage_curve(table, y, **options) for table in probs.values()], list(probs)).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw.
        """
        ax = self._axes(ax)
        assert self.names is not None
        for k, (curve, name) in enumerate(zip(self.curves, self.names, strict=True)):
            colour, line = COLOURS[k % len(COLOURS)], LINES[k % len(LINES)]
            ax.plot(curve.coverage, curve.risk, color=colour, ls=line, lw=1.8, label=f"{name}: AURC {curve.aurc:.4f}")
        found = self.guarantee
        if found is not None:
            ax.axhline(found.target, color=GREY, ls=":", lw=1.2)
            if found.met:
                label = f"risk at most {found.target:g} with {found.confidence:.0%} confidence"
                ax.plot([found.coverage], [found.risk], "D", color=COLOURS[2], ms=7, label=label, zorder=5)
        # Few samples make the left end jump: the picture is scaled by the part that rests on more.
        shown = [curve.risk[curve.coverage >= 0.1].max(initial=0.0) for curve in self.curves]
        top = max(*shown, 0.0, 0.0 if found is None else found.target)
        ax.set(xlim=(0.0, 1.0), ylim=(0.0, min(1.0, 1.15 * top) or 1.0))
        ax.set_xlabel("coverage: share of samples that are predicted")
        ax.set_ylabel("risk: error rate among them")
        ax.set_title(f"risk and coverage, n = {self.curves[0].n_rows}", fontsize="medium")
        ax.legend(loc="upper left", fontsize="small", framealpha=0.85)
        return self

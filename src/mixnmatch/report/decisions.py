"""The section on decisions: what they cost over all cost ratios, and how many samples a target risk allows."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from mixnmatch.decisions.benefit import DecisionCurve, net_benefit
from mixnmatch.decisions.selective import RiskCoverageCurve, SelectiveCoverage, coverage_for, risk_coverage_curve
from mixnmatch.report import svg
from mixnmatch.report.data import _Plain
from mixnmatch.report.figures import TENTHS, Figure
from mixnmatch.report.formats import number, percent
from mixnmatch.report.svg import Panel

if TYPE_CHECKING:
    from mixnmatch.report.before_after import BeforeAfter

# Target risks of the table; each limit holds with this confidence.
RISKS = (0.01, 0.02, 0.05, 0.1, 0.2)
CONFIDENCE = 0.95
# Coverages below this rest on too few samples to scale a picture by.
LEAST_COVERAGE = 0.05
WIDTH, HEIGHT = 560.0, 366.0


@dataclass(frozen=True, eq=False)
class DecisionSection(_Plain):
    """What a report says about decisions.

    Attributes
    ----------
    cost_before, cost_after : DecisionCurve or None
        Costs over thresholds, for two classes.
    risk_before, risk_after : RiskCoverageCurve
        Error rate over coverage.
    coverages : tuple of SelectiveCoverage
        Coverage after calibration that target risks allow, with a guarantee.
    """

    cost_before: DecisionCurve | None
    cost_after: DecisionCurve | None
    risk_before: RiskCoverageCurve
    risk_after: RiskCoverageCurve
    coverages: tuple[SelectiveCoverage, ...]

    @property
    def saving(self) -> tuple[float, float, float] | None:
        """Threshold at which calibration lowers the cost most, and the cost before and after."""
        before, after = self.cost_before, self.cost_after
        if before is None or after is None:
            return None
        gain = before.cost - after.cost
        at = int(gain.argmax())
        if gain[at] <= 0:
            return None
        return float(before.threshold[at]), float(before.cost[at]), float(after.cost[at])

    def figures(self) -> list[Figure]:
        """Cost over thresholds, for two classes, and error rate over coverage."""
        made = [risk_figure(self.risk_before, self.risk_after)]
        if self.cost_before is not None and self.cost_after is not None:
            made.append(cost_figure(self.cost_before, self.cost_after))
        return made


def measure(rows: BeforeAfter) -> DecisionSection:
    """Measure the scores before and after calibration on the samples that the report rests on."""
    sides = (rows.before_rows, rows.after_rows)
    costs = [net_benefit(side) if side.binary else None for side in sides]
    risks = [risk_coverage_curve(side) for side in sides]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a risk that cannot be promised is an empty cell of the table
        coverages = tuple(coverage_for(sides[1], risk=risk, confidence=CONFIDENCE) for risk in RISKS)
    return DecisionSection(costs[0], costs[1], risks[0], risks[1], coverages)


def cost_figure(before: DecisionCurve, after: DecisionCurve) -> Figure:
    """Mean cost over thresholds, before and after, and of the two constant decisions."""
    top = 1.08 * max(float(np.minimum(after.cost_of_all, after.cost_of_none).max()), float(after.cost.max()))
    top = max(top, min(float(before.cost.max()) * 1.05, 2 * top), 1e-6)
    panel = Panel(62, 34, 482, 268, (0.0, 1.0), (0.0, top))
    axes = [
        svg.x_axis(panel, TENTHS, "Threshold t = cost of a false positive"),
        svg.y_axis(panel, _ticks(top), "Mean cost, lower is better"),
    ]
    lines = [
        *(svg.line(panel.points(after.threshold, c), "diagonal") for c in (after.cost_of_all, after.cost_of_none)),
        svg.line(panel.points(before.threshold, before.cost), "curve line-before dash1"),
        svg.line(panel.points(after.threshold, after.cost), "curve line-after"),
    ]
    hover = []
    for which, curve in (("before", before), ("after", after)):
        for i in svg.thinned(len(curve.threshold), 50):
            t, cost = float(curve.threshold[i]), float(curve.cost[i])
            if cost <= top:
                hover.append((panel.x(t), panel.y(cost), which, f"{which}|threshold {t:.2f}|cost {number(cost)}"))
    middle = len(after.threshold) // 2
    description = (
        f"Mean cost against the threshold. At {after.threshold[middle]:.2f}: {number(float(before.cost[middle]))} "
        f"before, {number(float(after.cost[middle]))} after."
    )
    title = "Cost of decisions against the threshold"
    return _drawn("decision-cost", panel, axes, lines, title, description, hover)


def risk_figure(before: RiskCoverageCurve, after: RiskCoverageCurve) -> Figure:
    """Error rate over coverage, before and after."""
    shown = [curve.risk[curve.coverage >= LEAST_COVERAGE].max(initial=0.0) for curve in (before, after)]
    top = min(1.0, 1.15 * max(*shown, 1e-3))
    panel = Panel(62, 34, 482, 268, (0.0, 1.0), (0.0, top))
    texts = [(tick, percent(tick)) for tick in svg.nice_ticks(0.0, top)]
    axes = [
        svg.x_axis(panel, [(t, f"{t:.0%}") for t, _ in TENTHS], "Coverage: share of samples that are predicted"),
        svg.y_axis(panel, texts, "Error rate among them"),
    ]
    lines, hover = [], []
    for which, curve, class_ in (
        ("before", before, "curve line-before dash1"),
        ("after", after, "curve line-after"),
    ):
        keep = svg.thinned(len(curve.coverage), 240)
        lines.append(svg.line(panel.points(curve.coverage[keep], curve.risk[keep]), class_))
        for i in svg.thinned(len(curve.coverage), 50):
            x, risk, least = float(curve.coverage[i]), float(curve.risk[i]), float(curve.threshold[i])
            if risk <= top:
                text = f"{which}|coverage {percent(x)}|error rate {percent(risk)}|confidence at least {percent(least)}"
                hover.append((panel.x(x), panel.y(risk), which, text))
    halves = [float(np.interp(0.5, curve.coverage, curve.risk)) for curve in (before, after)]
    description = (
        f"Error rate among the most confident samples. At a coverage of 50%: {percent(halves[0])} before, "
        f"{percent(halves[1])} after; at 100%: {percent(before.error_rate)} before, {percent(after.error_rate)} after."
    )
    return _drawn("decision-risk", panel, axes, lines, "Error rate against coverage", description, hover)


def _drawn(
    name: str,
    panel: Panel,
    axes: list[Markup],
    lines: list[Markup],
    title: str,
    description: str,
    hover: list[tuple[float, float, str, str]],
) -> Figure:
    """Axes, and lines that are cut off where they leave the panel."""
    frame = svg.element("rect", x=panel.left, y=panel.top - 3, width=panel.width + 3, height=panel.height + 6)
    clip = svg.element("clipPath", frame, id=f"clip-{name}")
    parts = [clip, *axes, svg.element("g", *lines, clip_path=f"url(#clip-{name})")]
    markup = svg.drawing(parts, WIDTH, HEIGHT, name=name, title=title, description=description, kind="wide")
    return Figure(name, markup, hover)


def _ticks(top: float) -> list[tuple[float, str]]:
    found = svg.nice_ticks(0.0, top)
    digits = max(1, math.ceil(-math.log10(found[1] - found[0]) - 1e-9)) if len(found) > 1 else 2
    return [(tick, f"{tick:.{digits}f}") for tick in found]

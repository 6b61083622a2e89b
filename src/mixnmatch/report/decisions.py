"""The section on decisions: what they cost over all cost ratios, and how many samples a target risk allows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from mixnmatch.decisions.benefit import DecisionCurve, is_rare, net_benefit
from mixnmatch.decisions.selective import RiskCoverageCurve, SelectiveCoverage, coverage_for, risk_coverage_curve
from mixnmatch.report import svg
from mixnmatch.report.data import _Plain
from mixnmatch.report.figures import LINES, ODDS_TICKS, TENTHS, Figure, readable
from mixnmatch.report.formats import number, percent
from mixnmatch.report.svg import Panel

if TYPE_CHECKING:
    from mixnmatch.report.before_after import BeforeAfter

# Target risks of the table; each limit holds with this confidence.
RISKS = (0.01, 0.02, 0.05, 0.1, 0.2)
CONFIDENCE = 0.95
# Coverages below this rest on too few samples to scale a picture by.
LEAST_COVERAGE = 0.05
WIDTH, HEIGHT = 560.0, 372.0


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

    def figures(self, *, after: bool) -> list[Figure]:
        """Cost over thresholds, for two classes, and error rate over coverage; before, and if ``after`` also after."""
        shown = 2 if after else 1
        made = [risk_figure(*(self.risk_before, self.risk_after)[:shown])]
        if self.cost_before is not None and self.cost_after is not None:
            made.append(cost_figure(*(self.cost_before, self.cost_after)[:shown]))
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


def cost_figure(before: DecisionCurve, *after: DecisionCurve) -> Figure:
    """Mean cost over thresholds, before and after, and of the two constant decisions."""
    curves = dict(zip(LINES, (before, *after), strict=False))
    last = [*curves.values()][-1]
    top = 1.08 * max(float(np.minimum(last.cost_of_all, last.cost_of_none).max()), float(last.cost.max()))
    top = max(top, min(float(before.cost.max()) * 1.05, 2 * top), 1e-6)
    rare = is_rare(last.prevalence)
    ends = (float(last.threshold[0]), float(last.threshold[-1])) if rare else (0.0, 1.0)
    panel = Panel(62, 34, 482, 268, ends, (0.0, top), odds=rare, odds_y=False)
    inside = [p for p in (*ODDS_TICKS, *(1 - p for p in ODDS_TICKS[-2::-1])) if ends[0] <= p <= ends[1]]
    axes = [
        svg.x_axis(panel, readable(panel, inside) if rare else TENTHS, "Threshold t = cost of a false positive"),
        svg.y_axis(panel, svg.tick_labels(svg.nice_ticks(0.0, top)), "Mean cost, lower is better"),
    ]
    lines = [svg.line(panel.points(last.threshold, c), "diagonal") for c in (last.cost_of_all, last.cost_of_none)]
    hover, texts = [], []
    for which, curve in curves.items():
        lines.append(svg.line(panel.points(curve.threshold, curve.cost), LINES[which]))
        for i in svg.thinned(len(curve.threshold), 50):
            t, cost = float(curve.threshold[i]), float(curve.cost[i])
            if cost <= top:
                hover.append((panel.x(t), panel.y(cost), which, f"{which}|threshold {percent(t)}|cost {number(cost)}"))
        texts.append(f"{number(float(curve.cost[len(curve.cost) // 2]))} {which}")
    middle = float(last.threshold[len(last.threshold) // 2])
    description = f"Mean cost against the threshold. At {percent(middle)}: {', '.join(texts)}."
    title = "Cost of decisions against the threshold"
    return _drawn("decision-cost", panel, axes, lines, title, description, hover)


def risk_figure(before: RiskCoverageCurve, *after: RiskCoverageCurve) -> Figure:
    """Error rate over coverage, before and after."""
    curves = dict(zip(LINES, (before, *after), strict=False))
    highest = [curve.risk[curve.coverage >= LEAST_COVERAGE].max(initial=0.0) for curve in curves.values()]
    top = min(1.0, 1.15 * max(*highest, 1e-3))
    panel = Panel(62, 34, 482, 268, (0.0, 1.0), (0.0, top))
    axes = [
        svg.x_axis(panel, [(t, f"{t:.0%}") for t, _ in TENTHS], "Coverage: share of samples that the model decides"),
        svg.y_axis(panel, svg.tick_labels(svg.nice_ticks(0.0, top), as_percent=True), "Error rate of these samples"),
    ]
    lines, hover, texts = [], [], []
    for which, curve in curves.items():
        keep = svg.thinned(len(curve.coverage), 240)
        lines.append(svg.line(panel.points(curve.coverage[keep], curve.risk[keep]), LINES[which]))
        for i in svg.thinned(len(curve.coverage), 50):
            x, risk, least = float(curve.coverage[i]), float(curve.risk[i]), float(curve.threshold[i])
            if risk <= top:
                text = f"{which}|coverage {percent(x)}|error rate {percent(risk)}|confidence at least {percent(least)}"
                hover.append((panel.x(x), panel.y(risk), which, text))
        half = float(np.interp(0.5, curve.coverage, curve.risk))
        texts.append(f"{percent(half)} at a coverage of 50% and {percent(curve.error_rate)} at 100% {which}")
    description = f"Error rate among the samples of highest confidence: {', '.join(texts)} calibration."
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

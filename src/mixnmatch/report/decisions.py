"""The section on decisions: what they cost over all cost ratios, and how many samples a target risk allows."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from mixnmatch._engine.text import significant
from mixnmatch.decisions.benefit import DecisionCurve, net_benefit
from mixnmatch.decisions.selective import RiskCoverageCurve, SelectiveCoverage, coverage_for, risk_coverage_curve
from mixnmatch.report import svg, tables
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


def measure(rows: BeforeAfter) -> DecisionSection:
    """Measure the scores before and after calibration on the samples that the report rests on."""
    sides = (rows.before_rows, rows.after_rows)
    costs = [net_benefit(side) if side.binary else None for side in sides]
    risks = [risk_coverage_curve(side) for side in sides]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a risk that cannot be promised is an empty cell of the table
        coverages = tuple(coverage_for(sides[1], risk=risk, confidence=CONFIDENCE) for risk in RISKS)
    return DecisionSection(costs[0], costs[1], risks[0], risks[1], coverages)


def section(data: DecisionSection, method: str, hover: dict[str, Any]) -> str:
    """The content of the section, figures included."""
    drawn = []
    if data.cost_before is not None and data.cost_after is not None:
        figure = cost_figure(data.cost_before, data.cost_after)
        hover["decision-cost"] = figure.hover_data()
        drawn.append(f"<p>{_cost_text(data)}</p>{_figure(figure, method, 'grey: the same decision for all')}")
    figure = risk_figure(data.risk_before, data.risk_after)
    hover["decision-risk"] = figure.hover_data()
    drawn.append(f"<p>{_risk_text(data)}</p>{_figure(figure, method, '')}")
    return "".join(drawn) + tables.coverages(data.coverages)


def _figure(figure: Figure, method: str, note: str) -> str:
    key = (
        '<ul class="legend"><li><span class="line before" aria-hidden="true"></span>before</li>'
        f'<li><span class="line after" aria-hidden="true"></span>after {escape(method)}</li>'
        f"{f'<li>{note}</li>' if note else ''}</ul>"
    )
    return f"<figure>{figure.markup}{key}</figure>"


def _cost_text(data: DecisionSection) -> str:
    text = (
        "What decisions cost, over all ratios of the two costs: at a threshold t a false positive costs t and a false "
        "negative 1 − t, and a sample is taken for positive where its probability is at least t."
    )
    if data.saving is None:
        return f"{text} On these samples calibration lowers the cost at no threshold."
    t, before, after = data.saving
    dear, cheap = ("negative", "positive") if t <= 0.5 else ("positive", "negative")
    times = max(t, 1 - t) / min(t, 1 - t)
    ratio = f"costs {significant(times, 2)} times as much as" if times > 1.05 else "costs as much as"
    return (
        f"{text} Calibration saves most at t = {t:.2f}, where a false {dear} {ratio} a false {cheap}: there the mean "
        f"cost falls from {number(before)} to {number(after)} on these samples."
    )


def _risk_text(data: DecisionSection) -> str:
    return (
        "Error rate (risk) if only the most confident samples are predicted and the others are left to someone else. "
        f"The area under the curve is {number(data.risk_before.aurc)} before and {number(data.risk_after.aurc)} after "
        f"calibration; {number(data.risk_after.best_aurc)} would be the lowest possible with as many errors."
    )


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
    axes: list[str],
    lines: list[str],
    title: str,
    description: str,
    hover: list[tuple[float, float, str, str]],
) -> Figure:
    """Axes, and lines that are cut off where they leave the panel."""
    frame = svg.element("rect", x=panel.left, y=panel.top - 3, width=panel.width + 3, height=panel.height + 6)
    clip = svg.element("clipPath", frame, id=f"clip-{name}")
    content = "".join([clip, *axes, svg.element("g", "".join(lines), clip_path=f"url(#clip-{name})")])
    markup = svg.drawing(content, WIDTH, HEIGHT, name=name, title=title, description=description, kind="wide")
    return Figure(markup, tuple(hover))


def _ticks(top: float) -> list[tuple[float, str]]:
    found = svg.nice_ticks(0.0, top)
    digits = max(1, math.ceil(-math.log10(found[1] - found[0]) - 1e-9)) if len(found) > 1 else 2
    return [(tick, f"{tick:.{digits}f}") for tick in found]

"""The figures of a report: reliability diagrams, gains, learning curves and single classes, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from mixnmatch.evaluation.reliability import ReliabilityCurve
from mixnmatch.report import svg
from mixnmatch.report.data import ClassRow, Side
from mixnmatch.report.formats import count, number, percent
from mixnmatch.report.svg import Panel
from mixnmatch.selection.learning import CurvePoint, LearningCurve
from mixnmatch.selection.results import Comparison, MethodResult

TENTHS = tuple((k / 5, f"{k / 5:g}") for k in range(6))
# Width of a tick's label, with the space around it.
LABEL_WIDTH = 44
# Probabilities at which log-odds axes have ticks, and end.
ODDS_TICKS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
HALVES = ((0.0, "0"), (0.5, "0.5"), (1.0, "1"))
# How much of the picture a curve may take that is worse than uncalibrated scores.
HEADROOM = 0.35


@dataclass(frozen=True)
class Figure:
    """A drawing, its id, and what shows when one points at it: rows of x, y, series and text.

    With ``hair`` the nearest point in x is shown, with a line from the first of the two heights to the second.
    """

    name: str
    markup: Markup
    hover: Sequence[tuple[float, float, str, str]]
    hair: tuple[float, float] | None = None

    def hover_data(self) -> dict[str, Any]:
        """For the script of the page."""
        points = [[round(x, 1), round(y, 1), series, text] for x, y, series, text in self.hover]
        return {"hair": self.hair, "points": points}


def reliability(side: Side, other: Side, *, which: str, title: str, log_odds: bool = False) -> Figure:
    """A reliability diagram, with the density of the confidences underneath; ``other`` may be laid over it."""
    width, height = 420.0, 516.0
    ticks = _odds_ticks(side, other) if log_odds else TENTHS
    ends = ticks[0][0], ticks[-1][0]
    main = Panel(46, 34, 360, 340, ends, ends, odds=log_odds)
    curve, top = side.curve, side.error.notion == "top-label"
    keep = svg.thinned(len(curve.confidence))
    if log_odds:  # close together where probabilities are small
        keep = np.unique(np.searchsorted(curve.confidence, _spread(ends)).clip(0, len(curve.confidence) - 1))
    x, y = curve.confidence[keep], curve.value[keep]
    below = main if log_odds else Panel(46, 402, 360, 64)
    parts = [
        svg.x_axis(below, ticks, "Confidence" if top else "Predicted probability", grid_from=main.top),
        svg.y_axis(main, ticks, "How often it was right" if top else "How often it happened"),
        svg.line(main.points(ends, ends), "diagonal"),
        svg.area(main.points(x, curve.high[keep]), main.points(x, curve.low[keep]), f"band fill-{which}"),
        svg.element("g", _line_of(main, other.curve, "curve ghost"), class_="overlay"),
        svg.line(main.points(x, y), f"curve line-{which}"),
        svg.element("g", *_bins(main, side.bins, which), class_="bins"),
    ]
    if log_odds:
        height -= 92
    else:
        parts += [
            _density(below, curve, which),
            svg.label("Density of the samples", below.left, below.top - 7, class_="tick"),
        ]
    noun = "right" if top else "observed"
    hover = [
        (main.x(float(curve.confidence[i])), main.y(float(curve.value[i])), which, _hover_text(curve, int(i), noun))
        for i in keep
    ]
    name = f"{'log-odds' if log_odds else 'reliability'}-{which}"
    markup = svg.drawing(parts, width, height, name=name, title=title, description=describe_curve(curve), kind="square")
    return Figure(name, markup, hover, hair=(main.top, below.bottom))


def _odds_ticks(side: Side, other: Side) -> tuple[tuple[float, str], ...]:
    """Ticks of log-odds axes that hold the scores of both sides."""
    scores = np.concatenate([side.curve.confidence, other.curve.confidence])
    low = max(np.searchsorted(ODDS_TICKS, scores.min(), side="right") - 1, 0)
    high = max(np.searchsorted(ODDS_TICKS, 1 - scores.max(), side="right") - 1, 0)
    found = [*ODDS_TICKS[low:], *(1 - p for p in ODDS_TICKS[high:-1][::-1])]
    if scores.max() <= 0.5:
        stop = int(np.searchsorted(found, max(scores.max(), side.curve.high.max())))
        found = found[: max(stop, 1) + 1]
    # Ticks whose labels would touch are left out; the two ends stay.
    room, apart = Panel(0, 0, 360, 0, (found[0], found[-1]), odds=True), [found[0]]
    for p in found[1:-1]:
        if min(room.x(p) - room.x(apart[-1]), 360 - room.x(p)) >= LABEL_WIDTH:
            apart.append(p)
    apart.append(found[-1])
    return tuple((p, f"{100 * p:.4g}%") for p in apart)


def _spread(ends: tuple[float, float], n: int = 120) -> Any:
    """Probabilities at equal distances in log-odds."""
    low, high = (math.log(p / (1 - p)) for p in ends)
    return 1 / (1 + np.exp(-np.linspace(low, high, n)))


def _hover_text(curve: ReliabilityCurve, i: int, noun: str) -> str:
    said, seen, low, high = (percent(float(v[i])) for v in (curve.confidence, curve.value, curve.low, curve.high))
    return f"said {said}|{noun} {seen}|95% band {low} to {high}"


def describe_curve(curve: ReliabilityCurve) -> str:
    """A reliability curve in words."""
    at = svg.thinned(len(curve.confidence), 6)
    pairs = ", ".join(
        f"{percent(float(curve.value[i]))} where {percent(float(curve.confidence[i]))} was said" for i in at
    )
    return (
        f"Observed frequency against confidence: {pairs}. "
        f"On average {percent(curve.mean_confidence)} was said and {percent(curve.mean_outcome)} observed."
    )


def _line_of(panel: Panel, curve: ReliabilityCurve, class_: str) -> Markup:
    keep = svg.thinned(len(curve.confidence))
    return svg.line(panel.points(curve.confidence[keep], curve.value[keep]), class_)


def _bins(panel: Panel, bins: ReliabilityCurve, which: str) -> list[Markup]:
    made = []
    for at, value, low, high in zip(bins.confidence, bins.value, bins.low, bins.high, strict=True):
        if not math.isfinite(at + value + low + high):
            continue
        x = panel.x(float(at))
        made.append(svg.element("line", x1=x, x2=x, y1=panel.y(low), y2=panel.y(high), class_=f"whisker line-{which}"))
        made.append(svg.element("circle", cx=x, cy=panel.y(value), r=3.6, class_=f"bin line-{which}"))
    return made


def _density(panel: Panel, curve: ReliabilityCurve, which: str) -> Markup:
    keep = svg.thinned(len(curve.density_at))
    # Peaks at the ends are many times higher than the rest: the square root lets both be seen.
    top = max(float(curve.density.max()), 1e-12)
    heights = [math.sqrt(max(float(curve.density[i]), 0.0) / top) for i in keep]
    at = [float(curve.density_at[i]) for i in keep]
    upper, lower = panel.points(at, heights), panel.points(at, [0.0] * len(at))
    base = svg.line([(panel.left, panel.bottom), (panel.right, panel.bottom)], "baseline")
    return svg.area(upper, lower, f"density fill-{which}") + svg.line(upper, f"thin line-{which}") + base


def gain_scale(comparison: Comparison) -> Panel:
    """The common scale of all gains: zero, and all the intervals but those of methods that fail badly."""
    ends = [result.gain.interval for result in comparison.results if result.gain is not None]
    finite = [end for pair in ends for end in pair if math.isfinite(end)] or [0.0]
    high = max(*finite, 0.0, 1e-9)
    low = max(min(*finite, 0.0), -1.5 * high)
    return Panel(4, 0, 152, 22, x_range=(low, high))


def gain_bar(result: MethodResult, scale: Panel, class_: str) -> Markup:
    """One gain with its interval, for a cell of the table; numbers stand beside it."""
    if result.gain is None:
        return Markup()
    low, high = result.gain.interval
    zero = svg.element("line", x1=scale.x(0), x2=scale.x(0), y1=1, y2=21, class_="zero")
    made = [zero]
    ends = [min(max(v, scale.x_range[0]), scale.x_range[1]) for v in (low, high) if math.isfinite(v)]
    if len(ends) == 2:
        made.append(
            svg.element("line", x1=scale.x(ends[0]), x2=scale.x(ends[1]), y1=11, y2=11, class_=f"whisker {class_}")
        )
    if scale.x_range[0] <= float(result.gain) <= scale.x_range[1]:
        made.append(svg.element("circle", cx=scale.x(float(result.gain)), cy=11, r=4, class_=f"dot {class_}"))
    return svg.element("svg", *made, viewBox="0 0 160 22", class_="gainbar", aria_hidden="true")


MEASURES = (("nll", "Log loss"), ("brier", "Brier score"), ("error", "Calibration error (ECE)"))


def learning(curve: LearningCurve, order: list[str], measure: str) -> Figure:
    """A measure of all methods over the number of calibration samples; ``order`` says which colour each has."""
    width, height = 560.0, 372.0
    finite = [(p, float(getattr(p, measure))) for p in curve.points if math.isfinite(getattr(p, measure))]
    sizes = [math.log2(size) for size in curve.sizes]
    limits = _limits(finite, order, measure)
    pad = 0.06 if len(sizes) > 1 else 0.5
    span = (sizes[0] - pad, sizes[-1] + pad)
    panel = Panel(62, 34, 482, 268, span, limits)
    ticks = svg.nice_ticks(*limits)
    digits = max(0, min(4, -math.floor(math.log10(ticks[1] - ticks[0] + 1e-12)))) if len(ticks) > 1 else 3
    as_share = measure == "error"
    digits += _has_half(ticks, digits)
    texts = [(tick, percent(tick) if as_share else f"{tick:.{digits}f}") for tick in ticks]
    frame = svg.element("rect", x=panel.left - 6, y=panel.top, width=panel.width + 12, height=panel.height)
    clip = svg.element("clipPath", frame, id=f"clip-{measure}")
    parts = [
        clip,
        svg.x_axis(panel, [(math.log2(s), count(s)) for s in curve.sizes], "Calibration samples", drop=46.0),
        svg.y_axis(panel, texts, f"{dict(MEASURES)[measure]}, lower is better"),
    ]
    hover: list[tuple[float, float, str, str]] = []
    for place, name in reversed(list(enumerate(order))):
        points = [(point, value) for point, value in finite if point.method == name]
        drawn, shown = _series(panel, points, place, measure)
        clipped = f"url(#clip-{measure})"
        parts.append(svg.element("g", *drawn, class_="series", data_series=f"s{place}", clip_path=clipped))
        hover += [(x, y, f"s{place}", text) for x, y, text in shown if panel.top - 1 <= y <= panel.bottom + 1]
    name, title = f"learning-{measure}", f"{dict(MEASURES)[measure]} over the size of the calibration set"
    description = _describe_learning(finite, order, measure)
    markup = svg.drawing(parts, width, height, name=name, title=title, description=description, kind="wide")
    return Figure(name, markup, hover)


def _has_half(ticks: list[float], digits: int) -> bool:
    return any(abs(round(tick, digits) - tick) > 1e-9 for tick in ticks)


def _series(
    panel: Panel, points: list[tuple[CurvePoint, float]], place: int, measure: str
) -> tuple[list[Markup], list[tuple[float, float, str]]]:
    class_ = f"s{place}"
    where = panel.points([math.log2(p.size) for p, _ in points], [value for _, value in points])
    made = [svg.line(where, f"curve line {class_} dash{place}")]
    shown = []
    for (x, y), (point, value) in zip(where, points, strict=True):
        spread = float(getattr(point, f"{measure}_error"))
        text = percent(value) if measure == "error" else number(value)
        if math.isfinite(spread) and spread > 0:
            low, high = panel.y(value - spread), panel.y(value + spread)
            made.append(svg.element("line", x1=x, x2=x, y1=low, y2=high, class_=f"whisker line {class_}"))
        made.append(svg.marker(place, x, y, f"dot {class_}"))
        shown.append((x, y, f"{point.method}|{count(point.size)} samples|{dict(MEASURES)[measure].lower()} {text}"))
    return made, shown


def _limits(finite: list[tuple[CurvePoint, float]], order: list[str], measure: str) -> tuple[float, float]:
    """From the lowest value to a little above what the chosen method and the uncalibrated scores need."""
    values = [value for _, value in finite] or [0.0, 1.0]
    low = min(values)
    main = [value for point, value in finite if point.method in (order[0], "identity")] or values
    need = max(*main, low)
    high = min(max(values), need + HEADROOM * max(need - low, 1e-6))
    gap = 0.06 * max(high - low, 1e-3)
    return (max(low - gap, 0.0) if measure == "error" else low - gap), high + gap


def _describe_learning(finite: list[tuple[CurvePoint, float]], order: list[str], measure: str) -> str:
    texts = []
    for name in order:
        own = [(point.size, value) for point, value in finite if point.method == name]
        if own:
            ends = [f"{number(value)} with {count(size)} samples" for size, value in (own[0], own[-1])]
            texts.append(f"{name}: {', '.join(ends)}")
    return f"{dict(MEASURES)[measure]}. " + "; ".join(texts) + "."


def one_class(row: ClassRow, place: int) -> Figure:
    """A small reliability diagram of one class, before and after."""
    panel = Panel(30, 10, 162, 162)
    parts = [
        svg.x_axis(panel, HALVES, ""),
        svg.y_axis(panel, HALVES, ""),
        svg.line(panel.points((0, 1), (0, 1)), "diagonal"),
        _band_of(panel, row.curve_before, "before"),
        _band_of(panel, row.curve_after, "after"),
        _line_of(panel, row.curve_before, "curve line-before dash1"),
        _line_of(panel, row.curve_after, "curve line-after"),
    ]
    description = f"Before: {describe_curve(row.curve_before)} After: {describe_curve(row.curve_after)}"
    hover = []
    for which, curve in (("before", row.curve_before), ("after", row.curve_after)):
        for i in svg.thinned(len(curve.confidence), 40):
            at, value = float(curve.confidence[i]), float(curve.value[i])
            text = f"{which}|said {percent(at)}|observed {percent(value)}"
            hover.append((panel.x(at), panel.y(value), which, text))
    name, title = f"class-{place}", f"Reliability of class {row.name}"
    markup = svg.drawing(parts, 200, 196, name=name, title=title, description=description, kind="small")
    return Figure(name, markup, hover)


def _band_of(panel: Panel, curve: ReliabilityCurve, which: str) -> Markup:
    keep = svg.thinned(len(curve.confidence), 60)
    x = curve.confidence[keep]
    return svg.area(panel.points(x, curve.high[keep]), panel.points(x, curve.low[keep]), f"band fill-{which}")

"""The figures of a report: reliability diagrams, gains, learning curves and single classes, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from mixnmatch.evaluation.reliability import ReliabilityCurve
from mixnmatch.report import svg
from mixnmatch.report.data import ClassRow, Side
from mixnmatch.report.formats import count, number, percent
from mixnmatch.report.svg import Panel
from mixnmatch.selection.learning import CurvePoint, LearningCurve
from mixnmatch.selection.results import Comparison, MethodResult
from mixnmatch.selection.verdict import FEW_OF_A_CLASS

TENTHS = tuple((k / 5, f"{k / 5:g}") for k in range(6))
# Width of a tick's label, with the space around it.
LABEL_WIDTH = 44
# Probabilities at which log-odds axes have ticks, and end.
ODDS_TICKS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
HALVES = ((0.0, "0"), (0.5, "0.5"), (1.0, "1"))
# Looks of the curves before and after calibration where both are in one figure.
LINES = {"before": "curve line-before dash1", "after": "curve line-after"}
# A curve is drawn where this many samples are within this distance, or within a bandwidth up to twice as large.
# Shorter gaps are closed; stretches that are shorter than this share of the longest are left out.
LEAST_NEAR, NEAR, ISLAND = FEW_OF_A_CLASS, 0.05, 0.1
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


def supported(curve: ReliabilityCurve) -> list[NDArray[np.intp]]:
    """Stretches of a curve, as indices, that have enough samples close by; of small sets the whole curve.

    Elsewhere a curve follows single samples, and its band means nothing.
    """
    samples = np.append(0.0, np.cumsum(curve.share * curve.n_rows))
    reach = min(max(NEAR, curve.bandwidth or 0.0), 2 * NEAR)
    first = np.searchsorted(curve.confidence, curve.confidence - reach)
    last = np.searchsorted(curve.confidence, curve.confidence + reach, side="right")
    enough = np.flatnonzero(samples[last] - samples[first] >= LEAST_NEAR - 0.5)
    if curve.share[enough].sum() < 0.5:  # there are few samples everywhere, and the band says so
        return [np.arange(len(curve.confidence))]
    gaps = np.flatnonzero(np.diff(curve.confidence[enough]) > reach) + 1
    stretches = [np.arange(part[0], part[-1] + 1) for part in np.split(enough, gaps)]
    longest = max(len(each) for each in stretches)
    return [each for each in stretches if len(each) > ISLAND * longest]


def reliability(side: Side, other: Side, *, which: str, title: str, log_odds: bool = False) -> Figure:
    """A reliability diagram, with the density of the confidences underneath; ``other`` may be laid over it."""
    width, height = 420.0, 516.0
    ticks = _odds_ticks(side, other) if log_odds else TENTHS
    ends = ticks[0][0], ticks[-1][0]
    main = Panel(46, 34, 360, 340, ends, ends, odds=log_odds)
    curve, top = side.curve, side.error.notion == "top-label"
    below = main if log_odds else Panel(46, 402, 360, 64)
    parts = [
        svg.x_axis(below, ticks, "Confidence" if top else "Predicted probability", grid_from=main.top, drop=36.0),
        svg.y_axis(main, ticks, "Observed accuracy" if top else "Observed frequency"),
        svg.line(main.points(ends, ends), "diagonal"),
        *_band_of(main, curve, which),
        svg.element("g", *_lines_of(main, other.curve, "curve ghost"), class_="overlay"),
        *_lines_of(main, curve, f"curve line-{which}"),
        svg.element("g", *_bins(main, side.bins, which), class_="bins"),
    ]
    if log_odds:
        height -= 92
    else:
        parts += [
            _density(below, curve, which),
            svg.label("Density of the samples", below.left, below.top - 7, class_="tick"),
        ]
    noun = "accuracy" if top else "frequency"
    hover = [
        (main.x(float(curve.confidence[i])), main.y(float(curve.value[i])), which, _hover_text(curve, int(i), noun))
        for i in _shown(curve, main)
    ]
    name = f"{'log-odds' if log_odds else 'reliability'}-{which}"
    markup = svg.drawing(parts, width, height, name=name, title=title, description=describe_curve(curve), kind="square")
    return Figure(name, markup, hover, hair=(main.top, below.bottom))


def _thinned(curve: ReliabilityCurve, stretch: NDArray[np.intp], panel: Panel) -> NDArray[np.intp]:
    """Some indices of a stretch: equally spaced, on log-odds axes too, where probabilities are close together."""
    if not panel.odds:
        return stretch[svg.thinned(len(stretch))]
    found = np.searchsorted(curve.confidence[stretch], _spread(panel.x_range))
    return np.unique(stretch[found.clip(0, len(stretch) - 1)])


def _shown(curve: ReliabilityCurve, panel: Panel) -> NDArray[np.intp]:
    return np.concatenate([_thinned(curve, stretch, panel) for stretch in supported(curve)])


def _odds_ticks(side: Side, other: Side) -> tuple[tuple[float, str], ...]:
    """Ticks of log-odds axes that hold the scores of both sides."""
    scores = np.concatenate([side.curve.confidence, other.curve.confidence])
    low = max(np.searchsorted(ODDS_TICKS, scores.min(), side="right") - 1, 0)
    high = max(np.searchsorted(ODDS_TICKS, 1 - scores.max(), side="right") - 1, 0)
    found = [*ODDS_TICKS[low:], *(1 - p for p in ODDS_TICKS[high:-1][::-1])]
    if scores.max() <= 0.5:
        stop = int(np.searchsorted(found, max(scores.max(), side.curve.high.max())))
        found = found[: max(stop, 1) + 1]
    return readable(Panel(0, 0, 360, 0, (found[0], found[-1]), odds=True), found)


def readable(panel: Panel, ticks: Sequence[float]) -> tuple[tuple[float, str], ...]:
    """Ticks of a log-odds axis, without those whose labels would touch; the first and the last stay."""
    apart = [ticks[0]]
    for p in ticks[1:-1]:
        if min(panel.x(p) - panel.x(apart[-1]), panel.x(ticks[-1]) - panel.x(p)) >= LABEL_WIDTH:
            apart.append(p)
    return tuple((p, f"{100 * p:.4g}%") for p in [*apart, *ticks[1:][-1:]])


def _spread(ends: tuple[float, float], n: int = 120) -> NDArray[np.float64]:
    """Probabilities at equal distances in log-odds."""
    low, high = (math.log(p / (1 - p)) for p in ends)
    return 1 / (1 + np.exp(-np.linspace(low, high, n)))


def _hover_text(curve: ReliabilityCurve, i: int, noun: str) -> str:
    predicted, seen, low, high = (percent(float(v[i])) for v in (curve.confidence, curve.value, curve.low, curve.high))
    return f"predicted {predicted}|{noun} {seen}|95% band {low} to {high}"


def some_points(curve: ReliabilityCurve, most: int) -> NDArray[np.intp]:
    """Indices of a few points among those that are drawn."""
    drawn = np.concatenate(supported(curve))
    return drawn[svg.thinned(len(drawn), most)]


def describe_curve(curve: ReliabilityCurve) -> str:
    """A reliability curve in words."""
    pairs = ", ".join(
        f"{percent(float(curve.value[i]))} at {percent(float(curve.confidence[i]))}" for i in some_points(curve, 6)
    )
    return (
        f"Observed frequency at predicted probabilities: {pairs}. "
        f"On average {percent(curve.mean_confidence)} predicted and {percent(curve.mean_outcome)} observed."
    )


def _lines_of(panel: Panel, curve: ReliabilityCurve, class_: str) -> list[Markup]:
    kept = [_thinned(curve, stretch, panel) for stretch in supported(curve)]
    return [svg.line(panel.points(curve.confidence[keep], curve.value[keep]), class_) for keep in kept]


def _band_of(panel: Panel, curve: ReliabilityCurve, which: str) -> list[Markup]:
    made = []
    for stretch in supported(curve):
        keep = _thinned(curve, stretch, panel)
        x = curve.confidence[keep]
        upper, lower = panel.points(x, curve.high[keep]), panel.points(x, curve.low[keep])
        made.append(svg.area(upper, lower, f"band fill-{which}"))
    return made


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
    high = max(*finite, 0.0, 1e-4)
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
    ticks = svg.tick_labels(svg.nice_ticks(*limits), as_percent=measure == "error")
    frame = svg.element("rect", x=panel.left - 6, y=panel.top, width=panel.width + 12, height=panel.height + 6)
    clip = svg.element("clipPath", frame, id=f"clip-{measure}")
    parts = [
        clip,
        svg.x_axis(panel, [(math.log2(s), count(s)) for s in curve.sizes], "Calibration samples"),
        svg.y_axis(panel, ticks, f"{dict(MEASURES)[measure]}, lower is better"),
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
    """From the lowest value to a little above what is needed.

    All of the chosen method and of the uncalibrated scores is needed, error bars included, and the last point of the
    other methods.
    """
    last = max((point.size for point, _ in finite), default=0)
    lows: list[float] = []
    needs: list[float] = []
    values: list[float] = []
    for point, value in finite:
        spread = float(getattr(point, f"{measure}_error"))
        bar = spread if math.isfinite(spread) else 0.0
        values.append(value + bar)
        if point.method in (order[0], "identity"):
            lows.append(value - bar)
            needs.append(value + bar)
        elif point.size == last:
            needs.append(value)
        lows.append(value)
    low = min(lows, default=0.0)
    need = max([*needs, low])
    high = min(max(values, default=1.0), need + HEADROOM * (need - low))
    gap = 0.06 * max(high - low, 1e-3)
    return max(low - gap, 0.0), high + gap


def _describe_learning(finite: list[tuple[CurvePoint, float]], order: list[str], measure: str) -> str:
    texts = []
    for name in order:
        own = [(point.size, value) for point, value in finite if point.method == name]
        if own:
            ends = [f"{number(value)} with {count(size)} samples" for size, value in (own[0], own[-1])]
            texts.append(f"{name}: {', '.join(ends)}")
    return f"{dict(MEASURES)[measure]}. " + "; ".join(texts) + "."


def one_class(row: ClassRow, place: int, *, after: bool) -> Figure:
    """A small reliability diagram of one class, with ``after`` also after calibration."""
    panel = Panel(30, 10, 162, 162)
    curves = {"before": row.curve_before, "after": row.curve_after} if after else {"before": row.curve_before}
    parts = [
        svg.x_axis(panel, HALVES, ""),
        svg.y_axis(panel, HALVES, ""),
        svg.line(panel.points((0, 1), (0, 1)), "diagonal"),
        *(part for which, curve in curves.items() for part in _band_of(panel, curve, which)),
        *(part for which, curve in curves.items() for part in _lines_of(panel, curve, LINES[which])),
    ]
    hover = []
    for which, curve in curves.items():
        for i in some_points(curve, 40):
            at, value = float(curve.confidence[i]), float(curve.value[i])
            text = f"{which}|predicted {percent(at)}|observed {percent(value)}"
            hover.append((panel.x(at), panel.y(value), which, text))
    description = " ".join(f"{which.capitalize()}: {describe_curve(curve)}" for which, curve in curves.items())
    name, title = f"class-{place}", f"Reliability of class {row.name}"
    markup = svg.drawing(parts, 200, 196, name=name, title=title, description=description, kind="small")
    return Figure(name, markup, hover)

"""A page about a monitored map over time: evidence, offsets of the classes and log loss, with the report's looks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from mixnmatch._files import atomic_write
from mixnmatch.monitoring import ClassOffset, Monitor, MonitorResult, StepRecord
from mixnmatch.monitoring.advice import TEXTS
from mixnmatch.monitoring.result import clearest, e_text
from mixnmatch.report import svg
from mixnmatch.report.figures import Figure
from mixnmatch.report.formats import count, number
from mixnmatch.report.page import whole_page
from mixnmatch.report.svg import Panel

# Classes whose offsets are drawn over time, and rows of tables.
SERIES, MOST_CLASSES, MOST_ROWS = 4, 50, 400
# An e-value that is larger than any is drawn as this power of ten above the alarm.
ABOVE = 2.0
# Steps are numbered on the axis if names are longer than this.
LONGEST_TICK = 7


@dataclass(frozen=True)
class MonitorVerdict:
    """What an advice is called, with its sign and its colour."""

    level: str
    sign: str
    pill: str
    headline: str


VERDICTS = {
    "nothing": MonitorVerdict("good", "✓", "no alarm", "No evidence that the probabilities lost their calibration."),
    "adapt": MonitorVerdict("slight", "≈", "adapt", "The class frequencies have changed: adapt the map."),
    "refit": MonitorVerdict("bad", "✕", "refit", "The probabilities are no longer calibrated: refit the map."),
    "model": MonitorVerdict("bad", "✕", "model changed", "The model itself predicts worse than it did: examine it."),
}
SECTIONS = (("evidence", "Evidence"), ("offsets", "Classes"), ("steps", "Steps"))


def write_monitor_page(path: str | PathLike[str], monitor: Monitor, *, title: str = "Monitor") -> None:
    """Write one self-contained HTML page about a monitor, atomically.

    Parameters
    ----------
    path : path
        File to write.
    monitor : Monitor
        The monitor, with at least one update.
    title : str
        Title of the page.
    """
    atomic_write(Path(path), render_monitor(monitor, title=title).encode())


def render_monitor(monitor: Monitor, *, title: str = "Monitor") -> str:
    """The page as HTML."""
    result, history = monitor.result(), monitor.history
    if not history:
        msg = "the monitor has seen no samples: call update first"
        raise ValueError(msg)
    offsets = clearest(result.offsets)
    # Two classes mirror each other: the second, the positive one, is drawn.
    drawn = result.offsets[1:] if len(offsets) == 2 else offsets[:SERIES]
    figures = [_evidence_figure(history, result)]
    if history[-1].offsets:
        figures.append(_offset_figure(history, [each.name for each in drawn]))
    return whole_page(
        "report/assets/monitor.html",
        figures,
        heading=f"{title} – calibration over time",
        title=title,
        sections=SECTIONS,
        result=result,
        verdict=VERDICTS[result.advice],
        advice=TEXTS[result.advice],
        alarm=f"{1 / result.alpha:g}",
        alpha=f"{100 * result.alpha:g}%",
        confidence=f"{100 - 100 * result.alpha:g}%",
        drawn=drawn,
        offsets=offsets,
        most_classes=MOST_CLASSES,
        steps=history[: -MOST_ROWS - 1 : -1],
    )


def _evidence_figure(history: Sequence[StepRecord], result: MonitorResult) -> Figure:
    powers = [record.log_e_value / math.log(10) for record in history]
    alarm = -math.log10(result.alpha)
    finite = [value for value in powers if math.isfinite(value)]
    top = max([*finite, alarm]) + 0.3
    high = top + ABOVE if len(finite) < len(powers) else top
    low = min([*finite, 0.0]) - 0.3
    drawn = [value if math.isfinite(value) else high for value in powers]
    texts = [
        f"{record.step}|e-value {e_text(record.log_e_value)}|{count(record.n_samples)} samples" for record in history
    ]
    return _over_time(
        "evidence-figure",
        "Evidence against calibration over time",
        f"E-value by step; the last one is {e_text(history[-1].log_e_value)}, the alarm at {1 / result.alpha:g}.",
        history,
        [(drawn, texts)],
        (low, high),
        "Logarithm of the e-value (base 10)",
        {"Alarm": alarm},
    )


def _offset_figure(history: Sequence[StepRecord], names: list[Any]) -> Figure:
    series: list[tuple[list[float], list[str]]] = []
    ends: list[tuple[list[float], list[float]]] = []
    for name in names:
        own = [next((each for each in record.offsets if each.name == name), None) for record in history]
        values = [math.nan if each is None else each.offset for each in own]
        texts = [
            f"{record.step}|class {name}|{'' if each is None else _with_ends(each)}"
            for record, each in zip(history, own, strict=True)
        ]
        series.append((values, texts))
        ends.append(
            (
                [math.nan if each is None else each.low for each in own],
                [math.nan if each is None else each.high for each in own],
            )
        )
    last = [abs(value) for low, high in ends for value in (*low[-1:], *high[-1:]) if math.isfinite(value)]
    size = min(max([0.3, *(1.6 * value for value in last)]), 4.0)
    return _over_time(
        "offsets-figure",
        "Offsets of the classes over time",
        "Offset of the log-odds by step, for the classes with the clearest offsets.",
        history,
        series,
        (-size, size),
        "Offset of the log-odds",
        {"": 0.0},
        ends[0],
    )


def _with_ends(each: ClassOffset) -> str:
    return f"{number(each.offset, 3, sign=True)} ({number(each.low, 3)} to {number(each.high, 3)})"


def _over_time(
    name: str,
    title: str,
    description: str,
    history: Sequence[StepRecord],
    series: list[tuple[list[float], list[str]]],
    limits: tuple[float, float],
    axis: str,
    lines: dict[str, float],
    band: tuple[list[float], list[float]] | None = None,
) -> Figure:
    """Lines over steps, with a band around the first and dashed lines across."""
    width, height = 760.0, 360.0
    n = len(history)
    pad = 0.5 if n == 1 else 0.02 * n
    panel = Panel(62, 34, 680, 260, (1 - pad, n + pad), limits)
    at = [float(k + 1) for k in range(n)]
    places = [k for k in sorted({round(value) for value in svg.nice_ticks(1, n, 8)} | {1}) if 1 <= k <= n]
    names = {k: str(history[k - 1].step) for k in places}
    if max(len(name) for name in names.values()) > LONGEST_TICK:
        names = {k: str(k) for k in places}
    ticks = [(float(k), name) for k, name in names.items()]
    frame = svg.element("rect", x=panel.left, y=panel.top, width=panel.width, height=panel.height)
    parts = [
        svg.element("clipPath", frame, id=f"clip-{name}"),
        svg.x_axis(panel, ticks, "Step"),
        svg.y_axis(panel, svg.tick_labels(svg.nice_ticks(*limits)), axis),
    ]
    for text, value in lines.items():
        parts.append(svg.line(panel.points((1 - pad, n + pad), (value, value)), "diagonal"))
        if text:
            parts.append(svg.label(text, panel.right, panel.y(value) - 6, text_anchor="end", class_="tick"))
    hover: list[tuple[float, float, str, str]] = []
    for place, (values, texts) in enumerate(series):
        inside = []
        if place == 0 and band is not None:
            low, high = ([min(max(v, limits[0]), limits[1]) for v in side] for side in band)
            inside.append(svg.area(panel.points(at, high), panel.points(at, low), "band fill-after"))
        points = panel.points(at, values)
        inside.append(svg.line(points, f"curve line s{place} dash{place}"))
        if n <= 60:
            inside += [svg.marker(place, x, y, f"dot s{place}", 3.2) for x, y in points]
        parts.append(svg.element("g", *inside, clip_path=f"url(#clip-{name})"))
        hover += [
            (panel.x(x), panel.y(y), f"s{place}", text)
            for x, y, text in zip(at, values, texts, strict=True)
            if math.isfinite(y) and limits[0] <= y <= limits[1]
        ]
    markup = svg.drawing(parts, width, height, name=name, title=title, description=description, kind="wide")
    return Figure(name, markup, hover)

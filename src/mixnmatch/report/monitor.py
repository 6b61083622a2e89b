"""A page about a monitored map over time: evidence, offsets of the classes and log loss, with the report's looks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from mixnmatch._files import atomic_write
from mixnmatch._version import __version__
from mixnmatch.monitoring import ClassOffset, Monitor, MonitorResult, StepRecord
from mixnmatch.monitoring.advice import TEXTS
from mixnmatch.monitoring.result import clearest, e_text
from mixnmatch.report import svg
from mixnmatch.report.figures import Figure
from mixnmatch.report.formats import count, number, percent
from mixnmatch.report.page import _section, _swatch, whole_page
from mixnmatch.report.svg import Panel
from mixnmatch.report.tables import _heading
from mixnmatch.report.tables import _table as _whole_table

# Classes whose offsets are drawn over time, and rows of tables.
SERIES, MOST_CLASSES, MOST_ROWS = 4, 50, 400
# An e-value that is larger than any is drawn as this power of ten above the alarm.
ABOVE = 2.0
HEADLINES = {
    "nothing": ("good", "✓", "no alarm", "No evidence that the probabilities have lost their calibration."),
    "adapt": ("slight", "≈", "adapt", "The class frequencies have changed: adapt the map."),
    "refit": ("bad", "✕", "refit", "The probabilities are no longer calibrated: refit the map."),
    "model": ("bad", "✕", "model changed", "The model itself tells less than it did: examine it."),
}


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
    hover: dict[str, Any] = {}
    parts = [_header(title, result), "<main>", _verdict(result), _evidence(history, result, hover)]
    parts += [_offsets(history, result, hover), _steps(history), "</main>"]
    parts.append(
        f"<footer><p>Made by mixnmatch {escape(__version__)}. This page makes no network requests.</p></footer>"
    )
    return whole_page(f"{title} – calibration over time", "".join(parts), hover)


def _header(title: str, result: MonitorResult) -> str:
    names = (("evidence", "Evidence"), ("offsets", "Classes"), ("steps", "Steps"))
    links = "".join(f'<li><a href="#{name}">{text}</a></li>' for name, text in names)
    return (
        f'<header><p class="kicker">Calibration monitor</p><h1>{escape(title)}</h1>'
        f'<p class="meta">{count(result.n_samples)} samples in {count(result.n_steps)} steps.</p>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>'
    )


def _verdict(result: MonitorResult) -> str:
    level, sign, pill, headline = HEADLINES[result.advice]
    alarm = f"First alarm in step {result.alarm_step}, likely change in step {result.since}. " if result.alarm else ""
    impossible = f"Labels that had probability 0: {count(result.impossible)}. " if result.impossible else ""
    return (
        f'<section id="verdict" class="verdict {level}" aria-labelledby="verdict-h">'
        f'<p class="status"><span class="pill {level}"><span aria-hidden="true">{sign}</span> {pill}</span></p>'
        f'<h2 id="verdict-h">{escape(headline)}</h2>'
        f"<p>{escape(alarm + impossible + TEXTS[result.advice])}</p>"
        f"<p>The e-value is {escape(e_text(result.log_e_value))}; the alarm is at {1 / result.alpha:g}. While the "
        f"probabilities are calibrated, it is ever reached with probability at most {percent(result.alpha)}.</p>"
        "</section>"
    )


def _evidence(history: Sequence[StepRecord], result: MonitorResult, hover: dict[str, Any]) -> str:
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
    figure = _over_time(
        "evidence-figure",
        "Evidence against calibration over time",
        f"E-value by step; the last one is {e_text(history[-1].log_e_value)}, the alarm at {1 / result.alpha:g}.",
        history,
        [(drawn, texts)],
        (low, high),
        "E-value, powers of ten",
        {"Alarm": alarm},
    )
    hover["evidence-figure"] = figure.hover_data()
    text = (
        "The e-value is the wealth of a gambler who bets against the probabilities. It stays near or below 1 while "
        "they are calibrated and grows when they are not. The dashed line is the alarm."
    )
    return _section("evidence", "Evidence against calibration", f"<p>{text}</p><figure>{figure.markup}</figure>")


def _offsets(history: Sequence[StepRecord], result: MonitorResult, hover: dict[str, Any]) -> str:
    text = (
        f"Offset of the log-odds of each class since step {result.since}: positive where the class is more frequent "
        f"than its probabilities say. The intervals of all classes hold together, at all times, with probability "
        f"{percent(1 - result.alpha)}."
    )
    order = clearest(result.offsets)
    figure, legend = "", ""
    if history[-1].offsets:
        shown = order[1:2] if len(order) == 2 and order[0].name == result.offsets[0].name else order[:1]
        chosen = shown if len(order) == 2 else order[:SERIES]
        made = _offset_figure(history, [each.name for each in chosen])
        hover["offsets-figure"] = made.hover_data()
        items = "".join(f"<li>{_swatch(k)}<span>{escape(str(each.name))}</span></li>" for k, each in enumerate(chosen))
        legend = f'<ul class="legend">{items}</ul>'
        figure = (
            f"<figure>{made.markup}{legend}<figcaption>Offsets over all steps so far, with their intervals."
            "</figcaption></figure>"
        )
    return _section("offsets", "Offsets of the classes", f"<p>{escape(text)}</p>{figure}{_class_table(order)}")


def _offset_figure(history: Sequence[StepRecord], names: list[Any]) -> Figure:
    series: list[tuple[list[float], list[str]]] = []
    bands: list[tuple[list[float], list[float]]] = []
    for name in names:
        own = [next((each for each in record.offsets if each.name == name), None) for record in history]
        values = [math.nan if each is None else each.offset for each in own]
        texts = [
            f"{record.step}|class {name}|{'' if each is None else _with_ends(each)}"
            for record, each in zip(history, own, strict=True)
        ]
        series.append((values, texts))
        bands.append(
            (
                [math.nan if each is None else each.low for each in own],
                [math.nan if each is None else each.high for each in own],
            )
        )
    last = [abs(value) for low, high in bands for value in (*low[-1:], *high[-1:]) if math.isfinite(value)]
    size = min(max([0.3, *(1.6 * value for value in last)]), 4.0)
    return _over_time(
        "offsets-figure",
        "Offsets of the classes over time",
        "Offset of the log-odds by step, for the classes with the clearest offsets.",
        history,
        series,
        (-size, size),
        "Offset of the log-odds",
        {"No offset": 0.0},
        bands,
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
    bands: Sequence[tuple[list[float], list[float]]] = (),
) -> Figure:
    """Lines over steps, with bands around them and dashed lines across."""
    width, height = 760.0, 360.0
    n = len(history)
    pad = 0.5 if n == 1 else 0.02 * n
    panel = Panel(62, 34, 680, 260, (1 - pad, n + pad), limits)
    at = [float(k + 1) for k in range(n)]
    ticks = [
        (float(k), str(k)) for k in sorted({round(value) for value in svg.nice_ticks(1, n, 8)} | {1}) if 1 <= k <= n
    ]
    frame = svg.element("rect", x=panel.left, y=panel.top, width=panel.width, height=panel.height)
    parts = [
        svg.element("clipPath", frame, id=f"clip-{name}"),
        svg.x_axis(panel, ticks, "Step"),
        svg.y_axis(panel, [(tick, number(tick, 1)) for tick in svg.nice_ticks(*limits)], axis),
    ]
    for text, value in lines.items():
        parts.append(svg.line(panel.points((1 - pad, n + pad), (value, value)), "diagonal"))
        parts.append(svg.label(text, panel.right, panel.y(value) - 6, text_anchor="end", class_="tick"))
    hover: list[tuple[float, float, str, str]] = []
    for place, (values, texts) in enumerate(series):
        inside = []
        if place < len(bands):
            low, high = ([min(max(v, limits[0]), limits[1]) for v in side] for side in bands[place])
            inside.append(svg.area(panel.points(at, high), panel.points(at, low), f"band fill-{_colour(place)}"))
        points = panel.points(at, values)
        inside.append(svg.line(points, f"curve line s{place} dash{place}"))
        if n <= 60:
            inside += [svg.marker(place, x, y, f"dot s{place}", 3.2) for x, y in points]
        parts.append(svg.element("g", "".join(inside), clip_path=f"url(#clip-{name})"))
        hover += [
            (panel.x(x), panel.y(y), f"s{place}", text)
            for x, y, text in zip(at, values, texts, strict=True)
            if math.isfinite(y) and limits[0] <= y <= limits[1]
        ]
    drawn = svg.drawing("".join(parts), width, height, name=name, title=title, description=description, kind="wide")
    return Figure(drawn, tuple(hover), nearest_in_x=False)


def _colour(place: int) -> str:
    return "after" if place % 2 == 0 else "before"


def _class_table(order: Sequence[ClassOffset]) -> str:
    rows = []
    for each in order[:MOST_CLASSES]:
        mark = "<strong>yes</strong>" if each.excludes_zero else "no"
        cells = [number(each.offset, 3, sign=True), f"{number(each.low, 3)} – {number(each.high, 3)}"]
        cells += [percent(each.observed), percent(each.expected), mark]
        body = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f'<tr><th scope="row">{escape(str(each.name))}</th>{body}</tr>')
    more = f" The first {MOST_CLASSES} of {len(order)}." if len(order) > MOST_CLASSES else ""
    titles = ("Class", "Offset", "Interval", "Observed", "Expected", "Excludes 0")
    return _table("offsets", f"Classes, the clearest offsets first.{more}", titles, rows)


def _steps(history: Sequence[StepRecord]) -> str:
    rows = []
    for record in reversed(history[-MOST_ROWS:]):
        cells = [count(record.n_samples), number(record.mean_log_loss), number(record.expected_log_loss)]
        body = "".join(f"<td>{cell}</td>" for cell in [*cells, escape(e_text(record.log_e_value))])
        rows.append(f'<tr><th scope="row">{escape(str(record.step))}</th>{body}</tr>')
    titles = ("Step", "Samples", "Log loss", "Expected log loss", "E-value")
    return _section("steps", "Steps", _table("steps", "All steps, the newest first.", titles, rows))


def _table(name: str, caption: str, titles: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(_heading(title, "") for title in titles)
    return _whole_table(name, caption, head, "".join(rows))

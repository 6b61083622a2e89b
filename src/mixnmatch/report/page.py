"""The page: sections around figures and tables, in one file that makes no network requests."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from importlib import resources
from typing import Any

from mixnmatch._html import closed_page
from mixnmatch.report import decisions, figures, svg, tables
from mixnmatch.report.data import ReportData
from mixnmatch.report.formats import count, listed, number, percent, span
from mixnmatch.report.verdicts import level, rule, sentence
from mixnmatch.selection.verdict import FEW_OF_A_CLASS

LEVELS = {
    "good": ("✓", "calibrated"),
    "slight": ("≈", "slightly miscalibrated"),
    "bad": ("✕", "not calibrated"),
    "unclear": ("?", "cannot tell"),
}
SECTIONS = (
    ("reliability", "Before and after"),
    ("methods", "Methods"),
    ("more-data", "More data?"),
    ("worst-classes", "Classes"),
    ("decisions", "Decisions"),
    ("next", "What to do next"),
    ("reproduce", "Reproduce"),
)
SERIES = 5


def render(data: ReportData) -> str:
    """The report as HTML.

    Parameters
    ----------
    data : ReportData
        What :func:`build_report` found.

    Returns
    -------
    str
        A whole page: style, script and figures are inside, and its content security policy forbids to load anything.
    """
    hover: dict[str, Any] = {}
    body = "".join(
        [
            _header(data),
            "<main>",
            _verdict(data),
            _reliability(data, hover),
            _methods(data),
            _learning(data, hover),
            _classes(data, hover),
            _section("decisions", "Decisions", decisions.section(data.decisions, data.method, hover)),
            _next(data),
            _reproduce(data),
            "</main>",
            _footer(data),
        ]
    )
    heading = data.title if "calibration" in data.title.lower() else f"{data.title} – calibration report"
    return whole_page(heading, body, hover)


def whole_page(heading: str, body: str, hover: dict[str, Any]) -> str:
    """A page with the report's style and script, that may not load anything."""
    skip = '<a class="skip" href="#verdict">Skip to the verdict</a>'
    content = f'{skip}\n{body}\n<div id="tip" aria-hidden="true" hidden></div>'
    data = {"report-data": {"hover": hover}}
    return closed_page(heading, content, style=asset("report.css"), script=asset("report.js"), data=data)


def asset(name: str) -> str:
    """Text of a file that pages are made of."""
    return resources.files("mixnmatch.report").joinpath("assets", name).read_text(encoding="utf-8")


def _header(data: ReportData) -> str:
    links = "".join(f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text in SECTIONS)
    return (
        f'<header><p class="kicker">Calibration report</p><h1>{escape(data.title)}</h1>'
        f'<p class="meta">{count(data.n_classes)} classes. {escape(data.how)}</p>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>'
    )


def _footer(data: ReportData) -> str:
    version = escape(dict(data.reproduction.versions)["mixnmatch"])
    return f"<footer><p>Made by mixnmatch {version}. This file makes no network requests.</p></footer>"


def _pill(of: str, after: str = "") -> str:
    sign, text = LEVELS[of]
    more = f' <span class="soft">{after}</span>' if after else ""
    return f'<span class="pill {of}"><span aria-hidden="true">{sign}</span> {text}{more}</span>'


def _section(name: str, heading: str, content: str) -> str:
    return f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{heading}</h2>{content}</section>'


def _verdict(data: ReportData) -> str:
    before, after = data.before, data.after
    cards = [
        _card("Calibration error", percent, before.error, after.error),
        _card("Log loss", _three, before.nll, after.nll),
        _card("Brier score (sum over classes)", _three, before.brier, after.brier),
        _card("Accuracy", percent, before.accuracy, after.accuracy),
    ]
    confident = f"<p>{escape(data.diagnosis.confident)}</p>" if data.diagnosis.confident else ""
    what = "the scores as they are" if data.method == "identity" else f"after {escape(data.method)}"
    return (
        f'<section id="verdict" class="verdict {data.diagnosis.level}" aria-labelledby="verdict-h">'
        f'<p class="status">{_pill(data.diagnosis.level)} <span aria-hidden="true">→</span> '
        f"{_pill(level(data.after), what)}</p>"
        f'<h2 id="verdict-h">{escape(data.diagnosis.headline)}</h2>'
        f"<p>{escape(data.diagnosis.evidence)}</p>{confident}<p>{escape(data.diagnosis.effect)}</p>"
        f'<p class="answer">{escape(data.verdict.headline)}</p>{_reasons(data)}'
        f'<div class="cards" role="list">{"".join(cards)}</div>'
        f'<p class="note">Below each number its 95% interval. {escape(rule(data.before))}</p></section>'
    )


def _reasons(data: ReportData) -> str:
    """What the verdict rests on."""
    # Names of methods stay as they are typed.
    pairs = [(head, text if head == "Tied" else sentence(text)) for head, text in data.verdict.lines()]
    listed = "".join(f"<div><dt>{escape(heading)}</dt><dd>{escape(text)}</dd></div>" for heading, text in pairs)
    return f'<dl class="facts">{listed}</dl>' if listed else ""


def _three(value: float | None) -> str:
    return number(value, 3)


def _card(title: str, show: Callable[[float | None], str], before: Any, after: Any) -> str:
    parts = []
    for class_, name, value in (("was", "before", before), ("is", "after", after)):
        ends = span(value.interval, as_percent=show is percent)
        parts.append(f'<div class="{class_}"><dt>{name}</dt><dd>{show(value)}</dd><dd class="ends">{ends}</dd></div>')
    return f'<div class="card" role="listitem"><h3>{title}</h3><dl>{"".join(parts)}</dl></div>'


def _reliability(data: ReportData, hover: dict[str, Any]) -> str:
    made = []
    sides = (
        ("before", data.before, data.after, "Before calibration"),
        ("after", data.after, data.before, f"After {data.method}"),
    )
    for which, side, other, title in sides:
        figure = figures.reliability(side, other, which=which, title=f"Reliability: {title.lower()}")
        hover[f"reliability-{which}"] = figure.hover_data()
        said = "mean confidence" if side.error.notion == "top-label" else "mean probability"
        got = "accuracy" if side.error.notion == "top-label" else "frequency"
        caption = (
            f"<strong>{escape(title)}</strong>: error {percent(side.error)}; {said} "
            f"{percent(side.curve.mean_confidence)}, {got} {percent(side.curve.mean_outcome)}."
        )
        table = tables.reliability(side.curve, f"{title}: a few points of the curve")
        made.append(
            f'<figure>{figure.markup}<figcaption class="key-{which}">{caption}</figcaption>'
            f"<details><summary>Numbers of this diagram</summary>{table}</details></figure>"
        )
    what = "predictions were right" if data.before.error.notion == "top-label" else "the class was the true one"
    intro = (
        f"Each curve shows how often {what}, given {escape(data.subject)}. On the dashed diagonal scores mean what "
        "they say: below it they are overconfident, above it underconfident. The density shows where the samples are, "
        "on a square-root scale."
    )
    controls = _controls(
        "What the diagrams show",
        _checkbox("show-band", "95% band", on=True)
        + _checkbox("show-bins", "bins with Wilson intervals")
        + _checkbox("show-overlay", "the other curve, for comparison"),
    )
    pair = f'<div class="pair" data-band="on" data-bins="off" data-overlay="off">{"".join(made)}</div>'
    more = ""
    if data.before.measures:
        drawn = []
        for which, side, other, title in sides:
            figure = figures.reliability(
                side, other, which=which, title=f"Reliability on log-odds axes: {title.lower()}", log_odds=True
            )
            hover[f"log-odds-{which}"] = figure.hover_data()
            drawn.append(
                f'<figure>{figure.markup}<figcaption class="key-{which}">{escape(title)}</figcaption></figure>'
            )
        wide = f'<div class="pair" data-band="on" data-bins="off" data-overlay="off">{"".join(drawn)}</div>'
        more = (
            f"<details><summary>The same on log-odds axes, for probabilities close to 0 or 1</summary>{wide}</details>"
            + tables.measures(data.before.measures, data.after.measures, data.method)
        )
    return _section("reliability", "Before and after", f"<p>{intro}</p>{controls}{pair}{more}")


def _controls(label: str, content: str) -> str:
    """Controls need the script, which shows them."""
    return f'<fieldset class="controls" hidden><legend>{escape(label)}</legend>{content}</fieldset>'


def _checkbox(name: str, text: str, *, on: bool = False, swatch: str = "", value: str = "") -> str:
    checked = " checked" if on else ""
    given = f' value="{escape(value, quote=True)}"' if value else ""
    return f'<label><input type="checkbox" id="{name}"{given}{checked}>{swatch}<span>{escape(text)}</span></label>'


def _methods(data: ReportData) -> str:
    notion = data.before.error.notion
    text = (
        f"Methods are ranked by {data.verdict.score}, a proper score, and never by an estimate of the calibration "
        "error, which can rank them upside down. The calibration gain is the decrease of the Brier score. Methods "
        "tagged “best/tied” are statistically tied with the best. An asterisk marks those that may change the "
        f"predicted class. The ECE is the {notion} calibration error."
    )
    controls = _controls("Filter", _checkbox("preserving-only", "only methods that never change the predicted class"))
    return _section("methods", "Which method", f"<p>{text}</p>{controls}{tables.methods(data)}")


def _learning(data: ReportData, hover: dict[str, Any]) -> str:
    answer = f'<p class="answer">{escape(sentence(data.curve_answer))}.</p>'
    if data.curve is None:
        return _section("more-data", "Would more calibration data help?", answer)
    names = data.curve.methods
    order = [name for name in (data.method, "identity") if name in names]
    order = list(dict.fromkeys([*order, *names]))[:SERIES]
    drawn, choices = [], []
    for measure, text in figures.MEASURES:
        figure = figures.learning(data.curve, order, measure, f"{text} over the size of the calibration set")
        first = measure == figures.MEASURES[0][0]
        hover[f"learning-{measure}"] = figure.hover_data()
        drawn.append(f'<div class="measure" data-measure="{measure}"{"" if first else " hidden"}>{figure.markup}</div>')
        choices.append(
            f'<label><input type="radio" name="measure" value="{measure}"{" checked" if first else ""}>'
            f"<span>{text}</span></label>"
        )
    boxes = "".join(
        _checkbox(f"series-{k}", _series_name(name), on=True, swatch=_swatch(k), value=f"s{k}")
        for k, name in enumerate(order)
    )
    legend = "".join(f"<li>{_swatch(k)}<span>{escape(_series_name(name))}</span></li>" for k, name in enumerate(order))
    how = f"{data.curve.how[:1].upper()}{data.curve.how[1:]}; bars are standard errors over repetitions."
    failures = "".join(f"<li>{escape(where)}: {escape(why)}</li>" for where, why in data.curve.failures.items())
    if failures:
        failures = f"<details><summary>Fits that failed</summary><ul>{failures}</ul></details>"
    return _section(
        "more-data",
        "Would more calibration data help?",
        f"{answer}{_controls('Measure', ''.join(choices))}{_controls('Methods', boxes)}"
        f'<figure class="learning">{"".join(drawn)}<ul class="legend">{legend}</ul>'
        f"<figcaption>{escape(how)} Curves that leave the picture are cut off.</figcaption>"
        f"<details><summary>Numbers of this figure</summary>{tables.learning(data.curve)}</details>{failures}</figure>",
    )


def _series_name(name: str) -> str:
    return "uncalibrated" if name == "identity" else name


def _swatch(place: int) -> str:
    line = svg.line([(1, 7), (29, 7)], f"curve line s{place} dash{place}")
    dot = svg.marker(place, 15, 7, f"dot s{place}")
    return svg.element("svg", line + dot, viewBox="0 0 30 14", class_="swatch", aria_hidden="true")


def _classes(data: ReportData, hover: dict[str, Any]) -> str:
    many = data.n_classes > 2
    drawn = []
    few = [row.name for row in data.classes if row.samples < FEW_OF_A_CLASS]
    for place, row in enumerate(data.classes):
        if row.name in few:
            continue  # its curve would be noise
        figure = figures.one_class(row, place)
        hover[f"class-{place}"] = figure.hover_data()
        name = escape(row.name, quote=True)
        drawn.append(f'<figure>{figure.markup}<figcaption title="{name}">{name}</figcaption></figure>')
    text = "With two classes the one mirrors the other, so one diagram says it all."
    if many:
        which = f"The worst {len(data.classes)} of {count(data.n_classes)} classes"
        if len(data.classes) == data.n_classes:
            which = f"All {data.n_classes} classes, the worst first,"
        text = (
            f"{which} before calibration: the probability of each class against how often it was the true one. The "
            "worst of many look bad partly by chance, so the p-values matter."
        )
    absent = ""
    if data.absent:
        shown = ", ".join(escape(name) for name in data.absent[:20]) + (" …" if len(data.absent) > 20 else "")
        absent = f'<p class="note">No calibration samples: {shown} ({count(len(data.absent))} in all).</p>'
    if few:
        names = escape(listed(few))
        absent += f'<p class="note">No diagram, for fewer than {FEW_OF_A_CLASS} samples: {names}.</p>'
    key = (
        '<ul class="legend"><li><span class="line before" aria-hidden="true"></span>before</li>'
        f'<li><span class="line after" aria-hidden="true"></span>after {escape(data.method)}</li></ul>'
    )
    diagrams = f'{key}<div class="multiples">{"".join(drawn)}</div>' if drawn else ""
    heading = "The worst-calibrated classes" if many else "The classes"
    return _section(
        "worst-classes",
        heading,
        f"<p>{text}</p>{absent}{diagrams}{tables.classes(data.classes)}",
    )


def _next(data: ReportData) -> str:
    items = []
    for step in data.next_steps:
        code = f"<pre><code>{escape(step.command)}</code></pre>" if step.command else ""
        items.append(f"<li><h3>{escape(step.heading)}</h3><p>{escape(step.text)}</p>{code}</li>")
    return _section("next", "What to do next", f'<ol class="steps">{"".join(items)}</ol>')


def _reproduce(data: ReportData) -> str:
    made = data.reproduction
    facts = [
        ("Calibration samples", count(data.n_calibration)),
        ("Samples evaluated", count(data.n_evaluation)),
        ("Classes", count(data.n_classes)),
        ("Method shown", data.method + (f" ({data.method_summary})" if data.method_summary else "")),
        ("Seed", str(made.random_state)),
        ("SHA-256 of scores and labels", made.fingerprint),
        ("Versions", ", ".join(f"{name} {version}" for name, version in made.versions)),
    ]
    listed = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    notes = "".join(f"<li>{escape(note)}</li>" for note in made.notes)
    return _section(
        "reproduce",
        "How to reproduce this",
        f'<pre><code>{escape(made.command)}</code></pre><dl class="facts">{listed}</dl><ul class="notes">{notes}</ul>',
    )

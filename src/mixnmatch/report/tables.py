"""The tables of a report, as HTML: all text from outside goes through ``escape``."""

from __future__ import annotations

import math
from html import escape

from mixnmatch.decisions.selective import SelectiveCoverage
from mixnmatch.evaluation.reliability import ReliabilityCurve
from mixnmatch.evaluation.two_classes import EXCESS, TITLES, BinaryMeasure
from mixnmatch.report.data import ClassRow, ReportData
from mixnmatch.report.figures import gain_bar, gain_scale
from mixnmatch.report.formats import count, interval, number, p_value, percent, span
from mixnmatch.report.svg import thinned
from mixnmatch.report.verdicts import SIGNIFICANCE, sentence
from mixnmatch.selection.learning import LearningCurve
from mixnmatch.selection.results import MethodResult

# Rows of the table that stands for a curve.
CURVE_ROWS = 12

# What calibrated probabilities of two classes have.
IF_CALIBRATED = {"observed_expected": "1", "calibration_slope": "1", "spiegelhalter": ""}

Column = tuple[str, str]


def methods(data: ReportData) -> str:
    """All methods, ranked by the score that decides; the script of the page makes it sortable."""
    columns: tuple[Column, ...] = (
        ("Method", "text"),
        ("Calibration gain", "number"),
        ("", ""),
        ("95% interval", ""),
        ("Log loss", "number"),
        ("Brier score", "number"),
        ("Accuracy", "number"),
        ("ECE", "number"),
        ("Fit (s)", "number"),
    )
    head = "".join(_heading(text, kind) for text, kind in columns)
    scale = gain_scale(data.comparison)
    tied = {result.name for result in data.comparison.tied()}
    body = []
    for result in data.comparison.results:
        cells = _failed(result) if result.failure is not None else _measured(result, data, scale, tied)
        chosen = ' class="chosen"' if result.name == data.method else ""
        preserving = "yes" if result.accuracy_preserving else "no"
        body.append(f'<tr data-preserving="{preserving}"{chosen}>{cells}</tr>')
    caption = (
        f"Methods, the lowest {data.verdict.score} first. {escape(data.comparison.how[:1].upper())}"
        f"{escape(data.comparison.how[1:])}."
    )
    return _table("methods", caption, head, "".join(body))


def _measured(result: MethodResult, data: ReportData, scale: object, tied: set[str]) -> str:
    assert result.gain is not None
    own = result.name == data.method
    class_ = "before" if result.name == "identity" else ("after" if own else "plain")
    marks = []
    if own:
        marks.append('<span class="tag tag-after">shown</span>')
    if result.name in tied and result.name != "identity":
        marks.append('<span class="tag">best/tied</span>')
    name = "uncalibrated" if result.name == "identity" else result.name
    keeps = "" if result.accuracy_preserving else _CHANGES
    bar = gain_bar(result, scale, f"line-{class_}")  # type: ignore[arg-type]
    whole = "–" if result.name == "identity" else number(result.gain, sign=True)
    ends = "–" if result.name == "identity" else span(result.gain.interval, as_percent=False, digits=4)
    cells = [
        f'<th scope="row"><span class="name">{escape(name)}</span> {" ".join(marks)}</th>',
        _number(float(result.gain), whole),
        f'<td class="bar">{bar}</td>',
        f'<td class="interval">{ends}</td>',
        _number(result.nll, number(result.nll)),
        _number(result.brier, number(result.brier)),
        _number(result.accuracy, percent(result.accuracy), keeps),
        _number(result.error, percent(result.error)),
        _number(result.seconds, "–" if result.seconds == 0 or result.name == "identity" else f"{result.seconds:.2f}"),
    ]
    return "".join(cells)


_CHANGES = (
    '<span class="mark" title="may change the predicted class">*'
    '<span class="hidden"> may change the predicted class</span></span>'
)


def _failed(result: MethodResult) -> str:
    return (
        f'<th scope="row"><span class="name">{escape(result.name)}</span></th>'
        f'<td colspan="8" class="failure">failed: {escape(result.failure or "")}</td>'
    )


def classes(rows: tuple[ClassRow, ...]) -> str:
    """The worst classes."""
    columns: tuple[Column, ...] = (
        ("Class", "text"),
        ("Samples", "number"),
        ("Error before", "number"),
        ("p before", "number"),
        ("Error after", "number"),
        ("p after", "number"),
        ("Mean before", "number"),
        ("Frequency", "number"),
    )
    head = "".join(_heading(text, kind) for text, kind in columns)
    body = []
    for row in rows:
        cells = [
            f'<th scope="row"><span class="name">{escape(row.name)}</span></th>',
            _number(row.samples, count(row.samples)),
            _number(row.before, percent(row.before)),
            _p_value(row.p_before),
            _number(row.after, percent(row.after)),
            _p_value(row.p_after),
            _number(row.curve_before.mean_confidence, percent(row.curve_before.mean_confidence)),
            _number(row.curve_before.mean_outcome, percent(row.curve_before.mean_outcome)),
        ]
        body.append(f"<tr>{''.join(cells)}</tr>")
    caption = (
        "Class-wise calibration error. p is how often a calibrated model would look as bad, in bold where it is below "
        f"{SIGNIFICANCE:g}. “Mean before” is its mean probability, “frequency” how often it was the true class."
    )
    return _table("classes", caption, head, "".join(body))


def measures(before: dict[str, BinaryMeasure], after: dict[str, BinaryMeasure], method: str) -> str:
    """What is reported of two classes only."""
    columns = ("", "If calibrated", "Before", "95% interval", f"After {method}", "95% interval")
    head = "".join(_heading(text, "") for text in columns)
    body = []
    for key, title in TITLES.items():
        as_percent = key.startswith("top")
        text, calibrated = sentence(title), IF_CALIBRATED.get(key, "0%" if as_percent else "0")
        cells = [f'<th scope="row">{escape(text)}</th>', f"<td>{calibrated}</td>"]
        for one in (before[key], after[key]):
            if one.interval is None:
                cells += [_p_value(one.p_value or 0.0), "<td></td>"]
            else:
                shown = percent(one) if as_percent else number(one, 3)
                cells += [_number(one, shown), f"<td>{span(one.interval, as_percent=as_percent)}</td>"]
        body.append(f"<tr>{''.join(cells)}</tr>")
    caption = (
        "The probability of the positive class, as medicine and credit scoring report it. Intercept and slope are of a "
        f"logistic regression on the log-odds: a slope below 1 means probabilities that are too extreme. {EXCESS} The "
        "last row shows p-values."
    )
    return _table("measures", caption, head, "".join(body))


def reliability(curve: ReliabilityCurve, caption: str) -> str:
    """A few points of a reliability curve."""
    head = "".join(_heading(text, "") for text in ("Said", "Observed", "95% band"))
    body = "".join(
        f'<tr><th scope="row">{percent(float(curve.confidence[i]))}</th><td>{percent(float(curve.value[i]))}</td>'
        f"<td>{interval((float(curve.low[i]), float(curve.high[i])))}</td></tr>"
        for i in thinned(len(curve.confidence), CURVE_ROWS)
    )
    return _table("", escape(caption), head, body)


def learning(curve: LearningCurve) -> str:
    """All points of the learning curves."""
    titles = ("Method", "Samples", "Log loss", "Brier score", "Accuracy", "ECE", "Repetitions")
    head = "".join(_heading(text, "") for text in titles)
    body = "".join(
        f'<tr><th scope="row">{escape("uncalibrated" if p.method == "identity" else p.method)}</th>'
        f"<td>{count(p.size)}</td><td>{number(p.nll)}</td><td>{number(p.brier)}</td><td>{percent(p.accuracy)}</td>"
        f"<td>{percent(p.error)}</td><td>{p.repetitions}</td></tr>"
        for p in curve.points
    )
    return _table("", escape(f"Learning curves: {curve.how}."), head, body)


def coverages(rows: tuple[SelectiveCoverage, ...]) -> str:
    """Coverage that target risks allow."""
    titles = ("Error rate at most", "Coverage", "Confidence from", "Errors among them", "Limit")
    head = "".join(_heading(text, "") for text in titles)
    body = "".join(
        f'<tr><th scope="row">{percent(row.target)}</th><td>{percent(row.coverage)}</td>'
        f"<td>{percent(row.threshold)}</td><td>{percent(row.risk)}</td>"
        f"<td>{percent(row.bound) if row.met else '–'}</td></tr>"
        for row in rows
    )
    caption = (
        "After calibration: how many samples can be predicted at a target error rate, each target with 95% confidence "
        "(binomial limits, corrected for the choice of the threshold). A coverage of 0: there are too few samples, or "
        "too many errors, to promise it."
    )
    return _table("coverage", caption, head, body)


def _heading(text: str, kind: str) -> str:
    sort = f' data-sort="{kind}"' if kind else ""
    return f'<th scope="col"{sort}>{escape(text)}</th>' if text else "<td></td>"


def _number(value: float | None, text: str, after: str = "") -> str:
    key = "" if value is None or not math.isfinite(value) else f' data-value="{float(value)!r}"'
    return f"<td{key}>{text}{after}</td>"


def _p_value(p: float) -> str:
    text = p_value(p).removeprefix("p ").removeprefix("= ")
    return _number(p, f"<strong>{text}</strong>" if p < SIGNIFICANCE else text)


def _table(name: str, caption: str, head: str, body: str) -> str:
    mark = f' id="{name}-table"' if name else ""
    # Regions have names of their own, for the list of them in screen readers.
    label = f"{name} table, scrolls sideways" if name else f"{caption}, scrolls sideways"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table{mark}>'
        f"<caption><span>{caption}</span></caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )

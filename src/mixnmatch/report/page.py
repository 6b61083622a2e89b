"""The page of a report: figures and what is computed for its template, ``assets/report.html``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from mixnmatch._engine.text import significant
from mixnmatch._html import asset, closed_page
from mixnmatch._version import __version__
from mixnmatch.decisions.benefit import is_rare
from mixnmatch.evaluation.two_classes import EXCESS, TITLES
from mixnmatch.monitoring.result import e_text
from mixnmatch.report import figures, formats, svg
from mixnmatch.report.data import ReportData, Side
from mixnmatch.report.figures import Figure
from mixnmatch.report.verdicts import SIGNIFICANCE, level, rule
from mixnmatch.selection.verdict import FEW_OF_A_CLASS

LEVELS = {
    "good": ("✓", "calibrated"),
    "slight": ("≈", "slightly miscalibrated"),
    "bad": ("✕", "not calibrated"),
    "unclear": ("?", "too few samples to tell"),
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
# What calibrated probabilities of two classes have; the other measures are 0 for them.
IF_CALIBRATED = {"observed_expected": "1", "calibration_slope": "1", "spiegelhalter": ""}
# Methods of the learning curve, and rows of the table that stands for a reliability curve.
SERIES, CURVE_ROWS = 5, 12

FILTERS = (*formats.FILTERS, e_text, significant, svg.swatch)


@dataclass(frozen=True)
class ShownSide:
    """The scores before calibration or after it, with a few points of the curve: said, observed, band."""

    name: str
    title: str
    data: Side
    other: Side

    @property
    def points(self) -> list[tuple[float, float, tuple[float, float]]]:
        """Rows of the table that stands for the curve."""
        curve = self.data.curve
        some = figures.some_points(curve, CURVE_ROWS)
        columns = (curve.confidence[some], curve.value[some], curve.low[some], curve.high[some])
        return [(said, observed, (low, high)) for said, observed, low, high in zip(*columns, strict=True)]

    def figure(self, *, log_odds: bool = False) -> Figure:
        """The reliability diagram."""
        axes = " on log-odds axes" if log_odds else ""
        title = f"Reliability{axes}: {self.title.lower()}"
        return figures.reliability(self.data, self.other, which=self.name, title=title, log_odds=log_odds)


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
    two, changed = data.n_classes == 2, data.method != "identity"
    sides = [ShownSide("before", "Before calibration" if changed else "Scores as given", data.before, data.after)]
    if changed:
        sides.append(ShownSide("after", f"After {data.method}", data.after, data.before))
    names = [] if data.curve is None else sorted(data.curve.methods, key=lambda name: name != data.method)
    fitted = [name for name in names if name != "identity"]
    # Uncalibrated scores come second: their colour is that of "before" in all figures.
    series = [*fitted[:1], *(name for name in names if name == "identity"), *fitted[1:]][:SERIES]
    rare = [row.name for row in data.classes if row.samples < FEW_OF_A_CLASS]  # their curves would be noise
    drawn = [side.figure() for side in sides]
    if two:
        drawn += [side.figure(log_odds=True) for side in sides]
    if data.curve is not None:
        drawn += [figures.learning(data.curve, series, measure) for measure, _ in figures.MEASURES]
    if not two:
        shown = [row for row in data.classes if row.name not in rare]
        drawn += [figures.one_class(row, k, after=changed) for k, row in enumerate(shown)]
    drawn += data.decisions.figures(after=changed)
    return whole_page(
        "report/assets/report.html",
        drawn,
        heading=data.title if "calibration" in data.title.lower() else f"{data.title} – calibration report",
        title=data.title,
        sections=_sections(two=two, changed=changed),
        data=data,
        levels=LEVELS,
        level_after=level(data.after),
        rule=rule(data.before),
        top_label=data.before.error.notion == "top-label",
        sides=sides,
        changed=changed,
        least_near=figures.LEAST_NEAR,
        rare_event=two and is_rare(data.before.curve.mean_outcome),
        measure_titles=TITLES,
        if_calibrated=IF_CALIBRATED,
        excess=EXCESS,
        bars=_gain_bars(data),
        tied={result.name for result in data.comparison.tied()},
        learning_measures=figures.MEASURES,
        series=series,
        rare=rare,
        few_of_a_class=FEW_OF_A_CLASS,
        significance=SIGNIFICANCE,
    )


def _sections(*, two: bool, changed: bool) -> list[tuple[str, str]]:
    """Names and titles of the sections. Two classes mirror each other: the diagrams of the positive one say it all."""
    titles = dict(SECTIONS) | ({} if changed else {"reliability": "Reliability"})
    return [(name, title) for name, title in titles.items() if not (two and name == "worst-classes")]


def whole_page(template: str, drawings: Iterable[Figure], **context: Any) -> str:
    """A page with the report's style and script; the template finds figures by their names."""
    by_name = {figure.name: figure for figure in drawings}
    return closed_page(
        template,
        style=asset("report/assets/report.css"),
        script=asset("report/assets/report.js"),
        embedded={"report-data": {"hover": {name: figure.hover_data() for name, figure in by_name.items()}}},
        filters=FILTERS,
        figures=by_name,
        version=__version__,
        **context,
    )


def _gain_bars(data: ReportData) -> dict[str, Markup]:
    scale = figures.gain_scale(data.comparison)
    colours = {data.method: "after", "identity": "before"}
    return {
        result.name: figures.gain_bar(result, scale, f"line-{colours.get(result.name, 'plain')}")
        for result in data.comparison.results
    }

"""Templates: text from outside stays text on every page, and what is missing is an error."""

import json
import re
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch import _html
from mixnmatch.experiments.reproduce.page import Code, Figure, Grid, Heading, Text, to_html
from mixnmatch.monitoring import Monitor
from mixnmatch.playground import page as playground
from mixnmatch.report import build_report, render
from mixnmatch.report.monitor import render_monitor
from tests.conftest import make_problem, softmax

# It would start an element, or an attribute in each kind of quotes.
MARK = "<q0 a='1' b=\"2\">&"
TEMPLATES = sorted(
    str(path.relative_to(str(resources.files("mixnmatch")))) for path in resources.files("mixnmatch").rglob("*.html")
)


def check(page, least):
    """All marks are escaped, in text and in attributes."""
    assert "<q0" not in page
    assert 'b="2"' not in page
    visible = re.sub("<(script|style)[^>]*>.*?</\\1>", "", page, flags=re.DOTALL)
    assert not re.search("&(?!amp;|lt;|gt;|#34;|#39;)", visible)
    assert page.count("&lt;q0 a=&#39;1&#39; b=&#34;2&#34;&gt;&amp;") >= least


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_report_escapes_every_text(n_classes):
    logits, y = make_problem(150, n_classes)
    names = np.array([f"{MARK}{k}" for k in range(n_classes)])
    data = build_report(softmax(logits), names[y], classes=names, methods={MARK: "ts"}, title=MARK, command=MARK)
    assert data.method == MARK
    failed = replace(data.comparison.results[0], name=MARK, failure=MARK)
    data = replace(
        data,
        how=MARK,
        method_summary=MARK,
        curve_answer=MARK,
        subject=MARK,
        absent=(MARK,),
        diagnosis=replace(data.diagnosis, headline=MARK, evidence=MARK, effect=MARK, confident=MARK),
        verdict=replace(data.verdict, why=MARK, tied_with=(MARK,)),
        next_steps=tuple(replace(step, heading=MARK, text=MARK, command=MARK) for step in data.next_steps),
        comparison=replace(data.comparison, how=MARK, results=(*data.comparison.results, failed)),
        curve=replace(data.curve, how=MARK, failures={MARK: MARK}),
        reproduction=replace(
            data.reproduction, command=MARK, fingerprint=MARK, notes=(MARK,), versions=((MARK, MARK),)
        ),
    )
    check(render(data), 50)


def test_a_monitor_page_escapes_every_text():
    names = ["other", MARK]
    monitor = Monitor(mm.maps.Identity(classes=names).fit([0.2, 0.8], names))
    monitor.update([[0.4, 0.6], [0.3, 0.7]], names, step=MARK)
    check(render_monitor(monitor, title=MARK), 6)


def test_the_playground_escapes_every_text(monkeypatch):
    monkeypatch.setattr(playground, "__version__", MARK)
    monkeypatch.setattr(playground, "POSITIVE", MARK)
    check(playground.render_playground(), 2)


def test_results_in_notebooks_escape_every_text():
    logits, y = make_problem(150, 3)
    check(mm.compare(logits, y, logits=True, methods={MARK: "ts"})._repr_html_(), 2)


def test_the_page_of_a_reproduction_escapes_every_text():
    grid = Grid([MARK], [[MARK], [MARK]], [[True], [False]])
    check(to_html([Heading(MARK), Text(MARK), Code(MARK), Figure(MARK, MARK), grid]), 10)


def test_every_template_is_tried_above():
    assert TEMPLATES == [
        "assets/closed_page.html",
        "assets/result.html",
        "experiments/reproduce/assets/page.html",
        "playground/assets/playground.html",
        "report/assets/base.html",
        "report/assets/monitor.html",
        "report/assets/parts.html",
        "report/assets/report.html",
    ]


@pytest.mark.parametrize("template", TEMPLATES)
def test_only_style_and_script_are_not_escaped(template):
    source = _html.asset(template)
    unsafe = re.findall(r"\|\s*safe|autoescape|Markup|xmlattr", source)
    assert unsafe == (["|safe", "|safe"] if template == "assets/closed_page.html" else [])


def test_a_missing_value_is_an_error():
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError, match="'rows' is undefined"):
        _html.render("assets/result.html", above=[], header=[], below=[])


def with_data(value):
    sample = {"images": 0, "scale": 1, "positive": ""}
    context = {"heading": "", "version": "", "every": 1, "sample": sample}
    template = "playground/assets/playground.html"
    return _html.closed_page(template, style="", script="", embedded={"data": value}, **context)


def test_json_cannot_end_its_element():
    nasty = {"a": "</script><!--", "b": "&\u2028"}
    page = with_data(nasty)
    assert page.startswith("<!doctype html>\n<html")
    [text] = re.findall('<script type="application/json" id="data">(.*?)</script>', page)
    assert not set("<>&") & set(text)
    assert text.isascii()
    assert json.loads(text) == nasty
    with pytest.raises(ValueError, match="not JSON compliant"):
        with_data(float("nan"))

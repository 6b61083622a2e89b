import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest

from mixnmatch import __version__
from mixnmatch.evaluation import reliability_curve
from mixnmatch.report import build_report, render
from mixnmatch.report.figures import supported
from mixnmatch.report.formats import typeset
from mixnmatch.report.page import SECTIONS
from mixnmatch.report.svg import tick_labels
from mixnmatch.report.verdicts import rule, small_error

VOID = {"meta", "link", "input", "br", "img"}


class Page(HTMLParser):
    """Elements of a page; an error where one is not closed."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open, self.text = [], [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("script", "style"):
            self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(params=["report_file", "hostile_file", "small_report", "two_class_report"])
def page(request):
    found = request.getfixturevalue(request.param)
    data = found[1] if isinstance(found, tuple) else found
    return Page(render(data)), data


def test_all_sections_and_links_lead_somewhere(page):
    parsed, data = page
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    absent = {"worst-classes"} if data.n_classes == 2 else set()
    assert {name for name, _ in SECTIONS} - set(ids) == absent
    for attributes in parsed.all("a"):
        assert attributes["href"].removeprefix("#") in ids
    for _, attributes in parsed.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(attributes.get(name, "").split()) <= set(ids)
    text = " ".join(parsed.text)
    answer = data.curve_answer[0].upper() + data.curve_answer[1:]
    for expected in (data.title, data.diagnosis.headline, data.diagnosis.effect, data.verdict.headline, answer):
        assert expected in text
    assert __version__ in text
    for result in data.comparison.results:
        assert ("uncalibrated" if result.name == "identity" else result.name) in text


def test_nothing_runs_or_loads_but_our_own(page):
    parsed, _ = page
    scripts = parsed.all("script")
    assert [s.get("type", "run") for s in scripts] == ["application/json", "run"]
    assert not {"img", "iframe", "object", "embed", "b", "i"} & {tag for tag, _ in parsed.elements}
    for tag, attributes in parsed.elements:
        assert "src" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert "style" not in attributes, "the policy forbids it"
        if "href" in attributes:
            assert attributes["href"].startswith("#") or (tag, attributes["href"]) == ("link", "data:,")
    policy = next(m["content"] for m in parsed.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_figures_and_tables_have_words(page):
    parsed, _ = page
    for attributes in parsed.all("svg"):
        assert attributes.get("aria-hidden") == "true" or attributes["role"] == "img"
    assert len(parsed.all("caption")) == len(parsed.all("table"))
    assert all("scope" in attributes for attributes in parsed.all("th"))
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))


def test_no_number_is_missing_in_the_drawings(page):
    _, data = page
    assert not re.search(r'(?:d|x|y|cx|cy|x1|y1)="[^"]*(?:nan|inf)', render(data))


def test_two_classes_have_measures_and_log_odds_axes(two_class_report, small_report):
    text = render(two_class_report)
    slope = two_class_report.before.measures["calibration_slope"]
    assert slope.interval[1] < 1
    assert f'<td data-value="{float(slope)!r}">{slope:.3f}</td>' in text
    assert 'id="log-odds-before-title"' in text
    for absent in ("Calibration slope", "log-odds-before"):
        assert absent not in render(small_report)


def test_a_small_error_is_small_beside_a_rare_class(two_class_report):
    """A gap of two points is no small one where the event itself has a probability of a few per cent."""
    side = two_class_report.before
    rare = SimpleNamespace(error=side.error, curve=SimpleNamespace(mean_outcome=0.02))
    assert small_error(rare) == 0.01
    assert small_error(SimpleNamespace(error=side.error, curve=SimpleNamespace(mean_outcome=0.99))) == pytest.approx(
        0.005
    )
    assert small_error(SimpleNamespace(error=side.error, curve=SimpleNamespace(mean_outcome=0.4))) == 0.03
    assert "ends at 1%, half the frequency of the rarer class, or below" in rule(rare)


def test_rendering_is_a_function_of_the_data(report_file):
    path, data = report_file
    assert path.read_text(encoding="utf-8") == render(data)


def test_the_rule_is_stated(report_file):
    page = report_file[0].read_text(encoding="utf-8")
    assert "does not reject at 5% and the 95% interval of the error ends at 3% or below" in page
    assert report_file[1].diagnosis.confident in page


def test_classes_of_few_samples_have_no_diagram(report_file):
    data = report_file[1]
    page = render(data)
    assert "No diagram" not in page
    assert len(re.findall(r'id="class-\d+"', page)) == len(data.classes)
    few = replace(data.classes[0], name="rare <one>", samples=9.0)
    page = render(replace(data, classes=(few, *data.classes[1:])))
    assert "No diagram, for fewer than 10 samples: rare &lt;one&gt;." in page
    assert len(re.findall(r'id="class-\d+"', page)) == len(data.classes) - 1
    assert "rare &lt;one&gt;</span></th>" in page  # the table has it
    page = render(replace(data, classes=(few,)))
    assert 'class="multiples"' not in page


def test_names_of_methods_stay_as_they_are_typed(report_file):
    data = report_file[1]
    page = render(replace(data, verdict=replace(data.verdict, tied_with=("ts", "irm"))))
    assert "<dd>ts, irm; statistically tied" in page


def test_numbers_have_the_digits_of_evaluate(report_file):
    """As ``mixnmatch evaluate`` prints them."""
    data = report_file[1]
    page = render(data)
    for side in (data.before, data.after):
        for share in (side.error, side.accuracy):
            assert f"<dd>{share:.2%}</dd>" in page
        for loss in (side.nll, side.brier):
            low, high = loss.interval
            assert f'<dd>{loss:.4f}</dd><dd class="ends">{low:.4f} – {high:.4f}</dd>' in page


def test_scores_that_stay_as_they_are_have_no_after(report_file):
    data = report_file[1]
    page = render(replace(data, method="identity", after=data.before))
    assert "After identity" not in page
    assert "after identity" not in page
    assert 'id="reliability-after"' not in page
    assert page.count("<dt>as given</dt>") == 4
    assert "<dt>after</dt>" not in page
    assert "Before and after" not in page
    assert not re.search('class="[^"]*line-after', page)


def test_uncalibrated_scores_have_the_colour_of_before(report_file):
    data = report_file[1]
    for method in (data.method, "identity"):
        page = render(replace(data, method=method))
        assert re.search('id="series-1" value="s1" checked>.*<span>uncalibrated</span>', page)


def test_curves_are_drawn_where_samples_are():
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.uniform(0, 0.2, 500), [0.5, 0.52], rng.uniform(0.9, 1, 200)])
    curve = reliability_curve(p, (rng.random(len(p)) < p).astype(int))
    first, second = supported(curve)
    assert 0.2 <= curve.confidence[first[-1]] <= 0.3
    assert 0.8 <= curve.confidence[second[0]] <= 0.9
    few = reliability_curve(p[:5], [0, 0, 0, 0, 1])
    [whole] = supported(few)
    assert len(whole) == len(few.confidence)


def test_a_single_score_is_a_dot():
    p = np.full((30, 3), [1.0, 0.0, 0.0])
    data = build_report(p, [0] * 29 + [1], methods=["ts"])
    assert re.search('<circle cx="406" cy="[0-9.]+" r="4" class="dot curve line-before"', render(data))


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "from 20000 to 40000 samples by -0.0019 (-0.1 to +0.2)",
            "from 20\u202f000 to 40\u202f000 samples by −0.0019 (−0.1 to +0.2)",
        ),
        ("5-fold on 5000 samples, irm-ets", "5-fold on 5000 samples, irm-ets"),
        ("class 12345 and 0.12345 samples", "class 12345 and 0.12345 samples"),
    ],
)
def test_texts_of_other_modules_are_typeset(text, expected):
    assert typeset(text) == expected


def test_ticks_are_written_exactly():
    assert [text for _, text in tick_labels([0.0, 0.00025, 0.0005], as_percent=True)] == ["0.000%", "0.025%", "0.050%"]
    assert [text for _, text in tick_labels([-1.0, 0.0, 1.0])] == ["−1", "0", "1"]

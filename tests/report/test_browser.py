"""The page in a real browser: it renders, its controls work, nothing is logged, and no request leaves the file."""

import pytest

from tests.report.browser import Browser, find_chromium

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture
def page(browser, report_file):
    browser.open(report_file[0])
    return browser


def shown(selector):
    return f"[...document.querySelectorAll({selector!r})].filter(e => e.getClientRects().length).length"


def test_it_renders_without_a_word_or_a_request(page, report_file):
    assert report_file[1].diagnosis.headline in page.run("document.querySelector('#verdict h2').textContent")
    assert report_file[1].verdict.headline in page.run("document.querySelector('#verdict').textContent")
    assert page.run(shown("svg.figure")) == 2 + 1 + 5 + 1  # before and after, learning curve, classes, decisions
    assert page.messages == []
    assert page.requests == [report_file[0].as_uri()]


@pytest.mark.parametrize("width, mobile", [(390, True), (768, True), (1280, False)])
def test_it_fits_the_screen(browser, report_file, width, mobile):
    browser.open(report_file[0], width=width, mobile=mobile)
    assert browser.run("document.documentElement.scrollWidth") <= width
    # Text of figures stays legible.
    size = "13 * document.querySelector('#reliability-before').getBoundingClientRect().width / 420"
    assert browser.run(size) > 9


def test_dark_mode_has_other_colours(browser, report_file):
    colour = "getComputedStyle(document.body).backgroundColor"
    browser.open(report_file[0])
    light = browser.run(colour)
    browser.open(report_file[0], dark=True)
    assert browser.run(colour) != light
    assert browser.messages == []


def test_diagrams_show_what_is_asked_for(page):
    for what, selector, at_first in (("band", ".pair .band", 2), ("bins", ".pair .bin", 0), ("overlay", ".ghost", 0)):
        assert (page.run(shown(selector)) > 0) == (at_first > 0)
        page.run(f"document.getElementById('show-{what}').click()")
        assert (page.run(shown(selector)) > 0) == (at_first == 0)


def test_controls_work_by_keyboard(page):
    page.run("document.getElementById('show-bins').focus()")
    page.press("Space")
    assert page.run("document.getElementById('show-bins').checked")
    assert page.run(shown(".pair .bin")) > 0


def test_only_methods_that_preserve_accuracy(page, report_file):
    results = report_file[1].comparison.results
    assert page.run(shown("#methods-table tbody tr")) == len(results)
    page.run("document.getElementById('preserving-only').click()")
    assert page.run(shown("#methods-table tbody tr")) == sum(result.accuracy_preserving for result in results)


def test_columns_sort(page, report_file):
    first = "document.querySelector('#methods-table tbody th .name').textContent"
    results = report_file[1].comparison.results
    head = "document.querySelectorAll('#methods-table th[data-sort]')[2]"
    for order, pick in (("ascending", min), ("descending", max)):
        page.run(f"{head}.querySelector('button').click()")
        best = pick(results, key=lambda result: float(result.nll)).name
        assert page.run(first) == ("uncalibrated" if best == "identity" else best)
        assert page.run(f"{head}.getAttribute('aria-sort')") == order


def test_the_learning_curve_shows_what_is_asked_for(page):
    assert page.run(shown("#learning-nll")) == 1
    page.run("document.querySelector('input[name=measure][value=brier]').click()")
    assert page.run(shown("#learning-nll")) == 0
    assert page.run(shown("#learning-brier")) == 1
    before = page.run(shown("#learning-brier .series"))
    page.run("document.getElementById('series-0').click()")
    assert page.run(shown("#learning-brier .series")) == before - 1


def test_values_under_the_pointer(page):
    page.point_at("#reliability-before", 0.8, 0.4)
    assert page.run("document.getElementById('tip').hidden") is False
    assert "95% band" in page.run("document.getElementById('tip').textContent")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    assert page.run("document.getElementById('tip').hidden") is True
    assert page.messages == []


def test_controls_have_names_and_are_large_enough(page):
    names = page.run(
        "[...document.querySelectorAll('input, button')].map(e => (e.labels?.[0] ?? e).textContent.trim())"
    )
    assert names
    assert all(names)
    heights = page.run("[...document.querySelectorAll('.controls label')].map(e => e.getBoundingClientRect().height)")
    assert min(heights) >= 24


def test_it_prints(page):
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF")
    assert 2 <= pdf.count(b"/Type /Page\n") <= 12


def test_text_from_outside_stays_text(browser, hostile_file):
    browser.open(hostile_file[0])
    assert browser.messages == []
    assert browser.requests == [hostile_file[0].as_uri()]
    assert browser.run("document.querySelector('h1').textContent") == hostile_file[1].title
    assert "alert(2)" in browser.run("document.querySelector('#reproduce code').textContent")
    assert browser.run("document.images.length + document.querySelectorAll('b, i').length") == 0


def test_the_policy_forbids_requests(page):
    page.run("const i = new Image(); i.src = 'https://example.com/x.png'; fetch('https://example.com').catch(() => {})")
    page.run("0")
    assert any("Content Security Policy" in message for message in page.messages)

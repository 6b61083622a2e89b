"""The report for people who use a keyboard, a screen reader or a phone."""

import re

import pytest

from tests.report.axe import needs_axe, violations
from tests.report.browser import Browser, find_chromium

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="chromium is not installed")

SIZES = [(1280, False), (390, True)]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@needs_axe
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width, mobile", SIZES)
def test_no_rule_is_broken(browser, report_file, width, mobile, dark):
    browser.open(report_file[0], width=width, mobile=mobile, dark=dark)
    assert violations(browser) == []


@needs_axe
def test_a_broken_rule_is_found(browser, report_file):
    browser.open(report_file[0])
    browser.run("document.querySelector('main').insertAdjacentHTML('beforeend', '<button></button>')")
    assert [each.partition(":")[0] for each in violations(browser)] == ["button-name"]


def test_the_keyboard_reaches_everything_in_order(browser, report_file):
    browser.open(report_file[0])
    kinds = "a[href], button, input, summary, [tabindex='0']"
    wanted = browser.run(
        f"[...document.querySelectorAll({kinds!r})].filter(e => e.checkVisibility()).forEach((e, k) => "
        "{ e.dataset.place = k; }), document.querySelectorAll('[data-place]').length"
    )
    reached, outlined = [], []
    for _ in range(wanted):
        browser.press("Tab")
        place, outline = browser.run(
            "(() => { const e = document.activeElement, label = e.closest('label') ?? e; "
            "return [e.dataset.place ?? null, [e, label].some(x => getComputedStyle(x).outlineStyle !== 'none')]; })()"
        )
        reached.append(place)
        outlined.append(outline)
    # A group of radio buttons is one stop, the rest come in the order of the page.
    numbers = [int(place) for place in reached if place is not None]
    first_time = list(dict.fromkeys(numbers))
    assert first_time == sorted(first_time)
    radios = browser.run("document.querySelectorAll('input[type=radio]:not(:checked)').length")
    assert len(first_time) == wanted - radios
    assert all(outline for outline, place in zip(outlined, reached, strict=True) if place is not None)


def test_wide_tables_say_that_they_scroll(browser, report_file):
    browser.open(report_file[0], width=390, mobile=True)
    note = "document.querySelector('#methods-table').parentElement.previousElementSibling.textContent"
    assert browser.run(note) == "Scroll sideways for more columns →"
    assert browser.run("document.querySelector('#methods-table').parentElement.classList.contains('scrolls')")
    browser.open(report_file[0], width=1280)
    assert browser.run("document.querySelectorAll('.more').length") == 0


def test_commands_are_not_cut_off(browser, report_file):
    browser.open(report_file[0], width=390, mobile=True)
    assert browser.run("[...document.querySelectorAll('pre')].filter(e => e.scrollWidth > e.clientWidth).length") == 0


def test_regions_have_different_names(browser, report_file):
    browser.open(report_file[0])
    names = browser.run("[...document.querySelectorAll('[role=region]')].map(e => e.getAttribute('aria-label'))")
    assert len(set(names)) == len(names) > 4


def luminance(colour):
    """Relative luminance of #rrggbb, by WCAG."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_lines_stand_out(dark):
    """What axe cannot decide, in drawings and pills: the colours of the style sheet."""
    from mixnmatch._html import asset

    light, _, rest = asset("report/assets/report.css").partition("@media screen and (prefers-color-scheme: dark)")
    found = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", light))
    if dark:
        found |= dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", rest.partition("\n}")[0]))
    for text in ("ink", "soft", "link"):
        for back in ("paper", "panel"):
            assert contrast(found[text], found[back]) >= 4.5, (text, back)
    for kind in ("good", "bad", "slight", "unclear"):
        assert contrast(found[f"{kind}-ink"], found[f"{kind}-bg"]) >= 4.5, kind
    for line in ("before", "after", "green", "purple", "other"):
        assert contrast(found[line], found["paper"]) >= 3, line


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)

"""The page of a monitor."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch.monitoring import Monitor
from mixnmatch.report.monitor import render_monitor, write_monitor_page
from tests.conftest import draw_labels, softmax
from tests.report.axe import needs_axe, violations
from tests.report.browser import Browser, find_chromium


def made(n_classes, steps=3, names=None):
    rng = np.random.default_rng(0)
    fitted = mm.maps.Identity(classes=names).fit(
        np.full((n_classes, n_classes), 1 / n_classes), np.arange(n_classes) if names is None else names
    )
    monitor = Monitor(fitted)
    for step in range(steps):
        p = softmax(rng.normal(size=(200, n_classes)))
        y = draw_labels(softmax(np.log(p) + np.linspace(0, step, n_classes)), rng)
        monitor.update(p, y if names is None else np.array(names)[y], step=f"<{step}>")
    return monitor


@pytest.mark.parametrize("n_classes, steps", [(2, 1), (2, 5), (5, 3), (15, 3), (2, 70)])
def test_pages_are_well_formed(n_classes, steps):
    page = render_monitor(made(n_classes, steps), title="<script>")
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page
    for name in ("evidence-figure", *(["offsets-figure"] if n_classes <= 12 else [])):
        start = page.index(f'id="{name}"')
        drawing = page[page.rindex("<svg", 0, start) : page.index("</svg>", start) + 6]
        ElementTree.fromstring(drawing)
        assert "nan" not in drawing
        assert "inf" not in drawing
    assert "&lt;0&gt;" in page
    assert "http:" not in page.replace("http://www.w3.org", "")


def test_infinite_evidence_and_names_are_shown(tmp_path):
    monitor = made(3, names=["a & b", "<i>", "c"])
    monitor.update([[0.0, 0.5, 0.5]], ["a & b"])
    write_monitor_page(tmp_path / "page.html", monitor)
    page = (tmp_path / "page.html").read_text()
    assert "infinite" in page
    assert "Labels that had probability 0: 1." in page
    assert "a &amp; b" in page
    assert "<i>" not in page


def test_nothing_to_show():
    monitor = Monitor(mm.maps.Identity().fit([0.2, 0.8], [0, 1]))
    with pytest.raises(ValueError, match="no samples"):
        render_monitor(monitor)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if find_chromium() is None:
        pytest.skip("chromium is not installed")
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@needs_axe
@pytest.mark.parametrize("width, dark", [(390, True), (1280, False)])
def test_a_browser_shows_it(browser, tmp_path, width, dark):
    path = tmp_path / "page.html"
    write_monitor_page(path, made(5))
    browser.open(path, width=width, mobile=width < 500, dark=dark)
    assert browser.messages == []
    assert browser.requests == [path.as_uri()]
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert violations(browser) == []

"""The page in a real browser: it answers to files, methods, slider and keys, and makes no request."""

import json
import time

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch.playground.page import _sample
from tests.conftest import make_problem, softmax
from tests.playground.test_maths import AGREED
from tests.playground.test_reading import GOOD

PIXELS = "getComputedStyle(document.querySelector({!r})).{}"


def shown(selector):
    return f"[...document.querySelectorAll({selector!r})].filter(e => e.getClientRects().length).length"


def load(page, path):
    """Choose a file and wait for its results."""
    page.choose_file(path)
    page.wait_for(f"document.getElementById('data-line').textContent.startsWith({path.name!r})")
    page.wait_for("document.getElementById('status').textContent.includes('ECE')")


@pytest.fixture(scope="module")
def two_classes(tmp_path_factory):
    """A file of two classes, as a user has it."""
    path = tmp_path_factory.mktemp("files") / "fraud.csv"
    logits, y = make_problem(600, 2, seed=3)
    names = np.array(["genuine", "fraud"])
    lines = [f"{p!r},{names[k]}" for p, k in zip(softmax(logits)[:, 1].tolist(), y, strict=True)]
    path.write_text("\n".join(["fraud,label", *lines]))
    return path


def test_it_opens_with_the_sample_and_makes_no_request(page, page_file):
    assert page.run(shown("svg.figure")) == 2
    assert "ten classes: 3" in page.text("data-line")
    assert "evaluated on the other" in page.text("split-line")
    assert page.messages == []
    assert page.requests == [page_file.as_uri()]


def test_no_request_is_made_whatever_is_done(page, page_file, two_classes, tmp_path):
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    load(page, two_classes)
    for name in ("method-platt", "how-folds", "method-irm", "show-bins", "sample-two", "sample-ten", "download"):
        page.run(f"document.getElementById({name!r}).click()")
        page.settled()
    assert page.messages == []
    assert [url for url in page.requests if not url.startswith("blob:null/")] == [page_file.as_uri()]


def test_the_policy_forbids_requests(page):
    page.run("fetch('https://example.com').catch(() => {}); new Image().src = 'https://example.com/x.png'")
    page.wait_for("true")
    assert any("Content Security Policy" in message for message in page.messages)


def test_the_sample_is_that_of_the_library(page):
    sample, given = _sample(), mm.load_sample()
    found = page.call_page(
        "() => ({ x: Array.from(playground.state.table.scores), y: Array.from(playground.state.table.labels) })"
    )
    logits = np.concatenate([given.logits_cal, given.logits_eval])[::4]
    np.testing.assert_allclose(np.reshape(found["x"], (-1, 10)), logits, atol=0.5 / 256 + 1e-6)
    np.testing.assert_array_equal(found["y"], np.concatenate([given.labels_cal, given.labels_eval])[::4])
    assert sample["images"] == len(found["y"]) == 3750


def test_two_classes_are_about_the_positive_one(page, two_classes):
    load(page, two_classes)
    assert "genuine, fraud" in page.text("data-line")
    assert page.run("document.querySelector('input[name=method]:checked').value") == "beta"
    assert "P(fraud)" in page.text("diagram-before")
    assert "mean probability" in page.text("caption-after")


@pytest.mark.parametrize("method", ["ts", "ets", "platt", "beta", "isotonic", "irm"])
def test_the_downloaded_map_gives_the_probabilities_of_the_page(page, two_classes, method, tmp_path):
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    load(page, two_classes)
    page.run(f"document.getElementById('method-{method}').click()")
    page.wait_for(f"playground.state.result?.map.name === {method!r}")
    page.run("document.getElementById('download').click()")
    path = tmp_path / f"calibrator-{method}.json"
    deadline = time.monotonic() + 30
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    loaded = mm.load(path)
    p = page.call_page("() => Array.from(playground.state.result.map.predict(playground.state.table))")
    scores = [float(line.split(",")[0]) for line in two_classes.read_text().splitlines()[1:]]
    np.testing.assert_allclose(np.reshape(p, (-1, 2)), loaded.predict_proba(scores), atol=AGREED)
    assert loaded.classes_.tolist() == ["genuine", "fraud"]
    assert loaded.metadata_["source"] == "fraud.csv"
    assert "half" in loaded.metadata_["fitted_on"]
    assert path.name in page.text("file-name")


def test_the_slider_moves_everything_at_once(page):
    fitted = page.run("playground.state.result.after.measures.logLoss")
    page.run("const s = document.getElementById('temperature'); s.value = 0; s.dispatchEvent(new Event('input'))")
    page.wait_for("playground.state.temperature === 1")
    page.wait_for("document.getElementById('results-title').textContent.includes('by hand')")
    after, before = (page.run(f"playground.state.result.{side}.measures.logLoss") for side in ("after", "before"))
    assert after == pytest.approx(before, abs=1e-12)  # a temperature of 1 changes nothing
    assert after > fitted
    assert "1 (by hand; fitted: 1.7" in page.text("temperature-text")
    loaded = json.loads(page.run("playground.currentFile()"))
    assert loaded["map"]["fitted"]["beta_"] == 1
    assert loaded["metadata"]["temperature"] == "set by hand"
    page.run("document.getElementById('temperature-reset').click()")
    page.wait_for("playground.state.temperature === null")
    page.wait_for(f"playground.state.result.after.measures.logLoss === {fitted!r}")


def test_a_map_with_a_temperature_by_hand_loads(page, tmp_path):
    page.run("const s = document.getElementById('temperature'); s.value = 1; s.dispatchEvent(new Event('input'))")
    page.wait_for("playground.state.result.map.temperature === 2")
    (tmp_path / "map.json").write_text(page.run("playground.currentFile()"))
    loaded = mm.load(tmp_path / "map.json")
    assert loaded.temperature_ == 2
    half = page.call_page(
        "() => [playground.state.session.calibration].map(t => [Array.from(t.scores), Array.from(t.labels)])[0]"
    )
    scores, labels = np.reshape(half[0], (-1, 10)), np.array(half[1])
    assert loaded.loss_ == pytest.approx(float(mm.evaluation.log_loss(scores / 2, labels, logits=True)), abs=AGREED)


def test_the_slider_works_by_keyboard(page):
    page.run("document.getElementById('temperature').focus()")
    for _ in range(2):
        page.call(
            "Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39
        )
        page.call("Input.dispatchKeyEvent", type="keyUp", key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
    page.wait_for("playground.state.temperature !== null")
    assert "temperature" in page.run("document.getElementById('temperature').getAttribute('aria-valuetext')")


def test_every_control_is_reached_by_the_tab_key_and_has_a_name(page):
    seen = []
    page.run("document.activeElement.blur()")
    for _ in range(40):
        page.press("Tab")
        seen.append(page.run("document.activeElement.id || document.activeElement.tagName"))
    for name in (
        "file",
        "sample-ten",
        "form-probabilities",
        "method-ts",
        "how-halves",
        "temperature",
        "show-band",
        "download",
    ):
        assert name in seen
    names = page.run(
        "[...document.querySelectorAll('input, button')].map(e => (e.labels?.[0] ?? e).textContent.trim())"
    )
    assert all(names)
    heights = page.run(
        "[...document.querySelectorAll('.controls label, .buttons button')].map(e => e.getBoundingClientRect().height)"
    )
    assert min(heights) >= 24


def test_results_are_announced(page):
    page.run("document.getElementById('method-ets').click()")
    page.wait_for("document.getElementById('status').textContent.startsWith('Ensemble')")
    assert page.run("document.getElementById('status').getAttribute('role')") == "status"
    assert "Log loss fell by" in page.text("status")


@pytest.mark.parametrize(
    "content, name, reason",
    [
        (b"", "empty.csv", "the file is empty"),
        (b"\xff\xfe\x00", "latin.csv", "not text in UTF-8"),
        (b"a,b,label\n\x00,1,2", "binary.csv", "not text"),
        (b"PK\x03\x04", "scores.npz", "reads .csv, .tsv and .json"),
        (b"a,b,label\n0.5,0.5,7\n" * 1, "label.csv", "there are 1 samples"),
        (GOOD["positions"].replace("0.", "5.", 1).encode(), "logits.csv", 'choose "logits"'),
    ],
)
def test_a_bad_file_gives_a_message_and_no_old_result(page, content, name, reason, tmp_path):
    (tmp_path / name).write_bytes(content)
    page.choose_file(tmp_path / name)
    page.wait_for("!document.getElementById('error').hidden")
    assert reason in page.text("error-text")
    assert page.text("error-text").startswith(name)
    assert page.run("document.getElementById('error').getAttribute('role')") == "alert"
    assert page.run(shown("#results, #save, #slider")) == 0
    assert page.run(shown("#data")) == 1
    page.run("document.getElementById('sample-ten').click()")
    page.settled()
    page.wait_for("document.getElementById('error').hidden && !document.getElementById('results').hidden")
    assert page.messages == []


def test_a_file_of_50_megabytes_is_refused_before_it_is_read(page, tmp_path):
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(50_000_000)
    page.choose_file(path)
    page.wait_for("!document.getElementById('error').hidden")
    assert "has 50.0 MB; this page reads up to 25.0 MB" in page.text("error-text")
    assert "mixnmatch report" in page.text("error-text")


def test_logits_are_read_again_when_the_user_says_so(page, tmp_path):
    logits, y = make_problem(60, 3)
    lines = [",".join([*map(repr, row), str(k)]) for row, k in zip(logits.tolist(), y, strict=True)]
    (tmp_path / "scores.csv").write_text("\n".join(["a,b,c,label", *lines]))
    page.run("document.getElementById('form-probabilities').click()")
    page.choose_file(tmp_path / "scores.csv")
    page.wait_for("!document.getElementById('error').hidden")
    page.run("document.getElementById('form-logits').click()")
    page.wait_for(
        "document.getElementById('data-line').textContent.includes('60 samples, 3 classes (a, b, c), logits')"
    )
    assert page.run("document.getElementById('error').hidden")


def test_files_can_be_dropped(page):
    drop = """(text) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([text], "dropped.csv"));
      const event = new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true });
      document.getElementById("drop").dispatchEvent(event);
    }"""
    page.call_page(drop, GOOD["names"])
    page.wait_for("document.getElementById('data-line').textContent.startsWith('dropped.csv: 12 samples')")
    two = drop.replace(
        'transfer.items.add(new File([text], "dropped.csv"));', 2 * 'transfer.items.add(new File([text], "x.csv"));'
    )
    page.call_page(two, GOOD["names"])
    page.wait_for("document.getElementById('error-text').textContent.includes('one file at a time')")


def test_a_failure_of_the_page_itself_is_shown(page):
    page.run("setTimeout(() => { throw new Error('broken') }, 0)")
    page.wait_for("document.getElementById('error-text').textContent.includes('broken')")


def test_names_from_files_stay_text(page):
    nasty = '<img src=x onerror=alert(1)>,"</script><b>b",c,label\n' + "".join(GOOD["positions"].splitlines(True)[1:])
    page.call_page("(text) => playground.takeText(text, '<i>file</i>')", nasty)
    page.settled()
    page.run("document.getElementById('method-platt').click()")
    page.wait_for("playground.state.result?.map.name === 'platt'")
    assert "<i>file</i>: 12 samples" in page.text("data-line")
    assert "onerror" in page.text("parameters")
    assert page.run("document.images.length + document.querySelectorAll('main b, main i').length") == 0
    assert page.messages == []


@pytest.mark.parametrize("width, mobile", [(360, True), (390, True), (768, True), (1280, False)])
def test_it_fits_the_screen(browser, page_file, width, mobile):
    browser.open(page_file, width=width, mobile=mobile)
    browser.settled()
    browser.run("document.querySelectorAll('details').forEach(e => { e.open = true })")
    assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("dark", [False, True])
def test_colours_are_those_of_the_report(browser, page_file, dark):
    browser.open(page_file, dark=dark)
    browser.settled()
    strokes = [browser.run(PIXELS.format(f".curve.line-{which}", "stroke")) for which in ("before", "after")]
    assert strokes == (["rgb(230, 159, 0)", "rgb(86, 180, 233)"] if dark else ["rgb(213, 94, 0)", "rgb(0, 114, 178)"])


def test_text_has_contrast(browser, page_file):
    ratios_of_text = """(() => {
      const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
      const light = (colour) => colour.match(/\\d+(\\.\\d+)?/g).slice(0, 3)
        .reduce((total, v, k) => total + linear(v / 255) * [0.2126, 0.7152, 0.0722][k], 0);
      const ground = (e) => {
        for (; e; e = e.parentElement) {
          const colour = getComputedStyle(e).backgroundColor;
          if (!colour.endsWith(", 0)")) return colour;
        }
        return "rgb(255, 255, 255)";
      };
      const hasText = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
      const seen = (e) => e.getClientRects().length && !e.disabled && !e.closest("svg");
      return [...document.querySelectorAll("main *")].filter((e) => seen(e) && hasText(e)).map((e) => {
        const [high, low] = [light(getComputedStyle(e).color), light(ground(e))].sort((a, b) => b - a);
        return [(high + 0.05) / (low + 0.05), e.outerHTML.slice(0, 80)];
      });
    })()"""
    for dark in (False, True):
        browser.open(page_file, dark=dark)
        browser.settled()
        ratios = browser.run(ratios_of_text)
        assert len(ratios) > 40
        assert min(ratios)[0] >= 4.5, min(ratios)

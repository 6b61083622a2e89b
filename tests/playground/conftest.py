"""The playground in a real browser, opened once."""

import json
import time

import pytest

from mixnmatch.playground import write_playground
from tests.report.browser import Browser, find_chromium


class PlaygroundBrowser(Browser):
    """A browser that can also give files to the page and wait for what it computes."""

    def call_page(self, function, *arguments):
        """Result of a JavaScript function, whose arguments and result are JSON."""
        given = ", ".join(json.dumps(argument) for argument in arguments)
        return json.loads(self.run(f"Promise.resolve(({function})({given})).then(r => JSON.stringify(r ?? null))"))

    def choose_file(self, path):
        """Choose a file as a user does with the button."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        found = self.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
        self.call("DOM.setFileInputFiles", files=[str(path)], nodeId=found)

    def wait_for(self, condition, seconds=60):
        """Wait until an expression of the page is true."""
        deadline = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < deadline, self.run("document.body.innerText")
            time.sleep(0.02)

    def settled(self):
        """Wait until the page shows a result or an error."""
        self.wait_for("document.getElementById('status').textContent.includes('.') || "
                      "!document.getElementById('error').hidden")  # fmt: skip

    def text(self, name):
        return self.run(f"document.getElementById({name!r}).textContent")


@pytest.fixture(scope="session")
def page_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("playground") / "playground.html"
    write_playground(path)
    return path


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if find_chromium() is None:
        pytest.skip("chromium is not installed")
    started = PlaygroundBrowser(tmp_path_factory.mktemp("profile"), timeout=120)
    yield started
    started.close()


@pytest.fixture
def page(browser, page_file):
    """The page as it opens, with the sample of ten classes."""
    browser.open(page_file)
    browser.settled()
    return browser


@pytest.fixture(scope="module")
def engine(browser, page_file):
    """The page, for its functions alone."""
    browser.open(page_file)
    browser.settled()
    return browser

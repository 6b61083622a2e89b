"""Reports that many tests look at, built once."""

import numpy as np
import pytest

from mixnmatch.report import build_report, write_report
from tests.conftest import make_problem, softmax

HOSTILE = np.array(["<script>alert(1)</script>", "</script><b>bold", "a\"b'c", "&amp;", "日本"])


@pytest.fixture(scope="session")
def report_file(tmp_path_factory):
    """A report of five classes, and its data."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    logits, y = make_problem(900, 5)
    data = write_report(
        path,
        logits[:500],
        y[:500],
        evaluation=(logits[500:], y[500:]),
        methods=["ts", "irm", "irova"],
        logits=True,
        title="Five classes",
    )
    return path, data


@pytest.fixture(scope="session")
def hostile_file(tmp_path_factory):
    """A report whose every text is an attempt to break out of it; the last class is absent."""
    path = tmp_path_factory.mktemp("hostile") / "report.html"
    logits, y = make_problem(120, 5, seed=1)
    data = write_report(
        path,
        softmax(logits),
        HOSTILE[np.minimum(y, 3)],
        classes=HOSTILE,
        methods={"<i>ts</i>": "ts"},
        title="<img src=x onerror=alert(1)> </title>",
        command="x </code></pre><script>alert(2)</script> --> ]]>",
    )
    return path, data


@pytest.fixture(scope="session")
def two_class_report():
    """A rare class of two, with scores that are too extreme."""
    rng = np.random.default_rng(0)
    log_odds = rng.normal(-4, 1.5, 1500)
    y = np.where(rng.random(1500) < 1 / (1 + np.exp(-0.7 * log_odds)), "yes", "no")
    return build_report(1 / (1 + np.exp(-log_odds)), y, classes=["no", "yes"], methods=["platt", "isotonic"])


@pytest.fixture(scope="session")
def small_report():
    """Twenty rows of three classes."""
    logits, y = make_problem(20, 3)
    return build_report(logits, y, logits=True, methods=["ts", "irova"])

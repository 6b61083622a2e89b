"""report: what is handed to the page's writer, and when."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from mixnmatch.report.data import Diagnosis
from mixnmatch.selection.verdict import Verdict
from tests.cli.conftest import parsed


@pytest.fixture
def written(monkeypatch) -> list[dict]:
    """Calls of the function that writes the page, which is replaced by one that writes a line."""
    calls: list[dict] = []

    def write_report(path, rows, **settings):
        calls.append({"path": path, "rows": rows, **settings})
        Path(path).write_text("<html>")
        diagnosis = Diagnosis("bad", "Not calibrated.", "", "")
        return SimpleNamespace(diagnosis=diagnosis, verdict=Verdict("ts", "it is the simplest"))

    module = ModuleType("mixnmatch.report")
    module.__spec__ = ModuleSpec("mixnmatch.report", None)
    module.write_report = write_report
    monkeypatch.setitem(sys.modules, "mixnmatch.report", module)
    return calls


def test_report(files, run, written):
    result = run("report", "val.npz", "-o", "report.html", "--evaluation", "test.npz", "--methods", "ts,ets")
    assert result.exit_code == 0
    assert result.stdout == "Not calibrated.\nUse ts: it is the simplest.\nWrote report.html.\n"
    (call,) = written
    assert (call["rows"].n_rows, call["rows"].n_classes, call["rows"].form) == (400, 3, "logits")
    assert call["methods"] == ["ts", "ets"]
    assert call["evaluation"].n_rows == 600
    assert call["title"] == "val.npz"
    assert call["command"] == "mixnmatch report val.npz -o report.html --evaluation test.npz --methods ts,ets"


def test_several_methods(files, run, written):
    assert run("report", "val.npz", "-o", "a.html", "-m", "irm", "--method", "ts").exit_code == 0
    assert run("report", "val.npz", "-o", "b.html", "-m", "irm", "-m", "ts", "--methods", "ets,ts").exit_code == 0
    assert run("report", "val.npz", "-o", "c.html").exit_code == 0
    assert [(call["method"], call["methods"]) for call in written] == [
        ("irm", ["irm", "ts"]),
        ("irm", ["ets", "ts", "irm"]),
        (None, None),
    ]
    assert written[0]["command"] == "mixnmatch report val.npz -o a.html -m irm --method ts"


def test_report_does_not_overwrite(files, run, written):
    Path("report.html").write_text("mine")
    result = run("report", "val.npz", "-o", "report.html")
    assert result.exit_code == 1
    assert "exists already" in result.stderr
    assert written == []
    document = parsed(run("report", "val.npz", "-o", "report.html", "--force", "--json"))
    assert document["output"] == "report.html"
    assert document["verdict"]["method"] == "ts"
    assert run("report", "val.npz", "-o", "report.pdf").exit_code == 1


def test_demo_writes_the_page(folder, run, written):
    result = run("demo", "--methods", "identity", "--output", "out")
    assert result.exit_code == 0
    assert "report.html" in result.stdout
    assert written[0]["path"] == Path("out/report.html")
    assert written[0]["rows"].classes[3] == "cat"


@pytest.mark.parametrize("failed", [0, 1])
def test_the_page_can_be_opened(files, run, written, monkeypatch, failed):
    opened = []
    monkeypatch.setattr("click.launch", lambda path: opened.append(path) or failed)
    result = run("report", "val.npz", "-o", "report.html", "--open")
    assert result.exit_code == 0
    assert opened == ["report.html"]
    assert ("open the file by hand" in result.stdout) == bool(failed)

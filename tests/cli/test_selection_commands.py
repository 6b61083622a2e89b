"""compare and recommend: the numbers are the library's, the files are checked here."""

import sys
from pathlib import Path

import numpy as np
import pytest

from mixnmatch import selection
from tests.cli.conftest import arrays, parsed


def test_compare_agrees_with_the_library(files, run):
    archive = arrays("val.npz")
    document = parsed(run("compare", "val.npz", "--methods", "ts,irm", "--json"))
    expected = selection.compare(archive["logits"], archive["labels"], methods=["ts", "irm"], logits=True)
    assert [row["name"] for row in document["results"]] == [row.name for row in expected.results]
    assert document["file"] == "val.npz"
    result = run("compare", "val.npz", "--methods", "ts,irm")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.startswith("val.npz: 400 rows, 3 classes, logits\n\n5-fold")


def test_all_methods_or_the_quick_ones(files, run, monkeypatch):
    asked = []

    def compare(rows, **settings):
        asked.append(settings["methods"])
        return selection.Comparison((), "nothing", 0, 3, 0.95, ("auto",) if settings["methods"] is None else ())

    monkeypatch.setattr(selection, "compare", compare)
    assert "--all compares them too" in run("compare", "val.npz").stdout
    assert "--all" not in run("compare", "val.npz", "--all").stdout
    assert asked == [None, "all"]
    assert run("compare", "val.npz", "--all", "--methods", "ts").exit_code == 2


def test_compare_on_another_file(files, run):
    result = run("compare", "val.npz", "--evaluation", "test.npz", "--methods", "ts")
    assert "fitted on 400 samples, evaluated on 600 others" in result.stdout
    np.savez("probs.npz", probs=np.full((6, 3), 1 / 3), labels=[0, 1, 2, 0, 1, 2])
    result = run("compare", "val.npz", "--evaluation", "probs.npz")
    assert result.stderr == "Error: probs.npz: holds probabilities, but val.npz holds logits\n"
    np.savez("two.npz", logits=np.zeros((6, 2)), labels=[0, 1, 0, 1, 0, 1])
    result = run("compare", "val.npz", "--evaluation", "two.npz")
    assert result.stderr == "Error: two.npz: has 2 classes, but val.npz has 3\n"


def test_columns_of_the_other_file_are_matched_by_name(files, run):
    names = np.array(["a", "b", "c"])
    for source, target, order in (("val", "v", [0, 1, 2]), ("test", "t", [0, 1, 2]), ("test", "u", [2, 0, 1])):
        archive = arrays(f"{source}.npz")
        labels = names[archive["labels"]]
        np.savez(f"{target}.npz", logits=archive["logits"][:, order], labels=labels, classes=names[order])
    first, second = (
        parsed(run("compare", "v.npz", "--evaluation", f"{other}.npz", "--methods", "ts", "--json"))["results"]
        for other in ("t", "u")
    )
    assert [row["nll"]["value"] for row in first] == pytest.approx([row["nll"]["value"] for row in second])


def test_importances(files, run):
    np.savez("w.npz", **arrays("val.npz"), weights=np.linspace(0.1, 0.2, 400))
    result = run("compare", "w.npz", "--methods", "ts", "--importance")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "pass --importance" in run("compare", "w.npz", "--methods", "ts").stderr


def test_learning_curve(files, run):
    document = parsed(run("compare", "val.npz", "--learning-curve", "--methods", "ts", "--json"))
    assert document["file"] == "val.npz"
    assert (
        "Would more calibration data help?" in run("compare", "val.npz", "--learning-curve", "--methods", "ts").stdout
    )


def test_recommend_hands_everything_on(files, run, monkeypatch):
    given = {}

    class Advice:
        def to_dict(self):
            return {"method": "ets"}

        def __str__(self):
            return "Use ets"

    def recommend(rows, **settings):
        given.update(settings, form=rows.form)
        return Advice()

    monkeypatch.setattr(selection, "recommend", recommend, raising=False)
    args = ("recommend", "val.npz", "--preserve-accuracy", "--model-size", "1000")
    assert parsed(run(*args, "--json")) == {"file": "val.npz", "method": "ets"}
    assert run(*args).stdout == "val.npz: 400 rows, 3 classes, logits\n\nUse ets\n"
    assert (given["form"], given["preserve_accuracy"], given["model_size"]) == ("logits", True, 1000)
    assert given["progress"] is None


def test_all_commands_come_to_the_same_verdict(folder, run):
    """The demo, and on its files report, recommend and compare, by the held-out set and by cross-validation."""
    demo = parsed(run("demo", "--output", "out", "--methods", "ts,ets,irm,svs", "--json"))
    rng = np.random.default_rng(0)
    archive = arrays("out/calibration.npz")
    small = rng.permutation(len(archive["labels"]))[:150]
    np.savez("small.npz", logits=archive["logits"][small], labels=archive["labels"][small])
    held_out = ("out/calibration.npz", "--evaluation", "out/evaluation.npz")
    report = parsed(run("report", *held_out, "--methods", "ts,ets,irm,svs", "-o", "report.html", "--json"))
    compared = parsed(run("compare", *held_out, "--methods", "ts,ets,irm,svs", "--json"))
    advice = parsed(run("recommend", *held_out, "--methods", "ts,ets,irm,svs", "--json"))
    verdicts = [document["verdict"]["method"] for document in (demo, report, compared, advice)]
    assert len(set(verdicts)) == 1, verdicts
    page = Path("report.html").read_text()
    assert f"After {demo['verdict']['method']}" in page
    assert demo["verdict"] == compared["verdict"]
    named = {
        "compare": parsed(run("compare", "small.npz", "--json"))["verdict"]["method"],
        "recommend": parsed(run("recommend", "small.npz", "--json"))["method"],
        "report": parsed(run("report", "small.npz", "-o", "small.html", "--json"))["verdict"]["method"],
    }
    assert len(set(named.values())) == 1, named
    assert f"Use {demo['verdict']['method']}: " in run("compare", *held_out, "--methods", "ts,ets,irm,svs").stdout


@pytest.mark.parametrize("command", ["compare", "recommend", "report"])
def test_labels_of_one_class_are_an_error(files, run, command):
    np.savez("one.npz", logits=np.random.default_rng(0).normal(size=(100, 3)), labels=np.ones(100, dtype=int))
    result = run(command, "one.npz", *(["-o", "r.html"] if command == "report" else []))
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: labels: all samples are of class '1'; methods can only be fitted")


@pytest.mark.slow
def test_recommend(files, run):
    document = parsed(run("recommend", "val.npz", "--preserve-accuracy", "--json"))
    assert document["method"]


def test_bars_reach_the_end(monkeypatch, capsys):
    from mixnmatch.cli.display import reporting

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with reporting("Working") as step:
        for done in range(3):
            step(done, 3, "a method")
    assert "Working" in capsys.readouterr().err

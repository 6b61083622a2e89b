"""adapt: what it prints, writes and refuses."""

import json

import numpy as np
import pytest

import mixnmatch as mm
from tests.cli.conftest import arrays, parsed


@pytest.fixture
def fitted(files, run):
    """``cal.json``, fitted to named classes, and ``new.npz``, mostly of the first class."""
    archive, names = arrays("val.npz"), np.array(["ant", "bee", "cat"])
    np.savez("named.npz", logits=archive["logits"], labels=names[archive["labels"]], classes=names)
    assert run("fit", "named.npz", "-m", "bcts", "-o", "cal.json").exit_code == 0
    test = arrays("test.npz")
    kept = (test["labels"] == 0) | (np.arange(600) % 8 == 0)
    np.savez("new.npz", logits=test["logits"][kept], classes=names)
    return files


def test_given_priors(fitted, run):
    result = run("adapt", "cal.json", "--priors", "ant=.9,bee=.05,cat=0.05", "-o", "new.json")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "class  before     now\nant" in result.stdout
    assert "Saved to new.json: cal.json adapted." in result.stdout
    logits = arrays("test.npz")["logits"]
    expected = mm.load("cal.json").adapt(priors=[0.9, 0.05, 0.05]).predict_proba(logits)
    np.testing.assert_array_equal(mm.load("new.json").predict_proba(logits), expected)
    document = parsed(run("adapt", "cal.json", "--priors", "ant=.9", "-o", "new.json", "--force", "--json"))
    assert document["now"][0] == pytest.approx(0.9)
    assert sum(document["now"]) == pytest.approx(1)
    assert document["estimate"] is None


def test_adapted_maps_find_their_columns_and_keep_metadata(fitted, run):
    p = np.random.default_rng(0).dirichlet(np.ones(3), 60)
    names = ["old_ant", "old_bee", "old_cat", "new_ant", "new_bee", "new_cat"]
    lines = [",".join(map(str, row)) for row in np.hstack([p[::-1], p]).tolist()]
    labels = np.array(["ant", "bee", "cat"])[p.argmax(axis=1)]
    lines = [f"{line},{label}" for line, label in zip(lines, labels, strict=True)]
    (fitted / "two.csv").write_text("\n".join([",".join([*names, "label"]), *lines]) + "\n")
    columns = ("--columns", "new_ant,new_bee,new_cat", "--metadata", "model=v3")
    assert run("fit", "two.csv", *columns, "-m", "ts", "-o", "two.json").exit_code == 0
    adapts = {"priors": "ant=.5", "sampling": "bee=0.1", "unlabelled": "new.csv"}
    (fitted / "new.csv").write_text("\n".join(["ant,bee,cat", *(",".join(map(str, row)) for row in p.tolist())]) + "\n")
    for option, value in adapts.items():
        assert run("adapt", "two.json", f"--{option}", value, "-o", "new.json", "--force").exit_code == 0
        assert mm.load("new.json").metadata_ == mm.load("two.json").metadata_
        assert run("apply", "new.json", "two.csv", "-o", "out.csv", "--force").exit_code == 0


def test_sampling_rates(fitted, run):
    document = parsed(run("adapt", "cal.json", "--sampling", "bee=0.1", "-o", "new.json", "--json"))
    np.testing.assert_allclose(document["relative_ratios"], [0.1, 1, 0.1])
    assert document["output"] == "new.json"


def test_numbered_classes_and_maps_that_forgot(files, run):
    run("fit", "val.npz", "-m", "bcts", "-o", "cal.json")
    with open("cal.json", encoding="utf-8") as file:
        document = json.load(file)
    del document["map"]["fitted"]["summary_"], document["sha256"]
    from mixnmatch._documents import checksum

    document["sha256"] = checksum(document)
    with open("old.json", "w", encoding="utf-8") as file:
        json.dump(document, file)
    result = run("adapt", "old.json", "--priors", "2=.9", "-o", "new.json")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "pass --calibration SCORES" in result.stderr
    given = parsed(run("adapt", "old.json", "--priors", "2=.9", "--calibration", "val.npz", "-o", "new.json", "--json"))
    known = parsed(run("adapt", "cal.json", "--priors", "2=.9", "-o", "known.json", "--json"))
    np.testing.assert_allclose(given["relative_ratios"], known["relative_ratios"])
    text = run("adapt", "old.json", "--sampling", "2=.5", "-o", "third.json").stdout
    assert text.startswith("Probabilities are multiplied in these proportions\n")


def test_unlabelled_scores(fitted, run):
    result = run("adapt", "cal.json", "--unlabelled", "new.npz", "-o", "new.json")
    assert result.exit_code == 0, result.stderr
    assert "95% interval" in result.stdout
    assert "test of no shift: p < 0.0001" in result.stdout
    document = parsed(run("adapt", "cal.json", "--unlabelled", "new.npz", "-o", "json.json", "--json"))
    estimate = document["estimate"]
    found = mm.selection.estimate_priors(mm.load("cal.json"), arrays("new.npz")["logits"])
    np.testing.assert_allclose(estimate["priors"], found.priors)
    assert estimate["priors"][0] > 0.6
    logits = arrays("test.npz")["logits"]
    expected = mm.load("cal.json").adapt(unlabelled=arrays("new.npz")["logits"]).predict_proba(logits)
    np.testing.assert_allclose(mm.load("new.json").predict_proba(logits), expected, rtol=1e-12)
    assert run("apply", "new.json", "test.npz", "-o", "out.npz").exit_code == 0


def test_columns_are_matched_by_name(fitted, run):
    archive = arrays("new.npz")
    np.savez("turned.npz", logits=archive["logits"][:, ::-1], classes=archive["classes"][::-1])
    here, there = (
        parsed(run("adapt", "cal.json", "--unlabelled", name, "-o", f"{name}.json", "--json"))
        for name in ("new.npz", "turned.npz")
    )
    np.testing.assert_allclose(here["estimate"]["priors"], there["estimate"]["priors"])


def test_doubts_are_warnings(fitted, run):
    run("fit", "named.npz", "-m", "ts", "-o", "ts.json")
    result = run("adapt", "ts.json", "--unlabelled", "new.npz", "-o", "new.json", "--json")
    assert "Warning: TemperatureScaling has no class biases" in result.stderr
    assert json.loads(result.stdout)["estimate"]["warnings"]


@pytest.mark.parametrize(
    "options, code, message",
    [
        ([], 2, "Pass exactly one of --priors, --sampling and --unlabelled."),
        (["--priors", "ant=.5", "--sampling", "ant=.5"], 2, "Pass exactly one of"),
        (["--priors", "ant"], 2, "'ant' is not of the form CLASS=NUMBER."),
        (["--priors", "ant=x"], 2, "'ant=x' is not of the form CLASS=NUMBER."),
        (["--priors", "ant=.5,ant=.2"], 2, "class 'ant' is there twice."),
        (["--priors", "dog=.5"], 1, "Error: priors: there is no class 'dog'; the classes are 'ant', 'bee', 'cat'\n"),
        (["--sampling", "ant=0"], 1, "Error: sampling: the rate of class 'ant' is 0; rates must be positive\n"),
        (["--unlabelled", "missing.npz"], 1, "missing.npz"),
    ],
)
def test_what_is_wrong_is_said(fitted, run, options, code, message):
    result = run("adapt", "cal.json", *options, "-o", "new.json")
    assert result.exit_code == code
    assert message in result.stderr
    if code == 1:
        assert result.stderr.count("\n") == 1


def test_files_are_not_overwritten(fitted, run):
    result = run("adapt", "cal.json", "--sampling", "ant=.5", "-o", "cal.json")
    assert result.exit_code == 1
    assert "cal.json" in result.stderr


def test_help(run):
    text = run("adapt", "--help").stdout
    assert "mixnmatch adapt cal.json --sampling neg=0.1 -o all.json" in text

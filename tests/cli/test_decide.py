"""``mixnmatch decide``: decisions, their costs, and errors in the cost file."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mixnmatch import load
from mixnmatch.decisions import bayes_decisions, expected_cost, realised_cost
from mixnmatch.io.costs import read_costs

from .conftest import arrays, parsed

COSTS = np.array([[0, 1, 5], [2, 0, 1], [9, 1, 0.0]])


@pytest.fixture
def costs(files):
    Path("costs.csv").write_text("class,a,b,c\n2,9,1,0\n0,0,1,5\n1,2,0,1\n", encoding="utf-8")
    return "costs.csv"


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_decisions_of_a_map(run, costs):
    assert run("fit", "val.npz", "--method", "ts", "-o", "cal.json").exit_code == 0
    result = parsed(run("decide", "test.npz", "--costs", costs, "--map", "cal.json", "-o", "out.csv", "--json"))
    held = arrays("test.npz")
    p = load("cal.json").predict_proba(held["logits"])
    chosen = bayes_decisions(p, COSTS)
    rows = rows_of("out.csv")
    assert [row["decision"] for row in rows] == np.array(["a", "b", "c"])[chosen].tolist()
    assert [int(row["label"]) for row in rows] == held["labels"].tolist()
    np.testing.assert_allclose([float(row["expected_cost"]) for row in rows], (p @ COSTS).min(axis=1), rtol=1e-9)
    assert result["expected_cost"]["value"] == pytest.approx(float(expected_cost(p, COSTS)))
    assert result["realised_cost"]["value"] == pytest.approx(float(realised_cost(chosen, held["labels"], COSTS)))
    assert result["realised_minus_expected"]["value"] == pytest.approx(
        result["realised_cost"]["value"] - result["expected_cost"]["value"]
    )
    single = {name: COSTS[held["labels"], k].mean() for k, name in enumerate("abc")}
    best = min(single, key=single.get)
    assert result["best_single_decision"]["decision"] == best
    assert result["best_single_decision"]["cost"]["value"] == pytest.approx(single[best])
    assert sum(part["rows"] for part in result["decisions"].values()) == 600


def test_uncalibrated_scores_are_noticed(run, costs):
    text = run("decide", "test.npz", "--costs", costs).stdout
    assert "measured on the labels" in text
    assert "calibrate them with --map" in text
    run("fit", "val.npz", "--method", "ts", "-o", "cal.json")
    assert "the probabilities are off" not in run("decide", "test.npz", "--costs", costs, "--map", "cal.json").stdout


def test_without_labels(run, costs):
    held = arrays("test.npz")
    np.savez("new.npz", logits=held["logits"][:10])
    result = parsed(run("decide", "new.npz", "--costs", costs, "--json"))
    assert "realised_cost" not in result
    run("decide", "new.npz", "--costs", costs, "-o", "out.csv")
    assert set(rows_of("out.csv")[0]) == {"decision", "expected_cost"}
    assert "exists already" in run("decide", "new.npz", "--costs", costs, "-o", "out.csv").stderr


def test_abstaining_and_weights(run, costs):
    held = arrays("test.npz")
    w = np.arange(600) % 3
    np.savez("weighted.npz", **held, weights=w)
    result = parsed(run("decide", "weighted.npz", "--costs", costs, "--abstain", "0.3", "--json"))
    e = np.exp(held["logits"] - held["logits"].max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    chosen = bayes_decisions(p, COSTS, abstain=0.3)
    assert result["decisions"]["abstain"]["rows"] == (chosen == -1).sum()
    assert result["decisions"]["abstain"]["share"] == pytest.approx(w[chosen == -1].sum() / w.sum())
    wanted = realised_cost(chosen, held["labels"], COSTS, w, abstain=0.3)
    assert result["realised_cost"]["value"] == pytest.approx(float(wanted))


def test_named_classes_of_a_vector(run, folder):
    rng = np.random.default_rng(0)
    p = rng.random(50)
    y = np.where(rng.random(50) < p, "ill", "well")
    lines = ["ill,label", *(f"{a!r},{b}" for a, b in zip(p.tolist(), y, strict=True))]
    Path("scores.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path("costs.csv").write_text("class,treat,wait\nill,1,20\nwell,2,0\n", encoding="utf-8")
    run("decide", "scores.csv", "--costs", "costs.csv", "-o", "out.csv")
    treated = np.array([row["decision"] for row in rows_of("out.csv")]) == "treat"
    assert (treated == (p >= 2 / 21)).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("class,a,b\n", "needs a header"),
        ("class\n0\n", "needs a header"),
        ("class,a,b\n0,0,1\n1,2,0\n", "has no line for class '2'"),
        ("class,a,b\n0,0,1\n1,2,0\n2,1,1\n3,0,0\n", "has a line for '3'"),
        ("class,a,b\n0,0,1\n0,2,0\n2,1,1\n", "more than one line for class '0'"),
        ("class,a,a\n0,0,1\n1,2,0\n2,1,1\n", "names decision 'a' more than once"),
        ("class,a,\n0,0,1\n1,2,0\n2,1,1\n", "a column without a name"),
        ("class,a,b\n0,0,x\n1,2,0\n2,1,1\n", "line 2, decision 'b': 'x' is not a finite number"),
        ("class,a,b\n0,0,1\n1,,0\n2,1,1\n", "line 3, decision 'a': the cell is empty"),
        ("class,a,b\n0,0,nan\n1,1,0\n2,1,1\n", "'nan' is not a finite number"),
        ("class,a,b\n0,0\n1,1,0\n2,1,1\n", "line 2 has 2 values, the header has 3"),
        ("0,0,0\n1,1,0\n2,1,1\n", "the first line holds numbers"),
        ("class,a,abstain\n0,0,1\n1,1,0\n2,1,1\n", "leave out --abstain"),
        (",class,a,b\n0,0,0,1\n1,1,2,0\n2,2,1,1\n", "'class' like the classes; remove the first one"),
        ("index,label,a\n0,2,0\n1,1,2\n2,0,1\n", "the first column looks like a row number"),
    ],
)
def test_wrong_cost_files(run, files, content, message):
    Path("bad.csv").write_text(content, encoding="utf-8")
    result = run("decide", "test.npz", "--costs", "bad.csv", "--abstain", "1")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: bad.csv: ")
    assert message in result.stderr


@pytest.mark.parametrize("header", [",True,False", "id,true,false", ",label,skip"])
def test_decisions_may_have_any_names(run, files, header):
    Path("odd.csv").write_text(f"{header}\n0,0,5\n1,2,0\n2,7,1\n", encoding="utf-8")
    result = run("decide", "test.npz", "--costs", "odd.csv", "-o", "out.csv")
    assert result.exit_code == 0, result.stderr
    assert {row["decision"] for row in rows_of("out.csv")} == set(header.split(",")[1:])


def test_decisions_of_the_file_can_be_measured_in_python(run, folder):
    rng = np.random.default_rng(0)
    p = rng.random(200)
    y = (rng.random(200) < p).astype(int)
    pd.DataFrame({"0": 1 - p, "1": p, "label": y}).to_csv("scores.csv", index=False)
    for names in ("1,0,2", "True,False,ask"):
        Path("costs.csv").write_text(f"class,{names}\n0,9,0,2\n1,0,9,2\n", encoding="utf-8")
        found = parsed(run("decide", "scores.csv", "--costs", "costs.csv", "-o", "out.csv", "--force", "--json"))
        out = pd.read_csv("out.csv")
        measured = realised_cost(out.decision, out.label, pd.read_csv("costs.csv", index_col=0))
        assert float(measured) == pytest.approx(found["realised_cost"]["value"])
        assert measured.to_dict() == pytest.approx(found["realised_cost"])


def test_classes_are_found_however_they_are_written(run, files):
    decided = []
    whole, floats = ("0", "1", "2"), ("0.0", "1.0", "2.0")
    for name, mark, classes in (("plain.csv", ",", whole), ("floats.csv", ",", floats), ("german.csv", ";", whole)):
        costs = [f"class{mark}a{mark}b", f"{classes[2]}{mark}0{mark}5", f"{classes[0]}{mark}0{mark}1.5"]
        text = "\n".join([*costs, f"{classes[1]}{mark}2{mark}0"]) + "\n"
        Path(name).write_text(text if mark == "," else text.replace(".", ","), encoding="utf-8")
        result = run("decide", "test.npz", "--costs", name, "-o", "out.csv", "--force")
        assert result.exit_code == 0, result.stderr
        decided.append([row["decision"] for row in rows_of("out.csv")])
    assert decided[0] == decided[1] == decided[2]
    assert set(decided[0]) == {"a", "b"}


def test_marks_inside_of_quotes_do_not_separate_columns(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text('"class","wait; call; mail"\n"good",0\n"bad",1\n')
    assert read_costs(path).decisions == ("wait; call; mail",)


def test_other_files(run, files):
    assert "no such file" in run("decide", "test.npz", "--costs", "nowhere.csv").stderr
    assert "must be in a .csv file" in run("decide", "test.npz", "--costs", "val.npz").stderr
    Path("latin.csv").write_bytes("class,a,b\nä,0,1\n".encode("latin-1"))
    assert "UTF-8" in run("decide", "test.npz", "--costs", "latin.csv").stderr


def test_help_has_examples(run):
    text = run("decide", "--help").stdout
    assert "mixnmatch decide new.npz --costs costs.csv --map cal.json -o decisions.csv" in text
    assert "class,approve,review,reject" in text


def test_a_rare_class_that_did_not_occur_is_no_evidence(folder, run):
    """100 samples at 2% positives: that none occurs has a probability of 0.13, however little the decisions cost."""
    p = np.full(100, 0.02)
    lines = [f"{1 - a},{a},fine" for a in p.tolist()]
    (folder / "calm.csv").write_text("\n".join(["fine,fraud,label", *lines]) + "\n")
    (folder / "dear.csv").write_text("class,pay,block\nfine,0,9\nfraud,100,0\n")
    result = run("decide", "calm.csv", "--costs", "dear.csv")
    assert result.exit_code == 0, result.stderr
    assert "beyond chance" not in result.stdout
    found = parsed(run("decide", "calm.csv", "--costs", "dear.csv", "--json"))["realised_minus_expected"]
    # Each payment costs 100 with probability 0.02.
    assert found["value"] == pytest.approx(-2.0)
    assert found["standard_error"] == pytest.approx(100 * np.sqrt(0.02 * 0.98 / 100))
    lines = [f"{1 - a},{a},fine" for a in p.tolist()] * 5
    (folder / "calm.csv").write_text("\n".join(["fine,fraud,label", *lines]) + "\n")
    assert "The decisions cost less than expected, beyond chance" in (
        " ".join(run("decide", "calm.csv", "--costs", "dear.csv").stdout.split())
    )

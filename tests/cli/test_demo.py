"""The demo: works with nothing prepared."""

import pytest

import mixnmatch
from tests.cli.conftest import arrays, parsed


def test_table(folder, run):
    result = run("demo", "--methods", "identity,ts,ets,irova")
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    header = next(line for line in lines if line.startswith("method"))
    rows = [line for line in lines if line.split(" ")[0] in ("identity", "ts", "ets", "irova")]
    assert len(rows) == 4
    assert {len(header), *(len(row) for row in rows)} == {len(header)}
    assert max(map(len, lines)) <= 80
    assert "Use ts: it is the simplest method within one standard error (or 0.1%) of ets" in " ".join(lines)
    assert list(folder.iterdir()) == []


def test_numbers(folder, run):
    document = parsed(run("demo", "--methods", "identity,ets", "--json"))
    ets, none = document["methods"]
    assert (ets["name"], document["verdict"]["method"]) == ("ets", "ets")
    assert none["gain"]["value"] == pytest.approx(0, abs=1e-8)
    assert none["error"]["value"] > 0.05 > ets["error"]["value"]
    assert ets["gain"]["low"] > 0
    assert none["accuracy"] == ets["accuracy"]
    assert document["written"] == []


def test_files_to_go_on_with(folder, run, monkeypatch):
    monkeypatch.setattr("mixnmatch.cli.demo.find_spec", lambda name: None)  # without the report, which takes longer
    args = ("demo", "--methods", "ts", "--output", "out/deep")
    assert run(*args).exit_code == 0
    found = sorted(path.name for path in (folder / "out/deep").iterdir())
    assert found == ["calibration.npz", "evaluation.npz", "map.json"]
    assert mixnmatch.load("out/deep/map.json").classes_[3] == "cat"
    assert arrays("out/deep/evaluation.npz")["logits"].shape == (10000, 10)
    assert run("apply", "out/deep/map.json", "out/deep/evaluation.npz", "-o", "p.npz").exit_code == 0
    result = run(*args)
    assert result.exit_code == 1
    assert "exists already; pass --force" in result.stderr
    assert run(*args, "--force").exit_code == 0


def test_output_that_is_a_file(folder, run):
    (folder / "out").write_text("mine")
    result = run("demo", "--methods", "identity", "--output", "out")
    assert result.exit_code == 1
    assert result.stderr == "Error: out: is a file, not a folder\n"

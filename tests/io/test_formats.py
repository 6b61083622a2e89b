"""A format of another package: one object, and everything reads and writes it."""

import json
import pickle
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import mixnmatch.io.formats as registry
from mixnmatch._engine.errors import PYTHON
from mixnmatch.cli.app import cli
from mixnmatch.cli.command import COMMAND_LINE
from mixnmatch.io import (
    FileError,
    Format,
    Request,
    ScoreTable,
    read_table,
    register_format,
    unregister_format,
    writable_endings,
    write_table,
)


def read_json(path: Path, request: Request) -> ScoreTable:
    content = json.loads(path.read_text())
    if "scores" not in content:
        raise FileError(path, "has no scores; if these are logits, pass {logits}")
    labels = np.array(content["labels"]) if "labels" in content else None
    return ScoreTable(path, np.array(content["scores"]), bool(request.logits), labels=labels)


def write_json(file, arrays, path):
    names = {"probs": "scores", "labels": "labels"}
    file.write(json.dumps({names[k]: v.tolist() for k, v in arrays.items() if k in names}).encode())


TOY = Format(endings=(".toy",), summary="scores and labels as JSON", read=read_json, write=write_json)


@pytest.fixture
def toy():
    register_format(TOY)
    yield
    unregister_format(TOY)


@pytest.fixture
def installed(monkeypatch):
    entry = EntryPoint("toy", "tests.io.test_formats:TOY", "mixnmatch.formats")
    monkeypatch.setattr(EntryPoint, "load", lambda self: TOY)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group == "mixnmatch.formats" else [])


@pytest.mark.parametrize("how", ["toy", "installed"])
def test_a_format_from_outside_is_read_and_written_by_all(folder, request, how):
    request.getfixturevalue(how)
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 100)
    write_table("a.toy", p, labels=rng.integers(0, 3, 100))
    assert ".toy" in writable_endings()
    np.testing.assert_array_equal(read_table("a.toy").scores, p)
    for command in (
        ["fit", "a.toy", "-m", "ts", "-o", "cal.json"],
        ["apply", "cal.json", "a.toy", "-o", "b.toy"],
        ["apply", "cal.json", "a.toy", "-o", "b.csv"],
        ["evaluate", "b.toy", "--no-interval"],
    ):
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, done.output
    np.testing.assert_array_equal(read_table("b.toy").scores, read_table("b.csv").scores)
    Path("bad.toy").write_text("{}")
    done = CliRunner().invoke(cli, ["evaluate", "bad.toy"])
    assert done.stderr == "Error: bad.toy: has no scores; if these are logits, pass --logits\n"
    with pytest.raises(FileError, match="pass logits=True"):
        read_table("bad.toy")


def test_without_it_the_ending_is_unknown(folder):
    Path("a.toy").write_text("{}")
    with pytest.raises(FileError, match=r"cannot read '.toy' files"):
        read_table("a.toy")
    with pytest.raises(FileError, match=r"cannot write '.toy' files"):
        write_table("a.toy", np.full((2, 2), 0.5))


@pytest.mark.parametrize("ending", [".csv", "toy", ".Toy"])
def test_endings_that_cannot_be_registered(ending):
    with pytest.raises(ValueError, match=r"are read by this package|start with a dot"):
        register_format(Format(endings=(ending,), summary="", read=read_json))


def test_both_surfaces_name_the_same_options():
    assert PYTHON.keys() == COMMAND_LINE.keys()


def test_errors_keep_their_parts_when_they_are_sent():
    error = FileError(Path("a.csv"), "row {row}: {why}; pass {logits}", row=3, why="a {brace}")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "a.csv: row 3: a {brace}; pass logits=True"
    assert again.text(COMMAND_LINE) == "a.csv: row 3: a {brace}; pass --logits"
    assert str(again.of("standard input")).startswith("standard input: row 3")

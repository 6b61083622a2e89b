"""Every command with every kind of wrong file: one line on stderr, exit code 1, nothing written."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

COMMANDS = {
    "fit": ("fit", "FILE", "--method", "ts", "-o", "out.json"),
    "apply": ("apply", "cal.json", "FILE", "-o", "out.npz"),
    "evaluate": ("evaluate", "FILE"),
    "decide": ("decide", "FILE", "--costs", "costs.csv"),
    "compare": ("compare", "FILE", "--methods", "ts"),
    "judge": ("compare", "val.npz", "--methods", "ts", "--evaluation", "FILE"),
    "monitor": ("monitor", "cal.json", "FILE", "--state", "out.json"),
    "recommend": ("recommend", "FILE"),
    "report": ("report", "FILE", "-o", "out.html"),
    "report on": ("report", "val.npz", "--evaluation", "FILE", "-o", "out.html"),
}
MAP_COMMANDS = {
    "apply": ("apply", "FILE", "val.npz", "-o", "out.npz"),
    "evaluate": ("evaluate", "val.npz", "--map", "FILE"),
    "decide": ("decide", "val.npz", "--costs", "costs.csv", "--map", "FILE"),
    "export": ("export", "FILE", "-o", "out.onnx"),
    "monitor": ("monitor", "FILE", "val.npz", "--state", "out.json"),
}
TABLES = {
    "missing.npz": "no such file",
    "empty.npz": "the file is empty",
    "folder.npz": "is a folder, not a file",
    "cut.npz": "is corrupted or was cut short",
    "code.npz": "holds Python objects",
    "code.pkl": "pickles can run code",
    "text.csv": "'x' is not a number",
    "nan.npz": "row 7 of the scores holds NaN",
    "beyond.npz": "is not a column of the scores",
    "short.npz": "labels for 60 rows",
}
MAPS = {
    "missing.json": "no such file",
    "empty.json": "the file is empty",
    "folder.json": "is a folder, not a file",
    "future.json": "has format version 99",
    "edited.json": "its checksum does not match",
    "cut.json": "is not a map file",
    "val.npz": "is not a map file",
}


class Code:
    """What a pickle would run."""

    def __reduce__(self):
        return os.mkdir, ("the code was run",)


@pytest.fixture
def wrong(folder, run):
    """A good file of each kind, and one for each thing that can be wrong."""
    rng = np.random.default_rng(0)
    logits, y = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    np.savez("val.npz", logits=logits, labels=y)
    assert run("fit", "val.npz", "--method", "ts", "-o", "cal.json").exit_code == 0
    Path("costs.csv").write_text("class,a,b\n0,0,1\n1,1,0\n2,2,0\n")
    for name in ("empty.npz", "empty.json"):
        Path(name).touch()
    for name in ("folder.npz", "folder.json"):
        Path(name).mkdir()
    Path("cut.npz").write_bytes(Path("val.npz").read_bytes()[:700])
    np.savez("code.npz", logits=np.array([Code()], dtype=object), labels=y)
    Path("code.pkl").write_bytes(pickle.dumps(Code()))
    Path("text.csv").write_text("a,b,c,label\n" + "x,1,2,0\n" * 5)
    np.savez("nan.npz", logits=np.where(np.arange(180).reshape(60, 3) == 22, np.nan, logits), labels=y)
    np.savez("beyond.npz", logits=logits, labels=y + 5)
    np.savez("short.npz", logits=logits, labels=y[:-1])
    np.savez("four.npz", logits=rng.normal(size=(60, 4)), labels=y)
    document = json.loads(Path("cal.json").read_text())
    Path("cut.json").write_text(json.dumps(document)[:100])
    Path("future.json").write_text(json.dumps(document | {"version": 99}))
    document["map"]["fitted"]["beta_"] = 9.0
    Path("edited.json").write_text(json.dumps(document))
    return sorted(os.listdir())


def refused(result, before, message):
    assert result.exit_code == 1
    line, rest = result.stderr.split("\n", maxsplit=1)
    assert rest == ""
    assert line.startswith("Error: ")
    assert message in line
    assert "unexpected" not in line
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_tables(wrong, run, command):
    for name, message in TABLES.items():
        refused(run(*(name if part == "FILE" else part for part in COMMANDS[command])), wrong, message)
    if command in ("apply", "judge", "report on"):
        refused(run(*("four.npz" if part == "FILE" else part for part in COMMANDS[command])), wrong, "4 classes")


@pytest.mark.parametrize("command", MAP_COMMANDS)
def test_wrong_maps(wrong, run, command):
    for name, message in MAPS.items():
        refused(run(*(name if part == "FILE" else part for part in MAP_COMMANDS[command])), wrong, message)


def test_wrong_classifiers(wrong, run):
    pytest.importorskip("onnx")
    for name, message in {"missing.onnx": "no such file", "empty.npz": "is empty", "val.npz": "not an ONNX"}.items():
        refused(run("export", "cal.json", "--classifier", name, "-o", "out.onnx"), wrong, message)


@pytest.mark.parametrize("where", ["none/out", "folder.json/../none/out", "folder"])
def test_outputs_that_cannot_be(wrong, run, where):
    given = {
        ".json": ("fit", "val.npz", "--method", "ts"),
        ".npz": ("apply", "cal.json", "val.npz"),
        ".html": ("report", "val.npz"),
        ".onnx": ("export", "cal.json"),
    }
    for ending in (".onnx", ".html"):
        if where == "folder":
            Path(where + ending).mkdir()
    before = sorted(os.listdir())
    for ending, command in given.items():
        message = "is a folder" if where == "folder" else "does not exist"
        refused(run(*command, "-o", where + ending), before, message)


def test_an_output_that_the_system_refuses_is_named_as_it_was_typed(wrong, run, monkeypatch):
    real = os.open

    def refuse(path, *args, **settings):
        if str(path).endswith(".part"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **settings)

    monkeypatch.setattr("os.open", refuse)
    result = run("fit", "val.npz", "--method", "ts", "-o", "out.json")
    refused(result, wrong, "Error: out.json: permission denied")


@pytest.mark.parametrize(
    "content, message",
    [
        ("not = = toml", "is not TOML"),
        ('[[row]]\nnothing = "x"\n', "unknown key"),
        *[
            (f'[[row]]\ndataset = "a"\nmodel = "b"\nfiles = ["{name}"]\nclasses = 3\nlogits = true\n', message)
            for name, message in TABLES.items()
            if name.endswith(".npz")
        ],
    ],
)
def test_wrong_manifests(wrong, run, content, message):
    Path("rows.toml").write_text(content)
    Path("rows").mkdir()
    Path("rows/cut.npz").write_bytes(Path("cut.npz").read_bytes())
    before = sorted(os.listdir())
    result = run("reproduce", "rows.toml", "-o", "out", "--only", "table1", "--methods", "ts", "--splits", "1")
    refused(result, before, message)
    refused(run("reproduce", "rows", "-o", "out", "--only", "table1"), before, "cut.npz: is corrupted or was cut short")

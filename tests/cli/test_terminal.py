"""Names of files and classes cannot steer the terminal; two runs cannot both write a file; links are followed."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mixnmatch import _files, cli
from mixnmatch.cli.terminal import visible

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\x7f"
NOT_ON_A_TERMINAL = set("\x1b\x07\x9b\u202e\x7f\r")


def test_visible():
    assert visible("plain é 漢\nnext") == "plain é 漢\nnext"
    assert visible(HOSTILE) == "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\u202eevil\\x7f"
    assert visible("a\tb\rc") == "a\\tb\\rc"
    assert visible("bad\udcff") == "bad\\udcff"


@pytest.mark.skipif(sys.platform == "win32", reason="names of files")
def test_no_command_prints_control_characters(folder, run):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(2), 200)
    classes = np.array([f"a{HOSTILE}", f"b{HOSTILE}"])
    name = f"t{HOSTILE}.npz"
    np.savez(name, probs=p, labels=classes[(p[:, 1] > rng.random(200)).astype(int)], classes=classes)
    Path(f"x{HOSTILE}.csv").write_text(f"a,b{HOSTILE},label\n.1,x,a\n")
    costs = f"class,act{HOSTILE},wait\na{HOSTILE},0,1\nb{HOSTILE},2,0\n"
    Path("costs.csv").write_text(costs.replace("\r", ""))
    other = ",".join(f"{name}={share}" for name, share in zip(classes, (0.3, 0.7), strict=True))
    for command in (
        ("fit", name, "-m", "ts", "-o", f"cal{HOSTILE}.json"),
        ("fit", name, "-m", "ts", "-o", "cal.json", "--json"),
        ("evaluate", name, "--map", "cal.json", "--no-interval"),
        ("evaluate", name, "--json", "--no-interval"),
        ("apply", "cal.json", name, "-o", f"out{HOSTILE}.npz"),
        ("compare", name, "--methods", "ts,platt", "--cv", "2"),
        ("evaluate", f"none{HOSTILE}.npz"),
        ("evaluate", f"x{HOSTILE}.csv"),
        ("fit", name, "-m", "ts", "-o", f"cal{HOSTILE}.json"),
        ("evaluate", name, "--weights", HOSTILE),
        ("decide", name, "--costs", "costs.csv", "--map", "cal.json", "-o", f"d{HOSTILE}.csv"),
        ("decide", name, "--costs", "costs.csv", "--json"),
        ("adapt", "cal.json", "--priors", other, "-o", f"adapted{HOSTILE}.json"),
        ("adapt", "cal.json", "--priors", f"z{HOSTILE}=1", "-o", "other.json"),
        ("monitor", "cal.json", name, "--state", f"state{HOSTILE}.json", "--html", f"m{HOSTILE}.html"),
        ("recommend", name, "--methods", "ts,platt"),
        ("report", name, "--methods", "ts,platt", "-o", f"r{HOSTILE}.html", "--title", HOSTILE),
        ("playground", "-o", f"p{HOSTILE}.html"),
        ("reproduce", name, "-o", f"made{HOSTILE}"),
        (f"no{HOSTILE}",),
    ):
        done = run(*command)
        assert not NOT_ON_A_TERMINAL & set(done.stdout + done.stderr), command
        if "--json" in command:
            json.loads(done.stdout)


def test_all_output_goes_through_one_place():
    """Text that a command prints by other means could steer the terminal."""
    for module in Path(cli.__file__).parent.glob("*.py"):
        if module.name not in ("terminal.py", "command.py", "app.py", "display.py"):  # the last two print constants
            calls = [
                node.func
                for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
                if isinstance(node, ast.Call)
            ]
            names = {call.id if isinstance(call, ast.Name) else ast.unparse(call) for call in calls}
            assert not names & {"print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write"}, module


WRITING = {
    "new.json": ("fit", "val.npz", "-m", "ts", "-o", "new.json"),
    "out.npz": ("apply", "cal.json", "val.npz", "-o", "out.npz"),
    "out.csv": ("apply", "cal.json", "val.npz", "-o", "out.csv"),
    "decisions.csv": ("decide", "val.npz", "--costs", "costs.csv", "-o", "decisions.csv"),
    "adapted.json": ("adapt", "cal.json", "--priors", "0=0.2,1=0.3,2=0.5", "-o", "adapted.json"),
    "page.html": ("monitor", "cal.json", "val.npz", "--state", "state.json", "--html", "page.html"),
    "report.html": ("report", "val.npz", "--methods", "ts", "-o", "report.html"),
    "playground.html": ("playground", "-o", "playground.html"),
    "rows.toml": ("reproduce", "many", "--write-manifest", "rows.toml", "-o", "made"),
    "map.json": ("demo", "--methods", "ts", "-o", "."),
}


@pytest.mark.parametrize("name", WRITING)
def test_a_file_that_comes_up_meanwhile_is_kept(files, run, monkeypatch, name):
    """The same moment for every command: the name was free when it was checked, and is taken when it is written."""
    assert run("fit", "val.npz", "-m", "ts", "-o", "cal.json").exit_code == 0
    Path("costs.csv").write_text("class,act,wait\n0,0,1\n1,1,0\n2,2,0\n")
    Path("many").mkdir()
    shutil.copy("val.npz", "many/lenet_cifar10.npz")
    real = _files._beside

    def beside(target):
        if target.name == name:
            target.write_text("another's")
        return real(target)

    monkeypatch.setattr(_files, "_beside", beside)
    done = run(*WRITING[name])
    assert done.exit_code == 1, done.output
    assert done.stderr.splitlines()[-1] == f"Error: {name}: exists already; pass --force to overwrite it"
    assert Path(name).read_text() == "another's"
    assert not list(Path().glob(".*.part"))
    assert run(*WRITING[name], "--force").exit_code == 0
    assert Path(name).read_bytes() != b"another's"


def test_two_runs_at_once_do_not_both_succeed(files):
    command = [sys.executable, "-m", "mixnmatch.cli", "fit", "val.npz", "-m", "ts", "-o", "cal.json"]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    outcomes = [(*run.communicate(), run.returncode) for run in runs]
    assert sorted(code for *_, code in outcomes) == [0, 1, 1]
    for _, error, code in outcomes:
        assert code == 0 or error == "Error: cal.json: exists already; pass --force to overwrite it\n"
    assert not list(Path().glob(".*.part"))


@pytest.mark.skipif(sys.platform == "win32", reason="links")
def test_a_link_is_written_through(files, run):
    Path("store").mkdir()
    Path("store/real.json").write_text("old")
    Path("cal.json").symlink_to("store/real.json")
    assert "exists already" in run("fit", "val.npz", "-m", "ts", "-o", "cal.json").stderr
    assert run("fit", "val.npz", "-m", "ts", "-o", "cal.json", "--force").exit_code == 0
    assert Path("cal.json").is_symlink()
    assert json.loads(Path("store/real.json").read_text())["format"] == "mixnmatch-map"

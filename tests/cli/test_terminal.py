"""Names of files and classes cannot steer the terminal; two runs cannot both write a file; links are followed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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
    ):
        done = run(*command)
        assert not NOT_ON_A_TERMINAL & set(done.stdout + done.stderr), command
        if "--json" in command:
            json.loads(done.stdout)


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

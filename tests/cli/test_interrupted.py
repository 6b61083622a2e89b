"""Ctrl-C, kill, kill -9 and a full disk, at every step of writing: the old file is whole, or the new one is."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mixnmatch import load
from mixnmatch.io import read_table

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
# Runs one command in a fork for every step at which it can be struck; imports are paid for once.
STRIKES = """
import os, signal, sys, resource
import mixnmatch, mixnmatch._files, mixnmatch.maps, mixnmatch.io.write, scipy.optimize, numpy
from mixnmatch.cli import apply, evaluate, fit, inputs
from mixnmatch.cli.app import cli

def strike(owner, name, how, call=1):
    real, calls = getattr(owner, name), [0]
    def struck(*args, **settings):
        calls[0] += 1
        if calls[0] == call:
            os.kill(os.getpid(), how)
        return real(*args, **settings)
    setattr(owner, name, struck)

POINTS = [(mixnmatch._files, "_beside", 1), (os, "fdopen", 1), (os, "fsync", 1), (os, "chmod", 1), (os, "replace", 1)]
for how in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, None):
    for owner, name, call in POINTS if how else [(None, "full", 0)]:
        pid = os.fork()
        if pid == 0:
            signal.alarm(100)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs the tests may have switched it off
            error = os.open(f"{name}-{how}.err", os.O_CREAT | os.O_WRONLY)
            os.dup2(error, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if how is None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
            else:
                strike(owner, name, how, call)
            code = 0
            try:
                cli(sys.argv[1:], prog_name="mixnmatch")
            except SystemExit as stop:
                code = stop.code or 0
            os._exit(code)
        status = os.waitpid(pid, 0)[1]
        code = os.waitstatus_to_exitcode(status)
        left = ",".join(sorted(n for n in os.listdir() if n.endswith(".part")))
        text = open(f"{name}-{how}.err").read().replace(chr(10), "|")
        print(name, "full" if how is None else how.name, code, left or "-", text, sep=chr(9))
        os.rename(sys.argv[sys.argv.index("-o") + 1], f"found-{name}-{how}")
        os.link("old", sys.argv[sys.argv.index("-o") + 1])
        for part in left.split(","):
            part and os.remove(part)
"""


def struck(*command: str) -> list[list[str]]:
    done = subprocess.run([sys.executable, "-c", STRIKES, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def check(lines: list[list[str]]) -> None:
    assert len(lines) == 16
    for name, how, code, left, text in lines:
        where = f"{how} at {name}"
        if how == "SIGKILL":
            assert code == "-9", where
            assert all(part.startswith(".") for part in left.split(",") if part != "-"), where
        else:
            assert code == {"SIGINT": "130", "SIGTERM": "143", "full": "1"}[how], f"{where}: {text}"
            assert left == "-", where
            assert text.count("|") == 1, f"{where}: {text}"
            said = {"SIGINT": "interrupted", "SIGTERM": "terminated", "full": "Error: "}[how]
            assert text.startswith(said), f"{where}: {text}"
            assert how != "full" or "too large" in text, text
            assert how != "full" or text.startswith(("Error: cal.json: ", "Error: out")), text


def test_fit(files):
    command = ("fit", "val.npz", "--method", "matrix", "-o", "cal.json", "--force")
    first = [sys.executable, "-m", "mixnmatch.cli", "fit", "val.npz", "-m", "ts", "-o", "first.json"]
    subprocess.run(first, check=True, capture_output=True)
    Path("first.json").rename("old")
    os.link("old", "cal.json")
    check(struck(*command))
    old = Path("old").read_bytes()
    found = [path.read_bytes() for path in Path().glob("found-*")]
    assert len(found) == 16
    for raw in found:
        if raw != old:  # struck after the new file took the place of the old one
            Path("new.json").write_bytes(raw)
            assert type(load("new.json")).__name__ == "MatrixScaling"
    assert found.count(old) >= 14


@pytest.mark.parametrize("ending", [".npz", ".csv", ".parquet"])
def test_apply(files, ending):
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    script = [sys.executable, "-m", "mixnmatch.cli"]
    subprocess.run([*script, "fit", "val.npz", "-m", "ts", "-o", "cal.json"], check=True, capture_output=True)
    name = f"out{ending}"
    subprocess.run([*script, "apply", "cal.json", "val.npz", "-o", name], check=True, capture_output=True)
    Path(name).rename("old")
    os.link("old", name)
    check(struck("apply", "cal.json", "test.npz", "-o", name, "--force"))
    rows = []
    for path in Path().glob("found-*"):
        path.rename(f"read{ending}")
        rows.append(read_table(f"read{ending}", need_labels=False).n_rows)
    assert set(rows) <= {400, 600}
    assert np.count_nonzero(np.array(rows) == 400) >= 14

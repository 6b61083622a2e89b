"""Real processes, in an empty folder, as a new user would run them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

SCRIPT = [sys.executable, "-m", "mixnmatch.cli"]


def run(*args: str, **settings) -> subprocess.CompletedProcess:
    return subprocess.run([*SCRIPT, *args], capture_output=True, text=True, check=False, **settings)


def test_from_scores_to_calibrated_probabilities(files):
    assert run("fit", "val.npz", "--method", "ets", "-o", "cal.json").returncode == 0
    assert run("apply", "cal.json", "test.npz", "-o", "out.npz").returncode == 0
    done = run("evaluate", "out.npz", "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    assert json.loads(done.stdout)["rows"] == 600
    assert sorted(os.listdir()) == ["cal.json", "out.npz", "test.npz", "val.npz"]


def test_errors_are_one_line_and_exit_codes_tell_them_apart(folder):
    done = run("fit", "missing.npz", "-o", "cal.json")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "error: missing.npz: no such file\n")
    assert run("fit", "missing.npz").returncode == 2
    done = run("evaluate", "missing.npz", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert os.listdir() == []


def test_folder_that_cannot_be_written(files):
    locked = Path("locked")
    locked.mkdir(mode=0o500)
    if os.access(locked, os.W_OK):  # the administrator may write anywhere
        return
    done = run("fit", "val.npz", "-o", "locked/cal.json")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "permission denied" in done.stderr
    assert done.stderr.count("\n") == 1


def test_closed_pipe_is_no_traceback(files):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*SCRIPT, "evaluate", "test.npz", "--no-interval"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert "Traceback" not in done.stderr


def test_progress_only_on_a_terminal(files):
    import pty

    for attached in (True, False):
        master, slave = pty.openpty()
        done = subprocess.Popen(
            [*SCRIPT, "demo", "--methods", "identity,ts,ets"],
            stdout=subprocess.DEVNULL,
            stderr=slave if attached else subprocess.PIPE,
        )
        _, errors = done.communicate(timeout=60)
        os.close(slave)
        if attached:
            assert b"Calibrating" in os.read(master, 4096)
        else:
            assert errors == b""
        os.close(master)


def test_float32_logits_as_big_as_a_small_imagenet_batch(folder):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(500, 1000)).astype(np.float32)
    np.savez("wide.npz", logits=logits, labels=logits.argmax(axis=1))
    assert run("fit", "wide.npz", "-m", "ts", "-o", "cal.json").returncode == 0

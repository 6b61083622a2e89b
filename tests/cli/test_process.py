"""Real processes, in an empty folder, as a new user would run them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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
    done = run("evaluate", "missing.npz")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Error: missing.npz: no such file\n")
    assert run("fit", "missing.npz").returncode == 2  # no output was named
    done = run("evaluate", "missing.npz", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert os.listdir() == []


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


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory")
@pytest.mark.parametrize("command", [("fit", "-m", "irova", "-o", "cal.json"), ("report", "-o", "page.html")])
def test_little_memory_is_one_line(folder, command):
    """A table of 64 MB in a process that may have 40 MB more than it has after its imports."""
    np.savez("big.npz", logits=np.zeros((400_000, 20)), labels=np.arange(400_000) % 20)
    limited = """
import resource, sys
import mixnmatch.maps, mixnmatch.report, scipy.optimize, scipy.special, mixnmatch.cli.fit, mixnmatch.cli.report
from mixnmatch.cli.app import cli
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20), used + (40 << 20)))
cli(sys.argv[1:], prog_name="mixnmatch")
"""
    script = [sys.executable, "-c", limited, command[0], "big.npz", *command[1:]]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "Error: there is not enough memory for this file\n")
    assert os.listdir() == ["big.npz"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_standard_output_on_a_full_disk_is_named(files):
    subprocess.run([*SCRIPT, "fit", "val.npz", "-m", "ts", "-o", "cal.json"], check=True, capture_output=True)
    for command in (
        ("evaluate", "val.npz", "--no-interval"),
        ("evaluate", "val.npz", "--no-interval", "--json"),
        ("apply", "cal.json", "val.npz", "-o", "-"),
        ("fit", "val.npz", "-m", "ts", "-o", "-"),
        ("--help",),
        ("fit", "--help"),
    ):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([*SCRIPT, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr == "Error: standard output: no space left on device\n", command


def test_progress_on_a_terminal(folder):
    import pty

    master, slave = pty.openpty()
    done = subprocess.Popen([*SCRIPT, "demo", "--methods", "identity,ts,ets"], stdout=subprocess.DEVNULL, stderr=slave)
    assert done.wait(timeout=120) == 0
    os.close(slave)
    assert b"Comparing" in os.read(master, 4096)
    os.close(master)

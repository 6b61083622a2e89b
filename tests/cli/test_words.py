"""What people see: lines that fit a terminal, colours where they are wanted, and questions for misspelt names."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mixnmatch.cli.app import COMMANDS
from mixnmatch.cli.terminal import painted

WIDTH = 80


def too_wide(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > WIDTH]


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_fits(run, command):
    assert too_wide(run(*command, "--help").stdout) == []


def test_lists_fit(run):
    text = run("fit", "--list-methods").stdout
    assert too_wide(text) == []
    assert re.search(r"^ets +\* ensemble temperature scaling", text, re.MULTILINE)


@pytest.fixture
def named(folder: Path) -> Path:
    """Files of ten classes with names."""
    rng = np.random.default_rng(0)
    names = np.array([f"a class called {k}" for k in range(10)])
    for name in ("validation", "evaluation"):
        logits = rng.normal(size=(400, 10))
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        labels = (p.cumsum(axis=1) < rng.random((400, 1))).sum(axis=1)
        np.savez(f"{name}.npz", logits=3 * logits, labels=labels, classes=names)
    rows = "".join(f"{name},0,1000000\n" for name in names)
    Path("costs.csv").write_text(f"class,keep,check\n{rows}")
    return folder


def test_results_fit(named, run):
    for command in (
        "fit validation.npz -m bcts -o cal.json",
        "fit validation.npz -m irm --preserve-accuracy -o irm.json",
        "evaluate evaluation.npz --map cal.json",
        "evaluate evaluation.npz --notion class-wise --no-interval",
        "compare validation.npz --methods ts,bcts --cv 2",
        "compare validation.npz --methods ts --learning-curve",
        "report validation.npz --methods ts --evaluation evaluation.npz -o report.html",
        "adapt cal.json --unlabelled evaluation.npz -o adapted.json",
        "decide evaluation.npz --costs costs.csv --map cal.json",
        "monitor cal.json evaluation.npz --state state.json",
    ):
        done = run(*command.split())
        assert done.exit_code in (0, 3), done.stderr
        assert too_wide(done.stdout) == [], command
        assert "e+0" not in done.stdout, command


def test_costs_are_numbers_without_exponents(named, run):
    run("fit", "validation.npz", "-m", "ts", "-o", "cal.json")
    Path("costs.csv").write_text(Path("costs.csv").read_text().replace(",0,", ",2000000,"))
    text = run("decide", "evaluation.npz", "--costs", "costs.csv", "--map", "cal.json").stdout
    assert re.search(r"expected +1000000 ", text)
    assert "beyond chance" not in text  # always the same cost, up to rounding


@pytest.mark.parametrize(
    "command, question",
    [
        ("fit x.npz -m etz -o c.json", "Did you mean 'ets'?"),
        ("fit x.npz -m temperature -o c.json", "Did you mean 'ts'?"),
        ("compare x.npz --methods ts,platt-scaling", "Did you mean 'platt'?"),
        ("evaluate x.npz --estimator ece", "Did you mean 'histogram'?"),
        ("evaluate x.npz --notion toplabel", "Did you mean 'top-label'?"),
        ("evaluate x.npz --estimater kde", "Did you mean '--estimator'?"),
        ("fit x.npz --loss log-loss -o c.json", "Did you mean 'nll'?"),
        ("fit val.npz -m ts --option los=nll -o c.json", "Did you mean 'loss'?"),
        ("evalate x.npz", "Did you mean 'evaluate'?"),
        ("--versoin", "Did you mean '--version'?"),
        ("reproduce . -o out --only learning-curve", "Did you mean 'learning-curves'?"),
    ],
)
def test_misspelt_names_get_a_question(files, run, command, question):
    done = run(*command.split())
    assert done.exit_code == 2
    assert done.stderr.count(question) == 1
    assert done.stderr.count("Error: ") == 1


def test_an_unknown_method_says_where_they_are_listed(run):
    text = run("fit", "x.npz", "-m", "elephant", "-o", "c.json").stderr
    assert "there is no method called 'elephant'; mixnmatch fit --list-methods lists them\n" in text


def test_colours():
    text = painted("Error: it is off. Did you mean 'ets'?\nUse ts: why not.\n  not calibrated\nWarning: few")
    assert re.sub("\x1b\\[[0-9;]*m", "", text) == (
        "Error: it is off. Did you mean 'ets'?\nUse ts: why not.\n  not calibrated\nWarning: few"
    )
    assert text.startswith("\x1b[31m\x1b[1mError:\x1b[0m it is off.")
    assert "\x1b[1mUse ts\x1b[0m: why" in text
    assert painted("the Error: inside") == "the Error: inside"


def on_a_terminal(*command: str, **environment: str) -> str:
    """What a command prints on a terminal, both streams."""
    import pty

    master, slave = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")} | environment
    arguments = [sys.executable, "-m", "mixnmatch.cli", *command]
    running = subprocess.Popen(arguments, stdout=slave, stderr=slave, stdin=slave, env=env)
    os.close(slave)
    parts = []
    while True:
        try:
            part = os.read(master, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    running.wait(timeout=60)
    os.close(master)
    return b"".join(parts).decode()


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_colours_on_terminals_that_want_them(files):
    command = ("evaluate", "val.npz", "--no-interval", "--estimator", "ece")
    assert "\x1b[31m\x1b[1mError:\x1b[0m" in on_a_terminal(*command, TERM="xterm")
    assert "\x1b" not in on_a_terminal(*command, TERM="xterm", NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(*command, TERM="dumb")
    assert "\x1b[1mOptions\x1b[0m:" in on_a_terminal("fit", "--help", TERM="xterm")
    assert "\x1b" not in on_a_terminal("fit", "--help", TERM="xterm", NO_COLOR="1")


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_errors_are_wrapped_on_a_terminal_and_in_one_line_elsewhere(files, run):
    command = ("evaluate", "val.npz", "--estimator", "ece")
    assert len(too_wide(run(*command).stderr)) == 1
    assert too_wide(on_a_terminal(*command, TERM="dumb")) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_loops_show_the_remaining_time(folder):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 3000)
    np.savez("p.npz", probs=p, labels=(p.cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1))
    text = on_a_terminal("evaluate", "p.npz", "--notion", "canonical", "--estimator", "dirichlet", TERM="xterm")
    drawn = [line for line in text.replace("\r", "\n").splitlines() if "Evaluating  [" in line]
    assert any(re.search(r"\] +\d+%  00:00:\d\d", line) for line in drawn)
    assert any("100%" in line for line in drawn)
    assert any(line.startswith("calibration error ") for line in text.splitlines())


def test_work_of_unknown_length_shows_seconds(monkeypatch, capsys):
    import time

    from mixnmatch.cli import display
    from mixnmatch.cli.terminal import echo

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(display, "LONG", 0.5)
    monkeypatch.setenv("NO_COLOR", "1")
    with display.reporting("Fitting"):
        with display.reporting("Reading") as inner:
            assert inner is None  # one line, one bar
        time.sleep(1.2)
        echo("Warning: few samples", err=True)
    shown = capsys.readouterr().err
    assert "\rFitting: 1 s" in shown
    assert re.search(r"\r +\rWarning: few samples\n", shown)
    assert shown.endswith("\r")
    with display.reporting("Fitting") as step:
        step(1, 2, "one")
        step(0, 3, "another stage")
    assert capsys.readouterr().err.count("100%") == 2

    def interrupted():
        with display.reporting("Fitting") as step:
            step(1, 2, "one")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "100%" not in capsys.readouterr().err


def test_progress_is_for_terminals(capsys):
    from mixnmatch.cli import display

    with display.reporting("Fitting") as step:
        assert step is None
    assert capsys.readouterr().err == ""


def test_monitor_counts_files(files, run, monkeypatch):
    from contextlib import contextmanager

    from mixnmatch.cli import display

    told = []

    @contextmanager
    def recording(label):
        yield lambda *step: told.append((label, *step))

    run("fit", "val.npz", "-m", "ts", "-o", "cal.json")
    monkeypatch.setattr(display, "reporting", recording)
    run("monitor", "cal.json", "val.npz", "test.npz", "--state", "state.json")
    assert [step for step in told if step[0] == "Counting"] == [("Counting", k, 2, "files") for k in range(3)]

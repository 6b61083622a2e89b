"""What the tests of the command line share: an empty folder, small files in it, and a way to run commands."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from mixnmatch.cli.app import cli

Run = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files(folder: Path) -> Path:
    """``val.npz`` and ``test.npz``: over-confident logits of three classes."""
    rng = np.random.default_rng(0)
    for name, n in (("val", 400), ("test", 600)):
        logits = rng.normal(size=(n, 3))
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
        np.savez(f"{name}.npz", logits=3 * logits, labels=labels)
    return folder


@pytest.fixture
def run() -> Run:
    """Run a command; errors of the program itself are raised, not swallowed."""

    def call(*args: str) -> Result:
        result = CliRunner().invoke(cli, list(args), prog_name="mixnmatch")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


def parsed(result: Result) -> dict:
    """JSON of a command that went well: all of stdout."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def arrays(name: str) -> dict:
    """Arrays of an .npz file, which is closed again."""
    with np.load(name, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}

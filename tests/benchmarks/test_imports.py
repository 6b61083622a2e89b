"""Benchmarks are not run by the tests, but they must at least find what they import."""

import importlib
from pathlib import Path

import pytest

NAMES = sorted(path.stem for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_can_be_imported(name):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mixnmatch"):
            raise
        pytest.skip(f"needs {error.name}")

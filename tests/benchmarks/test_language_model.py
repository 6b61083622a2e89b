"""The parts of the recipe and of the benchmark for many classes, on texts and rows that are made here."""

import runpy

import numpy as np
import pytest

import language_model
from tests.conftest import make_problem

ROOT = language_model.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def recipe():
    pytest.importorskip("torch")
    return runpy.run_path(str(ROOT / "recipes" / "language_model.py"))


def test_words_are_those_of_docstrings(recipe, tmp_path):
    path = tmp_path / "module.py"
    path.write_text('"""Read 2 files."""\nx = "not this"\ndef f():\n    """Then, sum(them)."""\n')
    assert recipe["words"](path) == ["read", "2", "files", ".", "then", ",", "sum", "(", "them", ")", "."]
    path.write_text("def broken(:")
    assert recipe["words"](path) == []


def test_a_context_is_what_comes_before(recipe):
    contexts, following = recipe["windows"](np.arange(11))
    assert contexts.tolist() == [list(range(k, k + 8)) for k in range(3)]
    assert following.tolist() == [8, 9, 10]


def test_modules_are_in_one_part_each(recipe, tmp_path):
    parts = [recipe["part"](tmp_path / f"{k}.py") for k in range(500)]
    assert parts == [recipe["part"](tmp_path / f"{k}.py") for k in range(500)]
    assert min(np.bincount(parts, minlength=10)) > 25


def test_intervals_are_over_modules():
    values, modules = np.repeat([1.0, 2.0, 4.0, 5.0], 25), np.repeat(np.arange(4), 25)
    mean, reach = language_model.over_modules(values, modules)
    assert mean == 3
    assert reach == pytest.approx(1.96 * np.sqrt(((np.array([1, 2, 4, 5]) - 3) ** 2).sum()) / 4)


def test_tables_are_printed(tmp_path, capsys, monkeypatch):
    logits, y = make_problem(400, 4, seed=1)
    given = {"logits": 2 * logits, "labels": y, "clusters": np.arange(400) // 20}
    arrays = {f"{name}_{part}": values for part in ("cal", "eval") for name, values in given.items()}
    np.savez(tmp_path / "small.npz", **arrays, versions=np.array(["made here"]))
    monkeypatch.setattr(language_model, "NAMES", ("ts",))
    language_model.table(tmp_path / "small.npz")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("4 words; 400 samples for calibration, 400 for evaluation in 20 modules.")
    change = lines[5].split("|")[3]
    assert float(change.split("±")[0]) < 0 < float(change.split("±")[1])

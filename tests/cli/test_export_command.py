"""``mixnmatch export``: what it writes, prints and refuses."""

from pathlib import Path

import numpy as np
import pytest

import mixnmatch as mm
from tests.cli.conftest import arrays, parsed
from tests.export.runtimes import run_onnx


@pytest.fixture
def saved(files, run):
    """``cal.json``, an ETS map of logits."""
    assert run("fit", "val.npz", "--method", "ets", "-o", "cal.json").exit_code == 0
    return mm.load("cal.json")


def test_onnx(saved, run):
    pytest.importorskip("onnxruntime")
    result = run("export", "cal.json", "-o", "cal.onnx")
    assert result.exit_code == 0
    assert result.stdout.startswith("Wrote cal.onnx (")
    assert "from logits to calibrated probabilities of 3 classes" in result.stdout
    logits = arrays("test.npz")["logits"].astype(np.float32)
    np.testing.assert_allclose(run_onnx("cal.onnx", logits), saved.predict_proba(logits), rtol=0, atol=1e-6)


def test_json_and_single(saved, run):
    pytest.importorskip("onnx")
    document = parsed(run("export", "cal.json", "-o", "cal.onnx", "--single", "--json"))
    assert document["bytes"] == Path("cal.onnx").stat().st_size
    assert document["precision"] == "single"
    assert document["scores"] == "logits"
    assert document["accuracy_preserving"] is True


def test_a_classifier(saved, run):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from tests.export.test_onnx import network

    classifier, weight = network()
    onnx.save(classifier, "model.onnx")
    result = run("export", "cal.json", "--classifier", "model.onnx", "--scores", "logits", "-o", "all.onnx")
    assert result.exit_code == 0
    assert "from the inputs of model.onnx" in result.stdout
    x = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    np.testing.assert_allclose(run_onnx("all.onnx", x), saved.predict_proba(x @ weight), rtol=0, atol=1e-6)
    result = run("export", "cal.json", "--classifier", "model.onnx", "--scores", "margin", "-o", "other.onnx")
    assert result.exit_code == 1
    assert result.stderr == "Error: the classifier has no tensor 'margin'; its outputs are ['logits']\n"
    result = run("export", "cal.json", "--classifier", "cal.json", "-o", "other.onnx")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: cal.json is not an ONNX model")
    assert not Path("other.onnx").exists()


def test_a_pytorch_program(saved, run):
    torch = pytest.importorskip("torch")
    result = run("export", "cal.json", "-o", "cal.pt2")
    assert result.exit_code == 0
    program = torch.export.load("cal.pt2").module()
    logits = arrays("test.npz")["logits"].astype(np.float32)
    found = program(torch.from_numpy(logits)).detach().numpy()
    np.testing.assert_allclose(found, saved.predict_proba(logits), rtol=0, atol=1e-6)


def test_files_are_not_overwritten_unasked(saved, run):
    pytest.importorskip("onnx")
    Path("cal.onnx").write_text("mine")
    result = run("export", "cal.json", "-o", "cal.onnx")
    assert result.exit_code != 0
    assert "--force" in result.stderr
    assert Path("cal.onnx").read_text() == "mine"
    assert run("export", "cal.json", "-o", "cal.onnx", "--force").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cal.json", "-o", "cal.txt"), ".onnx"),
        (("val.npz", "-o", "cal.onnx"), "is not a map file"),
        (("missing.json", "-o", "cal.onnx"), "missing.json"),
        (("cal.json", "--scores", "logits", "-o", "cal.onnx"), "pass --classifier too"),
        (("cal.json", "--classifier", "m.onnx", "-o", "cal.pt2"), "behind your network"),
        (("cal.json", "--vector", "-o", "cal.onnx"), "two classes"),
    ],
)
def test_what_is_refused(saved, run, arguments, message):
    pytest.importorskip("onnx")
    result = run("export", *arguments)
    assert result.exit_code != 0
    assert message in result.stderr
    assert not Path(arguments[-1]).exists()

import dataclasses
import subprocess
import sys
from importlib import resources

import numpy as np
import pytest

from mixnmatch.data import load_sample


@pytest.fixture(scope="module")
def sample():
    return load_sample()


def test_shapes_and_types(sample):
    assert sample.logits_cal.shape == (5000, 10)
    assert sample.logits_eval.shape == (10000, 10)
    assert sample.labels_cal.shape == (5000,)
    assert sample.labels_eval.shape == (10000,)
    assert sample.logits_cal.dtype == sample.logits_eval.dtype == np.float32
    assert sample.labels_cal.dtype == sample.labels_eval.dtype == np.int64
    assert len(sample.class_names) == 10
    assert all(type(name) is str for name in sample.class_names)


def test_values(sample):
    for logits, labels in ((sample.logits_cal, sample.labels_cal), (sample.logits_eval, sample.labels_eval)):
        assert np.isfinite(logits).all()
        assert set(np.unique(labels)) == set(range(10))
        assert len(np.unique(logits, axis=0)) > 0.99 * len(logits)
    assert np.bincount(sample.labels_eval).tolist() == [1000] * 10


def test_network_is_over_confident(sample):
    for logits, labels in ((sample.logits_cal, sample.labels_cal), (sample.logits_eval, sample.labels_eval)):
        scores = np.exp(logits.astype(float) - logits.max(1, keepdims=True))
        confidence = scores.max(1) / scores.sum(1)
        accuracy = np.mean(logits.argmax(1) == labels)
        assert accuracy > 0.65
        assert 0.05 < confidence.mean() - accuracy < 0.15


def test_file_is_small_and_without_pickles():
    file = resources.files("mixnmatch.data").joinpath("sample.npz")
    assert len(file.read_bytes()) < 1_000_000
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        assert sorted(archive.files) == ["class_names", "labels_cal", "labels_eval", "logits_cal", "logits_eval"]


def test_frozen(sample):
    with pytest.raises(dataclasses.FrozenInstanceError):
        sample.class_names = ()
    with pytest.raises(ValueError, match="read-only"):
        sample.logits_cal[0, 0] = 0
    assert "CIFAR-10" in sample.description
    assert "recipes/embedded_sample.py" in sample.provenance
    assert "BSD-3-Clause" in sample.licence


def test_loading_imports_neither_torch_nor_the_recipes():
    code = "import sys, mixnmatch, mixnmatch.data; mixnmatch.data.load_sample(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

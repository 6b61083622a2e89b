import numpy as np
import pytest

from mixnmatch._engine.scores import read_scores
from mixnmatch.evaluation import notion
from mixnmatch.evaluation._binning import bin_linearly


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(5), 200), rng.integers(0, 5, 200)


def test_top_label(table, monkeypatch):
    p, y = table
    whole = notion.top_label(read_scores(p), y)
    np.testing.assert_allclose(whole.z, p.max(axis=1))
    np.testing.assert_array_equal(whole.y, p.argmax(axis=1) == y)
    monkeypatch.setattr(notion, "ENTRIES_A_BLOCK", 35)
    blocks = notion.top_label(read_scores(p), y)
    np.testing.assert_array_equal(whole.z, blocks.z)
    np.testing.assert_array_equal(whole.y, blocks.y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits(table, dtype):
    p, y = table
    logits = np.log(p).astype(dtype) + 3
    from_logits = notion.top_label(read_scores(logits, logits=True), y)
    np.testing.assert_allclose(from_logits.z, p.max(axis=1), rtol=1e-5)
    np.testing.assert_allclose(notion.probabilities(read_scores(logits, logits=True)), p, rtol=1e-5)
    huge = np.array([[1e4, -1e4, 0.0]])
    assert notion.top_label(read_scores(huge, logits=True), np.array([0])).z[0] == 1.0


def test_rows_off_the_simplex_are_renormalised():
    p = np.array([[0.50002, 0.5]], dtype=np.float32)
    assert notion.probabilities(read_scores(p)).sum() == pytest.approx(1, abs=1e-12)
    assert notion.top_label(read_scores(p), np.array([0])).z[0] == pytest.approx(0.50002 / 1.00002, abs=1e-7)


def test_vectors_are_the_positive_class():
    z = np.array([0.2, 0.9, 0.5])
    y = np.array([0, 1, 1])
    found = notion.binary(read_scores(z), y)
    np.testing.assert_array_equal(found.z, z)
    np.testing.assert_array_equal(found.y, y)
    top = notion.top_label(read_scores(z), y)
    np.testing.assert_allclose(top.z, [0.8, 0.9, 0.5])
    np.testing.assert_array_equal(top.y, [1, 1, 0])
    logit = np.log(z / (1 - z))
    np.testing.assert_allclose(notion.binary(read_scores(logit, logits=True), y).z, z)


def test_binary_needs_two_classes(table):
    p, y = table
    with pytest.raises(ValueError, match="two classes"):
        notion.binary(read_scores(p), y)


def test_class_grid(table, monkeypatch):
    p, y = table
    weight = np.arange(200) % 3 + 0.0
    monkeypatch.setattr(notion, "ENTRIES_A_BLOCK", 333)
    grid = notion.class_grid(read_scores(p), y, weight)
    for k in range(5):
        one = notion.one_class(p, y, k, weight)
        expected = bin_linearly(one.z, one.y, one.weight)
        np.testing.assert_allclose(grid.count[k], expected.count, atol=1e-10)
        np.testing.assert_allclose(grid.outcome[k], expected.outcome, atol=1e-10)


def test_frequencies():
    np.testing.assert_allclose(notion.class_frequencies(np.array([0, 0, 2]), 4), [2 / 3, 0, 1 / 3, 0])
    weighted = notion.class_frequencies(np.array([0, 0, 2]), 3, np.array([1.0, 0.0, 3.0]))
    np.testing.assert_allclose(weighted, [0.25, 0, 0.75])

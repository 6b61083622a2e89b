"""Two-sample tests of scores against a map's calibration set."""

import math

import numpy as np
import pytest
from scipy.stats import chi2_contingency

import mixnmatch as mm
from mixnmatch.maps.summary import cells
from mixnmatch.monitoring import score_drift
from mixnmatch.monitoring.drift import _difference
from tests.conftest import draw_labels, softmax


def problem(seed, n=2000, n_classes=3, shift=0.0, spread=1.0):
    rng = np.random.default_rng(seed)
    logits = spread * rng.normal(size=(n, n_classes))
    y = draw_labels(softmax(logits + np.arange(n_classes) * shift), rng)
    return 3 * logits, y


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request):
    return mm.calibrator("vector", logits=True).fit(*problem(0, n_classes=request.param))


def test_the_statistic_is_that_of_a_contingency_table():
    before, now = np.array([50.0, 80.0, 70.0]), np.array([30.0, 90.0, 20.0])
    expected = chi2_contingency([before, now], correction=False)
    found = _difference("all", before, now)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.distance == pytest.approx(0.5 * np.abs(before / 200 - now / 140).sum())


def test_the_same_kind_of_samples_looks_the_same(fitted):
    false = sum(score_drift(fitted, *problem(seed, n_classes=fitted.n_classes_)).different for seed in range(1, 41))
    assert false <= 0.02 * 40 + 4 * math.sqrt(0.02 * 0.98 * 40)


def test_other_scores_are_found(fitted):
    drift = score_drift(fitted, *problem(5, n_classes=fitted.n_classes_, spread=1.5))
    assert drift.different
    assert drift.overall.p_value < 1e-6
    assert drift.different_classes
    assert "within class" in drift.message
    alone = score_drift(fitted, problem(5, n_classes=fitted.n_classes_, spread=1.5)[0])
    assert alone.different
    assert alone.by_class == ()
    assert "distribution of the scores" in alone.message


def test_other_frequencies_are_told_from_other_scores(fitted):
    n_classes = fitted.n_classes_
    scores, y = problem(6, 6000, n_classes)
    rng = np.random.default_rng(0)
    keep = rng.random(6000) < np.linspace(0.2, 1.0, n_classes)[y]
    drift = score_drift(fitted, scores[keep], y[keep])
    assert drift.different
    assert not drift.different_classes
    assert "class frequencies" in drift.message


def test_weights_are_frequencies(fitted):
    scores, y = problem(7, 300, fitted.n_classes_)
    once = score_drift(fitted, np.repeat(scores, 2, axis=0), np.repeat(y, 2))
    twice = score_drift(fitted, scores, y, sample_weight=np.full(300, 2.0))
    assert once == twice


def test_few_samples_say_nothing(fitted):
    scores, y = problem(8, 1, fitted.n_classes_)
    drift = score_drift(fitted, scores, y)
    assert not drift.different
    assert drift.message == ""
    assert drift.to_dict()["overall"]["distance"] is None


def test_a_map_without_a_summary(fitted):
    import copy

    old = copy.copy(fitted)
    del old.summary_
    assert score_drift(old, *problem(1, 50, fitted.n_classes_)) is None


def test_cells_are_those_of_the_summary(fitted):
    scores, y = problem(0, n_classes=fitted.n_classes_)
    counts = np.bincount(cells(fitted.predict_proba(scores)))
    np.testing.assert_array_equal(fitted.summary_.counts.sum(axis=0)[: len(counts)], counts)
    assert score_drift(fitted, scores, y).overall.p_value == 1

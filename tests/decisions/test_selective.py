"""Risk-coverage curves by counting, areas by enumeration, and the guarantee of the risk by simulation."""

import itertools
import warnings

import numpy as np
import pytest

from mixnmatch.decisions import coverage_for, risk_coverage_curve


def problem(n, n_classes=3, seed=0, sharpness=1.0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, n_classes)) * 1.5
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return sharpness * logits, y


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_the_curve_is_counted():
    z, y = problem(60)
    p = softmax(z)
    curve = risk_coverage_curve(p, y)
    for coverage, risk, threshold in zip(curve.coverage, curve.risk, curve.threshold, strict=True):
        chosen = p.max(axis=1) >= threshold
        assert coverage == pytest.approx(chosen.mean())
        assert risk == pytest.approx((p.argmax(axis=1) != y)[chosen].mean())
    wrong = (p.argmax(axis=1) != y)[np.argsort(-p.max(axis=1))]
    assert curve.aurc == pytest.approx(np.mean(wrong.cumsum() / np.arange(1, 61)), abs=1e-12)
    assert curve.best_aurc == pytest.approx(np.mean(np.sort(wrong).cumsum() / np.arange(1, 61)), abs=1e-12)
    assert curve.error_rate == wrong.mean()
    assert curve.excess_aurc >= 0


def test_the_area_of_ties_is_the_mean_over_orders():
    p = np.array([0.9, 0.7, 0.7, 0.7, 0.6, 0.6])
    y = np.array([1, 0, 1, 1, 0, 1])
    wrong = 1 - y
    areas = []
    for middle in itertools.permutations([1, 2, 3]):
        for last in itertools.permutations([4, 5]):
            order = [0, *middle, *last]
            areas.append(np.mean(wrong[order].cumsum() / np.arange(1, 7)))
    curve = risk_coverage_curve(p, y)
    assert len(curve.coverage) == 3
    assert curve.aurc == pytest.approx(np.mean(areas), abs=1e-12)


def test_logits_vectors_and_columns_agree():
    z, y = problem(200, 2)
    lead = z[:, 1] - z[:, 0]
    wanted = risk_coverage_curve(softmax(z), y).aurc
    assert risk_coverage_curve(z, y, logits=True).aurc == pytest.approx(wanted)
    assert risk_coverage_curve(lead, y, logits=True).aurc == pytest.approx(wanted)


def test_weights_are_repetitions():
    z, y = problem(80)
    w = np.random.default_rng(1).integers(0, 4, 80)
    again = np.repeat(np.arange(80), w)
    one = risk_coverage_curve(z, y, logits=True, sample_weight=w)
    other = risk_coverage_curve(z[again], y[again], logits=True)
    assert one.aurc == pytest.approx(other.aurc, abs=1e-12)
    assert one.best_aurc == pytest.approx(other.best_aurc, abs=1e-12)
    np.testing.assert_allclose(one.risk, other.risk)


def test_the_guarantee_counts_samples_and_not_weights():
    z, y = problem(300)
    plain = coverage_for(z, y, logits=True, risk=0.3)
    heavy = coverage_for(z, y, logits=True, risk=0.3, sample_weight=np.full(300, 10))
    assert plain.met
    assert heavy.threshold == plain.threshold
    assert heavy.bound == pytest.approx(plain.bound)
    assert heavy.interval == pytest.approx(plain.interval)


def test_edges():
    one = risk_coverage_curve([[0.2, 0.8]], [1])
    assert one.aurc == 0.0
    assert one.coverage.tolist() == [1.0]
    all_wrong = risk_coverage_curve(np.array([[1.0, 0.0]] * 5), [1] * 5)
    assert all_wrong.aurc == pytest.approx(1.0)
    assert all_wrong.best_aurc == pytest.approx(1.0)
    assert all_wrong.to_dict()["error_rate"] == 1.0


def test_the_coverage_of_a_risk():
    z, y = problem(5000, 10)
    found = coverage_for(z, y, risk=0.3, logits=True)
    p = softmax(z)
    chosen = p.max(axis=1) >= found.threshold
    assert found.met
    assert chosen.mean() == pytest.approx(found.coverage)
    assert (p.argmax(axis=1) != y)[chosen].mean() == pytest.approx(found.risk)
    assert found.risk < found.bound <= 0.3
    assert found.interval[0] < found.coverage < found.interval[1]
    assert "with 95% confidence" in str(found)
    assert coverage_for(z, y, risk=0.5, logits=True).coverage > found.coverage


def test_right_predictions_are_all_covered():
    p = np.linspace(0.6, 1, 500)
    found = coverage_for(p, np.ones(500, int), risk=0.01)
    assert found.coverage == 1.0
    assert found.threshold == 0.0


def test_too_few_samples_are_refused():
    with pytest.warns(UserWarning, match="at least 59 predicted samples"):
        found = coverage_for(np.full(58, 0.9), np.ones(58, int), risk=0.05)
    assert not found.met
    assert found.coverage == 0.0
    assert found.threshold == np.inf
    assert found.to_dict()["risk"] is None
    assert "no samples can be predicted" in str(found)
    assert coverage_for(np.full(59, 0.9), np.ones(59, int), risk=0.05).met


@pytest.mark.parametrize("shape", ["calibrated", "ties", "useless"])
def test_the_guarantee_holds(shape):
    """Also where confidence says nothing about errors, or rises with them."""
    rng = np.random.default_rng(2)
    confidence = rng.uniform(0.5, 1, 100_000)
    if shape == "ties":
        confidence = np.ceil(confidence * 20) / 20
    right = confidence if shape != "useless" else 0.75 + 0.0 * confidence
    target = 0.25 if shape == "useless" else 0.15
    misses, runs, met = 0, 400, 0
    for _ in range(runs):
        index = rng.integers(0, len(confidence), 300)
        y = (rng.random(300) < right[index]).astype(int)  # class 1 is predicted throughout
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = coverage_for(confidence[index], y, risk=target, confidence=0.8)
        met += found.met
        if found.met:
            misses += 1 - right[confidence >= found.threshold].mean() > target + 1e-12
    assert misses / runs <= 0.2 + 3 * np.sqrt(0.2 * 0.8 / runs)
    if shape != "useless":
        assert met > 0.6 * runs

"""What miscalibration costs: the paired difference by hand, its sign, and its interval."""

import numpy as np
import pytest

from mixnmatch import calibrator
from mixnmatch._engine.folds import fold_of
from mixnmatch.decisions import bayes_decisions, cost_of_miscalibration
from mixnmatch.maps import PlattScaling


def problem(n, factor=3.0, shift=0.0, seed=0, mean=-2.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n) * 1.5 + mean
    return factor * x + shift, (rng.random(n) < 1 / (1 + np.exp(-x))).astype(int)


COSTS = np.array([[0.0, 1.0], [9.0, 0.5]])


def test_by_hand():
    z, y = problem(300)
    found = cost_of_miscalibration(z, y, COSTS, method="beta", cv=4, logits=True, random_state=3)
    fold = fold_of(range(300), 4, 3)
    after = np.empty(300)
    for k in range(4):
        fitted = calibrator("beta", logits=True).fit(z[fold != k], y[fold != k])
        after[fold == k] = fitted.predict_proba(z[fold == k])[:, 1]
    one = COSTS[y, bayes_decisions(z, COSTS, logits=True)]
    two = COSTS[y, bayes_decisions(after, COSTS)]
    assert float(found) == pytest.approx((one - two).mean())
    assert found.standard_error == pytest.approx((one - two).std(ddof=1) / np.sqrt(300))
    assert float(found.before) == pytest.approx(one.mean())
    assert float(found.after) == pytest.approx(two.mean())
    assert found.changed == pytest.approx(
        (bayes_decisions(z, COSTS, logits=True) != bayes_decisions(after, COSTS)).mean()
    )


def test_overconfidence_costs_and_calibration_does_not():
    worse = cost_of_miscalibration(*problem(3000, 4.0), COSTS, logits=True)
    assert worse.interval[0] > 0
    assert worse.method == "platt"
    fine = cost_of_miscalibration(*problem(3000, 1.0), COSTS, logits=True)
    assert fine.interval[0] < 0.02
    assert abs(fine) < 0.05
    assert "of decisions change" in str(worse)
    assert worse.to_dict()["changed"] == worse.changed


def test_several_classes_and_abstention():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(2000, 4))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((2000, 1))).sum(axis=1)
    costs = 1 - np.eye(4)
    found = cost_of_miscalibration(8 * z, y, costs, abstain=0.4, logits=True)
    assert found.method == "svs"
    assert found.interval[0] > 0
    assert found.after <= 0.4 + 2 * found.after.standard_error


def test_weights_of_zero_leave_samples_out_of_the_costs():
    z, y = problem(400)
    w = np.ones(400)
    w[::7] = 0
    found = cost_of_miscalibration(z, y, COSTS, logits=True, sample_weight=w)
    assert found.n_rows == int(w.sum())
    kept = w > 0
    before = COSTS[y, bayes_decisions(z, COSTS, logits=True)][kept]
    assert float(found.before) == pytest.approx(before.mean())


def test_positives_are_rare_or_missing():
    z, y = problem(2000, mean=-6.0)
    assert 0 < y.mean() < 0.02
    assert np.isfinite(float(cost_of_miscalibration(z, y, COSTS, logits=True)))
    none = cost_of_miscalibration(1 / (1 + np.exp(-z[:100])), np.zeros(100, int), COSTS)
    assert none.after <= none.before


def test_settings_that_cannot_be():
    z, y = problem(50)
    with pytest.raises(ValueError, match="disagree"):
        cost_of_miscalibration(z, y, COSTS, method=PlattScaling(), logits=True)
    with pytest.raises(ValueError, match="too few"):
        cost_of_miscalibration(z[:1], y[:1], COSTS, logits=True)
    with pytest.raises(ValueError, match="number of folds"):
        cost_of_miscalibration(z, y, COSTS, cv=1, logits=True)

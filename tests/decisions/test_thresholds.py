"""Thresholds for a precision or a recall: definitions, edges, and the guarantee by simulation."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, binom

import mixnmatch as mm
from mixnmatch.decisions import net_benefit, threshold_for
from mixnmatch.decisions._guarantee import Ranked, candidate_ranks, certify, lower_limit, two_sided, upper_limit


def problem(n, seed=0, positives=None):
    rng = np.random.default_rng(seed)
    p = rng.beta(0.5, 0.5 if positives is None else 0.5 / positives, n)
    return p, (rng.random(n) < p).astype(int)


def test_clopper_pearson():
    for k, n in ((0, 10), (3, 10), (10, 10), (7, 1000)):
        low, high = two_sided(k, n, 0.05)
        assert low == pytest.approx(0.0 if k == 0 else beta.ppf(0.025, k, n - k + 1), abs=1e-12)
        assert high == pytest.approx(1.0 if k == n else beta.ppf(0.975, k + 1, n - k), abs=1e-12)
    assert lower_limit(5, 5, 0.05) == pytest.approx(0.05 ** (1 / 5))
    assert upper_limit(0, 59, 0.05) <= 0.05 < upper_limit(0, 58, 0.05)


def test_recall_is_the_order_statistic_of_the_binomial():
    p, y = problem(400)
    found = threshold_for(p, y, recall=0.9, confidence=0.95)
    positives = np.sort(p[y == 1])
    m = len(positives)
    # The largest k with P(Bin(m, 0.9) >= m - k + 1) <= 0.05.
    k = max(k for k in range(1, m + 1) if binom.sf(m - k, m, 0.9) <= 0.05)
    assert found.threshold == positives[k - 1]
    assert found.met
    assert found.bound >= 0.9
    assert found.recall == pytest.approx((positives >= found.threshold).mean())


def test_without_a_guarantee_it_is_what_the_samples_show():
    p, y = problem(300, 1)
    exact = threshold_for(p, y, precision=0.8, confidence=None)
    precise = [t for t in np.unique(p) if y[p >= t].mean() >= 0.8]
    assert exact.threshold == min(precise)
    assert exact.precision >= 0.8
    exact = threshold_for(p, y, recall=1.0, confidence=None)
    assert exact.threshold == p[y == 1].min()
    assert exact.recall == 1.0


def test_the_guarantee_costs_something_and_more_samples_cost_less():
    selected = []
    for n in (300, 3000, 30000):
        p, y = problem(n, 2)
        found = threshold_for(p, y, precision=0.8)
        assert found.met
        assert found.precision > 0.8
        selected.append(found.selected)
    assert selected == sorted(selected)
    assert selected[-1] < threshold_for(*problem(30000, 2), precision=0.8, confidence=None).selected


@pytest.mark.parametrize("target", [{"precision": 0.7}, {"recall": 0.8}])
@pytest.mark.parametrize("steps", [None, 12])
def test_the_guarantee_holds(target, steps):
    """Misses on the population at most as often as promised, with ties (few distinct scores) and without."""
    rng = np.random.default_rng(3)
    grid = rng.beta(0.5, 1.5, 100_000)
    grid = grid if steps is None else np.ceil(grid * steps) / steps
    truth = grid**1.3  # not calibrated: the guarantee does not need it
    misses, runs = 0, 400
    for _ in range(runs):
        index = rng.integers(0, len(grid), 250)
        p, y = grid[index], (rng.random(250) < truth[index]).astype(int)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = threshold_for(p, y, confidence=0.8, **target)
        if not found.met:
            continue
        chosen = grid >= found.threshold
        true = truth[chosen].mean() if "precision" in target else truth[chosen].sum() / truth.sum()
        misses += true < next(iter(target.values()))
    assert misses / runs <= 0.2 + 3 * np.sqrt(0.2 * 0.8 / runs)


def test_plain_thresholds_miss_far_more_often():
    """Without the guarantee about half of the thresholds miss: the test above can fail."""
    rng = np.random.default_rng(4)
    grid = rng.beta(0.5, 1.5, 100_000)
    misses = 0
    for _ in range(200):
        index = rng.integers(0, len(grid), 250)
        p, y = grid[index], (rng.random(250) < grid[index]).astype(int)
        found = threshold_for(p, y, precision=0.7, confidence=None)
        misses += grid[grid >= found.threshold].mean() < 0.7
    assert misses / 200 > 0.4


def test_one_percent_positives():
    p, y = problem(5000, 5, positives=0.01)
    assert 0.005 < y.mean() < 0.02
    found = threshold_for(p, y, recall=0.8)
    assert found.recall > 0.8
    assert found.selected < 0.5
    with pytest.warns(UserWarning, match="at least 299 selected samples"):
        refused = threshold_for(p, y, precision=0.99, confidence=0.95)
    assert not refused.met
    assert refused.threshold == np.inf
    assert refused.selected == 0
    assert np.isnan(refused.precision)
    assert refused.to_dict()["threshold"] is None


def test_one_sample_and_one_class():
    with pytest.warns(UserWarning, match="no threshold reaches"):
        assert not threshold_for([0.5], [1], precision=0.9).met
    assert threshold_for([0.5], [1], recall=0.9).threshold == 0.0
    with pytest.warns(UserWarning, match="no positive sample"):
        assert threshold_for([0.5, 0.1], [0, 0], recall=0.9).threshold == 0.0
    everything = threshold_for(np.linspace(0, 1, 500), np.ones(500, int), precision=0.9)
    assert everything.threshold == 0.0
    assert everything.selected == 1.0


def test_ties_are_selected_together():
    p = np.repeat([0.9, 0.6, 0.1], [200, 200, 600])
    y = np.concatenate([np.ones(200, int), np.tile([1, 1, 1, 0], 50), np.zeros(600, int)])
    high = threshold_for(p, y, precision=0.95)
    assert 0.6 < high.threshold <= 0.9
    assert high.selected == 0.2
    lower = threshold_for(p, y, precision=0.8)
    assert 0.1 < lower.threshold <= 0.6
    assert lower.selected == 0.4


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scores_are_compared_in_their_own_type(dtype):
    p, y = problem(2000, 6)
    p = (np.round(p * 50) / 50).astype(dtype)
    found = threshold_for(p, y, precision=0.8)
    assert (p >= found.threshold).mean() == pytest.approx(found.selected)
    assert y[p >= found.threshold].mean() == pytest.approx(found.precision)


@pytest.mark.parametrize("target", [{"precision": 0.8}, {"recall": 0.8}])
def test_weights_are_repetitions_without_a_guarantee(target):
    p, y = problem(500, 7)
    w = np.random.default_rng(8).integers(0, 4, 500)
    again = np.repeat(np.arange(500), w)
    one = threshold_for(p, y, sample_weight=w, confidence=None, **target)
    other = threshold_for(p[again], y[again], confidence=None, **target)
    assert one.threshold == other.threshold
    assert one.precision == pytest.approx(other.precision)
    assert one.recall == pytest.approx(other.recall)


@pytest.mark.parametrize("target", [{"precision": 0.8}, {"recall": 0.8}])
@pytest.mark.parametrize("scale", [1.3, 10.0])
def test_guarantees_count_samples_and_not_weights(target, scale):
    p, y = problem(500, 7)
    plain, heavy = threshold_for(p, y, **target), threshold_for(p, y, sample_weight=np.full(500, scale), **target)
    assert heavy.threshold == plain.threshold
    assert heavy.bound == pytest.approx(plain.bound)
    assert heavy.interval == pytest.approx(plain.interval)
    w = np.random.default_rng(8).exponential(size=500)
    one, other = (threshold_for(p, y, sample_weight=k * w, **target) for k in (10.0, 100.0))
    assert one.threshold == other.threshold
    assert one.bound == pytest.approx(other.bound)


@pytest.mark.filterwarnings("ignore:no threshold reaches")
@pytest.mark.parametrize("metric", ["precision", "recall"])
def test_guarantees_hold_with_random_weights(metric):
    big, outcome = problem(200_000, 99)
    missed = 0
    for seed in range(100):
        p, y = problem(400, seed)
        w = 20 * np.random.default_rng([seed, 1]).exponential(size=400)
        found = threshold_for(p, y, sample_weight=w, confidence=0.9, **{metric: 0.8})
        if found.met:
            chosen = big >= found.threshold
            reached = outcome[chosen].mean() if metric == "precision" else chosen[outcome == 1].mean()
            missed += reached < 0.8
    assert missed <= 16


def test_candidates_depend_on_the_number_of_samples_only():
    ranks = candidate_ranks(1000.0, 0.05, 0.05)
    assert len(ranks) == 4 + 3
    assert len(candidate_ranks(1e6, 0.05, 0.05)) == 50
    assert (np.diff(ranks) > 0).all()
    assert ranks[-1] == 1000
    assert 0.95 ** ranks[0] <= 0.05 / len(ranks)
    assert candidate_ranks(59.0, 0.05, 0.05).tolist() == [59.0]
    few = Ranked.of(np.linspace(1, 0, 58), np.zeros(58, bool), None)
    assert certify(few, 0.05, 0.05).place is None
    enough = Ranked.of(np.linspace(1, 0, 59), np.zeros(59, bool), None)
    assert certify(enough, 0.05, 0.05).place == 59


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "name one target"),
        ({"precision": 0.5, "recall": 0.5}, "name one target"),
        ({"precision": 1.5}, "precision must be between 0 and 1"),
        ({"recall": 1.0}, "recall=1 cannot be ensured with a confidence: pass a number below 1, or confidence=None"),
        ({"recall": 0.5, "confidence": 1.0}, "confidence must be between 0 and 1"),
    ],
)
def test_targets_that_cannot_be(settings, message):
    with pytest.raises(ValueError, match=message):
        threshold_for([0.1, 0.9], [0, 1], **settings)


def test_texts():
    p, y = problem(2000)
    text = str(threshold_for(p, y, precision=0.8))
    assert "precision at least 0.8 with 95% confidence" in text
    with pytest.warns(UserWarning, match="no threshold reaches"):
        assert "no threshold reaches" in str(threshold_for(p[:20], y[:20], precision=0.9))


def test_the_positive_class_can_be_named():
    rng = np.random.default_rng(0)
    p = rng.random(2000)
    positive = rng.random(2000) < p
    y = np.where(positive, "fraud", "genuine")
    wanted = threshold_for(p, positive.astype(int), recall=0.8)
    for found in (
        threshold_for(p, y, recall=0.8, positive="fraud"),
        threshold_for(pd.DataFrame({"fraud": p, "genuine": 1 - p}), y, recall=0.8, positive="fraud"),
    ):
        assert found.threshold == wanted.threshold
        assert found.positive == "fraud"
    assert net_benefit(p, y, positive="fraud").positive == "fraud"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("target", [{"precision": 0.6}, {"recall": 0.9}])
def test_thresholds_of_logits_select_the_samples_that_they_count(dtype, target):
    """Predictions have the type of the logits, and so do the probabilities that a threshold is compared with."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        logits = rng.normal(size=300).astype(dtype)
        y = (rng.random(300) < 1 / (1 + np.exp(-logits))).astype(int)
        found = threshold_for(logits, y, logits=True, confidence=None, **target)
        p = mm.calibrator("identity", logits=True).fit(logits, y).predict_proba(logits)[:, 1]
        assert p.dtype == dtype
        assert (p >= found.threshold).mean() == pytest.approx(found.selected)

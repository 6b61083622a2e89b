"""Intervals of accuracy, Brier score and log loss: possible values only, and enough of them for small samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chi2, t

from mixnmatch.evaluation import evaluate
from mixnmatch.evaluation._bounded import (
    NOT_NEGATIVE,
    PROPORTION,
    SQUARED_ERROR,
    Bounds,
    bounded_interval,
    clopper_pearson,
    skewed_interval,
)
from mixnmatch.evaluation.gain import calibration_gain
from mixnmatch.evaluation.scores import FEW, accuracy, brier_score, log_loss
from mixnmatch.evaluation.streaming import AccuracyAccumulator, BrierAccumulator, LogLossAccumulator


def right(hits, n, confidence=0.8):
    """Scores of two classes of which the first ``hits`` are right."""
    return np.tile([1 - confidence, confidence], (n, 1)), (np.arange(n) < hits).astype(int)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
@pytest.mark.parametrize("n", [2, 5, 30, 1000])
def test_accuracy_has_the_interval_of_clopper_and_pearson(n, level):
    for hits in {0, 1, n // 2, n - 1, n}:
        exact = binomtest(hits, n).proportion_ci(level, method="exact")
        found = accuracy(*right(hits, n), confidence=level)
        assert found.interval == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_thirty_of_thirty():
    low, high = accuracy(*right(30, 30)).interval
    assert low == pytest.approx(0.025 ** (1 / 30), abs=1e-12)
    assert high == 1
    assert brier_score(*right(30, 30, 1.0)).interval == pytest.approx((0, 2 * (1 - low)), abs=1e-12)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.floats(0.01, 100)), min_size=2, max_size=30),
    st.sampled_from([0.5, 0.95, 0.9999]),
)
def test_no_interval_leaves_the_range(samples, level):
    z, y, weight = (np.array(column) for column in zip(*samples, strict=True))
    options = {"sample_weight": weight, "weights": "importance", "confidence": level}
    for found, most in (
        (accuracy(z, y.astype(int), **options), 1),
        (brier_score(z, y.astype(int), **options), 2),
        (brier_score(z, y.astype(int), scale_by_half=True, **options), 1),
        (log_loss(z, y.astype(int), eps=1e-9, **options), np.inf),
    ):
        low, high = found.interval
        assert 0 <= low <= float(found) <= high <= most


def coverage(draw, score, truth, n, repetitions=150):
    rng = np.random.default_rng([n, 5])
    ends = np.array([score(*draw(n, rng)).interval for _ in range(repetitions)])
    return np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))


def sure(n, rng):
    return right(0, n, 0.99)[0], (rng.random(n) < 0.99).astype(int)


def uniform(n, rng):
    z = rng.random(n)
    return z, (rng.random(n) < z).astype(int)


def overconfident(n, rng):
    z = rng.random(n)
    return np.round(z), (rng.random(n) < z).astype(int)


def noisy(n, rng):
    """Three classes, sure of the first one, and 10% of the labels are others."""
    return np.tile([0.998, 0.001, 0.001], (n, 1)), rng.choice(3, n, p=[0.9, 0.05, 0.05])


@pytest.mark.parametrize("n", [5, 20, 50])
@pytest.mark.parametrize(
    ("draw", "score", "truth"),
    [
        (sure, accuracy, 0.99),
        (uniform, accuracy, 0.75),
        (sure, brier_score, 2 * (0.99 * 0.01**2 + 0.01 * 0.99**2)),
        (uniform, brier_score, 1 / 3),
        (overconfident, brier_score, 0.5),
        (sure, log_loss, -0.99 * np.log(0.99) - 0.01 * np.log(0.01)),
        (uniform, log_loss, 0.5),
        (noisy, log_loss, 0.9 * -np.log(0.998) + 0.1 * -np.log(0.001)),
    ],
)
def test_coverage_of_small_samples(draw, score, truth, n):
    """benchmarks/small_intervals.py has more cases; all of them cover at least 0.95 up to chance."""
    assert coverage(draw, score, truth, n) >= 0.92


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_log_loss_has_the_interval_of_a_poisson_count(level):
    rng = np.random.default_rng(3)
    p = rng.dirichlet([3.0, 3.0, 3.0], 60)
    y = rng.integers(0, 3, 60)
    loss = -np.log(p[np.arange(60), y])
    count = loss.mean() ** 2 / (loss.var(ddof=1) / 60)
    count *= min(1, t.ppf(0.5 + level / 2, count) / t.ppf(0.5 + level / 2, 59)) ** 2
    tail = (1 - level) / 2
    exact = chi2.ppf(tail, 2 * count) / 2, chi2.ppf(1 - tail, 2 * count + 2) / 2
    assert log_loss(p, y, confidence=level).interval == pytest.approx(np.array(exact) / count * loss.mean(), rel=1e-9)


def test_the_log_loss_knows_what_wrong_predictions_cost():
    p = np.array([[0.9, 0.08, 0.02], [0.1, 0.2, 0.7], [0.5, 0.5, 0.0], [0.1, 0.9, 0.0]])
    wrong = [-np.log(0.08 * 0.02) / 2, -np.log(0.1 * 0.2) / 2, -np.log(0.5), -np.log(0.1)]
    found = log_loss(p, [0, 2, 0, 1])
    assert found.bounds.unseen == pytest.approx(np.mean(wrong), rel=1e-12)
    missed = 1 - 0.025**0.25
    assert found.interval[1] >= float(found) + missed * (np.mean(wrong) - float(found)) - 1e-12
    weighted = log_loss(p, [0, 2, 0, 1], sample_weight=[1, 2, 0, 1])
    assert weighted.bounds.unseen == pytest.approx((wrong[0] + 2 * wrong[1] + wrong[3]) / 4, rel=1e-12)
    clipped = [*wrong[:2], (np.log(2) - np.log(0.01)) / 2, -np.log(0.1 * 0.01) / 2]
    assert log_loss(p, [0, 2, 0, 1], eps=0.01).bounds.unseen == pytest.approx(np.mean(clipped), rel=1e-12)
    with np.errstate(divide="ignore"):
        logits = np.log(p)
    assert log_loss(logits, [0, 2, 0, 1], logits=True).interval == pytest.approx(found.interval, rel=1e-9)


def test_many_samples_need_no_logarithm_of_every_score():
    p, y = right(FEW, FEW + 1)
    assert log_loss(p, y).bounds.unseen is None
    assert log_loss(p[1:], y[1:]).bounds.unseen is not None
    assert LogLossAccumulator().update(p, y).compute().bounds.unseen is None
    made = LogLossAccumulator().update(p[:9], y[:9]).update(p[9:], y[9:])
    assert made.compute().interval == pytest.approx(log_loss(p, y).interval, rel=1e-10)
    assert evaluate(p, y, metrics=["log_loss"])["log_loss"].interval == log_loss(p, y).interval


def test_equal_losses_are_no_certainty():
    """Ten samples that are all right tell little about the others."""
    low, high = log_loss(*right(10, 10, 0.99)).interval
    missed = 1 - 0.025**0.1
    assert high == pytest.approx((1 - missed) * -np.log(0.99) + missed * -np.log(0.01), rel=1e-9)
    assert 0 < low < -np.log(0.99)
    assert log_loss(*right(10, 10, 1.0)).interval == (0, np.inf)  # what a label of probability 0 costs


def test_weights_count_as_their_effective_number():
    p, y = right(30, 30)
    assert accuracy(p, y, sample_weight=np.full(30, 3.0)).interval == accuracy(p, y).interval
    weight = np.linspace(1, 9, 30)
    kish = weight.sum() ** 2 / (weight @ weight)
    assert accuracy(p, y, sample_weight=weight).interval[0] == pytest.approx(0.025 ** (1 / kish), abs=1e-12)
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(200):
        z, y = sure(30, rng)
        low, high = accuracy(z, y, sample_weight=rng.exponential(size=30) + 0.1, weights="importance").interval
        hits.append(low <= 0.99 <= high)
    assert np.mean(hits) >= 0.92


def test_copies_are_no_evidence():
    """Clusters of equal samples count as one sample each."""
    rng = np.random.default_rng(1)
    z = rng.random(40)
    y = (rng.random(40) < z).astype(int)
    codes = np.repeat(np.arange(40), 10)
    for score in (accuracy, brier_score):
        alone, copied = score(z, y), score(np.repeat(z, 10), np.repeat(y, 10), clusters=codes)
        assert copied.effective_size == pytest.approx(40, abs=1)
        assert copied.interval == pytest.approx(alone.interval, abs=0.01)
    p, y = right(300, 300)
    assert accuracy(p, y, clusters=np.arange(300) % 30).interval[0] == pytest.approx(0.025 ** (1 / 30), abs=1e-9)
    apart = accuracy(*right(150, 300), clusters=np.arange(300))
    assert apart.interval == pytest.approx(accuracy(*right(150, 300)).interval, abs=1e-9)


def test_all_roads_lead_to_the_same_interval():
    rng = np.random.default_rng(2)
    z = rng.random(40)
    y = (rng.random(40) < z).astype(int)
    weight = rng.integers(1, 4, 40).astype(float)
    clusters = np.arange(40) // 2
    for options in ({}, {"sample_weight": weight}, {"clusters": clusters}):
        found = evaluate(z, y, interval=False, **options)
        for name, score in (("accuracy", accuracy), ("brier_score", brier_score), ("log_loss", log_loss)):
            assert found[name].interval == pytest.approx(score(z, y, **options).interval, rel=1e-10)
    half = evaluate(z, y, metrics=["half_brier_score", "base_rate", "mean_probability"])
    assert half["half_brier_score"].interval == pytest.approx(brier_score(z, y, scale_by_half=True).interval, rel=1e-10)
    assert half["base_rate"].interval == pytest.approx(clopper_pearson(y.mean(), 40, 0.95), rel=1e-10)
    for made, score in (
        (AccuracyAccumulator(), accuracy),
        (BrierAccumulator(), brier_score),
        (LogLossAccumulator(), log_loss),
    ):
        for rows in (slice(0, 15), slice(15, 40)):
            made.update(z[rows], y[rows], weight[rows])
        assert made.compute().interval == pytest.approx(score(z, y, sample_weight=weight).interval, rel=1e-10)


def test_gains_of_many_samples_have_the_student_interval():
    z, p, y = (np.tile(part, 2000) for part in ([0.2, 0.7, 0.6, 0.9], [0.1, 0.8, 0.5, 0.9], [0, 1, 0, 1]))
    gain = calibration_gain(z, p, y)
    assert sum(gain.interval) / 2 == pytest.approx(float(gain), rel=1e-12)
    assert gain.bounds is None


def test_large_samples_have_the_student_interval():
    reach = 1.96 * 0.001
    found = bounded_interval(0.3, 0.001, SQUARED_ERROR, size=100_000, degrees=99_999, confidence=0.95)
    assert found == pytest.approx((0.3 - reach, 0.3 + reach), abs=0.02 * reach)
    for bounds in (NOT_NEGATIVE, Bounds(0, np.inf, unseen=5.0)):
        found = skewed_interval(0.3, 0.001, bounds, size=100_000, degrees=99_999, confidence=0.95)
        assert found == pytest.approx((0.3 - reach, 0.3 + reach), abs=0.02 * reach)
    error = np.sqrt(0.3 * 0.7 / 1e8)
    found = bounded_interval(0.3, error, PROPORTION, size=1e8, degrees=1e8, confidence=0.95)
    assert found == pytest.approx((0.3 - 1.96 * error, 0.3 + 1.96 * error), abs=1e-3 * error)

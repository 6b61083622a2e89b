import numpy as np
import pytest
from scipy.stats import binomtest

from mixnmatch.evaluation._binning import bin_linearly
from mixnmatch.evaluation.error import calibration_error
from mixnmatch.evaluation.estimators import ESTIMATORS, Histogram, ResidualKernel, Smooth, Sweep
from mixnmatch.evaluation.inference import (
    agreeing_interval,
    bootstrap_interval,
    calibration_test,
    cluster_inference,
    error_interval,
    largest_shift,
    mean_differences,
    normal_quantile,
    rank_p_value,
)
from mixnmatch.evaluation.notion import Outcomes


def draw(rng, n, slope=1.0):
    z = rng.random(n)
    return Outcomes(z, (rng.random(n) < 0.5 + slope * (z - 0.5)).astype(np.int8))


@pytest.mark.parametrize("name", ["kde-residual", "kde-residual-debiased", "kde", "histogram", "smooth"])
def test_level_and_power(name):
    rng = np.random.default_rng(0)
    chosen = ESTIMATORS[name]()
    null = [calibration_test(draw(rng, 128), chosen, 1, rng, resamples=99) for _ in range(120)]
    assert np.mean(np.array(null) <= 0.05) <= 0.11
    other = [calibration_test(draw(rng, 256, 0.5), chosen, 1, rng, resamples=99) for _ in range(15)]
    assert np.mean(np.array(other) <= 0.05) > 0.5


def test_resampling_on_nodes_is_resampling_of_rows(monkeypatch):
    outcomes = draw(np.random.default_rng(1), 3000, 0.93)
    rows = calibration_test(outcomes, ResidualKernel(), 1, np.random.default_rng(2))
    monkeypatch.setattr("mixnmatch.evaluation.inference.MOST_DRAWS", 10)
    nodes = calibration_test(outcomes, ResidualKernel(), 1, np.random.default_rng(3))
    assert nodes == pytest.approx(rows, abs=0.08)


@pytest.mark.parametrize("slope", [1.0, 0.6])
def test_coverage(slope):
    rng = np.random.default_rng(4)
    truth = (1 - slope) / 4
    ends = np.array([error_interval(draw(rng, 256, slope), ResidualKernel(), 1, rng) for _ in range(50)])
    assert np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])) >= 0.88
    assert np.mean(ends[:, 1] - ends[:, 0]) < 0.2


def test_coverage_of_curves_with_jumps():
    rng = np.random.default_rng(11)
    steps = np.array([0.05, 0.4, 0.5, 0.9])
    z = rng.beta(1.5, 1.5, (60, 5000))
    probability = steps[np.searchsorted([0.2, 0.5, 0.7], z)]
    y = (rng.random(z.shape) < probability).astype(np.int8)
    truth = np.abs(probability - z).mean()
    ends = np.array([error_interval(Outcomes(*pair), ResidualKernel(), 1, rng) for pair in zip(z, y, strict=True)])
    assert np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])) >= 0.9
    assert np.mean(ends[:, 1] - ends[:, 0]) < 0.04


@pytest.mark.parametrize(
    ("chosen", "norm"),
    [
        (ResidualKernel(), 2),
        (Smooth(), 1),
        (Histogram(bins=5), "max"),
        (Histogram(binning="equal-mass"), "max"),
        (Sweep(), "max"),
    ],
)
def test_other_errors_have_intervals(chosen, norm):
    rng = np.random.default_rng(5)
    low, high = error_interval(draw(rng, 2000, 0.5), chosen, norm, rng)
    truth = {2: 1 / 48, 1: 0.125, "max": 0.225}[norm]
    assert 0 < low < high < 0.5
    if norm != "max":
        assert 0.6 * low <= truth <= 1.6 * high


def test_confidence_widens():
    outcomes = draw(np.random.default_rng(6), 500, 0.5)
    narrow = error_interval(outcomes, ResidualKernel(), 1, np.random.default_rng(0), confidence=0.5)
    wide = error_interval(outcomes, ResidualKernel(), 1, np.random.default_rng(0), confidence=0.99)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


@pytest.mark.parametrize(
    ("z", "y"), [([0.3], [1]), ([0.5] * 5, [0, 1, 0, 1, 1]), ([0.0, 1.0], [0, 1]), ([1.0] * 4, [1] * 4)]
)
def test_degenerate_samples(z, y):
    outcomes = Outcomes(np.array(z), np.array(y, dtype=np.int8))
    rng = np.random.default_rng(0)
    low, high = error_interval(outcomes, ResidualKernel(), 1, rng)
    assert 0 <= low <= high <= 1
    assert 0 < calibration_test(outcomes, ResidualKernel(), 1, rng, resamples=50) <= 1


def test_weights():
    outcomes = draw(np.random.default_rng(7), 400, 0.5)
    doubled = Outcomes(outcomes.z, outcomes.y, np.full(400, 2.0))
    one = error_interval(outcomes, ResidualKernel(), 1, np.random.default_rng(0))
    two = error_interval(doubled, ResidualKernel(), 1, np.random.default_rng(0))
    assert two == pytest.approx(one, abs=0.03)
    assert calibration_test(doubled, ResidualKernel(), 1, np.random.default_rng(0), resamples=50) < 0.1


def test_groups_of_equal_rows():
    """Ten copies of each row are no more evidence than one."""
    rng = np.random.default_rng(8)
    rejected, naive = 0, 0
    for _ in range(60):
        single = draw(rng, 60)
        copies = Outcomes(np.repeat(single.z, 10), np.repeat(single.y, 10))
        groups = np.repeat(np.arange(60), 10)
        p_value, (low, high) = cluster_inference(copies, groups, 1, rng, resamples=99)
        rejected += p_value <= 0.05
        naive += calibration_test(copies, ResidualKernel(), 1, rng, resamples=50) <= 0.05
        assert 0 <= low <= high
    assert rejected <= 9
    assert naive > 30
    with pytest.raises(ValueError, match="norm 1 and 2"):
        cluster_inference(copies, groups, "max", rng)


def test_groups_cover():
    rng = np.random.default_rng(9)
    hits = 0
    for _ in range(40):
        single = draw(rng, 150, 0.5)
        copies = Outcomes(np.repeat(single.z, 4), np.repeat(single.y, 4))
        _, (low, high) = cluster_inference(copies, np.repeat(np.arange(150), 4), 1, rng, resamples=149)
        hits += low <= 0.125 <= high
    assert hits >= 34


def test_small_parts():
    assert rank_p_value(1.0, np.array([0.0, 2.0, 1.0])) == pytest.approx(3 / 4)
    assert normal_quantile(0.975) == pytest.approx(1.96, abs=1e-3)
    low, high = bootstrap_interval(0.1, np.linspace(0.08, 0.16, 101), 0.5)
    assert low == 0
    assert high >= 0.1
    assert bootstrap_interval(0.1, np.linspace(0.08, 0.12, 101), 0.01)[0] > 0.07


def test_all_right_is_no_proof_of_a_small_error():
    """The upper end is never below what Clopper and Pearson allow for the mean difference."""
    sure = Outcomes(np.full(100, 0.999), np.ones(100, dtype=np.int8))
    low, high = error_interval(sure, ResidualKernel(), 1, np.random.default_rng(0))
    assert low == 0
    assert high == pytest.approx(0.999 - 0.025 ** (1 / 100), abs=1e-9)
    rare = Outcomes(np.full(100, 0.001), np.zeros(100, dtype=np.int8))
    assert error_interval(rare, ResidualKernel(), 1, np.random.default_rng(0))[1] == pytest.approx(high, abs=1e-9)
    assert error_interval(sure, ResidualKernel(), 2, np.random.default_rng(0))[1] == pytest.approx(high**2, abs=1e-9)
    assert error_interval(sure, Smooth(), 1, np.random.default_rng(0))[1] >= high - 1e-9
    weighted = Outcomes(sure.z, sure.y, np.full(100, 7.0))
    assert error_interval(weighted, ResidualKernel(), 1, np.random.default_rng(0))[1] == pytest.approx(high, abs=1e-9)
    clusters = np.arange(100) // 4
    upper = cluster_inference(sure, clusters, 1, np.random.default_rng(0), resamples=50)[1][1]
    assert upper == pytest.approx(0.999 - 0.025 ** (1 / 25), abs=1e-9)


def test_the_mean_difference_is_of_the_less_likely_outcome():
    rng = np.random.default_rng(1)
    z = rng.choice([0.01, 0.99], 2000)
    y = (rng.random(2000) < z).astype(np.int8)
    grid = bin_linearly(z, y)
    wrong = int((y != (z > 0.5)).sum())
    exact = binomtest(wrong, 2000).proportion_ci(0.95, method="exact")
    found = mean_differences(grid, 2000, 0.95)[2]
    assert found == pytest.approx(max(exact.high - 0.01, 0.01 - exact.low), abs=1e-9)
    assert found < 0.4 * mean_differences(grid, 2000, 0.95, folded=False)[2]


def exact_shifts(z, y, level=0.95):
    """Mean differences after shifts of the log-odds that the exact test of the number of positives does not reject."""
    log_odds = np.log(z / (1 - z))
    kept = []
    for shift in np.linspace(-12, 12, 481):
        p = 1 / (1 + np.exp(-log_odds - shift))
        chance = np.ones(1)
        for one in p:
            chance = np.convolve(chance, [1 - one, one])
        k = int(y.sum())
        if min(chance[: k + 1].sum(), chance[k:].sum()) > (1 - level) / 2:
            kept.append(abs(p.mean() - z.mean()))
    return np.array(kept)


def test_the_upper_end_is_not_below_shifts_that_the_positives_allow():
    """All of 20 sharp predictions of both classes are right: few wrong ones of one class are as possible as of both."""
    z = np.array([0.9999, 0.9997, 0.9967, 0.0034, 0.9628, 0.9883, 0.2679, 0.0998, 0.0251, 0.0562,
                  0.1756, 0.8635, 0.9998, 0.9678, 0.4097, 0.9947, 0.9999, 0.1201, 0.984, 0.9999])  # fmt: skip
    y = (z > 0.5).astype(np.int8)
    for norm in (1, 2):
        assert calibration_error(z, y, norm=norm, interval=True).interval[1] >= exact_shifts(z, y).max() ** norm


def test_the_largest_shift():
    rng = np.random.default_rng(3)
    z = rng.uniform(0.55, 0.99, 60)
    y = (rng.random(60) < z).astype(np.int8)
    grid = bin_linearly(z, y)
    exact = binomtest(int(y.sum()), 60).proportion_ci(0.95, method="exact")
    allowed = max(exact.high - z.mean(), z.mean() - exact.low)
    assert largest_shift(grid, 60, 0.95) == pytest.approx(allowed, abs=1e-9)
    sharp = rng.choice([0.01, 0.99], 2000)
    grid = bin_linearly(sharp, (rng.random(2000) < sharp).astype(np.int8))
    assert largest_shift(grid, 2000, 0.95) < 0.4 * mean_differences(grid, 2000, 0.95, folded=False)[2]
    for n, scale in ((20, 3.0), (40, 1.0), (100, 5.0)):
        z = 1 / (1 + np.exp(-rng.normal(0, scale, n)))
        y = (rng.random(n) < z).astype(np.int8)
        grid = bin_linearly(z, y)
        found = largest_shift(grid, n, 0.95)
        assert found <= mean_differences(grid, n, 0.95, folded=False)[2]
        assert 0.9 < found / exact_shifts(z, y).max() < 1.4


def test_certainty_that_is_always_wrong_has_the_interval_of_its_rate():
    z = np.tile([0.0, 1.0], 20)
    error = calibration_error(z, 1 - z.astype(int), interval=True)
    exact = binomtest(40, 40).proportion_ci(method="exact")
    assert error.interval[0] <= exact.low
    assert error.interval == (pytest.approx(exact.low, abs=0.02), 1.0)


def test_equal_outcomes_have_the_interval_of_the_mean():
    z = np.random.default_rng(12).random(40)
    exact = binomtest(0, 40).proportion_ci(method="exact")
    for y, distance in ((0, z.mean()), (1, 1 - z.mean())):
        error = calibration_error(z, np.full(40, y), classes=[0, 1], interval=True)
        assert float(error) == pytest.approx(distance)
        assert error.interval == (pytest.approx(distance - exact.high), pytest.approx(distance))


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize(
    ("options", "n_classes"),
    [
        ({}, 2),
        ({"norm": 2}, 2),
        ({"estimator": "histogram"}, 2),
        ({"estimator": "kde-residual-debiased"}, 2),
        ({"estimator": "smooth"}, 2),
        ({"notion": "class-wise"}, 3),
    ],
)
def test_interval_estimate_and_test_agree(options, n_classes, level):
    rng = np.random.default_rng(2)
    verdicts = set()
    for n, slope in ((5, 1.0), (60, 0.7), (60, 0.9), (200, 0.8), (200, 1.0)):
        p = rng.dirichlet(np.ones(n_classes), n)
        blurred = slope * p + (1 - slope) / n_classes
        y = (blurred.cumsum(axis=1)[:, :-1] < rng.random((n, 1))).sum(axis=1)
        found = calibration_error(p, y, interval=True, confidence=level, **options)
        low, high = found.interval
        assert low <= found <= high
        assert (low > 0) == (found.p_value <= 1 - level)
        verdicts.add(low > 0)
    assert False in verdicts


def test_agreeing_interval():
    assert agreeing_interval((0.1, 0.2), 0.15, 0.3) == (0.0, 0.2)
    assert agreeing_interval((0.1, 0.2), 0.15, 0.05) == (0.1, 0.2)
    assert agreeing_interval((0.1, 0.2), 0.05, 0.01) == (0.05, 0.2)
    assert agreeing_interval((0.0, 0.2), 0.3, 0.01) == (pytest.approx(3e-4), 0.3)
    assert agreeing_interval((0.0, 0.2), -0.1, np.nan) == (0.0, 0.2)
    assert agreeing_interval((0.1, 0.2), 0.15, 0.1, confidence=0.9) == (0.1, 0.2)

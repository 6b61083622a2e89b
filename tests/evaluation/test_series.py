import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from mixnmatch.evaluation._binning import bin_linearly, bin_samples
from mixnmatch.evaluation.kde import kde_error
from mixnmatch.evaluation.series import (
    MOST_GROUPS,
    REST_SIZES,
    TERMS,
    ResidualSeries,
    beyond,
    group_nodes,
    mean_of_power,
)


def rare(rng, shape):
    z = 10 ** rng.uniform(-4, -2, shape)
    return z, rng.random(shape) < 3 * z


def almost_always_right(rng, shape):
    z = 1 - 10 ** rng.uniform(-4, -2, shape)
    return z, rng.random(shape) < 0.999


def one_confidence(rng, shape):
    return np.full(shape, 0.999), rng.random(shape) < 0.99


def saturated(rng, shape):
    return 1 / (1 + np.exp(-rng.normal(0, 50, shape))), rng.random(shape) < 0.5


def bounds(z, y, norm, weight=None):
    """Smallest and largest error that a calibration function with these means can have."""
    z_mean, y_mean = np.average(z, weights=weight), np.average(y, weights=weight)
    if norm == 1:
        return abs(y_mean - z_mean), min(y_mean + z_mean, 2 - y_mean - z_mean)
    squares, other = np.average(z**2, weights=weight), np.average((1 - z) ** 2, weights=weight)
    return (y_mean - z_mean) ** 2, min(y_mean + squares, 1 - y_mean + other)


# Groups replace confidences by their mean, which makes the mean of z^2 at most this much smaller.
SLACK = {1: 1e-12, 2: 1e-4}


def check_bounds(z, y, weight=None):
    series = ResidualSeries.of(bin_linearly(z, y, weight))
    for norm in (1, 2):
        low, high = bounds(z, y, norm, weight)
        plain, corrected = (float(series.error(norm=norm, debiased=chosen)[0]) for chosen in (False, True))
        assert low - SLACK[1] <= plain <= high + SLACK[norm]
        assert 0 <= corrected <= plain + 1e-15


@given(
    st.lists(st.tuples(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0])), st.booleans()), min_size=1, max_size=40)
)
@settings(max_examples=80, deadline=None)
def test_estimates_are_possible_for_small_samples(pairs):
    check_bounds(np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs], dtype=np.int8))


@pytest.mark.parametrize("draw", [rare, almost_always_right, one_confidence, saturated])
@pytest.mark.parametrize("n", [10, 1000])
def test_estimates_are_possible(draw, n):
    rng = np.random.default_rng(10)
    z, y = draw(rng, (100, n))
    for row, (a, b) in enumerate(zip(z, y.astype(np.int8), strict=True)):
        check_bounds(a, b, None if row % 2 else rng.exponential(size=n))


def test_three_times_as_many_rare_events():
    z, y = rare(np.random.default_rng(382), 1000)
    found = float(ResidualSeries.of(bin_linearly(z, y.astype(np.int8))).error()[0])
    assert abs(y.mean() - z.mean()) <= found <= y.mean() + z.mean()
    assert found == pytest.approx(0.006, abs=0.001)


def test_functions_are_orthonormal_over_the_sample():
    rng = np.random.default_rng(0)
    z = rng.beta(2, 1, 700)
    series = ResidualSeries.of(bin_linearly(z, (rng.random(700) < z**1.5).astype(np.int8)))
    share, p = series.groups.share[0], series.start[0]
    scaled = series.functions[0] / np.sqrt(p * (1 - p))[:, None]
    np.testing.assert_allclose(scaled.T @ (share[:, None] * scaled), np.eye(2 + TERMS), atol=1e-8)
    # The estimates are the scalar products of the functions with the standardised residuals.
    residual = series.groups.outcome[0] / 700 - share * p
    expected = np.sqrt(700) * (scaled[:, 2:] * (residual / np.sqrt(p * (1 - p)))[:, None]).sum(axis=0)
    np.testing.assert_allclose(series.coefficients[0], expected, atol=1e-8)
    # The first two functions are what intercept and slope of the start move.
    logit = np.log(series.groups.z[0] / (1 - series.groups.z[0]))
    direction = np.stack([p * (1 - p), p * (1 - p) * logit], axis=1)
    solved = np.linalg.lstsq(series.functions[0, :, :2], direction, rcond=None)[0]
    np.testing.assert_allclose(series.functions[0, :, :2] @ solved, direction, atol=1e-8)


def test_odds_of_models_are_ratios_of_normal_densities():
    rng = np.random.default_rng(1)
    z = rng.random(400)
    series = ResidualSeries.of(bin_linearly(z, (rng.random(400) < z).astype(np.int8)))
    k = np.arange(1, TERMS + 1)
    shapes = [np.exp(-k), np.exp(-k / 4), np.exp(-k / 16), 1 / k**2]
    models = [(0.0, shapes[0], 0.3)]
    models += [(size, shape, odds) for size, odds in REST_SIZES for shape in shapes]
    odds = np.array([model[2] for model in models]) / sum(model[2] for model in models)
    null = multivariate_normal(np.zeros(TERMS)).logpdf(series.coefficients[0])
    assert series.shrinkage[1].shape == (1, len(models))
    for model, (size, weight, _) in enumerate(models):
        prior = 400 * size**2 * weight / weight.sum()
        found = multivariate_normal(np.zeros(TERMS), np.diag(1 + prior)).logpdf(series.coefficients[0])
        assert series.shrinkage[1][0, model] == pytest.approx(found - null, abs=1e-9)
        assert series.posterior[0][0, model] == pytest.approx(found - null + np.log(odds[model]), abs=1e-9)
        np.testing.assert_allclose(series.shrinkage[0][0, model], prior / (1 + prior), atol=1e-12)


def test_mean_of_power():
    drawn = 0.3 + 0.2 * np.random.default_rng(2).standard_normal(1_000_000)
    for norm in (1, 2):
        found = mean_of_power(np.array(0.3), np.array(0.04), norm)
        assert float(found) == pytest.approx(np.mean(np.abs(drawn) ** norm), rel=3e-3)
    assert float(mean_of_power(np.array(-0.3), np.array(0.0), 1)) == pytest.approx(0.3)


@pytest.mark.parametrize("norm", [1, 2])
def test_residuals_beyond_the_possible_count_as_the_end(norm):
    drawn = 0.1 + 0.3 * np.random.default_rng(2).standard_normal(1_000_000)
    middle, variance = np.array(0.1), np.array(0.09)
    left = mean_of_power(middle, variance, norm)
    left = left - beyond(np.array(0.3), middle, variance, norm) - beyond(np.array(0.2), -middle, variance, norm)
    assert float(left) == pytest.approx(np.mean(np.abs(np.clip(drawn, -0.2, 0.3)) ** norm), rel=3e-3)
    # Without variance nothing is left of what is beyond.
    none = np.array(0.0)
    sure = mean_of_power(np.array(0.5), none, norm) - beyond(np.array(0.3), np.array(0.5), none, norm)
    assert float(sure) == pytest.approx(0.3**norm)


def test_groups():
    rng = np.random.default_rng(3)
    z = rng.beta(1, 3, 5000)
    y = (rng.random(5000) < z).astype(np.int8)
    grid = bin_linearly(z, y)
    groups = group_nodes(grid)
    assert groups.count.shape[-1] <= MOST_GROUPS
    assert groups.count.max() < 3 * 5000 / MOST_GROUPS
    assert groups.count @ groups.z[0] == pytest.approx(z.sum())
    np.testing.assert_allclose(
        groups.gather(np.stack([grid.count, grid.outcome])), [groups.count[0], groups.outcome[0]]
    )
    values = np.array([0.1, 0.3, 0.5, 0.8])
    few = group_nodes(bin_linearly(np.repeat(values, 10), np.tile([0, 1], 20).astype(np.int8)))
    np.testing.assert_allclose(few.z[0], values)
    np.testing.assert_allclose(few.count[0], 10)


def test_few_values_are_fitted_exactly():
    """Three values that are symmetric: the first cosine is a multiple of the slope, the second one must not be lost."""
    z = np.repeat([0.25, 0.5, 0.75], 100_000)
    truth = np.repeat([0.25, 0.6, 0.75], 100_000)
    y = (np.random.default_rng(5).random(len(z)) < truth).astype(np.int8)
    series = ResidualSeries.of(bin_linearly(z, y))
    assert series.alive.sum() == 1
    assert float(series.error()[0]) == pytest.approx(0.1 / 3, rel=0.05)


def test_finds_a_curve_that_is_not_logistic():
    rng = np.random.default_rng(0)
    z = rng.random(400_000)
    bump = 0.15 * np.exp(-0.5 * ((z - 0.6) / 0.08) ** 2)
    series = ResidualSeries.of(bin_linearly(z, rng.random(len(z)) < z + bump))
    assert float(series.error()[0]) == pytest.approx(bump.mean(), rel=0.05)
    assert float(series.error(norm=2)[0]) == pytest.approx((bump**2).mean(), rel=0.05)


def test_more_accurate_than_the_papers_kernel_on_waves():
    rng = np.random.default_rng(4)
    z = rng.random((100, 1000))
    wave = 0.1 * np.sin(6 * np.pi * z)
    grid = bin_samples(z, rng.random(z.shape) < z + wave)
    truth = 0.2 / np.pi
    ours, paper = (np.abs(found - truth).mean() for found in (ResidualSeries.of(grid).error(), kde_error(grid)))
    assert ours < 0.75 * paper


def test_calibrated_data_have_little_error():
    rng = np.random.default_rng(1)
    z = rng.random((100, 2000))
    grid = bin_samples(z, rng.random(z.shape) < z)
    series = ResidualSeries.of(grid)
    assert series.error().mean() < 0.8 * kde_error(grid).mean()
    assert series.error(debiased=True).mean() < 0.2 * kde_error(grid).mean()


def test_many_problems_are_the_single_ones():
    rng = np.random.default_rng(2)
    z = rng.beta(2, 1, (5, 300))
    z[3], z[4] = 0.5, np.round(z[4], 1)
    y = (rng.random(z.shape) < z**2).astype(np.int8)
    y[2] = 1
    together = ResidualSeries.of(bin_samples(z, y)).error()
    apart = [float(ResidualSeries.of(bin_linearly(a, b)).error()[0]) for a, b in zip(z, y, strict=True)]
    np.testing.assert_allclose(together, apart, rtol=1e-9)


def test_weights_are_repetitions():
    rng = np.random.default_rng(3)
    z = rng.random(200)
    y = (rng.random(200) < z).astype(np.int8)
    times = rng.integers(0, 4, 200)
    weighted = ResidualSeries.of(bin_linearly(z, y, times.astype(float)))
    repeated = ResidualSeries.of(bin_linearly(np.repeat(z, times), np.repeat(y, times)))
    np.testing.assert_allclose(weighted.error(), repeated.error(), rtol=1e-9)


def test_sure_and_wrong():
    series = ResidualSeries.of(bin_linearly(np.ones(50), np.zeros(50, dtype=np.int8)))
    assert float(series.error()[0]) == pytest.approx(1.0, abs=1e-9)
    assert float(series.error(debiased=True)[0]) == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(ValueError, match="norm"):
        series.error(norm=3)


@pytest.mark.parametrize(("n", "tolerance"), [(12, 0.2), (52, 0.1), (1000, 0.02)])
def test_certain_and_wrong_half_of_the_time(n, tolerance):
    z = np.arange(n) % 2.0
    y = (np.arange(n) // 2 % 2).astype(np.int8)
    series = ResidualSeries.of(bin_linearly(z, y))
    assert float(series.error()[0]) == pytest.approx(0.5, abs=tolerance)
    assert float(series.error(debiased=True)[0]) == pytest.approx(0.5, abs=tolerance)


@pytest.mark.parametrize("outcome", [0, 1])
def test_outcomes_that_are_all_equal(outcome):
    z = np.random.default_rng(11).beta(1, 30, 50)
    series = ResidualSeries.of(bin_linearly(z, np.full(50, outcome, dtype=np.int8)))
    assert float(series.error()[0]) == pytest.approx(abs(outcome - z.mean()), abs=1e-12)

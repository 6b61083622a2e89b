import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixnmatch.evaluation._binning import bin_linearly, bin_samples
from mixnmatch.evaluation.adaptive import _logistic_start, residual_curve
from mixnmatch.evaluation.kde import residual_error


@given(
    st.lists(st.tuples(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0])), st.booleans()), min_size=1, max_size=40)
)
@settings(max_examples=80, deadline=None)
def test_never_below_the_difference_of_means(pairs):
    z = np.array([p[0] for p in pairs])
    y = np.array([p[1] for p in pairs], dtype=np.int8)
    curve = residual_curve(bin_linearly(z, y))
    grid = curve.grid
    assert (grid.count @ curve.values) / grid.total[0] == pytest.approx(y.mean() - z.mean(), abs=1e-9)
    plain = float(curve.error())
    assert abs(y.mean() - z.mean()) <= plain + 1e-12
    assert 0 <= float(curve.error(debiased=True)) <= plain
    assert float(curve.error(norm=2)) >= plain**2 - 1e-9


def test_finds_a_curve_that_is_not_logistic():
    rng = np.random.default_rng(0)
    z = rng.random(400_000)
    bump = 0.15 * np.exp(-0.5 * ((z - 0.6) / 0.08) ** 2)
    curve = residual_curve(bin_linearly(z, rng.random(len(z)) < z + bump))
    nodes = curve.grid.nodes
    np.testing.assert_allclose(curve.values, 0.15 * np.exp(-0.5 * ((nodes - 0.6) / 0.08) ** 2), atol=0.02)
    assert float(curve.error()) == pytest.approx(bump.mean(), rel=0.08)


def test_calibrated_data_have_little_signal():
    rng = np.random.default_rng(1)
    z = rng.random((300, 200))
    grid = bin_samples(z, rng.random(z.shape) < z)
    curve = residual_curve(grid)
    assert np.median(curve.signal) < 3
    assert curve.error(debiased=True).mean() < 0.6 * residual_error(grid).mean()


def test_many_problems_are_the_single_ones():
    rng = np.random.default_rng(2)
    z = rng.beta(2, 1, (5, 300))
    y = (rng.random(z.shape) < z**2).astype(np.int8)
    together = residual_curve(bin_samples(z, y)).error()
    apart = [float(residual_curve(bin_linearly(a, b)).error()) for a, b in zip(z, y, strict=True)]
    np.testing.assert_allclose(together, apart, rtol=1e-3)


def test_weights_are_repetitions():
    rng = np.random.default_rng(3)
    z = rng.random(200)
    y = (rng.random(200) < z).astype(np.int8)
    times = rng.integers(0, 4, 200)
    weighted = residual_curve(bin_linearly(z, y, times.astype(float)))
    repeated = residual_curve(bin_linearly(np.repeat(z, times), np.repeat(y, times)))
    np.testing.assert_allclose(weighted.values, repeated.values, atol=1e-9)


def test_sure_and_wrong():
    grid = bin_linearly(np.ones(50), np.zeros(50, dtype=np.int8))
    curve = residual_curve(grid)
    assert float(curve.error()) == pytest.approx(1.0, abs=1e-9)
    assert float(curve.error(debiased=True)) == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(ValueError, match="norm"):
        curve.error(norm=3)


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


def bounds(z, y, norm, weight):
    """Smallest and largest error that a calibration function with these means can have."""
    z_mean, y_mean = np.average(z, weights=weight), np.average(y, weights=weight)
    if norm == 1:
        return abs(y_mean - z_mean), min(y_mean + z_mean, 2 - y_mean - z_mean)
    squares, other = np.average(z**2, weights=weight), np.average((1 - z) ** 2, weights=weight)
    return (y_mean - z_mean) ** 2, min(y_mean + squares, 1 - y_mean + other)


@pytest.mark.parametrize("draw", [rare, almost_always_right, one_confidence, saturated])
@pytest.mark.parametrize("n", [10, 1000])
def test_estimates_are_possible(draw, n):
    rng = np.random.default_rng(10)
    z, y = draw(rng, (100, n))
    # A grid of 257 nodes or more adds at most a quarter of a squared cell to the mean of z^2.
    slack = {1: 1e-12, 2: 0.25 / 256**2}
    for row, (a, b) in enumerate(zip(z, y.astype(np.int8), strict=True)):
        weight = None if row % 2 else rng.exponential(size=n)
        grid = bin_linearly(a, b, weight)
        start = _logistic_start(grid)
        assert grid.count @ start == pytest.approx(grid.outcome.sum(), abs=1e-8 * grid.total[0])
        curve = residual_curve(grid)
        probability = curve.values + curve.grid.nodes
        assert probability.min() >= -1e-15
        assert probability.max() <= 1 + 1e-15
        for norm in (1, 2):
            low, high = bounds(a, b, norm, weight)
            assert low - 1e-12 <= float(curve.error(norm=norm)) <= high + slack[norm]
            assert 0 <= float(curve.error(norm=norm, debiased=True)) <= high + slack[norm]


def test_the_logistic_start_is_at_the_optimum():
    from scipy.optimize import minimize

    z, y = rare(np.random.default_rng(382), 1000)
    grid = bin_linearly(z, y.astype(np.int8))
    logit = np.log(np.clip(grid.nodes, 1 / 2048, 2047 / 2048)) - np.log1p(-np.clip(grid.nodes, 1 / 2048, 2047 / 2048))

    def loss(theta):
        eta = theta[0] + theta[1] * logit
        return grid.count @ np.logaddexp(0, eta) - grid.outcome @ eta + 0.5 * (theta[1] - 1) ** 2

    best = minimize(loss, [0.0, 1.0], method="BFGS", options={"gtol": 1e-8}).x
    np.testing.assert_allclose(_logistic_start(grid), 1 / (1 + np.exp(-best[0] - best[1] * logit)), atol=1e-6)
    assert float(residual_curve(grid).error()) == pytest.approx(0.006, abs=0.001)


@pytest.mark.parametrize("outcome", [0, 1])
def test_outcomes_that_are_all_equal(outcome):
    z = np.random.default_rng(11).beta(1, 30, 50)
    grid = bin_linearly(z, np.full(50, outcome, dtype=np.int8))
    assert (_logistic_start(grid) == outcome).all()
    assert float(residual_curve(grid).error()) == pytest.approx(abs(outcome - z.mean()), abs=1e-12)

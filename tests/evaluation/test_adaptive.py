import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixnmatch.evaluation._binning import bin_linearly, bin_samples
from mixnmatch.evaluation.adaptive import _logistic_start, residual_curve


@given(
    st.lists(st.tuples(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0])), st.booleans()), min_size=1, max_size=40)
)
@settings(max_examples=80, deadline=None)
def test_curves_are_probabilities_with_the_mean_of_the_outcomes(pairs):
    z = np.array([p[0] for p in pairs])
    y = np.array([p[1] for p in pairs], dtype=np.int8)
    curve = residual_curve(bin_linearly(z, y))
    grid = curve.grid
    assert (grid.count @ curve.values) / grid.total[0] == pytest.approx(y.mean() - z.mean(), abs=1e-9)
    probability = curve.values + grid.nodes
    assert probability.min() >= -1e-15
    assert probability.max() <= 1 + 1e-15


def test_finds_a_curve_that_is_not_logistic():
    rng = np.random.default_rng(0)
    z = rng.random(400_000)
    bump = 0.15 * np.exp(-0.5 * ((z - 0.6) / 0.08) ** 2)
    curve = residual_curve(bin_linearly(z, rng.random(len(z)) < z + bump))
    nodes = curve.grid.nodes
    np.testing.assert_allclose(curve.values, 0.15 * np.exp(-0.5 * ((nodes - 0.6) / 0.08) ** 2), atol=0.02)


def test_many_problems_are_the_single_ones():
    rng = np.random.default_rng(2)
    z = rng.beta(2, 1, (5, 300))
    y = (rng.random(z.shape) < z**2).astype(np.int8)
    together = residual_curve(bin_samples(z, y))
    for k in range(5):
        apart = residual_curve(bin_linearly(z[k], y[k]))
        nodes = apart.grid.nodes
        held = (nodes >= z[k].min()) & (nodes <= z[k].max())
        found = np.interp(nodes, together.grid.nodes, together.values[k])
        np.testing.assert_allclose(found[held], apart.values[held], atol=2e-3)


def test_weights_are_repetitions():
    rng = np.random.default_rng(3)
    z = rng.random(200)
    y = (rng.random(200) < z).astype(np.int8)
    times = rng.integers(0, 4, 200)
    weighted = residual_curve(bin_linearly(z, y, times.astype(float)))
    repeated = residual_curve(bin_linearly(np.repeat(z, times), np.repeat(y, times)))
    np.testing.assert_allclose(weighted.values, repeated.values, atol=1e-9)


@pytest.mark.parametrize("n", [10, 1000])
def test_the_start_has_the_mean_of_the_outcomes(n):
    rng = np.random.default_rng(10)
    for row in range(50):
        z = 10 ** rng.uniform(-4, -2, n)
        y = (rng.random(n) < 3 * z).astype(np.int8)
        grid = bin_linearly(z, y, None if row % 2 else rng.exponential(size=n))
        assert grid.count @ _logistic_start(grid) == pytest.approx(grid.outcome.sum(), abs=1e-8 * grid.total[0])


def test_the_logistic_start_is_at_the_optimum():
    from scipy.optimize import minimize

    rng = np.random.default_rng(382)
    z = 10 ** rng.uniform(-4, -2, 1000)
    grid = bin_linearly(z, (rng.random(1000) < 3 * z).astype(np.int8))
    logit = np.log(np.clip(grid.nodes, 1 / 2048, 2047 / 2048)) - np.log1p(-np.clip(grid.nodes, 1 / 2048, 2047 / 2048))

    def loss(theta):
        eta = theta[0] + theta[1] * logit
        return grid.count @ np.logaddexp(0, eta) - grid.outcome @ eta + 0.5 * (theta[1] - 1) ** 2

    best = minimize(loss, [0.0, 1.0], method="BFGS", options={"gtol": 1e-8}).x
    np.testing.assert_allclose(_logistic_start(grid), 1 / (1 + np.exp(-best[0] - best[1] * logit)), atol=1e-6)


@pytest.mark.parametrize("outcome", [0, 1])
def test_outcomes_that_are_all_equal(outcome):
    z = np.random.default_rng(11).beta(1, 30, 50)
    grid = bin_linearly(z, np.full(50, outcome, dtype=np.int8))
    assert (_logistic_start(grid) == outcome).all()

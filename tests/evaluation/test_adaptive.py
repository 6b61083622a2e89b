import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixnmatch.evaluation._binning import bin_linearly, bin_samples
from mixnmatch.evaluation.adaptive import residual_curve
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

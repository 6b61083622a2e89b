import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixnmatch.evaluation._binning import bin_linearly
from mixnmatch.evaluation.kde import (
    SUPPORT,
    Smoother,
    authors_rule,
    choose_bandwidth,
    kde_error,
    kernel_masses,
    residual_error,
    residual_error_debiased,
    rule_of_thumb,
)

NORMALISER = {"triweight": 35 / 32, "epanechnikov": 3 / 4}


def density(u, kernel, h):
    """A kernel of standard deviation h."""
    if kernel == "gaussian":
        return np.exp(-0.5 * (u / h) ** 2) / (h * np.sqrt(2 * np.pi))
    reach = SUPPORT[kernel] * h
    power = 3 if kernel == "triweight" else 1
    return NORMALISER[kernel] * np.maximum(1 - (u / reach) ** 2, 0) ** power / reach


def direct(z, y, h, kernel, norm, residual, weight=None):
    """O(n x grid) sums, mirrored as often as the kernel reaches."""
    x = np.linspace(0, 1, 2001)
    own = np.ones(len(z)) if weight is None else weight
    k = np.zeros((len(x), len(z)))
    for turn in range(-6, 7):
        k += density(x[:, None] - z + 2 * turn, kernel, h) + density(x[:, None] + z + 2 * turn, kernel, h)
    p = k @ own
    difference = k @ (own * (y - z)) if residual else k @ (own * y) - x * p
    inside = p > 1e-12
    integrand = np.where(inside, np.abs(difference) ** norm / np.where(inside, p, 1) ** (norm - 1), 0)
    return np.trapezoid(integrand, x) / own.sum()


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(0)
    z = rng.beta(3, 1, 200)
    z[:3] = 0.0, 1.0, 1.0
    return z, (rng.random(200) < z**1.5).astype(np.int8)


@pytest.mark.parametrize("kernel", list(SUPPORT))
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("h", [0.05, 0.2, 0.9])
def test_against_direct_sums(sample, kernel, norm, h):
    z, y = sample
    grid = bin_linearly(z, y)
    for estimate, residual in ((kde_error, False), (residual_error, True)):
        value = float(estimate(grid, norm=norm, bandwidth=h, kernel=kernel))
        assert value == pytest.approx(direct(z, y, h, kernel, norm, residual), rel=2e-3, abs=2e-6)


def test_nodes_have_converged(sample):
    z, y = sample
    values = [float(kde_error(bin_linearly(z, y, n_nodes=n), bandwidth="paper")) for n in (2049, 8193)]
    assert values[0] == pytest.approx(values[1], rel=1e-4)


def test_kernels_have_unit_mass_and_the_right_spread():
    cells = 2048
    for kernel in SUPPORT:
        masses = kernel_masses(np.array(0.03), cells + 1, kernel)
        x = np.arange(cells + 1) / cells
        assert 2 * masses.sum() - masses[0] - masses[-1] == pytest.approx(1)
        assert np.sqrt(2 * masses @ x**2) == pytest.approx(0.03, rel=1e-3)
    with pytest.raises(ValueError, match="kernel must be one of"):
        kernel_masses(np.array(0.1), 65, "box")


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30),
    st.floats(1e-3, 50),
    st.sampled_from(list(SUPPORT)),
)
@settings(max_examples=60, deadline=None)
def test_residual_error_is_never_below_the_difference_of_means(pairs, h, kernel):
    z = np.array([p[0] for p in pairs])
    y = np.array([p[1] for p in pairs], dtype=np.int8)
    value = float(residual_error(bin_linearly(z, y), bandwidth=h, kernel=kernel))
    assert value >= abs(y.mean() - z.mean()) - 1e-12
    assert value <= 1 + 1e-9


def test_wide_kernels_leave_the_difference_of_means(sample):
    z, y = sample
    value = float(residual_error(bin_linearly(z, y), bandwidth=1e6))
    assert value == pytest.approx(abs(y.mean() - z.mean()), rel=1e-9)


@pytest.mark.parametrize("estimate", [kde_error, residual_error, residual_error_debiased])
@pytest.mark.parametrize("norm", [1, 2])
def test_weights_are_repetitions(sample, estimate, norm):
    z, y = sample
    times = np.arange(len(z)) % 3
    weighted = estimate(bin_linearly(z, y, times.astype(float)), norm=norm)
    repeated = estimate(bin_linearly(np.repeat(z, times), np.repeat(y, times)), norm=norm)
    assert float(weighted) == pytest.approx(float(repeated), rel=1e-9)


def test_bandwidth_rules(sample):
    z, y = sample
    grid = bin_linearly(z, y)
    assert float(rule_of_thumb(grid)) == pytest.approx(1.06 * z.std() * 200**-0.2, rel=1e-4)
    assert float(authors_rule(grid)) == pytest.approx(z[y == 1].std() * 400**-0.2, rel=1e-4)
    none = bin_linearly(z, np.zeros(len(z), dtype=np.int8))
    assert float(authors_rule(none)) == pytest.approx(z.std() * 400**-0.2, rel=1e-4)
    with pytest.raises(ValueError, match="bandwidth must be"):
        choose_bandwidth(grid, "silverman")
    with pytest.raises(ValueError, match="positive"):
        choose_bandwidth(grid, 0.0)
    with pytest.raises(ValueError, match="norm must be"):
        kde_error(grid, norm=3)


def test_smoother_keeps_sums():
    rng = np.random.default_rng(1)
    masses = rng.normal(size=(3, 129))
    for h in (1e-9, 0.02, 0.7, 30.0):
        np.testing.assert_allclose(Smoother(h, 129).mass(masses).sum(axis=-1), masses.sum(axis=-1), atol=1e-11)


@pytest.mark.parametrize("estimate", [kde_error, residual_error, residual_error_debiased])
@pytest.mark.parametrize(
    ("z", "y"), [([0.3], [1]), ([0.5] * 4, [0, 1, 0, 1]), ([0.0, 1.0], [0, 1]), ([1.0, 1.0], [1, 1])]
)
def test_degenerate_samples(estimate, z, y):
    for norm in (1, 2):
        value = float(estimate(bin_linearly(np.array(z), np.array(y)), norm=norm))
        assert np.isfinite(value)
        assert 0 <= value <= 1
    if z[0] == 1.0:
        assert value == pytest.approx(0, abs=1e-3)


def test_correction_lowers(sample):
    rng = np.random.default_rng(5)
    z = rng.random((200, 128))
    y = rng.random(z.shape) < z
    from mixnmatch.evaluation._binning import bin_samples

    grid = bin_samples(z, y)
    for norm in (1, 2):
        plain, corrected = residual_error(grid, norm=norm), residual_error_debiased(grid, norm=norm)
        assert np.all(corrected <= plain + 1e-12)
        assert corrected.mean() < 0.5 * plain.mean()

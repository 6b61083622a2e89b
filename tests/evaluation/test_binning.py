import numpy as np
import pytest

from mixnmatch.evaluation._binning import Grid, bin_columns, bin_linearly, bin_samples


def brute(z, mass, n_nodes):
    nodes = np.linspace(0, 1, n_nodes)
    hat = np.maximum(1 - np.abs(nodes - z[:, None]) * (n_nodes - 1), 0)
    return mass @ hat


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.random(200), [0.0, 1.0, 0.5]])
    return z, (rng.random(len(z)) < z).astype(np.int8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [np.int8, bool, np.float64])
def test_hats(sample, weighted, kind):
    z, y = sample
    weight = np.arange(len(z)) % 4 * 0.5 if weighted else None
    own = np.ones(len(z)) if weight is None else weight
    grid = bin_linearly(z, y.astype(kind), weight, n_nodes=33)
    np.testing.assert_allclose(grid.count, brute(z, own, 33), atol=1e-12)
    np.testing.assert_allclose(grid.outcome, brute(z, own * y, 33), atol=1e-12)


def test_fractional_outcomes(sample):
    z, _ = sample
    y = np.random.default_rng(1).random(len(z))
    grid = bin_linearly(z, y, n_nodes=17)
    np.testing.assert_allclose(grid.outcome, brute(z, y, 17), atol=1e-12)


def test_sums_and_means_are_kept(sample):
    z, y = sample
    grid = bin_linearly(z, y)
    assert grid.count.sum() == pytest.approx(len(z), rel=1e-13)
    assert grid.count @ grid.nodes == pytest.approx(z.sum(), rel=1e-13)
    assert grid.residual.sum() == pytest.approx((y - z).sum(), abs=1e-11)


def test_blocks_do_not_matter():
    rng = np.random.default_rng(2)
    z = rng.random(100_000)
    y = rng.random(100_000) < z
    whole = bin_linearly(z, y)
    parts = bin_linearly(z[:12_345], y[:12_345]) + bin_linearly(z[12_345:], y[12_345:])
    np.testing.assert_allclose(whole.count, parts.count, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(whole.outcome, parts.outcome, rtol=1e-12, atol=1e-12)


def test_coarsening_is_binning(sample):
    z, y = sample
    fine, coarse = bin_linearly(z, y, n_nodes=65), bin_linearly(z, y, n_nodes=17)
    np.testing.assert_allclose(fine.coarsened(17).count, coarse.count, atol=1e-12)
    np.testing.assert_allclose(fine.coarsened(17).outcome, coarse.outcome, atol=1e-12)
    assert fine.coarsened(65) is fine
    with pytest.raises(ValueError, match="nest"):
        fine.coarsened(18)


def test_columns_and_samples():
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(4), 300)
    labels = rng.integers(0, 4, 300)
    weight = rng.integers(0, 3, 300).astype(float)
    grid = bin_columns(p, labels, weight, n_nodes=65)
    samples = bin_samples(p.T, np.arange(4)[:, None] == labels, n_nodes=65)
    for k in range(4):
        one = bin_linearly(p[:, k], labels == k, weight, n_nodes=65)
        np.testing.assert_allclose(grid.count[k], one.count, atol=1e-12)
        np.testing.assert_allclose(grid.outcome[k], one.outcome, atol=1e-12)
        plain = bin_linearly(p[:, k], labels == k, n_nodes=65)
        np.testing.assert_allclose(samples.count[k], plain.count, atol=1e-12)
        np.testing.assert_allclose(samples.outcome[k], plain.outcome, atol=1e-12)


def test_spread():
    z = np.array([0.0, 1.0])
    assert bin_linearly(z, np.array([0, 1])).spread()[0] == pytest.approx(0.5)
    assert Grid(np.array([0.0, 3.0, 0.0]), np.zeros(3)).spread()[0] == pytest.approx(0.0, abs=1e-9)

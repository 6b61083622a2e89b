import numpy as np
import pytest

from mixnmatch.evaluation._binning import Grid, bin_linearly, bin_samples
from mixnmatch.evaluation.kde import spectrum
from mixnmatch.evaluation.smooth import smooth_error, summed_error

RELPLOT_VALUE = 0.06431502644840381


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    z = rng.beta(4, 1, 300)
    return z, (rng.random(300) < z**1.4).astype(np.int8)


def direct(z, y, width):
    t = np.linspace(0, 1, 2001)
    kernel = np.zeros((len(t), len(z)))
    for turn in range(-4, 5):
        for image in (z, -z):
            kernel += np.exp(-0.5 * ((t[:, None] - image + 2 * turn) / width) ** 2)
    kernel /= width * np.sqrt(2 * np.pi)
    return np.trapezoid(np.abs(kernel @ (y - z)), t) / len(z)


@pytest.mark.parametrize("width", [0.02, 0.1, 0.8])
def test_against_direct_sums(sample, width):
    z, y = sample
    ours = float(summed_error(spectrum(bin_linearly(z, y).residual), np.array(width))) / len(z)
    assert ours == pytest.approx(direct(z, y, width), rel=1e-4)


def test_fixed_point(sample):
    z, y = sample
    found = smooth_error(bin_linearly(z, y))
    assert float(found.value) == pytest.approx(float(found.width), abs=1e-8)
    assert direct(z, y, float(found.width)) == pytest.approx(float(found.value), rel=1e-3)


def test_against_relplot():
    # relplot 1.0.3 on the same data: smECE(f, y) with ReflectedGaussianKernel, whose bisection stops at 1/1024.
    i = np.arange(1, 2001)
    z = (i - 0.5) / 2000
    y = ((i * 7919) % 2000 / 2000 < z**1.3).astype(np.int8)
    assert float(smooth_error(bin_linearly(z, y)).value) == pytest.approx(RELPLOT_VALUE, abs=1e-3)


def test_narrow_fixed_points_use_the_fine_grid():
    rng = np.random.default_rng(1)
    z = rng.random(200_000)
    y = (rng.random(len(z)) < z).astype(np.int8)
    found = smooth_error(bin_linearly(z, y))
    assert float(found.width) < 0.02
    assert float(found.value) == pytest.approx(float(found.width), abs=1e-8)


def test_degenerate():
    assert float(smooth_error(bin_linearly(np.array([1.0]), np.array([1]))).value) == pytest.approx(0, abs=1e-6)
    assert float(smooth_error(bin_linearly(np.array([0.4]), np.array([1]))).value) == pytest.approx(0.6, abs=1e-6)
    constant = bin_linearly(np.full(10, 0.5), np.array([0, 1] * 5))
    assert float(smooth_error(constant).value) == pytest.approx(0, abs=2e-3)


def test_many_at_once(sample):
    z, y = sample
    grid = bin_samples(np.stack([z, z]), np.stack([y, 1 - y]))
    found = smooth_error(grid).value
    assert found[0] == pytest.approx(float(smooth_error(bin_linearly(z, y)).value), abs=1e-6)


def test_problems_of_a_grid_do_not_depend_on_each_other():
    rng = np.random.default_rng(0)
    count = rng.random((3, 4097))
    nodes = np.linspace(0, 1, 4097)
    outcome = count * np.clip(nodes + np.array([[0.001], [0.2], [0.005]]), 0, 1)
    together = smooth_error(Grid(count, outcome))
    alone = [smooth_error(Grid(*parts)) for parts in zip(count, outcome, strict=True)]
    np.testing.assert_allclose(together.value, [float(one.value) for one in alone], rtol=1e-9)
    assert together.width[0] < 0.02 < together.width[1]

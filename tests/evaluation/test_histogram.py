import numpy as np
import pytest

from mixnmatch.evaluation.histogram import Sorted, bin_sums, count_bins, sweep


def direct(z, y, n_bins, norm):
    total = 0.0
    for b in range(n_bins):
        last = b == n_bins - 1
        inside = (z >= b / n_bins) & ((z < (b + 1) / n_bins) | (last & (z == 1)))
        if inside.any():
            total += inside.mean() * abs(y[inside].mean() - z[inside].mean()) ** norm
    return total


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.beta(4, 1, 500), [0.0, 1.0, 1.0]])
    return z, (rng.random(len(z)) < z).astype(np.int8)


@pytest.mark.parametrize("bins", [1, 2, 8, 64])
@pytest.mark.parametrize("norm", [1, 2])
def test_equal_width(sample, bins, norm):
    z, y = sample
    assert bin_sums(z, y, bins=bins).error(norm) == pytest.approx(direct(z, y, bins, norm), rel=1e-12)
    assert bin_sums(z, y.astype(float), bins=bins).error(norm) == pytest.approx(direct(z, y, bins, norm), rel=1e-12)


def test_zero_and_one_land_in_the_outer_bins():
    sums = bin_sums(np.array([0.0, 1.0, 1.0]), np.array([0, 1, 1]), bins=15)
    assert sums.weight.tolist() == [1.0] + [0.0] * 13 + [2.0]
    assert sums.error(1) == 0
    assert sums.error("max") == 0


def test_fifty_bins_are_fifty():
    z = (np.arange(50) + 0.5) / 50
    assert bin_sums(z, np.zeros(50, dtype=int), bins=50).weight.tolist() == [1.0] * 50


@pytest.mark.parametrize("binning", ["equal-width", "equal-mass"])
@pytest.mark.parametrize("norm", [1, 2, "max"])
def test_weights_are_repetitions(sample, binning, norm):
    z, y = sample
    z = np.round(z, 1)
    times = np.arange(len(z)) % 4
    weighted = bin_sums(z, y, times.astype(float), bins=7, binning=binning)
    repeated = bin_sums(np.repeat(z, times), np.repeat(y, times), bins=7, binning=binning)
    assert weighted.error(norm) == pytest.approx(repeated.error(norm), rel=1e-10)
    assert weighted.debiased() == pytest.approx(repeated.debiased(), rel=1e-9, abs=1e-14)


def test_equal_mass_without_ties_is_an_even_split():
    rng = np.random.default_rng(1)
    z = rng.permutation(np.linspace(0.01, 0.99, 120))
    y = (rng.random(120) < z).astype(int)
    sums = bin_sums(z, y, bins=8, binning="equal-mass")
    assert sums.weight.tolist() == [15.0] * 8
    order = np.argsort(z)
    parts = [abs((y - z)[part].sum()) for part in np.array_split(order, 8)]
    assert sums.error(1) == pytest.approx(sum(parts) / 120)


def test_ties_are_never_split():
    z = np.array([0.2] * 10 + [0.7] * 3 + [0.9])
    sums = bin_sums(z, np.zeros(14), bins=4, binning="equal-mass")
    assert sorted(sums.weight[sums.weight > 0]) == [4.0, 10.0]
    shuffled = np.random.default_rng(0).permutation(14)
    again = bin_sums(z[shuffled], np.zeros(14), bins=4, binning="equal-mass")
    assert again.weight.tolist() == sums.weight.tolist()


def test_debiased_is_unbiased():
    rng = np.random.default_rng(2)
    z = np.repeat([0.1, 0.5, 0.9], 20)
    values = []
    for _ in range(4000):
        y = (rng.random(60) < z + 0.05).astype(int)
        values.append(bin_sums(z, y, bins=3).debiased())
    assert np.mean(values) == pytest.approx(0.05**2, abs=4 * np.std(values) / np.sqrt(4000))
    assert bin_sums(np.array([0.3]), np.array([1]), bins=3).debiased() == pytest.approx(0.49)


def test_sweep():
    z = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9])
    assert len(sweep(z, np.array([0, 0, 0, 0, 1, 1, 1, 1])).weight) == 8
    assert len(sweep(z, np.array([1, 1, 1, 1, 0, 0, 0, 0])).weight) == 1
    assert len(sweep(np.full(5, 0.5), np.array([0, 1, 0, 1, 1])).weight) == 1


def test_sorted_merges_ties():
    ranked = Sorted.of(np.array([0.5, 0.2, 0.5]), np.array([1, 0, 0]))
    assert ranked.weight.tolist() == [1.0, 3.0]
    assert ranked.outcome.tolist() == [0.0, 1.0]


def test_numbers_of_bins():
    assert count_bins("sturges", 64) == 7
    assert count_bins("cuberoot", 27) == 3
    assert count_bins("sturges", 1) == 1
    for bad in (0, -3, 2.5, "scott"):
        with pytest.raises(ValueError, match="bins must be"):
            count_bins(bad, 10)
    with pytest.raises(ValueError, match="binning must be"):
        bin_sums(np.array([0.1]), np.array([1]), binning="equal")
    with pytest.raises(ValueError, match="norm must be"):
        bin_sums(np.array([0.1]), np.array([1])).error(3)


def test_one_sample_and_float32():
    assert bin_sums(np.array([0.25]), np.array([1])).error() == pytest.approx(0.75)
    assert bin_sums(np.array([0.25], dtype=np.float32), np.array([1])).error() == pytest.approx(0.75)

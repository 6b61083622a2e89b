import numpy as np
import pytest

from mixnmatch.evaluation import reliability_curve
from mixnmatch.evaluation._binning import bin_linearly
from mixnmatch.evaluation._local import LocalSmoother
from mixnmatch.evaluation.kde import Smoother


def sample(seed=0, n=4000):
    rng = np.random.default_rng(seed)
    z = rng.beta(0.3, 6.0, n)
    z[: n // 100] = rng.uniform(0.4, 0.7, n // 100)
    return z, (rng.random(n) < z).astype(np.int8)


def test_without_widening_it_is_a_kernel_mean():
    grid = bin_linearly(*sample())
    local = LocalSmoother(np.array(0.02), grid, "triweight", widen=False)
    plain = Smoother(0.02, len(grid.nodes))
    held = grid.count > 1
    expected = plain.value(grid.outcome)[held] / plain.value(grid.count)[held]
    np.testing.assert_allclose(local.average(grid.outcome)[held], expected, rtol=1e-9)


def test_windows_widen_where_samples_are_few():
    grid = bin_linearly(*sample())
    local = LocalSmoother(np.array(0.005), grid, "triweight")
    fixed = LocalSmoother(np.array(0.005), grid, "triweight", widen=False)
    effective, before = (one.support**2 / np.maximum(one.squares, 1e-300) for one in (local, fixed))
    tail = (grid.nodes > 0.45) & (grid.nodes < 0.65)
    assert np.median(effective[tail]) >= 20
    assert np.median(before[tail]) < 5
    low = grid.nodes < 0.01
    np.testing.assert_allclose(effective[low], before[low])


def test_spreading_keeps_sums():
    grid = bin_linearly(*sample(1))
    local = LocalSmoother(np.array(0.005), grid, "triweight")
    spread = local.spread_out(grid.residual)
    assert grid.count @ spread == pytest.approx(grid.residual.sum(), abs=1e-6 * grid.count.sum())


def test_bands_of_rare_events_are_narrow_and_cover():
    covered, width = [], []
    for seed in range(20):
        z, y = sample(seed)
        curve = reliability_curve(z, y)
        at = np.abs(curve.confidence - 0.54).argmin()
        covered.append(curve.low[at] <= curve.confidence[at] <= curve.high[at])
        width.append(curve.high[at] - curve.low[at])
    assert np.mean(width) < 0.45
    assert np.mean(covered) >= 0.9

import numpy as np
import pytest

from mixnmatch.evaluation._binning import bin_linearly
from mixnmatch.evaluation._windows import MANY, MANY_POWER, Windows


def crowded(n=4000, seed=0):
    """Most scores close to 0, the others anywhere."""
    rng = np.random.default_rng(seed)
    z = np.where(rng.random(n) < 0.8, 0.05 * rng.random(n), rng.random(n))
    return z, rng


def test_windows_hold_as_many_samples_as_they_should_and_no_more():
    z, _ = crowded()
    grid = bin_linearly(z, np.zeros(len(z)))
    windows = Windows(grid, 0.1, "triweight")
    many = MANY * len(z) ** MANY_POWER
    dense = (grid.nodes > 0.02) & (grid.nodes < 0.04)
    middle = (grid.nodes > 0.3) & (grid.nodes < 0.7)
    np.testing.assert_allclose(windows.effective[dense], many)
    assert 150 < windows.effective[middle].min() <= windows.effective[middle].max() < many


def test_numbers_and_means_do_not_jump_where_windows_change_size():
    z, rng = crowded(20_000)
    grid = bin_linearly(z, rng.random(len(z)) < z)
    windows = Windows(grid, 0.05, "triweight")
    inner = (grid.nodes > 0.1) & (grid.nodes < 0.9)
    effective, mean = windows.effective[inner], windows.average(grid.residual)[inner]
    assert np.abs(np.diff(np.log(effective))).max() < 0.1
    assert np.abs(np.diff(mean)).max() < 0.01


def test_means_of_a_constant_are_that_constant():
    z, _ = crowded(300)
    grid = bin_linearly(z, np.zeros(len(z)))
    held = Windows(grid, 0.05, "triweight")
    np.testing.assert_allclose(held.average(0.3 * grid.count)[held.effective > 1e-6], 0.3, rtol=1e-6)


def test_a_crowded_node_is_its_own_window():
    z = np.concatenate([np.full(2000, 0.25), np.random.default_rng(0).random(500)])
    y = np.append(np.ones(2000), np.zeros(500))
    grid = bin_linearly(z, y)
    windows = Windows(grid, 0.05, "triweight")
    at = np.abs(grid.nodes - 0.25).argmin()
    assert windows.effective[at] == pytest.approx(2000, rel=0.01)
    assert windows.average(grid.outcome)[at] > 0.999


@pytest.mark.parametrize("z", [[0.3], [0.0, 1.0], [0.5] * 40])
def test_few_samples_and_constant_scores(z):
    grid = bin_linearly(np.array(z), np.ones(len(z)))
    windows = Windows(grid, 0.0, "triweight")
    assert np.isfinite(windows.effective).all()
    assert windows.effective.max() <= len(z) + 1e-9
    assert np.isfinite(windows.average(grid.residual)).all()

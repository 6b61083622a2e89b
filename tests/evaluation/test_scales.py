import numpy as np
import pytest
from scipy.stats import chi2

from mixnmatch.evaluation._binning import bin_linearly
from mixnmatch.evaluation.estimators import ResidualKernel
from mixnmatch.evaluation.inference import calibration_test
from mixnmatch.evaluation.notion import Outcomes
from mixnmatch.evaluation.scales import ORDERS, ScaleStatistic
from mixnmatch.evaluation.series import group_nodes


def chi_square_rejects(z, y, rng, bins=15):
    """Chi-square of 15 equal-mass bins, its distribution by resampling."""
    order = np.argsort(z)
    starts = np.arange(bins) * len(z) // bins
    variance = np.add.reduceat((z * (1 - z))[order], starts)
    drawn = np.concatenate([y[None], rng.random((99, len(z))) < z])
    values = (np.add.reduceat((drawn - z)[:, order], starts, axis=1) ** 2 / variance).sum(axis=1)
    return np.mean(values >= values[0] - 1e-9) <= 0.05


def rejections(probability, n, repetitions, seed):
    rng = np.random.default_rng(seed)
    ours = theirs = 0
    for _ in range(repetitions):
        z = rng.random(n)
        y = (rng.random(n) < probability(z)).astype(np.int8)
        ours += calibration_test(Outcomes(z, y), ResidualKernel(), 1, rng, resamples=99) <= 0.05
        theirs += chi_square_rejects(z, y, rng)
    return ours / repetitions, theirs / repetitions


def test_level():
    assert rejections(lambda z: z, 150, 200, 0)[0] <= 0.09


def test_finds_waves_like_a_chi_square_test_and_slopes_more_often():
    ours, theirs = rejections(lambda z: z + 0.1 * np.sin(6 * np.pi * z), 300, 80, 1)
    assert ours >= max(0.3, theirs - 0.15)
    ours, theirs = rejections(lambda z: 0.1 + 0.8 * z, 300, 80, 2)
    assert ours > theirs + 0.05


def test_statistic_by_hand():
    rng = np.random.default_rng(3)
    z = np.repeat([0.25, 0.5, 0.75], 20)  # on nodes: each a group of its own
    y = (rng.random(60) < 0.9 * z).astype(np.int8)
    groups = group_nodes(bin_linearly(z, y))
    found = float(ScaleStatistic(groups)(groups.outcome)[0])
    # Three groups leave three directions: the standardised residuals in any orthonormal basis that starts like ours.
    deviation = np.sqrt(z * (1 - z))
    columns = np.stack([deviation, deviation * np.log(z / (1 - z)), np.cos(np.pi * (np.argsort(z) + 0.5) / 60)], axis=1)
    columns[:, 2] = np.repeat(np.cos(np.pi * np.array([1 / 6, 0.5, 5 / 6])), 20)
    more = np.repeat(np.cos(2 * np.pi * np.array([1 / 6, 0.5, 5 / 6])), 20)
    basis = np.linalg.qr(np.column_stack([columns, more]))[0]
    coefficients = basis.T @ ((y - z) / deviation)
    alive = np.linalg.matrix_rank(np.column_stack([columns, more]))
    assert alive == 3
    full = np.linalg.qr(np.column_stack([columns[:, :2], more]))[0].T @ ((y - z) / deviation)
    sums = [coefficients[0] ** 2, (coefficients[:2] ** 2).sum(), (full**2).sum()]
    p_values = [chi2.sf(sums[0], 1), chi2.sf(sums[1], 2), chi2.sf(sums[2], 3), chi2.sf(sums[2], 3)]
    assert found == pytest.approx(np.log(np.mean(1 / np.array(p_values))), rel=1e-6)
    assert len(ORDERS) == 4

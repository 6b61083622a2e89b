import numpy as np
import pytest

from mixnmatch.selection.ties import near_best, tied_with_best


def equal(n, m, rng):
    """Losses of m methods with the same expectation, which share most of their noise."""
    return rng.exponential(size=(n, 1)) + rng.normal(size=(n, m)) * 0.2


def test_an_equal_method_is_rarely_called_worse():
    """Watched is the first of eight equally good methods; the level is 5%. A plain paired test is well above it."""
    rng = np.random.default_rng(0)
    runs, hsu, plain = 400, 0, 0
    for _ in range(runs):
        losses = equal(100, 8, rng)
        hsu += not tied_with_best(losses)[0]
        best = losses.mean(axis=0).argmin()
        difference = losses[:, 0] - losses[:, best]
        plain += difference.mean() > 1.96 * difference.std(ddof=1) / 10
    assert hsu / runs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)
    assert plain / runs > 0.08


def test_critical_value_of_two_methods_is_students():
    """With two methods there is one comparison, so that the test is the one-sided paired t test."""
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(1)
    agree = 0
    for _ in range(200):
        losses = equal(40, 2, rng)
        losses[:, 1] += 0.05
        p = ttest_rel(losses[:, 1], losses[:, 0], alternative="greater").pvalue
        if abs(p - 0.05) > 0.01:  # the quantile is simulated
            agree += tied_with_best(losses)[1] == (p > 0.05 or losses[:, 1].mean() <= losses[:, 0].mean())
        else:
            agree += 1
    assert agree == 200


def test_a_worse_method_is_found_and_the_best_is_always_tied():
    rng = np.random.default_rng(2)
    losses = equal(300, 4, rng) + np.array([0.0, 0.2, 0.2, 0.001])
    tied = tied_with_best(losses)
    assert tied[losses.mean(axis=0).argmin()]
    np.testing.assert_array_equal(tied[[0, 1, 2]], [True, False, False])
    np.testing.assert_array_equal(tied_with_best(losses + rng.normal(size=(300, 1)) * 50), tied)


def test_weights_are_frequencies_in_the_means():
    rng = np.random.default_rng(3)
    losses = equal(200, 3, rng)
    losses[:100, 0] += 1
    weight = np.r_[np.zeros(100), np.ones(100)]
    assert not tied_with_best(losses)[0]
    assert tied_with_best(losses, weight)[0] == tied_with_best(losses[100:])[0]
    np.testing.assert_array_equal(near_best(losses, weight), near_best(losses[100:]))


@pytest.mark.parametrize("function", [tied_with_best, near_best])
def test_degenerate_losses(function):
    same = np.repeat(np.arange(5.0)[:, None], 3, axis=1)
    assert function(same).all()
    infinite = same.copy()
    infinite[0, 1] = np.inf
    np.testing.assert_array_equal(function(infinite), [True, False, True])
    assert function(same[:1]).any()
    shifted = same + np.array([0.0, 0.1, 0.0])  # worse by a constant, without any noise
    np.testing.assert_array_equal(function(shifted), [True, False, True])


def test_near_best_is_one_standard_error():
    rng = np.random.default_rng(4)
    losses = equal(100, 5, rng)
    best = losses.mean(axis=0).argmin()
    difference = losses - losses[:, [best]]
    expected = difference.mean(axis=0) <= difference.std(axis=0, ddof=1) / 10
    np.testing.assert_array_equal(near_best(losses), expected)


def test_inflation_ties_more():
    rng = np.random.default_rng(5)
    counts = np.zeros(2)
    for _ in range(50):
        losses = equal(100, 8, rng) + np.linspace(0, 0.1, 8)
        counts += [tied_with_best(losses).sum(), tied_with_best(losses, inflation=1.5).sum()]
    assert counts[1] > counts[0]

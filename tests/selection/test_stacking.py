import numpy as np
import pytest
from scipy.optimize import minimize

from mixnmatch.selection.stacking import Difference, LogLoss, SquaredError, simplex_quadratic, stack


def members(n=200, m=4, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n_classes), size=(n, m))
    return p, rng.integers(0, n_classes, n)


def log_loss(p, y, weight=None):
    return LogLoss(p[np.arange(len(y)), :, y], np.ones(len(y)) if weight is None else weight.astype(float))


def squared(p, y, weight=None):
    at_label = p[np.arange(len(y)), :, y]
    return SquaredError(at_label, p @ p.transpose(0, 2, 1), np.ones(len(y)) if weight is None else weight.astype(float))


@pytest.mark.parametrize("make", [log_loss, squared])
def test_weights_are_the_optimum_on_the_simplex(make):
    p, y = members()
    objective = make(p, y)
    weights = stack(objective, smallest=0.0, pull=0.0)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    best = minimize(
        lambda w: objective.mean(np.abs(w) / np.abs(w).sum()), np.full(4, 0.25), method="Nelder-Mead", tol=1e-12
    )
    assert objective.mean(weights) <= best.fun + 1e-9


@pytest.mark.parametrize("make", [log_loss, squared])
def test_weights_of_rows_are_repetitions(make):
    p, y = members(seed=1)
    times = np.random.default_rng(2).integers(0, 4, len(y))
    weighted = stack(make(p, y, times))
    repeated = stack(make(np.repeat(p, times, axis=0), np.repeat(y, times)))
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)


@pytest.mark.parametrize("make", [log_loss, squared])
def test_row_losses_are_those_of_the_mixture(make):
    p, y = members(n=20)
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    mixture = np.einsum("m,nml->nl", weights, p)
    error = mixture - np.eye(3)[y]
    expected = -np.log(mixture[np.arange(20), y]) if make is log_loss else np.square(error).sum(axis=1)
    np.testing.assert_allclose(make(p, y).rows(weights), expected, atol=1e-12)


def test_small_weights_are_pruned_and_the_truth_is_found():
    rng = np.random.default_rng(0)
    truth = rng.dirichlet(np.ones(3), size=3000)
    y = (truth.cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1)
    p = np.stack([truth, np.full((3000, 3), 1 / 3), rng.dirichlet(np.ones(3), size=3000)], axis=1)
    weights = stack(log_loss(p, y))
    assert weights[0] > 0.9
    assert all(weight == 0 or weight >= 0.01 for weight in weights)


def test_members_that_coincide_share_the_weight():
    p, y = members(n=100, m=1)
    weights = stack(log_loss(np.repeat(p, 3, axis=1), y))
    np.testing.assert_allclose(weights, 1 / 3, atol=1e-3)


def test_weights_are_pulled_towards_equal_ones_where_rows_are_few():
    p, y = members(n=8, seed=4)
    free, pulled = stack(log_loss(p, y), pull=0.0), stack(log_loss(p, y), pull=1000.0)
    assert np.abs(pulled - 0.25).max() < 0.01
    assert np.abs(free - 0.25).max() > 0.1
    many = np.tile(p, (2000, 1, 1)), np.tile(y, 2000)
    np.testing.assert_allclose(stack(log_loss(*many)), free, atol=0.02)


def test_single_member_has_all_the_weight():
    p, y = members(n=10, m=1)
    assert stack(squared(p, y)) == pytest.approx([1.0])


def test_vanishing_probabilities_do_not_break_the_solver():
    p, y = members(n=50)
    at_label = p[np.arange(50), :, y]
    at_label[:, 0] = 1e-37
    weights = stack(LogLoss(at_label, np.ones(50)))
    assert weights[0] == 0
    assert np.isfinite(weights).all()


def test_quadratic_on_the_simplex_agrees_with_the_exact_one():
    from mixnmatch.maps._simplex import simplex_minimum

    rng = np.random.default_rng(3)
    for _ in range(20):
        a = rng.normal(size=(6, 4))
        gram, linear = a.T @ a, rng.normal(size=4)
        exact = simplex_minimum(gram, linear)
        np.testing.assert_allclose(simplex_quadratic(2 * gram, -2 * linear), exact, atol=1e-4)


def test_difference_is_paired():
    first, second = np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.5, 2.5])
    found = Difference.of(first, second, np.ones(3))
    assert found.mean == pytest.approx(0.5)
    assert found.standard_error == pytest.approx(0, abs=1e-12)
    assert Difference.of(first[:1], second[:1], np.ones(1)).standard_error == np.inf

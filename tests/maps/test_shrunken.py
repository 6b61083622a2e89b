import numpy as np
import pytest
from scipy.optimize import minimize

import mixnmatch as mm
from mixnmatch.maps import ShrunkenBetaScaling, ShrunkenPlattScaling, odds
from mixnmatch.maps._ridge import fit_path
from mixnmatch.maps.odds import OddsTable

KINDS = [ShrunkenPlattScaling, ShrunkenBetaScaling]


def drawn(n, slope=1.0, shift=0.0, seed=0, spread=2.0):
    """Log-odds of a model and labels whose true log-odds are slope x + shift."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n) * spread
    return x, (rng.random(n) < 1 / (1 + np.exp(-slope * x - shift))).astype(int)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def penalised(theta, features, y, strength, identity):
    eta = features @ theta
    scale = np.append(np.ones(len(identity) - 1), 0.25)
    return (np.logaddexp(0, eta) - y * eta).sum() + strength / 2 * (scale * (theta - identity) ** 2).sum()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strength", [0.1, 3.0, 100.0])
def test_agrees_with_an_independent_solver(kind, strength):
    x, y = drawn(150, slope=0.5, shift=-1.0)
    fitted = kind(penalty=strength, logits=True).fit(x, y)
    features, identity = fitted._features_of(x), np.array([1.0] * fitted._n_features + [0.0])
    bounds = [(1e-6, None)] * (len(identity) - 1) + [(None, None)]
    options = {"ftol": 1e-15, "gtol": 1e-10}
    best = minimize(penalised, identity, (features, y, strength, identity), bounds=bounds, options=options)
    np.testing.assert_allclose(fitted.coef_[0], best.x, atol=2e-5)
    assert fitted.prior_variance_[0] == pytest.approx(1 / strength)


def test_leave_one_out_is_near_to_fits_without_each_sample():
    x, y = drawn(60, slope=0.5, shift=0.7)
    features, identity = np.stack([x, np.ones(60)], axis=1), np.array([1.0, 0.0])
    penalties, lower = np.array([0.3, 10.0])[:, None, None] * np.diag([1, 0.25]), np.array([1e-6, -np.inf])

    def path(rows):
        table = OddsTable(x[rows], np.ones(len(rows)), y[rows].astype(float))
        return fit_path(features[rows], table, penalties, identity, lower), table

    whole, table = path(np.arange(60))
    exact = np.zeros(2)
    for i in range(60):
        eta = path(np.delete(np.arange(60), i))[0].theta @ features[i]
        exact += np.logaddexp(0, -eta if y[i] else eta)
    np.testing.assert_allclose(whole.losses(table), exact, rtol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_few_calibrated_samples_are_left_alone(kind):
    kept = [not kind(logits=True).fit(*drawn(100, seed=seed)).prior_variance_[0] for seed in range(40)]
    assert np.mean(kept) > 0.6
    worst = max(
        np.abs(
            kind(logits=True).fit(*drawn(100, seed=seed)).predict_proba(np.linspace(-3, 3, 61))[:, 1]
            - sigmoid(np.linspace(-3, 3, 61))
        ).max()
        for seed in range(40)
    )
    assert worst < 0.25


@pytest.mark.parametrize("kind", KINDS)
def test_follows_the_data_where_they_object(kind):
    x, y = drawn(100, shift=-4.0, spread=1.5)  # trained on balanced classes, used where positives are rare
    fitted = kind(logits=True).fit(x, y)
    chance = np.sqrt(y.mean() * (1 - y.mean()) / len(y))
    assert sigmoid(x).mean() > 0.4
    assert abs(fitted.predict_proba(x)[:, 1].mean() - y.mean()) < 1.5 * chance
    x, y = drawn(4000, slope=0.4, shift=0.5, seed=1)
    new = np.linspace(-4, 4, 81)
    found = kind(logits=True).fit(x, y).predict_proba(new)[:, 1]
    np.testing.assert_allclose(found, sigmoid(0.4 * new + 0.5), atol=0.04)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [500, 5000])
def test_the_mean_probability_is_the_base_rate_after_a_shift(kind, n):
    # Scores of a model that was trained with balanced class weights: log-odds are too high by 3.
    rng = np.random.default_rng(n)
    truth = rng.normal(-4, 1, n)
    y = (rng.random(n) < sigmoid(truth)).astype(int)
    p = kind(logits=True).fit(truth + 3, y).predict_proba(truth + 3)[:, 1]
    assert p.sum() == pytest.approx(y.sum(), abs=0.2)


@pytest.mark.parametrize("name", ["platt-shrunk", "beta-shrunk"])
def test_saturated_scores(name):
    """Log-odds that are 25 times too large, with exact zeros and ones among the scores."""
    x, y = drawn(300, seed=2)
    p = sigmoid(25 * x)
    p[:40] = np.round(p[:40])
    assert (p == 0).any()
    found = mm.calibrator(name).fit(p, y).predict_proba(p)[:, 1]
    loss = -np.log(np.where(y == 1, found, 1 - found)).mean()
    flat = -(y.mean() * np.log(y.mean()) + (1 - y.mean()) * np.log(1 - y.mean()))
    assert loss < flat
    assert abs(found.mean() - y.mean()) < 0.03


@pytest.mark.parametrize("kind", KINDS)
def test_separable_rare_and_single(kind):
    z = np.linspace(0.01, 0.99, 30)
    separable = kind().fit(z, z > 0.5)
    assert np.isfinite(separable.coef_).all()
    assert (np.diff(separable.predict_proba(z)[:, 1]) > 0).all()
    y = np.zeros(200, int)
    y[-2:] = 1
    rare = kind().fit(np.linspace(0.01, 0.99, 200), y).predict_proba(np.linspace(0.01, 0.99, 200))[:, 1]
    assert rare.mean() < 0.05
    assert np.isfinite(kind().fit([0.3], [1]).predict_proba([0.0, 0.3, 1.0])).all()
    against = kind().fit(z, z < 0.5)  # scores that rank the wrong way round
    assert (against.coef_[:, :-1] > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_cells_for_many_samples_are_fine_enough(kind, monkeypatch):
    x, y = drawn(5000, slope=0.6, shift=-0.5)
    exact = kind(penalty=1.0, logits=True).fit(x, y)
    monkeypatch.setattr(odds, "EXACT_EACH", 100)
    cells = kind(penalty=1.0, logits=True).fit(x, y)
    assert not np.array_equal(cells.coef_, exact.coef_)
    new = np.linspace(-6, 6, 101)
    np.testing.assert_allclose(cells.predict_proba(new), exact.predict_proba(new), atol=1e-5)


def test_bad_penalties_are_refused():
    for penalty in (0, -1.0, "auto", None, np.inf):
        with pytest.raises(ValueError, match="penalty must be a positive number"):
            ShrunkenBetaScaling(penalty=penalty).fit([0.5], [1])

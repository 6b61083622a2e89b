import numpy as np
import pytest
from scipy.optimize import minimize

import mixnmatch as mm
from mixnmatch.maps import QuadraticScaling
from tests.maps.test_shrunken import drawn, sigmoid


def test_agrees_with_an_independent_solver():
    """A parabola between the two ends of the range and straight lines beyond, found by another method."""
    x, _ = drawn(400, seed=3)
    y = (np.random.default_rng(4).random(400) < sigmoid(0.8 * x + 0.15 * x**2 - 0.5)).astype(int)
    strength = 2.0
    fitted = QuadraticScaling(penalty=strength, logits=True).fit(x, y)
    low, high = fitted.knots_[[0, -1]]
    assert low == np.sort(x)[3]
    assert high == np.sort(x)[395]

    def function(theta, at):
        a, b, c = theta
        inside = np.clip(at, low, high)
        return c + b * inside + a * inside**2 + (at - inside) * (b + 2 * a * inside)

    def objective(theta):
        a, b, _ = theta
        slopes = np.array([b + 2 * a * low, b + 2 * a * high])
        eta = function(theta, x)
        weak = 0.3 * (0.5 * ((slopes - 1) ** 2).sum() + 0.25 * function(theta, 0.0) ** 2)
        return (np.logaddexp(0, eta) - y * eta).sum() + strength / 2 * np.diff(slopes)[0] ** 2 + weak / 2

    best = minimize(objective, [0.0, 1.0, 0.0], method="BFGS", options={"gtol": 1e-9})
    at = np.linspace(low - 5, high + 5, 201)
    np.testing.assert_allclose(fitted.curves()[0](at), function(best.x, at), atol=1e-4)


def test_finds_a_bend_and_keeps_a_line():
    rng = np.random.default_rng(5)
    x = rng.normal(size=4000) * 1.5
    bent = (rng.random(4000) < sigmoid(np.where(x > 0, 2 * x, 0.5 * x))).astype(int)
    fitted = QuadraticScaling(logits=True).fit(x, bent)
    assert fitted.pieces_[-1, 1] > 1.5 * fitted.pieces_[0, 1]
    straight = (rng.random(4000) < sigmoid(0.7 * x)).astype(int)
    slopes = QuadraticScaling(logits=True).fit(x, straight).pieces_[[0, -1], 1]
    assert abs(slopes[1] - slopes[0]) < 0.2


def test_increases_where_a_plain_parabola_turns_back():
    """Large log-odds with errors: the best parabola has its top inside the range."""
    x = np.concatenate([np.linspace(-6, 2, 200), np.linspace(8, 30, 40)])
    y = np.concatenate([np.random.default_rng(0).random(200) < sigmoid(x[:200]), np.arange(40) % 3 > 0]).astype(int)
    fitted = QuadraticScaling(logits=True).fit(x, y)
    p = fitted.predict_proba(np.linspace(-80, 80, 1601))[:, 1]
    assert (np.diff(fitted.curves()[0](np.linspace(-80, 80, 1601))) > 0).all()
    assert (np.diff(p) >= 0).all()
    assert p[-1] < 0.999999


def test_pooled_keeps_accuracy():
    assert mm.Pooled(QuadraticScaling()).accuracy_preserving


def test_bad_penalties_are_refused():
    with pytest.raises(ValueError, match="penalty must be"):
        QuadraticScaling(penalty="cv").fit([0.5], [1])

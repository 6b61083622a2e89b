import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from mixnmatch import OneVsAll, Pooled
from mixnmatch.maps import BetaScaling, PlattScaling
from mixnmatch.maps._solve import Point, bounded_step, newton
from tests.conftest import make_problem, softmax


@pytest.fixture(scope="module")
def binary():
    rng = np.random.default_rng(0)
    z = rng.random(2000) * 0.96 + 0.02
    return z, (rng.random(2000) < z**2).astype(int)


def reference(features, y):
    model = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(features, y)
    return np.append(model.coef_[0], model.intercept_)


def test_platt_is_logistic_regression_on_the_logit(binary):
    z, y = binary
    fitted = PlattScaling(smoothing=False).fit(z, y)
    np.testing.assert_allclose(fitted.coef_[0], reference(np.log(z / (1 - z))[:, None], y), rtol=1e-4)
    on_scores = PlattScaling(on="probability", smoothing=False).fit(z, y)
    np.testing.assert_allclose(on_scores.coef_[0], reference(z[:, None], y), rtol=1e-4)


def test_beta_is_logistic_regression_on_two_logarithms(binary):
    z, y = binary
    fitted = BetaScaling(smoothing=False).fit(z, y)
    np.testing.assert_allclose(fitted.coef_[0], reference(np.c_[np.log(z), -np.log(1 - z)], y), rtol=1e-4)


def test_slopes_stay_positive_where_the_best_is_negative(binary):
    z, y = binary
    assert PlattScaling().fit(z, 1 - y).coef_[0, 0] > 0
    assert (BetaScaling().fit(z, 1 - y).coef_[0, :2] > 0).all()


def test_squared_error_is_minimised(binary):
    z, y = binary
    logit = np.log(z / (1 - z))

    def loss(theta):
        return np.square(1 / (1 + np.exp(-theta[0] * logit - theta[1])) - y).sum()

    fitted = PlattScaling(loss="brier", smoothing=False).fit(z, y)
    best = minimize(loss, [1.0, 0.0], tol=1e-12)
    assert loss(fitted.coef_[0]) <= best.fun + 1e-9


def test_all_classes_at_once_equal_one_at_a_time():
    logits, y = make_problem(300, 4)
    p = softmax(logits)
    together = OneVsAll(BetaScaling()).fit(p, y).map_.coef_
    for k in range(4):
        np.testing.assert_allclose(together[k], BetaScaling().fit(p[:, k], y == k).coef_[0], rtol=1e-4, atol=1e-4)


def test_separable_and_absent_classes_have_finite_answers():
    z = np.array([0.1, 0.2, 0.8, 0.9])
    assert np.isfinite(PlattScaling().fit(z, [0, 0, 1, 1]).coef_).all()
    assert np.isfinite(BetaScaling().fit(z, [0, 0, 0, 0]).coef_).all()
    without = PlattScaling(smoothing=False).fit(z, [0, 0, 1, 1]).predict_proba(z)
    assert np.isfinite(without).all()


def test_saturated_binary_logits_keep_their_digits():
    """Through probabilities a logit above 37 would be lost; log-probabilities carry it."""
    d = np.array([-80.0, -60.0, 60.0, 80.0, 50.0, -50.0])
    y = [0, 1, 1, 1, 0, 0]
    p = PlattScaling(logits=True).fit(d, y).predict_proba(d)[:, 1]
    assert len(np.unique(p)) == 6


def test_pooled_beta_is_fitted_on_all_entries():
    logits, y = make_problem(200, 3)
    p = softmax(logits)
    pooled = Pooled(BetaScaling()).fit(p, y).map_.coef_[0]
    flat = BetaScaling().fit(p.ravel(), np.eye(3)[y].ravel().astype(int)).coef_[0]
    np.testing.assert_allclose(pooled, flat, rtol=1e-5, atol=1e-6)


def test_bounded_newton_on_quadratics():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 3, 4))
    hessian = root @ root.transpose(0, 2, 1)
    centre = rng.normal(size=(5, 3))

    def statistic(theta):
        gap = theta - centre
        slope = np.einsum("kpq,kq->kp", hessian, gap)
        return Point(theta, 0.5 * np.einsum("kp,kp->k", gap, slope) + 1, slope, hessian)

    lower = np.array([0.0, 0.0, -np.inf])
    found = newton(
        statistic,
        statistic(np.ones((5, 3))),
        lambda point: bounded_step(point, lower),
        project=lambda theta: np.maximum(theta, lower),
    )
    theta, value = found.point.theta, found.point.value
    assert found.residual <= 1e-9
    for k in range(5):
        found = minimize(
            lambda t, k=k: 0.5 * (t - centre[k]) @ hessian[k] @ (t - centre[k]) + 1,
            np.ones(3),
            bounds=[(0, None), (0, None), (None, None)],
            tol=1e-14,
        )
        assert value[k] <= found.fun + 1e-9
    assert (theta[:, :2] >= 0).all()


def test_unknown_options_are_refused():
    with pytest.raises(ValueError, match="on must be"):
        PlattScaling(on="odds").fit([0.5], [1])


@pytest.mark.parametrize("binary", [PlattScaling, BetaScaling])
def test_a_first_look_does_not_change_the_answer(binary, monkeypatch):
    logits, y = make_problem(1000, 2, sharpness=3.0)
    whole = binary(logits=True).fit(logits, y)
    monkeypatch.setattr("mixnmatch.maps.logistic.PREVIEW_ROWS", 50)
    looked = binary(logits=True).fit(logits, y)
    np.testing.assert_allclose(looked.coef_, whole.coef_, rtol=1e-4, atol=1e-4)
    assert looked.loss_ == pytest.approx(whole.loss_, rel=1e-9)


@pytest.mark.parametrize("kind", [PlattScaling, BetaScaling])
def test_scores_that_never_differ_give_the_base_rate(kind):
    y = np.array([0, 1, 2] * 20 + [0] * 7)
    fitted = OneVsAll(kind(), smoothing=0).fit(np.full((67, 3), 1 / 3), y)
    n, positive = 67, np.bincount(y)
    rate = (positive * (positive + 1) / (positive + 2) + (n - positive) / (n - positive + 2)) / n  # Platt's targets
    np.testing.assert_allclose(fitted.predict_proba(np.full((1, 3), 1 / 3))[0], rate / rate.sum(), rtol=1e-12)
    assert np.abs(fitted.map_.coef_).max() < 100

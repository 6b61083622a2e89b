import tracemalloc

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from mixnmatch import OneVsAll, Pooled, engine, rows
from mixnmatch._engine.kernels import compiled_available
from mixnmatch.maps import BetaScaling, PlattScaling
from mixnmatch.maps._solve import Point, bounded_step, newton
from tests.conftest import make_problem, softmax


@pytest.fixture(scope="module")
def binary():
    rng = np.random.default_rng(0)
    z = rng.random(2000) * 0.96 + 0.02
    return z, (rng.random(2000) < z**2).astype(int)


def reference(features, y, weight=None):
    model = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(features, y, weight)
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
    monkeypatch.setattr("mixnmatch.maps._logistic_fit.PREVIEW_ROWS", 50)
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


def one_by_one(logits, y, map_, weight=None):
    """Coefficients of unpenalised regressions on log p and log(1 - p) of each class."""
    log_p = logits - logsumexp(logits, axis=1, keepdims=True)
    found = []
    for k in range(logits.shape[1]):
        log_not = logsumexp(np.delete(log_p, k, axis=1), axis=1)
        features = [log_p[:, k] - log_not] if map_ is PlattScaling else [log_p[:, k], -log_not]
        found.append(reference(np.column_stack(features), y == k, weight))
    return np.array(found)


@pytest.mark.parametrize("map_", [PlattScaling, BetaScaling])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows", [700, 9000])
def test_groups_of_classes_are_separate_regressions(map_, weighted, rows, monkeypatch):
    """Fitted in groups of two, from logits or probabilities, each class has the coefficients of its own regression."""
    monkeypatch.setattr("mixnmatch.maps._logistic_fit.GROUP_BYTES", 2 * 8 * rows)
    logits, y = make_problem(rows, 5, sharpness=2.0)
    weight = np.random.default_rng(1).integers(1, 4, rows) if weighted else None
    expected = one_by_one(logits, y, map_, weight)
    fitted = OneVsAll(map_(smoothing=False), logits=True).fit(logits, y, weight)
    np.testing.assert_allclose(fitted.map_.coef_, expected, rtol=1e-4, atol=1e-4)
    for backend in ("numpy", "compiled") if compiled_available() else ("numpy",):
        with engine(backend=backend, threads=1, block_bytes=1000):
            again = OneVsAll(map_(smoothing=False)).fit(softmax(logits), y, weight)
        np.testing.assert_allclose(again.map_.coef_, fitted.map_.coef_, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("map_", [PlattScaling, BetaScaling])
@pytest.mark.parametrize("kind", ["float32", "zeros", "masked", "absent", "tied"])
def test_groups_of_classes_equal_passes_over_all(map_, kind):
    """Columns of a table, and blocks of a table that is not contiguous, lead to the same fit."""
    logits, y = make_problem(400, 6, sharpness=4.0)
    p = softmax(logits)
    scores = {
        "float32": logits.astype(np.float32),
        "zeros": np.where(p < 0.01, 0.0, p) / np.where(p < 0.01, 0.0, p).sum(axis=1, keepdims=True),
        "masked": np.where((np.arange(6) == 5) & (y[:, None] != 5), -np.inf, logits),
        "absent": np.column_stack([p[:, :5] * 0.9, p[:, 5:] + 0.1 * p[:, :5].sum(axis=1, keepdims=True)]),
        "tied": np.round(logits),
    }[kind]
    y = np.minimum(y, 4) if kind == "absent" else y
    unfitted = OneVsAll(map_(), logits=kind not in ("zeros", "absent"))
    grouped, in_passes = (clone(unfitted).fit(table, y) for table in (scores, np.asfortranarray(scores)))
    assert rows(scores, y, logits=unfitted.logits).is_plain_table == (kind != "masked")
    assert not rows(np.asfortranarray(scores), y, logits=unfitted.logits).is_plain_table
    np.testing.assert_allclose(grouped.map_.coef_, in_passes.map_.coef_, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(grouped.map_.loss_, in_passes.map_.loss_, rtol=1e-12)


def test_a_table_of_many_classes_is_fitted_and_applied_in_little_memory():
    logits, y = make_problem(2000, 200)
    OneVsAll(BetaScaling(), logits=True).fit(logits[:300], y[:300])  # what is imported at the first fit does not count
    tracemalloc.start()
    try:
        with engine(threads=1):
            fitted = OneVsAll(BetaScaling(), logits=True).fit(logits, y)
        fit_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        with engine(threads=1):
            out = fitted.predict_proba(logits)
        apply_peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert fit_peak < 0.6 * logits.nbytes
    assert apply_peak < 0.8 * logits.nbytes + out.nbytes

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from mixnmatch._engine import door
from mixnmatch._engine.block import Block
from mixnmatch._engine.errors import InputWarning
from mixnmatch.maps._context_slopes import (
    Slopes,
    contexts,
    fit_slopes,
    hat_shares,
    inverses,
    leave_one_out_statistic,
    log_loss_statistic,
)
from mixnmatch.maps._order_fit import LEAST_SLOPE
from mixnmatch.maps.context import APART, STRENGTHS, ContextualOrderPreserving
from mixnmatch.maps.order_preserving import IntraOrderPreserving
from mixnmatch.maps.temperature import TemperatureScaling

KNOTS = np.array([0.0, -0.5, -2.0, -7.0])
CONTEXT_KNOTS = np.array([[0.2, 1.5, 4.0], [0.1, 0.9, 2.0], [0.3, 0.8, 1.3]])


def problem(n=300, n_classes=5, seed=0):
    """Logits with two temperatures: where the last two classes are out of the question they are overconfident."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, n_classes)) * 2
    clear = rng.random(n) < 0.5
    z[clear, -2:] -= 6
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return z * np.where(clear, 2.0, 0.7)[:, None], y


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def mean_loss(p, y):
    return -np.log(p[np.arange(len(y)), y]).mean()


def slopes_one_by_one(x, context_knots, theta):
    """Slopes of each sample by np.interp, for parameters M x K x J."""
    values = contexts(x)
    parts = [
        [np.interp(values[:, m], knots, theta[m, :, j]) for j in range(theta.shape[2])]
        for m, knots in enumerate(context_knots)
    ]
    return np.mean(parts, axis=0).T


def calibrated_one_by_one(x, knots, context_knots, theta):
    """Log-probabilities, with g integrated from 0 down to each log-score."""
    slopes = slopes_one_by_one(x, context_knots, theta)
    u = np.empty_like(x)
    for i, row in enumerate(x):
        values = np.concatenate([[0.0], np.cumsum(slopes[i] * np.diff(knots))])
        beyond = np.minimum(row - knots[-1], 0.0)
        u[i] = np.interp(np.maximum(row, knots[-1]), knots[::-1], values[::-1]) + beyond
    return log_softmax(u)


def penalty_of(theta, strength):
    """The penalty as the documentation writes it."""
    mean = theta.mean(axis=(0, 1))
    deviations = (theta - theta.mean(axis=1, keepdims=True)) / len(theta)
    return 0.5 * strength * (np.sum((mean - 1) ** 2) + np.sum(deviations**2))


def source_of(z, y, weight=None):
    return door.rows(z, y, weight, logits=True)


def test_contexts_against_sorting():
    x = log_softmax(np.random.default_rng(0).normal(size=(50, 6)) * 3)
    x[0] = np.log(1 / 6)
    x[1, :2] = x[1].max() + 1
    down = -np.sort(-x, axis=1)
    q = np.exp(down[:, 1:])
    q /= q.sum(axis=1, keepdims=True)
    expected = [down[:, 0] - down[:, 1], down[:, 1] - down[:, 1:].mean(axis=1), -(q * np.log(q)).sum(axis=1)]
    assert_allclose(contexts(x), np.stack(expected, axis=1), atol=1e-12)
    assert contexts(x)[1, 0] == 0


def test_contexts_of_a_masked_class_stay_moderate():
    x = log_softmax(np.array([[3.0, 1.0, 0.0, -1e9], [3.0, 1.0, 0.0, -1e4]]))
    first, second = contexts(x)
    assert_allclose(first, second)
    assert np.abs(first).max() < 50


def test_shares_are_hat_functions():
    x = log_softmax(np.random.default_rng(1).normal(size=(40, 5)) * 3)
    theta = np.random.default_rng(2).uniform(0.5, 2, (3, 3, 4))
    shares = hat_shares(x, CONTEXT_KNOTS)
    assert_allclose(shares.sum(axis=1), 1)
    assert shares.min() >= 0
    assert_allclose(shares @ theta.reshape(9, 4), slopes_one_by_one(x, CONTEXT_KNOTS, theta))
    assert_array_equal(hat_shares(x, np.zeros((1, 1))), np.ones((40, 1)))


def test_statistic_against_finite_differences_and_from_scratch():
    z, y = problem(60)
    rng = np.random.default_rng(3)
    weight = rng.uniform(0.5, 2, 60)
    block = Block(z, "logits", range(60), y, weight)
    slopes = Slopes(0.0, 0.6, KNOTS, CONTEXT_KNOTS)
    theta = rng.uniform(0.3, 2, (2, slopes.size))
    step = rng.normal(size=slopes.size)
    value, gradient, moments = log_loss_statistic(block, slopes, theta)
    low, high = (log_loss_statistic(block, slopes, theta + t * step) for t in (-1e-5, 1e-5))
    assert_allclose(gradient @ step, (high[0] - low[0]) / 2e-5, rtol=1e-6)
    # the curvature, unfolded here pair by pair: knots (a, b), cells (j, k)
    change = (high[1] - low[1]) / 2e-5
    knots, cells = np.triu_indices(9), np.triu_indices(3)
    full = np.zeros((2, 9, 3, 9, 3))
    for place, (a, b) in enumerate(zip(*knots, strict=True)):
        for other, (j, k) in enumerate(zip(*cells, strict=True)):
            for first, second in ((a, b), (b, a)):
                full[:, first, j, second, k] = full[:, first, k, second, j] = moments[:, place, other]
    assert_allclose(full.reshape(2, 27, 27) @ step, change, rtol=1e-5, atol=1e-6)
    x = log_softmax(0.6 * z)
    for g in range(2):
        log_p = calibrated_one_by_one(x, KNOTS, CONTEXT_KNOTS, theta[g].reshape(3, 3, 3))
        assert_allclose(value[g], -weight @ log_p[np.arange(60), y], rtol=1e-12)


def test_predictions_are_those_of_the_formula():
    z, y = problem(500)
    fitted = ContextualOrderPreserving(logits=True).fit(z, y)
    new = problem(100, seed=1)[0] * 3
    x = log_softmax(fitted.beta_ * new)
    expected = calibrated_one_by_one(x, fitted.knots_, fitted.context_knots_, fitted.slopes_)
    assert_allclose(fitted.predict_proba(new), np.exp(expected), atol=1e-12)
    assert_allclose(fitted.loss_, mean_loss(fitted.predict_proba(z), y), rtol=1e-9)


@pytest.mark.parametrize("strength", [0.3, 10.0])
def test_fit_is_the_optimum_under_the_penalty(strength):
    z, y = problem(400)
    fitted = ContextualOrderPreserving(penalty=strength, logits=True).fit(z, y)
    x = log_softmax(fitted.beta_ * z)
    shape, index = fitted.slopes_.shape, np.arange(len(y))
    shares = hat_shares(x, fitted.context_knots_)
    upper, lower = fitted.knots_[:-1, None], fitted.knots_[1:, None]
    ramps = np.clip(x[:, None, :], lower, upper) - upper

    def objective(theta):
        log_p = log_softmax(x + np.einsum("nj,njl->nl", shares @ theta.reshape(-1, shape[2]) - 1, ramps))
        slope = np.einsum("nl,njl->nj", np.exp(log_p), ramps) - ramps[index, :, y]
        table = theta.reshape(shape)
        deviations = (table - table.mean(axis=1, keepdims=True)) / shape[0] ** 2
        pull = strength * ((table.mean(axis=(0, 1)) - 1) / (shape[0] * shape[1]) + deviations)
        return -log_p[index, y].sum() + penalty_of(table, strength), (
            shares.T @ slope + pull.reshape(-1, shape[2])
        ).ravel()

    own = objective(fitted.slopes_.ravel())[0]
    bounds = [(LEAST_SLOPE, None)] * fitted.slopes_.size
    options = {"maxiter": 20_000, "maxfun": 10**6, "ftol": 1e-15, "gtol": 1e-9}
    best = minimize(objective, np.ones(fitted.slopes_.size), jac=True, bounds=bounds, options=options)
    assert own <= best.fun * (1 + 1e-8)
    assert_allclose(own, best.fun, rtol=1e-6)


def leave_one_out(z, y, strengths):
    """For each sample and strength: approximation, one Newton step without the sample, refit, and plain loss."""
    slopes = Slopes(0.0, TemperatureScaling(logits=True).fit(z, y).beta_, KNOTS, CONTEXT_KNOTS)
    source = source_of(z, y)
    theta, curvature = fit_slopes(source, slopes, strengths, "test")
    inverse = inverses(curvature, theta)
    assert (theta > 2 * LEAST_SLOPE).all()  # bounds that come and go are beyond a first-order approximation
    found = []
    for i in range(len(y)):
        one = Block(z[i : i + 1], "logits", range(1), y[i : i + 1])
        others = source_of(np.delete(z, i, axis=0), np.delete(y, i))
        plain, gradient, _ = log_loss_statistic(one, slopes, theta)
        left = fit_slopes(others, slopes, strengths, "test")[0]
        own = second_derivatives(one, slopes, theta)
        stepped = theta + np.stack(
            [np.linalg.solve(h - c, g) for h, c, g in zip(curvature, own, gradient, strict=True)]
        )
        found.append(
            [
                leave_one_out_statistic(one, slopes, theta, inverse)[:-1],
                log_loss_statistic(one, slopes, stepped)[0],
                log_loss_statistic(one, slopes, left)[0],
                plain,
            ]
        )
    return np.moveaxis(np.array(found), 1, 0)


def second_derivatives(block, slopes, theta):
    """Curvature of the loss in the parameters by differences of the gradient."""
    size = slopes.size
    columns = []
    for p in range(size):
        step = 1e-5 * np.eye(size)[p]
        low, high = (log_loss_statistic(block, slopes, theta + sign * step)[1] for sign in (-1, 1))
        columns.append((high - low) / 2e-5)
    return np.stack(columns, axis=2)


def test_leave_one_out_is_a_newton_step_and_close_to_refitting():
    approximate, stepped, refitted, plain = leave_one_out(*problem(80, n_classes=4), np.array([10.0, 30.0]))
    assert_allclose(approximate, stepped, rtol=1e-5)
    gap = (refitted - plain).sum(axis=0)
    assert (gap > 0.5).all()
    assert (np.abs(approximate - refitted).sum(axis=0) < 0.1 * gap).all()


def test_leaving_out_treats_weights_as_repetitions():
    z, y = problem(60)
    weight = np.random.default_rng(5).integers(1, 4, 60)
    slopes = Slopes(0.0, 0.6, KNOTS, CONTEXT_KNOTS)
    fits = []
    for source in (source_of(z, y, weight), source_of(np.repeat(z, weight, axis=0), np.repeat(y, weight))):
        theta, curvature = fit_slopes(source, slopes, np.array(STRENGTHS), "test")
        fits.append(source.total(leave_one_out_statistic, slopes, theta, inverses(curvature, theta)))
    assert_allclose(*fits, rtol=1e-7)


def test_a_sample_of_small_weight_is_left_out_as_a_whole():
    z, y = problem(60)
    weight = np.ones(60)
    weight[:5] = 1e-6
    with pytest.warns(InputWarning, match="importance"):
        source = source_of(z, y, weight)
    slopes = Slopes(0.0, 0.6, KNOTS, CONTEXT_KNOTS)
    theta, curvature = fit_slopes(source, slopes, np.array(STRENGTHS), "test")
    losses = source.total(leave_one_out_statistic, slopes, theta, inverses(curvature, theta))
    without = source_of(z[5:], y[5:])
    assert_allclose(
        losses, without.total(leave_one_out_statistic, slopes, theta, inverses(curvature, theta)), rtol=1e-4
    )


def test_learns_what_one_function_cannot():
    z, y = problem(4000)
    new, truth = problem(20_000, seed=1)
    losses = {
        kind: mean_loss(kind(logits=True).fit(z, y).predict_proba(new), truth)
        for kind in (TemperatureScaling, IntraOrderPreserving, ContextualOrderPreserving)
    }
    assert losses[ContextualOrderPreserving] < 0.97 * losses[IntraOrderPreserving]
    assert losses[ContextualOrderPreserving] < 0.95 * losses[TemperatureScaling]


@pytest.mark.parametrize("n", [20, 60, 200, 2000])
def test_does_no_harm_where_temperature_scaling_is_right(n):
    ratios = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(n + 5000, 6)) * 2
        y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        fitted = ContextualOrderPreserving(logits=True).fit(3 * z[:n], y[:n])
        plain = TemperatureScaling(logits=True).fit(3 * z[:n], y[:n])
        ratios.append(
            mean_loss(fitted.predict_proba(3 * z[n:]), y[n:]) / mean_loss(plain.predict_proba(3 * z[n:]), y[n:])
        )
    assert np.mean(ratios) < 1.01
    assert np.max(ratios) < 1.05


def test_loss_on_the_calibration_set_is_not_above_temperature_scaling():
    for seed in range(6):
        z, y = problem(30 + 40 * seed, n_classes=3 + seed, seed=seed)
        fitted = ContextualOrderPreserving(logits=True).fit(z, y)
        assert fitted.loss_ <= TemperatureScaling(logits=True).fit(z, y).loss_ * (1 + 1e-9)


def test_the_whole_order_survives():
    z, y = problem(400, n_classes=8)
    fitted = ContextualOrderPreserving(logits=True).fit(z, y)
    new = np.round(problem(300, n_classes=8, seed=2)[0], 1)  # with ties
    p = fitted.predict_proba(new)
    order = np.argsort(-new, axis=1, kind="stable")
    down = np.take_along_axis(p, order, axis=1)
    assert (np.diff(down, axis=1) <= 1e-15).all()
    assert (fitted.slopes_ >= LEAST_SLOPE * (1 - 1e-9)).all()


def test_output_is_continuous_where_two_classes_change_places():
    z, y = problem(400)
    fitted = ContextualOrderPreserving(logits=True).fit(z, y)
    before = np.array([[2.0, 2.0 - 1e-9, 1.0, 0.0, -1.0], [2.0, 1.0, 1.0 - 1e-9, 0.0, -1.0]])
    after = before[:, [1, 0, 2, 3, 4]]
    after[1] = before[1, [0, 2, 1, 3, 4]]
    assert_allclose(fitted.predict_proba(before), fitted.predict_proba(after), atol=1e-7)


def test_two_classes_have_no_context():
    rng = np.random.default_rng(0)
    z = rng.normal(size=500) * 3
    y = (rng.random(500) < 1 / (1 + np.exp(-z / 2))).astype(int)
    fitted = ContextualOrderPreserving(logits=True).fit(z, y)
    assert fitted.context_knots_.shape == (1, 1)
    p = fitted.predict_proba(np.linspace(-9, 9, 500))[:, 1]
    assert (np.diff(p) > 0).all()
    one_function = IntraOrderPreserving(logits=True).fit(z, y)
    assert_allclose(fitted.loss_, one_function.loss_, rtol=0.01)


def test_knots_of_contexts_keep_apart_and_follow_weights():
    z, y = problem(200)
    weight = np.random.default_rng(1).integers(0, 4, 200)
    fitted = ContextualOrderPreserving(logits=True).fit(z, y, weight)
    repeated = ContextualOrderPreserving(logits=True).fit(np.repeat(z, weight, axis=0), np.repeat(y, weight))
    assert_allclose(fitted.context_knots_, repeated.context_knots_, rtol=1e-9)
    same = ContextualOrderPreserving(logits=True).fit(np.repeat(z[:1], 50, axis=0), y[:50])
    assert (np.diff(same.context_knots_) >= APART * (1 - 1e-9)).all()


def test_a_thousand_classes():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 1000)).astype(np.float32)
    y = rng.integers(0, 1000, 300)
    z[np.arange(300), y] += rng.normal(5, 2, 300).astype(np.float32)
    fitted = ContextualOrderPreserving(logits=True).fit(2 * z, y)
    p = fitted.predict_proba(2 * z)
    assert p.dtype == np.float32
    assert_array_equal(p.argmax(axis=1), z.argmax(axis=1))
    assert mean_loss(p, y) <= mean_loss(TemperatureScaling(logits=True).fit(2 * z, y).predict_proba(2 * z), y) * (
        1 + 1e-6
    )


@pytest.mark.parametrize("penalty", [0, -1.0, np.nan, "cv", None])
def test_penalties_that_cannot_be(penalty):
    with pytest.raises(ValueError, match="penalty"):
        ContextualOrderPreserving(penalty=penalty).fit([[0.5, 0.5]], [0])

"""Convex maps reach their optimum whatever the scale: compared with L-BFGS-B of SciPy on rescaled float64 problems."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logsumexp
from sklearn.exceptions import ConvergenceWarning

import mixnmatch as mm
from mixnmatch import calibrator
from mixnmatch._engine import door
from mixnmatch.maps._linear_solver import Penalty, ridge_vector
from mixnmatch.maps._solve import Point, certify, minimise_scalar, newton
from tests.conftest import draw_labels, softmax

# What a fit may be above the best loss that is known, as a part of it.
RELATIVE = 1e-8
SCALES = (1e-3, 1.0, 1e3)


def drawn(n, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, n_classes)) * 1.5
    return logits, draw_labels(softmax(logits), rng), rng


def cases(n_classes):
    """Logits and labels by name: all kinds that have stopped a solver short of the optimum."""
    n = 300
    logits, y, rng = drawn(n, n_classes)
    found = {f"scale {scale:g}": (logits * scale, y) for scale in SCALES}
    found["saturated"] = (50 * np.sign(logits) * (1 + rng.random(logits.shape)), y)
    found["saturated and wrong"] = (np.eye(n_classes)[rng.integers(0, n_classes, n)] * rng.uniform(50, 900, (n, 1)), y)
    found["separable"] = (np.eye(n_classes)[y] * 3 + 0.1 * rng.random(logits.shape), y)
    found["opposite"] = (-np.eye(n_classes)[y] * 3 + 0.1 * rng.random(logits.shape), y)
    found["tied"] = (np.round(logits), y)
    found["tied and separable"] = (
        1.0 * ((np.eye(n_classes)[y] + np.eye(n_classes)[(y + (y == 0)) % n_classes]) > 0),
        y,
    )
    found["heavy tails"] = (logits * np.exp(4 * rng.normal(size=(n, 1))), y)
    found["rare class"] = (logits, np.where(rng.random(n) < 0.01, n_classes - 1, np.minimum(y, n_classes - 2)))
    found["huge"] = (logits * 1e7, y)
    found["tiny"] = (logits * 1e-9, y)
    found["few"] = (logits[:12], y[:12])
    return found


KINDS = list(cases(3))


def weights_of(y, weighted):
    return np.random.default_rng(3).integers(1, 5, len(y)).astype(float) if weighted else np.ones(len(y))


def least(function, starts, scale, bounds=None):
    """The least value that L-BFGS-B finds from several starts, parameters in units of ``scale``; repeated restarts."""

    def scaled(x):
        value, slope = function(x * scale)
        return value, slope * scale

    best = np.inf
    for start in starts:
        x = np.asarray(start, dtype=float) / scale
        for _ in range(4):
            box = (
                None if bounds is None else [(None if b is None else b / s) for b, s in zip(bounds, scale, strict=True)]
            )
            found = minimize(
                lambda x: (lambda value, slope: (value, slope * scale))(*function(x * scale)),
                x,
                jac=True,
                method="L-BFGS-B",
                bounds=None if box is None else [(b, None) for b in box],
                options={"maxiter": 5000, "maxfun": 20000, "ftol": 1e-16, "gtol": 1e-12, "maxcor": 30},
            )
            x = found.x
        best = min(best, float(found.fun))
    return best


def fitted_without_warning(made, scores, y, weight):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        return made.fit(scores, y, weight)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_temperature_scaling(kind, n_classes, weighted):
    logits, y = cases(n_classes)[kind]
    w = weights_of(y, weighted)
    fitted = fitted_without_warning(calibrator("ts", logits=True), logits, y, w)
    lead = logits - logits[np.arange(len(y)), y][:, None]  # the loss of a sample is log sum exp(beta lead)

    def loss(beta):
        return float(w @ logsumexp(beta * lead, axis=1) / w.sum())

    spread = np.sqrt((w @ np.var(logits, axis=1)) / w.sum())
    grid = np.append(0.0, np.exp(np.linspace(-14, 14, 400)) / spread)
    values = np.array([loss(beta) for beta in grid])
    k = int(np.argmin(values))
    low, high = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
    for _ in range(200):  # the loss is convex: thirds
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (a, high) if loss(a) > loss(b) else (low, b)
    best = min(loss(low), values.min())
    found = loss(fitted.beta_)
    if fitted.bound_ == "separable":
        # No label is behind: log loss falls for ever, and the fit stops at Jeffreys' (n + 1/2) / (n + 1).
        assert (lead <= 0).all()
        ties = float(w @ np.log((lead == 0).sum(axis=1)) / w.sum())
        assert found - ties == pytest.approx(np.log((w.sum() + 1) / (w.sum() + 0.5)), rel=1e-6)
    elif fitted.bound_ == "uniform":
        assert found <= best * (1 + 1e-5)
    else:
        assert found <= best * (1 + RELATIVE)
    assert fitted.loss_ == pytest.approx(found, rel=1e-8)


def features_of(name, logits, on_class, floor=0.0):
    log_p = log_softmax(logits, axis=1)
    others = np.delete(log_p, on_class, axis=1)
    log_p, log_not = log_p[:, on_class], logsumexp(others, axis=1)
    if floor:
        log_p, log_not = np.maximum(log_p, np.log(floor)), np.maximum(log_not, np.log(floor))
    return np.stack([log_p - log_not], 1) if name == "platt" else np.stack([log_p, -log_not], 1)


def logistic_loss(x, positive, w, smoothing=True):
    n_plus, n_minus = w @ positive, w @ ~positive
    high, low = ((n_plus + 1) / (n_plus + 2), 1 / (n_minus + 2)) if smoothing else (1.0, 0.0)
    target = np.where(positive, high, low)

    def loss(theta):
        u = x @ theta[:-1] + theta[-1]
        r = w * (expit(u) - target)
        return float(w @ (np.logaddexp(0, u) - target * u)), np.append(r @ x, r.sum())

    return loss


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["platt", "beta"])
def test_logistic_maps(name, kind, n_classes, weighted):
    logits, y = cases(n_classes)[kind]
    w = weights_of(y, weighted)
    fitted = fitted_without_warning(calibrator(name, logits=True), logits, y, w)
    coefficients = fitted.map_.coef_ if hasattr(fitted, "map_") else fitted.coef_
    for row, on_class in enumerate(range(n_classes) if n_classes > 2 else [1]):
        x = features_of(name, logits, on_class)
        centre, size = x.mean(axis=0), x.std(axis=0) + 1e-300
        loss = logistic_loss((x - centre) / size, y == on_class, w)
        found = coefficients[row]
        # Rounding: slopes of 1e9 times features near 1 leave an intercept as the difference of large numbers.
        own = np.append(found[:-1] * size, found[-1] + found[:-1] @ centre)
        best = least(
            loss, [np.append(0.01 * np.ones(x.shape[1]), 0.0), own], np.ones(len(own)), [0.0] * x.shape[1] + [None]
        )
        # Logarithms near 1 that vary by 1e-9 carry a relative noise of 1e-7, which is another for each way to compute.
        assert loss(own)[0] <= best * (1 + (1e-7 if kind == "tiny" else RELATIVE))
        assert (found[:-1] > 0).all()


def linear_loss(fitted, logits, y, w):
    """Penalised mean loss of a member of the softmax-linear family in its own parameters, and where it was found."""
    source = door.rows(logits, y, w, logits=True)
    problem = fitted._problem(source)
    chosen = hasattr(fitted, "strength_")
    penalty = Penalty(*(fitted._odir(source, problem, fitted.strength_) if chosen else fitted._ridges(source)))
    n_classes = logits.shape[1]
    ridge = ridge_vector(penalty, problem, n_classes)
    s = problem.beta * log_softmax(logits, axis=1)
    one_hot = np.eye(n_classes)[y]

    def loss(theta):
        weight, b = theta[:-n_classes], theta[-n_classes:]
        u = s + b + (s @ weight.reshape(n_classes, -1).T if problem.full else s * weight)
        log_p = log_softmax(u, axis=1)
        r = (np.exp(log_p) - one_hot) * w[:, None] / w.sum()
        in_weight = (r.T @ s).ravel() if problem.full else np.einsum("ij,ij->j", r, s)
        value = -float(w @ log_p[np.arange(len(y)), y]) / w.sum() + 0.5 * float(ridge @ theta**2)
        return value, np.append(in_weight, r.sum(axis=0)) + ridge * theta

    identity = np.eye(n_classes) if problem.full else np.ones(n_classes)
    theta = np.append((fitted.weight_ / problem.beta - identity).ravel(), fitted.intercept_)
    square = (s**2).mean(axis=0)
    square = np.tile(square, n_classes) if problem.full else square
    return loss, theta, 1 / np.sqrt(0.25 * np.append(square, np.ones(n_classes)) + ridge)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["vector", "svs", "sms", "matrix", "dirichlet"])
def test_softmax_linear_maps(name, kind, n_classes, weighted):
    logits, y = cases(n_classes)[kind]
    w = weights_of(y, weighted)
    fitted = fitted_without_warning(calibrator(name, logits=True), logits, y, w)
    loss, theta, scale = linear_loss(fitted, logits, y, w)
    best = least(loss, [np.zeros(len(theta)), theta], scale)
    assert loss(theta)[0] <= best * (1 + RELATIVE) + 1e-12


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_ensemble_temperature_scaling(kind, n_classes):
    """At the temperature found, the weights on the simplex are the best: expectation-maximisation, extrapolated."""
    logits, y = cases(n_classes)[kind]
    fitted = fitted_without_warning(calibrator("ets", logits=True), logits, y, None)
    log_p = [log_softmax(beta * logits, axis=1)[np.arange(len(y)), y] for beta in (fitted.beta_, 1.0)]
    members = np.stack([*log_p, np.full(len(y), -np.log(n_classes))])

    def loss(w):
        with np.errstate(divide="ignore"):
            return -float(logsumexp(members + np.log(w)[:, None], axis=0).mean())

    # Karush-Kuhn-Tucker: no member is worth more than the mixture, by the mean of member over mixture.
    w = np.maximum(fitted.member_weights_, 0)
    with np.errstate(divide="ignore"):
        mixture = logsumexp(members + np.log(w)[:, None], axis=0)
    worth = np.exp(members - mixture).mean(axis=1)
    # The loss is convex in w: it is above its least by at most the largest worth less one.
    assert worth.max() - 1 <= 1e-5 * max(loss(w), 1e-6) + 2e-6
    corners = [loss(corner) for corner in np.eye(3)]
    assert loss(w) <= min(corners) * (1 + RELATIVE) + 1e-6 * 1e-3


@pytest.mark.parametrize("name", ["ts", "platt", "beta", "svs", "iop"])
def test_saturated_naive_bayes_scores(name):
    """Log-odds beyond 50, some exact zeros, a fifth of the predictions wrong: no map stays at 15 nats."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1000)
    lead = rng.uniform(50, 900, 1000) * (2 * y - 1) * np.where(rng.random(1000) < 0.2, -1, 1)
    p = softmax(np.stack([np.zeros(1000), lead], 1))
    p[p < 1e-300] = 0
    fitted = fitted_without_warning(calibrator(name), p, y, None)
    q = fitted.predict_proba(p)
    assert -np.log(q[np.arange(1000), y]).mean() < 0.56


def test_scale_of_the_scores_does_not_change_the_predictions():
    logits, y, _ = drawn(300, 3)
    for name in ("ts", "iop", "gpc"):
        plain = calibrator(name, logits=True).fit(logits, y).predict_proba(logits)
        for scale in SCALES:
            scaled = calibrator(name, logits=True).fit(scale * logits, y).predict_proba(scale * logits)
            np.testing.assert_allclose(scaled, plain, atol=1e-7)


def test_a_fit_that_stops_early_warns_and_says_what_to_do():
    with pytest.warns(ConvergenceWarning, match=r"SomeMap: .*would lower .* 1.0e-02 .*float64"):
        certify("SomeMap", 0.01)
    with pytest.warns(ConvergenceWarning):
        certify("SomeMap", float("nan"))
    certify("SomeMap", 1e-9)


def test_an_interrupted_solver_warns(monkeypatch):
    logits, y, _ = drawn(200, 2)
    monkeypatch.setattr("mixnmatch.maps._logistic_fit.newton", lambda *a, **k: newton(*a, **{**k, "iterations": 1}))
    with pytest.warns(ConvergenceWarning, match="PlattScaling"):
        mm.maps.PlattScaling(logits=True).fit(8 * logits, y)


def test_newton_takes_problems_of_very_different_scales_together():
    centre = np.array([[1e-6], [1.0], [1e6]])

    def at(theta):
        gap = theta / centre - 1
        return Point(theta, (gap**4 + gap**2)[:, 0] + 1, (4 * gap**3 + 2 * gap) / centre, (12 * gap**2 + 2) / centre**2)

    found = newton(at, at(np.zeros((3, 1))), lambda point: -point.gradient / point.curvature)
    np.testing.assert_allclose(found.point.theta, centre, rtol=1e-6)
    assert found.residual <= 1e-9


@pytest.mark.parametrize("centre", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("start", [1e-6, 1.0, 1e6])
def test_search_in_one_dimension_keeps_its_bracket(centre, start):
    """A function that is nearly flat far from its minimum, where Newton's method alone runs away."""

    def statistic(beta):
        u = np.log(beta / centre)
        slope, bend = u / np.sqrt(1 + u**2), 1 / (1 + u**2) ** 1.5
        return np.sqrt(1 + u**2), slope / beta, (bend - slope) / beta**2

    found = minimise_scalar(statistic, start, tolerance=1e-10, high=1e15)
    assert found.beta == pytest.approx(centre, rel=1e-8)
    assert found.end is None

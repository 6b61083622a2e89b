import numpy as np
import pytest
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize
from scipy.special import logsumexp

from mixnmatch.maps import PlattScaling, SplineCalibration
from mixnmatch.maps._natural_splines import NaturalSplines
from mixnmatch.maps.odds_curve import average, nodes
from tests.conftest import nll
from tests.maps.test_shrunken import drawn, sigmoid

PAIRS = ((0.4, 1.0), (1.0, 0.0), (1.5, -2.0))


def wavy(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-4, 4, n)
    return x, (rng.random(n) < sigmoid(0.5 * x + 1.2 * np.sin(1.5 * x))).astype(int)


def test_roughness_is_the_integral_of_the_squared_second_derivative():
    knots = np.array([-3.0, -1.0, 0.5, 0.8, 2.0, 5.0])
    splines = NaturalSplines.at(knots)
    values = np.random.default_rng(0).normal(size=6)
    spline = CubicSpline(knots, values, bc_type="natural")
    at = np.linspace(-3, 5, 800001)
    integral = np.mean(spline(at, 2) ** 2) * 8 * 8**3  # d2/dv2 = 64 d2/dx2, dv = dx / 8
    assert values @ splines.roughness() @ values == pytest.approx(integral, rel=1e-4)
    parts = splines.components()
    bent = np.random.default_rng(1).normal(size=4)
    assert (parts[:, :4] @ bent) @ splines.roughness() @ (parts[:, :4] @ bent) == pytest.approx(bent @ bent)
    np.testing.assert_allclose(splines(at[::1000]) @ values, spline(at[::1000]), atol=1e-12)
    outside = splines(np.array([-5.0, 9.0])) @ values
    expected = values[[0, -1]] + np.array([-2.0, 4.0]) * spline(knots[[0, -1]], 1)
    np.testing.assert_allclose(outside, expected)
    np.testing.assert_allclose(splines.curve(values)(at[::1000]), spline(at[::1000]), atol=1e-12)


def test_agrees_with_an_independent_solver():
    x, y = wavy(300)
    fitted = SplineCalibration(knots=6, penalty=0.05, monotone=False, logits=True).fit(x, y)
    knots = fitted.knots_
    length, middle = np.ptp(knots), knots.mean()
    at = np.linspace(knots[0], knots[-1], 4001)

    def objective(values):
        spline = CubicSpline(knots, values, bc_type="natural")
        inside = np.clip(x, knots[0], knots[-1])
        eta = spline(inside) + (x - inside) * spline(inside, 1)
        rough = np.mean(spline(at, 2) ** 2) * length**4
        return (np.logaddexp(0, eta) - y * eta).sum() + 0.05 * rough / 2

    start = 0.6 * knots
    best = minimize(objective, start, method="BFGS", options={"gtol": 1e-6, "maxiter": 500})
    # Only the weak penalty towards the identity, 0.3 of a unit, is left out.
    found = fitted.curves()[0](knots)
    assert objective(found) - best.fun < 0.02
    assert length > 0
    assert abs(middle) < 1
    np.testing.assert_allclose(found, best.x, atol=0.1)


def test_follows_curves_that_a_line_cannot():
    x, y = wavy(3000)
    new, labels = wavy(3000, seed=1)
    loss = {
        name: nll(kind.fit(x, y).predict_proba(new), labels)
        for name, kind in {
            "line": PlattScaling(logits=True),
            "free": SplineCalibration(monotone=False, logits=True),
            "monotone": SplineCalibration(logits=True),
        }.items()
    }
    true = -np.log(sigmoid(np.where(labels == 1, 1, -1) * (0.5 * new + 1.2 * np.sin(1.5 * new)))).mean()
    assert loss["free"] < true + 0.01
    assert loss["free"] < loss["line"] - 0.05
    assert loss["monotone"] <= loss["line"] + 0.002


@pytest.mark.parametrize("seed", range(6))
def test_monotone_increases_everywhere(seed):
    x, y = wavy(200 + 100 * seed, seed)
    curve = SplineCalibration(logits=True).fit(x, y).curves()[0]
    assert curve.least_slope() > 0
    assert (np.diff(curve(np.linspace(-20, 20, 4001))) > 0).all()
    backwards = SplineCalibration(logits=True).fit(x, 1 - y)
    assert backwards.curves()[0].least_slope() > 0
    # The smallest slope is found exactly, also inside a piece.
    free = SplineCalibration(penalty=1e-3, monotone=False, logits=True).fit(x, y).curves()[0]
    at = np.linspace(-5, 5, 200001)
    slopes = np.diff(free(at)) / np.diff(at)
    assert free.least_slope() <= slopes.min() + 1e-9
    assert free.least_slope() == pytest.approx(slopes.min(), abs=1e-3)


def test_calibrated_scores_are_left_nearly_alone():
    x, y = drawn(2000)
    at = np.linspace(-3, 3, 61)
    found = SplineCalibration(logits=True).fit(x, y).predict_proba(at)[:, 1]
    np.testing.assert_allclose(found, sigmoid(at), atol=0.05)


def test_parameters_are_checked():
    for knots in (2, 2.5, True, 1000, "many"):
        with pytest.raises(ValueError, match="knots must be a whole number from 3 to 100"):
            SplineCalibration(knots=knots).fit([0.5], [1])
    assert not SplineCalibration(monotone=False).strictly_increasing
    assert SplineCalibration().injective


@pytest.mark.parametrize("monotone", [True, False])
def test_average_is_the_mean_of_the_probabilities(monotone):
    rng = np.random.default_rng(0)
    knots = np.array([-6.0, -2.5, -1.0, 0.0, 0.5, 3.0, 7.0])
    splines = NaturalSplines.at(knots)
    curves = [splines.curve(slope * (knots + 0.2 * rng.normal(size=7)) - shift) for slope, shift in PAIRS]
    assert all(curve.least_slope() > 0 for curve in curves)
    weights = rng.dirichlet(np.ones(len(curves)))
    at = nodes(knots)
    values, slopes = (np.stack([part(at) for part in parts]) for parts in (curves, [c.slope for c in curves]))
    made = average(at, values, slopes, weights, inside=slice(5, len(at) - 5), monotone=monotone)
    x = rng.uniform(-60, 60, size=4000)
    f = np.stack([curve(x) for curve in curves])
    # Logarithms of the mean and of its complement, so that nothing is lost where probabilities are near 1.
    log_p = logsumexp(-np.logaddexp(0, -f), axis=0, b=weights[:, None])
    log_not = logsumexp(-np.logaddexp(0, f), axis=0, b=weights[:, None])
    inside = np.abs(x) < 10
    np.testing.assert_allclose(made(x[inside]), (log_p - log_not)[inside], atol=0.01)
    np.testing.assert_allclose(sigmoid(made(x)), np.exp(log_p), atol=1e-3)
    assert not monotone or made.least_slope() > 0


@pytest.mark.parametrize("monotone", [20.0, False])
def test_average_of_equal_scores(monotone):
    for x in (*np.random.default_rng(0).normal(0, 20, 40), 85.0, 1e9, -1e9, 0.0):
        fitted = SplineCalibration(penalty="average", monotone=monotone, logits=True).fit([x, x, x], [0, 1, 1])
        assert 0 < fitted.predict_proba([x])[0, 1] < 1


@pytest.mark.parametrize("monotone", [True, 20.0, False])
@pytest.mark.parametrize("far", [-1e4, 1e4, 1e8])
def test_average_of_scores_with_one_far_away(monotone, far):
    rng = np.random.default_rng(0)
    x = np.append(rng.normal(0, 2, 500), far)
    y = (rng.random(501) < sigmoid(np.clip(x, -9, 9))).astype(int)
    p = SplineCalibration(penalty="average", monotone=monotone, logits=True).fit(x, y).predict_proba(np.sort(x))[:, 1]
    assert np.isfinite(p).all()
    assert not monotone or (np.diff(p) >= 0).all()


def test_average_never_decreases_beyond_the_samples():
    """Small scores say nothing about large ones: where the curve bends there, it stays level."""
    rng = np.random.default_rng(0)
    x = rng.normal(-11, 1.5, 500)
    y = (rng.random(500) < sigmoid(2 * (x + 11))).astype(int)
    for monotone in (True, 20.0, False):
        fitted = SplineCalibration(penalty="average", monotone=monotone, logits=True).fit(x, y)
        beyond = fitted.predict_proba(np.linspace(x.max(), 60, 2000))[:, 1]
        before = fitted.predict_proba(np.linspace(-60, x.min(), 2000))[:, 1]
        assert (np.diff(beyond) >= 0).all()
        assert (np.diff(before) >= 0).all()


def test_odds_decide_whether_an_average_may_decrease():
    def fit(shape, monotone):
        x = np.random.default_rng(1).normal(0, 2, 300)
        y = (np.random.default_rng(2).random(300) < sigmoid(shape(x))).astype(int)
        return SplineCalibration(penalty="average", monotone=monotone, logits=True).fit(x, y)

    for shape in (lambda x: 0.1 * x, lambda x: 3 - x**2):
        free, strict = fit(shape, False).pieces_, fit(shape, True).pieces_
        assert not np.array_equal(free, strict)
        wanted = strict if shape(1.0) == 0.1 else free
        np.testing.assert_allclose(fit(shape, 20.0).pieces_, wanted, rtol=1e-9, atol=1e-9)
    assert not fit(lambda x: x, 20.0).strictly_increasing
    for wrong in (0.0, -1, "no"):
        with pytest.raises(ValueError, match="monotone must be True, False or a positive number"):
            SplineCalibration(penalty="average", monotone=wrong).fit([0.5], [1])
    with pytest.raises(ValueError, match='odds are for penalty="average"'):
        SplineCalibration(monotone=20.0).fit([0.5], [1])


def test_average_loses_less_than_one_spline_with_few_samples():
    lost = {"loo": [], "average": []}
    for seed in range(20):
        for slope in (0.6, 1.0, 1.5):
            x, y = drawn(80, slope, 0.2, seed=seed)
            new, labels = drawn(4000, slope, 0.2, seed=seed + 100)
            for penalty, losses in lost.items():
                fitted = SplineCalibration(penalty=penalty, monotone=False, logits=True).fit(x, y)
                losses.append(nll(fitted.predict_proba(new), labels))
    loo, average = (np.reshape(losses, (20, 3)).mean(axis=0) for losses in lost.values())
    assert average.mean() < loo.mean() - 0.003
    assert average[1] < loo[1] - 0.008  # calibrated scores


def test_average_leaves_calibrated_scores_nearly_alone():
    x, y = drawn(60, 1.0, 0.0, seed=1)
    fitted = SplineCalibration(penalty="average", logits=True).fit(x, y)
    at = np.linspace(-3, 3, 50)
    np.testing.assert_allclose(fitted.predict_proba(at)[:, 1], sigmoid(at), atol=0.12)


def test_average_counts_weights_as_repetitions():
    x, y = wavy(60)
    weight = np.random.default_rng(0).integers(0, 4, size=60)
    made = SplineCalibration(penalty="average", logits=True)
    weighted = made.fit(x, y, weight).predict_proba(x)
    repeated = made.fit(np.repeat(x, weight), np.repeat(y, weight)).predict_proba(x)
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)


def test_average_follows_clear_distortions():
    x, y = wavy(3000)
    new, labels = wavy(20000, seed=1)
    fitted = SplineCalibration(penalty="average", monotone=False, logits=True).fit(x, y)
    best = nll(np.stack([1 - (p := sigmoid(0.5 * new + 1.2 * np.sin(1.5 * new))), p], axis=1), labels)
    assert nll(fitted.predict_proba(new), labels) < best + 0.01


def test_average_bends_where_scores_are_far_apart():
    # Log-odds of naive Bayes: most are large, and what is wrong with them is where they are small.
    rng = np.random.default_rng(0)
    x = 40 * rng.standard_normal(4000)
    y = (rng.random(4000) < sigmoid(2 * np.arcsinh(x) / 3 + 1)).astype(int)
    fitted = SplineCalibration(penalty="average", monotone=False, logits=True).fit(x, y)
    at = np.linspace(-60, 60, 100)
    np.testing.assert_allclose(fitted.predict_proba(at)[:, 1], sigmoid(2 * np.arcsinh(at) / 3 + 1), atol=0.05)

"""Measures of two classes: against closed forms, other optimisers, simulations, and what degenerate samples give."""

import math
import warnings

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.stats import beta, norm

from mixnmatch import rows
from mixnmatch.evaluation import binary_measures, evaluate
from mixnmatch.evaluation.two_classes import MEASURES
from mixnmatch.maps import OneVsAll, PlattScaling


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def made(n=800, shift=0.3, slope=0.8, seed=0, mean=-2.0):
    rng = np.random.default_rng(seed)
    u = rng.normal(mean, 1.5, n)
    return u, (rng.random(n) < sigmoid(shift + slope * u)).astype(int)


def by_hand(u, y, weight, parameters):
    """The fit by a general optimiser, and the inverse of a curvature by differences."""

    def loss(theta):
        eta = parameters(theta, u)
        return float(weight @ (np.logaddexp(0, eta) - y * eta))

    found = minimize(loss, [0.0] * (1 if parameters is shifted else 2), method="Nelder-Mead", options={"xatol": 1e-10})
    return minimize(loss, found.x, method="BFGS", options={"gtol": 1e-9}).x


def shifted(theta, u):
    return theta[0] + u


def scaled(theta, u):
    return theta[0] + theta[1] * u


@pytest.mark.parametrize("weighted", [False, True])
def test_intercept_and_slope_are_maximum_likelihood(weighted):
    u, y = made()
    weight = np.random.default_rng(1).integers(1, 4, len(u)).astype(float) if weighted else np.ones(len(u))
    found = binary_measures(u, y, weight if weighted else None)
    assert float(found["calibration_intercept"]) == pytest.approx(by_hand(u, y, weight, shifted)[0], abs=1e-5)
    assert float(found["calibration_slope"]) == pytest.approx(by_hand(u, y, weight, scaled)[1], abs=1e-5)


@pytest.mark.parametrize("kind", ["ordinary", "1% positives", "saturated and wrong", "30 samples"])
def test_intercept_and_slope_solve_their_equations_to_rounding(kind):
    """statsmodels and roots of the likelihood's derivative agree to 1e-8, which a refused last step would miss."""
    for seed in range(12):
        u, y = made({"30 samples": 30, "1% positives": 5000}.get(kind, 800), seed=seed,
                    mean=-5.5 if kind == "1% positives" else -0.5)  # fmt: skip
        if kind == "saturated and wrong":
            u, y = np.r_[u, np.repeat([50.0, -50.0], 20)], np.r_[y, np.arange(20) > 2, np.arange(20) < 2]
        found = binary_measures(u, y)
        root = brentq(lambda a, u=u, y=y: np.sum(sigmoid(u + a) - y), -9, 9, xtol=1e-14)
        assert float(found["calibration_intercept"]) == pytest.approx(root, abs=1e-10)
        slope = float(found["calibration_slope"])
        intercept = brentq(lambda a, u=u, y=y, b=slope: np.sum(sigmoid(a + b * u) - y), -30, 30, xtol=1e-14)
        p = sigmoid(intercept + slope * u)
        spread = u - np.average(u, weights=p * (1 - p))
        assert abs(spread @ (p - y)) / ((p * (1 - p)) @ spread**2) < 1e-10


def platt(**options):
    return OneVsAll(PlattScaling(smoothing=False), smoothing=0, **options)


def test_they_are_what_the_platt_map_learns():
    u, y = made()
    map_ = platt(logits=True).fit(np.column_stack([np.zeros_like(u), u]), y).map_
    assert float(binary_measures(u, y)["calibration_slope"]) == pytest.approx(map_.coef_[0, 0], rel=1e-6)
    p = sigmoid(u)
    p[:40], p[40:50] = 0.0, 1.0  # read as half of the smallest probability, as maps read them
    map_ = platt().fit(p, y).map_
    assert float(evaluate(p, y, interval=False)["calibration_slope"]) == pytest.approx(map_.coef_[0, 0], rel=1e-6)


def test_observed_expected_has_the_interval_of_the_frequency():
    u, y = made()
    p, one = sigmoid(u), binary_measures(u, y)["observed_expected"]
    k, n = y.sum(), len(y)
    ends = beta.ppf(0.025, k, n - k + 1), beta.ppf(0.975, k + 1, n - k)
    assert float(one) == pytest.approx(y.mean() / p.mean(), rel=1e-12)
    np.testing.assert_allclose(one.interval, np.array(ends) / p.mean(), rtol=1e-9)
    assert (one.observed, one.expected) == pytest.approx((y.mean(), p.mean()), rel=1e-12)


def test_spiegelhalter():
    u, y = made()
    p, one = sigmoid(u), binary_measures(u, y)["spiegelhalter"]
    z = ((y - p) * (1 - 2 * p)).sum() / math.sqrt(((1 - 2 * p) ** 2 * p * (1 - p)).sum())
    assert float(one) == pytest.approx(z, rel=1e-10)
    assert one.p_value == pytest.approx(2 * norm.sf(abs(z)), rel=1e-9)


@pytest.mark.parametrize("share", [1, 5])
def test_top_scores(share):
    u, y = made(n=1000)
    top = np.argsort(-u)[: 10 * share]
    one = binary_measures(u, y)[f"top_{share}_percent"]
    assert one.n_samples == 10 * share
    assert float(one) == pytest.approx(y[top].mean() - sigmoid(u[top]).mean(), abs=1e-12)
    assert one.interval[0] <= float(one) <= one.interval[1]


def test_top_scores_with_ties_do_not_depend_on_the_order():
    u, y = made(n=1000)
    u = np.round(u)
    back = slice(None, None, -1)
    for name in ("top_1_percent", "top_5_percent"):
        first, second = binary_measures(u, y)[name], binary_measures(u[back], y[back])[name]
        assert float(first) == pytest.approx(float(second), abs=1e-12)
        assert first.n_samples == second.n_samples


def test_a_weight_is_a_repetition_for_values():
    u, y = made(n=300)
    weight = np.random.default_rng(2).integers(0, 4, 300)
    many = np.repeat(np.arange(300), weight)
    weighted = evaluate(sigmoid(u), y, sample_weight=weight, interval=False)
    repeated = evaluate(sigmoid(u[many]), y[many], interval=False)
    for name in MEASURES:
        if name != "spiegelhalter":  # a test counts samples
            assert float(weighted[name]) == pytest.approx(float(repeated[name]), abs=1e-9)


def test_intervals_cover():
    """95% intervals of calibrated scores hold the value of calibrated scores, at 2% positives."""
    names = ("observed_expected", "calibration_intercept", "calibration_slope", "top_5_percent")
    hits, rejected, runs = dict.fromkeys(names, 0), 0, 400
    for seed in range(runs):
        u, y = made(n=1000, shift=0.0, slope=1.0, seed=seed, mean=-5.0)
        found = binary_measures(u, y)
        for name, truth in zip(names, (1.0, 0.0, 1.0, 0.0), strict=True):
            low, high = found[name].interval
            hits[name] += low <= truth <= high
        rejected += found["spiegelhalter"].p_value <= 0.05
    assert min(hits.values()) >= 0.925 * runs, hits
    assert 0.02 * runs <= rejected <= 0.085 * runs


def test_clusters_widen_intervals():
    u, y = made(n=600)
    many, clusters = np.repeat(np.arange(600), 5), np.repeat(np.arange(600), 5)
    alone = evaluate(sigmoid(u), y, interval=False)
    together = evaluate(sigmoid(u[many]), y[many], clusters=clusters, interval=False)
    naive = evaluate(sigmoid(u[many]), y[many], interval=False)
    for name in ("observed_expected", "calibration_intercept", "calibration_slope"):
        widths = [one[name].interval[1] - one[name].interval[0] for one in (alone, together, naive)]
        assert widths[1] == pytest.approx(widths[0], rel=0.15)
        assert widths[2] < 0.6 * widths[1]
    assert abs(together["spiegelhalter"]) < 0.8 * abs(naive["spiegelhalter"])


def test_saturated_log_odds():
    """Probabilities that round to 1 still have log-odds: a slope is that of the log-odds."""
    u, y = made(mean=0.0)
    plain, steep = (binary_measures(factor * u, y)["calibration_slope"] for factor in (1.0, 50.0))
    assert float(steep) == pytest.approx(float(plain) / 50, rel=1e-8)
    found = evaluate(np.column_stack([np.zeros_like(u), 50 * u]), y, logits=True, interval=False)
    assert float(found["calibration_slope"]) == pytest.approx(float(steep), rel=1e-8)


@pytest.mark.parametrize(
    ("u", "y", "intercept", "slope"),
    [
        ([-1.0, 1.0], [0, 1], None, math.inf),
        ([-1.0, 1.0], [1, 0], None, -math.inf),
        ([0.5, 0.5, 0.5], [1, 0, 1], None, math.nan),
        ([0.1, 0.2], [0, 0], -math.inf, math.nan),
        ([0.1], [1], math.inf, math.nan),
        ([-math.inf, math.inf, math.inf], [0, 1, 0], None, None),
        ([-1e9, -1e8, 1e8, 1e9], [0, 1, 0, 1], None, None),
    ],
)
def test_degenerate_samples(u, y, intercept, slope):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = binary_measures(np.array(u), np.array(y))
    for name, expected in (("calibration_intercept", intercept), ("calibration_slope", slope)):
        if expected is None:
            assert not math.isnan(float(found[name])) or len(u) < 4
        else:
            assert float(found[name]) == pytest.approx(expected, nan_ok=True)
            assert all(math.isnan(end) for end in found[name].interval)
    for one in found.values():
        one.to_dict()
        assert str(one)


def test_an_impossible_event_is_rejected():
    found = binary_measures(np.array([-math.inf, -math.inf]), np.array([0, 1]))["spiegelhalter"]
    assert math.isinf(float(found))
    assert found.p_value == 0
    assert float(binary_measures(np.array([-math.inf, math.inf]), np.array([0, 1]))["spiegelhalter"]) == 0


def test_evaluate_has_them_for_two_classes_only():
    u, y = made(n=200)
    assert set(MEASURES) <= set(evaluate(sigmoid(u), y, interval=False))
    p = np.column_stack([sigmoid(u), np.zeros_like(u), 1 - sigmoid(u)])
    three = rows(p, y)
    assert not set(MEASURES) & set(evaluate(three, interval=False))
    with pytest.raises(ValueError, match="there is no metric 'calibration_slope'"):
        evaluate(three, metrics=["calibration_slope"])


def test_after_a_map():
    u, y = made(n=4000, shift=-1.0, slope=0.5)
    map_ = platt().fit(sigmoid(u), y)
    after = evaluate(sigmoid(u), y, map=map_, interval=False).after
    assert float(after["calibration_slope"]) == pytest.approx(1.0, abs=1e-6)
    assert float(after["calibration_intercept"]) == pytest.approx(0.0, abs=1e-6)
    assert float(after["observed_expected"]) == pytest.approx(1.0, abs=1e-6)


def test_results_cannot_be_changed():
    one = binary_measures(*made(n=50))["calibration_slope"]
    with pytest.raises(AttributeError):
        one.interval = (0, 1)

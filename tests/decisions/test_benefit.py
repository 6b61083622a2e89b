"""Decision curves, against the package dcurves and against counting."""

import numpy as np
import pytest

from mixnmatch.decisions import net_benefit

# Made with dcurves 1.1.7: dca(DataFrame({"y": Y, "m": P}), outcome="y", modelnames=["m"], thresholds=THRESHOLDS).
P = [
    0.0, 1.0, 0.12, 0.27, 0.16, 0.05, 0.49, 0.39, 0.07, 0.22, 0.52, 0.12, 0.04, 0.3, 0.16, 0.07, 0.61, 0.16, 0.09, 0.2,
    0.09, 0.29, 0.38, 0.7, 0.03, 0.1, 0.16, 0.38, 0.09, 0.43, 0.23, 0.3, 0.01, 0.32, 0.22, 0.05, 0.29, 0.28, 0.15, 0.57,
    0.09, 0.21, 0.4, 0.15, 0.18, 0.18, 0.09, 0.15, 0.25, 0.31, 0.81, 0.05, 0.25, 0.06, 0.3, 0.21, 0.09, 0.46, 0.39,
    0.85,
]  # fmt: skip
Y = [
    0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1,
    1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1,
]  # fmt: skip
THRESHOLDS = [0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.99]
DCURVES = {
    None: (
        [0.38333333333333336, 0.37142857142857144, 0.30740740740740735, 0.18888888888888888, 0.11666666666666668, 0.05,
         0.016666666666666666],
        [0.38333333333333336, 0.3707482993197279, 0.3148148148148148, 0.1777777777777778, -0.23333333333333334,
         -1.4666666666666668, -60.666666666666615],
        [0.033333333333332826, -0.06666666666666726, 0.033333333333333215, 0.35000000000000003, 0.5055555555555556,
         0.6129629629629629],
    ),
    0.05: (
        [0.05, 0.03166023166023166, -0.019963441702572138, -0.06153544849197023, 0.015217391304347828,
         0.006521739130434783, 0.002173913043478261],
        [0.05, 0.030612244897959186, -0.05555555555555555, -0.26666666666666666, -0.8999999999999999, -2.8,
         -93.99999999999991],
        [0.051351351351351104, 0.3203290246768507, 0.6153936545240893, 0.9152173913043478, 0.9355072463768116,
         0.9495169082125603],
    ),
}  # fmt: skip


@pytest.mark.parametrize("prevalence", DCURVES)
def test_equal_to_dcurves(prevalence):
    curve = net_benefit(P, Y, THRESHOLDS, prevalence=prevalence)
    model, everyone, avoided = DCURVES[prevalence]
    np.testing.assert_allclose(curve.net_benefit, model, rtol=0, atol=1e-12)
    np.testing.assert_allclose(curve.select_all, everyone, rtol=1e-12)
    assert np.isnan(curve.interventions_avoided[0])
    np.testing.assert_allclose(curve.interventions_avoided[1:], avoided, rtol=0, atol=1e-12)


def test_cost_is_counted():
    p, y = np.array(P), np.array(Y)
    curve = net_benefit(p, y)
    for t, cost in zip(curve.threshold, curve.cost, strict=True):
        decided = p >= t
        assert cost == pytest.approx((t * (decided & (y == 0)) + (1 - t) * (~decided & (y == 1))).mean(), abs=1e-14)
    np.testing.assert_allclose(curve.cost, (1 - curve.threshold) * (y.mean() - curve.net_benefit), atol=1e-14)
    np.testing.assert_allclose(curve.cost_of_all, curve.threshold * (1 - y.mean()))
    np.testing.assert_allclose(curve.cost_of_none, (1 - curve.threshold) * y.mean())


def test_interval_is_that_of_a_mean():
    p, y = np.array(P), np.array(Y)
    curve = net_benefit(p, y, [0.3])
    x = (p >= 0.3) * np.where(y == 1, 1.0, -0.3 / 0.7)
    half = 2.0009953780882688 * x.std(ddof=1) / np.sqrt(len(x))  # Student t with 59 degrees of freedom
    assert curve.low[0] == pytest.approx(x.mean() - half, abs=1e-12)
    assert curve.high[0] == pytest.approx(x.mean() + half, abs=1e-12)


def test_weights_are_repetitions():
    rng = np.random.default_rng(0)
    w = rng.integers(0, 4, len(P))
    again = np.repeat(np.arange(len(P)), w)
    weighted = net_benefit(P, Y, sample_weight=w)
    repeated = net_benefit(np.array(P)[again], np.array(Y)[again])
    np.testing.assert_allclose(weighted.net_benefit, repeated.net_benefit, atol=1e-12)
    assert weighted.n_rows == (w > 0).sum()


def test_two_columns_and_names():
    p = np.array(P)
    named = np.array(["no", "yes"])[Y]
    curve = net_benefit(np.stack([1 - p, p], 1), named, classes=["no", "yes"])
    np.testing.assert_allclose(curve.net_benefit, net_benefit(P, Y).net_benefit, atol=1e-12)


def test_edges():
    one = net_benefit([0.3], [1])
    assert np.isnan(one.low).all()
    assert one.net_benefit[0] == 1.0
    none = net_benefit([0.1, 0.6], [0, 0], [0.5])
    assert none.prevalence == 0
    assert none.net_benefit[0] == -0.5
    assert none.to_dict()["net_benefit"] == [-0.5]
    with pytest.raises(ValueError, match="both classes"):
        net_benefit([0.1, 0.6], [0, 0], prevalence=0.1)
    with pytest.raises(ValueError, match="from 0 to below 1"):
        net_benefit(P, Y, [1.0])
    with pytest.raises(ValueError, match="two classes"):
        net_benefit(np.full((4, 3), 1 / 3), [0, 1, 2, 0])


@pytest.mark.parametrize("flip", [False, True])
def test_default_thresholds_lie_around_the_frequency_of_a_rare_class(flip):
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-rng.normal(-6, 1.5, 5000)))
    y = (rng.random(5000) < p).astype(int)
    curve = net_benefit(1 - p, 1 - y) if flip else net_benefit(p, y)
    t = 1 - curve.threshold[::-1] if flip else curve.threshold
    assert t[0] / (1 - t[0]) == pytest.approx(0.1 * y.mean() / (1 - y.mean()))
    assert t[-1] == pytest.approx(0.5)
    np.testing.assert_allclose(np.diff(np.log(t / (1 - t)), 2), 0, atol=1e-9)
    assert len(t) == 99
    assert net_benefit(p[y == 0], y[y == 0]).threshold.tolist() == [k / 100 for k in range(1, 100)]

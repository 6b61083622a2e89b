import copy
import json
import pickle

import numpy as np
import pytest

from mixnmatch.evaluation import evaluate, inference
from mixnmatch.evaluation.error import CalibrationMetric, calibration_error
from mixnmatch.evaluation.estimators import ESTIMATORS, Dirichlet, Histogram, KernelDensity, ResidualKernel, Sweep
from mixnmatch.evaluation.notion import Outcomes


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 500)
    y = (p.cumsum(axis=1)[:, :-1] < rng.random((500, 1))).sum(axis=1)
    return p**1.5 / (p**1.5).sum(axis=1, keepdims=True), y


def test_top_label_is_the_default(table):
    p, y = table
    expected = ResidualKernel()(Outcomes(p.max(axis=1), (p.argmax(axis=1) == y).astype(np.int8)))
    error = calibration_error(p, y)
    assert error == pytest.approx(expected)
    assert isinstance(error, float)
    assert (error.estimator, error.notion, error.norm, error.n) == ("kde-residual", "top-label", 1, 500.0)
    assert error.interval is None
    assert error.p_value is None
    assert error >= abs((p.argmax(axis=1) == y).mean() - p.max(axis=1).mean()) - 1e-12


def test_class_wise(table):
    p, y = table
    for name in ("kde-residual", "kde", "smooth", "histogram", "sweep"):
        chosen = ESTIMATORS[name]()
        each = [chosen(Outcomes(np.ascontiguousarray(p[:, k]), (y == k).astype(np.int8))) for k in range(4)]
        error = calibration_error(p, y, notion="class-wise", estimator=name)
        assert error == pytest.approx(np.mean(each), rel=2e-3)
        np.testing.assert_allclose(error.per_class, each, rtol=1e-2, atol=1e-5)
        weighted = calibration_error(p, y, notion="class-wise", estimator=name, average="frequency")
        assert weighted == pytest.approx(np.bincount(y, minlength=4) / 500 @ each, rel=2e-3)


def test_absent_class():
    p = np.array([[0.7, 0.3, 0.0], [0.4, 0.6, 0.0], [0.2, 0.8, 0.0]])
    error = calibration_error(p, [0, 1, 1], notion="class-wise")
    assert error.per_class[2] == pytest.approx(0, abs=1e-6)
    assert calibration_error(p, ["a", "b", "b"], classes=["a", "b", "c"], notion="class-wise") == error


@pytest.mark.parametrize("name", ["kde", "kde-residual", "dirichlet", "skce"])
def test_canonical(table, name):
    p, y = table
    error = calibration_error(p, y, notion="canonical", estimator=name)
    assert np.isfinite(error)
    assert error.norm == (2 if name == "skce" else 1)
    small = calibration_error(p[:60], y[:60], notion="canonical", estimator=name, interval=True)
    assert 0 <= small.interval[0] <= small.interval[1]
    assert 0 <= small.p_value <= 1


def test_binary_and_two_columns():
    rng = np.random.default_rng(1)
    z = rng.random(300)
    y = (rng.random(300) < z).astype(int)
    one = calibration_error(z, y)
    two = calibration_error(np.stack([1 - z, z], axis=1), y, notion="binary")
    assert one == pytest.approx(two)
    assert one.notion == "binary"
    logit = np.log(z / (1 - z))
    assert calibration_error(logit, y, logits=True) == pytest.approx(one, abs=1e-9)
    assert calibration_error(z.astype(np.float32), y) == pytest.approx(one, abs=1e-5)


def test_norms_and_root(table):
    p, y = table
    square = calibration_error(p, y, norm=2)
    assert calibration_error(p, y, norm=2, root=True) == pytest.approx(square**0.5)
    assert calibration_error(p, y, estimator="histogram", norm="max") >= calibration_error(p, y, estimator="histogram")
    assert calibration_error(p, y, estimator="histogram-debiased", norm=2) < square + 0.05
    assert calibration_error(p, y, estimator="histogram-debiased", norm=2, root=True) >= 0
    ends = calibration_error(p, y, norm=2, root=True, interval=True).interval
    squares = calibration_error(p, y, norm=2, interval=True).interval
    assert ends == pytest.approx(tuple(np.sqrt(squares)))


def test_options_reach_the_estimator(table):
    p, y = table
    z, hit = p.max(axis=1), (p.argmax(axis=1) == y).astype(np.int8)
    error = calibration_error(p, y, estimator="histogram", bins=7, binning="equal-mass")
    assert error == pytest.approx(Histogram(bins=7, binning="equal-mass")(Outcomes(z, hit)))
    error = calibration_error(p, y, estimator="kde", bandwidth=0.1, kernel="gaussian")
    assert error == pytest.approx(KernelDensity(bandwidth=0.1, kernel="gaussian")(Outcomes(z, hit)))


def test_weights_are_repetitions(table):
    p, y = table
    times = np.arange(500) % 3
    for notion in ("top-label", "class-wise"):
        weighted = calibration_error(p, y, notion=notion, sample_weight=times)
        repeated = calibration_error(np.repeat(p, times, axis=0), np.repeat(y, times), notion=notion)
        assert weighted == pytest.approx(float(repeated), rel=1e-6)
        assert weighted.n == times.sum()


def test_intervals_are_reproducible(table):
    p, y = table
    first = calibration_error(p, y, interval=True)
    assert first.interval == calibration_error(p, y, interval=True).interval
    assert first.interval == calibration_error(p, y, interval=True, estimator="histogram").interval
    assert 0 <= first.interval[0] <= first.interval[1] <= 1
    assert first.p_value < 0.05
    other = calibration_error(p, y, interval=True, random_state=3)
    assert other.interval != first.interval
    generator = calibration_error(p, y, interval=True, random_state=np.random.default_rng(3))
    assert generator.interval[0] > 0


def test_resampling_does_not_meet_the_users_own_stream():
    rng = np.random.default_rng(0)
    z = rng.random(500)
    y = (rng.random(500) < 0.6 * z).astype(int)
    assert calibration_error(z, y, interval=True).p_value == pytest.approx(1 / 500)


def test_class_wise_interval(table):
    p, y = table
    error = calibration_error(p[:100], y[:100], notion="class-wise", interval=True)
    assert 0 <= error.interval[0] <= error <= error.interval[1]


def test_clusters(table):
    p, y = table
    error = calibration_error(p, y, interval=True, clusters=np.arange(500) // 2)
    assert error.p_value <= 0.1
    with pytest.raises(ValueError, match="clusters must have shape"):
        calibration_error(p, y, interval=True, clusters=[1, 2])
    with pytest.raises(ValueError, match="clusters are for"):
        calibration_error(p, y, notion="class-wise", interval=True, clusters=np.arange(500))


def test_few_clusters(table):
    p, y = table
    with pytest.warns(UserWarning, match="there are 3 clusters") as caught:
        calibration_error(p, y, interval=True, clusters=np.arange(500) % 3)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="there are 19 clusters"):
        calibration_error(p, y, interval=True, clusters=np.arange(500) % 19)
    calibration_error(p, y, interval=True, clusters=np.arange(500) % 20)
    with pytest.raises(ValueError, match="in one cluster"):
        calibration_error(p, y, interval=True, clusters=np.zeros(500))
    # Samples of weight 0 are not there.
    with pytest.raises(ValueError, match="in one cluster"):
        calibration_error(p, y, interval=True, clusters=np.arange(500) < 400, sample_weight=np.arange(500) < 400)


def test_the_former_name_of_clusters(table):
    p, y = table
    clusters = np.arange(500) // 2
    with pytest.warns(FutureWarning, match="clusters=") as caught:
        old = calibration_error(p, y, interval=True, groups=clusters)
    assert caught[0].filename == __file__
    new = calibration_error(p, y, interval=True, clusters=clusters)
    assert (old.interval, old.p_value) == (new.interval, new.p_value)
    with pytest.raises(ValueError, match="pass clusters only"):
        calibration_error(p, y, interval=True, clusters=clusters, groups=clusters)


def test_result(table):
    p, y = table
    error = calibration_error(p, y, interval=True)
    assert json.loads(json.dumps(error.to_dict()))["value"] == float(error)
    assert str(error).count("[") == 1
    assert f"{error:.3f}" == f"{float(error):.3f}"
    assert f"{error}" == str(error)
    assert repr(error).startswith("CalibrationError(")
    for other in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert other == error
        assert other.interval == error.interval
    with pytest.raises(AttributeError, match="immutable"):
        error.n = 3
    assert error.advised_n > 0
    assert "samples" in error.advice
    assert "few" in calibration_error(p[:5], y[:5]).advice
    assert calibration_error(p, y, notion="class-wise").to_dict()["per_class"] is not None


def test_metric_is_a_value(table):
    p, y = table
    metric = CalibrationMetric(Histogram(bins=10), "top-label", 2)
    assert metric == CalibrationMetric(Histogram(bins=10), "top-label", 2)
    assert metric(p, y) == pytest.approx(calibration_error(p, y, estimator="histogram", bins=10, norm=2))
    assert CalibrationMetric()(p, y) == calibration_error(p, y)


def test_refusals(table):
    p, y = table
    with pytest.raises(ValueError, match="notion must be"):
        calibration_error(p, y, notion="marginal")
    with pytest.raises(ValueError, match="norm must be"):
        calibration_error(p, y, norm="max")
    with pytest.raises(ValueError, match="average must be"):
        calibration_error(p, y, average="sum")
    with pytest.raises(ValueError, match="confidence"):
        calibration_error(p, y, confidence=95)
    with pytest.raises(ValueError, match="canonical notion only"):
        calibration_error(p, y, estimator="dirichlet", notion="top-label")
    with pytest.raises(ValueError, match="does not know the canonical"):
        CalibrationMetric(Sweep(), "canonical")
    with pytest.raises(ValueError, match="noise-corrected"):
        calibration_error(p, y, notion="canonical", estimator="kde-residual-debiased")
    with pytest.raises(ValueError, match="dirichlet"):
        calibration_error(np.full((3, 5), 0.2), [0, 1, 2], notion="canonical")
    assert CalibrationMetric(Dirichlet(), "canonical")(p, y) > 0


@pytest.mark.parametrize("estimator", [name for name in ESTIMATORS if name not in ("dirichlet", "skce")])
def test_one_sample(estimator):
    norm = 2 if estimator == "histogram-debiased" else 1
    assert np.isfinite(calibration_error([[0.7, 0.3]], [0], estimator=estimator, norm=norm))


def test_p_values_have_one_floor():
    """Below the smallest p-value that the resamples can show there is only a bound."""
    from mixnmatch.evaluation.inference import TEST_RESAMPLES
    from mixnmatch.evaluation.result import P_VALUE_FLOOR, p_text

    assert pytest.approx(1 / (TEST_RESAMPLES + 1)) == P_VALUE_FLOOR
    assert [p_text(p) for p in (1e-9, 1 / 500, 0.004, 0.6219)] == ["p <= 0.002", "p <= 0.002", "p = 0.004", "p = 0.622"]


WEIGHTED = [
    {},
    {"estimator": "kde"},
    {"estimator": "histogram", "bins": "sturges"},
    {"estimator": "sweep"},
    {"clusters": np.arange(150) // 5},
    {"notion": "class-wise"},
    {"notion": "class-wise", "estimator": "kde"},
    {"notion": "canonical"},
    {"notion": "canonical", "estimator": "dirichlet"},
]


@pytest.mark.parametrize("options", WEIGHTED, ids=str)
def test_tests_and_intervals_depend_on_the_ratios_of_weights_only(table, options):
    p, y = table[0][:150], table[1][:150]
    weight = np.random.default_rng(1).uniform(0.5, 1.5, 150)
    found = [calibration_error(p, y, interval=True, sample_weight=k * weight, **options) for k in (1.0, 10.0, 1000.0)]
    for error in found:
        assert error.p_value == found[0].p_value
        assert error.interval[0] <= error <= error.interval[1]
        assert (error.interval[0] == 0) == (error.p_value > 0.05)
        assert error.effective_n == pytest.approx(found[0].effective_n)
        # An estimate outside, which depends on the sum of the weights, extends the interval.
        outside = [each for each in found if not found[0].interval[0] < each < found[0].interval[1]]
        if not outside:
            assert error.interval == pytest.approx(found[0].interval, rel=1e-6)
    equal = calibration_error(p, y, interval=True, sample_weight=np.full(150, 10.0), **options)
    plain = calibration_error(p, y, interval=True, **options)
    assert equal.p_value == plain.p_value
    assert equal.effective_n == pytest.approx(plain.effective_n)
    assert (equal.n, plain.n) == (1500, 150)


def test_the_test_keeps_its_level_with_random_weights():
    rejected = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        z = rng.beta(0.5, 3.0, 300)
        weight = 50 * rng.exponential(size=300)
        outcomes = Outcomes(z, (rng.random(300) < z).astype(np.int8), weight)
        rejected += inference.calibration_test(outcomes, ResidualKernel(), 1, rng, resamples=99) <= 0.05
    assert rejected <= 18


def test_advice_counts_samples_and_not_weights(table):
    p, y = table
    plain, heavy = calibration_error(p, y), calibration_error(p, y, sample_weight=np.full(500, 100))
    assert plain.advice.startswith("n = 500 samples")
    assert heavy.advice.startswith("n = 500 samples")
    alike = calibration_error(np.repeat(p, 4, axis=0), np.repeat(y, 4), clusters=np.repeat(np.arange(500), 4))
    assert alike.n == 2000
    assert alike.effective_n == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize("clusters", [None, np.arange(800) // 4])
def test_the_order_of_two_classes_does_not_matter(clusters):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        u = rng.normal(-3.0, 1.5, 800)
        p = 1 / (1 + np.exp(-u - 0.3))
        y = (rng.random(800) < 1 / (1 + np.exp(-u))).astype(int)
        one = calibration_error(p, y, interval=True, clusters=clusters)
        other = calibration_error(1 - p, 1 - y, interval=True, clusters=clusters)
        assert one.p_value == other.p_value
        assert one.interval == pytest.approx(other.interval, abs=1e-9)
        p_values = [evaluate(z, k)["calibration_error"].p_value for z, k in ((p, y), (1 - p, 1 - y))]
        assert p_values[0] == p_values[1]


def test_advice_names_the_error_that_it_is_about():
    rng = np.random.default_rng(3)
    p = 1 / (1 + np.exp(-rng.normal(-5.2, 1.9, 5000)))
    y = (rng.random(5000) < p).astype(int)
    error = calibration_error(p, y, interval=True)
    assert error < 0.01
    assert error.advice == (
        "n = 5000 samples are enough to estimate an error of 0.01, which is larger than this one, to within ±50%."
    )
    assert error.interval[1] - error.interval[0] <= 0.01  # ±50% of 0.01
    assert calibration_error(p, y, norm=2).advice.count("0.01") == (calibration_error(p, y, norm=2) < 0.01**2)
    assert "of this size" in calibration_error(np.minimum(2 * p, 1), y).advice

import numpy as np
import pytest
from numpy.testing import assert_allclose

from mixnmatch import calibration_error, calibration_gain, calibrator, rows
from mixnmatch._engine import passes
from mixnmatch.evaluation import accuracy, brier_score, evaluate, log_loss
from mixnmatch.evaluation.two_classes import MEASURES
from tests.conftest import make_problem

SINGLE = {"accuracy": accuracy, "log_loss": log_loss, "brier_score": brier_score}


@pytest.fixture(params=[2, 4])
def problem(request):
    logits, y = make_problem(600, request.param, seed=3)
    weight = np.random.default_rng(0).integers(0, 4, 600).astype(float)
    return logits, y, weight


def test_equals_the_single_functions(problem):
    logits, y, weight = problem
    given = rows(logits, y, weight, logits=True)
    fitted = calibrator("vector", logits=True).fit(given)
    found = evaluate(given, map=fitted)
    after = fitted.predict_proba(logits)
    for side, scores, is_logits in ((found, logits, True), (found.after, after, False)):
        for name, function in SINGLE.items():
            expected = function(scores, y, logits=is_logits, sample_weight=weight)
            assert float(side[name]) == pytest.approx(float(expected), rel=1e-12)
            assert side[name].standard_error == pytest.approx(expected.standard_error, rel=1e-9)
        expected = calibration_error(scores, y, logits=is_logits, sample_weight=weight, interval=True)
        assert float(side["calibration_error"]) == pytest.approx(float(expected), abs=1e-12)
        assert_allclose(side["calibration_error"].interval, expected.interval, atol=1e-9)
        assert side["calibration_error"].p_value == expected.p_value
    gain = calibration_gain(logits, fitted, y, logits=True, sample_weight=weight)
    assert float(found.gain) == pytest.approx(float(gain), abs=1e-12)
    assert found.gain.standard_error == pytest.approx(gain.standard_error, rel=1e-9)


@pytest.mark.parametrize("options", [{"estimator": "histogram", "bins": 10}, {"estimator": "sweep"}, {"norm": 2}])
def test_other_estimators(problem, options):
    logits, y, weight = problem
    found = evaluate(logits, y, logits=True, sample_weight=weight, interval=False, **options)["calibration_error"]
    expected = calibration_error(logits, y, logits=True, sample_weight=weight, **options)
    assert float(found) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("notion", ["class-wise", "canonical"])
def test_other_notions_after_a_map(notion):
    logits, y = make_problem(200, 3, seed=4)
    fitted = calibrator("ts", logits=True).fit(logits, y)
    found = evaluate(logits, y, logits=True, map=fitted, notion=notion, interval=False)
    expected = calibration_error(fitted.predict_proba(logits), y, notion=notion)
    assert float(found.after["calibration_error"]) == pytest.approx(float(expected), abs=1e-9)


def test_one_pass_over_the_table(problem, monkeypatch):
    logits, y, _ = problem
    given = rows(logits, y, logits=True)
    fitted = calibrator("ets", logits=True).fit(given)
    seen = []
    run = passes.run_blocks

    def counting(work, ranges):
        seen.append(ranges[-1][1])
        return run(work, ranges)

    monkeypatch.setattr("mixnmatch._engine.rows.run_blocks", counting)
    evaluate(given, map=fitted, interval=False)
    assert seen == [600]


def test_groups_and_clusters(problem):
    logits, y, weight = problem
    groups = np.where(logits[:, 0] > 0, "high", "low")
    clusters = np.arange(600) % 40
    found = evaluate(logits, y, logits=True, sample_weight=weight, groups=groups, clusters=clusters, interval=False)
    high = groups == "high"
    expected = log_loss(logits[high], y[high], logits=True, sample_weight=weight[high], clusters=clusters[high])
    assert float(found.groups["high"]["log_loss"]) == pytest.approx(float(expected), rel=1e-12)
    assert found.groups["high"]["log_loss"].standard_error == pytest.approx(expected.standard_error, rel=1e-9)
    whole = log_loss(logits, y, logits=True, sample_weight=weight, clusters=clusters)
    assert found["log_loss"].standard_error == pytest.approx(whole.standard_error, rel=1e-9)
    assert set(found.to_dict()["groups"]) == {"high", "low"}
    assert "group high" in str(found)


def test_unknown_metrics_are_refused():
    with pytest.raises(ValueError, match="there is no metric 'ece'"):
        evaluate([0.5, 0.5], [0, 1], metrics=["ece"])


def test_the_error_of_clustered_samples_is_that_of_the_single_function(problem):
    logits, y, weight = problem
    clusters = np.arange(600) % 40
    fitted = calibrator("vector", logits=True).fit(logits, y, weight)
    found = evaluate(logits, y, logits=True, sample_weight=weight, clusters=clusters, map=fitted)
    for side, scores, is_logits in ((found, logits, True), (found.after, fitted.predict_proba(logits), False)):
        settings = {"logits": is_logits, "sample_weight": weight, "clusters": clusters, "interval": True}
        expected = calibration_error(scores, y, **settings)
        assert_allclose(side["calibration_error"].interval, expected.interval, atol=1e-9)
        assert side["calibration_error"].p_value == expected.p_value


def test_a_subgroup_in_one_cluster_has_no_interval(problem):
    logits, y, _ = problem
    clusters = np.arange(600) % 40
    found = evaluate(logits, y, logits=True, clusters=clusters, groups=np.where(clusters == 0, "one", "many"))
    assert np.isnan(found.groups["one"]["brier_score"].standard_error)
    assert found.groups["one"]["calibration_error"].interval is None
    assert found.groups["many"]["calibration_error"].interval is not None


def test_samples_of_weight_zero_after_a_map():
    logits, y = make_problem(200, 3, seed=4)
    weight = (np.arange(200) % 3 > 0).astype(float)
    fitted = calibrator("ts", logits=True).fit(logits, y)
    found = evaluate(logits, y, logits=True, sample_weight=weight, map=fitted, notion="class-wise", interval=False)
    expected = calibration_error(fitted.predict_proba(logits), y, sample_weight=weight, notion="class-wise")
    assert float(found.after["calibration_error"]) == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.parametrize("notion", [None, "class-wise"])
def test_tables_on_dask(problem, notion):
    da = pytest.importorskip("dask.array")
    logits, y, weight = problem
    fitted = calibrator("ts", logits=True).fit(logits, y)
    settings = {"logits": True, "sample_weight": weight, "map": fitted, "notion": notion}
    here = evaluate(logits, y, interval=False, **settings)
    there = evaluate(da.from_array(logits, chunks=(170, -1)), y, interval=notion is None, **settings)
    for one, other in ((here, there), (here.after, there.after)):
        assert set(other) == set(one) - set(MEASURES)  # those need their samples in memory
        for name in other:
            assert float(one[name]) == pytest.approx(float(other[name]), abs=1e-9)
    assert float(here.gain) == pytest.approx(float(there.gain), abs=1e-12)
    if logits.shape[1] == 2:
        with pytest.raises(ValueError, match="spiegelhalter needs its samples in memory"):
            evaluate(da.from_array(logits, chunks=(170, -1)), y, metrics=["spiegelhalter"], logits=True)


@pytest.mark.parametrize("scale", [1.0, 20.0])  # probabilities of ordinary size, and of 1e-4
def test_text_has_one_form_of_estimates_within_80_columns(scale):
    rng = np.random.default_rng(0)
    log_odds = rng.normal(-scale / 2, 1.5, 800)
    y = (rng.random(800) < 1 / (1 + np.exp(-log_odds))).astype(int)
    y[:2] = 0, 1
    scores = 1 / (1 + np.exp(-1.5 * log_odds))
    fitted = calibrator("beta-shrunk").fit(scores, y)
    found = evaluate(scores, y, map=fitted, groups=np.repeat(["one", "other"], 400))
    text = str(found)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("95%") == 4  # in the legend, and in the gain of all samples and of each group
    error = found["calibration_error"]
    low, high = (f"{end:.4g}" for end in error.interval)
    assert f"{error:.4g} [{low}, {high}]" in text
    assert str(error).startswith(f"{error:.4g}, 95% CI [{low}, {high}], p ")
    assert str(found["accuracy"]).startswith(f"{found['accuracy']:.4g}, 95% CI [")


def test_groups_may_be_text_of_a_data_frame():
    pandas = pytest.importorskip("pandas")
    groups = pandas.Series(["north", "south"] * 50)
    scores, y = np.linspace(0.1, 0.9, 100), np.arange(100) % 2
    for given in (groups, groups.astype(object), groups.to_numpy(dtype=object)):
        assert list(evaluate(scores, y, groups=given, metrics=["accuracy"]).groups) == ["north", "south"]


def test_text_names_a_positive_class_other_than_1():
    p, y = np.linspace(0.1, 0.9, 40), np.tile([0, 1], 20)
    swapped = pytest.importorskip("pandas").DataFrame({1: p, 0: 1 - p})
    assert "positive class 0" in str(evaluate(swapped, y))
    assert "positive class" not in str(evaluate(swapped[[0, 1]], y))


def test_text_explains_an_infinite_log_loss():
    p, y = np.linspace(0.0, 0.9, 40), np.tile([1, 0], 20)
    assert "The log loss is infinite: a sample has probability 0 of its label." in str(evaluate(p, y))
    assert "infinite" not in str(evaluate(p + 0.05, y))
    assert "infinite" not in str(evaluate(p, y, metrics=["accuracy"]))

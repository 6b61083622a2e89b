import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import mixnmatch as mm
from mixnmatch import rows as read_rows
from mixnmatch.maps.summary import CELLS, CalibrationSummary, summarise
from mixnmatch.selection.crossfit import composed
from tests.conftest import draw_labels, make_problem, softmax


def shifted(p, ratios):
    """Bayes' rule, written out."""
    product = np.asarray(p, dtype=np.longdouble) * np.asarray(ratios, dtype=np.longdouble)
    return (product / product.sum(axis=1, keepdims=True)).astype(np.float64)


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=6))
def test_is_bayes_rule(ratios):
    p = softmax(np.random.default_rng(0).normal(size=(20, len(ratios))) * 4)
    fitted = mm.maps.PriorShift(ratios).fit(p, np.zeros(20, int))
    np.testing.assert_allclose(fitted.predict_proba(p), shifted(p, ratios), rtol=1e-9, atol=1e-300)
    back = mm.maps.PriorShift([1 / ratio for ratio in ratios]).fit(p, np.zeros(20, int))
    np.testing.assert_allclose(back.predict_proba(fitted.predict_proba(p)), p, rtol=1e-6, atol=1e-12)


def test_zeros_stay_zeros_and_saturated_logits_keep_their_digits():
    fitted = mm.maps.PriorShift([1.0, 1e8, 1.0]).fit([[0.2, 0.3, 0.5]], [0])
    np.testing.assert_array_equal(fitted.predict_proba([[1.0, 0.0, 0.0]]), [[1, 0, 0]])
    np.testing.assert_allclose(fitted.predict_proba([[0.5, 0.0, 0.5]]), [[0.5, 0, 0.5]])
    logits = mm.maps.PriorShift([1.0, 1e20], logits=True).fit([[0.0, 0.0]], [0])
    np.testing.assert_allclose(logits.predict_proba([[50.0, 0.0]])[0, 1], 1 / (1 + np.exp(50) / 1e20), rtol=1e-12)
    np.testing.assert_allclose(logits.predict_proba([[1e4, -1e4]]), [[1, 0]])
    vector = logits.predict_proba([-50.0])
    np.testing.assert_allclose(vector, [[1 / (1 + 1e20 * np.exp(-50)), 1 - 1 / (1 + 1e20 * np.exp(-50))]], rtol=1e-9)


def test_float32_gives_the_float64_answer():
    p = softmax(np.random.default_rng(0).normal(size=(100, 5)) * 5)
    fitted = mm.maps.PriorShift([1, 2, 3, 1e-4, 1e4]).fit(p, np.zeros(100, int))
    single = fitted.predict_proba(p.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, fitted.predict_proba(p), atol=1e-5)


def test_flags_and_names():
    fitted = mm.maps.PriorShift({"b": 2.0}, classes=["a", "b"]).fit([[0.5, 0.5]], ["a"])
    assert fitted.injective
    assert not fitted.accuracy_preserving
    np.testing.assert_allclose(fitted.predict_proba([[0.5, 0.5]]), [[1 / 3, 2 / 3]])
    np.testing.assert_allclose(clone(fitted).fit([[0.5, 0.5]], ["a"]).log_ratios_, fitted.log_ratios_)
    assert mm.maps.PriorShift().fit([[0.5, 0.5]], [0]).log_ratios_.tolist() == [0, 0]


@pytest.mark.parametrize(
    "ratios, message",
    [
        ([1.0], "one number for each of the 2 classes 'a', 'b'"),
        ([1.0, 0.0], "that of class 'b' is 0; ratios must be positive"),
        ([1.0, np.inf], "finite"),
        ([1.0, np.nan], "finite"),
        (["x", 1], "must be numbers"),
        ({"c": 1.0}, "there is no class 'c'; the classes are 'a', 'b'"),
    ],
)
def test_bad_ratios_are_refused(ratios, message):
    with pytest.raises(ValueError, match=message):
        mm.maps.PriorShift(ratios, classes=["a", "b"]).fit([[0.5, 0.5]], ["a"])


def test_many_classes_are_not_all_listed():
    p = np.full((1, 1000), 1e-3)
    with pytest.raises(ValueError, match=r"19, \.\.\. \(1000 in all\)"):
        mm.maps.PriorShift({"x": 2.0}).fit(p, [0])


@pytest.fixture(scope="module")
def named():
    """A calibrated binary problem with names: 1% positives in all data, all of them and a tenth of the others kept."""
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=40000) * 2 - 6
    y = draw_labels(softmax(np.column_stack([np.zeros(40000), log_odds])), rng)
    kept = (y == 1) | (rng.random(40000) < 0.1)
    return log_odds, np.where(y == 1, "pos", "neg"), kept


def test_known_sampling_rates_give_back_the_frequencies(named):
    log_odds, y, kept = named
    fitted = mm.calibrator("bcts", logits=True, classes=["neg", "pos"]).fit(log_odds[kept], y[kept])
    adapted = fitted.adapt(sampling={"neg": 0.1})
    odds = lambda p: p[:, 1] / p[:, 0]  # noqa: E731
    np.testing.assert_allclose(
        odds(adapted.predict_proba(log_odds)), odds(fitted.predict_proba(log_odds)) / 10, rtol=1e-9
    )
    rate = (y == "pos").mean()
    assert rate < 0.02
    assert adapted.predict_proba(log_odds)[:, 1].mean() == pytest.approx(rate, rel=0.1)
    assert fitted.predict_proba(log_odds)[:, 1].mean() > 3 * rate
    np.testing.assert_allclose(
        fitted.adapt(sampling=[0.1, 1.0]).predict_proba(log_odds), adapted.predict_proba(log_odds), rtol=1e-12
    )


def test_known_priors_replace_and_sampling_multiplies(named):
    log_odds, y, kept = named
    fitted = mm.calibrator("bcts", logits=True, classes=["neg", "pos"]).fit(log_odds[kept], y[kept])
    source = fitted.summary_.mean_prediction
    np.testing.assert_allclose(source, fitted.predict_proba(log_odds[kept]).mean(axis=0), rtol=1e-10)
    adapted = fitted.adapt(priors={"pos": 0.01})
    np.testing.assert_allclose(np.exp(adapted.second_.log_ratios_), [0.99, 0.01] / source)
    assert adapted.first_ is fitted
    again = adapted.adapt(sampling={"neg": 0.5}).adapt(priors=[0.99, 0.01])
    np.testing.assert_allclose(again.second_.log_ratios_, adapted.second_.log_ratios_)
    assert again.first_ is fitted
    twice = fitted.adapt(sampling={"neg": 0.5}).adapt(sampling={"neg": 0.2})
    np.testing.assert_allclose(np.exp(twice.second_.log_ratios_), [10, 1])


def test_classes_left_out_share_the_rest_in_proportion():
    p = np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]])
    fitted = mm.calibrator("identity").fit(p, [0, 2])
    ratios = np.exp(fitted.adapt(priors={1: 0.4}).second_.log_ratios_)
    source = p.mean(axis=0)
    np.testing.assert_allclose(ratios * source, [0.6 * 0.4 / 0.7, 0.4, 0.6 * 0.3 / 0.7])


@pytest.mark.parametrize(
    "settings, message",
    [
        ({}, "exactly one of priors, sampling and unlabelled"),
        ({"priors": [0.5, 0.5], "sampling": [1, 1]}, "exactly one"),
        ({"priors": [0.5, 0.4]}, "priors sum to 0.9; they must sum to 1"),
        ({"priors": {0: 1.0}}, "those given sum to 1, which leaves nothing for the other classes"),
        ({"priors": {0: 1.0, 1: 0.0}}, "that of class 1 is 0; priors must be positive"),
        ({"priors": {"x": 1.0}}, "there is no class 'x'; the classes are 0, 1"),
        ({"priors": {"0": 0.9}}, "there is no class '0'; the classes are 0, 1. Did you mean 0?"),
        ({"priors": [0.2, 0.3, 0.5]}, "one number for each of the 2 classes"),
        ({"sampling": {0: 0}}, "the rate of class 0 is 0; rates must be positive"),
        ({"sampling": [1, 1], "sample_weight": [1]}, "sample_weight is for unlabelled scores"),
        ({"priors": [0.5, 0.5], "calibration": 3}, "calibration must be a tuple"),
        ({"priors": [0.5, 0.5], "calibration": ([[0.2, 0.3, 0.5]], [0])}, "scores have 3 classes"),
    ],
)
def test_bad_requests_are_refused(settings, message):
    fitted = mm.calibrator("identity").fit([[0.8, 0.2], [0.2, 0.8]], [0, 1])
    with pytest.raises(ValueError, match=message):
        fitted.adapt(**settings)


def test_a_map_must_be_fitted_and_remember_or_be_told():
    with pytest.raises(ValueError, match="is not fitted"):
        mm.calibrator("ts").adapt(priors=[0.5, 0.5])
    p, y = softmax(make_problem(50, 2)[0]), make_problem(50, 2)[1]
    forgetful = (mm.TemperatureScaling() >> mm.maps.Identity()).fit(p, y).first_
    with pytest.raises(ValueError, match=r"does not remember .* pass calibration=\(scores, y\)"):
        forgetful.adapt(priors=[0.5, 0.5])
    whole = mm.TemperatureScaling().fit(p, y)
    np.testing.assert_allclose(
        forgetful.adapt(priors=[0.9, 0.1], calibration=(p, y)).predict_proba(p),
        whole.adapt(priors=[0.9, 0.1]).predict_proba(p),
        rtol=1e-9,
    )
    assert forgetful.adapt(sampling={0: 0.5}).predict_proba(p).shape == (50, 2)


def test_adapted_maps_save_load_and_clone(tmp_path):
    logits, y = make_problem(300, 3)
    fitted = mm.calibrator("bcts", logits=True, classes=["a", "b", "c"]).fit(logits, np.array(["a", "b", "c"])[y])
    adapted = fitted.adapt(priors={"a": 0.9})
    adapted.save(tmp_path / "map.json")
    loaded = mm.load(tmp_path / "map.json")
    assert isinstance(loaded, mm.Composition)
    np.testing.assert_array_equal(loaded.predict_proba(logits), adapted.predict_proba(logits))
    # What the map remembers comes along: it can be adapted again.
    again, same = (each.adapt(priors={"b": 0.5}).predict_proba(logits) for each in (loaded, adapted))
    np.testing.assert_array_equal(again, same)
    assert repr(clone(loaded)) == repr(clone(adapted))


def test_dask_gives_what_memory_gives():
    da = pytest.importorskip("dask.array")
    logits, y = make_problem(300, 3)
    fitted = mm.calibrator("bcts", logits=True).fit(logits, y)
    lazily = mm.calibrator("bcts", logits=True).fit(da.from_array(logits, chunks=(70, 3)), y)
    np.testing.assert_allclose(lazily.summary_.mean_prediction, fitted.summary_.mean_prediction, atol=1e-6)
    np.testing.assert_allclose(lazily.summary_.counts, fitted.summary_.counts)
    adapted = fitted.adapt(priors=[0.8, 0.1, 0.1])
    p = adapted.predict_proba(da.from_array(logits, chunks=(70, 3)))
    np.testing.assert_allclose(p.compute(), adapted.predict_proba(logits), rtol=1e-12)
    new = logits[y == 0]
    here = fitted.adapt(unlabelled=new).second_.log_ratios_
    there = fitted.adapt(unlabelled=da.from_array(new, chunks=(11, 3))).second_.log_ratios_
    np.testing.assert_allclose(there, here, atol=1e-4)


def test_two_fitted_maps_are_one():
    logits, y = make_problem(200, 3)
    first = mm.TemperatureScaling(logits=True).fit(logits, y)
    second = mm.maps.VectorScaling().fit(first.predict_proba(logits), y)
    whole = mm.Composition.of_fitted(first, second)
    expected = second.predict_proba(first.predict_proba(logits))
    np.testing.assert_allclose(whole.predict_proba(logits), expected, atol=1e-9)
    assert whole.total_weight_ == 200
    np.testing.assert_array_equal(composed([first, second]).predict_proba(logits), whole.predict_proba(logits))


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_summaries_count_what_they_say(n_classes, dtype):
    logits, y = make_problem(500, n_classes, dtype=dtype)
    weight = np.random.default_rng(0).integers(0, 4, 500).astype(float)
    fitted = mm.calibrator("vector", logits=True).fit(logits, y, weight)
    p = fitted.predict_proba(logits.astype(np.float64))
    summary = fitted.summary_
    np.testing.assert_allclose(summary.mean_prediction, weight @ p / weight.sum(), atol=1e-6)
    np.testing.assert_allclose(summary.class_weights, np.bincount(y, weight, minlength=n_classes))
    assert summary.total_weight == weight.sum()
    top = p[:, 1] if n_classes == 2 else p.max(axis=1)
    odds = np.log(top / (1 - top))
    edges = np.linspace(-14 if n_classes == 2 else -np.log(n_classes - 1), 14, CELLS + 1)
    for k in range(n_classes):
        expected, _ = np.histogram(odds[y == k], edges, weights=weight[y == k])
        assert np.abs(summary.counts[k] - expected).sum() <= (8 if dtype == np.float32 else 0)


def test_summaries_of_saturated_scores_and_of_repetitions():
    p = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    fitted = mm.maps.Identity().fit(p, [0, 1, 2])
    assert fitted.summary_.counts[0, -1] == fitted.summary_.counts[1, -1] == fitted.summary_.counts[2, 0] == 1
    twice = summarise(fitted, read_rows(np.repeat(p, 2, axis=0), np.repeat([0, 1, 2], 2)))
    weighted = summarise(fitted, read_rows(p, [0, 1, 2], [2, 2, 2]))
    np.testing.assert_allclose(twice.counts, weighted.counts)
    np.testing.assert_allclose(twice.mean_prediction, weighted.mean_prediction)


def test_summaries_that_do_not_fit_together_are_refused():
    for mean, counts in (([0.5, 0.5], np.ones((3, CELLS))), ([0.5, np.nan], np.ones((2, CELLS))), ([0.5, 0.5], [[-1]])):
        with pytest.raises(ValueError, match="not valid"):
            CalibrationSummary(np.array(mean), np.array(counts, dtype=float))


def test_the_index_of_a_series_names_the_classes():
    p, y = softmax(np.random.default_rng(0).normal(size=(300, 2))), np.repeat(["good", "bad", "good"], 100)
    fitted = mm.calibrator("platt").fit(p, y)
    for option in ("priors", "sampling"):
        series = pd.Series({"good": 0.9, "bad": 0.1})
        expected = fitted.adapt(**{option: series.to_dict()}).predict_proba(p)
        np.testing.assert_array_equal(fitted.adapt(**{option: series}).predict_proba(p), expected)
        with pytest.raises(ValueError, match=f"{option}: there is no class 0; the classes are 'bad', 'good'"):
            fitted.adapt(**{option: pd.Series([0.9, 0.1])})
        with pytest.raises(ValueError, match=f"{option}: the index names a class twice"):
            fitted.adapt(**{option: pd.Series([0.9, 0.1], index=["bad", "bad"])})


def test_priors_of_boolean_labels_are_named_by_them():
    p, y = softmax(np.random.default_rng(0).normal(size=(300, 2))), np.arange(300) % 3 == 0
    fitted, counted = mm.calibrator("platt").fit(p, y), pd.Series(y).value_counts(normalize=True)
    assert counted.index.tolist() == [False, True]
    np.testing.assert_array_equal(
        fitted.adapt(priors=counted.sort_values()).predict_proba(p), fitted.adapt(priors=counted).predict_proba(p)
    )

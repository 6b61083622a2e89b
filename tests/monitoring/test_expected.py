"""Expected performance against enumeration, simulation and scikit-learn."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.metrics import f1_score, roc_auc_score

import mixnmatch as mm
from mixnmatch.monitoring import expected_performance
from mixnmatch.monitoring.poisson_binomial import EXACT, distribution, quantiles
from tests.conftest import draw_labels, softmax


def test_distribution_equals_the_binomial_and_enumeration():
    np.testing.assert_allclose(distribution(np.full(30, 0.3)), binom.pmf(np.arange(31), 30, 0.3), atol=1e-14)
    p = np.array([0.1, 0.5, 0.9, 0.0, 1.0])
    total = np.zeros(6)
    for outcome in np.ndindex(2, 2, 2, 2, 2):
        total[sum(outcome)] += np.prod(np.where(outcome, p, 1 - p))
    np.testing.assert_allclose(distribution(p), total, atol=1e-15)


def test_quantiles_of_many_events_agree_with_exact_ones():
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 4, EXACT)
    levels = (0.025, 0.5, 0.975)
    exact = quantiles(p, levels)
    close = quantiles(np.concatenate([p, [0.0]]), levels)
    np.testing.assert_allclose(exact, close, atol=1.01)
    assert quantiles(np.ones(EXACT + 1), levels) == (EXACT + 1,) * 3


@pytest.mark.parametrize("n_classes", [2, 4])
def test_expectations_and_intervals_hold_in_simulation(n_classes):
    rng = np.random.default_rng(1)
    p = softmax(rng.normal(size=(800, n_classes)) * 1.5)
    result = expected_performance(p)
    found = {name: [] for name in ("accuracy", "f1", "roc_auc", "log_loss", "brier_score")}
    for _ in range(150):
        y = draw_labels(p, rng)
        found["accuracy"].append(float(mm.evaluation.accuracy(p, y)))
        found["log_loss"].append(float(mm.evaluation.log_loss(p, y)))
        found["brier_score"].append(float(mm.evaluation.brier_score(p, y)))
        if n_classes == 2:
            found["f1"].append(f1_score(y, p.argmax(axis=1)))
            found["roc_auc"].append(roc_auc_score(y, p[:, 1]))
        else:
            found["f1"].append(f1_score(y, p.argmax(axis=1), average="macro"))
            found["roc_auc"].append(np.mean([roc_auc_score(y == k, p[:, k]) for k in range(n_classes)]))
    for name, values in found.items():
        each = getattr(result, name)
        spread = np.std(values)
        assert each.value == pytest.approx(np.mean(values), abs=4 * spread / math.sqrt(150)), name
        assert each.standard_error == pytest.approx(spread, rel=0.25), name
        covered = np.mean([each.low <= value <= each.high for value in values])
        assert covered >= 0.95 - 4 * math.sqrt(0.05 * 0.95 / 150), name


def test_a_vector_a_map_and_steps():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(600, 2)) * 3
    fitted = mm.calibrator("ts", logits=True).fit(logits, draw_labels(softmax(logits / 3), rng))
    p = fitted.predict_proba(logits)
    whole = expected_performance(logits, fitted=fitted)
    assert whole == expected_performance(p) == expected_performance(p[:, 1])
    steps = np.repeat(["b", "a"], [200, 400])
    first, second = expected_performance(logits, fitted=fitted, steps=steps)
    assert (first.step, second.step) == ("b", "a")
    assert (first.n_samples, second.n_samples) == (200, 400)
    mean = (200 * first.brier_score.value + 400 * second.brier_score.value) / 600
    assert mean == pytest.approx(whole.brier_score.value)
    assert "step b" in str(first)


def test_predictions_that_are_not_the_most_probable_class():
    p = np.array([0.2, 0.4, 0.9])
    result = expected_performance(p, predictions=[1, 1, 1])
    assert result.accuracy.value == pytest.approx(0.5)
    assert result.f1.value == pytest.approx(2 * 1.5 / (3 + 1.5))
    named = expected_performance(p, predictions=["yes"] * 3, classes=["no", "yes"])
    assert named.positive == "yes"
    assert replace(named, positive=1) == result


def test_scores_that_rank_without_ties():
    rng = np.random.default_rng(0)
    raw = rng.random(300)
    p = np.round(raw, 1)
    found = expected_performance(p, ranking=raw).roc_auc
    pairs = np.outer(p, 1 - p) * ~np.eye(300, dtype=bool)
    assert found.value == pytest.approx((pairs * (raw[:, None] > raw)).sum() / pairs.sum(), rel=1e-12)
    assert expected_performance(p, ranking=np.stack([1 - raw, raw], axis=1)).roc_auc == found
    with pytest.raises(ValueError, match="ranking"):
        expected_performance(p, ranking=raw[:5])


def test_data_frames_are_matched_by_name_and_index():
    raw = np.random.default_rng(1).dirichlet(np.ones(3), 60)
    p = pd.DataFrame(raw, columns=["cat", "dog", "emu"])
    ranking = pd.DataFrame(raw**2, columns=p.columns)
    wanted = expected_performance(p, ranking=ranking)
    assert wanted.roc_auc == expected_performance(p, ranking=raw**2).roc_auc
    turned = ranking[["emu", "cat", "dog"]]
    codes = raw.argmax(axis=1)
    for settings in ({}, {"predictions": codes}, {"predictions": p.columns.to_numpy(dtype=str)[codes]}):
        assert expected_performance(p, ranking=turned, **settings) == wanted
    with pytest.raises(ValueError, match="ranking has the columns"):
        expected_performance(p, ranking=turned.rename(columns={"cat": "cow"}))
    two = pd.DataFrame({"no": 1 - raw[:, 0], "yes": raw[:, 0]})
    column = pd.DataFrame({"margin": raw[:, 0]})
    assert expected_performance(two, ranking=column).roc_auc == expected_performance(two).roc_auc
    mixed = np.random.default_rng(2).permutation(60)
    others = {
        "ranking": ranking.iloc[mixed],
        "predictions": pd.Series(codes)[mixed],
        "steps": pd.Series(np.arange(60) // 30)[mixed],
    }
    for name, other in others.items():
        with pytest.raises(ValueError, match=f"scores and {name} have different indexes"):
            expected_performance(p, **{name: other})


def test_steps_of_a_data_frame_are_plain_values():
    steps = pd.Series(["may", "may", "june"])
    found = expected_performance([0.1, 0.2, 0.9], steps=steps)
    assert [one.step for one in found] == ["may", "june"]
    assert [type(one.step) for one in expected_performance([0.1, 0.9], steps=[1, 2])] == [int, int]


def test_zeros_ones_and_single_samples():
    result = expected_performance([0.0, 1.0])
    assert result.accuracy == expected_performance([[1.0, 0.0], [0.0, 1.0]]).accuracy
    assert (result.accuracy.low, result.accuracy.value, result.accuracy.high) == (1, 1, 1)
    assert result.roc_auc.value == 1
    assert result.log_loss.value == 0
    alone = expected_performance([0.3])
    assert math.isnan(alone.roc_auc.value)
    assert alone.to_dict()["roc_auc"]["value"] is None
    assert (alone.accuracy.low, alone.accuracy.high) == (0, 1)
    rare = expected_performance(np.full(50, 1e-4))
    assert rare.f1.value == 0
    assert rare.roc_auc.value == pytest.approx(0.5)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="steps"):
        expected_performance([0.5, 0.5], steps=[1])
    with pytest.raises(ValueError, match="confidence"):
        expected_performance([0.5], confidence=1.0)
    with pytest.raises(ValueError, match="logits=True"):
        expected_performance([1.5])


def test_no_samples_are_refused():
    fitted = mm.calibrator("platt").fit([0.1, 0.4, 0.6, 0.9], [0, 1, 0, 1])
    for settings in ({}, {"fitted": fitted}):
        with pytest.raises(ValueError, match="scores are empty"):
            expected_performance(np.empty((0, 2)), **settings)


def test_the_positive_class_is_named_and_can_be_chosen():
    p = np.random.default_rng(0).beta(1, 4, size=400)
    frame = pd.DataFrame({"fraud": p, "genuine": 1 - p})
    wanted = expected_performance(p)
    assert wanted.positive == 1
    assert str(wanted).endswith("F1 and ROC AUC: of class 1.")
    by_name = expected_performance(frame, positive="fraud")
    assert by_name.positive == by_name.to_dict()["positive"] == "fraud"
    assert str(by_name).endswith("F1 and ROC AUC: of class fraud.")
    for found in (
        by_name,
        expected_performance(p, positive="fraud"),
        expected_performance(frame.to_numpy(), positive=0),
    ):
        for name in ("f1", "roc_auc", "accuracy"):
            assert float(getattr(found, name)) == pytest.approx(float(getattr(wanted, name)))
    assert expected_performance(frame).positive == "genuine"
    table = np.full((3, 3), 1 / 3)
    assert str(expected_performance(table)).endswith("F1 and ROC AUC: mean over classes.")
    with pytest.raises(ValueError, match="positive is for two classes"):
        expected_performance(table, positive=1)
    with pytest.raises(ValueError, match="positive='frauds' is not one of the classes"):
        expected_performance(frame, positive="frauds")


def test_predictions_by_name_follow_the_positive_class():
    p = np.random.default_rng(0).beta(1, 4, size=400)
    wanted = expected_performance(p, predictions=(p > 0.3).astype(int))
    named = np.where(p > 0.3, "fraud", "genuine")
    frame = pd.DataFrame({"fraud": p, "genuine": 1 - p})
    fitted = mm.maps.Identity().fit(frame, np.where(np.arange(400) % 3 == 0, "fraud", "genuine"))
    for found in (
        expected_performance(p, predictions=named, positive="fraud"),
        expected_performance(frame, predictions=named, positive="fraud"),
        expected_performance(frame, predictions=(p <= 0.3).astype(int), positive="fraud"),
        expected_performance(frame, fitted=fitted, predictions=named, positive="fraud"),
    ):
        assert float(found.f1) == pytest.approx(float(wanted.f1))
        assert float(found.accuracy) == pytest.approx(float(wanted.accuracy))

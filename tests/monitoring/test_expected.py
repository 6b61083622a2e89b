"""Expected performance against enumeration, simulation and scikit-learn."""

import json
import math
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from datetime import date

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


def test_many_steps_do_not_need_much_memory():
    p, steps = np.random.default_rng(0).random(20_000), np.random.default_rng(1).integers(0, 2_000, 20_000)
    tracemalloc.start()
    found = expected_performance(p, steps=steps)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000 * 20_000 / 4  # a mask for each step would take four times that
    assert found[7] == replace(expected_performance(p[steps == found[7].step]), step=found[7].step)


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


RNG = np.random.default_rng(7)
FRAUD = RNG.beta(0.5, 2.0, 300)
P = pd.DataFrame({"fine": 1 - FRAUD, "fraud": FRAUD})
FLAGS = (FRAUD > 0.5).astype(int)
NAMED = np.where(FLAGS, "fraud", "fine")
Y = np.where(RNG.random(300) < FRAUD**2, "fraud", "fine")
MAP = mm.calibrator("beta").fit(P, Y)
SWAPPED = P[["fraud", "fine"]]


def evaluated(*args, **settings):
    return float(mm.evaluate(*args, metrics=["accuracy"], **settings)["accuracy"])


@pytest.mark.parametrize(
    "names, labels",
    [
        (["p1", "p0"], FLAGS),
        ([1, 0], FLAGS),
        (["1", "0"], FLAGS),
        ([True, False], FLAGS),
        ([True, False], FLAGS.astype(bool)),
        ([2, 1], FLAGS + 1),
        (["prob_fraud", "prob_fine"], NAMED),
        (["fraud", "fine"], NAMED),
        (["fraud", "fine"], 1 - FLAGS),  # positions, as the columns are no numbers
    ],
)
def test_predictions_are_spelled_like_labels(names, labels):
    scores = SWAPPED.set_axis(names, axis=1)
    assert evaluated(scores, labels) == 1.0
    found = expected_performance(scores, predictions=labels)
    assert found.accuracy == expected_performance(scores).accuracy
    assert found.accuracy.value == pytest.approx(np.maximum(FRAUD, 1 - FRAUD).mean())
    if names != ["fraud", "fine"]:  # otherwise they may be positions
        other = expected_performance(scores.iloc[:, ::-1], predictions=labels, positive=names[0])
        assert other.f1.value == pytest.approx(expected_performance(P, positive="fraud").f1.value)


def test_classes_order_the_columns_also_with_a_map():
    settings = {"classes": ["fraud", "fine"]}
    array = SWAPPED.to_numpy()
    wanted = expected_performance(MAP.predict_proba(P), classes=["fine", "fraud"], positive="fraud", predictions=NAMED)
    for scores in (array, P, SWAPPED, mm.rows(array, **settings)):
        given = {} if isinstance(scores, mm.rows(array).__class__) else settings
        found = expected_performance(scores, fitted=MAP, **given, positive="fraud", predictions=NAMED)
        assert found.positive == "fraud"
        for name in ("accuracy", "f1", "roc_auc", "log_loss", "brier_score"):
            assert float(getattr(found, name)) == pytest.approx(float(getattr(wanted, name)))
    after = mm.evaluate(array, Y, map=MAP, metrics=["mean_probability"], **settings).after["mean_probability"]
    labels = np.full(300, "fine")
    found = expected_performance(array, fitted=MAP, predictions=labels, **settings)
    assert found.accuracy.value == pytest.approx(float(after))
    named = expected_performance(P, positive="fraud", fitted=MAP)
    assert named.f1.value == pytest.approx(expected_performance(P, fitted=MAP, positive="fraud", **settings).f1.value)


def test_a_ranking_of_one_class_is_the_one_that_it_is_called_like():
    up, down = pd.Series(FRAUD, name="fraud"), pd.Series(1 - FRAUD, name="fine")
    wanted = expected_performance(P).roc_auc.value
    for scores in (P, SWAPPED):
        for ranking in (up, down, up.to_frame(), down.to_frame()):
            for positive in ("fine", "fraud"):
                found = expected_performance(scores, ranking=ranking, positive=positive)
                assert found.roc_auc.value == pytest.approx(wanted)
        for positive, ranking in (("fraud", FRAUD), ("fine", 1 - FRAUD)):
            for plain in (ranking, pd.Series(ranking, name="margin"), pd.DataFrame({"margin": ranking})):
                found = expected_performance(scores, ranking=plain, positive=positive)
                assert found.roc_auc.value == pytest.approx(wanted)
    polars = pytest.importorskip("polars")
    found = expected_performance(P, ranking=polars.Series("fine", 1 - FRAUD))
    assert found.roc_auc.value == pytest.approx(wanted)


def test_rankings_are_matched_by_numbers_too():
    raw = np.random.default_rng(3).dirichlet(np.ones(3), 80)
    scores, ranking = pd.DataFrame(raw), pd.DataFrame(raw**2)
    wanted = expected_performance(raw, ranking=raw**2).roc_auc.value
    assert wanted != pytest.approx(expected_performance(raw, ranking=raw[:, [2, 0, 1]] ** 2).roc_auc.value)
    turned = [2, 0, 1]
    for given, ranks in (
        (scores[turned], ranking),
        (scores, ranking[turned]),
        (raw, ranking[turned]),
        (scores[turned], ranking[turned]),
        (scores[turned].add_prefix("p"), ranking),
        (scores[turned], ranking[[1, 2, 0]].add_prefix("c")),
    ):
        assert expected_performance(given, ranking=ranks).roc_auc.value == pytest.approx(wanted)
    unnamed = scores.set_axis(["cat", "dog", "emu"], axis=1)
    assert expected_performance(unnamed, ranking=ranking).roc_auc.value == pytest.approx(wanted)
    assert expected_performance(raw, ranking=unnamed**2).roc_auc.value == pytest.approx(wanted)


@pytest.mark.parametrize(
    "ranking",
    [
        pd.DataFrame({"fine": ["a"] * 300, "fraud": 1.0}),
        pd.DataFrame({"id": range(300), "fraud": 1.0}),
        pd.Series(["a"] * 300),
        pd.Series([None] + [0.5] * 299, dtype="Float64"),
        ["a"] * 300,
        np.where(FLAGS, np.nan, FRAUD),
        FRAUD[:5],
    ],
)
def test_errors_about_a_ranking_say_so(ranking):
    with pytest.raises(ValueError, match=r"^ranking") as caught:
        expected_performance(P, ranking=ranking)
    assert "of the scores are" not in str(caught.value)


def test_a_vector_is_about_the_class_that_it_is_called_like():
    for name in ("fine", "fraud"):
        found = expected_performance(P[name])
        assert found.positive == found.to_dict()["positive"] == name
        assert expected_performance(P[[name]]) == found == expected_performance(P[name], positive=name)
        assert found.f1.value == pytest.approx(expected_performance(P, positive=name).f1.value)
        listed = expected_performance(P[name], classes=["fine", "fraud"], predictions=NAMED)
        assert listed.f1.value == pytest.approx(found.f1.value)
        mapped = expected_performance(P[name], fitted=MAP, positive="fine")
        assert mapped.f1.value == pytest.approx(expected_performance(P, fitted=MAP, positive="fine").f1.value)
    for settings in ({}, {"classes": ["fine", "fraud"]}, {"predictions": NAMED}):
        with pytest.raises(ValueError, match="scores is called 'fraud'"):
            expected_performance(P["fraud"], positive="fine", **settings)
    score = P["fraud"].rename("score")
    assert expected_performance(score, positive="fraud", classes=["fine", "fraud"]).positive == "fraud"
    assert expected_performance(score, positive="fraud", predictions=NAMED).positive == "fraud"
    assert expected_performance(score, positive=1).positive == 1
    with pytest.raises(ValueError, match=r"such as .*: pass positive=\.\.\.$"):
        expected_performance(FRAUD, predictions=NAMED)


def test_a_vector_without_a_name_is_about_the_positive_class():
    wanted = expected_performance(FRAUD)
    for settings in ({}, {"classes": [0, 1]}, {"predictions": 1 - FLAGS}):
        found = expected_performance(FRAUD, positive=0, **settings)
        assert found.positive == 0
        assert replace(found, positive=1) == wanted
    accuracy = evaluated(FRAUD, 1 - FLAGS, classes=[0, 1], positive=0)
    assert accuracy == 1.0
    listed = expected_performance(FRAUD, fitted=MAP, positive="fraud")
    assert listed.f1.value == pytest.approx(expected_performance(P, fitted=MAP, positive="fraud").f1.value)
    turned = expected_performance(1 - FRAUD, fitted=MAP, positive="fine")
    assert turned.f1.value == pytest.approx(expected_performance(P, fitted=MAP, positive="fine").f1.value)


@pytest.mark.parametrize("positive", [1, True, 1.0, "1", "true", np.int64(1), np.True_])
@pytest.mark.parametrize("settings", [{}, {"classes": [0, 1]}, {"predictions": FLAGS}])
def test_the_positive_class_may_be_written_in_any_way(positive, settings):
    for scores in (P.to_numpy(), FRAUD, P.set_axis(["0", "1"], axis=1), P.set_axis([False, True], axis=1)):
        found = expected_performance(scores, positive=positive, **settings)
        assert float(found.f1) == pytest.approx(float(expected_performance(FRAUD).f1))
        assert str(found.positive) in ("1", "True")
        assert json.loads(json.dumps(found.to_dict()))["f1"]["value"] == pytest.approx(float(found.f1))


@pytest.mark.parametrize(
    "steps",
    [
        pd.Series([None, "a"]),
        pd.Series([np.nan, "a"]),
        [np.nan, "a"],
        [np.nan, 1.0],
        np.array(["NaT", "2024-05-01"], dtype="datetime64[ns]"),
        pd.Series([pd.NaT, pd.Timestamp("2024-05-01", tz="UTC")]),
        pd.Series([pd.NA, 1], dtype="Int64"),
    ],
)
def test_missing_steps_are_refused(steps):
    with pytest.raises(ValueError, match=r"steps: row 0 has no value .*drop or fill"):
        expected_performance([0.1, 0.9], steps=steps)


@pytest.mark.parametrize(
    "days, texts",
    [
        (pd.Series(pd.to_datetime(["2024-05-02", "2024-05-01"])), ["2024-05-02T00:00:00", "2024-05-01T00:00:00"]),
        (np.array(["2024-05-02", "2024-05-01"], dtype="datetime64[D]"), ["2024-05-02", "2024-05-01"]),
        ([date(2024, 5, 2), date(2024, 5, 1)], ["2024-05-02", "2024-05-01"]),
        (pd.Series(pd.period_range("2024-05", periods=2, freq="M")), ["2024-05", "2024-06"]),
        (np.array([2, 1]), [2, 1]),
        (["b", 1], ["b", 1]),
    ],
)
def test_steps_are_ready_for_json(days, texts):
    found = expected_performance([0.1, 0.9], steps=days)
    assert [json.loads(json.dumps(each.to_dict()))["step"] for each in found] == texts
    assert texts[0] == found[0].step or not isinstance(found[0].step, int | np.generic)


def test_indexes_are_compared_with_each_other():
    mixed = pd.Series(FLAGS).sample(frac=1, random_state=0)
    plain = {"predictions": pd.Series(FLAGS), "ranking": pd.Series(FRAUD), "steps": pd.Series(FLAGS)}
    for first, second in (("predictions", "ranking"), ("predictions", "steps"), ("ranking", "steps")):
        with pytest.raises(ValueError, match=f"{first} and {second} have different indexes"):
            expected_performance(FRAUD, **{first: plain[first], second: mixed})


def test_checked_rows_are_read_like_what_they_were_made_of():
    for scores in (P, FRAUD, P.to_numpy(), SWAPPED.set_axis([1, 0], axis=1)):
        assert expected_performance(mm.rows(scores, FLAGS, np.arange(300))).n_samples == 300
        assert expected_performance(mm.rows(scores)) == expected_performance(scores)
    assert expected_performance(mm.rows(P), predictions=NAMED) == expected_performance(P, predictions=NAMED)
    with pytest.raises(ValueError, match="the map takes probabilities"):
        expected_performance(mm.rows(np.log(P.to_numpy()), logits=True), fitted=MAP)


def test_it_needs_numpy_alone(tmp_path):
    MAP.save(tmp_path / "map.json")
    code = """
import sys
from mixnmatch.monitoring.expected import expected_performance
import mixnmatch
fitted = mixnmatch.load(sys.argv[1])
expected_performance([[0.1, 0.9], [0.7, 0.3]], fitted=fitted, classes=["fraud", "fine"], steps=["a", "b"])
expected_performance([0.1, 0.9], fitted=fitted, positive="fraud", ranking=[1, 2], predictions=["fine", "fraud"])
heavy = {"scipy", "pandas", "sklearn", "polars"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "map.json")], check=True)

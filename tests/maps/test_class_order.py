"""A map finds its classes by name wherever samples come from."""

import numpy as np
import pandas as pd
import pytest

import mixnmatch as mm
from mixnmatch.evaluation import compare_gains
from mixnmatch.monitoring import score_drift
from mixnmatch.selection import estimate_priors

RNG = np.random.default_rng(0)
LOG_ODDS = RNG.normal(-3, 1.5, 1500)
P = 1 / (1 + np.exp(-LOG_ODDS))
LABELS = np.where(RNG.random(len(P)) < P / 2, "fraud", "genuine")
SORTED = pd.DataFrame({"fraud": P, "genuine": 1 - P})
SWAPPED = SORTED[["genuine", "fraud"]]
MAP = mm.calibrator("platt").fit(SORTED, LABELS)
RIGHT = MAP.predict_proba(SORTED.to_numpy())
METRICS = ["log_loss", "brier_score", "accuracy"]


@pytest.mark.parametrize(
    "scores",
    [
        SWAPPED,
        SORTED["fraud"],
        SORTED[["fraud"]],
        SORTED["genuine"],
        mm.rows(SWAPPED, LABELS),
        mm.rows(SWAPPED),
        mm.rows(P, LABELS, positive="fraud"),
        mm.rows(SWAPPED.to_numpy(), LABELS, classes=["genuine", "fraud"]),
    ],
    ids=["frame", "series", "column", "second", "rows", "no labels", "vector", "classes"],
)
def test_predictions_are_in_the_order_of_the_map(scores):
    np.testing.assert_allclose(MAP.predict_proba(scores), RIGHT, rtol=1e-12)


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("positive", ["fraud", "genuine"])
def test_a_vector_with_the_name_of_the_first_class(positive, logits):
    """Logits of the first class are those of the second with the other sign."""
    scores = LOG_ODDS if logits else P
    fitted = mm.calibrator("beta", logits=logits).fit(scores, LABELS, positive=positive)
    other = "genuine" if positive == "fraud" else "fraud"
    flipped = pd.Series(-LOG_ODDS if logits else 1 - P, name=other)
    np.testing.assert_allclose(fitted.predict_proba(flipped), fitted.predict_proba(scores), rtol=1e-9)


def test_masked_logits_of_the_first_class_stay_masked():
    fitted = mm.calibrator("ts", logits=True).fit(LOG_ODDS, LABELS, positive="genuine")
    p = fitted.predict_proba(pd.Series([-np.inf, 0.0], name="fraud"))
    assert fitted.classes_.tolist() == ["fraud", "genuine"]
    np.testing.assert_array_equal(p[0], [0.0, 1.0])


@pytest.mark.parametrize(
    "scores", [SWAPPED, SORTED["fraud"], mm.rows(SWAPPED, LABELS)], ids=["frame", "series", "rows"]
)
def test_evaluation_is_the_same_in_every_order(scores):
    given = () if isinstance(scores, mm.Rows) else (LABELS,)
    expected = mm.evaluate(SORTED, LABELS, map=MAP, metrics=METRICS)
    got = mm.evaluate(scores, *given, map=MAP, metrics=METRICS)
    for name in METRICS:
        assert float(got[name]) == pytest.approx(float(expected[name]), rel=1e-9)
        assert float(got.after[name]) == pytest.approx(float(expected.after[name]), rel=1e-9)
    assert float(got.gain) == pytest.approx(float(expected.gain), rel=1e-9)


def test_the_positive_class_of_an_evaluation_is_that_of_the_scores():
    got = mm.evaluate(SWAPPED, LABELS, map=MAP, metrics=["base_rate", "mean_probability"])
    share = (LABELS == "fraud").mean()
    assert float(got["base_rate"]) == pytest.approx(share)
    assert float(got.after["mean_probability"]) == pytest.approx(RIGHT[:, 0].mean())


def test_gains_in_every_order():
    expected = float(mm.calibration_gain(SORTED, MAP, LABELS))
    after = pd.DataFrame(RIGHT, columns=["fraud", "genuine"])
    assert float(mm.calibration_gain(SWAPPED, MAP, LABELS)) == pytest.approx(expected)
    assert float(mm.calibration_gain(SWAPPED, after, LABELS)) == pytest.approx(expected)
    assert float(compare_gains(SWAPPED, MAP, after, LABELS)) == pytest.approx(0, abs=1e-12)


def test_what_comes_after_a_fit_in_every_order():
    batch = SORTED["fraud"]
    assert not mm.Monitor(MAP).update(batch, LABELS).alarm
    np.testing.assert_allclose(estimate_priors(MAP, batch).priors, estimate_priors(MAP, SORTED).priors, atol=1e-6)
    for scores in (batch, SWAPPED):
        assert score_drift(MAP, scores, LABELS).overall.distance == pytest.approx(0, abs=1e-12)
        assert score_drift(MAP, mm.rows(scores, LABELS)).overall.distance == pytest.approx(0, abs=1e-12)


def test_three_classes_in_another_order():
    p = RNG.dirichlet([1, 2, 3], 400)
    frame = pd.DataFrame(p, columns=["a", "b", "c"])
    labels = frame.columns.to_numpy()[(p.cumsum(axis=1) < RNG.random((400, 1))).sum(axis=1)]
    fitted = mm.calibrator("vector").fit(frame, labels)
    other = frame[["c", "a", "b"]]
    expected = mm.evaluate(frame, labels, map=fitted, metrics=METRICS)
    got = mm.evaluate(other, labels, map=fitted, metrics=METRICS)
    assert [float(got.after[name]) for name in METRICS] == pytest.approx([float(expected.after[n]) for n in METRICS])
    np.testing.assert_allclose(fitted.predict_proba(mm.rows(other, labels)), fitted.predict_proba(frame))


def test_labels_of_one_class_say_enough():
    """The other class is then called "not fraud"."""
    some = LABELS == "fraud"
    got = mm.evaluate(SORTED["fraud"][some], LABELS[some], map=MAP, metrics=["log_loss"])
    assert float(got.after["log_loss"]) == pytest.approx(-np.log(RIGHT[some, 0]).mean())


def test_other_names_are_refused():
    with pytest.raises(ValueError, match=r"classes of the scores are \['ham', 'spam'\], but the map was fitted with"):
        mm.evaluate(P, np.where(LABELS == "fraud", "spam", "ham"), positive="spam", map=MAP)


def test_a_column_called_like_one_class_is_not_the_other():
    with pytest.raises(ValueError, match="column of scores is called 'fraud'"):
        mm.evaluate(SORTED["fraud"], LABELS, positive="genuine")


def test_the_advice_for_a_nameless_vector_works():
    with pytest.raises(ValueError, match=r"such as 'fraud': pass mixnmatch.rows\(scores, y, positive=\.\.\.\)"):
        mm.calibration_error(P, LABELS)
    assert float(mm.calibration_error(mm.rows(P, LABELS, positive="fraud"))) == pytest.approx(
        float(mm.calibration_error(SORTED["fraud"], LABELS))
    )


SILENT = "probability of which class"


@pytest.mark.parametrize(
    "use",
    [
        lambda m, s: m.predict_proba(s),
        lambda m, s: m.predict(list(s)),
        lambda m, s: m.predict_proba(pd.Series(s, name="Fraud")),
        lambda m, s: m.predict_proba(pd.DataFrame({"score": s})),
        lambda m, s: m.predict_proba(mm.rows(s)),
        lambda m, s: m.adapt(unlabelled=s),
        lambda m, s: mm.evaluate(s, (LABELS == "fraud").astype(int), map=m),
        lambda m, s: mm.Monitor(m).update(s, LABELS),
        lambda m, s: mm.monitoring.expected_performance(s, fitted=m),
        lambda m, s: score_drift(getattr(m, "first_", m), s),
        lambda m, s: estimate_priors(m, s, calibration=(s, LABELS)),
    ],
)
def test_a_vector_without_a_name_is_refused_where_the_map_cannot_know(use):
    for fitted in (MAP, MAP.adapt(priors={"fraud": 0.1})):
        with pytest.raises(ValueError, match=SILENT):
            use(fitted, P)


def test_a_refused_vector_says_what_to_do():
    with pytest.raises(ValueError, match=r"a vector called 'p', .* classes \['fraud', 'genuine'\]: .* pd\.Series"):
        MAP.predict_proba(pd.Series(P, name="p"))
    assert MAP.predict_proba(np.empty(0)).shape == (0, 2)


@pytest.mark.parametrize(
    "fit",
    [
        lambda: mm.calibrator("platt").fit(P, LABELS, positive="fraud"),
        lambda: mm.calibrator("platt").fit(SORTED["fraud"], LABELS),
        lambda: mm.calibrator("platt").fit(mm.rows(P, LABELS, positive="fraud")),
        lambda: mm.calibrator("platt", classes=["genuine", "fraud"]).fit(SORTED, LABELS),
        lambda: (mm.calibrator("ts") >> mm.calibrator("platt", classes=None)).fit(P, LABELS, positive="fraud"),
    ],
)
def test_a_map_that_was_told_knows_what_a_vector_is_about(fit, tmp_path):
    fitted = fit()
    fitted.save(tmp_path / "map.json")
    adapted = fitted.adapt(priors={"fraud": 0.1, "genuine": 0.9})
    adapted.save(tmp_path / "adapted.json")
    for name, used in {"map.json": fitted, "adapted.json": adapted}.items():
        expected = used.predict_proba(SORTED["fraud"])
        for again in (used, mm.load(tmp_path / name)):
            np.testing.assert_allclose(again.predict_proba(P), expected, rtol=1e-9)
            assert again.classes_.tolist() == ["genuine", "fraud"]


NUMBERED = mm.calibrator("platt").fit(P, (LABELS == "fraud").astype(int))


@pytest.mark.parametrize("name", [0, False, "0", "False", 0.0])
def test_a_column_called_like_a_numbered_class(name):
    expected = NUMBERED.predict_proba(P)
    other = pd.Series(1 - P, name=name)
    np.testing.assert_allclose(NUMBERED.predict_proba(other), expected, rtol=1e-9)
    y = LABELS == "fraud"
    for labels in (y, y.astype(int)):
        evaluation = mm.evaluate(other, labels, map=NUMBERED, metrics=METRICS)
        assert float(evaluation["log_loss"]) == pytest.approx(float(mm.evaluate(P, labels)["log_loss"]))
        fitted = mm.calibrator("platt").fit(other, labels)
        assert fitted.classes_.tolist() == [1, 0]
        np.testing.assert_allclose(fitted.predict_proba(other), expected[:, ::-1], rtol=1e-6)


def test_names_that_say_nothing_about_numbered_classes_are_read_in_order_with_a_warning():
    frame = pd.DataFrame({"no": 1 - P, "yes": P})
    with pytest.warns(UserWarning, match=r"\['no', 'yes'\] are not called .* as the classes \[0, 1\]"):
        np.testing.assert_allclose(NUMBERED.predict_proba(frame), NUMBERED.predict_proba(P), rtol=1e-9)
    with pytest.warns(UserWarning, match=r"\['no', 'yes'\] are not called"):
        mm.evaluate(frame, np.where(LABELS == "fraud", "yes", "no"), map=NUMBERED, metrics=METRICS)
    mm.evaluate(frame, (LABELS == "fraud").astype(int), map=NUMBERED, metrics=METRICS)  # labels are positions


def test_an_adapted_map_finds_the_columns_that_it_was_fitted_on():
    frame = pd.DataFrame({"yes": P, "no": 1 - P})
    fitted = mm.calibrator("platt").fit(frame, (LABELS != "fraud").astype(int)).adapt(priors=[0.1, 0.9])
    np.testing.assert_array_equal(fitted.predict_proba(frame[["no", "yes"]]), fitted.predict_proba(frame))
    assert score_drift(fitted.first_, frame[["no", "yes"]]).overall.distance == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "names", [("True", "False"), ("true", "false"), (True, False), ("1.0", "0.0"), (1.0, 0.0), ("1", "0"), ("p1", "p0")]
)
@pytest.mark.parametrize("kind", [bool, int, float])
def test_numbers_and_booleans_are_matched_however_they_are_written(names, kind):
    y = (LABELS == "fraud").astype(kind)
    frame = pd.DataFrame({names[0]: P, names[1]: 1 - P})
    assert float(mm.evaluate(frame, y)["log_loss"]) == pytest.approx(float(mm.evaluate(P, y)["log_loss"]))
    fitted = mm.calibrator("platt").fit(frame, y)
    assert fitted.classes_.tolist() == [1, 0]
    np.testing.assert_allclose(fitted.predict_proba(frame), NUMBERED.predict_proba(P)[:, ::-1], rtol=1e-6)
    np.testing.assert_array_equal(NUMBERED.predict_proba(frame), NUMBERED.predict_proba(np.stack([1 - P, P], axis=1)))


def test_a_monitor_checks_the_index_of_labels():
    with pytest.raises(ValueError, match="scores and labels have different indexes"):
        mm.Monitor(MAP).update(SORTED, pd.Series(LABELS)[::-1])
    expected = mm.Monitor(MAP).update(SORTED, LABELS).log_e_value
    assert mm.Monitor(MAP).update(mm.rows(SWAPPED, LABELS)).log_e_value == pytest.approx(expected)
    with pytest.raises(ValueError, match="a monitor takes no weights"):
        mm.Monitor(MAP).update(mm.rows(SWAPPED, LABELS, np.ones(len(P))))

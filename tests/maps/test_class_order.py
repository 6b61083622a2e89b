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
    with pytest.raises(ValueError, match=r"mixnmatch.rows\(scores, y, positive='fraud'\)"):
        mm.calibration_error(P, LABELS)
    assert float(mm.calibration_error(mm.rows(P, LABELS, positive="fraud"))) == pytest.approx(
        float(mm.calibration_error(SORTED["fraud"], LABELS))
    )

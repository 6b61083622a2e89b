import json

import numpy as np
import pytest

from mixnmatch import calibrator
from mixnmatch.evaluation.error import calibration_error
from mixnmatch.evaluation.gain import calibration_gain
from mixnmatch.evaluation.scores import log_loss
from mixnmatch.exceptions import CalibrationWarning
from mixnmatch.report import build_report, write_report
from tests.conftest import make_problem, softmax
from tests.maps.expressions import ALL, expression


def test_numbers_are_those_of_the_library(report_file):
    _, data = report_file
    logits, y = make_problem(900, 5)
    before, labels = logits[500:], y[500:]
    after = calibrator(data.method, logits=True).fit(logits[:500], y[:500]).predict_proba(before)
    assert float(data.before.error) == float(calibration_error(before, labels, logits=True))
    assert float(data.after.error) == float(calibration_error(after, labels))
    assert float(data.gain) == float(calibration_gain(before, after, labels, logits=True))
    assert data.method == data.verdict.method == data.comparison.verdict.method
    assert float(data.comparison[data.method].gain) == pytest.approx(float(data.gain), abs=1e-12)


def test_the_verdict_on_over_confident_scores(report_file):
    _, data = report_file
    assert data.diagnosis.level == "bad"
    assert data.verdict.helps == "yes"
    assert "overconfident" in data.diagnosis.headline
    assert "No predicted class changes" in data.diagnosis.effect
    assert "log loss falls by" in data.diagnosis.effect
    assert data.next_steps[0].heading == f"Use {data.verdict.method}"
    assert data.verdict.method in data.curve_answer
    assert data.verdict.more_data == data.curve_answer


def test_the_headline_gives_the_signed_mean(report_file):
    """By how much the mean confidence is above the accuracy, which is less than the error where its sign changes."""
    _, data = report_file
    logits, y = make_problem(900, 5)
    p = softmax(logits[500:])
    lead = p.max(axis=1).mean() - (p.argmax(axis=1) == y[500:]).mean()
    assert f"mean confidence is {100 * lead:.1f} percentage points above the accuracy" in data.diagnosis.headline
    assert float(data.before.error) >= lead - 1e-9


def test_calibrated_scores_need_no_map():
    logits, y = make_problem(4000, 3, sharpness=1.0)
    data = build_report(logits, y, logits=True, methods=["ts"])
    assert data.diagnosis.level in ("good", "unclear")
    assert data.verdict.helps == "no"
    assert data.next_steps[0].heading in ("Use ts, or leave the scores as they are", "Leave the scores as they are")
    assert "helps" not in data.diagnosis.effect


def test_the_method_asked_for_is_detailed_and_the_verdict_stays():
    logits, y = make_problem(600, 3)
    data = build_report(logits, y, logits=True, method="irova", methods=["ts", "irm"])
    assert data.method == "irova"
    assert data.verdict.method != "irova"
    assert data.next_steps[0].heading == f"Prefer {data.verdict.method} to irova"
    assert "irova" in data.curve_answer


def test_one_class_is_refused():
    logits, y = make_problem(100, 3)
    with pytest.raises(ValueError, match="all samples are of class '2'"):
        build_report(logits, np.full(100, 2), logits=True)
    with pytest.raises(ValueError, match="evaluation labels: all samples"):
        build_report(logits, y, logits=True, evaluation=(logits, np.zeros(100, dtype=int)))


def test_the_folds_of_the_diagrams_are_those_of_the_table():
    logits, y = make_problem(300, 3)
    data = build_report(logits, y, logits=True, methods=["ts"], method="irova", random_state=3)
    assert float(data.comparison["irova"].gain) == pytest.approx(float(data.gain), abs=1e-12)
    assert float(data.comparison["irova"].nll) == pytest.approx(float(data.after.nll), abs=1e-12)


def test_data_are_plain(report_file, small_report):
    for data in (report_file[1], small_report):
        json.dumps(data.to_dict(), allow_nan=False)
        with pytest.raises(AttributeError):
            data.title = "other"


def test_the_same_seed_gives_the_same_report():
    logits, y = make_problem(150, 3)
    first, second = (build_report(logits, y, logits=True, methods=["ts"], random_state=5).to_dict() for _ in range(2))
    for report in (first, second):
        for result in report["comparison"]["results"]:
            del result["seconds"]
    assert first == second


def test_few_rows(small_report):
    assert small_report.curve is None
    assert "too few samples" in small_report.curve_answer or small_report.verdict.method == "identity"
    assert small_report.diagnosis.level == "unclear"
    assert not small_report.verdict.decided
    assert len(small_report.classes) == 3


@pytest.mark.parametrize("vector", [True, False])
def test_two_classes(vector):
    logits, y = make_problem(300, 2)
    p = softmax(logits)
    data = build_report(p[:, 1] if vector else p, y, methods=["ts"], method="platt")
    assert data.before.error.notion == data.after.error.notion == "binary"
    assert {result.error.notion for result in data.comparison.results} == {"binary"}
    assert [row.name for row in data.classes] == ["1"]
    assert "class 1" in data.subject
    assert float(data.before.brier) == pytest.approx(float(data.comparison["identity"].brier))


def test_absent_classes_are_named(hostile_file):
    _, data = hostile_file
    assert data.absent == ("日本",)
    assert any("日本" in step.text for step in data.next_steps)


def test_a_fitted_map_is_judged_as_it_is():
    logits, y = make_problem(400, 3)
    fitted = calibrator("ts", logits=True).fit(logits[:200], y[:200])
    data = build_report(logits[200:], y[200:], logits=True, method=fitted, methods=["irm"])
    expected = calibration_gain(logits[200:], fitted, y[200:], logits=True)
    assert data.method == "TemperatureScaling()"
    assert float(data.gain) == pytest.approx(float(expected), abs=1e-12)
    assert [result.name for result in data.comparison.results].count("TemperatureScaling()") == 1
    with pytest.raises(ValueError, match="the scores are probabilities, but the map was fitted on logits"):
        build_report(softmax(logits), y, method=fitted)


@pytest.mark.parametrize("name", ALL)
def test_every_expression_for_logits_and_for_probabilities(name):
    """A map that is not fitted is made for the scores of the report, whatever it was written for."""
    logits, y = make_problem(100, 3)
    for scores, given in ((logits, True), (softmax(logits), False)):
        written_for_other = expression(name).for_input(logits=not given)
        held_out = (scores[60:], y[60:])
        report = build_report(
            scores[:60], y[:60], evaluation=held_out, method=written_for_other, methods=[], logits=given
        )
        after = expression(name).for_input(logits=given).fit(scores[:60], y[:60]).predict_proba(scores[60:])
        assert float(report.after.nll) == pytest.approx(float(log_loss(after, y[60:])), rel=1e-12)
        assert "logits" not in report.method
        assert all(result.failure is None for result in report.comparison.results)


def test_a_fitted_composition_for_logits():
    logits, y = make_problem(200, 3)
    fitted = expression("keep (ts >> irova)").for_input(logits=True).fit(logits[:100], y[:100])
    data = build_report(logits[100:], y[100:], logits=True, method=fitted, methods=["ts"])
    expected = calibration_gain(logits[100:], fitted, y[100:], logits=True)
    assert float(data.gain) == pytest.approx(float(expected), abs=1e-12)


def test_weights_count_rows_and_warn_once():
    logits, y = make_problem(200, 3)
    weight = np.r_[np.zeros(50), np.ones(150)]
    data = build_report(logits, y, logits=True, methods=["ts"], sample_weight=weight)
    assert data.n_evaluation == 150
    with pytest.warns(UserWarning, match="importance") as found:
        build_report(logits, y, logits=True, methods=["ts"], sample_weight=np.full(200, 0.5))
    assert len(found) == 1
    build_report(logits, y, logits=True, methods=["ts"], sample_weight=np.full(200, 0.5), weights="importance")


def test_progress_goes_from_nothing_to_all():
    logits, y = make_problem(100, 3)
    seen = []
    build_report(logits, y, logits=True, methods=["ts"], progress=lambda *step: seen.append(step))
    done = [step[0] for step in seen]
    assert done == sorted(done)
    assert done[0] == 0
    assert seen[-1] == (100, 100, "done")


def test_a_method_that_fails_is_listed():
    class Broken:
        def fit(self, scores, y):
            msg = "<no>"
            raise RuntimeError(msg)

        def predict_proba(self, scores):
            return scores

    logits, y = make_problem(100, 3)
    data = build_report(softmax(logits), y, methods={"broken": Broken(), "ts": "ts"})
    assert "<no>" in data.comparison["broken"].failure


def test_bad_input_is_refused_before_the_work(tmp_path):
    logits, y = make_problem(100, 3)
    with pytest.raises(ValueError, match="logits=True"):
        build_report(logits, y)
    with pytest.raises(ValueError, match="no method called"):
        build_report(logits, y, logits=True, method="nothing")
    with pytest.raises(FileNotFoundError, match="no folder"):
        write_report(tmp_path / "none" / "report.html", logits, y, logits=True)
    assert list(tmp_path.iterdir()) == []


def test_confident_predictions_are_counted_before_and_after():
    logits, y = make_problem(3000, 3)
    logits = 3 * logits
    given = (logits[:1500], y[:1500])
    new, labels = logits[1500:], y[1500:]
    data = build_report(*given, evaluation=(new, labels), method="ts", methods=["ts"], logits=True)
    after = calibrator("ts", logits=True).fit(*given).predict_proba(new)
    shares = []
    for p in (softmax(new), after):
        at = p.max(axis=1) >= 0.9
        assert at.sum() >= 20
        shares.append(f"{100 * (p.argmax(axis=1) == labels)[at].mean():.1f}%")
    assert data.diagnosis.confident == (
        f"Of predictions at 90% and above, {shares[0]} were right; with ts, {shares[1]}."
    )
    assert data.diagnosis.to_dict()["confident"] == data.diagnosis.confident


def test_confident_predictions_of_two_classes_are_about_the_positive_one():
    rng = np.random.default_rng(0)
    log_odds = rng.normal(0, 2, 2000)
    y = np.array(["ham", "spam"])[(rng.random(2000) < 1 / (1 + np.exp(-log_odds))).astype(int)]
    p = 1 / (1 + np.exp(-2 * log_odds))
    data = build_report(np.c_[1 - p, p], y, classes=["ham", "spam"], methods=["ts"])
    share = (y == "spam")[p >= 0.9].mean()
    start = (
        f"Where the probability of class spam was 90% or above, {100 * share:.1f}% of the samples were of that class"
    )
    assert data.diagnosis.confident.startswith(start)


def test_few_confident_predictions_are_not_counted(small_report):
    assert small_report.diagnosis.confident == ""


def test_reversed_scores_are_named_near_the_verdict():
    rng = np.random.default_rng(0)
    y = (rng.random(400) < 0.2).astype(int)
    with pytest.warns(CalibrationWarning, match="probably those of class 0") as found:
        data = build_report(1 / (1 + np.exp(3 * y + rng.normal(size=400))), y, methods=["platt"])
    assert len(found) == 1
    assert ("Warning", str(found[0].message)) in data.verdict.lines()

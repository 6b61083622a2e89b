import json
from dataclasses import replace

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch import selection
from mixnmatch.evaluation.gain import calibration_gain
from mixnmatch.selection.comparison import compare
from tests.conftest import make_problem, nll, softmax

NAMES = ["ts", "irm", "svs"]


@pytest.fixture(scope="module")
def crossed():
    logits, y = make_problem(500, 4, seed=1)
    return compare(logits, y, methods=NAMES, logits=True)


def test_package_hands_out_the_function():
    assert selection.compare is compare
    with pytest.raises(AttributeError, match="nothing"):
        _ = selection.nothing


def test_is_ranked_by_log_loss_and_has_the_identity(crossed):
    names = [result.name for result in crossed.results]
    assert sorted(names) == sorted([*NAMES, "identity"])
    losses = [float(result.nll) for result in crossed.results]
    assert losses == sorted(losses)
    assert crossed.to_dict()["ranked_by"] == "log loss"
    assert crossed["identity"].gain == 0
    assert float(crossed.best.behind) == 0
    assert all(float(result.behind) >= 0 for result in crossed.results)
    assert crossed.best in crossed.tied()
    assert crossed["identity"] not in crossed.tied()


@pytest.mark.parametrize("scoring", ["nll", "brier"])
def test_paired_differences_are_those_of_the_score(scoring):
    logits, y = make_problem(200, 3, seed=1)
    found = compare(logits, y, methods=NAMES, logits=True, scoring=scoring)
    for result in found.results:
        gap = float(getattr(result, scoring)) - float(getattr(found.best, scoring))
        assert float(result.behind) == pytest.approx(gap, abs=1e-12)
    assert found.verdict.score == {"nll": "log loss", "brier": "Brier score"}[scoring]


def test_the_text_ends_with_the_verdict(crossed):
    assert f"Use {crossed.verdict.method}: " in str(crossed)
    assert crossed.to_dict()["verdict"]["method"] == crossed.verdict.method
    assert max(map(len, str(crossed).splitlines())) <= 80


@pytest.mark.parametrize("evaluation", [False, True])
def test_labels_of_one_class_are_refused(evaluation):
    logits, y = make_problem(100, 3)
    ones = np.ones(100, dtype=int)
    given = {"evaluation": (logits, ones)} if evaluation else {}
    with pytest.raises(ValueError, match="labels: all samples are of class '1'"):
        compare(logits, y if evaluation else ones, methods=["ts"], logits=True, **given)


def test_two_classes_have_one_notion_of_error():
    logits, y = make_problem(300, 2)
    p = softmax(logits)
    table, vector = (compare(scores, y, methods=["platt"]) for scores in (p, p[:, 1]))
    assert {result.error.notion for result in (*table.results, *vector.results)} == {"binary"}
    assert float(table["platt"].error) == pytest.approx(float(vector["platt"].error))


def test_accuracy_is_kept_where_promised(crossed):
    assert crossed["ts"].accuracy_preserving
    assert crossed["ts"].winners_changed == 0
    assert crossed["ts"].accuracy_change == 0
    assert not crossed["svs"].accuracy_preserving


def test_given_split_agrees_with_doing_it_by_hand():
    logits, y = make_problem(300, 3, seed=2)
    fresh, fresh_y = make_problem(400, 3, seed=3)
    result = compare(logits, y, methods=["ets"], logits=True, evaluation=(fresh, fresh_y))
    p = mm.calibrator("ets", logits=True).fit(logits, y).predict_proba(fresh)
    assert result["ets"].nll == pytest.approx(nll(p, fresh_y))
    gain = calibration_gain(fresh, p, fresh_y, logits=True)
    assert result["ets"].gain == pytest.approx(float(gain))
    assert result["ets"].gain.interval == pytest.approx(gain.interval)
    assert result["ets"].gain.exact
    assert result.n_rows == 400


def test_out_of_fold_predictions_are_scored():
    logits, y = make_problem(60, 3, seed=4)
    result = compare(logits, y, methods={"wild": mm.OneVsAll(mm.Isotonic(), logits=True)}, logits=True)
    own = mm.OneVsAll(mm.Isotonic(), logits=True).fit(logits, y).predict_proba(logits)
    assert result["wild"].nll > nll(own, y)


class Broken(mm.TemperatureScaling):
    def _fit(self, source):
        msg = "it is\nbroken"
        raise RuntimeError(msg)


def test_failures_are_reported_not_raised():
    logits, y = make_problem(60, 3, seed=4)
    result = compare(logits, y, methods={"broken": Broken(logits=True), "ts": "ts"}, logits=True)
    assert result.results[-1].name == "broken"
    assert result["broken"].failure == "RuntimeError: it is broken"
    assert result["broken"].gain is None
    assert result.failed == (result["broken"],)
    assert "broken failed: RuntimeError" in str(result)
    json.dumps(result.to_dict(), allow_nan=False)


def test_weights_are_frequencies_in_the_point_estimates():
    logits, y = make_problem(150, 3, seed=5)
    fresh, fresh_y = make_problem(100, 3, seed=6)
    times = np.random.default_rng(0).integers(0, 3, 100)
    weighted = compare(logits, y, methods=["ts"], logits=True, evaluation=(fresh, fresh_y, times))
    repeated = (np.repeat(fresh, times, axis=0), np.repeat(fresh_y, times))
    plain = compare(logits, y, methods=["ts"], logits=True, evaluation=repeated)
    assert weighted["ts"].gain == pytest.approx(float(plain["ts"].gain))
    assert weighted["ts"].error == pytest.approx(float(plain["ts"].error), abs=1e-9)


def test_weights_of_zero_leave_rows_out_of_cross_validation():
    logits, y = make_problem(150, 3, seed=5)
    weight = np.ones(150)
    weight[100:] = 0
    one = compare(logits, y, methods=["ts"], logits=True, sample_weight=weight)
    other = compare(logits[:100], y[:100], methods=["ts"], logits=True)
    assert one.n_rows == 100
    assert one["ts"].gain == pytest.approx(float(other["ts"].gain))


def test_names_and_vectors_and_progress():
    rng = np.random.default_rng(0)
    score = rng.random(200)
    y = np.where(rng.random(200) < score**2, "yes", "no")
    seen = []
    result = compare(score, y, methods=["platt"], progress=lambda *step: seen.append(step), classes=["no", "yes"])
    assert seen == [(0, 2, "platt"), (1, 2, "identity")]
    assert result.best.name == "platt"
    assert result.verdict.method == "platt"


def test_default_methods_are_the_main_ones_and_the_others_are_named():
    from mixnmatch._engine import door
    from mixnmatch.maps.registry import METHODS
    from mixnmatch.selection.methods import build_methods, default_methods

    logits, y = make_problem(100, 3)
    source = door.rows(logits, y, logits=True)
    main, others = default_methods(source)
    assert {"identity", "ts", "sms", "auto"} <= set(main)
    assert {"platt", "gpc", "ensemble-beta", "matrix"} <= set(others)
    assert list(build_methods(None, source)) == main
    assert set(build_methods("all", source)) == set(METHODS) - {"uniform", "irova"}
    assert set(build_methods("ts", source)) == {"ts", "identity"}
    large = door.rows(np.zeros((200_001, 3)), np.arange(200_001) % 3, logits=True)
    assert "auto" in default_methods(large)[1]


def test_the_text_is_narrow_and_explains_itself():
    logits, y = make_problem(200, 3)
    result = compare(logits, y, methods=["ts", "ensemble-platt", "matrix"], logits=True, cv=2)
    text = str(result)
    assert max(map(len, text.splitlines())) <= 80
    assert "Not compared" not in text
    assert "*: the method may change the predicted class" in text
    marked = [line.split()[0] for line in text.splitlines() if "* " in line and ":" not in line]
    assert marked == [line.name for line in result.results if not line.accuracy_preserving]
    assert f"±{result['ts'].gain.interval[1] - float(result['ts'].gain):.4f}" in text
    defaults = replace(result, left_out=("auto", "gpc"))
    assert 'Not compared: auto, gpc; methods="all" compares them too.' in str(defaults)
    assert defaults.to_dict()["left_out"] == ["auto", "gpc"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"cv": 1}, "cv"),
        ({"confidence": 2}, "confidence"),
        ({"methods": ["tts"]}, "Did you mean"),
        ({"scoring": "ece"}, "scoring"),
        ({"evaluation": 3}, "evaluation"),
    ],
)
def test_refuses_what_makes_no_sense(options, word):
    logits, y = make_problem(30, 3)
    with pytest.raises(ValueError, match=word):
        compare(logits, y, logits=True, **options)


def test_two_samples_are_too_few_and_say_so():
    from mixnmatch._engine.folds import fold_of

    seed = next(k for k in range(20) if len(set(fold_of(range(2), 2, k).tolist())) == 1)
    result = compare(softmax([[1.0, 2.0], [2.0, 1.0]]), [1, 0], methods=["ts"], cv=2, random_state=seed)
    assert all("too few" in one.failure for one in result.results)
    assert result.losses is None
    assert "failed" in str(result)
    with pytest.raises(ValueError, match="no method could be fitted"):
        _ = result.verdict


def test_a_method_with_infinite_loss_has_no_interval_in_the_table():
    p = np.tile([[0.0, 1.0], [0.3, 0.7], [0.8, 0.2]], (40, 1))
    text = str(compare(p, np.tile([0, 1, 0], 40), methods=["platt"]))
    assert "inf" in text
    assert "nan" not in text

import json

import numpy as np
import pytest

from mixnmatch import load_sample, selection
from mixnmatch.selection import recommendation
from mixnmatch.selection.results import Comparison, MethodResult
from mixnmatch.selection.recommendation import _complexity, _guideline, recommend
from tests.conftest import draw_labels, softmax


class Error(float):
    p_value = 0.001


@pytest.mark.parametrize(
    ("n_classes", "model_size", "error", "expected"),
    [
        (10, 6e4, Error(0.2), "low"),
        (10, 1e6, Error(0.0), "moderate"),
        (100, 6e4, Error(0.2), "moderate"),
        (1000, 1e8, Error(0.0), "high"),
        (10, None, Error(0.2), "moderate"),
        (10, None, Error(0.01), "low"),
        (100, None, Error(0.2), "high"),
    ],
)
def test_complexity_is_that_of_appendix_g(n_classes, model_size, error, expected):
    assert _complexity(n_classes, model_size, error) == expected


@pytest.mark.parametrize(
    ("complexity", "rich", "preserve", "expected"),
    [
        ("high", True, False, "irova-ts"),
        ("high", False, False, "ets"),
        ("moderate", True, False, "irova-ts"),
        ("low", True, False, "ets"),
        ("high", True, True, "ets"),
    ],
)
def test_guidelines_are_those_of_appendix_g(complexity, rich, preserve, expected):
    assert _guideline(complexity, rich, preserve)[0] == expected


@pytest.fixture(scope="module")
def advice():
    sample = load_sample()
    steps = []
    found = selection.recommend(
        sample.logits_cal[:600],
        sample.labels_cal[:600],
        logits=True,
        preserve_accuracy=True,
        progress=lambda *step: steps.append(step),
    )
    return found, steps


def test_evidence_comes_from_the_data(advice):
    found, steps = advice
    assert found.guideline == "ets"
    assert found.method != "identity"
    assert found.evidence[found.method].accuracy_preserving
    assert found.n_classes == 10
    assert found.n_rows == 600
    assert not found.data_rich
    assert found.error.p_value < 0.05
    assert found.curve is not None
    assert steps[0][0] == 0
    assert all(done <= total for done, total, _ in steps)


def test_says_it_in_words_and_in_numbers(advice):
    found, _ = advice
    text = str(found)
    for word in ("Use ", "The paper", "The data", "The metric", "More data?", "calibration gain"):
        assert word in text
    json.dumps(found.to_dict(), allow_nan=False)


def test_calibrated_scores_are_left_alone():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 3)) * 2
    found = recommend(logits, draw_labels(softmax(logits), rng), logits=True, preserve_accuracy=True)
    assert found.method == "identity"
    assert found.complexity == "low"
    assert any("not told apart from calibrated" in caution for caution in found.cautions)


def test_disagreement_is_said():
    from mixnmatch.evaluation._means import MeanEstimate
    from mixnmatch.evaluation.gain import CalibrationGain

    def result(name, gain, behind, error):
        size = {"n_rows": 100, "n_groups": None, "confidence": 0.95}
        made = CalibrationGain(gain, standard_error=0.001, before=0.5, after=0.5 - gain, exact=True, **size)
        return MethodResult(name, gain=made, behind=MeanEstimate(behind, standard_error=error, **size))

    results = (result("auto", 0.05, 0.0, 0.0), result("ets", 0.02, 0.03, 0.001), result("identity", 0.0, 0.05, 0.001))
    evidence = Comparison(results, "by hand", 100, 3, 0.95)
    method, why, best, agree = recommendation._decide(evidence, "ets", preserve_accuracy=False)
    assert (method, best, agree) == ("auto", "auto", False)
    assert "ets, is behind" in why
    close = (results[0], result("ets", 0.049, 0.001, 0.001), results[2])
    method, why, best, agree = recommendation._decide(
        Comparison(close, "", 100, 3, 0.95), "ets", preserve_accuracy=False
    )
    assert (method, best, agree) == ("ets", "auto", True)
    assert "not told apart" in why


def test_few_rows():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(20, 3)) * 2
    found = recommend(logits, draw_labels(softmax(logits), rng), logits=True, preserve_accuracy=True)
    assert found.enough == "no"
    assert found.curve is None

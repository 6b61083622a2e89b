import json

import numpy as np
import pytest

from mixnmatch import load_sample, selection
from mixnmatch._engine import door
from mixnmatch.selection.recommendation import _complexity, _guideline, _rich, recommend
from tests.conftest import draw_labels, make_problem, softmax


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
    method, reason = _guideline(complexity, rich, preserve, 10)
    assert method == expected
    assert "many classes" not in reason
    assert "many classes" in _guideline(complexity, rich, preserve, 2)[1]


@pytest.mark.parametrize(
    ("counts", "rich"), [((7200, 7200), True), ((14153, 247), False), ((500,) * 10, True), ((100,) * 10, False)]
)
def test_the_rarest_class_says_whether_data_are_rich(counts, rich):
    labels = np.repeat(np.arange(len(counts)), counts)
    assert _rich(door.rows(np.zeros((len(labels), len(counts))), labels, logits=True)) is rich


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
    assert found.n_samples == 600
    assert not found.data_rich
    assert found.error.p_value < 0.05
    assert found.curve is not None
    assert found.curve.methods[0] == found.method
    assert found.method in found.verdict.more_data
    assert steps[0][0] == 0
    assert all(done <= total for done, total, _ in steps)


def test_says_it_in_words_and_in_numbers(advice):
    found, _ = advice
    text = str(found)
    for word in ("Use ", "Paper", "Effect", "Nested gain", "Metric", "More data?", "calibration gain"):
        assert word in text
    assert f"{found.error.notion} calibration error (ECE)" in text
    assert max(map(len, text.splitlines())) <= 80
    json.dumps(found.to_dict(), allow_nan=False)


def test_preserving_accuracy_has_a_price(advice):
    found, _ = advice
    cost = found.verdict.accuracy_cost
    losses = found.evidence.losses
    gap = (
        losses.nll[:, losses.names.index(found.method)] - losses.nll[:, losses.names.index(found.verdict.unrestricted)]
    )
    assert float(cost) == pytest.approx(gap.mean())
    assert cost.standard_error == pytest.approx(gap.std(ddof=1) / np.sqrt(len(gap)))
    assert "never changing a predicted class costs" in str(found).replace("\n               ", " ")


def test_undersampled_positives_need_an_intercept():
    """Scores from balanced training data, true rate 2%: no map without an intercept can mend them."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=3000) * 2 - 5
    y = (rng.random(3000) < 1 / (1 + np.exp(-z))).astype(int)
    p = 1 / (1 + np.exp(-(z + 4)))
    found = recommend(p, y)
    assert found.method in ("platt", "beta", "isotonic", "auto")
    assert "ts" not in found.verdict.tied_with
    assert found.error.notion == "binary"
    assert found.verdict.helps == "yes"
    assert "many classes" in found.guideline_reason
    kept = recommend(p, y, preserve_accuracy=True)
    assert kept.evidence[kept.method].accuracy_preserving
    assert kept.verdict.accuracy_cost.interval[0] > 0.05


def test_calibrated_scores_are_said_to_be():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(400, 3)) * 2
    found = recommend(logits, draw_labels(softmax(logits), rng), logits=True)
    assert found.verdict.helps == "no"
    assert found.complexity == "low"
    assert any("no significant miscalibration" in text for text in found.verdict.warnings)
    assert found.method in ("ts", "ets", "identity")


def test_few_samples_rank_nothing():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(20, 3)) * 2
    found = recommend(logits, draw_labels(softmax(logits), rng), logits=True)
    assert not found.verdict.decided
    assert {result.name for result in found.evidence.results} == {"identity", "ts"}
    assert found.curve is None
    assert "only 20 samples" in str(found)
    assert found.method in ("ts", "identity")


def test_held_out_set_and_one_class():
    logits, y = make_problem(300, 3)
    found = recommend(logits[:150], y[:150], logits=True, evaluation=(logits[150:], y[150:]))
    assert found.evidence.held_out
    assert "held-out log loss" in found.why
    with pytest.raises(ValueError, match="all samples are of class '0'"):
        recommend(logits, np.zeros(300, dtype=int), logits=True)


def test_a_guideline_that_was_not_compared_is_not_called_worse():
    rng = np.random.default_rng(0)
    x = rng.normal(0, 2, 600)
    y = (rng.random(600) < 1 / (1 + np.exp(-x))).astype(int)
    said = recommend(1 / (1 + np.exp(-2 * x)), y, methods=["platt", "beta-shrunk"])
    assert said.guideline in ("ets", "irova-ts")
    assert said.agree is None
    assert "On your data: not compared" in " ".join(str(said).split())
    assert "significantly worse" not in str(said)

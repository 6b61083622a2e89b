import json

import numpy as np
import pytest

from mixnmatch import selection
from mixnmatch.selection.learning import LearningCurve, learning_curve
from tests.conftest import make_problem


def test_curve_has_a_point_for_each_method_and_size():
    logits, y = make_problem(600, 3, seed=1)
    curve = selection.learning_curve(logits, y, methods=["ts"], logits=True, repetitions=2)
    assert curve.sizes == (50, 100, 200, 400)
    assert [(point.method, point.size) for point in curve.points[:4]] == [("ts", size) for size in curve.sizes]
    assert curve.methods == ("ts", "identity")
    assert all(point.repetitions == 2 for point in curve.points)
    assert "Would more calibration data help?" in str(curve)
    json.dumps(curve.to_dict(), allow_nan=False)


def test_more_data_help_a_map_of_many_parameters_and_not_temperature_scaling():
    logits, y = make_problem(400, 8, seed=2)
    other = make_problem(4000, 8, seed=3)
    curve = learning_curve(
        logits, y, methods=["ts", "irova"], logits=True, repetitions=4, evaluation=other, sizes=[100, 200, 400]
    )
    assert curve.outlook("irova").verdict == "yes"
    assert curve.outlook("irova").next_gain == pytest.approx(curve.outlook("irova").last_gain / 2)
    assert curve.outlook("ts").last_gain < curve.outlook("irova").last_gain / 10
    losses = [point.nll for point in curve.of("irova")]
    assert losses == sorted(losses, reverse=True)
    assert curve.outlook("identity").verdict == "no"


def test_is_reproducible():
    logits, y = make_problem(200, 3, seed=4)
    runs = [learning_curve(logits, y, methods=["ts"], logits=True, repetitions=2, random_state=5) for _ in range(2)]
    assert runs[0] == runs[1]


def test_failures_are_reported():
    class Broken:
        def fit(self, scores, labels):
            msg = "too bad"
            raise RuntimeError(msg)

        def predict_proba(self, scores):
            return scores

    logits, y = make_problem(90, 3, seed=4)
    curve = learning_curve(logits, y, methods={"broken": Broken()}, logits=True, repetitions=1, sizes=[30])
    assert curve.failures == {"broken at 30 samples": "RuntimeError: too bad"}
    assert np.isnan(curve.of("broken")[0].nll)
    assert curve.outlook("broken").verdict == "unclear"
    json.dumps(curve.to_dict(), allow_nan=False)


def test_few_rows_and_progress():
    logits, y = make_problem(12, 3, seed=4)
    steps = []
    curve = learning_curve(
        logits, y, methods=["ts"], logits=True, repetitions=1, progress=lambda *step: steps.append(step)
    )
    assert isinstance(curve, LearningCurve)
    assert curve.sizes == (8,)
    assert steps == [(0, 2, "ts, 8 samples"), (1, 2, "identity, 8 samples")]


@pytest.mark.parametrize(
    ("options", "word"), [({"repetitions": 0}, "repetitions"), ({"sizes": [1000]}, "only"), ({"sizes": []}, "sizes")]
)
def test_refuses_what_makes_no_sense(options, word):
    logits, y = make_problem(50, 3)
    with pytest.raises(ValueError, match=word):
        learning_curve(logits, y, methods=["ts"], logits=True, **options)
    with pytest.raises(ValueError, match="too few"):
        learning_curve(logits[:1], y[:1], methods=["ts"], logits=True)

import json

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss

from mixnmatch.evaluation.decomposition import cross_validated_decomposition, score_decomposition
from mixnmatch.evaluation.scores import brier_score, log_loss
from mixnmatch.maps.temperature import TemperatureScaling


def binary(n=600, seed=0, steps=40):
    rng = np.random.default_rng(seed)
    z = np.round(rng.random(n) * steps) / steps  # ties, exact 0 and 1
    y = (rng.random(n) < 0.15 + 0.6 * z**2).astype(int)
    return z, y


def table(n=1500, n_classes=4, sharpness=2.5, seed=0):
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.standard_normal((n, n_classes))
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return sharpness * logits, y


def test_corp_with_scikit_learn():
    z, y = binary()
    best = IsotonicRegression(y_min=0, y_max=1).fit(z, y).predict(z)
    parts = score_decomposition(z, y)
    assert parts.value == pytest.approx(brier_score_loss(y, z), rel=1e-12)
    assert parts.refinement == pytest.approx(brier_score_loss(y, best), rel=1e-10)
    assert parts.miscalibration == pytest.approx(parts.value - brier_score_loss(y, best), rel=1e-10)
    assert parts.uncertainty == pytest.approx(y.mean() * (1 - y.mean()), rel=1e-12)
    assert parts.value == pytest.approx(parts.miscalibration - parts.discrimination + parts.uncertainty, rel=1e-12)
    inside = np.clip(z, 0.01, 0.99)
    best = IsotonicRegression(y_min=0, y_max=1).fit(inside, y).predict(inside)
    logs = score_decomposition(inside, y, score="log")
    assert logs.value == pytest.approx(log_loss(inside, y), rel=1e-12)
    with np.errstate(divide="ignore"):
        at_label = -np.log(np.where(y == 1, best, 1 - best)).mean()
    assert logs.refinement == pytest.approx(at_label, rel=1e-9)


def test_weights_are_repetitions():
    z, y = binary(80)
    weight = np.arange(80) % 4
    repeated = np.repeat(np.arange(80), weight)
    first = score_decomposition(z, y, sample_weight=weight).to_dict()
    second = score_decomposition(z[repeated], y[repeated]).to_dict()
    for name in ("value", "miscalibration", "discrimination", "uncertainty"):
        assert first[name] == pytest.approx(second[name], rel=1e-12)


def test_notions():
    logits, y = table()
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    top = score_decomposition(logits, y, logits=True)
    assert top.problem == "the top label"
    by_hand = score_decomposition(p.max(axis=1), (p.argmax(axis=1) == y).astype(int))
    assert top.miscalibration == pytest.approx(by_hand.miscalibration, rel=1e-9)
    one = score_decomposition(logits, y, logits=True, label=2)
    by_hand = score_decomposition(p[:, 2], (y == 2).astype(int))
    assert one.miscalibration == pytest.approx(by_hand.miscalibration, rel=1e-9)
    assert one.problem == "class 2"
    two = np.stack([1 - p[:, 2], p[:, 2]], axis=1)
    both = score_decomposition(two, (y == 2).astype(int), notion="binary")
    assert both.miscalibration == pytest.approx(by_hand.miscalibration, rel=1e-9)
    single = score_decomposition(logits.astype(np.float32), y, logits=True)
    assert single.miscalibration == pytest.approx(top.miscalibration, abs=1e-5)
    with pytest.raises(ValueError, match="two classes"):
        score_decomposition(p, y, notion="binary")
    with pytest.raises(ValueError, match="label"):
        score_decomposition(p, y, notion="class-wise")
    with pytest.raises(ValueError, match="not one of the classes"):
        score_decomposition(p, y, label=9)


def test_corp_edge_cases():
    perfect = score_decomposition([0.0, 1.0, 1.0], [0, 1, 1], score="log")
    assert perfect.value == perfect.miscalibration == 0
    wrong = score_decomposition([0.0, 1.0], [1, 1], score="log")
    assert wrong.value == wrong.miscalibration == np.inf
    assert wrong.to_dict()["value"] is None
    one = score_decomposition([0.3], [1])
    assert one.miscalibration == pytest.approx(0.49)
    assert one.discrimination == 0
    constant = score_decomposition([0.4] * 5, [1, 0, 0, 1, 0])
    assert constant.miscalibration == pytest.approx(0)
    assert constant.discrimination == pytest.approx(0)


def test_cross_validation_finds_what_temperature_removes():
    logits, y = table(6000)
    for score, loss, metric in (("brier", "brier", brier_score), ("log", "nll", log_loss)):
        recalibrator = TemperatureScaling(loss=loss)
        parts = cross_validated_decomposition(logits, y, logits=True, score=score, recalibrator=recalibrator)
        before, after = metric(logits, y, logits=True), metric(logits / 2.5, y, logits=True)
        assert parts.value == pytest.approx(before, rel=1e-12)
        assert parts.miscalibration == pytest.approx(before - after, abs=0.003)
        assert parts.miscalibration > 5 * parts.standard_error
        assert parts.value == pytest.approx(parts.miscalibration - parts.discrimination + parts.uncertainty, rel=1e-12)
    calibrated = cross_validated_decomposition(logits / 2.5, y, logits=True)
    assert abs(calibrated.miscalibration) < 0.006
    assert "OneVsAll" in calibrated.recalibrator


def test_uncertainty_is_the_score_of_the_class_frequencies():
    logits, y = table(300)
    frequency = np.bincount(y, minlength=4) / 300
    constant = np.tile(frequency, (300, 1))
    for score, metric in (("brier", brier_score), ("log", log_loss)):
        parts = cross_validated_decomposition(logits, y, logits=True, score=score)
        assert parts.uncertainty == pytest.approx(metric(constant, y), rel=1e-12)


class Flat:
    """A map of a user's own."""

    def fit(self, scores, y, sample_weight=None):
        self.frequency_ = np.bincount(y, sample_weight, minlength=scores.shape[1]) / (
            len(y) if sample_weight is None else sample_weight.sum()
        )
        return self

    def predict_proba(self, scores):
        return np.tile(self.frequency_, (len(scores), 1))


def test_a_map_of_the_user_recalibrates():
    logits, y = table(400)
    parts = cross_validated_decomposition(logits, y, logits=True, recalibrator=Flat())
    assert parts.recalibrator == "Flat"
    assert parts.discrimination == pytest.approx(0, abs=0.01)
    weighted = cross_validated_decomposition(logits, y, logits=True, recalibrator=Flat(), sample_weight=np.full(400, 2))
    assert weighted.miscalibration == pytest.approx(parts.miscalibration, rel=1e-9)


def test_report_and_refusals():
    z, y = binary(50)
    text = str(score_decomposition(z, y))
    assert "miscalibration" in text
    assert "CORP" in text
    assert json.loads(json.dumps(score_decomposition(z, y).to_dict()))["method"] == "CORP"
    with pytest.raises(ValueError, match="score must be"):
        score_decomposition(z, y, score="sharpness")
    with pytest.raises(ValueError, match="n_folds"):
        cross_validated_decomposition(z, y, n_folds=1)

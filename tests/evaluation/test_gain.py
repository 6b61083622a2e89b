import json

import numpy as np
import pytest
from scipy import stats

from mixnmatch._engine.passes import engine
from mixnmatch.evaluation.gain import calibration_gain, compare_gains
from mixnmatch.evaluation.scores import brier_score
from mixnmatch.maps.temperature import TemperatureScaling
from mixnmatch.maps.trivial import Identity, Uniform


def softmax(u):
    p = np.exp(u - u.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def problem(n=800, n_classes=4, sharpness=2.0, seed=1):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((n, n_classes))
    p = softmax(logits)
    y = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return sharpness * logits, p, y


def test_equation_of_the_paper():
    logits, after, y = problem()
    before, onehot = softmax(logits), np.eye(4)[y]
    rows = np.square(before - onehot).sum(axis=1) - np.square(after - onehot).sum(axis=1)
    gain = calibration_gain(before, after, y)
    assert gain == pytest.approx(rows.mean(), rel=1e-12)
    assert gain == pytest.approx(gain.before - gain.after, rel=1e-12)
    assert gain.standard_error == pytest.approx(stats.sem(rows), rel=1e-10)
    assert gain.p_value == pytest.approx(stats.ttest_1samp(rows, 0).pvalue, rel=1e-6)
    assert gain.interval == pytest.approx(stats.t.interval(0.95, 799, rows.mean(), stats.sem(rows)), rel=1e-9)
    assert calibration_gain(logits, after, y, logits=True) == pytest.approx(gain, rel=1e-12)
    single = calibration_gain(logits.astype(np.float32), after.astype(np.float32), y, logits=True)
    assert single == pytest.approx(gain, rel=1e-5)


def test_gain_estimates_the_reduction_of_squared_calibration_error():
    # After calibration the error is 0, so the gain is the squared error of the sharpened scores, known exactly here.
    logits, after, y = problem(20000)
    truth = np.square(softmax(logits) - after).sum(axis=1).mean()
    gain = calibration_gain(logits, after, y, logits=True)
    assert abs(gain - truth) < 4 * gain.standard_error


def test_the_words_follow_the_map():
    logits, after, y = problem()
    fitted = TemperatureScaling(logits=True).fit(logits, y)
    gain = calibration_gain(logits, fitted, y, logits=True)
    assert gain.exact is True
    assert "exact" in str(gain)
    assert gain == pytest.approx(calibration_gain(logits, fitted.predict_proba(logits), y, logits=True), rel=1e-9)
    collapsed = calibration_gain(logits, Uniform(logits=True).fit(logits, y), y, logits=True)
    assert collapsed.exact is False
    assert "lower bound" in str(collapsed)
    assert collapsed.after == pytest.approx(0.75)
    assert calibration_gain(logits, after, y, logits=True).exact is None
    assert calibration_gain(logits, after, y, logits=True, injective=True).exact is True
    with pytest.raises(ValueError, match="but the map takes logits"):
        calibration_gain(softmax(logits), fitted, y)


def test_a_map_of_the_user_takes_part():
    class Halfway:
        injective = True

        def predict_proba(self, scores):
            return 0.5 * scores + 0.5 / scores.shape[1]

    logits, _, y = problem()
    before = softmax(logits)
    gain = calibration_gain(before, Halfway(), y)
    assert gain.exact is True
    assert gain == pytest.approx(calibration_gain(before, Halfway().predict_proba(before), y), rel=1e-12)


def test_comparison_is_paired():
    logits, after, y = problem()
    other = softmax(0.9 * logits / 2)
    result = compare_gains(logits, after, other, y, logits=True)
    onehot = np.eye(4)[y]
    rows = np.square(other - onehot).sum(axis=1) - np.square(after - onehot).sum(axis=1)
    assert result == pytest.approx(rows.mean(), rel=1e-10)
    assert result.standard_error == pytest.approx(stats.sem(rows), rel=1e-9)
    assert result.p_value == pytest.approx(stats.ttest_1samp(rows, 0).pvalue, rel=1e-6)
    for side, array in (("gain_a", after), ("gain_b", other)):
        alone, inside = calibration_gain(logits, array, y, logits=True), getattr(result, side)
        assert inside == pytest.approx(alone, rel=1e-12)
        assert inside.standard_error == pytest.approx(alone.standard_error, rel=1e-10)
        assert inside.after == pytest.approx(alone.after, rel=1e-12)
    assert result.standard_error < result.gain_a.standard_error
    swapped = compare_gains(logits, other, after, y, logits=True)
    assert swapped == pytest.approx(-result, rel=1e-12)
    assert json.loads(json.dumps(result.to_dict()))["p_value"] == pytest.approx(result.p_value)


@pytest.mark.parametrize(
    ("flags", "word"), [((True, True), "both"), ((True, False), "may also"), ((None, True), "if both")]
)
def test_comparison_says_what_it_means(flags, word):
    logits, after, y = problem(50)
    result = compare_gains(logits, after, after, y, logits=True, injective=flags)
    assert word in result.meaning
    assert word in str(result)
    assert result == 0
    assert result.p_value == 1
    assert result.interval == (0, 0)


def test_weights_groups_and_blocks():
    logits, after, y = problem(90)
    weight = np.arange(90) % 3
    repeated = np.repeat(np.arange(90), weight)
    gain = calibration_gain(logits, after, y, logits=True, sample_weight=weight)
    other = calibration_gain(logits[repeated], after[repeated], y[repeated], logits=True, clusters=repeated)
    assert gain == pytest.approx(other, rel=1e-12)
    assert gain.standard_error == pytest.approx(other.standard_error, rel=1e-9)
    assert gain.before == pytest.approx(brier_score(logits[repeated], y[repeated], logits=True), rel=1e-12)
    with engine(block_bytes=200, threads=2):
        again = calibration_gain(logits, after, y, logits=True, sample_weight=weight)
    assert again == pytest.approx(gain, rel=1e-12)


def test_vectors_and_tables_of_two_classes_agree():
    logits, after, y = problem(n_classes=2)
    expected = calibration_gain(logits, after, y, logits=True)
    vector = logits[:, 1] - logits[:, 0]
    assert calibration_gain(vector, after, y, logits=True) == pytest.approx(expected, rel=1e-10)
    assert calibration_gain(vector, after[:, 1], y, logits=True) == pytest.approx(expected, rel=1e-10)


def test_edge_cases():
    nothing = calibration_gain([[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]], [1, 0])
    assert nothing == 0
    assert nothing.p_value == 1
    one = calibration_gain([[0.2, 0.8]], [[0.1, 0.9]], [1])
    assert one > 0
    assert np.isnan(one.standard_error)
    assert np.isnan(one.p_value)
    assert one.to_dict()["low"] is None
    identity = Identity().fit([[0.2, 0.8]], [1])
    assert calibration_gain([[0.2, 0.8]], identity, [1]) == 0
    many, after, y = problem(40, 1000)
    assert calibration_gain(many.astype(np.float32), after, y, logits=True) > 0
    with pytest.raises(ValueError, match="but 2 of 3 after"):
        calibration_gain([[0.2, 0.8]] * 2, [[0.2, 0.4, 0.4]] * 2, [1, 1])


def test_intervals_cover():
    rng = np.random.default_rng(5)
    truth = calibration_gain(*_draw(rng, 200_000))
    inside = 0
    for _ in range(300):
        low, high = calibration_gain(*_draw(rng, 150)).interval
        inside += low <= truth <= high
    assert inside >= 270


def _draw(rng, n):
    p = softmax(1.5 * rng.standard_normal((n, 3)))
    y = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    sharp = p**2 / (p**2).sum(axis=1, keepdims=True)
    return sharp, p, y


def rare(n, seed):
    """Events with probabilities of about 0.0003, and a map that makes them 0.05."""
    rng = np.random.default_rng(seed)
    z = 1 / (1 + np.exp(-rng.normal(-8, 1, n)))
    return z, 0.05 + 0.9 * z, (rng.random(n) < z).astype(int)


@pytest.mark.parametrize("n", [20, 100, 1000])
def test_intervals_cover_gains_that_rest_on_events_not_seen(n):
    z, after, _ = rare(1_000_000, 0)
    truth = np.mean(2 * (z * (1 - z) ** 2 + (1 - z) * z**2) - 2 * (z * (1 - after) ** 2 + (1 - z) * after**2))
    gains = [calibration_gain(*rare(n, seed)) for seed in range(1, 101)]
    held = [gain.interval[0] <= truth <= gain.interval[1] for gain in gains]
    assert np.mean(held) >= 0.92


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_zero_is_in_the_interval_of_a_gain_exactly_when_its_test_does_not_reject(confidence):
    kinds = set()
    for n in (5, 20, 60, 100, 300):
        for seed in range(10):
            z, after, y = rare(n, seed)
            for gain in (
                calibration_gain(z, after, y, confidence=confidence),
                calibration_gain(after, z, y, confidence=confidence),
                compare_gains(z, after, z, y, confidence=confidence),
            ):
                low, high = gain.interval
                assert low <= gain <= high
                assert (low <= 0 <= high) == (gain.p_value > 1 - confidence)
                kinds.add(gain.p_value > 1 - confidence)
    assert kinds == {True, False}


def test_what_labels_could_have_shown_by_hand():
    z, after = np.array([[0.9, 0.1], [0.7, 0.3]]), np.array([[0.6, 0.4], [0.8, 0.2]])
    possible = [[((z[i] - e) ** 2).sum() - ((after[i] - e) ** 2).sum() for e in np.eye(2)] for i in range(2)]
    gain = calibration_gain(z, after, [0, 1])
    np.testing.assert_allclose(gain.unseen, np.sort(possible, axis=1).mean(axis=0))
    comparison = compare_gains(after, z, after, [0, 1])
    assert comparison.unseen == pytest.approx((-gain.unseen[1], -gain.unseen[0]))
    assert comparison.gain_a.unseen == pytest.approx(comparison.unseen)
    assert comparison.gain_b.unseen == (0.0, 0.0)


def test_a_map_that_changes_nothing_has_no_gain():
    z = np.full(10, 0.5)
    gain = calibration_gain(z, z, np.arange(10) % 2)
    assert (float(gain), gain.p_value, gain.interval) == (0.0, 1.0, (0.0, 0.0))

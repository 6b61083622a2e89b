import numpy as np
import pytest

from mixnmatch import calibration_error
from mixnmatch._engine.scores import read_scores
from mixnmatch.evaluation import notion
from mixnmatch.evaluation._rows_inference import _outcomes, class_wise_test, draw_labels
from mixnmatch.evaluation.series import group_nodes


def rows(rng, n, n_classes, sharpness=1.0):
    p = np.exp(rng.normal(0, 1.5, (n, n_classes)))
    p /= p.sum(axis=1, keepdims=True)
    truth = p**sharpness
    truth /= truth.sum(axis=1, keepdims=True)
    return p, truth, (truth.cumsum(axis=1)[:, :-1] < rng.random((n, 1))).sum(axis=1)


def test_drawn_labels_have_their_probabilities():
    p = np.array([[0.2, 0.0, 0.5, 0.3, 0.0]])
    cumulative = np.repeat(np.cumsum(p, axis=1), 20_000, axis=0)
    drawn = draw_labels(cumulative, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(drawn, minlength=5) / 20_000, p[0], atol=0.015)
    assert not np.isin(drawn, [1, 4]).any()


def test_outcomes_in_groups_are_those_of_the_grid():
    rng = np.random.default_rng(1)
    p, _, y = rows(rng, 300, 4)
    weight = rng.exponential(size=300)
    groups = group_nodes(notion.class_grid(read_scores(p), y, weight))
    np.testing.assert_allclose(_outcomes(p, y, groups, weight), groups.outcome, atol=1e-9)


def test_class_wise_level_and_power():
    rng = np.random.default_rng(2)
    rejected = []
    for sharpness, repetitions in ((1.0, 60), (0.5, 15)):
        found = []
        for _ in range(repetitions):
            p, _, y = rows(rng, 200, 3, sharpness)
            found.append(class_wise_test(p, notion.class_grid(read_scores(p), y), rng, resamples=59))
        rejected.append(np.mean(np.array(found) <= 0.05))
    assert rejected[0] <= 0.13
    assert rejected[1] >= 0.7


@pytest.mark.parametrize("which", ["class-wise", "canonical"])
@pytest.mark.parametrize("norm", [1, 2])
def test_intervals_cover(which, norm):
    rng = np.random.default_rng(3)
    p, truth, _ = rows(rng, 200_000, 3, 0.6)
    if which == "canonical":
        known = (np.abs(p - truth) ** norm).sum(axis=1).mean()
    else:
        groups = np.array_split(np.argsort(p[:, 0]), 1000)
        known = np.mean([abs((truth[part, 0] - p[part, 0]).mean()) ** norm for part in groups])
    hits = []
    for _ in range(20):
        p, _, y = rows(rng, 250, 3, 0.6)
        found = calibration_error(p, y, notion=which, norm=norm, interval=True)
        assert found.interval[0] <= found <= found.interval[1]
        assert (found.interval[0] > 0) == (found.p_value <= 0.05)
        hits.append(found.interval[0] <= known <= found.interval[1])
    assert np.mean(hits) >= 0.8


def test_all_right_is_no_proof_of_a_small_canonical_error():
    p = np.repeat([[0.999, 0.0005, 0.0005]], 100, axis=0)
    high = 0.999 - 0.025 ** (1 / 100)
    for which, factor in (("canonical", 2), ("class-wise", 1 / 3)):
        found = calibration_error(p, np.zeros(100, dtype=int), notion=which, interval=True)
        assert found.interval[0] == 0
        assert found.interval[1] >= factor * high


def test_weights_of_the_canonical_interval():
    rng = np.random.default_rng(4)
    p, _, y = rows(rng, 200, 3, 0.6)
    once = calibration_error(p, y, notion="canonical", interval=True)
    same = calibration_error(p, y, notion="canonical", interval=True, sample_weight=np.full(200, 3.0))
    assert same.p_value == once.p_value
    assert same.interval[1] == pytest.approx(max(once.interval[1], same), rel=1e-9)

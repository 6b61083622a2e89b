import time

import numpy as np
import pytest
from sklearn.base import clone

from mixnmatch import accuracy_preserved, load, load_sample
from mixnmatch.exceptions import CalibrationWarning
from mixnmatch.maps import KeepWinner
from mixnmatch.maps.base import CalibrationMap
from mixnmatch.selection import candidates
from mixnmatch.selection.auto import Auto
from mixnmatch.selection.candidates import candidates_for, drop_over_budget, guess_seconds
from tests.conftest import brier, draw_labels, make_problem, nll, softmax

# What estimating k parameters on n samples costs in log loss, about k / 2n: five or six of them on 800 or 1000 samples.
ESTIMATION = 0.003


def calibrated(n, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, n_classes)) * 2
    return logits, draw_labels(softmax(logits), rng)


@pytest.fixture(scope="module")
def fitted():
    """Auto on over-confident logits of four classes, and fresh rows."""
    logits, y = make_problem(800, 4, seed=3)
    fresh, fresh_y = make_problem(4000, 4, seed=4)
    return Auto(logits=True).fit(logits, y), fresh, fresh_y


def test_does_no_harm_to_calibrated_scores():
    logits, y = calibrated(1000, 3)
    fresh, fresh_y = calibrated(20000, 3, seed=1)
    for scoring, loss in (("nll", nll), ("brier", brier)):
        p = Auto(logits=True, scoring=scoring).fit(logits, y).predict_proba(fresh)
        assert loss(p, fresh_y) < loss(softmax(fresh), fresh_y) + ESTIMATION


def test_is_the_identity_where_nothing_is_better(monkeypatch):
    logits, y = calibrated(300, 3, seed=2)
    monkeypatch.setattr(candidates, "candidates_for", lambda *_, **__: [candidates.IDENTITY])
    stack = Auto(logits=True, accuracy_preserving=True).fit(logits, y)
    assert stack.candidates_ == ["identity"]
    assert stack.injective
    assert stack.gain_ == 0
    np.testing.assert_allclose(stack.predict_proba(logits), softmax(logits), atol=1e-12)


def test_is_not_much_worse_than_the_best_member(fitted):
    stack, fresh, y = fitted
    best = min(nll(member.predict_proba(fresh), y) for member in stack.members_)
    assert nll(stack.predict_proba(fresh), y) < best + ESTIMATION
    assert nll(stack.predict_proba(fresh), y) < nll(softmax(fresh), y) - 0.05


def test_says_what_it_did(fitted):
    stack, fresh, fresh_y = fitted
    assert stack.candidates_[0] == "identity"
    assert stack.candidate_weights_.sum() == pytest.approx(1)
    assert len(stack.members_) == len(stack.member_weights_) == np.count_nonzero(stack.candidate_weights_)
    gain = nll(softmax(fresh), fresh_y) - nll(stack.predict_proba(fresh), fresh_y)
    assert stack.gain_ == pytest.approx(gain, abs=3 * stack.gain_error_)
    assert stack.gain_ == pytest.approx(stack.candidate_losses_[0] - stack.loss_)
    assert stack.gain_ > 3 * stack.gain_error_
    assert stack.cost_ > 0
    text = stack.summary()
    assert "iop-context >> sms-weak >> iop" in text
    assert "gain over the identity" in text
    assert text.endswith(stack.verdict_)
    assert stack.verdict_.startswith("Use ")


def test_is_reproducible_and_can_be_cloned(fitted):
    stack, fresh, _ = fitted
    logits, y = make_problem(800, 4, seed=3)
    again = clone(stack).fit(logits, y)
    np.testing.assert_array_equal(again.predict_proba(fresh[:50]), stack.predict_proba(fresh[:50]))


def test_survives_saving(fitted, tmp_path):
    stack, fresh, _ = fitted
    stack.save(tmp_path / "auto.json")
    back = load(tmp_path / "auto.json")
    np.testing.assert_array_equal(back.predict_proba(fresh[:100]), stack.predict_proba(fresh[:100]))
    assert back.summary() == stack.summary()
    assert back.candidates_ == stack.candidates_


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scoring", ["nll", "brier"])
def test_restricted_preserves_accuracy(dtype, scoring):
    logits, y = make_problem(400, 4, seed=5, dtype=dtype)
    logits = logits + np.array([1, 0, -1, 0], dtype=dtype)  # so that maps with an intercept for each class are better
    stack = Auto(logits=True, accuracy_preserving=True, scoring=scoring).fit(logits, y)
    assert stack.accuracy_preserving
    assert not all(member.accuracy_preserving for member in stack.members_)
    assert not stack.injective
    rng = np.random.default_rng(0)
    near = rng.normal(size=(500, 4)).astype(dtype) * 3
    near[:, 1] = np.nextafter(near[:, 0], dtype(np.inf))
    steep = (rng.normal(size=(200, 4)) * 300).astype(dtype)
    for rows in (logits, near, steep):
        p = stack.predict_proba(rows)
        assert p.dtype == dtype
        assert accuracy_preserved(rows, p)


@pytest.mark.parametrize(("scoring", "loss"), [("nll", nll), ("brier", brier)])
def test_restricted_is_the_stack_held_to_its_winners(scoring, loss):
    logits, y = make_problem(500, 4, seed=5)
    logits = logits + np.array([1.0, 0.0, -1.0, 0.0])
    free = Auto(logits=True, scoring=scoring).fit(logits, y)
    held = Auto(logits=True, scoring=scoring, accuracy_preserving=True).fit(logits, y)
    np.testing.assert_array_equal(held.candidate_weights_, free.candidate_weights_)
    expected = KeepWinner(Auto(logits=True, scoring=scoring)).fit(logits, y).predict_proba(logits)
    np.testing.assert_allclose(held.predict_proba(logits), expected, atol=1e-12)
    # What it says of itself is about the rows that it gives, not about those of the free stack.
    assert free.loss_ + 0.001 < held.loss_ < held.candidate_losses_[0]
    fresh, fresh_y = make_problem(20000, 4, seed=6)
    fresh = fresh + np.array([1.0, 0.0, -1.0, 0.0])
    gain = loss(softmax(fresh), fresh_y) - loss(held.predict_proba(fresh), fresh_y)
    assert held.gain_ == pytest.approx(gain, abs=3 * held.gain_error_)


def test_restricted_does_no_harm_where_only_flips_help():
    # Labels are the class beside the winner: the free stack is far better, held back it is still better than nothing.
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 3))
    y = (logits.argmax(axis=1) + 1) % 3
    held = Auto(logits=True, accuracy_preserving=True).fit(logits, y)
    assert held.gain_ > 0
    assert accuracy_preserved(logits, held.predict_proba(logits))
    assert nll(held.predict_proba(logits), y) < nll(softmax(logits), y)


def test_restricted_is_not_worse_than_candidates_that_keep_winners_by_themselves(monkeypatch):
    logits, y = make_problem(300, 4, seed=5)
    monkeypatch.setattr("mixnmatch.selection.evidence.kept_losses", lambda given, *_: np.full(given.n_rows, 9.0))
    alone = Auto(logits=True, accuracy_preserving=True).fit(logits, y)
    assert all(member.accuracy_preserving for member in alone.members_)
    assert len(alone.members_) > 1
    assert alone.loss_ < alone.candidate_losses_[0]
    np.testing.assert_allclose(alone.predict_proba(logits).sum(axis=1), 1)


def test_caution_mixes_with_the_scores_where_there_is_little_evidence():
    logits, y = make_problem(60, 3, seed=1)
    bold = Auto(logits=True, caution=0).fit(logits, y)
    assert bold.evidence_ > 3
    identity = np.eye(len(bold.candidates_))[0]
    shares = []
    for caution in (0.5, 2.0, 10.0):
        mixed = Auto(logits=True, caution=caution).fit(logits, y)
        share = min(max(mixed.evidence_ / 3, 0), 1)
        expected = share * bold.candidate_weights_ + (1 - share) * identity
        np.testing.assert_allclose(mixed.candidate_weights_, expected, atol=1e-12)
        np.testing.assert_allclose(
            mixed.predict_proba(logits),
            share * bold.predict_proba(logits) + (1 - share) * softmax(logits),
            atol=5 * mixed.floor_,
        )
        shares.append(share)
    assert 1 == shares[0] > shares[1] > shares[2] == 0


def held_out_of(at_label):
    from mixnmatch.selection.crossfit import HeldOut
    from mixnmatch.selection.stacking import LogLoss

    return HeldOut(LogLoss(at_label, np.ones(len(at_label))), at_label)


def test_evidence_is_what_the_stack_gains_less_standard_errors():
    from mixnmatch.selection.evidence import CrossFittedStack

    at_label = np.random.default_rng(0).uniform(0.2, 0.9, size=(40, 2))
    held_out = held_out_of(at_label)
    stack = CrossFittedStack.of(held_out, np.arange(40) % 5)
    stacked = (at_label * stack.each).sum(axis=1)
    for share in (1.0, 0.3):
        gains = np.log((share * stacked + (1 - share) * at_label[:, 0]) / at_label[:, 0])
        expected = gains.sum() - 0.5 * gains.std(ddof=1) * np.sqrt(40)
        assert stack.evidence(held_out, 0.5, share) == pytest.approx(expected, rel=1e-12)


def test_share_of_shrunken_members_is_the_largest_that_costs_at_most_one_per_cent():
    from mixnmatch.selection.evidence import CrossFittedStack

    given = np.full(50, 0.5)
    loss = 50 * np.log(2)
    for factor, expected in ((1.2, 1.0), (0.995, 1.0), (0.95, 0.1), (0.5, 0.0)):
        at_label = np.column_stack([given, factor * given])
        held_out = held_out_of(at_label)
        stack = CrossFittedStack.of(held_out, np.arange(50) % 5, np.array([1]))
        assert stack.share(held_out, 0.5, shrunken=True) == pytest.approx(expected)
    assert stack.evidence(held_out, 0.5, 0.1) < -0.01 * loss
    assert stack.share(held_out, 0.5, shrunken=False) == 0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_hardly_ever_harms_calibrated_scores_with_few_samples(n_classes):
    changes = []
    for seed in range(20):
        logits, y = calibrated(40, n_classes, seed=2 * seed)
        fresh, fresh_y = calibrated(5000, n_classes, seed=2 * seed + 1)
        p = Auto(logits=True).fit(logits, y).predict_proba(fresh)
        changes.append(nll(p, fresh_y) / nll(softmax(fresh), fresh_y) - 1)
    assert np.mean(np.array(changes) > 0.01) <= 0.15
    assert np.mean(changes) < 0.01


def test_zeros_do_not_stay_zeros():
    # A forest of ten trees that happens to be right about the calibration set.
    rng = np.random.default_rng(0)
    score = rng.integers(0, 11, size=60) / 10
    y = (rng.random(60) < score).astype(int)
    stack = Auto().fit(score, y)
    p = stack.predict_proba(np.array([0.0, 0.5, 1.0]))
    assert p.min() >= 0.99 * stack.floor_ > 0
    assert stack.floor_ <= 1 / (2 * 61)
    as_given = Auto(caution=1e6).fit(score, y)
    assert as_given.candidate_weights_[0] == 1
    p = as_given.predict_proba(np.array([0.0, 0.5, 1.0]))
    np.testing.assert_allclose(p[:, 1], [as_given.floor_, 0.5, 1 - as_given.floor_], rtol=0.05)


def test_steps_are_reported(capsys):
    logits, y = make_problem(200, 3, seed=6)
    steps = []
    stack = Auto(logits=True).reporting_to(lambda *step: steps.append(step)).fit(logits, y)
    assert [done for done, _, _ in steps] == sorted(done for done, _, _ in steps)
    assert steps[-1][0] == steps[-1][1]
    assert len({total for _, total, _ in steps}) == 1
    assert {"iop, fold 1", "weights", "members"} <= {what for _, _, what in steps}
    count = len(steps)
    stack.fit(logits, y)
    assert len(steps) == count  # the function is asked once
    assert capsys.readouterr().err == ""
    Auto(logits=True, verbose=True).fit(logits, y)
    assert "members" in capsys.readouterr().err


def test_candidates_far_behind_stop_after_a_fold():
    rng = np.random.default_rng(0)
    z = rng.normal(size=4000) * 2
    y = (rng.random(4000) < 1 / (1 + np.exp(-z))).astype(int)
    stack = Auto(accuracy_preserving=True).fit(1 / (1 + np.exp(-z - 4)), y)
    assert "identity" in stack.candidates_
    assert "iop" in stack.behind_  # it has no intercept
    assert "far behind" in stack.summary()
    assert len(stack.candidate_weights_) == len(stack.candidates_)


def test_unrestricted_claims_nothing(fitted):
    assert not fitted[0].accuracy_preserving


def test_time_budget_drops_the_costliest_first():
    everything = candidates_for(5000, 10)

    def guess(*chosen):
        return guess_seconds(list(chosen), 5000, 10, 5)

    kept, dropped = drop_over_budget(everything, guess(*everything) - 1e-9, 5000, 10, 5)
    assert [guess(one) for one in dropped] == [max(guess(one) for one in everything)]
    assert [guess(one) for one in kept] == sorted(guess(one) for one in kept)
    few = candidates_for(200, 10)
    assert guess(*few) < sum(guess(one) for one in few)  # what begins alike is fitted once
    kept, _ = drop_over_budget(everything, 1e-9, 5000, 10, 5)
    assert [candidate.name for candidate in kept] == ["identity", "ts"]
    kept, dropped = drop_over_budget(candidates_for(5000, 2), 1e-9, 5000, 2, 5)
    assert [candidate.name for candidate in kept] == ["identity", "spline"]
    assert [candidate.name for candidate in dropped] == ["irova"]
    assert drop_over_budget(everything, None, 5000, 10, 5)[1] == []


def test_time_budget_is_kept_and_reported():
    logits, y = make_problem(300, 3, seed=6)
    stack = Auto(logits=True, time_budget=0.02).fit(logits, y)
    assert "iop-context >> sms-weak >> iop" in stack.dropped_
    assert "identity" in stack.candidates_
    assert "dropped" in stack.summary()


def test_the_clock_stops_what_is_left(monkeypatch):
    logits, y = make_problem(300, 3, seed=6)
    monkeypatch.setattr(candidates, "drop_over_budget", lambda found, *_: (found, []))
    with pytest.warns(CalibrationWarning, match="left time for 'ts' only"):
        stack = Auto(logits=True, time_budget=1e-9).fit(3 * logits, y)
    assert stack.candidates_ == ["identity", "ts"]
    assert stack.gain_ > 0
    assert len(stack.dropped_) == len(candidates_for(300, 3)) - 1


def test_what_the_first_use_of_a_map_loads_does_not_count_as_its_time(monkeypatch):
    """A clock that stands still but for the first fit of every class of maps, which takes a second."""
    logits, y = make_problem(300, 3, seed=6)
    used, fit = set(), CalibrationMap._fit_source

    def slow_at_first(self, source):
        used.add(type(self))
        return fit(self, source)

    monkeypatch.setattr(CalibrationMap, "_fit_source", slow_at_first)
    monkeypatch.setattr(time, "perf_counter", lambda: float(len(used)))
    stack = Auto(logits=True, time_budget=12).fit(logits, y)
    assert len(used) > 2
    assert stack.dropped_ == []


def test_menus():
    assert [candidate.name for candidate in candidates_for(25000, 1000) if candidate.matrix] == ["iop >> sms"]
    assert not any(candidate.matrix for candidate in candidates_for(200_000, 1000))
    assert not any(candidate.matrix for candidate in candidates_for(5000, 2))
    assert any(candidate.tail for candidate in candidates_for(200_000, 100) if candidate.matrix)
    assert candidates_for(5000, 10)[0].name == "identity"
    assert [candidate.name for candidate in candidates_for(300, 2)] == ["identity", "spline"]
    assert [candidate.name for candidate in candidates_for(5000, 2)] == ["identity", "spline", "irova"]
    assert "iop" in [candidate.name for candidate in candidates_for(300, 2, accuracy_preserving=True)]


@pytest.mark.parametrize("n", [1, 2, 5, 12, 30])
def test_few_rows(n):
    logits, y = make_problem(n, 3, seed=7)
    p = Auto(logits=True).fit(logits, y).predict_proba(logits)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)


def test_absent_classes():
    logits, y = make_problem(300, 5, seed=8)
    y = np.minimum(y, 2)
    p = Auto(logits=True).fit(logits, y).predict_proba(logits)
    assert np.isfinite(p).all()
    assert np.isfinite(nll(p, y))


def test_vector_of_two_classes():
    rng = np.random.default_rng(0)
    score = rng.random(400)
    y = (rng.random(400) < score**2).astype(int)
    stack = Auto().fit(score, y)
    p = stack.predict_proba(score)
    assert p.shape == (400, 2)
    assert brier(p, y) < brier(np.stack([1 - score, score], axis=1), y)
    table = Auto().fit(np.stack([1 - score, score], axis=1), y)
    np.testing.assert_allclose(table.predict_proba(np.stack([1 - score, score], axis=1)), p, atol=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_keeps_the_order_of_samples_of_two_classes(seed):
    rng = np.random.default_rng(seed)
    n = (12, 60, 400, 4000)[seed % 4]
    odds = rng.normal(-2, 2, n)
    y = (rng.random(n) < 1 / (1 + np.exp(-0.7 * odds - 1))).astype(int)
    p = 1 / (1 + np.exp(-np.round(odds, 1) if seed < 4 else -odds))
    grid = np.sort(np.concatenate([p, np.linspace(0, 1, 3001)]))
    assert (np.diff(Auto().fit(p, y).predict_proba(grid)[:, 1]) >= 0).all()


@pytest.mark.filterwarnings("ignore:all rows of the scores lie in")
@pytest.mark.parametrize("seed", range(12))
def test_two_classes_of_any_scale_and_size(seed):
    """Scores from nearly equal to far apart, ties, and one far away from the others."""
    rng = np.random.default_rng(seed)
    for n in (1, 2, 5, 10, 12, 30, 64):
        x = rng.normal(size=n) * 10 ** rng.uniform(-6, 6) + rng.normal() * 10 ** rng.uniform(-3, 4)
        if seed % 4 == 0:
            x = np.round(2 * x / np.abs(x).max())
        if seed % 5 == 0:
            x[0] *= 1e4
        p = Auto(logits=True).fit(x, rng.integers(0, 2, n)).predict_proba(x)
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(axis=1), 1)


def test_gives_up_the_order_of_samples_where_labels_contradict_it():
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 2, 1000)
    y = (rng.random(1000) < 1 / (1 + np.exp(2 * odds**2 - 4))).astype(int)
    p = 1 / (1 + np.exp(-odds))
    stack = Auto().fit(p, y)
    low, middle, high = stack.predict_proba(np.array([0.02, 0.5, 0.98]))[:, 1]
    assert middle > 0.8 > 0.1 > max(low, high)


def test_zeros_and_ones_among_probabilities():
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.full(3, 0.1), size=200)
    p[p < 0.05] = 0
    p /= p.sum(axis=1, keepdims=True)
    y = rng.integers(0, 3, 200)
    stack = Auto().fit(p, y)
    assert np.isfinite(nll(stack.predict_proba(p), y))


def awkward(kind, n):
    """Probabilities and labels of models that are hard to calibrate."""
    rng = np.random.default_rng(n)
    if kind == "saturated":
        p = 1 / (1 + np.exp(-50 * rng.choice([-1.0, 1.0], size=n)))
        y = np.where(rng.random(n) < 0.1, p < 0.5, p > 0.5).astype(int)
        return np.stack([1 - p, p], axis=1), y
    p = rng.dirichlet(np.ones(4), size=n)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=3)
    if kind == "zeros in a column":
        p[: max(n // 3, 1), 2] = 0
    if kind == "a rare class":
        y[y == 3] = 0
        y[:12] = 3
    return p / p.sum(axis=1, keepdims=True), y


@pytest.mark.parametrize("kind", ["saturated", "zeros in a column", "a rare class"])
@pytest.mark.parametrize("n", [1, 2, 9, 10, 11, 20, 50, 200])
def test_awkward_scores_give_maps_that_can_be_saved(kind, n, tmp_path):
    p, y = awkward(kind, n)
    stack = Auto().fit(p, y)
    q = stack.predict_proba(p)
    assert np.isfinite(q).all()
    np.testing.assert_allclose(q.sum(axis=1), 1)
    stack.save(tmp_path / "auto.json")
    np.testing.assert_array_equal(load(tmp_path / "auto.json").predict_proba(p), q)


def test_logits_and_probabilities_agree():
    logits, y = make_problem(250, 3, seed=9)
    one = Auto(logits=True).fit(logits, y).predict_proba(logits)
    other = Auto().fit(softmax(logits), y).predict_proba(softmax(logits))
    np.testing.assert_allclose(one, other, atol=2e-5)


def test_weights_of_zero_leave_rows_out():
    logits, y = make_problem(250, 3, seed=10)
    weight = np.ones(250)
    weight[200:] = 0
    weighted = Auto(logits=True, accuracy_preserving=True).fit(logits, y, weight).predict_proba(logits)
    without = Auto(logits=True, accuracy_preserving=True).fit(logits[:200], y[:200]).predict_proba(logits)
    np.testing.assert_allclose(weighted, without, atol=1e-9)


@pytest.mark.parametrize("as_logits", [True, False])
def test_rows_read_through_maps_give_the_same(monkeypatch, as_logits):
    from mixnmatch.selection import crossfit

    logits, y = make_problem(250, 3, seed=11)
    scores = logits if as_logits else softmax(logits)
    in_memory = Auto(logits=as_logits).fit(scores, y)
    monkeypatch.setattr(crossfit, "CACHED_ENTRIES", 0)
    streamed = Auto(logits=as_logits).fit(scores, y)
    assert streamed.candidates_ == in_memory.candidates_
    np.testing.assert_allclose(streamed.candidate_losses_, in_memory.candidate_losses_, rtol=1e-7)
    np.testing.assert_allclose(streamed.predict_proba(scores), in_memory.predict_proba(scores), atol=1e-5)


def test_many_rows_are_sampled_to_choose_by(monkeypatch):
    from mixnmatch.selection import auto

    monkeypatch.setattr(auto, "ROWS_TO_CHOOSE_BY", 150)
    logits, y = make_problem(600, 3, seed=12)
    stack = Auto(logits=True).fit(logits, y)
    assert stack.members_[0].total_weight_ == 600
    assert nll(stack.predict_proba(logits), y) < nll(softmax(logits), y)


def test_after_another_map():
    from mixnmatch import TemperatureScaling

    logits, y = make_problem(250, 3, seed=13)
    stack = (TemperatureScaling(logits=True) >> Auto(accuracy_preserving=True)).fit(logits, y)
    p = stack.predict_proba(logits)
    assert accuracy_preserved(logits, p)
    assert nll(p, y) < nll(softmax(logits), y)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"scoring": "ece"}, "scoring"),
        ({"cv": 1}, "cv"),
        ({"cv": True}, "cv"),
        ({"time_budget": -1}, "time_budget"),
        ({"caution": -1}, "caution"),
    ],
)
def test_refuses_what_makes_no_sense(options, word):
    logits, y = make_problem(20, 3)
    with pytest.raises(ValueError, match=word):
        Auto(logits=True, **options).fit(logits, y)


def test_real_scores_are_improved():
    sample = load_sample()
    rows = slice(0, 1000)
    stack = Auto(logits=True, accuracy_preserving=True).fit(sample.logits_cal[rows], sample.labels_cal[rows])
    after = nll(stack.predict_proba(sample.logits_eval), sample.labels_eval)
    assert after < nll(softmax(sample.logits_eval), sample.labels_eval) - 0.1


def test_files_of_earlier_versions_load(fitted, tmp_path):
    import json

    from mixnmatch._documents import checksum

    stack, fresh, _ = fitted
    path = tmp_path / "auto.json"
    stack.save(path)
    document = json.loads(path.read_text())
    del document["sha256"]
    for name in ("verdict_", "behind_", "evidence_", "floor_"):
        del document["map"]["fitted"][name]
    for name in ("caution", "verbose"):
        del document["map"]["params"][name]
    document["sha256"] = checksum(document)
    path.write_text(json.dumps(document))
    back = load(path)
    assert back.verdict_ == ""
    assert "stack:" in back.summary().splitlines()[-1]
    np.testing.assert_array_equal(back.predict_proba(fresh[:10]), stack.predict_proba(fresh[:10]))

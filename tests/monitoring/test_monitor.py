"""The monitor: level, power, brute force, order of samples, late labels and edge cases."""

import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch.monitoring import Monitor
from mixnmatch.monitoring.alternatives import MEMORIES, OFFSETS, SLOPES, Alternatives
from mixnmatch.monitoring.learning import OFFSET_PRECISION, SLOPE_PRECISION
from mixnmatch.monitoring.monitor import OPEN_STEPS
from mixnmatch.monitoring.process import SPREAD
from tests.conftest import draw_labels, softmax

IDENTITY = {n: mm.maps.Identity().fit(np.full((n, n), 1 / n), np.arange(n)) for n in (2, 3, 10, 40)}


def scores_of(rng, n, n_classes):
    if n_classes == 2:
        z = rng.normal(-3.2, 1.1, n)
        return softmax(np.stack([np.zeros(n), z], axis=1))
    return softmax(rng.normal(size=(n, n_classes)) * 2)


def shifted(p, offsets=0.0, slope=1.0):
    return softmax(slope * np.log(p) + offsets)


def feed(monitor, rng, steps, n=300, offsets=0.0, slope=1.0):
    for _ in range(steps):
        p = scores_of(rng, n, monitor.fitted.n_classes_)
        monitor.update(p, draw_labels(shifted(p, offsets, slope), rng))
    return monitor.result()


class BruteForce:
    """The e-value recomputed sample by sample, from the formulas alone."""

    def __init__(self, n_classes):
        self.n_classes, self.steps = n_classes, []

    def learned(self):
        """Newton steps of three kinds for each memory, from all steps so far, as the docstring says."""
        found = []
        for memory in MEMORIES:
            for kind in range(3):
                found.append(self.newton(memory, kind, len(found)))
        return found

    def newton(self, memory, kind, place):
        L = self.n_classes
        size = (L, 1, 2 * L)[kind]
        left, right = np.zeros((size, size)), np.zeros(size)
        for age, (samples, bets) in enumerate(reversed(self.steps), start=1):
            b, u = bets[place]
            theta = (b, u[:1], np.concatenate([b, u]))[kind]
            for p, y in samples:
                x = np.log(p)
                q = np.exp((1 + u) * x + b)
                q /= q.sum()
                design = {
                    0: np.eye(L),
                    1: x[None],
                    2: np.concatenate([np.eye(L), np.diag(x)]),
                }[kind]
                g = design @ (np.eye(L)[y] - q)
                h = design @ (np.diag(q) - np.outer(q, q)) @ design.T
                left += memory**age * h
                right += memory**age * (g + h @ theta)
        precision = np.concatenate([np.full(L, OFFSET_PRECISION), np.full(L, SLOPE_PRECISION)])
        precision = (precision[:L], precision[L : L + 1], precision)[kind]
        theta = np.linalg.solve(left + np.diag(precision), right)
        b, u = np.zeros(L), np.zeros(L)
        if kind == 0:
            b = theta
        elif kind == 1:
            u = np.full(L, theta[0])
        else:
            b, u = theta[:L], theta[L:]
        return b, u

    def update(self, samples):
        self.steps.append((samples, self.learned()))

    def bets(self, step):
        L = self.n_classes
        classes = [1] if L == 2 else range(L)
        for k in classes:
            for offset in OFFSETS:
                yield 0.3 / (len(classes) * len(OFFSETS)), offset * np.eye(L)[k], np.zeros(L)
        for slope in SLOPES:
            yield 0.2 / len(SLOPES), np.zeros(L), np.full(L, slope - 1)
        for b, u in self.steps[step][1]:
            yield 0.5 / 6, b, u

    def e_value(self):
        steps = len(self.steps)
        total = SPREAD / (steps + SPREAD)
        for j in range(1, steps + 1):
            start = SPREAD / ((j + SPREAD - 1) * (j + SPREAD))
            products = None
            for s in range(j - 1, steps):
                ratios = []
                for weight, b, u in self.bets(s):
                    ratio = 1.0
                    for p, y in self.steps[s][0]:
                        q = p ** (1 + u) * np.exp(b)
                        ratio *= q[y] / q.sum() / p[y]
                    ratios.append((weight, ratio))
                factors = np.array([ratio for _, ratio in ratios])
                products = factors if products is None else products * factors
            total += start * sum(w * e for (w, _), e in zip(ratios, products, strict=True))
        return total


@pytest.mark.parametrize("n_classes", [2, 3])
def test_e_value_equals_brute_force(n_classes):
    rng = np.random.default_rng(3)
    monitor, oracle = Monitor(IDENTITY[n_classes]), BruteForce(n_classes)
    for size in (30, 1, 25, 40):
        p = scores_of(rng, size, n_classes)
        y = draw_labels(shifted(p, np.linspace(0, 1, n_classes), 0.7), rng)
        monitor.update(p, y)
        oracle.update(list(zip(p, y, strict=True)))
        assert monitor.result().e_value == pytest.approx(oracle.e_value(), rel=1e-9)


def test_every_alternative_has_expectation_one():
    # All outcomes of three samples, weighted with their probabilities under the null.
    rng = np.random.default_rng(0)
    p = scores_of(rng, 3, 3)
    warm = scores_of(rng, 200, 3)
    labels = draw_labels(shifted(warm, [0, 0.5, 1.0]), rng)
    total = 0.0
    for outcome in np.ndindex(3, 3, 3):
        monitor = Monitor(IDENTITY[3])
        before = monitor.update(warm, labels).e_value
        total += np.prod(p[np.arange(3), outcome]) * monitor.update(p, outcome).e_value
    assert total == pytest.approx(before, rel=1e-12)


def test_weights_of_alternatives_and_starts_sum_to_one():
    for n_classes in (2, 3, 40):
        alternatives = Alternatives(n_classes)
        assert np.exp(alternatives.log_weights).sum() == pytest.approx(1)
        assert len(alternatives.kinds) == alternatives.size
    starts = sum(SPREAD / ((j + SPREAD - 1) * (j + SPREAD)) for j in range(1, 50))
    assert starts + SPREAD / (49 + SPREAD) == pytest.approx(1)


@pytest.mark.parametrize("n_classes, runs, alpha", [(2, 120, 0.2), (10, 60, 0.2)])
def test_false_alarms_over_a_lifetime(n_classes, runs, alpha):
    # With alpha = 0.2 fewer runs tell whether the level holds: more than 0.2 + 3 standard errors would not be chance.
    alarms = 0
    for seed in range(runs):
        rng = np.random.default_rng([n_classes, seed])
        alarms += feed(Monitor(IDENTITY[n_classes], alpha=alpha), rng, 12, n=120).alarm
    assert alarms / runs <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / runs)


@pytest.mark.parametrize(
    "n_classes, change, advice",
    [
        (2, {"offsets": np.array([0.0, 0.6])}, "adapt"),
        (2, {"slope": 0.7}, "refit"),
        (10, {"offsets": np.linspace(-0.6, 0.6, 10)}, "adapt"),
        (10, {"slope": 1.4}, "refit"),
        (40, {"offsets": np.linspace(-1, 1, 40)}, "adapt"),
        (40, {"slope": 0.8}, "refit"),
    ],
)
def test_changes_are_found_and_named(n_classes, change, advice):
    rng = np.random.default_rng(1)
    monitor = Monitor(IDENTITY[n_classes])
    assert not feed(monitor, rng, 3, n=2000).alarm
    result = feed(monitor, rng, 4, n=2000, **change)
    assert result.alarm
    assert result.advice == advice
    assert result.alarm_step in (4, 5)
    assert result.since in (4, 5)


def test_labels_that_became_noise_are_the_model():
    rng = np.random.default_rng(1)
    monitor = Monitor(IDENTITY[10])
    feed(monitor, rng, 2, n=1000)
    for _ in range(3):
        p = scores_of(rng, 1000, 10)
        result = monitor.update(p, draw_labels(0.3 * p + 0.7 * p.mean(axis=0), rng))
    assert result.advice == "model"


@pytest.mark.parametrize("n_classes", [2, 10, 40])
def test_order_within_a_step_does_not_matter(n_classes):
    rng = np.random.default_rng(5)
    batches = []
    for step in range(3):
        p = scores_of(rng, 200, n_classes)
        batches.append((step, p, draw_labels(shifted(p, slope=0.8), rng)))
    whole, pieces = Monitor(IDENTITY[n_classes]), Monitor(IDENTITY[n_classes])
    for step, p, y in batches:
        expected = whole.update(p, y, step=step)
        for part in np.array_split(rng.permutation(len(y)), 4):
            found = pieces.update(p[part], y[part], step=step)
    assert found.log_e_value == pytest.approx(expected.log_e_value, rel=1e-9)
    for one, other in zip(found.offsets, expected.offsets, strict=True):
        assert one.offset == pytest.approx(other.offset, abs=1e-9)
        assert one.low == pytest.approx(other.low, abs=1e-6)


def test_late_labels_use_the_bets_of_their_step():
    rng = np.random.default_rng(2)
    p = scores_of(rng, 400, 2)
    y = draw_labels(shifted(p, [0, 0.5]), rng)
    late, on_time = Monitor(IDENTITY[2]), Monitor(IDENTITY[2])
    late.update(p[:100], y[:100], step="a")
    late.update(p[200:], y[200:], step="b")
    late.update(p[100:200], y[100:200], step="a")
    on_time.update(p[:100], y[:100], step="a")
    on_time.update(p[100:200], y[100:200], step="a")
    on_time.update(p[200:], y[200:], step="b")
    assert [record.n_samples for record in late.history] == [200, 200]
    # The first step had no bets to learn from, so its ratios are the same; the second learned from less.
    first = [monitor._state.steps[0].sums.log_ratios for monitor in (late, on_time)]
    np.testing.assert_allclose(*first, rtol=1e-9)
    assert late.result().n_samples == on_time.result().n_samples == 400


def test_late_labels_do_not_change_the_evidence_of_earlier_steps():
    rng = np.random.default_rng(2)
    monitor = Monitor(IDENTITY[2])
    p = scores_of(rng, 1000, 2)
    monitor.update(p, draw_labels(p, rng), step="a")
    before = monitor.history[0]
    changed = draw_labels(shifted(p, [0, 2.0]), rng)
    monitor.update(p[:10], changed[:10], step="b")
    monitor.update(p, changed, step="a")
    first, last = monitor.history
    assert (first.n_samples, last.n_samples) == (2000, 10)
    assert (first.log_e_value, first.offsets) == (before.log_e_value, before.offsets)
    found = monitor.result()
    assert last.log_e_value == found.log_e_value
    assert found.alarm_step == "b"


def test_closed_steps_keep_their_evidence_and_take_very_late_labels():
    rng = np.random.default_rng(4)
    monitor, oracle = Monitor(IDENTITY[2]), BruteForce(2)
    for _ in range(OPEN_STEPS + 4):
        p = scores_of(rng, 3, 2)
        y = draw_labels(p, rng)
        monitor.update(p, y)
        oracle.update(list(zip(p, y, strict=True)))
    assert len(monitor._state.steps) == OPEN_STEPS
    assert monitor.result().e_value == pytest.approx(oracle.e_value(), rel=1e-9)
    before = monitor._state.steps[0].sums.n
    monitor.update(p, y, step=1)
    assert monitor._state.steps[0].sums.n == before + 3
    assert len(monitor.history) == OPEN_STEPS + 4


def test_an_impossible_event_is_an_alarm_and_does_not_freeze():
    monitor = Monitor(IDENTITY[2])
    assert not monitor.update([0.0, 1.0, 0.0], [0, 1, 0]).alarm
    result = monitor.update([0.0, 0.5], [1, 0])
    assert result.alarm
    assert result.impossible == 1
    assert math.isinf(result.e_value)
    assert result.p_value == 0
    assert result.to_dict()["log_e_value"] is None
    assert monitor.update([0.3], [0]).alarm  # it stays
    only = Monitor(IDENTITY[2]).update([0.0], [1])
    assert only.alarm
    assert only.advice == "model"
    assert "probability 0" in str(only)


def test_evidence_recovers_after_a_long_calm():
    # A process that only multiplied would have lost all its wealth by now.
    rng = np.random.default_rng(0)
    monitor = Monitor(IDENTITY[2])
    calm = feed(monitor, rng, 40, n=500)
    assert calm.log_e_value > math.log(SPREAD / (40 + SPREAD)) - 1e-9
    assert feed(monitor, rng, 6, n=2000, offsets=np.array([0, 0.5])).alarm


@pytest.mark.parametrize("n_classes", [2, 10])
def test_one_sample_and_one_class(n_classes):
    rng = np.random.default_rng(0)
    monitor = Monitor(IDENTITY[n_classes])
    p = scores_of(rng, 1, n_classes)
    result = monitor.update(p, [0])
    assert result.n_samples == 1
    assert math.isfinite(result.log_e_value)
    p = scores_of(rng, 50, n_classes)
    result = monitor.update(p, np.zeros(50, int))
    assert math.isfinite(result.log_e_value)
    last = result.offsets[-1]
    assert last.offset == -math.inf  # never the label
    assert last.low == -math.inf
    assert last.high > 0


def test_one_percent_positives():
    rng = np.random.default_rng(0)
    monitor = Monitor(IDENTITY[2])
    for change in (0.0, 0.7):
        for _ in range(6):
            p = 1 / (1 + np.exp(-rng.normal(-5, 0.8, 5000)))
            odds = p / (1 - p) * np.exp(change)
            result = monitor.update(p, (rng.random(5000) < odds / (1 + odds)).astype(int))
        assert result.alarm == (change > 0)
    assert result.offsets[1].low > 0
    assert result.offsets[1].low < 0.7 < result.offsets[1].high


def test_extreme_probabilities_stay_finite():
    p = np.array([[1 - 1e-16, 1e-300], [1e-12, 1 - 1e-12], [1.0, 0.0], [0.5, 0.5]])
    p[0] /= p[0].sum()
    result = Monitor(IDENTITY[2]).update(p, [0, 1, 0, 1])
    assert math.isfinite(result.log_e_value)
    assert not result.alarm
    # Nearly impossible is possible: a lot of evidence, but finite.
    sure = Monitor(IDENTITY[2]).update(p[:1], [1])
    assert sure.alarm
    assert math.isfinite(sure.log_e_value)


def test_a_thousand_classes():
    rng = np.random.default_rng(0)
    fitted = mm.maps.Identity().fit(np.full((2, 1000), 1e-3), [0, 1], None)
    monitor = Monitor(fitted)
    for slope in (1.0, 1.0, 0.5):
        p = softmax(rng.normal(size=(200, 1000)) * 3)
        result = monitor.update(p, draw_labels(shifted(p, slope=slope), rng))
    assert result.alarm
    assert result.advice in ("refit", "model")
    assert monitor.history[0].offsets == ()


def test_intervals_hold_at_all_times():
    # The offset is constant here, so its interval must hold it at every step; alpha is large so that misses would show.
    misses = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        monitor, held = Monitor(IDENTITY[2], alpha=0.2), True
        for _ in range(8):
            p = scores_of(rng, 200, 2)
            result = monitor.update(p, draw_labels(shifted(p, [0, 0.3]), rng))
            each = result.offsets[1]
            held &= each.low <= 0.3 + 0.02 and each.high >= 0.3 - 0.02  # 0.02: interpolation of the offset
        misses += not held
    assert misses / 60 <= 0.2 + 3 * math.sqrt(0.2 * 0.8 / 60)


def test_the_offset_is_found_exactly_in_the_mean():
    rng = np.random.default_rng(0)
    p = scores_of(rng, 20000, 3)
    y = draw_labels(p, rng)
    monitor = Monitor(IDENTITY[3])
    for each, k in zip(monitor.update(p, y).offsets, range(3), strict=True):
        odds = p[:, k] / (1 - p[:, k]) * np.exp(each.offset)
        assert (odds / (1 + odds)).sum() == pytest.approx((y == k).sum(), rel=2e-3)
        assert each.low < each.offset < each.high


def test_names_of_classes_vectors_and_maps_of_logits():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(500, 3))
    y = np.array(["a", "b", "c"])[draw_labels(softmax(logits), rng)]
    fitted = mm.calibrator("ts", logits=True).fit(logits, y)
    result = Monitor(fitted).update(logits.astype(np.float32), y)
    assert [each.name for each in result.offsets] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="'d'"):
        Monitor(fitted).update(logits[:1], ["d"])


def test_bad_input_is_refused_and_changes_nothing():
    monitor = Monitor(IDENTITY[2])
    monitor.update([0.5], [1], source="file one")
    before = monitor.result()
    for arguments, match in (
        (([0.5], [0], {"sample_weight": [2.0]}), "no weights"),
        (([0.5], [0], {"source": "file one"}), "counted before"),
        (([0.5], [0], {"source": 7}), "source must be text"),
        (([0.5], [0], {"step": 1.5}), "text or an integer"),
        (([0.5], [0], {"step": True}), "text or an integer"),
        (([0.5, 0.5], [0], {}), "label"),
        (([1.5], [0], {}), "probability"),
    ):
        scores, labels, settings = arguments
        with pytest.raises(ValueError, match=match):
            monitor.update(scores, labels, **settings)
    assert monitor.update([], []) == before  # a batch without samples changes nothing
    assert monitor.result() == before


def test_settings_are_checked():
    with pytest.raises(ValueError, match="not a fitted map"):
        Monitor(mm.maps.Identity())
    for alpha in (0, 1, math.nan, "small"):
        with pytest.raises(ValueError, match="alpha"):
            Monitor(IDENTITY[2], alpha=alpha)


def test_a_monitor_without_samples():
    result = Monitor(IDENTITY[2]).result()
    assert result.e_value == 1
    assert result.advice == "nothing"
    assert result.step is None
    assert "No alarm" in str(result)


def test_keys_of_steps_do_not_clash():
    monitor = Monitor(IDENTITY[2])
    monitor.update([0.5], [1], step=2)
    monitor.update([0.5], [1])
    monitor.update([0.5], [1])
    assert len({record.step for record in monitor.history}) == 3


def test_the_change_is_found_where_it_happened():
    """Calm steps that favour a start by chance do not dilute the offsets; nor is the first changed step left out."""
    rng = np.random.default_rng(3)

    def step(n, kept=1.0, slope=1.0):
        log_odds = rng.normal(-4, 1.5, n)
        y = rng.random(n) < 1 / (1 + np.exp(-slope * log_odds - 4 * (slope - 1)))
        keep = y | (rng.random(n) < kept)
        return 1 / (1 + np.exp(-log_odds[keep])), y[keep].astype(int)

    fitted = mm.calibrator("identity").fit(*step(2000))
    found = {"undersampled": [], "no information": []}
    for _ in range(10):
        for what, settings in (("undersampled", {"kept": 0.1}), ("no information", {"slope": 0.0})):
            monitor = mm.Monitor(fitted)
            for k in range(5):
                monitor.update(*step(2000), step=f"calm {k}")
            for k in range(3):
                result = monitor.update(*step(4000, **settings), step=f"changed {k}")
            found[what].append((result.since, result.advice))
            if what == "undersampled" and result.since == "changed 0":
                assert [abs(each.offset) for each in result.offsets] == pytest.approx([np.log(10)] * 2, abs=0.35)
    assert found["undersampled"].count(("changed 0", "adapt")) >= 9
    assert found["no information"].count(("changed 0", "model")) >= 9


def test_updates_of_several_threads_are_all_counted():
    rng = np.random.default_rng(0)
    p = scores_of(rng, 200, 2)
    y = draw_labels(p, rng)
    monitor = Monitor(IDENTITY[2])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: monitor.update(p, y, step="a"), range(64)))
    assert monitor.result().n_samples == 64 * len(y)
    again = pickle.loads(pickle.dumps(monitor))
    assert again.update(p, y, step="a") == monitor.update(p, y, step="a")

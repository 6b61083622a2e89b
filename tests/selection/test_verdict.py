import json
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from mixnmatch.selection import compare, decide, learning_curve
from mixnmatch.selection.evaluation_set import LossTable
from mixnmatch.selection.ties import select
from mixnmatch.selection.verdict import decide_by_losses
from tests.conftest import make_problem


def table(differences, *, n=400, noise=0.3, seed=0, n_classes=3, names=None):
    """Losses of the identity and of methods that are better by some differences, with paired noise."""
    rng = np.random.default_rng(seed)
    common = rng.exponential(size=(n, 1))
    losses = common + np.array([0.0, *(-one for one in differences.values())])
    losses[:, 1:] += rng.normal(size=(n, len(differences))) * noise
    counts = np.full(n_classes, n / n_classes)
    fold = rng.integers(0, 5, n)
    names = ("identity", *differences)
    return LossTable(names, losses, losses / 2, None, fold, class_weights=counts, evaluated=counts)


def test_ties_go_to_the_simplest():
    chosen = []
    for seed in range(20):
        found = decide_by_losses(table({"auto": 0.2, "ets": 0.2, "ts": 0.2, "irova-ts": 0.0}, seed=seed))
        chosen.append(found.method)
        assert "irova-ts" not in (found.best, *found.tied_with)
        assert found.helps == "yes"
        if found.method != found.best:
            assert f"within one standard error (or 0.1%) of {found.best}" in found.why
    assert chosen.count("ts") > 8
    assert chosen.count("auto") < 8


def test_a_clear_best_wins_however_flexible():
    found = decide_by_losses(table({"auto": 0.5, "ets": 0.2, "ts": 0.19}))
    assert (found.method, found.best, found.tied_with) == ("auto", "auto", ())
    assert "significantly lower" in found.why


def test_negligible_differences_are_ties():
    """A difference that is significant, but below 0.1% of the loss, is not worth a more flexible map."""
    rng = np.random.default_rng(0)
    ts = rng.exponential(size=5000)
    losses = np.stack([ts, ts - 0.0005], axis=1)
    assert select(losses, ["ts", "auto"], 3).method == "ts"
    assert select(losses - 0.9, ["ts", "auto"], 3).method == "auto"  # now it is 0.5%


def test_identity_only_where_calibrating_is_shown_to_harm():
    assert decide_by_losses(table({"ts": -0.01, "ets": -0.02})).method == "ts"
    found = decide_by_losses(table({"ts": -0.2, "ets": -0.2}))
    assert found.method == "identity"
    assert "does harm" in found.why
    assert found.headline.startswith("Leave the scores as they are")


def test_infinite_losses():
    given = table({"ts": 0.2, "svs": 0.3})
    given.nll[0, 0] = np.inf
    found = decide_by_losses(given)
    assert found.method in ("ts", "svs")
    assert found.improvement is None
    given.nll[1, 2] = np.inf
    assert decide_by_losses(given).method == "ts"


def test_few_samples_decide_nothing():
    found = decide_by_losses(table({"auto": 0.5, "ts": 0.1}, n=50))
    assert (found.method, found.decided) == ("ts", False)
    assert "too few to rank methods" in found.why
    two = {"auto": 0.1, "ts": 0.5, "beta-shrunk": 0.5}
    assert decide_by_losses(table(two, n=50, n_classes=2)).method == "auto"
    assert decide_by_losses(table(two, n=50, n_classes=2), allowed=["ts"]).method == "ts"
    assert decide_by_losses(table({"auto": 0.5, "ts": -2.0}, n=50)).method == "identity"
    rare = table(two, n=400, n_classes=2)
    rare = replace(rare, class_weights=np.array([395.0, 5.0]), evaluated=np.array([395.0, 5.0]))
    found = decide_by_losses(rare)
    assert (found.method, found.decided) == ("auto", False)
    assert any("rarest class has only 5" in text for text in found.warnings)


def test_nothing_is_learned_where_no_prediction_is_wrong():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    logits = rng.normal(size=(200, 3))
    logits[np.arange(200), y] = logits.max(axis=1) + 1
    found = compare(logits, y, methods=["ts"], logits=True).verdict
    assert (found.method, found.decided) == ("identity", False)
    assert "none of the 200 predictions is wrong" in found.why


def test_accuracy_costs_what_it_costs():
    found = decide_by_losses(table({"auto": 0.5, "ts": 0.1}), allowed=["ts"])
    assert (found.method, found.unrestricted) == ("ts", "auto")
    assert found.accuracy_cost.interval[0] < 0.4 < found.accuracy_cost.interval[1]
    assert "never changing a predicted class costs +0." in str(found)
    free = decide_by_losses(table({"auto": 0.1, "ts": 0.5}), allowed=["ts"])
    assert (free.unrestricted, float(free.accuracy_cost)) == ("ts", 0.0)
    assert "costs nothing here" in str(free)


def test_nested_gain_is_not_optimistic():
    """Of twenty worthless methods the best looks good, the nested estimate does not."""
    own, nested = [], []
    for seed in range(30):
        names = {f"method {k}": 0.0 for k in range(20)}
        found = decide_by_losses(table(names, n=200, noise=0.5, seed=seed))
        losses = table(names, n=200, noise=0.5, seed=seed)
        best = losses.names.index(found.best)
        own.append((losses.brier[:, 0] - losses.brier[:, best]).mean())
        nested.append(float(found.nested_gain))
    assert np.mean(own) > 0.02
    assert abs(np.mean(nested)) < 3 * np.std(nested) / np.sqrt(30)


def test_weights_are_frequencies():
    given = table({"auto": 0.4, "ts": 0.39}, n=300)
    weight = np.r_[np.zeros(100), np.ones(200)]
    part = LossTable(
        given.names, given.nll[100:], given.brier[100:], None, given.fold[100:], given.class_weights, given.evaluated
    )
    one, other = decide_by_losses(replace(given, weight=weight)), decide_by_losses(part)
    assert one.method == other.method
    assert float(one.improvement) == pytest.approx(float(other.improvement))
    assert float(one.nested_gain) == pytest.approx(float(other.nested_gain))


def test_is_a_frozen_value_that_can_be_written_down():
    logits, y = make_problem(300, 3)
    comparison = compare(logits, y, methods=["ts", "irm"], logits=True)
    found = decide(comparison)
    assert found == decide(comparison)
    with pytest.raises(FrozenInstanceError):
        found.method = "irm"
    json.dumps(found.to_dict(), allow_nan=False)
    curve = learning_curve(logits, y, methods=[found.method], logits=True, repetitions=2)
    told = found.with_outlook(curve)
    assert found.method in told.more_data
    assert "More data?" in str(told)
    assert found.more_data == ""
    assert found.with_outlook(None).more_data.startswith("there are too few samples")


def test_failures_become_warnings():
    class Broken:
        def fit(self, scores, y):
            msg = "no"
            raise RuntimeError(msg)

        def predict_proba(self, scores):
            return scores

    logits, y = make_problem(100, 3)
    found = compare(logits, y, methods={"broken": Broken(), "ts": "ts"}, logits=True).verdict
    assert found.method == "ts"
    assert any(text.startswith("broken failed: RuntimeError: no") for text in found.warnings)
    alone = compare(logits, y, methods=["identity"], logits=True).verdict
    assert (alone.method, alone.decided) == ("identity", False)


def test_a_noisy_method_does_not_win_over_a_simpler_and_better_one():
    """Within one standard error only because its standard error is large."""
    rng = np.random.default_rng(0)
    n = 2000
    auto = rng.exponential(0.3, n)
    platt = auto + rng.normal(0.002, 0.02, n)
    isotonic = auto + rng.normal(0.004, 0.5, n)
    platt += auto.mean() - platt.mean() + 0.0009
    isotonic += auto.mean() - isotonic.mean() + 0.005
    losses = np.stack([auto, platt, isotonic], axis=1)
    found = select(losses, ["auto", "platt", "isotonic"], 2)
    assert (found.simplest, found.method, found.best) == ("isotonic", "platt", "auto")


def test_a_verdict_does_not_hide_that_doing_nothing_scored_better():
    """The identity is no candidate; where it has the lowest score, the words say so."""
    rng = np.random.default_rng(1)
    p = rng.beta(0.5, 2, 400)
    y = (rng.random(400) < p).astype(int)
    comparison = compare(p, y, methods=["identity", "ts", "beta", "isotonic"])
    verdict = decide(comparison)
    assert comparison.results[0].name == "identity"
    assert "log loss of all maps" in verdict.why
    assert any(text.startswith("the scores as they are have a lower log loss than") for text in verdict.warnings)


def test_the_reason_says_among_which_methods_the_loss_is_lowest():
    rng = np.random.default_rng(0)
    z = rng.normal(-3, 1.5, 2000)
    y = (rng.random(2000) < 1 / (1 + np.exp(-z))).astype(int)
    p = 1 / (1 + np.exp(-1.5 * z - 1))
    comparison = compare(p, y, methods=["ts", "ets", "platt"])
    assert comparison.best.name == "platt"
    assert "log loss of all maps that keep the predicted classes" in decide(comparison, preserve_accuracy=True).why
    assert "keep the predicted classes" not in decide(comparison).why
    alone = compare(p, y, methods=["ts", "platt"])
    assert decide(alone, preserve_accuracy=True).why == "no other method keeps the predicted classes"

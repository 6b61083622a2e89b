"""Awkward binary data, for all binary maps of the log-odds and for Venn-Abers."""

import numpy as np
import pytest

import mixnmatch as mm
from tests.conftest import nll
from tests.maps.test_shrunken import drawn, sigmoid

NAMES = ["platt-shrunk", "beta-shrunk", "quadratic", "spline", "kernel", "venn-abers"]


def flat_loss(y):
    rate = np.mean(y)
    return -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1e-3, 1e-1, 10.0, 50.0, 1e3, 1e7])
def test_log_odds_of_any_scale(name, scale):
    """What the scale is does not matter: scores of a good model are calibrated, whatever they were divided by."""
    x, y = drawn(600, seed=1)
    new, labels = drawn(4000, seed=2)
    if scale > 40 and name == "venn-abers":  # beyond what float64 tells from 0 and 1, ranks are lost
        x, new = np.clip(x, -80 / scale, 80 / scale), np.clip(new, -80 / scale, 80 / scale)
    fitted = mm.calibrator(name, logits=True).fit(scale * x, y)
    p = fitted.predict_proba(scale * new)
    assert nll(p, labels) < flat_loss(labels) - (0.02 if scale > 40 and name == "venn-abers" else 0.1)
    assert abs(p[:, 1].mean() - labels.mean()) < 0.06


@pytest.mark.parametrize("name", [*NAMES, "auto"])
def test_scores_close_together_far_from_a_half(name):
    """Only the shape of the scores counts, not where they are: 2% positives, all scores close to the base rate."""
    x, y = drawn(3000, seed=4)
    y = (y & (np.random.default_rng(5).random(3000) < 0.05)).astype(int)
    losses = []
    for middle in (-3.9, 0.0):
        s = sigmoid(middle + 0.02 * x)
        losses.append(nll(mm.calibrator(name).fit(s, y).predict_proba(s), y))
    assert max(losses) < flat_loss(y) - 0.003
    assert losses[0] == pytest.approx(losses[1], abs=0.0008)


@pytest.mark.parametrize("name", NAMES)
def test_exact_zeros_and_ones_with_errors(name):
    """A forest whose trees agree: a third of the scores are 0 or 1, a tenth of these wrong."""
    rng = np.random.default_rng(3)
    p = rng.integers(0, 21, 300) / 20
    p[:60], p[60:120] = 0.0, 1.0
    y = (rng.random(300) < 0.1 + 0.8 * p).astype(int)
    q = mm.calibrator(name).fit(p, y).predict_proba(np.linspace(0, 1, 21))
    assert 0.02 < q[0, 1] < 0.25
    assert 0.75 < q[-1, 1] < 0.98
    assert (np.diff(q[:, 1]) >= -1e-12).all()


@pytest.mark.parametrize("name", NAMES)
def test_one_percent_of_positives(name):
    x, y = drawn(2000, shift=-5.5, seed=4, spread=1.0)
    assert 5 < y.sum() < 40
    p = mm.calibrator(name, logits=True).fit(x, y).predict_proba(x)
    assert p[:, 1].mean() == pytest.approx(y.mean(), abs=0.005)
    assert nll(p, y) < flat_loss(y) + 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_thirty_samples_do_no_great_harm(name):
    at = np.linspace(-3, 3, 61)
    worst = [
        np.abs(mm.calibrator(name, logits=True).fit(*drawn(30, seed=s)).predict_proba(at)[:, 1] - sigmoid(at)).mean()
        for s in range(20)
    ]
    assert np.mean(worst) < (0.15 if name == "venn-abers" else 0.1)


@pytest.mark.parametrize("name", NAMES)
def test_separable_data(name):
    x = np.concatenate([np.linspace(-3, -0.5, 40), np.linspace(0.5, 3, 40)])
    y = (x > 0).astype(int)
    p = mm.calibrator(name, logits=True).fit(x, y).predict_proba(np.array([-50.0, -1, 0, 1, 50]))[:, 1]
    assert np.isfinite(np.log(p)).all()
    assert p[1] < 0.2
    assert p[3] > 0.8
    assert (np.diff(p) >= 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_scores_that_say_nothing_or_the_opposite(name):
    y = np.arange(60) % 3 == 0
    same = mm.calibrator(name).fit(np.full(60, 0.7), y).predict_proba([0.7])[0, 1]
    assert same == pytest.approx(1 / 3, abs=0.07)
    x, y = drawn(300, slope=-1.0, seed=5)
    p = mm.calibrator(name, logits=True).fit(x, y).predict_proba(x)[:, 1]
    assert (np.diff(p[np.argsort(x)]) >= 0).all()
    assert nll(np.stack([1 - p, p], axis=1), y) < nll(np.stack([1 - sigmoid(x), sigmoid(x)], axis=1), y)


@pytest.mark.parametrize("name", NAMES)
def test_one_class_alone(name):
    p = mm.calibrator(name, classes=[0, 1]).fit(np.linspace(0.1, 0.9, 50), np.zeros(50, int)).predict_proba([0.2, 0.8])
    assert (p[:, 1] > 0).all()
    assert p[0, 1] < 0.1

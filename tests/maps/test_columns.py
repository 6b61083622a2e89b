"""Step maps of two classes sort logits by their log-odds, which differ where probabilities are next to 1."""

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch._map_json import decode, encode
from mixnmatch.maps.columns import probability_at, squashed
from tests.conftest import softmax

STEPS = ["isotonic", "venn-abers", "histogram", "bbq", "irova"]


def margins(n=1000, seed=0):
    """Margins of an unscaled decision function, most of them above 25, and labels."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.5).astype(int)
    return 15 * rng.normal(size=n) + 20 * (y - 0.5) + 25, y


def log_loss(p, y):
    return -np.log(p[np.arange(len(y)), y]).mean()


def test_squashed_log_odds_keep_order_and_resolution():
    x = np.append(np.geomspace(1e-6, 2e9, 500), np.inf)
    x = np.concatenate([-x[::-1], [0.0], x])
    s = squashed(x)
    assert s[0] == 0
    assert s[-1] == 1
    assert (np.diff(s) > 0).all()
    np.testing.assert_allclose(squashed(-x), 1 - s, rtol=0, atol=1e-15)
    near = np.abs(x) < 30
    np.testing.assert_allclose(probability_at(s[near], "log-odds"), 1 / (1 + np.exp(-x[near])), rtol=1e-9)
    np.testing.assert_array_equal(probability_at(np.array([0.0, 1.0]), "log-odds"), [0.0, 1.0])


@pytest.mark.parametrize("name", STEPS)
def test_swapping_the_classes_changes_nothing(name):
    z, y = margins()
    p = mm.calibrator(name, logits=True).fit(z, y).predict_proba(z)
    swapped = mm.calibrator(name, logits=True).fit(-z, 1 - y).predict_proba(-z)[:, ::-1]
    if name != "bbq":  # bins of equal mass end at ranks that are rounded up, so its binnings are not quite the same
        np.testing.assert_allclose(p, swapped, rtol=0, atol=1e-6)
    assert log_loss(swapped, y) == pytest.approx(log_loss(p, y), rel=0.02)
    most = 1.08 if name == "bbq" else 1.03  # its prior believes the scores
    assert log_loss(p, y) < most * log_loss(mm.calibrator("platt", logits=True).fit(z, y).predict_proba(z), y)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("scale", [1, 1e4, 1e7])
def test_large_logits_are_distinguished(name, scale):
    z = np.concatenate([np.linspace(50, 60, 100), np.linspace(70, 80, 100)]) * scale
    fitted = mm.calibrator(name, logits=True).fit(z, np.repeat([0, 1], 100))
    p = fitted.predict_proba(np.array([55.0, 75.0], dtype=np.float32) * np.float32(scale))[:, 1]
    assert p[0] < 0.1
    assert p[1] > 0.9


def test_interval_of_large_logits():
    z, y = margins()
    fitted = mm.maps.VennAbers(logits=True).fit(z, y)
    low, high = fitted.interval(z).T
    p = fitted.predict_proba(z)[:, 1]
    assert ((low <= p) & (p <= high)).all()
    assert len(np.unique(p)) > 20


@pytest.mark.parametrize("name", [*STEPS, "irm-normalised"])
def test_maps_of_older_files_see_probabilities(name):
    """Before version 0.2 files did not name the scale, and logits were turned into probabilities."""
    z, y = margins(300)
    logits = np.stack([np.zeros(300), z - 25], axis=1)
    fitted = mm.calibrator(name).fit(softmax(logits), y)
    older = encode(fitted)
    part = older
    while "scale_" not in part["fitted"]:
        part = part["fitted"]["map_"]
    del part["fitted"]["scale_"]
    older["params"]["logits"] = True
    np.testing.assert_array_equal(decode(older).predict_proba(logits), fitted.predict_proba(softmax(logits)))


def test_files_name_a_known_scale():
    z, y = margins(50)
    document = encode(mm.Isotonic(logits=True).fit(z, y))
    assert document["fitted"]["scale_"] == "log-odds"
    document["fitted"]["scale_"] = "decibels"
    with pytest.raises(ValueError, match="scale_ of a Isotonic is none of"):
        decode(document)

"""The inverse of maps of two classes: there and back, closed form against bisection, and what is out of reach."""

import numpy as np
import pytest

from mixnmatch import Isotonic, OneVsAll, TemperatureScaling, calibrator
from mixnmatch.maps import BetaScaling, PlattScaling
from mixnmatch.maps.inverse import _bisect, _number, _ordinal

STRICT = ("identity", "ts", "ets", "platt", "beta", "ensemble-beta", "ensemble-platt", "vector", "svs", "iop")


def problem(n=300, logits=True, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n) - 1
    y = (rng.random(n) < 1 / (1 + np.exp(-x))).astype(int)
    z = 2 * x + 1
    return (z if logits else 1 / (1 + np.exp(-z))), y


@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("name", STRICT)
def test_there_and_back(name, logits):
    scores, y = problem(logits=logits)
    fitted = calibrator(name, logits=logits).fit(scores, y)
    p = fitted.predict_proba(scores)[:, 1]
    np.testing.assert_allclose(fitted.predict_proba(fitted.inverse(p))[:, 1], p, rtol=0, atol=1e-12)
    np.testing.assert_allclose(fitted.inverse(p), scores, rtol=1e-6, atol=1e-8)
    for threshold in (0.2, 0.45, 0.7):
        at = fitted.inverse(threshold)
        assert isinstance(at, float)
        inside = np.abs(p - threshold) > 1e-12
        assert ((scores >= at) == (p >= threshold))[inside].all()


@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("on", ["logit", "probability"])
@pytest.mark.parametrize("smoothed", [True, False])
def test_closed_form_of_platt_scaling_is_what_bisection_finds(logits, on, smoothed):
    scores, y = problem(logits=logits)
    map_ = PlattScaling(on=on) if smoothed else PlattScaling(on=on, logits=logits)
    fitted = (OneVsAll(map_, logits=logits) if smoothed else map_).fit(scores, y)
    lowest, highest = fitted.predict_proba(np.array([-50.0, 50.0]) if logits else np.array([0.0, 1.0]))[:, 1]
    p = lowest + (highest - lowest) * np.array([0.001, 0.01, 0.2, 0.5, 0.8, 0.99, 0.999])
    closed, searched = fitted.inverse(p), _bisect(fitted, p, np.array([-1e9, 1e9] if logits else [0.0, 1.0]))
    np.testing.assert_allclose(fitted.predict_proba(closed)[:, 1], p, atol=1e-12)
    np.testing.assert_allclose(closed, searched, rtol=1e-7, atol=1e-9)


def test_closed_form_next_to_the_floor():
    # The smallest probability is 0.1: those below 0.05 and above 0.95 are read as that in one of the logarithms.
    fitted = PlattScaling().fit([0.1, 0.4, 0.6, 0.9, 0.7, 0.2], [0, 0, 1, 1, 0, 1])
    scores = np.array([0.0, 0.01, 0.04, 0.05, 0.3, 0.95, 0.97, 1.0])
    np.testing.assert_allclose(fitted.inverse(fitted.predict_proba(scores)[:, 1]), scores, atol=1e-12)


def test_out_of_reach():
    scores, y = problem(logits=False)
    for fitted in (PlattScaling().fit(scores, y), BetaScaling().fit(scores, y), TemperatureScaling().fit(scores, y)):
        low, high = fitted.predict_proba(np.array([0.0, 1.0]))[:, 1]
        assert 0 < low < high < 1
        assert fitted.inverse(low / 2) == -np.inf
        assert fitted.inverse((1 + high) / 2) == np.inf
        assert fitted.inverse([0.0, 1.0]).tolist() == [-np.inf, np.inf]
        assert fitted.inverse(low) == pytest.approx(0.0, abs=1e-9)
        assert fitted.inverse(high) == pytest.approx(1.0, abs=1e-9)


def test_a_jump_is_found():
    scores, y = problem(logits=False)
    fitted = Isotonic(strict=True).fit(scores, y)
    for p in (0.05, 0.3, 0.6):
        at = fitted.inverse(p)
        below, reached = fitted.predict_proba(np.array([np.nextafter(at, 0), at]))[:, 1]
        assert below < p <= reached


def test_shapes():
    fitted = TemperatureScaling(logits=True).fit(*problem())
    assert fitted.inverse(np.full((2, 3), 0.3)).shape == (2, 3)
    assert fitted.inverse(np.empty(0)).shape == (0,)
    assert fitted.inverse(0.5) == pytest.approx(0.0, abs=1e-12)
    assert calibrator("identity", logits=True).fit(*problem()).inverse(0.0) == -np.inf


def test_maps_without_an_inverse():
    scores, y = problem()
    for name in ("isotonic", "histogram", "uniform"):
        with pytest.raises(ValueError, match="does not increase strictly"):
            calibrator(name, logits=True).fit(scores, y).inverse(0.5)
    three = TemperatureScaling(logits=True).fit(np.eye(3), [0, 1, 1])
    with pytest.raises(ValueError, match="map of two classes"):
        three.inverse(0.5)
    with pytest.raises(ValueError, match="from 0 to 1"):
        calibrator("platt", logits=True).fit(scores, y).inverse(1.5)


def test_places_of_numbers():
    x = np.array([-1e9, -1.0, -5e-324, 0.0, 5e-324, 0.3, 1e9])
    places = _ordinal(x)
    assert (np.diff(places) > 0).all()
    assert (_number(places) == x).all()
    assert places[4] == 1

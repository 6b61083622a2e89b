"""Combinators with maps of others, cross-fitting, and what compositions promise."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import mixnmatch as mm
from mixnmatch._engine import door
from tests.conftest import make_problem, nll, softmax


class Squash:
    """A user's own calibrator, with nothing but fit and predict_proba."""

    def __init__(self, power=0.5):
        self.power = power

    def fit(self, scores, y):
        self.seen_ = len(y)
        return self

    def predict_proba(self, scores):
        p = scores**self.power
        return p / p.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def table():
    logits, y = make_problem(300, 3)
    return softmax(logits), y


def test_composition_fits_the_second_on_what_the_first_puts_out(table):
    p, y = table
    chain = (mm.TemperatureScaling() >> mm.OneVsAll(mm.Isotonic())).fit(p, y)
    first = mm.TemperatureScaling().fit(p, y)
    second = mm.OneVsAll(mm.Isotonic()).fit(first.predict_proba(p), y)
    np.testing.assert_allclose(chain.predict_proba(p), second.predict_proba(first.predict_proba(p)), atol=1e-12)


def test_composition_is_associative_in_effect(table):
    p, y = table
    ts, ets, irm = mm.maps.VectorScaling(), mm.EnsembleTemperatureScaling(), mm.Pooled(mm.Isotonic(strict=True))
    left, right = ((ts >> ets) >> irm).fit(p, y), (ts >> (ets >> irm)).fit(p, y)
    np.testing.assert_allclose(left.predict_proba(p), right.predict_proba(p), atol=1e-9)


def test_users_maps_take_part(table, tmp_path):
    p, y = table
    chain = (mm.TemperatureScaling() >> Squash()).fit(p, y)
    expected = mm.TemperatureScaling().fit(p, y).predict_proba(p) ** 0.5
    np.testing.assert_allclose(chain.predict_proba(p), expected / expected.sum(axis=1, keepdims=True), atol=1e-9)
    assert not chain.accuracy_preserving
    with pytest.raises(TypeError, match="cannot be saved"):
        chain.save(tmp_path / "map.json")
    assert not list(tmp_path.iterdir())
    with pytest.raises(TypeError, match="fit and predict_proba"):
        (mm.TemperatureScaling() >> object()).fit(p, y)


def test_scikit_learn_classifiers_as_binary_maps(table):
    p, y = table
    model = LogisticRegression()
    one_vs_all = mm.OneVsAll(model, smoothing=0).fit(p, y)
    by_hand = np.stack(
        [LogisticRegression().fit(p[:, [k]], y == k).predict_proba(p[:, [k]])[:, 1] for k in range(3)], 1
    )
    np.testing.assert_allclose(one_vs_all.predict_proba(p), by_hand / by_hand.sum(axis=1, keepdims=True), atol=1e-6)
    weighted = mm.Pooled(model).fit(p, y, np.arange(300) % 2 + 1.0).predict_proba(p)
    np.testing.assert_allclose(weighted.sum(axis=1), 1)
    with pytest.raises(ValueError, match="sample_weight"):
        mm.OneVsAll(Squash()).fit(p, y, np.ones(300))


def test_class_without_positives_stays_defined(table):
    p, y = table
    fitted = mm.OneVsAll(LogisticRegression()).fit(p, np.minimum(y, 1))
    assert np.isfinite(fitted.predict_proba(p)).all()
    isotonic = mm.OneVsAll(mm.Isotonic(), smoothing=0).fit(p, np.minimum(y, 1)).predict_proba(p)
    assert (isotonic[:, 2] == 0).all()


def test_cross_fitting_uses_copies_that_have_not_seen_the_row(table):
    p, y = table
    chain = mm.Composition(mm.maps.MatrixScaling(), mm.TemperatureScaling(), cv=4, random_state=1)
    fitted = chain.fit(p, y)
    source = door.rows(p, y)
    out = np.empty_like(p)
    for k in range(4):
        rest = source.fold(k, 4, keep=False, seed=1)
        part = mm.maps.MatrixScaling()._fit_source(rest)
        inside = np.asarray(source.fold(k, 4, keep=True, seed=1).block(0, 300).index)
        out[inside] = part.predict_proba(p[inside])
    by_hand = mm.TemperatureScaling().fit(out, y)
    assert fitted.second_.beta_ == pytest.approx(by_hand.beta_, rel=1e-6)


def test_cross_fitting_tempers_an_over_fitted_first_map():
    logits, y = make_problem(120, 10, sharpness=1.0)
    plain = (mm.maps.MatrixScaling(logits=True) >> mm.TemperatureScaling()).fit(logits, y)
    crossed = mm.Composition(mm.maps.MatrixScaling(logits=True), mm.TemperatureScaling(), cv=5).fit(logits, y)
    assert crossed.second_.temperature_ > 1.2 * plain.second_.temperature_
    test_logits, test_y = make_problem(1000, 10, sharpness=1.0, seed=9)
    assert nll(crossed.predict_proba(test_logits), test_y) < nll(plain.predict_proba(test_logits), test_y)


def test_bad_options_are_refused(table):
    p, y = table
    for bad in (1, 2.5, "five"):
        with pytest.raises(ValueError, match="cv must be"):
            mm.Composition(mm.TemperatureScaling(), mm.TemperatureScaling(), cv=bad).fit(p, y)
    with pytest.raises(ValueError, match="smoothing"):
        mm.Pooled(mm.Isotonic(), smoothing=-1).fit(p, y)


def test_settings_of_the_map_inside_that_have_no_effect_are_refused(table):
    z, y = table[:2]
    for inside in (mm.maps.BetaScaling(weights="importance"), mm.maps.BetaScaling(logits=True)):
        with pytest.raises(ValueError, match="of the map inside has no effect: give it to OneVsAll"):
            mm.maps.OneVsAll(inside).fit(z, y)
    both = mm.maps.OneVsAll(mm.maps.BetaScaling(weights="importance"), weights="importance")
    assert both.fit(z, y, sample_weight=np.full(len(y), 2.0)).n_classes_ == z.shape[1]


def test_with_two_classes_one_vs_all_is_the_positive_class():
    rng = np.random.default_rng(0)
    z = rng.random(100)
    y = (rng.random(100) < z).astype(int)
    np.testing.assert_allclose(
        mm.OneVsAll(mm.Isotonic(), smoothing=0).fit(z, y).predict_proba(z),
        mm.Isotonic(smoothing=0).fit(z, y).predict_proba(z),
    )


@pytest.mark.parametrize("name", ["platt", "beta"])
def test_increasing_maps_of_two_classes_are_injective(name):
    """One function of the positive class that increases strictly; with more classes normalising may merge samples."""
    rng = np.random.default_rng(0)
    p = rng.random(200)
    y = (rng.random(200) < p).astype(int)
    assert not mm.calibrator(name).injective
    fitted = mm.calibrator(name).fit(p, y)
    assert fitted.injective
    values = np.linspace(0.01, 0.99, 50)
    assert (np.diff(fitted.predict_proba(values)[:, 1]) > 0).all()
    assert (mm.calibrator("ts") >> mm.OneVsAll(mm.maps.PlattScaling())).fit(np.stack([1 - p, p], axis=1), y).injective
    assert not mm.calibrator("isotonic").fit(p, y).injective
    three = rng.dirichlet(np.ones(3), 200)
    assert not mm.calibrator(name).fit(three, rng.integers(0, 3, 200)).injective

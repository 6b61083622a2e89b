import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch.experiments.calarena import CUSTOM_CALIBRATORS, factory


@pytest.fixture
def positive():
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 2.0, 300)
    return p, (rng.random(300) < p**1.5).astype(np.uint8)


def test_one_column_a_vector_and_two_columns_are_one_problem(positive):
    p, y = positive
    expected = mm.calibrator("beta").fit(p, y).predict_proba(p)
    for form in (p, p[:, None], np.stack([1 - p, p], axis=1)):
        found = factory("beta")().fit(form, y.astype(np.float64)).predict_proba(form)
        np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("name", list(CUSTOM_CALIBRATORS))
def test_registered_calibrators_give_distributions(name, positive):
    p, y = positive
    found = CUSTOM_CALIBRATORS[name]().fit(p.astype(np.float32), y).predict_proba(p.astype(np.float32))
    assert found.shape == (300, 2)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)


def test_every_call_of_a_factory_makes_a_new_calibrator():
    make = CUSTOM_CALIBRATORS["mixnmatch-auto"]
    assert make() is not make()


def test_classes_that_the_calibration_set_lacks_keep_their_columns():
    p = np.random.default_rng(0).dirichlet(np.ones(4), 60)
    y = np.random.default_rng(1).integers(0, 3, 60)
    assert factory("ts")().fit(p, y).predict_proba(p).shape == (60, 4)


def test_zeros_ones_and_one_class_are_no_errors():
    p = np.array([0.0, 0.0, 1.0, 0.2])
    for y in ([0, 0, 1, 0], [0, 0, 0, 0]):
        found = factory("beta-shrunk")().fit(p, np.array(y)).predict_proba(p)
        assert np.isfinite(found).all()


def test_labels_must_be_column_numbers():
    with pytest.raises(ValueError, match="column numbers"):
        factory("ts")().fit(np.array([0.2, 0.8]), np.array([0.5, 1.0]))

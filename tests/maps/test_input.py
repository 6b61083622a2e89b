"""What a map says about its input, and copies of it for other input."""

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch.maps.base import CalibrationMap
from tests.conftest import make_problem, softmax
from tests.maps.expressions import ALL, expression

LETTERS = np.array(["a", "b", "c"])


class Squared(CalibrationMap):
    """A user's map, without parameters."""

    def _fit(self, source):
        return {"power_": 2.0}

    def _proba(self, block):
        p = block.probabilities() ** self.power_
        return p / p.sum(axis=1, keepdims=True)


class Halfway:
    """A user's object that is not one of our maps."""

    def fit(self, p, y, sample_weight=None):
        return self

    def predict_proba(self, p):
        return (p + 1 / p.shape[1]) / 2


OWN = {
    "own": Squared,
    "own >> ts": lambda: Squared() >> mm.TemperatureScaling(),
    "keep own": lambda: mm.maps.KeepWinner(Squared()),
    "object >> ts": lambda: mm.Composition(Halfway(), mm.TemperatureScaling()),
    "keep object": lambda: mm.maps.KeepWinner(Halfway()),
}


def build(name):
    return OWN[name]() if name in OWN else expression(name)


@pytest.mark.parametrize("name", [*ALL, *OWN])
def test_a_copy_for_logits_gives_the_same_map(name):
    logits, y = make_problem(90, 3)
    made = build(name)
    assert not made.takes_logits
    p = softmax(logits)
    plain = made.fit(p, y)
    copy = plain.for_input(logits=True, classes=LETTERS)
    assert copy.takes_logits
    assert not hasattr(copy, "n_classes_")
    assert not plain.takes_logits
    copy.fit(logits, LETTERS[y])
    assert copy.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(copy.predict_proba(logits), plain.predict_proba(p), atol=2e-5)
    back = copy.for_input(logits=False)
    assert not back.takes_logits
    assert back.fit(p, LETTERS[y]).classes_.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("name", [*ALL, *OWN])
def test_weights_reach_the_map_that_reads_them(name):
    logits, y = make_problem(60, 3)
    weight = np.full(60, 0.5)
    made = build(name)
    with pytest.warns(UserWarning, match="importance"):
        made.fit(softmax(logits), y, weight)
    fitted = made.for_input(weights="importance").fit(softmax(logits), y, weight)
    assert fitted.total_weight_ == pytest.approx(60)


def test_nothing_asked_leaves_the_settings():
    made = mm.maps.KeepWinner(mm.TemperatureScaling(logits=True, classes=["x", "y"], weights="importance"))
    copy = made.for_input()
    assert copy is not made
    assert repr(copy) == repr(made)
    assert copy.for_input(logits=False).map.classes == ["x", "y"]


def test_a_loaded_map_knows_its_input(tmp_path):
    logits, y = make_problem(60, 3)
    nested = mm.maps.KeepWinner(mm.TemperatureScaling() >> mm.OneVsAll(mm.Isotonic()))
    nested.for_input(logits=True, classes=LETTERS).fit(logits, LETTERS[y]).save(tmp_path / "map.json")
    loaded = mm.load(tmp_path / "map.json")
    assert loaded.takes_logits
    assert loaded.classes_.tolist() == ["a", "b", "c"]


def test_what_a_map_takes_cannot_be_set():
    with pytest.raises(AttributeError):
        mm.TemperatureScaling().takes_logits = True

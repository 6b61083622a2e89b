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


@pytest.mark.parametrize("name", ALL)
def test_blocks_checked_on_the_way_give_what_checked_rows_give(name):
    logits, y = make_problem(400, 5, dtype=np.float32)
    fitted = expression(name).for_input(logits=True).fit(logits[:200], y[:200])
    with mm.engine(block_bytes=logits.nbytes // 4):
        big = np.tile(logits, (40, 1))  # more than one block
        np.testing.assert_array_equal(fitted.predict_proba(big), fitted.predict_proba(mm.rows(big, logits=True)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("bad", "why"), [(np.nan, "holds NaN"), (np.inf, "holds an infinity")])
def test_a_bad_row_of_a_large_table_is_named(bad, why, threads):
    logits, y = make_problem(40_000, 4, dtype=np.float32)
    fitted = mm.TemperatureScaling(logits=True).fit(logits[:500], y[:500])
    logits[39_990, 1] = bad
    with mm.engine(threads=threads), pytest.raises(ValueError, match=f"row 39990 of the scores {why}"):
        fitted.predict_proba(logits)
    logits[39_990, 1] = -np.inf
    p = fitted.predict_proba(logits)
    assert p[39_990, 1] == 0
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)


def test_rows_of_a_large_table_are_renormalised_where_they_must_be():
    p, y = make_problem(40_000, 4)
    p = softmax(p)
    fitted = mm.TemperatureScaling().fit(p[:500], y[:500])
    off = p.copy()
    off[-1] *= 1 + 5e-5
    np.testing.assert_allclose(fitted.predict_proba(off), fitted.predict_proba(p), rtol=1e-12)

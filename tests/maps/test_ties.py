"""Computed probabilities that differ by rounding are ties: where cells are, and that no step is inside of one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mixnmatch as mm
from mixnmatch.maps.ties import are_edges, lower_edges, tied_groups, upper_edges
from tests.conftest import make_problem, softmax

WIDTH = 2.0**-35  # relative, at most


@given(st.lists(st.floats(0, 1), min_size=1))
def test_cells_hold_their_numbers(numbers):
    p = np.array(numbers)
    low, high = lower_edges(p), upper_edges(p)
    assert (low <= p).all()
    assert (p < high).all()
    assert (high - low <= WIDTH * p + 1e-288).all()
    assert are_edges(low).all()
    np.testing.assert_array_equal(lower_edges(low), low)
    np.testing.assert_array_equal(lower_edges(high), high)  # the next cell begins there
    order = np.argsort(p)
    assert (np.diff(low[order]) >= 0).all()


def test_what_some_runtimes_give_for_zero_is_in_its_cell():
    tiny = np.array([0.0, 5e-324, 2.3e-308, 1e-290])
    np.testing.assert_array_equal(lower_edges(tiny), 0)
    assert len(np.unique(upper_edges(tiny))) == 1
    assert (lower_edges(np.array([1e-288])) > 0).all()


def test_numbers_with_few_bits_are_in_the_middle():
    for p in (1.0, 0.5, 0.75, 0.001953125):
        near = p * (1 + np.linspace(-1e-12, 1e-12, 101))
        assert len(np.unique(lower_edges(near))) == 1
        assert not are_edges(np.array([p]))[0]


def assert_groups(p, clearance):
    """Groups are in order and end before the next starts; their numbers stay in them whatever the rounding."""
    group, starts, ends = tied_groups(p)
    assert len(group) == len(p)
    assert (starts[group] <= p * (1 - clearance)).all()
    assert (p * (1 + clearance) < ends[group]).all()
    assert (starts < ends).all()
    assert (ends[:-1] <= starts[1:]).all()
    assert are_edges(starts).all()
    assert are_edges(ends).all()
    np.testing.assert_array_equal(np.unique(group), np.arange(len(starts)))
    return group, starts, ends


@given(st.lists(st.floats(0, 1), max_size=30))
def test_groups_hold_their_numbers(numbers):
    p = np.array(numbers)
    group, starts, ends = assert_groups(p, 2.0**-41)
    apart = ends[group] - starts[group] <= 8 * (WIDTH * p + 1e-288) * max(len(p), 1)
    assert apart.all()
    assert (np.diff(group[np.argsort(p)]) >= 0).all()


@pytest.mark.parametrize("ulps", [0, 1, 3, 100])
def test_numbers_on_the_two_sides_of_an_edge_are_in_one_group(ulps):
    edges = lower_edges(np.random.default_rng(0).random(500))
    bits = edges.view(np.int64)
    p = np.concatenate([(bits - 1 - ulps).view(np.float64), edges, (bits + ulps).view(np.float64)])
    group, _, _ = assert_groups(p, 2.0**-41)
    np.testing.assert_array_equal(group[:500], group[500:1000])
    np.testing.assert_array_equal(group[:500], group[1000:])
    assert len(np.unique(group)) == len(np.unique(edges))


def test_groups_of_numbers_without_gaps_stay_narrow():
    p = 1 - 10.0 ** np.random.default_rng(0).uniform(-14, -6, 100_000)
    _, starts, ends = assert_groups(p, 0.0)
    assert (ends - starts < 8 * WIDTH).all()
    assert len(starts) > 1000


def test_groups_of_nothing_and_of_zeros():
    assert [len(part) for part in tied_groups(np.zeros(0))] == [0, 0, 0]
    group, starts, ends = tied_groups(np.array([1e-290, 0.5, 0.0, 5e-324]))
    np.testing.assert_array_equal(group, [0, 1, 0, 0])
    assert starts[0] == 0
    assert 1e-290 < ends[0] < 1e-288


@pytest.mark.parametrize(
    "name", ["isotonic", "irm", "irova", "irm-normalised", "histogram", "bbq", "venn-abers", "irm-ts"]
)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_maps_of_logits_do_not_see_rounding(name, n_classes):
    """Scores whose probabilities differ in the last bits, or are next to 1, are calibrated alike."""
    logits, y = make_problem(400, n_classes, sharpness=20)
    logits[:200] = np.round(logits[:200] / 10)  # many ties, computed in different orders of the classes
    fitted = mm.calibrator(name, logits=True).fit(logits, y)
    part = fitted if name != "irm-ts" else fitted.second_
    inner = part if hasattr(part, "knots_") else part.map_
    assert (are_edges(inner.knots_) | (inner.knots_ == 0)).all()
    expected = fitted.predict_proba(logits)
    for shift in (1 / 3, 7.7, 1e3):
        np.testing.assert_allclose(fitted.predict_proba(logits + shift), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["isotonic", "irm", "venn-abers"])
def test_given_probabilities_are_told_apart_to_the_last_bit(name):
    low = np.full(40, 0.5)
    high = np.nextafter(low, 1)
    p, y = np.concatenate([low, high]), np.repeat([0, 1], 40)
    fitted = mm.calibrator(name).fit(np.stack([1 - p, p], axis=1), y)
    found = fitted.predict_proba(np.array([[0.5, 0.5], [1 - high[0], high[0]]]))[:, 1]
    assert found[1] - found[0] > 0.2


def test_isotonic_fit_is_that_of_probabilities():
    logits, y = make_problem(500, 3)
    by_logits = mm.calibrator("irova", logits=True).fit(logits, y)
    by_probabilities = mm.calibrator("irova").fit(softmax(logits), y)
    fresh = make_problem(500, 3, seed=1)[0]
    np.testing.assert_allclose(
        by_logits.predict_proba(fresh), by_probabilities.predict_proba(softmax(fresh)), rtol=0, atol=1e-12
    )

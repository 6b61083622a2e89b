"""A sample of distinct rows is the same for any order of the rows, and for weights as for repetitions."""

import numpy as np
import pytest

from mixnmatch import engine
from mixnmatch._engine import door
from mixnmatch.maps._distinct_rows import distinct_rows
from tests.conftest import make_problem


def sample(logits, y, weight=None, at_most=100):
    rows, complete = distinct_rows(door.rows(logits, y, weight, logits=True), at_most, 1e-37)
    return np.column_stack([rows.scores.values, rows.labels, rows.weight]), complete


@pytest.mark.parametrize(("n", "complete"), [(60, True), (1000, False)])
def test_order_repetitions_and_blocks_do_not_matter(n, complete):
    logits, y = make_problem(n, 3)
    expected, all_there = sample(logits, y)
    assert all_there == complete
    assert len(expected) == min(n, 100)
    turned = np.random.default_rng(0).permutation(n)
    np.testing.assert_array_equal(sample(logits[turned], y[turned])[0], expected)
    with engine(block_bytes=1000):
        np.testing.assert_array_equal(sample(logits, y)[0], expected)
    expected[:, -1] = 2
    np.testing.assert_array_equal(sample(np.tile(logits, (2, 1)), np.tile(y, 2))[0], expected)
    np.testing.assert_array_equal(sample(logits, y, np.full(n, 2.0))[0], expected)


def test_few_distinct_rows_have_all_the_weight():
    logits, y = np.repeat([[0.0, 1.0], [2.0, 0.0]], 500, axis=0), np.arange(1000) % 2
    rows, complete = sample(logits, y)
    assert complete
    assert len(rows) == 4
    np.testing.assert_array_equal(rows[:, -1], 250)

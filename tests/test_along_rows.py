import numpy as np
import pytest

from mixnmatch._engine.along_rows import SHORT, WIDE, picked, row_maxima, row_sums, winners


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_columns", [2, 3, SHORT, SHORT + 1, 100])
def test_as_numpy_does_it(n_columns, dtype):
    rng = np.random.default_rng(n_columns)
    x = np.round(rng.random((300, n_columns)), 1).astype(dtype)  # with ties
    columns = rng.integers(0, n_columns, 300)
    for table in (x, x[::2], np.asfortranarray(x), x[:0]):
        own = columns[: len(table)]
        assert row_sums(table).dtype == dtype
        np.testing.assert_allclose(row_sums(table), table.sum(axis=1), rtol=1e-5 if dtype == np.float32 else 1e-14)
        np.testing.assert_allclose(row_sums(table, np.float64), table.sum(axis=1, dtype=np.float64), rtol=1e-14)
        np.testing.assert_array_equal(row_maxima(table), table.max(axis=1))
        np.testing.assert_array_equal(winners(table), table.argmax(axis=1))
        np.testing.assert_array_equal(picked(table, own), table[np.arange(len(table)), own])


@pytest.mark.parametrize("n_columns", [WIDE, WIDE + 1, 1000, 128_256])
def test_long_rows_of_single_precision_are_added_up_exactly_enough(n_columns):
    rng = np.random.default_rng(0)
    x = np.stack([np.full(n_columns, 1 / n_columns), rng.random(n_columns), np.full(n_columns, 0.5 / n_columns)])
    x[2, 0] += 0.5
    x = x.astype(np.float32)
    np.testing.assert_allclose(row_sums(x), x.sum(axis=1, dtype=np.float64), rtol=2e-6)

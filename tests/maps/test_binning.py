import numpy as np
import pytest
from scipy.special import gammaln

from mixnmatch import BayesianBinning, HistogramBinning, OneVsAll, Pooled
from tests.conftest import make_problem, softmax


def test_equal_width_bins_by_hand():
    z, y = np.array([0.0, 0.1, 0.5, 0.6, 0.99, 1.0]), np.array([0, 1, 0, 1, 1, 1])
    function = HistogramBinning(bins=2, strategy="width").fit(z, y).functions()[0]
    np.testing.assert_allclose(function(np.array([0.0, 0.4999, 0.5, 1.0])), [0.5, 0.5, 0.75, 0.75])


def test_equal_mass_bins_never_part_ties():
    z = np.array([0.2] * 5 + [0.4, 0.6, 0.8])
    y = np.array([1, 0, 0, 0, 0, 1, 0, 1])
    function = HistogramBinning(bins=4).fit(z, y).functions()[0]
    assert function(np.array([0.2]))[0] == pytest.approx(0.2)
    weighted = HistogramBinning(bins=4).fit(z[4:], y[4:], [5, 1, 1, 1])
    assert len(weighted.knots_) == len(
        HistogramBinning(bins=4).fit(np.repeat(z[4:], [5, 1, 1, 1]), np.repeat(y[4:], [5, 1, 1, 1])).knots_
    )


def test_bins_hold_equal_mass():
    rng = np.random.default_rng(0)
    z = rng.random(1000) ** 3
    fitted = HistogramBinning(bins=10).fit(z, rng.integers(0, 2, 1000))
    counts = np.histogram(z, np.append(fitted.knots_, 1.0))[0]
    np.testing.assert_array_equal(counts, 100)


def test_empty_bins_keep_their_middle():
    function = HistogramBinning(bins=4, strategy="width").fit([0.1, 0.9], [0, 1]).functions()[0]
    np.testing.assert_allclose(function(np.array([0.3, 0.6])), [0.375, 0.625])


def test_number_of_bins_is_chosen_by_the_cube_root():
    rng = np.random.default_rng(0)
    assert len(HistogramBinning().fit(rng.random(1000), rng.integers(0, 2, 1000)).knots_) == 10


def test_bayesian_average_by_hand():
    """The paper's formulas for three binnings of a small sample, without any of the code under test."""
    z = np.array([0.1, 0.3, 0.35, 0.6, 0.8, 0.9])
    y = np.array([0, 0, 1, 0, 1, 1])
    scores, predictions = [], []
    for bins in range(1, 7):
        parts = np.array_split(np.arange(6), bins) if 6 % bins == 0 else None
        cuts = [0, *(int(np.ceil(6 * b / bins - 1e-9)) for b in range(1, bins)), 6]
        parts = [np.arange(a, b) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
        edges = [0.0, *((z[a - 1] + z[a]) / 2 for a in cuts[1:-1]), 1.0]
        log_score, values = 0.0, []
        for rows, low, high in zip(parts, edges[:-1], edges[1:], strict=True):
            a, b = 2 / bins * (low + high) / 2, 2 / bins * (1 - (low + high) / 2)
            n, m = len(rows), y[rows].sum()
            log_score += (
                gammaln(a + b) - gammaln(a + b + n) + gammaln(a + m) - gammaln(a) + gammaln(b + n - m) - gammaln(b)
            )
            values.append((a + m) / (a + b + n))
        scores.append(log_score)
        predictions.append(np.concatenate([[v] * len(r) for v, r in zip(values, parts, strict=True)]))
    weight = np.exp(np.array(scores) - max(scores))
    expected = weight @ np.array(predictions) / weight.sum()
    fitted = BayesianBinning().fit(z, y)
    np.testing.assert_allclose(fitted.functions()[0](z), expected, atol=1e-10)


def test_bayesian_average_is_smoother_than_any_binning():
    rng = np.random.default_rng(1)
    z = rng.random(2000)
    y = (rng.random(2000) < z).astype(int)
    grid = np.linspace(0.01, 0.99, 99)
    error = [
        np.abs(m.fit(z, y).functions()[0](grid) - grid).mean() for m in (BayesianBinning(), HistogramBinning(bins=60))
    ]
    assert error[0] < error[1]


def test_in_combinators():
    logits, y = make_problem(300, 4)
    p = softmax(logits)
    for made in (OneVsAll(HistogramBinning(strategy="width")), Pooled(HistogramBinning()), OneVsAll(BayesianBinning())):
        np.testing.assert_allclose(made.fit(p, y).predict_proba(p).sum(axis=1), 1)


def test_bad_options_are_refused():
    for options in ({"bins": 0}, {"bins": "many"}, {"bins": 2.5}, {"strategy": "random"}, {"smoothing": -1}):
        with pytest.raises(ValueError, match="must be"):
            HistogramBinning(**options).fit([0.5], [1])
    with pytest.raises(ValueError, match="positive"):
        BayesianBinning(range_factor=0).fit([0.5], [1])

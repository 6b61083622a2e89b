import numpy as np
import pytest
from scipy.special import gammaln

from mixnmatch import OneVsAll, Pooled
from mixnmatch.maps import BayesianBinning, HistogramBinning
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


def brute_force_average(z, y, weight):
    """BBQ with plain loops over repeated rows, binnings and bins, as a function of one score."""
    z, y = np.repeat(z, weight), np.repeat(y, weight)
    order = np.argsort(z, kind="stable")
    z, y, n = z[order], y[order], len(z)
    most = min(int(np.ceil(np.cbrt(n) * 10)), len(set(z.tolist())))
    binnings = []
    for bins in range(min(max(1, int(np.cbrt(n) / 10)), most), most + 1):
        cuts = [0]
        for b in range(1, bins):
            cut = -(-n * b // bins)  # rounded up
            while cut < n and z[cut] == z[cut - 1]:  # ties stay together
                cut += 1
            if cut > cuts[-1]:
                cuts.append(cut)
        cuts += [n] if cuts[-1] < n else []
        if cuts not in binnings:
            binnings.append(cuts)
    made = []
    for cuts in binnings:
        edges = [0.0, *((z[a - 1] + z[a]) / 2 for a in cuts[1:-1]), 1.0]
        score, means, share = 0.0, [], 2 / (len(cuts) - 1)
        for a, b, low, high in zip(cuts[:-1], cuts[1:], edges[:-1], edges[1:], strict=True):
            middle = min(max((low + high) / 2, 1e-6), 1 - 1e-6)
            alpha, beta, hits = share * middle, share * (1 - middle), y[a:b].sum()
            score += gammaln(alpha + hits) + gammaln(beta + b - a - hits) - gammaln(share + b - a)
            score -= gammaln(alpha) + gammaln(beta) - gammaln(share)
            means.append((alpha + hits) / (share + b - a))
        made.append((score, edges, means))
    best = max(score for score, _, _ in made)

    def average(x):
        parts = [(np.exp(s - best), m[sum(edge <= x for edge in e[1:-1])]) for s, e, m in made]
        return sum(w * m for w, m in parts) / sum(w for w, _ in parts)

    return average


@pytest.mark.parametrize("kind", ["distinct", "ties", "weights", "absent", "one row", "neighbouring floats"])
def test_bayesian_average_by_brute_force(kind):
    rng = np.random.default_rng(3)
    z = rng.random(60)
    y, weight = (rng.random(60) < z).astype(int), np.ones(60, dtype=int)
    if kind == "ties":
        z = np.round(z, 1)
    if kind == "weights":
        weight = 1 + rng.integers(0, 4, 60)
    if kind == "absent":
        y[:] = 0
    if kind == "one row":
        z, y, weight = z[:1], y[:1], weight[:1]
    if kind == "neighbouring floats":  # half-way between two of them there is no other
        z = 0.3 + np.arange(60) * np.spacing(0.3)
    fitted = BayesianBinning().fit(z, y, weight if kind == "weights" else None)
    grid = np.concatenate([z, fitted.knots_, np.linspace(0, 1, 23)])
    expected = brute_force_average(z, y, weight)
    np.testing.assert_allclose(fitted.functions()[0](grid), [expected(x) for x in grid], rtol=1e-9)
    assert (np.diff(fitted.knots_) > 0).all()


@pytest.mark.parametrize("strategy", ["width", "mass"])
def test_unit_weights_change_nothing(strategy):
    """With weights and without are two roads: groups with running sums, and sorted scores that are counted."""
    logits, y = make_problem(400, 3)
    p = np.round(softmax(logits), 2)
    p /= p.sum(axis=1, keepdims=True)
    for map_ in (HistogramBinning(bins=7, strategy=strategy), BayesianBinning()):
        for made in (OneVsAll(map_), Pooled(map_)):
            expected = made.fit(p, y).predict_proba(p)
            np.testing.assert_array_equal(made.fit(p, y, np.ones(len(y))).predict_proba(p), expected)


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


def test_averages_do_not_depend_on_how_many_bins_are_looked_at_together(monkeypatch):
    z, y = np.random.default_rng(0).random((2, 500))
    whole = BayesianBinning().fit(z, y < z)
    monkeypatch.setattr("mixnmatch.maps.binning.BINS_TOGETHER", 50)
    parts = BayesianBinning().fit(z, y < z)
    np.testing.assert_array_equal(parts.knots_, whole.knots_)
    np.testing.assert_allclose(parts.values_, whole.values_, rtol=1e-13)

"""The compiled kernels against the NumPy ones, and those against plain formulas in float64."""

import numpy as np
import pytest
from scipy.special import logsumexp

from mixnmatch import calibrator, engine
from mixnmatch._engine import kernels
from mixnmatch._engine.kernels import _numpy
from mixnmatch._engine.kernels.gaps import Knots
from mixnmatch._engine.kernels.lookup import Piecewise, build_lookup, positions
from tests.conftest import make_problem, softmax

BACKENDS = ["numpy", "compiled"] if kernels.compiled_available() else ["numpy"]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return kernels.load(request.param)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("n_classes", [2, 3, 17, 1000])
def test_row_results_match_the_formulas(backend, dtype, tolerance, n_classes):
    x, y = make_problem(40, n_classes, sharpness=4.0, seed=3, dtype=dtype)
    beta, rows = 0.625, np.arange(40)
    u = x.astype(np.float64)
    p, q = softmax(beta * u), softmax(u)
    mean = (p * u).sum(axis=1)
    d = p * (u - mean[:, None])
    variance = (p * (u - mean[:, None]) ** 2).sum(axis=1)
    np.testing.assert_allclose(
        backend.nll_rows(x, y, beta), [np.log(p[rows, y]), u[rows, y] - mean, variance], atol=tolerance, rtol=tolerance
    )
    parts = [p[rows, y], d[rows, y], (p * p).sum(axis=1), (p * d).sum(axis=1), (d * d).sum(axis=1), variance]
    np.testing.assert_allclose(backend.brier_rows(x, y, beta), parts, atol=tolerance, rtol=tolerance)
    parts += [q[rows, y], (q * q).sum(axis=1), (p * q).sum(axis=1), (q * d).sum(axis=1)]
    parts.append((q * d * (u - mean[:, None])).sum(axis=1))
    np.testing.assert_allclose(backend.mixture_rows(x, y, beta), parts, atol=tolerance, rtol=tolerance)
    out = np.empty_like(x)
    backend.mixture_into(x, beta, np.array([0.5, 0.3, 0.2]), out)
    np.testing.assert_allclose(out, 0.5 * p + 0.3 * q + 0.2 / n_classes, atol=tolerance)
    backend.softmax_into(x, beta, out)
    np.testing.assert_allclose(out, p, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saturated_rows_stay_finite_and_positive(backend, dtype):
    x = np.array([[0, 1e4, -1e4], [5, 5, 5], [-1e4, -1e4, 1e4]], dtype=dtype)
    out = np.empty_like(x)
    backend.softmax_into(x, 3.0, out)
    assert np.isfinite(out).all()
    assert (out > 0).all()
    assert np.isfinite(backend.nll_rows(x, np.array([0, 1, 2]), 3.0)).all()
    assert np.isfinite(backend.mixture_rows(x, np.array([0, 1, 2]), 3.0)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 3, 17])
def test_log_odds_match_exact_arithmetic(backend, dtype, n_classes):
    x = make_problem(40, n_classes, sharpness=20.0, seed=3, dtype=dtype)[0]
    exact = x.astype(np.longdouble)
    e = np.exp(exact - exact.max(axis=1, keepdims=True))
    others = np.stack([np.delete(e, k, axis=1).sum(axis=1) for k in range(n_classes)], axis=1)
    total = e.sum(axis=1, keepdims=True)
    log_p, log_not = backend.log_odds_parts(x, -200.0, logits=True)
    np.testing.assert_allclose(log_p, np.maximum(np.log(e / total), -200).astype(float), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(log_not, np.maximum(np.log(others / total), -200).astype(float), rtol=1e-12, atol=1e-15)
    again = backend.log_odds_parts(np.log(e / total).astype(float), -200.0, logits=False)
    np.testing.assert_allclose(again[0], log_p, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(again[1], log_not, rtol=1e-9, atol=1e-15)


def test_log_odds_of_zeros_and_ones_are_at_the_floor(backend):
    with np.errstate(divide="ignore"):
        x = np.log(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]))
    log_p, log_not = backend.log_odds_parts(x, -50.0, logits=False)
    half = -np.log(2.0)
    np.testing.assert_allclose(log_p, [[0, -50, -50], [half, half, -50]], atol=1e-15)
    np.testing.assert_allclose(log_not, [[-50, 0, 0], [half, half, 0]], atol=1e-15)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_log_odds_of_logits_do_not_underflow(backend, n_classes):
    """Log-odds of thousands, whose probabilities are 0 in floating point, are exact without a floor."""
    x = np.random.default_rng(0).normal(size=(50, n_classes)) * 3000
    log_p, log_not = backend.log_odds_parts(x, -np.inf, logits=True)
    expected = x - logsumexp(x, axis=1, keepdims=True)
    others = np.stack([logsumexp(np.delete(expected, k, axis=1), axis=1) for k in range(n_classes)], axis=1)
    np.testing.assert_allclose(log_p, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(log_not, others, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_log_odds_of_columns_are_those_of_rows(backend, scale):
    x = np.random.default_rng(0).normal(size=(200, 7)) * scale
    x[:3, :2] = x[:3].max(axis=1, keepdims=True)  # ties of the largest entries
    log_p, log_not = backend.log_odds_parts(x, -60.0, logits=True)
    top, norm = x.argmax(axis=1), logsumexp(x, axis=1)
    u = np.ascontiguousarray(x[:, 2:5].T)
    found = backend.log_odds_of_columns(u, norm, log_not[np.arange(200), top], -60.0)
    np.testing.assert_allclose(u, log_p[:, 2:5].T, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found, log_not[:, 2:5].T, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("loss", ["nll", "brier"])
@pytest.mark.parametrize("two", [True, False])
def test_sums_of_logistic_fits_match_the_formulas(backend, loss, two):
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 3, 50)) * 10
    positive, weight = rng.random((3, 50)) < 0.3, rng.random(50)
    theta, targets = rng.normal(size=(3, 3)), rng.random((2, 3))
    if not two:
        theta[:, 1] = 0
    features = np.stack([first, second, np.ones_like(first)], axis=2)
    t = np.where(positive, targets[1][:, None], targets[0][:, None])
    x = np.einsum("kmp,kp->km", features, theta)
    p = 1 / (1 + np.exp(-x))
    if loss == "nll":
        value, slope, curve = -t * np.log(p) - (1 - t) * np.log(1 / (1 + np.exp(x))), p - t, p * (1 - p)
    else:
        value, slope, curve = (p - t) ** 2, 2 * (p - t) * p * (1 - p), 2 * (p * (1 - p)) ** 2
    hessian = np.einsum("m,km,kmp,kmq->kpq", weight, curve, features, features)
    expected = np.hstack(
        [
            (value @ weight)[:, None],
            np.einsum("m,km,kmp->kp", weight, slope, features),
            hessian[:, *np.triu_indices(3)],
        ]
    )
    used = np.arange(10) if two else np.array([0, 1, 3, 4, 6, 9])
    found = backend.logistic_sums(first, second if two else None, positive, weight, theta, targets, loss)
    np.testing.assert_allclose(found[:, used], expected[:, used], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("steps", [True, False])
def test_piecewise_functions_are_exact_at_and_between_knots(backend, dtype, steps):
    rng = np.random.default_rng(0)
    knots = np.unique(np.concatenate([rng.random(50) ** 8, rng.random(20), [0.25]]).astype(dtype).astype(np.float64))
    values = np.sort(rng.random(len(knots)))
    slopes = np.zeros(len(knots)) if steps else rng.random(len(knots))
    function = Piecewise(knots, values, slopes, 0.125)
    x = np.concatenate([rng.random(500), rng.random(500) ** 8, knots, [0.0, 1.0, np.finfo(dtype).tiny]]).astype(dtype)
    x = np.concatenate([x, np.nextafter(x, dtype(2)).clip(0, 1), np.nextafter(x, dtype(-1)).clip(0, 1)])[:, None]
    out, many = np.empty(x.shape), np.tile(x, (40, 1))  # many numbers have a finer table
    backend.interpolate_into(x, function, out)
    again = np.empty(many.shape)
    backend.interpolate_into(many, function, again)
    np.testing.assert_array_equal(again, np.tile(out, (40, 1)))
    exact = x.astype(np.float64)
    k = (knots[None, :] <= exact).sum(axis=1, keepdims=True) - 1
    expected = np.where(k < 0, 0.125, values[k] + slopes[k] * (exact - knots[k]))
    np.testing.assert_allclose(out, expected, rtol=1e-14, atol=1e-16)
    np.testing.assert_allclose(function(exact), expected, rtol=1e-14, atol=1e-16)
    two = np.empty((len(x), 2))
    offsets = np.array([0, 30, len(knots)])
    backend.interpolate_columns_into(np.hstack([x, x]), knots, values, slopes, np.array([0.5, 0.75]), offsets, two)
    for column, span in enumerate((slice(0, 30), slice(30, None))):
        part = Piecewise(knots[span], values[span], slopes[span], (0.5, 0.75)[column])
        np.testing.assert_allclose(two[:, column], part(exact[:, 0]), rtol=1e-14, atol=1e-16)
    for few in np.array_split(np.arange(len(x)), 100):  # so few rows that all columns may be searched together
        again = np.empty((len(few), 2))
        pair = np.hstack([x, x])[few]
        backend.interpolate_columns_into(pair, knots, values, slopes, np.array([0.5, 0.75]), offsets, again)
        np.testing.assert_array_equal(again, two[few])
    # Columns with few knots, of different number.
    spans = [slice(0, 1), slice(1, 13), slice(13, 20)]
    wide, ends, left = np.hstack([x, x, x]), np.array([0, 1, 13, 20]), np.array([0.5, 0.0, 0.75])
    three = np.empty(wide.shape)
    backend.interpolate_columns_into(wide, knots[:20], values[:20], slopes[:20], left, ends, three)
    for column, span in enumerate(spans):
        part = Piecewise(knots[span], values[span], slopes[span], left[column])
        np.testing.assert_allclose(three[:, column], part(exact[:, 0]), rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize(("dtype", "shift"), [(np.float32, 14), (np.float32, 20), (np.float64, 43), (np.float64, 49)])
def test_lookup_tables_bracket_every_number(dtype, shift):
    rng = np.random.default_rng(1)
    edges = [0.0, 5e-324, 1e-50, 0.25, np.nextafter(0.25, 1), np.nextafter(0.5, 0), 0.5, 1.0, 1.0 + 1e-7]
    for knots in (np.sort(rng.random(300) ** 5), np.array(edges), np.array([0.3])):
        x = np.concatenate([rng.random(1000) ** 5, [0.0, 1.0], np.minimum(knots, 1)]).astype(dtype)
        x = np.concatenate([x, np.nextafter(x, dtype(0)), np.minimum(np.nextafter(x, dtype(2)), dtype(1))])
        found = positions(x, knots, build_lookup(knots, np.dtype(dtype), shift))
        np.testing.assert_array_equal(found, np.searchsorted(knots, x.astype(np.float64), side="right") - 1)


def test_backend_is_chosen_once_for_all_sizes():
    assert kernels.choose_backend() == BACKENDS[-1]
    assert kernels.choose_backend("numpy") == "numpy"
    assert kernels.load("numpy") is _numpy
    with pytest.raises(ValueError, match="backend"):
        kernels.choose_backend("cuda")


def test_compiled_backend_is_refused_where_it_is_not_built(monkeypatch):
    monkeypatch.setattr(kernels, "compiled_available", lambda: False)
    assert kernels.choose_backend() == "numpy"
    with pytest.raises(ValueError, match="no C compiler"):
        engine(backend="compiled")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (40, 2), (40, 10), (3, 1000)])
def test_extremes_and_winners(backend, dtype, shape):
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=shape) * 3).astype(dtype)  # with ties
    sums = x.sum(axis=1)
    np.testing.assert_allclose(backend.extremes(x), [x.min(), x.max(), sums.min(), sums.max()], rtol=1e-5)
    np.testing.assert_array_equal(backend.winners(x), x.argmax(axis=1))
    for bad in (np.nan, np.inf, -np.inf):
        spoilt = x.copy()
        spoilt.flat[spoilt.size // 2] = bad
        assert not np.isfinite(backend.extremes(spoilt)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 5, 100])
def test_lost_winners_are_raised_and_nothing_else_changes(backend, dtype, n_classes):
    rng = np.random.default_rng(1)
    given = rng.random((60, n_classes)).astype(dtype)
    out = rng.random((60, n_classes)).astype(dtype)
    out[:20] = given[:20]
    out[20:30] = 0.5  # ties
    before = out.copy()
    backend.keep_winners(given, out)
    winner = given.argmax(axis=1)
    np.testing.assert_array_equal(out.argmax(axis=1), winner)
    changed = out != before
    np.testing.assert_array_equal(changed.any(axis=1), before.argmax(axis=1) != winner)
    assert (changed.sum(axis=1) <= 1).all()
    np.testing.assert_array_equal(out[changed], np.nextafter(before.max(axis=1), dtype(2))[changed.any(axis=1)])


@pytest.mark.parametrize("n_classes", [2, 5, 100])
def test_rows_are_normalised_and_mixed(backend, n_classes):
    g = np.random.default_rng(2).random((30, n_classes))
    g[[3, 17]] = 0
    expected = 0.9 * g / np.maximum(g.sum(axis=1, keepdims=True), 1e-300) + 0.1 / n_classes
    expected[[3, 17]] = 0
    assert backend.normalise(g, 0.1) == 2
    np.testing.assert_allclose(g, expected, rtol=1e-13)
    np.testing.assert_array_equal(backend.leads(g), g - g.max(axis=1, keepdims=True))


@pytest.mark.parametrize("n_classes", [3, 16, 33, 100])
@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.4, 0.4, 0.2), (1e-3, 0.0, 0.999)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_kernels_keep_winners_that_lead_by_one_unit(backend, dtype, weights, n_classes):
    rng = np.random.default_rng(n_classes)
    for n in (3, 200):
        x = (10 * rng.standard_normal((n, n_classes))).astype(dtype)
        rows, first, second = np.arange(n), *rng.integers(0, n_classes, (2, n))
        x[rows, first] = x.max(axis=1)
        x[rows, second] = np.nextafter(x[rows, first], dtype(np.inf))
        out = np.empty_like(x)
        backend.mixture_into(x, 0.3, np.array(weights), out)
        np.testing.assert_array_equal(out.argmax(axis=1), x.argmax(axis=1))


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-6), (np.float64, 1e-13)])
@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("n_classes", [2, 10, 300])
def test_what_metrics_read_of_a_row(backend, dtype, tolerance, logits, n_classes):
    x, y = make_problem(50, n_classes, sharpness=4.0, seed=4, dtype=dtype)
    p = softmax(x.astype(np.float64))
    if not logits:
        x = p.astype(dtype)
    rows = np.arange(50)
    error = np.square(p - np.eye(n_classes)[y]).sum(axis=1)
    expected = np.stack([np.log(p[rows, y]), error]) if logits else error
    found = backend.label_rows(x, y) if logits else backend.squared_errors(x, y)
    np.testing.assert_allclose(found, expected, rtol=20 * tolerance, atol=tolerance)


@pytest.mark.skipif(not kernels.compiled_available(), reason="needs the compiled kernels")
def test_compiled_kernels_refuse_arrays_that_do_not_fit():
    """No mistake in Python can make C read or write beyond an array."""
    compiled = kernels.load("compiled")._compiled
    x, y = np.zeros((4, 3)), np.zeros(4, np.intp)
    for call in (
        lambda: compiled.extremes(x, np.empty(3)),
        lambda: compiled.extremes(np.zeros((0, 3)), np.empty(4)),
        lambda: compiled.keep_winners(x, np.zeros((4, 2))),
        lambda: compiled.nll_rows(x, y + 3, 1.0, np.empty((3, 4))),
        lambda: compiled.nll_rows(x, y - 1, 1.0, np.empty((3, 4))),
        lambda: compiled.nll_rows(x, y[:3], 1.0, np.empty((3, 4))),
        lambda: compiled.label_rows_of_logits(x, y + 7, np.empty(3), np.empty((2, 4))),
    ):
        with pytest.raises(ValueError, match="do not fit"):
            call()
    for call in (
        lambda: compiled.nll_rows(x, y, 1.0),
        lambda: compiled.nll_rows(x.astype(int), y, 1.0, np.empty((3, 4))),
        lambda: compiled.mixture_into(x, 1.0, 1.0, 0.0, 0.0, x.astype(np.float32)),
        lambda: compiled.nll_rows(x, y, "1", np.empty((3, 4))),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises((BufferError, ValueError)):
        compiled.winners(np.zeros((4, 6))[:, ::2], y)
    frozen = np.zeros((4, 3))
    frozen.flags.writeable = False
    with pytest.raises((BufferError, ValueError)):
        compiled.mixture_into(x, 1.0, 1.0, 0.0, 0.0, frozen)


@pytest.mark.skipif(not kernels.compiled_available(), reason="needs the compiled kernels")
def test_backends_agree_on_fits():
    x, y = make_problem(8000, 20, dtype=np.float32, seed=5)
    for name in ("ts", "ets", "irm", "irova", "irova-ts"):
        predictions = []
        for backend in BACKENDS:
            with engine(backend=backend):
                predictions.append(calibrator(name, logits=True).fit(x, y).predict_proba(x))
        # A row next to a step may fall on its other side.
        difference = np.abs(predictions[0] - predictions[1])
        assert np.quantile(difference, 1.0 if name in ("ts", "ets") else 0.999) < 1e-6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ties", [False, True])
def test_gaps_hold_what_lies_between_knots(backend, dtype, weighted, ties):
    rng = np.random.default_rng(1)
    x = (rng.random((200, 7)) ** 6).astype(dtype)
    x[0, :4] = -0.0, 0.0, 1.0, 1 + 1e-6
    values = np.unique(np.append(rng.choice(x, 60) if ties else rng.random(400) ** 4, [0.0] if ties else []))
    values = values[values > 0].astype(dtype).astype(np.float64)
    row_weight = rng.random(200) if weighted else None
    found = np.zeros(len(values) + 1), np.zeros(len(values) + 1), np.full(len(values) + 1, -np.inf)
    for rows in (slice(0, 50), slice(50, 200)):
        part = None if row_weight is None else row_weight[rows]
        backend.add_gaps(np.ascontiguousarray(x[rows]), part, Knots(values), *found)
    gap = (values <= x.reshape(-1, 1).astype(np.float64)).sum(axis=1)
    weight = np.repeat(row_weight, 7) if weighted else np.ones(x.size)
    np.testing.assert_allclose(found[0], np.bincount(gap, weight, len(values) + 1), rtol=1e-12)
    sums = np.bincount(gap, weight * x.ravel(), len(values) + 1)
    np.testing.assert_allclose(found[1], sums, rtol=1e-6 if dtype == np.float32 else 1e-12)
    largest = [x.ravel()[gap == k].max(initial=-np.inf) for k in range(len(values) + 1)]
    np.testing.assert_array_equal(found[2], largest)


def test_gaps_without_knots(backend):
    weight = np.zeros(1)
    backend.add_gaps(np.full((3, 2), 0.5), None, Knots(np.empty(0)), weight, np.empty(0), np.empty(0))
    assert weight.tolist() == [6]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["plain", "tied", "saturated"])
def test_gaps_of_logits_are_those_of_probabilities_or_in_doubt(backend, kind, weighted):
    x, y = make_problem(300, 30, sharpness=3.0, dtype=np.float32)
    if kind == "tied":
        x = np.round(x)
    if kind == "saturated":
        x[:50] *= 1e4
    p = softmax(x)
    values = np.unique(p[np.arange(300), y])
    row_weight = np.arange(1.0, 301) if weighted else None
    found = np.zeros(len(values) + 1)
    unsure = backend.add_gaps_of_logits(x, y, row_weight, Knots(values), found)
    others = np.ones(x.shape, dtype=bool)
    others[np.arange(300), y] = False
    others[unsure] = False
    gap = np.searchsorted(values, p[others], side="right")
    weight = None if row_weight is None else np.repeat(row_weight, others.sum(axis=1))
    np.testing.assert_array_equal(found, np.bincount(gap, weight, len(values) + 1))
    if kind == "plain":
        assert not unsure.any()
    if kind == "tied":  # a tie with a knot is never decided by rounding
        tied = (p[:, :, None] == values).any(axis=2)
        tied[np.arange(300), y] = False
        assert unsure[tied.any(axis=1)].all()


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("n_classes", [2, 3, 1000])
@pytest.mark.parametrize("weighted", [True, False])
def test_sums_of_diagonal_maps_match_the_formulas(backend, dtype, tolerance, n_classes, weighted):
    rng = np.random.default_rng(n_classes)
    s = np.ascontiguousarray(-rng.gamma(2.0, 2.0, (n_classes, 37)), dtype=dtype)
    slope, intercept, a, b = rng.normal(size=(4, n_classes))
    weight = rng.random(37).astype(dtype) if weighted else None
    x, w = s.astype(np.float64), np.ones(37) if weight is None else weight.astype(np.float64)
    u = slope[:, None] * x + intercept[:, None]
    p = softmax(u.T).T
    found, top, total = backend.diagonal_softmax(s, slope, intercept)
    np.testing.assert_allclose(found, p, atol=tolerance)
    np.testing.assert_allclose(top + np.log(total), logsumexp(u, axis=0), rtol=tolerance, atol=tolerance)
    p = found.astype(np.float64)
    z = a[:, None] * x + b[:, None]
    z = w * p * (z - (p * z).sum(axis=0))
    expected = [(z * x).sum(axis=1), z.sum(axis=1)]
    np.testing.assert_allclose(backend.diagonal_product(s, found, a, b, weight), expected, atol=20 * tolerance)
    sums = [(w * p * x).sum(axis=1), (w * p).sum(axis=1)]
    np.testing.assert_allclose(backend.diagonal_sums(s, found, weight, curved=False), sums, atol=20 * tolerance)
    q = w * p * (1 - p)
    sums = [(q * x * x).sum(axis=1), (q * x).sum(axis=1), q.sum(axis=1)]
    np.testing.assert_allclose(backend.diagonal_sums(s, found, weight, curved=True), sums, atol=100 * tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 3e-6), (np.float64, 1e-12)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [5, 512, 1100])
def test_vector_kernels_on_rows_are_those_of_columns(backend, dtype, tolerance, weighted, n_classes):
    """What vector scaling reads of rows as they are given is what it reads of scaled columns."""
    rng = np.random.default_rng(0)
    x, y = make_problem(19, n_classes, seed=4, dtype=dtype)
    w = rng.random(19) if weighted else None
    slope, intercept, a, b = 1 + 0.2 * rng.normal(size=n_classes), *rng.normal(size=(3, n_classes))
    exact = x.astype(np.float64)
    s = np.ascontiguousarray(0.7 * (exact - logsumexp(exact, axis=1, keepdims=True)).T)
    reference = kernels.load("numpy")
    p, top, total = reference.diagonal_softmax(s, slope, intercept)
    log_p = (slope[:, None] * s + intercept[:, None] - top - np.log(total))[y, np.arange(19)]
    for curved in (False, True):
        label, found = backend.vector_sums(x, y, w, 0.7, slope, intercept, curved=curved)
        np.testing.assert_allclose(label, [log_p, s[y, np.arange(19)]], atol=40 * tolerance)
        expected = reference.diagonal_sums(s, p, w, curved=curved)
        np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())
    found, expected = (
        backend.vector_product(x, w, 0.7, slope, intercept, a, b),
        reference.diagonal_product(s, p, a, b, w),
    )
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 15, 16, 17, 31, 64, 65, 100, 256, 257, 300, 319, 1000])
def test_the_first_of_equal_entries_wins(backend, dtype, n_classes):
    """Rows are read in vectors and pieces of several lengths; ties may be anywhere in them."""
    rng = np.random.default_rng(n_classes)
    x = rng.integers(-2, 3, (400, n_classes)).astype(dtype)
    x[np.arange(400), rng.integers(0, n_classes, 400)] = 3
    x[np.arange(400), rng.integers(0, n_classes, 400)] = 3
    np.testing.assert_array_equal(backend.winners(x), x.argmax(axis=1))
    x[:, -1] = 4
    np.testing.assert_array_equal(backend.winners(x), n_classes - 1)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("n_classes", [3, 10, 15, 16, 17, 31, 32, 33, 100, 1100])
def test_rows_of_any_length_match_the_formulas(backend, dtype, tolerance, n_classes):
    x, y = make_problem(37, n_classes, sharpness=4.0, seed=2, dtype=dtype)
    u, rng = x.astype(np.float64), np.random.default_rng(1)
    p, rows = softmax(0.7 * u), np.arange(37)
    np.testing.assert_allclose(backend.nll_rows(x, y, 0.7)[0], np.log(p[rows, y]), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(backend.brier_rows(x, y, 0.7)[2], (p * p).sum(axis=1), rtol=tolerance)
    parts = backend.mixture_rows(x, y, 0.7)
    np.testing.assert_allclose(parts[8], (p * softmax(u)).sum(axis=1), rtol=tolerance)
    slope, intercept = rng.uniform(0.5, 1.5, n_classes), rng.normal(size=n_classes)
    log_p = np.log(softmax(u))
    out = np.empty_like(x)
    backend.linear_softmax_into(x, slope, intercept, out)
    np.testing.assert_allclose(out, softmax(slope * log_p + intercept), atol=tolerance)
    matrix = np.diag(slope) + 0.1 * rng.normal(size=(n_classes, n_classes)) / n_classes
    backend.linear_softmax_into(x, matrix, intercept, out)
    np.testing.assert_allclose(out, softmax(log_p @ matrix.T + intercept), atol=3 * tolerance)
    low, high, least, most = backend.extremes(x)
    assert (low, high) == (x.min(), x.max())
    np.testing.assert_allclose([least, most], [u.sum(axis=1).min(), u.sum(axis=1).max()], rtol=tolerance, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [10, 15, 16, 33, 100])
@pytest.mark.skipif("compiled" not in BACKENDS, reason="without compiled kernels")
def test_results_of_a_row_depend_on_the_row_alone(dtype, n_classes):
    compiled = kernels.load("compiled")
    x, y = make_problem(37, n_classes, seed=4, dtype=dtype)
    slope, intercept = np.linspace(0.5, 1.5, n_classes), np.linspace(-1, 1, n_classes)
    weights = np.array([0.5, 0.3, 0.2])

    def applied(rows):
        found = [np.empty_like(rows) for _ in range(3)]
        compiled.softmax_into(rows, 0.7, found[0])
        compiled.mixture_into(rows, 0.7, weights, found[1])
        compiled.linear_softmax_into(rows, slope, intercept, found[2])
        return np.stack(found)

    together, alone = applied(x), np.concatenate([applied(x[i : i + 1]) for i in range(37)], axis=1)
    np.testing.assert_array_equal(together, alone)
    for kernel in (compiled.nll_rows, compiled.brier_rows, compiled.mixture_rows):
        each = np.concatenate([kernel(x[i : i + 1], y[i : i + 1], 0.7) for i in range(37)], axis=1)
        np.testing.assert_array_equal(kernel(x, y, 0.7), each)


@pytest.mark.parametrize("sizes", [[3, 3], [1, 70, 5], [2] * 9])
def test_functions_of_columns_are_searched_exactly(backend, sizes):
    rng = np.random.default_rng(0)
    knots = [np.sort(rng.random(size)) for size in sizes]
    values, slopes, left = rng.random(sum(sizes)), rng.random(sum(sizes)), rng.random(len(sizes))
    offsets = np.cumsum([0, *sizes])
    x = rng.random((150, len(sizes)))
    x[0], x[1], x[2] = 0.0, 1.0, [column[-1] for column in knots]
    out = np.empty(x.shape)
    backend.interpolate_columns_into(x, np.concatenate(knots), values, slopes, left, offsets, out)
    for k, column in enumerate(knots):
        at = np.searchsorted(column, x[:, k], side="right") - 1
        place = offsets[k] + np.maximum(at, 0)
        expected = values[place] + slopes[place] * (x[:, k] - column[np.maximum(at, 0)])
        np.testing.assert_allclose(out[:, k], np.where(at < 0, left[k], expected), rtol=1e-15)

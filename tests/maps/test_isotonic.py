import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from sklearn.isotonic import IsotonicRegression

from mixnmatch import Isotonic, OneVsAll, Pooled, TemperatureScaling, accuracy_preserved, engine, load_sample
from mixnmatch._engine.kernels import compiled_available
from mixnmatch.maps import Identity
from tests.conftest import make_problem, softmax


def exact_pav(scores, labels, weight):
    """Pool adjacent violators on all pairs, ties merged first: distinct scores and the fit at them."""
    distinct, index = np.unique(scores, return_inverse=True)
    total = np.bincount(index, weight)
    mean = np.bincount(index, weight * labels) / total
    return distinct, isotonic_regression(mean, weights=total).x


def drawn(seed, n, n_classes, ties):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n_classes, 0.5), n)
    if ties:
        p = np.floor(p * 8)
        p[:, 0] = 8 - p[:, 1:].sum(axis=1)
        p /= 8
    return p, rng.integers(0, n_classes, n), rng.integers(1, 5, n).astype(float)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 60),
    n_classes=st.integers(2, 6),
    ties=st.booleans(),
    weighted=st.booleans(),
)
def test_pooled_equals_pav_on_all_pairs(seed, n, n_classes, ties, weighted):
    p, y, weight = drawn(seed, n, n_classes, ties)
    fitted = Pooled(Isotonic()).fit(p, y, weight if weighted else None)
    labels = np.eye(n_classes)[y].ravel()
    spread = np.repeat(weight, n_classes) if weighted else np.ones(p.size)
    distinct, expected = exact_pav(p.ravel(), labels, spread)
    np.testing.assert_allclose(fitted.map_.functions()[0](distinct), expected, atol=1e-12)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), n_classes=st.integers(3, 5), ties=st.booleans())
def test_one_vs_all_equals_pav_for_each_class(seed, n, n_classes, ties):
    p, y, weight = drawn(seed, n, n_classes, ties)
    fitted = OneVsAll(Isotonic()).fit(p, y, weight)
    for k, function in enumerate(fitted.map_.functions()):
        distinct, expected = exact_pav(p[:, k], (y == k).astype(float), weight)
        np.testing.assert_allclose(function(distinct), expected, atol=1e-12)


@given(seed=st.integers(0, 10**6), n=st.integers(2, 60))
def test_linear_shape_is_that_of_scikit_learn(seed, n):
    rng = np.random.default_rng(seed)
    z, y = rng.random(n), rng.integers(0, 2, n)
    ours = Isotonic(shape="linear").fit(z, y).functions()[0]
    theirs = IsotonicRegression(out_of_bounds="clip").fit(z, y)
    x = np.concatenate([z, rng.random(200)])
    np.testing.assert_allclose(ours(x), theirs.predict(x), atol=1e-9)


def test_real_scores_agree_with_pav_on_all_pairs():
    sample = load_sample()
    p = softmax(sample.logits_cal)
    fitted = Pooled(Isotonic()).fit(p, sample.labels_cal)
    distinct, expected = exact_pav(p.ravel(), np.eye(10)[sample.labels_cal].ravel(), np.ones(p.size))
    np.testing.assert_allclose(fitted.map_.functions()[0](distinct), expected, atol=1e-12)
    single = p.astype(np.float32)
    fitted = Pooled(Isotonic()).fit(single, sample.labels_cal)
    distinct, expected = exact_pav(single.ravel().astype(float), np.eye(10)[sample.labels_cal].ravel(), np.ones(p.size))
    np.testing.assert_allclose(fitted.map_.functions()[0](distinct), expected, atol=1e-12)


def test_centred_shape_runs_through_the_centres_of_blocks():
    z, y = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.8]), np.array([0, 0, 1, 0, 1, 1])
    function = Isotonic(shape="centred").fit(z, y).functions()[0]
    # Blocks: {.1, .2} at 0, {.3, .4} at 1/2, {.6, .8} at 1; their centres .15, .35, .7.
    np.testing.assert_allclose(
        function(np.array([0.0, 0.15, 0.25, 0.35, 0.525, 0.7, 1.0])), [0, 0, 0.25, 0.5, 0.75, 1, 1]
    )


@given(seed=st.integers(0, 10**6), shape=st.sampled_from(["step", "linear", "centred"]), strict=st.booleans())
def test_functions_never_fall(seed, shape, strict):
    p, y, weight = drawn(seed, 40, 3, ties=bool(seed % 2))
    function = Pooled(Isotonic(shape=shape, strict=strict)).fit(p, y, weight).map_.functions()[0]
    x = np.unique(np.concatenate([np.linspace(0, 1, 500), p.ravel(), function.knots]))
    rises = np.diff(function(x))
    assert (rises >= 0).all()
    if strict:
        assert (rises[np.diff(x) > 1e-6] > 0).all()


def test_smoothing_off_is_the_papers_map():
    p, y, _ = drawn(3, 50, 4, ties=False)
    fitted = Pooled(Isotonic(strict=True), smoothing=0).fit(p, y)
    distinct, g = exact_pav(p.ravel(), np.eye(4)[y].ravel(), np.ones(p.size))
    strict = g[np.searchsorted(distinct, p)] + 1e-9 * p
    np.testing.assert_allclose(fitted.predict_proba(p), strict / strict.sum(axis=1, keepdims=True), atol=1e-12)
    one_vs_all = OneVsAll(Isotonic(), smoothing=0).fit(p, y).predict_proba(p)
    assert (one_vs_all == 0).any()


def test_smoothing_keeps_every_entry_above_its_floor():
    p, y, _ = drawn(4, 50, 4, ties=False)
    for made in (Pooled(Isotonic(strict=True)), OneVsAll(Isotonic())):
        assert made.fit(p, y).predict_proba(p).min() >= 1 / (51 * 4) * (1 - 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_multi_class_isotonic_keeps_near_ties(dtype):
    logits, y = make_problem(500, 5, dtype=dtype)
    p = softmax(logits).astype(dtype)
    p /= p.sum(axis=1, keepdims=True, dtype=dtype)
    fitted = Pooled(Isotonic(strict=True)).fit(p, y)
    row = np.full((1, 5), 0.2, dtype=dtype)
    row[0, 3] = np.nextafter(dtype(0.2), dtype(1))
    assert fitted.predict_proba(row).argmax() == 3
    assert accuracy_preserved(p, fitted.predict_proba(p))


def test_gaps_do_not_depend_on_the_cut():
    p, y, weight = drawn(5, 300, 4, ties=True)
    for used in (None, weight):
        whole = Pooled(Isotonic(shape="centred")).fit(p, y, used)
        with engine(block_bytes=500, threads=3):
            cut = Pooled(Isotonic(shape="centred")).fit(p, y, used)
        np.testing.assert_allclose(cut.map_.values_, whole.map_.values_, rtol=1e-12)


def test_signed_zeros_and_sums_a_hair_above_one():
    p = np.array([[-0.0, 1.0], [0.3, 0.7], [0.6, 0.4]])
    fitted = Pooled(Isotonic(strict=True)).fit(p, [1, 1, 0])
    assert np.isfinite(fitted.predict_proba(np.array([[-0.0, 1.0], [1.0, 0.0]]))).all()
    single = np.array([[1 + 1e-6, 0.0]], dtype=np.float32)
    assert np.isfinite(fitted.predict_proba(single)).all()


def test_binary_map_refuses_many_classes():
    with pytest.raises(ValueError, match="OneVsAll"):
        Isotonic().fit(np.full((4, 3), 1 / 3), [0, 1, 2, 0])
    with pytest.raises(ValueError, match="shape"):
        Isotonic(shape="smooth").fit([0.5], [1])
    with pytest.raises(TypeError, match="binary"):
        Pooled(TemperatureScaling()).fit(np.full((4, 3), 1 / 3), [0, 1, 2, 0])


class RoundsByBlock(Identity):
    """A map whose last digits depend on the size of the block, as those of a matrix product do."""

    def _log_proba(self, block):
        return block.log_probabilities() - 1e-13 * len(block.values)


def test_positives_stay_in_their_own_gap_after_a_map_that_rounds_by_block():
    logits, y = make_problem(6000, 40, sharpness=1.5)
    chain = (RoundsByBlock(logits=True) >> Pooled(Isotonic())).fit(logits, y)
    plain = Pooled(Isotonic(), logits=True).fit(logits, y)
    np.testing.assert_allclose(chain.predict_proba(logits), plain.predict_proba(logits), atol=1e-6)


@pytest.mark.skipif(not compiled_available(), reason="needs the compiled kernels")
@pytest.mark.parametrize("shape", ["step", "linear", "centred"])
@pytest.mark.parametrize("kind", ["plain", "tied", "repeated", "saturated"])
@pytest.mark.parametrize("weighted", [False, True])
def test_compiled_kernels_give_the_same_function_of_logits(shape, kind, weighted):
    logits, y = make_problem(700, 12, sharpness=2.5, dtype=np.float32)
    if kind == "tied":
        logits = np.round(logits)
    if kind == "repeated":
        logits, y = np.tile(logits, (2, 1)), np.concatenate([y, y[::-1]])
    if kind == "saturated":
        logits[::3] *= 1e4
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(float) if weighted else None
    made = []
    for backend in ("numpy", "compiled"):
        with engine(backend=backend):
            made.append(Pooled(Isotonic(shape=shape), logits=True).fit(logits, y, weight).map_)
    np.testing.assert_allclose(made[1].knots_, made[0].knots_, rtol=1e-13 if shape == "centred" else 0)
    np.testing.assert_allclose(made[1].values_, made[0].values_, rtol=1e-13)
    if shape == "step":
        p, labels = softmax(logits), np.eye(12)[y].ravel()
        distinct, expected = exact_pav(p.ravel(), labels, np.ones(p.size) if weight is None else np.repeat(weight, 12))
        np.testing.assert_allclose(made[1].functions()[0](distinct), expected, atol=1e-12)


@pytest.mark.parametrize("shape", ["step", "linear", "centred"])
def test_nothing_is_known_below_all_scores(shape):
    """Where no negative is below the first positive, the first value goes on to the left, as in scikit-learn."""
    rng = np.random.default_rng(0)
    s = rng.choice([0.02, 0.05, 0.1, 0.3], 5000, p=[0.6, 0.2, 0.15, 0.05])
    fitted = Isotonic(shape=shape).fit(s, rng.random(5000) < s / 2)
    below, at = fitted.predict_proba([0.019, 0.02])[:, 1]
    assert below == pytest.approx(at)
    assert at == pytest.approx(0.01, abs=0.003)

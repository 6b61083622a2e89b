"""Promises that every map keeps: the same tests for all short names and for nested expressions."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import mixnmatch as mm
from mixnmatch import accuracy_preserved, calibrator, calibrators, engine
from mixnmatch.maps.normalised_isotonic import NormalisedIsotonic
from mixnmatch.maps.piecewise import PiecewiseMap
from tests.conftest import make_problem, nll, softmax

NAMES = [line.name for line in calibrators()]
# What has many parameters or is slow to fit is tried on fewer drawn examples.
SLOW = ("gpc", "ensemble-beta", "ensemble-platt", "matrix", "dirichlet", "auto", "bcts-auto")
QUICK = [name for name in NAMES if name not in SLOW]
EXPRESSIONS = {
    "sms-ets-irm": lambda **k: (
        mm.maps.StructuredMatrixScaling(**k) >> mm.EnsembleTemperatureScaling() >> mm.Pooled(mm.Isotonic(strict=True))
    ),
    "crossed": lambda **k: mm.Composition(mm.maps.VectorScaling(**k), mm.Pooled(mm.Isotonic(shape="centred")), cv=3),
    "pooled-beta": lambda **k: mm.Pooled(mm.maps.BetaScaling(), **k),
    "pooled-histogram": lambda **k: mm.Pooled(mm.maps.HistogramBinning(bins=7, strategy="width"), **k),
    "pooled-bbq": lambda **k: mm.Pooled(mm.maps.BayesianBinning(), **k),
    "pooled-spline": lambda **k: mm.Pooled(mm.maps.SplineCalibration(), **k),
    "pooled-kernel": lambda **k: mm.Pooled(mm.maps.KernelCalibration(), **k),
    "pooled-venn-abers": lambda **k: mm.Pooled(mm.maps.VennAbers(), **k),
    "irm-linear": lambda **k: mm.Pooled(mm.Isotonic(shape="linear", strict=True), **k),
    "two-free": lambda **k: mm.Ensemble("temperature", free=2, **k),
}
ALL = NAMES + list(EXPRESSIONS)


def build(name, **options):
    return EXPRESSIONS[name](**options) if name in EXPRESSIONS else calibrator(name, **options)


def is_distribution(p, n, n_classes):
    assert p.shape == (n, n_classes)
    assert np.isfinite(p).all()
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1, dtype=np.float64), 1, atol=1e-5 if p.dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("name", ALL)
def test_gives_distributions_and_keeps_promises(name, problem):
    logits, y = problem
    fitted = build(name, logits=True).fit(logits, y)
    p = fitted.predict_proba(logits)
    is_distribution(p, *logits.shape)
    if name != "identity":
        assert np.isfinite(nll(p, y))
    if fitted.accuracy_preserving:
        assert accuracy_preserved(logits, p)


@pytest.mark.parametrize("name", ALL)
def test_logits_and_their_probabilities_give_the_same_map(name, problem):
    logits, y = problem
    from_logits = build(name, logits=True).fit(logits, y).predict_proba(logits)
    p = softmax(logits)
    from_probabilities = build(name).fit(p, y).predict_proba(p)
    np.testing.assert_allclose(from_logits, from_probabilities, atol=2e-5)


@pytest.mark.parametrize("name", [n for n in ALL if n not in ("crossed", "auto", "bcts-auto")])
def test_weights_are_repetitions(name):
    logits, y = make_problem(120, 3, seed=1)
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = build(name, logits=True).fit(logits, y, weight).predict_proba(logits)
    repeated = build(name, logits=True).fit(np.repeat(logits, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted, repeated.predict_proba(logits), atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_blocks_and_threads_do_not_matter(name):
    logits, y = make_problem(300, 3, seed=2)
    whole = build(name, logits=True).fit(logits, y).predict_proba(logits)
    with engine(block_bytes=1000, threads=3):
        cut = build(name, logits=True).fit(logits, y).predict_proba(logits)
    np.testing.assert_allclose(cut, whole, atol=1e-5)


def has_steps(map_):
    """Whether a map, or one inside of it, is made of a function with knots."""
    parts = [map_, *map_.get_params(deep=True).values()]
    return any(isinstance(part, PiecewiseMap | NormalisedIsotonic) for part in parts)


@pytest.mark.parametrize("name", ALL)
def test_float32_agrees_with_float64(name):
    logits, y = make_problem(300, 4, seed=3, dtype=np.float32)
    p32 = build(name, logits=True).fit(logits, y).predict_proba(logits)
    p64 = build(name, logits=True).fit(logits.astype(np.float64), y).predict_proba(logits.astype(np.float64))
    assert p32.dtype == np.float32
    assert p64.dtype == np.float64
    difference = np.abs(p32 - p64)
    # A step function may jump at a knot.
    assert (np.quantile(difference, 0.98) if has_steps(build(name)) else difference.max()) < 1e-5


@pytest.mark.parametrize("name", ALL)
def test_save_and_load_are_bit_exact(name, problem, tmp_path):
    logits, y = problem
    fitted = build(name, logits=True, **({} if name in EXPRESSIONS else {"classes": list("abcd")})).fit(
        logits, y if name in EXPRESSIONS else np.array(list("abcd"))[y]
    )
    fitted.save(tmp_path / "map.json")
    loaded = mm.load(tmp_path / "map.json")
    assert repr(loaded) == repr(fitted)
    np.testing.assert_array_equal(loaded.predict_proba(logits), fitted.predict_proba(logits))
    np.testing.assert_array_equal(loaded.classes_, fitted.classes_)
    for flag in ("accuracy_preserving", "injective"):
        assert getattr(loaded, flag) == getattr(fitted, flag)


@pytest.mark.parametrize("name", ALL)
def test_clone_and_parameters(name):
    made = build(name)
    copy = clone(made)
    assert repr(copy) == repr(made)
    assert set(copy.get_params()) == set(made.get_params())
    with pytest.raises(NotFittedError):
        copy.predict_proba([[0.5, 0.5]])
    assert "object at" not in repr(made)


@pytest.mark.parametrize("name", ALL)
def test_absent_classes_are_defined(name):
    logits, y = make_problem(200, 4, seed=4)
    y = np.minimum(y, 2)  # the last class never occurs
    p = build(name, logits=True).fit(logits, y).predict_proba(logits)
    is_distribution(p, *logits.shape)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_samples(name, n):
    logits, y = make_problem(n, 3, seed=5)
    p = build(name, logits=True).fit(logits, y).predict_proba(make_problem(20, 3, seed=6)[0])
    is_distribution(p, 20, 3)


@pytest.mark.parametrize("name", ALL)
def test_constant_scores(name):
    p = np.tile([0.2, 0.3, 0.5], (30, 1))
    fitted = build(name).fit(p, np.arange(30) % 3)
    is_distribution(fitted.predict_proba(p), 30, 3)


@pytest.mark.parametrize("name", ALL)
def test_separable_data(name):
    logits = np.eye(3)[np.arange(60) % 3] * 4.0
    p = build(name, logits=True).fit(logits, np.arange(60) % 3).predict_proba(logits)
    is_distribution(p, 60, 3)
    if name != "uniform":
        assert (p.argmax(axis=1) == np.arange(60) % 3).all()


@pytest.mark.parametrize("name", ALL)
def test_exact_zeros_and_ones(name):
    rng = np.random.default_rng(7)
    p = rng.dirichlet([0.3] * 3, 80)
    p[:30] = np.eye(3)[rng.integers(0, 3, 30)]
    p[30:50] = np.round(p[30:50] * 4) / 4
    p[30:50, 0] = 1 - p[30:50, 1:].sum(axis=1)
    p = np.abs(p)
    p /= p.sum(axis=1, keepdims=True)
    y = rng.integers(0, 3, 80)
    fitted = build(name).fit(p, y)
    q = fitted.predict_proba(p)
    is_distribution(q, 80, 3)
    if name != "identity":
        assert np.isfinite(nll(q, y)), "log loss stays finite with smoothing on"
    if fitted.accuracy_preserving:
        assert accuracy_preserved(p, q)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_logits(name, dtype):
    logits, y = make_problem(60, 3, seed=8)
    logits = (logits * 1e4).astype(dtype)
    fitted = build(name, logits=True).fit(logits, y)
    p = fitted.predict_proba(logits)
    is_distribution(p, 60, 3)
    if fitted.accuracy_preserving:
        assert accuracy_preserved(logits, p)


@pytest.mark.parametrize("name", ALL)
def test_vector_is_the_positive_class(name):
    rng = np.random.default_rng(9)
    z = rng.random(150)
    y = (rng.random(150) < z**2).astype(int)
    one = build(name).fit(z, y).predict_proba(z)
    two = build(name).fit(np.stack([1 - z, z], axis=1), y).predict_proba(np.stack([1 - z, z], axis=1))
    is_distribution(one, 150, 2)
    np.testing.assert_allclose(one, two, atol=1e-6)


@pytest.mark.parametrize("name", QUICK)
def test_many_classes(name):
    logits, y = make_problem(64, 300, seed=10, dtype=np.float32)
    is_distribution(build(name, logits=True).fit(logits, y).predict_proba(logits), 64, 300)


@pytest.mark.parametrize("name", [n for n in ALL if build(n).accuracy_preserving])
@given(data=st.data())
def test_accuracy_is_preserved_to_the_last_bit(name, data):
    """Near-ties of one unit in the last place, saturated rows and exact ties keep their np.argmax."""
    fitted = _fitted(name)
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    seed, scale = data.draw(st.integers(0, 10**6)), data.draw(st.sampled_from([1e-8, 1e-3, 1.0, 30.0, 1e4]))
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(64, 4)) * scale).astype(dtype)
    tied = rng.integers(0, 4, (64, 2))
    near = np.arange(64) % 2 == 0
    index = np.flatnonzero(near)
    top = rows[index].max(axis=1)
    rows[index, tied[index, 0]] = top
    rows[index, tied[index, 1]] = np.nextafter(top, dtype(np.inf))
    assert accuracy_preserved(rows, fitted.predict_proba(rows))


_CACHE = {}


def _fitted(name):
    if name not in _CACHE:
        logits, y = make_problem(300, 4, seed=11)
        _CACHE[name] = build(name, logits=True).fit(logits, y)
    return _CACHE[name]


@pytest.mark.parametrize("name", ["ts", "irm", "sms", "gpc", "crossed"])
def test_bad_input_changes_nothing(name, problem):
    logits, y = problem
    fitted = build(name, logits=True).fit(logits, y)
    before = fitted.predict_proba(logits)
    broken = logits.copy()
    broken[17, 2] = np.nan
    with pytest.raises(ValueError, match="row 17"):
        fitted.fit(broken, y)
    with pytest.raises(ValueError, match="row 17"):
        fitted.predict_proba(broken)
    with pytest.raises(ValueError, match="fitted with 4"):
        fitted.predict_proba(logits[:, :3])
    np.testing.assert_array_equal(fitted.predict_proba(logits), before)


@pytest.mark.parametrize("name", NAMES)
def test_constructor_only_stores_parameters(name):
    made = build(name)
    for key in inspect.signature(type(made).__init__).parameters:
        if key != "self":
            assert hasattr(made, key)
    assert not [key for key in vars(made) if key.endswith("_")]


def test_flags_of_combinations():
    ts, strict = mm.TemperatureScaling(), mm.Pooled(mm.Isotonic(strict=True))
    assert (ts >> strict).accuracy_preserving
    assert (ts >> strict).injective
    assert not mm.Pooled(mm.Isotonic()).accuracy_preserving
    assert not (ts >> mm.OneVsAll(mm.Isotonic())).accuracy_preserving
    assert mm.Pooled(mm.maps.BetaScaling()).accuracy_preserving
    assert mm.Isotonic(strict=True).strictly_increasing
    assert not mm.maps.Uniform().accuracy_preserving
    kept = {line.name for line in calibrators() if line.accuracy_preserving}
    assert kept >= {"identity", "ts", "ets", "irm", "irm-ts", "irm-ets", "iop", "ensemble-beta", "ensemble-platt"}
    assert not kept & {"uniform", "platt", "beta", "irova", "sms", "gpc", "histogram"}

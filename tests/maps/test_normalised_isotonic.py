import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import LinearConstraint, minimize
from sklearn.base import clone

import mixnmatch.maps.normalised_isotonic as module
from mixnmatch import Isotonic, Pooled, TemperatureScaling, accuracy_preserved, engine
from mixnmatch._engine import door
from mixnmatch._engine.block import Block
from mixnmatch.maps._isotonic_fit import STRICTNESS
from mixnmatch.maps.columns import Columns
from mixnmatch.maps.normalised_isotonic import Levels, NormalisedIsotonic, _monotone_minimum, nll_statistic
from tests.conftest import draw_labels, make_problem, nll, softmax


def curved(n=400, n_classes=5, seed=0):
    """Probabilities of which rows, made right entry by entry, would not sum to 1."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n_classes, 0.4), n)
    y = draw_labels(p, rng)
    distorted = p**0.3
    return distorted / distorted.sum(axis=1, keepdims=True), y


def irm_function(p, y, sample_weight=None):
    return Isotonic()._functions(Columns(door.rows(p, y, sample_weight), "pooled"))[0]


def levels_of(p, y):
    return Levels.of(irm_function(p, y))


def whole(p, y, weight=None):
    return Block(np.ascontiguousarray(p), "probabilities", (0, len(p)), y, weight)


def shifts(fitted, levels):
    """How far a fitted map has moved IRM's log-levels, up to the constant that normalisation removes."""
    found = fitted.map_.functions()[0]
    moved = np.log(found(levels.index.knots) - STRICTNESS * levels.index.knots) - levels.theta
    return moved - moved.mean()


def test_gradient_and_hessian_against_finite_differences():
    p, y = curved(60)
    levels, rng = levels_of(p, y), np.random.default_rng(1)
    weight = rng.uniform(0.5, 2, len(y))
    block = whole(p, y, weight)
    shift, step = rng.normal(size=(2, len(levels.theta)))

    def at(t):
        return nll_statistic(block, levels, shift + t * step)

    value, gradient, hessian = at(0.0)
    low, high = at(-1e-4), at(1e-4)
    assert_allclose(gradient @ step, (high[0] - low[0]) / 2e-4, rtol=1e-6)
    assert_allclose(hessian @ step, (high[1] - low[1]) / 2e-4, atol=1e-6)
    assert_allclose(hessian, hessian.T, atol=1e-12)
    assert np.linalg.eigvalsh(hessian).min() > -1e-9
    assert_allclose(gradient.sum(), 0, atol=1e-9)  # a common factor of all levels changes nothing
    # the loss itself, from scratch
    piece = np.searchsorted(levels.index.knots, p, side="right") - 1
    g = np.where(piece < 0, 0.0, np.exp(levels.theta + shift)[piece])
    assert_allclose(value, weight @ -np.log(g[np.arange(60), y] / g.sum(axis=1)), rtol=1e-12)


def test_statistic_does_not_depend_on_chunks(monkeypatch):
    p, y = curved(100)
    levels = levels_of(p, y)
    shift = np.linspace(-1, 1, len(levels.theta))
    expected = nll_statistic(whole(p, y), levels, shift)
    monkeypatch.setattr(module, "CHUNK", 7)
    for found, value in zip(nll_statistic(whole(p, y), levels, shift), expected, strict=True):
        assert_allclose(found, value, rtol=1e-12, atol=1e-12)


def test_monotone_minimum_is_exact():
    rng = np.random.default_rng(2)
    for size in (1, 2, 12):
        root = rng.normal(size=(size, size + 2))
        matrix, linear, steps = root @ root.T + 0.1 * np.eye(size), 3 * rng.normal(size=size), rng.random(size - 1)
        x = _monotone_minimum(matrix, linear, steps)
        differences = np.diff(x) + steps
        assert (differences > -1e-9).all()
        # Optimal: the pull on every tail of x is 0 where it may move freely, and not negative where it may not.
        pull = np.cumsum((matrix @ x + linear)[::-1])[::-1]
        assert_allclose(pull[0], 0, atol=1e-8)
        assert (pull[1:] > -1e-8).all()
        assert_allclose(pull[1:] * differences, 0, atol=1e-7)


@pytest.mark.parametrize("ridge", [0.3, 1.0, 30.0])
def test_fit_is_the_constrained_optimum(ridge):
    p, y = curved(250, seed=3)
    levels, block = levels_of(p, y), whole(p, y)
    size = len(levels.theta)
    fitted = NormalisedIsotonic(ridge=ridge).fit(p, y)

    def objective(shift):
        value, gradient, _ = nll_statistic(block, levels, shift)
        return value + 0.5 * ridge * shift @ shift, gradient + ridge * shift

    increments = np.eye(size)[1:] - np.eye(size)[:-1]
    monotone = LinearConstraint(increments, -levels.steps, np.inf)
    best = minimize(objective, np.zeros(size), jac=True, method="SLSQP", constraints=monotone, tol=1e-13)
    shift = shifts(fitted, levels)
    assert objective(shift)[0] <= objective(best.x)[0] + 1e-5 * best.fun
    assert_allclose(shift, best.x - best.x.mean(), atol=0.02)
    assert_allclose(fitted.loss_, nll_statistic(block, levels, shift)[0] / len(y), rtol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_never_above_irm(seed):
    p, y = curved(150, 4, seed) if seed % 2 else (softmax(make_problem(150, 4, seed=seed)[0]), None)
    y = draw_labels(p, np.random.default_rng(seed)) if y is None else y
    levels, block = levels_of(p, y), whole(p, y)
    fitted = NormalisedIsotonic().fit(p, y)
    shift = shifts(fitted, levels)
    start, end = (nll_statistic(block, levels, s)[0] for s in (np.zeros_like(shift), shift))
    assert end + 0.5 * shift @ shift <= start * (1 + 1e-12)


def test_beats_irm_where_its_rows_do_not_sum_to_one():
    (p, y), (q, labels) = (make_problem(2000, 10, sharpness=0.1, seed=seed) for seed in (0, 1))
    p, q = softmax(p), softmax(q)
    fitted, irm = NormalisedIsotonic().fit(p, y), Pooled(Isotonic(strict=True)).fit(p, y)
    assert nll(fitted.predict_proba(q), labels) < nll(irm.predict_proba(q), labels) - 0.01


def test_two_classes_and_a_strong_ridge_give_irm():
    p, y = curved(300, 2)
    irm = Pooled(Isotonic(strict=True)).fit(p, y)
    assert_allclose(NormalisedIsotonic().fit(p, y).predict_proba(p), irm.predict_proba(p), atol=1e-6)
    p, y = curved(300, 5)
    irm = Pooled(Isotonic(strict=True)).fit(p, y)
    assert_allclose(NormalisedIsotonic(ridge=1e9).fit(p, y).predict_proba(p), irm.predict_proba(p), atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_function_is_strictly_increasing(smoothing):
    p, y = curved(500)
    fitted = NormalisedIsotonic(smoothing=smoothing).fit(p, y)
    g = fitted.map_.functions()[0](np.linspace(0, 1, 10001))
    assert (np.diff(g) > 0).all()
    q = fitted.predict_proba(p)
    assert accuracy_preserved(p, q)
    assert_allclose(q.sum(axis=1), 1, atol=1e-12)
    assert q.min() >= smoothing / (len(y) + 1) / p.shape[1] * (1 - 1e-12)
    assert (fitted.accuracy_preserving, fitted.injective) == (True, True)


def test_many_pieces_move_in_groups(monkeypatch):
    p, y = curved(2000)
    free = NormalisedIsotonic().fit(p, y)
    monkeypatch.setattr(module, "MOST_GROUPS", 8)
    levels = levels_of(p, y)
    assert len(levels.theta) > 8
    assert_array_equal(np.unique(levels.group), np.arange(8))
    assert_allclose(levels.sizes.sum(), len(levels.theta))
    bound = NormalisedIsotonic().fit(p, y)
    irm = nll_statistic(whole(p, y), levels, np.zeros(8))[0] / len(y)
    assert free.loss_ < bound.loss_ < irm
    assert (np.diff(bound.map_.values_) > 0).all()


def test_weights_are_repetitions():
    p, y = curved(200, 4)
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = NormalisedIsotonic().fit(p, y, weight)
    repeated = NormalisedIsotonic().fit(np.repeat(p, weight, axis=0), np.repeat(y, weight))
    assert_allclose(weighted.predict_proba(p), repeated.predict_proba(p), atol=1e-7)
    assert_allclose(weighted.loss_, repeated.loss_, rtol=1e-9)


def test_blocks_and_threads_do_not_matter():
    p, y = curved(300)
    expected = NormalisedIsotonic().fit(p, y).predict_proba(p)
    with engine(block_bytes=1000, threads=3):
        assert_allclose(NormalisedIsotonic().fit(p, y).predict_proba(p), expected, atol=1e-8)


def test_float32_and_logits():
    logits, y = make_problem(300, 4, seed=3, dtype=np.float32)
    q = NormalisedIsotonic(logits=True).fit(logits, y).predict_proba(logits)
    assert q.dtype == np.float32
    double = logits.astype(np.float64)
    assert_allclose(NormalisedIsotonic(logits=True).fit(double, y).predict_proba(double), q, atol=1e-5)
    p = softmax(double)
    assert_allclose(NormalisedIsotonic().fit(p, y).predict_proba(p), q, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_samples(n):
    p, y = curved(n, 3)
    q = NormalisedIsotonic().fit(p, y).predict_proba(curved(20, 3, seed=6)[0])
    assert np.isfinite(q).all()
    assert_allclose(q.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_constant_and_certain_scores(smoothing):
    constant = np.tile([0.2, 0.3, 0.5], (30, 1))
    certain = np.eye(3)[np.arange(30) % 3]
    for p in (constant, certain, np.tile(certain[:1], (30, 1))):
        fitted = NormalisedIsotonic(smoothing=smoothing).fit(p, np.arange(30) % 3)
        q = fitted.predict_proba(np.concatenate([p, constant, certain]))
        assert np.isfinite(q).all()
        assert_allclose(q.sum(axis=1), 1, atol=1e-12)
        assert accuracy_preserved(p, fitted.predict_proba(p))


def test_huge_logits():
    logits, y = make_problem(60, 3, seed=8)
    fitted = NormalisedIsotonic(logits=True).fit(logits * 1e4, y)
    q = fitted.predict_proba(logits * 1e4)
    assert np.isfinite(nll(q, y))
    assert accuracy_preserved(logits, q)


def test_a_thousand_classes():
    logits, y = make_problem(200, 1000, seed=10, dtype=np.float32)
    q = NormalisedIsotonic(logits=True).fit(logits, y).predict_proba(logits)
    assert accuracy_preserved(logits, q)
    assert_allclose(q.sum(axis=1), 1, atol=1e-5)


def test_after_another_map_and_with_names():
    logits, y = make_problem(300, 4)
    names = np.array(list("abcd"))
    composed = TemperatureScaling(logits=True, classes=list("abcd")) >> NormalisedIsotonic()
    composed.fit(logits, names[y])
    assert composed.accuracy_preserving
    assert composed.injective
    assert set(composed.predict(logits)) <= set("abcd")


def test_parameters():
    p, y = curved(50)
    for ridge in (0, -1.0, np.nan, "1", None):
        with pytest.raises(ValueError, match="ridge"):
            NormalisedIsotonic(ridge=ridge).fit(p, y)
    with pytest.raises(ValueError, match="smoothing"):
        NormalisedIsotonic(smoothing=-1).fit(p, y)
    made = NormalisedIsotonic(ridge=2.0)
    assert repr(clone(made)) == "NormalisedIsotonic(ridge=2.0)"
    assert set(made.get_params()) == {"ridge", "smoothing", "logits", "classes", "weights"}


def test_fitted_attributes_are_checked():
    p, y = curved(50)
    fitted = NormalisedIsotonic().fit(p, y)
    fitted._check_fitted()
    fitted.map_.values_ = fitted.map_.values_[::-1]
    with pytest.raises(ValueError, match="increase"):
        fitted._check_fitted()

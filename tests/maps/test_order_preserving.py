import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.base import clone

from mixnmatch._engine.block import Block
from mixnmatch._engine.kernels import compiled_available, load
from mixnmatch._engine.passes import engine
from mixnmatch.maps._nodes import FACTOR, FINE, Nodes, overlap, tempered
from mixnmatch.maps._order_fit import LEAST_SLOPE, _knots, bounded_minimum
from mixnmatch.maps._order_passes import Diagonal, Located, brier_statistic, nll_statistic
from mixnmatch.maps.order_preserving import IntraOrderPreserving
from mixnmatch.maps.temperature import TemperatureScaling


def problem(n=400, n_classes=5, seed=0, bend=0.5, scale=2.0):
    """Logits that are a curved function of well-calibrated ones."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, n_classes)) * 2
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    z -= np.log(np.exp(z).sum(axis=1, keepdims=True))
    return scale * z * (1 + bend * np.abs(z)), y


def softmax(x):
    p = np.exp(x - x.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def mean_loss(p, y, loss="nll"):
    p_y = p[np.arange(len(y)), y]
    return -np.log(p_y).mean() if loss == "nll" else (1 - 2 * p_y + (p**2).sum(axis=1)).mean()


def penalised(map_, y, p):
    return len(y) * mean_loss(p, y, map_.loss) + 0.5 * map_.ridge * np.sum((map_.slopes_ - 1) ** 2)


STATISTICS = {"nll": nll_statistic, "brier": brier_statistic}


@pytest.mark.parametrize("loss", ["nll", "brier"])
def test_gradient_and_curvature_against_finite_differences(loss):
    x, y = problem(30)
    rng = np.random.default_rng(1)
    nodes = Nodes.of(5)
    weight = rng.uniform(0.5, 2, 30)
    block = Block(x, "logits", (0, 30), y, weight)
    deviation = np.cumsum(rng.normal(size=nodes.count)) * 0.3
    step = rng.normal(size=nodes.count)

    def at(t):
        return STATISTICS[loss](Located.of(block, nodes, 1e-37, 0.4), deviation + t * step)

    value, gradient, curvature = at(0.0)
    low, high = at(-1e-4), at(1e-4)
    assert_allclose(gradient @ step, (high[0] - low[0]) / 2e-4, rtol=1e-6)
    assert_allclose(curvature, curvature.T, atol=1e-12)
    diagonal = STATISTICS[loss](Located.of(block, nodes, 1e-37, 0.4), deviation, Diagonal)[2]
    assert_allclose(diagonal, np.diag(curvature), atol=1e-12)
    if loss == "nll":
        assert_allclose(curvature @ step, (high[1] - low[1]) / 2e-4, atol=1e-6)
    # the loss itself, from scratch
    t = tempered(block, 1e-37, 0.4)
    down = nodes.positions[::-1]
    p = softmax(t + np.interp(t, down, deviation[::-1]))
    p_y = p[np.arange(30), y]
    rows = -np.log(p_y) if loss == "nll" else 1 - 2 * p_y + (p**2).sum(axis=1)
    assert_allclose(value, weight @ rows, rtol=1e-12)
    if loss == "brier":  # Gauss-Newton: the squares of the derivatives of all probabilities
        change = (softmax(t + np.interp(t, down, (deviation + 1e-5 * step)[::-1])) - p) / 1e-5
        assert_allclose(step @ curvature @ step, 2 * weight @ (change**2).sum(axis=1), rtol=1e-3)


def test_nodes_interpolate_as_numpy_does():
    nodes = Nodes.of(100)
    rng = np.random.default_rng(0)
    x = -np.abs(rng.standard_cauchy((50, 40))) * 10
    values = rng.normal(size=nodes.count)
    expected = x + np.interp(x, nodes.positions[::-1], values[::-1])
    for backend in ("numpy", "compiled") if compiled_available() else ("numpy",):
        found = load(backend).add_deviation(x, nodes.low, FINE, FACTOR, values)
        assert_allclose(found, expected, atol=1e-11)
    assert (np.diff(nodes.positions) < 0).all()
    cell, share = nodes.locate(np.array([[0.0, nodes.low, -1e300]]))
    assert_array_equal(cell + share, [[0, 128, 160]])


def testbounded_minimum_is_exact():
    rng = np.random.default_rng(0)
    for _ in range(20):
        a = rng.normal(size=(7, 4))
        q, b = a.T @ a, rng.normal(size=4)
        x = bounded_minimum(q, b, 0.1)
        slope = q @ x + b
        assert (x >= 0.1).all()
        assert (slope >= -1e-9).all()
        assert_allclose(slope * (x - 0.1), 0, atol=1e-8)


@pytest.mark.parametrize("loss", ["nll", "brier"])
def test_optimum_matches_a_generic_optimiser(loss):
    x, y = problem(200)
    fitted = IntraOrderPreserving(logits=True, loss=loss, n_knots=6).fit(x, y)
    design = overlap(Nodes.of(5), fitted.knots_)
    chunks = Located.of(Block(x, "logits", (0, 200), y), Nodes.of(5), 1e-37, fitted.beta_)

    def objective(slopes):
        found = STATISTICS[loss](chunks, design @ (slopes - 1))
        ridge = 0.5 * fitted.ridge * np.sum((slopes - 1) ** 2)
        return found[0] + ridge, found[1] @ design + fitted.ridge * (slopes - 1)

    bounds = [(LEAST_SLOPE, None)] * 5
    options = {"ftol": 1e-15, "gtol": 1e-9}
    found = minimize(objective, np.ones(5), jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    assert_allclose(objective(fitted.slopes_)[0], found.fun, rtol=1e-10)
    assert_allclose(fitted.slopes_, found.x, rtol=1e-3)
    p = fitted.predict_proba(x)
    assert_allclose(fitted.loss_, mean_loss(p, y, loss), rtol=1e-12)
    assert_allclose(objective(fitted.slopes_)[0], penalised(fitted, y, p), rtol=1e-12)


@pytest.mark.parametrize("loss", ["nll", "brier"])
@pytest.mark.parametrize("seed", range(4))
def test_never_worse_than_temperature_scaling(loss, seed):
    x, y = problem(60, 4, seed, bend=0.0 if seed % 2 else 0.6)
    fitted = IntraOrderPreserving(logits=True, loss=loss).fit(x, y)
    base = TemperatureScaling(logits=True, loss=loss).fit(x, y)
    assert penalised(fitted, y, fitted.predict_proba(x)) <= 60 * base.loss_ * (1 + 1e-12)


def test_learns_a_curved_function():
    x, y = problem(20_000, seed=1)
    new, labels = problem(20_000, seed=2)
    plain = mean_loss(TemperatureScaling(logits=True).fit(x, y).predict_proba(new), labels)
    best = mean_loss(IntraOrderPreserving(logits=True).fit(x, y).predict_proba(new), labels)
    z = np.random.default_rng(2).normal(size=(20_000, 5)) * 2
    truth = mean_loss(softmax(z), labels)
    assert truth < best < truth + 0.15 * (plain - truth)


def test_keeps_the_order_of_rows_and_is_injective():
    x, y = problem(300)
    fitted = IntraOrderPreserving(logits=True).fit(x, y)
    p = fitted.predict_proba(x)
    assert fitted.accuracy_preserving
    assert fitted.injective
    assert (fitted.slopes_ >= LEAST_SLOPE).all()
    assert_array_equal(np.argsort(x, axis=1), np.argsort(p, axis=1))
    # the scores can be read off the output: bisect the constant that makes probabilities sum to one
    nodes = Nodes.of(5)
    down = nodes.positions[::-1]
    values = (nodes.positions + overlap(nodes, fitted.knots_) @ (fitted.slopes_ - 1))[::-1]
    low, high = np.full((300, 1), -100.0), np.full((300, 1), 100.0)
    for _ in range(100):
        middle = (low + high) / 2
        inverse = np.interp(np.log(p) + middle, values, down)
        too_much = np.exp(inverse).sum(axis=1, keepdims=True) > 1
        low, high = np.where(too_much, low, middle), np.where(too_much, middle, high)
    assert_allclose(np.exp(inverse), softmax(fitted.beta_ * x), atol=1e-6)


def test_logits_and_their_softmax_give_the_same_map():
    x, y = problem(300, scale=0.3)
    a = IntraOrderPreserving(logits=True).fit(x, y)
    b = IntraOrderPreserving().fit(softmax(x), y)
    assert_allclose(a.predict_proba(x + 7), b.predict_proba(softmax(x)), atol=1e-8)


def test_float32_gives_the_float64_answer():
    x, y = problem(300)
    x = x.astype(np.float32)
    single = IntraOrderPreserving(logits=True).fit(x, y).predict_proba(x)
    double = IntraOrderPreserving(logits=True).fit(x.astype(np.float64), y).predict_proba(x.astype(np.float64))
    assert single.dtype == np.float32
    assert_allclose(single, double, atol=1e-5)


@pytest.mark.parametrize("loss", ["nll", "brier"])
def test_weights_are_repetitions(loss):
    x, y = problem(120, 4)
    k = np.random.default_rng(0).integers(0, 4, 120)
    a = IntraOrderPreserving(logits=True, loss=loss).fit(x, y, k)
    b = IntraOrderPreserving(logits=True, loss=loss).fit(np.repeat(x, k, axis=0), np.repeat(y, k))
    assert_allclose(a.loss_, b.loss_, rtol=1e-9)
    assert_allclose(a.predict_proba(x), b.predict_proba(x), atol=1e-5)


@pytest.mark.parametrize("loss", ["nll", "brier"])
def test_does_not_depend_on_blocks_and_threads(loss):
    x, y = problem(300)
    whole = IntraOrderPreserving(logits=True, loss=loss).fit(x, y)
    for block_bytes, threads in ((400, 1), (4000, 2)):
        with engine(block_bytes=block_bytes, threads=threads):
            cut = IntraOrderPreserving(logits=True, loss=loss).fit(x, y)
            p = cut.predict_proba(x)
        assert_allclose(cut.loss_, whole.loss_, rtol=1e-9)
        assert_allclose(p, whole.predict_proba(x), atol=1e-5)


EDGES = {
    "one row": (np.array([[0.2, 0.5, 0.3]]), [1], False),
    "one wrong row": (np.array([[0.2, 0.5, 0.3]]), [0], False),
    "constant": (np.full((20, 4), 0.25), np.arange(20) % 4, False),
    "constant logits": (np.full((20, 4), -3.0), np.arange(20) % 4, True),
    "separable": (np.eye(3)[np.arange(12) % 3] * 0.7 + 0.1, np.arange(12) % 3, False),
    "always wrong": (np.eye(3)[np.arange(12) % 3] * 0.7 + 0.1, (np.arange(12) + 1) % 3, False),
    "zeros and ones": (np.eye(3)[np.arange(12) % 3], np.r_[1, np.arange(1, 12) % 3], False),
    "huge logits": (np.random.default_rng(0).normal(size=(60, 5)) * 1e4, np.arange(60) % 5, True),
    "absent classes": (softmax(problem(50, 6)[0] / 3), problem(50, 6)[1] % 2, False),
    "two classes": (*problem(80, 2), True),
    "binary vector": (np.linspace(0, 1, 30), (np.linspace(0, 1, 30) + 0.3 * np.sin(np.arange(30))) > 0.5, False),
}


@pytest.mark.parametrize("loss", ["nll", "brier"])
@pytest.mark.parametrize("case", EDGES)
def test_edge_cases(case, loss):
    scores, y, logits = EDGES[case]
    for dtype in (np.float64, np.float32):
        given = scores.astype(dtype)
        fitted = IntraOrderPreserving(logits=logits, loss=loss).fit(given, y)
        p = fitted.predict_proba(given)
        assert p.dtype == dtype
        assert np.isfinite(p).all()
        assert (p > 0).all()
        assert_allclose(p.sum(axis=1), 1, rtol=1e-5 if dtype == np.float32 else 1e-12)
        if given.ndim == 2:
            assert_array_equal(p.argmax(axis=1), given.argmax(axis=1))
        base = TemperatureScaling(logits=logits, loss=loss).fit(given, y)
        assert fitted.loss_ <= base.loss_ + 1e-6
        assert np.isfinite(fitted._log_proba(_block(given, logits))).all()


def _block(scores, logits):
    values = scores if scores.ndim == 2 else np.stack([1 - scores, scores], axis=1)
    return Block(values, "logits" if logits else "probabilities", (0, len(values)))


def test_knots_are_distinct_even_where_nothing_matters():
    assert_array_equal(_knots(np.eye(161)[3], 12)[[0, -1]], [0, 160])
    knots = _knots(np.zeros(161), 12)
    assert (np.diff(knots) > 0).all()
    assert len(_knots(np.ones(161), 12)) == 12


def test_bad_parameters():
    x, y = problem(20)
    for wrong in ({"n_knots": 1}, {"n_knots": 2.5}, {"ridge": 0}, {"ridge": np.inf}, {"loss": "mse"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            IntraOrderPreserving(logits=True, **wrong).fit(x, y)


def test_is_an_estimator_whose_fitted_attributes_can_be_saved():
    x, y = problem(50)
    fitted = clone(IntraOrderPreserving(logits=True, n_knots=7)).fit(x, y)
    assert fitted.n_knots == 7
    copy = IntraOrderPreserving(logits=True)
    for name in (*fitted._fitted, "classes_", "n_classes_", "total_weight_"):
        value = getattr(fitted, name)
        assert value is None or isinstance(value, (float, str, int)) or value.dtype.kind in "fi"
        setattr(copy, name, value)
    assert_array_equal(copy.predict_proba(x), fitted.predict_proba(x))

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from mixnmatch._engine import door
from mixnmatch._engine.block import Block
from mixnmatch._engine.passes import engine
from mixnmatch._engine.prepared import Prepared
from mixnmatch._engine.shared import single_threaded_blas
from mixnmatch.maps._order_passes import Located, Nodes, tempered
from mixnmatch.maps.gaussian_process import (
    GaussianProcessCalibration,
    Prior,
    evaluate,
    evidence,
    minimise,
)
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


def log_loss(p, y):
    return -np.log(p[np.arange(len(y)), y]).mean()


NODES = Nodes.of(5)


def block_of(n=30, weight=True):
    x, y = problem(n)
    w = np.random.default_rng(3).uniform(0.5, 2, n) if weight else None
    return Block(x, "logits", (0, n), y, w)


class OneBlock:
    """A table of one block, in place of :class:`Prepared`."""

    def __init__(self, block, beta=0.4):
        self.chunks = Located.of(block, NODES, 1e-37, beta)

    def total(self, statistic, *parameters):
        return statistic(self.chunks, *parameters)


def evaluated(block, prior, mean, hyper):
    return evaluate(OneBlock(block), prior, np.concatenate([mean, hyper]))


def objective_from_scratch(block, prior, values, hyper, beta=0.4):
    """The variational objective written with explicit covariances, a row at a time."""
    x = tempered(block, 1e-37, beta)
    k = prior.lower(hyper) @ prior.lower(hyper).T
    cross = np.exp(hyper[0] - 0.5 * np.exp(-2 * hyper[1]) * prior.across)
    cross[:, -1] = 0
    weights = np.linalg.solve(k, cross).T  # from inducing values to nodes
    deviation = weights @ values
    down = NODES.positions[::-1]
    hats = np.stack([np.interp(x, down, unit[::-1]) for unit in np.eye(NODES.count)], axis=-1)
    fisher, loss = np.zeros((len(values), len(values))), 0.0
    rows = []
    for i, row in enumerate(hats):
        f = x[i] + row @ deviation
        p = np.exp(f - f.max())
        p /= p.sum()
        jacobian = row @ weights
        h = np.diag(p) - np.outer(p, p)
        fisher += block.weight[i] * jacobian.T @ h @ jacobian
        rows.append((h, jacobian))
        loss -= block.weight[i] * np.log(p[block.y[i]])
    s = np.linalg.inv(np.linalg.inv(k) + fisher)
    expected = sum(w * 0.5 * np.trace(h @ j @ s @ j.T) for w, (h, j) in zip(block.weight, rows, strict=True))
    sign, log_s = np.linalg.slogdet(s)
    kl = 0.5 * (np.trace(np.linalg.solve(k, s)) + values @ np.linalg.solve(k, values) - len(values))
    kl += 0.5 * (np.linalg.slogdet(k)[1] - log_s)
    assert sign > 0
    return loss + expected + kl


def test_objective_is_the_variational_bound():
    block, prior = block_of(), Prior(NODES, 8)
    rng = np.random.default_rng(0)
    for _ in range(3):
        hyper = np.array([rng.uniform(-2, 1), rng.uniform(0.5, 1.2)])
        mean = rng.normal(size=8)
        expected = objective_from_scratch(block, prior, prior.lower(hyper) @ mean, hyper)
        assert_allclose(evaluated(block, prior, mean, hyper).value, expected, rtol=1e-7)


def test_gradient_of_the_objective_against_finite_differences():
    block, prior = block_of(), Prior(NODES, 8)
    rng = np.random.default_rng(1)
    hyper = np.array([-0.5, 0.8])
    mean, step, turn = rng.normal(size=8), rng.normal(size=8), np.array([0.7, -0.4])

    def at(t):
        return evaluated(block, prior, mean + t * step, hyper + t * turn)

    expected = at(0.0).gradient @ np.concatenate([step, turn])
    assert_allclose((at(1e-5).value - at(-1e-5).value) / 2e-5, expected, rtol=1e-5)


def test_derivative_of_the_prior_in_the_length_scale():
    prior = Prior(NODES, 10)
    hyper, step = np.array([0.3, 0.6]), np.array([0.0, 1e-6])
    difference = (prior.root(hyper + step)[0] - prior.root(hyper - step)[0]) / 2e-6
    assert_allclose(prior.root(hyper)[1], difference, atol=1e-4)
    root = prior.root(hyper)[0]
    assert_array_equal(root[-1], 0)


def test_gradient_of_the_evidence_against_finite_differences():
    block, prior = block_of(), Prior(NODES, 8)
    hyper = np.array([-0.5, 0.8])
    fit = evaluated(block, prior, np.linspace(-1, 1, 8), np.array([0.2, 1.0]))
    _, gradient, mean = evidence(prior, hyper, fit)
    for k in range(2):
        step = 1e-5 * np.eye(2)[k]
        difference = (evidence(prior, hyper + step, fit)[0] - evidence(prior, hyper - step, fit)[0]) / 2e-5
        assert_allclose(gradient[k], difference, rtol=1e-5, atol=1e-7)
    assert mean.shape == (8,)


def test_fit_is_a_stationary_point():
    x, y = problem(300)
    source, prior = door.rows(x, y, logits=True), Prior(NODES, 8)
    rows = Prepared.of(source, Located.of, NODES, 1e-37, 0.4)
    with single_threaded_blas():
        fit = minimise(rows, prior, np.append(np.zeros(8), [0.0, 0.8]), 1e-12).point
    block = Block(x, "logits", (0, 300), y, np.ones(300))
    rng = np.random.default_rng(0)
    for _ in range(5):
        step, turn = 1e-3 * rng.normal(size=8), 1e-3 * rng.normal(size=2)
        for sign in (-1, 1):
            h = np.clip(fit.theta[-2:] + sign * turn, prior.low, prior.high)
            assert evaluated(block, prior, fit.theta[:-2] + sign * step, h).value > fit.value
    assert fit.value < evaluated(block, prior, np.zeros(8), np.array([0.0, 0.8])).value


def test_inducing_points_leave_out_little():
    for n_inducing in (10, 16, 30):
        prior = Prior(NODES, n_inducing)
        for length in (prior.low[1], prior.high[1]):
            root = prior.root(np.array([0.0, length]))[0]
            inside = NODES.positions >= NODES.low
            assert (1 - np.sum(root[inside] ** 2, axis=1)).max() < 0.02


@pytest.mark.parametrize("seed", range(6))
def test_never_worse_than_temperature_scaling(seed):
    x, y = problem(40, 4, seed, bend=0.0 if seed % 2 else 0.6)
    fitted = GaussianProcessCalibration(logits=True).fit(x, y)
    assert fitted.loss_ <= TemperatureScaling(logits=True).fit(x, y).loss_ * (1 + 1e-12)
    assert_allclose(fitted.loss_, log_loss(fitted.predict_proba(x), y), rtol=1e-10)


def test_learns_a_curved_function():
    x, y = problem(9000, seed=1)  # enough rows for a first fit on a sample of them
    new, labels = problem(20_000, seed=2)
    plain = log_loss(TemperatureScaling(logits=True).fit(x, y).predict_proba(new), labels)
    best = log_loss(GaussianProcessCalibration(logits=True).fit(x, y).predict_proba(new), labels)
    z = np.random.default_rng(2).normal(size=(20_000, 5)) * 2
    truth = log_loss(softmax(z), labels)
    assert truth < best < truth + 0.15 * (plain - truth)


def test_prior_mean_takes_over_far_down():
    x, y = problem(400)
    fitted = GaussianProcessCalibration(logits=True).fit(x, y)
    assert fitted.bound_ is None
    assert fitted.deviation_[-1] == 0
    assert fitted.deviation_std_[-1] == 0
    far = np.array([[0.0, 0, 0, -1e3, -2e3]]) / fitted.beta_
    p = fitted.predict_proba(far)
    with np.errstate(divide="ignore"):
        log_p = fitted._log_proba(Block(far, "logits", (0, 1)))
    assert_allclose(log_p[0, 3] - log_p[0, 4], 1e3, rtol=1e-12)
    assert (p > 0).all()
    assert_allclose(fitted.inducing_mean_, np.interp(fitted.inducing_points_, *_table(fitted)), atol=2e-2)


def _table(fitted):
    nodes = Nodes.of(fitted.n_classes_)
    return nodes.positions[::-1], fitted.deviation_[::-1]


def test_logits_and_their_softmax_give_the_same_map():
    x, y = problem(300, scale=0.3)
    a = GaussianProcessCalibration(logits=True).fit(x, y)
    b = GaussianProcessCalibration().fit(softmax(x), y)
    assert_allclose(a.predict_proba(x + 7), b.predict_proba(softmax(x)), atol=1e-6)


def test_float32_gives_the_float64_answer():
    x, y = problem(300)
    x = x.astype(np.float32)
    single = GaussianProcessCalibration(logits=True).fit(x, y).predict_proba(x)
    double = GaussianProcessCalibration(logits=True).fit(x.astype(np.float64), y).predict_proba(x.astype(np.float64))
    assert single.dtype == np.float32
    assert_allclose(single, double, atol=1e-5)


def test_weights_are_repetitions():
    x, y = problem(150, 4)
    k = np.random.default_rng(0).integers(0, 4, 150)
    a = GaussianProcessCalibration(logits=True).fit(x, y, k)
    b = GaussianProcessCalibration(logits=True).fit(np.repeat(x, k, axis=0), np.repeat(y, k))
    assert_allclose(a.loss_, b.loss_, rtol=1e-9)
    assert_allclose(a.predict_proba(x), b.predict_proba(x), atol=1e-5)


def test_does_not_depend_on_blocks_and_threads():
    x, y = problem(300)
    whole = GaussianProcessCalibration(logits=True).fit(x, y)
    for block_bytes, threads in ((400, 1), (4000, 2)):
        with engine(block_bytes=block_bytes, threads=threads):
            cut = GaussianProcessCalibration(logits=True).fit(x, y)
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


@pytest.mark.parametrize("case", EDGES)
def test_edge_cases(case):
    scores, y, logits = EDGES[case]
    for dtype in (np.float64, np.float32):
        given = scores.astype(dtype)
        fitted = GaussianProcessCalibration(logits=logits).fit(given, y)
        p = fitted.predict_proba(given)
        assert p.dtype == dtype
        assert np.isfinite(p).all()
        assert (p > 0).all()
        assert_allclose(p.sum(axis=1), 1, rtol=1e-5 if dtype == np.float32 else 1e-12)
        assert fitted.loss_ <= TemperatureScaling(logits=logits).fit(given, y).loss_ + 1e-6


def test_bad_parameters():
    x, y = problem(20)
    for wrong in (3, 65, 8.0):
        with pytest.raises(ValueError, match="n_inducing"):
            GaussianProcessCalibration(logits=True, n_inducing=wrong).fit(x, y)


def test_is_an_estimator_whose_fitted_attributes_can_be_saved():
    x, y = problem(100)
    fitted = clone(GaussianProcessCalibration(logits=True, n_inducing=10)).fit(x, y)
    assert not fitted.accuracy_preserving
    assert not fitted.injective
    assert fitted.inducing_points_.shape == fitted.inducing_mean_.shape == (10,)
    copy = GaussianProcessCalibration(logits=True)
    for name in (*fitted._fitted, "classes_", "n_classes_", "total_weight_"):
        value = getattr(fitted, name)
        assert value is None or isinstance(value, (float, str, int)) or value.dtype.kind in "fi"
        setattr(copy, name, value)
    assert_array_equal(copy.predict_proba(x), fitted.predict_proba(x))

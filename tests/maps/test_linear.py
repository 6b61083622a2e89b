import numpy as np
import pytest
from scipy.optimize import check_grad, minimize

from mixnmatch import TemperatureScaling, calibrator, engine
from mixnmatch._engine import door
from mixnmatch._engine.kernels import compiled_available
from mixnmatch._engine.rows import Rows
from mixnmatch._engine.scores import read_scores
from mixnmatch.maps import (
    BiasCorrectedTemperatureScaling,
    DirichletScaling,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
    _linear_passes,
    scaling,
)
from mixnmatch.maps._linear_passes import (
    Problem,
    gradient_statistic,
    local,
    newton_statistic,
    product_statistic,
    scaled_rows,
)
from mixnmatch.maps._linear_solver import Penalty, ridge_vector
from tests.conftest import draw_labels, make_problem, nll, softmax

BACKENDS = ["numpy", "compiled"] if compiled_available() else ["numpy"]


@pytest.fixture(scope="module")
def skewed():
    """Scores whose classes need different slopes and intercepts."""
    rng = np.random.default_rng(0)
    logits = np.log(softmax(rng.normal(size=(1500, 3)) * 2))
    true = softmax(logits * [0.3, 1.0, 0.6] + [0.5, -0.5, 0.0] + 0.3 * logits[:, ::-1])
    return logits, draw_labels(true, rng), true


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("loss", ["nll", "brier"])
def test_gradients_are_right(skewed, full, loss):
    logits, y, _ = skewed
    weight = np.random.default_rng(0).integers(1, 4, 50).astype(float)
    source = door.rows(logits[:50], y[:50], weight, logits=True)
    problem = Problem(0.7, 1e-37, full, loss, False)
    size = 12 if full else 6
    theta = np.random.default_rng(1).normal(size=size) * 0.3
    error = check_grad(
        lambda t: scaled_rows(source, problem).total(gradient_statistic, problem, t)[0],
        lambda t: scaled_rows(source, problem).total(gradient_statistic, problem, t)[1:],
        theta,
    )
    assert error < 1e-4


@pytest.mark.parametrize("full", [False, True])
def test_curvature_is_the_derivative_of_the_gradient(skewed, full):
    logits, y, _ = skewed
    weight = np.random.default_rng(0).integers(1, 4, 50).astype(float)
    source = door.rows(logits[:50], y[:50], weight, logits=True)
    problem = Problem(0.7, 1e-37, full, "nll", False)
    size = 12 if full else 6
    theta = np.random.default_rng(1).normal(size=size) * 0.3
    first, hessian = scaled_rows(source, problem).total(newton_statistic, problem, theta)
    np.testing.assert_allclose(
        first, scaled_rows(source, problem).total(gradient_statistic, problem, theta), rtol=1e-12
    )
    for k in range(size):
        step = np.eye(size)[k] * 1e-5
        up, down = (
            scaled_rows(source, problem).total(gradient_statistic, problem, theta + s)[1:] for s in (step, -step)
        )
        np.testing.assert_allclose(hessian[k], (up - down) / 2e-5, atol=1e-4)


@pytest.mark.parametrize(
    "kind", [VectorScaling, MatrixScaling, DirichletScaling, StructuredVectorScaling, StructuredMatrixScaling]
)
@pytest.mark.parametrize("loss", ["nll", "brier"])
def test_optimum_cannot_be_improved(skewed, kind, loss):
    """Small steps in random directions never lower the penalised loss."""
    logits, y, _ = skewed
    fitted = kind(logits=True, loss=loss, **({"strength": 0.1} if kind is DirichletScaling else {})).fit(logits, y)
    source = door.rows(logits, y, logits=True)
    problem = fitted._problem(source)
    classes = 3
    if problem.full:
        theta = np.append((fitted.weight_ / problem.beta - np.eye(3)).ravel(), fitted.intercept_)
    else:
        theta = np.append(fitted.weight_ / problem.beta - 1, fitted.intercept_)
    ridges = fitted._odir(source, problem, 0.1) if kind is DirichletScaling else fitted._ridges(source)
    penalty = Penalty(*ridges)
    ridge = ridge_vector(penalty, problem, classes)

    def objective(t):
        return scaled_rows(source, problem).total(gradient_statistic, problem, t)[0] / len(y) + 0.5 * ridge @ t**2

    rng, best = np.random.default_rng(0), objective(theta)
    for size in (1e-2, 1e-3):
        for _ in range(20):
            assert objective(theta + size * rng.normal(size=len(theta))) >= best - 1e-9


def reference(logits, y, weight, ridge, full):
    """Parameters in W and b of the penalised mean log loss, by SciPy, from formulas written out anew."""
    x = np.log(softmax(logits))
    n, classes = x.shape
    hot = np.eye(classes)[y]

    def objective(theta):
        matrix = theta[:-classes].reshape(classes, -1)
        p = softmax((x @ matrix.T if full else x * matrix[:, 0]) + theta[-classes:])
        slope = weight[:, None] * (p - hot) / weight.sum()
        in_matrix = slope.T @ x if full else (slope * x).sum(axis=0)
        value = weight @ -np.log(p[np.arange(n), y]) / weight.sum() + 0.5 * ridge @ (theta - centre) ** 2
        return value, np.append(in_matrix.ravel(), slope.sum(axis=0)) + ridge * (theta - centre)

    centre = np.append(np.eye(classes).ravel() if full else np.ones(classes), np.zeros(classes))
    centre[:-classes] *= TemperatureScaling(logits=True).fit(logits, y, weight).beta_
    found = minimize(objective, centre, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 5000})
    return found.x[:-classes].reshape(classes, -1), found.x[-classes:]


@pytest.mark.parametrize("kind", [VectorScaling, MatrixScaling, StructuredVectorScaling, StructuredMatrixScaling])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_fit_is_the_optimum_that_scipy_finds(kind, classes):
    logits, y = make_problem(400, classes, sharpness=1.7, seed=classes)
    weight = np.random.default_rng(classes).integers(1, 4, len(y)).astype(float)
    fitted = kind(logits=True).fit(logits, y, weight)
    source = door.rows(logits, y, weight, logits=True)
    problem = fitted._problem(source)
    ridge = ridge_vector(Penalty(*fitted._ridges(source)), problem, classes)
    ridge[:-classes] /= problem.beta**2  # from v and M to W = beta (I + diag(v) + M)
    matrix, intercept = reference(logits, y, weight, ridge, problem.full)
    x = np.log(softmax(logits))
    expected = softmax((x @ matrix.T if problem.full else x * matrix[:, 0]) + intercept)
    np.testing.assert_allclose(fitted.predict_proba(logits), expected, atol=1e-5)
    assert fitted.loss_ == pytest.approx(weight @ -np.log(expected[np.arange(len(y)), y]) / weight.sum(), rel=1e-6)


@pytest.mark.parametrize("full", [False, True])
def test_both_kinds_of_newton_steps_end_at_the_same_optimum(skewed, full, monkeypatch):
    logits, y, _ = skewed
    kind = StructuredMatrixScaling if full else StructuredVectorScaling
    exact = kind(logits=True).fit(logits, y)
    monkeypatch.setattr("mixnmatch.maps._linear_solver.EXACT_TO", 0)
    by_products = kind(logits=True).fit(logits, y)
    np.testing.assert_allclose(by_products.predict_proba(logits), exact.predict_proba(logits), atol=1e-5)
    assert by_products.loss_ == pytest.approx(exact.loss_, rel=1e-6)


def test_diagonals_taken_apart_change_the_way_and_not_the_end(monkeypatch):
    logits, y = make_problem(600, 25, sharpness=1.5, seed=3)
    apart = StructuredMatrixScaling(logits=True).fit(logits, y)
    monkeypatch.setattr("mixnmatch.maps._linear_solver.APART", np.inf)
    together = StructuredMatrixScaling(logits=True).fit(logits, y)
    np.testing.assert_allclose(apart.predict_proba(logits), together.predict_proba(logits), atol=1e-5)


@pytest.mark.parametrize("full", [False, True])
def test_products_are_those_with_the_curvature(skewed, full):
    logits, y, _ = skewed
    weight = np.random.default_rng(0).integers(1, 4, 50).astype(float)
    problem = Problem(0.7, 1e-37, full, "nll", False)
    rows = scaled_rows(door.rows(logits[:50], y[:50], weight, logits=True), problem)
    theta, direction = np.random.default_rng(1).normal(size=(2, 12 if full else 6)) * 0.3
    _, hessian = rows.total(newton_statistic, problem, theta)
    product = rows.then(local, problem, theta).total(product_statistic, problem, direction)
    np.testing.assert_allclose(product, hessian @ direction, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", [VectorScaling, MatrixScaling])
@pytest.mark.parametrize("classes", [2, 5, 60])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_single_precision_is_used_only_where_it_is_enough(kind, classes, scale):
    logits, y = make_problem(300, classes, dtype=np.float32, seed=1)
    fitted = kind(logits=True).fit(logits, y)
    wide = logits * np.float32(scale)
    single, double = fitted.predict_proba(wide), fitted.predict_proba(wide.astype(np.float64))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=5e-6)
    block = Rows(read_scores(wide, logits=True)).block(0, 300)
    np.testing.assert_allclose(double, np.exp(fitted._log_proba(block)), atol=1e-300)  # below that digits get fewer


def test_negative_and_large_weights_are_applied_in_double_precision():
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(200, 4)) * 50).astype(np.float32)
    fitted = VectorScaling(logits=True).fit(logits, rng.integers(0, 4, 200))
    for weight in (np.array([-1.0, -1.1, -0.9, -1.05]), np.array([900.0, 1.0, 800.0, 1.0])):
        fitted.weight_ = weight
        np.testing.assert_allclose(fitted.predict_proba(logits), fitted.predict_proba(logits.astype(float)), atol=5e-6)


def test_more_freedom_fits_better(skewed):
    logits, y, _ = skewed
    ts = TemperatureScaling(logits=True).fit(logits, y).loss_
    vector = VectorScaling(logits=True).fit(logits, y).loss_
    matrix = MatrixScaling(logits=True).fit(logits, y).loss_
    assert matrix < vector < ts


def test_structured_maps_recover_the_truth(skewed):
    logits, y, true = skewed
    for kind in (StructuredMatrixScaling, DirichletScaling):
        p = kind(logits=True).fit(logits, y).predict_proba(logits)
        assert np.abs(p - true).mean() < 0.04


def test_infinite_strength_is_temperature_scaling(skewed):
    logits, y, _ = skewed
    ts = TemperatureScaling(logits=True).fit(logits, y).predict_proba(logits)
    for kind in (StructuredVectorScaling, StructuredMatrixScaling):
        p = kind(logits=True, strength=1e9).fit(logits, y).predict_proba(logits)
        np.testing.assert_allclose(p, ts, atol=1e-5)


def test_strength_of_dirichlet_is_chosen_on_held_out_rows():
    logits, y = make_problem(150, 8, sharpness=1.0, seed=1)  # nothing to learn but noise
    chosen = DirichletScaling(logits=True).fit(logits, y)
    assert chosen.strength_ > 0.1
    fixed = DirichletScaling(logits=True, strength=1e-4).fit(logits, y)
    test_logits, test_y = make_problem(2000, 8, sharpness=1.0, seed=2)
    assert nll(chosen.predict_proba(test_logits), test_y) < nll(fixed.predict_proba(test_logits), test_y)


def test_path_of_strengths_starts_where_the_classes_ask_for_it():
    assert scaling._path(100, 50.0) is scaling.PATH
    many = scaling._path(1000, 20_000.0)
    # at first the ridge of SMS, L (L - 1) / n, or more: 2 lambda / (L (L - 1))
    assert 2 * many[0] / (1000 * 999) >= 1000 * 999 / 20_000 > 2 * many[1] / (1000 * 999)
    np.testing.assert_allclose(np.diff(np.log10(many)), -1)


def test_strength_with_many_classes_is_chosen_on_held_out_rows():
    logits, y = make_problem(400, 201, sharpness=1.0, seed=1, dtype=np.float32)  # nothing to learn but noise
    chosen = DirichletScaling(logits=True).fit(logits, y)
    assert chosen.strength_ >= 1e4
    test_logits, test_y = make_problem(2000, 201, sharpness=1.0, seed=2, dtype=np.float32)
    weak = DirichletScaling(logits=True, strength=1e3).fit(logits, y)
    assert nll(chosen.predict_proba(test_logits), test_y) < nll(weak.predict_proba(test_logits), test_y)


def test_injectivity_is_told_from_the_fitted_matrix(skewed):
    logits, y, _ = skewed
    fitted = VectorScaling(logits=True).fit(logits, y)
    assert fitted.injective == bool((fitted.weight_ > 0).all())
    assert not VectorScaling().injective
    singular = MatrixScaling(logits=True).fit(logits, y)
    singular.weight_ = np.ones((3, 3))
    assert not singular.injective
    singular.weight_ = np.eye(3)
    assert singular.injective


def test_thousand_classes_fit():
    logits, y = make_problem(400, 1000, dtype=np.float32)
    for made in (StructuredMatrixScaling(logits=True), DirichletScaling(logits=True, strength=1e9)):
        p = made.fit(logits, y).predict_proba(logits[:5])
        assert p.shape == (5, 1000)
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)


def test_bad_strengths_are_refused():
    for made in (VectorScaling(ridge=0), StructuredVectorScaling(strength=-1), DirichletScaling(strength="high")):
        with pytest.raises(ValueError, match="positive number"):
            made.fit([[0.5, 0.5]], [0])


@pytest.mark.parametrize("spread", [1.0, 3.0, 100.0])
@pytest.mark.parametrize("name", ["vector", "svs", "sms", "matrix", "dirichlet"])
def test_logits_tied_to_the_last_bit_do_not_depend_on_blocks(name, spread):
    """Scaled by an inverse temperature of 1e13, log-probabilities would be rounded to multiples of 1/16."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=300) * spread
    logits = np.stack([first, np.nextafter(first, np.where(rng.random(300) < 0.5, np.inf, -np.inf))], axis=1)
    y = rng.integers(0, 2, 300)
    whole = calibrator(name, logits=True).fit(logits, y).predict_proba(logits)
    for size in (64, 1000):
        with engine(block_bytes=size):
            cut = calibrator(name, logits=True).fit(logits, y).predict_proba(logits)
        np.testing.assert_allclose(cut, whole, atol=1e-9)


def test_dirichlet_does_not_depend_on_the_order_of_the_samples():
    logits, y = make_problem(250, 3, seed=4)
    order = np.random.default_rng(0).permutation(250)
    fitted = DirichletScaling(logits=True).fit(logits, y)
    shuffled = DirichletScaling(logits=True).fit(logits[order], y[order])
    assert shuffled.strength_ == fitted.strength_
    np.testing.assert_allclose(shuffled.predict_proba(logits), fitted.predict_proba(logits), atol=1e-6)


@pytest.mark.parametrize("n", [8, 30, 200])
def test_weights_of_dirichlet_are_repetitions(n):
    for seed in range(5):
        logits, y = make_problem(n, 4, seed=seed)
        weight = np.random.default_rng(seed).integers(1, 6, n)
        weighted = DirichletScaling(logits=True).fit(logits, y, weight)
        repeated = DirichletScaling(logits=True).fit(np.repeat(logits, weight, axis=0), np.repeat(y, weight))
        assert weighted.strength_ == repeated.strength_
        np.testing.assert_allclose(weighted.predict_proba(logits), repeated.predict_proba(logits), atol=1e-5)


def test_dirichlet_chooses_a_strength_where_all_scores_are_equal():
    p = np.tile([0.2, 0.3, 0.5], (90, 1))
    fitted = DirichletScaling().fit(p, np.arange(90) % 3)
    np.testing.assert_allclose(fitted.predict_proba(p[:1]), [[1 / 3] * 3], atol=0.12)


@pytest.mark.parametrize("classes", [2, 3, 40])
@pytest.mark.parametrize("exact_to", [0, 100])
def test_one_slope_and_a_bias_for_each_class_are_the_optimum_that_scipy_finds(classes, exact_to, monkeypatch):
    monkeypatch.setattr("mixnmatch.maps._linear_solver.EXACT_TO", exact_to)
    logits, y = make_problem(600, classes, sharpness=1.7, seed=classes)
    logits = logits + np.linspace(-1, 1, classes)
    weight = np.random.default_rng(classes).integers(1, 4, len(y)).astype(float)
    fitted = BiasCorrectedTemperatureScaling(logits=True).fit(logits, y, weight)
    beta = TemperatureScaling(logits=True).fit(logits, y, weight).beta_
    x, n, hot = np.log(softmax(logits)), weight.sum(), np.eye(classes)[y]

    def objective(theta):
        p = softmax(theta[0] * x + theta[1:])
        slope = weight[:, None] * (p - hot) / n
        value = weight @ -np.log(p[np.arange(len(y)), y]) / n
        ridge = ((theta[0] / beta - 1) ** 2 + theta[1:] @ theta[1:]) / (2 * n)
        pull = np.append((theta[0] / beta - 1) / beta, theta[1:]) / n
        return value + ridge, np.append((slope * x).sum(), slope.sum(axis=0)) + pull

    found = minimize(objective, np.append(beta, np.zeros(classes)), jac=True, method="BFGS", options={"gtol": 1e-10})
    assert np.ptp(fitted.weight_) == 0
    assert fitted.weight_[0] == pytest.approx(found.x[0], rel=1e-4)
    np.testing.assert_allclose(fitted.predict_proba(logits), softmax(found.x[0] * x + found.x[1:]), atol=1e-5)


def test_shared_slopes_have_the_gradient_and_the_curvature_of_their_sum(skewed):
    logits, y, _ = skewed
    weight = np.random.default_rng(0).integers(1, 4, 50).astype(float)
    problem = Problem(0.7, 1e-37, False, "nll", False, shared=True)
    rows = scaled_rows(door.rows(logits[:50], y[:50], weight, logits=True), problem)
    theta, direction = np.random.default_rng(1).normal(size=(2, 4)) * 0.3
    assert problem.n_parameters(3) == 4
    for loss in ("nll", "brier"):
        at = Problem(0.7, 1e-37, False, loss, False, shared=True)
        error = check_grad(
            lambda t, at=at: rows.total(gradient_statistic, at, t)[0],
            lambda t, at=at: rows.total(gradient_statistic, at, t)[1:],
            theta,
        )
        assert error < 1e-4
    _, hessian = rows.total(newton_statistic, problem, theta)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-10)
    step = 1e-5 * direction
    up, down = (rows.total(gradient_statistic, problem, theta + s)[1:] for s in (step, -step))
    np.testing.assert_allclose(hessian @ direction, (up - down) / 2e-5, atol=1e-4)
    product = rows.then(local, problem, theta).total(product_statistic, problem, direction)
    np.testing.assert_allclose(product, hessian @ direction, rtol=1e-9)


def test_mean_predictions_with_biases_are_the_class_frequencies():
    logits, y = make_problem(3000, 5, seed=1)
    logits = logits + np.array([2.0, 0.0, -2.0, 1.0, 0.0])
    frequency = np.bincount(y) / len(y)
    biased = BiasCorrectedTemperatureScaling(logits=True).fit(logits, y).predict_proba(logits).mean(axis=0)
    np.testing.assert_allclose(biased, frequency, atol=2e-3)
    plain = TemperatureScaling(logits=True).fit(logits, y).predict_proba(logits).mean(axis=0)
    assert np.abs(plain - frequency).max() > 0.05


@pytest.mark.parametrize(
    "name", ["ts", "ets", "platt", "beta", "vector", "matrix", "dirichlet", "svs", "sms", "bcts", "iop"]
)
def test_a_zero_that_was_never_seen_costs_less_than_30_nats(name):
    """Scores of a model that is underconfident, so that slopes are steep, without zeros; then new ones with zeros."""
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.full(4, 0.3), 600)
    p = np.maximum(p, 1e-9) / np.maximum(p, 1e-9).sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((600, 1))).sum(axis=1).clip(max=3)
    soft = np.sqrt(p) / np.sqrt(p).sum(axis=1, keepdims=True)
    new = np.array([[0.7, 0.3, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    q = calibrator(name).fit(soft, y).predict_proba(new)
    assert -np.log(q.min()) < 30
    np.testing.assert_allclose(q.sum(axis=1), 1, atol=1e-9)


@pytest.mark.parametrize("name", ["vector", "svs", "bcts"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("dtype", "classes", "tolerance"), [(np.float64, 70, 1e-6), (np.float32, 420, 1e-4)])
def test_tables_too_large_to_keep_have_the_same_optimum(name, backend, dtype, classes, tolerance, monkeypatch):
    """Rows are then read as they are, in every pass."""
    logits, y = make_problem(600, classes, seed=2, dtype=dtype)
    weight = np.random.default_rng(0).integers(1, 4, 600).astype(float)
    kept = calibrator(name, logits=True).fit(logits, y, weight)
    monkeypatch.setattr(_linear_passes, "KEPT_ENTRIES", 0)
    monkeypatch.setattr(_linear_passes, "KEPT_SINGLE", 0)
    with engine(backend=backend):
        again = calibrator(name, logits=True).fit(logits, y, weight)
    assert kept.loss_ == pytest.approx(again.loss_, rel=0.01 * tolerance)
    np.testing.assert_allclose(again.predict_proba(logits), kept.predict_proba(logits), atol=tolerance)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_strength_does_not_depend_on_the_order_of_classes(n_classes):
    for seed in range(8):
        logits, y = make_problem(400, n_classes, seed=seed)
        turned = np.roll(np.arange(n_classes), 1)
        first = DirichletScaling(logits=True).fit(logits, y)
        other = DirichletScaling(logits=True).fit(logits[:, turned], np.argsort(turned)[y])
        assert first.strength_ == other.strength_
        np.testing.assert_allclose(
            other.predict_proba(logits[:, turned]), first.predict_proba(logits)[:, turned], rtol=0, atol=1e-5
        )

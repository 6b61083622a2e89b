import numpy as np
import pytest
from scipy.optimize import check_grad

from mixnmatch import (
    DirichletScaling,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    VectorScaling,
)
from mixnmatch.maps._linear_passes import Problem, gradient_statistic, newton_statistic, scaled_rows
from mixnmatch.maps._linear_solver import ridge_vector
from mixnmatch.maps.base import read_rows
from tests.conftest import draw_labels, make_problem, nll, softmax


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
    source = read_rows(logits[:50], y[:50], weight, logits=True)
    problem = Problem(0.7, 1e-37, full, loss, False)
    size = 12 if full else 6
    theta = np.random.default_rng(1).normal(size=size) * 0.3
    error = check_grad(
        lambda t: scaled_rows(source, problem).total(gradient_statistic, problem, t)[0],
        lambda t: scaled_rows(source, problem).total(gradient_statistic, problem, t)[1:],
        theta,
    )
    assert error < 1e-4


def test_curvature_is_the_derivative_of_the_gradient(skewed):
    logits, y, _ = skewed
    weight = np.random.default_rng(0).integers(1, 4, 50).astype(float)
    source = read_rows(logits[:50], y[:50], weight, logits=True)
    problem = Problem(0.7, 1e-37, False, "nll", False)
    theta = np.random.default_rng(1).normal(size=6) * 0.3
    first, hessian = scaled_rows(source, problem).total(newton_statistic, problem, theta)
    np.testing.assert_allclose(
        first, scaled_rows(source, problem).total(gradient_statistic, problem, theta), rtol=1e-12
    )
    for k in range(6):
        step = np.eye(6)[k] * 1e-5
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
    source = read_rows(logits, y, logits=True)
    problem = fitted._problem(source)
    classes = 3
    if problem.full:
        theta = np.append((fitted.weight_ / problem.beta - np.eye(3)).ravel(), fitted.intercept_)
    else:
        theta = np.append(fitted.weight_ / problem.beta - 1, fitted.intercept_)
    penalty = fitted._odir(source, problem, 0.1) if kind is DirichletScaling else fitted._penalty(source)
    ridge = ridge_vector(penalty, problem, classes)

    def objective(t):
        return scaled_rows(source, problem).total(gradient_statistic, problem, t)[0] / len(y) + 0.5 * ridge @ t**2

    rng, best = np.random.default_rng(0), objective(theta)
    for size in (1e-2, 1e-3):
        for _ in range(20):
            assert objective(theta + size * rng.normal(size=len(theta))) >= best - 1e-9


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
    for kind in (StructuredMatrixScaling, DirichletScaling):
        p = kind(logits=True).fit(logits, y).predict_proba(logits[:5])
        assert p.shape == (5, 1000)
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)


def test_bad_strengths_are_refused():
    for made in (VectorScaling(ridge=0), StructuredVectorScaling(strength=-1), DirichletScaling(strength="high")):
        with pytest.raises(ValueError, match="positive number"):
            made.fit([[0.5, 0.5]], [0])

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from mixnmatch import EnsembleTemperatureScaling, TemperatureScaling
from mixnmatch.maps import Identity, Uniform
from mixnmatch.maps._simplex import simplex_minimum
from tests.conftest import brier, make_problem, nll, softmax

LOSS = {"nll": nll, "brier": brier}


@pytest.mark.parametrize("loss", ["nll", "brier"])
@pytest.mark.parametrize("sharpness", [0.01, 0.3, 1.0, 8.0, 300.0])
def test_finds_the_optimum_however_sharp_the_scores(loss, sharpness):
    logits, y = make_problem(500, 4, sharpness=sharpness, seed=1)
    fitted = TemperatureScaling(loss=loss, logits=True).fit(logits, y)

    def by_temperature(log_t):
        with np.errstate(divide="ignore"):
            return LOSS[loss](softmax(logits / np.exp(log_t)), y)

    grid = np.linspace(-12, 12, 500)
    best = grid[np.argmin([by_temperature(t) for t in grid])]
    found = minimize_scalar(by_temperature, bounds=(best - 0.1, best + 0.1), options={"xatol": 1e-9})
    assert np.log(fitted.temperature_) == pytest.approx(found.x, abs=1e-6)
    assert fitted.loss_ == pytest.approx(found.fun, rel=1e-9)
    assert fitted.bound_ is None


def test_predicts_what_the_formula_says():
    logits, y = make_problem(100, 3)
    fitted = TemperatureScaling(logits=True).fit(logits, y)
    np.testing.assert_allclose(fitted.predict_proba(logits), softmax(logits * fitted.beta_), atol=1e-14)
    p = softmax(logits)
    power = p ** (1 / fitted.temperature_)
    np.testing.assert_allclose(fitted.predict_proba(logits), power / power.sum(axis=1, keepdims=True), atol=1e-12)


def test_says_when_there_is_no_optimum():
    separable = TemperatureScaling(logits=True).fit(np.eye(3) * 2.0, [0, 1, 2])
    assert separable.bound_ == "separable"
    opposite = TemperatureScaling(logits=True).fit(np.eye(3)[[0, 1, 2] * 20] * 2.0, [1, 2, 0] * 20)
    assert opposite.bound_ == "uniform"
    np.testing.assert_allclose(opposite.predict_proba(np.eye(3)), 1 / 3, atol=1e-5)
    assert (opposite.predict_proba(np.eye(3)).argmax(axis=1) == [0, 1, 2]).all()
    assert TemperatureScaling().fit(np.full((5, 3), 1 / 3), [0, 1, 2, 0, 0]).beta_ == 1.0


def test_float32_is_not_a_silent_no_op():
    """A library of the field leaves float32 scores as they were."""
    logits, y = make_problem(2000, 5, sharpness=3.0, dtype=np.float32)
    t32 = TemperatureScaling(logits=True).fit(logits, y).temperature_
    t64 = TemperatureScaling(logits=True).fit(logits.astype(np.float64), y).temperature_
    assert t32 == pytest.approx(t64, rel=1e-6)
    assert t32 > 2


def test_zeros_are_read_as_less_than_the_smallest_positive_score():
    p = np.array([[0.0, 1.0], [0.1, 0.9], [0.8, 0.2]])
    assert TemperatureScaling().fit(p, [1, 1, 0]).probability_floor_ == pytest.approx(0.05)


def test_unknown_loss_is_refused():
    with pytest.raises(ValueError, match="loss"):
        TemperatureScaling(loss="hinge").fit([[0.5, 0.5]], [0])


@pytest.mark.parametrize("loss", ["nll", "brier"])
@pytest.mark.parametrize("seed", range(4))
def test_ensemble_is_never_worse_than_its_members_or_the_sequential_fit(loss, seed):
    rng = np.random.default_rng(seed)
    logits, y = make_problem(400, 5, sharpness=[0.4, 1.0, 3.0, 6.0][seed], seed=seed)
    noise = rng.random(400) < 0.1
    y = np.where(noise, rng.integers(0, 5, 400), y)
    fitted = EnsembleTemperatureScaling(loss=loss, logits=True).fit(logits, y)
    value = LOSS[loss](fitted.predict_proba(logits), y)
    assert fitted.loss_ == pytest.approx(value, rel=1e-9)
    ts = TemperatureScaling(loss=loss, logits=True).fit(logits, y)
    for other in (ts, Identity(logits=True).fit(logits, y), Uniform(logits=True).fit(logits, y)):
        assert value <= LOSS[loss](other.predict_proba(logits), y) + 1e-10
    members = np.stack([ts.predict_proba(logits), softmax(logits), np.full_like(logits, 0.2)])
    grid = np.linspace(0, 1, 41)
    sequential = min(
        LOSS[loss](np.tensordot([a, b, 1 - a - b], members, axes=1), y) for a in grid for b in grid if a + b <= 1
    )
    assert value <= sequential + 1e-10


@pytest.mark.parametrize("loss", ["nll", "brier"])
def test_ensemble_finds_the_joint_optimum(loss):
    """Against a brute-force scan of the temperature with the best weights at each."""
    rng = np.random.default_rng(5)
    logits, y = make_problem(300, 4, sharpness=2.5, seed=5)
    y = np.where(rng.random(300) < 0.15, rng.integers(0, 4, 300), y)
    fitted = EnsembleTemperatureScaling(loss=loss, logits=True).fit(logits, y)
    uniform, plain = np.full_like(logits, 0.25), softmax(logits)
    best = np.inf
    for beta in np.exp(np.linspace(-4, 3, 60)):
        members = np.stack([softmax(beta * logits), plain, uniform])
        if loss == "brier":
            flat = members.reshape(3, -1)
            w = simplex_minimum(flat @ flat.T, flat @ np.eye(4)[y].ravel())
        else:
            at = members[:, np.arange(300), y]
            w = np.full(3, 1 / 3)
            for _ in range(3000):
                w = w * (at / (w @ at)).mean(axis=1)
        best = min(best, LOSS[loss](np.tensordot(w, members, axes=1), y))
    assert fitted.loss_ <= best + 1e-9


def test_ensemble_whose_optimum_is_temperature_scaling_finds_its_temperature():
    corners = 0
    for seed in range(40):
        logits, y = make_problem(300, 2 + seed % 3, sharpness=1.5, seed=seed)
        logits = np.round(logits)
        fitted = EnsembleTemperatureScaling(logits=True).fit(logits, y)
        if fitted.member_weights_[0] == 1:
            corners += 1
            alone = TemperatureScaling(logits=True).fit(logits, y)
            assert fitted.beta_ == pytest.approx(alone.beta_, rel=1e-9)
    assert corners > 10


def test_weights_lie_on_the_simplex_and_keep_information():
    logits, _ = make_problem(50, 3, seed=2)
    rng = np.random.default_rng(0)
    useless = EnsembleTemperatureScaling(logits=True).fit(logits, rng.integers(0, 3, 50))
    assert useless.member_weights_.sum() == pytest.approx(1)
    assert (useless.member_weights_ >= 0).all()
    assert useless.member_weights_[:2].sum() > 0


def test_quadratic_programme_on_the_simplex_is_exact():
    rng = np.random.default_rng(0)
    corners = np.array([[a, b, 1 - a - b] for a in np.linspace(0, 1, 201) for b in np.linspace(0, 1 - a, 201)])
    for _ in range(50):
        root = rng.normal(size=(3, 4))
        gram, linear = root @ root.T, rng.normal(size=3)
        w = simplex_minimum(gram, linear)
        assert w.min() >= 0
        assert w.sum() == pytest.approx(1)
        values = np.einsum("ij,jk,ik->i", corners, gram, corners) - 2 * corners @ linear
        assert w @ gram @ w - 2 * linear @ w <= values.min() + 1e-12


@pytest.mark.parametrize("loss", ["nll", "brier"])
@pytest.mark.parametrize("method", [TemperatureScaling, EnsembleTemperatureScaling])
def test_samples_without_errors_do_not_make_it_certain(method, loss):
    """One error in new data costs what n samples allow for, not hundreds of nats."""
    logits, _ = make_problem(50, 3)
    fitted = method(logits=True, loss=loss).fit(logits, logits.argmax(axis=1))
    p = fitted.predict_proba(logits).max(axis=1)
    assert -np.log(p).mean() == pytest.approx(np.log(51 / 50.5), rel=1e-6)


@pytest.mark.filterwarnings("ignore:sample_weight sums to")
@pytest.mark.parametrize("weight", [1e-9, 1e-3, 0.1])
def test_little_weight_with_ties_ends(weight):
    """All labels lead or tie, and the samples weigh so little that no temperature is certain enough."""
    x = np.array([[1.0, 1.1], [700.0, 700.0], [1e8 + 10, 1e8]])
    fitted = TemperatureScaling(logits=True).fit(x, [1, 0, 0], np.full(3, weight))
    assert 0 < fitted.beta_ < np.inf
    p = fitted.predict_proba(x)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert p[1, 0] == 0.5

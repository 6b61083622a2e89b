import numpy as np
import pytest
from scipy.optimize import check_grad

from mixnmatch import Ensemble, EnsembleTemperatureScaling, Pooled, engine, load_sample
from mixnmatch._engine import door, kernels
from mixnmatch._engine.prepared import Prepared
from mixnmatch.maps import BetaScaling, PlattScaling
from mixnmatch.maps.ensemble import _Members, ensemble_statistic, shared_parts, sigmoid_statistic
from mixnmatch.maps.families import FAMILIES
from mixnmatch.maps.shared_function import SharedFunction
from tests.conftest import brier, make_problem, nll, softmax

LOSS = {"nll": nll, "brier": brier}


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("loss", ["nll", "brier"])
@pytest.mark.parametrize("fixed", [True, False])
def test_gradients_are_right(family, loss, fixed):
    logits, y = make_problem(30, 4)
    source = door.rows(logits, y, np.arange(30) % 3 + 1.0, logits=True)
    members = _Members(FAMILIES[family], 2, fixed, loss, 1e-37)
    rows = Prepared.of(source, shared_parts, members.floor)
    width = len(FAMILIES[family].lower)
    w = np.random.default_rng(0).dirichlet(np.ones(members.size))
    packed = members.pack(np.random.default_rng(1).random((2, width)) + 0.5, w)
    error = check_grad(
        lambda t: rows.total(ensemble_statistic, members, t)[0],
        lambda t: rows.total(ensemble_statistic, members, t)[1:],
        packed,
    )
    assert error < 1e-4 * len(packed)


@pytest.mark.skipif(not kernels.compiled_available(), reason="needs the compiled kernels")
@pytest.mark.parametrize("family", ["platt", "beta"])
@pytest.mark.parametrize("loss", ["nll", "brier"])
@pytest.mark.parametrize("fixed", [True, False])
def test_the_compiled_pass_gives_the_same(family, loss, fixed):
    logits, y = make_problem(30, 4, sharpness=8.0)
    logits[0] = [0.0, -2000.0, -3000.0, 10.0]
    source = door.rows(logits, y, np.arange(30) % 3 + 1.0, logits=True)
    members = _Members(FAMILIES[family], 2, fixed, loss, 1e-37)
    rows = Prepared.of(source, shared_parts, members.floor)
    rng = np.random.default_rng(1)
    for intercept in (0.5, -900.0):  # with the second one all sigmoids of a row are zero
        theta = rng.random((2, len(FAMILIES[family].lower))) + 0.5
        theta[:, -1] = intercept
        packed = members.pack(theta, rng.dirichlet(np.ones(members.size)))
        expected = rows.total(ensemble_statistic, members, packed)
        found = rows.total(sigmoid_statistic, members, packed)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.skipif(not kernels.compiled_available(), reason="needs the compiled kernels")
def test_the_fit_does_not_depend_on_the_kernels():
    logits, y = make_problem(300, 4, sharpness=3.0, seed=2)
    maps = []
    for backend in ("numpy", "compiled"):
        with engine(backend=backend):
            maps.append(Ensemble("beta", loss="brier", logits=True).fit(logits, y))
    assert maps[0].loss_ == pytest.approx(maps[1].loss_, rel=1e-8)
    np.testing.assert_allclose(maps[0].predict_proba(logits), maps[1].predict_proba(logits), atol=1e-4)


@pytest.mark.parametrize("loss", ["nll", "brier"])
def test_of_temperatures_is_ets(loss):
    logits, y = make_problem(300, 4, sharpness=3.0)
    general = Ensemble("temperature", loss=loss, logits=True).fit(logits, y)
    special = EnsembleTemperatureScaling(loss=loss, logits=True).fit(logits, y)
    assert special.loss_ <= general.loss_ + 1e-7
    np.testing.assert_allclose(general.predict_proba(logits), special.predict_proba(logits), atol=2e-3)


@pytest.mark.parametrize("family, binary", [("beta", BetaScaling), ("platt", PlattScaling)])
@pytest.mark.parametrize("loss", ["nll", "brier"])
def test_never_worse_than_the_single_map(family, binary, loss):
    logits, y = make_problem(300, 4, sharpness=3.0, seed=2)
    p = softmax(logits)
    ensemble = Ensemble(family, loss=loss).fit(p, y)
    value = LOSS[loss](ensemble.predict_proba(p), y)
    assert ensemble.loss_ == pytest.approx(value, rel=1e-6)
    pooled = Pooled(binary(loss=loss), smoothing=0).fit(p, y).predict_proba(p)
    single = Ensemble(family, fixed=False, loss=loss).fit(p, y).predict_proba(p)
    assert value <= LOSS[loss](pooled, y) + 1e-9
    assert value <= LOSS[loss](single, y) + 1e-9


def test_two_free_members_are_never_worse_than_one():
    logits, y = make_problem(300, 4, sharpness=3.0, seed=3)
    one = Ensemble("temperature", logits=True).fit(logits, y).loss_
    two = Ensemble("temperature", free=2, logits=True).fit(logits, y).loss_
    assert two <= one + 1e-8


def test_any_increasing_function_makes_a_map():
    p = np.array([[0.5, 0.3, 0.2]])
    fitted = SharedFunction(np.sqrt).fit(p, [0])
    np.testing.assert_allclose(fitted.predict_proba(p), np.sqrt(p) / np.sqrt(p).sum())
    assert fitted.accuracy_preserving
    for bad in (np.cos, lambda z: z - 1, lambda z: np.zeros_like(z), lambda z: np.where(z > 0.5, np.nan, z)):
        with pytest.raises(ValueError, match="strictly increasing"):
            SharedFunction(bad).fit(p, [0])
    with pytest.raises(TypeError, match="function"):
        SharedFunction("sqrt").fit(p, [0])


def test_bad_options_are_refused():
    for options in ({"family": "gauss"}, {"free": 0}, {"loss": "hinge"}):
        with pytest.raises(ValueError, match="must be"):
            Ensemble(**options).fit([[0.5, 0.5]], [0])


def test_a_single_member_at_the_end_of_a_valley_does_not_spoil_the_mixture():
    # The best shared beta map of the sample has an intercept of -15; mixtures near it end at a loss of 0.90053.
    sample = load_sample()
    fitted = Ensemble("beta", logits=True).fit(sample.logits_cal, sample.labels_cal)
    assert fitted.loss_ < 0.90035


@pytest.mark.parametrize("family", ["beta", "platt"])
def test_block_sizes_do_not_lead_the_search_elsewhere(family):
    """Where probabilities are 1e-300 the loss is flat: sums that differ in their last bit led to another optimum."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 600)
    p[rng.random(p.shape) < 0.3] = 1e-300
    p /= p.sum(axis=1, keepdims=True)
    y = rng.integers(0, 3, 600)
    found = []
    for block_bytes in (1 << 21, 4096, 512):
        with engine(block_bytes=block_bytes):
            found.append(Ensemble(family).fit(p, y))
    for other in found[1:]:
        np.testing.assert_array_equal(other.theta_, found[0].theta_)
        np.testing.assert_array_equal(other.member_weights_, found[0].member_weights_)


def rare_positives(n=2000, rate=0.05, seed=2):
    """Scores of two classes and labels for which the loss of a mixture has several valleys."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < rate).astype(int)
    x = rng.normal(size=n) + 1.5 * y
    log_odds = 1.5 * x - 1.125 + np.log(rate / (1 - rate))
    return 1 / (1 + np.exp(-(1.6 * log_odds + 0.5 + 0.3 * np.sin(2 * log_odds)))), y


@pytest.mark.parametrize("family", ["platt", "beta"])
@pytest.mark.parametrize(("n", "seed"), [(2000, 2), (2000, 8), (6000, 1)])
def test_fits_depend_neither_on_the_order_of_samples_nor_on_repetitions(family, n, seed):
    scores, y = rare_positives(n, seed=seed)
    loss = Ensemble(family).fit(scores, y).loss_
    turned = np.random.default_rng(0).permutation(n)
    others = [
        Ensemble(family).fit(scores[turned], y[turned]),
        Ensemble(family).fit(scores, y, np.full(n, 2.0)),
        Ensemble(family).fit(np.tile(scores, 2), np.tile(y, 2)),
        Ensemble(family).fit(1 - scores, 1 - y),
    ]
    np.testing.assert_allclose([one.loss_ for one in others], loss, rtol=1e-9)


def test_starts_reach_the_deepest_known_valley():
    scores, y = rare_positives(seed=8)
    for family in ("platt", "beta"):
        assert Ensemble(family).fit(scores, y).loss_ < 0.12557

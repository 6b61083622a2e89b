import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize
from sklearn.isotonic import isotonic_regression

import mixnmatch as mm
from mixnmatch.maps.keep_winner import keep_winner
from tests.conftest import brier, make_problem, nll, softmax

RNG = np.random.default_rng(0)


def kept(given_row, row):
    winner, row = np.atleast_2d(given_row).argmax(axis=1), np.atleast_2d(row)
    one = keep_winner(winner, row, logarithms=False)
    with np.errstate(divide="ignore"):
        other = np.exp(keep_winner(winner, np.log(row), logarithms=True))
    np.testing.assert_allclose(one, other, rtol=1e-12)
    return one


def projected(q, winner, divergence):
    """The nearest row that keeps the winner, by a general optimiser."""
    size = len(q)
    ahead = np.delete(np.eye(size)[winner] - np.eye(size), winner, axis=0)
    start = np.full(size, 1 / size)
    constraints = [LinearConstraint(ahead, 0, np.inf), LinearConstraint(np.ones((1, size)), 1, 1)]
    found = minimize(lambda r: divergence(q, r), start, method="SLSQP", bounds=[(1e-9, 1)] * size,
                     constraints=constraints, options={"ftol": 1e-14, "maxiter": 500})  # fmt: skip
    return found.x


@pytest.mark.parametrize(
    "divergence",
    [lambda q, r: -float(q @ np.log(r)), lambda q, r: float(np.square(q - r).sum())],
    ids=["log loss", "squared error"],
)
@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.filterwarnings("ignore:Values in x were outside bounds")  # older SciPy clips them aloud
def test_is_the_projection_in_both_senses(divergence, size):
    for q in RNG.dirichlet(np.full(size, 0.7), size=12):
        for winner in range(size):
            mine = kept(np.eye(size)[winner], q)[0]
            np.testing.assert_allclose(mine, projected(q, winner, divergence), atol=2e-4)


def test_is_isotonic_regression_of_two_ranks():
    # All others are below the winner and free of each other: pooling those above it, largest first, must agree with
    # isotonic regression along any order that ends in (largest others, winner).
    q = np.array([0.1, 0.5, 0.3, 0.06, 0.04])
    order = np.argsort(np.where(np.arange(5) == 0, 2, q))
    by_hand = np.empty(5)
    by_hand[order] = isotonic_regression(q[order])
    np.testing.assert_allclose(kept([1, 0, 0, 0, 0], q)[0], by_hand)


def test_rows_that_keep_the_winner_are_left_alone():
    q = RNG.dirichlet(np.ones(4), size=50)
    assert keep_winner(q.argmax(axis=1), q, logarithms=False) is q
    tied = np.array([[0.4, 0.4, 0.2]])
    np.testing.assert_array_equal(kept([[0.2, 0.5, 0.3]], tied), tied)


@given(st.integers(0, 2**32 - 1), st.integers(2, 9))
def test_sums_floors_and_order(seed, size):
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(size, 0.3), size=20)
    q[rng.random(q.shape) < 0.2] = 0
    q[:, 0] += q.sum(axis=1) == 0
    q /= q.sum(axis=1, keepdims=True)
    p = rng.dirichlet(np.ones(size), size=20)
    r = kept(p, q)
    np.testing.assert_allclose(r.sum(axis=1), 1)
    winner = p.argmax(axis=1)
    lead = r[np.arange(20), winner]
    assert (lead >= r.max(axis=1) - 1e-15).all()
    others = np.arange(size) != winner[:, None]
    assert (r[others] <= q[others]).all()  # only the winner gains
    untouched = others & (q < lead[:, None])
    np.testing.assert_array_equal(r[untouched], q[untouched])
    np.testing.assert_allclose(kept(p, r), r, rtol=1e-12)  # a projection


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predictions_stay_in_floating_point(dtype):
    logits, y = make_problem(400, 5, seed=1, dtype=dtype)
    y = (y + 1) % 5  # the map inside wants to change every prediction
    fitted = mm.maps.KeepWinner(mm.maps.StructuredMatrixScaling(logits=True)).fit(logits, y)
    p = fitted.predict_proba(logits)
    assert p.dtype == dtype
    assert mm.accuracy_preserved(logits, p)
    assert (fitted.map_.predict_proba(logits).argmax(axis=1) != logits.argmax(axis=1)).mean() > 0.5
    np.testing.assert_allclose(p.sum(axis=1, dtype=np.float64), 1, atol=1e-5)
    leads = -np.sort(-p, axis=1)
    assert (leads[:, 0] - leads[:, 1] < 1e-6).mean() > 0.5  # tied but for the last digit


def test_no_map_of_definition_3_1_does_as_well():
    logits, y = biased(4000, seed=2)
    fresh, fresh_y = biased(20000, seed=3)
    p = mm.calibrator("keep-sms", logits=True).fit(logits, y).predict_proba(fresh)
    assert mm.accuracy_preserved(fresh, p)
    for name in ("ets", "irm", "iop", "ensemble-beta"):
        other = mm.calibrator(name, logits=True).fit(logits, y).predict_proba(fresh)
        assert nll(p, fresh_y) < nll(other, fresh_y) - 0.02
        assert brier(p, fresh_y) < brier(other, fresh_y) - 0.01


def biased(n, seed):
    """Scores that favour two of the classes."""
    logits, y = make_problem(n, 4, seed=seed)
    return logits + np.array([1.5, 0.0, -1.5, 0.0]), y


def test_settings_are_those_of_the_map_inside():
    logits, y = make_problem(200, 3, seed=4)
    names = np.array(["a", "b", "c"])
    inside = mm.maps.StructuredVectorScaling(logits=True, classes=names)
    fitted = mm.maps.KeepWinner(inside).fit(logits, names[y])
    assert fitted.predict(logits).tolist() == names[logits.argmax(axis=1)].tolist()
    assert not fitted.injective
    assert mm.maps.KeepWinner(mm.TemperatureScaling()).injective


def test_other_peoples_calibrators():
    from sklearn.linear_model import LogisticRegression

    logits, y = make_problem(300, 3, seed=5)
    p = softmax(logits)
    fitted = mm.maps.KeepWinner(LogisticRegression()).fit(p, y)
    assert mm.accuracy_preserved(p, fitted.predict_proba(p))
    with pytest.raises(TypeError, match="fit and predict_proba"):
        mm.maps.KeepWinner("sms").fit(p, y)


PARTS = {
    "keep": lambda **k: mm.maps.KeepWinner(mm.maps.VectorScaling(**k)),
    "ts": mm.TemperatureScaling,
    "ets": mm.EnsembleTemperatureScaling,
    "iop": mm.maps.IntraOrderPreserving,
    "irm": lambda **k: mm.Pooled(mm.Isotonic(strict=True), **k),
    "auto": lambda **k: mm.calibrator("auto", cv=2, accuracy_preserving=True, **k),
}
CHAINS = [(first, "keep") for first in PARTS] + [("keep", "ts"), ("keep", "keep", "keep"), ("ts", "keep", "auto")]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("chain", CHAINS, ids=" ".join)
def test_within_compositions(chain, dtype):
    # Winners of a stage can tie, or lose a lead of one unit in the last place: the next one must know who won.
    logits, y = biased(500, seed=6)
    made = PARTS[chain[0]](logits=True)
    for name in chain[1:]:
        made = made >> PARTS[name]()
    assert made.accuracy_preserving
    fitted = made.fit(logits, y)
    near = logits.astype(dtype)
    near[:, 3] = np.nextafter(near[:, 0], dtype(np.inf))
    for rows in (logits.astype(dtype), near):
        p = fitted.predict_proba(rows)
        np.testing.assert_allclose(p.sum(axis=1, dtype=np.float64), 1, atol=1e-6)
        assert mm.accuracy_preserved(rows, p)


def test_within_cross_fitted_compositions():
    logits, y = biased(400, seed=6)
    fitted = mm.Composition(PARTS["keep"](logits=True), PARTS["keep"](), cv=3).fit(logits, y)
    np.testing.assert_allclose(fitted.predict_proba(logits).sum(axis=1), 1)


def test_output_of_another_shape_is_refused():
    class Short:
        def fit(self, p, y):
            return self

        def predict_proba(self, p):
            return np.asarray(p)[:, :2]

    logits, y = make_problem(100, 3, seed=6)
    with pytest.raises(ValueError, match=r"shape \(100, 2\)"):
        mm.maps.KeepWinner(Short()).fit(softmax(logits), y).predict_proba(softmax(logits))


def test_survives_saving(tmp_path):
    logits, y = make_problem(300, 4, seed=7)
    fitted = mm.calibrator("keep-sms", logits=True).fit(logits, y)
    fitted.save(tmp_path / "map.json")
    np.testing.assert_array_equal(mm.load(tmp_path / "map.json").predict_proba(logits), fitted.predict_proba(logits))

"""Exported maps give what ``predict_proba`` gives: every short name, nested expressions, every runtime."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixnmatch as mm
from mixnmatch import accuracy_preserved
from tests.conftest import make_problem, softmax
from tests.export.problems import CASES, NAMES, all_rows, awkward, calibration_set, fitted_map
from tests.export.runtimes import INSTALLED, RUNTIMES, Interpreter, assert_same, ran

NEAR = 1e-6  # rows with a score so near to a knot are exempt in single precision
# Most of these rows are the calibration set: its scores are knots of Venn-Abers prediction, many of its quantiles knots
# of the kernel map.
MOST_EXEMPT = {"venn-abers": 0.5, "kernel": 0.3}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name, n_classes, logits", CASES)
def test_double_precision_needs_no_exemptions(name, n_classes, logits, runtime):
    fitted, scores = fitted_map(name, n_classes, logits), all_rows(n_classes, logits)
    assert_same(ran(runtime, fitted, scores, "double"), fitted, scores)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name, n_classes, logits", CASES)
def test_single_precision_away_from_knots(name, n_classes, logits, runtime, record_property):
    fitted, scores = fitted_map(name, n_classes, logits), all_rows(n_classes, logits)
    exact = Interpreter(fitted)
    exact(scores)
    # Scores as they are given are compared with knots exactly; only what was computed from them may be off.
    given = isinstance(fitted, mm.Pooled | mm.OneVsAll) and not logits
    exempt = np.zeros(len(scores), bool) if given else exact.nearest <= NEAR
    record_property("exempt rows", int(exempt.sum()))
    assert exempt.mean() < MOST_EXEMPT.get(name, 0.2)
    assert_same(ran(runtime, fitted, scores, "single"), fitted, scores, exempt)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("kind", ["keep-sms", "auto"])
def test_maps_held_to_their_winners(kind, precision, runtime):
    scores, y = make_problem(300, 5, dtype=np.float32)
    y = np.where(np.arange(300) % 3, y, (y + 1) % 5)  # the map inside wants to change many predictions
    options = {"accuracy_preserving": True} if kind == "auto" else {}
    fitted = mm.calibrator(kind, logits=True, **options).fit(scores, y)
    rows = np.concatenate([scores, awkward(5, logits=True)])
    assert_same(ran(runtime, fitted, rows, precision), fitted, rows)


@st.composite
def binary_maps(draw):
    return draw(
        st.sampled_from(
            [
                mm.Isotonic(strict=True),
                mm.Isotonic(),
                mm.Isotonic(shape="linear"),
                mm.Isotonic(shape="centred", strict=True),
                mm.maps.HistogramBinning(bins=5),
                mm.maps.BayesianBinning(),
                mm.maps.PlattScaling(),
                mm.maps.PlattScaling(on="probability"),
                mm.maps.BetaScaling(),
            ]
        )
    )


@st.composite
def expressions(draw, depth=2):
    kind = draw(st.sampled_from(["single", "pooled", "one-vs-all"] + ["composition"] * (2 * (depth > 0))))
    if kind == "composition":
        return draw(expressions(depth=depth - 1)) >> draw(expressions(depth=depth - 1))
    if kind == "single":
        singles = [
            mm.maps.Identity(),
            mm.maps.Uniform(),
            mm.TemperatureScaling(),
            mm.EnsembleTemperatureScaling(),
            mm.maps.StructuredVectorScaling(),
            mm.maps.PriorShift({0: 5.0, 1: 1e-3}),
            mm.maps.IntraOrderPreserving(),
            mm.maps.NormalisedIsotonic(),
            mm.Ensemble("temperature"),
        ]
        return draw(st.sampled_from(singles))
    combine = mm.Pooled if kind == "pooled" else mm.OneVsAll
    return combine(draw(binary_maps()), smoothing=draw(st.sampled_from([0.0, 1.0])))


@settings(max_examples=25)
@given(expressions(), st.sampled_from([2, 3, 5]), st.booleans())
def test_nested_expressions(expression, n_classes, keep):
    scores, y = calibration_set(n_classes, logits=False, n=120)
    fitted = (mm.maps.KeepWinner(expression) if keep else expression).fit(scores, y)
    rows = all_rows(n_classes, logits=False)
    for runtime in INSTALLED:
        assert_same(ran(runtime, fitted, rows, "double"), fitted, rows)


@pytest.mark.parametrize("before", [None, mm.TemperatureScaling(), mm.EnsembleTemperatureScaling()])
@pytest.mark.parametrize("combine", [mm.Pooled, mm.OneVsAll])
@pytest.mark.parametrize(
    "binary",
    [
        mm.maps.ShrunkenPlattScaling(),
        mm.maps.ShrunkenBetaScaling(penalty=0.5),
        mm.maps.QuadraticScaling(),
        mm.maps.SplineCalibration(monotone=False),
        mm.maps.KernelCalibration(monotone=False),
        mm.maps.VennAbers(),
        mm.maps.VennAbers(cv=3),
    ],
    ids=repr,
)
def test_binary_maps_of_log_odds_and_intervals(binary, combine, before):
    expression = combine(binary) if before is None else before >> combine(binary)
    for n_classes in (2, 4):
        scores, y = calibration_set(n_classes, logits=False, n=120)
        fitted, rows = expression.fit(scores, y), all_rows(n_classes, logits=False)
        for runtime in INSTALLED:
            assert_same(ran(runtime, fitted, rows, "double"), fitted, rows)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_rows_that_are_not_quite_probabilities_are_renormalised(runtime):
    scores, y = calibration_set(3, logits=False)
    off = (scores * (1 + np.linspace(-9e-5, 9e-5, len(scores)))[:, None]).astype(np.float32)
    for name in ("ts", "irm", "beta", "irova-ets"):
        fitted = mm.calibrator(name).fit(off, y)
        assert_same(ran(runtime, fitted, off, "double"), fitted, off)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_rows_of_which_nothing_is_known_come_back(runtime):
    fitted = mm.Pooled(mm.Isotonic(), smoothing=0).fit(
        np.array([[0.9, 0.1], [0.8, 0.2]], np.float32).repeat(3, 0), [0] * 6
    )
    rows = np.array([[0.6, 0.4], [0.95, 0.05]], np.float32)
    np.testing.assert_allclose(fitted.predict_proba(rows)[0], rows[0])  # both below all scores of labels
    assert_same(ran(runtime, fitted, rows, "double"), fitted, rows)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("precision", ["double", "single"])
def test_near_ties_keep_their_winner(runtime, precision):
    rng = np.random.default_rng(0)
    for logits in (False, True):
        rows = rng.dirichlet(np.ones(4), 300).astype(np.float32)
        top, second = np.argsort(-rows, axis=1)[:, :2].T
        index = np.arange(300)
        mean = (rows[index, top] + rows[index, second]) / 2
        rows[index, top], rows[index, second] = np.nextafter(mean, np.float32(1)), mean
        rows = rows * np.float32(300) if logits else rows
        for name in (line.name for line in mm.calibrators() if line.accuracy_preserving):
            fitted = fitted_map(name, 4, logits)
            assert accuracy_preserved(rows, ran(runtime, fitted, rows, precision))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("name", ["platt", "beta"])
def test_logits_whose_probabilities_underflow(name, n_classes, runtime):
    logits, y = make_problem(200, n_classes, sharpness=2000.0, dtype=np.float32)
    fitted = mm.calibrator(name, logits=True).fit(logits, y)
    assert_same(ran(runtime, fitted, logits, "double"), fitted, logits)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("n", [0, 1])
def test_small_batches(runtime, n):
    for name in NAMES:
        fitted = fitted_map(name, 3, False)
        rows = all_rows(3, False)[-n:] if n else np.zeros((0, 3), np.float32)
        found = ran(runtime, fitted, rows, "double")
        assert found.shape == (n, 3)
        if n:
            assert_same(found, fitted, rows)


@pytest.mark.parametrize("name", ["ets", "irm", "irova"])
def test_a_thousand_classes(name):
    logits, y = make_problem(1000, 1000, dtype=np.float32)
    p = softmax(logits).astype(np.float32)
    fitted = mm.calibrator(name).fit(p, y)
    for runtime in INSTALLED:
        assert_same(ran(runtime, fitted, p[:200], "double"), fitted, p[:200])


def test_binary_maps_alone_and_what_they_are_fitted_on():
    rng = np.random.default_rng(0)
    positive = rng.random(200).astype(np.float32)
    y = (rng.random(200) < positive).astype(int)
    table = np.stack([1 - positive, positive], axis=1)
    for each in (mm.Isotonic(), mm.maps.HistogramBinning(bins=4), mm.maps.PlattScaling(), mm.maps.BetaScaling()):
        fitted = each.fit(positive, y)
        for runtime in INSTALLED:
            assert_same(ran(runtime, fitted, table, "double"), fitted, table)


def test_awkward_rows_are_awkward():
    rows = awkward(3, logits=True)
    assert (rows == 0).any()
    assert np.abs(rows).max() == 1e4
    assert len(np.unique(rows[2])) == 1


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("n_classes, logits", [(2, False), (3, True), (10, False)])
def test_adapted_maps(runtime, precision, n_classes, logits):
    fitted = fitted_map("bcts", n_classes, logits).adapt(sampling={0: 0.01})
    scores = all_rows(n_classes, logits)
    assert_same(ran(runtime, fitted, scores, precision), fitted, scores)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_classes_without_probability_keep_none(runtime):
    scores = np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]], np.float32)
    fitted = mm.maps.PriorShift([1.0, 1.0, 1e6]).fit(scores, [0, 1, 2])
    found = ran(runtime, fitted, scores, "double")
    assert_same(found, fitted, scores)
    assert (found[scores == 0] == 0).all()

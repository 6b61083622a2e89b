"""What the page computes agrees with the library to nine digits: parameters, probabilities, measures and map files."""

import json
import warnings

import numpy as np
import pytest
from scipy.special import ndtri

import mixnmatch as mm
from mixnmatch._engine.folds import fold_of
from mixnmatch.evaluation import reliability_curve
from mixnmatch.evaluation._binning import bin_linearly
from mixnmatch.evaluation._curves import _wilson
from mixnmatch.evaluation.kde import Smoother, fit_grid, rule_of_thumb
from tests.conftest import draw_labels, make_problem, softmax

METHODS = ("ts", "ets", "platt", "beta", "isotonic", "irm")
AGREED = 1e-9

FIT = """(text, logits, methods) => {
  const { table } = playground.readTable(text, logits);
  const given = playground.outcomes(table, table.probabilities, { before: true });
  const found = { before: playground.measures(given), bins: playground.histogramCurve(given),
                  curve: playground.kernelCurve(given), maps: {} };
  for (const method of methods) {
    const map = playground.fitMap(method, table), p = map.predict(table);
    found.maps[method] = {
      fitted: map.fitted, inner: map.inner?.fitted ?? null, p: Array.from(p), notes: map.notes,
      measures: playground.measures(playground.outcomes(table, p)),
      file: playground.mapFile(map, table, { version: "0", metadata: { note: "détail \\u007f 日本" } }),
    };
  }
  return found;
}"""


def _cases():
    cases = {}
    for n_classes in (2, 10):
        logits, y = make_problem(400, n_classes, seed=n_classes)
        few = logits[np.random.default_rng(0).integers(0, 40, 400)]  # forty different rows
        cases |= {
            f"{n_classes} classes, logits": (logits, y, True),
            f"{n_classes} classes, probabilities": (softmax(logits), y, False),
            f"{n_classes} classes, 30 samples": (logits[:30], y[:30], True),
            f"{n_classes} classes, three decimals": (np.round(softmax(logits), 3), y, False),
            f"{n_classes} classes, zeros and ones": (_few_decimals(softmax(3 * logits)), y, False),
            f"{n_classes} classes, saturated logits": (20 * logits, y, True),
            f"{n_classes} classes, saturated probabilities": (softmax(20 * logits), y, False),
            f"{n_classes} classes, huge logits": (1e4 * logits, y, True),
            f"{n_classes} classes, ties of logits": (few, y, True),
            f"{n_classes} classes, ties of probabilities": (softmax(few), y, False),
            f"{n_classes} classes, an absent class": (logits, np.where(y == n_classes - 1, 0, y), True),
            f"{n_classes} classes, never wrong": (logits, logits.argmax(axis=1), True),
            f"{n_classes} classes, underconfident": (0.1 * logits, y, True),
        }
    rng = np.random.default_rng(5)
    rare = (rng.random(4000) < 0.01).astype(int)
    odds = rng.normal(size=4000) + 3 * rare - 3
    many, labels = make_problem(20_000, 3, seed=8)
    return cases | {
        "a vector of probabilities, 1% positives": (1 / (1 + np.exp(-odds)), rare, False),
        "a vector of logits": (odds, rare, True),
        "a vector of log-odds of 50": (50 * np.sign(odds + 2), rare, True),
        "enough samples for first looks": (many, labels, True),
        "constant scores": (np.full((60, 3), 1 / 3), labels[:60], False),
    }


def _few_decimals(p):
    p = np.round(p, 2)
    return p / p.sum(axis=1, keepdims=True)


CASES = _cases()
# One or two different scores do not determine three parameters; the probabilities they do.
UNDETERMINED = {"constant scores": ("ets",), "a vector of log-odds of 50": ("ets", "beta")}


def as_json(scores, y, logits):
    return json.dumps({"logits" if logits else "probs": scores.tolist(), "labels": np.asarray(y).tolist()})


def agree(found, expected):
    found = np.array([np.nan if x is None else x for x in np.ravel(found)], dtype=np.float64)
    expected = np.ravel(np.asarray(expected, dtype=np.float64))
    assert found.shape == expected.shape
    expected = np.where(np.isinf(expected), np.nan, expected)  # JSON has no infinities
    np.testing.assert_allclose(found, expected, rtol=AGREED, atol=AGREED)


def fitted_by_library(method, scores, y, logits):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mm.calibrator(method, logits=logits).fit(scores, y)


def measures_by_library(scores, y, logits=False):
    return {
        "n": len(y),
        "accuracy": mm.evaluation.accuracy(scores, y, logits=logits),
        "logLoss": mm.evaluation.log_loss(scores, y, logits=logits),
        "brier": mm.evaluation.brier_score(scores, y, logits=logits),
        "ece": mm.calibration_error(scores, y, estimator="histogram", logits=logits),
    }


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_page_agrees_with_the_library(engine, name, tmp_path):
    scores, y, logits = CASES[name]
    found = engine.call_page(FIT, as_json(scores, y, logits), logits, METHODS)
    for measure, value in measures_by_library(scores, y, logits).items():
        agree(found["before"][measure], value)
    for method, mine in found["maps"].items():
        fitted = fitted_by_library(method, scores, y, logits)
        p = fitted.predict_proba(scores)
        agree(mine["p"], p)
        for measure, value in measures_by_library(p, y).items():
            agree(mine["measures"][measure], value)
        if method not in UNDETERMINED.get(name, ()):
            _check_parameters(mine, fitted)
        _check_file(mine, fitted, scores, tmp_path / f"{method}.json")


def _check_parameters(mine, fitted):
    inside = fitted if mine["inner"] is None else fitted.map_
    for key, value in (mine["inner"] or mine["fitted"]).items():
        if key in ("bound_", "scale_"):
            assert value == getattr(inside, key)
        elif key != "backend_":
            agree(value, getattr(inside, key))


def _check_file(mine, fitted, scores, path):
    path.write_text(mine["file"], encoding="utf-8")
    loaded = mm.load(path)
    agree(mine["p"], loaded.predict_proba(scores))
    assert repr(loaded) == repr(fitted)
    assert loaded.metadata_ == {"note": "détail \x7f 日本"}
    assert loaded.header_["summary"]["method"] == " ".join(repr(fitted).split())
    agree(loaded.summary_.mean_prediction, fitted.summary_.mean_prediction)
    np.testing.assert_array_equal(loaded.summary_.counts.sum(axis=1), fitted.summary_.counts.sum(axis=1))


@pytest.mark.parametrize("method", ["ts", "ets", "irm"])
def test_predicted_classes_stay_to_the_last_digit(engine, method):
    rng = np.random.default_rng(0)
    logits, y = make_problem(300, 4, sharpness=8.0)
    ahead = rng.integers(0, 4, 300)
    logits[np.arange(300), ahead] = np.nextafter(logits.max(axis=1), np.inf)
    found = engine.call_page(FIT, as_json(logits, y, True), True, [method])["maps"][method]["p"]
    np.testing.assert_array_equal(np.reshape(found, (-1, 4)).argmax(axis=1), ahead)


@pytest.mark.parametrize("name", ["2 classes, logits", "10 classes, probabilities", "10 classes, 30 samples"])
def test_reliability_agrees_with_the_library(engine, name):
    scores, y, logits = CASES[name]
    found = engine.call_page(FIT, as_json(scores, y, logits), logits, [])
    bins = reliability_curve(scores, y, kind="histogram", logits=logits)
    for key in ("confidence", "value", "low", "high", "share"):
        agree([one[key] for one in found["bins"]], getattr(bins, key))
    curve = reliability_curve(scores, y, kind="kde", bandwidth="paper", logits=logits)
    points = found["curve"]["points"]
    agree(found["curve"]["bandwidth"], curve.bandwidth)
    agree([point["confidence"] for point in points], curve.confidence)
    # The library smooths by transforms, whose rounding shows where there is next to nothing.
    support, effective, nodes = _under_the_kernel(scores, y, logits)
    clear = (support > 1e-6 * len(y))[np.isin(nodes, curve.confidence)]
    assert clear.sum() > 50
    agree(np.array([point["value"] for point in points])[clear], curve.value[clear])
    low, high = _wilson(effective[np.isin(nodes, curve.confidence)][clear], curve.value[clear], ndtri(0.975))
    agree(np.array([point["low"] for point in points])[clear], low)
    agree(np.array([point["high"] for point in points])[clear], high)


def _under_the_kernel(scores, y, logits):
    """Sum of the kernel over the samples at each node, and the effective number of samples."""
    p = softmax(scores) if logits else scores
    z, hit = (p[:, 1], y == 1) if p.shape[1] == 2 else (p.max(axis=1), p.argmax(axis=1) == y)
    grid = bin_linearly(z, hit.astype(np.int8))
    width = rule_of_thumb(grid)
    grid = fit_grid(grid, width)
    smoother = Smoother(width, grid.count.shape[-1])
    support = smoother.value(grid.count)
    return support, support**2 / np.maximum(smoother.variance(grid.count), 1e-300), grid.nodes


def test_the_error_to_expect_by_chance_is_that_of_calibrated_labels(engine):
    rng = np.random.default_rng(1)
    p = softmax(2 * rng.normal(size=(1500, 4)))
    found = engine.call_page(FIT, as_json(p, draw_labels(p, rng), False), False, [])["before"]["eceByChance"]
    drawn = [float(mm.calibration_error(p, draw_labels(p, rng), estimator="histogram")) for _ in range(200)]
    assert found == pytest.approx(np.mean(drawn), rel=0.05)


SESSION = """async (text, logits, how, method) => {
  const session = new playground.Session(playground.readTable(text, logits).table, how);
  await session.fit(method);
  const { before, after, changes, map, notes } = session.evaluate(method);
  return { before: before.measures, after: after.measures, changes, notes, rows: session.calibration.n,
           file: playground.mapFile(map, session.calibration, { version: "0", metadata: {} }) };
}"""


def _out_of_fold(method, logits, y, folds):
    p = np.empty(logits.shape)
    for fold in np.unique(folds):
        held = folds == fold
        p[held] = fitted_by_library(method, logits[~held], y[~held], True).predict_proba(logits[held])
    return p


@pytest.mark.parametrize("how, n_folds", [("halves", 2), ("folds", 5)])
@pytest.mark.parametrize("method", ["ets", "isotonic"])
def test_samples_are_evaluated_by_maps_that_have_not_seen_them(engine, how, n_folds, method, tmp_path):
    logits, y = make_problem(500, 3, seed=4)
    found = engine.call_page(SESSION, as_json(logits, y, True), True, how, method)
    folds = fold_of(np.arange(500), n_folds)
    evaluated = folds == 1 if how == "halves" else np.full(500, True)
    p, y_held = _out_of_fold(method, logits, y, folds)[evaluated], y[evaluated]
    for measure, value in measures_by_library(p, y_held).items():
        agree(found["after"][measure], value)
    for measure, value in measures_by_library(logits[evaluated], y_held, True).items():
        agree(found["before"][measure], value)
    gain = mm.calibration_gain(softmax(logits[evaluated]), p, y_held)
    agree(found["changes"]["brier"]["value"], -float(gain))
    agree(found["changes"]["brier"]["standardError"], gain.standard_error)
    # The file holds the map of the calibration half, or one of all samples.
    used = folds == 0 if how == "halves" else evaluated
    assert found["rows"] == used.sum()
    (tmp_path / "map.json").write_text(found["file"])
    expected = fitted_by_library(method, logits[used], y[used], True)
    agree(mm.load(tmp_path / "map.json").predict_proba(logits), expected.predict_proba(logits))


@pytest.mark.parametrize("intercept, method", [(0.0, "ts"), (2.5, "ts"), (2.5, "beta"), (0.0, "irm")])
def test_it_warns_where_the_library_does(engine, intercept, method):
    rng = np.random.default_rng(2)
    odds = 2 * rng.normal(size=800)
    y = (rng.random(800) < 1 / (1 + np.exp(-odds))).astype(int)
    given = odds + intercept
    notes = engine.call_page(SESSION, as_json(given, y, True), True, "halves", method)["notes"]
    half = fold_of(np.arange(800), 2) == 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mm.calibrator(method, logits=True).fit(given[half], y[half])
    assert len(notes) == len(caught)
    for note, warning in zip(notes, caught, strict=True):
        assert note.split(" is ")[1].split("%")[0] in str(warning.message)


def test_all_labels_of_one_class(engine):
    logits, _ = make_problem(40, 3)
    found = engine.call_page(SESSION, as_json(logits, np.zeros(40, int), True), True, "halves", "platt")
    assert any("All labels" in note for note in found["notes"])

"""Unusable samples, masked classes, huge and saturated logits: exported maps do what ``predict_proba`` does."""

from functools import cache

import numpy as np
import pytest

import mixnmatch as mm
from tests.conftest import make_problem, softmax
from tests.export.problems import NAMES, all_rows, fitted_map, fresh_rows
from tests.export.runtimes import INSTALLED, RUNTIMES, assert_same, ran

HUGE = [np.finfo(np.float32).min, np.finfo(np.float32).max, -1e10, 1e10, -1e9, 1.5e9, -3e38, 1e30]


def huge_logits(n_classes):
    """Rows with one to all logits at or beyond what float32 or sums of squares hold; a few keep a lead of 2."""
    rng = np.random.default_rng(3)
    rows = fresh_rows(n_classes, True, n=120)
    which = rng.random(rows.shape) < 0.4
    rows[which] = rng.choice(np.array(HUGE, np.float32), size=which.sum())
    return np.concatenate([rows, fresh_rows(n_classes, True, n=20), fresh_rows(n_classes, True, n=10) - 2**31])


def masked_logits(n_classes):
    """Rows in which up to all but one class are masked, with usual or huge logits for the others."""
    rng = np.random.default_rng(4)
    rows = np.concatenate([fresh_rows(n_classes, True, n=100), huge_logits(n_classes)[:30]])
    mask = rng.random(rows.shape) < 0.5
    mask[np.arange(len(rows)), rng.integers(n_classes, size=len(rows))] = False
    rows[mask] = -np.inf
    rows[:10] = fresh_rows(n_classes, True, n=10)
    return rows


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_bad_rows_are_nan_and_harm_no_other(name, logits, runtime):
    fitted, rows = fitted_map(name, 3, logits), all_rows(3, logits)
    bad = np.zeros(len(rows), bool)
    spoiled = rows.copy()
    values = [np.nan, np.inf, -np.nan] + [-np.inf] * (not logits)
    for k in range(0, len(rows), 7):
        bad[k] = True
        spoiled[k, k % 3] = values[k % len(values)]
    spoiled[3], bad[3] = np.nan, True
    spoiled[4], bad[4] = [np.inf, np.nan, -np.inf], True
    spoiled[5], bad[5] = -np.inf, True  # every class is masked, or not a probability
    for precision in ("double", "single"):
        found = ran(runtime, fitted, spoiled, precision)
        assert np.isnan(found[bad]).all()
        np.testing.assert_array_equal(found[~bad], ran(runtime, fitted, rows, precision)[~bad])
    with pytest.raises(ValueError, match="row 0"):
        fitted.predict_proba(spoiled)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_huge_logits(name, n_classes, runtime):
    fitted, rows = fitted_map(name, n_classes, True), huge_logits(n_classes)
    found = ran(runtime, fitted, rows, "double")
    assert_same(found, fitted, rows)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_masked_classes_get_zero(name, n_classes, runtime):
    fitted, rows = fitted_map(name, n_classes, True), masked_logits(n_classes)
    found = ran(runtime, fitted, rows, "double")
    assert_same(found, fitted, rows)
    assert (found[np.isneginf(rows)] == 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(found[:10], ran(runtime, fitted, rows[:10], "double"))  # they have no mask


@pytest.mark.parametrize("runtime", ["onnx", "torch"])
def test_vectors_with_masks_and_bad_samples(runtime):
    rng = np.random.default_rng(0)
    positive = (3 * rng.normal(size=200)).astype(np.float32)
    y = (rng.random(200) < 1 / (1 + np.exp(-positive))).astype(int)
    given = positive.copy()
    given[:6] = [-np.inf, np.nan, np.inf, -1e30, 1e30, -1e9]
    usable = np.isfinite(given) | np.isneginf(given)
    for name in ("ts", "irm", "beta", "bbq", "svs"):
        fitted = mm.calibrator(name, logits=True).fit(positive, y)
        found = ran(runtime, fitted, given, "double", vector=True)
        assert np.isnan(found[~usable]).all()
        assert (found[0] == [1, 0]).all()
        np.testing.assert_allclose(found[usable], fitted.predict_proba(given[usable]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_masks_in_half_precision(kind):
    torch = pytest.importorskip("torch")
    rows = fresh_rows(3, True)
    rows[:50, 0], rows[50:90, 1], rows[90] = -np.inf, -6e4, np.nan
    given = torch.from_numpy(rows).to(getattr(torch, kind))
    kept = np.arange(len(rows)) != 90
    for name in ("ts", "irm-ets", "sms", "iop"):
        fitted = fitted_map(name, 3, True)
        found = fitted.to_torch()(given)
        expected = fitted.predict_proba(given[kept])
        np.testing.assert_allclose(found[kept].double().numpy(), expected, rtol=0, atol=6e-3)
        assert (found[:50, 0] == 0).all()
        assert torch.isnan(found[90]).all()
        if fitted.accuracy_preserving:
            assert (found[kept].argmax(dim=1) == given[kept].argmax(dim=1)).all()


STEPS = ["isotonic", "histogram", "bbq", "venn-abers", "irm", "irm-normalised", "irova"]
STEPS += ["irova-ts", "irova-ets", "irm-ts", "irm-ets"]


@cache
def ties_and_certainty(n_classes, kind):
    """Logits and labels: probabilities next to 1, or ties that are computed in different orders of the classes."""
    logits, y = make_problem(600, n_classes, sharpness={"saturated": 30, "far": 1000, "rounded": 3}[kind])
    return (np.round(logits) if kind == "rounded" else logits).astype(np.float32), y


@pytest.mark.parametrize("kind", ["saturated", "far", "rounded"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", STEPS)
def test_steps_on_ties_and_certainty(name, n_classes, kind):
    logits, y = ties_and_certainty(n_classes, kind)
    fitted = mm.calibrator(name, logits=True).fit(logits, y)
    masked = logits[:200].copy()
    masked[::2, 0], masked[1::4, 1] = -np.inf, -1e10
    turned = np.roll(logits, 1, axis=1)  # the same numbers, added up in another order
    rows = np.concatenate([logits, logits + np.float32(1000), turned, masked])
    for runtime in INSTALLED:
        assert_same(ran(runtime, fitted, rows, "double"), fitted, rows)


@pytest.mark.parametrize("kind", ["saturated", "rounded"])
@pytest.mark.parametrize("shape", ["linear", "centred"])
@pytest.mark.parametrize("combine", [mm.Pooled, mm.OneVsAll])
def test_steep_curves_on_ties_and_certainty(combine, shape, kind):
    logits, y = ties_and_certainty(3, kind)
    fitted = combine(mm.Isotonic(shape=shape, strict=True), logits=True).fit(logits, y)
    rows = np.concatenate([logits, np.roll(logits, 1, axis=1)])
    for runtime in INSTALLED:
        assert_same(ran(runtime, fitted, rows, "double"), fitted, rows)


@pytest.mark.parametrize("first", ["dirichlet", "sms", "matrix", "kernel"])
def test_venn_abers_after_a_matrix_product(first):
    """Products of matrices round differently in each runtime, and every score of the calibration set has a step."""
    sample = mm.load_sample()
    for seed in (1, 4, 6, 47):
        rows = np.random.default_rng(seed).choice(len(sample.labels_cal), 1000, replace=False)
        logits, y = sample.logits_cal[rows], sample.labels_cal[rows]
        fitted = (mm.calibrator(first, logits=True) >> mm.calibrator("venn-abers")).fit(logits, y)
        expected = fitted.predict_proba(logits)
        for runtime in INSTALLED:
            found = ran(runtime, fitted, logits, "double")
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_certain_probabilities_in_double(name):
    """Given probabilities that are next to 1 in double precision are told apart by Python and by the module."""
    torch = pytest.importorskip("torch")
    logits, y = ties_and_certainty(2, "saturated")
    p = softmax(logits)
    fitted = mm.calibrator(name).fit(p, y)
    found = fitted.to_torch()(torch.from_numpy(p)).numpy()
    np.testing.assert_allclose(found, fitted.predict_proba(p), rtol=0, atol=1e-12)


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("name", ["isotonic", "histogram", "bbq", "venn-abers", "irova"])
def test_steps_of_unscaled_margins(name, precision):
    """Logits far above 25 are as different in an exported map as in Python, at the calibration samples."""
    rng = np.random.default_rng(0)
    y = (rng.random(600) < 0.5).astype(int)
    z = (15 * rng.normal(size=600) + 20 * (y - 0.5) + 25).astype(np.float32)
    fitted = mm.calibrator(name, logits=True).fit(z, y)
    logits = np.stack([np.zeros_like(z), z], axis=1)
    for runtime in INSTALLED:
        apart = np.abs(ran(runtime, fitted, logits, precision) - fitted.predict_proba(logits)) > 1e-5
        assert apart.mean() <= (0 if precision == "double" else 0.01)

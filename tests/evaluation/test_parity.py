"""Numbers of other packages (parity/values.json, written by parity/make_values.py) and our parameters for them."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from mixnmatch._engine.scores import read_scores
from mixnmatch.evaluation._binning import bin_linearly
from mixnmatch.evaluation.error import calibration_error
from mixnmatch.evaluation.kde import spectrum
from mixnmatch.evaluation.notion import top_label
from mixnmatch.evaluation.reliability import reliability_curve
from mixnmatch.evaluation.scores import accuracy, brier_score, log_loss
from mixnmatch.evaluation.smooth import summed_error
from mixnmatch.evaluation.two_classes import binary_measures
from mixnmatch.maps.temperature import TemperatureScaling

PARITY = Path(__file__).parents[2] / "parity"
RECORD = json.loads((PARITY / "values.json").read_text(encoding="utf-8"))
UNITS = RECORD["data"]["units"]
P = np.array(RECORD["data"]["multiclass"]["counts"]) / UNITS
Y = np.array(RECORD["data"]["multiclass"]["labels"])
Z = np.array(RECORD["data"]["binary"]["counts"]) / UNITS
O = np.array(RECORD["data"]["binary"]["labels"])  # noqa: E741
BELOW = P.max(axis=1) < 1


def value(package, name):
    return RECORD["values"][package][name]


def histogram(scores, y, bins, **options):
    return float(calibration_error(scores, y, estimator="histogram", bins=bins, **options))


def smoothed():
    return 0.98 * P + 0.02 / P.shape[1]


def test_the_record_is_that_of_the_generator():
    spec = importlib.util.spec_from_file_location("make_values", PARITY / "make_values.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.make_data() == RECORD["data"]
    assert set(RECORD["versions"]) >= {"netcal", "torchmetrics", "relplot", "scikit-learn", "MAPIE"}
    assert (P == 1).any()
    assert (P == 0).any()
    assert len(np.unique(Z)) < len(Z)
    required = (PARITY / "requirements.txt").read_text(encoding="utf-8")
    for name in ("netcal", "torchmetrics", "relplot", "scikit-learn", "MAPIE", "torch"):
        assert f"{name}=={RECORD['versions'][name]}" in required


@pytest.mark.parametrize("bins", [15, 16])
def test_netcal(bins):
    assert histogram(P, Y, bins) == pytest.approx(value("netcal", f"ECE({bins}) multiclass"), rel=1e-12)
    assert histogram(Z, O, bins) == pytest.approx(value("netcal", f"ECE({bins}) binary"), rel=1e-12)


def test_netcal_maximum_and_average():
    assert histogram(P, Y, 15, norm="max") == pytest.approx(value("netcal", "MCE(15) multiclass"), rel=1e-12)
    curve = reliability_curve(P, Y, kind="histogram", bins=15)
    average = np.abs(curve.value - curve.confidence).mean()
    assert average == pytest.approx(value("netcal", "ACE(15) multiclass"), rel=1e-12)


def test_netcal_quantile_bins():
    confidence = P.max(axis=1)
    edges = np.quantile(confidence, np.linspace(0, 1, 11))
    edges[[0, -1]] = 0, 1
    curve = reliability_curve(P, Y, kind="histogram", bins=edges)
    assert curve.error == pytest.approx(value("netcal", "ECE(10, equal_intervals=False) multiclass"), rel=1e-12)


def test_netcal_temperature_on_float32_is_not_ignored():
    third = {name: value("netcal", f"TemperatureScaling third row, {name}") for name in ("float64", "float32")}
    p = smoothed()
    np.testing.assert_allclose(third["float32"], p[2], rtol=1e-6)  # theirs does nothing
    for dtype in (np.float64, np.float32):
        ours = TemperatureScaling().fit(p.astype(dtype), Y).predict_proba(p.astype(dtype))[2]
        np.testing.assert_allclose(ours, third["float64"], atol=2e-4)


@pytest.mark.parametrize("bins", [15, 16])
def test_torchmetrics(bins):
    for norm, ours, root in (("l1", 1, False), ("l2", 2, True), ("max", "max", False)):
        theirs = value("torchmetrics", f"multiclass_calibration_error({bins}, {norm}) confidence below 1")
        assert histogram(P[BELOW], Y[BELOW], bins, norm=ours, root=root) == pytest.approx(theirs, rel=1e-6)
    theirs = value("torchmetrics", f"binary_calibration_error({bins}, l1) confidence below 1")
    assert histogram(Z[Z < 1], O[Z < 1], bins) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("bins", [15, 16])
def test_no_phantom_bin_at_confidence_one(bins):
    theirs = value("torchmetrics", f"multiclass_calibration_error({bins}, l1) all rows")
    ours = histogram(P, Y, bins)
    assert abs(ours - theirs) > 1e-4
    assert ours == pytest.approx(value("netcal", f"ECE({bins}) multiclass"), rel=1e-12)
    # Theirs is that of one more bin, for a confidence of exactly 1.
    edges = np.append(np.arange(bins + 1) / bins, 1.0)
    edges[-2] = np.nextafter(1.0, 0.0)
    phantom = reliability_curve(P, Y, kind="histogram", bins=edges)
    assert phantom.error == pytest.approx(theirs, rel=1e-6)


def reflected_gaussian_error(z, y, width):
    """The definition by brute force: images of every point in the mirrors at 0 and 1, trapezoid rule."""
    t = np.linspace(0, 1, 2001)
    images = [image + 2 * turn for turn in range(-3, 4) for image in (z, -z)]
    kernel = sum(np.exp(-0.5 * np.square((t[:, None] - image) / width)) for image in images)
    smooth = kernel @ (y - z) / (len(z) * width * np.sqrt(2 * np.pi))
    return np.trapezoid(np.abs(smooth), t)


def smooth_error_at(z, y, width):
    return float(summed_error(spectrum(bin_linearly(z, y).residual), np.array(width))) / len(z)


def test_relplot_smooth_error():
    inside = (Z > 0) & (Z < 1)
    name = "confidence inside (0, 1)"
    ours = calibration_error(Z[inside], O[inside], estimator="smooth")
    # Theirs sums over 200 points and finds the width in 10 halvings.
    assert ours == pytest.approx(value("relplot", f"smECE binary, {name}"), rel=5e-3)
    ours = calibration_error(P[BELOW], Y[BELOW], estimator="smooth")
    assert ours == pytest.approx(value("relplot", "smECE top-label, confidence below 1"), rel=5e-3)
    # A wide kernel, which theirs cuts off at 0.5, agrees less well.
    for width, tolerance in ((0.05, 5e-3), (0.2, 2.5e-2)):
        ours = smooth_error_at(Z[inside], O[inside], width)
        assert ours == pytest.approx(value("relplot", f"smECE_sigma({width}) binary, {name}"), rel=tolerance)


@pytest.mark.parametrize("width", [0.05, 0.2])
def test_smooth_error_counts_zeros_and_ones_in_full(width):
    theirs = value("relplot", f"smECE_sigma({width}) binary, all rows")
    ours = smooth_error_at(Z, O, width)
    assert ours == pytest.approx(reflected_gaussian_error(Z, O, width), rel=1e-5)
    assert ours > 1.05 * theirs  # theirs leaves out the mirror images of what is exactly at 0 or 1


def test_relplot_bins():
    theirs = value("relplot", "binnedECE(16) binary, confidence below 1")
    assert histogram(Z[Z < 1], O[Z < 1], 16) == pytest.approx(theirs, rel=1e-12)


def test_scikit_learn_scores():
    assert accuracy(P, Y) == value("scikit-learn", "accuracy_score multiclass")
    assert brier_score(P, Y) == pytest.approx(value("scikit-learn", "brier_score_loss multiclass"), rel=1e-12)
    binary = value("scikit-learn", "brier_score_loss binary")
    assert brier_score(Z, O, scale_by_half=True) == pytest.approx(binary, rel=1e-12)
    assert log_loss(smoothed(), Y) == pytest.approx(value("scikit-learn", "log_loss multiclass, smoothed"), rel=1e-12)
    assert log_loss(0.98 * Z + 0.01, O) == pytest.approx(value("scikit-learn", "log_loss binary, smoothed"), rel=1e-12)


def test_log_loss_does_not_hide_zeros():
    theirs = value("scikit-learn", "log_loss binary, zeros included")
    assert np.isfinite(theirs)
    assert log_loss(Z, O) == np.inf
    assert log_loss(Z, O, eps=np.finfo(np.float64).eps) == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("bins", [10, 16])
@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_scikit_learn_curves(bins, strategy):
    theirs = value("scikit-learn", f"calibration_curve({bins}, {strategy})")
    edges = np.linspace(0, 1, bins + 1) if strategy == "uniform" else np.percentile(Z, np.linspace(0, 100, bins + 1))
    curve = reliability_curve(Z, O, kind="histogram", bins=edges, closed="right")
    np.testing.assert_allclose(curve.confidence, theirs["mean"], rtol=1e-12)
    np.testing.assert_allclose(curve.value, theirs["fraction"], rtol=1e-12)
    if strategy == "uniform":
        counted = reliability_curve(Z, O, kind="histogram", bins=bins, closed="right")
        np.testing.assert_allclose(counted.value, theirs["fraction"], rtol=1e-12)


def test_mapie_has_one_bin_less_than_asked_for():
    for asked in (50, 16):
        theirs = value("MAPIE", f"expected_calibration_error({asked}, uniform)")
        edges = np.linspace(0, 1, asked)
        curve = reliability_curve(P, Y, kind="histogram", bins=edges, closed="right")
        assert curve.error == pytest.approx(theirs, rel=1e-12)
        assert abs(histogram(P, Y, asked) - theirs) > 1e-4
    # No confidence is on an edge of 15 bins, so that closing them left or right is the same.
    theirs = value("MAPIE", "expected_calibration_error(16, uniform)")
    assert histogram(P, Y, 15) == pytest.approx(theirs, rel=1e-12)


def test_equal_mass_bins_do_not_depend_on_the_order_of_rows():
    shuffled = value("MAPIE", "expected_calibration_error(10, array split)")
    ordered = value("MAPIE", "expected_calibration_error(10, array split), sorted rows")
    assert abs(shuffled - ordered) > 1e-3
    order = np.argsort(P.max(axis=1), kind="stable")
    ours = histogram(P, Y, 10, binning="equal-mass")
    assert histogram(P[order], Y[order], 10, binning="equal-mass") == pytest.approx(ours, rel=1e-12)
    # Theirs on sorted rows: the largest confidence of each tenth of the rows closes a bin.
    tops = [part.max() for part in np.array_split(np.sort(P.max(axis=1)), 10)]
    curve = reliability_curve(P, Y, kind="histogram", bins=[0.0, *tops[:-1], 1.0], closed="right")
    assert curve.error == pytest.approx(ordered, rel=1e-12)


def test_mapie_top_label_error_by_predicted_class():
    predicted = P.argmax(axis=1)
    outcomes = top_label(read_scores(P), Y)
    edges, total = np.linspace(0, 1, 50), 0.0
    for k in range(P.shape[1]):
        rows = predicted == k
        curve = reliability_curve(outcomes.z[rows], outcomes.y[rows], kind="histogram", bins=edges, closed="right")
        total += curve.error / P.shape[1]
    assert total == pytest.approx(value("MAPIE", "top_label_ece(50, uniform)"), rel=1e-12)


def test_two_class_measures_of_statsmodels_and_probcal():
    z = 0.98 * Z + 0.01
    found = binary_measures(np.log(z / (1 - z)), O)
    for name, key in (("calibration_intercept", "intercept"), ("calibration_slope", "slope")):
        assert float(found[name]) == pytest.approx(value("statsmodels", f"GLM, {key}"), abs=1e-8)
        assert found[name].interval == pytest.approx(value("statsmodels", f"GLM, {key}, interval"), abs=1e-8)
        assert float(found[name]) == pytest.approx(value("probcal", name), abs=1e-8)
    assert float(found["spiegelhalter"]) == pytest.approx(value("probcal", "spiegelhalter_z"), abs=1e-8)
    assert found["spiegelhalter"].p_value == pytest.approx(value("probcal", "spiegelhalter_z, p-value"), rel=1e-8)
    ratio = found["observed_expected"]
    ends = np.array(value("statsmodels", "proportion_confint(beta)")) / z.mean()
    assert ratio.interval == pytest.approx(ends, abs=1e-8)


def test_weighted_intercept_and_slope_of_probcal():
    z = 0.98 * Z + 0.01
    found = binary_measures(np.log(z / (1 - z)), O, 1.0 + np.arange(len(z)) % 3)
    for name in ("calibration_intercept", "calibration_slope"):
        assert float(found[name]) == pytest.approx(value("probcal", f"{name}, weighted"), abs=1e-8)

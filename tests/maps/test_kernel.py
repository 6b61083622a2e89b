import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from mixnmatch.maps import KernelCalibration, PlattScaling, kernel
from mixnmatch.maps.odds import OddsTable
from mixnmatch.maps.odds_curve import straight_line
from tests.conftest import nll
from tests.maps.test_shrunken import drawn, sigmoid
from tests.maps.test_spline import wavy


def test_corrections_minimise_the_local_loss():
    x, y = wavy(300)
    fitted = KernelCalibration(bandwidth=0.8, monotone=False, logits=True).fit(x, y)
    order = np.argsort(x)
    slope, intercept = straight_line(OddsTable(x[order], np.ones(300), y[order].astype(float)), None)
    scaled = slope * x + intercept
    for node in fitted.knots_[::9]:
        own = slope * node + intercept
        weight = np.exp(-0.5 * ((scaled - own) / 0.8) ** 2)

        def local(c, weight=weight):
            eta = scaled + c
            return weight @ (np.logaddexp(0, eta) - y * eta) + c**2 / 4

        best = minimize_scalar(local, bracket=(-1, 1), tol=1e-12).x
        assert fitted.curves()[0](np.array([node]))[0] - own == pytest.approx(best, abs=1e-6)


def test_leave_one_out_is_near_to_fits_without_each_sample():
    x, y = wavy(80)
    order = np.argsort(x)
    x, y = x[order], y[order].astype(float)
    table = OddsTable(x, np.ones(80), y)
    at = np.linspace(-4, 4, 200)
    fit = kernel._corrections(table, at, 1.0)
    eta = x + np.interp(x, at, fit.correction)
    p = sigmoid(eta)
    rest = np.interp(x, at, fit.curvature) - p * (1 - p)
    quick = np.logaddexp(0, np.where(y == 1, -1, 1) * (eta + (p - y) / rest)).sum()
    exact = 0.0
    for i in range(80):
        keep = np.arange(80) != i
        without = kernel._corrections(OddsTable(x[keep], np.ones(79), y[keep]), x[i : i + 1], 1.0)
        exact += np.logaddexp(0, (-1 if y[i] else 1) * (x[i] + without.correction[0]))
    assert quick == pytest.approx(exact, rel=5e-3)


def test_follows_curves_that_a_line_cannot():
    x, y = wavy(3000)
    new, labels = wavy(3000, seed=1)
    line = nll(PlattScaling(logits=True).fit(x, y).predict_proba(new), labels)
    free = nll(KernelCalibration(monotone=False, logits=True).fit(x, y).predict_proba(new), labels)
    monotone = KernelCalibration(logits=True).fit(x, y)
    assert free < line - 0.04
    assert nll(monotone.predict_proba(new), labels) < line
    assert (np.diff(monotone.curves()[0](np.linspace(-20, 20, 4001))) > 0).all()


def test_no_correction_where_a_line_does():
    x, y = drawn(400, slope=0.6, shift=-1.0)
    fitted = KernelCalibration(logits=True).fit(x, y)
    assert np.ptp(fitted.pieces_[:, 1]) < 1e-8
    np.testing.assert_allclose(fitted.predict_proba(x)[:, 1].mean(), y.mean(), atol=0.005)


def test_bad_bandwidths_are_refused():
    for bandwidth in (0, -1, "cv", np.nan):
        with pytest.raises(ValueError, match="bandwidth must be"):
            KernelCalibration(bandwidth=bandwidth).fit([0.5], [1])

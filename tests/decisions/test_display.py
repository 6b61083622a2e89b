"""Pictures show the data they were made from."""

import builtins

import numpy as np
import pytest

from mixnmatch.decisions import (
    DecisionDisplay,
    RiskCoverageDisplay,
    coverage_for,
    net_benefit,
    risk_coverage_curve,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 2, 800)
    return p, (rng.random(800) < p).astype(int)


def line_of(ax, label):
    return next(line for line in ax.get_lines() if str(line.get_label()).startswith(label))


@pytest.mark.parametrize("kind", ["net benefit", "cost"])
def test_decision_curves(data, kind):
    p, y = data
    display = DecisionDisplay.compare(y, {"raw": p**3, "calibrated": p}, kind=kind)
    for name, table in (("raw", p**3), ("calibrated", p)):
        curve = net_benefit(table, y)
        drawn = line_of(display.ax_, name)
        np.testing.assert_allclose(drawn.get_xdata(), curve.threshold)
        np.testing.assert_allclose(drawn.get_ydata(), curve.cost if kind == "cost" else curve.net_benefit)
    everyone = line_of(display.ax_, "select everyone").get_ydata()
    np.testing.assert_allclose(everyone, curve.cost_of_all if kind == "cost" else curve.select_all)
    assert kind.split()[-1] in display.ax_.get_ylabel()
    display.figure_.canvas.draw()


def test_risk_coverage(data):
    p, y = data
    found = coverage_for(p, y, risk=0.1)
    display = RiskCoverageDisplay.from_predictions(y, p, name="forest", guarantee=found)
    curve = risk_coverage_curve(p, y)
    drawn = line_of(display.ax_, "forest")
    np.testing.assert_allclose(drawn.get_xdata(), curve.coverage)
    np.testing.assert_allclose(drawn.get_ydata(), curve.risk)
    assert f"AURC {curve.aurc:.4f}" in drawn.get_label()
    mark = line_of(display.ax_, "risk at most 0.1")
    assert mark.get_xdata()[0] == found.coverage
    other = RiskCoverageDisplay.compare(y, {"a": p, "b": np.sqrt(p)}, ax=plt.figure().add_subplot())
    assert len(other.ax_.get_lines()) == 2
    display.figure_.canvas.draw()


def test_one_curve_has_a_band(data):
    p, y = data
    display = DecisionDisplay.from_predictions(y, p)
    band = display.ax_.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(net_benefit(p, y).high.max())


def test_what_cannot_be_drawn(data):
    p, y = data
    with pytest.raises(ValueError, match="no curve"):
        DecisionDisplay([])
    with pytest.raises(ValueError, match="2 names for 1 curves"):
        RiskCoverageDisplay([risk_coverage_curve(p, y)], ["a", "b"])
    with pytest.raises(ValueError, match="kind must be"):
        DecisionDisplay.from_predictions(y, p, kind="roc")


def test_without_matplotlib_it_says_what_to_install(data, monkeypatch):
    p, y = data
    real = builtins.__import__

    def refuse(name, *args, **settings):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **settings)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"mixnmatch\[plot\]"):
        DecisionDisplay.from_predictions(y, p)

"""Results as data frames, and as HTML in notebooks."""

import re
import sys
from html import unescape

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch.decisions import net_benefit, risk_coverage_curve
from mixnmatch.evaluation import evaluate
from mixnmatch.monitoring import Monitor
from mixnmatch.selection import learning_curve

SAMPLE = mm.load_sample()
GIVEN = (SAMPLE.logits_cal[:400], SAMPLE.labels_cal[:400])
NEW = (SAMPLE.logits_eval[:400], SAMPLE.labels_eval[:400])


@pytest.fixture(scope="module")
def compared():
    return mm.compare(*GIVEN, methods=["ts", "ets"], logits=True)


@pytest.fixture(scope="module")
def fitted():
    return mm.calibrator("bcts", logits=True).fit(*GIVEN)


def test_comparison(compared):
    pytest.importorskip("pandas")
    frame = compared.to_frame()
    assert frame["method"].tolist() == [result.name for result in compared.results]
    assert frame["log_loss"].tolist() == [float(result.nll) for result in compared.results]
    assert frame["gain_low"].tolist() == [result.gain.interval[0] for result in compared.results]
    assert frame["calibration_error_high"].isna().all()  # a comparison has no intervals of errors
    assert frame["accuracy_preserving"].all()


def test_recommendation_has_the_frame_of_its_evidence():
    pytest.importorskip("pandas")
    found = mm.recommend(*GIVEN, methods=["ts", "ets"], logits=True)
    assert found.to_frame().equals(found.evidence.to_frame())
    assert f"<p>Use {found.method}: " in found._repr_html_()


def test_learning_curve():
    pytest.importorskip("pandas")
    curve = learning_curve(*GIVEN, methods=["ts"], repetitions=2, logits=True)
    frame = curve.to_frame()
    assert len(frame) == len(curve.points)
    assert frame["nll"].tolist() == [point.nll for point in curve.points]
    assert "Would" not in curve._repr_html_()
    assert str(curve.outlooks[0]) in unescape(curve._repr_html_())


def test_evaluation(fitted):
    pytest.importorskip("pandas")
    alone = evaluate(*NEW, logits=True).to_frame().set_index("metric")
    assert list(alone.columns) == ["value", "value_low", "value_high"]
    both = evaluate(*NEW, logits=True, map=fitted)
    frame = both.to_frame().set_index("metric")
    assert frame.loc["log_loss", "before"] == float(both["log_loss"])
    assert frame.loc["log_loss", "after"] == float(both.after["log_loss"])
    groups = np.arange(400) % 2
    by_group = evaluate(mm.rows(*NEW, logits=True, groups=groups)).to_frame()
    assert by_group["group"].isna().sum() == len(by_group) / 3


def test_curves_and_estimates(fitted):
    pytest.importorskip("pandas")
    curve = mm.evaluation.reliability_curve(*NEW, logits=True)
    np.testing.assert_array_equal(curve.to_frame()["frequency"], curve.value)
    priors = mm.selection.estimate_priors(fitted, NEW[0])
    np.testing.assert_array_equal(priors.to_frame()["now"], priors.priors)
    assert "test of no shift" in priors._repr_html_()
    risk = risk_coverage_curve(*NEW, logits=True)
    np.testing.assert_array_equal(risk.to_frame()["risk"], risk.risk)
    binary = (1 / (1 + np.exp(-NEW[0][:, 0])), NEW[1] == 0)
    benefit = net_benefit(binary[0], binary[1].astype(int))
    np.testing.assert_array_equal(benefit.to_frame()["net_benefit"], benefit.net_benefit)
    monitor = Monitor(fitted)
    monitor.update(*NEW)
    assert len(monitor.result().to_frame()) == 10
    assert "No alarm" in monitor.result()._repr_html_()


def test_notebooks_show_what_is_printed(compared):
    html = compared._repr_html_()
    assert html.count("<tr>") == 1 + len(compared.results)
    cells = re.findall(r'<th scope="row">([^<]*)</th>', html)
    assert cells == [result.name for result in compared.results]
    for line in str(compared).splitlines()[2:5]:
        assert all(f">{cell}</t" in html for cell in re.split(r" {2,}", line.strip()) if "±" in cell)
    assert "<p>Use " in html


def test_long_tables_are_shortened_for_notebooks_and_names_escaped():
    from dataclasses import replace

    curve = mm.evaluation.reliability_curve(*NEW, logits=True)
    assert curve._repr_html_().count("<tr>") == 21
    compared = mm.compare(*GIVEN, methods={"<b>": mm.TemperatureScaling()}, logits=True)
    assert "<b>" not in compared._repr_html_()
    assert "&lt;b&gt;" in compared._repr_html_()
    assert "<p>" in replace(compared, losses=None)._repr_html_()


def test_without_pandas(compared, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        compared.to_frame()
    assert compared._repr_html_()

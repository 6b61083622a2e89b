"""The section on decisions: what it says is what was measured."""

import re
from dataclasses import replace

import numpy as np
import pytest

from mixnmatch.decisions import coverage_for, net_benefit, risk_coverage_curve
from mixnmatch.report import build_report, render
from mixnmatch.report.decisions import cost_figure, risk_figure
from mixnmatch.report.formats import percent


@pytest.fixture(scope="module")
def two_classes():
    rng = np.random.default_rng(0)
    x = rng.normal(size=800) * 1.5 - 3
    y = (rng.random(800) < 1 / (1 + np.exp(-x))).astype(int)
    z = 2.5 * x + 3
    report = build_report(z[:400], y[:400], evaluation=(z[400:], y[400:]), method="platt", methods=["ts"], logits=True)
    return report, z[400:], y[400:]


def test_two_classes_have_costs(two_classes):
    report, z, y = two_classes
    found = report.decisions
    np.testing.assert_allclose(found.cost_before.cost, net_benefit(z, y, logits=True).cost)
    threshold, before, after = found.saving
    at = int(np.argmax(found.cost_before.cost - found.cost_after.cost))
    assert threshold == found.cost_before.threshold[at]
    assert before > after
    text = re.sub(r"<[^>]+>", " ", render(report))
    assert f"saves most at t = {percent(threshold)}" in text
    assert f"falls from {before:.4f} to {after:.4f}" in text
    assert 'id="decision-cost"' in render(report)
    assert 'id="decision-risk"' in render(report)


def test_the_table_is_what_a_risk_allows(two_classes):
    report, _, _ = two_classes
    assert [row.target for row in report.decisions.coverages] == [0.01, 0.02, 0.05, 0.1, 0.2]
    met = [row for row in report.decisions.coverages if row.met]
    assert met
    for row in met:
        assert row.risk <= row.bound <= row.target
    assert "coverage-table" in render(report)


def test_several_classes_have_risk_and_coverage(report_file):
    _, report = report_file
    page = render(report)
    assert report.decisions.cost_before is None
    assert 'id="decision-cost"' not in page
    assert 'id="decision-risk"' in page
    assert report.decisions.risk_after.error_rate == pytest.approx(1 - float(report.after.accuracy))
    assert isinstance(report.to_dict()["decisions"]["risk_after"]["aurc"], float)


def test_weights_count(two_classes):
    rng = np.random.default_rng(1)
    p = rng.random(500)
    y = (rng.random(500) < p).astype(int)
    w = rng.integers(1, 4, 500)
    report = build_report(p, y, methods=["ts"], method="identity", sample_weight=w)
    assert report.decisions.risk_before.aurc == pytest.approx(risk_coverage_curve(p, y, sample_weight=w).aurc)
    with_weights = coverage_for(p, y, risk=0.2, sample_weight=w)
    assert report.decisions.coverages[-1].coverage == pytest.approx(with_weights.coverage)
    assert report.decisions.saving is None
    assert "lowers the cost" not in render(report)  # nothing is calibrated
    other = two_classes[0]
    same = replace(other.decisions, cost_after=other.decisions.cost_before)
    assert "lowers the cost at no threshold" in render(replace(other, decisions=same))


def test_rare_positives_have_a_log_odds_axis():
    rng = np.random.default_rng(0)
    z = rng.normal(-6.2, 1.9, 6000)
    y = (rng.random(6000) < 1 / (1 + np.exp(-z))).astype(int)
    report = build_report(1 / (1 + np.exp(-(1.3 * z + 2))), y, methods=["platt"])
    text = render(report)
    figure = text[text.index('id="decision-cost"') :]
    labels = re.findall(r">([0-9.]+%)<", figure[: figure.index("</svg>")])
    assert {"1%", "50%"} <= set(labels)
    assert float(labels[0].rstrip("%")) < 1
    threshold, before, after = report.decisions.saving
    assert threshold < 0.5
    assert after < before
    assert "Find out whether" not in text


def test_figures_of_extreme_scores_have_numbers():
    y = np.zeros(30, int)
    curve = net_benefit(np.zeros(30), y)
    risk = risk_coverage_curve(np.zeros(30), y)
    for figure in (cost_figure(curve, curve), risk_figure(risk, risk)):
        assert not re.search(r'"[^"]*(?:nan|inf)', figure.markup)

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch._engine.door import rows
from mixnmatch._engine.rows import Rows
from mixnmatch.maps import odds
from mixnmatch.maps.columns import Columns
from mixnmatch.maps.odds import OddsTable, odds_tables
from tests.conftest import make_problem, softmax


def columns(scheme, n_classes, n=500, weight=None) -> Columns:
    logits, y = make_problem(n, n_classes)
    source: Rows = rows(softmax(logits), y, weight)
    return Columns(source, scheme)


@pytest.mark.parametrize("scheme, n_classes", [("positive", 2), ("each", 3), ("pooled", 4)])
def test_every_distinct_score_is_kept_for_few_samples(scheme, n_classes):
    weight = np.random.default_rng(0).integers(1, 5, 500)
    logits, y = make_problem(500, n_classes)
    p = softmax(logits)
    tables = odds_tables(columns(scheme, n_classes, weight=weight), 1e-37)
    shown = {"positive": [p[:, 1]], "each": list(p.T), "pooled": [p.ravel()]}[scheme]
    hits = np.eye(n_classes)[y]
    truth = {"positive": [hits[:, 1]], "each": list(hits.T), "pooled": [hits.ravel()]}[scheme]
    each = np.repeat(weight, n_classes) if scheme == "pooled" else weight
    for table, scores, positive in zip(tables, shown, truth, strict=True):
        order = np.argsort(scores)
        np.testing.assert_allclose(table.log_odds, np.log(scores[order] / (1 - scores[order])), atol=1e-9)
        np.testing.assert_array_equal(table.weight, each[order])
        np.testing.assert_array_equal(table.positive, (each * positive)[order])


@pytest.mark.parametrize("scheme, n_classes", [("positive", 2), ("each", 3), ("pooled", 4)])
def test_cells_keep_weights_and_means(scheme, n_classes, monkeypatch):
    exact = odds_tables(columns(scheme, n_classes), 1e-37)
    monkeypatch.setattr(odds, "EXACT_EACH", 10)
    monkeypatch.setattr(odds, "ENOUGH", odds.CELLS + 1)  # cells between the ends, as of tables that are joined
    with mm.engine(block_bytes=4000):
        cells = odds_tables(columns(scheme, n_classes), 1e-37)
    for one, other in zip(exact, cells, strict=True):
        joined = one.in_cells(10)
        np.testing.assert_allclose(other.log_odds, joined.log_odds, atol=1e-12)
        np.testing.assert_allclose(other.positive, joined.positive)
        assert other.weight.sum() == one.weight.sum()
        assert other.weight @ other.log_odds == pytest.approx(one.weight @ one.log_odds)
        assert (np.diff(other.log_odds) > 0).all()
        assert len(other.weight) < len(one.weight)


def test_cells_are_narrow():
    x = np.sort(np.random.default_rng(1).normal(size=50_000) * 4)
    table = OddsTable(x, np.ones(50_000), np.zeros(50_000)).in_cells(1000)
    width = np.diff(table.log_odds)
    middle = np.abs(table.log_odds[:-1]) < 5
    assert (width[middle] < 0.006 * (1 + np.abs(table.log_odds[:-1][middle]))).all()


@pytest.mark.parametrize("centre, spread", [(0.0, 1e-5), (-4.0, 1e-3), (0.0, 1e6)])
def test_cells_follow_scores_that_are_close_together_or_far_apart(centre, spread, monkeypatch):
    monkeypatch.setattr(odds, "EXACT_EACH", 10)
    x = centre + spread * np.random.default_rng(0).normal(size=5000)
    y = np.random.default_rng(1).integers(0, 2, 5000)
    source = rows(np.stack([np.zeros(5000), x], axis=1), y, logits=True)
    (table,) = odds_tables(Columns(source, "positive"), 0.0)
    assert len(table.weight) > 1000
    assert table.weight.sum() == 5000
    assert table.log_odds[[0, -1]] == pytest.approx([x.min(), x.max()])


def test_spans_are_never_empty():
    one = OddsTable(np.array([2.0]), np.array([3.0]), np.array([1.0]))
    assert one.span(0.01) == (1.5, 2.5)
    crowded = OddsTable(np.array([-1.0, 0.0, 5.0]), np.array([1.0, 1000.0, 1.0]), np.zeros(3))
    assert crowded.span(0.01) == (-1.0, 5.0)
    assert crowded.quantiles(np.array([0.0, 0.5, 1.0])).tolist() == [-1.0, 0.0, 5.0]


def test_cells_on_dask_are_those_in_memory(monkeypatch):
    da = pytest.importorskip("dask.array")
    logits, y = make_problem(600, 2)
    monkeypatch.setattr(odds, "EXACT_EACH", 10)
    for name in ("beta-shrunk", "quadratic", "spline", "kernel"):
        here = mm.calibrator(name, logits=True).fit(logits, y).predict_proba(logits)
        lazy = da.from_array(logits, chunks=(150, 2))
        there = mm.calibrator(name, logits=True).fit(lazy, da.from_array(y, chunks=150)).predict_proba(logits)
        np.testing.assert_allclose(there, here, atol=1e-8)

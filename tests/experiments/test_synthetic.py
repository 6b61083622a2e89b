import json

import numpy as np
import pytest

from mixnmatch.experiments import synthetic
from mixnmatch.experiments.synthetic import CASES, calibration_function, draw, true_error


def test_truth():
    assert true_error((0.5, -1.5)) == pytest.approx(0.07444, abs=1e-5)
    assert true_error((0.2, -1.9)) == pytest.approx(0.02346, abs=1e-5)
    assert true_error((0.0, -2.0)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_closed_form(case):
    rng = np.random.default_rng(0)
    z, y = draw(case, 200_000, 1, rng)
    pi = calibration_function(z, case)
    assert np.abs(z - pi).mean() == pytest.approx(true_error(case), abs=2e-3)
    assert ((z - pi) ** 2).mean() == pytest.approx(true_error(case, 2), abs=2e-3)
    assert y.mean() == pytest.approx(pi.mean(), abs=5e-3)


def test_residual_estimators_win():
    ratios, losses, cells = synthetic.comparison_study(repetitions=60)
    ratio = {row["estimator"]: row["ratio"] for row in ratios}
    assert ratio[synthetic.PLAIN] < 0.70
    assert ratio[synthetic.CORRECTED] < 0.66
    assert len(cells) == 24
    assert all(row["low"] < row["difference"] < row["high"] for row in losses)


def test_coverage():
    rows = synthetic.coverage_study(repetitions=30, cases=((0.5, -1.5), (0.0, -2.0)), sizes=(64,))
    assert all(row["coverage"] >= 0.8 for row in rows)
    assert rows[1]["rejected"] <= 0.2


def test_run(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "PAPER_SIZES", (64,))
    told = []
    for name in ("comparison_study", "coverage_study", "rate_study"):
        original = getattr(synthetic, name)
        small = {"comparison_study": {}, "coverage_study": {"sizes": (64,)}, "rate_study": {"sizes": (64, 256)}}[name]
        monkeypatch.setattr(synthetic, name, lambda original=original, small=small, **kw: original(**{**kw, **small}))
    tables = synthetic.run_synthetic(tmp_path, repetitions=6, progress=told.append)
    assert set(tables) == {"truth", "errors", "comparison", "ratios", "losses", "coverage", "rate"}
    assert json.loads((tmp_path / "ratios.json").read_text()) == tables["ratios"]
    assert (tmp_path / "errors-norm-1.png").stat().st_size > 1000
    assert (tmp_path / "coverage.png").exists()
    assert told

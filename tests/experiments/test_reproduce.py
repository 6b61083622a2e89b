"""The reproduction of the paper's tables: units, resuming, means, bold, and what rests on them."""

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import joblib
import numpy as np
import pytest

from mixnmatch.experiments.reproduce import units as units_module
from mixnmatch.experiments.reproduce.build import joblib_backend, reproduce
from mixnmatch.experiments.reproduce.claims import check_claims, decided, rank_correlations
from mixnmatch.experiments.reproduce.guidelines import check_guidelines
from mixnmatch.experiments.reproduce.learning import needed
from mixnmatch.experiments.reproduce.loading import load
from mixnmatch.experiments.reproduce.manifest import Entry, read_manifest
from mixnmatch.experiments.reproduce.methods import METHODS, method
from mixnmatch.experiments.reproduce.page import Grid, Heading, to_html, to_markdown
from mixnmatch.experiments.reproduce.results import Results
from mixnmatch.experiments.reproduce.run import Plan, collect, run
from mixnmatch.experiments.reproduce.tables import efficiency_table, metric_table, published_table
from mixnmatch.experiments.reproduce.units import Sizes, Unit, curve_sizes, curve_units, run_unit, split_units, stored

ROWS = """
[[row]]
dataset = "Small"
model = "A"
files = ["a_val.npz", "a_test.npz"]
classes = 3

[[row]]
dataset = "Small"
model = "shifted"
files = ["a_val.npz", "a_test.npz"]
classes = 3
split = "given"
"""
METHODS_HERE = ("ts", "irm", "irova", "irova-ts", "ets")
PARTS = ("table1", "table2", "table3", "table4", "learning-curves", "figure1", "measures", "claims", "guidelines")


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Two rows on the same over-confident scores of three classes."""
    rng = np.random.default_rng(0)
    for name, n in (("val", 300), ("test", 500)):
        logits = rng.normal(size=(n, 3))
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
        np.savez(tmp_path / f"a_{name}.npz", logits=3 * logits.astype(np.float32), labels=labels)
    path = tmp_path / "rows.toml"
    path.write_text(ROWS)
    return path


def plan_of(manifest: Path, **settings) -> Plan:
    chosen = {"splits": 3, "repetitions": 2, "methods": METHODS_HERE, "parts": PARTS} | settings
    return Plan(read_manifest(manifest), **chosen)


def unit_of(entry: Entry, part: str = "split", number: int = 0, sizes: Sizes | None = None) -> Unit:
    return Unit(entry, "digest", part, number, sizes or Sizes(100, 200), seed=0)


def numbers(folder: Path) -> dict[str, str]:
    """All CSV files but that of the times."""
    return {path.name: path.read_text() for path in folder.glob("*.csv") if path.name != "times.csv"}


def test_random_sets_are_disjoint_and_differ_between_splits(manifest, tmp_path):
    entry = read_manifest(manifest)[0]
    data = load(entry, tmp_path)
    fit, rest = unit_of(entry).rows(data)
    assert len(fit) == 100
    assert len(rest) == 200
    assert not set(fit) & set(rest)
    assert max(fit) >= 300 > min(fit), "both files take part"
    other = unit_of(entry, number=1).rows(data)[0]
    assert sorted(other) != sorted(fit)


def test_a_given_split_keeps_the_files_apart(manifest, tmp_path):
    entry = read_manifest(manifest)[1]
    data = load(entry, tmp_path)
    for part in ("split", "curve"):
        fit, rest = unit_of(entry, part).rows(data)
        assert max(fit) < 300 <= min(rest)


def test_learning_curves_share_an_evaluation_set_and_nest_calibration_sets(manifest, tmp_path):
    entry = read_manifest(manifest)[0]
    data = load(entry, tmp_path)
    small, evaluation = unit_of(entry, "curve", 0, Sizes(50, 200)).rows(data)
    large, same = unit_of(entry, "curve", 0, Sizes(120, 200)).rows(data)
    other, third = unit_of(entry, "curve", 1, Sizes(50, 200)).rows(data)
    assert np.array_equal(evaluation, same)
    assert np.array_equal(evaluation, third)
    assert set(small) < set(large)
    assert set(small) != set(other)
    assert not set(large) & set(evaluation)


def test_sizes_of_curves_end_with_all_rows_and_that_size_is_run_once(manifest, tmp_path):
    entry = read_manifest(manifest)[0]
    data = load(entry, tmp_path)
    sizes = curve_sizes(entry, data)
    assert [size.calibration for size in sizes] == [128, 256, 400]
    assert {size.evaluation for size in sizes} == {400}
    assert [unit.sizes.calibration for unit in curve_units(entry, data, 2, 0)] == [128, 128, 256, 256, 400]


def test_sizes_of_splits_are_the_papers_where_there_are_rows_enough():
    def sizes(n: int, classes: int, split: str = "random", first: int = 0) -> tuple[int, int]:
        entry = Entry("d", "m", classes=classes, split=split)
        data = type("Data", (), {"labels": np.zeros(n), "first": first})()
        found = units_module.split_sizes(entry, data)
        return found.calibration, found.evaluation

    assert sizes(15_000, 10) == (5_000, 10_000)
    assert sizes(10_000, 100) == (5_000, 5_000)
    assert sizes(7_001, 10) == (3_500, 3_501)
    assert sizes(50_000, 1000) == (25_000, 25_000)
    assert sizes(25_000, 2) == (5_000, 10_000)
    assert sizes(20_216, 10, "given", 10_216) == (5_000, 10_000)


def test_a_unit_measures_what_it_says(manifest, tmp_path):
    from mixnmatch import calibration_error, calibrator
    from mixnmatch.evaluation import KernelDensity, brier_score

    entry = read_manifest(manifest)[0]
    data = load(entry, tmp_path)
    unit = split_units(entry, data, [0], 0)[0]
    run_unit(unit, ["ts", "irm"], tmp_path)
    found = stored(unit, tmp_path)
    assert len(found) == 3, "the scores as they are come along"
    fit, rest = unit.rows(data)
    fitted = calibrator("ts", logits=True, loss="brier").fit(data.scores[fit], data.labels[fit])
    p, y = fitted.predict_proba(data.scores[rest]), data.labels[rest]
    own = found["TemperatureScaling(logits=True, loss='brier')"]
    authors = KernelDensity(bandwidth="authors")
    assert own["ece"] == pytest.approx(calibration_error(p, y, estimator=authors), rel=1e-12)
    assert own["ece_printed"] == pytest.approx(calibration_error(p, y, estimator="kde"), rel=1e-12)
    rng = np.random.default_rng(5)
    drawn = [[rng.choice(p.shape[1], p=row / row.sum()) for row in p.astype(float)] for _ in range(40)]
    floors = [float(calibration_error(p, labels, estimator=authors)) for labels in drawn]
    assert min(floors) * 0.8 <= own["ece_floor"] <= max(floors) * 1.2
    before = brier_score(data.scores[rest], y, logits=True)
    assert own["gain"] == pytest.approx(before - brier_score(p, y), abs=1e-7)
    assert own["changed"] == 0


def test_a_failing_method_is_told_and_does_not_stop_the_others(manifest, tmp_path, monkeypatch):
    measure = units_module._measure

    def fragile(key, *args, **settings):
        if key == "irm":
            msg = "no such luck"
            raise ValueError(msg)
        return measure(key, *args, **settings)

    monkeypatch.setattr(units_module, "_measure", fragile)
    plan = plan_of(manifest, methods=("ts", "irm"), parts=("table1",), splits=2)
    outcome = reproduce(plan, tmp_path / "out")
    assert outcome.failures["Small A", "irm"] == "ValueError: no such luck"
    assert "no such luck" in (tmp_path / "out" / "index.md").read_text()


def test_everything_is_written(manifest, tmp_path):
    out = tmp_path / "out"
    outcome = reproduce(plan_of(manifest), out, command="mixnmatch reproduce rows.toml -o out")
    assert outcome.units == 2 * 3 + 2 * 5
    assert outcome.failures == {}
    page = (out / "index.md").read_text()
    for part in ("Table 1", "Table 2", "Table 3", "Table 4", "Figure 1", "claims", "guidelines", "mixnmatch reproduce"):
        assert part in page
    for path in outcome.files:
        assert path.stat().st_size > 0
    for name in ("figure-1.png", "measures.png", "learning-curves.png", "learning-curves-small.png"):
        assert (out / "figures" / name).exists()
        assert f"figures/{name}" in page
    with (out / "table1.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["method"] for row in rows} == {"uncalibrated", *METHODS_HERE}
    assert all(row["splits"] == "3" for row in rows)
    assert (out / "index.html").read_text().count("<table>") == page.count("\n| :--")


def test_numbers_do_not_depend_on_jobs_nor_on_stops(manifest, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    plan = plan_of(manifest, parts=("table1", "table2", "table4", "claims", "guidelines"))
    reproduce(plan, first, jobs=2)
    # In parts: some splits of some methods, then everything.
    reproduce(plan_of(manifest, splits=1, methods=("ts",), parts=("table1",)), second)
    kept = {path: path.stat().st_mtime_ns for path in (second / "cache").rglob("*.json")}
    reproduce(plan_of(manifest, splits=2, methods=("ts",), parts=("table1",)), second)
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items()), "done is done"
    reproduce(plan, second)
    assert numbers(first) == numbers(second)
    assert reproduce(plan, second).units == 0


def test_a_killed_run_goes_on_and_gives_the_same_numbers(manifest, tmp_path):
    out = tmp_path / "out"
    settings = "--only table1,table2 --methods ts,irm,irova-ts,ets --splits 12 --jobs 1"
    line = [sys.executable, "-m", "mixnmatch", "reproduce", str(manifest), "-o", str(out), *settings.split()]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, start_new_session=True)
    limit = time.monotonic() + 60
    while len(list((out / "cache").rglob("*.json"))) < 3 and time.monotonic() < limit:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was killed in the middle"
    assert not (out / "index.md").exists()
    kept = len(list((out / "cache").rglob("*.json")))
    plan = plan_of(manifest, splits=12, methods=("ts", "irm", "irova-ts", "ets"), parts=("table1", "table2"))
    rest = reproduce(plan, out)
    assert 0 < rest.units <= 24 - kept + 1, "what was done is not done again"
    reproduce(plan, tmp_path / "whole")
    assert numbers(out) == numbers(tmp_path / "whole")


def test_another_seed_or_content_is_another_unit(manifest, tmp_path):
    entry = read_manifest(manifest)[0]
    data = load(entry, tmp_path)
    one, other = (split_units(entry, data, [0], seed)[0].path(tmp_path) for seed in (0, 1))
    assert one != other
    with np.load(manifest.parent / "a_val.npz") as archive:
        logits, labels = archive["logits"].copy(), archive["labels"]
    logits[0, 0] += 1
    np.savez(manifest.parent / "a_val.npz", logits=logits, labels=labels)
    load.cache_clear()
    assert load(entry, tmp_path).digest != data.digest


def test_joblib_backends_can_be_chosen(manifest, tmp_path):
    plan = plan_of(manifest, splits=2, methods=("ts",), parts=("table1",))
    reproduce(plan, tmp_path / "threads", jobs=2, backend="threading")
    reproduce(plan, tmp_path / "plain")
    assert numbers(tmp_path / "threads") == numbers(tmp_path / "plain")


def test_units_run_on_dask(manifest, tmp_path):
    distributed = pytest.importorskip("distributed")
    plan = plan_of(manifest, splits=2, methods=("ts",), parts=("table1",))
    settings = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
    with distributed.Client(**settings):
        reproduce(plan, tmp_path / "dask", jobs=2, backend="dask")
    reproduce(plan, tmp_path / "plain")
    assert numbers(tmp_path / "dask") == numbers(tmp_path / "plain")


def test_dask_without_a_client_joins_the_scheduler_that_is_configured():
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    settings = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**settings) as cluster, dask.config.set(scheduler_address=cluster.scheduler_address):
        with joblib_backend("dask"):
            where = joblib.Parallel(n_jobs=2)(joblib.delayed(worker_address)() for _ in range(2))
        assert set(where) == {worker.worker_address for worker in cluster.workers.values()}


def worker_address():
    from distributed import get_worker

    return get_worker().address


def test_a_backend_that_is_not_installed_is_named(manifest, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.util.joblib", None)
    plan = plan_of(manifest, splits=1, methods=("ts",), parts=("table1",))
    with pytest.raises(ImportError, match="pip install ray"):
        reproduce(plan, tmp_path / "ray", backend="ray")


def test_slow_methods_see_fewer_splits(manifest, tmp_path):
    plan = plan_of(manifest, splits=3, slow_splits=1, methods=("ts", "gpc"), parts=("table1",))
    run(plan, tmp_path)
    count = {key: sum(one["method"] == key for one in collect(plan, tmp_path)[0]) for key in ("ts", "gpc")}
    assert count == {"ts": 2 * 3, "gpc": 2 * 1}


def test_a_learning_curve_without_its_end_is_left_out(manifest, tmp_path):
    plan = plan_of(manifest, methods=("ts",), parts=("table3",), repetitions=1)
    run(plan, tmp_path)
    assert len(collect(plan, tmp_path)[0]) == 2 * 3 * 2
    entry = plan.entries[0]
    last = curve_units(entry, load(entry, tmp_path), 1, 0)[-1]
    last.path(tmp_path).unlink()
    assert {record["row"] for record in collect(plan, tmp_path)[0]} == {"Small shifted"}


# What follows works on made-up records.


def records(row: str, method: str, values, metric: str = "ece") -> list[dict]:
    return [
        {"part": "split", "row": row, "number": number, "method": method, metric: value, "n_c": 5, "n_e": 5}
        for number, value in enumerate(values)
    ]


ENTRY = Entry("D", "M", classes=10)


def test_bold_is_what_is_best_within_two_standard_errors_of_the_paired_difference():
    values = {"ts": [0.10, 0.30, 0.20], "ets": [0.11, 0.31, 0.18], "irm": [0.16, 0.36, 0.26]}
    results = Results([ENTRY], [one for key, found in values.items() for one in records("D M", key, found)])
    # ets - ts: .01, .01, -.02: mean 0, so equal; irm is .06 worse than ets, three standard errors.
    assert results.best("D M", list(values), "ece") == {"ts", "ets"}
    table = metric_table(results, "ece", list(values), key="t", title="", caption="")
    assert [cell.bold for cell in table.lines[0].cells] == [True, True, False]
    assert table.lines[0].cells[0].text == "20.00 ±11.55"  # 10 times the root of 1/3 + 5/5: splits share rows
    assert results.better("D M", "irm", "ts", "ece") == -1
    assert results.better("D M", "ts", "irm", "ece") == 1
    assert results.better("D M", "ts", "ets", "ece") == 0


def test_errors_that_calibrated_scores_would_have_are_marked():
    found = records("D M", "ts", [0.010, 0.012, 0.011]) + records("D M", "ets", [0.050, 0.052, 0.051])
    for record in found:
        record["ece_floor"] = 0.0105 + 0.001 * (record["number"] % 2)
    table = metric_table(Results([ENTRY], found), "ece", ["ts", "ets"], key="t", title="", caption="")
    assert [cell.text.endswith("°") for cell in table.lines[0].cells] == [True, False]


def test_published_numbers_are_beside_ours():
    entry = Entry("CIFAR-10", "LeNet 5", classes=10)
    results = Results([entry, ENTRY], records(entry.name, "ts", [0.01, 0.02]) + records("D M", "ts", [0.01, 0.02]))
    head, ours, theirs = published_table(results, "ece", ["ts", "gpc"])
    assert head[3:] == ["TS", "GPC"]
    assert ours == ["CIFAR-10", "LeNet 5", "ours", "1.50", "–"]
    assert theirs[3:] == ["1.16", "1.14"]


def test_a_claim_needs_rows_that_differ():
    assert decided(3, 1, 16) == 0.75
    assert math.isnan(decided(3, 0, 16))
    assert math.isnan(decided(0, 0, 0))


def test_for_gains_higher_is_better():
    found = records("D M", "ts", [0.1, 0.2], "gain") + records("D M", "ets", [0.2, 0.3], "gain")
    assert Results([ENTRY], found).best("D M", ["ts", "ets"], "gain") == {"ets"}


def test_fewer_splits_are_compared_on_those_splits():
    found = records("D M", "ts", [0.1, 0.3, 0.5]) + records("D M", "gpc", [0.05])
    mean = Results([ENTRY], found).mean("D M", "gpc", "ece")
    assert mean.value == pytest.approx(0.3 - 0.05)
    assert mean.n == 1


def test_efficiency_is_interpolated_in_the_logarithm_of_the_size():
    assert needed([128, 512], [0.08, 0.04], 0.06).rows == pytest.approx(256)
    assert needed([128, 256, 512], [0.08, 0.06, 0.02], 0.03).rows == pytest.approx(256 * 2**0.75)
    assert needed([128, 256], [0.03, 0.02], 0.03).sign == ""
    # The first crossing counts, also where the curve rises again.
    assert needed([128, 256, 512], [0.05, 0.01, 0.05], 0.03).rows == pytest.approx(128 * math.sqrt(2))


def curve_records(method: str, errors: dict[int, float]) -> list[dict]:
    return [
        {"part": "curve", "row": "D M", "number": 0, "method": method, "n_c": size, "n_e": 9, "ece": error}
        for size, error in errors.items()
    ]


def test_table_four_by_hand():
    found = curve_records("irm", {128: 0.04, 512: 0.02})
    found += curve_records("irova", {128: 0.06, 512: 0.02})
    found += curve_records("irova-ts", {128: 0.03, 512: 0.02})
    cells = efficiency_table(Results([ENTRY], found)).lines[0].cells
    assert [cell.text for cell in cells] == ["1.0", "2.00", "≤1.00"]
    found += curve_records("irova", {128: 0.06, 512: 0.05})
    assert efficiency_table(Results([ENTRY], found)).lines[0].cells[1].text == ">4.00"


def test_rank_correlation_of_the_two_measures():
    keys = ("ts", "ets", "irm", "irova")
    for order, expected in (((4, 3, 2, 1), 1.0), ((1, 2, 3, 4), -1.0)):
        found = []
        for place, (key, gain) in enumerate(zip(keys, order, strict=True)):
            found += [
                {
                    "part": "split",
                    "row": "D M",
                    "number": 0,
                    "method": key,
                    "ece": place,
                    "gain": gain,
                    "n_c": 1,
                    "n_e": 1,
                }
            ]
        assert rank_correlations(Results([ENTRY], found))["D M"] == pytest.approx(expected)


def test_claims_and_guidelines_say_so_when_there_are_no_results():
    empty = Results([ENTRY], [])
    assert {one.holds for one in check_guidelines(empty)} == {"cannot tell"}
    assert {one.holds for one in check_claims(empty)} <= {"cannot tell", "partly"}


def test_pages_escape_what_they_show():
    blocks = [Heading("a < b", 1), Grid(["x|y"], [["<b>"]], [[True]])]
    assert "<h1>a &lt; b</h1>" in to_html(blocks)
    assert "<b>&lt;b&gt;</b>" in to_html(blocks)
    assert to_markdown(blocks) == "# a &lt; b\n\n| x\\|y |\n| :-- |\n| **&lt;b&gt;** |\n"


def test_methods_of_the_paper_are_fitted_as_in_the_paper():
    for key in ("ts", "ets"):
        assert method(key).build(logits=True).loss == "brier"
    assert METHODS["irm"].build(logits=False).smoothing == 0
    assert method("iop").short == "iop", "any short name can be a column"
    with pytest.raises(ValueError, match="no method called 'nope'"):
        method("nope")


def test_the_synthetic_study_runs_once(tmp_path, monkeypatch):
    from mixnmatch.experiments.reproduce import study
    from mixnmatch.experiments.synthetic import error_study

    calls = []

    def small(folder, *, repetitions, seed, **_):
        calls.append(repetitions)
        Path(folder).mkdir(exist_ok=True)
        cells = error_study(repetitions=repetitions, sizes=(64,), norms=(1,), seed=seed)
        rows = [cell.row(name) for cell in cells for name in cell.estimates]
        with (Path(folder) / "errors.csv").open("w", newline="") as stream:
            sheet = csv.DictWriter(stream, list(rows[0]))
            sheet.writeheader()
            sheet.writerows(rows)

    monkeypatch.setattr(study, "run_synthetic", small)
    assert study.run_study(tmp_path / "s", repetitions=2, seed=0, jobs=1)
    assert not study.run_study(tmp_path / "s", repetitions=2, seed=0, jobs=1)
    assert study.run_study(tmp_path / "s", repetitions=3, seed=0, jobs=1)
    assert calls == [2, 3]
    text = to_markdown(study.study_blocks(tmp_path / "s", tmp_path))
    assert "the paper's KDE" in text
    assert json.loads((tmp_path / "s" / "settings.json").read_text())["repetitions"] == 3


PARENT = """
import os, subprocess, sys, time
worker = "import os, time; from mixnmatch.experiments.reproduce.run import _end_with; _end_with(os.getppid()); "
child = subprocess.Popen([sys.executable, "-c", worker + "print('ready', flush=True); time.sleep(100)"],
                         stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(100)
"""


def test_workers_end_with_a_process_that_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    with parent.stdout:
        worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":  # ended, and waiting for whoever takes in orphans here
            return
        time.sleep(0.2)
    os.kill(worker, 9)
    pytest.fail("the worker goes on")

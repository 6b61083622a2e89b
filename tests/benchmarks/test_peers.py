import csv
import json
import math

import numpy as np
import pytest
import sklearn
from sklearn.utils.fixes import parse_version

from peers import quality, speed
from peers.adapters import all_methods, ours, scikit_learn
from peers.datasets import Problem, files_of, network_problems, probabilities, simulated
from peers.league import beats, league, win_rates
from peers.metrics import all_metrics, kdepy_ece
from peers.page import LEAGUES, Pair, error_losses, leagues, pairs, read, speed_losses, times, write_page
from peers.quality import COLUMNS as QUALITY_COLUMNS
from peers.runner import run
from peers.speed import COLUMNS as SPEED_COLUMNS
from peers.speed import Job, hopeless, jobs, summary
from peers.task import judge, scores

HAS_TEMPERATURE = parse_version(sklearn.__version__) >= parse_version("1.8")
with_temperature = pytest.mark.skipif(not HAS_TEMPERATURE, reason="scikit-learn has temperature scaling from 1.8 on")


@pytest.fixture(scope="module")
def problem():
    x, y = simulated(900, 4)
    return Problem("small", x[:400], y[:400], x[400:], y[400:], logits=True)


def test_ties_count_half_and_failures_lose():
    assert beats(1.0, 2.0) == 1
    assert beats(2.0, 1.0) == 0
    assert beats(1.0, 1.0 + 1e-15) == 0.5
    assert beats(1.0, None) == 1
    assert beats(None, 1.0) == 0
    assert beats(None, None) == 0.5


def test_win_rates_are_means_over_problems_of_shares_of_others_beaten():
    values = {"one": {"a": 1.0, "b": 2.0, "c": 3.0}, "two": {"a": 1.0, "b": 1.0, "c": None}}
    assert win_rates(values, ["a", "b", "c"]) == {"a": (1 + 0.75) / 2, "b": (0.5 + 0.75) / 2, "c": 0.0}
    # A method without a row failed.
    assert win_rates({"one": {"a": 1.0}}, ["a", "b"]) == {"a": 1.0, "b": 0.0}
    assert sum(win_rates(values, ["a", "b", "c"]).values()) == pytest.approx(1.5)


def test_league_orders_by_win_rate_and_pairs_differences_over_common_problems():
    values = {"one": {"a": 1.0, "b": 2.0}, "two": {"a": 3.0, "b": 3.5}, "three": {"a": 1.0, "b": None}}
    first, second = league(values, ["b", "a"], "a")
    assert (first.method, first.win_rate, first.difference, first.failures) == ("a", 1.0, 0.0, 0)
    assert (second.method, second.mean, second.failures) == ("b", 2.75, 1)
    # The differences are 1 and 0.5: mean 0.75, standard error 0.25, and t with one degree of freedom is 12.706.
    assert second.difference == 0.75
    assert second.high == pytest.approx(0.75 + 12.7062 * 0.25, rel=1e-4)


@pytest.mark.parametrize("key", [method.key for method in (*ours(), *scikit_learn()) if "auto" not in method.name])
def test_adapters_give_distributions_over_the_classes(key, problem):
    if key == "mixnmatch: gpc":
        pytest.skip("takes its time, and is tested elsewhere")
    if key == "scikit-learn: temperature" and not HAS_TEMPERATURE:
        pytest.skip("scikit-learn has temperature scaling from 1.8 on")
    result = judge(all_methods()[key], problem)
    assert result["nll"] < 1.5
    assert 0 <= result["ece"] < 0.3
    if all_methods()[key].preserving:
        assert result["accuracy_change"] == 0


def test_results_of_peers_are_taken_from_a_table_for_the_same_problem_only(problem, tmp_path):
    path, table = tmp_path / "problems" / "small-5000.npz", tmp_path / "quality.csv"
    problem.save(path)
    ours, theirs = all_methods()["mixnmatch: identity"], all_methods()["scikit-learn: sigmoid"]
    found = judge(ours, problem)
    results = {
        ours.key: found | {"version": "1", "problem": ""},
        theirs.key: {"version": "2", "problem": "", "nll": 0.5},
        "netcal: enir": {"version": "3", "problem": "ValueError: no"},
    }
    quality.write(quality.table_rows(problem, results, []), table)
    assert quality.take_from(table, path, tmp_path, "mixnmatch: *")
    kept = json.loads((tmp_path / "quality" / "small-5000.json").read_text())
    assert set(kept) == {theirs.key, "netcal: enir"}
    assert kept[theirs.key] == {"key": theirs.key, "problem": "", "version": "2", "nll": 0.5}
    assert kept["netcal: enir"]["problem"] == "ValueError: no"
    assert quality.take_from(table, path, tmp_path / "again", "*: *i[gr]*")
    assert set(json.loads((tmp_path / "again" / "quality" / "small-5000.json").read_text())) == {ours.key}
    results[ours.key]["nll"] *= 1.001
    quality.write(quality.table_rows(problem, results, []), table)
    assert not quality.take_from(table, path, tmp_path / "other", "mixnmatch: *")


@with_temperature
def test_temperature_of_scikit_learn_and_ours_agree(problem):
    methods = all_methods()
    theirs, mine = (judge(methods[key], problem) for key in ("scikit-learn: temperature", "mixnmatch: ts"))
    assert theirs["nll"] == pytest.approx(mine["nll"], abs=1e-4)


def test_natural_input_is_converted_for_those_who_ask():
    x, _ = simulated(5, 3)
    methods = all_methods()
    p, logits = methods["netcal: temperature"].natural(x, True)
    assert p.dtype == np.float64
    assert not logits
    np.testing.assert_allclose(p.sum(axis=1), 1)
    back, logits = methods["torch-uncertainty: temperature"].natural(np.array([[0.0, 1.0]], dtype=np.float32), False)
    assert logits
    assert np.isfinite(back).all()


def test_every_twin_names_a_method_of_ours():
    methods = all_methods()
    names = {method.name for method in methods.values() if method.library == "mixnmatch"}
    assert {method.twin for method in methods.values() if method.twin} <= names
    assert {metric.twin for metric in all_metrics().values()} == {
        metric.name for metric in all_metrics().values() if metric.library == "mixnmatch"
    }


@pytest.mark.parametrize(
    ("p", "what"),
    [
        ([[math.nan, 1.0]], "not finite"),
        ([[-0.1, 1.1]], "negative"),
        ([[0.5, 0.4]], "sum to 1"),
        ([[1.0]], "shape"),
    ],
)
def test_what_is_no_distribution_is_a_failure(p, what):
    with pytest.raises(ValueError, match=what):
        scores(np.array(p), np.array([1]), np.array([1]))


def test_files_come_alone_or_in_pairs(tmp_path):
    for name in ("a_val", "a_test", "b"):
        x, y = simulated(20, 3)
        np.savez(tmp_path / f"{name}.npz", probs=probabilities(x), labels=y)
    assert [(name, pair is not None) for name, _, pair in files_of(tmp_path)] == [("a", True), ("b", False)]
    first, second = (Problem.load(path) for path in network_problems(tmp_path, tmp_path / "cache", 8))
    assert (len(first.labels), len(first.new_labels)) == (8, 20)
    assert (len(second.labels), len(second.new_labels)) == (8, 12)
    assert not second.logits


def test_a_result_that_does_not_come_is_a_failure_and_the_rest_goes_on(problem, tmp_path):
    path = tmp_path / "small.npz"
    problem.save(path)
    task = {"kind": "quality", "problem": str(path), "keys": ["nobody: nothing", "mixnmatch: ts"]}
    first, second = run(task, 120)
    assert first["problem"].startswith("KeyError")
    assert second["problem"] == ""
    assert second["nll"] == judge(all_methods()["mixnmatch: ts"], problem)["nll"]
    assert [result["problem"] for result in run(task, 0.01)] == ["more than 0.01 s"] * 2


def test_jobs_stand_beside_ours_and_give_up_where_the_smaller_size_did():
    made = jobs(["INET", "BIG"])
    fits = [job for job in made if job.kind == "fit"]
    assert {job.twin for job in fits if job.library == "mixnmatch"} == {job.twin for job in fits}
    small = Job("fit", "INET", "ts", "mixnmatch", "ts")
    big = Job("fit", "BIG", "ts", "mixnmatch", "ts")
    assert hopeless(big, {small: [{"problem": "", "fit": 1.0}]}, 60) == ""
    assert "took 40 s" in hopeless(big, {small: [{"problem": "", "fit": 40.0}]}, 60)
    assert "more than" in hopeless(big, {small: [{"problem": "more than 60 s"}]}, 60)
    row = summary(small, [{"problem": "", "fit": 3.0}, {"problem": "", "fit": 1.0}, {"problem": "", "fit": 2.0}])
    assert (row["fit"], row["n"], row["apply"]) == (2.0, 3, "")


@with_temperature
def test_speed_is_measured_once_and_then_remembered(tmp_path, monkeypatch):
    todo = [Job("fit", "C10", "ts", "mixnmatch", "ts"), Job("fit", "C10", "ts", "scikit-learn", "temperature")]
    monkeypatch.setattr(speed, "jobs", lambda sizes: todo)
    options = {"repeats": 1, "minutes": 1.0, "limit": 60.0}
    rows = speed.measure(tmp_path, ["C10"], **options)
    assert [row["problem"] for row in rows] == ["", ""]
    assert rows[0]["value"] == pytest.approx(rows[1]["value"], abs=1e-4)
    assert all(row["fit"] > 0 and row["apply"] > 0 and row["fit_memory"] >= 0 for row in rows)
    monkeypatch.setattr(speed, "run", None)
    assert speed.measure(tmp_path, ["C10"], **options) == rows
    speed.write(rows, tmp_path / "speed.csv")
    assert [row["library"] for row in read(tmp_path / "speed.csv")] == ["mixnmatch", "scikit-learn"]


def test_quality_is_judged_once_unless_forgotten(problem, tmp_path, monkeypatch):
    path = tmp_path / "small.npz"
    problem.save(path)
    asked = []

    def answer(task, limit):
        for key in task["keys"]:
            asked.append(key)
            yield {"key": key, "problem": "", "nll": 0.5}

    monkeypatch.setattr(quality, "run", answer)
    options = {"libraries": ["mixnmatch", "scikit-learn"], "limit": 1.0}
    assert quality.judge_all([path], tmp_path, **(options | {"limit": 0})) == []
    rows = quality.judge_all([path], tmp_path, **options)
    assert {row["library"] for row in rows} == {"mixnmatch", "scikit-learn"}
    assert len(rows) == len(asked)
    asked.clear()
    assert quality.judge_all([path], tmp_path, **options) == rows
    assert asked == []
    quality.forget(tmp_path, "scikit-learn")
    assert quality.judge_all([path], tmp_path, **options) == rows
    assert len(asked) == len(scikit_learn())


def speed_row(library, name, fit, apply, memory, problem=""):
    row = dict.fromkeys(SPEED_COLUMNS, "")
    return row | {"kind": "fit", "size": "C10", "twin": "ts", "library": library, "name": name, "version": "1",
                  "fit": fit, "apply": apply, "fit_memory": memory, "problem": problem}  # fmt: skip


def quality_row(problem, key, value):
    library, method = key.split(": ")
    about = {"problem": problem, "library": library, "method": method, "preserving": "0"}
    if value is None:
        measured = {"failure": "does not converge"}
    else:
        measured = dict.fromkeys(("nll", "brier", "ece", "accuracy", "accuracy_change", "fit"), value)
    return dict.fromkeys(QUALITY_COLUMNS, "") | about | measured


def write_table(path, columns, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def test_page_tells_what_we_lose(tmp_path):
    rows = [speed_row("mixnmatch", "ts", 0.002, 0.001, 5e6), speed_row("swift", "t", 0.001, 0.004, 5e7),
            speed_row("broken", "t", "", "", "", "more than 60 s")]  # fmt: skip
    write_table(tmp_path / "peers" / "speed.csv", SPEED_COLUMNS, rows)
    values = {"mixnmatch: auto": 0.3, "mixnmatch: ts": 0.5, "sharp: map": 0.2, "lame: map": None}
    judged = [quality_row(f"tab_{k}", key, value) for k in range(3) for key, value in values.items()]
    write_table(tmp_path / "peers" / "quality.csv", QUALITY_COLUMNS, judged)
    (tmp_path / "peers" / "about.json").write_text(json.dumps({"speed": {"date": "2026-11-16"}}))
    record = {"package": "gone", "version": "", "problem": "does not install: no wheel", "note": ""}
    (tmp_path / "peers.json").write_text(json.dumps([record]))
    write_page(tmp_path, tmp_path / "peers.json")
    page = (tmp_path / "peers.md").read_text()
    assert "| ts | C10 | time | swift: t | 2 ms | 1 ms | 0.5x |" in page
    assert "time to apply | swift" not in page
    assert "| ts | 2 ms | broken: t | more than 60 s |" in page
    assert "overall league by log loss: `auto` is at place 2 of 4, behind sharp: map." in page
    assert "sharp: map has a lower mean than `auto` beyond its interval" in page
    assert "- gone: does not install: no wheel" in page
    assert "2026-11-16" in page
    assert (tmp_path / "peers" / "speed.png").exists()
    assert (tmp_path / "peers" / "quality.png").exists()
    lines = read(tmp_path / "peers" / "leagues.csv")
    best = [line["method"] for line in lines if line["score"] == "nll" and line["problems"] == "tabular problems"]
    assert best == ["sharp: map", "mixnmatch: auto", "mixnmatch: ts", "lame: map"]


def test_page_tells_of_smaller_errors():
    errors = {"mixnmatch: auto": 0.02, "swift: map": 0.01, "lame: map": 0.05}
    rows = [quality_row(f"tab_{k}", key, "1") | {"ece": str(e)} for k in range(3) for key, e in errors.items()]
    text = error_losses(rows)
    assert "the mean of `auto` is 0.0200; lower are swift: map (-0.0100, " in text
    assert "lame" not in text
    assert error_losses([row for row in rows if row["library"] != "swift"]) == ""


def test_memory_below_the_noise_is_no_difference():
    found = pairs([speed_row("mixnmatch", "ts", 1, 1, 9e5), speed_row("swift", "t", 1, 1, 1e3)])
    assert found == [Pair(found[0].ours, found[0].peer)]
    assert found[0].ratio("fit_memory") == 1
    assert speed_losses(found) == ""
    assert [times(ratio) for ratio in (None, 0.5, 12.3)] == ["", "0.5x", "12x"]


def test_one_variant_of_auto_in_a_league():
    methods = ["ts", *dict.fromkeys(auto for _, _, auto in LEAGUES)]
    rows = [quality_row("a", f"mixnmatch: {method}", "1") | {"preserving": "1"} for method in methods]
    found = leagues(rows)
    assert found
    for result in found:
        assert {line.method for line in result.lines} == {"mixnmatch: ts", f"mixnmatch: {result.auto}"}


def test_kdepy_is_ours_with_the_paper_bandwidth():
    pytest.importorskip("KDEpy")
    from mixnmatch import calibration_error

    rng = np.random.default_rng(0)
    z = rng.beta(5, 1, 2000)
    y = (rng.random(2000) < z**1.3).astype(int)
    assert kdepy_ece(z, y) == pytest.approx(float(calibration_error(z, y, estimator="kde")), abs=2e-3)

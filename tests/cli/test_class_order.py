"""Commands find the classes of a map by the names of columns, also where there is one column."""

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import parsed


@pytest.fixture
def tables(folder, run):
    """``map.json``, fitted to both columns of ``both.csv``, of which ``one.csv`` and ``bare.csv`` have the first."""
    rng = np.random.default_rng(1)
    p = 1 / (1 + np.exp(-rng.normal(-3, 1.5, 1200)))
    labels = np.where(p / 2 > rng.random(len(p)), "fraud", "genuine")
    both = pd.DataFrame({"fraud": p, "genuine": 1 - p, "label": labels})
    both.to_csv("both.csv", index=False)
    both[["fraud", "label"]].to_csv("one.csv", index=False)
    both[["fraud"]].to_csv("bare.csv", index=False)
    pd.DataFrame({"label": ["fraud", "genuine"], "block": [0, 1], "pass": [50, 0]}).to_csv("costs.csv", index=False)
    assert run("fit", "both.csv", "-o", "map.json").exit_code == 0


@pytest.mark.parametrize("name", ["one.csv", "bare.csv"])
@pytest.mark.parametrize("output", ["out.csv", "out.npz"])
def test_apply_to_one_column(tables, run, name, output):
    assert run("apply", "map.json", "both.csv", "-o", "both-out.csv").exit_code == 0
    expected = pd.read_csv("both-out.csv")["calibrated_fraud"]
    assert run("apply", "map.json", name, "-o", output).exit_code == 0
    if output == "out.npz":
        with np.load(output) as archive:
            assert archive["classes"].tolist() == ["fraud", "genuine"]
            np.testing.assert_allclose(archive["probs"][:, 0], expected, rtol=1e-9)
        return
    got = pd.read_csv(output)
    assert [column for column in got.columns if column.startswith("calibrated")] == ["calibrated_fraud"]
    np.testing.assert_allclose(got["calibrated_fraud"], expected, rtol=1e-9)


def test_decide_on_one_column(tables, run):
    both, one = (
        parsed(run("decide", name, "--costs", "costs.csv", "--map", "map.json", "--json"))
        for name in ("both.csv", "one.csv")
    )
    assert one["decisions"] == both["decisions"]
    assert one["expected_cost"]["value"] == pytest.approx(both["expected_cost"]["value"])


def test_evaluate_one_column_after_a_map(tables, run):
    both, one = (
        parsed(run("evaluate", name, "--map", "map.json", "--no-interval", "--json"))
        for name in ("both.csv", "one.csv")
    )
    for side in ("before", "after"):
        assert one[side]["log_loss"]["value"] == pytest.approx(both[side]["log_loss"]["value"], rel=1e-9)
    assert "class fraud" in run("evaluate", "one.csv", "--map", "map.json").stdout


def test_monitor_and_adapt_one_column(tables, run):
    assert "No alarm" in run("monitor", "map.json", "one.csv", "--state", "state.json").stdout
    adapted = parsed(run("adapt", "map.json", "--unlabelled", "bare.csv", "-o", "new.json", "--json"))
    assert adapted["now"][0] < 0.5


def test_a_column_that_is_no_class_is_named(folder, run):
    pd.DataFrame({"no": [0.7, 0.2], "yes": [0.3, 0.8], "age": [40, 50], "label": ["no", "yes"]}).to_csv(
        "extra.csv", index=False
    )
    result = run("evaluate", "extra.csv")
    assert result.exit_code == 1
    assert "No label is called 'age': if such columns are not scores, name those that are: --columns" in result.stderr


QUESTION = "probability of which class? Give the column the name of the class, or say --classes A,B"


@pytest.fixture
def nameless(tables):
    """``nameless.csv`` has the scores of fraud in a column ``score``, ``capital.csv`` in a column ``Fraud``."""
    one = pd.read_csv("one.csv")
    one["label"] = (one["label"] == "fraud").astype(int)
    one.rename(columns={"fraud": "score"}).to_csv("nameless.csv", index=False)
    one.rename(columns={"fraud": "Fraud"}).to_csv("capital.csv", index=False)
    one.to_csv("positions.csv", index=False)


@pytest.mark.parametrize("file", ["nameless.csv", "capital.csv"])
@pytest.mark.parametrize(
    "command",
    [
        ["apply", "map.json", "FILE", "-o", "out.csv"],
        ["apply", "map.json", "FILE", "-o", "out.npz"],
        ["decide", "FILE", "--map", "map.json", "--costs", "costs.csv"],
        ["adapt", "map.json", "--unlabelled", "FILE", "-o", "new.json"],
        ["evaluate", "FILE", "--map", "map.json"],
        ["monitor", "map.json", "FILE", "--state", "state.json"],
    ],
    ids=lambda words: words[0] + words[-1][-4:],
)
def test_a_column_of_an_unknown_class_is_refused(nameless, run, command, file):
    words = [file if word == "FILE" else word for word in command]
    result = run(*words)
    assert result.exit_code == 1
    assert f"{file}: the scores are a vector" in result.stderr
    assert QUESTION in result.stderr
    assert run(*words, "--classes", "genuine,fraud").exit_code == 0


def test_positions_beside_a_column_with_the_name_of_a_class(nameless, run):
    """Labels 0 and 1: whether samples are of the class of the column."""
    expected = parsed(run("evaluate", "one.csv", "--map", "map.json", "--no-interval", "--json"))
    got = parsed(run("evaluate", "positions.csv", "--map", "map.json", "--no-interval", "--json"))
    assert got["after"]["log_loss"]["value"] == pytest.approx(expected["after"]["log_loss"]["value"])
    assert (
        run("monitor", "map.json", "positions.csv", "--state", "a.json").stdout.splitlines()[1:]
        == (
            run("monitor", "map.json", "one.csv", "--state", "b.json", "--step", "positions.csv").stdout.splitlines()[
                1:
            ]
        )
    )


def test_a_map_of_one_column_knows_its_class(nameless, run):
    assert run("fit", "one.csv", "-o", "vector.json").exit_code == 0
    assert run("apply", "vector.json", "nameless.csv", "-o", "a.csv").exit_code == 0
    assert run("apply", "vector.json", "one.csv", "-o", "b.csv").exit_code == 0
    np.testing.assert_allclose(pd.read_csv("a.csv").iloc[:, -1], pd.read_csv("b.csv").iloc[:, -1])


@pytest.mark.parametrize("start", ["", "score_"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_classes_that_are_called_like_columns_are_matched_by_name(tables, run, start, ending):
    table = pd.read_csv("both.csv").rename(columns={"fraud": f"{start}fraud", "genuine": f"{start}genuine"})
    getattr(table, "to_csv" if ending == "csv" else "to_parquet")(f"table.{ending}", index=False)
    found = [
        parsed(run("evaluate", f"table.{ending}", *more, "--no-interval", "--json"))
        for more in ([], ["--classes", "genuine,fraud"], ["--classes", "fraud,genuine"])
    ]
    assert len({round(one["log_loss"]["value"], 9) for one in found}) == 1
    assert found[1]["base_rate"]["value"] == pytest.approx(1 - found[2]["base_rate"]["value"])
    refused = run("evaluate", f"table.{ending}", "--classes", "fraud,honest")
    assert "columns are called like some of the classes ('fraud'), but not like all of them" in refused.stderr


@pytest.mark.parametrize("start", ["", "score_"])
def test_apply_matches_classes_by_name(tables, run, start):
    table = pd.read_csv("both.csv").rename(columns={"fraud": f"{start}fraud", "genuine": f"{start}genuine"})
    table.to_csv("table.csv", index=False)
    for name, more in (("a.csv", []), ("b.csv", ["--classes", "genuine,fraud"])):
        assert run("apply", "map.json", "table.csv", "-o", name, *more).exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv("a.csv"), pd.read_csv("b.csv"))


def test_classes_of_an_archive_are_not_named_in_another_order(folder, run):
    np.savez("own.npz", probs=[[0.2, 0.8], [0.7, 0.3]], labels=["a", "b"], classes=["b", "a"])
    result = run("evaluate", "own.npz", "--classes", "a,b")
    assert "names its classes itself, in the order 'b', 'a': leave out --classes" in result.stderr


def test_the_order_of_the_file_decides_which_class_is_positive(tables, run):
    swapped = pd.read_csv("both.csv")[["genuine", "fraud", "label"]]
    swapped.to_csv("swapped.csv", index=False)
    for name, positive in (("both.csv", "genuine"), ("swapped.csv", "fraud")):
        for more in ([], ["--map", "map.json"]):
            assert f"Probability of class {positive}" in run("evaluate", name, "--no-interval", *more).stdout
    assert "Probability of class fraud" in run("evaluate", "both.csv", "--classes", "genuine,fraud").stdout


@pytest.mark.parametrize("names", [("True", "False"), ("true", "false"), ("1.0", "0.0"), ("1", "0")])
def test_text_files_and_parquet_agree_about_booleans(folder, run, names):
    rng = np.random.default_rng(0)
    p = rng.random(300)
    y = rng.random(300) < p
    for kind in (bool, int):
        if kind is bool and names[0] != "True":
            continue
        table = pd.DataFrame({names[0]: p, names[1]: 1 - p, "label": y.astype(kind)})
        table.to_csv("t.csv", index=False)
        table.to_parquet("t.parquet", index=False)
        for name in ("t.csv", "t.parquet"):
            found = parsed(run("evaluate", name, "--no-interval", "--json"))
            assert found["log_loss"]["value"] == pytest.approx(-np.log(np.where(y, p, 1 - p)).mean())


def test_one_column_called_like_a_numbered_class(folder, run):
    rng = np.random.default_rng(0)
    p = rng.random(300)
    pd.DataFrame({"0": 1 - p, "label": (rng.random(300) < p).astype(int)}).to_csv("zero.csv", index=False)
    assert parsed(run("evaluate", "zero.csv", "--no-interval", "--json"))["accuracy"]["value"] > 0.7


def test_named_columns_and_a_map_of_numbers(folder, run):
    rng = np.random.default_rng(0)
    p = rng.random(300)
    pd.DataFrame({"score": p, "label": (rng.random(300) < p).astype(int)}).to_csv("one.csv", index=False)
    pd.DataFrame({"no": 1 - p, "yes": p}).to_csv("two.csv", index=False)
    assert run("fit", "one.csv", "-o", "numbers.json").exit_code == 0
    result = run("apply", "numbers.json", "two.csv", "-o", "out.csv")
    assert result.exit_code == 0
    assert "Warning: the columns ['no', 'yes'] are not called like the classes of the map" in result.stderr


@pytest.mark.parametrize(
    "columns, more, message",
    [
        (
            {"score": [1.5, 80.0]},
            [],
            "percentages, divide them by 100; if these are logits, pass --logits",
        ),
        (
            {"p(a)": [0.5, 0.8], "p(b)": [0.5, 0.2]},
            ["a", "b"],
            "--classes A,B,... if the columns have other names",
        ),
        ({"day": ["2026-01-01"] * 2, "a": [0.5, 0.8], "b": [0.5, 0.2]}, ["a", "b"], "name the scores: --columns"),
    ],
)
def test_messages_say_what_to_do(folder, run, columns, more, message):
    pd.DataFrame(columns | {"label": more or [0, 1]}).to_csv("t.csv", index=False)
    assert message in run("evaluate", "t.csv").stderr


def test_a_vector_with_text_labels_in_the_words_of_the_command_line(folder, run):
    np.savez("v.npz", probs=[0.2, 0.8], labels=["no", "yes"])
    assert "pass --classes A,B where the scores are about B" in run("evaluate", "v.npz").stderr
    pd.DataFrame({"day": ["x"], "amount": [3], "no": [0.5], "maybe": [0.5]}).to_csv("more.csv", index=False)
    np.savez("fit.npz", probs=[[0.2, 0.8], [0.7, 0.3]] * 20, labels=["a", "b"] * 20)
    assert run("fit", "fit.npz", "-o", "map.json").exit_code == 0
    refused = run("apply", "map.json", "more.csv", "-o", "out.csv").stderr
    assert "columns read as scores are 'day', 'amount', 'no', 'maybe': name those that are, --columns" in refused
    assert "is a folder with files that are not .parquet files" in run("evaluate", ".").stderr

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

"""fit, apply and evaluate: what they print, write and refuse."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import mixnmatch
from mixnmatch.io import read_table
from mixnmatch.selection.auto import Auto
from tests.cli.conftest import arrays, parsed

OUTSIDE = (
    "label 2 in row 0 is not a column of the scores (0 to 1); pass --classes A,B,... if the columns have other names"
)


def test_fit_says_what_was_learned_and_where_the_numbers_are_from(files, run):
    result = run("fit", "val.npz", "--method", "ets", "-o", "cal.json")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.startswith("val.npz: 400 rows, 3 classes, logits\nets: ")
    assert "temperature  " in result.stdout
    assert "On the calibration set (optimistic: the map was fitted on these samples)" in result.stdout
    assert mixnmatch.load("cal.json").n_classes_ == 3


@pytest.mark.parametrize("method", [line.name for line in mixnmatch.calibrators() if "ensemble-" not in line.name])
def test_every_method_can_be_fitted_described_and_applied(files, run, method):
    result = run("fit", "val.npz", "--method", method, "-o", "cal.json", "--json")
    document = parsed(result)
    assert document["method"] == method
    assert document["learned"]
    assert document["calibration_set"]["after"]["log_loss"]["value"] > 0
    assert run("apply", "cal.json", "test.npz", "-o", "out.npz").exit_code == 0
    probs = arrays("out.npz")["probs"]
    np.testing.assert_allclose(probs.sum(axis=1), 1)


def test_fit_agrees_with_the_library(files, run):
    run("fit", "val.npz", "--method", "ts", "--loss", "brier", "-o", "cal.json")
    archive = arrays("val.npz")
    expected = mixnmatch.calibrator("ts", logits=True, loss="brier").fit(archive["logits"], archive["labels"])
    assert mixnmatch.load("cal.json").beta_ == expected.beta_


@pytest.mark.parametrize("method", ["sms", "ts", "auto"])
def test_fit_can_hold_any_method_to_the_predictions(files, run, method):
    result = run("fit", "val.npz", "-m", method, "--preserve-accuracy", "-o", "cal.json")
    assert result.exit_code == 0
    assert "the predicted class never changes" in " ".join(result.stdout.split())
    made = {"sms": mixnmatch.maps.KeepWinner, "ts": mixnmatch.TemperatureScaling, "auto": Auto}[method]
    assert type(mixnmatch.load("cal.json")) is made


def test_fit_names_the_members_of_a_stack(files, run):
    text = run("fit", "val.npz", "-m", "auto", "--option", "cv=2", "-o", "cal.json").stdout
    stack = mixnmatch.load("cal.json")
    heaviest = stack.candidates_[int(stack.candidate_weights_.argmax())]
    first = text.split("Learned\n")[1].splitlines()[0]
    assert first.split("  weight ") == [
        f"  {heaviest:<{first.index('  weight') - 2}}",
        f"{stack.member_weights_.max():.3f}",
    ]
    assert f"log loss lower by {stack.gain_:.4g}" in text


def test_fit_settings(files, run):
    assert run("fit", "val.npz", "-m", "irm", "--option", "smoothing=0", "-o", "cal.json").exit_code == 0
    assert mixnmatch.load("cal.json").smoothing == 0
    result = run("fit", "val.npz", "-m", "irm", "--loss", "nll", "-o", "new.json")
    assert result.exit_code == 2
    assert "the method 'irm' has no setting 'loss'" in result.stderr
    assert run("fit", "val.npz", "--option", "smoothing", "-o", "new.json").exit_code == 2
    assert not Path("new.json").exists()


def test_fit_with_weights(files, run):
    archive = arrays("val.npz")
    weights = np.arange(400) % 3
    np.savez("weighted.npz", **archive, weights=weights)
    repeated = np.repeat(np.arange(400), weights)
    np.savez("repeated.npz", logits=archive["logits"][repeated], labels=archive["labels"][repeated])
    for name in ("weighted", "repeated"):
        assert run("fit", f"{name}.npz", "-m", "ts", "-o", f"{name}.json").exit_code == 0
    assert mixnmatch.load("weighted.json").beta_ == pytest.approx(mixnmatch.load("repeated.json").beta_, rel=1e-9)
    np.savez("shares.npz", **archive, weights=weights / 1000)
    result = run("fit", "shares.npz", "-m", "ts", "-o", "shares.json")
    assert result.stderr.count("Warning: ") == 1
    assert "pass --importance" in result.stderr
    assert run("fit", "shares.npz", "-m", "ts", "--importance", "-o", "shares.json", "--force").stderr == ""
    result = run("fit", "val.npz", "-m", "ts", "--importance", "-o", "new.json")
    assert result.exit_code == 1
    assert "there are none" in result.stderr


def test_nothing_is_overwritten_without_force(files, run):
    Path("cal.json").write_text("mine")
    Path("out.npz").write_text("mine")
    for args in (["fit", "val.npz", "-o", "cal.json"], ["apply", "missing.json", "missing.npz", "-o", "out.npz"]):
        result = run(*args)
        assert result.exit_code == 1
        assert result.stderr == f"Error: {args[-1]}: exists already; pass --force to overwrite it\n"
        assert Path(args[-1]).read_text() == "mine"
    assert run("fit", "val.npz", "-o", "cal.json", "--force").exit_code == 0
    assert run("apply", "cal.json", "test.npz", "-o", "out.npz", "--force").exit_code == 0
    result = run("fit", "val.npz", "-o", "cal.npz")
    assert result.stderr == "Error: cal.npz: cannot write '.npz' files; the name must end in .json\n"


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet", "npy"])
def test_apply_writes_every_kind(files, run, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    run("fit", "val.npz", "-o", "cal.json")
    assert run("apply", "cal.json", "test.npz", "-o", f"out.{ending}").exit_code == 0
    archive = arrays("test.npz")
    expected = mixnmatch.load("cal.json").predict_proba(archive["logits"])
    table = read_table(f"out.{ending}", need_labels=False)
    np.testing.assert_array_equal(table.scores, expected)
    if ending != "npy":
        np.testing.assert_array_equal(table.labels, archive["labels"])
        assert run("evaluate", f"out.{ending}", "--no-interval").exit_code == 0


def test_apply_takes_what_the_map_was_fitted_on(files, run):
    run("fit", "val.npz", "-o", "cal.json")
    logits = arrays("test.npz")["logits"]
    np.save("l.npy", logits)
    np.savez("p.npz", probs=np.full((5, 3), 1 / 3))
    np.savez("four.npz", logits=np.zeros((5, 4)))
    assert run("apply", "cal.json", "l.npy", "-o", "out.npy").exit_code == 0
    np.testing.assert_array_equal(np.load("out.npy"), mixnmatch.load("cal.json").predict_proba(logits))
    result = run("apply", "cal.json", "p.npz", "-o", "x.npz")
    assert result.stderr == "Error: p.npz: holds probabilities, but cal.json was fitted on logits\n"
    result = run("apply", "cal.json", "four.npz", "-o", "x.npz")
    assert result.stderr == "Error: four.npz: has scores of 4 classes, but cal.json was fitted with 3\n"
    assert not Path("x.npz").exists()


def test_named_columns_are_matched_by_name(folder, run):
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1], size=60)
    names = np.array(["a", "b", "c"])
    labels = names[[rng.choice(3, p=row) for row in p]]
    for name, order in (("abc", [0, 1, 2]), ("cab", [2, 0, 1])):
        lines = [",".join([*names[order], "label"])]
        lines += [",".join([*map(repr, row[order].tolist()), label]) for row, label in zip(p, labels, strict=True)]
        Path(f"{name}.csv").write_text("\n".join(lines))
    assert run("fit", "abc.csv", "-m", "vector", "-o", "cal.json").exit_code == 0
    run("apply", "cal.json", "abc.csv", "-o", "abc.npz")
    run("apply", "cal.json", "cab.csv", "-o", "cab.npz")
    np.testing.assert_array_equal(arrays("abc.npz")["probs"], arrays("cab.npz")["probs"])
    assert arrays("cab.npz")["classes"].tolist() == ["a", "b", "c"]
    first = parsed(run("evaluate", "abc.csv", "--map", "cal.json", "--no-interval", "--json"))
    second = parsed(run("evaluate", "cab.csv", "--map", "cal.json", "--no-interval", "--json"))
    assert first["after"]["log_loss"]["value"] == pytest.approx(second["after"]["log_loss"]["value"])
    Path("abd.csv").write_text("a,b,d,label\n.1,.2,.7,a\n")
    result = run("apply", "cal.json", "abd.csv", "-o", "x.npz")
    assert "its classes are 'a', 'b', 'd', but cal.json was fitted with 'a', 'b', 'c'" in result.stderr


def test_text_labels_without_names_are_those_of_the_map(files, run):
    archive = arrays("val.npz")
    names = np.array(["z", "y", "x"])
    np.savez("named.npz", logits=archive["logits"], labels=names[archive["labels"]])
    run("fit", "named.npz", "--classes", "z,y,x", "-m", "vector", "-o", "cal.json")
    run("fit", "val.npz", "-m", "vector", "-o", "plain.json")
    named = parsed(run("evaluate", "named.npz", "--map", "cal.json", "--no-interval", "--json"))
    plain = parsed(run("evaluate", "val.npz", "--map", "plain.json", "--no-interval", "--json"))
    assert named["after"]["log_loss"] == plain["after"]["log_loss"]


def test_positive_class_alone(folder, run):
    rng = np.random.default_rng(0)
    z = rng.random(200)
    y = (rng.random(200) < z**2).astype(int)
    np.savez("b.npz", probs=z, labels=y)
    assert run("fit", "b.npz", "-m", "platt", "-o", "cal.json").exit_code == 0
    assert run("apply", "cal.json", "b.npz", "-o", "out.npz").exit_code == 0
    assert arrays("out.npz")["probs"].shape == (200, 2)
    document = parsed(run("evaluate", "b.npz", "--map", "cal.json", "--json"))
    assert document["before"]["calibration_error"]["notion"] == "binary"
    assert document["classes"] == 2


def test_the_default_method_depends_on_the_number_of_classes(files, run):
    rng = np.random.default_rng(0)
    z = rng.random(200)
    np.savez("two.npz", probs=z, labels=(rng.random(200) < z).astype(int))
    assert parsed(run("fit", "two.npz", "-o", "two.json", "--json"))["method"] == "auto"
    assert parsed(run("fit", "val.npz", "-o", "three.json", "--json"))["method"] == "ets"
    assert run("fit", "two.npz", "-o", "brier.json", "--loss", "brier").exit_code == 0
    assert mixnmatch.load("brier.json").scoring == "brier"


def test_evaluate_as_text(files, run):
    result = run("evaluate", "test.npz")
    assert result.exit_code == 0
    assert result.stderr == ""
    for word in (
        "accuracy",
        "log loss",
        "Brier score",
        "calibration error",
        "95% confidence interval",
        "overconfident",
    ):
        assert word in result.stdout
    assert "Not calibrated (p <= 0.002)" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 120


def test_evaluate_names_no_direction_without_one(folder, run):
    rng = np.random.default_rng(0)
    x = rng.normal(0, 2, 2000)
    y = (rng.random(2000) < 1 / (1 + np.exp(-x))).astype(int)
    p = 1 / (1 + np.exp(-2.5 * x))
    np.savez(folder / "sharp.npz", probs=np.stack([1 - p, p], axis=1), labels=y)
    np.savez(folder / "high.npz", probs=np.stack([(1 - p) / 2, (1 + p) / 2], axis=1), labels=y)
    words = "too high for some samples and too low for others"
    assert words in " ".join(run("evaluate", str(folder / "sharp.npz")).output.split())
    assert "too high on average" in " ".join(run("evaluate", str(folder / "high.npz")).output.split())


def test_infinite_log_losses_are_explained(folder, run):
    p, y = np.round(np.linspace(0, 0.9, 40), 1), np.tile([1, 0], 20)
    np.savez(folder / "zeros.npz", probs=np.stack([1 - p, p], axis=1), labels=y)
    words = "The log loss is infinite: a sample has probability 0 of its label."
    assert words in run("evaluate", str(folder / "zeros.npz")).stdout
    assert run("report", str(folder / "zeros.npz"), "-o", str(folder / "page.html")).exit_code == 0
    assert words in (folder / "page.html").read_text()


def test_evaluate_as_json_agrees_with_the_library(files, run):
    from mixnmatch.evaluation.error import calibration_error
    from mixnmatch.evaluation.scores import log_loss

    archive = arrays("test.npz")
    document = parsed(run("evaluate", "test.npz", "--json"))
    assert document["rows"] == 600
    assert document["log_loss"]["value"] == log_loss(archive["logits"], archive["labels"], logits=True)
    error = calibration_error(archive["logits"], archive["labels"], logits=True, interval=True, random_state=0)
    assert document["calibration_error"]["value"] == float(error)
    assert document["calibration_error"]["interval"] == list(error.interval)
    assert document["calibration_error"]["p_value"] <= 0.01


def test_evaluate_options(files, run):
    args = ("--notion", "class-wise", "--estimator", "histogram", "--bins", "10", "--norm", "2", "--no-interval")
    document = parsed(run("evaluate", "test.npz", *args, "--json"))
    error = document["calibration_error"]
    assert (error["notion"], error["estimator"], error["norm"]) == ("class-wise", "histogram", 2)
    assert len(error["per_class"]) == 3
    assert "Worst classes: " in run("evaluate", "test.npz", *args).stdout
    result = run("evaluate", "test.npz", "--bins", "10")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: the estimator 'kde-residual' has no option 'bins'")


def test_evaluate_with_a_map_shows_the_gain(files, run):
    run("fit", "val.npz", "-m", "irova-ts", "-o", "cal.json")
    result = run("evaluate", "test.npz", "--map", "cal.json", "--no-interval")
    assert "before" in result.stdout
    assert "Calibration gain of cal.json: +" in result.stdout
    document = parsed(run("evaluate", "test.npz", "--map", "cal.json", "--no-interval", "--json"))
    gain = document["calibration_gain"]
    before, after = (document[side]["brier_score"]["value"] for side in ("before", "after"))
    assert gain["value"] == pytest.approx(before - after)
    assert gain["exact"] is False


def test_infinite_loss_is_valid_json(folder, run):
    np.savez("zero.npz", probs=[[1.0, 0.0], [0.5, 0.5], [0.2, 0.8]], labels=[1, 0, 1])
    document = parsed(run("evaluate", "zero.npz", "--json", "--no-interval"))
    assert document["log_loss"]["value"] is None
    assert "inf" in run("evaluate", "zero.npz", "--no-interval").stdout


def test_list_methods(run):
    result = run("fit", "--list-methods")
    assert result.exit_code == 0
    assert "\nets              * ensemble temperature scaling" in result.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"probs": [[3.0, -1.0]], "labels": [0]},
            "row 0 of the scores has a negative entry (-1); if these are logits, call the array 'logits'",
        ),
        ({"logits": [[3.0, np.nan]], "labels": [0]}, "row 0 of the scores holds NaN; drop or repair such rows first"),
        ({"logits": [[3.0, 1.0]], "labels": [2]}, OUTSIDE),
        ({"logits": [[3.0, 1.0]], "labels": [0, 1]}, "there are 2 labels for 1 rows of scores"),
        (
            {"logits": [[3.0, 1.0]], "labels": [0], "weights": [-1.0]},
            "the weight in row 0 is -1.0; weights must be finite and not negative",
        ),
    ],
)
def test_wrong_values_name_the_file_and_the_row(folder, run, content, message):
    np.savez("x.npz", **content)
    result = run("evaluate", "x.npz")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == f"Error: x.npz: {message}\n"


def test_unnormalised_csv_mentions_the_option(folder, run):
    Path("x.csv").write_text("a,b,label\n3,-1,a\n")
    result = run("evaluate", "x.csv", "--json")
    assert result.stderr.endswith("if these are logits, pass --logits\n")
    assert result.stdout == ""


def test_wrong_maps(files, run):
    run("fit", "val.npz", "-o", "cal.json")
    document = json.loads(Path("cal.json").read_text())
    Path("edited.json").write_text(json.dumps(document | {"version": 99}))
    Path("text.json").write_text("hello")
    for name, message in (
        ("missing.json", "no such file"),
        ("edited.json", "format version 99"),
        ("text.json", "is not a map file"),
    ):
        result = run("apply", name, "test.npz", "-o", "out.npz")
        assert result.exit_code == 1
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
        assert not Path("out.npz").exists()


def test_debug_shows_the_traceback(folder, run):
    with pytest.raises(ValueError, match="no such file"):
        run("evaluate", "missing.npz", "--debug")


def test_errors_of_the_program_are_one_line_too(files, run, monkeypatch):
    def fail(*_args: object, **_settings: object) -> None:
        raise KeyError(0)

    monkeypatch.setattr("mixnmatch.evaluation._evaluate.evaluate", fail)
    result = run("evaluate", "test.npz")
    assert result.exit_code == 1
    assert result.stderr == "Error: unexpected KeyError: 0; --debug shows where\n"


def test_folder_that_cannot_be_written(files, run):
    locked = Path("locked")
    locked.mkdir(mode=0o500)
    if os.access(locked, os.W_OK):
        pytest.skip("the administrator may write anywhere")
    result = run("fit", "val.npz", "-m", "ts", "-o", "locked/cal.json")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert "permission denied" in result.stderr
    assert result.stderr.count("\n") == 1


def test_no_room_left_leaves_nothing_behind(files, run, monkeypatch):
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mixnmatch._files.os.fsync", full)
    result = run("fit", "val.npz", "-m", "ts", "-o", "cal.json")
    assert result.exit_code == 1
    assert result.stderr == "Error: cal.json: no space left on device\n"
    assert sorted(path.name for path in files.iterdir()) == ["test.npz", "val.npz"]


def test_a_thousand_classes(folder, run):
    logits = np.random.default_rng(0).normal(size=(300, 1000)).astype(np.float32)
    np.savez("wide.npz", logits=logits, labels=logits.argmax(axis=1))
    result = run("fit", "wide.npz", "-m", "ts", "-o", "cal.json")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 120


def test_two_classes_have_one_notion_before_and_after(folder, run):
    rng = np.random.default_rng(0)
    log_odds = rng.normal(-3, 1.5, 3000)
    y = (rng.random(3000) < 1 / (1 + np.exp(-log_odds))).astype(int)
    p = 1 / (1 + np.exp(-(log_odds + 2.5)))
    np.savez("one.npz", probs=p, labels=y)
    np.savez("two.npz", probs=np.c_[1 - p, p], labels=y)
    assert run("fit", "one.npz", "-o", "cal.json").exit_code == 0
    found = [parsed(run("evaluate", name, "--map", "cal.json", "--json")) for name in ("one.npz", "two.npz")]
    for side in ("before", "after"):
        errors = [each[side]["calibration_error"] for each in found]
        assert {error["notion"] for error in errors} == {"binary"}
        assert errors[0]["value"] == pytest.approx(errors[1]["value"], abs=1e-9)
    assert found[0]["after"]["mean_probability"]["value"] == pytest.approx(y.mean(), rel=0.05)
    text = run("evaluate", "two.npz", "--map", "cal.json").stdout
    assert "Calibration error: binary" in text
    assert "mean probability of class 1" in " ".join(text.split())
    assert "top-label" not in text
    slopes = [found[0][side]["calibration_slope"] for side in ("before", "after")]
    assert slopes[0]["low"] < slopes[0]["value"] < slopes[0]["high"]
    line = next(line for line in text.splitlines() if line.startswith("calibration slope"))
    assert all(f"{slope['value']:.3f}" in line for slope in slopes)
    assert "excess in top 1%" in text
    tables = text[: text.index("Calibration error: binary")]
    assert max(map(len, tables.splitlines())) <= 80


def test_preserving_accuracy_says_what_it_costs(files, run):
    result = run("fit", "val.npz", "-m", "vector", "--preserve-accuracy", "-o", "cal.json")
    assert "Never changing the predicted class costs 0.0" in result.stdout
    assert "costs" not in run("fit", "val.npz", "-m", "ets", "--preserve-accuracy", "-o", "other.json").stdout

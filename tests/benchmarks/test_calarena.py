import csv

import numpy as np
import pytest

from mixnmatch import calibration_error
from mixnmatch.experiments.calarena import CUSTOM_CALIBRATORS, factory
from tabular.calarena import experiments, lines, measured, placed, run


def group(n_classes, seed, columns=None):
    """A group of CalArena's layout: for two classes the probability of the positive one."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, 260)
    logits = rng.normal(size=(260, n_classes)) + 4 * np.eye(n_classes)[labels]
    p = np.exp(2 * logits)
    p = (p / p.sum(axis=1, keepdims=True)).astype(np.float32)
    if n_classes == 2:
        p = p[:, 1] if columns is None else p[:, 2 - columns :]
    return {"probas_cal": p[:100], "labels_cal": labels[:100], "probas_test": p[100:], "labels_test": labels[100:]}


@pytest.fixture
def binary():
    return {"adult": {"XGBoost": group(2, 0), "LightGBM": group(2, 1)}, "bank": {"XGBoost": group(2, 2)}}


def test_experiments_are_groups_of_data_set_and_model(binary):
    found = list(experiments(binary))
    assert [(e.dataset, e.model) for e in found] == [("adult", "LightGBM"), ("adult", "XGBoost"), ("bank", "XGBoost")]
    np.testing.assert_array_equal(found[0].probas_test, binary["adult"]["LightGBM"]["probas_test"])


def test_lines_have_the_columns_of_calarena(binary):
    experiment = next(experiments(binary))
    row = measured("mixnmatch-beta-shrunk", CUSTOM_CALIBRATORS["mixnmatch-beta-shrunk"](), experiment)
    fitted = factory("beta-shrunk")().fit(experiment.probas_cal, experiment.labels_cal)
    p, y = fitted.predict_proba(experiment.probas_test), experiment.labels_test
    name = "mixnmatch-beta-shrunk"
    assert list(row) == ["dataset", "model", "cal_size", "test_size", f"{name}_brier", f"{name}_logloss",
                         f"{name}_ece-15", f"{name}_accuracy", f"{name}_time"]  # fmt: skip
    assert (row["cal_size"], row["test_size"]) == (100, 160)
    assert row[f"{name}_brier"] == pytest.approx(np.square(p - np.eye(2)[y]).sum(axis=1).mean(), rel=1e-9)
    assert row[f"{name}_logloss"] == pytest.approx(-np.log(p[np.arange(160), y]).mean(), rel=1e-9)
    assert row[f"{name}_accuracy"] == (p.argmax(axis=1) == y).mean()
    error = calibration_error(p[:, 1], y, estimator="histogram", bins=15)
    assert row[f"{name}_ece-15"] == pytest.approx(float(error), rel=1e-9)


def test_lines_of_more_classes_say_how_many():
    experiment = next(experiments({"a": {"b": group(4, 0)}}))
    row = measured("x", factory("ts")(), experiment)
    assert row["n_classes"] == 4


def test_runs_go_on_where_they_were_and_results_are_placed(binary, tmp_path):
    names = ["mixnmatch-beta-shrunk"]
    run({"adult": binary["adult"]}, names, tmp_path)
    path = tmp_path / "mixnmatch-beta-shrunk.csv"
    first = path.read_text()
    run(binary, names, tmp_path)
    assert path.read_text().startswith(first)
    own = lines(path)
    assert [(row["dataset"], row["model"]) for row in own] == [
        ("adult", "LightGBM"), ("adult", "XGBoost"), ("bank", "XGBoost")
    ]  # fmt: skip
    other = tmp_path / "TS.csv"
    with other.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["dataset", "model", "cal_size", "test_size", "TS_brier", "TS_logloss"])
        for row, logloss in zip(own, (9.0, 0.0, float("nan")), strict=True):
            writer.writerow([row["dataset"], row["model"], 100, 160, 1.9, logloss])
    assert [line[:2] for line in placed([path, other], "brier")] == [("mixnmatch-beta-shrunk", 1.0), ("TS", 0.0)]
    by_loss = placed([path, other], "logloss")
    assert [(name, round(rate, 3), n) for name, rate, _, n in by_loss] == [
        ("mixnmatch-beta-shrunk", 0.667, 3), ("TS", 0.333, 3)
    ]  # fmt: skip


def test_a_real_file_reads_the_same(binary, tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "toy-binary.h5", "w") as file:
        for dataset, models in binary.items():
            for model, arrays in models.items():
                for key, value in arrays.items():
                    file.create_dataset(f"{dataset}/{model}/{key}", data=value)
    with h5py.File(tmp_path / "toy-binary.h5", "r") as file:
        pairs = list(zip(experiments(file), experiments(binary), strict=True))
    for read, made in pairs:
        assert (read.dataset, read.model) == (made.dataset, made.model)
        np.testing.assert_array_equal(read.probas_cal, made.probas_cal)
        np.testing.assert_array_equal(read.labels_test, made.labels_test)

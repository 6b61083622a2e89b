"""Parquet datasets on the command line: folders in and out, batch by batch, however large."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mixnmatch import load
from mixnmatch.io import dataset, parquet, read_table
from tests.cli.conftest import parsed

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def table(n: int, seed: int = 0, **extra) -> "pa.Table":
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([0.5] * 3, n)
    names = np.array(["cat", "dog", "emu"])
    labels = names[(p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=2)]
    return pa.table({**{f"p_{name}": p[:, k] for k, name in enumerate(names)}, "label": labels, **extra})


@pytest.fixture
def data(folder):
    """A folder of two years with two files each, one of them without rows."""
    for seed, (year, part, n) in enumerate([(2020, 0, 200), (2020, 1, 0), (2021, 0, 150), (2021, 1, 50)]):
        Path(f"data/year={year}").mkdir(parents=True, exist_ok=True)
        pq.write_table(table(n, seed), f"data/year={year}/{part}.parquet")
    return folder


def files(folder: str) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def test_fit_apply_and_evaluate_a_partitioned_folder(data, run):
    assert parsed(run("fit", "data", "--method", "ts", "-o", "cal.json", "--json"))["rows"] == 400
    assert parsed(run("apply", "cal.json", "data", "-o", "out", "--json"))["rows"] == 400
    assert files("out") == files("data")
    assert parsed(run("evaluate", "data", "--map", "cal.json", "--json"))["after"]["accuracy"] == pytest.approx(
        parsed(run("evaluate", "out", "--columns", "calibrated_*", "--json"))["accuracy"]
    )
    before, after = read_table("data"), read_table("out", columns=["calibrated_*"])
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(after.scores, load("cal.json").predict_proba(before.scores))
    given = ["p_cat", "p_dog", "p_emu", "label"]
    added = ["calibrated_cat", "calibrated_dog", "calibrated_emu"]
    assert pq.read_schema("out/year=2020/0.parquet").names == given + added
    assert pq.read_table("out").select(given).equals(pq.read_table("data").select(given))
    assert "choose the scores: --columns" in run("evaluate", "out").stderr


def test_small_batches_and_mapped_files_change_nothing(data, run, monkeypatch):
    whole = parsed(run("fit", "data", "--method", "ets", "-o", "whole.json", "--json"))
    said = parsed(run("evaluate", "data", "--map", "whole.json", "--json"))
    monkeypatch.setattr(dataset, "BATCH_BYTES", 1)
    monkeypatch.setattr(parquet, "IN_MEMORY", 0)
    assert isinstance(read_table("data").scores, np.memmap)
    again = parsed(run("fit", "data", "--method", "ets", "-o", "cut.json", "--json"))
    assert again["calibration_set"] == whole["calibration_set"]
    assert parsed(run("evaluate", "data", "--map", "whole.json", "--json")) == said


def test_columns_in_another_order_are_matched_by_name(data, run):
    run("fit", "data", "--method", "vector", "-o", "cal.json")
    given = table(30, 9)
    pq.write_table(given.select(["label", "p_emu", "p_cat", "p_dog"]), "turned.parquet")
    pq.write_table(given, "straight.parquet")
    for name in ("turned", "straight"):
        assert run("apply", "cal.json", f"{name}.parquet", "-o", f"{name}_out.parquet").exit_code == 0
    turned, straight = pq.read_table("turned_out.parquet"), pq.read_table("straight_out.parquet")
    assert turned.column_names[:4] == ["label", "p_emu", "p_cat", "p_dog"]
    assert turned.select(straight.column_names).equals(straight)


def test_dictionary_labels_labels_in_folders_and_weights(folder, run):
    given = table(60)
    coded = given.set_column(3, "label", given["label"].dictionary_encode()).append_column("weight", pa.array([2] * 60))
    pq.write_table(coded, "coded.parquet")
    pq.write_to_dataset(given, "by_label", partition_cols=["label"])
    for name in ("coded.parquet", "by_label"):
        result = parsed(
            run("fit", name, "--method", "ts", "-o", "cal.json", "--force", "--label-column", "label", "--json")
        )
        assert result["rows"] == 60
    assert run("apply", "cal.json", "coded.parquet", "-o", "out.parquet").exit_code == 0
    out = pq.read_table("out.parquet")
    assert out["label"].to_pylist() == given["label"].to_pylist()
    assert out["weight"].to_pylist() == [2] * 60


def test_a_single_column_gets_a_single_one(folder, run):
    z = np.linspace(0.05, 0.95, 40)
    pq.write_table(pa.table({"1": z, "label": (z > 0.4).astype(int)}), "one.parquet")
    run("fit", "one.parquet", "--method", "platt", "-o", "cal.json")
    assert run("apply", "cal.json", "one.parquet", "-o", "out.parquet").exit_code == 0
    out = pq.read_table("out.parquet")
    assert out.column_names == ["1", "label", "calibrated_1"]
    np.testing.assert_array_equal(out["1"].to_numpy(), z)
    np.testing.assert_allclose(out["calibrated_1"].to_numpy(), load("cal.json").predict_proba(z)[:, 1])


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (lambda: table(5).drop_columns("p_dog"), "has no column 'p_dog', which"),
        (lambda: table(5).set_column(0, "p_cat", pa.array(["x"] * 5)), "column 'p_cat' holds string, not numbers"),
        (lambda: table(5).set_column(3, "label", pa.array([1] * 5)), "column 'label' holds int64, but string in"),
        (lambda: table(5).set_column(0, "p_cat", pa.array([0.1, None, 0.2, 0.1, 0.1])), "row 1, column 'p_cat'"),
    ],
)
def test_files_that_do_not_fit_are_named(data, run, odd, message):
    run("fit", "data", "--method", "ts", "-o", "cal.json")
    pq.write_table(odd(), "data/year=2021/2.parquet")
    commands = [("fit", "data", "-o", "c.json"), ("evaluate", "data"), ("apply", "cal.json", "data", "-o", "out")]
    for command in commands:
        done = run(*command)
        assert done.exit_code == 1
        assert "2.parquet" in done.stderr
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert not Path("out").exists()
    assert not [name for name in files(".") if ".part" in name]


def test_bad_rows_are_named_by_file_and_row(data, run, monkeypatch):
    monkeypatch.setattr(dataset, "BATCH_BYTES", 1)
    run("fit", "data", "--method", "ts", "-o", "cal.json")
    scores = np.full(400, 0.2)
    scores[300] = np.nan
    pq.write_table(table(400).set_column(0, "p_cat", pa.array(scores)), "data/year=2021/2.parquet")
    done = run("apply", "cal.json", "data", "-o", "out")
    assert "2.parquet: row 0 of the scores sums to" in done.stderr
    assert not Path("out").exists()


def test_what_is_overwritten(data, run):
    run("fit", "data", "--method", "ts", "-o", "cal.json")
    assert run("apply", "cal.json", "data", "-o", "out").exit_code == 0
    assert "exists already" in run("apply", "cal.json", "data", "-o", "out").stderr
    first = pq.read_table("out/year=2020/0.parquet")
    Path("out/year=2019").mkdir()
    pq.write_table(table(3), "out/year=2019/old.parquet")
    assert run("apply", "cal.json", "data", "-o", "out", "--force").exit_code == 0
    assert files("out") == files("data")  # nothing of the old folder is left
    assert pq.read_table("out/year=2020/0.parquet").equals(first)
    Path("out/notes.txt").write_text("mine")
    done = run("apply", "cal.json", "data", "-o", "out", "--force")
    assert "holds notes.txt; only a folder of nothing but .parquet files is overwritten" in done.stderr
    assert "inside of data" in run("apply", "cal.json", "data", "-o", "data/out").stderr


LIMITED = """
import resource, sys
import numpy, scipy.optimize, scipy.linalg, pyarrow.parquet, pyarrow.dataset, sklearn.base, mixnmatch.maps
from mixnmatch.cli import apply, applying, evaluate, fit, inputs
from mixnmatch.cli.app import cli
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) << 10
limit = used + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
for command in sys.argv[2:]:
    cli(command.split(), prog_name="mixnmatch", standalone_mode=False)
"""
# What allocators and threads reserve for themselves is kept small, so that the limit is about the data.
PLAIN = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "100000"}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_more_data_than_memory(folder):
    """200 MB of scores, with 180 MB of memory to fit, evaluate and apply a map in."""
    rng = np.random.default_rng(0)
    Path("large").mkdir()
    for part in range(5):
        logits = rng.normal(size=(100_000, 100)).astype(np.float32)
        labels = logits.argmax(axis=1) * (rng.random(100_000) < 0.5)
        written = pa.table({**{str(k): logits[:, k] for k in range(100)}, "label": labels})
        pq.write_table(written, f"large/{part}.parquet", compression="none", use_dictionary=False)
    commands = [
        "fit large --logits --method ts -o cal.json",
        "evaluate large --logits --map cal.json --no-interval",
        "apply cal.json large -o out",
    ]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -s 1024; exec "$0" "$@"', sys.executable, "-c", LIMITED, "180", *commands],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **PLAIN},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert files("out") == files("large")
    assert pq.read_metadata("out/4.parquet").num_rows == 100_000

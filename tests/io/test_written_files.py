"""Writing tables that come back as they were."""

from pathlib import Path

import numpy as np
import pytest

from mixnmatch.io import FileError, check_output, read_table, write_table

P = np.random.default_rng(0).dirichlet(np.ones(3), size=50)
NAMES = np.array(["plain", "with, comma", 'with "quotes"'])


@pytest.mark.parametrize("ending", [".npz", ".csv", ".parquet"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [None, NAMES])
def test_round_trip(folder, ending, dtype, classes):
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    labels = np.arange(50) % 3 if classes is None else classes[np.arange(50) % 3]
    scores, weights = P.astype(dtype), np.linspace(1, 2, 50)
    path = Path(f"out{ending}")
    write_table(path, scores, labels=labels, weights=weights, classes=classes)
    table = read_table(path)
    np.testing.assert_array_equal(table.scores.astype(dtype), scores)
    assert table.labels.tolist() == labels.tolist()
    np.testing.assert_array_equal(table.weights, weights)
    assert [p.name for p in folder.iterdir()] == [path.name]


def test_npy_holds_scores_only(folder):
    write_table("out.npy", P)
    np.testing.assert_array_equal(np.load("out.npy"), P)


def test_logits_keep_their_name(folder):
    write_table("out.npz", P, logits=True)
    assert read_table("out.npz", need_labels=False).logits


def test_failure_leaves_the_old_file(folder):
    write_table("out.csv", P)
    before = Path("out.csv").read_bytes()
    with pytest.raises(FileError, match="a class is called 'label'"):
        write_table("out.csv", P, labels=np.zeros(50, int), classes=np.array(["a", "b", "label"]))
    assert Path("out.csv").read_bytes() == before
    with pytest.raises(FileError, match="must end in"):
        write_table("out.xyz", P)


def test_check_output(folder):
    check_output(Path("new.npz"), [".npz"])
    Path("old.npz").write_text("x")
    with pytest.raises(FileError, match="exists already; pass force=True"):
        check_output(Path("old.npz"), [".npz"])
    check_output(Path("old.npz"), [".npz"], force=True)
    with pytest.raises(FileError, match=r"cannot write '.txt' files; the name must end in .npz or .csv"):
        check_output(Path("new.txt"), [".npz", ".csv"])
    with pytest.raises(FileError, match="the folder nowhere does not exist"):
        check_output(Path("nowhere/new.npz"), [".npz"])
    Path("folder.npz").mkdir()
    with pytest.raises(FileError, match="is a folder"):
        check_output(Path("folder.npz"), [".npz"], force=True)

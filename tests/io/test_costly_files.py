"""Small files that would cost much time or memory are refused, or read in little of both."""

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mixnmatch.io import FileError, read_table, text

# Runs a command and prints, last on stderr, by how many megabytes the process grew at most.
MEASURED = """
import resource, sys
import numpy, scipy.optimize, sklearn.base, pyarrow.parquet, pyarrow.dataset, pyarrow.compute
import mixnmatch.maps, mixnmatch.io.parquet_rows, mixnmatch.cli.applying, mixnmatch.cli.fit, mixnmatch.cli.apply
from mixnmatch.cli.app import cli
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
code = 0
try:
    cli(sys.argv[1:], prog_name="mixnmatch")
except SystemExit as stop:
    code = stop.code
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10, file=sys.stderr)
sys.exit(code)
"""
linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")


def megabytes(*command: str) -> int:
    """By how much a command that goes well makes the process grow."""
    pytest.importorskip("pyarrow")
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return int(done.stderr.splitlines()[-1])


def array(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


@pytest.mark.parametrize(
    ("method", "name"), [(zipfile.ZIP_BZIP2, "bzip2"), (zipfile.ZIP_LZMA, "lzma")], ids=["bzip2", "lzma"]
)
def test_members_that_numpy_does_not_write(folder, method, name):
    with zipfile.ZipFile("b.npz", "w", method) as archive:
        archive.writestr("probs.npy", array(np.zeros((1_000_000, 3))))
        archive.writestr("labels.npy", array(np.zeros(3, int)))
    with pytest.raises(FileError, match=f"array 'probs' is compressed with {name}; only what numpy.savez writes"):
        read_table("b.npz")


def test_a_header_that_does_not_end_is_not_inflated(folder, monkeypatch):
    """A header of 4 GB, of which 50 MB are there, deflated to 50 kB."""
    start = b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little")
    with zipfile.ZipFile("h.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("probs.npy", start + b" " * 50_000_000)
        archive.writestr("labels.npy", array(np.zeros(3, int)))
    taken = []
    real = zipfile.ZipExtFile.read
    monkeypatch.setattr(zipfile.ZipExtFile, "read", lambda self, n=-1: taken.append(n) or real(self, n))
    with pytest.raises(FileError, match=r"array 'probs' is not in .npy format, or its header is corrupted"):
        read_table("h.npz")
    assert all(0 <= size <= 16 for size in taken)


@pytest.mark.parametrize("name", ["n.npy", "n.npz"])
@pytest.mark.parametrize("shape", [(-1, 3), (-3, -(10**9)), (10**9, 10**9, -1)])
def test_arrays_of_negative_size(folder, name, shape):
    head = io.BytesIO()
    header = {"descr": "<U100000000", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, header)
    Path("n.npy").write_bytes(head.getvalue() + bytes(100))
    with zipfile.ZipFile("n.npz", "w") as archive:
        archive.write("n.npy", "probs.npy")
    with pytest.raises(FileError, match="its header is corrupted"):
        read_table(name, need_labels=False)


def long_label_csv(name: str, size: int, rows: int = 8000, other: str = "a") -> None:
    lines = ["a,b,label\n", f"0.4,0.6,{'x' * size}\n", *[f"0.5,0.5,{other}\n"] * rows]
    Path(name).write_text("".join(lines))


def test_a_long_label_is_refused_by_its_place(folder):
    long_label_csv("t.csv", 131_000)
    why = r"line 2 \(row 0\), column 'label': a label of 131000 characters; names of classes have at most 1000"
    with pytest.raises(FileError, match=why):
        read_table("t.csv")


@linux
def test_long_labels_cost_little(folder):
    long_label_csv("long.csv", 1000, rows=200_000, other="c")
    table = read_table("long.csv", classes=["x" * 1000, "c"])
    assert table.labels.dtype == object
    assert len({id(label) for label in table.labels.tolist()}) == 2
    names = ",".join(["x" * 1000, "c"])
    assert megabytes("fit", "long.csv", "-m", "ts", "--classes", names, "-o", "cal.json") < 250


@linux
def test_labels_are_not_read_where_they_are_not_needed(folder):
    pytest.importorskip("pyarrow")
    Path("small.csv").write_text("a,b,label\n" + "0.4,0.6,a\n0.5,0.5,b\n" * 20)
    megabytes("fit", "small.csv", "-m", "ts", "-o", "cal.json")
    long_label_csv("t.csv", 131_000)
    assert megabytes("apply", "cal.json", "t.csv", "-o", "out.csv") < 100
    assert len(Path("out.csv").read_text().splitlines()) == 8002


@linux
def test_text_that_a_parquet_file_keeps_once(folder):
    """2.6 kB: a text of 5,000 characters in a dictionary, for 150,000 rows."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = 150_000
    once = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 5000]))
    columns = {"a": np.full(rows, 0.4), "b": np.full(rows, 0.6)}
    pq.write_table(pa.table({**columns, "label": once}), "label.parquet")
    pq.write_table(pa.table({**columns, "label": np.zeros(rows, int), "note": once.cast(pa.string())}), "note.parquet")
    assert Path("label.parquet").stat().st_size < 10_000
    why = "column 'label' has a label of 5000 characters; names of classes have at most 1000"
    with pytest.raises(FileError, match=why):
        read_table("label.parquet")
    Path("small.csv").write_text("a,b,label\n" + "0.4,0.6,a\n0.5,0.5,b\n" * 20)
    megabytes("fit", "small.csv", "-m", "ts", "-o", "cal.json")
    for name in ("label", "note"):
        assert megabytes("apply", "cal.json", f"{name}.parquet", "-o", f"{name}_out.parquet") < 200
        out = pq.ParquetFile(f"{name}_out.parquet")
        assert out.metadata.num_rows == rows
        first = next(out.iter_batches(batch_size=2)).to_pydict()
        assert first["note" if name == "note" else "label"] == ["x" * 5000] * 2
    assert megabytes("fit", "note.parquet", "--columns", "a,b", "-m", "ts", "-o", "other.json") < 200


@pytest.mark.parametrize("kind", ["binary", "large binary", "fixed", "list"])
def test_labels_of_bytes_are_limited_too(folder, kind):
    """Bytes that a file keeps once for all of its rows, and lists of text."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    types = {"binary": pa.binary(), "large binary": pa.large_binary(), "fixed": pa.binary(5000)}
    types["list"] = pa.list_(pa.string())
    one = ["x" * 5000] if kind == "list" else b"x" * 5000
    columns = {"a": np.full(2000, 0.4), "b": np.full(2000, 0.6), "label": pa.array([one] * 2000, types[kind])}
    pq.write_table(pa.table(columns), "l.parquet")
    why = r"holds (fixed_size_binary|list).*labels are numbers or text" if kind in ("fixed", "list") else "of 5000 char"
    with pytest.raises(FileError, match=why):
        read_table("l.parquet")


def test_short_labels_of_bytes_are_read(folder):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"a": [0.4, 0.3, 0.9], "b": [0.6, 0.7, 0.1], "label": pa.array([b"a", b"b", b"a"], pa.binary())}
    pq.write_table(pa.table(columns), "l.parquet")
    assert read_table("l.parquet").labels.tolist() == [b"a", b"b", b"a"]


def test_a_line_that_does_not_end(folder, monkeypatch):
    monkeypatch.setattr(text, "MOST_LINE", 1000)
    Path("l.csv").write_text("a,b,label\n0.5,0.5," + "x" * 5000)
    with pytest.raises(FileError, match="has a line of more than 1000 characters"):
        read_table("l.csv")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "p.npz", "p.npy", "p.parquet"])
def test_pipes_are_not_waited_for(folder, name):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    os.mkfifo(name)
    with pytest.raises(FileError, match="is not a regular file"):
        read_table(name)

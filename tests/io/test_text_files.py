"""Text files of columns in all their variants, read with pyarrow and without it."""

import contextlib
import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixnmatch.io import FileError, read_table, text_arrow


@pytest.fixture(params=["pyarrow", "plain"])
def reader(request, monkeypatch):
    """Read every file with pyarrow where it can, or none."""
    if request.param == "pyarrow":
        pytest.importorskip("pyarrow")
        monkeypatch.setattr(text_arrow, "WORTH", 0)
    else:
        monkeypatch.setattr(text_arrow, "read_fast", lambda _layout: None)
    return request.param


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(("mark", "decimal"), [(",", "."), (";", "."), (";", ","), ("\t", "."), ("\t", ",")])
@pytest.mark.parametrize("packed", [False, True])
def test_separators_and_decimals(folder, reader, mark, decimal, packed, end):
    rows = [["cat", "dog", "label"], ["0.25", "0.75", "dog"], ["1", "0.0", " cat "], ["5e-1", "0.5", "dog"]]
    lines = [mark.join(cell.replace(".", decimal) for cell in row) + end for row in rows]
    raw = ("\ufeff" + "".join(lines)).encode()
    name = "t.csv.gz" if packed else "t.csv"
    Path(name).write_bytes(gzip.compress(raw) if packed else raw)
    table = read_table(name)
    np.testing.assert_array_equal(table.scores, [[0.25, 0.75], [1, 0], [0.5, 0.5]])
    assert table.labels.tolist() == ["dog", "cat", "dog"]
    assert table.classes.tolist() == ["cat", "dog"]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_names_in_quotes_may_hold_separators(folder, reader, mark):
    head = mark.join(['"a, ""b"" or; c"', "dog", "label"])
    Path("t.csv").write_text(f"{head}\n" + mark.join(["0.25", "0.75", "dog"]) + "\n")
    table = read_table("t.csv")
    assert table.classes.tolist() == ['a, "b" or; c', "dog"]
    assert table.labels.tolist() == ["dog"]


def test_the_fast_reader_is_used(folder, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(text_arrow, "WORTH", 0)
    found = []
    real = text_arrow.read_fast
    monkeypatch.setattr(text_arrow, "read_fast", lambda layout: found.append(real(layout)) or found[-1])
    Path("t.csv").write_text("a,b,label,weight\n.1,.9,x,2\n.2,.8,y,3\n")
    table = read_table("t.csv", classes=["x", "y"])
    assert found[0] is not None
    assert table.weights.tolist() == [2, 3]
    for content, message in (
        ('a,b,label\n.1,.9,"x"\n', None),
        ("a,b,label\r.1,.9,x\r", None),
        ("a,b,label\n.1,z,x\n", r"line 2 \(row 0\), column 'b'"),
        ("a,b,label\n.1,.9\n", r"line 2 \(row 0\) has 2 values"),
    ):
        Path("t.csv").write_text(content, newline="")
        with pytest.raises(FileError, match=message) if message else contextlib.nullcontext():
            read_table("t.csv", classes=["x", "y"])
        assert found[-1] is None


WRONG = [
    ("a,b,label\n.1,.9,a\n.5,x,b\n", "line 3 (row 1), column 'b': 'x' is not a number"),
    ("a,b,label\n.1,,a\n", "line 2 (row 0), column 'b': the cell is empty"),
    ("a,b,label\n.1,.9,a\n.5,.5,\n", "line 3 (row 1), column 'label': there is no label"),
    ("a,b,label\n.1,.9,a\n.5,b\n", "line 3 (row 1) has 2 values, the header has 3"),
    ("a;b;label\n0,1;0,9;a\n0.5;x;b\n", "line 3 (row 1), column 'b': 'x' is not a number"),
    ("a,b,label\n", "has a header but no rows"),
    ("a,b,label\n\n\n", "has a header but no rows"),
]


@pytest.mark.parametrize(("content", "message"), WRONG)
def test_errors_are_the_same(folder, reader, content, message):
    Path("t.csv").write_text(content)
    with pytest.raises(FileError) as caught:
        read_table("t.csv")
    assert message in str(caught.value)


def test_damaged_gzip(folder, reader):
    raw = gzip.compress(b"a,b,label\n" + b"0.5,0.5,a\n" * 1000)
    for content in (raw[:-20], b"not packed", raw[:30] + b"x" * 20 + raw[50:]):
        Path("t.csv.gz").write_bytes(content)
        with pytest.raises(FileError, match=r"corrupted|not valid|UTF-8"):
            read_table("t.csv.gz")


cells = st.one_of(
    st.floats(0, 1).map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(str),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["", " .5", "1_0", "nan", "inf", "1e400", "0x1p3", "+.5", "5e-324", "1,5", "-0", "1e5 ", "\u0661"]),
)
labels = st.one_of(
    st.integers(0, 9).map(str), st.text(st.characters(blacklist_characters='",\r\n;\t', codec="utf-8"), max_size=5)
)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(st.tuples(cells, cells, labels), min_size=1, max_size=6), mark=st.sampled_from(",;\t"))
def test_both_readers_agree(tmp_path_factory, rows, mark):
    pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("text") / "t.csv"
    path.write_text(
        "".join(mark.join(row) + "\n" for row in [("a", "b", "label"), *rows]), newline="", encoding="utf-8"
    )
    outcomes = []
    for worth in (0, 1 << 40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_arrow, "WORTH", worth)
            try:
                table = read_table(path, logits=True)
                outcomes.append((table.scores.tobytes(), table.labels.tolist(), table.classes.tolist()))
            except FileError as error:
                outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]

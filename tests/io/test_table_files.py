"""Tables with named columns: .csv and .parquet."""

from pathlib import Path

import numpy as np
import pytest

from mixnmatch._engine.class_names import class_names
from mixnmatch.io import FileError, read_table

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def csv(text: str, name: str = "t.csv") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def test_names_of_columns_are_the_classes(folder):
    table = read_table(csv("cat,dog,label\n.1,.9,dog\n\n.5,.5,cat\n"))
    assert table.classes.tolist() == ["cat", "dog"]
    assert table.labels.tolist() == ["dog", "cat"]
    np.testing.assert_array_equal(table.scores, [[0.1, 0.9], [0.5, 0.5]])
    assert not table.logits
    assert read_table("t.csv", logits=True).logits


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_are_read_in_the_order_given(folder, kind):
    name = csv("cat,dog,cow,label\n.1,.7,.2,dog\n.5,.3,.2,cat\n")
    if kind == "parquet":
        pytest.importorskip("pandas").read_csv(name).to_parquet("t.parquet")
        name = "t.parquet"
    table = read_table(name, columns=["dog", "c*"])
    assert table.classes.tolist() == ["dog", "cat", "cow"]
    np.testing.assert_array_equal(table.scores, [[0.7, 0.1, 0.2], [0.3, 0.5, 0.2]])


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (["prob_cat", "prob_dog"], ["cat", "dog"]),
        (["p0", "p1", "p10"], [0, 1, 10]),
        (["1", "2"], [1, 2]),
        (["2019", "2020"], [2019, 2020]),
        (["01", "02"], ["01", "02"]),
        (["cat", "car"], ["cat", "car"]),
        (["logit.a_b", "logit.a_c"], ["b", "c"]),
        (["p_", "p_x"], ["p_", "p_x"]),
    ],
)
def test_class_names_by_columns(columns, names):
    assert class_names(columns).tolist() == names


def test_labels_may_carry_the_shared_start(folder):
    table = read_table(csv("dog_big,dog_small,label\n.1,.9,dog_big\n"))
    assert table.classes.tolist() == ["dog_big", "dog_small"]
    assert read_table(csv("dog_big,dog_small,label\n.1,.9,big\n")).classes.tolist() == ["big", "small"]


def test_whole_numbers_are_names_of_numbered_columns_and_positions_of_others(folder):
    assert read_table(csv("p1,p2,label\n.1,.9,2\n")).labels.tolist() == [2]
    table = read_table(csv("cat,dog,label\n.1,.9,1\n.1,.9,0.0\n"))
    assert table.labels.tolist() == ["dog", "cat"]
    with pytest.raises(FileError, match=r"label 2 in row 0 is not the position of a column \(0 to 1\)"):
        read_table(csv("cat,dog,label\n.1,.9,2\n"))
    with pytest.raises(FileError, match="labels are text such as 'dog', but the classes are '1', '2'"):
        read_table(csv("p1,p2,label\n.1,.9,dog\n"))


def test_one_column_is_the_positive_class(folder):
    table = read_table(csv("spam,label\n.1,ham\n.9,spam\n"))
    assert table.scores.shape == (2,)
    assert table.classes.tolist() == ["ham", "spam"]
    assert read_table(csv("ham,label\n.1,ham\n.9,spam\n")).classes.tolist() == ["spam", "ham"]
    assert read_table(csv("score,label\n.1,0\n.9,1\n")).labels.tolist() == [0, 1]
    with pytest.raises(FileError, match="should be called like the positive class"):
        read_table(csv("score,label\n.1,ham\n.9,spam\n"))
    assert read_table("t.csv", classes=["ham", "spam"]).classes.tolist() == ["ham", "spam"]


def test_options_choose_columns(folder):
    name = csv("id,x_a,x_b,truth,w\n7,.1,.9,a,2\n8,.5,.5,b,1\n")
    table = read_table(name, label_column="truth", columns=["x_*"], weights="w")
    assert table.columns == ("x_a", "x_b")
    assert table.weights.tolist() == [2, 1]
    assert table.labels.tolist() == ["a", "b"]
    assert read_table(csv("a,b,label,weight\n.1,.9,a,3\n")).weights.tolist() == [3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,label\n.1,.9,a\n.5,x,b\n", "line 3 (row 1), column 'b': 'x' is not a number"),
        ("a,b,label\n.1,,a\n", "line 2 (row 0), column 'b': the cell is empty"),
        ("a,b,label\n.1,.9,a\n.5,.5,\n", "line 3 (row 1), column 'label': there is no label"),
        ("a,b,label\n.1,.9,a\n.5,b\n", "line 3 (row 1) has 2 values, the header has 3"),
        ("a,a,label\n.1,.9,a\n", "has more than one column called 'a'"),
        ("a,b\n.1,.9\n", "has no column 'label'; name the one with the labels: label_column=...; it has 'a', 'b'"),
        ("a|b|label\n.1|.9|a\n", "columns must be separated by commas, semicolons or tabs"),
        ("a,b,label\n", "has a header but no rows"),
        ("\n\n", "the first line is empty"),
        (",a,b,label\n0,.1,.9,a\n", "a column without a name looks like a row number"),
        ("ID,a,b,label\n0,.1,.9,a\n", "column 'ID' looks like a row number"),
        ("label\na\n", "has no columns of scores"),
        ("a,b,label,labels\n.1,.9,a,a\n", "has columns 'label', 'labels'; choose with label_column=..."),
        ('a,b,label\n.1,"x"y,a\n', "is not a valid .csv file"),
    ],
)
def test_wrong_csv_in_one_line(folder, text, message):
    name = csv(text)
    with pytest.raises(FileError) as caught:
        read_table(name)
    assert str(caught.value).startswith("t.csv: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_not_utf8(folder):
    Path("t.csv").write_bytes("a,b,label\n".encode("utf-16"))
    with pytest.raises(FileError, match="is not text in UTF-8; save it in this encoding"):
        read_table("t.csv")
    Path("b.csv").write_text("a,b,label\n.1,.9,b\n", encoding="utf-8-sig")
    assert read_table("b.csv").classes.tolist() == ["a", "b"]


def test_wrong_names_in_options(folder):
    name = csv("a,b,label\n.1,.9,a\n")
    with pytest.raises(FileError, match="has no column 'truth'; it has 'a', 'b', 'label'"):
        read_table(name, label_column="truth")
    with pytest.raises(FileError, match=r"no column matches 'p_\*'"):
        read_table(name, columns=["p_*"])


def test_parquet_file(folder):
    pq.write_table(pa.table({"a": pa.array([0.1, 0.5], pa.float32()), "b": pa.array([0.9, 0.5], pa.float32()),
                             "label": ["a", "b"]}), "t.parquet")  # fmt: skip
    table = read_table("t.parquet")
    assert table.scores.dtype == np.float32
    assert table.labels.tolist() == ["a", "b"]
    assert table.classes.tolist() == ["a", "b"]
    dictionary = pa.array(["a", "b"]).dictionary_encode()
    pq.write_table(pa.table({"a": [0.1, 0.5], "b": [0.9, 0.5], "label": dictionary}), "d.parquet")
    assert read_table("d.parquet").labels.tolist() == ["a", "b"]


def test_partitioned_folder(folder):
    whole = pa.table({"a": [0.1, 0.5, 0.3], "b": [0.9, 0.5, 0.7], "label": [0, 1, 1], "year": [2020, 2021, 2021]})
    pq.write_to_dataset(whole, "part", partition_cols=["year"])
    table = read_table("part")
    assert table.columns == ("a", "b")
    assert table.n_rows == 3
    Path("nothing").mkdir()
    with pytest.raises(FileError, match=r"the folder holds no .parquet files"):
        read_table("nothing")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [0.1, None], "b": [0.9, 0.5], "label": ["a", "b"]}, "row 1, column 'a': there is no value (null)"),
        ({"a": [0.1, 0.5], "b": [0.9, 0.5], "label": ["a", None]}, "row 1, column 'label': there is no value (null)"),
        ({"a": ["x", "y"], "b": [0.9, 0.5], "label": ["a", "b"]}, "column 'a' holds string, not numbers"),
        ({"a": [["x"], ["y"]], "label": ["a", "b"]}, "column 'a' holds lists or records that are not numbers"),
        ({"a": [[0.1, 0.9], [0.2]], "label": [0, 1]}, "row 1, column 'a': a list of 1 scores, where others have 2"),
        ({"a": [[0.1, 0.9], None], "label": [0, 1]}, "row 1, column 'a': there is no value (null)"),
        ({"a": [[0.1, 0.9], [0.2, None]], "label": [0, 1]}, "row 1, column 'a': there is no value (null)"),
        ({"a": [[0.1, 0.9]], "b": [[0.1, 0.9]], "label": [0]}, "has several columns of lists ('a', 'b')"),
        ({"a": [0.1, 0.5], "b": [0.9, 0.5]}, "has no column 'label'"),
        ({"a": pa.array([], pa.float64()), "b": pa.array([], pa.float64()), "label": pa.array([], pa.int64())},
         "has no rows"),
    ],
)  # fmt: skip
def test_wrong_parquet(folder, columns, message):
    pq.write_table(pa.table(columns), "t.parquet")
    with pytest.raises(FileError) as caught:
        read_table("t.parquet")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_parquet(folder):
    pq.write_table(pa.table({"a": [0.1], "b": [0.9], "label": [0]}), "t.parquet")
    Path("cut.parquet").write_bytes(Path("t.parquet").read_bytes()[:100])
    for name, content in (("cut.parquet", None), ("text.parquet", b"hello, this is no parquet file")):
        if content is not None:
            Path(name).write_bytes(content)
        with pytest.raises(FileError, match=r"not a .parquet file, or was cut short"):
            read_table(name)


def test_without_pyarrow(folder, monkeypatch):
    import sys

    Path("t.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FileError, match=r'pip install "mixnmatch\[parquet\]"'):
        read_table("t.parquet")

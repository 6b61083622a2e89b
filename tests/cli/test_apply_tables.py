"""Tables keep all of their columns when a map is applied, whatever kind of table they are and become."""

import csv
import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mixnmatch import load
from mixnmatch.cli.app import cli
from mixnmatch.io import text_rows
from tests.cli.conftest import parsed

NAMES = ["cat", "dog", "emu"]
IDS = ["007", "a;b", 'say "x"', "two\nlines"]


def made(n: int, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), size=n)
    labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return p, [NAMES[k] for k in labels]


def write(name: str, n: int, *, delimiter: str = ",", decimal: str = ".", order=(0, 1, 2)) -> np.ndarray:
    p, labels = made(n)
    opener = gzip.open if name.endswith(".gz") else open
    with opener(name, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(["id", "comment", *(f"p_{NAMES[k]}" for k in order), "label"])
        for row, (scores, label) in enumerate(zip(p, labels, strict=True)):
            cells = [repr(float(scores[k])).replace(".", decimal) for k in order]
            writer.writerow([f"{row:05}", IDS[row % 4], *cells, label])
    return p


def rows_of(name: str, delimiter: str = ",") -> list[list[str]]:
    opener = gzip.open if name.endswith(".gz") else open
    with opener(name, "rt", newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter=delimiter))


@pytest.fixture
def fitted(folder, run):
    write("val.csv", 300)
    result = run("fit", "val.csv", "--columns", "p_*", "--method", "vector", "-o", "cal.json")
    assert result.exit_code == 0, result.stderr
    return load("cal.json")


@pytest.mark.parametrize(("delimiter", "decimal"), [(",", "."), (";", "."), (";", ","), ("\t", ".")])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_text_stays_as_it_is_and_gets_columns(fitted, run, monkeypatch, delimiter, decimal, ending):
    monkeypatch.setattr(text_rows, "BATCH_CELLS", 1)  # batches of 64 rows
    p = write(f"new{ending}", 150, delimiter=delimiter, decimal=decimal)
    assert run("apply", "cal.json", f"new{ending}", "-o", f"out{ending}").exit_code == 0
    before, after = rows_of(f"new{ending}", delimiter), rows_of(f"out{ending}", delimiter)
    assert after[0] == [*before[0], "calibrated_cat", "calibrated_dog", "calibrated_emu"]
    assert [row[:6] for row in after[1:]] == before[1:]
    found = [[float(cell.replace(decimal, ".")) for cell in row[6:]] for row in after[1:]]
    np.testing.assert_array_equal(found, fitted.predict_proba(p))


def test_parquet_keeps_columns_and_types(fitted, run):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    p, labels = made(200, 3)
    columns = {
        "id": pa.array(np.arange(200), pa.int32()),
        "day": pa.array([None, 1] * 100, pa.date32()),
        "text": pa.array(["x", None] * 100),
        "kind": pa.array(["u", "v"] * 100).dictionary_encode(),
        "list": pa.array([[1, 2], None] * 100),
        **{f"p_{name}": p[:, k] for k, name in enumerate(NAMES)},
        "label": labels,
    }
    given = pa.table(columns)
    pq.write_table(given, "new.parquet")
    assert run("apply", "cal.json", "new.parquet", "-o", "out.parquet").exit_code == 0
    out = pq.read_table("out.parquet")
    assert out.select(given.column_names).equals(given)
    assert out.column_names[len(columns) :] == [f"calibrated_{name}" for name in NAMES]
    np.testing.assert_array_equal(np.stack(out.columns[-3:], axis=1), fitted.predict_proba(p))
    assert run("apply", "cal.json", "new.parquet", "-o", "out.csv").exit_code == 0
    assert rows_of("out.csv")[0] == out.column_names
    assert len(rows_of("out.csv")) == 201


def test_text_becomes_parquet_with_types(fitted, run):
    pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    Path("new.csv").write_text("n,x,id,p_cat,p_dog,p_emu,label\n" + "3,1.5,007,.2,.3,.5,dog\n4,2,008,.1,.1,.8,cat\n")
    assert run("apply", "cal.json", "new.csv", "-o", "out.parquet").exit_code == 0
    table = pq.read_table("out.parquet")
    assert table["n"].to_pylist() == [3, 4]
    assert table["x"].to_pylist() == [1.5, 2.0]
    assert table["id"].to_pylist() == ["007", "008"]
    assert table["p_emu"].to_pylist() == [0.5, 0.8]
    assert table["label"].to_pylist() == ["dog", "cat"]
    again = parsed(run("evaluate", "out.parquet", "--columns", "calibrated_*", "--json", "--no-interval"))
    assert again["rows"] == 2


def test_text_with_decimal_commas_becomes_parquet(fitted, run):
    pq = pytest.importorskip("pyarrow.parquet")
    lines = ["n;x;points;p_cat;p_dog;p_emu", "3;1,5;1.500;,2;,3;,5", "4;2;2.750;,1;,1;,8"]
    Path("new.csv").write_text("\n".join(lines))
    assert run("apply", "cal.json", "new.csv", "-o", "out.parquet").exit_code == 0
    table = pq.read_table("out.parquet")
    assert table["n"].to_pylist() == [3, 4]
    assert table["x"].to_pylist() == [1.5, 2.0]
    assert table["points"].to_pylist() == ["1.500", "2.750"]  # in such files this may be 1500
    assert table["p_emu"].to_pylist() == [0.5, 0.8]


def test_long_whole_numbers_stay_exact_in_parquet(fitted, run):
    pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    columns = {
        "small": ["1", "2.5"],
        "long": ["9007199254740993", "-9223372036854775808"],
        "mixed": ["9007199254740993", "0.5"],
        "huge": ["9223372036854775808", "1"],
        "endless": ["1" * 5000, "1"],
        "limit": ["9007199254740992", "0.5"],
        "phone": ["+9007199254740993", "+1"],
        "code": ["1e3", "1000"],
        "point": ["9007199254740993.0", "1.0"],
        "blank": ["", "7"],
        "gap": ["0.5", " "],
        "empty": ["", ""],
        "odd": ["nan", "-inf"],
        "measured": ["1.5e-05", "nan"],
        "scientific": ["1E+2", "2.5E3"],
    }
    scores = [".2,.3,.5", ".1,.1,.8"]
    lines = [",".join([*columns, "p_cat,p_dog,p_emu"])]
    lines += [",".join([*(cells[k] for cells in columns.values()), scores[k]]) for k in range(2)]
    Path("ids.csv").write_text(f"{lines[0]}\n{lines[1]}\n\n{lines[2]}\n", encoding="utf-8")
    result = run("apply", "cal.json", "ids.csv", "-o", "ids.parquet")
    assert result.exit_code == 0, result.stderr
    table = pq.read_table("ids.parquet")
    assert table["small"].to_pylist() == [1.0, 2.5]
    assert table["long"].to_pylist() == [9007199254740993, -(2**63)]
    assert table["blank"].to_pylist() == [None, 7]
    assert table["gap"].to_pylist() == [0.5, None]
    assert table["measured"].to_pylist()[0] == 1.5e-05
    assert np.isnan(table["measured"].to_pylist()[1])
    assert table["scientific"].to_pylist() == [100.0, 2500.0]
    for name in ("mixed", "huge", "endless", "phone", "code", "point", "empty", "odd"):
        assert table[name].to_pylist() == columns[name]
    assert table["limit"].to_pylist() == [2.0**53, 0.5]
    assert table["p_emu"].to_pylist() == [0.5, 0.8]


def test_lists_of_scores_get_a_column_of_lists(folder, run):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    p, labels = made(120, 5)
    codes = [NAMES.index(label) for label in labels]
    features = {"label": {"names": NAMES, "_type": "ClassLabel"}}
    note = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float64(), 3), pa.large_list(pa.float64())):
        table = pa.table({"text": ["x"] * 120, "logits": pa.array(np.log(p).tolist(), kind), "label": codes})
        pq.write_table(table.replace_schema_metadata(note), "hf.parquet")
        fitted = parsed(run("fit", "hf.parquet", "-m", "ts", "-o", "cal.json", "--force", "--json"))
        assert fitted["logits"]
        assert load("cal.json").classes_.tolist() == NAMES
        assert run("apply", "cal.json", "hf.parquet", "-o", "out.parquet", "--force").exit_code == 0
        out = pq.read_table("out.parquet")
        assert out.column_names == ["text", "logits", "label", "calibrated"]
        np.testing.assert_allclose(out["calibrated"].to_pylist(), load("cal.json").predict_proba(np.log(p)), rtol=1e-12)
        assert run("apply", "cal.json", "hf.parquet", "-o", "out.csv", "--force").exit_code == 0
        assert rows_of("out.csv")[0][3:] == [f"calibrated_{name}" for name in NAMES]


def test_names_of_new_columns(fitted, run):
    write("new.csv", 5)
    assert run("apply", "cal.json", "new.csv", "-o", "out.csv", "--names", "a,b,c").exit_code == 0
    assert rows_of("out.csv")[0][-3:] == ["a", "b", "c"]
    for names in ("a,b", "a,b,b", "a,b,id"):
        done = run("apply", "cal.json", "new.csv", "-o", "out2.csv", "--names", names)
        assert done.exit_code == 1
        assert "--names should be 3 different names that no column has yet" in done.stderr
    assert not Path("out2.csv").exists()
    done = run("apply", "cal.json", "new.csv", "-o", "out.npz", "--names", "a,b,c")
    assert done.exit_code == 2
    assert run("apply", "cal.json", "out.csv", "-o", "twice.csv").exit_code == 0
    assert run("apply", "cal.json", "twice.csv", "-o", "thrice.csv").exit_code == 0
    assert rows_of("thrice.csv")[0][-3:] == [f"calibrated_{name}_2" for name in NAMES]


def test_columns_are_found_by_the_names_of_classes(fitted, run):
    p, labels = made(40, 8)
    with Path("other.csv").open("w") as file:
        file.write("score_emu,score_cat,key,score_dog,truth\n")
        for (a, b, c), label in zip(p.tolist(), labels, strict=True):
            file.write(f"{c!r},{a!r},k,{b!r},{label}\n")
    done = run("apply", "cal.json", "other.csv", "-o", "out.csv")
    assert done.exit_code == 0, done.stderr
    found = [[float(cell) for cell in row[5:]] for row in rows_of("out.csv")[1:]]
    np.testing.assert_array_equal(found, fitted.predict_proba(p))


def test_labels_that_are_the_headers(folder, run):
    """Headers class_0, class_1, ... and labels that say class_1, not 1."""
    p, labels = made(200)
    with Path("t.csv").open("w") as file:
        file.write("class_0,class_1,class_2,label\n")
        for row, label in zip(p.tolist(), labels, strict=True):
            file.write(",".join(map(repr, row)) + f",class_{NAMES.index(label)}\n")
    result = parsed(run("fit", "t.csv", "-m", "ts", "-o", "cal.json", "--json"))
    assert result["rows"] == 200
    assert load("cal.json").classes_.tolist() == ["class_0", "class_1", "class_2"]
    assert run("apply", "cal.json", "t.csv", "-o", "out.csv").exit_code == 0
    assert rows_of("out.csv")[0][4:] == ["calibrated_class_0", "calibrated_class_1", "calibrated_class_2"]
    assert parsed(run("evaluate", "out.csv", "--columns", "calibrated_*", "--json", "--no-interval"))["rows"] == 200


def piped(*args: str, given: bytes) -> object:
    return CliRunner().invoke(cli, list(args), input=given, prog_name="mixnmatch")


@pytest.mark.parametrize("name", ["new.csv", "new.csv.gz", "new.npz", "new.npy", "new.parquet"])
def test_standard_input_and_output(fitted, run, name):
    p, labels = made(30, 4)
    if name.endswith((".csv", ".gz")):
        p = write(name, 30)
    elif name == "new.npz":
        np.savez(name, probs=p, labels=labels, classes=NAMES)
    elif name == "new.npy":
        np.save(name, p)
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({f"p_{n}": p[:, k] for k, n in enumerate(NAMES)}), name)
    done = piped("apply", "cal.json", "-", "-o", "-", given=Path(name).read_bytes())
    assert done.exit_code == 0, done.stderr
    assert "Wrote standard output: probabilities of 3 classes for 30 rows." in done.stderr
    rows = list(csv.reader(io.StringIO(done.stdout_bytes.decode(), newline="")))
    where = [rows[0].index(n) for n in ([f"calibrated_{c}" for c in NAMES] if "calibrated_cat" in rows[0] else NAMES)]
    found = [[float(row[k]) for k in where] for row in rows[1:]]
    np.testing.assert_array_equal(found, fitted.predict_proba(p))
    assert run("apply", "cal.json", name, "-o", "-", "--json").exit_code == 2


def test_fit_and_evaluate_from_standard_input(fitted, run):
    raw = Path("val.csv").read_bytes()
    done = piped("fit", "-", "--columns", "p_*", "-m", "ts", "-o", "-", given=raw)
    assert done.exit_code == 0, done.stderr
    Path("piped.json").write_bytes(done.stdout_bytes)
    run("fit", "val.csv", "--columns", "p_*", "-m", "ts", "-o", "file.json")
    assert load("piped.json").beta_ == load("file.json").beta_
    assert "standard input: 300 rows" in done.stderr
    done = piped("evaluate", "-", "--columns", "p_*", "--json", "--no-interval", given=raw)
    assert json.loads(done.stdout)["file"] == "standard input"
    for given, message in ((b"", "there is nothing in it"), (b"a,b,label\n.1,x,a\n", "line 2 (row 0), column 'b'")):
        done = piped("evaluate", "-", given=given)
        assert done.exit_code == 1
        assert done.stderr.startswith("Error: standard input: ")
        assert message in done.stderr


@pytest.mark.parametrize("columns", [[], ["--columns", "c,a,b"], ["--columns", "c,a,b", "--classes", "emu,cat,dog"]])
def test_columns_may_have_other_names_than_the_classes(folder, run, columns):
    p = write("val.csv", 300)
    text = Path("val.csv").read_text()
    Path("val.csv").write_text(text.replace("p_cat,p_dog,p_emu", "a,b,c"))
    assert run("fit", "val.csv", "--columns", "a,b,c", "--classes", "cat,dog,emu", "-o", "cal.json").exit_code == 0
    result = run("apply", "cal.json", "val.csv", "-o", "out.csv", *columns)
    assert result.exit_code == 0, result.stderr
    found = np.array([row[-3:] for row in rows_of("out.csv")[1:]], dtype=float)
    np.testing.assert_allclose(found, load("cal.json").predict_proba(p), atol=1e-12)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_table_without_rows_stays_one(fitted, run, ending):
    header = "id,p_cat,p_dog,p_emu"
    if ending == ".csv":
        Path("new.csv").write_text(f"{header}\n")
    else:
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(
            pa.table({name: pa.array([], pa.float64()) for name in header.split(",")}), "new.parquet"
        )
    result = run("apply", "cal.json", f"new{ending}", "-o", "out.csv")
    assert result.exit_code == 0, result.stderr
    assert "0 rows" in result.output
    assert rows_of("out.csv") == [[*header.split(","), "calibrated_cat", "calibrated_dog", "calibrated_emu"]]


def test_metadata_of_a_fit(folder, run):
    write("val.csv", 50)
    done = run(
        "fit", "val.csv", "--columns", "p_*", "-m", "ts", "-o", "c.json", "--metadata", "model=r50", "--metadata", "n=3"
    )
    assert done.exit_code == 0, done.stderr
    assert load("c.json").metadata_ == {"model": "r50", "n": 3, "columns": ["p_cat", "p_dog", "p_emu"]}
    assert run("fit", "val.csv", "-o", "d.json", "--metadata", "model").exit_code == 2


def test_rounded_probabilities_are_taken_with_a_note(folder, run):
    p, labels = made(300)
    with Path("r.csv").open("w") as file:
        file.write("cat,dog,emu,label\n")
        for row, label in zip(p.tolist(), labels, strict=True):
            file.write(",".join(f"{v:.3f}" for v in row) + f",{label}\n")
    done = run("evaluate", "r.csv", "--no-interval")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("Warning: some rows of the scores do not sum to exactly 1") == 1
    done = run("evaluate", "r.csv", "--logits", "--no-interval")
    assert "so they are probably probabilities" in done.stderr
    assert "for probabilities pass --probs" in done.stderr


def test_a_bad_row_is_named_by_its_number_in_the_file(fitted, run, monkeypatch):
    monkeypatch.setattr(text_rows, "BATCH_CELLS", 1)
    p, _ = made(200)
    p[150] = 2
    Path("bad.csv").write_text("p_cat,p_dog,p_emu\n" + "".join(",".join(map(repr, row)) + "\n" for row in p.tolist()))
    done = run("apply", "cal.json", "bad.csv", "-o", "out.csv")
    assert "bad.csv: row 150 of the scores sums to 6" in done.stderr
    assert not Path("out.csv").exists()

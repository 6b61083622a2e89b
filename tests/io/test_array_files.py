"""NumPy files, right ones and wrong ones."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mixnmatch.io import FileError, read_table

Z = np.random.default_rng(0).normal(size=(20, 3))
Y = np.arange(20) % 3


def test_npz_name_of_the_array_says_what_scores_are(folder):
    np.savez("l.npz", logits=Z, labels=Y, weights=np.ones(20), classes=["a", "b", "c"])
    table = read_table("l.npz")
    assert table.logits
    assert table.n_rows == 20
    assert table.n_classes == 3
    assert table.labels.tolist() == [["a", "b", "c"][k] for k in Y]
    np.testing.assert_array_equal(table.scores, Z)
    np.testing.assert_array_equal(table.weights, np.ones(20))
    np.savez_compressed("p.npz", probs=np.full((20, 3), 1 / 3), labels=Y)
    assert not read_table("p.npz").logits


def test_npz_both_kinds_need_a_choice(folder):
    np.savez("b.npz", logits=Z, probs=np.full((20, 3), 1 / 3), labels=Y)
    with pytest.raises(FileError, match="both 'logits' and 'probs'; choose with logits=True or logits=False"):
        read_table("b.npz")
    assert read_table("b.npz", logits=True).logits
    assert not read_table("b.npz", logits=False).logits


def test_npz_lists_what_is_there(folder):
    np.savez("x.npz", predictions=Z, truth=Y)
    with pytest.raises(FileError, match=r"x.npz: has no array 'logits' or 'probs'; it holds 'predictions', 'truth'"):
        read_table("x.npz")
    np.savez("y.npz", logits=Z)
    with pytest.raises(FileError, match="has no array 'labels'; it holds 'logits'"):
        read_table("y.npz")
    assert read_table("y.npz", need_labels=False).labels is None
    with pytest.raises(FileError, match="has no array 'probs', only 'logits'"):
        read_table("y.npz", logits=False, need_labels=False)
    with pytest.raises(FileError, match="has no array 'w'"):
        read_table("y.npz", weights="w", need_labels=False)


def test_npy_pair(folder):
    np.save("z.npy", Z)
    np.save("y.npy", Y)
    table = read_table("z.npy", labels="y.npy", logits=True)
    np.testing.assert_array_equal(table.scores, Z)
    np.testing.assert_array_equal(table.labels, Y)
    assert isinstance(table.scores, np.memmap)
    with pytest.raises(FileError, match=r"name the .npy file with the labels: labels=..."):
        read_table("z.npy")
    np.save("w.npy", np.ones(3))
    with pytest.raises(FileError, match=r"w.npy: has shape \(3,\), but there are 20 rows"):
        read_table("z.npy", labels="y.npy", weights="w.npy")


def broken(name: str) -> None:
    good = io.BytesIO()
    np.savez(good, logits=Z, labels=Y)
    content = {
        "empty.npz": b"",
        "text.npz": b"hello",
        "half.npz": good.getvalue()[:300],
        "end.npz": good.getvalue()[:-10],
    }
    if name in content:
        Path(name).write_bytes(content[name])
    elif name == "flipped.npz":
        data = bytearray(good.getvalue())
        data[300] ^= 0xFF
        Path(name).write_bytes(data)
    elif name == "objects.npz":
        np.savez(name, logits=np.array([[1, None]], object), labels=[0])
    elif name == "records.npz":
        np.savez(name, logits=np.zeros(3, [("a", "f8")]), labels=[0, 0, 0])
    elif name == "folder.npz":
        Path(name).mkdir()
    elif name == "nothing.npz":
        zipfile.ZipFile(name, "w").close()
    elif name == "garbage.npz":
        with zipfile.ZipFile(name, "w") as archive:
            archive.writestr("logits.npy", b"not an array")
            archive.writestr("labels.npy", b"not an array")
    elif name == "3d.npz":
        np.savez(name, logits=Z[None], labels=Y)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.npz", "no such file"),
        ("empty.npz", "the file is empty"),
        ("text.npz", "not a zip archive"),
        ("half.npz", "corrupted or was cut short"),
        ("end.npz", "corrupted or was cut short"),
        ("flipped.npz", "a checksum does not match"),
        ("objects.npz", "array 'logits' holds Python objects"),
        ("records.npz", "holds records"),
        ("folder.npz", "is a folder, not a file"),
        ("nothing.npz", "it holds no arrays"),
        ("garbage.npz", "array 'logits' is not in .npy format"),
        ("3d.npz", "not shape"),
    ],
)
def test_wrong_npz_in_one_line(folder, name, message):
    broken(name)
    with pytest.raises(FileError) as caught:
        read_table(name)
    text = str(caught.value)
    assert text.startswith(f"{name}: ")
    assert message in text
    assert "\n" not in text


def header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue()


def test_header_that_promises_too_much_allocates_nothing(folder):
    promise = header((10**12, 1000))
    Path("huge.npy").write_bytes(promise + b"\0" * 64)
    with pytest.raises(FileError, match=r"was cut short: shape 1000000000000 x 1000 needs 8\d+ bytes, there are 64"):
        read_table("huge.npy", need_labels=False)
    with zipfile.ZipFile("huge.npz", "w") as archive:
        archive.writestr("logits.npy", promise + b"\0" * 64)
        archive.writestr("labels.npy", header((1,)) + b"\0" * 8)
    with pytest.raises(FileError, match="array 'logits' was cut short"):
        read_table("huge.npz")


def test_member_whose_size_cannot_be_true(folder):
    with zipfile.ZipFile("bomb.npz", "w") as archive:
        archive.writestr("logits.npy", header((10**9, 1)) + b"\0" * 64)
        archive.writestr("labels.npy", header((1,)) + b"\0" * 8)
    data = bytearray(Path("bomb.npz").read_bytes())
    start = data.index(b"PK\x01\x02")  # central directory: uncompressed size at 24
    data[start + 24 : start + 28] = (2**32 - 2).to_bytes(4, "little")
    Path("bomb.npz").write_bytes(data)
    with pytest.raises(FileError, match="claims a size"):
        read_table("bomb.npz")


def test_truncated_and_object_npy(folder):
    np.save("z.npy", Z)
    Path("cut.npy").write_bytes(Path("z.npy").read_bytes()[:200])
    with pytest.raises(FileError, match="shape 20 x 3 needs 480 bytes, there are 72"):
        read_table("cut.npy", need_labels=False)
    np.save("o.npy", np.array([None]), allow_pickle=True)
    with pytest.raises(FileError, match="Python objects"):
        read_table("o.npy", need_labels=False)
    Path("t.npy").write_text("text")
    with pytest.raises(FileError, match=r"not in .npy format"):
        read_table("t.npy", need_labels=False)


def test_options_of_other_kinds_of_file_are_refused(folder):
    np.savez("l.npz", logits=Z, labels=Y)
    np.save("y.npy", Y)
    with pytest.raises(FileError, match=r"labels is for scores in .npy"):
        read_table("l.npz", labels="y.npy")
    with pytest.raises(FileError, match=r"are for .csv and .parquet"):
        read_table("l.npz", columns=["a"])


@pytest.mark.parametrize("name", ["x.xyz", "noending"])
def test_unknown_ending(folder, name):
    Path(name).write_text("1")
    with pytest.raises(FileError, match=r"the name must end in .npz, .npy, .csv, .csv.gz, .tsv or .parquet"):
        read_table(name)


def test_pickles_are_refused_and_similar_names_suggested(folder):
    Path("logits.pkl").write_bytes(b"\x80\x04.")
    with pytest.raises(FileError, match="can run code"):
        read_table("logits.pkl")
    np.savez("val_logits.npz", logits=Z, labels=Y)
    with pytest.raises(FileError, match=r"no such file. Did you mean val_logits.npz\?"):
        read_table("val_logit.npz")
    with pytest.raises(FileError, match="the folder nowhere does not exist"):
        read_table("nowhere/x.npz")


def test_classes_given_by_the_user(folder):
    np.savez("l.npz", logits=Z, labels=Y)
    table = read_table("l.npz", classes=["x", "y", "z"])
    assert table.labels[:3].tolist() == ["x", "y", "z"]
    with pytest.raises(FileError, match="2 names of classes for 3 columns"):
        read_table("l.npz", classes=["x", "y"])
    np.savez("o.npz", logits=Z, labels=Y + 1)
    assert read_table("o.npz", classes=["1", "2", "3"]).classes.tolist() == [1, 2, 3]
    with pytest.raises(FileError, match="label 3 in row 2 is not the position of a column"):
        read_table("o.npz", classes=["x", "y", "z"])

"""Manifests of a reproduction, and the files that they name."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from mixnmatch.experiments.pickles import PickleError
from mixnmatch.experiments.reproduce.loading import load, parts_of
from mixnmatch.experiments.reproduce.manifest import Entry, read_manifest, scan, write_manifest
from mixnmatch.io import FileError

GOOD = """
[[row]]
dataset = "D"
model = "M"
files = ["a.npz"]
classes = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path / "a.npz")
    return tmp_path


def arrays(n: int = 30, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return rng.normal(size=(n, classes)).astype(np.float32), rng.integers(0, classes, n)


def save(path: Path, n: int = 30, classes: int = 3) -> None:
    logits, labels = arrays(n, classes)
    np.savez(path, logits=logits, labels=labels)


def manifest(folder: Path, text: str) -> Path:
    path = folder / "m.toml"
    path.write_text(text)
    return path


def test_a_good_manifest(folder):
    (entry,) = read_manifest(manifest(folder, GOOD))
    assert entry == Entry("D", "M", (folder / "a.npz",), classes=3)
    assert entry.name == "D M"
    assert load(entry, folder).scores.shape == (30, 3)


@pytest.mark.parametrize(
    "change, message",
    [
        (("[[row]]", "[row"), "is not TOML"),
        (('dataset = "D"', ""), "row 1 has no 'dataset'"),
        (("classes = 3", "classes = 1"), "classes must be at least 2"),
        (("classes = 3", 'classes = "3"'), "is not a whole number"),
        (("classes = 3", "classes = true"), "is not a whole number"),
        (("classes = 3", 'classes = 3\nsplit = "half"'), "split must be one of random, given, top-label"),
        (("classes = 3", 'classes = 3\nsplit = "given"'), "needs two files"),
        (("classes = 3", "classes = 3\ncolour = 1"), "unknown key 'colour'; known are dataset"),
        (('["a.npz"]', '["b.npz"]'), "no such file. Did you mean"),
        (('["a.npz"]', '"a.npz"'), "is not a list of file names"),
        (('["a.npz"]', "[]"), "has no files"),
        (("classes = 3", 'classes = 3\nsimulated = "imagenet"'), "is simulated and has files"),
        (('files = ["a.npz"]', 'simulated = "mars"'), "simulated must be one of imagenet"),
    ],
)
def test_errors_say_what_is_wrong(folder, change, message):
    with pytest.raises(FileError, match=message):
        read_manifest(manifest(folder, GOOD.replace(*change)))


def test_names_are_used_once(folder):
    with pytest.raises(FileError, match="two rows called 'D M'"):
        read_manifest(manifest(folder, GOOD + GOOD))


def test_a_manifest_is_not_empty_and_is_toml(folder):
    with pytest.raises(FileError, match="has no rows"):
        read_manifest(manifest(folder, "title = 1\n"))
    with pytest.raises(FileError, match="a manifest is a"):
        read_manifest(folder / "a.npz")


def test_classes_must_be_those_of_the_file(folder):
    (entry,) = read_manifest(manifest(folder, GOOD.replace("classes = 3", "classes = 4")))
    with pytest.raises(FileError, match="has 3 classes; the manifest says 4"):
        load(entry, folder)


def test_a_folder_is_read_by_the_names_of_its_files(tmp_path):
    for name in ("x_cifar10_net_val", "x_cifar10_net_test", "y-cifar-100"):
        save(tmp_path / f"{name}.npz")
    np.savez(tmp_path / "other.npz", something=np.zeros(3))
    entries = scan(tmp_path)
    assert [(one.dataset, one.model, len(one.files), one.classes) for one in entries] == [
        ("CIFAR-10", "x_cifar10_net", 2, 3),
        ("CIFAR-100", "y-cifar-100", 1, 3),
    ]
    written = tmp_path / "sub" / "m.toml"
    written.parent.mkdir()
    write_manifest(entries, written)
    again = read_manifest(written)
    assert [(one.name, [path.resolve() for path in one.files]) for one in again] == [
        (one.name, [path.resolve() for path in one.files]) for one in entries
    ]


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(FileError, match="has no files ending in"):
        read_manifest(tmp_path)
    np.savez(tmp_path / "other.npz", something=np.zeros(3))
    with pytest.raises(FileError, match="no file in it holds"):
        read_manifest(tmp_path)


def test_arrays_in_npy(tmp_path):
    logits, labels = arrays()
    np.save(tmp_path / "z.npy", logits)
    np.save(tmp_path / "y.npy", labels)
    text = GOOD.replace('["a.npz"]', '["z.npy"]')
    with pytest.raises(FileError, match="need as many files of labels"):
        read_manifest(manifest(tmp_path, text))
    (entry,) = read_manifest(manifest(tmp_path, f'{text}labels = ["y.npy"]\nlogits = true\n'))
    found = load(entry, tmp_path)
    assert np.array_equal(found.scores, logits)
    assert found.logits


def pickled(path: Path, content: object) -> Path:
    path.write_bytes(pickle.dumps(content))
    return path


def test_published_pickles(tmp_path):
    """((logits_val, y_val), (logits_test, y_test)), labels as a column."""
    first, second = arrays(30), arrays(50)
    path = pickled(tmp_path / "net_c10.p", tuple((z, y[:, None]) for z, y in (first, second)))
    (entry,) = scan(tmp_path)
    parts = parts_of(entry)
    assert np.array_equal(parts[0][0], first[0])
    assert np.array_equal(parts[1][1], second[1])
    found = load(Entry("D", "M", (path,), classes=3, split="given"), tmp_path)
    assert found.first == 30
    assert found.logits
    assert len(found.labels) == 80


class Malicious:
    """Would run a command if it were unpickled as usual."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


def test_pickles_run_no_code(tmp_path):
    trace = tmp_path / "trace"
    z, y = arrays()
    path = pickled(tmp_path / "bad.p", ((z, y), (Malicious(trace), y)))
    with pytest.raises(PickleError, match="only NumPy arrays"):
        parts_of(Entry("D", "M", (path,)))
    assert not trace.exists()


@pytest.mark.parametrize("content", [[1, 2, 3], ((np.zeros((3, 2)),), (1,)), "text"])
def test_pickles_of_something_else(tmp_path, content):
    path = pickled(tmp_path / "bad.p", content)
    with pytest.raises(FileError, match="should hold"):
        parts_of(Entry("D", "M", (path,)))


def test_pickles_of_other_shapes(tmp_path):
    z, y = arrays()
    path = pickled(tmp_path / "bad.p", ((z, y[:-1]), (z, y)))
    with pytest.raises(FileError, match="logits should be numbers, n x L"):
        parts_of(Entry("D", "M", (path,)))


def test_the_largest_probabilities_alone(tmp_path):
    top = np.array([[0.9, 0.05], [0.6, 0.3], [0.5, 0.2]])
    classes = np.array([[1, 2], [0, 3], [4, 5]])
    np.savez(tmp_path / "t.npz", top5_probs=top, top5_classes=classes, labels=np.array([1, 3, 4]))
    found = load(Entry("D", "M", (tmp_path / "t.npz",), classes=1000, split="top-label"), tmp_path)
    assert found.scores.tolist() == [0.9, 0.6, 0.5]
    assert found.labels.tolist() == [1, 0, 1]
    np.savez(tmp_path / "t2.npz", labels=np.array([1, 3, 4]))
    with pytest.raises(FileError, match="should hold top5_probs"):
        load(Entry("D", "M", (tmp_path / "t2.npz",), classes=1000, split="top-label"), tmp_path)


def test_simulated_rows_are_drawn_once_and_kept(tmp_path):
    entry = Entry("ImageNet", "S", classes=1000, simulated="imagenet-resnet50", rows=70, seed=3)
    found = load(entry, tmp_path)
    assert found.scores.shape == (70, 1000)
    (path,) = tmp_path.glob("simulated-*-logits.npy")
    when = path.stat().st_mtime_ns
    load.cache_clear()
    assert load(entry, tmp_path).digest == found.digest
    assert path.stat().st_mtime_ns == when
    other = Entry("ImageNet", "S", classes=1000, simulated="imagenet", rows=70, seed=3)
    assert load(other, tmp_path).digest != found.digest

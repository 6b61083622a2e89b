import gzip
import pickle
import struct
import sys
import types

import numpy as np
import pytest

from paper_networks.images import (
    imagenet_logits,
    read_cifar10,
    read_cifar100,
    read_fashion_mnist,
    read_idx,
)

RNG = np.random.default_rng(0)
TRAIN = [f"data_batch_{i}" for i in range(1, 6)]


def pixels(n):
    return RNG.integers(0, 256, (n, 3072), dtype=np.uint8)


def test_cifar10_binary(tmp_path):
    data, labels = pixels(10), np.arange(10, dtype=np.uint8)
    for i, stem in enumerate(TRAIN):
        rows = slice(2 * i, 2 * i + 2)
        (tmp_path / f"{stem}.bin").write_bytes(np.hstack([labels[rows, None], data[rows]]).tobytes())
    got = read_cifar10(tmp_path)
    np.testing.assert_array_equal(got.images, data.reshape(10, 3, 32, 32))
    np.testing.assert_array_equal(got.labels, labels)
    assert got.images.dtype == np.uint8
    assert got.labels.dtype == np.int64
    assert len(got) == 10
    assert got.class_names[3] == "cat"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("key", [str, str.encode])
def test_cifar10_python(tmp_path, protocol, key):
    data = pixels(3)
    content = {key("data"): data, key("labels"): [1, 9, 0], key("filenames"): ["a.png", "b.png", "c.png"]}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content, protocol=protocol))
    got = read_cifar10(tmp_path, "test")
    np.testing.assert_array_equal(got.images, data.reshape(3, 3, 32, 32))
    assert got.labels.tolist() == [1, 9, 0]


def test_cifar10_python_as_python_2_wrote_it(tmp_path):
    """The published files: byte strings, and globals under the names that NumPy had in 2009."""
    data = pixels(1)
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I1\nI3072\nt"
        b"cnumpy\ndtype\n(S'u1'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS"
        + ("'" + "".join(f"\\x{v:02x}" for v in data.ravel()) + "'").encode()
        + b"\ntb"
    )
    (tmp_path / "test_batch").write_bytes(b"(dS'data'\n" + array + b"sS'labels'\n(lI7\nas.")
    got = read_cifar10(tmp_path, "test")
    np.testing.assert_array_equal(got.images.ravel(), data.ravel())
    assert got.labels.tolist() == [7]


@pytest.mark.parametrize(("kind", "column"), [("coarse", 0), ("fine", 1)])
def test_cifar100(tmp_path, kind, column):
    data, labels = pixels(4), np.array([[0, 5], [19, 99], [3, 20], [1, 1]], dtype=np.uint8)
    names = {"coarse": [f"group{i}" for i in range(20)], "fine": [f"class{i}" for i in range(100)]}
    binary, python = tmp_path / "binary", tmp_path / "python"
    binary.mkdir()
    python.mkdir()
    (binary / "train.bin").write_bytes(np.hstack([labels, data]).tobytes())
    assert read_cifar100(binary, labels=kind).class_names[-1] == ("19" if kind == "coarse" else "99")
    (binary / f"{kind}_label_names.txt").write_text("\n".join(names[kind]) + "\n")
    content = {b"data": data, b"fine_labels": labels[:, 1].tolist(), b"coarse_labels": labels[:, 0].tolist()}
    (python / "train").write_bytes(pickle.dumps(content, protocol=2))
    (python / "meta").write_bytes(pickle.dumps({f"{k}_label_names": v for k, v in names.items()}, protocol=2))
    for folder in (binary, python):
        got = read_cifar100(folder, labels=kind)
        np.testing.assert_array_equal(got.images, data.reshape(4, 3, 32, 32))
        np.testing.assert_array_equal(got.labels, labels[:, column])
        assert got.class_names == tuple(names[kind])


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize("compressed", [True, False])
def test_fashion_mnist(tmp_path, compressed):
    images = RNG.integers(0, 256, (5, 28, 28), dtype=np.uint8)
    labels = np.array([9, 0, 3, 3, 1], dtype=np.uint8)
    for name, array in (("t10k-images-idx3-ubyte", images), ("t10k-labels-idx1-ubyte", labels)):
        if compressed:
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (tmp_path / name).write_bytes(idx(array))
    got = read_fashion_mnist(tmp_path, "test")
    np.testing.assert_array_equal(got.images, images[:, None])
    np.testing.assert_array_equal(got.labels, labels)
    assert got.class_names[9] == "Ankle boot"
    with pytest.raises(FileNotFoundError, match="train-images"):
        read_fashion_mnist(tmp_path)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "x-idx"
    path.write_bytes(idx(np.zeros((2, 3), np.uint8))[:-1])
    with pytest.raises(ValueError, match="promises 6 bytes, it holds 5"):
        read_idx(path)
    path.write_bytes(b"\0\0")
    with pytest.raises(ValueError, match="not an IDX file"):
        read_idx(path)
    (tmp_path / "test_batch.bin").write_bytes(b"\0" * 3000)
    with pytest.raises(ValueError, match="corrupted"):
        read_cifar10(tmp_path, "test")
    (tmp_path / "test_batch.bin").write_bytes(b"\x0b" + b"\0" * 3072)
    with pytest.raises(ValueError, match="10 classes"):
        read_cifar10(tmp_path, "test")
    (tmp_path / "test").write_bytes(pickle.dumps({"data": pixels(2), "fine_labels": [1]}))
    with pytest.raises(ValueError, match="one label"):
        read_cifar100(tmp_path, "test")
    with pytest.raises(NotADirectoryError):
        read_cifar10(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        read_cifar10(tmp_path)
    with pytest.raises(ValueError, match="split"):
        read_cifar10(tmp_path, "valid")


def test_imagenet_says_what_to_install(tmp_path):
    try:
        import torchvision  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(ModuleNotFoundError, match="pip install"):
            imagenet_logits(tmp_path, "resnet152", tmp_path / "out.npz")
    else:
        pytest.skip("torchvision is installed")


def fake_torchvision(torch, classes):
    """As much of torchvision as is used: a data set of two-pixel images and a linear network."""
    module = types.ModuleType("torchvision")

    class ImageFolder(torch.utils.data.Dataset):
        def __init__(self, folder, transform):
            self.classes, self.targets, self.transform = list(range(classes)), [4, 0, 4], transform

        def __len__(self):
            return 3

        def __getitem__(self, i):
            return self.transform(torch.tensor([1.0, float(i)])), self.targets[i]

    def double(image):
        return 2 * image

    version_1 = types.SimpleNamespace(transforms=lambda: double, meta={"categories": [f"c{i}" for i in range(1000)]})
    linear = torch.nn.Linear(2, 1000)
    module.models = types.SimpleNamespace(
        get_model_weights=lambda name: types.SimpleNamespace(IMAGENET1K_V1=version_1),
        get_model=lambda name, weights: linear,
    )
    module.datasets = types.SimpleNamespace(ImageFolder=ImageFolder)
    return module, linear


def test_imagenet_logits(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    module, linear = fake_torchvision(torch, 1000)
    monkeypatch.setitem(sys.modules, "torchvision", module)
    seen = []
    out = tmp_path / "out.npz"
    imagenet_logits(tmp_path, "any", out, batch_size=2, workers=0, on_batch=lambda *counts: seen.append(counts))
    assert seen == [(2, 3), (3, 3)]
    with np.load(out, allow_pickle=False) as archive:
        expected = linear(torch.tensor([[2.0, 0.0], [2.0, 2.0], [2.0, 4.0]])).detach().numpy()
        np.testing.assert_allclose(archive["logits"], expected, rtol=1e-5, atol=1e-6)
        assert archive["labels"].tolist() == [4, 0, 4]
        assert archive["class_names"][999] == "c999"
    module, _ = fake_torchvision(torch, 3)
    monkeypatch.setitem(sys.modules, "torchvision", module)
    with pytest.raises(ValueError, match="1000 synsets"):
        imagenet_logits(tmp_path, "any", out)

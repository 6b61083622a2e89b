"""Readers of the images that the paper's networks are trained on, in the formats that they are published in.

CIFAR-10 and CIFAR-100 in their binary and Python versions, Fashion-MNIST (and MNIST) as IDX files; and the logits of
pretrained networks on ImageNet. Pickles are read through :func:`mixnmatch.experiments.pickles.read_pickle`, which never
executes code from the file.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mixnmatch.experiments.pickles import as_text, read_pickle

__all__ = [
    "ImageSet",
    "imagenet_logits",
    "read_cifar10",
    "read_cifar100",
    "read_fashion_mnist",
    "read_idx",
]

PathLike = str | os.PathLike[str]
Split = Literal["train", "test"]

_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class ImageSet:
    """Labelled images: uint8 of shape (n, channels, height, width), int64 labels and the names of the classes."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)


def read_cifar10(folder: PathLike, split: Split = "train") -> ImageSet:
    """Read CIFAR-10 from the folder that its archive unpacks to, binary or Python version.

    Parameters
    ----------
    folder : path
        Folder with ``data_batch_1.bin`` ... or ``data_batch_1`` ...
    split : {"train", "test"}, default="train"
        50000 or 10000 images.

    Returns
    -------
    ImageSet
        Images in the order of the files.
    """
    folder = _open(folder, split)
    stems = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    if (folder / f"{stems[0]}.bin").is_file():
        parts = [_read_cifar_binary(folder / f"{stem}.bin", 1, 0) for stem in stems]
    else:
        parts = [_read_cifar_python(folder / stem, "labels") for stem in stems]
    return _image_set(parts, _CIFAR10)


def read_cifar100(folder: PathLike, split: Split = "train", *, labels: Literal["fine", "coarse"] = "fine") -> ImageSet:
    """Read CIFAR-100 from the folder that its archive unpacks to, binary or Python version.

    Parameters
    ----------
    folder : path
        Folder with ``train.bin``, ``test.bin`` and ``fine_label_names.txt``, or ``train``, ``test`` and ``meta``.
    split : {"train", "test"}, default="train"
        50000 or 10000 images.
    labels : {"fine", "coarse"}, default="fine"
        The 100 classes or their 20 groups.

    Returns
    -------
    ImageSet
        Images in the order of the file. The names of the classes are their numbers if the folder has none.
    """
    folder = _open(folder, split)
    if labels not in ("fine", "coarse"):
        msg = f"labels must be 'fine' or 'coarse', got {labels!r}"
        raise ValueError(msg)
    names = tuple(str(i) for i in range(100 if labels == "fine" else 20))
    if (folder / f"{split}.bin").is_file():
        part = _read_cifar_binary(folder / f"{split}.bin", 2, 1 if labels == "fine" else 0)
        names_file = folder / f"{labels}_label_names.txt"
        if names_file.is_file():
            names = tuple(names_file.read_text(encoding="utf-8").split())
    else:
        part = _read_cifar_python(folder / split, f"{labels}_labels")
        if (folder / "meta").is_file():
            names = tuple(as_text(name) for name in _keyed(folder / "meta")[f"{labels}_label_names"])
    return _image_set([part], names)


def read_fashion_mnist(folder: PathLike, split: Split = "train") -> ImageSet:
    """Read Fashion-MNIST from its four IDX files, compressed or not.

    Parameters
    ----------
    folder : path
        Folder with ``train-images-idx3-ubyte.gz``, ``t10k-labels-idx1-ubyte.gz`` and so on.
    split : {"train", "test"}, default="train"
        60000 or 10000 images.

    Returns
    -------
    ImageSet
        Grey images of 28 x 28 pixels, one channel.
    """
    folder = _open(folder, split)
    stem = "train" if split == "train" else "t10k"
    images = _read_idx_in(folder, f"{stem}-images-idx3-ubyte")
    labels = _read_idx_in(folder, f"{stem}-labels-idx1-ubyte")
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        msg = f"images of shape {images.shape} and labels of shape {labels.shape} in {folder} do not belong together"
        raise ValueError(msg)
    return _image_set([(images[:, None], labels)], _FASHION)


def read_idx(path: PathLike) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, the format of MNIST; gzip-compressed if the name ends in ``.gz``.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    ndarray of uint8
        Array of the shape that the header says.
    """
    path = Path(path)
    packed = path.suffix == ".gz"
    if path.exists() and not path.is_file():
        msg = f"{path} is not a regular file"
        raise ValueError(msg)
    with gzip.open(path) if packed else path.open("rb") as file:
        try:
            head = file.read(4)
            sizes = file.read(4 * head[3]) if len(head) == 4 else b""
            if len(head) < 4 or head[:3] != b"\0\0\x08" or len(sizes) != 4 * head[3]:
                msg = f"{path} is not an IDX file of unsigned bytes"
                raise ValueError(msg)
            shape = struct.unpack(f">{head[3]}I", sizes)
            promised = math.prod(shape)
            # No more is unpacked than the header promises, and it cannot promise more than deflate can pack.
            most = path.stat().st_size * (1032 if packed else 1)
            raw = file.read(promised + 1) if promised <= most else b""
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            msg = f"{path} is corrupted: it cannot be decompressed ({error})"
            raise ValueError(msg) from error
    if len(raw) != promised:
        held = "more" if len(raw) > promised else len(raw)
        msg = f"{path} is corrupted: its header promises {promised} bytes, it holds {held}"
        raise ValueError(msg)
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape).copy()


def _open(folder: PathLike, split: str) -> Path:
    folder = Path(folder)
    if not folder.is_dir():
        msg = f"{folder} is not a folder"
        raise NotADirectoryError(msg)
    if split not in ("train", "test"):
        msg = f"split must be 'train' or 'test', got {split!r}"
        raise ValueError(msg)
    return folder


def _read_cifar_binary(path: Path, label_bytes: int, column: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Rows of label bytes followed by the red, green and blue planes."""
    raw = np.fromfile(path, dtype=np.uint8)
    if not len(raw) or len(raw) % (label_bytes + _PIXELS):
        msg = f"{path} is corrupted: {len(raw)} bytes are no multiple of {label_bytes + _PIXELS}"
        raise ValueError(msg)
    rows = raw.reshape(-1, label_bytes + _PIXELS)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, column]


def _read_cifar_python(path: Path, key: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    content = _keyed(path)
    if "data" not in content or key not in content:
        msg = f"{path} lacks 'data' or {key!r}"
        raise ValueError(msg)
    data, labels = np.asarray(content["data"]), np.asarray(content[key])
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _PIXELS or labels.shape != data.shape[:1]:
        msg = f"{path} does not hold one label and {_PIXELS} bytes for each image"
        raise ValueError(msg)
    return data.reshape(-1, 3, 32, 32), labels


def _keyed(path: Path) -> dict[str, Any]:
    """Content of a pickled dict, its keys as text."""
    content = read_pickle(path)
    if not isinstance(content, dict):
        msg = f"{path} does not hold a dict"
        raise ValueError(msg)
    return {as_text(key): value for key, value in content.items()}


def _read_idx_in(folder: Path, name: str) -> npt.NDArray[np.uint8]:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return read_idx(candidate)
    msg = f"{folder} has neither {name} nor {name}.gz"
    raise FileNotFoundError(msg)


def _image_set(parts: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]], names: tuple[str, ...]) -> ImageSet:
    images = np.concatenate([np.asarray(part[0], dtype=np.uint8) for part in parts])
    labels = np.concatenate([np.asarray(part[1], dtype=np.int64) for part in parts])
    if labels.min() < 0 or labels.max() >= len(names):
        msg = f"labels run from {labels.min()} to {labels.max()}, but there are {len(names)} classes"
        raise ValueError(msg)
    return ImageSet(images, labels, names)


def imagenet_logits(
    folder: PathLike,
    model: str,
    output: PathLike,
    *,
    batch_size: int = 64,
    workers: int = 2,
    device: str = "cpu",
    on_batch: Callable[[int, int], None] | None = None,
) -> None:
    """Run one of torchvision's pretrained models over ImageNet's validation images and write logits and labels.

    Parameters
    ----------
    folder : path
        Validation images, one sub-folder for each of the 1000 synsets (``n01440764``, ...).
    model : str
        Name of a torchvision model, for example ``"densenet161"``, ``"resnet152"`` or ``"wide_resnet101_2"``.
    output : path
        .npz file that receives ``logits`` (float32), ``labels`` (int64) and ``class_names``.
    batch_size, workers : int
        Images a step, and processes that read them.
    device : str, default="cpu"
        Where torch computes.
    on_batch : callable, optional
        Called with the number of images done and their total.
    """
    from paper_networks.training import require_torch, write_npz

    torch = require_torch()
    try:
        import torchvision  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ModuleNotFoundError as error:
        msg = "pretrained ImageNet models need torchvision; install it with: pip install torchvision"
        raise ModuleNotFoundError(msg) from error
    weights = torchvision.models.get_model_weights(model).IMAGENET1K_V1
    # the sorted synset names are the order of the model's outputs
    data = torchvision.datasets.ImageFolder(os.fspath(folder), transform=weights.transforms())
    if len(data.classes) != 1000:
        msg = f"{os.fspath(folder)} has {len(data.classes)} sub-folders; ImageNet's validation set has 1000 synsets"
        raise ValueError(msg)
    network = torchvision.models.get_model(model, weights=weights).eval().to(device)
    logits = np.empty((len(data), 1000), dtype=np.float32)
    done = 0
    with torch.no_grad():
        for images, _ in torch.utils.data.DataLoader(data, batch_size=batch_size, num_workers=workers):
            logits[done : done + len(images)] = network(images.to(device)).cpu().numpy()
            done += len(images)
            if on_batch is not None:
                on_batch(done, len(data))
    labels = np.asarray(data.targets, dtype=np.int64)
    write_npz(output, {"logits": logits, "labels": labels, "class_names": np.asarray(weights.meta["categories"])})

"""The training recipe of the paper's Appendix F, with checkpoints that resume exactly.

Everything random in an epoch is drawn from a generator seeded with (seed, epoch), so that a checkpoint needs no
generator state. Checkpoints are .npz archives of plain arrays; nothing is pickled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mixnmatch._files import atomic_write

__all__ = [
    "EpochRecord",
    "Normalisation",
    "Recipe",
    "Trained",
    "learning_rate",
    "predict_logits",
    "require_torch",
    "seeded",
    "train",
    "write_npz",
]

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a network is trained; the defaults are the paper's Appendix F.

    Parameters
    ----------
    epochs : int, default=500
        Passes over the training images.
    batch_size : int, default=128
        Images in a minibatch; the last batch of an epoch is smaller.
    learning_rate : float, default=0.1
        Rate of the first epochs.
    milestones : tuple of int, default=(60, 120, 160)
        Epochs (counted from 0) before which the rate is multiplied by `drop`.
    drop : float, default=0.2
        Factor of a drop.
    momentum, dampening, weight_decay : float
        Parameters of stochastic gradient descent.
    nesterov : bool, default=True
        Nesterov's form of the momentum.
    flip : bool, default=True
        Mirror each image left-right with probability 1/2.
    crop_padding : int, default=4
        Reflect so many pixels around each image, then cut a random window of the original size; 0 leaves it out.
    seed : int, default=0
        Seed of the order, the augmentation and dropout. The initial weights are the caller's (see :func:`seeded`).
    """

    epochs: int = 500
    batch_size: int = 128
    learning_rate: float = 0.1
    milestones: tuple[int, ...] = (60, 120, 160)
    drop: float = 0.2
    momentum: float = 0.9
    dampening: float = 0.0
    weight_decay: float = 5e-4
    nesterov: bool = True
    flip: bool = True
    crop_padding: int = 4
    seed: int = 0


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of each channel of the training images, in units of the range 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, images: Images) -> Normalisation:
        """Statistics of uint8 images of shape (n, channels, height, width)."""
        # sums of integers are exact, so the statistics do not depend on the order of the images
        levels = np.arange(256.0) / 255.0
        counts = [np.bincount(images[:, c].ravel(), minlength=256) for c in range(images.shape[1])]
        means = [float(k @ levels / k.sum()) for k in counts]
        variances = [float(k @ (levels - m) ** 2 / k.sum()) for k, m in zip(counts, means, strict=True)]
        return cls(tuple(means), tuple(math.sqrt(v) or 1.0 for v in variances))

    def __call__(self, images: Images) -> FloatArray:
        """Images as float32 with mean 0 and standard deviation 1 on the training set."""
        mean = np.asarray(self.mean, dtype=np.float32)[:, None, None]
        std = np.asarray(self.std, dtype=np.float32)[:, None, None]
        return (images.astype(np.float32) / np.float32(255.0) - mean) / std


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch did: its number from 0, its rate, mean training loss and accuracy (on augmented images)."""

    epoch: int
    learning_rate: float
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Trained:
    """A trained network, the normalisation of its input, and the record of every epoch."""

    network: Any
    normalisation: Normalisation
    history: tuple[EpochRecord, ...]


def learning_rate(recipe: Recipe, epoch: int) -> float:
    """Rate of an epoch, counted from 0.

    Parameters
    ----------
    recipe : Recipe
        The schedule.
    epoch : int
        Number of the epoch.

    Returns
    -------
    float
        ``learning_rate * drop ** (number of milestones passed)``.

    Examples
    --------
    >>> [round(learning_rate(Recipe(), epoch), 6) for epoch in (0, 59, 60, 120, 499)]
    [0.1, 0.1, 0.02, 0.004, 0.0008]
    """
    return recipe.learning_rate * recipe.drop ** sum(epoch >= milestone for milestone in recipe.milestones)


@contextlib.contextmanager
def seeded(*seed: int) -> Iterator[None]:
    """Draw torch's random numbers from `seed` inside the block, and leave the global generator as it was.

    Parameters
    ----------
    *seed : int
        Non-negative integers.
    """
    torch = require_torch()
    with torch.random.fork_rng():
        torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(1)))
        yield


def train(
    network: Any,
    images: Images,
    labels: Labels,
    recipe: Recipe,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1,
    device: str = "cpu",
    on_epoch: Callable[[EpochRecord], None] | None = None,
) -> Trained:
    """Train a network with cross-entropy and stochastic gradient descent, resuming from a checkpoint if there is one.

    Parameters
    ----------
    network : torch.nn.Module
        Network with its initial weights; trained in place.
    images : ndarray of uint8, shape (n, channels, height, width)
        Training images.
    labels : ndarray of int64, shape (n,)
        Their classes.
    recipe : Recipe
        How to train.
    checkpoint : path, optional
        An .npz file, replaced atomically. If it exists it must come from the same data and recipe (only `epochs` may
        differ), and training continues after its last epoch.
    checkpoint_every : int, default=1
        Epochs between checkpoints; the last epoch is always written.
    device : str, default="cpu"
        Where torch computes.
    on_epoch : callable, optional
        Called with the record of each epoch, after its checkpoint is written.

    Returns
    -------
    Trained
        The network in evaluation mode, its normalisation and its history.

    Notes
    -----
    A resumed run equals an uninterrupted one bit for bit on the same machine and number of threads.
    """
    _check_images(images, labels)
    torch = require_torch()
    network.to(device)
    optimiser = torch.optim.SGD(
        network.parameters(),
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        dampening=recipe.dampening,
        weight_decay=recipe.weight_decay,
        nesterov=recipe.nesterov,
    )
    normalisation = Normalisation.of(images)
    schedule = {**dataclasses.asdict(recipe), "milestones": list(recipe.milestones), "epochs": "any"}
    checksums = [zlib.crc32(images.tobytes()), zlib.crc32(labels.astype(np.int64).tobytes())]
    identity = {"recipe": schedule, "data": [*images.shape, *checksums]}
    path = None if checkpoint is None else Path(checkpoint)
    history = _read_checkpoint(path, network, optimiser, identity) if path is not None and path.exists() else []
    for epoch in range(len(history), recipe.epochs):
        history.append(_train_epoch(network, optimiser, images, labels, normalisation, recipe, epoch, device))
        if path is not None and ((epoch + 1) % checkpoint_every == 0 or epoch + 1 == recipe.epochs):
            _write_checkpoint(path, network, optimiser, identity, history)
        if on_epoch is not None:
            on_epoch(history[-1])
    network.eval()
    return Trained(network, normalisation, tuple(history))


def predict_logits(trained: Trained, images: Images, *, batch_size: int = 500, device: str = "cpu") -> FloatArray:
    """Logits of a trained network.

    Parameters
    ----------
    trained : Trained
        Result of :func:`train`.
    images : ndarray of uint8, shape (n, channels, height, width)
        Images, neither augmented nor normalised.
    batch_size : int, default=500
        Images a step.
    device : str, default="cpu"
        Where torch computes.

    Returns
    -------
    ndarray of float32, shape (n, classes)
        Scores before softmax.
    """
    torch = require_torch()
    trained.network.eval()
    rows = []
    with torch.no_grad():
        for start in range(0, len(images), batch_size):
            batch = torch.from_numpy(trained.normalisation(images[start : start + batch_size])).to(device)
            rows.append(trained.network(batch).cpu().numpy().astype(np.float32))
    return np.concatenate(rows)


def write_npz(path: str | os.PathLike[str], arrays: dict[str, npt.NDArray[Any]], *, compress: bool = True) -> None:
    """Write an .npz archive so that the file is either the old one or the complete new one.

    Parameters
    ----------
    path : path
        File to create or replace; its folder is made if needed.
    arrays : dict of str to ndarray
        Arrays without Python objects.
    compress : bool, default=True
        Deflate the arrays.
    """
    if objects := [name for name, array in arrays.items() if array.dtype.hasobject]:
        msg = f"arrays of Python objects cannot be written: {', '.join(objects)}"
        raise ValueError(msg)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    save: Callable[..., None] = np.savez_compressed if compress else np.savez
    atomic_write(path, lambda file: save(file, **arrays))


def require_torch() -> Any:
    """Import torch, or say how to install it."""
    try:
        import torch
    except ModuleNotFoundError as error:
        msg = "training needs torch; install the extra with: pip install 'mixnmatch[train]'"
        raise ModuleNotFoundError(msg) from error
    return torch


def _check_images(images: Images, labels: Labels) -> None:
    if images.dtype != np.uint8 or images.ndim != 4:
        msg = f"images must be uint8 of shape (n, channels, height, width), got {images.dtype} of shape {images.shape}"
        raise ValueError(msg)
    if labels.shape != images.shape[:1] or not len(images):
        msg = f"labels must be a vector with one entry for each of {len(images)} images, got shape {labels.shape}"
        raise ValueError(msg)


def _augment(images: Images, recipe: Recipe, rng: np.random.Generator) -> Images:
    """Random flips, and random windows of the reflected images, as Zagoruyko & Komodakis (2016) do."""
    n, _, height, width = images.shape
    if recipe.crop_padding:
        pad = recipe.crop_padding
        padded = np.pad(images, ((0, 0), (0, 0), (pad, pad), (pad, pad)), mode="reflect")
        top, left = rng.integers(0, 2 * pad + 1, (2, n))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
        images = windows[np.arange(n), :, top, left]
    if recipe.flip:
        mirrored = rng.integers(0, 2, (n, 1, 1, 1)) == 1
        images = np.where(mirrored, images[..., ::-1], images)
    return images


def _train_epoch(
    network: Any,
    optimiser: Any,
    images: Images,
    labels: Labels,
    normalisation: Normalisation,
    recipe: Recipe,
    epoch: int,
    device: str,
) -> EpochRecord:
    torch = require_torch()
    rate = learning_rate(recipe, epoch)
    for group in optimiser.param_groups:
        group["lr"] = rate
    rng = np.random.default_rng([recipe.seed, epoch])
    order = rng.permutation(len(images))
    total, right = 0.0, 0
    network.train()
    with seeded(recipe.seed, epoch):
        for start in range(0, len(order), recipe.batch_size):
            rows = order[start : start + recipe.batch_size]
            batch = torch.from_numpy(normalisation(_augment(images[rows], recipe, rng))).to(device)
            target = torch.from_numpy(labels[rows].astype(np.int64)).to(device)
            logits = network(batch)
            loss = torch.nn.functional.cross_entropy(logits, target)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * len(rows)
            right += int((logits.argmax(1) == target).sum())
    if not math.isfinite(total):
        msg = f"the loss is not finite after epoch {epoch}; lower the learning rate ({rate:g})"
        raise FloatingPointError(msg)
    return EpochRecord(epoch, rate, total / len(images), right / len(images))


def _write_checkpoint(
    path: Path, network: Any, optimiser: Any, identity: dict[str, Any], history: list[EpochRecord]
) -> None:
    state = {"format": _FORMAT, "history": [dataclasses.asdict(record) for record in history], **identity}
    arrays = {"state": np.frombuffer(json.dumps(state).encode(), dtype=np.uint8)}
    for name, tensor in network.state_dict().items():
        arrays[f"network/{name}"] = tensor.cpu().numpy()
    for name, parameter in network.named_parameters():
        buffer = optimiser.state.get(parameter, {}).get("momentum_buffer")
        if buffer is not None:
            arrays[f"momentum/{name}"] = buffer.cpu().numpy()
    write_npz(path, arrays, compress=False)


def _read_checkpoint(path: Path, network: Any, optimiser: Any, identity: dict[str, Any]) -> list[EpochRecord]:
    torch = require_torch()
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    state = json.loads(arrays["state"].tobytes()) if "state" in arrays else {}
    if state.get("format") != _FORMAT:
        msg = f"{path} is not a checkpoint of this version; delete it or choose another file"
        raise ValueError(msg)
    for key, value in identity.items():
        if state[key] != value:
            msg = f"{path} was written with another {key} ({state[key]} instead of {value}); choose another file"
            raise ValueError(msg)
    shapes = {f"network/{name}": tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    if shapes != {name: array.shape for name, array in arrays.items() if name.startswith("network/")}:
        msg = f"{path} holds the weights of another network; choose another file"
        raise ValueError(msg)
    network.load_state_dict({name: torch.from_numpy(arrays[f"network/{name}"]) for name in network.state_dict()})
    for name, parameter in network.named_parameters():
        if f"momentum/{name}" in arrays:
            buffer = torch.from_numpy(arrays[f"momentum/{name}"]).to(parameter.device)
            optimiser.state[parameter]["momentum_buffer"] = buffer
    return [EpochRecord(**record) for record in state["history"]]

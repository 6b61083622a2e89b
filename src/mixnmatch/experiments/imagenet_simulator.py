r"""Simulated logits of ImageNet networks: 1000 classes, of which some are alike, scores that are overconfident.

Published outputs of ImageNet networks keep the five largest probabilities of an image. What needs all 1000 logits runs
on this simulator, whose parameters are fitted to such files (``benchmarks/imagenet_simulator_fit.py``) and whose match
is on the page :doc:`/results/imagenet_simulator`. What is computed on it says so: it is simulated.

Scores. Classes are vectors :math:`e_l`, sums of a vector of their kind, of their group, of their siblings and of their
own. An image of class c, which also looks like a class c' near c, has the features
:math:`f = r (e_c + v e_{c'}) + \epsilon` and the logits :math:`z_l = s (e_l \cdot f + \tau \eta_l)`. How clear an image
is, r, is Weibull; how much it looks like c', v, is exponential, at most 1; the scale s is lognormal with a trend in r;
:math:`\epsilon` and :math:`\eta` are normal.

Labels. They are drawn from probabilities that are a smooth function of the logits,

.. math:: \pi(z) = (1 - \delta - \nu)\, softmax(\beta z + b) + \delta\, softmax(\gamma z + b) + \nu\, softmax(z / 4)

with a bias b for each class, so that :math:`\pi(z)` is exactly the probability of the classes given the scores: the
calibration error is known. No map of this library contains this :math:`\pi`: the biases are beyond one function for all
classes, the mixture beyond vector and matrix scaling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal, overload

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.passes import run_blocks
from mixnmatch._engine.shared import single_threaded_blas

__all__ = ["CLASSES", "MODELS", "ImageNetModel", "simulate", "true_probabilities"]

Floats = NDArray[np.float32]

CLASSES: Final = 1000
# Levels of likeness: so many kinds, groups in them and sets of siblings in those; sizes vary as a Dirichlet draw does.
_KINDS, _GROUPS, _SIBLINGS = 20, 120, 350
_DIMENSIONS: Final = 32
_NEIGHBOURS: Final = 3  # an image may also look like one of so many classes
_NOISE_SHARPNESS: Final = 0.25
# Rows are made in blocks of this size from a seed of their own, so that they depend neither on n nor on threads.
_BLOCK: Final = 1024
_STRUCTURE_SEED: Final = 20200618


@dataclass(frozen=True, kw_only=True)
class ImageNetModel:
    """Parameters of a simulated network.

    Parameters
    ----------
    scale, scale_spread, scale_trend : float
        Median of the scale s of the logits, standard deviation of its logarithm, and the power of r in it.
    signal, signal_shape : float
        Scale and shape of the Weibull distribution of the clearness r of an image.
    ambiguity : float
        Mean of the exponential distribution of v, how much an image looks like a second class.
    kind, group, siblings : float
        Shares of the levels of likeness in the variance of a class vector; what is left is its own.
    residual : float
        Standard deviation of what is independent between logits.
    sharpness : float
        Factor beta of the logits in the surest part of the truth.
    doubt, doubt_sharpness : float
        Share delta and factor gamma of a part that is less sure; below 1 they make the network overconfident.
    noise : float
        Share nu of labels that are hardly tied to the scores: errors at the highest confidence, wrong labels.
    class_bias : float
        Standard deviation of the biases b of the classes.
    """

    scale: float
    scale_spread: float
    scale_trend: float
    signal: float
    signal_shape: float
    ambiguity: float
    kind: float
    group: float
    siblings: float
    residual: float
    sharpness: float = 1.0
    doubt: float = 0.0
    doubt_sharpness: float = 0.0
    noise: float = 0.0
    class_bias: float = 0.0


MODELS: Final[Mapping[str, ImageNetModel]] = MappingProxyType(
    {
        "alexnet": ImageNetModel(
            scale=3.607,
            scale_spread=0.3571,
            scale_trend=-0.1122,
            signal=6.358,
            signal_shape=2.185,
            ambiguity=0.05895,
            kind=0.4932,
            group=0.1442,
            siblings=0.1616,
            residual=0.2061,
            sharpness=0.975,
            doubt=0.08163,
            doubt_sharpness=0.523,
            noise=0.01102,
            class_bias=0.3396,
        ),
        "vgg19": ImageNetModel(
            scale=1.429,
            scale_spread=0.461,
            scale_trend=-0.5899,
            signal=15.26,
            signal_shape=1.571,
            ambiguity=0.02257,
            kind=0.2038,
            group=0.118,
            siblings=0.4202,
            residual=1,
            sharpness=1.773,
            doubt=0.769,
            doubt_sharpness=0.8679,
            noise=0.01992,
            class_bias=0.4661,
        ),
        "resnet50": ImageNetModel(
            scale=1.741,
            scale_spread=0.3606,
            scale_trend=-0.3717,
            signal=13.25,
            signal_shape=3.505,
            ambiguity=0.07472,
            kind=0.2717,
            group=0.1498,
            siblings=0.2992,
            residual=0.8972,
            sharpness=1.42,
            doubt=0.7105,
            doubt_sharpness=0.8561,
            noise=0.01537,
            class_bias=0.5832,
        ),
        "densenet161": ImageNetModel(
            scale=1.991,
            scale_spread=0.4057,
            scale_trend=-0.5349,
            signal=13.1,
            signal_shape=3.401,
            ambiguity=0.09436,
            kind=0.3048,
            group=0.1701,
            siblings=0.2346,
            residual=0.7992,
            sharpness=1.3,
            doubt=0.5327,
            doubt_sharpness=0.7791,
            noise=0.02139,
            class_bias=0.8433,
        ),
    }
)


@overload
def simulate(
    n: int, *, seed: int = 0, model: str | ImageNetModel = "densenet161", truth: Literal[False] = False
) -> tuple[Floats, NDArray[np.int64]]: ...
@overload
def simulate(
    n: int, *, seed: int = 0, model: str | ImageNetModel = "densenet161", truth: Literal[True]
) -> tuple[Floats, NDArray[np.int64], Floats]: ...
def simulate(
    n: int, *, seed: int = 0, model: str | ImageNetModel = "densenet161", truth: bool = False
) -> tuple[Floats, NDArray[np.int64]] | tuple[Floats, NDArray[np.int64], Floats]:
    """Draw logits and labels of images.

    Parameters
    ----------
    n : int
        Number of images. Those of a smaller n are the first ones of a larger n.
    seed : int, default=0
        Seed of the images. The classes and their likeness are those of the model, whatever the seed.
    model : str or ImageNetModel, default="densenet161"
        A name in :data:`MODELS`, or parameters.
    truth : bool, default=False
        Also return the probabilities that the labels were drawn from.

    Returns
    -------
    logits : ndarray of float32, shape (n, 1000)
    labels : ndarray of int64, shape (n,)
    probabilities : ndarray of float32, shape (n, 1000)
        Only with ``truth=True``.

    Examples
    --------
    >>> logits, labels = simulate(2000)
    >>> logits.shape, bool(0.7 < (logits.argmax(axis=1) == labels).mean() < 0.84)
    ((2000, 1000), True)
    """
    parameters = _model(model)
    logits = np.empty((n, CLASSES), dtype=np.float32)
    labels = np.empty(n, dtype=np.int64)
    probabilities = np.empty((n, CLASSES), dtype=np.float32) if truth else None

    def fill(start: int, stop: int) -> None:
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(start // _BLOCK,)))
        logits[start:stop] = _draw_logits(parameters, rng)[: stop - start]
        uniform = rng.random(_BLOCK)[: stop - start]
        chance = true_probabilities(logits[start:stop], model=parameters)
        cumulated = chance.cumsum(axis=1)
        labels[start:stop] = (cumulated < (uniform * cumulated[:, -1])[:, None]).sum(axis=1)
        if probabilities is not None:
            probabilities[start:stop] = chance

    ranges = [(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]
    with single_threaded_blas():
        for _ in run_blocks(fill, ranges):
            pass
    return (logits, labels) if probabilities is None else (logits, labels, probabilities)


def true_probabilities(
    logits: NDArray[np.floating], *, model: str | ImageNetModel = "densenet161"
) -> NDArray[np.float64]:
    """The probabilities of the classes given the logits, the function pi(z) that labels are drawn from.

    Parameters
    ----------
    logits : ndarray of shape (n, 1000)
        Logits of :func:`simulate`.
    model : str or ImageNetModel, default="densenet161"
        The model that drew them.

    Returns
    -------
    ndarray of float64, shape (n, 1000)
    """
    parameters = _model(model)
    z = logits.astype(np.float64)
    bias = parameters.class_bias * _class_directions()
    sure = _softmax(parameters.sharpness * z + bias)
    doubtful = _softmax(parameters.doubt_sharpness * z + bias)
    shares = (1.0 - parameters.doubt - parameters.noise, parameters.doubt, parameters.noise)
    return shares[0] * sure + shares[1] * doubtful + shares[2] * _softmax(_NOISE_SHARPNESS * z)


def _model(model: str | ImageNetModel) -> ImageNetModel:
    if isinstance(model, ImageNetModel):
        return model
    if model not in MODELS:
        msg = f"unknown model {model!r}; the simulated ones are {', '.join(MODELS)}"
        raise ValueError(msg)
    return MODELS[model]


def _softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    p: NDArray[np.float64] = np.exp(x - x.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p


def _draw_logits(model: ImageNetModel, rng: np.random.Generator) -> Floats:
    """A block of logits."""
    vectors, neighbours = _class_vectors(model.kind, model.group, model.siblings)
    depicted = rng.integers(CLASSES, size=_BLOCK)
    nearness = np.minimum(rng.geometric(0.6, size=_BLOCK), _NEIGHBOURS) - 1
    second = neighbours[depicted, nearness]
    clearness = rng.standard_exponential(_BLOCK) ** (1.0 / model.signal_shape)
    likeness = np.minimum(model.ambiguity * rng.standard_exponential(_BLOCK), 1.0)
    scale = model.scale * np.exp(model.scale_spread * rng.standard_normal(_BLOCK)) * clearness**model.scale_trend
    features = vectors[depicted] + likeness.astype(np.float32)[:, None] * vectors[second]
    features *= (model.signal * clearness).astype(np.float32)[:, None]
    features += rng.standard_normal(features.shape, dtype=np.float32)
    logits: Floats = rng.standard_normal((_BLOCK, CLASSES), dtype=np.float32)
    logits *= np.float32(model.residual)
    logits += features @ vectors.T
    logits *= scale.astype(np.float32)[:, None]
    return logits


@lru_cache(maxsize=8)
def _class_vectors(kind: float, group: float, siblings: float) -> tuple[Floats, NDArray[np.intp]]:
    """Vectors of the classes, and for each class those nearest to it."""
    rng = np.random.default_rng(_STRUCTURE_SEED)
    level = [rng.standard_normal((parts, _DIMENSIONS)) for parts in (_KINDS, _GROUPS, _SIBLINGS, CLASSES)]
    siblings_of = rng.choice(_SIBLINGS, CLASSES, p=rng.dirichlet(np.full(_SIBLINGS, 2.0)))
    group_of = rng.choice(_GROUPS, _SIBLINGS, p=rng.dirichlet(np.full(_GROUPS, 1.0)))[siblings_of]
    kind_of = rng.choice(_KINDS, _GROUPS, p=rng.dirichlet(np.full(_KINDS, 2.0)))[group_of]
    vectors = np.sqrt(kind) * level[0][kind_of]
    vectors += np.sqrt(group) * level[1][group_of]
    vectors += np.sqrt(siblings) * level[2][siblings_of]
    vectors += np.sqrt(max(1.0 - kind - group - siblings, 0.0)) * level[3]
    # Long vectors win more often than real classes do: keep a quarter of how lengths vary.
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) ** 0.75 * _DIMENSIONS**0.125
    likeness = vectors @ vectors.T
    np.fill_diagonal(likeness, -np.inf)
    return vectors.astype(np.float32), np.argsort(-likeness, axis=1)[:, :_NEIGHBOURS]


@lru_cache(maxsize=1)
def _class_directions() -> NDArray[np.float64]:
    return np.random.default_rng([_STRUCTURE_SEED, 1]).standard_normal(CLASSES)

"""Binary calibration problems whose true calibration error is known, beyond the paper's logistic ones.

Every kind of problem comes several times, with other numbers. The default estimator, its test and its interval were
designed on the first three parts, and the odds of the estimator's models chosen on the first four. The ``fifth`` part
was written down when that was finished and run once. (The fourth was, before it, for the former odds.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mixnmatch.experiments import synthetic

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]
POOL = 400_000
PARTS = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True)
class Case:
    """A distribution of confidences and the probability of the event given the confidence."""

    name: str
    part: str
    draw: Draw
    probability: Callable[[Floats], Floats]

    def samples(self, n: int, repetitions: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.int8]]:
        """Confidences and outcomes, one sample of size n a row."""
        z = self.draw(rng, (repetitions, n))
        return z, (rng.random(z.shape) < self.probability(z)).astype(np.int8)

    def truth(self, norm: int = 1) -> float:
        """The calibration error, by a mean over many confidences."""
        z = self.draw(np.random.default_rng(20), (1, 5 * POOL))
        return float(np.mean(np.abs(self.probability(z) - z) ** norm))


def sigmoid(x: Floats) -> Floats:
    """Logistic function."""
    return np.asarray(1 / (1 + np.exp(-x)))


def log_odds(z: Floats) -> Floats:
    """Log-odds, finite also for confidences of 0 and 1."""
    inside = np.clip(z, 1e-7, 1 - 1e-7)
    return np.asarray(np.log(inside / (1 - inside)))


def uniform(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Confidences spread evenly."""
    return rng.random(shape)


def beta(a: float, b: float) -> Draw:
    """Confidences of a beta distribution."""
    return lambda rng, shape: rng.beta(a, b, shape)


def wave(periods: int, height: float = 0.1) -> Callable[[Floats], Floats]:
    """A sine around the diagonal."""
    return lambda z: np.asarray(z + height * np.sin(2 * np.pi * periods * z))


def stairs(edges: list[float], values: list[float]) -> Callable[[Floats], Floats]:
    """A step function."""
    return lambda z: np.asarray(values)[np.searchsorted(edges, z)]


def twenty(
    seed: int, height: float, *, noise: float = 0.0, even: bool = True
) -> tuple[Draw, Callable[[Floats], Floats]]:
    """Twenty values of the confidence, each with a deviation of its own; ``noise`` spreads the confidences a little."""
    rng = np.random.default_rng(seed)
    values = (np.arange(20) + 0.5) / 20
    truth = np.clip(values + height * rng.standard_normal(20), 0.0, 1.0)
    masses = np.full(20, 0.05) if even else rng.dirichlet(np.full(20, 2.0))

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        z = values[rng.choice(20, shape, p=masses)]
        return np.asarray(z + noise * rng.uniform(-1, 1, shape))

    def probability(z: Floats) -> Floats:
        index = np.clip((z * 20).astype(int), 0, 19)
        return np.asarray(np.clip(z + truth[index] - values[index], 0.0, 1.0))

    return draw, probability


def discrete(probability: Callable[[Floats], Floats], a: float, b: float) -> tuple[Draw, Callable[[Floats], Floats]]:
    """Confidences rounded to twenty values, and a smooth truth."""
    return (lambda rng, shape: np.clip(np.floor(20 * rng.beta(a, b, shape)), 0, 19) / 20 + 0.025), probability


def mixture(
    parts: list[tuple[float, float, float, Callable[[Floats], Floats]]],
) -> tuple[Draw, Callable[[Floats], Floats]]:
    """Groups of samples (share, two parameters of a beta distribution, truth) that only the confidence tells apart."""
    from scipy.stats import beta as distribution

    shares = np.array([part[0] for part in parts])

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        group = rng.choice(len(parts), shape, p=shares)
        a, b = (np.array([part[k] for part in parts])[group] for k in (1, 2))
        return np.asarray(rng.beta(a, b))

    nodes = (np.arange(4000) + 0.5) / 4000
    weight = np.array([part[0] * distribution.pdf(nodes, part[1], part[2]) for part in parts])
    curve = sum(w * part[3](nodes) for w, part in zip(weight, parts, strict=True)) / weight.sum(axis=0)
    return draw, lambda z: np.interp(z, nodes, curve)


def pooled(z: Floats, probability: Callable[[Floats], Floats]) -> tuple[Draw, Callable[[Floats], Floats]]:
    """Confidences drawn from a list."""
    return (lambda rng, shape: z[rng.integers(0, len(z), shape)]), probability


def many_classes(scale: float, temperature: float, seed: int) -> tuple[Draw, Callable[[Floats], Floats]]:
    """Top label of 1000 classes with normal logits that are ``temperature`` times too sharp.

    The truth at a confidence is the mean over logits with about that confidence (400 groups of equal size).
    """
    rng = np.random.default_rng(seed)
    confidence, truth = [], []
    for _ in range(40):
        logits = scale * rng.standard_normal((1000, 1000)) * rng.uniform(0.5, 1.5, (1000, 1))
        gaps = logits - logits.max(axis=1, keepdims=True)
        confidence.append(1 / np.exp(gaps).sum(axis=1))
        truth.append(1 / np.exp(gaps / temperature).sum(axis=1))
    z, p = np.concatenate(confidence), np.concatenate(truth)
    order = np.argsort(z)
    centres, means = z[order].reshape(400, -1).mean(axis=1), p[order].reshape(400, -1).mean(axis=1)
    return pooled(z, lambda at: np.interp(at, centres, means))


def real(folder: Path, name: str) -> tuple[Draw, Callable[[Floats], Floats]]:
    """Confidences of a real model, and the truth a smooth curve fitted to its labels.

    The curve is logistic regression on a cubic spline of the log-odds (6 knots at quantiles). Two classes: the second;
    more: the top label.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer

    file = np.load(folder / f"{name}.npz")
    if "top5_probs" in file:
        z, hit = file["top5_probs"][:, 0].astype(np.float64), file["top5_classes"][:, 0] == file["labels"]
    else:
        p = file["probs"].astype(np.float64) if "probs" in file else np.exp(file["logits"].astype(np.float64))
        p /= p.sum(axis=1, keepdims=True)
        binary = p.shape[1] == 2
        z = p[:, 1] if binary else p.max(axis=1)
        hit = file["labels"] == (1 if binary else p.argmax(axis=1))
    z = np.clip(z, 0.0, 1.0)
    spline = SplineTransformer(n_knots=6, degree=3, knots="quantile")
    model = make_pipeline(spline, LogisticRegression(C=10.0, max_iter=1000))
    model.fit(log_odds(z)[:, None], hit)
    order = np.unique(z)
    fitted = model.predict_proba(log_odds(order)[:, None])[:, 1]
    return pooled(z, lambda at: np.interp(at, order, fitted))


def logistic(case: synthetic.Case) -> tuple[Draw, Callable[[Floats], Floats]]:
    """A case of the paper's synthetic study."""
    return (
        lambda rng, shape: synthetic.draw(case, shape[1], shape[0], rng)[0],
        lambda z: synthetic.calibration_function(z, case),
    )


def rare(low: float, high: float) -> Draw:
    """Small confidences, spread evenly in their logarithm (to base 10)."""
    return lambda rng, shape: 10 ** rng.uniform(low, high, shape)


def nearly_sure(low: float, high: float) -> Draw:
    """Confidences close to 1, spread evenly in the logarithm of what is missing."""
    return lambda rng, shape: 1 - 10 ** rng.uniform(low, high, shape)


def calibrated(z: Floats) -> Floats:
    """The diagonal."""
    return z


def cases(logits: Path | None = None) -> list[Case]:
    """All cases; those on real outputs only with the folder that holds them."""
    first: list[tuple[str, tuple[Draw, Callable[[Floats], Floats]]]] = [
        ("logistic (0.5, -1.5)", logistic((0.5, -1.5))),
        ("logistic (0, -2), calibrated", logistic((0.0, -2.0))),
        ("logistic (0, -4)", logistic((0.0, -4.0))),
        ("half slope", (uniform, lambda z: 0.25 + 0.5 * z)),
        ("one step", (uniform, stairs([0.5], [0.25, 0.75]))),
        ("sine, 1 period", (uniform, wave(1))),
        ("sine, 3 periods", (uniform, wave(3))),
        ("20 values, smooth", discrete(lambda z: z**1.3, 1.0, 1.0)),
        ("20 values, jittered", twenty(1, 0.1)),
        ("99.9% accuracy", (nearly_sure(-4, -2), lambda z: np.full(z.shape, 0.999))),
        ("rare events, three times", (rare(-4, -2), lambda z: 3 * z)),
        ("Beta(.5, .5), overconfident", (beta(0.5, 0.5), lambda z: sigmoid(0.7 * log_odds(z)))),
        ("mixture of 2", mixture([(0.5, 8, 2, lambda z: z**3), (0.5, 2, 5, calibrated)])),
        ("1000 classes, sharp", many_classes(4.0, 1.6, 1)),
    ]
    second: list[tuple[str, tuple[Draw, Callable[[Floats], Floats]]]] = [
        ("logistic (0.2, -1.9)", logistic((0.2, -1.9))),
        ("logistic (1, -1)", logistic((1.0, -1.0))),
        ("logistic (0, -1.2)", logistic((0.0, -1.2))),
        ("offset", (beta(2, 3), lambda z: np.clip(z + 0.05, 0, 1))),
        ("stairs of 4", (beta(1.5, 1.5), stairs([0.2, 0.5, 0.7], [0.05, 0.4, 0.5, 0.9]))),
        ("sine, 2 periods", (beta(1.5, 1.5), wave(2, 0.08))),
        (
            "sine, 3 periods, top label",
            (lambda rng, shape: 0.5 + 0.5 * rng.random(shape), lambda z: z + 0.05 * np.sin(6 * np.pi * (2 * z - 1))),
        ),
        ("20 values, calibrated", discrete(calibrated, 1.0, 2.0)),
        ("20 values, jittered, spread", twenty(2, 0.08, noise=0.01, even=False)),
        ("99.9% accuracy, tail", mixture([(0.97, 600, 1, calibrated), (0.03, 5, 1, lambda z: 0.8 + 0.2 * z)])),
        ("rare events, half", (beta(0.5, 30), lambda z: 0.5 * z)),
        ("Beta(.5, .5), calibrated", (beta(0.5, 0.5), calibrated)),
        (
            "mixture of 3",
            mixture([(0.4, 20, 20, lambda z: 1 - z), (0.3, 1, 9, calibrated), (0.3, 9, 1, lambda z: z**2)]),
        ),
        ("1000 classes, blunt", many_classes(2.5, 0.8, 2)),
    ]
    third: list[tuple[str, tuple[Draw, Callable[[Floats], Floats]]]] = [
        ("logistic (0.8, -1.6)", logistic((0.8, -1.6))),
        ("logistic (-0.3, -2.3)", logistic((-0.3, -2.3))),
        ("logistic (0, -3)", logistic((0.0, -3.0))),
        ("slope of 0.7", (uniform, lambda z: 0.15 + 0.7 * z)),
        ("stairs of 3", (beta(1.0, 1.3), stairs([0.3, 0.65], [0.2, 0.4, 0.85]))),
        ("sine, 4 periods", (beta(1.2, 1.2), wave(4, 0.07))),
        (
            "sine, 2 periods, top label",
            (
                lambda rng, shape: 0.3 + 0.7 * rng.beta(2.0, 1.0, shape),
                lambda z: z + 0.05 * np.sin(4 * np.pi * (z - 0.3) / 0.7) * (1 - z) ** 0.5,
            ),
        ),
        ("20 values, square root", discrete(lambda z: z**0.75, 1.5, 1.0)),
        ("20 values, jittered, uneven", twenty(3, 0.12, even=False)),
        ("99.8% accuracy", (nearly_sure(-5, -1.5), lambda z: np.full(z.shape, 0.998))),
        ("rare events, twice", (rare(-3.5, -1.5), lambda z: 2 * z)),
        ("Beta(.5, .5), underconfident", (beta(0.5, 0.5), lambda z: sigmoid(1.4 * log_odds(z)))),
        ("Beta(3, 1), calibrated", (beta(3, 1), calibrated)),
        ("mixture of 2, overlapping", mixture([(0.6, 6, 1.5, lambda z: z**2), (0.4, 3, 8, lambda z: z**0.5)])),
        ("1000 classes, in between", many_classes(3.2, 1.25, 3)),
    ]
    fourth: list[tuple[str, tuple[Draw, Callable[[Floats], Floats]]]] = [
        ("logistic (0.4, -1.1)", logistic((0.4, -1.1))),
        ("logistic (-0.6, -2.6)", logistic((-0.6, -2.6))),
        ("logistic (0, -1.6)", logistic((0.0, -1.6))),
        ("double slope", (beta(2, 2), lambda z: np.clip(2 * z - 0.5, 0.0, 1.0))),
        ("offset down", (beta(3, 2), lambda z: np.clip(z - 0.07, 0.0, 1.0))),
        ("stairs of 5", (uniform, stairs([0.15, 0.35, 0.6, 0.8], [0.1, 0.2, 0.55, 0.6, 0.95]))),
        ("one step, top label", (lambda rng, shape: 0.4 + 0.6 * rng.random(shape), stairs([0.75], [0.55, 0.85]))),
        ("sine, 5 periods", (uniform, wave(5, 0.08))),
        ("sine, half a period", (beta(1.5, 3), lambda z: z + 0.06 * np.sin(np.pi * z))),
        ("20 values, squared", discrete(lambda z: z**1.6, 2.0, 1.0)),
        ("20 values, jittered, small", twenty(4, 0.06)),
        ("99.5% accuracy", (nearly_sure(-4, -1.3), lambda z: 1 - 0.5 * (1 - z) - 0.003)),
        ("rare events, a third", (beta(0.4, 15), lambda z: z / 3)),
        ("Beta(.3, .6), overconfident", (beta(0.3, 0.6), lambda z: sigmoid(0.6 * log_odds(z)))),
        ("Beta(1, 4), calibrated", (beta(1, 4), calibrated)),
        ("mixture of 2, apart", mixture([(0.3, 12, 3, lambda z: 0.9 * z), (0.7, 2, 9, lambda z: 1.6 * z)])),
        ("mixture of 2, reversed", mixture([(0.5, 5, 5, lambda z: 0.5 + 0 * z), (0.5, 7, 2, lambda z: z**1.7)])),
        ("1000 classes, a little sharp", many_classes(2.8, 1.12, 4)),
    ]
    fifth: list[tuple[str, tuple[Draw, Callable[[Floats], Floats]]]] = [
        ("logistic (0.3, -1.4)", logistic((0.3, -1.4))),
        ("logistic (-0.4, -1.8)", logistic((-0.4, -1.8))),
        ("logistic (0, -2.5)", logistic((0.0, -2.5))),
        ("slope of 1.4", (beta(1.5, 2), lambda z: np.clip(1.4 * z - 0.2, 0.0, 1.0))),
        ("offset, uneven", (beta(1, 2), lambda z: np.clip(z + 0.08 * (1 - z), 0.0, 1.0))),
        ("stairs of 2", (beta(2, 1.5), stairs([0.6], [0.35, 0.75]))),
        ("stairs of 6", (uniform, stairs([0.1, 0.3, 0.45, 0.6, 0.85], [0.04, 0.15, 0.45, 0.5, 0.65, 0.97]))),
        ("sine, 1.5 periods", (beta(1, 1.5), lambda z: z + 0.09 * np.sin(3 * np.pi * z) * (z * (1 - z)) ** 0.25)),
        (
            "sine, 4 periods, top label",
            (
                lambda rng, shape: 0.4 + 0.6 * rng.random(shape),
                lambda z: z + 0.06 * np.sin(40 / 3 * np.pi * (z - 0.4)),
            ),
        ),
        ("20 values, sigmoid", discrete(lambda z: sigmoid(1.3 * log_odds(z) + 0.2), 1.0, 1.5)),
        ("20 values, jittered, top", twenty(5, 0.09, noise=0.02)),
        ("99.7% accuracy", (nearly_sure(-4.5, -1.5), lambda z: 1 - 3 * (1 - z) ** 1.2)),
        ("rare events, half as often again", (rare(-3, -1.3), lambda z: 1.5 * z)),
        ("Beta(.6, .4), overconfident", (beta(0.6, 0.4), lambda z: sigmoid(0.75 * log_odds(z) - 0.2))),
        ("Beta(4, 1.5), calibrated", (beta(4, 1.5), calibrated)),
        ("mixture of 2, flat", mixture([(0.6, 4, 4, lambda z: 0.3 + 0.4 * z), (0.4, 10, 2, lambda z: z**1.5)])),
        (
            "mixture of 3, spread",
            mixture([(0.3, 2, 8, lambda z: 1.3 * z), (0.4, 6, 6, lambda z: z**1.2), (0.3, 12, 2, calibrated)]),
        ),
        ("1000 classes, very sharp", many_classes(3.6, 1.4, 5)),
    ]
    if logits is not None:
        fifth += [
            ("Wide ResNet, CIFAR-100 (b)", real(logits, "focalcal_cifar100_wide_resnet_test")),
            ("ResNet 50, CIFAR-10", real(logits, "linwei_cifar10_resnet50_ce_test")),
            ("VGG 19, CIFAR-100", real(logits, "luferrer_cifar100_vgg19_bn")),
            ("fine-tuned network, 20 Newsgroups", real(logits, "labelerrors_20news")),
            ("Qwen-VL, OOD-CV", real(logits, "vlm_oodcv_Qwen-VL-Chat")),
            ("LeNet, CIFAR-10", real(logits, "netcal_lenet-5-cifar-10")),
        ]
        fourth += [
            ("DenseNet 121, CIFAR-10", real(logits, "focalcal_cifar10_densenet121_test")),
            ("ResNet 110, CIFAR-100", real(logits, "focalcal_cifar100_resnet110_test")),
            ("AlexNet, ImageNet", real(logits / "imagenet_top5", "alexnet_pytorch")),
            ("AdaBoost, MNIST", real(logits, "pycalib_mnist_AdaBoost")),
            ("ResNet 50, PathMNIST", real(logits, "luferrer_pathmnist_resnet50")),
            ("LLaVA, MMBench", real(logits, "vlm_mmbench_llava-v1.6-34b")),
        ]
        third += [
            ("Wide ResNet, CIFAR-10", real(logits, "focalcal_cifar10_wide_resnet_test")),
            ("LeNet, CIFAR-100", real(logits, "netcal_lenet-5-cifar-100")),
            ("DenseNet 161, ImageNet", real(logits / "imagenet_top5", "densenet161_pytorch")),
            ("Xception, ImageNet", real(logits / "imagenet_top5", "xception_keras")),
            ("GPT-2, AG News", real(logits, "luferrer_agnews_gpt2")),
            ("XGBoost, MNIST", real(logits, "pycalib_mnist_XGBoost")),
        ]
        first += [
            ("DenseNet, CIFAR-100", real(logits, "netcal_densenet-bc-100-cifar-100")),
            ("ResNet 110, CIFAR-10", real(logits, "focalcal_cifar10_resnet110_test")),
            ("ResNet 50, ImageNet", real(logits / "imagenet_top5", "resnet50_pytorch")),
            ("IMDB, two classes", real(logits, "labelerrors_imdb")),
        ]
        second += [
            ("Wide ResNet, CIFAR-100", real(logits, "netcal_wideresnet-16-4-cifar-100")),
            ("random forest, MNIST", real(logits, "pycalib_mnist_random_forest")),
            ("VGG 19, ImageNet", real(logits / "imagenet_top5", "vgg19_pytorch")),
            ("XGBoost, KITTI", real(logits, "pycalib_kitti_XGBoost")),
        ]
    parts = zip(PARTS, (first, second, third, fourth, fifth), strict=True)
    return [Case(name, part, *made) for part, listed in parts for name, made in listed]

"""What the five largest probabilities of a classifier of many classes say: real and simulated ones are compared by it.

Every statistic but the shares of partners has the same expectation at every number of images: spreads between classes
are taken over pairs of images of one class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.passes import run_blocks

__all__ = ["TopFive", "confusion_shares", "label_statistics", "reliability", "score_statistics"]

Floats = NDArray[np.float64]

QUANTILES: Final = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
PARTNERS: Final = (1, 2, 5, 10, 20)
# Bins of the probability at ranks 1 and 2, narrow where it is near 1 and near 0.
CONFIDENCE_EDGES: Final = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0)
SECOND_EDGES: Final = (0.0, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5)
_BLOCK: Final = 2048
_SMALLEST: Final = 1e-18  # of a probability, before its logarithm is taken


@dataclass(frozen=True)
class TopFive:
    """The five largest probabilities of each image, descending, their classes, and whether each is the label.

    `hits` are 0 and 1, or the true probabilities where these are known.
    """

    probabilities: Floats
    classes: NDArray[np.int64]
    hits: Floats

    @classmethod
    def from_file(cls, file: Mapping[str, NDArray[np.generic]]) -> TopFive:
        """From the arrays ``top5_probs``, ``top5_classes`` and ``labels``."""
        classes = np.asarray(file["top5_classes"]).astype(np.int64)
        labels = np.asarray(file["labels"]).astype(np.int64)
        hits = (classes == labels[:, None]).astype(np.float64)
        return cls(np.asarray(file["top5_probs"]).astype(np.float64), classes, hits)

    @classmethod
    def from_logits(cls, logits: NDArray[np.float32], labels: NDArray[np.int64]) -> TopFive:
        """From all logits."""
        probabilities = np.empty((len(logits), 5))
        classes = np.empty((len(logits), 5), dtype=np.int64)

        def fill(start: int, stop: int) -> None:
            block = logits[start:stop]
            five = np.argpartition(block, -5, axis=1)[:, -5:]
            values = np.take_along_axis(block, five, axis=1).astype(np.float64)
            order = np.argsort(-values, axis=1)
            values = np.take_along_axis(values, order, axis=1)
            total = np.exp(block - values[:, :1].astype(np.float32)).sum(axis=1, dtype=np.float64)
            classes[start:stop] = np.take_along_axis(five, order, axis=1)
            probabilities[start:stop] = np.exp(values - values[:, :1]) / total[:, None]

        ranges = [(start, min(start + _BLOCK, len(logits))) for start in range(0, len(logits), _BLOCK)]
        for _ in run_blocks(fill, ranges):
            pass
        return cls(probabilities, classes, (classes == labels[:, None]).astype(np.float64))


def score_statistics(top: TopFive) -> dict[str, float]:
    """Statistics of the scores alone: confidence, the probabilities after it and who is confused with whom."""
    p, classes = top.probabilities, top.classes
    beyond = np.maximum(1.0 - p.sum(axis=1), 0.0)
    odds = np.log(p[:, 0] / np.maximum(1.0 - p[:, 0], 1e-7))
    gaps = -np.diff(np.log(np.maximum(p, _SMALLEST)), axis=1)
    found = {f"log-odds of the confidence, quantile {q:g}": float(np.quantile(odds, q)) for q in QUANTILES}
    found |= {f"mean probability at rank {k + 1}": float(p[:, k].mean()) for k in range(5)}
    found["mean probability beyond rank 5"] = float(beyond.mean())
    for q in (0.25, 0.5, 0.75, 0.9):
        found[f"log of the probability beyond rank 5, quantile {q:g}"] = float(np.log(np.quantile(beyond, q) + 1e-4))
    for k in range(1, 4):
        found[f"log ratio of ranks {k + 1} and {k + 2}, mean"] = float(gaps[:, k].mean())
        found[f"log ratio of ranks {k + 1} and {k + 2}, sd"] = float(gaps[:, k].std())
    for k in (1, 2, 4):
        found[f"same class at rank {k + 1} given that at rank 1"] = _coincidence(classes[:, 0], classes[:, k])
    counts = np.bincount(classes[:, 0]).astype(np.float64)
    excess = 1000 * (counts * (counts - 1)).sum() / (len(p) * (len(p) - 1)) - 1
    found["spread of how often classes are on top"] = float(np.sqrt(max(excess, 0.0)))
    return found


def label_statistics(top: TopFive) -> dict[str, float]:
    """Statistics that need the labels: shares of the ranks, and how gaps vary between predicted classes."""
    found = {f"label at rank {k + 1}": float(top.hits[:, k].mean()) for k in range(5)}
    found["label among the five"] = float(top.hits.sum(axis=1).mean())
    gaps = top.hits[:, 0] - top.probabilities[:, 0]
    gaps = gaps - gaps.mean()
    predicted = top.classes[:, 0]
    counts = np.bincount(predicted).astype(np.float64)
    products = np.bincount(predicted, gaps) ** 2 - np.bincount(predicted, gaps**2)
    covariance = products.sum() / (counts * (counts - 1)).sum()
    found["sd of accuracy less confidence between classes"] = float(np.sqrt(max(covariance, 0.0)))
    return found


def reliability(top: TopFive, rank: int = 1) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Mean probability at a rank, share of hits and number of images, in bins of the probability."""
    edges = np.asarray(CONFIDENCE_EDGES if rank == 1 else SECOND_EDGES)
    p, hits = top.probabilities[:, rank - 1], top.hits[:, rank - 1]
    bins = np.clip(np.searchsorted(edges, p, side="right") - 1, 0, len(edges) - 2)
    counts = np.bincount(bins, minlength=len(edges) - 1)
    with np.errstate(invalid="ignore"):
        means = np.bincount(bins, p, minlength=len(edges) - 1) / counts
        shares = np.bincount(bins, hits, minlength=len(edges) - 1) / counts
    return means, shares, counts


def confusion_shares(top: TopFive) -> dict[str, float]:
    """Share of the probability at ranks 2 to 5 on the heaviest partners of the top class, averaged over classes."""
    classes = int(top.classes.max()) + 1
    weight = np.zeros((classes, classes))
    for k in range(1, 5):
        np.add.at(weight, (top.classes[:, 0], top.classes[:, k]), top.probabilities[:, k])
    weight = weight[weight.sum(axis=1) > 0]
    ordered = -np.sort(-weight, axis=1)
    shares = (ordered / ordered.sum(axis=1, keepdims=True)).cumsum(axis=1).mean(axis=0)
    return {f"share of the {k} heaviest partners": float(shares[min(k, classes) - 1]) for k in PARTNERS}


def _coincidence(first: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Probability that two images with the same first class agree in the other."""
    together = np.unique(first * (other.max() + 1) + other, return_counts=True)[1].astype(np.float64)
    alone = np.bincount(first).astype(np.float64)
    return float((together * (together - 1)).sum() / (alone * (alone - 1)).sum())

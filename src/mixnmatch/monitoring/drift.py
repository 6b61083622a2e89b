"""Does an evaluation set look like the calibration set? Two-sample tests on scores, by class."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixnmatch._engine.block import Block
from mixnmatch.evaluation._means import finite
from mixnmatch.maps.class_order import rows_for
from mixnmatch.maps.summary import CELLS, cells

Floats = NDArray[np.float64]

# Cells are joined until each of the two samples is expected to have this many samples in a cell.
LEAST_EXPECTED = 5.0
# Differences below this p-value, corrected for the number of classes, are reported.
SIGNIFICANCE = 0.01


@dataclass(frozen=True)
class Difference:
    """A two-sample test on binned scores.

    Attributes
    ----------
    name : str or int
        The class.
    p_value : float
        Of the chi-squared test; 1 if there are too few samples.
    distance : float
        Total variation distance of the two binned distributions, from 0 to 1; NaN if there are too few samples.
    n_samples : float
        Weight of the new samples.
    """

    name: Any
    p_value: float
    distance: float
    n_samples: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self) | {"distance": finite(self.distance)}


@dataclass(frozen=True)
class ScoreDrift:
    """How new scores differ from those of the calibration set.

    Attributes
    ----------
    overall : Difference
        Of all scores together, labels left out.
    frequencies : Difference or None
        Of the class frequencies, if there are labels.
    by_class : tuple of Difference
        Of the scores of the samples of each class, if there are labels.
    """

    overall: Difference
    frequencies: Difference | None
    by_class: tuple[Difference, ...]

    @property
    def different_classes(self) -> tuple[Difference, ...]:
        """Classes whose scores differ, by Holm's procedure, the smallest p-value first."""
        order = sorted(self.by_class, key=lambda each: each.p_value)
        found = []
        for place, each in enumerate(order):
            if each.p_value * (len(order) - place) >= SIGNIFICANCE:
                break
            found.append(each)
        return tuple(found)

    @property
    def different(self) -> bool:
        """Whether anything differs."""
        tests = [self.overall] if self.frequencies is None else [self.overall, self.frequencies]
        return any(test.p_value < SIGNIFICANCE / 2 for test in tests) or bool(self.different_classes)

    @property
    def message(self) -> str:
        """What differs, in a sentence or two; empty if nothing does."""
        if not self.different:
            return ""
        start = "These samples do not look like the calibration set of the map"
        classes = self.different_classes
        if classes:
            shown = ", ".join(f"{each.name} (distance {each.distance:.2f})" for each in classes[:5])
            more = f" and {len(classes) - 5} more" if len(classes) > 5 else ""
            return f"{start}: scores differ within class {shown}{more}. The map may not fit them; consider a refit."
        if self.frequencies is not None and self.frequencies.p_value < SIGNIFICANCE / 2:
            return (
                f"{start}: the class frequencies differ (distance {self.frequencies.distance:.2f}), scores within the "
                "classes do not. Consider adapting the map to the new frequencies."
            )
        return f"{start}: the distribution of the scores differs (distance {self.overall.distance:.2f})."

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "different": self.different,
            "message": self.message,
            "overall": self.overall.to_dict(),
            "frequencies": None if self.frequencies is None else self.frequencies.to_dict(),
            "by_class": [each.to_dict() for each in self.by_class],
        }


def score_drift(fitted: Any, scores: Any, labels: Any = None, *, sample_weight: Any = None) -> ScoreDrift | None:
    r"""Test whether scores come from the same distribution as those of a map's calibration set.

    Parameters
    ----------
    fitted : CalibrationMap
        The map. It remembers a histogram of its calibration set for each class.
    scores : array of shape (n, L) or (n,)
        New scores, as the map takes them.
    labels : array of shape (n,), optional
        True classes. With labels, scores are compared within each class, too.
    sample_weight : array of shape (n,), optional
        Frequencies of the samples.

    Returns
    -------
    ScoreDrift, or None if the map does not remember its calibration set (one from a file of an older version)

    Notes
    -----
    Scores are binned by the log-odds of the calibrated probability, of the positive class for two classes and of the
    largest probability for more. With weights :math:`c_b` and :math:`e_b` in bin b, of sums :math:`n_c` and
    :math:`n_e`, :math:`\sum_b (\sqrt{n_e/n_c}\,c_b - \sqrt{n_c/n_e}\,e_b)^2 / (c_b + e_b)` has a chi-squared
    distribution if nothing has changed. Sparse bins are joined with their neighbours.
    """
    summary = getattr(fitted, "summary_", None)
    if summary is None:
        return None
    given = rows_for(fitted, scores, labels, sample_weight)
    counts = given.total(_cell_counts, fitted)
    test = _difference("all", summary.counts.sum(axis=0), counts.sum(axis=0))
    if given.labels is None:
        return ScoreDrift(test, None, ())
    frequencies = _difference("frequencies", summary.counts.sum(axis=1), counts.sum(axis=1))
    by_class = tuple(
        _difference(name.item() if hasattr(name, "item") else name, before, now)
        for name, before, now in zip(fitted.classes_, summary.counts, counts, strict=True)
    )
    return ScoreDrift(test, frequencies, by_class)


def _cell_counts(block: Block, fitted: Any) -> Floats:
    """Weight of the samples of a block by cells of log-odds, for each class if there are labels."""
    p = np.empty(block.values.shape, block.values.dtype)
    fitted._proba_into(block, p)
    place = cells(p) if block.labels is None else cells(p) + CELLS * block.labels
    rows = 1 if block.labels is None else p.shape[1]
    return np.bincount(place, block.weight, minlength=rows * CELLS).astype(np.float64).reshape(rows, CELLS)


def _difference(name: Any, before: Floats, now: Floats) -> Difference:
    from scipy.special import chdtrc

    total_before, total_now = float(before.sum()), float(now.sum())
    if total_before <= 0 or total_now <= 0:
        return Difference(name, 1.0, float("nan"), total_now)
    before, now = _joined(before, now)
    if len(before) < 2:
        return Difference(name, 1.0, float("nan"), total_now)
    ratio = np.sqrt(total_now / total_before)
    statistic = (np.square(ratio * before - now / ratio) / (before + now)).sum()
    distance = 0.5 * float(np.abs(before / total_before - now / total_now).sum())
    return Difference(name, float(chdtrc(len(before) - 1, statistic)), distance, total_now)


def _joined(before: Floats, now: Floats) -> tuple[Floats, Floats]:
    """Neighbouring cells joined until both samples are expected to have enough in each."""
    smaller = min(before.sum(), now.sum()) / (before.sum() + now.sum())
    pairs: list[tuple[float, float]] = []
    a = b = 0.0
    for first, second in zip(before.tolist(), now.tolist(), strict=True):
        a, b = a + first, b + second
        if (a + b) * smaller >= LEAST_EXPECTED:
            pairs.append((a, b))
            a = b = 0.0
    if (a or b) and pairs:
        last = pairs.pop()
        pairs.append((last[0] + a, last[1] + b))
    table = np.array(pairs).reshape(-1, 2)
    return table[:, 0], table[:, 1]

"""Bins of equal mass: found in passes over the rows they are those of the sorted scores, exactly."""

import numpy as np
import pytest

from mixnmatch import OneVsAll, Pooled
from mixnmatch.maps import BayesianBinning, HistogramBinning, binary_scores

from ..conftest import make_problem, softmax

MAPS = [
    OneVsAll(HistogramBinning()),
    OneVsAll(HistogramBinning(bins=1)),
    Pooled(HistogramBinning(bins=150)),  # more bins than distinct scores where those are rounded
    OneVsAll(BayesianBinning()),
    Pooled(BayesianBinning()),
]


@pytest.mark.parametrize("kind", ["float64", "float32", "ties", "weights"])
@pytest.mark.parametrize("map_", MAPS, ids=repr)
def test_passes_find_the_same_bins_as_sorting(monkeypatch, map_, kind):
    for n_classes in (2, 4):
        logits, y = make_problem(200, n_classes, seed=n_classes)
        p = softmax(logits)
        weight = np.arange(200) % 4 if kind == "weights" else None
        if kind == "ties":
            p = np.round(p, 1) / np.round(p, 1).sum(axis=1, keepdims=True)
        if kind == "float32":
            p = p.astype(np.float32)
        monkeypatch.undo()
        expected = map_.fit(p, y, weight).predict_proba(p)
        monkeypatch.setattr(binary_scores, "SORTED_ENTRIES", 650)  # three of the four problems at a time
        np.testing.assert_array_equal(map_.fit(p, y, weight).predict_proba(p), expected)
        monkeypatch.setattr(binary_scores, "SORTED_ENTRIES", 0)
        for cells in (1 << 20, 1 << 6):  # many bits a pass, and few
            monkeypatch.setattr(binary_scores, "CELLS", cells)
            np.testing.assert_array_equal(map_.fit(p, y, weight).predict_proba(p), expected)

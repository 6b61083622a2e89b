"""Fitted maps and awkward rows that the tests of exports share."""

from functools import cache

import numpy as np

import mixnmatch as mm
from tests.conftest import make_problem, softmax

NAMES = [line.name for line in mm.calibrators()]
# What takes longest to fit, and is tried with one number of classes.
SLOW = ("auto", "bcts-auto", "gpc", "matrix", "dirichlet", "ensemble-beta", "ensemble-platt")
CASES = [(name, 3, logits) for name in NAMES for logits in (False, True)] + [
    (name, classes, False) for name in NAMES for classes in (2, 10) if name not in SLOW
]


def calibration_set(n_classes, logits, n=240):
    """Float32 scores of which the first rows are awkward, and labels."""
    scores, y = make_problem(n, n_classes, dtype=np.float32)
    scores = scores if logits else softmax(scores).astype(np.float32)
    rows = awkward(n_classes, logits)
    scores[: len(rows)] = rows
    y[: len(rows)] = rows.argmax(axis=1)
    return scores, y


def awkward(n_classes, logits):
    """Rows with exact zeros and ones, ties, near-ties, numbers close to zero, and (logits) huge ones."""
    one = np.eye(n_classes)[0]
    even = np.full(n_classes, 1 / n_classes)
    two = np.eye(n_classes)[[0, -1]].sum(axis=0) / 2
    small = np.full(n_classes, 1e-30)
    small[-1] = 1
    rows = np.stack([one, one[::-1], even, two, 0.5 * even + 0.5 * two, small]).astype(np.float32)
    if logits:
        rows = np.concatenate([rows, 1e4 * rows, -1e4 * rows, 0 * rows[:1]])
    near = rows[2:4].copy()
    near[:, -1] = np.nextafter(near[:, -1], np.float32(2))  # the last entry leads by one unit in the last place
    return np.concatenate([rows, near])


@cache
def fitted_map(name, n_classes, logits):
    scores, y = calibration_set(n_classes, logits)
    return mm.calibrator(name, logits=logits).fit(scores, y)


def fresh_rows(n_classes, logits, n=200):
    """Scores that the map was not fitted on."""
    scores, _ = make_problem(n, n_classes, seed=1, dtype=np.float32)
    return scores if logits else softmax(scores).astype(np.float32)


def all_rows(n_classes, logits):
    """Rows of the calibration set, which sit on the knots of maps, and fresh ones."""
    return np.concatenate([calibration_set(n_classes, logits)[0], fresh_rows(n_classes, logits)])

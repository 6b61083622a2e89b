"""Data that many tests share."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    deadline=None,
    max_examples=25,
    derandomize=True,  # a run tells of the code, not of its luck; `--hypothesis-seed` tries other examples
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")


def draw_labels(p, rng):
    """One label a row, drawn from the row."""
    return (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1).clip(max=p.shape[1] - 1)


def make_problem(n, n_classes, *, sharpness=2.0, seed=0, dtype=np.float64):
    """Over-confident logits and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, n_classes)) * 1.5
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return (logits * sharpness).astype(dtype), draw_labels(p, rng)


def softmax(logits):
    logits = np.asarray(logits, dtype=np.float64)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def nll(p, y):
    return -np.log(np.asarray(p, dtype=np.float64)[np.arange(len(y)), y]).mean()


def brier(p, y):
    return np.square(np.asarray(p, dtype=np.float64) - np.eye(np.shape(p)[1])[y]).sum(axis=1).mean()


@pytest.fixture(scope="session")
def problem():
    """Logits (400 x 4) and labels."""
    return make_problem(400, 4)

import numpy as np
import pytest

from mixnmatch.evaluation.skce import block_skce, median_distance, skce


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 60)
    return p, rng.integers(0, 4, 60)


def term(p, q, a, b, h, kernel):
    d = 0.5 * np.abs(p - q).sum()
    k = np.exp(-d / h) if kernel == "laplacian" else np.exp(-0.5 * (d / h) ** 2)
    e, f = np.eye(len(p))[a] - p, np.eye(len(p))[b] - q
    return k * (e @ f)


@pytest.mark.parametrize("kernel", ["laplacian", "gaussian"])
def test_quadratic(sample, kernel):
    p, y = sample
    terms = [term(p[i], p[j], y[i], y[j], 0.3, kernel) for i in range(60) for j in range(60) if i != j]
    assert skce(p, y, bandwidth=0.3, kernel=kernel) == pytest.approx(np.mean(terms), rel=1e-10)
    assert block_skce(p, y, block_size=60, bandwidth=0.3, kernel=kernel).value == pytest.approx(np.mean(terms))


def test_blocks(sample):
    p, y = sample
    found = block_skce(p, y, block_size=2, bandwidth=0.3)
    pairs = [term(p[i], p[i + 1], y[i], y[i + 1], 0.3, "laplacian") for i in range(0, 60, 2)]
    assert found.value == pytest.approx(np.mean(pairs))
    assert found.standard_error == pytest.approx(np.std(pairs, ddof=1) / np.sqrt(30))


def test_level_and_power():
    rng = np.random.default_rng(1)
    rejected = {0: 0, 1: 0}
    for _ in range(200):
        p = rng.dirichlet(np.ones(3), 640)
        calibrated = (p.cumsum(axis=1)[:, :-1] < rng.random((640, 1))).sum(axis=1)
        sharp = p**2 / (p**2).sum(axis=1, keepdims=True)
        rejected[0] += block_skce(p, calibrated, bandwidth=0.3).p_value <= 0.05
        rejected[1] += block_skce(sharp, calibrated, bandwidth=0.3).p_value <= 0.05
    assert 0.01 <= rejected[0] / 200 <= 0.10
    assert rejected[1] / 200 > 0.6


def test_median_distance():
    p = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    assert median_distance(p) == pytest.approx(0.5)
    assert median_distance(np.full((5, 3), 1 / 3)) == 1.0
    assert median_distance(p[:1]) == 1.0
    many = np.random.default_rng(0).dirichlet(np.ones(3), 2000)
    assert 0.2 < median_distance(many) < 0.6


def test_float32_and_refusals(sample):
    p, y = sample
    assert skce(p.astype(np.float32), y, bandwidth=0.3) == pytest.approx(skce(p, y, bandwidth=0.3), abs=1e-6)
    with pytest.raises(ValueError, match="pairs of samples"):
        skce(p[:1], y[:1])
    with pytest.raises(ValueError, match="pairs of samples"):
        block_skce(p[:1], y[:1])
    with pytest.raises(ValueError, match="laplacian"):
        skce(p, y, kernel="triweight")
    with pytest.raises(ValueError, match="bandwidth"):
        skce(p, y, bandwidth=-1.0)
    assert np.isnan(block_skce(p, y, block_size=60).p_value)

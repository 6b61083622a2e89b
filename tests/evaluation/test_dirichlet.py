import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import foldnorm

from mixnmatch.evaluation import dirichlet
from mixnmatch.evaluation.dirichlet import choose_width, dirichlet_error, product_kernel_error


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1.0, 2.0, 0.7], 80)
    return p, rng.integers(0, 3, 80)


def direct_dirichlet(p, y, h, norm):
    total = 0.0
    for j in range(len(p)):
        others = [i for i in range(len(p)) if i != j]
        alpha = p[others] / h + 1
        log_k = ((alpha - 1) * np.log(p[j])).sum(1) + gammaln(alpha.sum(1)) - gammaln(alpha).sum(1)
        k = np.exp(log_k - log_k.max())
        pi = k @ np.eye(p.shape[1])[y[others]] / k.sum()
        total += (np.abs(pi - p[j]) ** norm).sum()
    return total / len(p)


@pytest.mark.parametrize("norm", [1, 2])
def test_dirichlet(sample, norm, monkeypatch):
    p, y = sample
    expected = direct_dirichlet(p, y, 0.05, norm)
    assert dirichlet_error(p, y, norm=norm, bandwidth=0.05) == pytest.approx(expected, rel=1e-8)
    monkeypatch.setattr(dirichlet, "PAIRS_A_CHUNK", 200)
    assert dirichlet_error(p, y, norm=norm, bandwidth=0.05) == pytest.approx(expected, rel=1e-8)


def test_dirichlet_weights_are_repetitions(sample):
    p, y = sample
    times = np.arange(80) % 3
    weighted = dirichlet_error(p, y, times.astype(float), bandwidth=0.05)
    repeated = dirichlet_error(np.repeat(p, times, axis=0), np.repeat(y, times), bandwidth=0.05)
    assert weighted == pytest.approx(repeated, rel=1e-9)


def test_width_is_of_largest_likelihood(sample):
    p, _ = sample
    assert dirichlet.WIDTHS[0] < choose_width(p) < dirichlet.WIDTHS[-1]
    assert choose_width(p[:1]) in dirichlet.WIDTHS
    assert choose_width(p, np.ones(80)) == choose_width(p)


def test_zeros_ones_and_one_sample():
    p = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]])
    y = np.array([0, 1, 2, 0])
    for norm in (1, 2):
        assert 0 <= dirichlet_error(p, y, norm=norm) <= 2
        assert 0 <= product_kernel_error(p, y, norm=norm) <= 2
    assert dirichlet_error(p[:1], y[:1]) == 0.0


def direct_product(p, y, h, norm, residual):
    def k(u):
        return np.maximum(1 - (u / (3 * h)) ** 2, 0) ** 3

    target = np.eye(p.shape[1])[y] - (p if residual else 0)
    curve, noise, pairs = np.zeros(p.shape), np.zeros(p.shape), 0.0
    for j in range(len(p)):
        weight = np.ones(len(p))
        for column in range(p.shape[1]):
            a, b = p[j, column], p[:, column]
            weight *= sum(k(a - b + 2 * t) + k(a + b + 2 * t) for t in range(-3, 4))
        weight /= weight.sum()
        curve[j] = weight @ target - (0 if residual else p[j])
        noise[j] = weight**2 @ target**2
        pairs += (1 - weight @ weight) / len(p)
    if not residual:
        return (np.abs(curve) ** norm).sum(axis=1).mean()
    power = max((curve**2 - noise).sum() / len(p) / pairs, 0)
    if norm == 2:
        return power
    signal = power / (power + noise.sum() / len(p))
    folded = foldnorm.mean(np.abs(signal * curve) / np.sqrt(signal * noise), scale=np.sqrt(signal * noise))
    return folded.sum(axis=1).mean() if signal > 0 else 0.0


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("h", [0.1, 0.5])
def test_product_kernel(sample, norm, residual, h):
    p, y = sample
    value = product_kernel_error(p, y, norm=norm, bandwidth=h, residual=residual)
    assert value == pytest.approx(direct_product(p, y, h, norm, residual), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_calibrated_rows_have_little_canonical_error(n_classes):
    rng = np.random.default_rng(4)
    found = []
    for _ in range(10):
        p = rng.dirichlet(np.ones(n_classes), 300)
        y = (p.cumsum(axis=1)[:, :-1] < rng.random((300, 1))).sum(axis=1)
        found.append(product_kernel_error(p, y, residual=True))
    assert np.mean(found) < 0.06


def test_product_kernel_weights_and_refusals(sample):
    p, y = sample
    times = np.arange(80) % 3
    weighted = product_kernel_error(p, y, times.astype(float))
    repeated = product_kernel_error(np.repeat(p, times, axis=0), np.repeat(y, times))
    assert weighted == pytest.approx(repeated, rel=1e-9)
    with pytest.raises(ValueError, match="at most 4 classes"):
        product_kernel_error(np.full((2, 5), 0.2), np.array([0, 1]))
    with pytest.raises(ValueError, match="bandwidth"):
        product_kernel_error(p, y, bandwidth="authors")
    with pytest.raises(ValueError, match="norm"):
        product_kernel_error(p, y, norm=3)
    with pytest.raises(ValueError, match="kernel must be"):
        product_kernel_error(p, y, kernel="box")


def test_estimates_approach_the_truth():
    rng = np.random.default_rng(1)
    q = rng.dirichlet(np.ones(3), 1500)
    y = (q.cumsum(axis=1)[:, :-1] < rng.random((1500, 1))).sum(axis=1)
    p = 0.7 * q + 0.1
    truth = np.abs(p - q).sum(axis=1).mean()
    assert product_kernel_error(p, y, residual=True) == pytest.approx(truth, rel=0.2)
    assert dirichlet_error(p, y) == pytest.approx(truth, rel=0.35)

import numpy as np
import pytest

from mixnmatch.evaluation.estimators import ESTIMATORS, Histogram, KernelDensity, estimator
from mixnmatch.evaluation.notion import Outcomes

ONE_DIMENSIONAL = [name for name, make in ESTIMATORS.items() if make().one_dimensional]


def norms(name):
    return (2,) if name == "histogram-debiased" else ESTIMATORS[name]().norms


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(0)
    z = np.round(rng.beta(2, 1, 300), 3)
    return z, (rng.random(300) < z).astype(np.int8)


@pytest.mark.parametrize("name", ONE_DIMENSIONAL)
def test_shared_properties(name, sample):
    z, y = sample
    found = ESTIMATORS[name]()
    order = np.random.default_rng(1).permutation(300)
    times = np.arange(300) % 3
    for norm in norms(name):
        value = found(Outcomes(z, y), norm)
        assert np.isfinite(value)
        assert value <= 1
        if name != "histogram-debiased":
            assert value >= 0
        assert found(Outcomes(z[order], y[order]), norm) == pytest.approx(value, rel=1e-9, abs=1e-12)
        assert found(Outcomes(z, y, np.ones(300)), norm) == pytest.approx(value, rel=1e-9, abs=1e-12)
        weighted = found(Outcomes(z, y, times.astype(float)), norm)
        repeated = found(Outcomes(np.repeat(z, times), np.repeat(y, times)), norm)
        assert weighted == pytest.approx(repeated, rel=1e-7, abs=1e-10)


@pytest.mark.parametrize("name", ONE_DIMENSIONAL)
@pytest.mark.parametrize(
    ("z", "y"), [([0.3], [1]), ([0.5, 0.5], [0, 1]), ([0.0, 1.0], [0, 1]), ([0.0, 1.0], [1, 0]), ([1.0] * 3, [1] * 3)]
)
def test_degenerate_samples(name, z, y):
    for norm in norms(name):
        value = ESTIMATORS[name]()(Outcomes(np.array(z), np.array(y, dtype=np.int8)), norm)
        assert np.isfinite(value)
        if z == [1.0] * 3:
            assert value == pytest.approx(0, abs=1e-3)


def test_names_and_options():
    assert estimator("kde", bandwidth=0.1) == KernelDensity(bandwidth=0.1)
    assert estimator("histogram", bins=None) == Histogram()
    assert estimator(Histogram(bins=3)) == Histogram(bins=3)
    assert hash(estimator("histogram")) == hash(Histogram())
    with pytest.raises(ValueError, match="estimator must be one of"):
        estimator("ece")
    with pytest.raises(ValueError, match="has no option 'bins'"):
        estimator("kde", bins=3)
    with pytest.raises(ValueError, match="takes no options"):
        estimator("sweep", bins=3)
    with pytest.raises(ValueError, match="part of the estimator"):
        estimator(Histogram(), bins=3)
    with pytest.raises(ValueError, match="norm=2"):
        estimator("histogram-debiased")(Outcomes(np.array([0.5]), np.array([1], dtype=np.int8)), 1)

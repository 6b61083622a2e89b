import pickle

import numpy as np
import pytest

from mixnmatch.evaluation.error import calibration_error
from mixnmatch.evaluation.estimators import Histogram, ResidualKernel
from mixnmatch.evaluation.gain import calibration_gain
from mixnmatch.evaluation.reliability import reliability_curve
from mixnmatch.evaluation.scores import accuracy, brier_score, log_loss
from mixnmatch.evaluation.streaming import (
    AccuracyAccumulator,
    BrierAccumulator,
    CalibrationErrorAccumulator,
    CalibrationGainAccumulator,
    LogLossAccumulator,
    ReliabilityAccumulator,
)

CUTS = ((0, 700), (700, 701), (701, 1000), (1000, 1500))


def table(n=1500, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((n, n_classes))
    p = np.exp(logits / 2)
    p /= p.sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return logits, y, 1 + rng.integers(0, 3, n)


def feed(make, scores, y, weight=None):
    """Two accumulators that saw different batches, merged."""
    first, second = make(), make()
    for k, (start, stop) in enumerate(CUTS):
        own = None if weight is None else weight[start:stop]
        (first if k % 2 else second).update(scores[start:stop], y[start:stop], own)
    return pickle.loads(pickle.dumps(first)).merge(second)


@pytest.mark.parametrize(
    "make",
    [BrierAccumulator, LogLossAccumulator, AccuracyAccumulator, CalibrationErrorAccumulator, ReliabilityAccumulator],
)
def test_batches_without_samples_change_nothing(make):
    logits, y, _ = table(100)
    found = make(logits=True).update(logits[:0], y[:0]).update(logits, y).update(np.empty((0, 4)), [])
    assert str(found.compute()) == str(make(logits=True).update(logits, y).compute())
    with pytest.raises(ValueError, match="call update first"):
        make(logits=True).update(logits[:0], y[:0]).compute()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("make", "one_shot"),
    [(BrierAccumulator, brier_score), (LogLossAccumulator, log_loss), (AccuracyAccumulator, accuracy)],
)
def test_scores(make, one_shot, weighted):
    logits, y, weight = table()
    own = weight if weighted else None
    expected = one_shot(logits, y, logits=True, sample_weight=own)
    found = feed(lambda: make(logits=True), logits, y, own).compute()
    assert found == pytest.approx(expected, rel=1e-12)
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-10)
    assert found.n_rows == 1500


def test_options_of_scores():
    certain = np.eye(2)[[0, 1, 1]]
    assert LogLossAccumulator(eps=1e-3).update(certain, [1, 1, 1]).compute() == pytest.approx(-np.log(1e-3) / 3)
    assert LogLossAccumulator().update(certain, [1, 1, 1]).compute() == np.inf
    assert BrierAccumulator(scale_by_half=True).update(certain, [1, 1, 1]).compute() == pytest.approx(1 / 3)


def test_gain():
    logits, y, weight = table()
    after = np.exp(logits / 2) / np.exp(logits / 2).sum(axis=1, keepdims=True)
    expected = calibration_gain(logits, after, y, logits=True, sample_weight=weight, injective=True)
    halves = [CalibrationGainAccumulator(logits=True, injective=True) for _ in range(2)]
    for k, (start, stop) in enumerate(CUTS):
        rows = slice(start, stop)
        halves[k % 2].update(logits[rows], after[rows], y[rows], weight[rows])
    found = halves[0].merge(halves[1]).compute()
    assert found == pytest.approx(expected, rel=1e-12)
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-9)
    assert (found.before, found.after) == pytest.approx((expected.before, expected.after), rel=1e-12)
    assert found.exact is True
    with pytest.raises(ValueError, match="1 after"):
        halves[0].update(logits[:2], after[:1], y[:2])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("notion", ["top-label", "class-wise"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"estimator": "kde-residual-debiased"},
        {"estimator": "kde-residual-debiased", "norm": 2, "bandwidth": "paper"},
        {"estimator": "kde"},
        {"estimator": "kde", "bandwidth": "authors", "norm": 2, "root": True},
        {"estimator": "kde-residual", "bandwidth": 0.03, "kernel": "epanechnikov"},
        {"estimator": "smooth"},
        {"estimator": "histogram"},
        {"estimator": "histogram", "bins": 7, "norm": "max"},
        {"estimator": "histogram-debiased", "norm": 2},
    ],
)
def test_calibration_errors(options, notion, weighted):
    logits, y, weight = table()
    own = weight if weighted else None
    expected = calibration_error(logits, y, logits=True, sample_weight=own, notion=notion, **options)
    found = feed(lambda: CalibrationErrorAccumulator(logits=True, notion=notion, **options), logits, y, own).compute()
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert found.n == expected.n
    assert found.notion == expected.notion
    assert found.advised_n == pytest.approx(expected.advised_n, rel=0.2)
    if notion == "class-wise":
        np.testing.assert_allclose(found.per_class, expected.per_class, rtol=1e-12, atol=1e-15)


def test_frequency_average_and_values_of_estimators():
    logits, y, _ = table()
    for chosen in (ResidualKernel(), Histogram(bins=10)):
        options = {"estimator": chosen, "notion": "class-wise", "average": "frequency"}
        found = feed(lambda options=options: CalibrationErrorAccumulator(logits=True, **options), logits, y).compute()
        assert found == pytest.approx(calibration_error(logits, y, logits=True, **options), rel=1e-12)


def test_vectors_are_of_the_positive_class():
    rng = np.random.default_rng(0)
    z = rng.random(1500)
    y = (rng.random(1500) < z**2).astype(int)
    found = feed(CalibrationErrorAccumulator, z, y).compute()
    assert found == pytest.approx(calibration_error(z, y), rel=1e-12)
    assert found.notion == "binary"


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"band": "consistency", "simultaneous": True},
        {"bandwidth": 0.05, "label": 2},
        {"kind": "histogram", "bins": 10, "interval": "jeffreys"},
        {"kind": "histogram", "bins": [0, 0.3, 0.5, 0.9, 1.0], "closed": "right"},
    ],
)
def test_reliability_curves(options, weighted):
    logits, y, weight = table()
    own = weight if weighted else None
    expected = reliability_curve(logits, y, logits=True, sample_weight=own, **options).to_dict()
    found = feed(lambda: ReliabilityAccumulator(logits=True, **options), logits, y, own).compute().to_dict()
    for name, item in expected.items():
        if isinstance(item, list | float):
            np.testing.assert_allclose(found[name], item, rtol=1e-9, atol=1e-12, err_msg=name)
        else:
            assert found[name] == item, name


def test_memory_is_bounded():
    rng = np.random.default_rng(0)
    metrics = [CalibrationErrorAccumulator(), BrierAccumulator(), ReliabilityAccumulator()]
    sizes = []
    for _ in range(3):
        z = rng.random(5000)
        y = (rng.random(5000) < z).astype(int)
        sizes.append([len(pickle.dumps(metric.update(z, y))) for metric in metrics])
    assert np.ptp(sizes, axis=0).max() < 200


@pytest.mark.parametrize(
    "options",
    [
        {"estimator": "histogram", "binning": "equal-mass"},
        {"estimator": "histogram", "bins": "sturges"},
        {"estimator": "sweep"},
        {"estimator": "dirichlet", "notion": "canonical"},
        {"estimator": "skce", "notion": "canonical"},
        {"estimator": "kde", "notion": "canonical"},
    ],
)
def test_what_cannot_stream_names_the_grid_alternative(options):
    with pytest.raises(ValueError, match=r"cannot stream.*kde-residual"):
        CalibrationErrorAccumulator(**options)


def test_curves_that_cannot_stream():
    with pytest.raises(ValueError, match='kind="kde"'):
        ReliabilityAccumulator(kind="corp")
    with pytest.raises(ValueError, match="kde"):
        ReliabilityAccumulator(kind="histogram", bins="sturges")


def test_refusals():
    with pytest.raises(ValueError, match="update first"):
        BrierAccumulator().compute()
    with pytest.raises(ValueError, match="not the same metric"):
        BrierAccumulator().merge(BrierAccumulator(scale_by_half=True))
    with pytest.raises(ValueError, match="not the same metric"):
        BrierAccumulator().merge(AccuracyAccumulator())
    metric = BrierAccumulator().update([[0.5, 0.5]], [0])
    with pytest.raises(ValueError, match="2 classes, these have 3"):
        metric.update([[0.5, 0.25, 0.25]], [0])
    with pytest.raises(ValueError, match="vector"):
        metric.merge(BrierAccumulator().update([0.5], [0]))
    assert metric.merge(BrierAccumulator()).compute() == 0.5
    assert BrierAccumulator().merge(metric).compute() == 0.5


def test_float32_many_classes_and_absent_ones():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((60, 1000)).astype(np.float32)
    y = rng.integers(0, 3, 60)
    found = CalibrationErrorAccumulator(logits=True).update(logits[:30], y[:30]).update(logits[30:], y[30:]).compute()
    assert found == pytest.approx(calibration_error(logits, y, logits=True), rel=1e-12)
    named = AccuracyAccumulator(classes=["a", "b", "c"])
    assert named.update([[0.1, 0.8, 0.1]], ["b"]).update([[0.1, 0.8, 0.1]], ["c"]).compute() == 0.5


def test_labels_without_scores_are_refused():
    stream = AccuracyAccumulator()
    stream.update(np.empty((0, 3)), [])
    with pytest.raises(ValueError, match="there are no scores, but 2 labels"):
        stream.update(np.empty((0, 3)), [0, 1])

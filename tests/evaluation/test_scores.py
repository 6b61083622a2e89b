import json
import pickle

import numpy as np
import pytest
from sklearn import metrics

from mixnmatch._engine.passes import engine
from mixnmatch.evaluation import evaluate
from mixnmatch.evaluation._accumulators import LogLossAccumulator
from mixnmatch.evaluation.scores import accuracy, brier_score, log_loss


def problem(n=500, n_classes=5, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((n, n_classes))
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return logits.astype(dtype), p.astype(dtype), y


ALL = (brier_score, log_loss, accuracy)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scikit_learn_agrees(dtype):
    _, p, y = problem(dtype=dtype)
    exact = p.astype(np.float64) / p.sum(axis=1, dtype=np.float64)[:, None]
    tolerance = 1e-12 if dtype == np.float64 else 1e-6
    onehot = np.eye(5)[y]
    assert brier_score(p, y) == pytest.approx(np.square(exact - onehot).sum(axis=1).mean(), rel=tolerance)
    assert brier_score(exact, y) == pytest.approx(metrics.brier_score_loss(y, exact, labels=range(5)), rel=1e-12)
    assert log_loss(p, y) == pytest.approx(metrics.log_loss(y, exact, labels=range(5)), rel=tolerance)
    assert accuracy(p, y) == metrics.accuracy_score(y, p.argmax(axis=1))


def test_standard_errors_are_those_of_a_mean():
    _, p, y = problem()
    rows = {
        brier_score: np.square(p - np.eye(5)[y]).sum(axis=1),
        log_loss: -np.log(p[np.arange(500), y]),
        accuracy: p.argmax(axis=1) == y,
    }
    for score, values in rows.items():
        result = score(p, y)
        error = values.std(ddof=1) / np.sqrt(500)
        assert result.standard_error == pytest.approx(error, rel=1e-10)
        low, high = result.interval
        assert low < result < high
        # A little longer than Student's, whose ends may be impossible; test_bounded.py has the details.
        assert high - low == pytest.approx(2 * 1.9647 * error, rel=0.02)


@pytest.mark.parametrize("score", ALL)
def test_logits_are_softmaxed(score):
    logits, p, y = problem()
    assert score(logits, y, logits=True) == pytest.approx(score(p, y), rel=1e-12)
    single = score(logits.astype(np.float32), y, logits=True)
    assert single == pytest.approx(score(p, y), rel=1e-6)


@pytest.mark.parametrize("score", ALL)
def test_a_weight_is_a_number_of_repetitions(score):
    _, p, y = problem(60)
    weight = np.arange(60) % 4
    weight[3] = 5
    repeated = np.repeat(np.arange(60), weight)
    result = score(p, y, sample_weight=weight)
    assert result == pytest.approx(score(p[repeated], y[repeated]), rel=1e-12)
    # Rows are units, so that the repeated rows are groups.
    grouped = score(p[repeated], y[repeated], clusters=repeated)
    assert result.standard_error == pytest.approx(grouped.standard_error, rel=1e-9)
    assert result.n_rows == grouped.n_groups == (weight > 0).sum()
    same = score(p, y, sample_weight=weight, clusters=np.arange(60))
    assert same.standard_error == pytest.approx(result.standard_error, rel=1e-9)


@pytest.mark.parametrize("score", ALL)
def test_neither_blocks_nor_threads_matter(score):
    logits, _, y = problem(3000)
    expected = score(logits, y, logits=True)
    for block_bytes, threads in ((1000, 1), (4096, 2)):
        with engine(block_bytes=block_bytes, threads=threads):
            again = score(logits, y, logits=True)
        assert again == pytest.approx(expected, rel=1e-12)
        assert again.standard_error == pytest.approx(expected.standard_error, rel=1e-10)


def test_a_vector_is_the_positive_class_of_two():
    _, p, y = problem(n_classes=2)
    for score in ALL:
        assert score(p[:, 1], y) == pytest.approx(score(p, y), rel=1e-12)
    assert brier_score(p[:, 1], y, scale_by_half=True) == pytest.approx(metrics.brier_score_loss(y, p[:, 1]), rel=1e-12)
    assert accuracy([0.5, 0.5], [0, 1]) == 0.5


def test_zeros_and_ones():
    certain = np.eye(3)[[0, 1, 2, 0]]
    assert brier_score(certain, [0, 1, 2, 0]) == 0
    assert log_loss(certain, [0, 1, 2, 0]) == 0
    assert str(float(log_loss(certain, [0, 1, 2, 0]))) == "0.0"
    assert brier_score(certain, [0, 1, 2, 1]) == 0.5
    wrong = log_loss(certain, [0, 1, 2, 1])
    assert wrong == np.inf
    assert np.isnan(wrong.standard_error)
    assert wrong.to_dict()["value"] is None
    assert log_loss(certain, [0, 1, 2, 1], eps=1e-3) == pytest.approx(-np.log(1e-3) / 4)
    assert log_loss([[1e4, -1e4]], [1], logits=True) == 2e4


def test_one_sample_has_no_standard_error():
    for score in ALL:
        result = score([[0.3, 0.7]], [1])
        assert result.n_rows == 1
        assert np.isnan(result.standard_error)
        assert np.isnan(result.interval).all()
        assert "no confidence interval" in str(result)


def test_absent_classes_and_many_of_them():
    logits, _, y = problem(300, 1000, dtype=np.float32)
    p = np.exp(logits.astype(float))
    p /= p.sum(axis=1, keepdims=True)
    by_hand = np.square(p - np.eye(1000)[y]).sum(axis=1).mean()
    assert brier_score(logits, y, logits=True) == pytest.approx(by_hand, rel=1e-7)
    assert accuracy([[0.2, 0.5, 0.3]], ["b"], classes=["a", "b", "c"]) == 1


def test_groups_widen_the_interval():
    _, p, y = problem(100)
    five = np.repeat(np.arange(100), 5)
    naive, robust = brier_score(p[five], y[five]), brier_score(p[five], y[five], clusters=five)
    assert robust.standard_error == pytest.approx(brier_score(p, y).standard_error, rel=1e-9)
    assert naive.standard_error < 0.5 * robust.standard_error
    assert robust.n_groups == 100


def test_result_is_a_frozen_float_that_travels():
    _, p, y = problem(50)
    result = brier_score(p, y)
    again = pickle.loads(pickle.dumps(result))
    assert again == result
    assert again.standard_error == result.standard_error
    assert json.loads(json.dumps(result.to_dict()))["n_rows"] == 50
    with pytest.raises(AttributeError, match="cannot be changed"):
        result.n_rows = 3
    assert f"{result:.3f}" == f"{float(result):.3f}"
    assert "95% CI [" in f"{result}"
    assert "standard_error" in repr(result)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="logits=True"):
        brier_score([[2.0, -1.0]], [0])
    with pytest.raises(ValueError, match="eps"):
        log_loss([[0.5, 0.5]], [0], eps=1.0)
    with pytest.raises(ValueError, match="confidence"):
        accuracy([[0.5, 0.5]], [0], confidence=95)
    with pytest.raises(ValueError, match="clusters must have shape"):
        accuracy([[0.5, 0.5]], [0], clusters=[1, 2])
    with pytest.raises(ValueError, match="scale_by_half must be"):
        brier_score([[0.5, 0.5]], [0], scale_by_half="yes")


@pytest.mark.parametrize("score", [brier_score, log_loss, accuracy])
def test_clusters_are_counted(score):
    p, y = np.full((60, 2), 0.5), np.arange(60) % 2
    with pytest.warns(UserWarning, match="there are 6 clusters") as caught:
        few = score(p, y, clusters=np.arange(60) // 10)
    assert caught[0].filename == __file__
    with pytest.warns(FutureWarning, match="clusters="), pytest.warns(UserWarning, match="6 clusters"):
        assert score(p, y, groups=np.arange(60) // 10).n_groups == few.n_groups == 6
    with pytest.raises(ValueError, match="in one cluster"):
        score(p, y, clusters=np.zeros(60))


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("scale", [True, False, "auto"])
def test_brier_score_is_scaled_as_by_scikit_learn(n_classes, scale):
    from sklearn.metrics import brier_score_loss

    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(n_classes), 50), rng.integers(0, n_classes, 50)
    labels = list(range(n_classes))
    expected = brier_score_loss(y, p, labels=labels, scale_by_half=scale)
    assert brier_score(p, y, scale_by_half=scale) == pytest.approx(expected, rel=1e-12)
    if n_classes == 2:
        expected = brier_score_loss(y, p[:, 1], scale_by_half=scale)
        assert brier_score(p[:, 1], y, scale_by_half=scale) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n", [600, 3000])
def test_interval_of_the_log_loss_is_that_of_evaluate(n):
    """Also where what wrong predictions cost is measured on a part of the samples."""
    logits, _, y = problem(n)
    found, other = log_loss(logits, y, logits=True), evaluate(logits, y, logits=True, metrics=["log_loss"])["log_loss"]
    assert found.interval == pytest.approx(other.interval, rel=1e-12)
    sure = 20 * np.eye(5)[y]  # no mistake has been seen: what one would cost is all that the interval has
    assert 0.5 < log_loss(sure, y, logits=True).interval[1] * n / (20 * -np.log(0.025)) < 1.1


@pytest.mark.parametrize("n", [5, 100])
def test_the_log_loss_of_certain_predictions_has_no_upper_end(n):
    y = np.arange(n) % 2
    certain = y.astype(float)
    assert log_loss(certain, y).interval == (0.0, np.inf)
    assert log_loss(np.stack([1 - certain, certain], axis=1), y).interval == (0.0, np.inf)
    assert evaluate(certain, y, interval=False)["log_loss"].interval == (0.0, np.inf)
    accumulator = LogLossAccumulator()
    accumulator.update(certain, y)
    assert accumulator.compute().interval == (0.0, np.inf)
    assert 0 < log_loss(certain, y, eps=1e-6).interval[1] < 14


def test_masked_classes_and_large_logits_in_the_interval_of_the_log_loss():
    y = np.arange(100) % 2
    masked = np.where(np.eye(2)[y] == 1, 0.0, -np.inf)
    assert log_loss(masked, y, logits=True).interval == (0.0, 0.0)
    large = 1000.0 * np.eye(2)[y]  # the other class has a probability that rounds to 0, but it is not 0
    low, high = log_loss(large, y, logits=True).interval
    assert low == 0
    assert high == pytest.approx(1000 * (1 - 0.025 ** (1 / 100)), rel=0.01)

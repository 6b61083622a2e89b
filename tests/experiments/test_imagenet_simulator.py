import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from imagenet_statistics import (
    TopFive,
    confusion_shares,
    label_statistics,
    reliability,
    score_statistics,
)
from mixnmatch import calibration_error
from mixnmatch._engine.passes import engine
from mixnmatch.experiments.imagenet_simulator import MODELS, simulate, true_probabilities

PAGE = Path(__file__).parents[2] / "docs" / "results" / "imagenet_simulator.csv"
N = 8192


@pytest.fixture(scope="module")
def real():
    """Statistics of real networks on the 50000 images of the validation set."""
    found = defaultdict(dict)
    with PAGE.open(newline="") as file:
        for row in csv.DictReader(file):
            found[row["model"]][row["statistic"]] = float(row["real"])
    return found


@pytest.fixture(scope="module", params=sorted(MODELS))
def sample(request):
    return request.param, TopFive.from_logits(*simulate(N, seed=5, model=request.param))


def test_there_is_a_page_for_every_model(real):
    assert set(real) == set(MODELS)


def test_accuracy_and_confidence_match(sample, real):
    name, top = sample
    found = label_statistics(top) | score_statistics(top)
    # Tolerances are the match that the page states and two standard errors at this n.
    assert found["label at rank 1"] == pytest.approx(real[name]["label at rank 1"], abs=0.03)
    assert found["label among the five"] == pytest.approx(real[name]["label among the five"], abs=0.025)
    assert found["mean probability at rank 1"] == pytest.approx(real[name]["mean probability at rank 1"], abs=0.03)
    for k in range(2, 6):
        key = f"mean probability at rank {k}"
        assert found[key] == pytest.approx(real[name][key], rel=0.2)
        key = f"label at rank {k}"
        assert found[key] == pytest.approx(real[name][key], abs=0.03 if k == 2 else 0.012)
    for q in (0.1, 0.25, 0.5, 0.75, 0.9):
        key = f"log-odds of the confidence, quantile {q:g}"
        assert found[key] == pytest.approx(real[name][key], abs=0.5)


def test_confusions_are_as_concentrated(sample, real):
    name, top = sample
    key = "same class at rank 2 given that at rank 1"
    assert score_statistics(top)[key] == pytest.approx(real[name][key], abs=0.05)


def test_over_confidence_matches(sample, real):
    name, top = sample
    _, accuracy, counts = reliability(top)
    curve = [value for key, value in real[name].items() if key.startswith("accuracy at rank 1")]
    noise = np.sqrt(accuracy * (1 - accuracy) / np.maximum(counts, 1))
    seen = counts > 100
    assert np.all(np.abs(accuracy - curve)[seen] < 0.05 + 3 * noise[seen])


def test_rows_depend_on_the_seed_alone():
    logits, labels = simulate(1500, seed=3)
    with engine(threads=1):
        more, more_labels = simulate(2500, seed=3)
    np.testing.assert_array_equal(logits, more[:1500])
    np.testing.assert_array_equal(labels, more_labels[:1500])
    assert logits.dtype == np.float32
    assert not np.array_equal(logits, simulate(1500, seed=4)[0])


def test_the_truth_is_what_labels_are_drawn_from():
    logits, labels, truth = simulate(4096, seed=1, truth=True)
    np.testing.assert_allclose(truth, true_probabilities(logits), atol=1e-7)
    np.testing.assert_allclose(truth.sum(axis=1), 1.0, atol=1e-5)
    chance = truth[np.arange(4096), logits.argmax(axis=1)]
    hit = logits.argmax(axis=1) == labels
    # Sums of independent trials: sure at 4 standard deviations, in thirds of the chance.
    for part in np.array_split(np.argsort(chance), 3):
        spread = np.sqrt((chance[part] * (1 - chance[part])).sum())
        assert abs(hit[part].sum() - chance[part].sum()) < 4 * spread
    entropy = -(truth * np.log(truth)).sum(axis=1)
    surprise = -np.log(truth[np.arange(4096), labels])
    assert surprise.mean() == pytest.approx(entropy.mean(), abs=4 * float(surprise.std()) / 64)


def test_the_true_error_is_known():
    logits, labels, truth = simulate(N, truth=True)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    confidence = p.max(axis=1) / p.sum(axis=1)
    gap = abs(truth[np.arange(N), logits.argmax(axis=1)].mean() - confidence.mean())
    assert gap > 0.03
    assert float(calibration_error(logits, labels, logits=True)) == pytest.approx(gap, abs=0.012)


def test_empty_and_unknown():
    logits, labels = simulate(0)
    assert logits.shape == (0, 1000)
    assert labels.shape == (0,)
    with pytest.raises(ValueError, match="unknown model 'resnet-1'; the simulated ones are"):
        simulate(3, model="resnet-1")


def test_statistics_by_hand():
    probabilities = np.array([[0.5, 0.2, 0.1, 0.1, 0.05], [0.6, 0.2, 0.1, 0.05, 0.05], [0.9, 0.05, 0.02, 0.02, 0.01]])
    file = {
        "top5_probs": probabilities,
        "top5_classes": np.array([[0, 1, 2, 3, 4], [0, 1, 3, 2, 4], [5, 1, 2, 3, 4]]),
        "labels": np.array([0, 1, 7]),
    }
    top = TopFive.from_file(file)
    labels = label_statistics(top)
    assert labels["label at rank 1"] == pytest.approx(1 / 3)
    assert labels["label at rank 2"] == pytest.approx(1 / 3)
    assert labels["label among the five"] == pytest.approx(2 / 3)
    scores = score_statistics(top)
    assert scores["mean probability beyond rank 5"] == pytest.approx(0.05 / 3)
    assert scores["same class at rank 2 given that at rank 1"] == 1.0
    assert scores["same class at rank 3 given that at rank 1"] == 0.0
    # Class 0: partners 1 (0.4), 2 (0.15), 3 (0.2), 4 (0.1) of 0.85; class 5: 0.05 of 0.1.
    assert confusion_shares(top)["share of the 1 heaviest partners"] == pytest.approx((0.4 / 0.85 + 0.5) / 2)
    means, shares, counts = reliability(top)
    assert counts.sum() == 3
    assert means[4] == pytest.approx(0.5)
    assert shares[4] == 1.0


def test_top_five_of_logits():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(50, 30)).astype(np.float32)
    labels = rng.integers(30, size=50)
    top = TopFive.from_logits(logits, labels)
    order = np.argsort(-logits, axis=1)[:, :5]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(top.classes, order)
    np.testing.assert_allclose(top.probabilities, np.take_along_axis(p, order, axis=1), rtol=1e-5)
    np.testing.assert_array_equal(top.hits, order == labels[:, None])

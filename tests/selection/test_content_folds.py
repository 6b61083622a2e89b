import numpy as np
import pytest

import mixnmatch
from mixnmatch._engine.folds import fine_score_keys, fold_of
from mixnmatch.maps import Composition
from mixnmatch.selection import crossfit
from mixnmatch.selection.auto import Auto
from mixnmatch.selection.content_folds import ContentFolds
from mixnmatch.selection.crossfit import kept_losses
from mixnmatch.selection.stacking import Difference
from tests.conftest import draw_labels, softmax

# What is left of weights against repetitions: sums in another order.
ROUNDING = 1e-6


def two_classes(n, seed):
    """Miscalibrated scores of two classes with 2% positives."""
    rng = np.random.default_rng(seed)
    p = np.clip(rng.beta(0.4, 19.6, n), 1e-7, 1 - 1e-7)
    y = (rng.random(n) < p).astype(int)
    z = np.log(p / (1 - p))
    s = 1 / (1 + np.exp(-(1.7 * z + 0.6 * np.sin(z) + 0.4)))
    return np.column_stack([1 - s, s]), y


def three_classes(n, seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 3)) * 1.5
    return softmax(2 * logits), draw_labels(softmax(logits), rng)


def rounded(n, seed):
    """Scores of which many are equal, some of them in large groups."""
    p = np.round(three_classes(n, seed)[0], 1)
    p[:, 2] = np.round(np.maximum(1 - p[:, 0] - p[:, 1], 0), 1)
    return p / p.sum(axis=1, keepdims=True), three_classes(n, seed)[1]


PROBLEMS = {
    "two classes": two_classes(3000, 1),
    "more samples": two_classes(5000, 2),
    "three classes": three_classes(3000, 0),
    "rounded": rounded(3000, 0),
}


def predicted(scores, y, weight=None, at=None, **settings):
    return Auto(**settings).fit(scores, y, sample_weight=weight).predict_proba(scores if at is None else at)


@pytest.mark.parametrize("name", PROBLEMS)
def test_auto_gives_weights_the_meaning_of_repetitions(name):
    scores, y = PROBLEMS[name]
    weighted = predicted(scores, y, np.full(len(y), 2.0))
    side_by_side = predicted(np.repeat(scores, 2, axis=0), np.repeat(y, 2), at=scores)
    at_the_end = predicted(np.tile(scores, (2, 1)), np.tile(y, 2), at=scores)
    np.testing.assert_allclose(weighted, side_by_side, atol=ROUNDING)
    np.testing.assert_allclose(weighted, at_the_end, atol=ROUNDING)


@pytest.mark.parametrize("name", PROBLEMS)
def test_auto_reads_any_frequencies_as_repetitions(name):
    scores, y = PROBLEMS[name]
    times = np.random.default_rng(1).integers(0, 4, len(y))
    weighted = predicted(scores, y, times.astype(float))
    np.testing.assert_allclose(
        weighted, predicted(np.repeat(scores, times, axis=0), np.repeat(y, times), at=scores), atol=ROUNDING
    )


def test_auto_counts_candidates_and_folds_by_weight():
    scores, y = two_classes(1300, 3)
    weighted = Auto().fit(scores, y, sample_weight=np.full(1300, 2.0))
    repeated = Auto().fit(np.repeat(scores, 2, axis=0), np.repeat(y, 2))
    assert weighted.candidates_ == repeated.candidates_
    assert sorted(weighted.candidates_) == ["identity", "irova", "spline"]
    assert weighted.gain_error_ == pytest.approx(repeated.gain_error_)
    assert weighted.evidence_ == pytest.approx(repeated.evidence_)
    np.testing.assert_allclose(weighted.predict_proba(scores), repeated.predict_proba(scores), atol=ROUNDING)
    few = Auto().fit(scores[:6], np.arange(6) % 2, sample_weight=np.full(6, 2.0))
    assert len(few.candidates_) > 1


@pytest.mark.parametrize("name", PROBLEMS)
def test_auto_does_not_depend_on_the_order_of_samples(name):
    scores, y = PROBLEMS[name]
    order = np.random.default_rng(9).permutation(len(y))
    np.testing.assert_allclose(predicted(scores, y), predicted(scores[order], y[order], at=scores), atol=ROUNDING)


@pytest.mark.parametrize("name", PROBLEMS)
def test_auto_does_not_depend_on_the_order_of_classes(name):
    scores, y = PROBLEMS[name]
    turned = scores[:, ::-1]
    other = predicted(turned, scores.shape[1] - 1 - y)[:, ::-1]
    # The spline chooses its smoothness to within a tolerance.
    np.testing.assert_allclose(predicted(scores, y), other, atol=5e-4)


@pytest.mark.parametrize(
    "settings", [{"scoring": "brier"}, {"accuracy_preserving": True}, {"cv": 4, "random_state": 7}]
)
def test_auto_with_options_gives_weights_the_meaning_of_repetitions(settings):
    scores, y = PROBLEMS["two classes"]
    weighted = predicted(scores, y, np.full(len(y), 2.0), **settings)
    repeated = predicted(np.repeat(scores, 2, axis=0), np.repeat(y, 2), at=scores, **settings)
    np.testing.assert_allclose(weighted, repeated, atol=ROUNDING)


def folds_of(scores, y, weight=None, n_folds=5):
    """Weight of each distinct sample in each fold."""
    rows = mixnmatch.rows(scores, y, weight)
    found = ContentFolds.of(rows, n_folds, 0).assign(rows)
    weight = np.ones(found.n_rows) if found.weight is None else found.weight
    table = {}
    for values, label, each, fold in zip(
        found.scores.values, found.labels, weight, fold_of(found.index, n_folds), strict=True
    ):
        table.setdefault((*values.tolist(), int(label)), np.zeros(n_folds))[fold] += each
    return table


def assert_same_folds(left, right):
    assert left.keys() == right.keys()
    for key in left:
        np.testing.assert_allclose(left[key], right[key], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["two classes", "rounded"])
def test_equal_samples_have_the_same_folds_however_they_are_given(name):
    scores, y = PROBLEMS[name]
    times = np.random.default_rng(2).integers(1, 6, len(y))
    order = np.random.default_rng(3).permutation(times.sum())
    left = folds_of(scores, y, times.astype(float))
    assert_same_folds(left, folds_of(np.repeat(scores, times, axis=0)[order], np.repeat(y, times)[order]))


def test_large_groups_of_equal_scores_are_in_every_fold():
    scores, y = PROBLEMS["rounded"]
    values, count = np.unique(scores, axis=0, return_counts=True)
    found = folds_of(scores, y)
    largest = tuple(values[count.argmax()].tolist())
    in_folds = sum(weight for key, weight in found.items() if key[:-1] == largest)
    assert count.max() > 0.01 * len(y)
    assert (in_folds > 0.1 * count.max()).all()


def hard_predictions(n, n_classes, seed):
    """Scores that name one class, alike for all classes and right in 70% of samples."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    right = rng.random(n) < 0.7
    predicted = np.where(right, y, (y + rng.integers(1, n_classes, n)) % n_classes)
    scores = np.full((n, n_classes), 0.05 / (n_classes - 1))
    scores[np.arange(n), predicted] = 0.95
    return scores, y, right


@pytest.mark.parametrize("n_classes", [10, 100])
def test_predictions_of_different_classes_with_equal_scores_are_in_all_folds(n_classes):
    scores, y, right = hard_predictions(1000, n_classes, 0)
    rows = mixnmatch.rows(scores, y)
    fold = fold_of(ContentFolds.of(rows, 5, 0).assign(rows).index, 5)
    for some in (right, ~right):
        np.testing.assert_allclose(np.bincount(fold[some], minlength=5) / some.sum(), 1 / 5, atol=0.08)
    found = Auto().fit(scores, y).predict_proba(scores)
    assert found.max(axis=1).mean() == pytest.approx(right.mean(), abs=0.05)


@pytest.mark.parametrize("change", ["samples", "classes", "weights"])
def test_folds_of_equal_scores_do_not_depend_on_the_order(change):
    scores, y, _ = hard_predictions(1000, 10, 1)
    rng = np.random.default_rng(2)
    classes = rng.permutation(10) if change == "classes" else np.arange(10)
    times = rng.integers(1, 4, 1000) if change == "weights" else np.ones(1000, dtype=int)
    rows = rng.permutation(np.repeat(np.arange(1000), times))
    left = folds_of(scores[:, classes], np.argsort(classes)[y], times.astype(float))
    right = {
        (*np.take(key[:-1], classes), np.argsort(classes)[key[-1]]): found
        for key, found in folds_of(scores[rows], y[rows]).items()
    }
    assert_same_folds(left, right)


@pytest.mark.parametrize("cross_fitted", [False, True])
def test_folds_inside_of_a_larger_table_leave_its_own_folds_as_they_are(monkeypatch, cross_fitted):
    """Tables that are too large to be kept between stages hold samples of other folds, too."""
    scores, y = PROBLEMS["three classes"]

    def fitted():
        if cross_fitted:
            return Composition(mixnmatch.calibrator("irova"), Auto(), cv=3).fit(scores, y)
        return Auto()._fit_source(mixnmatch.rows(scores, y).fold(0, 3, keep=False))

    expected = fitted().predict_proba(scores)
    monkeypatch.setattr(crossfit, "CACHED_ENTRIES", 1000)
    np.testing.assert_allclose(fitted().predict_proba(scores), expected, atol=ROUNDING)


def test_few_distinct_scores_can_be_cross_fitted():
    rng = np.random.default_rng(0)
    p = rng.choice([0.1, 0.4, 0.9], 4000)
    y = (rng.random(4000) < np.where(p == 0.4, 0.6, p)).astype(int)
    fitted = Auto().fit(np.column_stack([1 - p, p]), y)
    found = fitted.predict_proba(np.array([[0.6, 0.4]]))[0, 1]
    assert found == pytest.approx(y[p == 0.4].mean(), abs=0.03)


def test_huge_weights_are_divided_into_few_parts():
    p = np.array([0.2, 0.7, 0.9])
    rows = mixnmatch.rows(np.column_stack([1 - p, p]), [0, 1, 1], [1e12, 2e12, 3e12])
    found = ContentFolds.of(rows, 3, 0).assign(rows)
    assert found.n_rows == 9
    np.testing.assert_allclose(np.bincount(fold_of(found.index, 3), found.weight) / 6e12, 1 / 3, atol=0.01)


def test_samples_with_importance_weights_are_in_one_fold():
    """Another part of the same sample would be no held-out sample."""
    scores, y = PROBLEMS["rounded"]
    weight = np.exp(2 * np.random.default_rng(4).normal(size=len(y)))
    rows = mixnmatch.rows(scores, y, weight, weights="importance")
    found = ContentFolds.of(rows, 5, 0).assign(rows)
    assert found.n_rows == len(y)
    shares = np.bincount(fold_of(found.index, 5), minlength=5) / len(y)
    np.testing.assert_allclose(shares, 1 / 5, atol=0.04)
    order = np.random.default_rng(5).permutation(len(y))
    settings = {"weights": "importance"}
    np.testing.assert_allclose(
        predicted(scores, y, weight, **settings),
        predicted(scores[order], y[order], weight[order], at=scores, **settings),
        atol=ROUNDING,
    )


def test_keys_distinguish_scores_that_are_nearly_uniform():
    p = np.linspace(0.49, 0.4999, 200)
    rows = mixnmatch.rows(np.column_stack([p, 1 - p]), np.zeros(200, dtype=int))
    assert len(np.unique(fine_score_keys(rows.block(0, 200)))) == 200


def test_standard_errors_count_weights_as_repetitions():
    rng = np.random.default_rng(0)
    first, second, times = rng.random(50), rng.random(50), rng.integers(1, 5, 50)
    weighted = Difference.of(first, second, times.astype(float))
    repeated = Difference.of(np.repeat(first, times), np.repeat(second, times), np.ones(times.sum()))
    assert weighted.mean == pytest.approx(repeated.mean)
    assert weighted.standard_error == pytest.approx(repeated.standard_error)


def test_losses_of_kept_classes_belong_to_their_samples():
    """Samples of weight 0 are in the table, and not among the losses."""
    scores, y = three_classes(500, 4)
    weight = np.arange(500) % 3 * 1.0
    inside = weight > 0
    mixed = np.random.default_rng(5).dirichlet(np.ones(2), inside.sum())
    given = mixnmatch.rows(scores, y, weight)
    outputs = [mixnmatch.rows(np.roll(scores, k, axis=1), y, weight) for k in range(2)]
    found = kept_losses(given, outputs, mixed, "nll")
    given = mixnmatch.rows(scores[inside], y[inside])
    outputs = [mixnmatch.rows(np.roll(scores, k, axis=1)[inside], y[inside]) for k in range(2)]
    np.testing.assert_allclose(found, kept_losses(given, outputs, mixed, "nll"), rtol=1e-12)

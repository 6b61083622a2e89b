import numpy as np
import pytest
from scipy.optimize import isotonic_regression

import mixnmatch as mm
from mixnmatch.maps import VennAbers
from tests.conftest import make_problem, nll, softmax


def brute_force(scores, y, weight, new):
    """Both isotonic regressions for every new score, each from scratch."""
    found = np.empty((len(new), 2))
    for i, score in enumerate(new):
        for label in (0, 1):
            s, t, w = np.append(scores, score), np.append(y, label), np.append(weight, 1.0)
            distinct, group = np.unique(s, return_inverse=True)
            total, positive = np.bincount(group, w), np.bincount(group, w * t)
            value = isotonic_regression(positive / total, weights=total).x
            found[i, label] = value[np.searchsorted(distinct, score)]
    return found


def merged(interval):
    return interval[:, 1] / (1 - interval[:, 0] + interval[:, 1])


@pytest.mark.parametrize("decimals", [1, 2, 16])
@pytest.mark.parametrize("n, rate", [(1, 1.0), (2, 1.0), (5, 0.5), (30, 1.0), (30, 0.0), (200, 1.0), (200, 0.02)])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_brute_force(n, rate, decimals, weighted):
    rng = np.random.default_rng(n)
    scores = np.round(rng.random(n), decimals)
    y = (rng.random(n) < scores * rate).astype(int)
    weight = rng.integers(1, 4, n) if weighted else None
    new = np.concatenate([scores, np.round(rng.random(30), decimals), rng.random(30), [0.0, 1.0]])
    fitted = VennAbers().fit(scores, y, weight)
    expected = brute_force(scores, y, np.ones(n) if weight is None else weight, new)
    np.testing.assert_allclose(fitted.interval(new), expected, atol=1e-12)
    np.testing.assert_allclose(fitted.predict_proba(new)[:, 1], merged(expected), atol=1e-12)
    assert ((fitted.predict_proba(new) > 0) & (fitted.predict_proba(new) < 1)).all()


def test_equals_the_package_venn_abers():
    """Values that VennAbers of the package venn-abers 1.5.4 gives."""
    scores = np.array([0.05, 0.1, 0.1, 0.2, 0.35, 0.4, 0.4, 0.55, 0.6, 0.7, 0.85, 0.9, 0.95])
    y = np.array([0, 0, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0, 1])
    new = np.array([0.0, 0.05, 0.07, 0.1, 0.3, 0.4, 0.45, 0.6, 0.65, 0.8, 0.9, 0.97, 1.0])
    fitted = VennAbers().fit(scores, y)
    np.testing.assert_allclose(fitted.interval(new), PACKAGE, atol=1e-10)
    np.testing.assert_allclose(fitted.predict_proba(new)[:, 1], merged(PACKAGE), atol=1e-10)


PACKAGE = np.array(
    [
        [0.0, 0.3333333333333333],
        [0.0, 0.3333333333333333],
        [0.0, 0.4],
        [0.2, 0.4],
        [0.2, 0.5],
        [0.3333333333333333, 0.6],
        [0.3333333333333333, 0.6666666666666666],
        [0.4, 0.6666666666666666],
        [0.4, 0.75],
        [0.5, 0.75],
        [0.5, 0.75],
        [0.6, 1.0],
        [0.6, 1.0],
    ]
)


def test_float32_scores_meet_their_own_steps():
    rng = np.random.default_rng(1)
    scores = rng.random(300).astype(np.float32)
    y = (rng.random(300) < scores).astype(int)
    single = VennAbers().fit(scores, y)
    double = VennAbers().fit(scores.astype(np.float64), y)
    np.testing.assert_allclose(single.predict_proba(scores), double.predict_proba(scores.astype(np.float64)), atol=1e-7)


def test_cross_version_merges_by_geometric_means():
    rng = np.random.default_rng(2)
    scores = rng.random(200)
    y = (rng.random(200) < scores).astype(int)
    new = np.concatenate([scores[:20], rng.random(50)])
    fitted = VennAbers(cv=4, random_state=3).fit(scores, y)
    from mixnmatch._engine.folds import fold_of

    fold = fold_of(range(200), 4, 3)
    parts = [VennAbers().fit(scores[fold == k], y[fold == k]).interval(new) for k in range(4)]
    not_lower = np.prod([1 - part[:, 0] for part in parts], axis=0) ** 0.25
    upper = np.prod([part[:, 1] for part in parts], axis=0) ** 0.25
    np.testing.assert_allclose(fitted.predict_proba(new)[:, 1], upper / (not_lower + upper), atol=1e-12)
    np.testing.assert_allclose(fitted.interval(new), np.stack([1 - not_lower, upper], axis=1), atol=1e-12)


def test_cross_version_with_hardly_any_samples():
    fitted = VennAbers(cv=10).fit([0.2, 0.7, 0.9], [0, 1, 1])
    assert np.isfinite(fitted.predict_proba([0.0, 0.5, 1.0])).all()


def test_several_classes_keep_one_that_is_absent():
    logits, y = make_problem(400, 4)
    y = np.minimum(y, 2)
    p = softmax(logits)
    fitted = mm.calibrator("venn-abers").fit(p, y)
    q = fitted.predict_proba(p)
    assert q.shape == (400, 4)
    assert (q > 0).all()
    new, labels = make_problem(2000, 4, seed=1)
    own = mm.calibrator("venn-abers", logits=True).fit(*make_problem(1000, 4, seed=2))
    assert nll(own.predict_proba(new), labels) < nll(softmax(new), labels)


def test_interval_is_of_two_classes():
    fitted = mm.calibrator("venn-abers", logits=True).fit(*make_problem(60, 3))
    with pytest.raises(ValueError, match="an interval is of one binary problem"):
        fitted.map_.interval([0.5])
    two = VennAbers(logits=True).fit([-1.0, 0.5, 2.0], [0, 1, 1])
    np.testing.assert_array_equal(two.interval([[0.0, 0.5]]), two.interval([0.5]))


def test_intervals_survive_a_file(tmp_path):
    rng = np.random.default_rng(4)
    scores = rng.random(50)
    fitted = VennAbers(cv=3).fit(scores, rng.random(50) < scores)
    fitted.save(tmp_path / "map.json")
    np.testing.assert_array_equal(mm.load(tmp_path / "map.json").interval(scores), fitted.interval(scores))


def sample_logits(seed):
    sample = mm.load_sample()
    rows = np.random.default_rng(seed).choice(len(sample.labels_cal), 1000, replace=False)
    return sample.logits_cal[rows].astype(np.float64), sample.labels_cal[rows]


@pytest.mark.parametrize("cv", [None, 3])
@pytest.mark.parametrize("first", ["dirichlet", "sms", "matrix", "kernel"])
def test_steps_are_away_from_computed_scores(first, cv):
    """No score of the calibration set is so close to a step that rounding decides on which side it is."""
    for seed in range(5):
        logits, y = sample_logits(seed)
        fitted = (mm.calibrator(first, logits=True) >> mm.OneVsAll(VennAbers(cv=cv))).fit(logits, y)
        p = fitted.first_.predict_proba(logits)
        for scores, function in zip(p.T, fitted.second_.map_.functions(), strict=True):
            after = np.searchsorted(function.knots, scores)
            for near in (np.append(function.knots, 2.0)[after], np.append(-1.0, function.knots)[after]):
                assert (np.abs(near - scores) > 3e-13 * scores).all()


@pytest.mark.parametrize(
    "first, seed",
    [("dirichlet", 47), ("dirichlet", 1), ("sms", 1), ("sms", 9), ("matrix", 4), ("matrix", 10), ("kernel", 6)],
)
def test_batches_and_kernels_agree_after_a_matrix_product(first, seed):
    logits, y = sample_logits(seed)
    fitted = (mm.calibrator(first, logits=True) >> mm.calibrator("venn-abers")).fit(logits, y)
    expected = fitted.predict_proba(logits)
    for backend in ("auto", "numpy"):
        with mm.engine(backend=backend):
            for size in (1, 7, len(logits)):
                parts = [fitted.predict_proba(logits[k : k + size]) for k in range(0, len(logits), size)]
                np.testing.assert_allclose(np.concatenate(parts), expected, rtol=0, atol=1e-9)


def test_parameters_are_checked():
    for cv in (1, 2.5, True, "five"):
        with pytest.raises(ValueError, match="cv must be a number of folds"):
            VennAbers(cv=cv).fit([0.5], [1])
    with pytest.raises(ValueError, match="random_state must be a whole number"):
        VennAbers(cv=2, random_state=None).fit([0.5], [1])

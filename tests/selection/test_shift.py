"""Class priors from unlabelled scores: closed forms, brute force, edge cases, simulations of intervals and tests."""

import numpy as np
import pytest
from scipy.stats import chi2

import mixnmatch as mm
from mixnmatch import rows as read_rows
from mixnmatch.maps.summary import CELLS, summarise
from mixnmatch.selection import estimate_priors
from mixnmatch.selection.mixture import Fixed, PriorLikelihood, profile_interval
from mixnmatch.selection.uncertainty import LEAST_EXPECTED, _merging
from tests.conftest import draw_labels, softmax


def identity(p, y=None):
    """A map that does nothing, fitted to probabilities."""
    p = np.asarray(p, dtype=float)
    return mm.maps.Identity().fit(p, np.arange(len(p)) % p.shape[1] if y is None else y)


def log_likelihood(p, source, priors):
    """Mean log-likelihood of priors, written out; one row of priors for each value."""
    with np.errstate(divide="ignore"):
        return np.log((np.asarray(p)[None] * (np.asarray(priors) / source)[:, None]).sum(axis=2)).mean(axis=1)


def gaussian(rng, n, priors, means, source):
    """Logits that are right for the source priors, up to one temperature and a bias for each class; labels."""
    y = rng.choice(len(priors), n, p=priors)
    x = means[y] + rng.normal(size=(n, means.shape[1]))
    logits = x @ means.T - 0.5 * (means**2).sum(axis=1) + np.log(source)
    return 1.7 * logits + np.linspace(-0.5, 0.5, len(priors)), y


def estimate(fitted, p, **settings):
    """Maximum likelihood, with the doubts about maps that have no class biases."""
    found = estimate_priors(fitted, p, **({"method": "em"} | settings))
    assert any("has no class biases" in text for text in found.warnings)
    return found


@pytest.mark.parametrize("positives", [0.5, 0.01])
@pytest.mark.parametrize("target", [0.5, 0.01, 0.9])
def test_two_classes_agree_with_a_grid(positives, target):
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=20000) * 2 + np.log(positives / (1 - positives))
    p = softmax(np.column_stack([np.zeros(20000), log_odds]))
    y = draw_labels(p, rng)
    fitted = identity(p, y)
    pick = np.concatenate([rng.choice(np.flatnonzero(y == k), n) for k, n in ((1, int(2000 * target)), (0, 2000))])
    grid = np.linspace(0, 1, 20001)
    source = p.mean(axis=0)
    values = log_likelihood(p[pick], source, np.column_stack([1 - grid, grid])[::10])
    coarse = grid[::10][values.argmax()]
    near = grid[np.abs(grid - coarse) <= 1e-3]
    values = log_likelihood(p[pick], source, np.column_stack([1 - near, near]))
    found = estimate(fitted, p[pick])
    assert found.priors[1] == pytest.approx(near[values.argmax()], abs=1e-4)
    assert found.gap <= 1e-9
    # The likelihood-ratio test, with n m / (n + m) for the number of samples.
    n, m = len(pick), 20000
    statistic = 2 * n * m / (n + m) * (values.max() - log_likelihood(p[pick], source, source[None])[0])
    assert found.p_value == pytest.approx(chi2.sf(statistic, 1), rel=1e-2, abs=1e-12)


def test_perfect_scores_give_the_shares():
    p = np.repeat(np.eye(3), [50, 30, 20], axis=0)
    fitted = identity(np.eye(3)[[0, 1, 2] * 40], [0, 1, 2] * 40)
    found = estimate(fitted, p)
    np.testing.assert_allclose(found.priors, [0.5, 0.3, 0.2], atol=1e-6)
    np.testing.assert_allclose(found.ratios, [1.5, 0.9, 0.6], atol=1e-5)
    # With no confusion the chance is that of shares: normal on the logit scale.
    error = 1.959964 / np.sqrt(100 * 0.5 * 0.5)
    np.testing.assert_allclose(found.interval[0], 1 / (1 + np.exp([error, -error])), atol=2e-3)


def test_a_class_that_is_never_seen_has_the_upper_end_of_its_likelihood():
    p = np.repeat(np.eye(3), [50, 50, 0], axis=0)
    found = estimate(identity(np.eye(3)[[0, 1, 2] * 4000], [0, 1, 2] * 4000), p)
    assert found.priors[2] < 1e-8
    assert found.interval[2, 0] == 0
    # 100 log(1 - c) = -chi2 / 2
    assert found.interval[2, 1] == pytest.approx(1 - np.exp(-chi2.ppf(0.95, 1) / 200), rel=1e-3)
    assert (found.smoothed_ratios > 0).all()
    np.testing.assert_allclose(found.smoothed_ratios @ found.source_priors, 1)


def test_many_classes_agree_with_plain_em():
    rng = np.random.default_rng(1)
    p = softmax(rng.normal(size=(800, 6)) * 2)
    fitted = identity(p, draw_labels(p, rng))
    new = p[(p.argmax(axis=1) < 4) | (np.arange(800) % 5 == 0)]
    source = p.mean(axis=0)
    priors = source.copy()
    for _ in range(5000):
        posterior = new * priors / source
        priors = (posterior / posterior.sum(axis=1, keepdims=True)).mean(axis=0)
    found = estimate(fitted, new)
    np.testing.assert_allclose(found.priors, priors, atol=1e-4)
    ours, theirs = log_likelihood(new, source, np.stack([found.priors, priors]))
    assert ours >= theirs - 1e-9


def test_the_gap_bounds_what_is_missing():
    rng = np.random.default_rng(0)
    p = softmax(rng.normal(size=(200, 4)))
    source = p.mean(axis=0)
    likelihood = PriorLikelihood.of(read_rows(p, np.zeros(200, int)).through(identity(p)), source)
    best, gap = likelihood.maximise()
    assert gap <= 1e-9
    for _ in range(20):
        other = rng.dirichlet(np.ones(4))
        missing = likelihood.mean(other) - likelihood.mean(best)
        assert -1e-9 <= missing <= likelihood.gap(other) + 1e-12


def test_one_sample_goes_to_its_likeliest_class():
    p = np.array([[0.6, 0.4], [0.4, 0.6], [0.9, 0.1], [0.1, 0.9]])
    fitted = identity(p, [0, 1, 0, 1])
    found = estimate(fitted, p[:1])
    np.testing.assert_allclose(found.priors, [1, 0], atol=1e-6)
    assert found.p_value > 0.5
    assert np.isnan(found.fit_p_value)
    assert found.interval[0, 0] < 0.5 < found.interval[1, 1]
    adapted = fitted.adapt(sampling={0: 0.5}).predict_proba(p)
    assert np.isfinite(adapted).all()


def test_weights_are_repetitions():
    rng = np.random.default_rng(0)
    p = softmax(rng.normal(size=(150, 3)) * 2)
    y = draw_labels(p, rng)
    weight = rng.integers(0, 4, 150)
    fitted = identity(p, y)
    weighted = estimate(fitted, p, sample_weight=weight)
    repeated = estimate(fitted, np.repeat(p, weight, axis=0))
    np.testing.assert_allclose(weighted.priors, repeated.priors, atol=1e-5)
    np.testing.assert_allclose(weighted.interval, repeated.interval, atol=1e-3)
    assert weighted.n_samples == repeated.n_samples == weight.sum()
    assert weighted.p_value == pytest.approx(repeated.p_value, rel=1e-3)
    assert weighted.fit_p_value == pytest.approx(repeated.fit_p_value, rel=1e-3)
    whole = estimate_priors(fitted, p, calibration=(p, y, weight))
    np.testing.assert_allclose(
        whole.source_priors, estimate_priors(fitted, p, calibration=(np.repeat(p, weight, 0), np.repeat(y, weight)))
        .source_priors
    )  # fmt: skip


def test_an_absent_class_is_told():
    rng = np.random.default_rng(0)
    p = softmax(rng.normal(size=(300, 3)) * 2)
    y = draw_labels(p[:, :2] / p[:, :2].sum(axis=1, keepdims=True), rng)
    found = estimate_priors(mm.maps.Identity(classes=["a", "b", "c"]).fit(p, np.array(["a", "b"])[y]), p)
    assert any("no sample of 'c'" in text for text in found.warnings)
    assert np.isfinite(found.interval).all()
    bound = mm.calibrator("bcts", logits=True).fit(np.log(p), y)
    assert estimate_priors(bound, np.log(p)).priors[2] < 0.05


def test_a_class_that_is_never_predicted_stays_so():
    p = np.array([[0.7, 0.3, 0.0], [0.2, 0.8, 0.0]] * 20)
    fitted = identity(p, [0, 1] * 20)
    found = estimate(fitted, np.vstack([p[::2], [[0.0, 0.0, 1.0]]]))
    assert found.priors[2] == 0
    assert np.isfinite(found.priors).all()
    assert found.ratios[2] == found.smoothed_ratios[2] == 1


def test_saturated_logits_and_float32():
    logits = np.array([[50.0, 0.0], [0.0, 50.0], [3.0, 0.0], [0.0, 3.0]] * 25)
    fitted = mm.maps.Identity(logits=True).fit(logits, [0, 1] * 50)
    double, single = estimate(fitted, logits[:70]), estimate(fitted, logits[:70].astype(np.float32))
    np.testing.assert_allclose(double.priors, single.priors, atol=1e-6)
    assert np.isfinite(double.interval).all()
    huge = estimate(fitted, logits * 100)
    np.testing.assert_allclose(huge.priors, [0.5, 0.5], atol=1e-6)


def test_a_thousand_classes():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 1000, 4000)
    logits = rng.normal(size=(4000, 1000)).astype(np.float32)
    logits[np.arange(4000), y] += 6
    fitted = mm.calibrator("bcts", logits=True).fit(logits[:2000], y[:2000])
    new = y[2000:] < 100
    found = estimate_priors(fitted, logits[2000:][new])
    assert found.gap < 1e-6
    assert found.priors[:100].sum() > 0.9
    assert (found.interval[:, 0] <= found.priors + 1e-9).all()


@pytest.mark.parametrize("method", ["bbse", "rlls"])
def test_confusions_are_solved(method):
    """With exact confusions the answer is exact: predictions are right in 80% of the samples of each class."""
    p = np.array([[0.8, 0.2], [0.2, 0.8]])
    known = np.repeat(p, 100, axis=0)
    y = np.repeat([0, 1, 0, 1], [80, 20, 20, 80])
    fitted = identity(known, y)
    new = np.repeat(p, [80 * 3 + 20 * 7, 20 * 3 + 80 * 7], axis=0)  # 30% of the first class
    found = estimate(fitted, new, method=method, calibration=(known, y))
    np.testing.assert_allclose(found.priors, [0.3, 0.7], atol=1e-9)
    assert np.isnan(found.interval).all()
    assert np.isnan(found.p_value)
    with pytest.raises(ValueError, match="needs the calibration set"):
        estimate_priors(fitted, new, method=method)


def test_regularised_ratios_minimise_their_objective():
    from scipy.optimize import minimize

    from mixnmatch.selection.confusion import rlls

    rng = np.random.default_rng(0)
    known = rng.dirichlet(np.ones(9)).reshape(3, 3) * 0.3 + np.eye(3) * 0.7 / 3
    known[:, 2] = known[:, 1] * 1.01  # all but the same predictions: what regularisation is for
    known /= known.sum()
    new = rng.dirichlet(np.ones(3))[:, None]
    p = softmax(rng.normal(size=(60, 3)))
    summary = summarise(identity(p), read_rows(p, np.arange(60) % 3))
    log = np.log(2 * 3 / 0.05)
    strength = sum(0.03 * (2 * log / (3 * size) + np.sqrt(2 * log / size)) for size in (50, 60))

    def objective(theta):
        return np.linalg.norm(known @ (1 + theta) - new[:, 0]) + strength * np.linalg.norm(theta)

    priors = rlls(known, new, summary, 50.0)
    best = min(
        (minimize(objective, rng.normal(size=3), method="Nelder-Mead", options={"maxiter": 5000, "xatol": 1e-9}))
        .fun for _ in range(3)
    )  # fmt: skip
    ratios = priors / known.sum(axis=0)
    # Priors are scaled to sum to 1 and not negative: compare where neither changes much.
    assert objective(ratios - 1) <= best + 0.05
    assert priors.sum() == pytest.approx(1)


def test_profiles_are_those_of_a_grid():
    rng = np.random.default_rng(0)
    p = softmax(rng.normal(size=(60, 3)) * 1.5)
    source = p.mean(axis=0)
    likelihood = PriorLikelihood.of(read_rows(p, np.zeros(60, int)).through(identity(p)), source)
    best, _ = likelihood.maximise()
    shares = np.linspace(0, 1, 4001)
    for prior in (0.05, 0.6):
        whole = np.column_stack([(1 - prior) * shares, np.full(4001, prior), (1 - prior) * (1 - shares)])
        expected = -log_likelihood(p, source, whole).max()
        found, _ = Fixed(likelihood, 1, prior).least(np.array([0.5, 0.5]))
        constant = likelihood.mean(best) + log_likelihood(p, source, best[None])[0]  # rows are scaled inside
        assert found - constant == pytest.approx(expected, abs=1e-6)
    low, high = profile_interval(likelihood, best, 1, 1.92)
    for end in (low, high):
        if 0 < end < 1:
            drop = 60 * (Fixed(likelihood, 1, end).least(np.array([0.5, 0.5]))[0] - likelihood.mean(best))
            assert drop == pytest.approx(1.92, rel=1e-2)


@pytest.fixture(scope="module")
def simulated():
    """Estimates for two and for five classes, shifted and not; the map is fitted anew each time."""
    found = {}
    even, skewed = np.full(5, 0.2), np.array([0.5, 0.3, 0.1, 0.08, 0.02])
    cases = {"same": (even, even), "shifted": (even, skewed), "rare": (np.array([0.5, 0.5]), np.array([0.99, 0.01]))}
    for name, (source, target) in cases.items():
        rng = np.random.default_rng(0)
        means = np.random.default_rng(3).normal(size=(len(source), 3)) * 1.3
        rows = []
        for _ in range(40):
            logits, y = gaussian(rng, 600, source, means, source)
            fitted = mm.calibrator("bcts", logits=True).fit(logits, y)
            rows.append(estimate_priors(fitted, gaussian(rng, 800, target, means, source)[0]))
        found[name] = rows, target
    return found


def test_intervals_cover_and_tests_keep_their_level(simulated):
    for rows, target in simulated.values():
        ends = np.stack([row.interval for row in rows])
        covered = (ends[..., 0] <= target) & (target <= ends[..., 1])
        assert 0.90 <= covered.mean() <= 1  # 80 to 200 intervals of 95%
        explained = np.array([row.fit_p_value for row in rows])
        assert np.mean(explained < 0.05) <= 0.15
        assert not any(row.warnings for row in rows if row.fit_p_value >= 0.01)
    no_shift = np.array([row.p_value for row in simulated["same"][0]])
    assert np.mean(no_shift < 0.05) <= 0.15
    assert np.mean(no_shift < 0.5) >= 0.25  # not always near 1 either
    assert all(row.p_value < 1e-6 for row in simulated["shifted"][0])


def test_intervals_know_of_small_calibration_sets():
    """With endless new samples, the calibration set is what limits: the interval must not shrink to nothing."""
    source, target = np.full(3, 1 / 3), np.array([0.6, 0.3, 0.1])
    means = np.array([[0.0, 0.0], [1.2, 0.0], [0.0, 1.2]])
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(30):
        logits, y = gaussian(rng, 200, source, means, source)
        fitted = mm.calibrator("bcts", logits=True).fit(logits, y)
        found = estimate_priors(fitted, gaussian(rng, 5000, target, means, source)[0])
        covered.append((found.interval[:, 0] <= target) & (target <= found.interval[:, 1]))
    assert np.mean(covered) >= 0.88


def test_what_label_shift_cannot_explain_is_told():
    source = np.full(4, 0.25)
    means = np.random.default_rng(0).normal(size=(4, 3)) * 1.5
    rng = np.random.default_rng(1)
    logits, y = gaussian(rng, 3000, source, means, source)
    fitted = mm.calibrator("bcts", logits=True).fit(logits, y)
    new, _ = gaussian(rng, 2000, np.array([0.4, 0.4, 0.1, 0.1]), means, source)
    assert not estimate_priors(fitted, new).warnings
    blurred = estimate_priors(fitted, 0.5 * new)
    assert blurred.fit_p_value < 1e-6
    assert "does not explain the new scores (p < 0.0001)" in blurred.warnings[0]
    with pytest.warns(UserWarning, match="does not explain"):
        fitted.adapt(unlabelled=0.5 * new)


@pytest.mark.parametrize("name, alike", [("ts", True), ("ets", True), ("irm-ts", True), ("vector", False), ("irova-ts", False)])  # fmt: skip  # noqa: E501
def test_maps_without_class_biases_are_told(name, alike):
    rng = np.random.default_rng(0)
    p = softmax(rng.normal(size=(200, 3)))
    found = estimate_priors(mm.calibrator(name).fit(p, draw_labels(p, rng)), p)
    assert any("calibrate with 'bcts-auto', 'sms' or 'bcts'" in text for text in found.warnings) == alike


def test_cells_are_merged_until_they_hold_enough():
    expected, counts = np.zeros(CELLS), np.full(CELLS, 100.0)
    expected[[2, 3, 10, 20]] = 3, 3, 8, 1
    merging = _merging(expected, counts)
    np.testing.assert_array_equal(merging.sum(axis=0), 1)
    assert len(merging) == 2
    assert (merging @ expected >= LEAST_EXPECTED).all()
    assert len(_merging(np.zeros(CELLS), counts)) == 0


def test_results_are_data_and_text():
    rng = np.random.default_rng(0)
    p = softmax(rng.normal(size=(300, 2)))
    fitted = mm.maps.Identity(classes=["no", "yes"]).fit(p, np.array(["no", "yes"])[draw_labels(p, rng)])
    found = estimate_priors(fitted, p, confidence=0.9)
    text = str(found)
    assert "90% interval" in text
    assert "test of no shift: p = 1" in text
    assert "Warning: Identity has no class biases" in text
    document = found.to_dict()
    assert document["classes"] == ["no", "yes"]
    assert document["priors"] == found.priors.tolist()
    bare = estimate_priors(fitted, p, confidence=None)
    assert np.isnan(bare.interval).all()
    assert "interval" not in str(bare).replace("warning", "")


def test_bad_requests_are_refused():
    p = np.array([[0.7, 0.3], [0.2, 0.8]])
    fitted = identity(p)
    for settings, message in (
        ({"method": "best"}, "method must be one of 'bayes', 'em', 'bbse', 'rlls'"),
        ({"confidence": 95}, "between 0 and 1"),
        ({"calibration": (p,)}, "calibration must be a tuple"),
    ):
        with pytest.raises(ValueError, match=message):
            estimate_priors(fitted, p, **settings)
    with pytest.raises(ValueError, match="fitted with 2"):
        estimate_priors(fitted, np.full((2, 3), 1 / 3))
    with pytest.raises(ValueError, match="is not fitted"):
        estimate_priors(mm.maps.Identity(), p)

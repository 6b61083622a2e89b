import json

import numpy as np
import pytest
from scipy import stats
from sklearn.isotonic import IsotonicRegression

from mixnmatch.evaluation.error import calibration_error
from mixnmatch.evaluation.reliability import reliability_curve, worst_classes

KINDS = ("kde", "histogram", "corp")
BANDS = ("confidence", "consistency")


def binary(n=2000, seed=0, truth=lambda z: z**1.5):
    rng = np.random.default_rng(seed)
    z = rng.random(n)
    return z, (rng.random(n) < truth(z)).astype(int)


def table(n=1000, n_classes=5, sharpness=2.0, seed=0):
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.standard_normal((n, n_classes))
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return sharpness * logits, y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("band", BANDS)
def test_shapes_and_ranges(kind, band):
    z, y = binary()
    curve = reliability_curve(z, y, kind=kind, band=band)
    for part in (curve.confidence, curve.value, curve.low, curve.high, curve.share):
        assert part.shape == curve.confidence.shape
        assert part.dtype == np.float64
        assert ((part >= 0) & (part <= 1)).all()
    assert (curve.low <= curve.high + 1e-12).all()
    assert (np.diff(curve.confidence) >= 0).all()
    assert curve.share.sum() == pytest.approx(1)
    assert np.trapezoid(curve.density, curve.density_at) == pytest.approx(1, rel=1e-3)
    assert curve.mean_confidence == pytest.approx(z.mean())
    assert curve.mean_outcome == pytest.approx(y.mean())
    centre = curve.value if band == "confidence" else curve.confidence
    inside = (curve.low <= centre + 1e-9) & (centre <= curve.high + 1e-9)
    assert inside.mean() > (0.99 if kind != "corp" else 0.8)
    assert band in str(curve)
    assert json.loads(json.dumps(curve.to_dict()))["kind"] == kind


def test_kernel_curve_finds_the_truth_and_has_the_error_of_the_estimator():
    z, y = binary(20000)
    curve = reliability_curve(z, y)
    middle = (curve.confidence > 0.05) & (curve.confidence < 0.95)
    assert np.abs(curve.value - curve.confidence**1.5)[middle].max() < 0.03
    assert curve.error == pytest.approx(calibration_error(z, y), rel=1e-9)
    fixed = reliability_curve(z, y, bandwidth=0.05)
    assert fixed.bandwidth == 0.05
    middle = (fixed.confidence > 0.05) & (fixed.confidence < 0.95)
    assert np.abs(fixed.value - fixed.confidence**1.5)[middle].max() < 0.05
    kernels = np.exp(-0.5 * np.square((z - np.array([[0.4], [0.6]])) / 0.05))
    by_hand = kernels @ (y - z) / kernels.sum(axis=1)
    gaussian = reliability_curve(z, y, bandwidth=0.05, kernel="gaussian")
    found = np.interp([0.4, 0.6], gaussian.confidence, gaussian.value - gaussian.confidence)
    np.testing.assert_allclose(found, by_hand, atol=1e-3)


@pytest.mark.parametrize("truth", [lambda z: z**1.5, lambda z: z + 0.1 * np.sin(3 * np.pi * z)])
def test_pointwise_bands_cover_on_average(truth):
    covered = []
    for seed in range(40):
        z, y = binary(400, seed, truth)
        curve = reliability_curve(z, y)
        inside = (curve.low <= truth(curve.confidence)) & (truth(curve.confidence) <= curve.high)
        covered.append(curve.share @ inside)
    assert np.mean(covered) > 0.9


def sharp(z):
    """A truth that bends within 1% of 0 and 1, as overconfident models have it."""
    z = np.clip(z, 1e-9, 1 - 1e-9)
    logit = np.log(z / (1 - z))
    return 1 / (1 + np.exp(-3.0 * np.tanh(logit / 4.0) - 0.15 * logit))


@pytest.mark.parametrize("n", [400, 4000])
def test_bands_cover_where_most_scores_are_near_0_and_1(n):
    covered, width = [], []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        z = 1 / (1 + np.exp(-rng.normal(0, 5, n)))
        y = (rng.random(n) < sharp(z)).astype(int)
        curve = reliability_curve(z, y)
        inside = (curve.low <= sharp(curve.confidence)) & (sharp(curve.confidence) <= curve.high)
        covered.append(curve.share @ inside)
        width.append(curve.share @ (curve.high - curve.low))
    assert np.mean(covered) > 0.93
    assert np.mean(width) < (0.2 if n == 400 else 0.09)


def rare(n, seed):
    """Calibrated scores of rare events, 2% of the samples: few samples and wide gaps towards 1."""
    rng = np.random.default_rng(seed)
    z = 1 / (1 + np.exp(-rng.normal(-5.2, 1.9, n)))
    return z, (rng.random(n) < z).astype(int)


def test_bands_of_rare_events_cover_at_the_samples_and_are_wide_in_gaps():
    covered, high_covered, width, in_gaps = [], [], [], []
    for seed in range(30):
        z, y = rare(3000, seed)
        curve = reliability_curve(z, y)
        low, high = (np.interp(z, curve.confidence, end) for end in (curve.low, curve.high))
        inside = (low <= z) & (z <= high)
        covered.append(inside.mean())
        high_covered.append(inside[z > 0.3].mean())
        width.append((high - low).mean())
        alone = np.abs(curve.confidence[:, None] - z).min(axis=1) > 0.03
        in_gaps.extend((curve.high - curve.low)[alone])
    assert np.mean(covered) > 0.93
    assert np.mean(high_covered) > 0.93
    assert np.mean(width) < 0.045
    assert min(in_gaps) > 0.2


@pytest.mark.parametrize("bandwidth", ["adaptive", 0.02])
def test_where_there_are_no_samples_the_band_is_everything(bandwidth):
    rng = np.random.default_rng(0)
    z = np.append(rng.uniform(0.0, 0.1, 2000), rng.uniform(0.9, 1.0, 2000))
    curve = reliability_curve(z, rng.random(4000) < z, bandwidth=bandwidth)
    gap = (curve.confidence > 0.45) & (curve.confidence < 0.55)
    assert (curve.low[gap] < 0.01).all()
    assert (curve.high[gap] > 0.99).all()


def test_the_band_of_events_that_never_happened_has_width():
    z = np.random.default_rng(0).uniform(0.0, 0.01, 500)
    curve = reliability_curve(z, np.zeros(500, dtype=int))
    assert (curve.low == 0).all()
    assert (curve.high > 1 / 500).all()


@pytest.mark.parametrize("truth", [lambda z: 0.15 + 0.6 * z**2, lambda z: z + 0.1 * np.sin(3 * np.pi * z)])
def test_simultaneous_bands_cover_between_the_ends(truth):
    covered = []
    for seed in range(30):
        z, y = binary(1000, 500 + seed, truth)
        curve = reliability_curve(z, y, simultaneous=True)
        inner = (curve.confidence > 0.05) & (curve.confidence < 0.95)
        expected = truth(curve.confidence)
        covered.append(((curve.low <= expected) & (expected <= curve.high))[inner].all())
    assert np.mean(covered) >= 0.85


@pytest.mark.parametrize("kind", KINDS)
def test_consistency_bands_hold_calibrated_curves(kind):
    covered, whole = [], []
    for seed in range(40):
        z, y = binary(400, 100 + seed, lambda z: z)
        curve = reliability_curve(z, y, kind=kind, band="consistency", n_resamples=60)
        covered.append(curve.share @ ((curve.low <= curve.value + 1e-12) & (curve.value <= curve.high + 1e-12)))
        if kind != "corp":
            wide = reliability_curve(z, y, kind=kind, band="consistency", simultaneous=True)
            whole.append(((wide.low <= wide.value + 1e-12) & (wide.value <= wide.high + 1e-12)).all())
    # CORP's points are the ends of its blocks, where it strays most from what it estimates.
    assert np.mean(covered) > (0.88 if kind != "corp" else 0.8)
    if kind != "corp":
        assert np.mean(whole) > 0.85


def test_a_miscalibrated_curve_leaves_the_consistency_band():
    z, y = binary(3000, truth=lambda z: 0.5 * z)
    for kind in KINDS:
        curve = reliability_curve(z, y, kind=kind, band="consistency")
        assert curve.share @ (curve.value < curve.low) > 0.7


def test_simultaneous_bands_are_wider():
    z, y = binary()
    for kind in ("kde", "histogram"):
        for band in BANDS:
            narrow = reliability_curve(z, y, kind=kind, band=band)
            wide = reliability_curve(z, y, kind=kind, band=band, simultaneous=True)
            assert (wide.high - wide.low).mean() > (narrow.high - narrow.low).mean()
            assert "simultaneous" in wide.band_text
    with pytest.raises(ValueError, match="kernel curve"):
        reliability_curve(z, y, kind="corp", simultaneous=True)


def test_histogram_by_hand():
    z, y = binary(300)
    curve = reliability_curve(z, y, kind="histogram", bins=5)
    cell = np.minimum((z * 5).astype(int), 4)
    for k in range(5):
        rows = cell == k
        assert curve.confidence[k] == pytest.approx(z[rows].mean(), rel=1e-12)
        assert curve.value[k] == pytest.approx(y[rows].mean(), rel=1e-12)
        wilson = stats.binomtest(int(y[rows].sum()), int(rows.sum())).proportion_ci(method="wilson")
        assert (curve.low[k], curve.high[k]) == pytest.approx((wilson.low, wilson.high), rel=1e-9)
    assert curve.error == pytest.approx(calibration_error(z, y, estimator="histogram", bins=5), rel=1e-12)
    jeffreys = reliability_curve(z, y, kind="histogram", bins=5, interval="jeffreys")
    hits, n = y[cell == 2].sum(), (cell == 2).sum()
    expected = stats.beta.ppf([0.025, 0.975], hits + 0.5, n - hits + 0.5)
    assert (jeffreys.low[2], jeffreys.high[2]) == pytest.approx(tuple(expected), rel=1e-9)
    consistency = reliability_curve(z, y, kind="histogram", bins=5, band="consistency")
    expected = stats.binom.ppf([0.025, 0.975], n, consistency.confidence[2]) / n
    assert (consistency.low[2], consistency.high[2]) == pytest.approx(tuple(expected), rel=1e-12)
    mass = reliability_curve(z, y, kind="histogram", bins=10, binning="equal-mass")
    np.testing.assert_allclose(mass.share, 0.1, atol=0.01)
    assert mass.edges is None


def test_bins_closed_on_either_side():
    z, y = np.array([0.0, 0.25, 0.5, 0.5, 0.75, 1.0]), np.array([0, 1, 0, 1, 1, 1])
    left = reliability_curve(z, y, kind="histogram", bins=4)
    right = reliability_curve(z, y, kind="histogram", bins=4, closed="right")
    np.testing.assert_allclose(left.share * 6, [1, 1, 2, 2])
    np.testing.assert_allclose(right.share * 6, [2, 2, 1, 1])
    given = reliability_curve(z, y, kind="histogram", bins=[0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(given.value, left.value)
    for edges in ([0.3, 1], [0, 0.5, 0.4, 1], [[0, 1]]):
        with pytest.raises(ValueError, match="edges"):
            reliability_curve(z, y, kind="histogram", bins=edges)


def test_corp_is_isotonic_regression():
    z, y = binary(500)
    z = np.round(z, 2)
    curve = reliability_curve(z, y, kind="corp")
    expected = IsotonicRegression(y_min=0, y_max=1).fit(z, y).predict(curve.confidence)
    np.testing.assert_allclose(curve.value, expected, atol=1e-9)
    fit = IsotonicRegression(y_min=0, y_max=1).fit(z, y).predict(z)
    assert curve.error == pytest.approx(np.abs(fit - z).mean(), rel=1e-9)
    assert (np.diff(curve.value) >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_repetitions_in_the_curve(kind):
    z, y = binary(150)
    weight = np.arange(150) % 4
    repeated = np.repeat(np.arange(150), weight)
    weighted = reliability_curve(z, y, kind=kind, sample_weight=weight, bins=5)
    plain = reliability_curve(z[repeated], y[repeated], kind=kind, bins=5)
    np.testing.assert_allclose(weighted.confidence, plain.confidence, atol=1e-12)
    np.testing.assert_allclose(weighted.value, plain.value, atol=1e-9)
    assert weighted.error == pytest.approx(plain.error, rel=1e-9)
    assert weighted.n_rows == (weight > 0).sum()
    if kind != "corp":  # rows are units: repetitions are not new evidence
        assert (weighted.high - weighted.low).mean() > (plain.high - plain.low).mean()


@pytest.mark.parametrize("simultaneous", [False, True])
def test_bands_count_samples_whatever_the_unit_of_weights(simultaneous):
    z, y = binary(1000)
    plain = reliability_curve(z, y, simultaneous=simultaneous)
    for unit in (5.0, 50.0):
        weighted = reliability_curve(z, y, sample_weight=np.full(1000, unit), simultaneous=simultaneous)
        width, wanted = (curve.share @ (curve.high - curve.low) for curve in (weighted, plain))
        assert width == pytest.approx(wanted, rel=0.15)


def test_notions():
    logits, y = table()
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    top = reliability_curve(logits, y, logits=True)
    by_hand = reliability_curve(p.max(axis=1), (p.argmax(axis=1) == y).astype(int))
    np.testing.assert_allclose(top.value, by_hand.value, atol=1e-9)
    assert top.problem == "the top label"
    one = reliability_curve(logits.astype(np.float32), y, logits=True, label=3)
    by_hand = reliability_curve(p[:, 3], (y == 3).astype(int))
    np.testing.assert_allclose(one.value, by_hand.value, atol=1e-4)
    named = reliability_curve(p, np.array(list("abcde"))[y], label="d", classes=list("abcde"))
    assert named.problem == "class d"
    np.testing.assert_allclose(named.value, by_hand.value, atol=1e-9)


def test_worst_classes_agree_with_class_wise_errors():
    logits, y = table()
    errors = calibration_error(logits, y, logits=True, notion="class-wise").per_class
    ranked = worst_classes(logits, y, logits=True)
    assert [label for label, _ in ranked] == np.argsort(-errors).tolist()
    assert ranked[0][1] == pytest.approx(errors.max())
    assert len(worst_classes(logits, y, logits=True, n=2)) == 2
    names = list("abcde")
    assert worst_classes(logits, np.array(names)[y], logits=True, classes=names, n=1)[0][0] == names[ranked[0][0]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize(
    ("z", "y"), [([0.3], [1]), ([0.5] * 4, [0, 1, 0, 1]), ([0.0, 1.0], [0, 1]), ([1.0, 1.0], [0, 0]), ([0.0], [1])]
)
def test_degenerate_samples(kind, band, z, y):
    curve = reliability_curve(z, y, kind=kind, band=band, n_resamples=20)
    for part in (curve.confidence, curve.value, curve.low, curve.high, curve.density):
        assert np.isfinite(part).all()
    assert curve.n_rows == len(z)
    assert str(curve)


def test_many_classes():
    logits, y = table(200, 1000)
    assert reliability_curve(logits.astype(np.float32), y, logits=True).n_rows == 200
    assert len(worst_classes(logits.astype(np.float32), y, logits=True, n=3)) == 3


def test_refusals():
    z, y = binary(20)
    for options, word in (
        ({"kind": "spline"}, "kind"),
        ({"band": "error"}, "band"),
        ({"confidence": 2}, "confidence"),
        ({"interval": "wald"}, "interval"),
        ({"notion": "canonical"}, "notion"),
        ({"kind": "histogram", "closed": "both"}, "closed"),
        ({"bandwidth": "silverman"}, "bandwidth"),
    ):
        with pytest.raises(ValueError, match=word):
            reliability_curve(z, y, **options)


def test_many_distinct_confidences_share_draws(monkeypatch):
    z, y = binary(3000)
    fine = reliability_curve(z, y, kind="corp", band="consistency")
    monkeypatch.setattr("mixnmatch.evaluation._curves.MOST_DISTINCT", 500)
    for weight in (None, np.ones(3000)):
        coarse = reliability_curve(z, y, kind="corp", band="consistency", sample_weight=weight)
        np.testing.assert_array_equal(coarse.value, fine.value)
        assert np.abs(coarse.low - fine.low).mean() < 0.02
        assert np.abs(coarse.high - fine.high).mean() < 0.02

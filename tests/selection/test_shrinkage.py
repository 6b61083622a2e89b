"""Shrunken class frequencies: closed forms, a plain implementation, and less noise than maximum likelihood."""

import numpy as np
import pytest
from scipy.special import gammaln

import mixnmatch as mm
from mixnmatch import rows as read_rows
from mixnmatch.selection import estimate_priors
from mixnmatch.selection.mixture import PriorLikelihood
from mixnmatch.selection.shrinkage import STRENGTHS, Posterior, shrunken_shares
from tests.conftest import draw_labels, softmax
from tests.selection.test_shift import gaussian, identity


def likelihood_of(p, source):
    return PriorLikelihood.of(read_rows(p, np.zeros(len(p), int)).through(identity(p)), np.asarray(source))


def test_evidence_of_certain_labels_is_that_of_the_dirichlet_multinomial():
    counts, source = np.array([50.0, 30.0, 20.0]), np.array([0.2, 0.3, 0.5])
    likelihood = likelihood_of(np.repeat(np.eye(3), counts.astype(int), axis=0), source)
    posterior = Posterior.of(likelihood, 1e12)  # a calibration set without noise
    for strength in (0.3, 5.0, 400.0):
        found = posterior.fit(strength, counts)
        evidence = posterior.evidence(strength, found)
        np.testing.assert_allclose(found, counts, rtol=1e-6)
        a = strength * source
        expected = gammaln(strength) - gammaln(strength + 100) + (gammaln(a + counts) - gammaln(a)).sum()
        assert evidence == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(shrunken_shares(likelihood, counts / 100, 1e12), counts / 100, rtol=1e-6)


def plainly(p, source, m):
    """The same estimate, written out: plain steps until nothing changes, and determinants of numerical curvature."""
    n, n_classes = p.shape
    size, each = n * m / (n + m), p / source
    found = []
    for strength in STRENGTHS * n_classes:
        priors = source
        for _ in range(20000):
            r = each * priors / (each @ priors)[:, None]
            counts = size * r.mean(axis=0)
            priors = (strength * source + counts) / (strength + size)
        a = strength * source
        evidence = size * np.log(each @ priors).mean() - counts @ np.log(priors)
        evidence += gammaln(strength) - gammaln(strength + size) + (gammaln(a + counts) - gammaln(a)).sum()
        logs = np.log(priors[:-1] / priors[-1])

        def labelled(u, a=a, counts=counts):
            q = np.append(np.exp(u), 1)
            return -(a + counts) @ np.log(q / q.sum())

        def unlabelled(u, a=a):
            q = np.append(np.exp(u), 1)
            return -size * np.log(each @ (q / q.sum())).mean() - a @ np.log(q / q.sum())

        evidence += 0.5 * np.log(np.linalg.det(curvature(labelled, logs)) / np.linalg.det(curvature(unlabelled, logs)))
        found.append((evidence, counts / size))
    r = each * source / (each @ source)[:, None]
    found.append((size * np.log(each @ source).mean(), r.mean(axis=0)))
    evidence = np.array([e for e, _ in found])
    weight = np.exp(evidence - evidence.max())
    return (weight / weight.sum()) @ np.stack([share for _, share in found])


def curvature(function, at, step=1e-3):
    """Hessian by differences."""
    unit = step * np.eye(len(at))
    return np.array(
        [
            [
                (function(at + a + b) - function(at + a - b) - function(at - a + b) + function(at - a - b))
                / (4 * step**2)
                for a in unit
            ]
            for b in unit
        ]
    )


@pytest.mark.parametrize("shift", [0.0, 0.4, 3.0])
def test_agrees_with_a_plain_implementation(shift):
    rng = np.random.default_rng(3)
    p = softmax(1.5 * rng.normal(size=(400, 4)))
    fitted = identity(p, draw_labels(p, rng))
    new = p[rng.choice(400, 150, p=(q := np.exp(shift * p[:, 0])) / q.sum())]
    found = estimate_priors(fitted, new, confidence=None)
    assert found.method == "bayes"
    np.testing.assert_allclose(found.priors, plainly(new, p.mean(axis=0), 400), atol=2e-4)


def test_weights_are_repetitions_and_blocks_do_not_matter():
    rng = np.random.default_rng(0)
    p = softmax(2 * rng.normal(size=(300, 5)))
    fitted = identity(p, draw_labels(p, rng))
    weight = rng.integers(0, 4, 300)
    weighted = estimate_priors(fitted, p, sample_weight=weight).priors
    repeated = estimate_priors(fitted, np.repeat(p, weight, axis=0)).priors
    np.testing.assert_allclose(weighted, repeated, atol=1e-5)
    np.testing.assert_allclose(weighted.sum(), 1)


def test_one_sample_says_little():
    p = np.array([[0.6, 0.4], [0.4, 0.6], [0.9, 0.1], [0.1, 0.9]])
    fitted = identity(p, [0, 1, 0, 1])
    found = estimate_priors(fitted, p[:1])
    assert 0.5 < found.priors[0] < 0.7  # maximum likelihood: 1


def test_a_class_that_is_never_predicted_stays_out():
    p = np.array([[0.6, 0.4, 0.0], [0.4, 0.6, 0.0]] * 20)
    found = estimate_priors(identity(p, [0, 1] * 20), p[:30])
    assert found.priors[2] == 0
    assert np.isfinite(found.priors).all()
    assert found.priors.sum() == pytest.approx(1)


def test_less_noise_than_maximum_likelihood_where_samples_are_few():
    rng = np.random.default_rng(1)
    source, means = np.full(12, 1 / 12), 1.2 * rng.normal(size=(12, 4))
    logits, y = gaussian(rng, 4000, source, means, source)
    fitted = mm.calibrator("bcts", logits=True).fit(logits, y)
    errors = {"em": [], "bayes": []}
    for _ in range(15):
        new, labels = gaussian(rng, 150, rng.dirichlet(np.full(12, 10.0)), means, source)
        truth = np.bincount(labels, minlength=12) / 150
        for method, found in errors.items():
            found.append(np.sum((estimate_priors(fitted, new, method=method, confidence=None).priors - truth) ** 2))
    assert np.mean(errors["bayes"]) < 0.5 * np.mean(errors["em"])


def test_a_clear_shift_is_hardly_shrunk():
    rng = np.random.default_rng(2)
    source, means = np.full(4, 0.25), 2 * rng.normal(size=(4, 3))
    logits, y = gaussian(rng, 4000, source, means, source)
    fitted = mm.calibrator("bcts", logits=True).fit(logits, y)
    new, _ = gaussian(rng, 3000, np.array([0.9, 0.1, 0.0, 0.0]), means, source)
    shrunk, likeliest = (estimate_priors(fitted, new, method=method) for method in ("bayes", "em"))
    np.testing.assert_allclose(shrunk.priors, likeliest.priors, atol=5e-3)
    np.testing.assert_array_equal(shrunk.interval, likeliest.interval)
    assert (shrunk.p_value, shrunk.fit_p_value) == (likeliest.p_value, likeliest.fit_p_value)


def test_a_rare_class_with_vague_scores_does_not_vanish():
    """2% positives that scores hardly separate: the estimate stays close to maximum likelihood."""
    rng = np.random.default_rng(5)
    log_odds = rng.normal(-4.6, 1.2, 20000)
    y = rng.random(20000) < 1 / (1 + np.exp(-log_odds))
    p = 1 / (1 + np.exp(-log_odds))
    fitted = mm.calibrator("platt").fit(p, y.astype(int))
    kept = ~y | (rng.random(20000) < 0.5)
    found = {m: estimate_priors(fitted, p[kept], method=m) for m in ("bayes", "em")}
    assert found["bayes"].priors[1] == pytest.approx(y[kept].mean(), rel=0.5)
    assert found["bayes"].interval[1, 0] < found["bayes"].priors[1] < found["bayes"].interval[1, 1]

"""Every measure, on tables of every kind: a finite number in its range or an error in words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mixnmatch as mm
from mixnmatch.evaluation import streaming
from mixnmatch.evaluation.estimators import ESTIMATORS
from mixnmatch.evaluation.notion import NOTIONS
from mixnmatch.evaluation.reliability import worst_classes
from tests.fuzz.running import answer, examples
from tests.fuzz.strategies import Case, cases

NORMS = (1, 2, "max", None)


def settings_of(case: Case) -> dict:
    return {"logits": case.logits, "sample_weight": case.weight}


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("notion", NOTIONS)
def test_calibration_error(estimator, notion):
    @examples(0.06 / (len(ESTIMATORS) * len(NOTIONS)), 6)
    @given(cases(), st.sampled_from(NORMS), st.booleans(), st.sampled_from((False, False, False, False, True)))
    def run(case, norm, root, interval):
        options = {"notion": notion, "estimator": estimator, "norm": norm, "root": root, "interval": interval}
        error = answer(
            f"calibration_error {estimator}",
            lambda: mm.calibration_error(case.scores, case.y, **settings_of(case), **options),
        )
        if error is None:
            return
        assert np.isfinite(error)
        assert -2 <= error <= 2  # debiased estimates may be negative
        if error.interval is not None:
            low, high = error.interval
            assert low <= high
            assert 0 <= error.p_value <= 1
        assert error.advice

    run()


SCORES = {
    "accuracy": (mm.evaluation.accuracy, 1.0),
    "brier_score": (mm.evaluation.brier_score, 2.0),
    "log_loss": (mm.evaluation.log_loss, np.inf),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    function, largest = SCORES[name]

    @examples(0.04, 20)
    @given(cases())
    def run(case):
        value = answer(name, lambda: function(case.scores, case.y, **settings_of(case)))
        if value is not None:
            assert 0 <= value <= largest
            assert str(value)

    run()


@examples(0.03, 30)
@given(cases(3), cases(3), cases(3), st.booleans())
def test_gains(before, after, other, same_rows):
    if same_rows:
        other.scores = after.scores
    y, options = before.y, settings_of(before)
    gain = answer("calibration_gain", lambda: mm.calibration_gain(before.scores, after.scores, y, **options))
    assert gain is None or -2 <= gain <= 2
    found = answer(
        "compare_gains", lambda: mm.evaluation.compare_gains(before.scores, after.scores, other.scores, y, **options)
    )
    assert found is None or -4 <= found <= 4
    kept = answer(
        "accuracy_preserved", lambda: mm.accuracy_preserved(before.scores, after.scores, logits=before.logits)
    )
    assert kept in (None, True, False)


@examples(0.05, 30)
@given(cases(), st.sampled_from(("kde", "histogram", "corp")), st.sampled_from(("confidence", "consistency")))
def test_reliability_curve(case, kind, band):
    curve = answer(
        f"reliability_curve {kind}",
        lambda: mm.evaluation.reliability_curve(case.scores, case.y, kind=kind, band=band, **settings_of(case)),
    )
    if curve is not None:
        for values in (curve.confidence, curve.value, curve.low, curve.high):
            assert np.isfinite(values).all()
            assert (values >= -1e-12).all()
            assert (values <= 1 + 1e-12).all()


@examples(0.04, 30)
@given(cases(), st.sampled_from(("brier", "log")))
def test_decomposition(case, score):
    parts = answer(
        "score_decomposition",
        lambda: mm.evaluation.score_decomposition(case.scores, case.y, score=score, **settings_of(case)),
    )
    if parts is not None and np.isfinite(parts.value):
        total = parts.miscalibration - parts.discrimination + parts.uncertainty
        np.testing.assert_allclose(total, parts.value, atol=1e-9)


@examples(0.02, 20)
@given(cases())
def test_worst_classes(case):
    found = answer("worst_classes", lambda: worst_classes(case.scores, case.y, **settings_of(case)))
    assert found is None or np.isfinite([error for _, error in found]).all()


STREAMS = {
    "brier": streaming.BrierAccumulator,
    "log loss": streaming.LogLossAccumulator,
    "accuracy": streaming.AccuracyAccumulator,
    "error": streaming.CalibrationErrorAccumulator,
    "reliability": streaming.ReliabilityAccumulator,
}


@examples(0.05, 40)
@given(cases(3), cases(3), st.sampled_from(sorted(STREAMS)))
def test_streams(first, second, name):
    made = STREAMS[name](logits=first.logits)
    taken = 0
    for batch in (first, second):
        done = answer(f"stream {name}", lambda b=batch: made.update(b.scores, b.y, b.weight)) is not None
        taken += done and len(batch.scores) > 0
    found = answer(f"compute {name}", made.compute)
    assert (found is None) == (taken == 0)

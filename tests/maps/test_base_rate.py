import warnings

import numpy as np
import pytest

import mixnmatch
import mixnmatch.decisions
from mixnmatch import calibrator
from mixnmatch.exceptions import CalibrationWarning
from tests.conftest import draw_labels, make_problem, softmax

ALWAYS = pytest.mark.filterwarnings("always::mixnmatch.exceptions.CalibrationWarning")


def undersampled(n=14_400, seed=0):
    """Scores of a model that was trained on as many positives as negatives; 1.7% are positive."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(-6, 2.2, n)
    y = (rng.random(n) < 1 / (1 + np.exp(-log_odds))).astype(int)
    return 1 / (1 + np.exp(-(log_odds + np.log(50)))), y


@ALWAYS
@pytest.mark.parametrize("name", ["ts", "ets", "irm", "iop"])
def test_maps_that_cannot_follow_the_base_rate_say_so(name):
    p, y = undersampled()
    with pytest.warns(CalibrationWarning, match=r"mean probability of class 1 is .*such as beta, platt or auto"):
        fitted = calibrator(name).fit(p, y)
    assert fitted.predict_proba(p)[:, 1].mean() > 5 * y.mean()


@pytest.mark.parametrize("name", ["platt", "beta", "isotonic", "vector"])
def test_maps_with_an_intercept_follow_it(name):
    p, y = undersampled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = calibrator(name).fit(p, y)
    assert fitted.predict_proba(p)[:, 1].mean() == pytest.approx(y.mean(), rel=0.02)


@pytest.mark.parametrize(("n", "n_classes"), [(30, 2), (300, 2), (200, 10), (2000, 100)])
def test_calibrated_scores_hardly_ever_warn(n, n_classes):
    warned = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        p = softmax(rng.normal(size=(n, n_classes)) * 2 - 3.0 * (np.arange(n_classes) > 0))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            calibrator("ts").fit(p, draw_labels(p, rng))
        warned += any("mean probability" in str(one.message) for one in seen)
    assert warned <= 1


@ALWAYS
def test_weights_count_as_repetitions():
    p, y = undersampled(3000)
    with pytest.warns(CalibrationWarning, match="mean probability") as seen:
        calibrator("ts").fit(p, y, np.full(3000, 2.0))
    with pytest.warns(CalibrationWarning, match="mean probability") as again:
        calibrator("ts").fit(np.repeat(p, 2), np.repeat(y, 2))
    assert str(seen[0].message) == str(again[0].message)


@ALWAYS
@pytest.mark.parametrize("name", ["ts", "beta", "irova"])
def test_labels_of_one_class_never_fit_silently(name):
    logits, _ = make_problem(50, 3)
    with pytest.warns(CalibrationWarning, match="all labels are of class 1"):
        calibrator(name, logits=True).fit(logits, np.ones(50, dtype=int))


@ALWAYS
@pytest.mark.parametrize("name", ["beta-shrunk", "platt", "isotonic", "auto", "ts"])
@pytest.mark.parametrize("logits", [False, True])
def test_scores_of_the_other_class_are_noticed(name, logits):
    p, y = undersampled(3000)
    scores = np.log((1 - p) / p) if logits else 1 - p
    with pytest.warns(CalibrationWarning, match=r"lower for samples of that class .* probably those of class 0"):
        calibrator(name, logits=logits).fit(scores, y)


def test_scores_without_information_do_not_look_reversed():
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "scores of class")
        for _ in range(200):
            calibrator("identity").fit(rng.random(60).round(1), rng.integers(0, 2, 60))


@pytest.mark.parametrize("logits", [False, True])
def test_columns_in_another_order_than_the_labels_are_noticed(logits):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(1500, 3))
    names = np.array(["low", "mid", "high"])  # arrays have no names: columns count in alphabetical order
    y = names[draw_labels(softmax(scores), rng)]
    given = scores if logits else softmax(scores)
    with pytest.warns(CalibrationWarning, match="scores of class 'mid' .* probably those of class 'high'; check the"):
        mixnmatch.evaluate(given, y, logits=logits, metrics="log_loss")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixnmatch.evaluate(given, y, logits=logits, metrics="log_loss", classes=names)
        mixnmatch.evaluate(softmax(rng.normal(size=(500, 40))), rng.integers(0, 40, 500), metrics="log_loss")
        mixnmatch.evaluate(given, np.full(1500, "low"), logits=logits, metrics="log_loss", classes=names)


def test_columns_of_many_classes_in_another_order_are_noticed():
    """Even if each class has too few samples to tell."""
    rng = np.random.default_rng(1)
    p = softmax(4 * rng.normal(size=(2000, 20)))
    y = draw_labels(p, rng)
    with pytest.warns(CalibrationWarning, match="check the order of the columns"):
        mixnmatch.evaluate(np.roll(p, 1, axis=1), y, metrics="log_loss")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixnmatch.evaluate(p, y, metrics="log_loss")


def _reversed(n=1500):
    rng = np.random.default_rng(0)
    y = (rng.random(n) < 0.1).astype(int)
    return 1 / (1 + np.exp(3 * y + rng.normal(size=n))), y


@pytest.mark.parametrize(
    "judge",
    [
        lambda s, y: mixnmatch.evaluate(s, y, metrics="log_loss"),
        lambda s, y: mixnmatch.evaluate(s, y, metrics="log_loss", groups=np.arange(len(y)) % 3),
        lambda s, y: mixnmatch.evaluate(mixnmatch.rows(s, y), map=_fitted(s, y), metrics="log_loss"),
        lambda s, y: mixnmatch.calibration_error(s, y),
        lambda s, y: mixnmatch.selection.compare(s, y, methods=["platt"]),
        lambda s, y: mixnmatch.selection.recommend(s, y, methods=["platt"]),
        lambda s, y: mixnmatch.decisions.threshold_for(s, y, recall=0.8),
        lambda s, y: mixnmatch.decisions.net_benefit(s, y, thresholds=[0.1]),
    ],
)
def test_reversed_scores_are_called_so_once_wherever_they_are_judged(judge):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        judge(*_reversed())
    assert sum("probably those of class 0" in str(one.message) for one in found) == 1
    where = [one.filename for one in found if "probably those" in str(one.message)]
    assert where == [__file__]


def _fitted(s, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mixnmatch.calibrator("platt").fit(s, y)


def test_scores_that_are_not_reversed_are_judged_without_a_warning():
    s, y = _reversed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixnmatch.evaluate(1 - s, y, metrics="log_loss")
        mixnmatch.evaluate(1 - s, y, map=_fitted(1 - s, y), metrics="log_loss", groups=y)

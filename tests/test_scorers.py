"""Scorers in scikit-learn's cross-validation and searches."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, make_scorer
from sklearn.metrics import get_scorer as sklearn_scorer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from mixnmatch import CalibratedClassifier, calibration_error
from mixnmatch.scorers import calibration_error_loss, get_scorer, get_scorer_names, make_calibration_scorer

NAMES = np.array(["cat", "ant", "bee"])


def data(n_classes, n=240):
    X, y = make_classification(n, 6, n_informative=4, n_redundant=0, n_classes=n_classes, random_state=0)
    return X, NAMES[y]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", ["neg_brier_score", "neg_log_loss"])
def test_agree_with_scikit_learn(name, n_classes):
    X, y = data(n_classes)
    if n_classes == 2:  # theirs needs 0 and 1, or to be told which class is the positive one
        y = (y == "cat").astype(int)
    fitted = GaussianNB().fit(X[:100], y[:100])
    weight = np.random.default_rng(0).integers(1, 4, 140)
    for arguments in ({}, {"sample_weight": weight}):
        ours = get_scorer(name)(fitted, X[100:], y[100:], **arguments)
        assert ours == pytest.approx(sklearn_scorer(name)(fitted, X[100:], y[100:], **arguments), rel=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_cross_val_score_by_hand(n_classes):
    X, y = data(n_classes)
    cv = KFold(3)
    found = cross_val_score(GaussianNB(), X, y, cv=cv, scoring=get_scorer("neg_calibration_error"))
    for score, (train, test) in zip(found, cv.split(X), strict=True):
        fitted = GaussianNB().fit(X[train], y[train])
        p = fitted.predict_proba(X[test])
        expected = calibration_error(p[:, 1] if n_classes == 2 else p, y[test], classes=fitted.classes_)
        assert score == pytest.approx(-float(expected), rel=1e-12)


def test_many_scorers_and_jobs():
    X, y = data(3)
    scoring = {name: get_scorer(name) for name in get_scorer_names()}
    one, two = (cross_validate(GaussianNB(), X, y, cv=3, scoring=scoring, n_jobs=jobs) for jobs in (1, 2))
    for name in scoring:
        assert (one[f"test_{name}"] < 0).all()
        np.testing.assert_array_equal(one[f"test_{name}"], two[f"test_{name}"])


def test_search_over_maps():
    X, y = data(3)
    search = GridSearchCV(
        CalibratedClassifier(GaussianNB(), cv=3),
        {"map": ["uniform", "ets"]},
        cv=2,
        scoring={"loss": get_scorer("neg_log_loss"), "error": get_scorer("neg_calibration_error")},
        refit="loss",
    ).fit(X, y)
    assert search.best_params_ == {"map": "ets"}
    assert set(search.cv_results_) >= {"mean_test_loss", "mean_test_error"}


@pytest.mark.parametrize("name", get_scorer_names())
def test_absent_and_unknown_classes(name):
    X, y = data(3)
    fitted = GaussianNB().fit(X, y)
    some = y != "bee"
    assert np.isfinite(get_scorer(name)(fitted, X[some], y[some]))
    blind = GaussianNB().fit(X[some], y[some])  # knows two of three classes
    score = get_scorer(name)(blind, X, y)
    if name == "neg_log_loss":
        assert score == -np.inf
    else:
        assert np.isfinite(score)
    if name == "neg_brier_score":
        p = np.insert(blind.predict_proba(X), 1, 0.0, axis=1)
        assert score == pytest.approx(-brier_score_loss(y, p, labels=["ant", "bee", "cat"]), rel=1e-12)


def test_weights_are_routed():
    X, y = data(2)
    weight = np.random.default_rng(0).integers(1, 5, len(y))
    cv = KFold(2)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = get_scorer("neg_brier_score")
        with pytest.raises(ValueError, match="sample_weight"):
            cross_val_score(
                GaussianNB().set_fit_request(sample_weight=False),
                X,
                y,
                scoring=scorer,
                params={"sample_weight": weight},
            )
        weighted = scorer.set_score_request(sample_weight=True)
        model = GaussianNB().set_fit_request(sample_weight=False)
        found = cross_val_score(model, X, y, cv=cv, scoring=weighted, params={"sample_weight": weight})
        both = {"weighted": weighted, "plain": get_scorer("neg_brier_score").set_score_request(sample_weight=False)}
        many = cross_validate(model, X, y, cv=cv, scoring=both, params={"sample_weight": weight})
    expected = [
        -brier_score_loss(
            y[test],
            GaussianNB().fit(X[train], y[train]).predict_proba(X[test])[:, 1],
            sample_weight=weight[test],
            pos_label="cat",
        )
        for train, test in cv.split(X)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(many["test_weighted"], expected, rtol=1e-12)
    assert not np.allclose(many["test_plain"], expected)


def test_options_and_names():
    X, y = data(3)
    fitted = LogisticRegression().fit(X, y)
    scorer = make_calibration_scorer(notion="class-wise", estimator="histogram", bins=7)
    expected = calibration_error(
        fitted.predict_proba(X), y, classes=fitted.classes_, notion="class-wise", estimator="histogram", bins=7
    )
    assert scorer(fitted, X, y) == -float(expected)
    assert pickle.loads(pickle.dumps(scorer))(fitted, X, y) == -float(expected)
    assert repr(scorer) == "make_calibration_scorer(notion='class-wise', estimator='histogram', bins=7)"
    assert repr(get_scorer("neg_log_loss")) == "get_scorer('neg_log_loss')"
    with pytest.raises(ValueError, match="no scorer 'ece'"):
        get_scorer("ece")
    with pytest.raises(AttributeError, match="needs predict_proba, which LinearSVC"):
        get_scorer("neg_log_loss")(LinearSVC().fit(X, y), X, y)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_metric_for_make_scorer(n_classes):
    X, y = data(n_classes)
    scorer = make_scorer(calibration_error_loss, response_method="predict_proba", greater_is_better=False)
    fitted = GaussianNB().fit(X, y)
    assert scorer(fitted, X, y) == pytest.approx(get_scorer("neg_calibration_error")(fitted, X, y), rel=1e-12)
    p = fitted.predict_proba(X)
    with pytest.raises(ValueError, match=r"pass labels=\[...\]"):
        calibration_error_loss(np.full(len(y), "cat"), p)
    some = y != "ant"
    labels = ["cat", "bee", "ant"][: 3 if n_classes == 3 else 0] or ["cat", "ant"]
    assert np.isfinite(calibration_error_loss(y[some], p[some], labels=labels))


def test_truth_values_and_whole_numbers():
    X, y = data(2)
    text = get_scorer("neg_calibration_error")(GaussianNB().fit(X, y), X, y)
    for labels in (y == "cat", (y == "cat").astype(int) * 7, np.where(y == "cat", 1.0, -1.0), y.astype(object)):
        assert get_scorer("neg_calibration_error")(GaussianNB().fit(X, labels), X, labels) == pytest.approx(text)

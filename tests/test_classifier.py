import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from mixnmatch import CalibratedClassifier, Isotonic, OneVsAll, TemperatureScaling

sklearn_version = tuple(int(part) for part in sklearn.__version__.split(".")[:2])


@parametrize_with_checks(
    [
        CalibratedClassifier(LogisticRegression(max_iter=200), cv=2),
        CalibratedClassifier(GaussianNB(), map="irm", cv=2, ensemble=True),
        CalibratedClassifier(LogisticRegression(max_iter=200), map=TemperatureScaling() >> OneVsAll(Isotonic()), cv=2),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    X, y = make_classification(900, 12, n_informative=6, n_classes=3, class_sep=0.8, random_state=0)
    return train_test_split(X, np.array(["ant", "bee", "cat"])[y], random_state=0)


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("name", ["ts", "ets", "irm", "irova-ts", "svs"])
def test_lowers_the_log_loss_of_naive_bayes(blobs, name, ensemble):
    X, X_test, y, y_test = blobs
    plain = GaussianNB().fit(X, y)
    model = CalibratedClassifier(GaussianNB(), map=name, ensemble=ensemble).fit(X, y)
    before, after = plain.predict_proba(X_test), model.predict_proba(X_test)
    rows = np.arange(len(y_test)), np.searchsorted(model.classes_, y_test)
    assert -np.log(after[rows]).mean() < -np.log(before[rows]).mean()
    assert set(model.predict(X_test)) <= {"ant", "bee", "cat"}


def test_prefitted_estimator_is_not_refitted(blobs):
    X, X_test, y, _ = blobs
    fitted = RandomForestClassifier(20, random_state=0).fit(X[:400], y[:400])
    before = fitted.predict_proba(X_test)
    model = CalibratedClassifier(FrozenEstimator(fitted), map="ts").fit(X[400:], y[400:])
    by_hand = TemperatureScaling(classes=fitted.classes_).fit(fitted.predict_proba(X[400:]), y[400:])
    np.testing.assert_array_equal(model.predict_proba(X_test), by_hand.predict_proba(before))
    np.testing.assert_array_equal(fitted.predict_proba(X_test), before)


def test_decision_function_is_taken_as_logits(blobs):
    X, X_test, y, _ = blobs
    model = CalibratedClassifier(LinearSVC(), map="ts").fit(X, y)
    estimator, fitted = model.pairs_[0]
    assert fitted.logits
    by_hand = fitted.predict_proba(estimator.decision_function(X_test))
    np.testing.assert_array_equal(model.predict_proba(X_test), by_hand)
    binary = CalibratedClassifier(LinearSVC(), map="platt").fit(X, y == "ant")
    assert binary.predict_proba(X_test).shape == (len(X_test), 2)


@pytest.mark.skipif(sklearn_version < (1, 8), reason="scikit-learn has temperature scaling from version 1.8 on")
def test_agrees_with_scikit_learn_temperature(blobs):
    X, X_test, y, _ = blobs
    ours = CalibratedClassifier(LogisticRegression(), map="ts", cv=5).fit(X, y).predict_proba(X_test)
    theirs = CalibratedClassifierCV(LogisticRegression(), method="temperature", cv=5, ensemble=False).fit(X, y)
    np.testing.assert_allclose(ours, theirs.predict_proba(X_test), atol=1e-4)


def test_fold_without_a_class_keeps_the_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(41, 3))
    y = np.array([0] * 20 + [1] * 20 + [2])  # the third class is missing from one training fold
    for ensemble in (False, True):
        model = CalibratedClassifier(GaussianNB(), map="ts", cv=3, ensemble=ensemble).fit(X, y)
        p = model.predict_proba(X)
        assert p.shape == (41, 3)
        np.testing.assert_allclose(p.sum(axis=1), 1)


def test_pipeline_grid_search_and_cross_validation(blobs):
    X, X_test, y, y_test = blobs
    model = make_pipeline(StandardScaler(), CalibratedClassifier(LogisticRegression(), map="ets", cv=3))
    assert model.fit(X, y).score(X_test, y_test) > 0.5
    inside = CalibratedClassifier(make_pipeline(StandardScaler(), LogisticRegression()), map="ets", cv=3)
    assert cross_val_score(inside, X, y, cv=3, scoring="neg_log_loss").mean() > -1.1
    grid = GridSearchCV(inside, {"map": ["ts", "irm"], "estimator__logisticregression__C": [0.1, 1.0]}, cv=2)
    assert grid.fit(X, y).best_params_["map"] in ("ts", "irm")
    assert clone(inside).get_params()["map"] == "ets"


def test_sample_weight_reaches_estimator_and_map(blobs):
    X, X_test, y, _ = blobs
    weight = np.where(y == "ant", 3.0, 1.0)
    weighted = CalibratedClassifier(LogisticRegression(), map="vector").fit(X, y, weight).predict_proba(X_test)
    plain = CalibratedClassifier(LogisticRegression(), map="vector").fit(X, y).predict_proba(X_test)
    assert weighted[:, 0].mean() > plain[:, 0].mean()


@pytest.mark.parametrize("module, name", [("xgboost", "XGBClassifier"), ("lightgbm", "LGBMClassifier")])
def test_boosting_libraries(blobs, module, name):
    import warnings

    kind = getattr(pytest.importorskip(module), name)
    quiet = {"verbose": -1} if module == "lightgbm" else {"verbosity": 0}
    X, X_test, y, _ = blobs
    codes = np.unique(y, return_inverse=True)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these libraries warn about scikit-learn's newest API
        estimator = kind(n_estimators=60, n_jobs=1, **quiet)
        model = CalibratedClassifier(estimator, map="ets", cv=3).fit(X, codes)
        after = model.predict_proba(X_test)
        estimator.fit(X, codes)
        before = estimator.predict_proba(X_test)
    y_test = np.unique(blobs[3], return_inverse=True)[1]
    rows = np.arange(len(y_test)), y_test
    assert -np.log(after[rows]).mean() < -np.log(np.maximum(before[rows], 1e-15)).mean()


def test_errors_name_the_cause(blobs):
    X, _, y, _ = blobs
    with pytest.raises(ValueError, match="needs a classifier"):
        CalibratedClassifier(StandardScaler()).fit(X, y)
    with pytest.raises(ValueError, match="no map called"):
        CalibratedClassifier(GaussianNB(), map="tss").fit(X, y)
    with pytest.raises(ValueError, match="scores must be one of"):
        CalibratedClassifier(GaussianNB(), scores="logits").fit(X, y)

"""Scores of classifiers: where they come from, and in which columns."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_classification
from sklearn.ensemble import BaggingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, NuSVC

from mixnmatch._estimators import class_names, codes_of, is_pairwise, scores_of, softmax, weight_parameter


@pytest.mark.parametrize("n_classes", [3, 4, 7])
@pytest.mark.parametrize("kind", [SVC, NuSVC])
def test_votes_are_those_of_scikit_learn(n_classes, kind):
    X, y = make_classification(200, 8, n_informative=6, n_classes=n_classes, random_state=0)
    settings = {"nu": 0.1} if kind is NuSVC else {}
    pairwise = kind(decision_function_shape="ovo", **settings).fit(X, y)
    plain = kind(decision_function_shape="ovr", **settings).fit(X, y)
    scores, logits = scores_of(pairwise, X)
    assert logits
    np.testing.assert_allclose(scores, plain.decision_function(X), rtol=1e-12)
    assert (scores.argmax(axis=1) == pairwise.predict(X)).mean() > 0.97  # equal votes are decided otherwise there


@pytest.mark.parametrize(
    "wrap",
    [
        lambda e: make_pipeline(StandardScaler(), e),
        FrozenEstimator,
        lambda e: GridSearchCV(e, {"C": [1.0]}, cv=2),
        lambda e: FrozenEstimator(GridSearchCV(make_pipeline(e), {"svc__C": [1.0]}, cv=2)),
    ],
)
def test_pairs_are_found_inside(wrap):
    X, y = load_iris(return_X_y=True)
    estimator = wrap(SVC(decision_function_shape="ovo"))
    inside = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
    inside.fit(X, y)
    assert is_pairwise(estimator)
    assert (scores_of(estimator, X)[0].argmax(axis=1) == y).mean() > 0.9


def test_pairs_that_three_columns_may_hide():
    """Averages of pairwise margins have three columns for three classes, as scores of the classes have."""
    X, y = load_iris(return_X_y=True)
    bag = BaggingClassifier(LinearSVC(), n_estimators=3, random_state=0).fit(X, y)
    assert scores_of(bag, X)[1]
    hidden = BaggingClassifier(SVC(decision_function_shape="ovo"), n_estimators=3, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="may compare pairs"):
        scores_of(hidden, X, method="decision_function")
    scores, logits = scores_of(hidden, X)
    assert not logits
    np.testing.assert_array_equal(scores, hidden.predict_proba(X))


def test_two_classes_have_one_margin():
    X, y = make_classification(100, 5, random_state=0)
    pairwise = SVC(decision_function_shape="ovo").fit(X, y)
    scores, _ = scores_of(pairwise, X)
    np.testing.assert_array_equal(scores, pairwise.decision_function(X))


def test_what_is_preferred():
    X, y = make_classification(100, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=0)
    fitted = LogisticRegression().fit(X, y)
    scores, logits = scores_of(fitted, X)
    assert logits
    p, is_logits = scores_of(fitted, X, prefer="predict_proba")
    assert not is_logits
    np.testing.assert_allclose(softmax(scores), p, rtol=1e-9)
    assert not scores_of(GaussianNB().fit(X, y), X)[1]
    binary = GaussianNB().fit(X, y == 1)
    np.testing.assert_array_equal(scores_of(binary, X)[0], binary.predict_proba(X)[:, 1])


class Strange:
    """A decision function with the wrong number of columns."""

    classes_ = np.arange(4)

    def decision_function(self, X):
        return np.zeros((len(X), 6))


def test_columns_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"6 columns for 4 classes.*decision_function_shape='ovr'"):
        scores_of(Strange(), np.zeros((2, 1)))

    class WithProbabilities(Strange):
        def predict_proba(self, X):
            return np.full((len(X), 4), 0.25)

    scores, logits = scores_of(WithProbabilities(), np.zeros((2, 1)))
    assert scores.shape == (2, 4)
    assert not logits
    with pytest.raises(ValueError, match="neither predict_proba nor decision_function"):
        scores_of(StandardScaler(), np.zeros((2, 1)))


def test_names_and_codes():
    assert class_names(np.array([False, True])).tolist() == [0, 1]
    assert class_names(np.array([b"a", b"b"])).tolist() == ["a", "b"]
    assert class_names(np.array(["a", "b"], dtype=object)).dtype.kind == "U"
    assert class_names(np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]")).tolist() == ["2020-01-01", "2021-01-01"]
    assert codes_of(np.array(["b", "a"]), np.array(["b", "a"])).tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"labels such as 'c' are not among the classes"):
        codes_of(np.array(["c"]), np.array(["a", "b"]))


def test_where_weights_go():
    assert weight_parameter(LogisticRegression()) == "sample_weight"
    assert (
        weight_parameter(make_pipeline(StandardScaler(), LogisticRegression())) == "logisticregression__sample_weight"
    )
    assert weight_parameter(make_pipeline(StandardScaler(), "passthrough")) is None

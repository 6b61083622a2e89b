"""Choosing methods and wrapping classifiers, on tables of every kind."""

from pathlib import Path

import numpy as np
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import mixnmatch as mm
from mixnmatch.selection import compare, learning_curve, recommend
from tests.fuzz.running import answer, check_distribution, examples
from tests.fuzz.strategies import cases

SKLEARN = str(Path(sklearn.__file__).parent)
METHODS = ("ts", "irm", "vector")


def settings_of(case):
    return {"logits": case.logits, "sample_weight": case.weight}


def check_comparison(found, names):
    """Every method has finite scores or the reason for its failure, and the verdict names one that worked."""
    if found is None:
        return
    assert {result.name for result in found.results} == names
    for result in found.results:
        assert result.failure or (0 <= result.brier <= 2 and 0 <= result.accuracy <= 1)
    assert found.verdict.method in names


@examples(0.001, 12)
@given(cases(), st.sampled_from((2, 5)))
def test_compare(case, cv):
    found = answer("compare", lambda: compare(case.scores, case.y, methods=METHODS, cv=cv, **settings_of(case)))
    check_comparison(found, {*METHODS, "identity"})


@examples(0.0002, 2)
@given(cases())
def test_recommend(case):
    found = answer("recommend", lambda: recommend(case.scores, case.y, cv=2, **settings_of(case)))
    if found is not None:
        check_comparison(found.evidence, {result.name for result in found.evidence.results})
        assert found.verdict.method in str(found)


@examples(0.001, 8)
@given(cases())
def test_learning_curve(case):
    def call():
        return learning_curve(case.scores, case.y, methods=METHODS, repetitions=2, **settings_of(case))

    found = answer("learning_curve", call)
    if found is not None:
        assert {point.method for point in found.points} == {*METHODS, "identity"}
        assert all(outlook.verdict in ("yes", "no", "unclear") for outlook in found.outlooks)


@examples(0.001, 12)
@given(cases(), st.sampled_from(("ts", "irova", "ets")), st.booleans())
def test_classifier(case, name, ensemble):
    """Features go to the classifier as they are, so its own refusals count as answers."""
    features = np.random.default_rng(0).normal(size=(np.shape(case.y)[0] if np.ndim(case.y) else 1, 2))
    model = mm.CalibratedClassifier(LogisticRegression(), map=name, cv=2, ensemble=ensemble)
    fitted = answer("CalibratedClassifier", lambda: model.fit(features, case.y, case.weight), words_of=SKLEARN)
    if fitted is not None:
        check_distribution(fitted.predict_proba(features), len(fitted.classes_))

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


@examples(0.001, 12)
@given(cases(), st.sampled_from((2, 5)))
def test_compare(case, cv):
    found = answer("compare", lambda: compare(case.scores, case.y, methods=METHODS, cv=cv, **settings_of(case)))
    assert found is None or str(found)


@examples(0.0002, 2)
@given(cases())
def test_recommend(case):
    found = answer("recommend", lambda: recommend(case.scores, case.y, cv=2, **settings_of(case)))
    assert found is None or str(found)


@examples(0.001, 8)
@given(cases())
def test_learning_curve(case):
    def call():
        return learning_curve(case.scores, case.y, methods=METHODS, repetitions=2, **settings_of(case))

    found = answer("learning_curve", call)
    assert found is None or str(found)


@examples(0.001, 12)
@given(cases(), st.sampled_from(("ts", "irova", "ets")), st.booleans())
def test_classifier(case, name, ensemble):
    """Features go to the classifier as they are, so its own refusals count as answers."""
    features = np.random.default_rng(0).normal(size=(np.shape(case.y)[0] if np.ndim(case.y) else 1, 2))
    model = mm.CalibratedClassifier(LogisticRegression(), map=name, cv=2, ensemble=ensemble)
    fitted = answer("CalibratedClassifier", lambda: model.fit(features, case.y, case.weight), words_of=SKLEARN)
    if fitted is not None:
        check_distribution(fitted.predict_proba(features), len(fitted.classes_))

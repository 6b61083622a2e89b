"""Calibrated classifiers as one file from features to probabilities."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from mixnmatch import CalibratedClassifier

pytest.importorskip("skl2onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def problem(n_classes, seed=0):
    X, y = make_classification(400, 6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=seed)
    return X.astype(np.float32), y


def outputs(path, X):
    return onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"]).run(None, {"X": X})


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestClassifier(5, random_state=0),
        LinearSVC(random_state=0),
    ],
    ids=["pipeline", "forest", "margins"],
)
def test_file_gives_what_the_classifier_gives(tmp_path, estimator, n_classes, ensemble):
    X, y = problem(n_classes)
    names = np.array(["ant", "bee", "cat"])[y]
    model = CalibratedClassifier(estimator, map="ets", cv=3, ensemble=ensemble).fit(X, names)
    model.to_onnx(tmp_path / "model.onnx", X)
    label, p = outputs(tmp_path / "model.onnx", X)
    np.testing.assert_allclose(p, model.predict_proba(X), atol=1e-6)
    assert (label == model.predict(X)).all()


def test_labels_of_pandas_are_text(tmp_path):
    X, y = problem(2)
    labels = pd.Series(np.where(y == 1, "yes", "no"), dtype=object)
    model = CalibratedClassifier(RandomForestClassifier(5, random_state=0), cv=3).fit(X, labels)
    model.to_onnx(tmp_path / "model.onnx", X)
    assert (outputs(tmp_path / "model.onnx", X)[0] == model.predict(X)).all()


@pytest.mark.parametrize("scores", ["auto", "predict_proba"])
@pytest.mark.parametrize("estimator", [LogisticRegression(), RandomForestClassifier(5, random_state=0)])
def test_data_frames_work_for_a_classifier_that_takes_one_array(tmp_path, estimator, scores):
    X, y = problem(2)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = CalibratedClassifier(estimator, cv=3, scores=scores).fit(frame, y)
    model.to_onnx(tmp_path / "model.onnx", frame[:1])
    np.testing.assert_allclose(outputs(tmp_path / "model.onnx", X)[1], model.predict_proba(frame), atol=1e-6)


def test_columns_stay_inputs_where_a_pipeline_takes_them(tmp_path):
    X, y = problem(2)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    scaled = make_column_transformer((StandardScaler(), ["a", "b"]), remainder="passthrough")
    model = CalibratedClassifier(make_pipeline(scaled, LogisticRegression()), cv=3).fit(frame, y)
    model.to_onnx(tmp_path / "model.onnx", frame[:1])
    session = onnxruntime.InferenceSession((tmp_path / "model.onnx").read_bytes())
    assert [each.name for each in session.get_inputs()] == list("abcdef")


def test_missing_converters_are_named(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    X, y = problem(2)
    model = CalibratedClassifier(xgboost.XGBClassifier(n_estimators=3), cv=2).fit(X, y)
    with pytest.raises(ValueError, match=r"register a converter first \(onnxmltools .* export the map alone"):
        model.to_onnx(tmp_path / "model.onnx", X)


def test_frozen_classifier_whole_labels_and_a_map_with_steps(tmp_path):
    X, y = problem(3)
    frozen = FrozenEstimator(GaussianNB().fit(X[:200], 5 * y[:200]))
    model = CalibratedClassifier(frozen, map="irm").fit(X[200:], 5 * y[200:])
    model.to_onnx(tmp_path / "model.onnx", X)
    label, p = outputs(tmp_path / "model.onnx", X)
    # Features make scores in single precision here: one that is next to a step may fall on its other side.
    assert (np.abs(p - model.predict_proba(X)).max(axis=1) < 1e-6).mean() > 0.9
    assert label.dtype == np.int64
    assert set(label) <= {0, 5, 10}


def test_metadata_and_outputs(tmp_path):
    onnx = pytest.importorskip("onnx")
    X, y = problem(3)
    CalibratedClassifier(cv=2, ensemble=True).fit(X, y).to_onnx(tmp_path / "model.onnx", X)
    model = onnx.load(tmp_path / "model.onnx")
    assert [each.name for each in model.graph.output] == ["label", "probabilities"]
    known = {entry.key: entry.value for entry in model.metadata_props}
    assert known["mixnmatch_classes"] == "[0, 1, 2]"
    assert "CalibratedClassifier" in known["mixnmatch_map"]


def test_what_cannot_be_converted_is_named_and_nothing_is_written(tmp_path):
    class Own(LogisticRegression):
        pass

    X, y = problem(2)
    path = tmp_path / "model.onnx"
    quadratic = CalibratedClassifier(QuadraticDiscriminantAnalysis(), cv=2).fit(X, y)
    with pytest.raises(ValueError, match='Analysis with its decision function; with scores="predict_proba"'):
        quadratic.to_onnx(path, X)
    with pytest.raises(ValueError, match="this Own with its decision function; register a converter"):
        CalibratedClassifier(Own(), cv=2).fit(X, y).to_onnx(path, X)
    with pytest.raises(ValueError, match="this Own with its probabilities"):
        CalibratedClassifier(Own(), cv=2, scores="predict_proba").fit(X, y).to_onnx(path, X)
    rows = np.arange(20) < 18
    labels = np.where(rows, np.arange(20) % 2, 2)  # a class with two rows
    few = CalibratedClassifier(GaussianNB(), cv=[(np.arange(18), np.arange(18, 20))], ensemble=True)
    with pytest.warns(UserWarning, match="all labels are of class 2"):
        few.fit(X[:20], labels)
    with pytest.raises(ValueError, match="has not seen all classes"):
        few.to_onnx(path, X)
    pairwise = CalibratedClassifier(SVC(decision_function_shape="ovo"), cv=2).fit(*problem(3))
    with pytest.raises(ValueError, match="decision_function_shape='ovr'"):
        pairwise.to_onnx(path, X)
    assert not path.exists()

import json

import numpy as np
import pytest

from mixnmatch import Auto, Isotonic, OneVsAll, Pooled, calibrator, load_sample
from mixnmatch.maps.curve import map_curve
from mixnmatch.maps.display import MapDisplay
from mixnmatch.maps.shared_function import SharedFunction

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def sample():
    return load_sample()


@pytest.fixture(scope="module")
def fit(sample):
    made = {}

    def fitted(name):
        if name not in made:
            made[name] = calibrator(name, logits=True).fit(sample.logits_cal[:1500], sample.labels_cal[:1500])
        return made[name]

    return fitted


@pytest.fixture(autouse=True)
def closed(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    from matplotlib import pyplot

    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")


def test_temperature_scaling_is_a_cut(fit):
    fitted = fit("ts")
    curve = map_curve(fitted, n_points=11)
    z = curve.confidence[1:-1]
    other = ((1 - z) / 9) ** fitted.beta_
    (line,) = curve.lines
    assert line.name == "every class"
    np.testing.assert_allclose(line.value[1:-1], z**fitted.beta_ / (z**fitted.beta_ + 9 * other), rtol=1e-9)
    assert "other 9 classes" in curve.meaning


@pytest.mark.parametrize("name", ["ets", "ensemble-beta"])
def test_members_add_up_to_the_ensemble(fit, name):
    check_members(map_curve(fit(name), n_points=21), "ensemble")


def test_members_of_a_stack(sample):
    fitted = Auto(logits=True, cv=2).fit(sample.logits_cal[:200, :3], sample.labels_cal[:200] % 3)
    check_members(map_curve(fitted, n_points=21, classes=[2]), "ensemble")


def check_members(curve, name):
    assert curve.lines[0].name.startswith(name)
    assert sum(line.weight for line in curve.members) == pytest.approx(1)
    mixed = sum(line.weight * line.value for line in curve.members)
    np.testing.assert_allclose(curve.lines[0].value, mixed, atol=1e-6)


def test_pooled_and_one_vs_all_show_their_functions(sample):
    p = softmax(sample.logits_cal[:1500])
    y = sample.labels_cal[:1500]
    z = np.linspace(0, 1, 9)
    pooled = Pooled(Isotonic()).fit(p, y)
    binary = Isotonic(smoothing=0).fit(p.ravel(), np.eye(10, dtype=int)[y].ravel())
    np.testing.assert_allclose(map_curve(pooled, n_points=9).lines[0].value[1:-1], at(binary, z[1:-1]))
    curve = map_curve(OneVsAll(Isotonic()).fit(p, y), classes=[3, 7], n_points=9)
    assert [line.name for line in curve.lines] == ["class 3", "class 7"]
    for line, column in zip(curve.lines, (3, 7), strict=True):
        alone = Isotonic(smoothing=0).fit(p[:, column], (y == column).astype(int))
        np.testing.assert_allclose(line.value[1:-1], at(alone, z[1:-1]), atol=1e-12)


def softmax(logits):
    p = np.exp(logits.astype(np.float64))
    return p / p.sum(axis=1, keepdims=True)


def at(binary, z):
    return binary.predict_proba(z)[:, 1]


def test_binary_map_and_shared_function():
    rng = np.random.default_rng(0)
    z = rng.random(200)
    y = (rng.random(200) < z).astype(int)
    platt = calibrator("platt").fit(z, y)
    curve = map_curve(platt, n_points=5)
    np.testing.assert_allclose(curve.lines[0].value[1:-1], at(platt, np.array([0.25, 0.5, 0.75])))
    assert curve.meaning == "probability"
    square = SharedFunction(np.square).fit([[0.5, 0.5]], [0])
    np.testing.assert_allclose(map_curve(square, n_points=3).lines[0].value, [0, 0.25, 1], atol=1e-8)


def test_classes_that_differ_have_a_line_each(fit):
    curve = map_curve(fit("vector"))
    assert len(curve.lines) == 6
    assert json.loads(json.dumps(curve.to_dict()))["lines"][0]["name"] == "class 0"
    assert [line.name for line in map_curve(fit("vector"), classes=[9]).lines] == ["class 9"]


def test_errors(fit):
    with pytest.raises(ValueError, match="classes must be some of"):
        map_curve(fit("vector"), classes=["cat"])
    with pytest.raises(ValueError, match="n_points"):
        map_curve(fit("ts"), n_points=1)


def test_drawing(fit):
    from matplotlib import pyplot

    display = MapDisplay.from_map(fit("ets"))
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels[0] == "ensemble"
    assert labels[1].startswith("temperature ")
    assert ", weight 0." in labels[2]
    assert len(display.ax_.lines) == 5  # the diagonal, the ensemble and three members
    colours = [line.get_color() for line in display.ax_.lines]
    assert len(set(colours)) == 5
    _, ax = pyplot.subplots()
    display = MapDisplay.from_map(fit("irm"), ax=ax)
    assert display.ax_ is ax
    assert ax.get_legend() is None
    assert "Pooled" in ax.get_title()


@pytest.mark.parametrize("ensemble", [False, True])
def test_from_estimator(ensemble):
    from sklearn.datasets import load_iris
    from sklearn.exceptions import NotFittedError
    from sklearn.naive_bayes import GaussianNB

    from mixnmatch import CalibratedClassifier

    X, y = load_iris(return_X_y=True)
    model = CalibratedClassifier(GaussianNB(), map="irova", cv=3, ensemble=ensemble)
    with pytest.raises(NotFittedError):
        MapDisplay.from_estimator(model)
    model.fit(X, np.array(["a", "b", "c"])[y])
    fold = len(model.pairs_) - 1
    display = MapDisplay.from_estimator(model, fold=fold, classes=["b"])
    expected = map_curve(model.pairs_[fold][1], classes=["b"])
    assert [line.name for line in display.curve.lines] == ["class b"]
    np.testing.assert_array_equal(display.curve.lines[0].value, expected.lines[0].value)
    with pytest.raises(ValueError, match="fold must be from 0"):
        MapDisplay.from_estimator(model, fold=len(model.pairs_))
    with pytest.raises(TypeError, match="CalibratedClassifier is needed"):
        MapDisplay.from_estimator(GaussianNB().fit(X, y))

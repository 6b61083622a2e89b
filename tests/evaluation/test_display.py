import builtins
import subprocess
import sys

import numpy as np
import pytest

from mixnmatch.data import load_sample
from mixnmatch.evaluation.display import COLOURS, ReliabilityDisplay
from mixnmatch.evaluation.reliability import reliability_curve
from mixnmatch.maps.temperature import TemperatureScaling

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def sample():
    return load_sample()


def line_of(ax, label):
    return next(line for line in ax.get_lines() if str(line.get_label()).startswith(label))


def test_the_picture_shows_the_data(sample):
    display = ReliabilityDisplay.from_predictions(sample.labels_eval, sample.logits_eval, logits=True, name="LeNet-5")
    curve = reliability_curve(sample.logits_eval, sample.labels_eval, logits=True)
    line = line_of(display.ax_, "LeNet-5")
    np.testing.assert_allclose(line.get_xdata(), curve.confidence)
    np.testing.assert_allclose(line.get_ydata(), curve.value)
    assert to_hex(line.get_color()).upper() == COLOURS[0]
    band = display.ax_.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(curve.high.max())
    assert band[:, 1].min() == pytest.approx(curve.low.min())
    density = display.density_ax_.get_lines()[0]
    np.testing.assert_allclose(density.get_ydata(), curve.density)
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert curve.band_text in texts
    assert f"LeNet-5: error {curve.error:.4f}" in texts
    assert display.ax_.get_ylabel() == "accuracy"
    assert display.density_ax_.get_xlabel() == "confidence"
    diagonal = display.ax_.get_lines()[-1]
    np.testing.assert_allclose(diagonal.get_ydata(), [0, 1])
    display.figure_.canvas.draw()


def test_nothing_is_cut_off(sample):
    options = {"logits": True}
    for display in (
        ReliabilityDisplay.from_predictions(sample.labels_eval, sample.logits_eval, **options),
        ReliabilityDisplay.worst_classes(sample.labels_eval, sample.logits_eval, n=5, **options),
    ):
        display.figure_.canvas.draw()
        drawn = display.figure_.get_tightbbox()
        width, height = display.figure_.get_size_inches()
        assert drawn.x0 >= 0
        assert drawn.y0 >= 0
        assert drawn.x1 <= width
        assert drawn.y1 <= height


def test_before_and_after_a_map(sample):
    fitted = TemperatureScaling(logits=True).fit(sample.logits_cal, sample.labels_cal)
    display = ReliabilityDisplay.from_map(fitted, sample.logits_eval, sample.labels_eval)
    before, after = display.curves
    assert after.error < before.error
    assert [text.get_text()[:6] for text in display.ax_.get_legend().get_texts()] == ["before", "after:"]
    styles = {(to_hex(line.get_color()), line.get_linestyle()) for line in display.ax_.get_lines()[:2]}
    assert len(styles) == 2
    assert display.ax_.get_legend().get_title().get_text() == before.band_text
    tables = {"before": sample.logits_eval, "after": fitted.predict_proba(sample.logits_eval)}
    same = ReliabilityDisplay.compare(sample.labels_eval, tables, logits=["before"])
    np.testing.assert_allclose(same.curves[1].value, after.value)
    with pytest.raises(ValueError, match="logits names"):
        ReliabilityDisplay.compare(sample.labels_eval, tables, logits=["sooner"])


def test_a_vector_of_scores_stays_one():
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal(500)
    y = (rng.random(500) < 1 / (1 + np.exp(-logits / 2))).astype(int)
    fitted = TemperatureScaling(logits=True).fit(logits, y)
    display = ReliabilityDisplay.from_map(fitted, logits, y)
    assert [curve.problem for curve in display.curves] == ["class 1"] * 2
    assert display.ax_.get_ylabel() == "frequency"


@pytest.mark.parametrize("kind", ["kde", "histogram", "corp"])
@pytest.mark.parametrize("band", ["confidence", "consistency"])
def test_every_kind_can_be_drawn_on_given_axes(kind, band, sample):
    figure, axes = plt.subplots(1, 2)
    options = {"logits": True, "kind": kind, "band": band, "n_resamples": 20}
    display = ReliabilityDisplay.from_predictions(
        sample.labels_eval[:500], sample.logits_eval[:500], ax=axes[1], **options
    )
    assert display.ax_ is axes[1]
    assert display.figure_ is figure
    figure.canvas.draw()


def test_worst_classes_have_panels(sample):
    names = list(sample.class_names)
    display = ReliabilityDisplay.worst_classes(
        np.array(names)[sample.labels_eval], sample.logits_eval, n=4, logits=True, classes=names
    )
    assert len(display.ax_) == len(display.density_ax_) == 4
    errors = [curve.error for curve in display.curves]
    assert errors == sorted(errors, reverse=True)
    assert display.ax_[0].get_title().startswith(f"{display.curves[0].problem} ")
    assert display.curves[0].problem.split()[1] in names
    with pytest.raises(ValueError, match="figure"):
        display.plot(plt.gca())
    figure = plt.figure()
    assert ReliabilityDisplay(display.curves, panels=True).plot(figure=figure).figure_ is figure


def test_log_odds_axes():
    """Rare events: axes reach down to the scores, and nothing that is drawn is lost at 0."""
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-rng.normal(-5, 1, 2000)))
    y = (rng.random(2000) < p).astype(int)
    display = ReliabilityDisplay.compare(y, {"before": p, "after": p**0.9}, axes="log-odds")
    low, high = display.ax_.get_xlim()
    assert 0.0002 < low < 0.001 < p.max() <= high < 1
    assert display.ax_.get_ylim() == (low, high)
    assert display.ax_.get_xscale() == display.ax_.get_yscale() == "logit"
    ticks = [float(text.get_text()) for text in display.ax_.get_xticklabels()]
    assert ticks == sorted(set(ticks))
    display.figure_.canvas.draw()
    with pytest.raises(ValueError, match="axes must be 'probability' or 'log-odds'"):
        ReliabilityDisplay.from_predictions(y, p, axes="logit")


def test_refusals(sample):
    curve = reliability_curve([0.2, 0.8], [0, 1])
    with pytest.raises(ValueError, match="no curve"):
        ReliabilityDisplay([])
    with pytest.raises(ValueError, match="names"):
        ReliabilityDisplay([curve], ["a", "b"])


def test_without_matplotlib_there_is_a_hint(monkeypatch):
    original = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"mixnmatch\[plot\]"):
        ReliabilityDisplay.from_predictions([0, 1], [0.2, 0.8])


def test_matplotlib_is_imported_late():
    code = "import sys, mixnmatch.evaluation.display; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_from_estimator(n_classes):
    from sklearn.datasets import make_classification
    from sklearn.naive_bayes import GaussianNB
    from sklearn.svm import SVC, LinearSVC

    from mixnmatch import CalibratedClassifier

    X, y = make_classification(300, 5, n_informative=4, n_redundant=0, n_classes=n_classes, random_state=0)
    y = np.array(["ant", "bee", "cat"], dtype=object)[y]
    for model in (GaussianNB(), CalibratedClassifier(LinearSVC(), map="ts", cv=2)):
        model.fit(X[:200], y[:200])
        display = ReliabilityDisplay.from_estimator(model, X[200:], y[200:], band="consistency")
        p = model.predict_proba(X[200:])
        p = p[:, 1] if n_classes == 2 else p
        curve = reliability_curve(p, y[200:], classes=["ant", "bee", "cat"][:n_classes], band="consistency")
        np.testing.assert_array_equal(display.curves[0].value, curve.value)
        assert display.names == (type(model).__name__,)
    machine = SVC(decision_function_shape="ovo").fit(X[:200], y[:200])
    shown = ReliabilityDisplay.from_estimator(machine, X[200:], y[200:], name="machine")
    plain = SVC(decision_function_shape="ovr").fit(X[:200], y[:200]).decision_function(X[200:])
    curve = reliability_curve(plain, y[200:], logits=True, classes=["ant", "bee", "cat"][:n_classes])
    np.testing.assert_allclose(shown.curves[0].value, curve.value)
    assert shown.names == ("machine",)
    one = ReliabilityDisplay.from_estimator(machine, X[200:], y[200:], label="bee", sample_weight=np.arange(100) % 3)
    assert "bee" in one.curves[0].problem
    with pytest.raises(ValueError, match="'dog'"):
        ReliabilityDisplay.from_estimator(machine, X[:1], ["dog"])


def test_a_vector_and_two_columns_are_drawn_as_the_same_problem():
    rng = np.random.default_rng(0)
    p = rng.random(200)
    y = (rng.random(200) < p).astype(int)
    display = ReliabilityDisplay.compare(y, {"before": p, "after": np.c_[1 - p, p]})
    assert {curve.problem for curve in display.curves} == {"class 1"}
    three = rng.dirichlet(np.ones(3), 200)
    with pytest.raises(ValueError, match="different things"):
        ReliabilityDisplay.compare(y, {"two": p, "three": three})

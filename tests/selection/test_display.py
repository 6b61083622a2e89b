import numpy as np
import pytest

from mixnmatch import load_sample
from mixnmatch.selection import compare, learning_curve

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def closed():
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def data():
    sample = load_sample()
    return sample.logits_cal[:600], sample.labels_cal[:600]


class Broken:
    def fit(self, scores, y):
        msg = "no"
        raise ValueError(msg)

    def predict_proba(self, scores):
        return scores


@pytest.fixture(scope="module")
def comparison(data):
    return compare(*data, methods={"ts": "ts", "vector": "vector", "broken": Broken()}, logits=True, cv=2)


def test_comparison(comparison):
    display = comparison.plot()
    names = [tick.get_text() for tick in display.ax_.get_yticklabels()]
    assert names == [result.name for result in comparison.results if result.failure is None]
    low, high = display.ax_.get_ylim()
    assert low > high  # the best is on top
    preserving, changing = display.ax_.containers
    drawn = dict(zip(preserving.lines[0].get_ydata(), preserving.lines[0].get_xdata(), strict=True))
    assert drawn[names.index("ts")] == pytest.approx(float(comparison["ts"].gain))
    assert changing.lines[0].get_xdata() == pytest.approx([float(comparison["vector"].gain)])
    bars = changing.lines[2][0].get_segments()[0][:, 0]
    assert bars == pytest.approx(comparison["vector"].gain.interval)
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == ["preserves accuracy", "may change predictions"]
    assert "failed: broken" in display.ax_.get_xlabel()


def test_learning_curve(data):
    curve = learning_curve(*data, methods=["ts", "irm"], logits=True, sizes=[50, 200], repetitions=2)
    display = curve.plot("brier")
    assert [line.get_label() for line in display.ax_.lines] == list(curve.methods)
    for line in display.ax_.lines:
        points = curve.of(line.get_label())
        np.testing.assert_allclose(line.get_ydata(), [point.brier for point in points])
        np.testing.assert_array_equal(line.get_xdata(), [50, 200])
    assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == ["50", "200"]
    assert display.ax_.get_ylabel() == "Brier score"
    _, ax = pyplot.subplots()
    assert curve.plot(ax=ax).ax_ is ax
    with pytest.raises(ValueError, match="measure must be one of nll"):
        curve.plot("ece")
